//! All tests of `board` that share one binary; what each is about, it says itself.

mod runs;
