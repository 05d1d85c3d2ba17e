//! All tests of `cuda`, in one binary; what each is about, it says itself.

mod card;
mod central;
mod contract;
mod greedy;
mod measuring;
#[path = "../../federated/tests/small_runs/mod.rs"]
mod small_runs;
mod without_card;
