//! Baselines of the experiments about forgetting that are not training runs, and the numbers in their tables.

use device::finetune::GeneralText;
use federated::{numbers::four_digits, run::Opened};
use lm::vocabulary::{BOS, EOS};
use serde::Deserialize;

/// What is measured of each variant, by name, and what it is called in tables.
pub(crate) const COLUMNS: [(&str, &str); 7] = [
    ("perplexity_standard", "PPL, standard"),
    ("keystrokes_standard", "KSS, standard"),
    ("keystrokes_standard_200", "KSS of 200, standard"),
    ("perplexity_users", "PPL, users"),
    ("keystrokes_users", "KSS, users"),
    ("keystrokes_users_200", "KSS of 200, users"),
    ("average_perplexity", "average PPL"),
];

/// What a variant is, where it is not a run.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) enum Instead {
    /// Kneser-Ney n-grams of the general text: what a neural model replaces.
    Ngram {
        /// Words of an n-gram.
        order: usize,
    },
    /// The model of `from` with n-grams of what each person has typed so far.
    OnlineNgram {
        /// Words of an n-gram.
        order: usize,
        /// The weight of the n-grams.
        weight: f64,
    },
    /// Transfer learning from the models of one cohort (equation 4); not private.
    Transfer {
        /// The text to train on.
        on: OnText,
        /// How often new text is generated.
        #[serde(default = "one")]
        cycles: u32,
        /// The number of epochs.
        epochs: u32,
        /// The step.
        learning_rate: f32,
    },
    /// The same from the models of runs, which were released: what it costs is what these cost together.
    Released {
        /// The variants above whose models teach.
        models: Vec<String>,
        /// The text on which the models teach.
        on: OnText,
        /// How often text is written again.
        #[serde(default = "one")]
        cycles: u32,
        /// How often it is read; 0 averages the models and no more.
        epochs: u32,
        /// The step.
        learning_rate: f32,
    },
}

/// The text of transfer learning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum OnText {
    /// The general text that devices rehearse.
    Real,
    /// As much text, by the model itself.
    Generated,
}

const fn one() -> u32 {
    1
}

/// The general text of settings, each post as n-grams read it.
pub(crate) fn general_posts(opened: &Opened) -> Result<Vec<Vec<u32>>, String> {
    let general = opened.general().ok_or("n-grams need general text: finetune.kind = \"rehearsal\"")?;
    Ok(sequences(general))
}

/// The posts of a text as n-grams read them.
pub(crate) fn sequences(text: &GeneralText) -> Vec<Vec<u32>> {
    let sequence = |post: &Vec<u32>| [BOS].into_iter().chain(post.iter().copied()).chain([EOS]).collect();
    text.posts().iter().map(sequence).collect()
}

/// A number of a column, as people read it.
pub(crate) fn shown(column: &str, value: f64) -> String {
    if column.starts_with("keystrokes") { format!("{:.2} %", 100.0 * value) } else { four_digits(value) }
}

/// What a column is called.
pub(crate) fn label(column: &str) -> &'static str {
    COLUMNS.iter().find(|(name, _)| *name == column).map_or("", |(_, label)| label)
}
