//! The format of `experiment.toml`: what a paper did and printed, and what must hold here.
//!
//! ```toml
//! title = "Cohort size: 100 against 1250 users per round"
//! paper = "McMahan et al. 2018, Figure 5"
//! says = "with more users per round the same accuracy needs fewer rounds"
//! kind = "training"
//! config = "config.toml"          # beside this file; `keyhush train` reads it too
//! seeds = 2
//! plot = { x = "round", y = "accuracy_top1" }
//!
//! [[variant]]
//! name = "C = 100"
//! set = ["participation.cohort=100"]
//!
//! [[variant]]
//! name = "C = 1250"
//! set = ["participation.cohort=1250"]
//!
//! [[paper_value]]
//! name = "C = 5000, top-1 accuracy"
//! value = 17.5
//! unit = "%"
//!
//! [[expect]]
//! what = "accuracy_top1"
//! higher = "C = 1250"
//! lower = "C = 100"
//! ```

use std::path::{Path, PathBuf};

use federated::{
    metrics::{Measures, Metric, training::EPSILON},
    sweep::grid,
};
use serde::{Deserialize, Deserializer, de::Error};

use crate::{
    baselines::{COLUMNS, Instead},
    error::ExperimentError,
};

/// The file in the folder of an experiment.
pub(crate) const FILE: &str = "experiment.toml";

/// An experiment, as `experiment.toml` describes it.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// The title.
    pub title: String,
    /// The paper, with its table or figure.
    pub paper: String,
    /// What the paper says about it, in a sentence.
    pub says: String,
    /// How much of it was shown here; nothing until somebody has judged.
    state: Option<State>,
    /// With `partly` and `not-reproduced`: what was not shown.
    but: Option<String>,
    /// Training or accounting.
    pub kind: Kind,

    /// Of training: the settings that all variants change, beside this file.
    pub(crate) config: Option<PathBuf>,
    /// Of training: runs of each variant.
    #[serde(default = "one")]
    pub seeds: u64,
    /// Of training: every combination is a variant, as in `keyhush sweep`; comes before those that are named.
    #[serde(default)]
    pub(crate) grid: Vec<String>,
    /// Of training: also set where the users of a store are trained on.
    #[serde(default)]
    pub(crate) with_store: Vec<String>,
    /// Of training: the columns of the table.
    #[serde(default = "columns")]
    pub(crate) columns: Vec<&'static Metric>,
    #[serde(default)]
    pub(crate) variant: Vec<Variant>,

    /// Of accounting: what all rows have in common, as `keyhush privacy epsilon` asks for it; or tails of likelihood ratios.
    #[serde(default)]
    pub(crate) query: toml::Table,
    /// Of accounting: how far from the printed value a row may be.
    pub(crate) tolerance: Option<f64>,
    /// Of accounting: the same, as a share of the printed value.
    pub(crate) relative_tolerance: Option<f64>,
    #[serde(default)]
    pub(crate) row: Vec<toml::Table>,

    /// What is drawn: one picture or several.
    #[serde(default, deserialize_with = "one_or_several")]
    pub(crate) plot: Vec<Plot>,
    #[serde(default)]
    pub(crate) paper_value: Vec<PaperValue>,
    #[serde(default)]
    pub(crate) expect: Vec<Expect>,
}

const fn one() -> u64 {
    1
}

fn headline() -> &'static Metric {
    Measures::of([]).headline
}

fn columns() -> Vec<&'static Metric> {
    Measures::of([]).shown_first().chain([&EPSILON]).collect()
}

/// How much of what a paper says was shown here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum State {
    /// Its numbers come out as printed.
    Reproduced,
    /// What it found is found here too, at another size and with other numbers.
    Agrees,
    /// Some of what it found is.
    Partly,
    /// What it is about is not found here.
    NotReproduced,
}

impl State {
    const fn name(self) -> &'static str {
        match self {
            Self::Reproduced => "reproduced",
            Self::Agrees => "agrees",
            Self::Partly => "partly",
            Self::NotReproduced => "not reproduced",
        }
    }
}

