//! What an experiment asks of its runs: what every evaluation measures, and what only the last model is asked.

use federated::{
    report::four_digits,
    sweep::{bootstrap::Estimate, measure::Measure},
};
use ledger::statement::rounded_up;
use serde::{Deserialize, Serialize};

/// A number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum What {
    #[default]
    AccuracyTop1,
    AccuracyTop3,
    AccuracyInVocabulary,
    Perplexity,
    Epsilon,
    ProjectedEpsilon,
    ClipNorm,
    FractionBelowClip,
    /// How many of the ten words that are predicted first are among the 10 most frequent, on average.
    Head10,
    /// Among the 50 most frequent.
    Head50,
    /// Among the 100 most frequent.
    Head100,
}

impl What {
    /// Where every evaluation measures it.
    pub(crate) const fn measure(self) -> Option<Measure> {
        Some(match self {
            Self::AccuracyTop1 => Measure::AccuracyTop1,
            Self::AccuracyTop3 => Measure::AccuracyTop3,
            Self::AccuracyInVocabulary => Measure::AccuracyInVocabulary,
            Self::Perplexity => Measure::Perplexity,
            Self::Epsilon => Measure::Epsilon,
            Self::ProjectedEpsilon => Measure::ProjectedEpsilon,
            Self::ClipNorm => Measure::ClipNorm,
            Self::FractionBelowClip => Measure::FractionBelowClip,
            Self::Head10 | Self::Head50 | Self::Head100 => return None,
        })
    }

    /// Which head it asks for.
    pub(crate) const fn head(self) -> Option<usize> {
        match self {
            Self::Head10 => Some(0),
            Self::Head50 => Some(1),
            Self::Head100 => Some(2),
            _ => None,
        }
    }

    /// As `experiment.toml` has it.
    pub(crate) fn name(self) -> String {
        let name = toml::Value::try_from(self).expect("a variant without fields serialises");
        name.as_str().expect("to its name").to_owned()
    }

    /// In words.
    pub(crate) const fn label(self) -> &'static str {
        match self {
            Self::Head10 => "of 10 predictions, among the 10 most frequent words",
            Self::Head50 => "of 10 predictions, among the 50 most frequent words",
            Self::Head100 => "of 10 predictions, among the 100 most frequent words",
            other => match other.measure() {
                Some(measure) => measure.label(),
                None => "",
            },
        }
    }

    /// Whether it is a share, which people read in percent.
    pub(crate) fn is_share(self) -> bool {
        self.measure().is_some_and(Measure::is_share)
    }

    /// Whether more of it is better.
    pub(crate) fn is_good(self) -> bool {
        self.measure().is_some_and(Measure::is_good)
    }

    /// As a table shows it.
    pub(crate) fn shown(self, value: f64) -> String {
        match self {
            _ if value.is_nan() => "none".into(),
            _ if self.is_share() => format!("{:.2} %", 100.0 * value),
            Self::Epsilon | Self::ProjectedEpsilon if value.is_finite() => rounded_up(value),
            _ if value.is_infinite() => "infinite".into(),
            _ => four_digits(value),
        }
    }

    /// A mean with its interval or range, where there is one.
    pub(crate) fn estimated(self, estimate: &Estimate) -> String {
        estimate.written(|value| self.shown(value))
    }
}
