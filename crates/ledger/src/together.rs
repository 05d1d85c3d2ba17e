//! The joint cost of several ledgers for a device that is in all of them.
//!
//! Each ledger pays for its own task and knows of no other. The costs of a user in several add up: their events compose,
//! also where the tasks run at the same time and one looks at what the other released: Renyi divergences and privacy losses, by which
//! the accountants judge, compose then too (Lyu 2022; Vadhan and Zhang 2023).

use serde::Serialize;

use crate::{book::Ledger, error::LedgerError, store::LedgerStore};
use privacy::{
    accountant::{AccountantKind, Judgement},
    event::PrivacyEvent,
    rng::Randomness,
    units::Delta,
};

/// The joint guarantee of several ledgers.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Together {
    /// How many ledgers there are.
    pub ledgers: u64,
    /// The delta of all of it.
    pub delta: Delta,
    /// The joint cost of all ledgers.
    #[serde(flatten)]
    pub judgement: Judgement,
}

/// The joint cost for a unit that is in all of these ledgers, at a delta or at the smallest delta of the ledgers.
///
/// # Errors
/// When they do not protect the same, one is there twice or guarantees nothing, or no accountant judges all of it.
pub fn together<S: LedgerStore>(ledgers: &[Ledger<S>], delta: Option<Delta>) -> Result<Together, LedgerError> {
    ledgers.iter().try_for_each(check_holds)?;
    together_if_secret(ledgers, delta)
}

/// What they would cost together if all noise had been secret. Where some of it was simulated, nothing is guaranteed, and a caller that shows
/// this number must say so (rule P23).
///
/// # Errors
/// As [`together`], which also refuses simulated noise.
pub fn together_if_secret<S: LedgerStore>(
    ledgers: &[Ledger<S>],
    delta: Option<Delta>,
) -> Result<Together, LedgerError> {
    let Some((first, others)) = ledgers.split_first() else {
        return Err(refused("no ledger was given"));
    };
    others.iter().try_for_each(|other| check_same(first, other))?;
    for (i, ledger) in ledgers.iter().enumerate() {
        if ledgers[..i].iter().any(|before| before.opening().id == ledger.opening().id) {
            return Err(refused(format!("the ledger {} is given twice", ledger.head())));
        }
    }
    let whole = |ledger: &Ledger<S>| ledger.guaranteed_sweep_event().unwrap_or_else(|| ledger.guaranteed_event());
    let event = PrivacyEvent::Compose { events: ledgers.iter().map(whole).collect() };
    let smallest = others.iter().map(|other| other.plan().delta);
    let smallest = smallest.fold(first.plan().delta, |a, b| if b.get() < a.get() { b } else { a });
    let delta = delta.unwrap_or(smallest);
    let judgement = AccountantKind::Best.judge_group(&event, delta, first.plan().group)?;
    Ok(Together { ledgers: ledgers.len() as u64, delta, judgement })
}

fn check_same<S: LedgerStore>(first: &Ledger<S>, other: &Ledger<S>) -> Result<(), LedgerError> {
    let (a, b) = (first.plan(), other.plan());
    if a.unit != b.unit {
        let problem = format!("one ledger protects each {}, another each {}", a.unit.name(), b.unit.name());
        return Err(refused(problem));
    }
    if a.group != b.group {
        let problem = format!("one ledger protects groups of {}, another of {}", a.group, b.group);
        return Err(refused(problem));
    }
    if a.adjacency != b.adjacency {
        return Err(refused(format!("one uses {} adjacency, another {}", a.adjacency, b.adjacency)));
    }
    Ok(())
}

fn check_holds<S: LedgerStore>(ledger: &Ledger<S>) -> Result<(), LedgerError> {
    if ledger.randomness() == Randomness::Secret {
        return Ok(());
    }
    let problem = format!("the ledger {} guarantees nothing: its noise was simulated", ledger.head());
    Err(refused(problem))
}

fn refused(problem: impl Into<String>) -> LedgerError {
    LedgerError::NotTogether { problem: problem.into() }
}
