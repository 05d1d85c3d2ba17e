//! Federated training: settings, plan, rounds, optimizer and simulator. The server side of Algorithm 1 (McMahan et al. 2018).
//!
//! | module         | what it is                                                              |
//! |----------------|-------------------------------------------------------------------------|
//! | [`run`]        | a run: started, resumed after any crash, ended                          |
//! | [`home`]       | storage of a run: a folder, or a server's database                      |
//! | [`secrets`]    | the secrets of a run, and their storage                                 |
//! | [`round`]      | the training loop: open this file first                                 |
//! | [`config`]     | the settings of a run                                                   |
//! | [`plan`]       | the plan: everything decided before the first round                     |
//! | [`audit`]      | attacks on the models of runs: a lower bound on what an adversary learns  |
//! | [`canaries`]   | canary users that audit a run                                           |
//! | [`burden`]     | the noise of a plan, compared with what models have tolerated           |
//! | [`propose`]    | proposes settings for a target, by the recipes of the papers            |
//! | [`forecast`]   | forecasts the cost of a plan: epsilon, memory, bytes, and time           |
//! | [`cohort`]     | samples the cohort of a round                                           |
//! | [`population`] | the users a simulation trains on                                        |
//! | [`evaluate`]   | how well a model predicts, on all cores                                 |
//! | [`finetune`]   | fine-tuning without forgetting: what devices rehearse, and learning from an ensemble |
//! | [`released`]   | one model from the released models of several runs, and what it costs   |
//! | [`test_sets`]  | the same of text files and stores that are not trained on                |
//! | [`fleet`]      | who takes part in a round, and how their sum comes about                |
//! | [`protocol`]   | the server's side of what devices are told and send, without IO           |
//! | [`randomness`] | the noise of steps, and how long it is kept                              |
//! | [`replay`]     | a run that is over, once more on threads: the cohorts that were recorded |
//! | [`engine`]     | who computes what users learn                                           |
//! | [`checkpoint`] | the state of a run as safetensors                                      |
//! | [`model_folder`] | models on disk                                                       |
//! | [`learners`]   | the registry of learners                                                |
//! | [`ledger_file`] | a ledger in a file, with the files that belong to it                  |
//! | [`metrics`]    | the metrics of a run, as lines of its files                             |
//! | [`numbers`]    | formats numbers for people                                              |
//! | [`price`]      | an epsilon together with its meaning                                    |
//! | [`sweep`]      | sweeps: combinations of settings, with several seeds each               |
//! | [`vocabulary_ledger`] | the entry of a vocabulary counted from users' text              |
//! | [`optimizer`]  | the server optimizer                                                    |
//! | [`workers`]    | threads for work other than training                                     |
//! | `contract`     | the tests that every engine, fleet, home, vault and store must pass (a feature)          |

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
pub mod released;
pub mod replay;
pub mod round;
pub mod run;
pub mod secrets;
pub mod sweep;
pub mod test_sets;
pub mod vocabulary_ledger;
pub mod workers;

pub use config::learners;

/// This program as a ledger names it: its version, and the revision of the source that it was built from.
pub const SOFTWARE: &str = concat!("keyhush ", env!("CARGO_PKG_VERSION"), ", ", env!("KEYHUSH_REVISION"));
