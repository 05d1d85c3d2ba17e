//! The random choices of a simulated fleet: cohorts, drop-outs, and the randomness of users' contributions (rules P20 and P21).
//!
//! In a simulation with a seed all of it follows from the seed, so it repeats to the bit. With secret noise a cohort has a seed of
//! its own, which is kept until what became of its attempt is recorded: drawing the cohort again after a crash would favour cohorts
//! that do not crash. Users' own randomness is fresh in every attempt and kept nowhere. The order in which devices arrive follows
//! from the run's noise key.

use privacy::{
    Participation,
    rng::{NoiseKey, NoiseSource, SimulationKey},
};

use crate::{randomness::RandomnessError, secrets::Secrets};

/// What a simulated fleet draws from.
#[derive(Debug)]
pub(super) enum Chance {
    /// Everything from a seed.
    Simulated(SimulationKey),
    /// From the secrets of a run.
    Secret(Secrets),
}

/// What one attempt at a round draws from.
#[derive(Debug)]
pub(super) struct OfAttempt {
    /// Who is drawn, or the order in which devices arrive.
    pub(super) cohort: NoiseSource,
    /// The randomness of drop-outs.
    pub(super) vanishing: NoiseSource,
    /// Users' rounding, batches and noise.
    pub(super) users: NoiseSource,
}

impl Chance {
    /// What one attempt at a round draws from.
    pub(super) fn of_attempt(&self, round: u64, participation: &Participation) -> Result<OfAttempt, RandomnessError> {
        match self {
            Self::Simulated(key) => {
                let source = || NoiseSource::from(*key);
                Ok(OfAttempt { cohort: source(), vanishing: source(), users: source() })
            }
            Self::Secret(secrets) => {
                let seed = secrets.cohort_seed(round)?;
                let vanishing = NoiseKey::from_secret_bytes(seed.secret_bytes());
                let cohort = if participation.is_sampled() { seed } else { secrets.noise_key()? };
                let users = NoiseKey::generate()?;
                Ok(OfAttempt { cohort: cohort.into(), vanishing: vanishing.into(), users: users.into() })
            }
        }
    }

    /// What the first attempt at a later round will draw from, where that is known before this round is recorded. With secret noise
    /// it is not: a seed that was drawn early and kept would be shared by all who continue a copy of the run; and one that was drawn
    /// early and not kept would be drawn again after a crash, which those who are read early can cause (rule P21).
    pub(super) fn foreseen(
        &self,
        round: u64,
        participation: &Participation,
    ) -> Result<Option<OfAttempt>, RandomnessError> {
        match self {
            Self::Simulated(_) => self.of_attempt(round, participation).map(Some),
            Self::Secret(_) => Ok(None),
        }
    }

    /// What one attempt at an evaluation by devices draws from. Who comes follows from the order in which devices arrive, which is not
    /// drawn again after a crash; so nothing has to be kept.
    pub(super) fn of_evaluation(&self) -> Result<OfAttempt, RandomnessError> {
        match self {
            Self::Simulated(key) => {
                let source = || NoiseSource::from(*key);
                Ok(OfAttempt { cohort: source(), vanishing: source(), users: source() })
            }
            Self::Secret(secrets) => {
                let (vanishing, users) = (NoiseKey::generate()?, NoiseKey::generate()?);
                let cohort = secrets.noise_key()?;
                Ok(OfAttempt { cohort: cohort.into(), vanishing: vanishing.into(), users: users.into() })
            }
        }
    }

    /// What cohorts of any step are drawn from, where that is kept: with secret noise each has a seed that is erased.
    pub(super) fn of_past_cohorts(&self) -> Option<NoiseSource> {
        match self {
            Self::Simulated(key) => Some(NoiseSource::from(*key)),
            Self::Secret(_) => None,
        }
    }

    /// What became of an attempt is recorded: what its cohort was drawn from is erased.
    pub(super) fn settled(&self) -> Result<(), RandomnessError> {
        match self {
            Self::Simulated(_) => Ok(()),
            Self::Secret(secrets) => Ok(secrets.erase_cohort_seed()?),
        }
    }
}
