//! All tests of `federated` that share one binary; what each is about, it says itself.

mod absent;
mod attacks;
mod audits;
mod before;
mod canaries;
#[path = "world/chance.rs"]
mod chance;
mod chosen;
mod contracts;
mod coordinator;
mod devices;
mod driven;
mod durable;
mod earlier;
mod evaluation;
mod failed_rounds;
mod failing;
mod finetune;
mod foreseen;
mod heads;
mod held_out;
#[path = "../../durable/tests/killed/mod.rs"]
#[cfg(unix)]
mod killed;
mod learners;
mod ledger_crash;
mod ledger_files;
#[path = "../../ledger/tests/ledger_story/mod.rs"]
mod ledger_story;
mod left_over;
mod memory_home;
mod real_devices;
mod run;
mod same_bytes;
mod samples;
mod secure;
mod small_runs;
mod spoilers;
mod streams;
mod told;
mod unsent;
mod upload;
mod workshop;
mod wrong_vectors;
