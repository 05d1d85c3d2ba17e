//! Differential privacy with tight, exact bounds: accountants, clipping, encoding, and noise.
//!
//! Describe what happened as a [`PrivacyEvent`], and ask an accountant for its epsilon:
//!
//! ```
//! use keyhush_privacy::{AccountantKind, Delta, NoiseMultiplier, PrivacyEvent, SamplingRate};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // McMahan et al. 2018, Table 2: 763,430 users, 5,000 per round, noise 1, 5,000 rounds.
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
//! | [`participation`] | participation as one value for the sampler and the accountant         |
//! | [`event`]       | privacy events: what happened, under which adjacency                   |
//! | [`sensitivity`] | how far one user moves a run with correlated noise                     |
//! | [`accountant`]  | accountants: moments, Renyi, privacy loss, zCDP, and the best of them  |
//! | [`audit`]       | the statistics of audits: lower bounds on epsilon from attacks           |
//! | [`assumptions`] | the assumptions of an epsilon, in words                                  |
//! | [`calibrate`]   | the noise, rounds or cohort that a target needs                        |
//! | [`query`]       | a question about a run, field by field, and the event that it describes     |
//! | [`stages`]      | update, clipped, encoded, sum, released: each consumes the one before   |
//! | [`encoding`]    | from floats to checked integers: grid, rounding, rotation               |
//! | [`rng`]         | the run's key and the streams drawn from it                             |
//! | [`step_keys`]   | the noise keys of a run, one per step                                   |
//! | [`noise`]       | exact discrete Gaussian and Skellam samplers                            |
//! | [`mechanism`]   | independent, tree, banded and BLT noise, one step at a time              |
//! | [`factorization`] | coefficients that minimize the error of correlated noise              |
//! | [`design`]      | designs of correlated noise by name                                     |
//! | [`clip`]        | the adaptive clip norm, which follows a quantile                        |
//! | [`workers`]     | runs work that splits into pieces                                       |

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
