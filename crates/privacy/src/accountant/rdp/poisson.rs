//! The Renyi divergence of a Poisson-sampled Gaussian, exact at integer and fractional orders.
//!
//! `A(a) = E_Q[(dP/dQ)^a]`, and RDP(a) = ln A(a) / (a - 1) (Mironov, Talwar and Zhang 2019). With `u = dP/dQ - 1` and
//! `E_Q[u] = 0`,
//!
//! `A(a) - 1 = E_Q[(1 + u)^a - 1 - a u]`,
//!
//! whose integrand is never negative, so that nothing cancels even where A - 1 is 1e-20. The integrand is analytic in
//! the strip `|Im x| < pi z^2`, where its size is at most that on the real line times `exp(Im(x)^2 / (2 z^2))`; the
//! trapezoidal rule of step h therefore errs by at most `exp(d^2 / (2 z^2) - 2 pi d / h)` of it for any d in the
//! strip, and h is chosen to make that e^-40. dp_accounting sums binomial series instead, and at fractional orders
//! drops the signs of its terms.
//!
//! Only P against Q is needed: for a sampled Gaussian it is the larger of the two divergences at every order (Mironov,
//! Talwar and Zhang 2019, Theorem 5).

use crate::accountant::sampled::SampledGaussian;

/// `-ln` of the relative quadrature error that is aimed at.
const DIGITS: f64 = 40.0;
/// More nodes than this are not worth it: noise so small, or orders so high, that epsilon is lost anyway.
const MAX_NODES: f64 = 10_000.0;
/// What the value is raised by, to stay an upper bound over the rounding of a few thousand terms.
const ROUNDING: f64 = 1.0 + 1e-12;

/// `ln A(order)` for an order above 1.
pub(crate) fn log_moment(law: &SampledGaussian, order: f64) -> f64 {
    let z = law.z;
    let step = step(z);
    let reach = z * libm::sqrt(2.0 * DIGITS) + z;
    let (from, to) = (-reach, order * law.largest_shift() + reach);
    let nodes = libm::ceil((to - from) / step);
    if nodes > MAX_NODES {
        return without_structure(law, order);
    }
    // The integrand can exceed e^700: everything is counted in units of e^scale.
    let inv = 0.5 / (z * z);
    let scale = law.outcomes().map(|(j, w)| order * (libm::log(w) + (order - 1.0) * j * j * inv)).fold(0.0, f64::max);
    let mut sum = 0.0;
    for i in 0..=nodes as u64 {
        let x = from + i as f64 * step;
        sum += weighted_bregman(law, order, x, -x * x * inv - scale, inv);
    }
    let ln_density = -0.5 * libm::log(2.0 * std::f64::consts::PI) - libm::log(z);
    let excess = sum * step * libm::exp(ln_density) * ROUNDING;
    if scale == 0.0 { libm::log1p(excess) } else { (scale + libm::log(excess + libm::exp(-scale))) * ROUNDING }
}

/// `ln A(order)` from above by convexity: `(sum_j w_j r_j)^a <= sum_j w_j r_j^a`.
fn without_structure(law: &SampledGaussian, order: f64) -> f64 {
    let inv = 0.5 / (law.z * law.z);
    let exponents = || {
        std::iter::once((0.0, law.weight(0)))
            .chain(law.outcomes())
            .map(|(j, w)| (order * (order - 1.0) * j * j * inv, w))
    };
    let top = exponents().map(|(e, _)| e).fold(0.0, f64::max);
    top + libm::log(exponents().map(|(e, w)| w * libm::exp(e - top)).sum()) + 1e-12
}

/// The step h that makes `d^2 / (2 z^2) - 2 pi d / h` equal to `-DIGITS` for the best d: `2 pi z^2 / h` where that lies in
/// the strip, else its edge `pi z^2`.
fn step(z: f64) -> f64 {
    let inside = z * std::f64::consts::PI * libm::sqrt(2.0 / DIGITS);
    if inside >= 2.0 {
        return inside;
    }
    let pi2z2 = std::f64::consts::PI * std::f64::consts::PI * z * z;
    2.0 * pi2z2 / (DIGITS + 0.5 * pi2z2)
}

