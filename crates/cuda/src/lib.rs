//! The GPU engine: hundreds of users trained by each kernel.
//!
//! Every peer trains the users of a cohort one after another, or leaves batching to a compiler. Here a chunk of the cohort lies on the
//! card, each user with weights of their own, and one local step of all of them is one CUDA graph: strided-batched products by cuBLAS
//! and kernels of our own, which are compiled for the shape of the model when the engine is made (NVRTC). Updates never leave the card:
//! they are clipped, rounded onto the grid and added up there, with the arithmetic of `privacy::stages` and the words of each user's own
//! stream, and only the integer sum is downloaded. Each user's integer norm is checked exactly on the card; a user
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
//! | `measuring` | evaluates a model on the card                                                                  |
//! | `evaluation` | users' contributions to an evaluation                                                         |
//! | `central`, `dropout` | central training of one model on public text, with dropout                            |
//! | `encoding`  | encodes trained weights: clip, round, check, sum                                               |
//! | `held`      | everything the card holds of people's data, so that it is cleared                              |
//! | `placement` | the layout of parameters on the card                                                           |
//! | `cohort`    | the users' text, read ahead                                                                    |
//! | `schedule`  | which user reads what in which step                                                            |
//! | `shape`     | the sizes that kernels are compiled for                                                        |
//! | `source`    | the kernels' sources, and how they are compiled                                                |
//! | `peaks`     | the card's measured peak rates                                                                 |
//! | `card`      | the card: memory, launches, products, graphs. The only module with unsafe code                 |

mod card;
mod central;
mod cohort;
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
    engine::{CUDA, CardEngine},
    error::CudaError,
    measuring::CardMeasurer,
    peaks::{Peaks, peaks},
    source::compile_all,
};

/// Whether there is a card here, with the libraries that it takes: tests of it are for such machines.
#[must_use]
pub fn is_there() -> bool {
    card::is_there()
}
