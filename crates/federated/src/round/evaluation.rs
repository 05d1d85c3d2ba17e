//! Evaluations by devices: between two rounds the fleet sums what devices count; the sum is noised, recorded and read as metrics.
//!
//! ```text
//! round 10 recorded -> fleet (who takes part, predict, count, clip, encode, sum) -> release -> record -> metrics -> round 11
//! ```
//!
//! An evaluation is a release like a round's, in a stream of its own: with its own participation, noise and keys, and the next round
//! waits for it. Nothing of the model depends on it. Where it stands follows from the ledger alone: the evaluation of a model has
//! its entry between the round that made the model and the round that follows. So after a crash it is continued, or was done.
//!
//! An attempt that fails is recorded, and others are asked, [`MOST_ATTEMPTS`] times in all; then the evaluation is left out and the
//! run continues: a model that nobody measured is no worse. Its step is taken by the next one, whose attempts keep counting, so nobody
//! who was asked for it is asked again before the separation is over (rules P6, P18 and P24). Then the whole plan is what holds,
//! for not all of it was released.

use std::{collections::BTreeMap, fmt};

use device::{round::Task, upload::Upload};
use ledger::{Attempt, Failure, FailureReason, LedgerError, LedgerStore, Recorded};
use privacy::mechanism::{Mechanism, MechanismError};

use super::{Loop, RoundError};
use crate::{
    fleet::{At, Attempted, Fleet, FleetError, Observed, Outcome, RoundTask, Stop},
    plan::{Coding, DeviceEvaluations, EVALUATION, no_noise},
    randomness::NoiseOf,
};

/// Attempts at one evaluation that may fail before it is left out.
pub const MOST_ATTEMPTS: usize = 3;

/// Whether an evaluation by devices is due now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    /// No evaluation is due.
    No,
    /// The model is to be measured; this is the step.
    Step(u64),
    /// It was measured, at this step.
    Done(u64),
    /// It failed as often as it may.
    LeftOut,
}

/// The outcome of an attempt at an evaluation.
#[derive(Debug)]
pub enum Evaluated {
    /// It was released and recorded, at this step.
    Done(u64),
    /// It failed. That is recorded.
    Failed(FailedEvaluation),
    /// It would have cost more than the budget, and did not begin (rule P14).
    OutOfBudget(LedgerError),
}

/// A failed attempt at an evaluation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FailedEvaluation {
    /// Rounds of the model that was to be measured.
    pub rounds: u64,
    /// The reason.
    pub reason: FailureReason,
    /// Whether the evaluation is not attempted again.
    pub left_out: bool,
}

impl fmt::Display for FailedEvaluation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rounds, reason, left_out } = self;
        let next =
            if *left_out { "it is skipped, and the run continues" } else { "it is attempted again with other devices" };
        write!(f, "the evaluation by devices after round {rounds} failed: {}; {next}", reason.words())
    }
}

impl<'a, S: LedgerStore> Loop<'a, S> {
    /// What is to be done about an evaluation by devices of the model as it is.
    #[must_use]
    pub fn evaluation_due(&self) -> Due {
        let rounds = self.state.round;
        let Some(evaluations) = self.plan.device_evaluations.as_ref().filter(|e| e.is_due(rounds)) else {
            return Due::No;
        };
        if let Some(step) = self.evaluated(rounds) {
            return Due::Done(step);
        }
        let next = self.next_evaluation();
        // The rounds continued, or nothing may be released any more.
        if self.is_recorded(rounds) || self.ledger.is_closed() || next >= evaluations.phase.rounds {
            return Due::LeftOut;
        }
        let after = self.made_by(rounds);
        let failures = self.ledger.failures(EVALUATION, next).iter().filter(|failure| Some(failure.entry) > after);
        if failures.count() >= MOST_ATTEMPTS { Due::LeftOut } else { Due::Step(next) }
    }

    /// The step of the evaluation of the model after so many rounds, if it was released.
    #[must_use]
    pub fn evaluated(&self, rounds: u64) -> Option<u64> {
        let (after, before) = (self.made_by(rounds), self.entry_of(rounds));
        let is_of_it = |step: &u64| {
            let entry = self.ledger.released_in(EVALUATION, *step);
            entry > after && before.is_none_or(|before| entry < Some(before))
        };
        (0..self.next_evaluation()).rev().find(is_of_it)
    }

    /// What an evaluation released, where it is still stored.
    ///
    /// # Errors
    /// When it cannot be read, or is not what was released.
    pub fn evaluation(&self, step: u64) -> Result<Option<Recorded>, RoundError> {
        Ok(self.ledger.restore(EVALUATION, step)?)
    }

    /// The next step of evaluations: steps are what was released.
    fn next_evaluation(&self) -> u64 {
        self.ledger.last_step(EVALUATION).map_or(0, |last| last + 1)
    }

    /// The entry of the round that made the model; none before the first.
    fn made_by(&self, rounds: u64) -> Option<u64> {
        rounds.checked_sub(1).and_then(|round| self.entry_of(round))
    }

    /// The entry of a round, if it is recorded.
    fn entry_of(&self, round: u64) -> Option<u64> {
        if round >= self.plan.rounds {
            return None;
        }
        let phase = self.plan.phase(round);
        self.ledger.released_in(&phase.stream, round - phase.first)
    }

    fn is_recorded(&self, round: u64) -> bool {
        self.entry_of(round).is_some()
    }

