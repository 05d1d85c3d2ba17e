//! Rounds real coordinates to integers whose norm is at most a stated bound, checked exactly.
//!
//! The bound is that of Xu et al. 2023, section 2.4 (Kairouz et al. 2021, Proposition 26): for a vector of norm at most r
//! in d dimensions, a stochastic rounding has squared norm at most `r^2 + d/4 + sqrt(2 ln(1/alpha)) (r + sqrt(d)/2)`
//! with probability at least 1 - alpha, and conditional rounding draws again until it does. Rounding to nearest uses the
//! same bound with the papers' alpha. What the bound adds to r^2 is the inflation: it is part of the sensitivity.

use serde::{Deserialize, Serialize};

use super::rotation::{clamped, linf_limit};
use crate::rng::RandomWords;

/// The alpha of Xu et al. 2023, `exp(-0.5)`: the factor `sqrt(2 ln(1/alpha))` is 1.
pub const XU_ALPHA: f64 = 0.606_530_659_712_633_4;

/// How often stochastic rounding is drawn again before the vector is cut to the bound instead. For alpha at most 0.9
/// that happens to fewer than one in 10^11 vectors; it costs a little accuracy and no privacy.
const ATTEMPTS: usize = 256;

/// The rounding of coordinates to integers.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Rounding {
    /// To the nearest integer: deterministic, biased where coordinates are small against the grid.
    Nearest,
    /// Up or down at random, unbiased, drawn again until the norm is within the bound.
    ConditionalStochastic {
        /// The chance, at most, that one attempt is drawn again.
        alpha: f64,
    },
}

impl Rounding {
    /// Whether alpha is a probability.
    pub(super) fn is_legal(self) -> bool {
        !matches!(self, Self::ConditionalStochastic { alpha } if !(alpha > 0.0 && alpha < 1.0))
    }

    /// The largest squared norm, in squared grid steps, after rounding a vector of norm at most `norm` grid steps.
    #[must_use]
    pub fn norm_squared_bound(self, norm: f64, dimension: usize) -> f64 {
        let alpha = match self {
            Self::Nearest => XU_ALPHA,
            Self::ConditionalStochastic { alpha } => alpha,
        };
        let d = dimension as f64;
        norm * norm + d / 4.0 + libm::sqrt(-2.0 * libm::log(alpha)) * (norm + libm::sqrt(d) / 2.0)
    }
}

/// The bounds that integers must keep.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    pub(super) norm_squared: u64,
    pub(super) largest: u32,
}

/// Scales by a factor, clips every coordinate and rounds to nearest in one pass, if that keeps the limits: the usual way
/// of [`round`], which does the same in steps.
pub(super) fn scaled_to_nearest(values: &[f32], scale: f64, limits: Limits, out: &mut Vec<i32>) -> bool {
    let limit = linf_limit(u64::from(limits.largest));
    out.clear();
    out.extend(values.iter().map(|v| nearest(clamped((f64::from(*v) * scale) as f32, limit))));
    keeps(out, limits)
}

/// Rounds into `out` so that the limits hold exactly, whatever the input.
pub(super) fn round(values: &[f32], rounding: Rounding, limits: Limits, words: &mut RandomWords, out: &mut Vec<i32>) {
    let attempts = if rounding == Rounding::Nearest { 1 } else { ATTEMPTS };
    for _ in 0..attempts {
        out.clear();
        match rounding {
            Rounding::Nearest => out.extend(values.iter().map(|v| nearest(*v))),
            Rounding::ConditionalStochastic { .. } => out.extend(values.iter().map(|v| up_or_down(*v, words))),
        }
        if keeps(out, limits) {
            return;
        }
    }
    cut(values, limits, out);
}

/// The nearest integer, ties to even, of a value below 2^31: beside 1.5 * 2^52 a float has no room for fractions. As a
/// vector this is a conversion and an addition; `round_ties_even` is a call a value where the processor's rounding may not be
/// assumed.
#[inline]
fn nearest(value: f32) -> i32 {
    const ROOM: f64 = (3u64 << 51) as f64;
    (f64::from(value) + ROOM).to_bits() as i32
}

