//! Which users an attempt of a simulation asks (rules P6, P18 and P24).
//!
//! **Devices that come by themselves** are taken from a queue ([`crate::cohort`]); once an attempt has failed, the next one takes
//! the next devices of it, without those who were asked ([`crate::cohort::queue`]).
//!
//! **Sampled users** are drawn again in every round. A step that was skipped leaves the model as it is. A device gives one input
//! for a model, ever: its guard refuses a second one, whatever step it is said to be for. So a user who was asked for a step that was
//! skipped is not there until something is released, and a simulation has to leave them out, or it would learn from inputs that
//! no device gives.
//!
//! **The accounting holds.** Who is not there follows from which steps failed and from who was drawn for them. That a step failed is
//! in the ledger for everybody to see, and no epsilon is for it; who was drawn is chance. Even to somebody who is told both, the next
//! step is the sampling that is accounted for, of the same users, some of whom have nothing to give: each of the others is drawn
//! with the probability that was said, and two neighbouring populations are neighbours still, or the same. Nobody is drawn instead,
//! so nobody is drawn more often.
//!
//! It is computed from the failures of the ledger and from the seed, so a restart changes nothing. With secret noise the seeds of
//! cohorts are erased with their steps (rule P21), and who was drawn cannot be known again: there it is not modelled. What is released
//! then is what the accountant counts, the sampling without anybody left out; it is the devices' guards that keep rule P24.

use std::collections::{BTreeMap, BTreeSet};

use ledger::Failure;
use privacy::{participation::ParticipationError, rng::NoiseSource};

use super::chance::Chance;
use crate::{
    cohort::{Sampler, left_out::LeftOut, queue::Queue},
    fleet::FleetError,
    plan::{Phase, Plan},
};

/// The attempts that failed, by round.
type Failures = BTreeMap<u64, Vec<Failure>>;

/// Knows who is asked.
#[derive(Debug)]
pub(super) struct Roster<'a> {
    plan: &'a Plan,
    /// Steps in all.
    rounds: u64,
    /// Who comes next, once an attempt has failed; none while nothing has, and where it must be found out again.
    queue: Option<Queue>,
    /// The queue once the attempt that was made last has been recorded.
    next: Option<Queue>,
}

impl<'a> Roster<'a> {
    /// Who is asked for rounds.
    pub(super) const fn of_rounds(plan: &'a Plan) -> Self {
        Self { plan, rounds: plan.rounds, queue: None, next: None }
    }

    /// Who is asked for evaluations, in a queue of their own.
    pub(super) fn of_evaluations(plan: &'a Plan) -> Self {
        let rounds = plan.device_evaluations.as_ref().map_or(0, |evaluations| evaluations.phase.rounds);
        Self { plan, rounds, queue: None, next: None }
    }

    /// Who is asked, in ascending order.
    pub(super) fn cohort(
        &mut self,
        chance: &Chance,
        source: &NoiseSource,
        phase: &Phase,
        round: u64,
        failures: &Failures,
    ) -> Result<Vec<u64>, FleetError> {
        let sampler = self.sampler(phase)?;
        if phase.participation.is_sampled() {
            return self.sampled(&sampler, chance, source, round, failures);
        }
        if failures.is_empty() {
            return Ok(sampler.cohort(source, round));
        }
        let mut queue = match self.queue.take() {
            Some(queue) => queue,
            None => self.queue_of_the_past(&sampler, source, round, failures)?,
        };
        let users = queue.next(&sampler, source, round)?;
        self.next = Some(queue);
        Ok(users)
    }

    /// What became of the last attempt is recorded. After one that failed the queue is found out again: what failed is known from
    /// the ledger alone.
    pub(super) fn settled(&mut self, failed: bool) {
        let next = self.next.take();
        self.queue = next.filter(|_| !failed);
    }

    /// Draws who takes part in a sampled round: those who were not asked for this model yet.
    fn sampled(
        &self,
        sampler: &Sampler,
        chance: &Chance,
        source: &NoiseSource,
        round: u64,
        failures: &Failures,
    ) -> Result<Vec<u64>, FleetError> {
        let mut cohort = sampler.cohort(source, round);
        let asked = self.asked_for_this_model(chance, round, failures)?;
        cohort.retain(|user| !asked.contains(user));
        Ok(cohort)
    }

    /// Users drawn for the steps skipped since the last release.
    fn asked_for_this_model(
        &self,
        chance: &Chance,
        round: u64,
        failures: &Failures,
    ) -> Result<BTreeSet<u64>, FleetError> {
        let mut asked = BTreeSet::new();
        let Some(source) = chance.of_past_cohorts() else { return Ok(asked) };
        for round in (0..round).rev().take_while(|round| failures.contains_key(round)) {
            asked.extend(self.sampler(self.plan.phase(round))?.cohort(&source, round));
        }
        Ok(asked)
    }

    /// Draws the users of a step.
    fn sampler(&self, phase: &Phase) -> Result<Sampler, ParticipationError> {
        Sampler::new(phase.participation, self.plan.ledger.population, phase.cohort, self.rounds)
    }

    /// The queue after all attempts that the ledger has: the report goal and the limits of arrivals are constants of the plan.
    fn queue_of_the_past(
        &self,
        sampler: &Sampler,
        source: &NoiseSource,
        now: u64,
        failures: &Failures,
    ) -> Result<Queue, FleetError> {
        let (population, after) = (self.plan.ledger.population, self.plan.devices.leave_out_after);
        let mut queue = Queue::new(LeftOut::new(source, population, after));
        for round in 0..=now {
            for failure in failures.get(&round).into_iter().flatten() {
                let users = queue.next(sampler, source, round)?;
                queue.failed(&users, failure.reason);
            }
            if round < now {
                queue.next(sampler, source, round)?;
            }
        }
        Ok(queue)
    }
}
