//! All tests of `cli` that share one binary; what each is about, it says itself.

mod audit;
mod bench_network;
mod board;
mod browser;
mod commands;
mod container;
mod data;
mod data_kill;
mod deploy;
mod device;
mod distil;
mod eval;
mod experiment;
mod folder;
mod generate;
mod model_story;
mod plan;
mod predict;
mod pretrain;
mod proxy;
mod restore;
mod rotate;
mod secagg;
mod serve;
mod serve_killed;
mod serve_stops;
mod serve_tasks;
#[path = "../../federated/tests/small_runs/mod.rs"]
mod small_runs;
mod sweep;
mod task_life;
mod toy;
mod track;
mod train;
mod unit;
