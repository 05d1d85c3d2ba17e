//! How far training is: a bar on a terminal, a line every minute elsewhere.

use std::{
    io::IsTerminal,
    time::{Duration, Instant},
};

use federated::metrics::Metrics;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Without a terminal a line comes this often.
const EVERY: Duration = Duration::from_secs(60);

/// Shows how far a run is.
pub(super) struct Watch {
    bar: ProgressBar,
    rounds: u64,
    /// Rounds that were done before this process began.
    first: u64,
    started: Instant,
    last: String,
    /// When the next line is due, where lines are written.
    next_line: Option<Instant>,
}

impl Watch {
    pub(super) fn new(quiet: bool, rounds: u64, first: u64, last: Option<&Metrics>) -> anyhow::Result<Self> {
        let terminal = std::io::stderr().is_terminal();
        let target = if quiet || !terminal { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
        let bar = ProgressBar::with_draw_target(Some(rounds), target).with_position(first);
        bar.set_style(
            ProgressStyle::with_template("round {pos}/{len} [{bar:24}] {msg}, {eta} left")?.progress_chars("=> "),
        );
        let last = last.map_or_else(String::new, super::shown);
        bar.set_message(last.clone());
        bar.reset_eta();
        let started = Instant::now();
        Ok(Self { bar, rounds, first, started, last, next_line: (!quiet && !terminal).then(|| started + EVERY) })
    }

    /// Takes note of a round.
    pub(super) fn tick(&mut self, round: u64, metrics: Option<&Metrics>) {
        if let Some(metrics) = metrics {
            self.last = super::shown(metrics);
            self.bar.set_message(self.last.clone());
        }
        self.bar.set_position(round);
        let now = Instant::now();
        if self.next_line.is_some_and(|due| now >= due) {
            self.next_line = Some(now + EVERY);
            let each = (now - self.started).as_secs_f64() / (round - self.first).max(1) as f64;
            let left = Duration::from_secs_f64(each * (self.rounds - round) as f64);
            eprintln!("round {round}/{}: {}, {} s left", self.rounds, self.last, left.as_secs());
        }
    }

    /// Says that something did not go as planned, also to who wants no progress.
    pub(super) fn say(&self, words: &str) {
        self.bar.suspend(|| eprintln!("warning: {words}"));
    }

    /// Takes the bar away.
    pub(super) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
