//! Participation as one value for both the cohort sampler and the accountant, so that they cannot disagree.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::units::{MinSeparation, SamplingRate};

/// How users take part in rounds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Participation {
    /// Each user takes part in each round independently with the same probability.
    Poisson {
        /// The probability.
        rate: SamplingRate,
    },
    /// Each round draws exactly `cohort` of `population` users, without replacement.
    FixedSize {
        /// All users, a public constant.
        population: u64,
        /// Users in a round.
        cohort: u64,
    },
    /// Users come in any order, even one chosen by an adversary, but never too close together or too often.
    MinSeparation {
        /// The closest that two participations of a user may be.
        separation: MinSeparation,
        /// The most participations of a user over the whole run, restarts included.
        max_participations: u64,
    },
    /// Each user takes part at most once in the whole run.
    Once,
}

/// A participation that cannot be carried out, or that contradicts itself.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ParticipationError {
    /// More users in a round than there are.
    #[error(
        "a cohort of {cohort} is not possible with a population of {population}; it must be from 1 to the population"
    )]
    Cohort {
        /// Users in a round.
        cohort: u64,
        /// The number of users in the population.
        population: u64,
    },
    /// Nobody may ever take part.
    #[error("max_participations must be at least 1")]
    NoParticipations,
    /// The population is too small for the separation (rule P6).
    #[error(
        "a population of {population} cannot fill rounds of {cohort} with {min_separation} rounds between two participations: at least {needed} users are needed"
    )]
    SeparationInfeasible {
        /// The number of users in the population.
        population: u64,
        /// Users in a round.
        cohort: u64,
        /// Rounds strictly between two participations.
        min_separation: u64,
        /// The smallest population that could do it.
        needed: u128,
    },
    /// The population is too small for the number of rounds (rule P6).
    #[error(
        "a population of {population} with at most {max_participations} participations each cannot fill {rounds} rounds of {cohort}: {needed} participations are needed"
    )]
    ParticipationsInfeasible {
        /// The number of users in the population.
        population: u64,
        /// Users in a round.
        cohort: u64,
        /// The most participations of one user.
        max_participations: u64,
        /// Rounds of the run.
        rounds: u64,
        /// Participations that the run consumes.
        needed: u128,
    },
}

impl Participation {
    /// Refuses a value that contradicts itself; every accountant and sampler calls this first.
    ///
    /// # Errors
    /// A cohort larger than its population or of nobody, or a limit of zero participations.
    pub fn check(&self) -> Result<(), ParticipationError> {
        match *self {
            Self::FixedSize { population, cohort } if cohort == 0 || cohort > population => {
                Err(ParticipationError::Cohort { cohort, population })
            }
            Self::MinSeparation { max_participations: 0, .. } => Err(ParticipationError::NoParticipations),
            _ => Ok(()),
        }
    }

    /// Whether the cohorts are drawn: then who takes part is not decided by who comes.
    #[must_use]
    pub const fn is_sampled(&self) -> bool {
        matches!(self, Self::Poisson { .. } | Self::FixedSize { .. })
    }

    /// The most of so many rounds that one user can take part in.
    #[must_use]
    pub fn most_participations(&self, rounds: u64) -> u64 {
        match *self {
            Self::Poisson { .. } | Self::FixedSize { .. } => rounds,
            Self::MinSeparation { separation, max_participations } => {
                rounds.div_ceil(separation.as_distance()).min(max_participations)
            }
            Self::Once => rounds.min(1),
        }
    }

    /// Refuses a run that the population cannot fill (rule P6): `population >= m (MinS + 1)` and
    /// `population * MaxP >= m * rounds`.
    ///
    /// # Errors
    /// Which of the two does not hold, with the numbers.
    pub fn check_feasible(&self, population: u64, cohort: u64, rounds: u64) -> Result<(), ParticipationError> {
        self.check()?;
        if cohort == 0 || cohort > population {
            return Err(ParticipationError::Cohort { cohort, population });
        }
        let (separation, max_participations) = match *self {
            Self::MinSeparation { separation, max_participations } => (separation.as_distance(), max_participations),
            Self::Once => (1, 1),
            Self::Poisson { .. } | Self::FixedSize { .. } => return Ok(()),
        };
        let (pool, m) = (u128::from(population), u128::from(cohort));
        let needed = m * u128::from(separation.min(rounds));
        if pool < needed {
            return Err(ParticipationError::SeparationInfeasible {
                population,
                cohort,
                min_separation: separation - 1,
                needed,
            });
        }
        let needed = m * u128::from(rounds);
        if pool * u128::from(max_participations) < needed {
            return Err(ParticipationError::ParticipationsInfeasible {
                population,
                cohort,
                max_participations,
                rounds,
                needed,
            });
        }
        Ok(())
    }
}
