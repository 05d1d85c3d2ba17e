//! All tests of `cuda`, in one binary; what each is about, it says itself.

mod card;
mod central;
mod measuring;
mod without_card;
