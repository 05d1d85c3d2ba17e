//! The tail of log-likelihood ratios between models of neighbouring sets of users (Popov, Kudinov, Piontkovskaya, Vytovtov and Nevidomsky
//! 2018, section 3 and appendix A).
//!
//! Texts s are drawn from a model theta; `c(s) = P(s | theta) / P(s | theta')` compares it with the model of a neighbouring set of users.
//! If the tail of c is that of a Pareto distribution, it says how often the ratio exceeds `e^eps` (their Proposition 1).
//!
//! | here        | paper | what it is                                                                        |
//! |-------------|-------|-----------------------------------------------------------------------------------|
//! | `tail`      | k     | `2 floor(sqrt(n))` largest values                                                  |
//! | `shape`     | alpha | Hill's estimator: `k / sum_(i<=k) log(c_(i) / c_(k))` (9)                            |
//! | `ks`        |       | Lilliefors' statistic: `sqrt(k) sup_(r>=0) abs(F_k(r) - (1 - e^-r))` (10)             |
//! | `scale`     | C     | `k/n c_(k)^alpha` (12)                                                               |
//! | `epsilon`   | eps   | `log(C / delta) / alpha` (7), which follows from (11) and is what (13) says           |
//!
//! The paper prints `r >= 1` below the supremum of (10); the test is defined with all r, and so are its critical values. Proposition 1
//! bounds one direction, so callers look at both. Everything is said of the tail alone: at a delta of k/n or more, epsilon would lie below
//! the threshold, where nothing was fitted, and is refused.
//!
//! **This is an estimate and not a guarantee.** It assumes the shape of the tail far beyond all samples, looks at the model as if its only
//! randomness were the drawing of texts, and sees a few pairs of neighbours.

use serde::Serialize;

use super::{AuditError, check_finite};
use crate::rng::{NoiseSource, Purpose, RandomWords, SimulationKey};

/// The critical value at the 5 % level that Popov et al. use.
pub const CRITICAL_VALUE: f64 = 1.08;
/// The fewest samples.
pub const FEWEST_SAMPLES: usize = 100;
/// Simulations behind a p-value.
const SIMULATIONS: u32 = 2000;
/// Their seed: a p-value repeats.
const SEED: u64 = 2018;

/// A tail and what it says.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Tail {
    /// Values in the tail.
    pub tail: usize,
    /// Hill's estimator.
    pub shape: f64,
    /// C, the other parameter of the Pareto distribution.
    pub scale: f64,
    /// k/n: how many of all values are in the tail.
    pub share: f64,
    /// The logarithm of the smallest ratio in the tail.
    pub threshold: f64,
    /// Lilliefors' statistic.
    pub ks: f64,
    /// The share of samples of a true exponential distribution whose statistic is at least as large, by simulation.
    pub p_value: f64,
}

impl Tail {
    /// Fits the logarithms of likelihood ratios.
    ///
    /// # Errors
    /// When there are too few, one is no number, or the largest are all equal.
    pub fn of(log_ratios: &[f64]) -> Result<Self, AuditError> {
        check_finite("the log-likelihood ratio", log_ratios)?;
        let n = log_ratios.len();
        if n < FEWEST_SAMPLES {
            return Err(AuditError::TooFew { what: "samples", least: FEWEST_SAMPLES, got: n });
        }
        let mut sorted = log_ratios.to_vec();
        sorted.sort_by(|a, b| b.total_cmp(a));
        let k = tail_of(n);
        let threshold = sorted[k - 1];
        let excess: Vec<f64> = sorted[..k].iter().map(|r| r - threshold).collect();
        let mean = excess.iter().sum::<f64>() / k as f64;
        if mean <= 0.0 {
            return Err(AuditError::NoTail { count: k });
        }
        let shape = 1.0 / mean;
        let ks = lilliefors(&excess);
        let share = k as f64 / n as f64;
        let scale = share * libm::exp(shape * threshold);
        Ok(Self { tail: k, shape, scale, share, threshold, ks, p_value: p_value(ks, k) })
    }

