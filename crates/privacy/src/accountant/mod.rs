//! Accountants: compute the epsilon of an event.
//!
//! Each judges the same [`PrivacyEvent`]s and either answers with an upper bound on epsilon or refuses by name what it
//! does not know; none ever guesses. No event costs nothing; a non-private one has infinite epsilon.
//!
//! | accountant | for what                                        | how tight                                     |
//! |------------|-------------------------------------------------|-----------------------------------------------|
//! | `moments`  | Gaussian, Poisson                               | as the first papers printed it                |
//! | `rdp`      | everything but groups under Poisson sampling    | exact divergences, the conversion loses some  |
//! | `pld`      | Gaussian, Poisson, correlated                   | within 0.1 %, mostly far less; a lower bound  |
//! | `zcdp`     | Gaussian, correlated, bare rho, Skellam         | exact for Gaussian and correlated             |
//! | `best`     | everything                                      | the smallest valid answer, and whose it is    |

pub(crate) mod gaussian;
mod minimise;
mod moments;
mod pld;
mod rdp;
mod release;
mod sampled;
mod zcdp;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{
    event::{Adjacency, EventError, PrivacyEvent},
    units::{Delta, Epsilon, Rho},
};
use release::Reduced;

/// The accountants by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AccountantKind {
    /// The moments accountant of 2016, for the papers' tables.
    Moments,
    /// Renyi differential privacy.
    Rdp,
    /// Privacy-loss distributions.
    Pld,
    /// Zero-concentrated differential privacy.
    Zcdp,
    /// The tightest of those that are valid for what happened.
    Best,
}

impl AccountantKind {
    /// The name used in files, flags and answers.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Moments => "moments",
            Self::Rdp => "rdp",
            Self::Pld => "pld",
            Self::Zcdp => "zcdp",
            Self::Best => "best",
        }
    }

    /// The cost of `event` at `delta`.
    ///
    /// # Errors
    /// When the event contradicts itself, mixes adjacencies, or holds something this accountant does not know.
    pub fn judge(self, event: &PrivacyEvent, delta: Delta) -> Result<Judgement, AccountError> {
        self.judge_group(event, delta, 1)
    }

    /// The cost of `event` at `delta` for a group of users protected together, such as one person's devices (rule P2).
    ///
    /// # Errors
    /// As [`Self::judge`]; and when no analysis for groups is known, or the group is empty.
    pub fn judge_group(self, event: &PrivacyEvent, delta: Delta, group: u32) -> Result<Judgement, AccountError> {
        self.ask(&Reduced::new(event, checked_group(group)?)?, delta, Precision::Bounds)
    }

    /// As [`Self::judge_group`], but in a hurry: no lower bound, and up to a few parts in 10^5 above. For searches, and
    /// where a limit is only asked to hold.
    ///
    /// # Errors
    /// As [`Self::judge_group`].
    pub fn upper_bound(self, event: &PrivacyEvent, delta: Delta, group: u32) -> Result<Judgement, AccountError> {
        self.ask(&Reduced::new(event, checked_group(group)?)?, delta, Precision::UpperOnly)
    }

    /// The parameter of the one Gaussian that all of an event is, where it is one and this accountant gives its exact cost.
    pub(crate) fn only_gaussian(self, event: &PrivacyEvent, group: u32) -> Result<Option<f64>, AccountError> {
        let reduced = Reduced::new(event, checked_group(group)?)?;
        let exact = matches!(self, Self::Best | Self::Pld | Self::Zcdp) && reduced.non_private.is_none();
        Ok(reduced.only_gaussian().filter(|_| exact))
    }

    fn ask(self, reduced: &Reduced<'_>, delta: Delta, precision: Precision) -> Result<Judgement, AccountError> {
        let judgement = if reduced.non_private.is_some() {
            Judgement::new(self, Epsilon::INFINITE)
        } else {
            match self {
                Self::Moments => moments::judge(reduced, delta)?,
                Self::Rdp => rdp::judge(reduced, delta)?,
                Self::Pld => pld::judge(reduced, delta, precision)?,
                Self::Zcdp => zcdp::judge(reduced, delta)?,
                Self::Best => best(reduced, delta, precision)?,
            }
        };
        Ok(Judgement { adjacency: reduced.adjacency, rho: reduced.rho(), ..judgement })
    }
}

