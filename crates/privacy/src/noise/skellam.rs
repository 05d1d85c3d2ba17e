//! Skellam noise, exactly: the difference of two independent Poisson draws of mean `variance / 2`.
//!
//! Agarwal, Kairouz and Liu 2021 (arXiv:2110.04995) add it under secure aggregation, since a sum of Skellam draws is
//! Skellam again, with the sum of the variances; rule P3 says how it is accounted for. Poisson(lambda), for integer
//! lambda, comes from one exact rejection step, like the discrete Gaussian:
//!
//! 1. `p(lambda - 1) = p(lambda)`, and both sides fall from there, the left one faster: so one staircase over the distance
//!    from the top covers the right side and with it the left one; a fair coin says which (`staircase`). Steps are
//!    between sigma/64 and sigma/32 wide, with `sigma = sqrt(lambda)`.
//! 2. The distance is uniform within the step.
//! 3. It is kept with probability `G p(k) / p(lambda) / height`. The first 32 bits of the uniform that decides are compared
//!    with a lower bound for the whole step, and if that does not tell with bounds of the value itself, computed in
//!    floating point and widened by 2^-36, 16 times more than they can be off (`poisson_ratio` says why). The one draw in
//!    some billions that is left is decided by integer arithmetic of growing precision.
//!
//! So no draw is decided by a rounding error. The one departure from the law: proposals of 2^62 and more are refused,
//! which is beyond 2^32 standard deviations.

use num_bigint::BigUint;
use thiserror::Error;

use super::{
    exponential::{LazyUniform, is_below},
    poisson_ratio::{Side, approximate, enclose},
    staircase::{Staircase, TABLE_REACH},
};
use crate::rng::RandomWords;

/// The least variance: that of the least discrete Gaussian.
pub(crate) const LEAST_VARIANCE: u64 = 32 * 32;
/// The most: distances from the top stay far below what machine words and floats hold.
pub(crate) const MOST_VARIANCE: u64 = 1 << 60;
/// Bounds from floats are widened by this part of them.
const MARGIN: f64 = 1.0 / (1u64 << 36) as f64;

/// A variance that the sampler does not take.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("the variance must be an even integer from 1024 to 2^60 squared grid steps, got {got}")]
pub struct VarianceError {
    /// The refused value.
    pub got: u64,
}

/// Refuses a variance that is odd, below 1024 or above 2^60.
pub(crate) fn check_variance(variance: u64) -> Result<(), VarianceError> {
    if !(LEAST_VARIANCE..=MOST_VARIANCE).contains(&variance) || variance % 2 == 1 {
        return Err(VarianceError { got: variance });
    }
    Ok(())
}

/// Draws from the Skellam law of one variance.
#[derive(Debug, Clone)]
pub struct SkellamSampler {
    poisson: CentredPoisson,
}

impl SkellamSampler {
    /// A sampler for this variance.
    ///
    /// # Errors
    /// When the variance is odd, below 1024 or above 2^60.
    pub fn new(variance: u64) -> Result<Self, VarianceError> {
        check_variance(variance)?;
        Ok(Self { poisson: CentredPoisson::new(variance / 2) })
    }

    /// The variance.
    #[must_use]
    pub const fn variance(&self) -> u64 {
        2 * self.poisson.lambda
    }

    /// Fills a slice with independent draws.
    pub fn fill(&self, words: &mut RandomWords, out: &mut [i64]) {
        out.iter_mut().for_each(|y| *y = self.draw(words));
    }

    /// Draws one sample.
    #[inline]
    pub fn draw(&self, words: &mut RandomWords) -> i64 {
        // Both lie within 2^62 of 0.
        self.poisson.draw(words) - self.poisson.draw(words)
    }
}

/// What machine words can say of a draw.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Keep,
    Refuse,
    Unknown,
}

/// Draws from Poisson(lambda), less lambda.
#[derive(Debug, Clone)]
struct CentredPoisson {
    lambda: u64,
    stairs: Staircase,
    /// For each step, right and left: a decision below this, in units of 2^-32, accepts any place of the step.
    keep_below: Vec<[u32; 2]>,
}

