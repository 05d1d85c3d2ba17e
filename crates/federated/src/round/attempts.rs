//! Attempts at a round: who is asked, and what happens after a failure or a crash.
//!
//! A device gives one input for a step, ever (rule P24): two sums over almost the same devices differ by somebody's input. So after
//! a restart the same attempt is asked for again ([`At::again`]): the fleet takes it up where it stood, or answers that it was
//! interrupted. An attempt that is not recorded as released has failed, and nobody who was asked for it is asked for that step
//! again. What follows depends on how users come to take part:
//!
//! - sampled ([`privacy::Participation::is_sampled`]): the step is skipped. Asking others would be another sampling than the
//!   one that is accounted for. The model stays as it is, the step's noise is never drawn, and the whole plan is counted, as if
//!   the step had been released. Users who were asked are absent until the model changes (the simulated fleet's `roster` says why).
//!   (Correlated noise needs every step; it is refused with sampling, so there is none to pass over.)
//! - by themselves: the step is attempted again with the next devices of the queue ([`crate::cohort::queue`]). A failed attempt is a
//!   participation of everybody who was asked. So the limits that the guarantee is computed from hold for all inputs that ever
//!   left, released or not.
//!
//! Where a fleet says that no input leaves its users ([`Fleet::asks_devices`]), as a simulation that adds up by itself does, nothing
//! is noted and nothing is left of an attempt after a crash: the round is done again with the same users.

use std::{collections::BTreeMap, fmt};

use ledger::{Attempt, Failure, FailureReason, Ledger, LedgerStore, ParticipationRecord};

use super::{Loop, RoundError};
use crate::{
    fleet::{At, Fleet},
    plan::{BEFORE, EVALUATION, Phase, Plan},
};

/// Attempts at a step that may fail before the run stops. By chance alone a round fails once in `2^failure_bits`; one spoiler
/// spoils one attempt of a step, since nobody is asked twice. So many failures in a row mean that a large share of the devices
/// spoils or vanishes, and each further attempt would only use up the participations of the others. (Interruptions do not count
/// here, they have a bound of their own.)
pub const MOST_FAILED_ATTEMPTS: usize = 5;

/// Interruptions in a row after which the run stops: of attempts at one step where it is attempted again, of one step after the
/// other where steps are skipped. A machine that does not get through a round would otherwise use up everybody's
/// participations, or pass over a whole plan and end as if all were well.
pub const MOST_INTERRUPTIONS: usize = 10;

/// A failed attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failed {
    /// Rounds that were done before: it was an attempt at the next one.
    pub round: u64,
    /// Which attempt at it, from 0.
    pub attempt: u32,
    /// The reason.
    pub reason: FailureReason,
    /// Whether the round is skipped; otherwise it is attempted again, with other users.
    pub passed_over: bool,
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { attempt, reason, passed_over, .. } = self;
        let round = self.round + 1;
        let next = match (passed_over, reason) {
            (_, FailureReason::Cancelled) => "it is not attempted again",
            (true, _) => "the model does not change, and the run continues with the next round",
            (false, _) => "it is attempted again with other devices",
        };
        match attempt {
            0 => write!(f, "round {round} failed: {}; {next}", reason.words()),
            again => write!(f, "round {round} failed in attempt {}: {}; {next}", again + 1, reason.words()),
        }
    }
}

/// The attempts at a round that failed, as the ledger has them.
pub(crate) fn failures<'l, S: LedgerStore>(plan: &Plan, ledger: &'l Ledger<S>, round: u64) -> &'l [Failure] {
    let phase = plan.phase(round);
    ledger.failures(&phase.stream, round - phase.first)
}

/// All attempts that failed, by round.
pub(super) fn all_failures<S: LedgerStore>(plan: &Plan, ledger: &Ledger<S>) -> BTreeMap<u64, Vec<Failure>> {
    let of_phase = |phase: &Phase| {
        let of_step = |(step, all): (u64, &[Failure])| (phase.first + step, all.to_vec());
        ledger.failed_steps(&phase.stream).map(of_step).collect::<Vec<_>>()
    };
    plan.phases().iter().flat_map(of_phase).collect()
}

/// The releases of a run's rounds, in order, as its ledger has planned them.
pub(crate) fn rounds<S: LedgerStore>(ledger: &Ledger<S>) -> impl Iterator<Item = &ledger::Phase> {
    ledger.plan().phases.iter().filter(|phase| ![BEFORE, EVALUATION].contains(&phase.stream.as_str()))
}

