//! The registry of all metrics: name in files, display name, unit, which direction is better, and source. The lines of `metrics.jsonl`,
//! TensorBoard, reports, sweeps and experiments read it here, and name no metric themselves.
//!
//! A family of numbers has a file of its own beside this one. A new number is defined there, with a line in the list of its family: the
//! `metrics` of a [`Measures`], or [`training::OF_RUNS`]. A new learner needs a [`Measures`] that says what its evaluation measures,
//! and a line in [`MEASURES`]. [`METRICS`] follows.

use std::{fmt, ptr, sync::LazyLock};

use ledger::statement::rounded_up;
use lm::metrics::Counts;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

use super::{Metrics, prediction, tags, training};
use crate::numbers::{accuracy, bytes, four_digits};

/// All numbers: those of evaluations, then those of the run. Lines of files and TensorBoard have them in this order.
pub static METRICS: LazyLock<Vec<&'static Metric>> = LazyLock::new(|| {
    let mut all: Vec<&'static Metric> = Vec::new();
    let measured = MEASURES.iter().flat_map(|measures| measures.metrics.iter().chain(measures.of_last_model));
    for metric in measured.chain(training::OF_RUNS).copied() {
        // Several learners may be measured by the same one; two of the same name are a mistake, which a test finds.
        if !all.iter().any(|known| ptr::eq(*known, metric)) {
            all.push(metric);
        }
    }
    all
});

/// What evaluations measure, by learner. A line of a file belongs to the first that has all of its numbers.
pub static MEASURES: &[&Measures] = &[&prediction::NEXT_WORDS, &tags::TAGS_FOUND];

/// The names of [`METRICS`].
static NAMES: LazyLock<Vec<&'static str>> = LazyLock::new(|| METRICS.iter().map(|metric| metric.name).collect());

/// A number of a run. Two are the same if their names are.
pub struct Metric {
    /// Its name in files.
    pub name: &'static str,
    /// In words, within a sentence and on an axis.
    pub label: &'static str,
    /// Above a column of a table that has several of its kind.
    pub column: &'static str,
    /// In TensorBoard; none where it is not shown there.
    pub tag: Option<&'static str>,
    /// How it is displayed.
    pub unit: Unit,
    /// Which way is better.
    pub goal: Goal,
    /// Whether the papers smooth it over evaluations, as they do with accuracies: charts show that as a thin second line.
    pub smoothed: bool,
    /// Whether its axis is logarithmic.
    pub log: bool,
    /// What it is where there is nothing to measure.
    pub absent: Absent,
    /// Its source.
    pub source: Source,
}

/// How a number is displayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Unit {
    /// A share of a whole: people read it in percent.
    Share,
    /// An epsilon: rounded up, never down.
    Epsilon,
    /// Bytes.
    Bytes,
    /// Anything else.
    #[default]
    Number,
}

impl Unit {
    /// Formats a value for tables.
    #[must_use]
    pub fn shown(self, value: f64) -> String {
        match self {
            _ if value.is_nan() => "none".into(),
            Self::Share => accuracy(value),
            Self::Epsilon if value.is_finite() => rounded_up(value),
            Self::Bytes if value.is_finite() => bytes(value as u64),
            Self::Epsilon | Self::Bytes | Self::Number => four_digits(value),
        }
    }

    /// The factor of values in charts: shares are drawn in percent.
    #[must_use]
    pub fn scale(self) -> f64 {
        if self == Self::Share { 100.0 } else { 1.0 }
    }
}

/// Which way is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Goal {
    /// Larger values are better.
    Higher,
    /// Smaller values are better.
    Lower,
}

impl Goal {
    /// Whether a number is as good as another, or better. What is not a number is not.
    #[must_use]
    pub fn reaches(self, value: f64, target: f64) -> bool {
        match self {
            Self::Higher => value >= target,
            Self::Lower => value <= target,
        }
    }
}

/// How a missing or non-finite number is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Absent {
    /// There always is one; 0 of nothing.
    Zero,
    /// Infinite: files write null.
    Infinite,
    /// It does not belong to this run.
    LeftOut,
}

/// The source of a number.
#[derive(Clone, Copy)]
pub enum Source {
    /// What was counted on held-out users: every evaluation measures it.
    Evaluation(fn(&Counts) -> Option<f64>),
    /// The same, asked of the last model alone.
    LastModel(fn(&Counts) -> Option<f64>),
    /// What a line says of the run itself.
    Run(fn(&Metrics) -> Option<f64>),
}

/// The metrics of one kind of learner.
#[derive(Debug)]
pub struct Measures {
    /// By which learners name it ([`device::learner::Learner::measures`]).
    pub name: &'static str,
    /// The numbers of a line, in its order.
    pub metrics: &'static [&'static Metric],
    /// What is asked of the last model alone.
    pub of_last_model: &'static [&'static Metric],
    /// The one that models are chosen by and runs are stopped at (`evaluation.stop_at_accuracy`): shown first everywhere.
    pub headline: &'static Metric,
    /// What tiles, charts and tables show beside it.
    pub beside: &'static [&'static Metric],
    /// What a model with this headline does, after "the model".
    pub does: fn(f64) -> String,
    /// What was counted, in the plural.
    pub targets: &'static str,
    /// One of the examples that are learned from; several have an s.
    pub example: &'static str,
}

