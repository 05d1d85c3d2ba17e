//! Compares what devices report to have sent with the server's records, and round times with training times.

use std::collections::{BTreeMap, BTreeSet};

use agent::parts::{Did, Line};
use device::protocol::terms::Purpose;
use federated::metrics::Timing;
use serde::Serialize;

/// The fate of the reports that devices sent. A participation is one device in one step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Participations {
    /// On the server's record of who is in a sum that was released.
    pub recorded: u64,
    /// That devices say they gave: their reports were about to leave.
    pub given: u64,
    /// Of which devices were told that they count.
    pub thanked: u64,
    /// Thanked, and neither on record nor in an attempt that failed.
    pub lost: u64,
    /// On record, or given, more often than once for a step, and on record without having been given.
    pub doubled: u64,
}

impl Participations {
    /// Those of training, or of evaluations, with who is on record in each step.
    /// Who was in an attempt at a step that failed is told so in `failed`, device and step: its report may have been in the sum of a failed attempt.
    pub(super) fn of(purpose: Purpose, cohorts: &[Vec<u64>], failed: &BTreeSet<(u64, u64)>, lines: &[Line]) -> Self {
        let mut parts: BTreeMap<(u64, u64), [u64; 3]> = BTreeMap::new();
        let on_record =
            cohorts.iter().enumerate().flat_map(|(step, cohort)| cohort.iter().map(move |d| (*d, step as u64)));
        for part in on_record {
            parts.entry(part).or_default()[0] += 1;
        }
        for line in lines.iter().filter(|line| line.purpose == purpose) {
            let did = match line.did {
                Did::Gave => 1,
                Did::Thanked => 2,
                Did::Unanswered => continue,
            };
            let Some(step) = line.step else { continue };
            parts.entry((line.device, step)).or_default()[did] += 1;
        }
        let sum = |of: fn(&[u64; 3]) -> u64| parts.values().map(of).sum();
        Self {
            recorded: sum(|[recorded, _, _]| *recorded),
            given: sum(|[_, given, _]| *given),
            thanked: sum(|[_, _, thanked]| *thanked),
            lost: parts
                .iter()
                .filter(|(part, _)| !failed.contains(part))
                .map(|(_, [recorded, _, thanked])| thanked.saturating_sub(*recorded))
                .sum(),
            doubled: sum(|[recorded, given, _]| recorded.saturating_sub((*given).min(1)) + given.saturating_sub(1)),
        }
    }
}

/// Requests without a usable answer: while there were rounds to release, and after the last one, when the server ends under those who wait.
pub(super) fn unanswered(releases: &[Release], lines: &[Line]) -> [u64; 2] {
    let last_s = releases.last().map_or(f64::INFINITY, |release| release.at_s);
    let unanswered = || lines.iter().filter(|line| line.did == Did::Unanswered);
    let before = unanswered().filter(|line| line.at_s <= last_s).count() as u64;
    [before, unanswered().count() as u64 - before]
}

/// A release, when it was heard of.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Release {
    /// Rounds that are done.
    pub(super) round: u64,
    /// When, in seconds since 1970.
    pub(super) at_s: f64,
    /// How often the server had been killed until then.
    pub(super) kills: u64,
}

/// The server's own time in a round, by part, apart from devices and messages; the first round is left out.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct ServerSteps {
    /// Drawing the noise.
    pub release_s: f64,
    /// Recording the release, and settling the attempt.
    pub ledger_s: f64,
    /// The optimizer's step.
    pub optimizer_s: f64,
    /// The checkpoint.
    pub checkpoint_s: f64,
}

impl ServerSteps {
    pub(super) fn of(timings: &[Timing]) -> Option<Self> {
        let rest = timings.get(1..).filter(|rest| !rest.is_empty())?;
        let mean = |of: fn(&Timing) -> f64| rest.iter().map(of).sum::<f64>() / rest.len() as f64;
        Some(Self {
            release_s: mean(|timing| timing.release_s),
            ledger_s: mean(|timing| timing.ledger_s),
            optimizer_s: mean(|timing| timing.optimizer_s),
            checkpoint_s: mean(|timing| timing.checkpoint_s),
        })
    }
}

/// Durations of rounds, from one release to the next, without the first round and those with a kill.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct RoundTimes {
    /// Number of measured rounds.
    pub measured: u64,
    /// Seconds of a round, on average.
    pub wall_s: f64,
    /// Of them, those in which at least one device trained.
    pub training_s: f64,
    /// Seconds of a round in which no device trains.
    pub overhead_s: f64,
    /// Half of the rounds have less.
    pub overhead_median_s: f64,
    /// The largest overhead of a round.
    pub overhead_most_s: f64,
}

