//! An experiment's results for programs: `results.json`.

use std::collections::BTreeMap;

use federated::{
    metrics::{Measures, Metric, Metrics},
    numbers::four_digits,
    price::Price,
    sweep::estimate::{Estimate, number},
};
use serde::Serialize;

use crate::{
    accounting::Computed,
    baselines::{self, COLUMNS},
    finetuning::{Compared, Paired},
    format::{Experiment, Kind},
    training::Outcome,
    verdict::Verdict,
};

/// The results of an experiment.
#[derive(Debug, Serialize)]
pub struct Results {
    /// The title.
    pub title: String,
    /// The paper, with its table or figure.
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
    pub(crate) compared: Vec<Compared>,
    /// Of these, what expectations compare, seed by seed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) paired: Vec<Paired>,
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

/// The last values of a run.
#[derive(Debug, Serialize)]
pub(crate) struct OfSeed {
    rounds: u64,
    /// The headline, smoothed over the last evaluations, and after `last_` that of the last alone; and what is shown beside it.
    #[serde(flatten)]
    ends: BTreeMap<String, End>,
    /// Under a name that says what it means.
    #[serde(flatten)]
    price: Option<Price>,
}

/// A number at the end of a run.
#[derive(Debug, Serialize)]
struct End(#[serde(serialize_with = "number")] f64);

/// A number of the paper, and ours.
#[derive(Debug, Serialize)]
pub(crate) struct Beside {
    pub(crate) name: String,
    pub(crate) paper: f64,
    pub(crate) unit: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ours: Option<Estimate>,
    #[serde(skip)]
    pub(crate) what: &'static Metric,
}

impl Results {
    /// Results without any rows yet.
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
            compared: Vec::new(),
            paired: Vec::new(),
            paper_values: Vec::new(),
            expectations: Vec::new(),
        }
    }

    /// The rows of the table, its head first: of the variants, or of what was computed.
    #[must_use]
    pub fn table(&self, experiment: &Experiment) -> Vec<Vec<String>> {
        match experiment.kind {
            Kind::Training => self.table_of_variants(&experiment.columns),
            Kind::Accounting => self.table_of_rows(),
            Kind::FineTuning => self.table_of_compared(experiment),
        }
    }

    /// The rows of the table of what was measured on both test sets, its head first; what the paper printed stands in brackets.
    pub(crate) fn table_of_compared(&self, experiment: &Experiment) -> Vec<Vec<String>> {
        let mut rows = vec![vec!["method".to_owned()]];
        rows[0].extend(COLUMNS.iter().map(|(_, label)| (*label).to_owned()));
        for one in &self.compared {
            let cell = |(column, _): &(&'static str, &str)| {
                let ours = one.values.get(column).map_or_else(String::new, |value| baselines::shown(column, *value));
                let printed = experiment
                    .paper_value
                    .iter()
                    .find(|value| value.variant.as_ref() == Some(&one.name) && value.column.as_deref() == Some(column));
                printed.map_or_else(|| ours.clone(), |value| format!("{ours} ({})", value.value))
            };
            rows.push(std::iter::once(one.name.clone()).chain(COLUMNS.iter().map(cell)).collect());
        }
        rows
    }

    /// The rows of the table of variants, its head first: for the page and for the terminal.
    pub(crate) fn table_of_variants(&self, columns: &[&Metric]) -> Vec<Vec<String>> {
        let mut rows = vec![vec!["variant".to_owned()]];
        rows[0].extend(columns.iter().map(|what| what.label.to_owned()));
        for variant in &self.variants {
            let ends = columns.iter().map(|what| {
                // What is no run has no rounds and no epsilon.
                let end = variant.ends.get(what.name).filter(|end| !variant.seeds.is_empty() || end.mean.is_finite());
                end.map_or_else(String::new, |e| e.written(|value| what.shown(value)))
            });
            rows.push(std::iter::once(variant.name.clone()).chain(ends).collect());
        }
        rows
    }

    /// The rows of the table of what was computed, its head first.
    pub(crate) fn table_of_rows(&self) -> Vec<Vec<String>> {
        let mut rows = vec![["", "what", "printed", "computed", ""].map(str::to_owned).to_vec()];
        for row in &self.rows {
            let holds = row.verdict.as_ref().map_or("", |verdict| if verdict.holds { "agrees" } else { "differs" });
            let printed = row.paper.map_or_else(String::new, |paper| paper.to_string());
            rows.push(vec![row.name.clone(), row.what.label().into(), printed, four_digits(row.ours), holds.into()]);
        }
        rows
    }

    /// The expectations that do not hold.
    #[must_use]
    pub fn failed(&self) -> Vec<&str> {
        let of_rows = self.rows.iter().filter_map(|row| row.verdict.as_ref());
        let all = of_rows.chain(&self.expectations);
        all.filter(|verdict| !verdict.holds).map(|verdict| verdict.text.as_str()).collect()
    }
}

impl OfVariant {
    pub(crate) fn new(outcome: &Outcome<'_>, columns: &[&'static Metric]) -> Self {
        let end = |what: &&'static Metric| (what.name.to_owned(), outcome.estimate(what, None));
        let seed = |run: &Vec<Metrics>| OfSeed {
            rounds: run.last().map_or(0, |line| line.round),
            ends: ends(run),
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

/// Where a run ended, by name.
fn ends(run: &[Metrics]) -> BTreeMap<String, End> {
    let measures = Measures::of(run);
    let alone = run.last().map_or(f64::NAN, |line| line.measured.headline());
    let shown = measures.shown_first().map(|metric| (metric.name.to_owned(), End(metric.smoothed_at(run, u64::MAX))));
    shown.chain([(format!("last_{}", measures.headline.name), End(alone))]).collect()
}
