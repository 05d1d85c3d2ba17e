//! The discrete Gaussian, exactly: `P(y) = exp(-y^2 / (2 sigma^2)) / sum over the integers`, for integer `sigma`.
//!
//! Canonne, Kamath and Steinke 2020 (arXiv:2004.00010, Algorithms 1 to 3) define the law and sample it from exact
//! Bernoulli draws; here the same law comes from one exact rejection step, which is many times faster:
//!
//! 1. A staircase over `|y|` with steps of width `w = 2^b`, between sigma/64 and sigma/32, covers `G exp(-y^2 / 2 sigma^2)`
//!    with integer heights; a step is chosen exactly (`staircase`).
//! 2. `|y|` is uniform within the step: b random bits.
//! 3. It is kept with probability `G exp(-y^2 / 2 sigma^2) / height`. The uniform that decides is compared with integer
//!    bounds of that probability from the series of `exp` (`1 - d <= exp(-d) <= 1 - d + d^2 / 2`, ...). Where they cannot
//!    tell, `exponential` compares to as many digits as it takes. About 2 in 100 are not kept.
//!
//! Every decision compares integers. Floats enter only through the bounds at the starts of the steps, computed once and
//! widened by far more than they can be off; a test compares the verdicts with exact ones.
//!
//! The one departure from the law: draws of 2^62 and more are refused, which for the largest sigma admitted is 32 sigma
//! and a mass below e^-500.

use num_bigint::BigUint;
use thiserror::Error;

use super::{
    exponential::{LazyUniform, Rational, enclose_exp, is_below},
    staircase::{Staircase, TABLE_REACH},
};
use crate::rng::RandomWords;

/// A parameter that the sampler does not take.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("sigma must be an integer from 32 to 2^57 grid steps, got {got}")]
pub struct SigmaError {
    /// The refused value.
    pub got: u64,
}

/// Draws from the discrete Gaussian of one parameter.
#[derive(Debug, Clone)]
pub struct DiscreteGaussianSampler {
    sigma: u64,
    stairs: Staircase,
    /// Bounds of G exp(-start^2 / 2 sigma^2) / height, in units of 2^-32.
    start: Vec<Bounds>,
    /// Bounds of `w^2 / (2 sigma^2)` in units of 2^-40.
    quotient: Bounds,
}

#[derive(Debug, Clone, Copy)]
struct Bounds {
    low: u64,
    high: u64,
}

/// What machine words can say of a draw.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Keep,
    Refuse,
    Unknown,
}

impl DiscreteGaussianSampler {
    /// A sampler for this parameter.
    ///
    /// # Errors
    /// When sigma is below 32, where rule P3 does not account for it, or above 2^57.
    pub fn new(sigma: u64) -> Result<Self, SigmaError> {
        if !(32..=1 << 57).contains(&sigma) {
            return Err(SigmaError { got: sigma });
        }
        let width_bits = sigma.ilog2() - 5;
        let width = (1u64 << width_bits) as f64 / sigma as f64;
        let steps = libm::ceil(TABLE_REACH / width) as usize;
        let stairs = Staircase::over(width_bits, steps, |i| libm::exp(-0.5 * (i as f64 * width) * (i as f64 * width)));
        let start = (0..steps).map(|i| start_bounds(stairs.scale, stairs.heights[i], i as f64 * width)).collect();
        let quotient = width * width / 2.0 * (1u64 << 40) as f64;
        let quotient = Bounds { low: quotient as u64 - 1, high: quotient as u64 + 2 };
        Ok(Self { sigma, stairs, start, quotient })
    }

    /// The parameter.
    #[must_use]
    pub const fn sigma(&self) -> u64 {
        self.sigma
    }

    /// Fills a slice with independent draws.
    pub fn fill(&self, words: &mut RandomWords, out: &mut [i64]) {
        out.iter_mut().for_each(|y| *y = self.draw(words));
    }

    /// Draws one sample.
    #[inline]
    pub fn draw(&self, words: &mut RandomWords) -> i64 {
        loop {
            let (step, negative) = self.stairs.choose(words);
            if let Some(y) = self.try_step(step, words)
                && !(negative && y == 0)
            {
                return if negative { -(y as i64) } else { y as i64 };
            }
        }
    }

    /// `|y|` uniform within a step, if it is kept.
    #[inline]
    fn try_step(&self, step: usize, words: &mut RandomWords) -> Option<u64> {
        if step >= self.start.len() {
            return self.try_tail(words);
        }
        let (place, decider) = self.stairs.place(words);
        let y = ((step as u64) << self.stairs.width_bits) + place;
        let keep = match self.judge(step, place, decider) {
            Verdict::Keep => true,
            Verdict::Refuse => false,
            Verdict::Unknown => self.judge_exactly(y, self.stairs.heights[step], 0, decider, words),
        };
        keep.then_some(y)
    }

