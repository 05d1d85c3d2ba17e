//! The scalars of a run over its rounds, for TensorBoard and tracking servers: evaluations and, for simulations, the users' training and
//! the time of each round.
//!
//! Nothing is here that the files of a run do not hold. What users did, and how long that took, are exact values: a run with secret noise
//! shows neither (rules P12 and P23), also where somebody put such files into its folder. The names of the first kind say that they
//! are not private.

use std::path::Path;

use durable::files::{self, FileError};
use federated::{
    metrics::{
        DIAGNOSTICS_FILE, Diagnostics, DiagnosticsHead, METRICS_FILE, Measures, Metric, Metrics, TIMING_FILE, Timing,
        registry::{Absent, METRICS},
        training::{EPSILON, RHO},
    },
    price::Meaning,
};
use serde::Deserialize;

use crate::run::time::{phases, seconds};

/// The lines of a run's files that scalars come from.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Lines {
    /// Its evaluations.
    pub metrics: Vec<Metrics>,
    /// Its rounds: how long they took; simulations only.
    pub timing: Vec<Timing>,
    /// Its rounds: what users did, exactly; simulations only.
    pub diagnostics: Vec<Diagnostics>,
}

/// The kind of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Of {
    /// The evaluation of a model.
    Evaluation,
    /// What users did in a round and how long it took; simulations only.
    Round,
}

/// Numbers of one step.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// The kind of the scalars.
    pub of: Of,
    /// Rounds that were done.
    pub round: u64,
    /// When, in seconds since the run was begun, pauses left out; 0 throughout where times may not be shown.
    pub seconds: f64,
    /// Each under its name, such as `accuracy/top1`.
    pub scalars: Vec<(String, f64)>,
}

/// A line of the exact numbers.
#[derive(Deserialize)]
#[serde(untagged)]
enum DiagnosticsLine {
    Round(Diagnostics),
    Head(#[allow(dead_code, reason = "it says that nothing is private, and is no round")] DiagnosticsHead),
}

impl Lines {
    /// Reads the lines of the run in a folder; a line that is being written is left out.
    ///
    /// # Errors
    /// When a file cannot be read or understood.
    pub fn read(folder: &Path) -> Result<Self, FileError> {
        let metrics: Vec<Metrics> = files::read_whole_lines(&folder.join(METRICS_FILE))?;
        if !is_simulation(&metrics) {
            return Ok(Self { metrics, ..Self::default() });
        }
        let lines: Vec<DiagnosticsLine> = files::read_whole_lines(&folder.join(DIAGNOSTICS_FILE))?;
        let of_round = |line| match line {
            DiagnosticsLine::Round(seen) => Some(seen),
            DiagnosticsLine::Head(_) => None,
        };
        let timing = files::read_whole_lines(&folder.join(TIMING_FILE))?;
        Ok(Self { metrics, timing, diagnostics: lines.into_iter().filter_map(of_round).collect() })
    }

    /// Whether they are of a run whose noise can be repeated, so that exact values may be shown. As long as nothing says so, they are not.
    #[must_use]
    pub fn is_simulation(&self) -> bool {
        is_simulation(&self.metrics)
    }

