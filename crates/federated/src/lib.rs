//! The other half of Algorithm 1 (McMahan et al. 2018), and the simulator: who takes part, who trains, what the server does
//! with what was released.
//!
//! | module         | what it is                                                              |
//! |----------------|-------------------------------------------------------------------------|
//! | [`run`]        | a run: begun, resumed after any crash, ended                            |
//! | [`home`]       | where a run lives: a folder, or wherever a server keeps it              |
//! | [`secrets`]    | what a run keeps from everybody, wherever that is kept                  |
//! | [`round`]      | the loop: open this file first                                          |
//! | [`config`]     | what a run is, as a person writes it                                    |
//! | [`plan`]       | everything that was decided before the first round, from one place      |
//! | [`audit`]      | attacks on the models of runs: what an adversary learns at least          |
//! | [`canaries`]   | users who are made up to audit a run                                    |
//! | [`burden`]     | the noise of a plan, against what models have borne                     |
//! | [`propose`]    | what a target asks for, by the recipes of the papers                    |
//! | [`forecast`]   | what a plan will cost: epsilon, memory, bytes, and time, by a rehearsal  |
//! | [`cohort`]     | who takes part in a round                                               |
//! | [`population`] | whose text a simulation trains on                                       |
//! | [`evaluate`]   | how well a model predicts, on all cores                                 |
//! | [`finetune`]   | fine-tuning without forgetting: what devices rehearse, and learning from an ensemble |
//! | [`test_sets`]  | the same of text files and stores that are not trained on                |
//! | [`fleet`]      | who takes part in a round, and how their sum comes about                |
//! | [`protocol`]   | the server's side of what devices are told and send, without IO           |
//! | [`randomness`] | the noise of steps, and how long it is kept                              |
//! | [`replay`]     | a run that is over, once more on threads: the cohorts that were recorded |
//! | [`engine`]     | who computes what users learn                                           |
//! | [`checkpoint`] | the state of a run as safetensors                                      |
//! | [`model_folder`] | models on disk                                                       |
//! | [`learners`]   | which learners there are                                                |
//! | [`ledger_file`] | a ledger in a file, with what belongs to it beside it                 |
//! | [`metrics`]    | what a run measures, as the lines of its files                          |
//! | [`numbers`]    | numbers as people read them                                             |
//! | [`price`]      | an epsilon together with what it means                                  |
//! | [`sweep`]      | many runs of one question, and what comes of them together              |
//! | [`vocabulary_ledger`] | the entry of a vocabulary that was counted in users' text       |
//! | [`optimizer`]  | what the server does with a released average                            |
//! | [`workers`]    | the threads for what a round does beside training                        |
//! | `contract`     | what every engine, fleet, home, vault and store must do, as suites for tests (a feature) |

pub mod audit;
pub mod burden;
pub mod canaries;
pub mod checkpoint;
pub mod cohort;
pub mod config;
#[cfg(feature = "contract")]
pub mod contract;
pub mod engine;
pub mod evaluate;
pub mod finetune;
pub mod fleet;
pub mod forecast;
pub mod home;
pub mod learners;
pub mod ledger_file;
pub mod metrics;
pub mod model_folder;
pub mod numbers;
pub mod optimizer;
pub mod plan;
pub mod population;
pub mod price;
pub mod propose;
pub mod protocol;
pub mod randomness;
pub mod replay;
pub mod round;
pub mod run;
pub mod secrets;
pub mod sweep;
pub mod test_sets;
pub mod vocabulary_ledger;
pub mod workers;

/// This program as a ledger names it: its version, and the revision of the source that it was built from.
pub const SOFTWARE: &str = concat!("keyhush ", env!("CARGO_PKG_VERSION"), ", ", env!("KEYHUSH_REVISION"));
