//! The device side: trains on a user's text, clips and encodes the update. Only an [`privacy::stages::Encoded`] leaves it.
//!
//! The simulator and real devices run this same code. There are no threads or clocks here, and files
//! only behind the feature `files`.
//!
//! | module    | what it is                                                                    |
//! |-----------|-------------------------------------------------------------------------------|
//! | [`learner`] | learners: models, how they read examples, one step of SGD                     |
//! | [`local`] | local training: FedAvg and FedSGD (McMahan et al. 2018)                         |
//! | [`finetune`] | how a device fine-tunes a model without forgetting (Popov et al. 2018)       |
//! | [`evaluation`] | evaluation on a device: counts as a short vector, and what a sum of them says |
//! | [`round`] | one user's contribution to a round: train, weight, clip, encode; or evaluate   |
//! | [`upload`] | which part of an update is sent, and what is kept for later                   |
//! | [`unsent`] | keeps what a real device has learned and not sent, between rounds               |
//! | [`guard`] | lets a device send at most one input per step                                  |
//! | [`protocol`] | how devices and servers communicate                                         |
//! | `contract` | test suites for guard stores and learners (a feature)                         |

#[cfg(feature = "contract")]
pub mod contract;
pub mod days;
pub mod evaluation;
pub mod finetune;
pub mod guard;
pub mod learner;
pub mod local;
pub mod protocol;
pub mod round;
pub mod unsent;
pub mod upload;
