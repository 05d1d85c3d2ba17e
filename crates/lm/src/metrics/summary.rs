//! All metrics of a test set by name, as they are printed.

use serde::{Deserialize, Serialize};

use super::counts::{Counts, Targets};

/// All metrics of a test set. Shares are from 0 to 1; a metric without anything to measure is absent, and JSON writes an
/// infinite one like an absent one: then `impossible` is not 0.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Metrics {
    /// Targets: words, known or not, and ends of sequences.
    pub tokens: u64,
    /// Targets that are words, known or not.
    pub words: u64,
    /// Targets that are not in the vocabulary.
    pub unknown: u64,
    /// Targets that the model held impossible: they make perplexities infinite.
    pub impossible: u64,
    /// Top 1, 3 and 5 with the end of a sequence as a target: see [`Counts::accuracy`].
    pub accuracy: Option<[f64; 3]>,
    /// The same over words only.
    pub accuracy_without_eos: Option<[f64; 3]>,
    /// Top 1 over known words: see [`Counts::accuracy_in_vocabulary`].
    pub accuracy_in_vocabulary: Option<f64>,
    /// Over all targets: see [`Counts::perplexity`].
    pub perplexity: Option<f64>,
    /// Without unknown words as targets.
    pub perplexity_without_unk: Option<f64>,
    /// See [`Counts::keystroke_saving`].
    pub keystroke_saving: Option<f64>,
    /// Shares for the 10, 50 and 100 most frequent words: see [`Counts::headedness`].
    pub headedness: Option<[[f64; 11]; 3]>,
}

impl From<&Counts> for Metrics {
    fn from(counts: &Counts) -> Self {
        Self {
            tokens: counts.targets(Targets::ALL),
            words: counts.targets(Targets::WITHOUT_EOS),
            unknown: counts.unknown.targets,
            impossible: [&counts.words, &counts.ends, &counts.unknown].map(|t| t.loss.impossible()).iter().sum(),
            accuracy: counts.accuracy(Targets::ALL),
            accuracy_without_eos: counts.accuracy(Targets::WITHOUT_EOS),
            accuracy_in_vocabulary: counts.accuracy_in_vocabulary(),
            perplexity: counts.perplexity(Targets::ALL),
            perplexity_without_unk: counts.perplexity(Targets::WITHOUT_UNK),
            keystroke_saving: counts.keystroke_saving(),
            headedness: counts.headedness(),
        }
    }
}
