//! Comparisons of a uniform real with a number such as `exp(-r)`, for rational `r`, to as many digits as it takes.
//!
//! The samplers decide nearly every draw with machine words and bounds that are proved; what is left, one draw in some
//! millions, comes here. A uniform real is revealed bit by bit and the number is enclosed ever more tightly until the
//! two are apart (Canonne, Kamath and Steinke 2020, arXiv:2004.00010, sample the same comparison from Bernoulli draws).

use num_bigint::BigUint;

use crate::rng::RandomWords;

/// A uniform real in [0, 1), of which some leading bits are known.
pub(super) struct LazyUniform {
    known: BigUint,
    bits: u64,
}

impl LazyUniform {
    /// A uniform real that begins with these bits.
    pub(super) fn beginning_with(word: u64, bits: u64) -> Self {
        Self { known: BigUint::from(word), bits }
    }

    fn reveal(&mut self, words: &mut RandomWords) {
        self.known = (&self.known << 64u32) + words.next_word();
        self.bits += 64;
    }
}

/// The non-negative rational `numerator / denominator`.
pub(super) struct Rational {
    pub(super) numerator: BigUint,
    pub(super) denominator: BigUint,
}

/// Whether `uniform * weight < scale * value`, exactly; `enclose(precision)` gives integers that enclose
/// `value * 2^precision`, the more tightly the more precision there is.
pub(super) fn is_below(
    mut uniform: LazyUniform,
    weight: &BigUint,
    scale: &BigUint,
    enclose: impl Fn(u64) -> (BigUint, BigUint),
    words: &mut RandomWords,
) -> bool {
    loop {
        let precision = uniform.bits + 64;
        let (low, high) = enclose(precision);
        let reach = |e: &BigUint| (scale * e) << uniform.bits;
        let standing = |u: &BigUint| (weight * u) << precision;
        if standing(&(&uniform.known + 1u32)) <= reach(&low) {
            return true;
        }
        if standing(&uniform.known) >= reach(&high) {
            return false;
        }
        uniform.reveal(words);
    }
}

/// Integers that enclose `exp(-r) * 2^precision`.
///
/// With `s` halvings `t = r / 2^s <= 2^-8`, the alternating series of `exp(-t)` is cut after a positive and after a
/// negative term, and the result squared s times; every step is rounded outwards.
pub(super) fn enclose_exp(r: &Rational, precision: u64) -> (BigUint, BigUint) {
    let whole = &r.numerator / &r.denominator;
    let halvings = whole.bits() + 8;
    // Squaring doubles a relative error, so s squarings cost s bits, the roundings between them a few more.
    let working = precision + halvings + 32;
    let one = BigUint::from(1u32) << working;
    let t_low = (&r.numerator << (working - halvings)) / &r.denominator;
    let t_high = &t_low + 1u32;
    let (mut low, mut high) = (lower_series(&t_high, &one, working), upper_series(&t_low, &one, working));
    for _ in 0..halvings {
        low = (&low * &low) >> working;
        high = ((&high * &high) >> working) + 1u32;
    }
    let drop = working - precision;
    (low >> drop, (high >> drop) + 1u32)
}

/// At most `exp(-t)`, for `t` at most 2^-8, all in units of `1 / one`.
fn lower_series(t: &BigUint, one: &BigUint, working: u64) -> BigUint {
    let (positive, negative) = series(t, one, working);
    // Positive terms are rounded down by at most 1 each, negative ones too: give the latter back.
    let slack = BigUint::from(working + 2);
    let negative = negative + slack;
    if positive > negative { positive - negative } else { BigUint::ZERO }
}

/// At least `exp(-t)`.
fn upper_series(t: &BigUint, one: &BigUint, working: u64) -> BigUint {
    let (positive, negative) = series(t, one, working);
    positive + (working + 2) - negative
}

/// The sums of the positive and of the negative terms of `exp(-t)` down to the last unit, each term rounded down. At
/// most `working / 8 + 2` terms are summed, since each is at most 2^-8 of the one before; what is left out is below one
/// unit, and all roundings and the rest together stay below `working + 2` units.
fn series(t: &BigUint, one: &BigUint, working: u64) -> (BigUint, BigUint) {
    let (mut positive, mut negative) = (one.clone(), BigUint::ZERO);
    let mut term = one.clone();
    for n in 1u64.. {
        term = ((term * t) >> working) / n;
        if term == BigUint::ZERO {
            break;
        }
        *(if n % 2 == 0 { &mut positive } else { &mut negative }) += &term;
    }
    (positive, negative)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::{NoiseSource, Purpose, SimulationKey};

    fn rational(numerator: u64, denominator: u64) -> Rational {
        Rational { numerator: numerator.into(), denominator: denominator.into() }
    }

    #[test]
    fn the_enclosure_holds_exp_and_is_narrow() {
        // 40 digits of exp(-r) from mpmath 1.3.0: mp.dps = 60; nstr(exp(-mpf(n)/d), 40).
        let known = [
            (1, 1, "3678794411714423215955237701614608674458"),
            (1, 3, "7165313105737892504256040969253796674531"),
            (7, 1000, "9930244429332351049047970317560145493897"),
            (0, 5, "10000000000000000000000000000000000000000"),
        ];
        for (n, d, digits) in known {
            let precision = 192;
            let (low, high) = enclose_exp(&rational(n, d), precision);
            assert!(high >= low && &high - &low <= BigUint::from(16u32), "{n}/{d} is not narrow");
            let scale = BigUint::from(10u32).pow(40);
            let decimal: BigUint = digits.parse().unwrap();
            // decimal / 10^40 is within half a last digit of the value, which lies in [low, high] / 2^precision.
            assert!(&low * &scale <= (&decimal + 1u32) << precision, "{n}/{d}");
            assert!(&high * &scale >= (&decimal - 1u32) << precision, "{n}/{d}");
        }
    }

    #[test]
    fn large_arguments_are_enclosed_too() {
        let (low, high) = enclose_exp(&rational(512, 1), 1000);
        // exp(-512) = 2^-738.66...
        assert!(low.bits() == 262 && high.bits() == 262, "{} {}", low.bits(), high.bits());
    }

    #[test]
    fn draws_below_exp_are_as_frequent_as_they_should_be() {
        let mut words = NoiseSource::from(SimulationKey::new(11)).stream(Purpose::Noise, &[]).chunk(0);
        let (trials, r) = (20_000, rational(3, 4));
        let one = BigUint::from(1u32);
        // Starting from a single known bit forces every path to be taken.
        let below = (0..trials)
            .filter(|_| {
                let start = LazyUniform::beginning_with(words.next_word() >> 63, 1);
                is_below(start, &one, &one, |precision| enclose_exp(&r, precision), &mut words)
            })
            .count() as f64;
        let p = libm::exp(-0.75);
        let deviation = (below - trials as f64 * p) / libm::sqrt(trials as f64 * p * (1.0 - p));
        assert!(deviation.abs() < 4.0, "{deviation} standard deviations (alpha 6e-5)");
    }
}
