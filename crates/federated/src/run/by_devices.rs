//! Evaluations by devices in a run: requested between rounds, with results in the line of metrics.

use ledger::{Ledger, LedgerStore};

use super::{Run, RunError, Step};
use crate::{
    fleet::{Fleet, Stop},
    home::{Home, Records},
    metrics::ByDevices,
    plan::{EVALUATION, Plan},
    randomness::RunRandomness,
    round::evaluation::Evaluated,
    secrets::Secrets,
};

impl<H: Home + Records> Run<'_, H> {
    /// One attempt at an evaluation by devices. Once it is over, one way or another, the model is measured here too.
    pub(super) fn ask_devices(&mut self, fleet: &mut dyn Fleet, stop: &Stop) -> Result<Step, RunError> {
        let failed_evaluation = match self.rounds.evaluate(fleet, stop, self.time())? {
            Evaluated::OutOfBudget(why) => return self.out_of_budget(&why),
            Evaluated::Failed(failed) => Some(failed),
            Evaluated::Done(_) => None,
        };
        let metrics = self.evaluate_if_due()?;
        self.over = self.is_over();
        Ok(Step { failed_evaluation, ..self.stands(metrics) })
    }

    /// What devices measured of the model after so many rounds, where they did and it is still stored.
    pub(super) fn by_devices(&self, rounds: u64) -> Result<Option<ByDevices>, RunError> {
        let (Some(evaluations), Some(step)) = (&self.plan.device_evaluations, self.rounds.evaluated(rounds)) else {
            return Ok(None);
        };
        let recorded = self.rounds.evaluation(step)?;
        Ok(recorded.and_then(|recorded| ByDevices::of(self.opened.learner(), evaluations, &recorded)))
    }
}

/// What a run draws from, with the keys of evaluations where there are some.
pub(super) fn randomness<S: LedgerStore>(
    of_rounds: RunRandomness,
    secrets: &Secrets,
    plan: &Plan,
    ledger: &Ledger<S>,
) -> Result<RunRandomness, RunError> {
    let Some(evaluations) = &plan.device_evaluations else { return Ok(of_rounds) };
    let (mechanism, last) = (evaluations.phase.mechanism.as_ref(), ledger.last_step(EVALUATION));
    let last = mechanism.zip(last).and_then(|(mechanism, last)| mechanism.last_step(last));
    Ok(of_rounds.with_evaluations(secrets, last)?)
}
