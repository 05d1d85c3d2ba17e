//! The likelihood of a Poisson draw relative to the mode: `p(k) / p(lambda)`, for integer `lambda`, approximately and exactly.
//!
//! Since lambda is an integer, `p(lambda - 1) = p(lambda)`, and both sides fall from there. A draw lies `distance` steps
//! from the top on its side: at `lambda + distance` or at `lambda - 1 - distance`. Then
//!
//! ```text
//! right: p(k) / p(lambda) = product over i = 1 .. distance of lambda / (lambda + i)
//! left:  p(k) / p(lambda) = product over i = 1 .. distance of (lambda - i) / lambda
//! ```
//!
//! [`approximate`] is Loader's saddle-point form (Loader 2000, "Fast and accurate computation of binomial probabilities",
//! equations 5 and 6), off by less than 2^-40 of the value. [`enclose`] gives integer bounds to any precision.

use num_bigint::BigUint;

use super::exponential::{Rational, enclose_exp};

/// On which side of the top a draw lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    /// `lambda + distance`.
    Right,
    /// `lambda - 1 - distance`.
    Left,
}

impl Side {
    /// `k - lambda`.
    #[inline]
    pub(super) const fn offset(self, distance: u64) -> i64 {
        match self {
            Self::Right => distance as i64,
            Self::Left => -1 - distance as i64,
        }
    }
}

/// `p(k) / p(lambda)`, off by less than 2^-40 of it, for lambda of at least 512 and k within 10 standard deviations.
///
/// With `q = (k - lambda) / lambda` and `delta` the remainder of Stirling's formula, the logarithm is
/// `-lambda D(q) - ln(1 + q) / 2 + delta(lambda) - delta(k)`, where `D(q) = (1 + q) ln(1 + q) - q`.
///
/// Why it is that close: |q| is at most 10 / sqrt(512) < 0.45, so `v = q / (2 + q)` is below 0.3 in absolute value and
/// `D = v (q + 2 (1 + q) (v^2 / 3 + v^4 / 5 + ...))` adds up without cancellation (for negative q the second term is
/// below a tenth of the first). The series is cut where powers are below `2^-58 |q|`, after 17 terms at most, which
/// leaves out less than 2^-57 of D. That is fewer than 64 operations, each off by 2^-53 of its result, so D is off by less
/// than 2^-47 of itself; and `lambda D` is below 64, hence off by less than 2^-41. The other terms are below 1 and off by
/// less than 2^-48: `delta(n)` without its third term `1 / (1260 n^5)`, for n of at least 285, is off by 2^-50. `exp` and
/// `log1p` are off by less than one unit in the last place.
pub(super) fn approximate(lambda: u64, side: Side, distance: u64) -> f64 {
    let lambda = lambda as f64;
    let offset = side.offset(distance) as f64;
    let q = offset / lambda;
    let v = q / (2.0 + q);
    let square = v * v;
    let (mut series, mut power, mut odd) = (0.0, square, 3.0);
    let negligible = q.abs() * 2.0f64.powi(-58);
    while power > negligible {
        series += power / odd;
        power *= square;
        odd += 2.0;
    }
    let deviance = v * (q + 2.0 * (1.0 + q) * series);
    let remainder = |n: f64| (1.0 / 12.0 - 1.0 / (360.0 * n * n)) / n;
    libm::exp(-lambda * deviance - 0.5 * libm::log1p(q) + (remainder(lambda) - remainder(lambda + offset)))
}

/// Products of at most so many factors are multiplied out.
const MULTIPLIED_OUT: u64 = 1 << 12;

/// Integers that enclose `p(k) / p(lambda) * 2^precision`.
pub(super) fn enclose(lambda: u64, side: Side, distance: u64, precision: u64) -> (BigUint, BigUint) {
    // The series needs i / lambda of at most 1/2; what is beyond that is not proposed once in the age of the universe.
    if distance <= MULTIPLIED_OUT || distance > lambda / 2 {
        enclose_product(lambda, side, distance, precision)
    } else {
        enclose_series(lambda, side, distance, precision)
    }
}

/// Factor by factor, every one rounded outwards.
fn enclose_product(lambda: u64, side: Side, distance: u64, precision: u64) -> (BigUint, BigUint) {
    // Every factor is below 1, so `distance` roundings are off by at most that many units.
    let working = precision + 64;
    let mut low = BigUint::from(1u32) << working;
    let mut high = low.clone();
    for i in 1..=distance {
        let (numerator, denominator) = match side {
            Side::Right => (lambda, lambda + i),
            Side::Left => (lambda.saturating_sub(i), lambda),
        };
        if numerator == 0 {
            return (BigUint::ZERO, BigUint::ZERO);
        }
        low = low * numerator / denominator;
        high = high * numerator / denominator + 1u32;
    }
    (low >> 64u32, (high >> 64u32) + 1u32)
}

