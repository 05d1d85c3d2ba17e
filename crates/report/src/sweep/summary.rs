//! Summarizes the runs of one combination, as numbers for programs and as a line of a chart.

use federated::{
    metrics::{Metric, training::EPSILON},
    sweep::{estimate::Estimate, summary::Runs},
};
use serde::{Serialize, Serializer, ser::SerializeMap};

use crate::chart::Series;

/// The final values of one combination's runs: each number under its name.
#[derive(Debug, Clone, PartialEq)]
pub struct Summary {
    /// The headline and what is shown beside it, at the last evaluation.
    pub ends: Vec<(&'static Metric, Estimate)>,
    /// What one run alone cost, or would have cost with secret noise.
    pub epsilon: Estimate,
    /// Whether it is a simulation.
    pub is_simulation: bool,
}

impl Summary {
    /// Summarizes the runs of a combination.
    #[must_use]
    pub fn of(runs: &Runs) -> Self {
        let ends = runs.measures().shown_first().map(|metric| (metric, runs.last(metric)));
        Self { ends: ends.collect(), epsilon: runs.last(&EPSILON), is_simulation: runs.is_simulation() }
    }
}

impl Serialize for Summary {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.ends.len() + 1))?;
        for (metric, estimate) in &self.ends {
            map.serialize_entry(metric.name, estimate)?;
        }
        let price = if self.is_simulation { "epsilon_if_secret" } else { "epsilon_of_one_run" };
        map.serialize_entry(price, &self.epsilon)?;
        map.end()
    }
}

/// The mean curve of a number with its band, over the rounds that all runs were evaluated at; shares are in percent.
#[must_use]
pub fn series(runs: &Runs, metric: &Metric, smooth: bool) -> Series {
    let scale = metric.scale();
    let curves: Vec<Vec<(u64, f64)>> = runs.seeds.iter().map(|run| metric.curve(run, smooth)).collect();
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
    let line = Series::new(runs.name.clone(), points);
    if curves.len() > 1 { line.with_band(band) } else { line }
}

#[cfg(test)]
pub(super) mod tests {
    use federated::{
        metrics::{
            Measured, Metrics,
            prediction::{ACCURACY_TOP1, NEXT_WORDS, PERPLEXITY},
        },
        price::{Meaning, Price},
    };
    use privacy::Epsilon;

    use super::*;

    /// A run that was evaluated every five rounds.
    pub(in crate::sweep) fn run(accuracies: &[f64]) -> Vec<Metrics> {
        let line = |(i, accuracy): (usize, &f64)| Metrics {
            round: 5 * i as u64,
            measured: Measured::new(&NEXT_WORDS, |metric| {
                if *metric == PERPLEXITY { (i > 0).then_some(100.0 / i as f64) } else { Some(*accuracy) }
            }),
            targets: 10,
            by_devices: None,
            clip_norm: Some(0.5),
            tracked_clip_norm: None,
            fraction_below_clip: None,
            server_learning_rate: 1.0,
            planned_participations: 0,
            sent: None,
            failed_attempts: 0,
            price: Price { meaning: Meaning::SoFar, epsilon: Epsilon::new(i as f64).unwrap(), rho: None },
            projected_epsilon: None,
        };
        accuracies.iter().enumerate().map(line).collect()
    }

    #[test]
    fn numbers_stand_under_their_names() {
        let mut runs =
            Runs { name: "a".into(), set: Vec::new(), seeds: vec![run(&[0.0, 0.1, 0.2]), run(&[0.0, 0.3, 0.6])] };
        let keys = |runs: &Runs| {
            let json = serde_json::to_value(Summary::of(runs)).unwrap();
            json.as_object().unwrap().keys().cloned().collect::<Vec<String>>()
        };
        assert_eq!(keys(&runs), ["accuracy_top1", "epsilon_of_one_run", "perplexity"]);
        assert!((Summary::of(&runs).ends[0].1.mean - 0.4).abs() < 1e-12);
        runs.seeds[0][0].price.meaning = Meaning::IfSecret;
        assert_eq!(keys(&runs), ["accuracy_top1", "epsilon_if_secret", "perplexity"]);
    }

    #[test]
    fn curves_have_the_rounds_that_all_runs_have() {
        let mut runs = Runs { name: "a".into(), set: Vec::new(), seeds: vec![run(&[0.0, 0.1, 0.2]), run(&[0.0, 0.3])] };
        let line = series(&runs, &ACCURACY_TOP1, false);
        assert_eq!(line.points, [(0.0, 0.0), (5.0, 20.0)]);
        assert_eq!(line.band, Some(vec![(0.0, 0.0, 0.0), (5.0, 10.0, 30.0)]));
        runs.seeds.truncate(1);
        assert_eq!(series(&runs, &ACCURACY_TOP1, false).band, None);
    }
}
