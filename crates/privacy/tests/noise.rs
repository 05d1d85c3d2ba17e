//! The noise samplers under statistical test: each must pass at its own law and must fail at 2/3 and 3/2 of its sigma.
//!
//! Seeds are fixed, so a test passes always or never. Each comparison errs with probability [`ALPHA`] a side if the draws
//! are what they should be; there are fewer than 500 of them. What is said of draws here is what rules P3 and P13 need of
//! them; `p3_...` shows the reduction that the accountants use.

use std::f64::consts::{PI, TAU};

use keyhush_privacy::{
    event::DiscreteGaussian,
    noise::{DiscreteGaussianSampler, SimulatedGaussian, SkellamSampler},
    rng::{NoiseSource, Purpose, RandomWords, SimulationKey},
};
use num_bigint::BigUint;

/// The chance of a false alarm of one comparison, to either side.
const ALPHA: f64 = 1e-6;
/// The normal quantile of `1 - ALPHA`; a test says that it is.
const Z: f64 = 4.753_424_308_822_9;
/// Draws of a test that always runs.
const DRAWS: usize = 200_000;
/// Draws of a test that runs with `cargo xtask test --long`.
const MANY_DRAWS: usize = 10_000_000;

fn words(seed: u64, position: &[u64], chunk: u64) -> RandomWords {
    NoiseSource::from(SimulationKey::new(seed)).stream(Purpose::Noise, position).chunk(chunk)
}

/// What is drawn.
#[derive(Debug, Clone, Copy)]
enum Sampler {
    DiscreteGaussian { sigma: u64 },
    Skellam { variance: u64 },
    SimulatedGaussian { sigma: u64 },
}

const SAMPLERS: [Sampler; 8] = [
    Sampler::DiscreteGaussian { sigma: 32 },
    Sampler::DiscreteGaussian { sigma: 1 << 10 },
    Sampler::DiscreteGaussian { sigma: 1 << 20 },
    Sampler::DiscreteGaussian { sigma: 1 << 40 },
    Sampler::Skellam { variance: 1 << 10 },
    Sampler::Skellam { variance: (1 << 36) + 2 },
    Sampler::SimulatedGaussian { sigma: 32 },
    Sampler::SimulatedGaussian { sigma: 1 << 20 },
];

impl Sampler {
    fn draw(self, words: &mut RandomWords, count: usize) -> Vec<i64> {
        let mut out = vec![0; count];
        match self {
            Self::DiscreteGaussian { sigma } => {
                DiscreteGaussianSampler::new(sigma).expect("legal").fill(words, &mut out)
            }
            Self::Skellam { variance } => SkellamSampler::new(variance).expect("legal").fill(words, &mut out),
            Self::SimulatedGaussian { sigma } => SimulatedGaussian::new(sigma).fill(words, &mut out),
        }
        out
    }

    fn law(self) -> Law {
        match self {
            Self::DiscreteGaussian { sigma } => Law::discrete_gaussian(sigma as f64),
            Self::Skellam { variance } => Law::skellam(variance as f64),
            // Rounding adds the variance of a uniform.
            Self::SimulatedGaussian { sigma } => Law::rounded(sigma as f64),
        }
    }
}

/// A law over the integers: its variance, its fourth moment in units of the squared variance, and its distribution function.
struct Law {
    variance: f64,
    kurtosis: f64,
    /// P(y <= a).
    below: Box<dyn Fn(i64) -> f64>,
}

/// Laws that are this narrow are summed point by point.
const NARROW: f64 = 5000.0;

impl Law {
    fn discrete_gaussian(sigma: f64) -> Self {
        let weight = move |y: i64| libm::exp(-0.5 * (y as f64 / sigma) * (y as f64 / sigma));
        if sigma < NARROW { Self::of_weights(12.0 * sigma, weight) } else { Self::rounded(sigma) }
    }