#[inline]
fn up_or_down(value: f32, words: &mut RandomWords) -> i32 {
    let below = value.floor();
    let part = f64::from(value) - f64::from(below);
    let uniform = (words.next_word() >> 11) as f64 * 2.0f64.powi(-53);
    below as i32 + i32::from(uniform < part)
}

/// Shrinks the vector and rounds towards zero, which cannot add to a norm, until the limits hold.
fn cut(values: &[f32], limits: Limits, out: &mut Vec<i32>) {
    let norm = libm::sqrt(values.iter().map(|v| f64::from(*v) * f64::from(*v)).sum());
    let mut factor = (libm::sqrt(limits.norm_squared as f64) / norm).min(1.0);
    for _ in 0..64 {
        out.clear();
        out.extend(values.iter().map(|v| (f64::from(*v) * factor).trunc() as i32));
        if keeps(out, limits) {
            return;
        }
        factor *= 0.999;
    }
    out.fill(0);
}

/// Whether the integers keep the limits, in exact arithmetic.
pub(super) fn keeps(values: &[i32], limits: Limits) -> bool {
    Size::of(values).keeps(limits)
}

/// The squared norm, exactly.
pub(super) fn norm_squared(values: &[i32]) -> u128 {
    Size::of(values).norm_squared
}

/// How large integers are, exactly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Size {
    pub(super) largest: u32,
    pub(super) norm_squared: u128,
}

impl Size {
    /// One pass: a block at a time, which stays in the processor.
    pub(super) fn of(values: &[i32]) -> Self {
        let mut all = Self::default();
        let (blocks, rest) = values.as_chunks::<64>();
        for block in blocks.iter().map(<[i32; 64]>::as_slice).chain([rest]) {
            let largest = block.iter().fold(0, |most, v| v.unsigned_abs().max(most));
            // 64 squares of at most 29 bits fit a word; larger ones are added with more room.
            let norm_squared = if largest < 1 << 29 {
                u128::from(block.iter().map(square).sum::<u64>())
            } else {
                block.iter().map(|v| u128::from(square(v))).sum()
            };
            all = all.and(Self { largest, norm_squared });
        }
        all
    }

    /// The size of these integers and others together.
    pub(super) fn and(self, other: Self) -> Self {
        let norm_squared = self.norm_squared + other.norm_squared;
        Self { largest: self.largest.max(other.largest), norm_squared }
    }

    /// Whether it is within limits.
    pub(super) fn keeps(self, limits: Limits) -> bool {
        self.largest <= limits.largest && self.norm_squared <= u128::from(limits.norm_squared)
    }
}

#[inline]
fn square(v: &i32) -> u64 {
    u64::from(v.unsigned_abs()).pow(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_is_round_ties_even_below_2_31() {
        let mut words = crate::rng::NoiseSource::from(crate::rng::SimulationKey::new(1))
            .stream(crate::rng::Purpose::Rounding, &[])
            .chunk(0);
        let special = [0.0, -0.0, 0.5, 1.5, -0.5, -2.5, 8_388_607.5, 2_147_483_520.0, -2_147_483_520.0, 1e-40];
        let drawn = (0..100_000).map(|_| {
            let word = words.next_word();
            (word as i32 as f32) * (-((word >> 32 & 31) as f32)).exp2()
        });
        for value in special.into_iter().chain(drawn).filter(|v| v.abs() < 2_147_483_648.0) {
            assert_eq!(nearest(value), value.round_ties_even() as i32, "{value}");
        }
    }

    #[test]
    fn norms_are_exact_for_any_integers() {
        let large = vec![i32::MIN; 200];
        assert_eq!(norm_squared(&large), 200 * (1u128 << 62));
        let mixed: Vec<i32> = (0..333).map(|i| if i % 7 == 0 { (1 << 29) - 1 - i } else { i - 160 }).collect();
        let want: u128 = mixed.iter().map(|v| u128::from(v.unsigned_abs()) * u128::from(v.unsigned_abs())).sum();
        assert_eq!(norm_squared(&mixed), want);
        let limits = Limits { norm_squared: u64::MAX, largest: (1 << 29) - 1 };
        assert!(keeps(&mixed, limits) && !keeps(&large, limits));
        let tight = Limits { norm_squared: want as u64 - 1, ..limits };
        assert!(!keeps(&mixed, tight));
    }
}
