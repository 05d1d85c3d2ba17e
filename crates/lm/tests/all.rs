//! All tests of `lm` that share one binary; what each is about, it says itself.

mod folder;
mod metrics;
mod ngram;
mod predict;
