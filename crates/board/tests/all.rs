//! All tests of `board` that share one binary; what each is about, it says itself.

mod runs;
#[path = "../../federated/tests/small_runs/mod.rs"]
mod small_runs;
