//! The statistics of audits: tests of whether a run protects less than it claims.
//!
//! An accountant says what an adversary can learn at most (an upper bound on epsilon). An audit attacks, and says what an adversary
//! learned at least. If that is more than the accountant allows, one of the two is wrong. An audit that finds nothing proves nothing.
//! Everything here is a function of scores and counts; who trains and who attacks is elsewhere.
//!
//! | module          | what it is                                                                                  |
//! |-----------------|---------------------------------------------------------------------------------------------|
//! | [`one_run`]     | a lower bound on epsilon from one run with many canaries (Steinke et al. 2023, Mahloujifar et al. 2024) |
//! | [`trade_off`]   | what a guarantee lets an adversary do, as that bound needs it                                |
//! | [`binomial`]    | tails of the binomial distribution, rounded to the safe side                                 |
//! | [`one_shot`]    | an estimate of epsilon from the same scores (Andrew et al. 2023)                             |
//! | [`gaussian_sum`]| a noised sum whose epsilon is known: the audits' own test                                    |
//! | [`repeated`]    | the one-run audit on many such sums: is it wrong no more often than it says?                 |
//! | [`hill`]        | the tail of log-likelihood ratios (Popov et al. 2018, appendix A)                            |
//! | [`exposure`]    | how much more likely a planted secret is than others (Carlini et al. 2019)                   |
//! | [`membership`]  | telling members from others by a threshold: the ROC curve                                    |
//!
//! A lower bound must never be too high. Where rounding could make it so, it is rounded down.

pub mod binomial;
pub mod exposure;
pub mod gaussian_sum;
pub mod hill;
pub mod membership;
pub mod one_run;
pub mod one_shot;
pub mod repeated;
pub mod trade_off;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{Delta, Epsilon};

/// Why an audit says nothing.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum AuditError {
    /// A number outside its range.
    #[error("{what} must be {range}, got {got}")]
    OutOfRange {
        /// The name of the number.
        what: &'static str,
        /// The range in words.
        range: &'static str,
        /// The value received.
        got: f64,
    },
    /// Too little to say anything about.
    #[error("{what}: at least {least} are needed, got {got}")]
    TooFew {
        /// What there is too little of.
        what: &'static str,
        /// The number needed.
        least: usize,
        /// The number found.
        got: usize,
    },
    /// A score that is no number.
    #[error("{what} number {index} is not a number: the run or the model is damaged")]
    NotFinite {
        /// What was scored.
        what: &'static str,
        /// Which one, counted from 0.
        index: usize,
    },
    /// The values have no tail that could be described.
    #[error("the largest {count} values are all equal, so their tail cannot be estimated; use more or longer samples")]
    NoTail {
        /// How many of them were looked at.
        count: usize,
    },
    /// The test bench could not be set up.
    #[error("the noised sum could not be made: {0}")]
    Bench(String),
}

/// The conclusion of an audit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The attack learned more than the guarantee allows: the guarantee is false.
    Violated,
    /// The attack learned no more than the guarantee allows. That does not prove the guarantee.
    Consistent,
    /// There is no guarantee that could be violated: the run is not private.
    NoGuarantee,
    /// The number is an estimate that proves nothing in either direction.
    Estimate,
}

impl Verdict {
    /// Describes it in a sentence.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Violated => {
                "The guarantee is violated: the attack learned more than it allows. Do not publish this model."
            }
            Self::Consistent => {
                "The attack learned no more than the guarantee allows. This does not prove the guarantee."
            }
            Self::NoGuarantee => "The run has no guarantee: its epsilon is infinite.",
            Self::Estimate => "This is an estimate and not a guarantee: the true epsilon can be larger or smaller.",
        }
    }
}

/// Bounds at a delta: a point of the picture of an audit.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct AtDelta {
    /// The delta.
    pub delta: f64,
    /// What the accountant says.
    pub epsilon_formal: Epsilon,
    /// What the audit shows if only the scale of the noise can differ from what is recorded.
    pub epsilon_lower: f64,
    /// What it shows whatever the run did.
    pub epsilon_lower_any: f64,
}

/// The deltas of these pictures.
pub fn deltas() -> impl Iterator<Item = Delta> {
    DELTAS.into_iter().filter_map(|delta| Delta::new(delta).ok())
}

const DELTAS: [f64; 8] = [1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 1e-9];

fn bench(problem: impl std::fmt::Display) -> AuditError {
    AuditError::Bench(problem.to_string())
}

/// Refuses scores that are no numbers.
fn check_finite(what: &'static str, values: &[f64]) -> Result<(), AuditError> {
    values.iter().position(|v| !v.is_finite()).map_or(Ok(()), |index| Err(AuditError::NotFinite { what, index }))
}

/// A confidence strictly between 0 and 1, as the probability of being wrong.
fn failure_probability(confidence: f64) -> Result<f64, AuditError> {
    if confidence > 0.0 && confidence < 1.0 {
        // Rounded down, so that the audit is at least as confident as it says.
        return Ok((1.0 - confidence) * (1.0 - 1e-12));
    }
    Err(AuditError::OutOfRange { what: "confidence", range: "above 0 and below 1", got: confidence })
}