/// Training or accounting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Models are trained.
    Training,
    /// Epsilons and the like are computed.
    Accounting,
    /// Models are fine-tuned, and measured on what they knew and on what they learned.
    FineTuning,
}

impl Kind {
    /// A one-word name for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Training => "training",
            Self::Accounting => "accounting",
            Self::FineTuning => "fine-tuning",
        }
    }
}

/// Runs that differ in their seeds alone.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Variant {
    pub(crate) name: String,
    /// Other settings than those of the experiment, beside its file.
    pub(crate) config: Option<PathBuf>,
    /// What it changes, as `--set` does.
    #[serde(default)]
    pub(crate) set: Vec<String>,
    /// Every combination is a variant of its own, named after this one and its values.
    #[serde(default)]
    pub(crate) grid: Vec<String>,
    /// Also set where the users of a store are trained on.
    #[serde(default)]
    pub(crate) with_store: Vec<String>,
    /// Stays with the synthetic crowd where others train on the users of a store.
    #[serde(default)]
    pub(crate) keeps_crowd: bool,
    /// A variant above, from whose model it starts; its cost is composed (rule P15).
    pub(crate) from: Option<String>,
    /// With `from`: why that model may be taken for public. Then its cost is not composed.
    pub(crate) public: Option<String>,
    /// Settings that say on whose held-out text the last model is measured, where that is not who it was trained on.
    #[serde(default)]
    pub(crate) evaluate_on: Vec<String>,
    /// The line of a picture that it belongs to.
    pub(crate) line: Option<String>,
    /// What it is where it is not a run; of training, n-grams only.
    pub(crate) instead: Option<Instead>,
    /// Of fine-tuning: where the users of a store are trained on, it is the general model of the texts, and is not trained.
    #[serde(default)]
    pub(crate) given_with_store: bool,
    /// Of fine-tuning: left out where the users of a store are trained on.
    #[serde(default)]
    pub(crate) crowd_only: bool,
}

/// A picture.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Plot {
    /// `round`, a key that the variants set, or something that is measured; of accounting, a field of the queries.
    pub(crate) x: String,
    /// What is measured; of accounting it is the value of the rows.
    #[serde(default = "headline")]
    pub(crate) y: &'static Metric,
    /// Whether curves over rounds are smoothed; accuracies are by default.
    pub(crate) smoothed: Option<bool>,
    #[serde(default)]
    pub(crate) log_x: bool,
    #[serde(default)]
    pub(crate) log_y: bool,
    /// The key or field by which points are put into lines, where variants do not name theirs.
    pub(crate) lines: Option<String>,
    /// Of several points of a line with the same x only the best is drawn.
    #[serde(default)]
    pub(crate) best: bool,
    /// Of fine-tuning: what is drawn, by the names of columns.
    #[serde(default)]
    pub(crate) columns: Vec<String>,
    /// The variants that are drawn; all by default.
    pub(crate) only: Option<Vec<String>>,
    pub(crate) title: Option<String>,
}

/// A number that the paper printed.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PaperValue {
    pub(crate) name: String,
    pub(crate) value: f64,
    #[serde(default)]
    pub(crate) unit: String,
    /// The variant whose number stands beside it.
    pub(crate) variant: Option<String>,
    /// Which number; the top-1 accuracy by default.
    #[serde(default = "headline")]
    pub(crate) what: &'static Metric,
    /// At this round; at the end by default.
    pub(crate) at: Option<u64>,
    /// Of fine-tuning: which column.
    pub(crate) column: Option<String>,
}

