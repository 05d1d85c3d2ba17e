//! Progress of training: a bar on a terminal, a line every few seconds elsewhere.

use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use pretraining::checkpoint::Part;

use crate::{
    interrupt,
    remaining::{self, Lines},
};

/// Shows how far an epoch is, and notices Ctrl-C.
pub(super) struct Watch {
    quiet: bool,
    style: ProgressStyle,
    bar: ProgressBar,
    epoch: u32,
    batches: usize,
    lines: Lines,
}

impl Watch {
    pub(super) fn new(quiet: bool) -> anyhow::Result<Self> {
        let style = remaining::style("{prefix} [{bar:32}] {percent} % {msg}, {left}")?;
        Ok(Self { quiet, style, bar: ProgressBar::hidden(), epoch: 0, batches: 0, lines: Lines::new(quiet, 0) })
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
        (self.bar, self.epoch, self.batches) = (bar, epoch, batches);
        self.lines = Lines::new(self.quiet, first as u64);
    }

    fn batch(&mut self, part: &Part) -> bool {
        let perplexity = part.perplexity();
        self.bar.set_message(format!("perplexity {perplexity:.1}"));
        self.bar.set_position(part.batches as u64);
        if let Some(far) = self.lines.due(part.batches as u64, self.batches as u64) {
            eprintln!("epoch {}: perplexity {perplexity:.1}, {far}", self.epoch);
        }
        !interrupt::requested()
    }

    fn ends(&mut self) {
        self.bar.finish_and_clear();
    }
}
