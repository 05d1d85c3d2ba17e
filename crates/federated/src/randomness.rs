//! What is random in a run, and how long each part of it is kept (rules P13, P20 and P21).
//!
//! | what                              | in a simulation, from the seed by | with secret noise                              |
//! |-----------------------------------|-----------------------------------|------------------------------------------------|
//! | noise of a step                   | position                          | a key of its own, chained ([`privacy::step_keys`]) |
//! | who is drawn, who vanishes        | round and attempt                 | a seed of the attempt, kept until it is recorded |
//! | users' rounding, batches and noise | round, attempt and user          | fresh in every attempt, kept nowhere           |
//! | the order in which devices arrive | position                          | the run's key                                  |
//!
//! So a simulation repeats to the bit, and of a run with secret noise no two copies have anything random in common but what
//! was recorded. A step that was not recorded is drawn anew, all but its cohort: drawing that again after a crash would favour
//! cohorts that do not crash. Where it was to be added up securely, its users may have sent what they have: then it has failed,
//! and the next attempt has other users.

use crate::ledger_file::{FileShelf, Place};
use ledger::LedgerError;
use privacy::{
    Participation,
    rng::{NoRandomness, NoiseKey, NoiseSource, SimulationKey},
    step_keys::{LastStep, SecretSteps, StepKeyError, StepKeys},
};
use thiserror::Error;

/// Why a round has no randomness.
#[derive(Debug, Error)]
pub enum RandomnessError {
    /// The operating system gave none.
    #[error(transparent)]
    None(#[from] NoRandomness),
    /// A secret of the run.
    #[error(transparent)]
    Secret(#[from] LedgerError),
    /// The key of a step.
    #[error(transparent)]
    Step(#[from] StepKeyError),
    /// The run has ended, and its keys are gone.
    #[error("the run has ended, and what its noise was drawn from is destroyed: it cannot release anything more")]
    Over,
}

/// What a run draws from.
#[derive(Debug)]
pub struct RunRandomness(Kind);

#[derive(Debug)]
enum Kind {
    Simulated(SimulationKey),
    Secret(Box<Secret>),
    Over,
}

#[derive(Debug)]
struct Secret {
    place: Place,
    steps: SecretSteps<FileShelf>,
}

/// The position of an attempt in streams that repeat, such as a simulation's: no two attempts share one.
#[must_use]
pub fn position(round: u64, attempt: u32) -> Vec<u64> {
    match attempt {
        0 => vec![round],
        later => vec![round, later.into()],
    }
}

/// What one attempt at a round draws from.
#[derive(Debug)]
pub struct OfRound {
    /// Who is drawn, or the order in which devices arrive.
    pub cohort: NoiseSource,
    /// Who vanishes.
    pub vanishing: NoiseSource,
    /// Users' rounding, batches and noise.
    pub users: NoiseSource,
}

impl RunRandomness {
    /// Everything from a seed.
    #[must_use]
    pub const fn simulated(key: SimulationKey) -> Self {
        Self(Kind::Simulated(key))
    }

    /// Secret noise, with keys in the secrets of a ledger whose last release with noise of its own is known.
    ///
    /// # Errors
    /// When the keys do not fit the ledger.
    pub fn secret(place: Place, last: Option<LastStep>) -> Result<Self, LedgerError> {
        let steps = place.step_keys(last)?;
        Ok(Self(Kind::Secret(Box::new(Secret { place, steps }))))
    }

    /// Of a run that has ended.
    #[must_use]
    pub const fn over() -> Self {
        Self(Kind::Over)
    }

    /// What one attempt at a round draws from.
    ///
    /// # Errors
    /// When there is no randomness, or it cannot be made durable.
    pub fn of_round(&mut self, round: u64, participation: &Participation) -> Result<OfRound, RandomnessError> {
        match &self.0 {
            Kind::Simulated(key) => {
                let source = || NoiseSource::from(*key);
                Ok(OfRound { cohort: source(), vanishing: source(), users: source() })
            }
            Kind::Secret(secret) => {
                let seed = secret.place.cohort_seed(round)?;
                let vanishing = NoiseKey::from_secret_bytes(seed.secret_bytes());
                let cohort = if participation.is_sampled() { seed } else { secret.place.noise_key()? };
                let users = NoiseKey::generate()?;
                Ok(OfRound { cohort: cohort.into(), vanishing: vanishing.into(), users: users.into() })
            }
            Kind::Over => Err(RandomnessError::Over),
        }
    }

    /// What cohorts of any step are drawn from, where that is kept: with secret noise each has a seed that is erased.
    pub(crate) fn of_past_cohorts(&self) -> Option<NoiseSource> {
        match &self.0 {
            Kind::Simulated(key) => Some(NoiseSource::from(*key)),
            Kind::Secret(_) | Kind::Over => None,
        }
    }

    /// What the noise of steps is drawn from.
    ///
    /// # Errors
    /// When the run has ended.
    pub fn steps(&mut self) -> Result<&mut dyn StepKeys, RandomnessError> {
        match &mut self.0 {
            Kind::Simulated(key) => Ok(key),
            Kind::Secret(secret) => Ok(&mut secret.steps),
            Kind::Over => Err(RandomnessError::Over),
        }
    }

    /// An attempt is recorded as failed: what its cohort was drawn from is erased.
    ///
    /// # Errors
    /// When it must be taken to be there still.
    pub fn failed(&mut self) -> Result<(), RandomnessError> {
        self.erase_cohort_seed()
    }

    fn erase_cohort_seed(&self) -> Result<(), RandomnessError> {
        match &self.0 {
            Kind::Secret(secret) => Ok(secret.place.erase_cohort_seed()?),
            Kind::Simulated(_) | Kind::Over => Ok(()),
        }
    }

    /// A round is recorded: what is not needed any more is erased. `step` is the step whose noise the run drew for it.
    ///
    /// # Errors
    /// When something must be taken to be there still.
    pub fn recorded(&mut self, step: Option<LastStep>) -> Result<(), RandomnessError> {
        self.erase_cohort_seed()?;
        match step {
            Some(LastStep { at, needed_again }) => Ok(self.steps()?.recorded(at, needed_again)?),
            None => Ok(()),
        }
    }
}
