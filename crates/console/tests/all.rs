//! All tests of `console` that share one binary; what each is about, it says itself.

mod described;
mod served;
#[path = "../../federated/tests/small_runs/mod.rs"]
mod small_runs;
