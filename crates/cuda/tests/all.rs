//! All tests of `cuda`, in one binary; what each is about, it says itself.

mod card;
mod without_card;
