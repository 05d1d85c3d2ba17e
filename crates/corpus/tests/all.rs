//! All tests of `corpus` that share one binary; what each is about, it says itself.

mod import;
mod store;
