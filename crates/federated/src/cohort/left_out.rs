//! Which simulated devices are no longer asked because they were in many failed rounds.
//!
//! One device that puts something into the padding of its vector spoils a round, and nobody can tell which one it was: masked
//! vectors look alike. What the protocol says of somebody (a secret that was dealt wrongly, a complaint, a share that does not
//! fit) proves nothing either: the accuser may lie. What is certain is who took part. So the rule is by participation
//! alone: **a user who was asked for F attempts of this run that failed is not asked any more**.
//!
//! What it costs: honest users are in rounds that fail too, and some of them are left out with a spoiler, about as many as
//! were in its company F times. Nothing is said of them and nothing is kept; they are just not learned from in this run. At most
//! a tenth of the population is left out: somebody who spoils on purpose with many devices can waste rounds, and cannot have
//! everybody else left out.
//!
//! That tenth is recomputed after every failure: those with the most failed attempts. A client that is in its place for the
//! company that it was in makes room for somebody with more, so a spoiler that is still asked gets ahead of all others. Between
//! equals an order decides that follows from the run's key, not from the number: nobody can have a number that is always asked.
//!
//! It is for devices that come by themselves. Where cohorts are sampled, who takes part is what the accountant counts on:
//! leaving somebody out would be another sampling.

use std::collections::{BTreeMap, BTreeSet};

use privacy::rng::NoiseSource;

use super::order::Order;

/// The share of the population that may be left out: one in so many.
const ONE_IN: u64 = 10;

/// The name of the order between equals; the queue's orders have none or two words.
const BETWEEN_EQUALS: [u64; 1] = [u64::MAX];

/// Counts who was in attempts that failed.
#[derive(Debug)]
pub struct LeftOut {
    after: u64,
    most: usize,
    between_equals: Order,
    failed: BTreeMap<u64, u64>,
    out: BTreeSet<u64>,
}

impl LeftOut {
    /// Leaves users out after so many failed attempts, at most a tenth of the population. The source is the queue's.
    #[must_use]
    pub fn new(source: &NoiseSource, population: u64, after: u64) -> Self {
        let between_equals = Order::new(source, &BETWEEN_EQUALS, population);
        let most = (population / ONE_IN) as usize;
        Self { after, most, between_equals, failed: BTreeMap::new(), out: BTreeSet::new() }
    }

    /// Whether a user is left out.
    #[must_use]
    pub fn has(&self, user: u64) -> bool {
        self.out.contains(&user)
    }

    /// Counts an attempt that failed for those who were asked.
    pub fn failed(&mut self, users: &[u64]) {
        users.iter().for_each(|user| *self.failed.entry(*user).or_default() += 1);
        self.out = self.foremost();
    }

    /// Those with the most failed attempts, as many as may be left out.
    fn foremost(&self) -> BTreeSet<u64> {
        let often = self.failed.iter().filter(|(_, times)| **times >= self.after);
        let mut often: Vec<(u64, u64, u64)> =
            often.map(|(user, times)| (u64::MAX - times, self.between_equals.at(*user), *user)).collect();
        often.sort_unstable();
        often.into_iter().take(self.most).map(|(_, _, user)| user).collect()
    }
}

#[cfg(test)]
mod tests {
    use privacy::rng::SimulationKey;

    use super::*;

    fn left_out(seed: u64, population: u64, after: u64) -> LeftOut {
        LeftOut::new(&SimulationKey::new(seed).into(), population, after)
    }

    fn out(left_out: &LeftOut) -> Vec<u64> {
        (0..100).filter(|user| left_out.has(*user)).collect()
    }

    #[test]
    fn it_takes_as_many_failures_as_said_and_no_more_are_left_out_than_may_be() {
        let mut left_out = left_out(7, 30, 2);
        left_out.failed(&[1, 2, 3, 4, 5]);
        assert!(out(&left_out).is_empty());
        left_out.failed(&[4, 5, 6]);
        assert_eq!(out(&left_out), [4, 5]);
        left_out.failed(&[1, 2, 3]);
        assert_eq!(out(&left_out).len(), 3, "a tenth at most");
    }

    #[test]
    fn who_fails_more_often_takes_the_place_of_who_fails_less() {
        let mut left_out = left_out(7, 30, 2);
        (0..2).for_each(|_| left_out.failed(&[0, 1, 2, 3, 29]));
        for (more, user) in [29, 3, 0, 2, 1].into_iter().enumerate() {
            (0..=more).for_each(|_| left_out.failed(&[user]));
            assert!(left_out.has(user) && out(&left_out).len() == 3);
        }
    }

    #[test]
    fn between_equals_no_number_is_favoured() {
        let everybody: Vec<u64> = (0..100).collect();
        let mut times = [0; 100];
        for seed in 0..200 {
            let mut left_out = left_out(seed, 100, 1);
            left_out.failed(&everybody);
            out(&left_out).into_iter().for_each(|user| times[user as usize] += 1);
        }
        // Each is left out in a tenth of 200 runs; 4 standard deviations are 17.
        assert!(times.iter().all(|times| (3..38).contains(times)), "{times:?}");
    }
}
