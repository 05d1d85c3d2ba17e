//! The pair of distributions behind a Poisson-sampled Gaussian release, shared by the Renyi and the privacy-loss accountants.
//!
//! With noise of standard deviation z per unit of sensitivity, an output without the user is Q = N(0, z^2) and with
//! the user P = (1 - q) N(0, z^2) + q N(1, z^2). For a group of k users, each sampled on its own, P is the mixture of
//! N(j, z^2) with binomial weights; vectors that do not point the same way are dominated by it (Choquette-Choo et al.,
//! arXiv 2310.15526, section 4).

use super::gaussian::normal_sf;

/// P = sum_j weights[j] N(j, z^2) against Q = N(0, z^2).
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SampledGaussian {
    /// Standard deviation of the noise per unit of sensitivity.
    pub(crate) z: f64,
    /// The probability that `j` members of the group were sampled.
    weights: Vec<f64>,
}

impl SampledGaussian {
    /// A user sampled with probability `q`, or a group of so many.
    pub(crate) fn new(q: f64, z: f64, group: u32) -> Self {
        let weights = (0..=group).map(|j| binomial(group, j) * powi(q, j) * powi(1.0 - q, group - j)).collect();
        Self { z, weights }
    }

    /// The probability that `j` members of the group were sampled.
    pub(crate) fn weight(&self, j: usize) -> f64 {
        self.weights[j]
    }

    /// How far the most sampled outcome moves the mean.
    pub(crate) fn largest_shift(&self) -> f64 {
        (self.weights.len() - 1) as f64
    }

    /// Shift and weight of each outcome in which somebody was sampled.
    pub(crate) fn outcomes(&self) -> impl Iterator<Item = (f64, f64)> + '_ {
        self.weights.iter().enumerate().skip(1).filter(|(_, w)| **w > 0.0).map(|(j, w)| (j as f64, *w))
    }

    /// `dP/dQ(x) - 1`, to full relative precision away from its zero.
    pub(crate) fn excess(&self, x: f64) -> f64 {
        let inv = 0.5 / (self.z * self.z);
        self.outcomes().map(|(j, w)| w * libm::expm1((2.0 * x - j) * j * inv)).sum()
    }

    /// `ln dP/dQ(x)`.
    pub(crate) fn loss(&self, x: f64) -> f64 {
        let inv = 0.5 / (self.z * self.z);
        // The largest shift has the largest exponent only far out: between two shifts it is that of the one below.
        let top = self.outcomes().map(|(j, _)| (2.0 * x - j) * j * inv).fold(f64::NEG_INFINITY, f64::max);
        if top < 500.0 {
            return libm::log1p(self.excess(x));
        }
        let sum: f64 = self.outcomes().map(|(j, w)| w * libm::exp((2.0 * x - j) * j * inv - top)).sum();
        top + libm::log(sum)
    }

    /// `P(X > x)` under P.
    pub(crate) fn upper_tail_with(&self, x: f64) -> f64 {
        self.tail(|j| (x - j) / self.z)
    }

    /// `P(X <= x)` under P.
    pub(crate) fn lower_tail_with(&self, x: f64) -> f64 {
        self.tail(|j| (j - x) / self.z)
    }

    fn tail(&self, standardised: impl Fn(f64) -> f64) -> f64 {
        self.weights.iter().enumerate().map(|(j, w)| w * normal_sf(standardised(j as f64))).sum()
    }

    /// The x with `loss(x) = loss`; minus infinity at or below the smallest loss.
    pub(crate) fn x_of_loss(&self, loss: f64) -> f64 {
        if let [_, q] = self.weights[..] {
            // e^loss = 1 - q + q e^((2x - 1) / (2 z^2))
            let scaled = if loss < 30.0 {
                libm::log1p(libm::expm1(loss) / q)
            } else {
                loss - libm::log(q) + libm::log1p(-(1.0 - q) * libm::exp(-loss))
            };
            return if scaled.is_nan() { f64::NEG_INFINITY } else { 0.5 + self.z * self.z * scaled };
        }
        self.x_of_loss_by_search(loss)
    }

    /// Newton's method, kept between bounds.
    fn x_of_loss_by_search(&self, loss: f64) -> f64 {
        if loss <= libm::log(self.weights[0]) {
            return f64::NEG_INFINITY;
        }
        let (mut lo, mut hi) = (-1.0, 1.0);
        while self.loss(lo) > loss {
            (hi, lo) = (lo, lo * 2.0);
            if lo < -1e6 * (1.0 + self.z) {
                return f64::NEG_INFINITY;
            }
        }
        while self.loss(hi) < loss {
            (lo, hi) = (hi, hi * 2.0);
        }
        let mut x = 0.5 * (lo + hi);
        for _ in 0..100 {
            let error = self.loss(x) - loss;
            if error < 0.0 {
                lo = x
            } else {
                hi = x
            }
            let next = x - error / self.loss_slope(x);
            let next = if next > lo && next < hi { next } else { 0.5 * (lo + hi) };
            if (next - x).abs() <= 1e-15 * (1.0 + x.abs()) || next <= lo || next >= hi {
                return next;
            }
            x = next;
        }
        x
    }

    /// The derivative of the loss.
    fn loss_slope(&self, x: f64) -> f64 {
        let inv = 0.5 / (self.z * self.z);
        let loss = self.loss(x);
        let pull = |(j, w): (f64, f64)| w * j * libm::exp((2.0 * x - j) * j * inv - loss);
        2.0 * inv * self.outcomes().map(pull).sum::<f64>()
    }
}

fn binomial(n: u32, k: u32) -> f64 {
    (0..k).fold(1.0, |b, i| b * f64::from(n - i) / f64::from(i + 1))
}

fn powi(base: f64, exponent: u32) -> f64 {
    libm::pow(base, f64::from(exponent))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With little noise the loss between two shifts overflowed: the exponent of the lower one was not looked at.
    #[test]
    fn losses_are_numbers_between_the_shifts_of_a_group() {
        let law = SampledGaussian::new(0.01, 0.01, 2);
        for (x, shift) in [(0.9, 1.0), (1.4, 1.0), (1.6, 2.0)] {
            let exact = (2.0 * x - shift) * shift / (2.0 * 0.01 * 0.01) + libm::log(law.weight(shift as usize));
            assert!((law.loss(x) - exact).abs() < 1e-9 * exact, "{} at {x}, not {exact}", law.loss(x));
        }
    }
}
