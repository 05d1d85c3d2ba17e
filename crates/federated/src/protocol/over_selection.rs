//! Over-selection: how many devices to assign so that enough report (Bonawitz et al. 2019, section 9; Xu et al. 2023, section 2.2).
//!
//! Before anything is measured, 130 % of the goal. After that as many as reach the goal in all but one of 30,000 rounds at the
//! measured drop-out d of k devices: n with n (1 - d) - 4 sqrt(n d (1 - d) (1 + n / k)) at least the goal. The last factor is there because
//! d was measured, by chance too: of k devices. For the same reason d is Laplace's (dropped + 1) / (k + 2): that nobody of a hundred dropped out
//! does not mean that nobody of the next hundred will.
//!
//! A report is counted together with the others that were asked at that time, once the fate of all of them is known
//! ([`super::desk::Fates`]). Otherwise the quick would be counted first, and among them nobody drops out.
//!
//! A device that drops out on purpose, or makes others look as if they did, moves the measured rate. So it has a limit, and with it the number of
//! devices that are asked: [`OverSelection::most`].

/// What is given a task before anything is known, for a goal of 1.
const TO_START: f64 = 1.3;
/// Standard deviations that are planned for.
const DEVIATIONS: f64 = 4.0;
/// A drop-out beyond this is planned for as this: more would ask everybody for a round that fails all the same.
const MOST_DROPPED: f64 = 0.7;
/// Devices whose fate must be known before the measured rate is taken.
const ENOUGH: f64 = 20.0;
/// So many devices are remembered, however few each attempt asks.
const REMEMBERED: f64 = 100.0;

/// Statistics of assigned devices: how many reported and how many dropped out.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct OverSelection {
    reported: f64,
    dropped: f64,
}

impl OverSelection {
    /// Counts devices that reported, whether or not they were still needed, and devices that did not in the time that others took.
    pub fn saw(&mut self, reported: u64, dropped: u64) {
        self.reported += reported as f64;
        self.dropped += dropped as f64;
    }

    /// An attempt that asked so many devices is over: all that was seen before it counts for no more devices than that, so that another drop-out is
    /// met within a few rounds.
    pub fn fade(&mut self, asked: u64) {
        if asked == 0 {
            return;
        }
        let keeps = (REMEMBERED.max(asked as f64) / self.known()).min(1.0);
        self.reported *= keeps;
        self.dropped *= keeps;
    }

    /// The devices whose fate is known.
    fn known(&self) -> f64 {
        self.reported + self.dropped
    }

    /// The share that drops out, by what was measured; none before enough is known.
    #[must_use]
    pub fn dropped(&self) -> Option<f64> {
        let known = self.known();
        (known >= ENOUGH).then(|| ((self.dropped + 1.0) / (known + 2.0)).min(MOST_DROPPED))
    }

    /// How many are given the task, so that so many report.
    #[must_use]
    pub fn select(&self, goal: u64) -> u64 {
        let Some(d) = self.dropped() else { return libm::ceil(goal as f64 * TO_START) as u64 };
        reaching(goal, d, 1.0 / self.known()).min(Self::most(goal))
    }

    /// No more are given the task at the same time, whatever was measured.
    #[must_use]
    pub fn most(goal: u64) -> u64 {
        reaching(goal, MOST_DROPPED, 0.0)
    }
}

/// The smallest number of devices of whom enough report if each drops out with this chance. `unsure` is one over the devices by which the
/// chance was measured; where so few are known that no number is enough, it is that of all.
fn reaching(goal: u64, d: f64, unsure: f64) -> u64 {
    let (goal, stays) = (goal as f64, 1.0 - d);
    let variance = DEVIATIONS * DEVIATIONS * d * stays;
    // (n stays - goal)^2 = variance (n + n^2 unsure), of whose two solutions the larger is above goal / stays.
    let square = stays * stays - variance * unsure;
    let half = goal * stays + variance / 2.0;
    if square <= 0.0 {
        return u64::MAX;
    }
    libm::ceil((half + libm::sqrt((half * half - square * goal * goal).max(0.0))) / square) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_begins_with_130_percent_and_follows_what_it_sees() {
        let mut over = OverSelection::default();
        assert_eq!((over.select(100), over.select(1), over.select(6_500)), (130, 2, 8_450));
        over.saw(130, 0);
        assert!((101..=108).contains(&over.select(100)), "nobody drops out: {}", over.select(100));
        for _ in 0..3 {
            over.fade(130);
            over.saw(91, 39);
        }
        let n = over.select(100);
        assert!((160..=195).contains(&n), "{n}");
        // A large round needs little more than it loses.
        let mut over = OverSelection::default();
        over.saw(6_500, 0);
        assert!((6_501..6_510).contains(&over.select(6_500)));
        over = OverSelection::default();
        over.saw(9_000, 1_000);
        assert!((7_222..7_450).contains(&over.select(6_500)), "{}", over.select(6_500));
    }

    #[test]
    fn small_rounds_remember_enough_to_measure_anything() {
        let mut over = OverSelection::default();
        for _ in 0..30 {
            over.fade(3);
            over.saw(3, 0);
        }
        assert_eq!((over.select(2), OverSelection::default().select(2)), (3, 3));
        assert!(over.dropped().is_some_and(|d| d < 0.02), "{over:?}");
    }

    #[test]
    fn a_round_in_which_nobody_reports_does_not_ask_for_everybody() {
        for dropped in [20, 1_000, 1_000_000] {
            let mut over = OverSelection::default();
            over.saw(0, dropped);
            assert!(over.select(100) <= OverSelection::most(100) && OverSelection::most(100) < 500);
        }
        assert!(OverSelection::most(6_500) < 23_000);
    }

    /// As many report as are needed at once in all but one of some thousand rounds, whatever drops out and however it was measured: by the round
    /// before alone.
    #[test]
    fn the_first_ask_is_enough_though_the_rate_is_measured_by_chance() {
        let mut word = 7u64;
        let mut drops = |devices: u64, chance: f64| {
            let mut one = || {
                word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                ((word >> 11) as f64 / (1u64 << 53) as f64) < chance
            };
            (0..devices).filter(|_| one()).count() as u64
        };
        for (goal, chance) in [(50, 0.1), (100, 0.1), (100, 0.3), (200, 0.02)] {
            let missed = (0..1_000).filter(|_| {
                let mut over = OverSelection::default();
                let asked = over.select(goal);
                let dropped = drops(asked, chance);
                over.saw(asked - dropped, dropped);
                let asked = over.select(goal);
                asked - drops(asked, chance) < goal
            });
            let missed = missed.count();
            assert!(missed <= 1, "{missed} of 1000 rounds at a goal of {goal} and {chance}");
        }
    }
}