    /// Whether the tail can be that of a Pareto distribution, by the paper's critical value.
    #[must_use]
    pub fn is_accepted(&self) -> bool {
        self.ks <= CRITICAL_VALUE
    }

    /// The epsilon that the tail says at delta.
    ///
    /// # Errors
    /// When delta is not below the share of the values that are in the tail.
    pub fn epsilon(&self, delta: f64) -> Result<f64, AuditError> {
        if !(delta > 0.0 && delta < self.share) {
            let range = "above 0 and below the share of the samples that are in the tail";
            return Err(AuditError::OutOfRange { what: "delta", range, got: delta });
        }
        Ok(epsilon(self.shape, self.scale, delta))
    }
}

/// k: how many of n values are in the tail.
#[must_use]
pub const fn tail_of(n: usize) -> usize {
    2 * n.isqrt()
}

/// `log(C / delta) / alpha`, and 0 where that is negative.
#[must_use]
pub fn epsilon(shape: f64, scale: f64, delta: f64) -> f64 {
    (libm::log(scale / delta) / shape).max(0.0)
}

/// Lilliefors' statistic for the exponential distribution: values in descending order, not negative, with a positive mean.
fn lilliefors(descending: &[f64]) -> f64 {
    let k = descending.len() as f64;
    let mean = descending.iter().sum::<f64>() / k;
    let mut largest = 0.0f64;
    for (below, value) in (0..).zip(descending.iter().rev()) {
        let expected = -libm::expm1(-value / mean);
        // Just before the step of the empirical distribution, and at it.
        let (before, at) = (f64::from(below) / k, (f64::from(below) + 1.0) / k);
        largest = largest.max((expected - before).abs()).max((at - expected).abs());
    }
    libm::sqrt(k) * largest
}

/// How often the statistic of `k` values, the last of which is 0 as that of the threshold itself, is at least so large.
fn p_value(ks: f64, k: usize) -> f64 {
    let mut words = NoiseSource::from(SimulationKey::new(SEED)).stream(Purpose::Noise, &[k as u64]).chunk(0);
    let mut as_large = 0u32;
    for _ in 0..SIMULATIONS {
        let mut values: Vec<f64> = (1..k).map(|_| exponential(&mut words)).collect();
        values.push(0.0);
        values.sort_by(|a, b| b.total_cmp(a));
        as_large += u32::from(lilliefors(&values) >= ks);
    }
    // The observed value is one of the possible ones, so that no p-value is 0.
    f64::from(as_large + 1) / f64::from(SIMULATIONS + 1)
}

