//! What happens where the text is: a user's text becomes an update, the update is clipped and encoded. What leaves is an
//! [`privacy::stages::Encoded`] and nothing else.
//!
//! The simulator trains its users with this very code, and so will a phone. There are no threads or clocks here, and files
//! only behind the feature `files`.
//!
//! | module    | what it is                                                                    |
//! |-----------|-------------------------------------------------------------------------------|
//! | [`learner`] | what is learned: models, how they read examples, one step of SGD              |
//! | [`local`] | what a user does with the model: FedAvg and FedSGD (McMahan et al. 2018)        |
//! | [`finetune`] | how a device fine-tunes a model without forgetting (Popov et al. 2018)       |
//! | [`evaluation`] | what a user counts of a model, as a short vector, and what a sum of them says |
//! | [`round`] | one user's part of a round: train, weigh, clip, encode; or measure             |
//! | [`upload`] | what of an update leaves: all of it, or a part, with what is kept for later   |
//! | [`guard`] | what a device remembers so that it gives one input for a step, ever            |
//! | [`protocol`] | how a device and a server speak                                             |
//! | `contract` | what every store of a guard must do, as a suite for its tests (a feature)     |

#[cfg(feature = "contract")]
pub mod contract;
pub mod evaluation;
pub mod finetune;
pub mod guard;
pub mod learner;
pub mod local;
pub mod protocol;
pub mod round;
pub mod upload;
