//! Whether the budget allows one more release (rule P14).
//!
//! With a plan fixed in advance, the plan's accountant judges all that was released. Where what happens may depend on
//! released values, that is not sound: the accountant would be asked at a moment that the releases chose. Then a zCDP
//! filter holds: the sum of the rhos, each of which may be chosen by looking at what was released before, stays at most
//! a rho fixed in advance (a Renyi filter in the sense of Feldman and Zrnic 2021, at every order at once), and the guarantee is its
//! epsilon.

use crate::{
    error::LedgerError,
    plan::{Budget, Plan},
    rho::{epsilon_of, rho},
};
use privacy::{event::PrivacyEvent, units::Epsilon};

/// Refuses if all that was released, this event included, costs more than the plan allows.
pub(crate) fn check(plan: &Plan, all: &PrivacyEvent) -> Result<(), LedgerError> {
    let Some(budget) = plan.budget else { return Ok(()) };
    let max_epsilon = budget.max_epsilon();
    let fits = |would_be: Epsilon, fits: bool| match fits {
        true => Ok(()),
        false => Err(LedgerError::BudgetExceeded { max_epsilon, would_be }),
    };
    match budget {
        Budget::Fixed { .. } => {
            let would_be = spent(plan, all, max_epsilon)?;
            fits(would_be, would_be <= max_epsilon)
        }
        Budget::ZcdpFilter { max_rho, .. } => match rho(all)? {
            None => fits(Epsilon::INFINITE, false),
            Some(rho) => fits(epsilon_of(rho, plan.delta, plan.group)?, rho <= max_rho),
        },
    }
}

/// What the accountant says; the tight answer only where the quick one is above the limit.
fn spent(plan: &Plan, all: &PrivacyEvent, max_epsilon: Epsilon) -> Result<Epsilon, LedgerError> {
    let quick = plan.accountant.upper_bound(all, plan.delta, plan.group)?.epsilon;
    if quick <= max_epsilon {
        return Ok(quick);
    }
    Ok(plan.accountant.judge_group(all, plan.delta, plan.group)?.epsilon)
}