/// By the logarithm: with `S_j = 1^j + ... + distance^j`, `sum of ln(1 + i / lambda) = S_1 / lambda - S_2 / (2 lambda^2) +
/// ...`, and for the left side the same without the minus signs.
///
/// For `distance <= lambda / 2` each term is at most half the one before, so what follows the first term that is below one
/// unit is below one more; every term is rounded down. So n terms are off by at most n + 2 units.
fn enclose_series(lambda: u64, side: Side, distance: u64, precision: u64) -> (BigUint, BigUint) {
    let working = precision + 64;
    let mut sums = PowerSums::up_to(distance);
    let (mut plus, mut minus) = (BigUint::ZERO, BigUint::ZERO);
    let mut divisor = BigUint::from(1u32);
    let mut terms = 0u64;
    loop {
        terms += 1;
        divisor *= lambda;
        let term = (sums.next_sum() << working) / (&divisor * terms);
        if term == BigUint::ZERO {
            break;
        }
        *(if side == Side::Left || terms % 2 == 1 { &mut plus } else { &mut minus }) += term;
    }
    let off = BigUint::from(terms + 2);
    let sum = plus - minus;
    let denominator = BigUint::from(1u32) << working;
    let above = Rational { numerator: &sum + &off, denominator: denominator.clone() };
    let below = Rational { numerator: if sum > off { sum - off } else { BigUint::ZERO }, denominator };
    (enclose_exp(&above, precision).0, enclose_exp(&below, precision).1)
}

/// `S_1, S_2, ...`, one after the other, from
/// `(n + 1)^(j + 1) - 1 = sum over m = 0 .. j of binomial(j + 1, m) S_m` (Pascal 1654).
struct PowerSums {
    /// S_0 to the last.
    sums: Vec<BigUint>,
    /// binomial(j + 1, 0 ..= j + 1) for the next j.
    binomials: Vec<BigUint>,
    base: BigUint,
    /// (n + 1)^j for the next j.
    power: BigUint,
}

impl PowerSums {
    fn up_to(n: u64) -> Self {
        let base = BigUint::from(n) + 1u32;
        let binomials = [1u32, 2, 1].map(BigUint::from).to_vec();
        Self { sums: vec![n.into()], binomials, power: base.clone(), base }
    }

    fn next_sum(&mut self) -> BigUint {
        let j = self.sums.len();
        self.power *= &self.base;
        let known: BigUint = self.sums.iter().zip(&self.binomials).map(|(s, b)| s * b).sum();
        let sum = (&self.power - 1u32 - known) / (j + 1);
        self.sums.push(sum.clone());
        let inner = self.binomials.windows(2).map(|pair| &pair[0] + &pair[1]);
        self.binomials = std::iter::once(1u32.into()).chain(inner).chain([1u32.into()]).collect();
        sum
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SIDES: [Side; 2] = [Side::Right, Side::Left];

    /// An enclosure as a float, and its width in units.
    fn middle((low, high): (BigUint, BigUint), precision: u64) -> (f64, u64) {
        let width = u64::try_from(&high - &low).unwrap();
        let shift = low.bits().saturating_sub(64);
        let mantissa = u64::try_from(low >> shift).unwrap() as f64;
        (libm::ldexp(mantissa, shift as i32 - precision as i32), width)
    }

    #[test]
    fn power_sums_are_sums_of_powers() {
        for n in [1u64, 2, 10, 97] {
            let mut sums = PowerSums::up_to(n);
            for j in 1..20 {
                assert_eq!(sums.next_sum(), (1..=n).map(|i| BigUint::from(i).pow(j)).sum(), "n {n}, j {j}");
            }
        }
    }

    #[test]
    fn small_products_are_what_they_are() {
        // lambda = 4: p(7) / p(4) = 4^3 / (5 6 7); p(1) / p(4) = 3 2 / 4^2; p(-1) = 0.
        let exact = |n: u64, d: u64| (BigUint::from(n) << 80u32) / d;
        for (side, distance, value) in [(Side::Right, 3, exact(64, 210)), (Side::Left, 2, exact(6, 16))] {
            let (low, high) = enclose(4, side, distance, 80);
            assert!(low <= value && value <= high && &high - &low <= BigUint::from(2u32), "{low} {value} {high}");
        }
        assert_eq!(enclose(4, Side::Left, 3, 80).1, (BigUint::from(6u32) << 80u32) / 64u32 + 1u32);
        assert_eq!(enclose(4, Side::Left, 4, 80), (BigUint::ZERO, BigUint::ZERO));
        assert_eq!(enclose(4, Side::Left, 9, 80), (BigUint::ZERO, BigUint::ZERO));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        /// The two exact ways agree, and both are narrow.
        #[test]
        fn series_and_product_enclose_the_same_number(
            lambda in 512u64..1 << 40, sigmas in 0.01f64..12.0, precision in 32u64..400, left in any::<bool>(),
        ) {
            let distance = ((libm::sqrt(lambda as f64) * sigmas) as u64).clamp(1, (lambda / 2).min(3000));
            let side = SIDES[usize::from(left)];
            let (a, b) = enclose_product(lambda, side, distance, precision);
            let (c, d) = enclose_series(lambda, side, distance, precision);
            prop_assert!(a.clone().max(c.clone()) <= b.clone().min(d.clone()), "disjoint");
            prop_assert!(b - a <= BigUint::from(2u32) && d - c <= BigUint::from(16u32), "wide");
        }

        /// Within 2^-40, as far as the samplers ask: that is what their margins build upon.
        #[test]
        fn the_approximation_is_as_close_as_it_says(
            lambda in prop_oneof![512u64..600, (9u32..59).prop_flat_map(|b| (1u64 << b)..=(1 << (b + 1)))],
            sigmas in 0.0f64..10.0, left in any::<bool>(),
        ) {
            let distance = (libm::sqrt(lambda as f64) * sigmas) as u64;
            let side = SIDES[usize::from(left)];
            let (exact, width) = middle(enclose(lambda, side, distance, 256), 256);
            prop_assert!(width <= 64);
            let off = approximate(lambda, side, distance) / exact - 1.0;
            prop_assert!(off.abs() < 2.0f64.powi(-42), "lambda {lambda}, {side:?} {distance}: {off:e}");
        }
    }
}
