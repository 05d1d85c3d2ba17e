//! What a run measures, as the lines of its files.
//!
//! `metrics.jsonl` has a line for every evaluation, the first before training; everything in it is public, a release, or
//! post-processing of one (rule P12), but for the accuracies, which protect nobody of the users held out for them.
//! `timing.jsonl` has a line a round. `diagnostics.jsonl` is for simulations: it shows what users did exactly, and says so.

use privacy::Epsilon;
use serde::{Deserialize, Serialize};

use crate::price::Price;

/// The names of the files in the folder of a run.
pub const METRICS_FILE: &str = "metrics.jsonl";
/// A line a round.
pub const TIMING_FILE: &str = "timing.jsonl";
/// A line a round, not private.
pub const DIAGNOSTICS_FILE: &str = "diagnostics.jsonl";

/// A line of `metrics.jsonl`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Metrics {
    /// Rounds that were done before.
    pub round: u64,
    /// Top 1 over all targets of the held-out users (Counts::accuracy).
    pub accuracy_top1: f64,
    /// Top 3.
    pub accuracy_top3: f64,
    /// Top 1 over known words.
    pub accuracy_in_vocabulary: f64,
    /// Over all targets; none where it is infinite.
    pub perplexity: Option<f64>,
    /// Targets that were measured on.
    pub targets: u64,
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
    /// Attempts at the rounds so far that came to nothing; the ledger and the report say why.
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
    /// Which round, from 0.
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
    /// Which round, from 0.
    pub round: u64,
    /// Users who took part.
    pub users: u64,
    /// Tokens they predicted.
    pub tokens: u64,
    /// Their loss a token before learning.
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
    /// In words.
    pub note: String,
}

impl Default for DiagnosticsHead {
    fn default() -> Self {
        let note = "not private: exact losses and norms of the simulated users of each round".to_owned();
        Self { private: false, note }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{price::Meaning, sweep::summary::tests::run};

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
