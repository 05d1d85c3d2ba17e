//! Experiments that compute: rows of a paper's table, each a question of `keyhush privacy`, a number of bytes, or what tails of likelihood
//! ratios say, beside what was printed.

use federated::numbers::four_digits;
use lm::model::{config::ModelConfig, parameters::ParameterLayout};
use privacy::{
    audit::hill,
    query::{Query, QueryError, solve},
};
use report::chart::{Chart, Series};
use serde::{Deserialize, Serialize};

use crate::{
    error::ExperimentError,
    format::{Expect, Experiment, Plot},
    verdict::{self, Verdict},
};

/// What a row says besides the fields of its query.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    name: String,
    /// The quantity to compute.
    #[serde(default)]
    value: Value,
    /// With `value = "cohort"` or `"noise_multiplier"` or `"rounds"`: what the run may cost.
    target_epsilon: Option<f64>,
    /// With `value = "cohort"`: z / m, which stays.
    noise_ratio: Option<f64>,
    /// With `value = "uploads"`, `"uploaded_mib"` or `"uploaded_gib"`: what is sent, how often. Then there is no query.
    traffic: Option<Traffic>,
    /// As printed; without it nothing is asserted.
    paper: Option<f64>,
    tolerance: Option<f64>,
    relative_tolerance: Option<f64>,
    /// The line of a picture that it belongs to.
    line: Option<String>,
}

/// The fields of [`Row`]; the others are its query's.
const OWN: [&str; 9] =
    ["name", "value", "target_epsilon", "noise_ratio", "traffic", "paper", "tolerance", "relative_tolerance", "line"];

/// Updates as 32-bit floats: of which model, from whom, how often.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Traffic {
    /// The model, by its name.
    model: String,
    /// Its words, where they are not those of the name.
    words: Option<usize>,
    /// The number of nodes that send in a round.
    nodes: u64,
    /// Rounds.
    rounds: u64,
    /// Rounds before them in which one node after the other sends alone, each of them once.
    #[serde(default)]
    in_turn: u64,
    /// How many times less is sent than floats are.
    #[serde(default = "one")]
    ratio: f64,
}

const fn one() -> f64 {
    1.0
}

impl Traffic {
    fn uploads(&self) -> f64 {
        (self.nodes * (self.rounds + self.in_turn)) as f64
    }

    fn bytes(&self) -> Result<f64, String> {
        let model = ModelConfig::preset(&self.model).map_err(|e| e.to_string())?;
        let model = match self.words {
            Some(words) => model.with_vocabulary(words),
            None => model,
        };
        let parameters = ParameterLayout::new(&model).map_err(|e| e.to_string())?.len();
        if self.ratio.is_nan() || self.ratio < 1.0 {
            return Err(format!("ratio must be at least 1, got {}", self.ratio));
        }
        Ok(self.uploads() * 4.0 * parameters as f64 / self.ratio)
    }
}

/// With `value = "tail_epsilon"` or `"tails_accepted"`, what stands in place of a query: tails of likelihood ratios, as they were fitted.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Tails {
    tails: Vec<Fitted>,
    delta: Option<f64>,
}

/// A Pareto tail (Popov et al. 2018, Table 5).
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
struct Fitted {
    /// Hill's estimator, alpha.
    shape: f64,
    /// C.
    scale: f64,
    /// Lilliefors' statistic.
    ks: f64,
}

impl Tails {
    /// The largest epsilon of all tails (Popov et al. 2018, equation 13).
    fn epsilon(&self) -> Result<f64, String> {
        let delta = self.delta.filter(|delta| *delta > 0.0 && *delta < 1.0);
        let delta = delta.ok_or("delta must be above 0 and below 1")?;
        Ok(self.tails.iter().map(|tail| hill::epsilon(tail.shape, tail.scale, delta)).fold(0.0, f64::max))
    }

    /// How many pass as tails of a Pareto distribution, by the paper's critical value.
    fn accepted(&self) -> f64 {
        self.tails.iter().filter(|tail| tail.ks <= hill::CRITICAL_VALUE).count() as f64
    }
}

