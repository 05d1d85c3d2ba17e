//! What is told of a schedule, and of many together.

/// How many devices were asked for a round: together at first, and later, because too few of those reported.
#[derive(Debug, PartialEq, Eq, Default, Clone, Copy)]
pub(crate) struct AskedFor {
    pub(crate) first: u64,
    pub(crate) later: u64,
}

impl AskedFor {
    /// Who was asked within a second of the first is of the first ask: an answer is no longer on its way where none is delayed on purpose.
    pub(super) fn of(heard_at: &[u64]) -> Self {
        let begins = heard_at.iter().min().copied().unwrap_or_default();
        let first = heard_at.iter().filter(|at| **at < begins + 1_000).count() as u64;
        Self { first, later: heard_at.len() as u64 - first }
    }
}

/// What happened in a schedule.
#[derive(Debug, PartialEq, Eq, Default)]
pub(crate) struct Story {
    pub(crate) crashes: u64,
    pub(crate) released: u64,
    pub(crate) failed: u64,
    /// Crashes after which a sum with reports in it went on.
    pub(crate) resumed_with_reports: u64,
    /// Secure attempts that a crash interrupted.
    pub(crate) interrupted: u64,
    /// Whether so many attempts failed that the run ended early.
    pub(crate) gave_up: bool,
    /// Lives of servers times real devices that they had.
    pub(crate) real: u64,
    /// Inputs that real devices let go of, and thanks that they heard.
    pub(crate) gave: u64,
    pub(crate) thanked: u64,
    /// Things that were said to a server after another one had taken over from it.
    pub(crate) said_to_stale: u64,
    /// Evaluations that were released, and attempts at some that came to nothing.
    pub(crate) evaluated: u64,
    pub(crate) failed_evaluations: u64,
    /// Of each round: who was asked for it.
    pub(crate) asked: Vec<AskedFor>,
    pub(super) events: u64,
    /// How long it all took, by the clock of the world.
    pub(crate) took_ms: u64,
}

impl Story {
    /// What happened in another one too.
    pub(crate) fn add(&mut self, other: &Self) {
        let Self { crashes, released, failed, resumed_with_reports, interrupted, said_to_stale, events, .. } = other;
        self.real += other.real;
        self.gave += other.gave;
        self.thanked += other.thanked;
        self.evaluated += other.evaluated;
        self.failed_evaluations += other.failed_evaluations;
        self.crashes += crashes;
        self.released += released;
        self.failed += failed;
        self.resumed_with_reports += resumed_with_reports;
        self.interrupted += interrupted;
        self.said_to_stale += said_to_stale;
        self.events += events;
    }
}
