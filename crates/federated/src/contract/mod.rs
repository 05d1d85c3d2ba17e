//! Contract tests at the seams: suites that every engine, measurer, central trainer, fleet, home, vault and coordinator
//! store must pass.
//!
//! Each takes what it tests and panics where a promise is not kept, so a test of one is a line. They are the feature `contract`,
//! which no program turns on. Stores of ledgers have theirs in `ledger::contract`; learners are tested by the registry that they
//! stand in (`tests/learners.rs`).
#![allow(clippy::missing_panics_doc, reason = "all of it is there to panic")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot be set up must stop")]

mod central;
mod coordinator_store;
mod engine;
mod fleet;
mod home;
mod measurer;
mod vault;

pub use self::{
    central::central_trainer,
    coordinator_store::coordinator_store,
    engine::{Reference, Trial, TrialPopulation, engine},
    fleet::{Lives, fleet, simulated_fleet},
    home::home,
    measurer::measurer,
    vault::vault,
};
