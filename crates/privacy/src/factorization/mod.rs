//! Computes coefficients that minimize the error of correlated noise, rather than copying them from a table.
//!
//! A correlated-noise mechanism releases the prefix sums `A x` (A: ones on and below the diagonal) as `B (C x + Z)`
//! with `A = B C`. One user moves `C x` by the sensitivity of C, so Z has that standard deviation per unit of noise
//! multiplier, and the prefix sum of round t is off by `sensitivity(C) * norm of row t of B`. This module looks for
//! the C of a given form for which that is least: at the last round ([`Objective::Max`]; for Toeplitz matrices it is
//! the worst one) or on average ([`Objective::Mean`]).
//!
//! | here                | what                                                           | arXiv                  |
//! |---------------------|----------------------------------------------------------------|------------------------|
//! | [`optimise_banded`] | lower-triangular Toeplitz C with so many bands                 | 2306.08153, 2405.15913 |
//! | [`optimise_blt`]    | buffered linear Toeplitz C: c_i = sum_j omega_j theta_j^(i-1)  | 2404.16706, 2408.08868 |
//! | [`evaluate`]        | sensitivity and errors of any strategy matrix, trees included  | 2405.13763, Theorem 2  |
//! | [`quantise`]        | coefficients on a grid, as the exact mechanism needs them (P4) |                        |
//!
//! Both searches stay among columns that start with 1, never rise and never fall below 0, because only for those is the
//! sensitivity under a minimum separation known exactly (rule P5; Kalinin and Lampert 2024, Theorem 2): a smooth
//! change of variables leaves nothing else to reach. Gradients are exact, by hand, in time linear in the rounds. There
//! is no randomness and no platform mathematics: the same question has the same answer, to the bit, everywhere.
//!
//! ```
//! use keyhush_privacy::factorization::{Objective, Setting, independent, optimise_blt};
//! use keyhush_privacy::{MinSeparation, Participation};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // 500 rounds; nobody again before 99 other rounds have passed.
//! let separation = MinSeparation::rounds_between(99)?;
//! let setting = Setting::new(500, Participation::MinSeparation { separation, max_participations: 5 })?;
//! let blt = optimise_blt(&setting, 3, Objective::Max)?;
//! assert_eq!(format!("{:.2}", blt.errors.max()), "8.44"); // standard deviation of the last prefix sum's noise
//! assert_eq!(format!("{:.2}", independent(&setting).max()), "50.00");
//! # Ok(())
//! # }
//! ```
//!
//! The errors are those of jax_privacy: squared error times squared sensitivity, for unit clip and unit noise
//! multiplier. Papers and their numbers are cited from memory.

mod banded;
mod blt;
mod column;
mod errors;
mod quantise;
mod quasi_newton;

use thiserror::Error;

pub use errors::{Errors, evaluate, independent};
pub use quantise::{BANDED_BITS, BLT_BITS, quantise};

use crate::{
    event::{EventError, NoiseMatrix},
    participation::{Participation, ParticipationError},
};

/// The most rounds that are optimised for.
pub const MAX_ROUNDS: u64 = 1 << 20;
/// The most buffers of a BLT. More than about seven gain nothing that could be measured.
pub const MAX_BUFFERS: usize = 10;
/// The most multiplications that one pass over a banded matrix may take.
const MAX_BANDED_WORK: u64 = 1 << 27;

/// Which of the errors is made small.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Objective {
    /// That of the worst prefix sum, which for a Toeplitz matrix is the last.
    Max,
    /// The mean over all prefix sums (of the squared error).
    Mean,
}

/// For whom noise is made small: the rounds of one segment and the limits that are enforced over them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Setting {
    rounds: u64,
    participation: Participation,
}

impl Setting {
    /// So many rounds without a restart, under limits: [`Participation::MinSeparation`] or [`Participation::Once`].
    ///
    /// # Errors
    /// When the rounds are 0 or more than [`MAX_ROUNDS`], or the participation is of another kind or illegal.
    pub fn new(rounds: u64, participation: Participation) -> Result<Self, FactorizationError> {
        if !(1..=MAX_ROUNDS).contains(&rounds) {
            return Err(FactorizationError::Rounds { got: rounds });
        }
        participation.check()?;
        match participation {
            Participation::MinSeparation { .. } | Participation::Once => Ok(Self { rounds, participation }),
            Participation::Poisson { .. } | Participation::FixedSize { .. } => {
                Err(FactorizationError::ParticipationKind)
            }
        }
    }

    /// The rounds of the segment.
    #[must_use]
    pub const fn rounds(&self) -> u64 {
        self.rounds
    }

