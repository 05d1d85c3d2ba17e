//! The metrics of a run, as lines of its files.
//!
//! `metrics.jsonl` has a line for every evaluation, the first before training; everything in it is public, a release, or
//! post-processing of one (rule P12), but for the accuracies, which protect nobody of the users held out for them. What devices
//! measured on their own text is such a release, and stands under `by_devices`, with how much of it may be noise.
//! `timing.jsonl` has one line per round. `diagnostics.jsonl` is for simulations: it shows what users did exactly, and says so.
//!
//! All of them count rounds alike: `round` N is what N rounds made. Round 0 is the model before training, and the first round is round 1.
//!
//! | module         | what it is                                                     |
//! |----------------|----------------------------------------------------------------|
//! | [`registry`]   | every number once: name, words, unit, goal, where it comes from |
//! | `by_devices`   | what devices measured, from a noised sum                       |
//! | [`prediction`] | how well a language model predicts                             |
//! | [`tags`]       | how well a model finds the tags of posts                       |
//! | [`training`]   | what a line says of the run itself                             |
//! | [`curve`]      | a number over the evaluations of a run                         |

mod by_devices;
pub mod curve;
mod measured;
pub mod prediction;
pub mod registry;
pub mod tags;
pub mod training;

use privacy::Epsilon;
use serde::{Deserialize, Serialize};

pub use self::{
    by_devices::ByDevices,
    measured::Measured,
    registry::{Measures, Metric},
};
use crate::{plan::Sent, price::Price};

/// The names of the files in the folder of a run.
pub const METRICS_FILE: &str = "metrics.jsonl";
/// One line per round.
pub const TIMING_FILE: &str = "timing.jsonl";
/// One line per round, not private.
pub const DIAGNOSTICS_FILE: &str = "diagnostics.jsonl";
/// One line per evaluation: what the model suggests after public prompts.
pub const SAMPLES_FILE: &str = "samples.jsonl";

/// A line of `metrics.jsonl`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Metrics {
    /// Rounds that were done: the model that was measured is what they made.
    pub round: u64,
    /// What was measured on held-out users, each number under its name.
    #[serde(flatten)]
    pub measured: Measured,
    /// Targets that were measured on.
    pub targets: u64,
    /// What devices measured on their own text, where they were asked: noised, and paid for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by_devices: Option<ByDevices>,
    /// The norm that updates are clipped to; none where nothing is clipped.
    pub clip_norm: Option<f64>,
    /// The norm that follows the quantile, where one does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tracked_clip_norm: Option<f64>,
    /// The noised share of users under the tracked clip, of the last round.
    pub fraction_below_clip: Option<f64>,
    /// The server's learning rate of the next round.
    pub server_learning_rate: f64,
    /// Participations so far, as planned: rounds times cohort.
    pub planned_participations: u64,
    /// Uploads and bytes so far, as planned; with the section `[upload]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent: Option<Sent>,
    /// Failed attempts at the rounds so far; the ledger and the report say why.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub failed_attempts: u64,
    /// What the releases so far cost, under a name that says what that means: `epsilon_so_far`; `epsilon_if_secret` in a
    /// simulation; with a filter, `epsilon`, which is its budget.
    #[serde(flatten)]
    pub price: Price,
    /// What they would cost with the large cohort that a small one stands for (rule P16).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub projected_epsilon: Option<Epsilon>,
}

const fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// A line of `timing.jsonl`: seconds of one round.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Timing {
    /// Rounds that were done, this one included: the first is 1.
    pub round: u64,
    /// Drawing the cohort.
    pub sample_s: f64,
    /// Local training to the sum, by the wall.
    pub train_s: f64,
    /// The same, all threads together.
    pub train_busy_s: f64,
    /// Threads.
    pub threads: usize,
    /// Noise.
    pub release_s: f64,
    /// Making the release durable.
    pub ledger_s: f64,
    /// The server's step and what follows it.
    pub optimizer_s: f64,
    /// Evaluation, where there was one.
    pub evaluate_s: f64,
    /// The checkpoint, where there was one.
    pub checkpoint_s: f64,
}

/// A line of `diagnostics.jsonl`: what the users of one round did, exactly. Not private.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Diagnostics {
    /// Rounds that were done, this one included: the first is 1.
    pub round: u64,
    /// Users who took part.
    pub users: u64,
    /// Tokens they predicted.
    pub tokens: u64,
    /// Their loss per token before learning.
    pub loss: Option<f64>,
    /// The norms of their updates before clipping: least, 10 %, median, 90 %, most; of those that are numbers.
    pub norm_quantiles: Option<[f64; 5]>,
    /// The share of users whose update was longer than the clip.
    pub clipped_share: Option<f64>,
    /// Users whose update was not a number, and counted as nothing.
    pub not_finite: u64,
}

