//! What an experiment came to, for programs: `results.json`.

use std::collections::BTreeMap;

use federated::{
    price::Price,
    sweep::{bootstrap::Estimate, measure::Measure},
};
use serde::Serialize;

use crate::{
    accounting::Computed,
    format::{Experiment, Kind},
    readme,
    training::Outcome,
    verdict::Verdict,
    what::What,
};

/// What an experiment came to.
#[derive(Debug, Serialize)]
pub struct Results {
    /// What is compared.
    pub title: String,
    /// Where.
    pub paper: String,
    pub(crate) says: String,
    /// The version of keyhush.
    pub(crate) keyhush: String,
    /// The kernels, on which the last bits depend.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) kernels: Option<String>,
    /// The name of the store, where its users were trained on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) store: Option<String>,
    /// What was set beside it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) set: Vec<String>,
    /// What is not as the experiment says.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) variants: Vec<OfVariant>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) rows: Vec<Computed>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) paper_values: Vec<Beside>,
    /// What must hold, and whether it does.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub expectations: Vec<Verdict>,
}

/// What a variant came to.
#[derive(Debug, Serialize)]
pub(crate) struct OfVariant {
    pub(crate) name: String,
    pub(crate) set: Vec<String>,
    /// The mean over the seeds at the end, of each column of the table.
    pub(crate) ends: BTreeMap<String, Estimate>,
    pub(crate) seeds: Vec<OfSeed>,
}

/// Where a run ended.
#[derive(Debug, Serialize)]
pub(crate) struct OfSeed {
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
pub(crate) struct Beside {
    pub(crate) name: String,
    pub(crate) paper: f64,
    pub(crate) unit: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ours: Option<Estimate>,
    #[serde(skip)]
    pub(crate) what: What,
}

impl Results {
    /// Without what was found.
    pub(crate) fn new(experiment: &Experiment) -> Self {
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

    /// The rows of the table, its head first: of the variants, or of what was computed.
    #[must_use]
    pub fn table(&self, experiment: &Experiment) -> Vec<Vec<String>> {
        match experiment.kind {
            Kind::Training => readme::cells(self, &experiment.columns),
            Kind::Accounting => readme::computed(self),
        }
    }

    /// What must hold and does not.
    #[must_use]
    pub fn failed(&self) -> Vec<&str> {
        let of_rows = self.rows.iter().filter_map(|row| row.verdict.as_ref());
        let all = of_rows.chain(&self.expectations);
        all.filter(|verdict| !verdict.holds).map(|verdict| verdict.text.as_str()).collect()
    }
}

impl OfVariant {
    pub(crate) fn new(outcome: &Outcome<'_>, columns: &[What]) -> Self {
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