    /// One attempt at the evaluation that is due. `time` is in seconds since 1970.
    ///
    /// # Errors
    /// When nothing was released and that is no failure of the protocol, or what happened could not be recorded; also where none is due.
    pub fn evaluate(&mut self, fleet: &mut dyn Fleet, stop: &Stop, time: u64) -> Result<Evaluated, RoundError> {
        let plan = self.plan;
        let (Some(evaluations), Due::Step(step)) = (&plan.device_evaluations, self.evaluation_due()) else {
            return Err(RoundError::NoEvaluation { round: self.state.round });
        };
        let coding = evaluations.phase.first_coding()?;
        let mut mechanism = self.evaluation_mechanism(evaluations, step)?;
        if let (Some(_), Some(mechanism)) = (self.ledger.budget(), &mechanism) {
            match self.ledger.check(EVALUATION, step, &mechanism.next_event()?) {
                Ok(()) => {}
                Err(refused @ LedgerError::BudgetExceeded { .. }) => return Ok(Evaluated::OutOfBudget(refused)),
                Err(other) => return Err(other.into()),
            }
        }
        let at = self.evaluation_at(step)?;
        let Attempted { outcome, observed } = self.collect_counts(fleet, at, evaluations, &coding, stop)?;
        let Observed { participants, .. } = observed;
        let declared = evaluations.phase.cohort;
        let attempt =
            Attempt { stream: EVALUATION, number: at.attempt, declared, participations: participants.as_ref(), time };
        let sum = match outcome {
            Outcome::Sum(sum) => sum,
            Outcome::Noised(_) => return Err(MechanismError::OtherNoise.into()),
            Outcome::Failed(reason) => {
                let _receipt = self.ledger.record_failed(step, reason, attempt)?;
                fleet.settled(at, Some(reason))?;
                return Ok(Evaluated::Failed(self.failed_evaluation(reason)));
            }
        };
        let released = match &mut mechanism {
            Some(mechanism) => mechanism.release(sum, self.randomness.steps(NoiseOf::Evaluations)?)?,
            None => sum.release_without_privacy(step, &no_noise(), plan.randomness()),
        };
        let recorded = self.ledger.record(released, attempt)?;
        let noise = evaluations.phase.mechanism.as_ref().and_then(|mechanism| mechanism.last_step(recorded.step()));
        self.randomness.recorded(NoiseOf::Evaluations, noise)?;
        fleet.settled(at, None)?;
        Ok(Evaluated::Done(step))
    }

    fn failed_evaluation(&self, reason: FailureReason) -> FailedEvaluation {
        let left_out = self.evaluation_due() == Due::LeftOut;
        FailedEvaluation { rounds: self.state.round, reason, left_out }
    }

    fn evaluation_mechanism(
        &self,
        evaluations: &DeviceEvaluations,
        step: u64,
    ) -> Result<Option<Mechanism>, RoundError> {
        let Some(plan) = &evaluations.phase.mechanism else { return Ok(None) };
        let layout = evaluations.phase.released_layout()?;
        Ok(Some(Mechanism::after(plan.clone(), &layout, self.plan.randomness(), step)?))
    }

    /// Which attempt the next one is.
    fn evaluation_at(&self, step: u64) -> Result<At<'static>, RoundError> {
        let attempt = self.ledger.failures(EVALUATION, step).last().map_or(0, |last| last.attempt + 1);
        let again = self.interrupted_evaluation()?.is_some_and(|begun| begun == (step, attempt));
        Ok(At { stream: EVALUATION, step, round: step, attempt, again })
    }

    /// The step and the attempt of an evaluation during which the program ended, if there is one.
    fn interrupted_evaluation(&self) -> Result<Option<(u64, u32)>, RoundError> {
        let begun = self.ledger.interrupted()?.filter(|begun| begun.stream == EVALUATION);
        Ok(begun.map(|begun| (begun.step, begun.attempt)))
    }

    /// What the fleet adds up. Where inputs leave their users, the attempt is noted before anybody is asked.
    fn collect_counts(
        &mut self,
        fleet: &mut dyn Fleet,
        at: At<'_>,
        evaluations: &'a DeviceEvaluations,
        coding: &Coding,
        stop: &Stop,
    ) -> Result<Attempted, RoundError> {
        let task = Task {
            model: &self.state.model,
            clipping: &evaluations.clipping,
            encoding: &coding.encoding,
            full_weight_tokens: None,
            learning_rate: self.plan.stage(self.state.round).local_learning_rate,
            epochs: None,
            upload: Upload::Whole,
            evaluation: Some(evaluations.plan),
        };
        let of_step = |(step, all): (u64, &[Failure])| (step, all.to_vec());
        let failures: BTreeMap<u64, Vec<Failure>> = self.ledger.failed_steps(EVALUATION).map(of_step).collect();
        let phase = &evaluations.phase;
        let task = RoundTask { at, task, phase, coding, failures: &failures, stop };
        match fleet.prepare(&task) {
            // The limits leave too few: that is no reason for the run to end.
            Err(FleetError::TooFewLeft(_)) => {
                let outcome = Outcome::Failed(FailureReason::BelowGoal);
                return Ok(Attempted { outcome, observed: Observed::default() });
            }
            prepared => prepared?,
        }
        if fleet.asks_devices(&task) && !at.again {
            self.ledger.begin_attempt(at.stream, at.step, phase.cohort)?;
        }
        Ok(fleet.attempt(&task)?)
    }

    /// Records an evaluation during which the program ended, if it will not be asked for again: those who were asked may have sent
    /// counts.
    ///
    /// # Errors
    /// When it cannot be recorded.
    pub fn abandon_evaluation(&mut self, time: u64) -> Result<Option<FailedEvaluation>, RoundError> {
        if self.ledger.is_closed() || self.interrupted_evaluation()?.is_none() {
            return Ok(None);
        }
        self.ledger.record_interrupted(time)?;
        let failed = self.failed_evaluation(FailureReason::Interrupted);
        Ok(Some(FailedEvaluation { left_out: true, ..failed }))
    }
}