impl std::fmt::Display for AccountantKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

fn checked_group(group: u32) -> Result<u32, AccountError> {
    if (1..=MAX_GROUP).contains(&group) { Ok(group) } else { Err(AccountError::Group { got: group }) }
}

/// The largest group that is judged.
pub const MAX_GROUP: u32 = 64;

/// Whether the tightest bound is wanted, and a lower one too; or an upper bound in a hurry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Precision {
    Bounds,
    UpperOnly,
}

/// An accountant's answer.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Judgement {
    /// An upper bound on epsilon.
    pub epsilon: Epsilon,
    /// A lower bound on the smallest epsilon that holds, where one is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epsilon_lower: Option<Epsilon>,
    /// The Renyi order at which the bound was taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub order: Option<f64>,
    /// The zCDP parameter of all of it, where it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rho: Option<Rho>,
    /// Who answered; never `best`, except when nothing was asked.
    pub accountant: AccountantKind,
    /// What makes neighbours; none when nothing happened.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub adjacency: Option<Adjacency>,
}

impl Judgement {
    fn new(accountant: AccountantKind, epsilon: Epsilon) -> Self {
        Self { epsilon, epsilon_lower: None, order: None, rho: None, accountant, adjacency: None }
    }
}

/// A question that has no honest answer.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum AccountError {
    /// The event contradicts itself or mixes adjacencies.
    #[error(transparent)]
    Event(#[from] EventError),
    /// The accountant does not know an event.
    #[error("the {accountant} accountant does not support {event}: {advice}")]
    Unsupported {
        /// The accountant that was asked.
        accountant: AccountantKind,
        /// The unsupported event.
        event: &'static str,
        /// Advice on what to use instead.
        advice: &'static str,
    },
    /// Losses too far apart for a lattice: very little noise, or a delta so large that epsilon is next to nothing.
    #[error("the {accountant} accountant cannot discretize privacy losses this far apart; use rdp or best")]
    NoLattice {
        /// The accountant that was asked.
        accountant: AccountantKind,
    },
    /// No analysis for groups is known.
    #[error("group privacy is not supported for {event}")]
    GroupUnsupported {
        /// The event.
        event: &'static str,
    },
    /// A group of nobody, or a crowd.
    #[error("a group must have between 1 and 64 members, got {got}")]
    Group {
        /// The requested value.
        got: u32,
    },
}

/// The smallest of the valid answers. Gaussians have an exact one, a bare rho only one; otherwise the privacy-loss accountant is tightest
/// where it applies, and elsewhere Renyi, or no amplification at all.
fn best(reduced: &Reduced<'_>, delta: Delta, precision: Precision) -> Result<Judgement, AccountError> {
    if reduced.rho().is_some() {
        return zcdp::judge(reduced, delta);
    }
    match pld::judge(reduced, delta, precision) {
        Ok(by_loss) if by_loss.epsilon.is_finite() => return Ok(by_loss),
        _ => {}
    }
    let renyi = rdp::judge(reduced, delta);
    let unamplified = reduced.unamplified();
    let plain = if unamplified.only_gaussian().is_some() { zcdp::judge(&unamplified, delta).ok() } else { None };
    match (renyi, plain) {
        (Ok(renyi), Some(plain)) if plain.epsilon < renyi.epsilon => Ok(Judgement { epsilon_lower: None, ..plain }),
        (Err(_), Some(plain)) => Ok(Judgement { epsilon_lower: None, ..plain }),
        (renyi, _) => renyi,
    }
}
