//! All tests of `device` that share one binary; what each is about, it says itself.

mod guard;
mod guard_crash;
mod guard_file;
#[path = "../../durable/tests/killed/mod.rs"]
#[cfg(all(feature = "files", unix))]
mod killed;
mod participant;
mod participant_any;
mod participant_evaluation;
mod participant_secure;
mod participating;
mod policy;
mod schema;
mod timer;