    /// The limits.
    #[must_use]
    pub const fn participation(&self) -> Participation {
        self.participation
    }

    /// The most participations of one user that fit.
    #[must_use]
    pub fn participations(&self) -> u64 {
        match self.participation {
            Participation::MinSeparation { separation, max_participations } => {
                self.rounds.div_ceil(separation.as_distance()).min(max_participations)
            }
            _ => 1,
        }
    }

    /// The smallest distance of two participations; the whole segment where there is only one.
    fn distance(&self) -> u64 {
        match self.participation {
            Participation::MinSeparation { separation, .. } if self.participations() > 1 => separation.as_distance(),
            _ => self.rounds,
        }
    }
}

/// A strategy matrix and what it does in the setting it was made for.
#[derive(Debug, Clone, PartialEq)]
pub struct Factorization {
    /// C, on the grid of its kind: [`BANDED_BITS`] or [`BLT_BITS`].
    pub matrix: NoiseMatrix,
    /// Its sensitivity and errors, computed for the coefficients as they stand in `matrix`.
    pub errors: Errors,
}

/// Why there is no factorisation.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum FactorizationError {
    /// No rounds, or more than can be optimised for.
    #[error("rounds must be between 1 and {MAX_ROUNDS}, got {got}")]
    Rounds {
        /// The requested value.
        got: u64,
    },
    /// No bands, or more than rounds.
    #[error("bands must be between 1 and the {rounds} rounds, got {got}")]
    Bands {
        /// The requested value.
        got: usize,
        /// The rounds.
        rounds: u64,
    },
    /// More bands over more rounds than is reasonable to search.
    #[error("{bands} bands over {rounds} rounds are too many to optimize; use fewer bands, or a BLT")]
    Work {
        /// The bands.
        bands: usize,
        /// The rounds.
        rounds: u64,
    },
    /// No buffers, or too many.
    #[error("buffers must be between 1 and {MAX_BUFFERS}, got {got}")]
    Buffers {
        /// The requested value.
        got: usize,
    },
    /// Sampling has no separation.
    #[error("correlated noise needs minimum-separation or once participation")]
    ParticipationKind,
    /// The participation contradicts itself.
    #[error(transparent)]
    Participation(#[from] ParticipationError),
    /// A matrix that cannot be evaluated.
    #[error(transparent)]
    Event(#[from] EventError),
}

/// The banded Toeplitz matrix with the least error, with `bands` coefficients that start with 1 and never rise.
///
/// # Errors
/// When there are no bands, more bands than rounds, or too many of both.
pub fn optimise_banded(
    setting: &Setting,
    bands: usize,
    objective: Objective,
) -> Result<Factorization, FactorizationError> {
    of_column(setting, bands, |bands| banded::optimise(setting, bands, objective))
}

/// The banded Toeplitz matrix with the first column that `column` gives for so many bands.
///
/// # Errors
/// When there are no bands, more bands than rounds, too many of both, or coefficients that are none.
pub fn of_column(
    setting: &Setting,
    bands: usize,
    column: impl FnOnce(usize) -> Vec<f64>,
) -> Result<Factorization, FactorizationError> {
    let rounds = setting.rounds;
    if bands == 0 || bands as u64 > rounds {
        return Err(FactorizationError::Bands { got: bands, rounds });
    }
    if rounds.saturating_mul(bands as u64) > MAX_BANDED_WORK {
        return Err(FactorizationError::Work { bands, rounds });
    }
    finish(setting, &NoiseMatrix::Banded { coefficients: column(bands) })
}

/// The buffered linear Toeplitz matrix with the least error, with so many buffers, the slowest first.
///
/// Where fewer buffers would do (everyone in every round: then independent noise is best), the rest have weights near
/// or at 0.
///
/// # Errors
/// When there are no buffers or more than [`MAX_BUFFERS`].
pub fn optimise_blt(
    setting: &Setting,
    buffers: usize,
    objective: Objective,
) -> Result<Factorization, FactorizationError> {
    if !(1..=MAX_BUFFERS).contains(&buffers) {
        return Err(FactorizationError::Buffers { got: buffers });
    }
    finish(setting, &blt::optimise(setting, buffers, objective))
}

/// Puts what a search found on its grid and judges that.
fn finish(setting: &Setting, found: &NoiseMatrix) -> Result<Factorization, FactorizationError> {
    let bits = match found {
        NoiseMatrix::Blt { .. } => BLT_BITS,
        NoiseMatrix::Banded { .. } | NoiseMatrix::Tree => BANDED_BITS,
    };
    let matrix = quantise(found, bits);
    let errors = evaluate(&matrix, setting)?;
    Ok(Factorization { matrix, errors })
}
