//! Benchmarks: how fast this machine trains, predicts, aggregates and serves.
//!
//! | module             | what it measures                                                             |
//! |--------------------|------------------------------------------------------------------------------|
//! | [`device`]         | training on one user's text, as Popov et al. 2018 did on a phone             |
//! | [`local_training`] | users one after the other, as a device or a simulator trains them            |
//! | [`round`]          | what a round costs beside the users' training, and what a second thread costs |
//! | `gpu`              | rounds of users on a card, beside the card's peaks and the threads' updates; a feature |
//! | [`secagg`]         | a whole round of secure aggregation, message by message                      |
//! | [`predict`]        | one next-word prediction, as a keyboard asks for it                          |
//! | `network`          | a server and its devices as real processes: overhead a round, CPU time, memory, losses; a feature |
//! | `clock`            | CPU time and memory, as the system accounts for them                         |
//!
//! Each is a value that says what is measured; its `run` gives the numbers.

mod clock;
pub mod device;
mod error;
#[cfg(feature = "gpu")]
pub mod gpu;
pub mod local_training;
#[cfg(feature = "network")]
pub mod network;
pub mod predict;
pub mod round;
pub mod secagg;

pub use self::error::{BenchError, WorkError};

/// Refuses to do something no times.
fn at_least_one<const N: usize>(fields: [(&'static str, usize); N]) -> Result<(), BenchError> {
    let zero = fields.into_iter().find(|(_, value)| *value == 0);
    zero.map_or(Ok(()), |(field, _)| Err(BenchError::Zero { field }))
}