    /// The sum of Poisson products; for a large variance the normal, since the excess is 1 / variance.
    fn skellam(variance: f64) -> Self {
        let lambda = variance / 2.0;
        if libm::sqrt(variance) > 200.0 {
            return Self::rounded(libm::sqrt(variance));
        }
        let reach = (12.0 * libm::sqrt(variance)) as i64;
        let p = |k: i64| libm::exp(k as f64 * libm::log(lambda) - lambda - libm::lgamma(k as f64 + 1.0));
        let around = (lambda as i64 - reach).max(0)..lambda as i64 + reach;
        let poisson: Vec<f64> = around.map(p).collect();
        let at = move |n: i64| {
            let shifted = poisson.iter().skip(n.unsigned_abs() as usize);
            poisson.iter().zip(shifted).map(|(a, b)| a * b).sum()
        };
        Self::of_weights(9.0 * libm::sqrt(variance), at)
    }

    /// A normal, rounded to integers.
    fn rounded(sigma: f64) -> Self {
        let below = Box::new(move |a: i64| 0.5 * libm::erfc(-(a as f64 + 0.5) / sigma / 2.0f64.sqrt()));
        Self { variance: sigma * sigma + 1.0 / 12.0, kurtosis: 3.0, below }
    }

    fn of_weights(reach: f64, weight: impl Fn(i64) -> f64) -> Self {
        let reach = reach as i64;
        let weights: Vec<f64> = (-reach..=reach).map(weight).collect();
        let total: f64 = weights.iter().sum();
        let moment =
            |power: i32| (-reach..=reach).zip(&weights).map(|(y, w)| (y as f64).powi(power) * w).sum::<f64>() / total;
        let (variance, fourth) = (moment(2), moment(4));
        let sums = weights.iter().scan(0.0, |sum, w| {
            *sum += w / total;
            Some(*sum)
        });
        let sums: Vec<f64> = sums.collect();
        let below = Box::new(move |a: i64| match usize::try_from(a + reach) {
            Ok(i) => sums.get(i).copied().unwrap_or(1.0),
            Err(_) => 0.0,
        });
        Self { variance, kurtosis: fourth / (variance * variance), below }
    }
}

/// How far draws are from a law, in standard deviations.
#[derive(Debug, Clone, Copy)]
struct Deviations {
    /// Of the counts in 62 cells: below -3 sigma, steps of a tenth of sigma, above 3 sigma.
    chi_square: f64,
    mean: f64,
    variance: f64,
}

impl Deviations {
    fn of(draws: &[i64], law: &Law) -> Self {
        let (n, sigma) = (draws.len() as f64, libm::sqrt(law.variance));
        let mean = draws.iter().map(|y| *y as f64).sum::<f64>() / n;
        let variance = draws.iter().map(|y| *y as f64 * *y as f64).sum::<f64>() / n;
        Self {
            chi_square: chi_square(draws, law),
            mean: mean / sigma * libm::sqrt(n),
            variance: (variance / law.variance - 1.0) * libm::sqrt(n / (law.kurtosis - 1.0)),
        }
    }

    fn are_small(self) -> bool {
        [self.chi_square, self.mean, self.variance].iter().all(|d| d.abs() < Z)
    }
}

/// Pearson's statistic as a normal one (Wilson and Hilferty 1931), over cells that expect at least 50 draws.
fn chi_square(draws: &[i64], law: &Law) -> f64 {
    let sigma = libm::sqrt(law.variance);
    let edges: Vec<i64> = (-30..=30).map(|i| (f64::from(i) / 10.0 * sigma).round() as i64).collect();
    let mut seen = vec![0.0; edges.len() + 1];
    draws.iter().for_each(|y| seen[edges.partition_point(|edge| edge < y)] += 1.0);
    let sums: Vec<f64> = edges.iter().map(|e| (law.below)(*e)).chain([1.0]).collect();
    let expected =
        sums.iter().scan(0.0, |before, sum| Some((sum - std::mem::replace(before, *sum)) * draws.len() as f64));
    let statistic: f64 = seen
        .iter()
        .zip(expected)
        .map(|(s, e)| {
            assert!(e >= 50.0, "a cell expects {e} draws");
            (s - e) * (s - e) / e
        })
        .sum();
    let freedom = edges.len() as f64;
    let spread = 2.0 / (9.0 * freedom);
    (libm::cbrt(statistic / freedom) - (1.0 - spread)) / libm::sqrt(spread)
}