impl RoundTimes {
    pub(super) fn of(releases: &[Release], lines: &[Line]) -> Option<Self> {
        let trained_until = |at_s: f64| {
            let before = lines.iter().filter(|line| line.at_s <= at_s).map(|line| line.trained_s);
            before.fold(0.0, f64::max)
        };
        let mut rounds = Vec::new();
        for pair in releases.windows(2) {
            if let [before, after] = pair
                && after.round == before.round + 1
                && after.kills == before.kills
            {
                let training_s = trained_until(after.at_s) - trained_until(before.at_s);
                rounds.push((after.at_s - before.at_s, training_s));
            }
        }
        let mut overheads: Vec<f64> = rounds.iter().map(|(wall_s, training_s)| wall_s - training_s).collect();
        overheads.sort_by(f64::total_cmp);
        let count = rounds.len() as f64;
        Some(Self {
            measured: rounds.len() as u64,
            wall_s: rounds.iter().map(|(wall_s, _)| wall_s).sum::<f64>() / count,
            training_s: rounds.iter().map(|(_, training_s)| training_s).sum::<f64>() / count,
            overhead_s: overheads.iter().sum::<f64>() / count,
            overhead_median_s: *overheads.get(overheads.len() / 2)?,
            overhead_most_s: *overheads.last()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn line(device: u64, step: u64, did: Did) -> Line {
        Line { device, step: Some(step), did, purpose: Purpose::Training, at_s: 0.0, trained_s: 0.0 }
    }

    #[test]
    fn each_way_to_lose_or_double_shows() {
        use Did::{Gave, Thanked};
        let honest = [line(0, 0, Gave), line(0, 0, Thanked), line(1, 0, Gave), line(2, 0, Gave), line(0, 1, Gave)];
        let of = |cohorts: &[Vec<u64>], lines: &[Line]| {
            let Participations { lost, doubled, .. } =
                Participations::of(Purpose::Training, cohorts, &BTreeSet::new(), lines);
            (lost, doubled)
        };
        // A device that sent a report and is not on record was too late; one on record without thanks did not get the answer.
        assert_eq!(of(&[vec![0, 1], vec![0]], &honest), (0, 0));
        assert_eq!(of(&[vec![1], vec![0]], &honest), (1, 0), "thanked, and not on record");
        let failed = BTreeSet::from([(0, 0)]);
        let lost = Participations::of(Purpose::Training, &[vec![1], vec![0]], &failed, &honest).lost;
        assert_eq!(lost, 0, "it was in a sum that came to nothing, with the attempt");
        assert_eq!(of(&[vec![0, 0, 1], vec![0]], &honest), (0, 1), "twice on record");
        assert_eq!(of(&[vec![0, 1], vec![0, 2]], &honest), (0, 1), "on record, and never given");
        let twice: Vec<Line> = honest.iter().copied().chain([line(1, 0, Gave)]).collect();
        assert_eq!(of(&[vec![0, 1], vec![0]], &twice), (0, 1), "given twice");
    }

    #[test]
    fn who_waits_at_the_end_is_told_apart() {
        let at = |at_s, did| Line { device: 0, step: None, did, purpose: Purpose::Training, at_s, trained_s: 0.0 };
        let lines = [at(0.5, Did::Unanswered), at(1.5, Did::Unanswered), at(2.5, Did::Gave), at(2.6, Did::Unanswered)];
        let releases = [1, 2].map(|round| Release { round, at_s: round as f64, kills: 0 });
        assert_eq!(unanswered(&releases, &lines), [2, 1]);
        assert_eq!(unanswered(&[], &lines), [3, 0], "without a release there is no end");
        assert_eq!(
            Participations::of(Purpose::Training, &[], &BTreeSet::new(), &lines).given,
            0,
            "they are no participations"
        );
    }

    #[test]
    fn overhead_is_what_is_left_without_the_training() {
        let release = |round, at_s, kills| Release { round, at_s, kills };
        let trained = |at_s, trained_s| Line { at_s, trained_s, ..line(0, 0, Did::Gave) };
        let lines = [trained(0.5, 0.3), trained(1.5, 0.7), trained(2.4, 1.0)];
        let releases = [release(1, 1.0, 0), release(2, 2.0, 0), release(3, 2.5, 0), release(4, 9.0, 1)];
        let times = RoundTimes::of(&releases, &lines).unwrap();
        assert_eq!(times.measured, 2, "the one with a kill is left out");
        assert!((times.wall_s - 0.75).abs() < 1e-9 && (times.training_s - 0.35).abs() < 1e-9, "{times:?}");
        assert!((times.overhead_s - 0.4).abs() < 1e-9 && (times.overhead_most_s - 0.6).abs() < 1e-9, "{times:?}");
        assert_eq!(RoundTimes::of(&releases[..1], &lines), None);
    }
}
