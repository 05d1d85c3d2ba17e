//! How sure a mean over seeds is: the percentile bootstrap (Efron 1979), where there are values enough for it.
//!
//! Ours, because it is a sort and a loop, and its resamples come from the streams of `privacy::rng`: tables have the same digits on every
//! machine and with every version of a library.

use privacy::rng::{NoiseSource, Purpose, SimulationKey};
use serde::{Serialize, Serializer};

/// The number of bootstrap resamples.
pub const RESAMPLES: usize = 10_000;
/// The share of the resampled means below an interval, and above it.
const TAIL: f64 = 0.025;

/// Below so many values more than 2.5 % of the resamples are the least value alone: what would be called an interval of
/// 95 % is the range of the values, and holds the true mean far less often.
pub const FEWEST_FOR_AN_INTERVAL: usize = 4;

/// The meaning of the two ends of an interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Spread {
    /// The mean itself: one value, or equal ones.
    #[serde(rename = "point")]
    Point,
    /// The least and the largest value: too few for an interval.
    #[serde(rename = "range")]
    Range,
    /// 95 % of the means of resampled values lie between them.
    #[serde(rename = "interval_95")]
    Interval,
}

/// A mean over seeds, with an interval or, of few seeds, the range of the values.
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
    /// The number of values.
    pub seeds: usize,
    /// What `low` and `high` are.
    pub spread: Spread,
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
            return Self { mean, low: mean, high: mean, seeds, spread: Spread::Point };
        }
        if seeds < FEWEST_FOR_AN_INTERVAL {
            let (low, high) =
                (values.iter().copied().fold(mean, f64::min), values.iter().copied().fold(mean, f64::max));
            return Self { mean, low, high, seeds, spread: Spread::Range };
        }
        let key = NoiseSource::from(SimulationKey::new(0)).stream(Purpose::Cohort, &[seeds as u64]);
        let mut words = key.chunk(0);
        // The bias is below 2^-50 for so few values.
        let mut draw = || values[((u128::from(words.next_word()) * seeds as u128) >> 64) as usize];
        let mut means: Vec<f64> = (0..RESAMPLES).map(|_| self::mean((0..seeds).map(|_| draw()), seeds)).collect();
        means.sort_by(f64::total_cmp);
        let below = (TAIL * RESAMPLES as f64) as usize;
        Self { mean, low: means[below], high: means[RESAMPLES - 1 - below], seeds, spread: Spread::Interval }
    }

    /// The mean as `shown` writes it, with its ends where there are two; a range is called one.
    #[must_use]
    pub fn written(&self, shown: impl Fn(f64) -> String) -> String {
        let bare = |value: f64| shown(value).trim_end_matches(" %").to_owned();
        let mean = shown(self.mean);
        match self.spread {
            Spread::Point => mean,
            Spread::Range => format!("{mean} (range {} to {})", bare(self.low), bare(self.high)),
            Spread::Interval => format!("{mean} ({} to {})", bare(self.low), bare(self.high)),
        }
    }
}

/// A description of the interval shown with means over this many seeds.
#[must_use]
pub fn in_brackets(seeds: usize) -> &'static str {
    if seeds < FEWEST_FOR_AN_INTERVAL {
        "with the range of the values (too few for a confidence interval)"
    } else {
        "with bootstrapped 95 % intervals"
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
        let point = |mean, seeds| Estimate { mean, low: mean, high: mean, seeds, spread: Spread::Point };
        assert_eq!(Estimate::of(&[3.0]), point(3.0, 1));
        assert_eq!(Estimate::of(&[2.0; 4]), point(2.0, 4));
        assert!(Estimate::of(&[]).mean.is_nan());
        assert!(Estimate::of(&[1.0, f64::INFINITY]).high.is_infinite());
        assert_eq!(Estimate::of(&[1.0]).written(|v| format!("{v} %")), "1 %");
    }

    /// Of two values the mean of two draws is the least with probability 1/4, of three with 1/27: no tail of 2.5 % lies
    /// within. A table that called that an interval of 95 % had intervals of the range.
    #[test]
    fn two_values_are_a_range_and_not_an_interval() {
        for values in [&[1.0, 0.0][..], &[0.5, 0.0, 1.0]] {
            let few = Estimate::of(values);
            assert_eq!((few.mean, few.low, few.high, few.spread), (0.5, 0.0, 1.0, Spread::Range));
            assert_eq!(few.written(|v| format!("{v:.1} %")), "0.5 % (range 0.0 to 1.0)");
            assert!(!in_brackets(values.len()).contains("95"));
            assert!(serde_json::to_string(&few).unwrap().ends_with(r#""spread":"range"}"#));
        }
        assert!(in_brackets(4).contains("95 %"));
    }

    /// Of six, only one resample in 6^6 has all draws at the least.
    #[test]
    fn the_interval_is_that_of_the_resampled_means() {
        let six = Estimate::of(&[0.0, 0.0, 0.0, 1.0, 1.0, 1.0]);
        // Binomial(6, 1/2) / 6: P(0) = 1.6 %, P(<= 1) = 10.9 %, so that 2.5 % is reached at 1/6.
        assert_eq!((six.low, six.high, six.spread), (1.0 / 6.0, 5.0 / 6.0, Spread::Interval));
        assert_eq!(six.written(|v| format!("{v:.2}")), "0.50 (0.17 to 0.83)");
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
        assert_eq!(json, r#"{"mean":"infinity","low":"infinity","high":"infinity","seeds":1,"spread":"point"}"#);
    }
}
