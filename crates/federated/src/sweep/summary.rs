//! Summarizes the runs of each combination, and finds the best combination.

use super::estimate::Estimate;
use crate::{
    metrics::{Measures, Metric, Metrics, registry::Goal},
    price::Meaning,
};

/// The runs of one combination of settings, one for each seed.
#[derive(Debug, Clone)]
pub struct Runs {
    /// The display name.
    pub name: String,
    /// What it sets, as `key=value`.
    pub set: Vec<String>,
    /// The evaluations of each run.
    pub seeds: Vec<Vec<Metrics>>,
}

impl Runs {
    /// The metrics of their evaluations.
    #[must_use]
    pub fn measures(&self) -> &'static Measures {
        Measures::of(self.seeds.iter().flatten())
    }

    /// A number of all runs at their ends, as it was measured.
    #[must_use]
    pub fn last(&self, metric: &Metric) -> Estimate {
        Estimate::of(&self.seeds.iter().map(|run| metric.last(run)).collect::<Vec<f64>>())
    }

    /// The same at the last evaluation that is not after a round, smoothed where the papers smooth it.
    #[must_use]
    pub fn smoothed_at(&self, metric: &Metric, round: u64) -> Estimate {
        Estimate::of(&self.seeds.iter().map(|run| metric.smoothed_at(run, round)).collect::<Vec<f64>>())
    }

    /// Whether nothing is guaranteed of any of them.
    #[must_use]
    pub fn is_simulation(&self) -> bool {
        self.seeds.iter().flatten().any(|line| line.price.meaning == Meaning::IfSecret)
    }

    /// The run that ended with the best headline; the first of equal ones.
    #[must_use]
    pub fn best_seed(&self) -> Option<usize> {
        let headline = self.measures().headline;
        best(self.seeds.iter().map(|run| headline.last(run)), headline.goal)
    }
}

/// The combination that is best by its headline, the mean over its seeds; the first of equal ones.
#[must_use]
pub fn best_runs(runs: &[Runs]) -> Option<usize> {
    let headline = Measures::of(runs.iter().flat_map(|runs| runs.seeds.iter().flatten())).headline;
    best(runs.iter().map(|runs| runs.last(headline).mean), headline.goal)
}

/// The place of the best number; the first of equal ones.
fn best(values: impl Iterator<Item = f64>, goal: Goal) -> Option<usize> {
    let better = |best: Option<(usize, f64)>, (place, value): (usize, f64)| match best {
        Some((_, known)) if goal.reaches(known, value) || value.is_nan() => best,
        _ => Some((place, value)),
    };
    values.enumerate().fold(None, better).map(|(place, _)| place)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::{
        prediction::{ACCURACY_TOP1, PERPLEXITY},
        tests::run,
        training::{EPSILON, FRACTION_BELOW_CLIP},
    };

    #[test]
    fn ends_are_means_of_last_values_over_the_seeds() {
        let runs =
            Runs { name: "a".into(), set: Vec::new(), seeds: vec![run(&[0.0, 0.1, 0.2]), run(&[0.0, 0.3, 0.6])] };
        let accuracy = runs.last(runs.measures().headline);
        assert!((accuracy.mean - 0.4).abs() < 1e-12 && accuracy.seeds == 2);
        assert_eq!((runs.last(&PERPLEXITY).mean, runs.last(&EPSILON).mean, runs.is_simulation()), (50.0, 2.0, false));
        assert!((runs.smoothed_at(&ACCURACY_TOP1, 7).mean - 0.1).abs() < 1e-12, "smoothed, at round 5");
        assert!(runs.smoothed_at(&PERPLEXITY, 0).mean.is_infinite());
        assert!(runs.last(&FRACTION_BELOW_CLIP).mean.is_nan());
        assert_eq!((runs.best_seed(), best_runs(&[runs])), (Some(1), Some(0)));
    }

    /// The choice is by the number that everything else shows of a run: its last.
    #[test]
    fn a_run_that_fell_at_its_end_is_not_the_best() {
        let runs = |accuracies: &[f64]| Runs { name: "a".into(), set: Vec::new(), seeds: vec![run(accuracies)] };
        let (fell, rose) = (runs(&[0.1, 0.3, 0.3, 0.3, 0.05]), runs(&[0.1, 0.1, 0.1, 0.1, 0.15]));
        assert_eq!(best_runs(&[fell.clone(), rose.clone()]), Some(1));
        let both = Runs { seeds: [&fell.seeds[..], &rose.seeds].concat(), ..fell };
        assert_eq!(both.best_seed(), Some(1));
    }

    #[test]
    fn the_best_is_the_first_of_the_best() {
        let best = |values: &[f64], goal| best(values.iter().copied(), goal);
        assert_eq!(best(&[1.0, 3.0, 3.0], Goal::Higher), Some(1));
        assert_eq!(best(&[3.0, 1.0, 1.0], Goal::Lower), Some(1));
        assert_eq!(best(&[f64::NAN, 1.0], Goal::Higher), Some(1));
        assert_eq!(best(&[], Goal::Lower), None);
    }
}