/// What must hold, for the mean over the seeds, or for what rows come to.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Expect {
    /// Of training: which number. A row has only one.
    pub(crate) what: Option<&'static Metric>,
    /// Of fine-tuning: which column.
    pub(crate) column: Option<String>,
    /// At this round; at the end by default.
    pub(crate) at: Option<u64>,
    /// Not the number itself, but the rounds after which it is reached.
    pub(crate) reach: Option<f64>,
    /// This variant's or row's is higher than `lower`'s.
    pub(crate) higher: Option<String>,
    pub(crate) lower: Option<String>,
    /// At least by so much; 0 by default.
    pub(crate) by: Option<f64>,
    /// It is at least so many times `lower`'s, or the next one's of `falling`.
    pub(crate) ratio: Option<f64>,
    /// Each of these is higher than the next.
    pub(crate) falling: Option<Vec<String>>,
    /// This variant's lies within `least` and `most`.
    pub(crate) of: Option<String>,
    pub(crate) least: Option<f64>,
    pub(crate) most: Option<f64>,
}

impl Expect {
    /// The variants or rows that it compares.
    pub(crate) fn names(&self) -> impl Iterator<Item = &String> {
        let Self { higher, lower, falling, of, .. } = self;
        [higher, lower, of].into_iter().flatten().chain(falling.iter().flatten())
    }
}

fn one_or_several<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Plot>, D::Error> {
    let plots = match toml::Value::deserialize(deserializer)? {
        toml::Value::Array(several) => several,
        one => vec![one],
    };
    plots.into_iter().map(|plot| plot.try_into().map_err(D::Error::custom)).collect()
}

impl Experiment {
    /// Checks the text of a file.
    pub(crate) fn parse(text: &str, path: &Path) -> Result<Self, ExperimentError> {
        let wrong = |problem: &dyn std::fmt::Display| ExperimentError::Format {
            path: path.to_owned(),
            problem: problem.to_string(),
        };
        let mut experiment: Self = toml::from_str(text).map_err(|error| wrong(&error.to_string().trim_end()))?;
        experiment.multiply().and_then(|()| experiment.check()).map_err(|problem| wrong(&problem))?;
        Ok(experiment)
    }

    /// How many variants are trained.
    #[must_use]
    pub const fn variants(&self) -> usize {
        self.variant.len()
    }

    /// The settings that it names, beside its file.
    #[cfg(test)]
    pub(crate) fn configs(&self) -> impl Iterator<Item = &PathBuf> {
        self.config.iter().chain(self.variant.iter().filter_map(|variant| variant.config.as_ref()))
    }

    /// Puts every combination of a grid into the place of its grid.
    fn multiply(&mut self) -> Result<(), String> {
        let whole = Variant { grid: std::mem::take(&mut self.grid), ..Variant::default() };
        let named = std::mem::take(&mut self.variant);
        let whole = if whole.grid.is_empty() { None } else { Some(whole) };
        for variant in whole.into_iter().chain(named) {
            if variant.grid.is_empty() {
                self.variant.push(variant);
                continue;
            }
            let axes = variant.grid.iter().map(|text| grid::Axis::parse(text)).collect::<Result<Vec<_>, _>>();
            let combinations = axes.and_then(|axes| grid::combinations(&axes)).map_err(|e| e.to_string())?;
            self.variant.extend(combinations.into_iter().map(|combination| {
                let name = if variant.name.is_empty() {
                    combination.name
                } else {
                    format!("{}, {}", variant.name, combination.name)
                };
                let set = variant.set.iter().cloned().chain(combination.set).collect();
                Variant { name, set, grid: Vec::new(), ..variant.clone() }
            }));
        }
        Ok(())
    }

    fn check(&self) -> Result<(), String> {
        match self.kind {
            Kind::Training => self.check_training()?,
            Kind::Accounting => self.check_accounting()?,
            Kind::FineTuning => {
                self.check_training()?;
                self.check_finetuning()?;
            }
        }
        self.expect.iter().try_for_each(|expect| self.check_expect(expect))?;
        self.check_state()?;
        for value in &self.paper_value {
            value.variant.iter().try_for_each(|name| self.require(name, "paper_value"))?;
        }
        for plot in &self.plot {
            plot.only.iter().flatten().try_for_each(|name| self.require(name, "plot.only"))?;
        }
        Ok(())
    }

