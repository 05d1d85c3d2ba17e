//! All randomness of a run, and how long each part of it is kept (rules P13, P20 and P21).
//!
//! | what                              | in a simulation, from the seed by | with secret noise                              |
//! |-----------------------------------|-----------------------------------|------------------------------------------------|
//! | noise of a step                   | position                          | a key of its own, chained ([`privacy::step_keys`]); those of rounds and of evaluations on shelves of their own |
//! | who is drawn, who vanishes        | round and attempt                 | a seed of the attempt, kept until it is recorded |
//! | users' rounding, batches and noise | round, attempt and user          | fresh in every attempt, kept nowhere           |
//! | the order in which devices arrive | position                          | the run's key                                  |
//!
//! So a simulation repeats to the bit, and of a run with secret noise no two copies have anything random in common but what
//! was recorded. A step that was not recorded is drawn again, all but its cohort: drawing that again after a crash would favour
//! cohorts that do not crash. Where it was to be added up securely, its users may have sent what they have: then it has failed,
//! and the next attempt has other users.

use crate::secrets::{Secrets, VaultShelf};
use ledger::LedgerError;
use privacy::{
    rng::{NoRandomness, SimulationKey},
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
    /// There are no evaluations by devices.
    #[error("this run has no evaluations by devices, and so no keys for them")]
    NoEvaluations,
    /// The run has ended, and its keys are gone.
    #[error("the run has ended and its noise keys are destroyed; it cannot release anything more")]
    Over,
}

/// The source of a run's randomness.
#[derive(Debug)]
pub struct RunRandomness(Kind);

#[derive(Debug)]
enum Kind {
    Simulated(SimulationKey),
    Secret {
        rounds: Box<SecretSteps<VaultShelf>>,
        /// None where devices are not asked to measure.
        evaluations: Option<Box<SecretSteps<VaultShelf>>>,
    },
    Over,
}

/// The stream whose noise is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoiseOf {
    /// Rounds.
    Rounds,
    /// Evaluations by devices.
    Evaluations,
}

/// The position of an attempt in streams that repeat, such as a simulation's: no two attempts share one.
#[must_use]
pub fn position(round: u64, attempt: u32) -> Vec<u64> {
    match attempt {
        0 => vec![round],
        later => vec![round, later.into()],
    }
}

impl RunRandomness {
    /// Everything from a seed.
    #[must_use]
    pub const fn simulated(key: SimulationKey) -> Self {
        Self(Kind::Simulated(key))
    }

    /// Secret noise, with keys in the secrets of a run whose last release with noise of its own is known.
    ///
    /// # Errors
    /// When the keys do not fit the ledger.
    pub fn secret(secrets: &Secrets, last: Option<LastStep>) -> Result<Self, LedgerError> {
        Ok(Self(Kind::Secret { rounds: Box::new(secrets.step_keys(last)?), evaluations: None }))
    }

    /// The same with evaluations by devices, whose last release is known too.
    ///
    /// # Errors
    /// When the keys do not fit the ledger.
    pub fn with_evaluations(self, secrets: &Secrets, last: Option<LastStep>) -> Result<Self, LedgerError> {
        Ok(match self.0 {
            Kind::Secret { rounds, .. } => {
                let evaluations = Some(Box::new(secrets.evaluation_keys(last)?));
                Self(Kind::Secret { rounds, evaluations })
            }
            other => Self(other),
        })
    }

    /// Of a run that has ended.
    #[must_use]
    pub const fn over() -> Self {
        Self(Kind::Over)
    }

    /// What the noise of steps is drawn from.
    ///
    /// # Errors
    /// When the run has ended.
    pub fn steps(&mut self, of: NoiseOf) -> Result<&mut dyn StepKeys, RandomnessError> {
        match (&mut self.0, of) {
            (Kind::Simulated(key), _) => Ok(key),
            (Kind::Secret { rounds, .. }, NoiseOf::Rounds) => Ok(rounds.as_mut()),
            (Kind::Secret { evaluations: Some(evaluations), .. }, NoiseOf::Evaluations) => Ok(evaluations.as_mut()),
            (Kind::Secret { evaluations: None, .. }, NoiseOf::Evaluations) => Err(RandomnessError::NoEvaluations),
            (Kind::Over, _) => Err(RandomnessError::Over),
        }
    }

    /// A round or an evaluation is recorded: what is not needed any more is erased. `step` is the step whose noise the run drew for it.
    ///
    /// # Errors
    /// When something must be taken to be there still.
    pub fn recorded(&mut self, of: NoiseOf, step: Option<LastStep>) -> Result<(), RandomnessError> {
        match step {
            Some(LastStep { at, needed_again }) => Ok(self.steps(of)?.recorded(at, needed_again)?),
            None => Ok(()),
        }
    }
}
