//! Differential privacy that is tight, exact and never optimistic: what a run costs, and what is done to the numbers.
//!
//! Say what happened as a [`PrivacyEvent`], ask an accountant what it costs:
//!
//! ```
//! use keyhush_privacy::{AccountantKind, Delta, NoiseMultiplier, PrivacyEvent, SamplingRate};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // McMahan et al. 2018, Table 2: 763,430 users, 5,000 a round, noise 1, 5,000 rounds.
//! let round = PrivacyEvent::poisson(SamplingRate::new(5000.0 / 763_430.0)?, NoiseMultiplier::new(1.0)?);
//! let run = round.times(5000);
//! let delta = Delta::new(1e-9)?;
//!
//! let then = AccountantKind::Moments.judge(&run, delta)?;
//! let now = AccountantKind::Best.judge(&run, delta)?;
//! assert_eq!(format!("{:.3}", then.epsilon.get()), "4.634"); // as printed in 2018
//! assert_eq!(format!("{:.3}", now.epsilon.get()), "3.899"); // the same run, judged tightly
//! # Ok(())
//! # }
//! ```
//!
//! | module          | what it is                                                             |
//! |-----------------|------------------------------------------------------------------------|
//! | [`units`]       | epsilon, delta, rho, noise multiplier, ...: types without illegal values |
//! | [`participation`] | who takes part: one value for the sampler and for the accountant      |
//! | [`event`]       | what happened, and under which adjacency                               |
//! | [`sensitivity`] | how far one user moves a run of correlated noise                       |
//! | [`accountant`]  | moments, Renyi, privacy loss, zCDP, and the best of them               |
//! | [`audit`]       | the statistics of audits: what an attack shows of epsilon at least       |
//! | [`assumptions`] | what must be true of a run for its epsilon to be true                    |
//! | [`calibrate`]   | the noise, rounds or cohort that a target needs                        |
//! | [`query`]       | a question about a run, field by field, and the event that it describes     |
//! | [`stages`]      | update, clipped, encoded, sum, released: each consumes the one before   |
//! | [`encoding`]    | from floats to checked integers: grid, rounding, rotation               |
//! | [`rng`]         | the run's key and the streams drawn from it                             |
//! | [`step_keys`]   | the keys of a run's noise, one a step                                   |
//! | [`noise`]       | exact discrete Gaussian and Skellam samplers                            |
//! | [`mechanism`]   | independent, tree, banded and BLT noise, one step at a time              |
//! | [`factorization`] | the coefficients that make correlated noise small                     |
//! | [`design`]      | correlated noise that can be asked for by name                          |
//! | [`clip`]        | the clip norm that follows a quantile                                   |
//! | [`workers`]     | who does work that falls into pieces                                    |

pub mod accountant;
pub mod assumptions;
pub mod audit;
pub mod calibrate;
pub mod clip;
pub mod design;
pub mod encoding;
pub mod event;
pub mod factorization;
pub mod mechanism;
pub mod noise;
pub mod participation;
pub mod query;
pub mod rng;
pub mod sensitivity;
pub mod stages;
pub mod step_keys;
pub mod units;
pub mod workers;

pub use accountant::{AccountError, AccountantKind, Judgement};
pub use event::{Adjacency, Noise, NoiseMatrix, PrivacyEvent, Segment};
pub use participation::Participation;
pub use units::{ClipNorm, Delta, Epsilon, MinSeparation, NoiseMultiplier, Rho, SamplingRate, Sensitivity, UnitError};
