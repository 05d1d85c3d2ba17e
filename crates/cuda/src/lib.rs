//! The GPU engine: hundreds of users trained by each kernel.
//!
//! Every peer trains the users of a cohort one after another, or leaves batching to a compiler. Here a chunk of the cohort lies on the
//! card, each user with weights of their own, and one local step of all of them is one CUDA graph: strided-batched products by cuBLAS
//! and kernels of our own, which are compiled for the shape of the model when the engine is made (NVRTC). Updates never leave the card:
//! they are clipped, rounded onto the grid and added up there, with the arithmetic of `privacy::stages` and the words of each user's own
//! stream; the integer sum, norms and losses come down, and the update of a user whom the card leaves to the host. Each user's integer norm is checked exactly on the card; a user
//! whose integers violate a bound is encoded by the host, with the code that devices run.
//!
//! CUDA is loaded when an engine is created; without it, creating one is an error and everything else works. A chunk has one size for
//! all of a run, so what a user sends depends neither on their place nor on their neighbours; the sum is an integer sum, so it is the
//! same in any order. It is not the sum of the threads engine to the bit: products are added up in another order,
//! or with fewer bits where that is asked for.
//!
//! | module      | what it is                                                                                     |
//! |-------------|------------------------------------------------------------------------------------------------|
//! | `engine`    | the engine: users in chunks, sums out                                                          |
//! | `lane`      | a part of a chunk, with its own stream                                                         |
//! | `network`   | one local step of a lane: the memory it needs and the calls it is made of                      |
//! | `vocabulary`, `recurrence`, `gates` | the parts of a step that have kernels of our own                        |
//! | `measuring` | what a model predicts of people's text                                                         |
//! | `evaluation` | users' parts of an evaluation                                                                 |
//! | `central`, `dropout`, `bound` | one model that learns public text: units left out, steps within a bound      |
//! | `encoding`  | from trained weights to integers and their sum                                                 |
//! | `held`      | what the card holds of people, so that it is cleared                                           |
//! | `placement` | where parameters lie on the card                                                               |
//! | `cohort`    | whose text is read, and read ahead                                                             |
//! | `schedule`  | which user reads what in which step                                                            |
//! | `shape`     | the sizes that kernels are compiled for                                                        |
//! | `source`, `compiled` | the kernels' sources, how they are compiled, and all of them compiled without a card   |
//! | `peaks`     | the card's measured peak rates                                                                 |
//! | `card`      | the card: memory, launches, products, graphs. The only module with unsafe code                 |

mod bound;
mod card;
mod central;
mod cohort;
mod compiled;
mod dropout;
mod encoding;
mod engine;
mod error;
mod evaluation;
mod gates;
mod held;
mod lane;
mod measuring;
mod network;
mod peaks;
mod placement;
mod recurrence;
mod schedule;
mod shape;
mod source;
mod vocabulary;

pub use self::{
    central::CardTrainer,
    compiled::compile_all,
    engine::{CUDA, CardEngine},
    error::CudaError,
    measuring::CardMeasurer,
    peaks::{Peaks, peaks},
};

/// Whether there is a card here: a driver that counts one, or that fails. A card that does not work, or without the libraries that it
/// takes, is there all the same: tests of it are to fail on such machines, and not to be skipped.
#[must_use]
pub fn is_there() -> bool {
    card::is_there()
}

/// Says so where there is no card, and tests of it are skipped.
///
/// # Panics
/// Where `KEYHUSH_CARD` is `required` and there is none: on a machine that is to have a card, skipping its tests is a failure.
#[cfg(test)]
#[allow(clippy::print_stdout, reason = "what is skipped is said")]
fn skipped_without_card() -> bool {
    let there = is_there();
    assert!(there || std::env::var_os("KEYHUSH_CARD").is_none_or(|card| card != "required"), "there is no card here");
    if !there {
        println!("skipped: there is no NVIDIA card here");
    }
    !there
}