impl Metric {
    /// The number of this name.
    #[must_use]
    pub fn find(name: &str) -> Option<&'static Self> {
        METRICS.iter().copied().find(|metric| metric.name == name)
    }

    /// Its value in a line; none where it is not there.
    #[must_use]
    pub fn of(&self, line: &Metrics) -> Option<f64> {
        match self.source {
            Source::Evaluation(_) => line.measured.get(self),
            Source::LastModel(_) => None,
            Source::Run(of) => of(line),
        }
    }

    /// Its value over what a model was asked; none where that does not say it.
    #[must_use]
    pub fn of_counts(&self, counts: &Counts) -> Option<f64> {
        match self.source {
            Source::Evaluation(of) | Source::LastModel(of) => of(counts),
            Source::Run(_) => None,
        }
    }

    /// Whether every line can have it; otherwise it is asked of the last model alone.
    #[must_use]
    pub const fn is_in_lines(&self) -> bool {
        !matches!(self.source, Source::LastModel(_))
    }

    /// Whether it is a share, which people read in percent.
    #[must_use]
    pub fn is_share(&self) -> bool {
        self.unit == Unit::Share
    }

    /// The factor of its values in charts.
    #[must_use]
    pub fn scale(&self) -> f64 {
        self.unit.scale()
    }

    /// The label of its axis in charts whose title names the metric.
    #[must_use]
    pub fn axis(&self) -> &'static str {
        if self.is_share() { "percent" } else { self.label }
    }

    /// A title for charts.
    #[must_use]
    pub fn title(&self) -> String {
        self.label[..1].to_uppercase() + &self.label[1..]
    }

    /// The value formatted for tables.
    #[must_use]
    pub fn shown(&self, value: f64) -> String {
        self.unit.shown(value)
    }
}

impl PartialEq for Metric {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Metric {}

impl fmt::Debug for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl Serialize for Metric {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name)
    }
}

impl<'de> Deserialize<'de> for &'static Metric {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        Metric::find(&name).ok_or_else(|| D::Error::unknown_variant(&name, &NAMES))
    }
}

impl PartialEq for Measures {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Measures {
    /// What lines measure: what the first of them does; of none, what language models do.
    pub fn of<'a>(lines: impl IntoIterator<Item = &'a Metrics>) -> &'static Self {
        lines.into_iter().next().map_or(MEASURES[0], |line| line.measured.measures())
    }

    /// The set with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        MEASURES.iter().find(|measures| measures.name == name).copied()
    }

    /// Its numbers over what a model was asked, and those that are asked of a last model alone.
    pub fn of_counts(&self, counts: &Counts) -> impl Iterator<Item = (&'static Metric, f64)> {
        let asked = self.metrics.iter().chain(self.of_last_model);
        asked.filter_map(|metric| Some((*metric, metric.of_counts(counts)?)))
    }

    /// What is learned from, in the plural.
    #[must_use]
    pub fn examples(&self) -> String {
        format!("{}s", self.example)
    }

    /// The headline and what is shown beside it.
    pub fn shown_first(&self) -> impl Iterator<Item = &'static Metric> {
        std::iter::once(self.headline).chain(self.beside.iter().copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_and_every_tag_is_given_once() {
        let tags: Vec<&str> = METRICS.iter().filter_map(|metric| metric.tag).collect();
        for names in [&NAMES[..], &tags] {
            for (number, name) in names.iter().enumerate() {
                assert!(!names[..number].contains(name), "{name}");
            }
        }
        assert_eq!(serde_json::from_str::<&Metric>("\"perplexity\"").unwrap(), &prediction::PERPLEXITY);
        let unknown = serde_json::from_str::<&Metric>("\"f1\"").unwrap_err().to_string();
        assert!(unknown.contains("unknown variant `f1`, expected one of `accuracy_top1`"), "{unknown}");
    }

    #[test]
    fn what_learners_measure_is_measured_by_evaluations() {
        for measures in MEASURES {
            assert!(measures.metrics.iter().all(|metric| matches!(metric.source, Source::Evaluation(_))));
            assert!(measures.of_last_model.iter().all(|metric| matches!(metric.source, Source::LastModel(_))));
            assert!(measures.shown_first().all(|metric| measures.metrics.contains(&metric)));
            // Also where two learners share some.
            let places = measures.metrics.iter().map(|metric| METRICS.iter().position(|known| known == metric));
            assert!(places.is_sorted(), "lines have the order of the registry");
        }
    }

    #[test]
    fn sets_have_names_of_their_own() {
        for (number, measures) in MEASURES.iter().enumerate() {
            assert_eq!(Measures::named(measures.name), Some(*measures));
            assert!(MEASURES[..number].iter().all(|other| other.name != measures.name), "{}", measures.name);
        }
        assert!(Measures::named("accuracy_top1").is_none());
    }

    #[test]
    fn numbers_are_shown_in_their_units() {
        assert_eq!(prediction::ACCURACY_TOP1.shown(0.123_456), "12.35 %");
        assert_eq!(training::EPSILON.shown(1.234_560_1), "1.2346");
        assert_eq!(
            [1234.5, f64::INFINITY, f64::NAN].map(|v| prediction::PERPLEXITY.shown(v)),
            ["1234", "infinite", "none"]
        );
        assert_eq!(training::EPSILON.shown(f64::INFINITY), "infinite");
        assert!(
            Goal::Higher.reaches(1.0, 1.0) && !Goal::Higher.reaches(f64::NAN, 1.0) && Goal::Lower.reaches(0.5, 1.0)
        );
    }
}