/// What is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Value {
    #[default]
    Epsilon,
    /// Epsilon of a Gaussian whose rho was rounded to two decimals, as Xu et al. 2023 did.
    EpsilonAsPublished,
    Rho,
    /// The smallest cohort with a fixed ratio of noise to it.
    Cohort,
    NoiseMultiplier,
    Rounds,
    /// How often a node sends something.
    Uploads,
    /// What they send, in units of 2^20 bytes.
    UploadedMib,
    /// The same, in units of 2^30 bytes.
    UploadedGib,
    /// The largest epsilon of tails of likelihood ratios.
    TailEpsilon,
    /// How many of the tails pass as those of a Pareto distribution.
    TailsAccepted,
}

/// The result of a row.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Computed {
    pub(crate) name: String,
    pub(crate) what: Value,
    #[serde(serialize_with = "federated::sweep::estimate::number")]
    pub(crate) ours: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) paper: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) verdict: Option<Verdict>,
    #[serde(skip)]
    line: Option<String>,
    #[serde(skip)]
    fields: toml::Table,
}

/// Computes all rows.
pub(crate) fn run(experiment: &Experiment) -> Result<Vec<Computed>, ExperimentError> {
    experiment.row.iter().enumerate().map(|(number, table)| row(experiment, number, table)).collect()
}

fn row(experiment: &Experiment, number: usize, table: &toml::Table) -> Result<Computed, ExperimentError> {
    let name = table.get("name").and_then(toml::Value::as_str).map_or_else(|| (number + 1).to_string(), str::to_owned);
    let wrong =
        |problem: &dyn std::fmt::Display| ExperimentError::Row { name: name.clone(), problem: problem.to_string() };
    let (own, mut fields) = (table.clone(), experiment.query.clone());
    let (own, of_query): (toml::Table, toml::Table) = own.into_iter().partition(|(key, _)| OWN.contains(&key.as_str()));
    fields.extend(of_query);
    let row: Row = own.try_into().map_err(|e: toml::de::Error| wrong(&e.message()))?;
    let ours = match (&row.traffic, row.value) {
        (Some(traffic), Value::Uploads) => traffic.uploads(),
        (Some(traffic), Value::UploadedMib) => traffic.bytes().map_err(|e| wrong(&e))? / f64::from(1 << 20),
        (Some(traffic), Value::UploadedGib) => traffic.bytes().map_err(|e| wrong(&e))? / f64::from(1 << 30),
        (None, Value::Uploads | Value::UploadedMib | Value::UploadedGib) => {
            return Err(wrong(&"traffic is missing: give the model, the nodes and the rounds"));
        }
        (Some(_), _) => return Err(wrong(&"traffic needs value = \"uploads\", \"uploaded_mib\" or \"uploaded_gib\"")),
        (None, Value::TailEpsilon | Value::TailsAccepted) => {
            let tails: Tails = fields.clone().try_into().map_err(|e: toml::de::Error| wrong(&e.message()))?;
            if row.value == Value::TailEpsilon { tails.epsilon().map_err(|e| wrong(&e))? } else { tails.accepted() }
        }
        (None, _) => {
            let query: Query = fields.clone().try_into().map_err(|e: toml::de::Error| wrong(&e.message()))?;
            compute(&row, &query).map_err(|e| wrong(&e))?
        }
    };
    let tolerance = match (row.tolerance, row.relative_tolerance) {
        (None, None) => (experiment.tolerance, experiment.relative_tolerance),
        own => own,
    };
    let verdict = match (row.paper, tolerance) {
        (None, _) => None,
        (Some(paper), (Some(absolute), None)) => Some(verdict::near(&name, ours, paper, absolute)),
        (Some(paper), (None, Some(share))) => Some(verdict::near(&name, ours, paper, share * paper.abs())),
        (Some(_), (None, None)) => {
            return Err(wrong(&"tolerance is missing: give the allowed difference from the paper"));
        }
        (Some(_), (Some(_), Some(_))) => return Err(wrong(&"give tolerance or relative_tolerance, not both")),
    };
    Ok(Computed { name: row.name, what: row.value, ours, paper: row.paper, verdict, line: row.line, fields })
}

