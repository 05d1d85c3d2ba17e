//! All tests of `report` that share one binary; what each is about, it says itself.

mod folder;
mod pages;
#[path = "../../federated/tests/small_runs/mod.rs"]
mod small_runs;