/// `((1 + u)^a - 1 - a u) * e^ln_weight` at x.
fn weighted_bregman(law: &SampledGaussian, a: f64, x: f64, ln_weight: f64, inv: f64) -> f64 {
    let top = law.largest_shift();
    if (2.0 * x - top) * top * inv > 300.0 {
        // u is huge and a > 1: (1 + u)^a is all that counts.
        return libm::exp(a * law.loss(x) + ln_weight);
    }
    let u = law.excess(x);
    if u.abs() < 0.1 && (a * u).abs() < 0.1 {
        return bregman_series(a, u) * libm::exp(ln_weight);
    }
    let log_power = a * libm::log1p(u);
    if log_power > 30.0 {
        return libm::exp(log_power + ln_weight) - (1.0 + a * u) * libm::exp(ln_weight);
    }
    (libm::expm1(log_power) - a * u) * libm::exp(ln_weight)
}

/// `(1 + u)^a - 1 - a u` for small `a u`, by its series from the u^2 term on.
fn bregman_series(a: f64, u: f64) -> f64 {
    let tail = (3..16).rev().fold(1.0, |tail, k| 1.0 + (a - f64::from(k) + 1.0) / f64::from(k) * u * tail);
    0.5 * a * (a - 1.0) * u * u * tail
}

/// `ln A(order)` at an integer order by the binomial sum (Abadi et al. 2016): the slow, obvious version, and what the
/// moments accountant is defined by.
pub(crate) fn log_moment_integer(q: f64, z: f64, order: u32) -> f64 {
    let a = f64::from(order);
    let inv = 0.5 / (z * z);
    let (ln_q, ln_p) = (libm::log(q), libm::log1p(-q));
    let mut ln_binomial = 0.0;
    let ln_terms: Vec<f64> = (1..=order)
        .map(|k| {
            let kf = f64::from(k);
            ln_binomial += libm::log(a - kf + 1.0) - libm::log(kf);
            let exponent = kf * (kf - 1.0) * inv;
            let ln_expm1 = if exponent < 30.0 { libm::log(libm::expm1(exponent)) } else { exponent };
            let ln_rest = if k == order { 0.0 } else { (a - kf) * ln_p };
            ln_binomial + kf * ln_q + ln_rest + ln_expm1
        })
        .collect();
    let largest = ln_terms.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if largest == f64::NEG_INFINITY {
        return 0.0;
    }
    let sum: f64 = ln_terms.iter().map(|t| libm::exp(t - largest)).sum();
    let ln_excess = largest + libm::log(sum);
    if ln_excess < 30.0 { libm::log1p(libm::exp(ln_excess)) } else { ln_excess }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quadrature_equals_the_binomial_sum_at_integer_orders() {
        for q in [1e-9, 1e-5, 1e-3, 0.01, 0.3, 0.9] {
            for z in [0.3, 0.5, 1.0, 3.0, 12.0] {
                for order in [2, 3, 8, 33, 200] {
                    let sum = log_moment_integer(q, z, order);
                    let quadrature = log_moment(&SampledGaussian::new(q, z, 1), f64::from(order));
                    let error = quadrature / sum - 1.0;
                    assert!(
                        (-1e-12..1e-10).contains(&error),
                        "q {q} z {z} order {order}: {quadrature} {sum} {error:e}"
                    );
                }
            }
        }
    }

    #[derive(serde::Deserialize)]
    struct Vectors {
        rows: Vec<Row>,
    }

    #[derive(serde::Deserialize)]
    struct Row {
        sampling_rate: f64,
        noise_multiplier: f64,
        order: f64,
        ln_moment: f64,
    }

    #[test]
    fn exact_at_fractional_orders() {
        let text = include_str!("../../../testdata/mpmath-1.4.1/renyi_fractional.json");
        let vectors: Vectors = serde_json::from_str(text).unwrap();
        assert!(vectors.rows.len() >= 25);
        for row in vectors.rows {
            let got = log_moment(&SampledGaussian::new(row.sampling_rate, row.noise_multiplier, 1), row.order);
            let error = got / row.ln_moment - 1.0;
            assert!((0.0..1e-11).contains(&error), "q {} order {}: {error:e}", row.sampling_rate, row.order);
        }
    }

    #[test]
    fn convexity_bounds_from_above() {
        for (q, z, order) in [(0.01, 1.0, 3.5), (0.3, 0.4, 12.0), (0.9, 2.0, 1.2)] {
            let law = SampledGaussian::new(q, z, 1);
            assert!(without_structure(&law, order) >= log_moment(&law, order));
        }
    }

    #[test]
    fn a_group_that_is_always_sampled_is_a_gaussian_of_its_size() {
        for order in [1.5, 4.0, 17.25] {
            let got = log_moment(&SampledGaussian::new(1.0, 2.0, 3), order);
            let want = order * (order - 1.0) * 9.0 / (2.0 * 4.0);
            assert!((got / want - 1.0).abs() < 1e-10, "{got} {want}");
        }
    }
}
