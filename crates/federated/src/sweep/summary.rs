//! The runs of one combination together: where they ended, and their curves.

use serde::Serialize;

use super::{bootstrap::Estimate, measure::Measure};
use crate::{chart::Series, metrics::Metrics, price::Meaning};

/// The runs of one combination of settings, one for each seed.
#[derive(Debug, Clone)]
pub struct Runs {
    /// What people call it.
    pub name: String,
    /// What it sets, as `key=value`.
    pub set: Vec<String>,
    /// The evaluations of each run.
    pub seeds: Vec<Vec<Metrics>>,
}

/// Where the runs of one combination ended.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Summary {
    /// Top 1, smoothed.
    pub accuracy_top1: Estimate,
    /// The last one.
    pub perplexity: Estimate,
    /// What one run alone cost; none in simulations.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epsilon_of_one_run: Option<Estimate>,
    /// What one run alone would have cost with secret noise; in simulations only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epsilon_if_secret: Option<Estimate>,
}

impl Runs {
    /// A number of all runs at their ends.
    #[must_use]
    pub fn last(&self, measure: Measure) -> Estimate {
        self.at(measure, u64::MAX)
    }

    /// The same at the last evaluation that is not after a round.
    #[must_use]
    pub fn at(&self, measure: Measure, round: u64) -> Estimate {
        Estimate::of(&self.seeds.iter().map(|run| measure.at(run, round)).collect::<Vec<f64>>())
    }

    /// Where they ended.
    #[must_use]
    pub fn summary(&self) -> Summary {
        let epsilon = self.last(Measure::Epsilon);
        let simulated = self.is_simulation();
        Summary {
            accuracy_top1: self.last(Measure::AccuracyTop1),
            perplexity: self.last(Measure::Perplexity),
            epsilon_of_one_run: (!simulated).then_some(epsilon),
            epsilon_if_secret: simulated.then_some(epsilon),
        }
    }

    /// Whether nothing is guaranteed of any of them.
    #[must_use]
    pub fn is_simulation(&self) -> bool {
        self.seeds.iter().flatten().any(|line| line.price.meaning == Meaning::IfSecret)
    }

    /// The mean curve with its band, over the rounds that all runs were evaluated at; shares are in percent.
    #[must_use]
    pub fn series(&self, measure: Measure, smooth: bool) -> Series {
        let scale = if measure.is_share() { 100.0 } else { 1.0 };
        let curves: Vec<Vec<(u64, f64)>> = self.seeds.iter().map(|run| measure.curve(run, smooth)).collect();
        let at = |curve: &[(u64, f64)], round| curve.iter().find(|(r, _)| *r == round).map(|(_, value)| *value);
        let (mut points, mut band) = (Vec::new(), Vec::new());
        for (round, _) in curves.first().into_iter().flatten() {
            let Some(values) = curves.iter().map(|curve| at(curve, *round)).collect::<Option<Vec<f64>>>() else {
                continue;
            };
            let estimate = Estimate::of(&values);
            points.push((*round as f64, scale * estimate.mean));
            band.push((*round as f64, scale * estimate.low, scale * estimate.high));
        }
        let line = Series::new(self.name.clone(), points);
        if curves.len() > 1 { line.with_band(band) } else { line }
    }

    /// The run that ended with the best accuracy; the first of equal ones.
    #[must_use]
    pub fn best_seed(&self) -> Option<usize> {
        best(self.seeds.iter().map(|run| Measure::AccuracyTop1.last(run)))
    }
}

/// The place of the largest number; the first of equal ones.
pub fn best(values: impl Iterator<Item = f64>) -> Option<usize> {
    let larger = |best: Option<(usize, f64)>, (place, value): (usize, f64)| match best {
        Some((_, known)) if known >= value || value.is_nan() => best,
        _ => Some((place, value)),
    };
    values.enumerate().fold(None, larger).map(|(place, _)| place)
}

#[cfg(test)]
pub(crate) mod tests {
    use privacy::Epsilon;

    use super::*;
    use crate::price::Price;

    /// A run that was evaluated every five rounds.
    pub(crate) fn run(accuracies: &[f64]) -> Vec<Metrics> {
        let line = |(i, accuracy): (usize, &f64)| Metrics {
            round: 5 * i as u64,
            accuracy_top1: *accuracy,
            accuracy_top3: *accuracy,
            accuracy_in_vocabulary: *accuracy,
            perplexity: (i > 0).then_some(100.0 / i as f64),
            targets: 10,
            clip_norm: Some(0.5),
            tracked_clip_norm: None,
            fraction_below_clip: None,
            server_learning_rate: 1.0,
            planned_participations: 0,
            failed_attempts: 0,
            price: Price { meaning: Meaning::SoFar, epsilon: Epsilon::new(i as f64).unwrap(), rho: None },
            projected_epsilon: None,
        };
        accuracies.iter().enumerate().map(line).collect()
    }

    #[test]
    fn ends_are_smoothed_means_over_the_seeds() {
        let runs =
            Runs { name: "a".into(), set: Vec::new(), seeds: vec![run(&[0.0, 0.1, 0.2]), run(&[0.0, 0.3, 0.6])] };
        let Summary { accuracy_top1, perplexity, epsilon_of_one_run, epsilon_if_secret } = runs.summary();
        assert!((accuracy_top1.mean - 0.2).abs() < 1e-12 && accuracy_top1.seeds == 2);
        assert_eq!((perplexity.mean, epsilon_of_one_run.unwrap().mean, epsilon_if_secret), (50.0, 2.0, None));
        assert!((runs.at(Measure::AccuracyTop1, 7).mean - 0.1).abs() < 1e-12, "smoothed, at round 5");
        assert!(runs.at(Measure::Perplexity, 0).mean.is_infinite());
        assert!(runs.last(Measure::FractionBelowClip).mean.is_nan());
        assert_eq!(runs.best_seed(), Some(1));
    }

    #[test]
    fn curves_have_the_rounds_that_all_runs_have() {
        let mut runs = Runs { name: "a".into(), set: Vec::new(), seeds: vec![run(&[0.0, 0.1, 0.2]), run(&[0.0, 0.3])] };
        let line = runs.series(Measure::AccuracyTop1, false);
        assert_eq!(line.points, [(0.0, 0.0), (5.0, 20.0)]);
        assert_eq!(line.band, Some(vec![(0.0, 0.0, 0.0), (5.0, 10.0, 30.0)]));
        runs.seeds.truncate(1);
        assert_eq!(runs.series(Measure::AccuracyTop1, false).band, None);
    }

    #[test]
    fn the_best_is_the_first_of_the_largest() {
        assert_eq!(best([1.0, 3.0, 3.0].into_iter()), Some(1));
        assert_eq!(best([f64::NAN, 1.0].into_iter()), Some(1));
        assert_eq!(best(std::iter::empty()), None);
    }
}
