//! How far training is: a bar on a terminal, a line every minute elsewhere.

use std::{
    io::IsTerminal,
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::checkpoint::Part;

/// Without a terminal a line comes this often.
const EVERY: Duration = Duration::from_secs(60);

/// Shows how far an epoch is.
pub(super) struct Watch {
    bar: ProgressBar,
    epoch: u32,
    batches: usize,
    started: Instant,
    /// Batches that were done before this process began.
    first: usize,
    /// When the next line is due, where lines are written.
    next_line: Option<Instant>,
}

impl Watch {
    pub(super) fn new(quiet: bool, epoch: u32, batches: usize, first: usize) -> anyhow::Result<Self> {
        let terminal = std::io::stderr().is_terminal();
        let target = if quiet || !terminal { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
        let bar = ProgressBar::with_draw_target(Some(batches as u64), target).with_position(first as u64);
        bar.set_style(
            ProgressStyle::with_template("{prefix} [{bar:32}] {percent}% {msg}, {eta} left")?.progress_chars("=> "),
        );
        bar.set_prefix(format!("epoch {epoch}"));
        bar.set_message("begins");
        bar.reset_eta();
        let started = Instant::now();
        Ok(Self { bar, epoch, batches, started, first, next_line: (!quiet && !terminal).then(|| started + EVERY) })
    }

    /// Takes note of a batch.
    pub(super) fn tick(&mut self, part: &Part) {
        let perplexity = (part.loss / part.tokens.max(1) as f64).exp();
        self.bar.set_message(format!("perplexity {perplexity:.1}"));
        self.bar.set_position(part.batches as u64);
        let now = Instant::now();
        if self.next_line.is_some_and(|due| now >= due) {
            self.next_line = Some(now + EVERY);
            let each = (now - self.started).as_secs_f64() / (part.batches - self.first).max(1) as f64;
            let left = Duration::from_secs_f64(each * (self.batches - part.batches) as f64);
            let percent = 100 * part.batches / self.batches.max(1);
            eprintln!("epoch {}: {percent} %, perplexity {perplexity:.1}, {} s left", self.epoch, left.as_secs());
        }
    }

    /// Takes the bar away.
    pub(super) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
