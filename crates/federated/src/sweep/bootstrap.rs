//! How sure a mean over seeds is: the percentile bootstrap (Efron 1979).

use privacy::rng::{NoiseSource, Purpose, SimulationKey};
use serde::{Serialize, Serializer};

/// How often the values are drawn anew.
pub const RESAMPLES: usize = 10_000;
/// The share of the resampled means below an interval, and above it.
const TAIL: f64 = 0.025;

/// A mean over seeds, with the interval in which 95 % of the means of values drawn anew lie.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Estimate {
    /// The mean.
    #[serde(serialize_with = "number")]
    pub mean: f64,
    /// The lower end; the mean itself where there is one value.
    #[serde(serialize_with = "number")]
    pub low: f64,
    /// The upper end.
    #[serde(serialize_with = "number")]
    pub high: f64,
    /// How many values.
    pub seeds: usize,
}

/// JSON has no infinity.
///
/// # Errors
/// When the writer fails.
#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
pub fn number<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    if value.is_infinite() { serializer.serialize_str("infinity") } else { serializer.serialize_f64(*value) }
}

impl Estimate {
    /// Of some values: the same values, the same interval, on every machine. Without a value nothing is a number; where one
    /// is infinite the mean is, and nothing is drawn.
    #[must_use]
    pub fn of(values: &[f64]) -> Self {
        let seeds = values.len();
        let mean = mean(values.iter().copied(), seeds);
        let all_equal = values.windows(2).all(|pair| pair[0].total_cmp(&pair[1]).is_eq());
        if seeds < 2 || all_equal || !mean.is_finite() {
            return Self { mean, low: mean, high: mean, seeds };
        }
        let key = NoiseSource::from(SimulationKey::new(0)).stream(Purpose::Cohort, &[seeds as u64]);
        let mut words = key.chunk(0);
        // The bias is below 2^-50 for so few values.
        let mut draw = || values[((u128::from(words.next_word()) * seeds as u128) >> 64) as usize];
        let mut means: Vec<f64> = (0..RESAMPLES).map(|_| self::mean((0..seeds).map(|_| draw()), seeds)).collect();
        means.sort_by(f64::total_cmp);
        let below = (TAIL * RESAMPLES as f64) as usize;
        Self { mean, low: means[below], high: means[RESAMPLES - 1 - below], seeds }
    }

    /// Whether there is more than a point.
    #[must_use]
    pub fn is_interval(&self) -> bool {
        self.low < self.high
    }
}

fn mean(values: impl Iterator<Item = f64>, count: usize) -> f64 {
    values.sum::<f64>() / count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_value_and_equal_values_are_points() {
        assert_eq!(Estimate::of(&[3.0]), Estimate { mean: 3.0, low: 3.0, high: 3.0, seeds: 1 });
        assert_eq!(Estimate::of(&[2.0; 4]), Estimate { mean: 2.0, low: 2.0, high: 2.0, seeds: 4 });
        assert!(Estimate::of(&[]).mean.is_nan());
        assert!(Estimate::of(&[1.0, f64::INFINITY]).high.is_infinite());
        assert!(!Estimate::of(&[1.0]).is_interval());
    }

    /// Of two values 0 and 1 the mean of two draws is 0, 1/2 or 1 with probabilities 1/4, 1/2, 1/4: the tails of 2.5 % lie
    /// within the outer ones. Of six, only one resample in 6^6 has all draws at the least.
    #[test]
    fn the_interval_is_that_of_the_resampled_means() {
        let two = Estimate::of(&[0.0, 1.0]);
        assert_eq!((two.mean, two.low, two.high), (0.5, 0.0, 1.0));
        let six = Estimate::of(&[0.0, 0.0, 0.0, 1.0, 1.0, 1.0]);
        // Binomial(6, 1/2) / 6: P(0) = 1.6 %, P(<= 1) = 10.9 %, so that 2.5 % is reached at 1/6.
        assert_eq!((six.low, six.high), (1.0 / 6.0, 5.0 / 6.0));
        assert!(six.is_interval());
    }

    #[test]
    fn it_follows_the_values_and_nothing_else() {
        let values = [0.31, 0.35, 0.3, 0.42, 0.36];
        let estimate = Estimate::of(&values);
        assert_eq!(estimate, Estimate::of(&values));
        let moved = Estimate::of(&values.map(|v| 10.0 * v + 1.0));
        for (a, b) in [(estimate.mean, moved.mean), (estimate.low, moved.low), (estimate.high, moved.high)] {
            assert!((10.0 * a + 1.0 - b).abs() < 1e-12);
        }
        assert!(0.3 < estimate.low && estimate.low < estimate.mean && estimate.mean < estimate.high);
        // The standard deviation of the mean is 0.0422 / sqrt(5) = 0.0189.
        let half = (estimate.high - estimate.low) / 2.0;
        assert!((0.03..0.042).contains(&half), "{half}");
    }

    #[test]
    fn infinity_is_a_word() {
        let json = serde_json::to_string(&Estimate::of(&[f64::INFINITY])).unwrap();
        assert_eq!(json, r#"{"mean":"infinity","low":"infinity","high":"infinity","seeds":1}"#);
    }
}
