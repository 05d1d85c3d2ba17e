//! Which devices are next in the queue after failed attempts, if devices come by themselves (rules P6, P18 and P24).
//!
//! A device that was asked for a step has taken part in it, whatever came of it: it may have sent its input. So it is not asked
//! for that step again, it waits for as many steps as after any participation, and the attempt counts against the most that it
//! may take part in. The next attempt takes the next devices of the same queue, without those who have to wait, have come as
//! often as they may, or are left out ([`LeftOut`]); who is passed by comes again in the next pass. As long as no attempt has
//! failed nobody is passed by, and the queue is the [`Sampler`]'s.
//!
//! Everything follows from the order of the queue and from the failed attempts of the ledger, so after a restart of the program
//! it is walked through again from the first step; nothing of it is written down.

use std::collections::BTreeMap;

use ledger::FailureReason;
use privacy::rng::NoiseSource;
use thiserror::Error;

use super::{Sampler, left_out::LeftOut};
use crate::numbers::counted;

/// Too few users may still take part.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "only {} may still take part in round {}, which needs {wanted}: the others must wait or have reached their participation limit (failed rounds count too). So the run cannot continue. End it with keyhush train --end DIR, and start another with a larger participation.population or max_participations, or a smaller min_separation",
    counted(*found, "user"),
    .step + 1
)]
pub struct TooFewLeft {
    /// The step.
    pub step: u64,
    /// Users of an attempt.
    pub wanted: u64,
    /// The number of users who may still take part.
    pub found: u64,
}

/// The queue of devices after some attempts.
#[derive(Debug)]
pub struct Queue {
    next_place: u64,
    came: BTreeMap<u64, Came>,
    left_out: LeftOut,
}

/// What is known of a user who was asked.
#[derive(Debug, Clone, Copy)]
pub(super) struct Came {
    /// The step for which it was last.
    pub(super) last: u64,
    /// The number of steps it was asked for.
    pub(super) times: u64,
}

impl Queue {
    /// Before the first attempt.
    #[must_use]
    pub const fn new(left_out: LeftOut) -> Self {
        Self { next_place: 0, came: BTreeMap::new(), left_out }
    }

    /// The users asked for the next attempt at a step, in ascending order.
    ///
    /// # Errors
    /// When too few may still come; no limit is broken for want of users.
    pub fn next(&mut self, sampler: &Sampler, source: &NoiseSource, step: u64) -> Result<Vec<u64>, TooFewLeft> {
        let first = self.next_place.max(step * sampler.goal);
        let mut users = Vec::with_capacity(sampler.goal as usize);
        // In two passes everybody passes by, wherever the first of them began.
        for (walked, user) in sampler.queue(source, first).take(2 * sampler.population as usize).enumerate() {
            if self.left_out.has(user) || !sampler.may_come(self.came.get(&user).copied(), step) {
                continue;
            }
            let times = self.came.get(&user).map_or(0, |came| came.times);
            self.came.insert(user, Came { last: step, times: times + 1 });
            users.push(user);
            if users.len() as u64 == sampler.goal {
                self.next_place = first + walked as u64 + 1;
                users.sort_unstable();
                return Ok(users);
            }
        }
        Err(TooFewLeft { step, wanted: sampler.goal, found: users.len() as u64 })
    }

    /// Takes note that the attempt of these users failed.
    pub fn failed(&mut self, users: &[u64], reason: FailureReason) {
        if !reason.is_of_the_server() {
            self.left_out.failed(users);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use privacy::{MinSeparation, Participation, rng::SimulationKey};

    use super::*;

    fn source() -> NoiseSource {
        SimulationKey::new(7).into()
    }

    fn queue() -> Queue {
        Queue::new(LeftOut::new(&source(), 1, u64::MAX))
    }

    fn sampler(population: u64, goal: u64, between: u64, most: u64, rounds: u64) -> Sampler {
        let separation = MinSeparation::rounds_between(between).unwrap();
        let participation = Participation::MinSeparation { separation, max_participations: most };
        Sampler::new(participation, population, goal, rounds).unwrap()
    }

    #[test]
    fn without_failures_the_queue_is_the_samplers() {
        for (population, goal, between, most) in [(103, 10, 5, 4), (60, 10, 5, 3), (500, 7, 20, 2)] {
            let rounds = population * most / goal;
            let sampler = sampler(population, goal, between, most, rounds);
            let mut queue = queue();
            for round in 0..rounds {
                assert_eq!(queue.next(&sampler, &source(), round).unwrap(), sampler.cohort(&source(), round));
            }
        }
        let once = Sampler::new(Participation::Once, 100, 10, 10).unwrap();
        let mut queue = queue();
        (0..10).for_each(|r| assert_eq!(queue.next(&once, &source(), r).unwrap(), once.cohort(&source(), r)));
    }

    /// Rules P6, P18 and P24: over any failed attempts nobody is asked twice for a step, before the separation is over, or more
    /// often than allowed; and where that cannot be kept, it stops.
    #[test]
    fn p24_failed_attempts_count_as_participations() {
        let (between, most) = (4, 3);
        let sampler = sampler(200, 10, between, most, 40);
        let mut queue = queue();
        let mut came: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        let mut attempts = 0;
        let stopped = (0..40).find_map(|step| {
            // Every third step fails once, every fifth once more.
            let failing = u64::from(step % 3 == 0) + u64::from(step % 5 == 0);
            (0..=failing).find_map(|_| match queue.next(&sampler, &source(), step) {
                Ok(users) => {
                    assert_eq!(users.iter().collect::<BTreeSet<_>>().len(), 10);
                    users.into_iter().for_each(|user| came.entry(user).or_default().push(step));
                    attempts += 1;
                    None
                }
                Err(too_few) => Some(too_few),
            })
        });
        for steps in came.values() {
            assert!(steps.len() as u64 <= most);
            assert!(steps.windows(2).all(|w| w[1] - w[0] > between), "{steps:?}");
        }
        // 200 users may come three times each: enough for 60 attempts of 10, and not for one more.
        assert!(attempts > 50 && attempts <= 60, "{attempts}");
        assert!(stopped.unwrap().found < 10);
    }

    #[test]
    fn who_was_in_many_rounds_that_failed_is_not_asked_again() {
        let sampler = sampler(60, 10, 5, 9, 12);
        let mut queue = Queue::new(LeftOut::new(&source(), 60, 2));
        let spoiler = queue.next(&sampler, &source(), 0).unwrap()[0];
        let mut seen = vec![0];
        queue.failed(&[spoiler], FailureReason::NotWhole);
        // What the server did itself says nothing of who took part.
        (0..9).for_each(|_| queue.failed(&[spoiler], FailureReason::Interrupted));
        for step in 1..12 {
            let users = queue.next(&sampler, &source(), step).unwrap_or_default();
            if users.contains(&spoiler) {
                seen.push(step);
                queue.failed(&users, FailureReason::NotWhole);
            }
        }
        assert_eq!(seen.len(), 2, "{seen:?}");
    }
}