impl CentredPoisson {
    /// lambda is from 512 to 2^59.
    fn new(lambda: u64) -> Self {
        let width_bits = lambda.isqrt().ilog2().saturating_sub(5);
        let sigma = libm::sqrt(lambda as f64);
        let steps = libm::ceil(TABLE_REACH * sigma / (1u64 << width_bits) as f64) as usize;
        let start = |i: usize| (i as u64) << width_bits;
        let stairs = Staircase::over(width_bits, steps, |i| approximate(lambda, Side::Right, start(i)));
        let mut poisson = Self { lambda, stairs, keep_below: Vec::new() };
        let least = |side, i| poisson.bounds(side, i, start(i + 1) - 1).0.min(u32::MAX.into()) as u32;
        poisson.keep_below = (0..steps).map(|i| [least(Side::Right, i), least(Side::Left, i)]).collect();
        poisson
    }

    #[inline]
    fn draw(&self, words: &mut RandomWords) -> i64 {
        loop {
            let (step, left) = self.stairs.choose(words);
            let side = if left { Side::Left } else { Side::Right };
            if let Some(distance) = self.try_step(step, side, words) {
                return side.offset(distance);
            }
        }
    }

    /// A distance from the top, uniform within a step, if it is kept.
    #[inline]
    fn try_step(&self, step: usize, side: Side, words: &mut RandomWords) -> Option<u64> {
        let Some(keep_below) = self.keep_below.get(step) else { return self.try_tail(side, words) };
        let (place, decider) = self.stairs.place(words);
        let distance = ((step as u64) << self.stairs.width_bits) + place;
        if decider < keep_below[usize::from(side == Side::Left)] || self.keeps(step, side, distance, decider, words) {
            Some(distance)
        } else {
            None
        }
    }

    /// What the bound for the whole step leaves open: a few draws in a hundred.
    #[inline(never)]
    fn keeps(&self, step: usize, side: Side, distance: u64, decider: u32, words: &mut RandomWords) -> bool {
        match self.judge(step, side, distance, decider) {
            Verdict::Keep => true,
            Verdict::Refuse => false,
            Verdict::Unknown => self.judge_exactly(side, distance, self.stairs.heights[step], 0, decider, words),
        }
    }

    fn judge(&self, step: usize, side: Side, distance: u64, decider: u32) -> Verdict {
        let (low, high) = self.bounds(side, step, distance);
        // The uniform lies in [decider, decider + 1).
        match u64::from(decider) {
            decider if decider < low => Verdict::Keep,
            decider if decider >= high => Verdict::Refuse,
            _ => Verdict::Unknown,
        }
    }

    /// Integers that enclose the probability of keeping, in units of 2^-32.
    fn bounds(&self, side: Side, step: usize, distance: u64) -> (u64, u64) {
        let part = self.stairs.scale as f64 / self.stairs.heights[step] as f64;
        let value = approximate(self.lambda, side, distance) * part * 2.0f64.powi(32);
        ((value * (1.0 - MARGIN)) as u64, (value * (1.0 + MARGIN)) as u64 + 1)
    }

    /// Whether `uniform * height < G p(k) / p(lambda) * 2^raised`, to as many digits as it takes.
    #[cold]
    fn judge_exactly(
        &self,
        side: Side,
        distance: u64,
        height: u64,
        raised: u32,
        decider: u32,
        words: &mut RandomWords,
    ) -> bool {
        let uniform = LazyUniform::beginning_with(u64::from(decider), 32);
        let scale = BigUint::from(self.stairs.scale) << raised;
        let ratio = |precision| enclose(self.lambda, side, distance, precision);
        is_below(uniform, &BigUint::from(height), &scale, ratio, words)
    }