    /// The steps in the order in which a run makes them: a round, then the evaluation of what it made. What more lines add stands
    /// behind what was there.
    #[must_use]
    pub fn steps(&self) -> Vec<Step> {
        let exact = self.is_simulation();
        let examples = Measures::of(&self.metrics).examples();
        let mut timing = self.timing.iter().filter(|_| exact).peekable();
        let mut diagnostics = self.diagnostics.iter().filter(|_| exact).peekable();
        let (mut steps, mut now) = (Vec::new(), 0.0);
        let mut round = |timing: &Timing, steps: &mut Vec<Step>, now: &mut f64| {
            *now += seconds(timing);
            while diagnostics.next_if(|seen| seen.round < timing.round).is_some() {}
            let seen = diagnostics.next_if(|seen| seen.round == timing.round);
            let scalars = seen
                .map(|seen| of_users(seen, &examples))
                .unwrap_or_default()
                .into_iter()
                .chain(of_time(timing))
                .collect();
            steps.push(Step { of: Of::Round, round: timing.round, seconds: *now, scalars });
        };
        for line in &self.metrics {
            while let Some(timing) = timing.next_if(|timing| timing.round <= line.round) {
                round(timing, &mut steps, &mut now);
            }
            steps.push(Step { of: Of::Evaluation, round: line.round, seconds: now, scalars: of_evaluation(line) });
        }
        timing.for_each(|timing| round(timing, &mut steps, &mut now));
        steps
    }
}

fn is_simulation(metrics: &[Metrics]) -> bool {
    !metrics.is_empty() && metrics.iter().all(|line| line.price.meaning == Meaning::IfSecret)
}

/// What an evaluation shows: first what there always is, then the rest. An infinite epsilon is infinite; another number that is
/// infinite is left out.
fn of_evaluation(line: &Metrics) -> Vec<(String, f64)> {
    let (always, sometimes): (Vec<&Metric>, Vec<&Metric>) =
        METRICS.iter().copied().partition(|metric| metric.absent == Absent::Zero);
    let scalar = |metric: &Metric| {
        let value = metric.of(line)?;
        let is_shown = metric.absent != Absent::Infinite || value.is_finite();
        is_shown.then_some((tag(metric, line.price.meaning)?, value))
    };
    always.into_iter().chain(sometimes).filter_map(scalar).collect()
}

/// The tag of a number; that of a price says what it means (rule P23).
fn tag(metric: &Metric, meaning: Meaning) -> Option<String> {
    let ending = match meaning {
        _ if *metric != EPSILON && *metric != RHO => "",
        Meaning::Guaranteed => "",
        Meaning::SoFar => "_so_far",
        Meaning::IfSecret => "_if_secret",
    };
    Some(format!("{}{ending}", metric.tag?))
}

/// What the users of a round did, exactly; what they learned from has its learner's name.
fn of_users(seen: &Diagnostics, examples: &str) -> Vec<(String, f64)> {
    const QUANTILES: [&str; 5] = ["least", "10_percent", "median", "90_percent", "most"];
    let Diagnostics { users, tokens, loss, norm_quantiles, clipped_share, not_finite, .. } = seen;
    let norms = norm_quantiles.iter().flat_map(|norms| QUANTILES.into_iter().zip(*norms));
    let norms = norms.map(|(name, norm)| (format!("train_not_private/update_norm_{name}"), norm));
    let named = [
        ("loss", *loss),
        ("clipped_share", *clipped_share),
        ("users", Some(*users as f64)),
        (examples, Some(*tokens as f64)),
        ("users_not_finite", Some(*not_finite as f64)),
    ];
    let named = named.into_iter().filter_map(|(name, value)| Some((format!("train_not_private/{name}"), value?)));
    named.chain(norms).collect()
}

/// How long a round took, and what of it.
fn of_time(timing: &Timing) -> impl Iterator<Item = (String, f64)> {
    let phases =
        phases(timing).into_iter().map(|(name, seconds)| (format!("seconds/{}", name.replace(' ', "_")), seconds));
    [("seconds/round".to_owned(), seconds(timing))].into_iter().chain(phases)
}

#[cfg(test)]
pub(crate) mod tests {
    use federated::{
        metrics::{
            Measured,
            prediction::{ACCURACY_TOP1, ACCURACY_TOP3, NEXT_WORDS, PERPLEXITY},
        },
        price::Price,
    };
    use privacy::{Epsilon, Rho};

    use super::*;

    pub(crate) fn evaluation(round: u64) -> Metrics {
        Metrics {
            round,
            measured: Measured::new(&NEXT_WORDS, |metric| match metric {
                m if *m == ACCURACY_TOP1 => Some(0.125),
                m if *m == ACCURACY_TOP3 => Some(0.25),
                m if *m == PERPLEXITY => None,
                _ => Some(0.5),
            }),
            targets: 10,
            by_devices: None,
            clip_norm: Some(0.75),
            tracked_clip_norm: None,
            fraction_below_clip: None,
            server_learning_rate: 1.0,
            planned_participations: 300,
            sent: None,
            failed_attempts: 0,
            price: Price { meaning: Meaning::IfSecret, epsilon: Epsilon::INFINITE, rho: Some(Rho::new(0.5).unwrap()) },
            projected_epsilon: None,
        }
    }

