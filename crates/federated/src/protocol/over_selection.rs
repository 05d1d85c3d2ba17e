//! Over-selection: how many devices to assign so that enough report (Bonawitz et al. 2019, section 9; Xu et al. 2023, section 2.2).
//!
//! Before anything is measured, 130 % of the goal. After that as many as reach the goal in all but one of 30,000 rounds at the
//! measured drop-out: n with n (1 - d) - 4 sqrt(n d (1 - d)) at least the goal. What is measured fades, so that another drop-out is
//! met within a few rounds.
//!
//! Devices that are still at work when the goal is reached tell nothing yet: those who report late count as reports, those who never do
//! as dropped. To leave them out would measure only the quick. How long they may take is up to the task, often ten minutes for rounds of
//! seconds, so those who have been silent for several times as long as the others took count as dropped until they are heard of.

/// What is given a task before anything is known, for a goal of 1.
const TO_START: f64 = 1.3;
/// Standard deviations that are planned for.
const DEVIATIONS: f64 = 4.0;
/// What is left of older counts when newer ones come.
const FADES: f64 = 0.5;
/// A drop-out beyond this is planned for as this: more would ask everybody for a round that fails all the same.
const MOST_DROPPED: f64 = 0.7;
/// Devices whose fate must be known before the measured rate is taken.
const ENOUGH: f64 = 20.0;

/// Statistics of assigned devices: how many reported and how many dropped out.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct OverSelection {
    reported: f64,
    dropped: f64,
    /// Of devices whose fate is not known, those that have probably dropped out.
    missing: f64,
}

impl OverSelection {
    /// Counts devices that reported, in time or late, and devices that timed out.
    pub fn saw(&mut self, reported: u64, dropped: u64) {
        self.reported += reported as f64;
        self.dropped += dropped as f64;
    }

    /// So many devices have been silent for too long, now.
    pub const fn misses(&mut self, devices: u64) {
        self.missing = devices as f64;
    }

    /// An attempt is over: what was seen before it counts for less.
    pub fn fade(&mut self) {
        self.reported *= FADES;
        self.dropped *= FADES;
    }

    /// The measured share that drops out; none before enough is known.
    #[must_use]
    pub fn dropped(&self) -> Option<f64> {
        let dropped = self.dropped + self.missing;
        let known = self.reported + dropped;
        (known >= ENOUGH).then(|| (dropped / known).min(MOST_DROPPED))
    }

    /// How many are given the task, so that so many report.
    #[must_use]
    pub fn select(&self, goal: u64) -> u64 {
        let Some(d) = self.dropped() else { return libm::ceil(goal as f64 * TO_START) as u64 };
        let reach = |n: f64| n * (1.0 - d) - DEVIATIONS * libm::sqrt(n * d * (1.0 - d));
        let mut n = goal;
        while reach(n as f64) < goal as f64 {
            n += (n / 64).max(1);
        }
        n
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_begins_with_130_percent_and_follows_what_it_sees() {
        let mut over = OverSelection::default();
        assert_eq!((over.select(100), over.select(1), over.select(6_500)), (130, 2, 8_450));
        over.saw(100, 0);
        assert_eq!(over.select(100), 100, "nobody drops out");
        for _ in 0..3 {
            over.fade();
            over.saw(70, 30);
        }
        let n = over.select(100);
        assert!((155..=175).contains(&n), "{n}");
    }

    #[test]
    fn who_is_silent_for_too_long_has_dropped_out_until_heard_of() {
        let mut over = OverSelection::default();
        over.saw(90, 0);
        assert_eq!(over.select(100), 100);
        over.misses(10);
        assert!((over.dropped().unwrap() - 0.1).abs() < 1e-12 && over.select(100) > 120);
        over.misses(0);
        over.saw(10, 0);
        assert_eq!(over.select(100), 100, "they were slow");
    }

    #[test]
    fn a_round_in_which_nobody_reports_does_not_ask_for_everybody() {
        let mut over = OverSelection::default();
        over.saw(0, 1_000);
        assert!(over.select(100) < 600);
    }
}
