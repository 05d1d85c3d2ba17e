//! Progress of long work: a bar on a terminal, a line every few seconds elsewhere; and Ctrl-C.

use std::{
    io::IsTerminal,
    time::{Duration, Instant},
};

use corpus::import::Progress;
use federated::numbers::counted;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::{interrupt, remaining};

/// Without a terminal a line comes this often.
const EVERY: Duration = Duration::from_secs(5);

/// Shows progress and notices Ctrl-C.
pub(super) struct Watch {
    bar: ProgressBar,
    /// When the next line is due, where lines are written.
    next_line: Option<Instant>,
    started: Instant,
    /// The unit of the count.
    unit: &'static str,
}

impl Watch {
    pub(super) fn new(quiet: bool, unit: &'static str) -> anyhow::Result<Self> {
        interrupt::watch()?;
        let terminal = std::io::stderr().is_terminal();
        let target = if quiet || !terminal { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
        let bar = ProgressBar::with_draw_target(Some(0), target);
        let amount = if unit == "bytes" { "{bytes}/{total_bytes} {bytes_per_sec}" } else { "{human_pos}/{human_len}" };
        let style = format!("{{msg:<9}} [{{bar:40}}] {amount}, {{left}}");
        bar.set_style(remaining::style(&style)?);
        let now = Instant::now();
        Ok(Self { bar, next_line: (!quiet && !terminal).then(|| now + EVERY), started: now, unit })
    }

    /// Takes note of progress; returns whether to continue.
    pub(super) fn tick(&mut self, progress: Progress) -> bool {
        let (what, done, total, bad) = match progress {
            Progress::Reading { done, total, bad } => ("reading", done, total, bad),
            Progress::Grouping { done, total } => ("grouping", done, total, 0),
        };
        if self.bar.message() != what {
            if what == "grouping"
                && let Ok(style) = ProgressStyle::with_template("{msg:<9} [{bar:40}] {pos}/{len}")
            {
                self.bar.set_style(style.progress_chars("=> "));
            }
            self.bar.set_message(what);
        }
        self.bar.set_length(total);
        self.bar.set_position(done);
        if self.next_line.is_some_and(|due| Instant::now() >= due) {
            self.next_line = Some(Instant::now() + EVERY);
            let unit = if what == "grouping" { "parts" } else { self.unit };
            let bad = if bad > 0 { format!(", {}", counted(bad, "bad line")) } else { String::new() };
            let seconds = self.started.elapsed().as_secs();
            eprintln!(
                "{what}: {:.0} % of {total} {unit} after {seconds} s{bad}",
                100.0 * done as f64 / total.max(1) as f64
            );
        }
        !interrupt::requested()
    }

    /// Takes the bar away; says how many seconds it took.
    pub(super) fn finish(self) -> f64 {
        self.bar.finish_and_clear();
        self.started.elapsed().as_secs_f64()
    }
}
