//! An estimate of epsilon from the scores of canaries, tighter than a proven bound but without proof.
//!
//! Andrew, Kairouz, Oh, Oprea, McMahan and Suriyakumar 2023 ("One-shot Empirical Privacy Estimation for Federated Learning",
//! arXiv:2302.03098v5, section 4): scores of canaries that took part and of those that did not are close to two normal
//! distributions; epsilon is that of telling these apart. Two things differ here.
//!
//! * Theirs compares with the known distribution of a random direction; ours with the canaries that stayed away, so that whatever else
//!   moves the model is in both.
//! * Theirs fits a deviation of its own to the canaries that took part. Epsilon is a matter of far tails, where a small error of one
//!   deviation against the other counts for much and always upwards, as the larger direction counts: with 100 canaries of a sum with epsilon
//!   0.1 such an estimate is 2.2 in the middle of its values. Here both have one deviation, as they do in a noised sum, and what is fitted
//!   is the one parameter of a Gaussian release. Where users are sampled, those who took part have the larger spread, of which this sees
//!   the mean only.
//!
//! It can be too high or too low, and proves nothing.
//!
//! | here          | what it is                                                                                             |
//! |---------------|--------------------------------------------------------------------------------------------------------|
//! | `mu`          | the distance of the two means in deviations, at least 0 (Cohen's d)                                     |
//! | `mu_error`    | its standard error, `sqrt(1 / n + 1 / m + mu^2 / (2 (n + m - 2)))` for n and m canaries (Hedges 1981)      |
//! | `epsilon_low`, `epsilon_high` | the epsilons of `mu` less and plus 1.96 of these                                         |

use serde::Serialize;

use super::{AuditError, check_finite, one_run::Scored};
use crate::{Delta, accountant::gaussian};

/// The estimate, and what it was made from.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct OneShot {
    /// Epsilon at delta, of telling the two normal distributions apart.
    pub epsilon_estimate: f64,
    /// The lower end of a 95 % interval, if scores are normal with one deviation.
    pub epsilon_low: f64,
    /// Its upper end.
    pub epsilon_high: f64,
    /// By how many deviations the means differ; 0 where canaries that took part have the lower one.
    pub mu: f64,
    /// Its standard error.
    pub mu_error: f64,
    /// The mean score of canaries that took part.
    pub mean_present: f64,
    /// The mean score of canaries that stayed away.
    pub mean_absent: f64,
    /// The standard deviation of both.
    pub deviation: f64,
}

/// The fewest canaries of either kind.
const FEWEST: usize = 5;
/// So many standard errors on either side hold 95 % of a normal distribution.
const TWO_SIDES: f64 = 1.96;
/// The largest epsilon that is told.
const MOST: f64 = 500.0;

impl OneShot {
    /// The estimate at a delta.
    ///
    /// # Errors
    /// When there are too few canaries of either kind, or scores are no numbers or all equal.
    pub fn of(scored: &[Scored], delta: Delta) -> Result<Self, AuditError> {
        check_finite("the score of canary", &scored.iter().map(|s| s.score).collect::<Vec<_>>())?;
        let (present, absent) = (Side::of(scored, true)?, Side::of(scored, false)?);
        let free = present.count + absent.count - 2.0;
        let deviation = libm::sqrt((present.squares + absent.squares) / free);
        if deviation <= 0.0 {
            return Err(AuditError::NoTail { count: scored.len() });
        }
        // Canaries push into their direction and not away from it.
        let mu = ((present.mean - absent.mean) / deviation).max(0.0);
        let mu_error = libm::sqrt(1.0 / present.count + 1.0 / absent.count + mu * mu / (2.0 * free));
        let epsilon = |mu: f64| gaussian::epsilon(mu.max(0.0), delta).min(MOST);
        Ok(Self {
            epsilon_estimate: epsilon(mu),
            epsilon_low: epsilon(mu - TWO_SIDES * mu_error),
            epsilon_high: epsilon(mu + TWO_SIDES * mu_error),
            mu,
            mu_error,
            mean_present: present.mean,
            mean_absent: absent.mean,
            deviation,
        })
    }

    /// The ends of its interval.
    #[must_use]
    pub const fn range(&self) -> [f64; 2] {
        [self.epsilon_low, self.epsilon_high]
    }
}

/// The scores of those who took part, or of those who stayed away.
#[derive(Debug, Clone, Copy)]
struct Side {
    count: f64,
    mean: f64,
    /// The sum of the squared distances from the mean.
    squares: f64,
}