    /// A distance beyond the table, if it is kept. Its steps are at least sigma/4 wide and lie beyond 9.5 sigma, where the
    /// right side falls by `(1 + 9.5 / sigma)^(-sigma / 4) < 1/7` over each, more than the half that they are proposed by.
    #[cold]
    fn try_tail(&self, side: Side, words: &mut RandomWords) -> Option<u64> {
        let tail = self.stairs.tail(words)?;
        let height = self.stairs.tail_height();
        self.judge_exactly(side, tail.distance, height, tail.raised, tail.decider, words).then_some(tail.distance)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{super::staircase::TAIL_WIDENING, *};
    use crate::rng::{NoiseSource, Purpose, SimulationKey};

    const LAMBDAS: [u64; 9] =
        [512, 513, 1023, 1024, 5000, 1 << 20, (1 << 33) + 12_345, (1 << 35) + 1, MOST_VARIANCE / 2];

    fn words(seed: u64) -> RandomWords {
        NoiseSource::from(SimulationKey::new(seed)).stream(Purpose::Noise, &[]).chunk(0)
    }

    #[test]
    fn every_step_is_chosen_with_exactly_its_height() {
        for lambda in LAMBDAS {
            assert!(CentredPoisson::new(lambda).stairs.is_exact(), "lambda {lambda}");
        }
    }

    /// `scale p(lambda + distance) / p(lambda) * 2^raised <= height`, by exact bounds.
    fn covers(poisson: &CentredPoisson, distance: u64, height: u64, raised: u32) -> bool {
        let (_, high) = enclose(poisson.lambda, Side::Right, distance, 200);
        (high * poisson.stairs.scale) << raised <= BigUint::from(height) << 200u32
    }

    #[test]
    fn every_step_covers_the_curve_and_not_by_much() {
        for lambda in LAMBDAS {
            let poisson = CentredPoisson::new(lambda);
            let Staircase { width_bits, scale, heights, .. } = &poisson.stairs;
            let steps = poisson.stairs.steps();
            for (step, height) in heights[..steps].iter().enumerate() {
                assert!(covers(&poisson, (step as u64) << width_bits, *height, 0), "lambda {lambda}, step {step}");
            }
            for tail_step in 0..16u32 {
                let distance = ((steps as u64) << width_bits) + (u64::from(tail_step) << (width_bits + TAIL_WIDENING));
                let raised = tail_step + TAIL_WIDENING + 1;
                assert!(covers(&poisson, distance, heights[steps], raised), "lambda {lambda}, tail step {tail_step}");
            }
            // Of a curve of area sqrt(2 pi lambda) on both sides.
            let area = libm::sqrt(std::f64::consts::TAU * lambda as f64) * *scale as f64;
            let kept = area / (2.0f64.powi(64) * (1u64 << width_bits) as f64);
            assert!(kept > 0.94 && kept < 1.0, "lambda {lambda}: {kept}");
        }
    }

    /// The left side lies below the right one, so what covers the right one covers both.
    #[test]
    fn the_left_side_falls_faster() {
        for lambda in LAMBDAS {
            for distance in [1, lambda.isqrt(), 9 * lambda.isqrt()] {
                let right = enclose(lambda, Side::Right, distance, 300).0;
                assert!(enclose(lambda, Side::Left, distance, 300).1 < right, "lambda {lambda} at {distance}");
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1500))]

        /// What machine words decide is what exact comparison decides.
        #[test]
        fn quick_verdicts_are_the_exact_ones(
            lambda in prop_oneof![512u64..5000, (9u32..58).prop_flat_map(|b| (1u64 << b)..(1 << (b + 1)))],
            step in any::<prop::sample::Index>(), place in any::<u64>(), near in -3i64..=3, random in any::<u32>(),
            close in 0u8..4, left in any::<bool>(),
        ) {
            let poisson = CentredPoisson::new(lambda);
            let step = step.index(poisson.stairs.steps());
            let side = if left { Side::Left } else { Side::Right };
            let place = (place >> 1) >> (63 - poisson.stairs.width_bits);
            let distance = ((step as u64) << poisson.stairs.width_bits) + place;
            // Three in four cases stand right at a boundary: of the draw, or of its step.
            let boundary = poisson.bounds(side, step, distance).0;
            let whole_step = poisson.keep_below[step][usize::from(left)];
            let decider = match close {
                0 => i64::from(random),
                1 => i64::from(whole_step) + near,
                _ => boundary as i64 + near,
            };
            let decider = decider.clamp(0, u32::MAX.into()) as u32;
            let exact =
                poisson.judge_exactly(side, distance, poisson.stairs.heights[step], 0, decider, &mut words(1));
            match poisson.judge(step, side, distance, decider) {
                Verdict::Keep => prop_assert!(exact),
                Verdict::Refuse => prop_assert!(!exact),
                Verdict::Unknown => prop_assert!(u64::from(decider).abs_diff(boundary) <= 1),
            }
            prop_assert!(decider >= whole_step || exact, "kept by its step, not by itself");
        }
    }

