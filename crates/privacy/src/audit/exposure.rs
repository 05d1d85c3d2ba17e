//! Exposure: how much more likely a planted secret is than secrets that were not planted (Carlini, Liu, Erlingsson, Kos and Song 2019, "The
//! Secret Sharer", arXiv:1802.08232v3).
//!
//! A canary is drawn uniformly from a space of |R| possible ones. Sort all of them by how likely the model finds them: the exposure of the
//! canary is `log2 |R| - log2 rank` (Definition 3): 0 bits for the last, log2 |R| for the first, log2 e = 1.4 on average without memorization.
//! Ranking all of R is not possible, so it is estimated from some of them (section 4.3):
//!
//! * by rank: among the canary and n others that were not planted, rank r has exposure `log2((n + 1) / r)`, at most log2(n + 1); others
//!   that are as likely as the canary come before it, so a model that finds all of them alike remembers nothing;
//! * by modelling: their log-perplexities are close to a skew normal distribution, which says how few of R would be below the canary,
//!   also where none of the samples is. Carlini et al. fit it by maximum likelihood, we by its first three moments.

use serde::Serialize;

use super::{AuditError, check_finite};
use crate::accountant::gaussian::{normal_pdf, normal_sf};

/// The fewest references.
const FEWEST: usize = 20;

/// The exposure of one canary, in bits.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Exposure {
    /// 1 for the most likely, among the canary and all references.
    pub rank: usize,
    /// Exposure by rank.
    pub by_rank: f64,
    /// By a skew normal distribution.
    pub by_estimate: f64,
}

/// The largest exposure of so many canaries, on average, if nothing is remembered: each is exponential with a mean of log2 e bits, so it is
/// (1 + 1/2 + ... + 1/n) log2 e.
#[must_use]
pub fn largest_by_chance(canaries: usize) -> f64 {
    std::f64::consts::LOG2_E * (1..=canaries).map(|rank| 1.0 / rank as f64).sum::<f64>()
}

/// The scores of canaries that were not planted, as references.
#[derive(Debug, Clone, PartialEq)]
pub struct References {
    sorted: Vec<f64>,
    fitted: SkewNormal,
    /// log2 |R|, which no exposure exceeds.
    most: f64,
}

impl References {
    /// Log-perplexities of canaries that were not planted, drawn from `2^bits` possible ones.
    ///
    /// # Errors
    /// When there are too few, or one is no number.
    pub fn new(log_perplexities: &[f64], bits: f64) -> Result<Self, AuditError> {
        check_finite("the log-perplexity of reference", log_perplexities)?;
        if log_perplexities.len() < FEWEST {
            return Err(AuditError::TooFew { what: "references", least: FEWEST, got: log_perplexities.len() });
        }
        if !(bits > 0.0 && bits.is_finite()) {
            return Err(AuditError::OutOfRange {
                what: "the bits of a canary",
                range: "above 0 and finite",
                got: bits,
            });
        }
        let mut sorted = log_perplexities.to_vec();
        sorted.sort_by(f64::total_cmp);
        Ok(Self { fitted: SkewNormal::fit(&sorted), sorted, most: bits })
    }

    /// The exposure of a canary with this log-perplexity.
    #[must_use]
    pub fn exposure(&self, log_perplexity: f64) -> Exposure {
        // Equal ones come before the canary, so that no more is said than was seen.
        let rank = self.sorted.partition_point(|other| *other <= log_perplexity) + 1;
        let by_rank = libm::log2((self.sorted.len() + 1) as f64 / rank as f64);
        let by_estimate = -libm::log2(self.fitted.below(log_perplexity).max(1e-300));
        Exposure { rank, by_rank: by_rank.min(self.most), by_estimate: by_estimate.clamp(0.0, self.most) }
    }
}

/// A skew normal distribution (Azzalini 1985): `2/w phi(z) Phi(a z)`, `z = (x - location) / w`.
#[derive(Debug, Clone, Copy, PartialEq)]
struct SkewNormal {
    location: f64,
    scale: f64,
    /// a: how skewed the distribution is.
    slant: f64,
}

/// The largest skewness that a moment fit is given: that of the distribution is below 0.9953.
const MOST_SKEWNESS: f64 = 0.99;

impl SkewNormal {
    /// By mean, variance and skewness.
    fn fit(values: &[f64]) -> Self {
        let n = values.len() as f64;
        let mean = values.iter().sum::<f64>() / n;
        let moment = |k: i32| values.iter().map(|v| libm::pow(v - mean, f64::from(k))).sum::<f64>() / n;
        let deviation = libm::sqrt(moment(2)).max(1e-9);
        let skewness = (moment(3) / (deviation * deviation * deviation)).clamp(-MOST_SKEWNESS, MOST_SKEWNESS);
        let part = libm::pow(skewness.abs(), 2.0 / 3.0);
        let pi = std::f64::consts::PI;
        let delta = libm::sqrt(0.5 * pi * part / (part + libm::pow(0.5 * (4.0 - pi), 2.0 / 3.0)));
        let delta = delta.min(0.9999) * skewness.signum();
        let scale = deviation / libm::sqrt(1.0 - 2.0 * delta * delta / pi);
        let location = mean - scale * delta * libm::sqrt(2.0 / pi);
        Self { location, scale, slant: delta / libm::sqrt(1.0 - delta * delta) }
    }

