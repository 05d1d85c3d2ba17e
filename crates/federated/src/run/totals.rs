//! Exact totals of a simulation's users over all rounds so far, from its `diagnostics.jsonl`. Not private: a run with secret noise has none
//! (rule P12).

use serde::Deserialize;

use super::RunError;
use crate::{
    home::{Home, Log},
    metrics::Diagnostics,
};

/// Exact totals of what users did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Totals {
    /// Rounds that were done.
    pub rounds: u64,
    /// Users who took part, each counted for each of their rounds.
    pub users: u64,
    /// Tokens that they predicted.
    pub tokens: u64,
    /// Those of them whose update was not finite: their training diverged, and they counted as nothing.
    pub not_finite: u64,
}

/// A line of the log, as far as it is added up; its first line has none of these.
#[derive(Deserialize)]
struct Line {
    users: u64,
    tokens: u64,
    not_finite: u64,
}

impl Totals {
    /// Of a run as its home has it.
    pub(super) fn read(home: &dyn Home) -> Result<Self, RunError> {
        let mut totals = Self::default();
        for line in home.lines(Log::Diagnostics)?.iter().filter_map(|line| serde_json::from_str::<Line>(line).ok()) {
            totals.count(line.users, line.tokens, line.not_finite);
        }
        Ok(totals)
    }

    /// Adds a round.
    pub(super) const fn add(&mut self, seen: &Diagnostics) {
        self.count(seen.users, seen.tokens, seen.not_finite);
    }

    const fn count(&mut self, users: u64, tokens: u64, not_finite: u64) {
        self.rounds += 1;
        self.users += users;
        self.tokens += tokens;
        self.not_finite += not_finite;
    }

    /// Users who took part in a round, on average; none before the first.
    #[must_use]
    pub fn users_of_a_round(&self) -> Option<f64> {
        (self.rounds > 0).then(|| self.users as f64 / self.rounds as f64)
    }
}