    /// The chance that machine words cannot tell is 2^-32 or two of them, however the table falls.
    #[test]
    fn hardly_a_draw_needs_the_exact_comparison() {
        for lambda in LAMBDAS {
            let poisson = CentredPoisson::new(lambda);
            for step in 0..poisson.stairs.steps() {
                let (low, high) = poisson.bounds(Side::Right, step, (step as u64) << poisson.stairs.width_bits);
                assert!((1..=2).contains(&(high - low)), "lambda {lambda}, step {step}: {low} to {high}");
            }
        }
    }

    #[test]
    fn the_tail_is_drawn_beyond_the_table_and_falls_off() {
        let poisson = CentredPoisson::new(1_000_000);
        let base = (poisson.stairs.steps() as u64) << poisson.stairs.width_bits;
        for side in [Side::Right, Side::Left] {
            let mut random = words(4);
            let kept: Vec<u64> = (0..6000).filter_map(|_| poisson.try_tail(side, &mut random)).collect();
            assert!(kept.len() > 20 && kept.iter().all(|y| (base..base + 3000).contains(y)), "{kept:?}");
            // Given y >= base, the mean excess of a normal at 9.5 sigma is about sigma / 9.7.
            let excess = kept.iter().map(|y| (y - base) as f64).sum::<f64>() / kept.len() as f64;
            assert!((60.0..150.0).contains(&excess), "{side:?}: {excess}");
        }
    }

    /// Chi-square of Poisson draws against the probabilities themselves, point by point.
    #[test]
    fn poisson_draws_are_as_frequent_as_their_probabilities() {
        let (lambda, draws) = (600u64, 400_000);
        let poisson = CentredPoisson::new(lambda);
        let mut random = words(5);
        let reach = 70i64;
        let mut seen = vec![0.0; 2 * reach as usize + 1];
        let mut outside = 0.0;
        for _ in 0..draws {
            let y = poisson.draw(&mut random);
            if y.abs() <= reach { seen[(y + reach) as usize] += 1.0 } else { outside += 1.0 }
        }
        let p = |y: i64| {
            let (l, k) = (lambda as f64, (lambda as i64 + y) as f64);
            libm::exp(k * libm::log(l) - l - libm::lgamma(k + 1.0))
        };
        let expected: Vec<f64> = (-reach..=reach).map(|y| f64::from(draws) * p(y)).collect();
        let rest = f64::from(draws) - expected.iter().sum::<f64>();
        let cells = seen.iter().zip(&expected).chain([(&outside, &rest)]);
        let chi_square: f64 = cells.map(|(s, e)| (s - e) * (s - e) / e).sum();
        let freedom = expected.len() as f64;
        let deviation = (chi_square - freedom) / libm::sqrt(2.0 * freedom);
        assert!(deviation.abs() < 4.5, "{deviation} standard deviations (alpha about 1e-4)");
    }

    #[test]
    fn variances_out_of_range_are_refused() {
        for got in [0, 1022, 1023, 1025, (1 << 60) + 2, u64::MAX] {
            assert_eq!(SkellamSampler::new(got).unwrap_err(), VarianceError { got });
        }
        assert_eq!(SkellamSampler::new(1 << 60).unwrap().variance(), 1 << 60);
        let message = VarianceError { got: 7 }.to_string();
        assert!(message.contains("1024") && message.ends_with("got 7"), "{message}");
    }
}
