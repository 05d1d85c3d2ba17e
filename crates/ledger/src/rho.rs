//! Converts events to rho and rho to epsilon, for zCDP filters (rule P14).

use crate::error::LedgerError;
use privacy::{
    accountant::{AccountError, AccountantKind},
    event::{Adjacency, PrivacyEvent},
    units::{Delta, Epsilon, Rho},
};

/// The epsilon of a rho, by the conversion that holds for any mechanism.
pub(crate) fn epsilon_of(rho: Rho, delta: Delta, group: u32) -> Result<Epsilon, LedgerError> {
    // Which adjacency is meant makes no difference to the number.
    let bare = PrivacyEvent::Zcdp { adjacency: Adjacency::ZeroOut, rho };
    Ok(AccountantKind::Zcdp.judge_group(&bare, delta, group)?.epsilon)
}

/// The largest rho, to the last bits, whose epsilon is at most the limit.
pub(crate) fn largest_rho(max_epsilon: Epsilon, delta: Delta, group: u32) -> Result<Rho, LedgerError> {
    let rho = |value: f64| Rho::new(value).map_err(|e| LedgerError::plan("max_rho", e));
    let fits = |value: f64| Ok::<bool, LedgerError>(epsilon_of(rho(value)?, delta, group)? <= max_epsilon);
    // Epsilon is at least rho, so no rho above the limit fits.
    let (mut low, mut high) = (0.0, max_epsilon.get());
    for _ in 0..100 {
        let middle = 0.5 * (low + high);
        if fits(middle)? { low = middle } else { high = middle }
    }
    rho(low)
}

/// The zCDP parameter of an event for one unit, where it has one.
pub(crate) fn rho(event: &PrivacyEvent) -> Result<Option<Rho>, LedgerError> {
    // Any delta will do: rho does not depend on it.
    let delta = Delta::new(1e-6).expect("a legal delta");
    match AccountantKind::Zcdp.judge(event, delta) {
        Ok(judgement) => Ok(judgement.rho),
        Err(AccountError::Unsupported { .. }) => Ok(None),
        Err(other) => Err(other.into()),
    }
}
