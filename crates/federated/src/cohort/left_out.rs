//! Who is not asked any more: devices that were in many rounds that failed.
//!
//! One device that puts something into the padding of its vector spoils a round, and nobody can tell which one it was: masked
//! vectors look alike. What the protocol says of somebody (a secret that was dealt wrongly, a complaint, a share that does not
//! fit) proves nothing either: whoever says it may lie. What is certain is who took part. So the rule is by participation
//! alone: **a user who was asked for F attempts of this run that failed is not asked any more**.
//!
//! What it costs: honest users are in rounds that fail too, and some of them are left out with a spoiler, about as many as
//! were in its company F times. Nothing is said of them and nothing is kept; they are just not learned from in this run. At most
//! a tenth of the population is left out, whoever comes after that is asked: somebody who spoils on purpose with many devices
//! can waste rounds, and cannot have everybody else left out.
//!
//! It is for devices that come by themselves. Where cohorts are sampled, who takes part is what the accountant counts on:
//! leaving somebody out would be another sampling.

use std::collections::{BTreeMap, BTreeSet};

/// The share of the population that may be left out: one in so many.
pub(crate) const ONE_IN: u64 = 10;

/// Counts who was in attempts that failed.
#[derive(Debug)]
pub struct LeftOut {
    after: u64,
    most: u64,
    failed: BTreeMap<u64, u64>,
    out: BTreeSet<u64>,
}

impl LeftOut {
    /// Leaves users out after so many failed attempts, at most so many of them.
    #[must_use]
    pub const fn new(after: u64, most: u64) -> Self {
        Self { after, most, failed: BTreeMap::new(), out: BTreeSet::new() }
    }

    /// Whether a user is left out.
    #[must_use]
    pub fn has(&self, user: u64) -> bool {
        self.out.contains(&user)
    }

    /// Counts an attempt that failed for those who were asked.
    pub fn failed(&mut self, users: &[u64]) {
        for user in users {
            let times = self.failed.entry(*user).or_default();
            *times += 1;
            if *times >= self.after && (self.out.len() as u64) < self.most {
                self.out.insert(*user);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_takes_as_many_failures_as_said_and_no_more_are_left_out_than_may_be() {
        let mut left_out = LeftOut::new(2, 3);
        left_out.failed(&[1, 2, 3, 4, 5]);
        assert!((0..9).all(|user| !left_out.has(user)));
        left_out.failed(&[4, 5, 6]);
        assert!((0..9).filter(|user| left_out.has(*user)).eq([4, 5]));
        left_out.failed(&[1, 2, 3]);
        assert!((0..9).filter(|user| left_out.has(*user)).eq([1, 4, 5]), "three at most");
    }
}