#[test]
fn the_quantile_is_that_of_alpha() {
    assert!((0.5 * libm::erfc(Z / 2.0f64.sqrt()) / ALPHA - 1.0).abs() < 1e-6);
}

/// Passes at the law, fails at laws of 3/2 and 2/3 of its sigma (so that the draws have 2/3 and 3/2 of theirs), and fails
/// when shifted.
fn accept_and_reject(sampler: Sampler, count: usize, seed: u64) {
    let draws = sampler.draw(&mut words(seed, &[], 0), count);
    let at_law = Deviations::of(&draws, &sampler.law());
    assert!(at_law.are_small(), "{sampler:?}: {at_law:?} standard deviations, alpha {ALPHA} each");

    let sigma = libm::sqrt(sampler.law().variance);
    for factor in [1.5, 2.0 / 3.0] {
        let wrong = match sampler {
            Sampler::DiscreteGaussian { .. } => Law::discrete_gaussian(sigma * factor),
            Sampler::Skellam { .. } => Law::skellam(sigma * sigma * factor * factor),
            Sampler::SimulatedGaussian { .. } => Law::rounded(sigma * factor),
        };
        let at_wrong = Deviations::of(&draws, &wrong);
        assert!(at_wrong.chi_square > Z && at_wrong.variance.abs() > Z, "{sampler:?} / {factor}: {at_wrong:?}");
    }

    let shift = (sigma / 20.0) as i64;
    let shifted: Vec<i64> = draws.iter().map(|y| y + shift).collect();
    let at_shifted = Deviations::of(&shifted, &sampler.law());
    assert!(at_shifted.chi_square > Z && at_shifted.mean > Z, "{sampler:?} + {shift}: {at_shifted:?}");
}

#[test]
fn samplers_pass_at_their_law_and_fail_at_others() {
    for (sampler, seed) in SAMPLERS.into_iter().zip(100..) {
        accept_and_reject(sampler, DRAWS, seed);
    }
}

#[test]
#[ignore = "10^7 draws of each sampler"]
fn samplers_pass_at_their_law_and_fail_at_others_over_many_draws() {
    for (sampler, seed) in SAMPLERS.into_iter().zip(200..) {
        accept_and_reject(sampler, MANY_DRAWS, seed);
    }
}

/// n independent pairs correlate by 0, give or take 1 / sqrt(n): in standard deviations.
fn correlation(pairs: impl Iterator<Item = (f64, f64)>) -> f64 {
    let (mut n, mut x, mut y, mut xx, mut yy, mut xy) = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0);
    for (a, b) in pairs {
        (n, x, y, xx, yy, xy) = (n + 1.0, x + a, y + b, xx + a * a, yy + b * b, xy + a * b);
    }
    let covariance = xy / n - x / n * (y / n);
    let spread = libm::sqrt((xx / n - (x / n) * (x / n)) * (yy / n - (y / n) * (y / n)));
    covariance / spread * libm::sqrt(n)
}

#[test]
fn draws_do_not_depend_on_the_draw_before() {
    for (sampler, seed) in SAMPLERS.into_iter().zip(300..) {
        let draws: Vec<f64> = sampler.draw(&mut words(seed, &[], 0), DRAWS).iter().map(|y| *y as f64).collect();
        for lag in [1, 2, 64] {
            let pairs = || draws.iter().copied().zip(draws.iter().copied().skip(lag));
            let linear = correlation(pairs());
            let sizes = correlation(pairs().map(|(a, b)| (a.abs(), b.abs())));
            assert!(linear.abs() < Z && sizes.abs() < Z, "{sampler:?}, lag {lag}: {linear}, {sizes} (alpha {ALPHA})");
        }
        // The test has teeth: a draw that leans on the one before by a fiftieth is found out.
        let leaning = draws.windows(3).map(|w| (w[1] + w[0] / 50.0, w[2] + w[1] / 50.0));
        assert!(correlation(leaning) > Z, "{sampler:?}");
    }
}

