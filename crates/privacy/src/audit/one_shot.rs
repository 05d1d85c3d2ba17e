//! An estimate of epsilon from the scores of canaries, tighter than a proven bound but without proof.
//!
//! Andrew, Kairouz, Oh, Oprea, McMahan and Suriyakumar 2023 ("One-shot Empirical Privacy Estimation for Federated Learning",
//! arXiv:2302.03098v5, section 4): scores of canaries that took part and of those that did not are close to two normal
//! distributions; epsilon is that of telling these apart. Theirs compares with the known distribution of a random direction; ours with
//! the canaries that stayed away, so that whatever else moves the model is in both.
//!
//! It can be too high or too low, and proves nothing.

use serde::Serialize;

use super::{AuditError, check_finite, one_run::Scored};
use crate::Delta;

/// The estimate, and what it was made from.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct OneShot {
    /// Epsilon at delta, of telling the two normal distributions apart.
    pub epsilon_estimate: f64,
    /// The mean score of canaries that took part.
    pub mean_present: f64,
    /// Its standard deviation.
    pub deviation_present: f64,
    /// The mean score of canaries that stayed away.
    pub mean_absent: f64,
    /// Its standard deviation.
    pub deviation_absent: f64,
}

/// The fewest canaries of either kind.
const FEWEST: usize = 5;
/// Points of the numerical integral.
const POINTS: u32 = 20_000;
/// The largest epsilon that is told.
const MOST: f64 = 500.0;

impl OneShot {
    /// The estimate at a delta.
    ///
    /// # Errors
    /// When there are too few canaries of either kind, or scores are no numbers or all equal.
    pub fn of(scored: &[Scored], delta: Delta) -> Result<Self, AuditError> {
        check_finite("the score of canary", &scored.iter().map(|s| s.score).collect::<Vec<_>>())?;
        let (present, absent) = (normal(scored, true)?, normal(scored, false)?);
        let epsilon = |from, to| epsilon(from, to, delta.get());
        Ok(Self {
            epsilon_estimate: epsilon(present, absent).max(epsilon(absent, present)),
            mean_present: present.mean,
            deviation_present: present.deviation,
            mean_absent: absent.mean,
            deviation_absent: absent.deviation,
        })
    }
}

#[derive(Debug, Clone, Copy)]
struct Normal {
    mean: f64,
    deviation: f64,
}

impl Normal {
    fn ln_density(self, x: f64) -> f64 {
        let z = (x - self.mean) / self.deviation;
        -0.5 * z * z - libm::log(self.deviation)
    }
}

fn normal(scored: &[Scored], present: bool) -> Result<Normal, AuditError> {
    let scores: Vec<f64> = scored.iter().filter(|s| s.present == present).map(|s| s.score).collect();
    let what = if present { "canaries that took part" } else { "canaries that stayed away" };
    if scores.len() < FEWEST {
        return Err(AuditError::TooFew { what, least: FEWEST, got: scores.len() });
    }
    let mean = scores.iter().sum::<f64>() / scores.len() as f64;
    let variance = scores.iter().map(|s| (s - mean) * (s - mean)).sum::<f64>() / (scores.len() - 1) as f64;
    if variance > 0.0 {
        return Ok(Normal { mean, deviation: libm::sqrt(variance) });
    }
    Err(AuditError::NoTail { count: scores.len() })
}

/// The smallest epsilon with `integral max(0, p - e^eps q) <= delta`.
fn epsilon(p: Normal, q: Normal, delta: f64) -> f64 {
    let above = |epsilon: f64| {
        let step = 24.0 * p.deviation / f64::from(POINTS);
        let at = |i: u32| {
            let x = p.mean - 12.0 * p.deviation + (f64::from(i) + 0.5) * step;
            let (here, there) = (p.ln_density(x), q.ln_density(x));
            libm::exp(here) * -libm::expm1((epsilon + there - here).min(0.0))
        };
        (0..POINTS).map(at).sum::<f64>() * step / libm::sqrt(std::f64::consts::TAU)
    };
    if above(0.0) <= delta {
        return 0.0;
    }
    let (mut low, mut high) = (0.0, 1.0);
    while high < MOST && above(high) > delta {
        (low, high) = (high, 2.0 * high);
    }
    for _ in 0..40 {
        let middle = 0.5 * (low + high);
        if above(middle) > delta {
            low = middle;
        } else {
            high = middle;
        }
    }
    high
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accountant::gaussian;

    /// Of two normals with one deviation it is the epsilon of the Gaussian mechanism.
    #[test]
    fn the_epsilon_of_equal_deviations_is_that_of_the_gaussian_mechanism() {
        for mu in [0.2, 1.0, 3.0] {
            for delta in [1e-3, 1e-6] {
                let (p, q) = (Normal { mean: 5.0 + 2.0 * mu, deviation: 2.0 }, Normal { mean: 5.0, deviation: 2.0 });
                let (got, want) = (epsilon(p, q, delta), gaussian::epsilon(mu, Delta::new(delta).unwrap()));
                assert!((got - want).abs() < 2e-3 * (1.0 + want), "{mu} {delta}: {got} {want}");
            }
        }
    }

    /// Guarantees hold in both directions, so the direction that tells more counts.
    #[test]
    fn the_larger_of_both_directions_counts() {
        let delta = Delta::new(1e-5).unwrap();
        let scored = |present: bool| -> Vec<Scored> {
            let wide = |i: u32| Scored { score: 3.0 * f64::from(i % 41) - 60.0, present };
            let narrow = |i: u32| Scored { score: f64::from(i % 41) - 20.0, present: !present };
            (0..820).flat_map(|i| [wide(i), narrow(i)]).collect()
        };
        let [one, other] = [true, false].map(|present| OneShot::of(&scored(present), delta).unwrap());
        assert!((one.epsilon_estimate - other.epsilon_estimate).abs() < 1e-9, "{one:?} {other:?}");
        let narrow = Normal { mean: one.mean_absent, deviation: one.deviation_absent };
        let wide = Normal { mean: one.mean_present, deviation: one.deviation_present };
        let [least, most] = [epsilon(narrow, wide, delta.get()), epsilon(wide, narrow, delta.get())];
        assert!(least < 0.5 * most && one.epsilon_estimate == most, "{least} {most}");
    }

    #[test]
    fn few_or_equal_scores_are_refused() {
        let delta = Delta::new(1e-5).unwrap();
        let scored = |n: u32, score: fn(u32) -> f64| -> Vec<Scored> {
            (0..n).map(|i| Scored { score: score(i), present: i % 2 == 0 }).collect()
        };
        assert!(matches!(OneShot::of(&scored(8, f64::from), delta), Err(AuditError::TooFew { got: 4, .. })));
        assert!(matches!(OneShot::of(&scored(20, |_| 1.0), delta), Err(AuditError::NoTail { .. })));
        let same = OneShot::of(&scored(2000, |i| f64::from(i / 2 % 7)), delta).unwrap();
        assert!(same.epsilon_estimate < 0.01, "{same:?}");
    }
}