/// The first line of `diagnostics.jsonl`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DiagnosticsHead {
    /// Always false.
    pub private: bool,
    /// The note, for people.
    pub note: String,
}

impl Default for DiagnosticsHead {
    fn default() -> Self {
        let note = "not private: exact losses and norms of the simulated users of each round".to_owned();
        Self { private: false, note }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::{prediction::*, *};
    use crate::price::Meaning;

    /// A run that was evaluated every five rounds.
    pub(crate) fn run(accuracies: &[f64]) -> Vec<Metrics> {
        let line = |(i, accuracy): (usize, &f64)| Metrics {
            round: 5 * i as u64,
            measured: Measured::new(&NEXT_WORDS, |metric| {
                if *metric == PERPLEXITY { (i > 0).then_some(100.0 / i as f64) } else { Some(*accuracy) }
            }),
            targets: 10,
            by_devices: None,
            clip_norm: Some(0.5),
            tracked_clip_norm: None,
            fraction_below_clip: None,
            server_learning_rate: 1.0,
            planned_participations: 0,
            sent: None,
            failed_attempts: 0,
            price: Price { meaning: Meaning::SoFar, epsilon: Epsilon::new(i as f64).unwrap(), rho: None },
            projected_epsilon: None,
        };
        accuracies.iter().enumerate().map(line).collect()
    }

    /// The bytes of files that are kept with seeds: names, order, and what is left out.
    #[test]
    fn a_line_is_written_as_it_always_was() {
        let lines = run(&[0.25, 0.5]).iter().map(|line| serde_json::to_string(line).unwrap()).collect::<Vec<_>>();
        assert_eq!(
            lines[0],
            r#"{"round":0,"accuracy_top1":0.25,"accuracy_top3":0.25,"accuracy_in_vocabulary":0.25,"perplexity":null,"targets":10,"clip_norm":0.5,"fraction_below_clip":null,"server_learning_rate":1.0,"planned_participations":0,"epsilon_so_far":0.0}"#
        );
        assert!(lines[1].contains(r#""perplexity":100.0,"targets""#), "{}", lines[1]);
        for (line, text) in run(&[0.25, 0.5]).iter().zip(&lines) {
            assert_eq!(&serde_json::from_str::<Metrics>(text).unwrap(), line);
        }
    }

    #[test]
    fn a_line_has_the_numbers_of_one_learner() {
        let text = serde_json::to_string(&run(&[0.5])[0]).unwrap();
        let read = |text: &str| serde_json::from_str::<Metrics>(text);
        assert_eq!(read(&text.replace(r#""perplexity":null,"#, "")).unwrap(), read(&text).unwrap());
        for (from, to) in [
            (r#""accuracy_top3":0.5,"#, ""),
            (r#""accuracy_top3":0.5,"#, r#""accuracy_top3":null,"#),
            (r#""accuracy_top3":0.5,"#, r#""accuracy_top3":0.5,"accuracy_top3":0.5,"#),
            (r#""accuracy_top3":0.5,"#, r#""accuracy_top3":0.5,"head10":0.5,"#),
            (r#""perplexity":null,"#, r#""perplexity":"many","#),
        ] {
            let evil = text.replace(from, to);
            assert!(evil != text && read(&evil).is_err(), "{evil}");
        }
    }

    #[test]
    fn nothing_measured_is_nothing_right_and_infinitely_surprising() {
        let nothing = Measured::of(&NEXT_WORDS, &lm::metrics::Counts::default());
        assert_eq!((nothing.headline(), nothing.get(&PERPLEXITY)), (0.0, Some(f64::INFINITY)));
        assert_eq!(nothing.get(&HEAD_10), None);
    }

    #[test]
    fn p23_a_line_names_its_epsilon_and_has_one() {
        let mut line = run(&[0.5]).remove(0);
        line.price = Price { meaning: Meaning::IfSecret, ..line.price };
        let text = serde_json::to_string(&line).unwrap();
        assert!(text.contains(r#""epsilon_if_secret":0.0"#) && !text.contains(r#""epsilon":"#), "{text}");
        assert_eq!(serde_json::from_str::<Metrics>(&text).unwrap(), line);
        for more in [r#""epsilon":0.0"#, r#""rho":0.0"#, r#""loss":1.0"#] {
            let evil = text.replacen('{', &format!("{{{more},"), 1);
            assert!(serde_json::from_str::<Metrics>(&evil).is_err(), "{evil}");
        }
        let none = text.replace(r#","epsilon_if_secret":0.0"#, "");
        assert!(none != text && serde_json::from_str::<Metrics>(&none).is_err(), "{none}");
    }
}