fn exponential(words: &mut RandomWords) -> f64 {
    let uniform = (words.next_word() >> 11) as f64 + 0.5;
    -libm::log(uniform / (1u64 << 53) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Popov et al. 2018, Table 5: alpha, C and the statistic of 20 experiments.
    const TABLE_5: [(f64, f64, f64); 20] = [
        (15.8, 3.25, 0.49),
        (20.9, 5.64, 0.91),
        (15.1, 2.02, 0.48),
        (16.6, 2.48, 0.62),
        (16.5, 2.70, 0.83),
        (17.6, 4.19, 0.59),
        (14.9, 1.47, 1.39),
        (19.2, 3.31, 0.41),
        (15.6, 1.65, 0.93),
        (15.2, 1.83, 0.51),
        (16.5, 3.00, 0.76),
        (14.4, 1.53, 0.89),
        (19.5, 3.67, 0.66),
        (18.2, 2.20, 0.94),
        (16.2, 3.42, 0.67),
        (17.2, 2.66, 0.85),
        (17.3, 1.68, 0.73),
        (14.8, 2.18, 0.97),
        (17.1, 2.87, 0.65),
        (20.5, 4.60, 0.94),
    ];

    /// Table 6 of the paper from its Table 5.
    #[test]
    fn table_6_of_popov_follows_from_its_table_5() {
        let largest = |delta: f64| TABLE_5.iter().map(|(a, c, _)| epsilon(*a, *c, delta)).fold(0.0, f64::max);
        let printed = [1e-4, 1e-5, 1e-6].map(|delta| format!("{:.2}", largest(delta)));
        assert_eq!(printed, ["0.67", "0.83", "0.99"]);
        let accepted = TABLE_5.iter().filter(|(_, _, ks)| *ks <= CRITICAL_VALUE).count();
        assert_eq!(accepted, 19, "in 19 cases of 20 the test does not reject");
    }

    fn samples(n: usize, draw: impl Fn(f64) -> f64) -> Vec<f64> {
        let mut words = NoiseSource::from(SimulationKey::new(7)).stream(Purpose::Noise, &[]).chunk(0);
        (0..n).map(|_| draw(exponential(&mut words))).collect()
    }

    /// The logarithm of a Pareto variable is exponential: its parameters are found, and its epsilon is the quantile.
    #[test]
    fn the_parameters_of_a_pareto_tail_are_found() {
        let tail = Tail::of(&samples(30_000, |e| 0.1 + e / 16.0)).unwrap();
        assert_eq!(tail.tail, 346);
        assert!((tail.shape / 16.0 - 1.0).abs() < 0.15, "{tail:?}");
        assert!(tail.is_accepted() && tail.p_value > 0.05, "{tail:?}");
        let exact = 0.1 + libm::log(1e4) / 16.0;
        let epsilon = |delta| tail.epsilon(delta).unwrap();
        assert!((epsilon(1e-4) - exact).abs() < 0.06, "{} {exact}", epsilon(1e-4));
        assert!(epsilon(1e-6) > epsilon(1e-4));
    }

    /// At delta = k/n equation 13 says the threshold; above it would say less, of values that are in no tail.
    #[test]
    fn nothing_is_said_below_the_threshold() {
        let tail = Tail::of(&samples(10_000, |e| 0.1 + e / 16.0)).unwrap();
        assert_eq!((tail.tail, tail.share), (200, 0.02));
        let just_above = tail.epsilon(0.02 * (1.0 - 1e-9)).unwrap();
        assert!((just_above - tail.threshold).abs() < 1e-6, "{just_above} {tail:?}");
        for delta in [0.02, 0.5, 1.0, 0.0, -1.0, f64::NAN] {
            assert!(matches!(tail.epsilon(delta), Err(AuditError::OutOfRange { what: "delta", .. })), "{delta}");
        }
    }

    #[test]
    fn another_tail_is_rejected() {
        // Uniform ratios have an end, and no Pareto tail.
        let tail = Tail::of(&samples(30_000, |e| -libm::expm1(-e))).unwrap();
        assert!(!tail.is_accepted() && tail.p_value < 0.01, "{tail:?}");
    }

    /// Lilliefors 1969 gives 1.06 / sqrt(n) for large n at 5 %; Popov et al. use 1.08.
    #[test]
    fn the_critical_value_is_that_of_the_5_percent_level() {
        for k in [50, 346] {
            let p = p_value(CRITICAL_VALUE, k);
            assert!((0.025..0.065).contains(&p), "{k}: {p}");
        }
    }

    #[test]
    fn the_statistic_is_the_largest_distance_for_all_r() {
        // One value: its mean is itself, F jumps from 0 to 1 where the exponential has 1 - 1/e.
        assert!((lilliefors(&[2.0]) - (1.0 - libm::exp(-1.0))).abs() < 1e-12);
        // The largest distance lies below r = 1: many values close to 0.
        let values = [10.0, 0.01, 0.01, 0.01, 0.01, 0.01, 0.01, 0.01];
        assert!(lilliefors(&values) > libm::sqrt(8.0) * 0.8);
    }

    #[test]
    fn what_has_no_tail_is_refused() {
        assert!(matches!(Tail::of(&[0.0; 99]), Err(AuditError::TooFew { got: 99, .. })));
        assert!(matches!(Tail::of(&[0.5; 200]), Err(AuditError::NoTail { count: 28 })));
        let mut bad = vec![0.5; 200];
        bad[3] = f64::INFINITY;
        assert!(matches!(Tail::of(&bad), Err(AuditError::NotFinite { index: 3, .. })));
    }
}
