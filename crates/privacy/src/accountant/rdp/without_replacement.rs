//! The Renyi divergence of a Gaussian release on a fixed-size cohort drawn without replacement, replace-one adjacency.
//!
//! Wang, Balle and Kasiviswanathan 2019 (arXiv 1808.00087), Theorem 27, at integer orders a:
//!
//! `A(a) <= 1 + sum_{j=2}^a C(a, j) q^j T_j`, with `T_2 = min(4 (e^{eps(2)} - 1), 2 e^{eps(2)})`,
//! `T_j = min(4 sqrt(B_{2 floor(j/2)} B_{2 ceil(j/2)}), 2 e^{(j-1) eps(j)})` and `B_j = E_Q[(dP/dQ - 1)^j]`;
//!
//! between integers ln A is convex and interpolated (their Corollary 10). It is never more than
//! `ln(1 - q + q e^{(a-1) eps(a)})`, which follows from convexity alone and is smaller at large q. The B_j of even j are integrals of something
//! positive and are computed as such; as forward differences, the way peers do it, they lose all digits at large
//! noise.

/// From this order on only the simpler half of each minimum is used.
const MAX_EXACT: usize = 256;
/// Below this noise too, where it makes no difference.
const MIN_NOISE_FOR_MOMENTS: f64 = 0.05;

/// The bound for one sampling fraction and noise multiplier, with what it has computed so far.
#[derive(Debug)]
pub(crate) struct WithoutReplacement {
    ln_q: f64,
    /// `1 / (2 z^2)`.
    inv: f64,
    full: bool,
    /// ln |dP/dQ - 1| and ln of the weight at each quadrature node.
    nodes: Vec<(f64, f64)>,
    /// `ln_even[m]` is ln B_{2m}.
    ln_even: Vec<f64>,
}

impl WithoutReplacement {
    /// A cohort of the fraction `q`, noise `z` per unit of (replace-one) sensitivity.
    pub(crate) fn new(q: f64, z: f64) -> Self {
        let nodes = if z >= MIN_NOISE_FOR_MOMENTS { nodes(z) } else { Vec::new() };
        Self { ln_q: libm::log(q), inv: 0.5 / (z * z), full: q >= 1.0, nodes, ln_even: vec![0.0] }
    }

    /// An upper bound on `ln A(order)` for any order above 1.
    pub(crate) fn log_moment(&mut self, order: f64) -> f64 {
        let full = order * (order - 1.0) * self.inv;
        if self.full {
            return full;
        }
        // By convexity alone: the user was drawn, and then it is a Gaussian, or was not.
        let q = libm::exp(self.ln_q);
        let convex = if full < 30.0 {
            libm::log1p(q * libm::expm1(full))
        } else {
            full + self.ln_q + libm::log1p((1.0 - q) / q * libm::exp(-full))
        };
        let floor = libm::floor(order);
        let part = order - floor;
        let below = self.at_integer(floor as u64);
        let bound = if part == 0.0 { below } else { (1.0 - part) * below + part * self.at_integer(floor as u64 + 1) };
        bound.min(convex)
    }

    fn at_integer(&mut self, order: u64) -> f64 {
        if order < 2 {
            return 0.0;
        }
        let a = order as f64;
        let exact = order as usize <= MAX_EXACT && !self.nodes.is_empty();
        let mut ln_binomial = libm::log(a);
        let mut ln_excess = f64::NEG_INFINITY;
        for j in 2..=order {
            let jf = j as f64;
            ln_binomial += libm::log((a - jf + 1.0) / jf);
            let ln_term = ln_binomial + jf * self.ln_q + self.ln_ternary(j, exact);
            ln_excess = log_add(ln_excess, ln_term);
        }
        if ln_excess < 30.0 { libm::log1p(libm::exp(ln_excess)) } else { ln_excess }
    }

    /// ln T_j.
    fn ln_ternary(&mut self, j: u64, exact: bool) -> f64 {
        let jf = j as f64;
        let simple = std::f64::consts::LN_2 + jf * (jf - 1.0) * self.inv;
        if j == 2 {
            return simple.min(2.0 * std::f64::consts::LN_2 + libm::log(libm::expm1(2.0 * self.inv)));
        }
        if !exact {
            return simple;
        }
        let (lo, hi) = (j as usize / 2, (j as usize).div_ceil(2));
        let moments = 0.5 * (self.ln_even_moment(lo) + self.ln_even_moment(hi));
        simple.min(2.0 * std::f64::consts::LN_2 + moments)
    }

    /// ln B_{2m}.
    fn ln_even_moment(&mut self, m: usize) -> f64 {
        while self.ln_even.len() <= m {
            let power = 2.0 * self.ln_even.len() as f64;
            let top = self.nodes.iter().map(|(r, w)| power * r + w).fold(f64::NEG_INFINITY, f64::max);
            let sum: f64 = self.nodes.iter().map(|(r, w)| libm::exp(power * r + w - top)).sum();
            self.ln_even.push(top + libm::log(sum) + 1e-12);
        }
        self.ln_even[m]
    }
}

/// Trapezoidal nodes that resolve `(dP/dQ - 1)^j Q` for j up to `MAX_EXACT`. It is a sum of Gaussians of width z with
/// centres from 0 to j, and at large z nearly `x^j Q`, with its peak at `z sqrt(j)`.
fn nodes(z: f64) -> Vec<(f64, f64)> {
    let step = 0.4 * z;
    let inv = 0.5 / (z * z);
    let (from, to) = (-30.0 * z, MAX_EXACT as f64 + 30.0 * z);
    let count = libm::ceil((to - from) / step) as u64;
    let ln_weight = libm::log(step) - 0.5 * libm::log(2.0 * std::f64::consts::PI) - libm::log(z);
    (0..=count)
        .map(|i| {
            let x = from + i as f64 * step;
            let exponent = (2.0 * x - 1.0) * inv;
            let ln_excess = if exponent < 30.0 { libm::log(libm::expm1(exponent).abs()) } else { exponent };
            (ln_excess, ln_weight - x * x * inv)
        })
        .collect()
}

fn log_add(a: f64, b: f64) -> f64 {
    let (hi, lo) = if a >= b { (a, b) } else { (b, a) };
    if lo == f64::NEG_INFINITY { hi } else { hi + libm::log1p(libm::exp(lo - hi)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn even_moments_equal_the_alternating_sum_where_that_is_accurate() {
        // B_4 = E[r^4] - 4 E[r^3] + 6 E[r^2] - 3, E[r^k] = e^(k (k-1) / (2 z^2)).
        for z in [0.5, 0.7, 1.0] {
            let moment = |k: f64| libm::exp(k * (k - 1.0) / (2.0 * z * z));
            let want = moment(4.0) - 4.0 * moment(3.0) + 6.0 * moment(2.0) - 3.0;
            let got = libm::exp(WithoutReplacement::new(0.1, z).ln_even_moment(2));
            assert!((got / want - 1.0).abs() < 1e-10, "z {z}: {got} {want}");
        }
    }
}