    /// The probability of a smaller value, by integration.
    fn below(&self, x: f64) -> f64 {
        const STEPS: u32 = 4000;
        let end = (x - self.location) / self.scale;
        let start = end.min(0.0) - 12.0;
        let step = (end - start) / f64::from(STEPS);
        let density = |z: f64| 2.0 * normal_pdf(z) * normal_sf(-self.slant * z);
        let simpson = |i: u32| {
            let weight = if i == 0 || i == STEPS {
                1.0
            } else if i % 2 == 1 {
                4.0
            } else {
                2.0
            };
            weight * density(start + f64::from(i) * step)
        };
        ((0..=STEPS).map(simpson).sum::<f64>() * step / 3.0).min(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::trade_off::quantile;

    /// Quantiles of a normal distribution, as evenly as can be.
    fn normal(n: u32) -> Vec<f64> {
        (0..n).map(|i| 50.0 + 4.0 * quantile((f64::from(i) + 0.5) / f64::from(n))).collect()
    }

    #[test]
    fn the_exposure_by_rank_is_that_of_the_definition() {
        let references = References::new(&normal(1023), 40.0).unwrap();
        let first = references.exposure(0.0);
        assert_eq!((first.rank, first.by_rank), (1, 10.0));
        let last = references.exposure(1000.0);
        assert_eq!((last.rank, last.by_rank, last.by_estimate), (1024, 0.0, 0.0));
        let middle = references.exposure(50.0);
        assert!((middle.by_rank - 1.0).abs() < 0.01 && (middle.by_estimate - 1.0).abs() < 0.02, "{middle:?}");
        assert_eq!(References::new(&normal(1023), 6.0).unwrap().exposure(0.0).by_rank, 6.0, "no more than all bits");
    }

    /// 40 ranks among 10,000, by chance: the largest is the binary logarithm of 10,001 over the lowest.
    #[test]
    fn of_many_secrets_one_is_exposed_by_chance() {
        assert!(
            (largest_by_chance(1) - std::f64::consts::LOG2_E).abs() < 1e-9
                && (largest_by_chance(40) - 6.1726).abs() < 1e-4
        );
        assert_eq!(largest_by_chance(0), 0.0);
        let mut words = crate::rng::NoiseSource::from(crate::rng::SimulationKey::new(1))
            .stream(crate::rng::Purpose::Canaries, &[7])
            .chunk(0);
        let mut bits = || -libm::log2((words.next_word() >> 11) as f64 / (1u64 << 53) as f64);
        let largest: Vec<f64> = (0..2000).map(|_| (0..40).map(|_| bits()).fold(0.0, f64::max)).collect();
        let mean = largest.iter().sum::<f64>() / 2000.0;
        assert!((mean - largest_by_chance(40)).abs() < 0.2, "{mean}");
    }

    /// A model that finds all sequences alike has learned nothing, and shows nothing.
    #[test]
    fn ties_are_not_counted_as_remembered() {
        let same = References::new(&[7.0; 99], 40.0).unwrap();
        let tied = same.exposure(7.0);
        assert_eq!((tied.rank, tied.by_rank), (100, 0.0));
        assert!(tied.by_estimate <= 1.01, "{tied:?}");
        let half: Vec<f64> = (0..100).map(|i| f64::from(i / 50)).collect();
        assert_eq!(References::new(&half, 40.0).unwrap().exposure(0.0).rank, 51);
    }

    /// Where no reference is below a canary, the distribution still says how far out it is.
    #[test]
    fn the_estimate_goes_on_where_ranks_end() {
        let references = References::new(&normal(1000), 60.0).unwrap();
        let far = references.exposure(50.0 - 4.0 * 6.0);
        // P(Z < -6) is 9.87e-10: 29.9 bits.
        assert!((far.by_estimate - 29.9).abs() < 0.7, "{far:?}");
        assert!(far.by_rank < 10.0);
        assert_eq!(references.exposure(-1e6).by_estimate, 60.0);
    }

    /// A skewed sample is not taken for a normal one: its thin side is thinner.
    #[test]
    fn skewness_is_fitted() {
        let exponential: Vec<f64> = (0..2000).map(|i| -libm::log((f64::from(i) + 0.5) / 2000.0)).collect();
        let references = References::new(&exponential, 60.0).unwrap();
        let symmetric = References::new(&normal(2000), 60.0).unwrap();
        // Two standard deviations below the mean there is nothing of an exponential.
        assert!(references.exposure(-1.0).by_estimate > symmetric.exposure(50.0 - 8.0).by_estimate + 3.0);
        assert!(References::new(&exponential[..19], 60.0).is_err());
        assert!(References::new(&[f64::NAN; 30], 60.0).is_err());
        assert!(References::new(&exponential, 0.0).is_err());
    }
}