/// How many rounds are over: released, or skipped because they failed.
pub(crate) fn settled_rounds<S: LedgerStore>(ledger: &Ledger<S>) -> u64 {
    let released = ledger.releases();
    let of_phase = |phase: &ledger::Phase| {
        let passed_over = if phase.participation.is_sampled() { ledger.failed_steps(&phase.stream).count() } else { 0 };
        released.get(&phase.stream).copied().unwrap_or_default() + passed_over as u64
    };
    rounds(ledger).map(of_phase).sum()
}

impl<'a, S: LedgerStore> Loop<'a, S> {
    /// Which attempt the next one is.
    ///
    /// # Errors
    /// When too many have failed.
    pub(super) fn next_attempt(&self) -> Result<At<'a>, RoundError> {
        let (phase, step) = self.place();
        let (stream, round) = (phase.stream.as_str(), self.state.round);
        let (attempt, again) = (self.next_number()?, self.interrupted()?.is_some());
        Ok(At { stream, step, round, attempt, again })
    }

    fn next_number(&self) -> Result<u32, RoundError> {
        let failures = failures(self.plan, &self.ledger, self.state.round);
        if failures.iter().filter(|failure| !failure.reason.is_of_the_server()).count() >= MOST_FAILED_ATTEMPTS {
            return Err(RoundError::TooManyFailed { round: self.state.round, attempts: MOST_FAILED_ATTEMPTS });
        }
        if self.interrupted_in_a_row() >= MOST_INTERRUPTIONS {
            return Err(RoundError::TooManyInterrupted { round: self.state.round, times: MOST_INTERRUPTIONS });
        }
        Ok(failures.last().map_or(0, |last| last.attempt + 1))
    }

    /// The attempt at the next round during which the program ended, if there is one.
    pub(super) fn interrupted(&self) -> Result<Option<u32>, RoundError> {
        let (phase, step) = self.place();
        let begun = self.ledger.interrupted()?;
        Ok(begun.filter(|begun| begun.stream == phase.stream && begun.step == step).map(|begun| begun.attempt))
    }

    /// Records an attempt during which the program ended, if it will not be asked for again: those who were asked may have sent an
    /// input.
    ///
    /// # Errors
    /// When it cannot be recorded.
    pub fn abandon(&mut self, time: u64) -> Result<Option<Failed>, RoundError> {
        if self.state.round == self.plan.rounds || self.ledger.is_closed() {
            return Ok(None);
        }
        let (phase, step) = self.place();
        let Some(attempt) = self.interrupted()? else { return Ok(None) };
        let at = At { stream: &phase.stream, step, round: self.state.round, attempt, again: true };
        self.fail(at, FailureReason::Interrupted, None, None, time).map(Some)
    }

    /// How many attempts were interrupted since the last one that came to its end, at this round or at those that were skipped
    /// before it.
    fn interrupted_in_a_row(&self) -> usize {
        let round = self.state.round;
        let interrupted = |failure: &&Failure| failure.reason.is_of_the_server();
        if !self.plan.phase(round).participation.is_sampled() {
            return failures(self.plan, &self.ledger, round).iter().rev().take_while(interrupted).count();
        }
        let last = |round: u64| failures(self.plan, &self.ledger, round).last();
        (0..round).rev().take_while(|round| last(*round).as_ref().is_some_and(interrupted)).count()
    }

    /// Records an attempt that failed, before anything else happens.
    pub(super) fn fail(
        &mut self,
        at: At<'_>,
        reason: FailureReason,
        participations: Option<&ParticipationRecord>,
        fleet: Option<&mut (dyn Fleet + '_)>,
        time: u64,
    ) -> Result<Failed, RoundError> {
        let At { stream, step, round, attempt, .. } = at;
        let declared = self.plan.phase(round).cohort;
        let of_ledger = Attempt { stream, number: attempt, declared, participations, time };
        let _receipt = self.ledger.record_failed(step, reason, of_ledger)?;
        self.failures.insert(round, failures(self.plan, &self.ledger, round).to_vec());
        if let Some(fleet) = fleet {
            fleet.settled(at, Some(reason))?;
        }
        let passed_over = self.pass_over()?;
        Ok(Failed { round, attempt, reason, passed_over })
    }

    /// Moves on past the round if it failed and its users are sampled; says whether it did.
    pub(super) fn pass_over(&mut self) -> Result<bool, RoundError> {
        let round = self.state.round;
        let sampled = self.plan.phase(round).participation.is_sampled();
        if !sampled || failures(self.plan, &self.ledger, round).is_empty() {
            return Ok(false);
        }
        self.enter_phase()?;
        if let Some(mechanism) = &mut self.state.mechanism {
            mechanism.pass_over()?;
        }
        self.state.round += 1;
        Ok(true)
    }
}
