//! The exact privacy curve of the Gaussian mechanism.
//!
//! A Gaussian release with `mu` = sensitivity / standard deviation has
//! `delta(eps) = Phi(mu/2 - eps/mu) - e^eps Phi(-mu/2 - eps/mu)` (Balle and Wang 2018, Theorem 8), and releases with
//! mu_1, mu_2 compose to sqrt(mu_1^2 + mu_2^2) (Dong, Roth and Su 2022, Corollary 3.3). Evaluated by Mills ratios, so
//! that the difference keeps its digits at any delta.

use crate::units::Delta;

const SQRT_2: f64 = std::f64::consts::SQRT_2;
/// `sqrt(pi / 2)`.
const SQRT_HALF_PI: f64 = 1.253_314_137_315_500_3;
/// `1 / sqrt(2 pi)`.
const INV_SQRT_2PI: f64 = 0.398_942_280_401_432_7;

/// `P(N(0, 1) > x)`.
pub(crate) fn normal_sf(x: f64) -> f64 {
    0.5 * libm::erfc(x / SQRT_2)
}

/// The density of N(0, 1).
pub(crate) fn normal_pdf(x: f64) -> f64 {
    INV_SQRT_2PI * libm::exp(-0.5 * x * x)
}

/// `P(N(0, 1) > x) / pdf(x)`, for x not far below 0.
fn mills_ratio(x: f64) -> f64 {
    let t = x / SQRT_2;
    if t < 20.0 {
        return SQRT_HALF_PI * libm::exp(t * t) * libm::erfc(t);
    }
    // Asymptotic series; at x > 28 eight terms reach full precision.
    let inv = 1.0 / (x * x);
    let mut term = 1.0;
    let mut sum = 1.0;
    for k in 0..8 {
        term *= -f64::from(2 * k + 1) * inv;
        sum += term;
    }
    sum / x
}

/// The delta of a Gaussian with parameter `mu` at `epsilon`.
pub(crate) fn delta(mu: f64, epsilon: f64) -> f64 {
    let a = epsilon / mu - 0.5 * mu;
    let b = epsilon / mu + 0.5 * mu;
    if a <= 0.0 {
        return (normal_sf(a) - normal_pdf(a) * mills_ratio(b)).max(0.0);
    }
    let gap = if mu < 0.25 { mills_drop(a, mu) } else { mills_ratio(a) - mills_ratio(b) };
    normal_pdf(a) * gap.max(0.0)
}

/// `mills_ratio(a) - mills_ratio(a + width)` for a small width, as the integral of `1 - x mills_ratio(x)`.
fn mills_drop(a: f64, width: f64) -> f64 {
    // Gauss-Legendre, four points.
    const POINTS: [(f64, f64); 4] = [
        (0.069_431_844_202_973_71, 0.173_927_422_568_726_93),
        (0.330_009_478_207_571_87, 0.326_072_577_431_273_07),
        (0.669_990_521_792_428_1, 0.326_072_577_431_273_07),
        (0.930_568_155_797_026_3, 0.173_927_422_568_726_93),
    ];
    let slope = |x: f64| if x < 30.0 { 1.0 - x * mills_ratio(x) } else { 1.0 / (x * x) };
    width * POINTS.iter().map(|(t, w)| w * slope(a + t * width)).sum::<f64>()
}

/// The smallest epsilon at `target` for a Gaussian with parameter `mu`, rounded up by at most 1e-12 of itself.
pub(crate) fn epsilon(mu: f64, target: Delta) -> f64 {
    if mu == 0.0 {
        return 0.0;
    }
    if !mu.is_finite() {
        return f64::INFINITY;
    }
    if delta(mu, 0.0) <= target.get() {
        return 0.0;
    }
    // Chernoff: delta(hi) <= target. ln delta is decreasing and concave, so Newton from below never overshoots.
    let ln_target = libm::log(target.get());
    let (mut lo, mut hi) = (0.0, 0.5 * mu * mu + mu * libm::sqrt(-2.0 * ln_target));
    let mut x = 0.5 * hi;
    for _ in 0..200 {
        let d = delta(mu, x);
        if d > target.get() {
            lo = x
        } else {
            hi = x
        }
        if hi - lo <= 1e-13 * hi {
            break;
        }
        let a = x / mu - 0.5 * mu;
        let slope = -normal_pdf(a) * mills_ratio(x / mu + 0.5 * mu) / d;
        let next = x - (libm::log(d) - ln_target) / slope;
        let newton = next.is_finite() && next > lo && next < hi;
        if newton && (next - x).abs() <= 1e-14 * x {
            return next * (1.0 + 1e-12);
        }
        x = if newton { next } else { 0.5 * (lo + hi) };
    }
    hi * (1.0 + 1e-12)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn epsilon_inverts_delta_and_errs_upwards() {
        for mu in [1e-6, 1e-3, 0.1, 0.24, 0.26, 1.0, 5.0, 40.0] {
            for d in [0.4, 1e-2, 1e-6, 1e-10, 1e-30, 1e-200] {
                let eps = epsilon(mu, Delta::new(d).unwrap());
                if eps > 0.0 {
                    assert!(delta(mu, eps) <= d * (1.0 + 1e-9), "mu {mu} delta {d} eps {eps}");
                    assert!(delta(mu, eps * (1.0 - 1e-8)) > d * (1.0 - 1e-9), "mu {mu} delta {d} eps {eps}");
                }
            }
        }
    }

    #[test]
    fn known_value() {
        // mpmath 1.4.1, 40 digits: sigma 1, delta 1e-10.
        let eps = epsilon(1.0, Delta::new(1e-10).unwrap());
        assert!((eps - 6.547_924_066_864_953).abs() < 1e-9, "{eps}");
    }
}
