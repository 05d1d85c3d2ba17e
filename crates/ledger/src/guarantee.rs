//! Which epsilon a ledger guarantees (rules P14, P22 and P23): what was spent, the whole plan's, or the budget of a filter.
//!
//! What was spent holds only where the moment at which a run ended was fixed before it began: all planned steps were
//! released, or the next one would have exceeded a fixed limit, which the plan alone decides. Where a sampled step failed and
//! was skipped, the whole plan's holds: a failed step counts as if it had been released. A person who ends a run by hand, or takes
//! a model while it runs, may have looked at what was released; what they see is then a part, chosen by looking, of what
//! the whole plan would release, and the whole plan's epsilon is what holds. With a filter its budget does, however little
//! was spent.

use serde::{Deserialize, Serialize};

use crate::{
    book::Ledger,
    entry::{Ended, ImportKind},
    error::LedgerError,
    plan::Budget,
    store::LedgerStore,
};
use privacy::{accountant::Judgement, event::PrivacyEvent, units::Epsilon};

/// The basis of a stated epsilon.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Basis {
    /// What was released: when the run ended was fixed before it began.
    Spent,
    /// The whole plan, however little of it was released: the run is not over, or ended when somebody wanted it to.
    Plan,
    /// The budget of a filter, however little of it was spent: what happened could depend on released values.
    Budget,
}

impl<S: LedgerStore> Ledger<S> {
    /// The basis of the guarantee.
    #[must_use]
    pub fn basis(&self) -> Basis {
        match (self.budget(), self.closing().map(|closing| closing.because)) {
            (Some(Budget::ZcdpFilter { .. }), _) => Basis::Budget,
            // How many steps the budget was enough for depends on which of them failed: then the whole plan counts, at most
            // the limit.
            (Some(Budget::Fixed { .. }), Some(Ended::BudgetSpent)) if self.failed_attempts() == 0 => Basis::Spent,
            _ if self.account.is_done() => Basis::Spent,
            _ => Basis::Plan,
        }
    }

    /// What the guarantee of this run is about, the model from which it started included, and the other runs of a sweep left
    /// out. What the plan names and no entry imports counts as released without privacy.
    #[must_use]
    pub fn guaranteed_event(&self) -> PrivacyEvent {
        match (self.basis(), self.budget()) {
            (Basis::Budget, Some(Budget::ZcdpFilter { max_rho, .. })) => {
                let whole = PrivacyEvent::Zcdp { adjacency: self.plan().adjacency, rho: max_rho };
                let missing: Vec<PrivacyEvent> = self.account.missing_events().collect();
                if missing.is_empty() {
                    return whole;
                }
                PrivacyEvent::Compose { events: missing.into_iter().chain([whole]).collect() }
            }
            (Basis::Plan, _) => self.dearer(self.account.planned_event(), self.run_event()),
            _ => self.run_event(),
        }
    }

    /// The same for all runs of the sweep together (rule P22); none if no other run was imported.
    #[must_use]
    pub fn guaranteed_sweep_event(&self) -> Option<PrivacyEvent> {
        let mut events: Vec<PrivacyEvent> = self.account.imported(ImportKind::SweepRun).collect();
        if events.is_empty() {
            return None;
        }
        events.push(self.guaranteed_event());
        Some(PrivacyEvent::Compose { events })
    }

    /// What is guaranteed, at the plan's delta: of this run and of every other run of its sweep. It is what the noise is worth
    /// as long as it is secret; whether it was, [`Self::randomness`] says.
    ///
    /// # Errors
    /// When the plan's accountant cannot judge it.
    pub fn guaranteed(&self) -> Result<Judgement, LedgerError> {
        match self.guaranteed_sweep_event() {
            Some(event) => Ok(self.judge(&event, self.plan().delta)?),
            None => self.guaranteed_alone(),
        }
    }

    /// The same without the other runs of its sweep.
    ///
    /// # Errors
    /// When the plan's accountant cannot judge it.
    pub fn guaranteed_alone(&self) -> Result<Judgement, LedgerError> {
        let whole = self.judge(&self.guaranteed_event(), self.plan().delta)?;
        match (self.basis(), self.budget()) {
            (Basis::Plan, Some(Budget::Fixed { max_epsilon })) if whole.epsilon > max_epsilon => {
                self.capped(whole, max_epsilon)
            }
            _ => Ok(whole),
        }
    }

    /// A plan that would exceed its limit ends before it does, so the limit holds for it; unless the limit was not kept.
    fn capped(&self, whole: Judgement, max_epsilon: Epsilon) -> Result<Judgement, LedgerError> {
        let spent = self.judge(&self.run_event(), self.plan().delta)?.epsilon;
        if spent > max_epsilon {
            return Ok(whole);
        }
        Ok(Judgement { epsilon: max_epsilon, epsilon_lower: None, rho: None, ..whole })
    }

    /// Whichever costs more. Releases may have less noise than was planned, and then the plan's epsilon is not theirs.
    fn dearer(&self, planned: PrivacyEvent, spent: PrivacyEvent) -> PrivacyEvent {
        let cost = |event: &PrivacyEvent| self.judge(event, self.plan().delta).map(|judged| judged.epsilon);
        match (cost(&planned), cost(&spent)) {
            (Ok(of_plan), Ok(of_releases)) if of_releases <= of_plan => planned,
            (Ok(_), Ok(_)) => spent,
            // What cannot be judged cannot be compared; together they cost at least as much as either.
            _ => PrivacyEvent::Compose { events: vec![planned, spent] },
        }
    }
}
