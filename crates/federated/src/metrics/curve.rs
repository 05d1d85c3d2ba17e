//! The curve of a number over the evaluations of a run, smoothed as in the papers, and its last value.

use super::{Metric, Metrics};

/// Evaluations that accuracy is smoothed over, as in the papers.
pub const SMOOTHED_OVER: usize = 5;

/// The mean of each value and the four before it, or as many as there are. What is not a number does not count, and has no
/// mean of its own.
#[must_use]
pub fn smoothed(values: &[f64]) -> Vec<f64> {
    let mean = |(i, value): (usize, &f64)| {
        let window = values[(i + 1).saturating_sub(SMOOTHED_OVER)..=i].iter().filter(|v| v.is_finite());
        if value.is_finite() { window.clone().sum::<f64>() / window.count() as f64 } else { f64::NAN }
    };
    values.iter().enumerate().map(mean).collect()
}

impl Metric {
    /// Its values over the rounds, where there are any.
    #[must_use]
    pub fn curve(&self, run: &[Metrics], smooth: bool) -> Vec<(u64, f64)> {
        let values: Vec<f64> = run.iter().map(|line| self.of(line).unwrap_or(f64::NAN)).collect();
        let values = if smooth { smoothed(&values) } else { values };
        run.iter().map(|line| line.round).zip(values).filter(|(_, value)| !value.is_nan()).collect()
    }

    /// Its last value, as it was measured: the one that sentences, tiles, tables and choices give. Not a number where there is none.
    #[must_use]
    pub fn last(&self, run: &[Metrics]) -> f64 {
        run.last().and_then(|line| self.of(line)).unwrap_or(f64::NAN)
    }

    /// Its value at the last evaluation that is not after a round, smoothed where the papers smooth it: for their figures alone.
    #[must_use]
    pub fn smoothed_at(&self, run: &[Metrics], round: u64) -> f64 {
        let curve = self.curve(run, self.smoothed);
        curve.iter().rfind(|(at, _)| *at <= round).map_or(f64::NAN, |(_, value)| *value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accuracy_is_smoothed_over_the_last_five_evaluations() {
        assert_eq!(smoothed(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 13.0]), [1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 31.0 / 5.0]);
        assert_eq!(smoothed(&[]), [0.0; 0]);
        let gaps = smoothed(&[f64::NAN, 1.0, f64::INFINITY, 3.0]);
        assert!(gaps[0].is_nan() && gaps[2].is_nan());
        assert_eq!([gaps[1], gaps[3]], [1.0, 2.0]);
    }

    /// A run that fell to 10.9 % was shown with 16.6 %, the mean of its last five evaluations.
    #[test]
    fn where_a_run_ended_is_its_last_value() {
        let run = super::super::tests::run(&[0.1, 0.2, 0.3, 0.2, 0.05]);
        let headline = super::super::Measures::of(&run).headline;
        assert_eq!(headline.last(&run), 0.05);
        assert!((headline.smoothed_at(&run, u64::MAX) - 0.17).abs() < 1e-12, "as the papers' figures have it");
        assert!((headline.smoothed_at(&run, 7) - 0.15).abs() < 1e-12);
        assert!(headline.last(&[]).is_nan());
    }
}
