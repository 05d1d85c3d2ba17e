//! How sure a mean over seeds is, where there are values enough for it: the percentile bootstrap (Efron 1979), or Student's t (1908) of
//! differences seed by seed.
//!
//! A value per seed can be far off on one side, where a run diverged, and has limits, as an accuracy has; the bootstrap keeps within them, but
//! is too narrow for few seeds: of six, two thirds of the width of the t interval. Differences of runs with the same seed are closer to
//! a normal distribution, and decide which of two is better; for them it is Student's t.
//!
//! The bootstrap is ours, because it is a sort and a loop, and its resamples come from the streams of `privacy::rng`: tables have the same digits on every
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
    /// A 95 % interval.
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
        let few = Self::of_few(values);
        let Self { mean, seeds, spread: Spread::Interval, .. } = few else { return few };
        let key = NoiseSource::from(SimulationKey::new(0)).stream(Purpose::Cohort, &[seeds as u64]);
        let mut words = key.chunk(0);
        // The bias is below 2^-50 for so few values.
        let mut draw = || values[((u128::from(words.next_word()) * seeds as u128) >> 64) as usize];
        let mut means: Vec<f64> = (0..RESAMPLES).map(|_| self::mean((0..seeds).map(|_| draw()), seeds)).collect();
        means.sort_by(f64::total_cmp);
        let below = (TAIL * RESAMPLES as f64) as usize;
        Self { mean, low: means[below], high: means[RESAMPLES - 1 - below], seeds, spread: Spread::Interval }
    }

    /// Of differences between runs with the same seed: the interval is that of Student's t.
    #[must_use]
    pub fn of_differences(values: &[f64]) -> Self {
        let few = Self::of_few(values);
        let Self { mean, seeds, spread: Spread::Interval, .. } = few else { return few };
        let squares: f64 = values.iter().map(|value| (value - mean) * (value - mean)).sum();
        let half = student(seeds - 1) * (squares / (seeds * (seeds - 1)) as f64).sqrt();
        Self { low: mean - half, high: mean + half, ..few }
    }

    /// The mean, and the range of the values where they differ; called an interval where there are enough for one.
    fn of_few(values: &[f64]) -> Self {
        let seeds = values.len();
        let mean = mean(values.iter().copied(), seeds);
        let all_equal = values.windows(2).all(|pair| pair[0].total_cmp(&pair[1]).is_eq());
        if seeds < 2 || all_equal || !mean.is_finite() {
            return Self { mean, low: mean, high: mean, seeds, spread: Spread::Point };
        }
        let (low, high) = (values.iter().copied().fold(mean, f64::min), values.iter().copied().fold(mean, f64::max));
        let spread = if seeds < FEWEST_FOR_AN_INTERVAL { Spread::Range } else { Spread::Interval };
        Self { mean, low, high, seeds, spread }
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

/// A description of the interval shown with mean differences over this many seeds.
#[must_use]
pub fn of_differences_in_brackets(seeds: usize) -> &'static str {
    if seeds < FEWEST_FOR_AN_INTERVAL { in_brackets(seeds) } else { "with 95 % intervals of Student's t" }
}

/// The 97.5 % quantile of Student's t with 3 or more degrees of freedom: from tables, and beyond by the first terms of its expansion around
/// the normal quantile (Abramowitz and Stegun 1964, 26.7.5).
fn student(freedom: usize) -> f64 {
    const TABLE: [f64; 12] =
        [3.18245, 2.77645, 2.57058, 2.44691, 2.36462, 2.306, 2.26216, 2.22814, 2.20099, 2.17881, 2.16037, 2.14479];
    const TERMS: [f64; 4] = [1.959_964, 2.372_27, 2.822_6, 2.555_9];
    match TABLE.get(freedom - 3) {
        Some(known) => *known,
        None => TERMS.iter().rev().fold(0.0, |sum, term| sum / freedom as f64 + term),
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

    /// Five differences between -9 % and +4 % were given the interval -6.8 to -0.6 % of the bootstrap, as if they had settled the sign.
    #[test]
    fn differences_have_the_interval_of_students_t() {
        let five = Estimate::of_differences(&[-2.0, -1.0, 0.0, 1.0, 2.0]);
        // The deviation is sqrt(5/2), that of the mean sqrt(1/2).
        assert!((five.high - 2.77645 * 0.5_f64.sqrt()).abs() < 1e-12 && five.high == -five.low, "{five:?}");
        assert_eq!((five.mean, five.spread), (0.0, Spread::Interval));
        assert_eq!(Estimate::of_differences(&[1.0, 2.0]), Estimate::of(&[1.0, 2.0]));
        assert_eq!(Estimate::of_differences(&[1.0; 5]).spread, Spread::Point);
        assert!(of_differences_in_brackets(5).contains("Student") && !of_differences_in_brackets(3).contains("95"));
    }

    #[test]
    fn quantiles_of_students_t_are_those_of_tables() {
        for (freedom, printed) in
            [(3, 3.182), (9, 2.262), (14, 2.145), (15, 2.131), (20, 2.086), (30, 2.042), (120, 1.98)]
        {
            assert!((student(freedom) - printed).abs() < 6e-4, "{freedom}: {}", student(freedom));
        }
        assert!((3..200).all(|freedom| student(freedom) > student(freedom + 1)));
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