fn compute(row: &Row, query: &Query) -> Result<f64, QueryError> {
    let solves = matches!(row.value, Value::Cohort | Value::NoiseMultiplier | Value::Rounds);
    let target = || {
        row.target_epsilon
            .ok_or_else(|| QueryError::Missing { field: "target_epsilon", why: "give the epsilon to solve for".into() })
    };
    if !solves && row.target_epsilon.is_some() {
        return Err(QueryError::OutOfPlace { field: "target_epsilon", with: "a value that is not solved for".into() });
    }
    if row.value != Value::Cohort && row.noise_ratio.is_some() {
        return Err(QueryError::OutOfPlace {
            field: "noise_ratio",
            with: "this value; it is only valid with value = \"cohort\"".into(),
        });
    }
    Ok(match row.value {
        Value::Epsilon => query.judge()?.epsilon.get(),
        Value::EpsilonAsPublished => query.judge_as_published()?.0.epsilon.get(),
        Value::Rho => query.rho()?.0,
        Value::Cohort => {
            let ratio = solve::noise_ratio(query, row.noise_ratio)?;
            solve::smallest_cohort(query, target()?, ratio)?.1.value as f64
        }
        Value::NoiseMultiplier => solve::noise(query, target()?)?.1.value.get(),
        Value::Rounds => solve::rounds(query, target()?)?.1.value as f64,
        Value::Uploads | Value::UploadedMib | Value::UploadedGib => {
            return Err(QueryError::Missing { field: "traffic", why: "give what is sent".into() });
        }
        Value::TailEpsilon | Value::TailsAccepted => {
            return Err(QueryError::Missing { field: "tails", why: "give the tails".into() });
        }
    })
}

/// Judges one expectation of what was computed.
pub(crate) fn judge(expect: &Expect, rows: &[Computed]) -> Verdict {
    let row = |name: &str| rows.iter().find(|row| row.name == name);
    let names = [&expect.higher, &expect.of].into_iter().flatten().chain(expect.falling.iter().flatten());
    let what = names.into_iter().find_map(|name| Some(row(name)?.what.label())).unwrap_or_default();
    verdict::weigh(expect, what, |name| row(name).map_or(f64::NAN, |row| row.ours), four_digits)
}

/// One picture: the values over a field of the queries; what the paper printed is a line of its own.
pub(crate) fn draw(title: &str, plot: &Plot, rows: &[Computed]) -> Chart {
    let mut lines: Vec<(String, Vec<(f64, f64)>)> = Vec::new();
    let mut add = |name: String, point: (f64, f64)| match lines.iter_mut().find(|(known, _)| *known == name) {
        Some((_, points)) => points.push(point),
        None => lines.push((name, vec![point])),
    };
    for row in rows {
        let number = |value: &toml::Value| value.as_float().or_else(|| value.as_integer().map(|i| i as f64));
        let Some(x) = row.fields.get(&plot.x).and_then(number) else { continue };
        let line = match (&row.line, plot.lines.as_ref().and_then(|key| Some((key, row.fields.get(key)?)))) {
            (Some(line), _) => line.clone(),
            (None, Some((key, value))) => format!("{} = {value}", key.replace('_', " ")),
            (None, None) => String::new(),
        };
        let named = |who: &str| if line.is_empty() { who.to_owned() } else { format!("{line}, {who}") };
        add(named("computed"), (x, row.ours));
        if let Some(paper) = row.paper {
            add(named("printed"), (x, paper));
        }
    }
    let series = lines.into_iter().map(|(name, mut points)| {
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        Series::new(name, points)
    });
    Chart {
        title: plot.title.clone().unwrap_or_else(|| title.to_owned()),
        x_label: plot.x.replace('_', " "),
        y_label: rows.first().map_or("", |row| row.what.label()).to_owned(),
        log_x: plot.log_x,
        log_y: plot.log_y,
        series: series.collect(),
        ..Chart::default()
    }
}

impl Value {
    pub(crate) const fn label(self) -> &'static str {
        match self {
            Self::Epsilon | Self::EpsilonAsPublished | Self::TailEpsilon => "epsilon",
            Self::Rho => "rho",
            Self::Cohort => "cohort",
            Self::NoiseMultiplier => "noise multiplier",
            Self::Rounds => "rounds",
            Self::Uploads => "uploads",
            Self::UploadedMib => "MiB uploaded",
            Self::UploadedGib => "GiB uploaded",
            Self::TailsAccepted => "tails that pass",
        }
    }
}
