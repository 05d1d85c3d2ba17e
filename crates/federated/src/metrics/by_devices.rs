//! Evaluations by devices: the learner's metrics computed from a noised sum of counts, with the standard deviation of their noise.
//!
//! All of it is post-processing of a release (rule P12). The standard deviation is that of the noise alone, to first order: each
//! coordinate of the sum is moved by the standard deviation of its noise, up and down. That other devices would have measured
//! something else is not in it.

use std::collections::BTreeMap;

use device::{evaluation::Counting, learner::Learner};
use ledger::Recorded;
use lm::metrics::{Counts, Targets};
use serde::{Deserialize, Serialize};

use super::{Measured, Measures, Metric};
use crate::plan::DeviceEvaluations;

/// Metrics measured by devices.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ByDevices {
    /// Which evaluation by devices it was, from 0: the step of its stream in the ledger.
    pub evaluation: u64,
    /// The report goal. How many came is not told.
    pub goal: u64,
    /// What was measured, each number under its name; with noise in it, so that a share can be above 1.
    #[serde(flatten)]
    pub measured: Measured,
    /// Targets that were measured on, with noise.
    pub targets: u64,
    /// The standard deviation of the noise in each number, by name; none where the noise drowns it.
    pub noise_standard_deviation: BTreeMap<String, Option<f64>>,
}

impl ByDevices {
    /// The metrics in a release; none if it does not fit this learner.
    #[must_use]
    pub fn of(learner: &dyn Learner, evaluations: &DeviceEvaluations, recorded: &Recorded) -> Option<Self> {
        let (counting, measures) = (Counting::new(learner, evaluations.plan)?, Measures::named(learner.measures())?);
        let coding = evaluations.phase.first_coding().ok()?;
        let sum: Vec<f64> = recorded.update(&coding.encoding).ok()?.into_iter().map(f64::from).collect();
        let sigma = coding.encoding.layout().segments().first()?.sigma as f64 * coding.encoding.grid_step();
        let counts = counting.counts(&sum);
        let deviation = |metric: &&'static Metric| {
            (metric.name.to_owned(), deviation(metric, &counting, &sum, sigma).filter(|sd| sd.is_finite()))
        };
        Some(Self {
            evaluation: recorded.step(),
            goal: evaluations.phase.cohort,
            measured: Measured::of(measures, &counts),
            targets: counts.targets(Targets::ALL),
            noise_standard_deviation: measures.metrics.iter().map(deviation).collect(),
        })
    }

    /// For people: the number by which models are chosen, with how much of it may be noise.
    #[must_use]
    pub fn words(&self) -> String {
        let (metric, (value, deviation)) = (self.measured.measures().headline, self.headline());
        let noise = match deviation {
            Some(deviation) => format!("standard deviation of the noise {}", metric.shown(deviation)),
            None => "may be all noise".to_owned(),
        };
        format!("measured by devices: {} {} ({noise})", metric.label, metric.shown(value))
    }

    /// The number by which models are chosen, and how much of it is noise.
    #[must_use]
    pub fn headline(&self) -> (f64, Option<f64>) {
        let metric = self.measured.measures().headline;
        (self.measured.headline(), self.noise_standard_deviation.get(metric.name).copied().flatten())
    }
}

/// How far noise of a standard deviation in each coordinate moves a metric; none where that is all that there is: more than the metric
/// itself, and more than 1.
fn deviation(metric: &Metric, counting: &Counting, sum: &[f64], sigma: f64) -> Option<f64> {
    let of = |counts: &Counts| metric.of_counts(counts);
    let mut variance = 0.0;
    for place in 0..sum.len() {
        let moved = |by: f64| {
            let mut moved = sum.to_vec();
            moved[place] += by;
            of(&counting.counts(&moved))
        };
        let slope = (moved(sigma)? - moved(-sigma)?) / 2.0;
        variance += slope * slope;
    }
    let (moves, value) = (libm::sqrt(variance), of(&counting.counts(sum))?);
    (moves < value.max(1.0)).then_some(moves)
}

#[cfg(test)]
mod tests {
    use device::{evaluation::EvaluationPlan, learner::language::LanguageLearner};
    use lm::model::config::ModelConfig;

    use super::*;
    use crate::metrics::prediction::{ACCURACY_TOP1, PERPLEXITY};

    /// The first-order deviation is that of the metric over noise that is drawn.
    #[test]
    fn the_deviation_is_that_of_noise() {
        let model = ModelConfig::preset("tiny").unwrap().with_vocabulary(1000);
        let learner = LanguageLearner::new(&model, 4, 5).unwrap();
        let counting = Counting::new(&learner, EvaluationPlan { most_examples: 200 }).unwrap();
        // 500 devices with all of their tokens: 15 % right, most of them words.
        let sum = [425.0, 75.0, 70.0, 5.0, 120.0, 300.0];
        let sigma = 3.0;
        let mut word = 7u64;
        let mut uniform = || {
            word = word.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            ((word >> 11) as f64 + 0.5) / (1u64 << 53) as f64
        };
        let mut gaussian = || (-2.0 * uniform().ln()).sqrt() * (std::f64::consts::TAU * uniform()).cos();
        for metric in [&ACCURACY_TOP1, &PERPLEXITY] {
            let draws: Vec<f64> = (0..4000)
                .map(|_| {
                    let noised: Vec<f64> = sum.iter().map(|v| v + sigma * gaussian()).collect();
                    metric.of_counts(&counting.counts(&noised)).unwrap()
                })
                .collect();
            let mean = draws.iter().sum::<f64>() / draws.len() as f64;
            let drawn = (draws.iter().map(|d| (d - mean).powi(2)).sum::<f64>() / draws.len() as f64).sqrt();
            let told = deviation(metric, &counting, &sum, sigma).unwrap();
            assert!((told / drawn - 1.0).abs() < 0.1, "{}: {told} and {drawn}", metric.name);
        }
    }

    #[test]
    fn noise_that_drowns_everything_has_no_deviation() {
        let model = ModelConfig::preset("tiny").unwrap().with_vocabulary(1000);
        let learner = LanguageLearner::new(&model, 4, 5).unwrap();
        let counting = Counting::new(&learner, EvaluationPlan { most_examples: 200 }).unwrap();
        assert_eq!(deviation(&ACCURACY_TOP1, &counting, &[0.5; 6], 1e4), None);
    }
}
