//! All tests of `server` that share one binary; what each is about, it says itself.

// Helpers that crates share call that one by the name that it has for itself.
extern crate federated as keyhush_federated;

mod backup;
mod hub;
#[path = "../../durable/tests/killed/mod.rs"]
#[cfg(unix)]
mod killed;
#[path = "../../ledger/tests/ledger_story/mod.rs"]
mod ledger_story;
mod lost_key;
#[path = "../../federated/tests/memory_home/mod.rs"]
#[allow(dead_code, reason = "other tests set it back")]
mod memory_home;
mod memory_state;
mod settings;
#[path = "../../federated/tests/small_runs/mod.rs"]
mod small_runs;
mod sqlite;
mod sqlite_crash;
mod state;
mod whole_run;
#[path = "../../federated/tests/workshop/mod.rs"]
mod workshop;
