//! Progress of training: a bar on a terminal, a line every minute elsewhere.

use std::{
    io::IsTerminal,
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use pretraining::checkpoint::Part;

use crate::{interrupt, remaining};

/// Without a terminal a line comes this often.
const EVERY: Duration = Duration::from_secs(60);

/// Shows how far an epoch is, and notices Ctrl-C.
pub(super) struct Watch {
    quiet: bool,
    style: ProgressStyle,
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
    pub(super) fn new(quiet: bool) -> anyhow::Result<Self> {
        let style = remaining::style("{prefix} [{bar:32}] {percent} % {msg}, {left}")?;
        let (bar, started) = (ProgressBar::hidden(), Instant::now());
        Ok(Self { quiet, style, bar, epoch: 0, batches: 0, started, first: 0, next_line: None })
    }
}

impl pretraining::Watch for Watch {
    fn begins(&mut self, epoch: u32, batches: usize, first: usize) {
        let terminal = std::io::stderr().is_terminal();
        let target = if self.quiet || !terminal { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
        let bar = ProgressBar::with_draw_target(Some(batches as u64), target).with_position(first as u64);
        bar.set_style(self.style.clone());
        bar.set_prefix(format!("epoch {epoch}"));
        bar.set_message("starting");
        bar.reset_eta();
        (self.bar, self.epoch, self.batches, self.first) = (bar, epoch, batches, first);
        self.started = Instant::now();
        self.next_line = (!self.quiet && !terminal).then(|| self.started + EVERY);
    }

    fn batch(&mut self, part: &Part) -> bool {
        let perplexity = part.perplexity();
        self.bar.set_message(format!("perplexity {perplexity:.1}"));
        self.bar.set_position(part.batches as u64);
        let now = Instant::now();
        if self.next_line.is_some_and(|due| now >= due) {
            self.next_line = Some(now + EVERY);
            let each = (now - self.started).as_secs_f64() / (part.batches - self.first).max(1) as f64;
            let left = Duration::from_secs_f64(each * (self.batches - part.batches) as f64);
            let percent = 100 * part.batches / self.batches.max(1);
            let left = remaining::words(left);
            eprintln!("epoch {}: {percent} %, perplexity {perplexity:.1}, {left}", self.epoch);
        }
        !interrupt::requested()
    }

    fn ends(&mut self) {
        self.bar.finish_and_clear();
    }
}
