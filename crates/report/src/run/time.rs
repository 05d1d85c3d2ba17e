//! The time of a run, by part.

use askama::Template;
use federated::{metrics::Timing, numbers::percent};

use crate::markup::{Markup, rendered};

/// The phases of a round and their seconds.
pub(crate) fn phases(timing: &Timing) -> [(&'static str, f64); 7] {
    [
        ("local training", timing.train_s),
        ("evaluation", timing.evaluate_s),
        ("noise", timing.release_s),
        ("ledger", timing.ledger_s),
        ("server step", timing.optimizer_s),
        ("drawing cohorts", timing.sample_s),
        ("checkpoints", timing.checkpoint_s),
    ]
}

/// All seconds of a round.
pub(crate) fn seconds(timing: &Timing) -> f64 {
    phases(timing).iter().map(|(_, seconds)| seconds).sum()
}

/// A bar of the shares and a table.
#[derive(Template)]
#[template(path = "time.html")]
struct Time {
    parts: Vec<Part>,
    in_all: String,
    a_round: String,
    busy: Option<String>,
}

/// A phase of all rounds.
struct Part {
    name: &'static str,
    /// In percent, for the bar.
    width: String,
    share: String,
    in_all: String,
    a_round: String,
}

pub(super) fn html(timing: &[Timing]) -> askama::Result<Markup> {
    let mut sums = timing.first().map_or_else(Vec::new, |first| phases(first).to_vec());
    for (sum, (_, seconds)) in timing.iter().skip(1).flat_map(|line| phases(line).into_iter().enumerate()) {
        sums[sum].1 += seconds;
    }
    let (total, rounds): (f64, f64) = (sums.iter().map(|(_, seconds)| seconds).sum(), timing.len() as f64);
    let part = |(name, seconds): &(&'static str, f64)| {
        let share = if total > 0.0 { seconds / total } else { 0.0 };
        Part {
            name,
            width: format!("{:.3}", share * 100.0),
            share: percent(share),
            in_all: duration(*seconds),
            a_round: duration(seconds / rounds),
        }
    };
    let parts = sums.iter().map(part).collect();
    rendered(&Time { parts, in_all: duration(total), a_round: duration(total / rounds), busy: busy(timing) })
}

/// How busy the threads were while training.
fn busy(timing: &[Timing]) -> Option<String> {
    let busy: f64 = timing.iter().map(|t| t.train_busy_s).sum();
    let could: f64 = timing.iter().map(|t| t.train_s * t.threads as f64).sum();
    let threads = timing.iter().map(|t| t.threads).max().unwrap_or(1);
    let threads = if threads == 1 { "One thread".to_owned() } else { format!("{threads} threads") };
    (could > 0.0).then(|| format!("{threads}, busy {} of local training.", percent(busy / could)))
}

/// Seconds, in the unit in which they are read most easily.
fn duration(seconds: f64) -> String {
    match seconds {
        s if s >= 7200.0 => format!("{:.1} h", s / 3600.0),
        s if s >= 120.0 => format!("{:.1} min", s / 60.0),
        s if s >= 1.0 => format!("{s:.1} s"),
        s if s >= 1e-3 => format!("{:.1} ms", s * 1e3),
        0.0 => "0".into(),
        s => format!("{:.1} µs", s * 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_and_times_add_up() {
        let timing = |round| Timing {
            round,
            sample_s: 0.0,
            train_s: 3.0,
            train_busy_s: 5.7,
            threads: 2,
            release_s: 0.5,
            ledger_s: 0.25,
            optimizer_s: 0.25,
            evaluate_s: round as f64 * 2.0,
            checkpoint_s: 0.0,
        };
        let html = html(&[timing(0), timing(1)]).unwrap().0;
        assert_eq!(seconds(&timing(1)), 6.0);
        assert!(html.contains("local training</th><td>60.0 %</td><td>6.0 s</td><td>3.0 s</td>"), "{html}");
        assert!(html.contains("evaluation</th><td>20.0 %</td><td>2.0 s</td><td>1.0 s</td>"), "{html}");
        assert!(html.contains("2 threads, busy 95.0 % of local training"), "{html}");
        assert!(html.contains("<td>10.0 s</td><td>5.0 s</td>"), "{html}");
    }

    #[test]
    fn a_run_that_took_no_time_has_no_shares() {
        assert!(html(&[]).unwrap().0.contains("No round was timed"));
        let nothing = Timing {
            round: 0,
            sample_s: 0.0,
            train_s: 0.0,
            train_busy_s: 0.0,
            threads: 0,
            release_s: 0.0,
            ledger_s: 0.0,
            optimizer_s: 0.0,
            evaluate_s: 0.0,
            checkpoint_s: 0.0,
        };
        assert!(!html(&[nothing]).unwrap().0.contains("NaN"));
    }

    #[test]
    fn durations_are_readable() {
        let read = [0.0, 2.5e-6, 0.0123, 1.0, 90.0, 600.0, 9000.0].map(duration);
        assert_eq!(read, ["0", "2.5 µs", "12.3 ms", "1.0 s", "90.0 s", "10.0 min", "2.5 h"]);
    }
}
