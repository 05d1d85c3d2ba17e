//! What is asked of a run: one number of each evaluation.

use serde::{Deserialize, Serialize};

use crate::{metrics::Metrics, report::smoothed};

/// A number of an evaluation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    /// Top 1 over all targets.
    AccuracyTop1,
    /// Top 3.
    AccuracyTop3,
    /// Top 1 over known words.
    AccuracyInVocabulary,
    /// Perplexity.
    Perplexity,
    /// What the releases cost, one run alone, if the noise is secret.
    Epsilon,
    /// What they would cost with the cohort that this one stands for.
    ProjectedEpsilon,
    /// The norm that updates are clipped to.
    ClipNorm,
    /// The noised share of users under the clip.
    FractionBelowClip,
}

impl Measure {
    /// Its value; none where it was not measured.
    #[must_use]
    pub fn of(self, line: &Metrics) -> Option<f64> {
        match self {
            Self::AccuracyTop1 => Some(line.accuracy_top1),
            Self::AccuracyTop3 => Some(line.accuracy_top3),
            Self::AccuracyInVocabulary => Some(line.accuracy_in_vocabulary),
            Self::Perplexity => Some(line.perplexity.unwrap_or(f64::INFINITY)),
            Self::Epsilon => Some(line.price.epsilon.get()),
            Self::ProjectedEpsilon => Some(line.projected_epsilon?.get()),
            Self::ClipNorm => line.clip_norm,
            Self::FractionBelowClip => line.fraction_below_clip,
        }
    }

    /// In words.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::AccuracyTop1 => "top-1 accuracy",
            Self::AccuracyTop3 => "top-3 accuracy",
            Self::AccuracyInVocabulary => "top-1 accuracy over known words",
            Self::Perplexity => "perplexity",
            // Of a simulation it would be that; of a secret run it is.
            Self::Epsilon => "epsilon with secret noise",
            Self::ProjectedEpsilon => "projected epsilon",
            Self::ClipNorm => "clip norm",
            Self::FractionBelowClip => "users under the clip, noised",
        }
    }

    /// Whether it is a share, which people read in percent.
    #[must_use]
    pub const fn is_share(self) -> bool {
        matches!(self, Self::AccuracyTop1 | Self::AccuracyTop3 | Self::AccuracyInVocabulary | Self::FractionBelowClip)
    }

    /// Whether more of it is better.
    #[must_use]
    pub const fn is_good(self) -> bool {
        matches!(self, Self::AccuracyTop1 | Self::AccuracyTop3 | Self::AccuracyInVocabulary)
    }

    /// Whether it is smoothed over evaluations, as the papers do with accuracies.
    #[must_use]
    pub const fn is_smoothed(self) -> bool {
        self.is_good()
    }

    /// Its values over the rounds, where there are any.
    #[must_use]
    pub fn curve(self, run: &[Metrics], smooth: bool) -> Vec<(u64, f64)> {
        let values: Vec<f64> = run.iter().map(|line| self.of(line).unwrap_or(f64::NAN)).collect();
        let values = if smooth { smoothed(&values) } else { values };
        run.iter().map(|line| line.round).zip(values).filter(|(_, value)| !value.is_nan()).collect()
    }

    /// Its last value, smoothed where it is; not a number where there is none.
    #[must_use]
    pub fn last(self, run: &[Metrics]) -> f64 {
        self.at(run, u64::MAX)
    }

    /// Its value at the last evaluation that is not after a round.
    #[must_use]
    pub fn at(self, run: &[Metrics], round: u64) -> f64 {
        let curve = self.curve(run, self.is_smoothed());
        curve.iter().rfind(|(at, _)| *at <= round).map_or(f64::NAN, |(_, value)| *value)
    }
}
