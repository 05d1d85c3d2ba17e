//! Splits a cohort into groups with a secure aggregation each: a device that spoils a sum spoils only its group's.
//!
//! Who is in which group is drawn with the cohort, before anybody is asked, and never follows from what devices send: a server
//! that could choose groups afterwards could single somebody out. Each group keeps every floor by itself. The price is that the
//! server sees the sum of each group, not only of all; where devices add the noise, each group carries the full noise.

use ledger::FailureReason;
use privacy::{
    encoding::EncodingError,
    rng::{NoiseSource, Purpose},
};

use super::{Attempted, Exact, Observed, Outcome};

/// Cuts a cohort into so many groups of nearly the same size, each in ascending order.
pub(super) fn split(source: &NoiseSource, position: &[u64], cohort: &[u64], groups: u32) -> Vec<Vec<u64>> {
    if groups == 1 {
        return vec![cohort.to_vec()];
    }
    let mut words = source.stream(Purpose::Groups, position).chunk(0);
    let mut shuffled = cohort.to_vec();
    for last in (1..shuffled.len()).rev() {
        shuffled.swap(last, words.below(last as u64 + 1) as usize);
    }
    let (len, groups) = (shuffled.len(), groups as usize);
    let group = |number: usize| {
        let mut group = shuffled[number * len / groups..(number + 1) * len / groups].to_vec();
        group.sort_unstable();
        group
    };
    (0..groups).map(group).collect()
}

/// What the groups of an attempt came to.
#[derive(Default)]
pub(super) struct Groups {
    whole: Option<Outcome>,
    exact: Exact,
    gave: usize,
    failed: Vec<FailureReason>,
}

impl Groups {
    /// A group gave its sum.
    pub(super) fn gave(&mut self, sum: Outcome, exact: Exact) -> Result<(), EncodingError> {
        self.gave += 1;
        self.exact.users.extend(exact.users);
        self.exact.users.sort_unstable_by_key(|(user, _)| *user);
        self.exact.busy_s += exact.busy_s;
        match (&mut self.whole, sum) {
            (whole @ None, sum) => *whole = Some(sum),
            (Some(Outcome::Sum(sum)), Outcome::Sum(more)) => sum.merge(more)?,
            (Some(Outcome::Noised(sum)), Outcome::Noised(more)) => sum.merge(more)?,
            _ => return Err(EncodingError::Mixed),
        }
        Ok(())
    }

    /// A group failed: its users count as having dropped out.
    pub(super) fn failed(&mut self, reason: FailureReason) {
        self.failed.push(reason);
    }

    /// The sum of the groups that gave one, with why others did not; or why the attempt failed, which it did if more than half
    /// of its groups did: too little would be learned from a step that costs as much as a whole one.
    pub(super) fn end(self) -> Attempted {
        let most = self.failed.iter().copied().max_by_key(|reason| self.failed.iter().filter(|r| *r == reason).count());
        match (self.whole, most) {
            (Some(outcome), _) if self.gave >= self.failed.len() => {
                let failed_groups = self.failed.into_iter().collect();
                let observed = Observed { failed_groups, exact: Some(self.exact), ..Observed::default() };
                Attempted { outcome, observed }
            }
            (_, reason) => {
                let outcome = Outcome::Failed(reason.unwrap_or(FailureReason::BelowGoal));
                Attempted { outcome, observed: Observed::default() }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use privacy::rng::SimulationKey;

    use super::*;

    fn source() -> NoiseSource {
        SimulationKey::new(7).into()
    }

    #[test]
    fn groups_have_everybody_once_and_nearly_the_same_size() {
        let cohort: Vec<u64> = (0..103).map(|i| i * 7).collect();
        for groups in [1, 2, 5, 10] {
            let split = split(&source(), &[4], &cohort, groups);
            assert!(split.iter().all(|g| g.len().abs_diff(103 / groups as usize) <= 1 && g.is_sorted()));
            let all: BTreeSet<u64> = split.iter().flatten().copied().collect();
            assert!(all.into_iter().eq(cohort.iter().copied()));
            assert_eq!(split.iter().map(Vec::len).sum::<usize>(), 103);
        }
    }

    #[test]
    fn another_attempt_has_other_groups_and_the_same_one_the_same() {
        let cohort: Vec<u64> = (0..100).collect();
        let at = |position: &[u64]| split(&source(), position, &cohort, 4);
        assert_eq!(at(&[3]), at(&[3]));
        assert_ne!(at(&[3]), at(&[4]));
        assert_ne!(at(&[3]), at(&[3, 1]));
    }
}
