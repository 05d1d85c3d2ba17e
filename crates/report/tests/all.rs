//! All tests of `report` that share one binary; what each is about, it says itself.

mod folder;
mod pages;