    pub(crate) fn timing(round: u64) -> Timing {
        Timing {
            round,
            sample_s: 0.0,
            train_s: 1.5,
            train_busy_s: 3.0,
            threads: 2,
            release_s: 0.25,
            ledger_s: 0.25,
            optimizer_s: 0.0,
            evaluate_s: 0.0,
            checkpoint_s: 0.0,
        }
    }

    pub(crate) fn diagnostics(round: u64) -> Diagnostics {
        Diagnostics {
            round,
            users: 20,
            tokens: 1000,
            loss: Some(4.5),
            norm_quantiles: Some([0.5, 1.0, 2.0, 4.0, 8.0]),
            clipped_share: Some(0.75),
            not_finite: 1,
        }
    }

    fn line(line: &impl serde::Serialize) -> String {
        serde_json::to_string(line).unwrap() + "\n"
    }

    fn rounds(steps: &[Step]) -> Vec<(u64, f64, &str)> {
        steps.iter().map(|step| (step.round, step.seconds, step.scalars[0].0.as_str())).collect()
    }

    #[test]
    fn an_evaluation_comes_after_the_round_that_made_its_model() {
        let (metrics, users) = (vec![evaluation(0), evaluation(2)], vec![diagnostics(1), diagnostics(3)]);
        let lines = Lines { metrics, timing: vec![timing(1), timing(2), timing(3)], diagnostics: users };
        let steps = lines.steps();
        let expected = [
            (0, 0.0, "accuracy/top1"),
            (1, 2.0, "train_not_private/loss"),
            (2, 4.0, "seconds/round"),
            (2, 4.0, "accuracy/top1"),
            (3, 6.0, "train_not_private/loss"),
        ];
        assert_eq!(rounds(&steps), expected);
        let of_first: Vec<(&str, f64)> = steps[1].scalars.iter().map(|(name, value)| (name.as_str(), *value)).collect();
        let expected = [
            ("train_not_private/loss", 4.5),
            ("train_not_private/clipped_share", 0.75),
            ("train_not_private/users", 20.0),
            ("train_not_private/tokens", 1000.0),
            ("train_not_private/users_not_finite", 1.0),
            ("train_not_private/update_norm_least", 0.5),
            ("train_not_private/update_norm_10_percent", 1.0),
            ("train_not_private/update_norm_median", 2.0),
            ("train_not_private/update_norm_90_percent", 4.0),
            ("train_not_private/update_norm_most", 8.0),
            ("seconds/round", 2.0),
            ("seconds/local_training", 1.5),
        ];
        assert_eq!(of_first[..expected.len()], expected);
    }

    /// A run with secret noise has no such files; if somebody puts them there, they are not read.
    #[test]
    fn p12_what_users_did_and_how_long_it_took_is_shown_of_simulations_alone() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: String| std::fs::write(folder.path().join(name), text).unwrap();
        write(TIMING_FILE, line(&timing(1)));
        write(DIAGNOSTICS_FILE, line(&DiagnosticsHead::default()) + &line(&diagnostics(1)));
        write(METRICS_FILE, line(&evaluation(0)));
        let shown = Lines::read(folder.path()).unwrap();
        assert_eq!((shown.timing.len(), shown.diagnostics.len(), shown.steps().len()), (1, 1, 2));
        for meaning in [Meaning::SoFar, Meaning::Guaranteed] {
            let mut secret = evaluation(0);
            secret.price.meaning = meaning;
            write(METRICS_FILE, line(&secret));
            let hidden = Lines::read(folder.path()).unwrap();
            assert!(hidden.timing.is_empty() && hidden.diagnostics.is_empty());
            let given = Lines { metrics: vec![secret], ..shown.clone() };
            assert_eq!(rounds(&given.steps()), [(0, 0.0, "accuracy/top1")]);
        }
        write(METRICS_FILE, String::new());
        assert_eq!(Lines::read(folder.path()).unwrap(), Lines::default(), "nothing says yet that it is a simulation");
    }
}
