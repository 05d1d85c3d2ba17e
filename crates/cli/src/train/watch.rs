//! Progress of training: a bar on a terminal, a line every few seconds elsewhere.

use std::{
    io::IsTerminal,
    time::{Duration, Instant},
};

use federated::{
    metrics::Metrics,
    price::Price,
    run::{Observer, Run, Way},
};
use indicatif::{ProgressBar, ProgressDrawTarget};

use crate::remaining::{self, EVERY};

/// On a terminal, the text next to the bar is updated this often.
const AT_A_GLANCE: Duration = Duration::from_secs(1);
/// To compute what the rounds so far cost takes at most this share of the time: one part of so many.
const PRICE_SHARE: u32 = 20;

/// Shows how far a run is.
pub(super) struct Watch {
    bar: ProgressBar,
    quiet: bool,
    terminal: bool,
    rounds: u64,
    /// Rounds that were done before this process began.
    first: u64,
    started: Instant,
    /// What was measured last, and after which round.
    measured: Option<(String, u64)>,
    /// What the rounds up to one cost.
    price: Option<(Price, u64)>,
    /// When the next price may be asked for.
    next_price: Instant,
    /// When the next line is due.
    next_line: Instant,
}

impl Watch {
    /// Of a run of so many rounds.
    pub(super) fn new(quiet: bool, rounds: u64) -> anyhow::Result<Self> {
        let terminal = std::io::stderr().is_terminal();
        let target = if quiet || !terminal { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
        let bar = ProgressBar::with_draw_target(Some(rounds), target);
        bar.set_style(remaining::style("round {pos}/{len} [{bar:24}] {msg}, {left}")?);
        let now = Instant::now();
        Ok(Self {
            bar,
            quiet,
            terminal,
            rounds,
            first: 0,
            started: now,
            measured: None,
            price: None,
            next_price: now,
            next_line: now,
        })
    }

    /// The run continues after this round.
    fn start(&mut self, first: u64, last: Option<&Metrics>) {
        let now = Instant::now();
        (self.first, self.started, self.next_price) = (first, now, now);
        self.next_line = now + if self.terminal { AT_A_GLANCE } else { EVERY };
        self.bar.set_position(first);
        self.bar.reset_eta();
        last.iter().for_each(|metrics| self.note(metrics));
        self.bar.set_message(self.message(first));
    }

    /// Takes note of a round. `price` says what the rounds so far cost; it is asked for seldom. Without a terminal this is the line to
    /// print, if one is due.
    fn tick(&mut self, round: u64, metrics: Option<&Metrics>, price: impl FnOnce() -> Option<Price>) -> Option<String> {
        metrics.iter().for_each(|metrics| self.note(metrics));
        self.bar.set_position(round);
        let now = Instant::now();
        if self.quiet || now < self.next_line {
            return None;
        }
        self.next_line = now + if self.terminal { AT_A_GLANCE } else { EVERY };
        self.ask(round, price);
        let message = self.message(round);
        if self.terminal {
            self.bar.set_message(message);
            return None;
        }
        let each = (now - self.started).as_secs_f64() / (round - self.first).max(1) as f64;
        let left = Duration::from_secs_f64(each * (self.rounds - round) as f64);
        Some(format!("round {round}/{}: {message}, {}", self.rounds, remaining::words(left)))
    }

    /// Asks what the rounds so far cost, unless that is known or was asked for too often.
    fn ask(&mut self, round: u64, price: impl FnOnce() -> Option<Price>) {
        let now = Instant::now();
        if now < self.next_price || self.price.is_some_and(|(_, of)| of == round) {
            return;
        }
        self.price = price().map(|price| (price, round)).or(self.price);
        self.next_price = now + now.elapsed() * PRICE_SHARE;
    }

    fn note(&mut self, metrics: &Metrics) {
        let headline = metrics.measured.measures().headline;
        let words = format!("{} {}", headline.label, headline.shown(metrics.measured.headline()));
        self.measured = Some((words, metrics.round));
        self.price = Some((metrics.price, metrics.round));
    }

    /// What was measured last and what it costs by now, each with its round where that is another.
    fn message(&self, round: u64) -> String {
        let of = |at: u64| if at == round { String::new() } else { format!(" (round {at})") };
        let measured = self.measured.as_ref().map(|(words, at)| format!("{words}{}", of(*at)));
        let price = self.price.map(|(price, at)| format!("epsilon {}{}", price.words(), of(at)));
        measured.into_iter().chain(price).collect::<Vec<String>>().join(", ")
    }
}

impl Observer for Watch {
    type Error = anyhow::Error;

    fn begins(&mut self, run: &Run<'_>, way: Way<'_>) -> anyhow::Result<()> {
        let round = run.state().round;
        if !self.quiet && way != Way::Begin {
            eprintln!("resumed after round {round} of {}", self.rounds);
        }
        self.start(round, run.history().last());
        Ok(())
    }

    /// Also to who wants no progress: something is not as it should be.
    fn warns(&mut self, words: &str) {
        self.bar.suspend(|| eprintln!("warning: {words}"));
    }

    fn stepped(&mut self, run: &Run<'_>, metrics: Option<&Metrics>) -> anyhow::Result<()> {
        let line = self.tick(run.state().round, metrics, || run.price().ok());
        line.iter().for_each(|line| eprintln!("{line}"));
        Ok(())
    }

    /// Takes the bar away.
    fn rests(&mut self) -> anyhow::Result<()> {
        self.bar.finish_and_clear();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use federated::price::Meaning;
    use privacy::Epsilon;

    use super::*;

    fn price(epsilon: f64) -> Price {
        Price { meaning: Meaning::IfSecret, epsilon: Epsilon::new(epsilon).unwrap(), rho: None }
    }

    /// Progress showed the epsilon of the last evaluation beside the number of the round.
    #[test]
    fn the_price_is_that_of_the_round() {
        let mut watch = Watch::new(false, 100).unwrap();
        watch.start(0, None);
        watch.measured = Some(("top-1 accuracy 12.00 %".into(), 5));
        watch.price = Some((price(1.0), 5));
        watch.next_line = Instant::now();
        let _ = watch.tick(8, None, || Some(price(2.0)));
        assert_eq!(watch.message(8), "top-1 accuracy 12.00 % (round 5), epsilon 2.0000 if the noise were secret");
        assert_eq!(watch.tick(9, None, || unreachable!("no line is due yet")), None);
        assert_eq!(
            watch.message(9),
            "top-1 accuracy 12.00 % (round 5), epsilon 2.0000 if the noise were secret (round 8)"
        );
    }
    /// Where no terminal is, a log of a run of a day had no line of progress.
    #[test]
    fn without_a_terminal_there_is_a_line_every_few_seconds() {
        let mut watch = Watch::new(false, 100).unwrap();
        watch.terminal = false;
        watch.start(0, None);
        assert_eq!(watch.tick(1, None, || None), None, "not with every round");
        watch.next_line = Instant::now();
        let line = watch.tick(8, None, || Some(price(2.0))).expect("a line is due");
        assert!(line.starts_with("round 8/100: epsilon 2.0000 if the noise were secret, "), "{line}");
        let next = watch.next_line.saturating_duration_since(Instant::now());
        assert!(next <= EVERY && next > EVERY / 2 && EVERY <= Duration::from_secs(10), "{next:?}");
        watch.quiet = true;
        watch.next_line = Instant::now();
        assert_eq!(watch.tick(9, None, || None), None);
    }
}