    fn check_training(&self) -> Result<(), String> {
        let accounting = [
            ("row", !self.row.is_empty()),
            ("query", !self.query.is_empty()),
            ("tolerance", self.tolerance.is_some()),
            ("relative_tolerance", self.relative_tolerance.is_some()),
        ];
        if let Some((field, _)) = accounting.iter().find(|(_, given)| *given) {
            return Err(format!("{field} cannot be used with kind = \"training\""));
        }
        if self.seeds == 0 {
            return Err("seeds: at least one is needed".into());
        }
        if self.variant.is_empty() {
            return Err("variant is missing: say what is compared, with [[variant]] or grid".into());
        }
        for (number, variant) in self.variant.iter().enumerate() {
            let above = &self.variant[..number];
            let name = &variant.name;
            if name.is_empty() {
                return Err("variant: a name is missing".into());
            }
            if above.iter().any(|other| other.name == *name) {
                return Err(format!("variant {name:?} comes twice"));
            }
            if self.config.is_none() && variant.config.is_none() {
                return Err("config is missing: the settings that the variants change".into());
            }
            if let Some(from) = &variant.from
                && !above.iter().any(|other| other.name == *from)
            {
                return Err(format!("variant {name:?}: there is no variant {from:?} above it to start from"));
            }
            let of_both = matches!(variant.instead, None | Some(Instead::Ngram { .. }));
            let of_store = variant.given_with_store || variant.crowd_only;
            if (!of_both || of_store) && self.kind != Kind::FineTuning {
                let why =
                    "given_with_store, crowd_only, and instead other than n-grams, go with kind = \"fine-tuning\"";
                return Err(format!("variant {name:?}: {why}"));
            }
            if variant.public.is_some() && variant.from.is_none() {
                return Err(format!("variant {name:?}: public goes with from"));
            }
        }
        Ok(())
    }

    fn check_finetuning(&self) -> Result<(), String> {
        for (number, Variant { name, instead, from, evaluate_on, .. }) in self.variant.iter().enumerate() {
            if !evaluate_on.is_empty() {
                return Err(format!(
                    "variant {name:?}: evaluate_on goes with kind = \"training\"; both test sets are measured"
                ));
            }
            let needs = matches!(instead, Some(Instead::OnlineNgram { .. } | Instead::Transfer { .. }));
            if needs && from.is_none() {
                return Err(format!("variant {name:?}: from is missing: it starts from a general model"));
            }
            if let Some(Instead::Released { models, .. }) = instead {
                let is_run = |model: &String| {
                    self.variant[..number].iter().any(|above| above.name == *model && above.instead.is_none())
                };
                if models.is_empty() || !models.iter().all(is_run) {
                    return Err(format!("variant {name:?}: released: give variants above it that are runs"));
                }
            }
            if let Some(Instead::OnlineNgram { weight, .. }) = instead
                && !(0.0..=1.0).contains(weight)
            {
                return Err(format!("variant {name:?}: a weight is from 0 to 1"));
            }
        }
        let known = |column: &str| COLUMNS.iter().any(|(name, _)| *name == column);
        let of_plots = self.plot.iter().flat_map(|plot| &plot.columns);
        let of_expects = self.expect.iter().filter_map(|expect| expect.column.as_ref());
        let of_paper = self.paper_value.iter().filter_map(|value| value.column.as_ref());
        if let Some(column) = of_plots.chain(of_expects).chain(of_paper).find(|column| !known(column)) {
            let names: Vec<&str> = COLUMNS.iter().map(|(name, _)| *name).collect();
            return Err(format!("there is no column {column:?}; there are {}", names.join(", ")));
        }
        Ok(())
    }

    fn check_accounting(&self) -> Result<(), String> {
        let training = [
            ("config", self.config.is_some()),
            ("variant", !self.variant.is_empty()),
            ("with_store", !self.with_store.is_empty()),
        ];
        if let Some((field, _)) = training.iter().find(|(_, given)| *given) {
            return Err(format!("{field} cannot be used with kind = \"accounting\""));
        }
        if self.row.is_empty() {
            return Err("row is missing: what is computed".into());
        }
        Ok(())
    }

