//! Trade-off functions (Dong, Roth and Su 2022): what a guarantee allows an adversary, for the one-run audit.
//!
//! A mechanism is f-DP if every test between two neighbours with false positive rate x has a false negative rate of at least f(x).
//! Write `F(x) = 1 - f(x)`: an event that has probability x under one neighbour has at most probability F(x) under the other. The audit
//! asks for its inverse, [`TradeOff::least`]: if the event has probability y here, how likely is it there at least?
//!
//! | guarantee          | least(y)                                                            |
//! |--------------------|---------------------------------------------------------------------|
//! | (eps, delta)       | the largest of 0, e^-eps (y - delta) and 1 - delta - e^eps (1 - y)    |
//! | several of these   | the largest of all of them                                           |
//! | Gaussian, mu       | Phi(Phi^-1(y) - mu)                                                  |
//!
//! All values are rounded down: a smaller one makes the audit's bound smaller.
//!
//! The inverse of the normal distribution is written out (P. J. Acklam's approximation, made exact by Halley's step over `libm::erfc`):
//! crates that have one use the platform's functions, whose last digits differ, or bring a library of statistics for this one function.

use serde::Serialize;

use super::AuditError;
use crate::{
    AccountantKind, Delta, PrivacyEvent,
    accountant::{AccountError, gaussian},
};

/// Relative rounding, downwards: far more than the error of what is computed here.
const DOWN: f64 = 1.0 - 1e-9;

/// A guarantee.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub enum TradeOff {
    /// (eps, delta) pairs, all of which hold.
    Pairs(Vec<(f64, f64)>),
    /// A Gaussian release with `mu` = sensitivity / standard deviation.
    Gaussian(f64),
}

impl TradeOff {
    /// The trade-off function of one (epsilon, delta) pair.
    #[must_use]
    pub fn pair(epsilon: f64, delta: f64) -> Self {
        Self::Pairs(vec![(epsilon, delta)])
    }

    /// The whole privacy curve of an event: exact where it is one Gaussian, otherwise as an accountant bounds it, with an epsilon for
    /// each of some deltas from 0.3 to 1e-12. Deltas at which there is no epsilon are left out.
    ///
    /// # Errors
    /// When the accountant has an answer for none of them.
    pub fn of_event(event: &PrivacyEvent, accountant: AccountantKind, group: u32) -> Result<Self, AccountError> {
        if let Some(mu) = accountant.only_gaussian(event, group)? {
            // At least the true parameter: nothing is refuted for its rounding.
            return Ok(Self::Gaussian(mu * (1.0 + 1e-12)));
        }
        let mut pairs = Vec::new();
        let mut refused = None;
        for exponent in (1..=24).map(|half| -0.5 * f64::from(half)) {
            let Ok(delta) = Delta::new(libm::pow(10.0, exponent)) else { continue };
            match accountant.upper_bound(event, delta, group) {
                Ok(judged) if judged.epsilon.is_finite() => pairs.push((judged.epsilon.get(), delta.get())),
                Ok(_) => {}
                Err(error) => refused = Some(error),
            }
        }
        match (pairs.is_empty(), refused) {
            (true, Some(error)) => Err(error),
            _ => Ok(Self::Pairs(pairs)),
        }
    }

    /// At most the smallest probability that an event can have under a neighbour if it has probability y.
    #[must_use]
    pub fn least(&self, y: f64) -> f64 {
        if y <= 0.0 {
            return 0.0;
        }
        let y = y.min(1.0);
        let least = match self {
            Self::Pairs(pairs) => {
                let one = |(epsilon, delta): &(f64, f64)| {
                    let low = libm::exp(-epsilon) * (y - delta);
                    low.max(1.0 - delta - libm::exp(*epsilon) * (1.0 - y) - 1e-12)
                };
                pairs.iter().map(one).fold(0.0, f64::max)
            }
            Self::Gaussian(mu) if *mu == 0.0 => y,
            Self::Gaussian(mu) => {
                let z = quantile(y);
                // At most the true argument, so at most the true probability.
                gaussian::normal_sf(-(z - mu - 1e-10 * (1.0 + z.abs())))
            }
        };
        (least * DOWN).max(0.0)
    }
}

/// `Phi^-1(p)` for p in (0, 1]: Acklam's rational approximation, and one step of Halley's method, which leaves rounding errors alone.
pub(crate) fn quantile(p: f64) -> f64 {
    const A: [f64; 6] = [
        -3.969_683_028_665_376e1,
        2.209_460_984_245_205e2,
        -2.759_285_104_469_687e2,
        1.383_577_518_672_69e2,
        -3.066_479_806_614_716e1,
        2.506_628_277_459_239,
    ];
    const B: [f64; 5] = [
        -5.447_609_879_822_406e1,
        1.615_858_368_580_409e2,
        -1.556_989_798_598_866e2,
        6.680_131_188_771_972e1,
        -1.328_068_155_288_572e1,
    ];
    const C: [f64; 6] = [
        -7.784_894_002_430_293e-3,
        -3.223_964_580_411_365e-1,
        -2.400_758_277_161_838,
        -2.549_732_539_343_734,
        4.374_664_141_464_968,
        2.938_163_982_698_783,
    ];
    const D: [f64; 4] =
        [7.784_695_709_041_462e-3, 3.224_671_290_700_398e-1, 2.445_134_137_142_996, 3.754_408_661_907_416];
    let horner = |coefficients: &[f64], x: f64| coefficients.iter().fold(0.0, |sum, c| sum * x + c);
    if p >= 1.0 {
        return 40.0;
    }
    if p > 0.5 {
        // 1 - p is exact here.
        return -quantile(1.0 - p);
    }
    let mut x = if p < 0.024_25 {
        let q = libm::sqrt(-2.0 * libm::log(p));
        horner(&C, q) / (horner(&D, q) * q + 1.0)
    } else {
        let q = p - 0.5;
        let r = q * q;
        horner(&A, r) * q / (horner(&B, r) * r + 1.0)
    };
    for _ in 0..2 {
        let density = gaussian::normal_pdf(x);
        if density > 0.0 {
            let u = (gaussian::normal_sf(-x) - p) / density;
            x -= u / (1.0 + 0.5 * x * u);
        }
    }
    x
}

