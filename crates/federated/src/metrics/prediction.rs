//! How well a language model predicts the words of held-out users.

use lm::metrics::{Counts, Targets};

use super::registry::{Absent, Goal, Measures, Metric, Source, Unit};
use crate::numbers;

/// What an evaluation of a language model measures.
pub static NEXT_WORDS: Measures = Measures {
    name: "next words",
    metrics: &[&ACCURACY_TOP1, &ACCURACY_TOP3, &ACCURACY_IN_VOCABULARY, &PERPLEXITY],
    of_last_model: &[&HEAD_10, &HEAD_50, &HEAD_100],
    headline: &ACCURACY_TOP1,
    beside: &[&PERPLEXITY],
    does: |share| format!("predicts {} of the next words of held-out users", numbers::accuracy(share)),
    targets: "predictions on held-out users",
    example: "token",
};

/// Top 1 over all targets of the held-out users ([`Counts::accuracy`]).
pub static ACCURACY_TOP1: Metric = Metric {
    name: "accuracy_top1",
    label: "top-1 accuracy",
    column: "top 1",
    tag: Some("accuracy/top1"),
    ..accuracy(|counts| Some(counts.accuracy(Targets::ALL)?[0]))
};

/// Top 3.
pub static ACCURACY_TOP3: Metric = Metric {
    name: "accuracy_top3",
    label: "top-3 accuracy",
    column: "top 3",
    tag: Some("accuracy/top3"),
    ..accuracy(|counts| Some(counts.accuracy(Targets::ALL)?[1]))
};

/// Top 1 over known words.
pub static ACCURACY_IN_VOCABULARY: Metric = Metric {
    name: "accuracy_in_vocabulary",
    label: "top-1 accuracy over known words",
    column: "top 1, known words",
    tag: Some("accuracy/in_vocabulary"),
    ..accuracy(Counts::accuracy_in_vocabulary)
};

/// Over all targets ([`Counts::perplexity`]).
pub static PERPLEXITY: Metric = Metric {
    name: "perplexity",
    label: "perplexity",
    column: "perplexity",
    tag: Some("perplexity"),
    unit: Unit::Number,
    goal: Goal::Lower,
    smoothed: false,
    log: true,
    absent: Absent::Infinite,
    source: Source::Evaluation(|counts| counts.perplexity(Targets::ALL)),
};

/// How many of the ten words that are predicted first are among the 10 most frequent, on average (McMahan et al. 2018, Table 3).
pub static HEAD_10: Metric = Metric {
    name: "head10",
    label: "share of the first 10 predictions among the 10 most frequent words",
    column: "share of the first 10 predictions among the 10 most frequent words",
    ..head(|counts| words_in_head(counts, 0))
};

/// Share of the first 10 predictions among the 50 most frequent words.
pub static HEAD_50: Metric = Metric {
    name: "head50",
    label: "share of the first 10 predictions among the 50 most frequent words",
    column: "share of the first 10 predictions among the 50 most frequent words",
    ..head(|counts| words_in_head(counts, 1))
};

/// Among the 100 most frequent.
pub static HEAD_100: Metric = Metric {
    name: "head100",
    label: "share of the first 10 predictions among the 100 most frequent words",
    column: "share of the first 10 predictions among the 100 most frequent words",
    ..head(|counts| words_in_head(counts, 2))
};

/// What all shares of what is right have in common.
pub(super) const fn accuracy(of: fn(&Counts) -> Option<f64>) -> Metric {
    Metric {
        name: "",
        label: "",
        column: "",
        tag: None,
        unit: Unit::Share,
        goal: Goal::Higher,
        smoothed: true,
        log: false,
        absent: Absent::Zero,
        source: Source::Evaluation(of),
    }
}

/// What the counts of head words have in common: fewer of them mean that a model says more than the commonplace.
const fn head(of: fn(&Counts) -> Option<f64>) -> Metric {
    Metric {
        unit: Unit::Number,
        goal: Goal::Lower,
        smoothed: false,
        absent: Absent::LeftOut,
        source: Source::LastModel(of),
        ..accuracy(of)
    }
}

fn words_in_head(counts: &Counts, head: usize) -> Option<f64> {
    let shares = counts.headedness()?[head];
    Some(shares.iter().enumerate().map(|(words, share)| words as f64 * share).sum())
}
