//! Tails of the binomial distribution, rounded so that a p-value is never too small.
//!
//! The most likely term is computed by logarithms of the gamma function, the others from it one after the other. Their error is
//! below 1e-7 for up to 10^8 trials; results are enlarged by `MARGIN`, which is more. Libraries of statistics give tails without a bound on
//! their error, and take the probability itself, which here would be rounded to 1: that is why this is our own.

/// By how much every probability is enlarged, as a factor.
const MARGIN: f64 = 1.0 + 1e-6;
/// What is too small for a number, with room to spare.
const VANISHING: f64 = 1e-290;
/// The most trials for which the margin covers the error.
pub const MOST_TRIALS: u64 = 100_000_000;

/// The number of successes in `trials`, each with the probability `q = e^eps / (1 + e^eps)`, as the probabilities of all its values.
///
/// The probability is given by its odds, so that nothing is lost where it is close to 1.
#[derive(Debug, Clone)]
pub struct Binomial(Vec<f64>);

impl Binomial {
    /// For an epsilon, which may be negative: then success is less likely than failure.
    #[must_use]
    pub fn new(trials: u64, epsilon: f64) -> Self {
        let n = trials as usize;
        let odds = libm::exp(epsilon);
        let ln_q = -libm::log1p(libm::exp(-epsilon));
        let mode = libm::floor((trials as f64 + 1.0) * libm::exp(ln_q)).min(trials as f64) as usize;
        let mut terms = vec![0.0; n + 1];
        terms[mode] = libm::exp(ln_term(trials as f64, mode as f64, ln_q, ln_q - epsilon));
        for k in mode + 1..=n {
            terms[k] = terms[k - 1] * odds * (n - k + 1) as f64 / k as f64;
        }
        for k in (0..mode).rev() {
            terms[k] = terms[k + 1] / odds * (k + 1) as f64 / (n - k) as f64;
        }
        Self(terms)
    }

    /// At least the probability of `successes` or more.
    #[must_use]
    pub fn upper_tail(&self, successes: u64) -> f64 {
        let Some(tail) = self.0.get(successes as usize..) else { return 0.0 };
        (tail.iter().rev().sum::<f64>() * MARGIN + VANISHING).min(1.0)
    }

    /// At least the largest of `P(v - i <= W < v) / i` over i in 1..=v: `alpha` in appendix D of Steinke et al. 2023.
    #[must_use]
    pub fn largest_average_below(&self, v: u64) -> f64 {
        let (mut sum, mut largest) = (0.0, 0.0f64);
        for (i, term) in (1..).zip(self.0[..(v as usize).min(self.0.len())].iter().rev()) {
            sum += term;
            largest = largest.max(sum / f64::from(i));
        }
        largest * MARGIN + VANISHING
    }
}

/// `ln P(W = k)`, up to rounding.
fn ln_term(n: f64, k: f64, ln_q: f64, ln_not_q: f64) -> f64 {
    let part = |times: f64, ln: f64| if times == 0.0 { 0.0 } else { times * ln };
    libm::lgamma(n + 1.0) - libm::lgamma(k + 1.0) - libm::lgamma(n - k + 1.0) + part(k, ln_q) + part(n - k, ln_not_q)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `P(Bin(n, q) >= v)` term by term, without logarithms.
    fn directly(n: u64, v: u64, epsilon: f64) -> f64 {
        let q = 1.0 / (1.0 + libm::exp(-epsilon));
        let mut ways = 1.0;
        let mut sum = 0.0;
        for k in 0..=n {
            if k > 0 {
                ways *= (n - k + 1) as f64 / k as f64;
            }
            if k >= v {
                sum += ways * libm::pow(q, k as f64) * libm::pow(1.0 - q, (n - k) as f64);
            }
        }
        sum
    }

    #[test]
    fn tails_are_those_of_the_binomial_and_never_below() {
        for n in [1, 2, 5, 20, 60] {
            for epsilon in [0.0, 0.3, 1.0, 4.0] {
                for v in 0..=n {
                    let (got, want) = (Binomial::new(n, epsilon).upper_tail(v), directly(n, v, epsilon));
                    assert!(
                        got >= want * (1.0 - 1e-12) && got <= want * (1.0 + 3e-6),
                        "{n} {v} {epsilon}: {got} {want}"
                    );
                }
                assert_eq!(Binomial::new(n, epsilon).upper_tail(n + 1), VANISHING);
            }
        }
    }

    /// The normal approximation with continuity correction, P(Z > 1.99), is good to a thousandth here; all of a hundred is a power.
    #[test]
    fn known_values() {
        let tail = Binomial::new(10_000, 0.0).upper_tail(5_100);
        assert!((tail / 0.023_295_5 - 1.0).abs() < 2e-3, "{tail}");
        let all = Binomial::new(100, 2.0).upper_tail(100);
        assert!((all / libm::exp(-100.0 * libm::log1p(libm::exp(-2.0))) - 1.0).abs() < 2e-6, "{all}");
    }

    #[test]
    fn the_largest_average_is_found() {
        for (n, v, epsilon) in [(10, 8, 0.0), (60, 41, 0.5), (60, 60, 1.0), (7, 1, 2.0)] {
            let term = |k: u64| directly(n, k, epsilon) - directly(n, k + 1, epsilon);
            let average = |i: u64| (v - i..v).map(term).sum::<f64>() / i as f64;
            let want = (1..=v).map(average).fold(0.0, f64::max);
            let got = Binomial::new(n, epsilon).largest_average_below(v);
            assert!(got >= want * (1.0 - 1e-9) && got <= want * (1.0 + 1e-5), "{n} {v}: {got} {want}");
        }
    }
}