    /// Compares the decider with bounds of the probability of keeping. With f the place as a part of the width,
    /// `y^2 / 2 sigma^2` is that of the step's start plus `d = f (2 step + f) w^2 / (2 sigma^2)`, at most 0.6.
    #[inline]
    fn judge(&self, step: usize, place: u64, decider: u32) -> Verdict {
        let width_bits = self.stairs.width_bits;
        let part = if width_bits >= 24 { place >> (width_bits - 24) } else { place << (24 - width_bits) };
        let part_high = part + 1;
        // In units of 2^-48, below 2^59.
        let factor = part_high * (((2 * step as u64) << 24) + part_high);
        let d_high = scaled(factor, self.quotient.high) + 1;
        let decider = u64::from(decider);
        let keep_below = (self.start[step].low * ((1 << 32) - d_high)) >> 32;
        if decider < keep_below { Verdict::Keep } else { self.judge_closer(step, part, decider, d_high) }
    }

    /// The next terms of the series; reached by a few draws in a hundred.
    #[inline(never)]
    fn judge_closer(&self, step: usize, part: u64, decider: u64, d_high: u64) -> Verdict {
        let d_low = scaled(part * (((2 * step as u64) << 24) + part), self.quotient.low);
        // exp(-d) <= 1 - d + d^2 / 2.
        let square_high = ((d_high * d_high) >> 32) + 1;
        let exp_high = (1 << 32) - d_low + square_high / 2 + 1;
        let refuse_from = ((u128::from(self.start[step].high) * u128::from(exp_high)) >> 32) as u64 + 1;
        if decider >= refuse_from {
            return Verdict::Refuse;
        }
        // exp(-d) >= 1 - d + d^2 / 2 - d^3 / 6.
        let square_low = (d_low * d_low) >> 32;
        let cube_high = ((square_high * d_high) >> 32) + 1;
        let exp_low = ((1 << 32) + square_low / 2).saturating_sub(d_high + cube_high / 6 + 1);
        let keep_below = (self.start[step].low * exp_low) >> 32;
        if decider < keep_below { Verdict::Keep } else { Verdict::Unknown }
    }

    /// Whether `uniform * height < G exp(-y^2 / 2 sigma^2) * 2^raised`, to as many digits as it takes.
    #[cold]
    fn judge_exactly(&self, y: u64, height: u64, raised: u32, decider: u32, words: &mut RandomWords) -> bool {
        let r = Rational { numerator: BigUint::from(y).pow(2), denominator: BigUint::from(self.sigma).pow(2) << 1u32 };
        let uniform = LazyUniform::beginning_with(u64::from(decider), 32);
        let scale = BigUint::from(self.stairs.scale) << raised;
        is_below(uniform, &BigUint::from(height), &scale, |precision| enclose_exp(&r, precision), words)
    }

    /// `|y|` beyond the table, if it is kept.
    #[cold]
    fn try_tail(&self, words: &mut RandomWords) -> Option<u64> {
        let tail = self.stairs.tail(words)?;
        let kept = self.judge_exactly(tail.distance, self.stairs.tail_height(), tail.raised, tail.decider, words);
        kept.then_some(tail.distance)
    }
}

/// `factor * quotient`, from units of 2^-48 and 2^-40 to units of 2^-32, rounded down.
#[inline]
fn scaled(factor: u64, quotient: u64) -> u64 {
    ((u128::from(factor) * u128::from(quotient)) >> 56) as u64
}

