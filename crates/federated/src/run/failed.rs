//! What a run does and says when an attempt at a round came to nothing.

use ledger::Failure;

use super::{Run, RunError, Step};
use crate::{plan::Phase, round::attempts::Failed};

impl Run<'_> {
    /// Goes on after an attempt that failed, which is recorded. A round that is passed over is followed by the evaluation and the
    /// checkpoint that are due after it, as one that was done.
    pub(super) fn after_failed(&mut self, failed: Failed) -> Result<Step, RunError> {
        let metrics = if failed.passed_over { self.evaluate_if_due()? } else { None };
        if failed.passed_over {
            self.checkpoint_if_due()?;
        }
        self.over = self.is_over();
        Ok(Step { done: None, failed: Some(failed), metrics, over: self.over.clone() })
    }

    /// The attempts that came to nothing, in order, as the ledger has them.
    #[must_use]
    pub fn failed(&self) -> Vec<Failed> {
        self.plan.phases().iter().flat_map(|phase| self.failed_of(phase)).collect()
    }

    fn failed_of<'p>(&'p self, phase: &'p Phase) -> impl Iterator<Item = Failed> + 'p {
        let passed_over = phase.participation.is_sampled();
        let failed =
            move |round: u64, Failure { attempt, reason }: Failure| Failed { round, attempt, reason, passed_over };
        let steps = self.ledger().failed_steps(&phase.stream);
        steps.flat_map(move |(step, all)| all.iter().map(move |one| failed(phase.first + step, *one)))
    }
}