#[test]
fn signs_are_fair() {
    for (sampler, seed) in SAMPLERS.into_iter().zip(400..) {
        let draws = sampler.draw(&mut words(seed, &[], 0), DRAWS);
        let (positive, negative) = draws.iter().fold((0.0, 0.0), |(p, n), y| match y.signum() {
            1 => (p + 1.0, n),
            -1 => (p, n + 1.0),
            _ => (p, n),
        });
        let deviation: f64 = (positive - negative) / libm::sqrt(positive + negative);
        assert!(deviation.abs() < Z, "{sampler:?}: {deviation} (alpha {ALPHA})");
    }
}

/// 0 has one sign: a sampler that flips a coin for it draws it twice as often.
#[test]
fn zero_is_drawn_as_often_as_it_should_be() {
    for (sampler, seed) in [SAMPLERS[0], SAMPLERS[4], SAMPLERS[6]].into_iter().zip(500..) {
        let draws = sampler.draw(&mut words(seed, &[], 0), 4 * DRAWS);
        let law = sampler.law();
        let p = |y: i64| (law.below)(y) - (law.below)(y - 1);
        let count = |y: i64| draws.iter().filter(|d| **d == y).count() as f64;
        let (zeros, ones) = (count(0), count(1) + count(-1));
        let expected = ones / 2.0 * p(0) / p(1);
        let deviation = (zeros - expected) / libm::sqrt(zeros + expected / 2.0);
        assert!(deviation.abs() < Z, "{sampler:?}: {zeros} zeros for {expected} (alpha {ALPHA})");
        assert!((2.0 * zeros - expected) / libm::sqrt(2.0 * zeros + expected / 2.0) > Z, "no teeth");
    }
}

/// Chunks, positions, purposes and seeds have streams of their own.
#[test]
fn p13_streams_of_different_names_are_not_correlated() {
    for sampler in SAMPLERS {
        let named = |seed, position: &[u64], chunk| sampler.draw(&mut words(seed, position, chunk), DRAWS / 4);
        let here = named(600, &[1, 2], 3);
        let elsewhere = [named(600, &[1, 2], 4), named(600, &[2, 1], 3), named(600, &[1], 3), named(601, &[1, 2], 3)];
        for (i, other) in elsewhere.iter().enumerate() {
            let pairs = here.iter().zip(other).map(|(a, b)| (*a as f64, *b as f64));
            let deviation = correlation(pairs);
            assert!(deviation.abs() < Z, "{sampler:?}, stream {i}: {deviation} (alpha {ALPHA})");
        }
        assert_eq!(here, named(600, &[1, 2], 3), "the same name draws the same");
    }
}

/// What participants add under secure aggregation adds up to Skellam noise of the sum of their variances.
#[test]
fn sums_of_skellam_draws_are_skellam() {
    let parts: [u64; 3] = [1024, 1500, 1572];
    let mut sums = vec![0; DRAWS];
    for (variance, chunk) in parts.into_iter().zip(0..) {
        let draws = Sampler::Skellam { variance }.draw(&mut words(700, &[], chunk), DRAWS);
        sums.iter_mut().zip(draws).for_each(|(s, y)| *s += y);
    }
    let deviations = Deviations::of(&sums, &Law::skellam(parts.iter().sum::<u64>() as f64));
    assert!(deviations.are_small(), "{deviations:?} (alpha {ALPHA} each)");
}

/// Fractional bits of the fixed-point numbers below: 150 digits.
const FIXED: u32 = 500;

/// `exp(-1 / 288)` in units of 2^-500, by its series, every term rounded down.
fn exp_of_minus_one_288th() -> BigUint {
    let mut term = BigUint::from(1u32) << FIXED;
    let (mut plus, mut minus) = (term.clone(), BigUint::ZERO);
    for n in 1u32.. {
        term /= 288 * n;
        if term == BigUint::ZERO {
            break;
        }
        *(if n % 2 == 0 { &mut plus } else { &mut minus }) += &term;
    }
    plus - minus
}

/// `sum over m of exp(-(m - quarters / 4)^2 / 18)` in units of 2^-500, to within 2^-450.
fn rounding_normaliser(quarters: i64) -> BigUint {
    let base = exp_of_minus_one_288th();
    // Terms beyond m = 80 are below exp(-350) = 2^-505.
    let power = |exponent: u64| {
        let mut result = BigUint::from(1u32) << FIXED;
        for bit in (0..64 - exponent.leading_zeros()).rev() {
            result = (&result * &result) >> FIXED;
            if exponent >> bit & 1 == 1 {
                result = (&result * &base) >> FIXED;
            }
        }
        result
    };
    (-80..=80i64).map(|m| power((4 * m - quarters).unsigned_abs().pow(2))).sum()
}

