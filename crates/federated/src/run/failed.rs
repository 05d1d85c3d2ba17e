//! Records and reports failed attempts at a round.

use ledger::{Failure, Ledger, LedgerStore};

use super::{Run, RunError, Step};
use crate::{
    home::{Home, Records},
    round::attempts::{Failed, rounds},
};

impl<H: Home + Records> Run<'_, H> {
    /// Continues after an attempt that failed, which is recorded. A round that is skipped is followed by the evaluation and the
    /// checkpoint that are due after it, as one that was done.
    pub(super) fn after_failed(&mut self, failed: Failed) -> Result<Step, RunError> {
        let metrics = if failed.passed_over { self.evaluate_if_due()? } else { None };
        if failed.passed_over {
            self.checkpoint_if_due()?;
        }
        self.over = self.is_over();
        Ok(Step { failed: Some(failed), ..self.stands(metrics) })
    }

    /// The failed attempts, in order, as the ledger has them.
    #[must_use]
    pub fn failed(&self) -> Vec<Failed> {
        failed_attempts(self.ledger())
    }
}

/// The failed attempts, in order, as a ledger has them.
pub(super) fn failed_attempts<S: LedgerStore>(ledger: &Ledger<S>) -> Vec<Failed> {
    let mut all = Vec::new();
    let mut first = 0;
    for phase in rounds(ledger) {
        let passed_over = phase.participation.is_sampled();
        for (step, failures) in ledger.failed_steps(&phase.stream) {
            let failed = |Failure { attempt, reason, .. }| Failed { round: first + step, attempt, reason, passed_over };
            all.extend(failures.iter().copied().map(failed));
        }
        first += phase.rounds;
    }
    all
}