impl Side {
    fn of(scored: &[Scored], present: bool) -> Result<Self, AuditError> {
        let scores: Vec<f64> = scored.iter().filter(|s| s.present == present).map(|s| s.score).collect();
        let what = if present { "canaries that took part" } else { "canaries that stayed away" };
        if scores.len() < FEWEST {
            return Err(AuditError::TooFew { what, least: FEWEST, got: scores.len() });
        }
        let count = scores.len() as f64;
        let mean = scores.iter().sum::<f64>() / count;
        Ok(Self { count, mean, squares: scores.iter().map(|s| (s - mean) * (s - mean)).sum() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::gaussian_sum::GaussianSum;

    fn delta() -> Delta {
        Delta::new(1e-5).unwrap()
    }

    /// Scores whose means are `mu` deviations apart.
    fn apart(mu: f64, each: u32) -> Vec<Scored> {
        let spread = |i: u32| f64::from(i % 41) - 20.0;
        let deviation = libm::sqrt((0..41).map(|i| spread(i) * spread(i)).sum::<f64>() / 41.0);
        let both = |i: u32| {
            let absent = Scored { score: spread(i), present: false };
            [Scored { score: spread(i) + mu * deviation, present: true }, absent]
        };
        (0..41 * each).flat_map(both).collect()
    }

    #[test]
    fn the_epsilon_is_that_of_a_gaussian_release_with_this_distance() {
        for mu in [0.2, 1.0, 3.0] {
            let (found, want) = (OneShot::of(&apart(mu, 50), delta()).unwrap(), gaussian::epsilon(mu, delta()));
            assert!((found.epsilon_estimate / want - 1.0).abs() < 2e-3, "{mu}: {found:?} {want}");
            assert!(found.epsilon_low < want && want < found.epsilon_high, "{found:?}");
            // 4100 canaries: 1/2050 twice, and the part of the deviation.
            let error = libm::sqrt(2.0 / 2050.0 + mu * mu / (2.0 * 4098.0));
            assert!((found.mu_error / error - 1.0).abs() < 1e-3, "{found:?}");
        }
        let wrong_way: Vec<Scored> = apart(1.0, 5).iter().map(|s| Scored { present: !s.present, ..*s }).collect();
        assert_eq!(OneShot::of(&wrong_way, delta()).unwrap().epsilon_estimate, 0.0);
    }

    /// A deviation of their own for those who took part gave 2.2 at epsilon 0.1 with 100 canaries, 0.62 with 1,000, and 3.8 and 2.6 at
    /// epsilon 2. What is left comes from cutting at 0.
    #[test]
    fn few_canaries_do_not_make_it_too_high_in_the_middle_and_its_interval_holds_the_truth() {
        for (epsilon, canaries, least, most) in
            [(0.1, 100, 0.0, 1.0), (0.1, 1000, 0.0, 0.35), (2.0, 100, 1.4, 2.8), (2.0, 1000, 1.8, 2.3)]
        {
            let estimates = (0..99).map(|seed| {
                let sum = GaussianSum::new(canaries, epsilon, delta(), seed).unwrap();
                OneShot::of(&sum.scores().unwrap(), delta()).unwrap()
            });
            let mut estimates: Vec<OneShot> = estimates.collect();
            estimates.sort_by(|a, b| a.epsilon_estimate.total_cmp(&b.epsilon_estimate));
            let median = estimates[49].epsilon_estimate;
            assert!((least..=most).contains(&median), "{median} of {epsilon} with {canaries} canaries");
            let holds = |one: &&OneShot| one.epsilon_low <= epsilon && epsilon <= one.epsilon_high;
            let held = estimates.iter().filter(holds).count();
            assert!((88..=99).contains(&held), "{held} of 99 intervals hold {epsilon} with {canaries} canaries");
        }
    }

    #[test]
    fn few_or_equal_scores_are_refused() {
        let scored = |n: u32, score: fn(u32) -> f64| -> Vec<Scored> {
            (0..n).map(|i| Scored { score: score(i), present: i % 2 == 0 }).collect()
        };
        assert!(matches!(OneShot::of(&scored(8, f64::from), delta()), Err(AuditError::TooFew { got: 4, .. })));
        assert!(matches!(OneShot::of(&scored(20, |_| 1.0), delta()), Err(AuditError::NoTail { .. })));
        let same = OneShot::of(&scored(2000, |i| f64::from(i / 2 % 7)), delta()).unwrap();
        assert!(same.epsilon_estimate < 0.01, "{same:?}");
    }
}