/// `value * 10^digits`, rounded down, of a ratio.
fn decimal(numerator: &BigUint, denominator: &BigUint, digits: u32) -> f64 {
    let scaled = numerator * BigUint::from(10u32).pow(digits) / denominator;
    u64::try_from(scaled).expect("fewer than 20 digits") as f64
}

/// Rounding a real w to m with probability proportional to `exp(-(m - w)^2 / 18)` has a normaliser that depends on w. By
/// Poisson summation it is `3 sqrt(2 pi) (1 + 2 sum over k >= 1 of exp(-18 pi^2 k^2) cos(2 pi k w))`: least at 1/2, most at
/// 0, and never further than 1.5e-77 of it from `3 sqrt(2 pi)`. Here that is checked to 130 digits.
#[test]
fn p3_the_normaliser_of_the_rounding_is_constant_within_1e_76() {
    let bound = 2.0 * libm::exp(-18.0 * PI * PI) * (1.0 + 1e-12);
    assert!(bound < 1.5e-77, "{bound:e}");

    let [at_0, at_quarter, at_half] = [0, 1, 2].map(rounding_normaliser);
    // At 1/4 the first cosine is 0: the mean, up to exp(-72 pi^2) = 1e-308.
    assert!(at_half < at_quarter && at_quarter < at_0);
    for (above, below) in [(&at_0, &at_quarter), (&at_quarter, &at_half)] {
        let part = decimal(&(above - below), &at_quarter, 90) * 1e-90;
        assert!((part / bound - 1.0).abs() < 1e-9, "{part:e} is not {bound:e}");
    }
    let scale = decimal(&at_quarter, &(BigUint::from(1u32) << FIXED), 15) * 1e-15;
    assert!((scale / (3.0 * libm::sqrt(TAU)) - 1.0).abs() < 1e-14, "{scale}");
    // What rule P3 says: between the largest and the smallest there is less than a part in 10^76.
    assert!((&at_0 - &at_half) * BigUint::from(10u32).pow(76) < at_half);
}

/// `N(f, sigma^2 - 9)`, rounded so, is `f` plus a discrete Gaussian of parameter sigma, for every integer f: the integral
/// over w of the normal density times the chance that w is rounded to m, against the law itself.
#[test]
fn p3_the_rounded_normal_is_the_discrete_gaussian() {
    let sigma = 32.0f64;
    let rest = DiscreteGaussian::new(sigma, 1.0).unwrap().multiplier().get();
    assert!((rest * rest - (sigma * sigma - 9.0)).abs() < 1e-9, "what the accountants take");
    let gauss = |x: f64, s: f64| libm::exp(-0.5 * (x / s) * (x / s));
    let normaliser: f64 = (-400..=400).map(|y| gauss(f64::from(y), sigma)).sum();
    // The trapezoidal rule is exact to exp(-2 pi^2 s^2 / h^2) for a normal of deviation s, here of at least 2.98.
    let h = 0.5;
    for f in [0i32, 1, -3, 17, 250] {
        for m in (f - 200..=f + 200).step_by(7) {
            let chance = |w: f64| {
                let nearby = (w.round() as i32 - 40..=w.round() as i32 + 40).map(|k| gauss(f64::from(k) - w, 3.0));
                gauss(f64::from(m) - w, 3.0) / nearby.sum::<f64>()
            };
            let density = |w: f64| gauss(w - f64::from(f), rest) / (rest * libm::sqrt(TAU));
            let places = (-80..=80).map(|i| f64::from(m) + h * f64::from(i));
            let rounded: f64 = places.map(|w| h * density(w) * chance(w)).sum();
            let exact = gauss(f64::from(m - f), sigma) / normaliser;
            assert!((rounded / exact - 1.0).abs() < 1e-11, "f {f}, m {m}: {rounded:e}, not {exact:e}");
        }
    }
}