/// The smallest mu of a Gaussian whose epsilon at delta is at least this one.
///
/// # Errors
/// When epsilon is not positive and finite.
pub fn mu_of(epsilon: f64, delta: Delta) -> Result<f64, AuditError> {
    if !(epsilon > 0.0 && epsilon <= 1000.0) {
        return Err(AuditError::OutOfRange { what: "epsilon", range: "above 0 and at most 1000", got: epsilon });
    }
    let (mut low, mut high) = (0.0, 1.0);
    while gaussian::epsilon(high, delta) < epsilon {
        high *= 2.0;
    }
    for _ in 0..100 {
        let middle = 0.5 * (low + high);
        if gaussian::epsilon(middle, delta) < epsilon {
            low = middle;
        } else {
            high = middle;
        }
    }
    Ok(high)
}

/// At most the epsilon at delta of a Gaussian with parameter mu.
#[must_use]
pub fn epsilon_of(mu: f64, delta: Delta) -> f64 {
    gaussian::epsilon(mu, delta) * (1.0 - 1e-9)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_the_inverse_of_the_distribution() {
        for p in [1e-300, 1e-40, 1e-9, 1e-3, 0.02, 0.0243, 0.1, 0.3, 0.5, 0.7, 0.99, 1.0 - 1e-9] {
            let x = quantile(p);
            let back = gaussian::normal_sf(-x);
            assert!((back / p - 1.0).abs() < 1e-12, "{p}: {x}, {back}");
        }
        assert!((quantile(0.975) - 1.959_963_984_540_054).abs() < 1e-12);
    }

    /// What a Gaussian allows is allowed by each of its (epsilon, delta); with many of these little is lost.
    #[test]
    fn pairs_of_a_gaussian_allow_a_little_more_than_the_gaussian() {
        for mu in [0.1, 0.5, 1.0, 3.0] {
            let epsilons = (0..400).map(|i| f64::from(i) * 0.05);
            let pairs = TradeOff::Pairs(epsilons.map(|epsilon| (epsilon, gaussian::delta(mu, epsilon))).collect());
            let exact = TradeOff::Gaussian(mu);
            for y in [1e-6, 1e-3, 0.05, 0.3, 0.5, 0.8, 0.99] {
                let (loose, tight) = (pairs.least(y), exact.least(y));
                assert!(loose <= tight * (1.0 + 1e-6), "mu {mu}, y {y}: {loose} above {tight}");
                assert!(loose >= tight * 0.98 - 1e-9, "mu {mu}, y {y}: {loose} far below {tight}");
            }
        }
    }

    /// What an accountant bounds is a little looser than the exact curve, and never tighter.
    #[test]
    fn the_curve_of_an_event_is_exact_for_a_gaussian_and_bounded_for_others() {
        let z = crate::NoiseMultiplier::new(2.0).unwrap();
        let gaussian = PrivacyEvent::gaussian(crate::Adjacency::ZeroOut, z).times(16);
        let exact = TradeOff::of_event(&gaussian, AccountantKind::Best, 1).unwrap();
        assert!(matches!(exact, TradeOff::Gaussian(mu) if (mu - 2.0).abs() < 1e-9), "{exact:?}");
        let grouped = TradeOff::of_event(&gaussian, AccountantKind::Best, 3).unwrap();
        assert!(matches!(grouped, TradeOff::Gaussian(mu) if (mu - 6.0).abs() < 1e-9), "{grouped:?}");
        let bounded = TradeOff::of_event(&gaussian, AccountantKind::Rdp, 1).unwrap();
        assert!(matches!(&bounded, TradeOff::Pairs(pairs) if pairs.len() == 24), "{bounded:?}");
        for y in [1e-3, 0.1, 0.5, 0.9, 0.999] {
            assert!(bounded.least(y) <= exact.least(y), "{y}");
        }
        let open = PrivacyEvent::NonPrivate { what: "a histogram".into() };
        assert_eq!(TradeOff::of_event(&open, AccountantKind::Best, 1).unwrap(), TradeOff::Pairs(Vec::new()));
    }

    #[test]
    fn nothing_is_likely_under_no_guarantee_and_all_of_it_under_a_perfect_one() {
        assert_eq!(TradeOff::Pairs(Vec::new()).least(0.7), 0.0);
        let perfect = TradeOff::pair(0.0, 0.0).least(0.7);
        assert!((perfect - 0.7).abs() < 1e-8 && perfect <= 0.7);
        assert_eq!(TradeOff::Gaussian(1.0).least(-0.5), 0.0);
    }

    #[test]
    fn mu_and_epsilon_are_each_others_inverse() {
        let delta = Delta::new(1e-5).unwrap();
        for epsilon in [0.01, 1.0, 2.0, 8.0, 300.0] {
            let mu = mu_of(epsilon, delta).unwrap();
            assert!((epsilon_of(mu, delta) / epsilon - 1.0).abs() < 1e-6, "{epsilon}");
        }
        for wrong in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(mu_of(wrong, delta).is_err());
        }
    }
}
