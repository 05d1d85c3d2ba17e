//! What an experiment came to, for programs: `results.json`.

use std::collections::BTreeMap;

use federated::{
    price::Price,
    sweep::{bootstrap::Estimate, measure::Measure},
};
use serde::Serialize;

use super::{accounting::Computed, format::Experiment, training::Outcome, verdict::Verdict, what::What};

/// What an experiment came to.
#[derive(Debug, Serialize)]
pub(super) struct Results {
    pub(super) title: String,
    pub(super) paper: String,
    pub(super) says: String,
    /// The version of keyhush.
    pub(super) keyhush: String,
    /// The kernels, on which the last bits depend.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) kernels: Option<String>,
    /// The name of the store, where its users were trained on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) store: Option<String>,
    /// What was set beside it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) set: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) notes: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) variants: Vec<OfVariant>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) rows: Vec<Computed>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) paper_values: Vec<Beside>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) expectations: Vec<Verdict>,
}

/// What a variant came to.
#[derive(Debug, Serialize)]
pub(super) struct OfVariant {
    pub(super) name: String,
    pub(super) set: Vec<String>,
    /// The mean over the seeds at the end, of each column of the table.
    pub(super) ends: BTreeMap<String, Estimate>,
    pub(super) seeds: Vec<OfSeed>,
}

/// Where a run ended.
#[derive(Debug, Serialize)]
pub(super) struct OfSeed {
    rounds: u64,
    /// Smoothed over the last evaluations.
    accuracy_top1: f64,
    /// The last evaluation alone.
    last_accuracy_top1: f64,
    #[serde(serialize_with = "federated::sweep::bootstrap::number")]
    perplexity: f64,
    /// Under a name that says what it means.
    #[serde(flatten)]
    price: Option<Price>,
}

/// A number of the paper, and ours.
#[derive(Debug, Serialize)]
pub(super) struct Beside {
    pub(super) name: String,
    pub(super) paper: f64,
    pub(super) unit: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ours: Option<Estimate>,
    #[serde(skip)]
    pub(super) what: What,
}

impl Results {
    /// Without what was found.
    pub(super) fn new(experiment: &Experiment) -> Self {
        Self {
            title: experiment.title.clone(),
            paper: experiment.paper.clone(),
            says: experiment.says.clone(),
            keyhush: env!("CARGO_PKG_VERSION").into(),
            kernels: None,
            store: None,
            set: Vec::new(),
            notes: Vec::new(),
            variants: Vec::new(),
            rows: Vec::new(),
            paper_values: Vec::new(),
            expectations: Vec::new(),
        }
    }

    /// What must hold and does not.
    pub(super) fn failed(&self) -> Vec<&str> {
        let of_rows = self.rows.iter().filter_map(|row| row.verdict.as_ref());
        let all = of_rows.chain(&self.expectations);
        all.filter(|verdict| !verdict.holds).map(|verdict| verdict.text.as_str()).collect()
    }
}

impl OfVariant {
    pub(super) fn new(outcome: &Outcome<'_>, columns: &[What]) -> Self {
        let end = |what: &What| (what.name(), outcome.estimate(*what, None));
        let seed = |run: &Vec<federated::metrics::Metrics>| OfSeed {
            rounds: run.last().map_or(0, |line| line.round),
            accuracy_top1: Measure::AccuracyTop1.last(run),
            last_accuracy_top1: run.last().map_or(f64::NAN, |line| line.accuracy_top1),
            perplexity: Measure::Perplexity.last(run),
            price: run.last().map(|line| line.price),
        };
        Self {
            name: outcome.variant.name.clone(),
            set: outcome.variant.set.clone(),
            ends: columns.iter().map(end).collect(),
            seeds: outcome.runs.seeds.iter().map(seed).collect(),
        }
    }
}