    fn check_expect(&self, expect: &Expect) -> Result<(), String> {
        let Expect { what, column, at, reach, higher, lower, by, ratio, falling, of, least, most } = expect;
        let relation = match (higher, lower, falling, of) {
            (Some(_), Some(_), None, None) if by.is_some() && ratio.is_some() => "give by or ratio, not both",
            (Some(_), Some(_), None, None) | (None, None, Some(_), None) if least.is_some() || most.is_some() => {
                "least and most go with of"
            }
            (Some(_), Some(_), None, None) => "",
            (None, None, Some(_), None) if by.is_some() => "by goes with higher and lower",
            (None, None, Some(names), None) if names.len() < 2 => "falling needs two or more",
            (None, None, Some(_), None) => "",
            (None, None, None, Some(_)) if least.is_none() && most.is_none() => "with of, give least or most",
            (None, None, None, Some(_)) if by.is_some() || ratio.is_some() => "by and ratio go with higher and lower",
            (None, None, None, Some(_)) => "",
            _ => "give higher and lower, or falling, or of with least or most",
        };
        if !relation.is_empty() {
            return Err(format!("expect: {relation}"));
        }
        expect.names().try_for_each(|name| self.require(name, "expect"))?;
        match (self.kind, what) {
            (Kind::Training, None) => return Err("expect: what is missing: which number is compared".into()),
            (Kind::FineTuning, _) if column.is_none() || what.is_some() || at.is_some() || reach.is_some() => {
                return Err(
                    "expect: fine-tuning is measured at the end: give column, and neither what, at nor reach".into()
                );
            }
            (Kind::Training | Kind::Accounting, _) if column.is_some() => {
                return Err("expect: column goes with kind = \"fine-tuning\"".into());
            }
            (Kind::Accounting, _) if what.is_some() || at.is_some() || reach.is_some() => {
                return Err("expect: a row has one number; what, at and reach go with kind = \"training\"".into());
            }
            _ => {}
        }
        if reach.is_some() && at.is_some() {
            return Err("expect: give at or reach, not both".into());
        }
        if let Some(what) = what.filter(|what| !what.is_in_lines())
            && (reach.is_some() || at.is_some())
        {
            return Err(format!("expect: {} is measured at the end only", what.label));
        }
        Ok(())
    }

    /// Nothing is claimed that nothing could have refuted.
    fn check_state(&self) -> Result<(), String> {
        let Some(state) = self.state else {
            return if self.but.is_some() { Err("but goes with state".into()) } else { Ok(()) };
        };
        let qualified = matches!(state, State::Partly | State::NotReproduced);
        match (qualified, &self.but) {
            (true, None) => return Err(format!("state = {:?}: say what was not shown, with but", state.name())),
            (false, Some(_)) => return Err("but goes with state = \"partly\" or \"not-reproduced\"".into()),
            _ => {}
        }
        if self.expect.is_empty() && !self.row.iter().any(|row| row.contains_key("paper")) {
            return Err(format!("state = {:?}: nothing is asserted; add [[expect]]", state.name()));
        }
        Ok(())
    }

    /// How much was shown, in words; nothing until somebody has judged.
    #[must_use]
    pub fn judged(&self) -> Option<String> {
        let name = self.state?.name();
        Some(self.but.as_ref().map_or_else(|| name.to_owned(), |but| format!("{name}: {but}")))
    }

    fn require(&self, name: &str, field: &str) -> Result<(), String> {
        let of_row = |row: &toml::Table| row.get("name").and_then(toml::Value::as_str).unwrap_or_default().to_owned();
        let (sort, names): (_, Vec<String>) = match self.kind {
            Kind::Training | Kind::FineTuning => {
                ("variant", self.variant.iter().map(|variant| variant.name.clone()).collect())
            }
            Kind::Accounting => ("row", self.row.iter().map(of_row).collect()),
        };
        if names.iter().any(|known| known == name) {
            return Ok(());
        }
        let names: Vec<String> = names.iter().map(|known| format!("{known:?}")).collect();
        Err(format!("{field}: there is no {sort} {name:?}; there are {}", names.join(", ")))
    }
}