/// Bounds of `scale exp(-x^2 / 2) / height` in units of 2^-32, wider than floats can be off.
fn start_bounds(scale: u64, height: u64, x: f64) -> Bounds {
    let ratio = scale as f64 * libm::exp(-0.5 * x * x) / height as f64 * 2.0f64.powi(32);
    let low = (ratio * (1.0 - 2.0f64.powi(-40))) as u64;
    Bounds { low: low.saturating_sub(1), high: ((ratio * (1.0 + 2.0f64.powi(-40))) as u64 + 2).min(1 << 32) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{super::staircase::TAIL_WIDENING, *};
    use crate::rng::{NoiseSource, Purpose, SimulationKey};

    const SIGMAS: [u64; 9] = [32, 33, 63, 64, 1000, 1 << 20, (1 << 33) + 12_345, (1 << 41) - 1, 1 << 57];

    fn words(seed: u64) -> RandomWords {
        NoiseSource::from(SimulationKey::new(seed)).stream(Purpose::Noise, &[]).chunk(0)
    }

    #[test]
    fn every_step_is_chosen_with_exactly_its_height() {
        for sigma in SIGMAS {
            let sampler = DiscreteGaussianSampler::new(sigma).unwrap();
            assert!(sampler.stairs.is_exact(), "sigma {sigma}");
        }
    }

    /// `scale exp(-y^2 / 2 sigma^2) * 2^raised <= height`, by exact bounds.
    fn covers(sampler: &DiscreteGaussianSampler, y: u64, height: u64, raised: u32) -> bool {
        let denominator = BigUint::from(sampler.sigma).pow(2) << 1u32;
        let r = Rational { numerator: BigUint::from(y).pow(2), denominator };
        let (_, high) = enclose_exp(&r, 200);
        (high * sampler.stairs.scale) << raised <= BigUint::from(height) << 200u32
    }

    #[test]
    fn the_staircase_covers_the_curve() {
        for sigma in SIGMAS {
            let sampler = DiscreteGaussianSampler::new(sigma).unwrap();
            let steps = sampler.start.len();
            for step in 0..steps {
                let y = (step as u64) << sampler.stairs.width_bits;
                assert!(covers(&sampler, y, sampler.stairs.heights[step], 0), "sigma {sigma}, step {step}");
            }
            for tail_step in 0..32u32 {
                let wide = sampler.stairs.width_bits + TAIL_WIDENING;
                let Some(y) = (u64::from(tail_step) << wide).checked_add((steps as u64) << sampler.stairs.width_bits)
                else {
                    break;
                };
                let raised = tail_step + TAIL_WIDENING + 1;
                assert!(
                    covers(&sampler, y, sampler.stairs.heights[steps], raised),
                    "sigma {sigma}, tail step {tail_step}"
                );
            }
            // And not by much: at most 4 in 100 draws are refused.
            let area: f64 = libm::sqrt(std::f64::consts::PI / 2.0) * sigma as f64 * sampler.stairs.scale as f64;
            let staircase = 2.0f64.powi(63) * (1u64 << sampler.stairs.width_bits) as f64;
            assert!(area / staircase > 0.96, "sigma {sigma}: {}", area / staircase);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(3000))]

        /// What machine words decide is what exact comparison decides.
        #[test]
        fn quick_verdicts_are_the_exact_ones(
            sigma in prop_oneof![32u64..5000, (5u32..57).prop_flat_map(|b| (1u64 << b)..(1 << (b + 1)))],
            step in any::<prop::sample::Index>(), place in any::<u64>(), near in -40i64..40, random in any::<u32>(),
            close in any::<bool>(),
        ) {
            let sampler = DiscreteGaussianSampler::new(sigma).unwrap();
            let step = step.index(sampler.start.len());
            let place = (place >> 1) >> (63 - sampler.stairs.width_bits);
            let y = ((step as u64) << sampler.stairs.width_bits) + place;
            // Half the cases stand right at the boundary.
            let p = sampler.stairs.scale as f64 / sampler.stairs.heights[step] as f64
                * libm::exp(-0.5 * (y as f64 / sigma as f64) * (y as f64 / sigma as f64));
            let boundary = (p * 2.0f64.powi(32)) as i64 + near;
            let decider = if close { boundary.clamp(0, u32::MAX.into()) as u32 } else { random };
            let exact = sampler.judge_exactly(y, sampler.stairs.heights[step], 0, decider, &mut words(1));
            match sampler.judge(step, place, decider) {
                Verdict::Keep => prop_assert!(exact),
                Verdict::Refuse => prop_assert!(!exact),
                Verdict::Unknown => {
                    // The series ends with d^3 / 6, which is large only where steps are steep, beyond 9 sigma.
                    let start = ((step as u64) << sampler.stairs.width_bits) as f64 / sigma as f64;
                    let d = 0.5 * ((y as f64 / sigma as f64).powi(2) - start.powi(2));
                    let undecided = (1 << 21) + (d.powi(3) / 6.0 * 2.0f64.powi(32)) as i64;
                    prop_assert!((i64::from(decider) - boundary + near).abs() < undecided);
                }
            }
        }
    }

    #[test]
    fn few_draws_need_the_exact_comparison() {
        let sampler = DiscreteGaussianSampler::new(1 << 20).unwrap();
        let mut random = words(3);
        let unknown = (0..200_000)
            .filter(|_| {
                let word = random.next_word();
                // Steps up to 3 sigma, where nearly all draws are.
                let step = (word >> 32) as usize % (3 * 32);
                sampler.judge(step, word & 0x7fff, word as u32) == Verdict::Unknown
            })
            .count();
        assert!(unknown < 40, "{unknown} of 200,000");
    }

    #[test]
    fn the_tail_is_drawn_beyond_the_table_and_falls_off() {
        let sampler = DiscreteGaussianSampler::new(1000).unwrap();
        let mut random = words(4);
        let kept: Vec<u64> = (0..4000).filter_map(|_| sampler.try_tail(&mut random)).collect();
        let base = (sampler.start.len() as u64) << sampler.stairs.width_bits;
        assert!(kept.len() > 20 && kept.iter().all(|y| (base..base + 3000).contains(y)), "{kept:?}");
        // Given y >= base, the mean excess of a normal at 9.5 sigma is about sigma / 9.7.
        let excess = kept.iter().map(|y| (y - base) as f64).sum::<f64>() / kept.len() as f64;
        assert!((60.0..150.0).contains(&excess), "{excess}");
    }

    #[test]
    fn sigmas_out_of_range_are_refused() {
        for got in [0, 31, (1 << 57) + 1, u64::MAX] {
            assert_eq!(DiscreteGaussianSampler::new(got).unwrap_err(), SigmaError { got });
        }
    }
}
