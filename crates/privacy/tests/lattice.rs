//! Rule P4, attacked: what correlated noise gives away when it does not live on one lattice.
//!
//! With x the sums, Z the noise and C the strategy matrix, `x + C^-1 Z` is private only as far as `C x + Z` is. If Z is an
//! integer and C is not, `C (x + C^-1 Z) = C x + Z` shows the fractional part of `C x`: that of `c_1 x_0` in step 1, which
//! no noise covers. The attack below looks for the x_0 that has that fractional part.

use keyhush_privacy::{
    Adjacency, ClipNorm, MinSeparation, NoiseMatrix, NoiseMultiplier, Participation, Segment,
    encoding::{Encoding, NoisePlan, VectorPlan},
    mechanism::{BANDED_FRACTIONAL_BITS, Correlation, Mechanism, MechanismPlan},
    noise::DiscreteGaussianSampler,
    rng::{NoiseSource, Purpose, Randomness, SimulationKey},
    stages::Sum,
};

/// Trials of the attack: coordinates of one vector.
const TRIALS: usize = 200;
/// The secret sums lie in -REACH ..= REACH.
const REACH: i64 = 1000;

/// The secret sums of two steps.
fn secrets() -> [Vec<i64>; 2] {
    let mut words = NoiseSource::from(SimulationKey::new(41)).stream(Purpose::Cohort, &[]).chunk(0);
    let mut secret = || (words.next_word() % (2 * REACH as u64 + 1)) as i64 - REACH;
    [(); 2].map(|()| (0..TRIALS).map(|_| secret()).collect())
}

/// `1 / sqrt(2)`, a coefficient as optimisers find them, and the same on the lattice.
fn coefficients() -> (f64, f64) {
    let real = std::f64::consts::FRAC_1_SQRT_2;
    let unit = f64::from(1 << BANDED_FRACTIONAL_BITS);
    (real, (real * unit).round() / unit)
}

/// In how many coordinates the attack finds x_0 from what was released in steps 0 and 1.
fn found(secret: &[i64], step_0: &[f64], step_1: &[f64], coefficient: f64) -> usize {
    let fraction = |v: f64| v - v.floor();
    let around = |d: f64| fraction(d).min(1.0 - fraction(d));
    let guess = |y_0: f64, y_1: f64| {
        let shown = fraction(y_1 + coefficient * y_0);
        let miss = |x: &i64| around(coefficient * *x as f64 - shown);
        (-REACH..=REACH).min_by(|a, b| miss(a).total_cmp(&miss(b))).expect("there are candidates")
    };
    secret.iter().zip(step_0).zip(step_1).filter(|((x, y_0), y_1)| guess(**y_0, **y_1) == **x).count()
}

fn sigma_of(encoding: &Encoding) -> u64 {
    encoding.layout().segments()[0].sigma
}

fn encoding() -> Encoding {
    let noise = NoisePlan::of_update(NoiseMultiplier::new(4.0).expect("a legal multiplier"));
    let vector = VectorPlan::of_update(TRIALS, 8);
    let clip = ClipNorm::new(1.0).expect("a legal norm");
    Encoding::new(vector, clip, Some(&noise), Adjacency::ZeroOut).expect("a legal plan")
}

/// `x + C^-1 Z` with integer Z, in floating point, as one would write it down.
fn naive(x: &[Vec<i64>; 2], sigma: u64, coefficient: f64) -> [Vec<f64>; 2] {
    let sampler = DiscreteGaussianSampler::new(sigma).expect("a legal sigma");
    let mut words = NoiseSource::from(SimulationKey::new(42)).stream(Purpose::Noise, &[]).chunk(0);
    let (mut step_0, mut step_1) = (Vec::new(), Vec::new());
    for (x_0, x_1) in x[0].iter().zip(&x[1]) {
        let (z_0, z_1) = (sampler.draw(&mut words) as f64, sampler.draw(&mut words) as f64);
        step_0.push(*x_0 as f64 + z_0);
        step_1.push(*x_1 as f64 + (z_1 - coefficient * z_0));
    }
    [step_0, step_1]
}

/// What the mechanism releases.
fn released(x: &[Vec<i64>; 2], encoding: &Encoding, coefficient: f64, seed: u64) -> [Vec<f64>; 2] {
    let plan = MechanismPlan {
        stream: 0,
        adjacency: Adjacency::ZeroOut,
        participation: Participation::MinSeparation {
            separation: MinSeparation::rounds_between(10).expect("a legal separation"),
            max_participations: 1,
        },
        correlation: Correlation::Matrix(NoiseMatrix::Banded { coefficients: vec![1.0, coefficient, 0.5] }),
        segments: vec![Segment::of(2)],
        distributed: None,
    };
    let (mut keys, randomness) = (SimulationKey::new(seed), Randomness::Simulated { seed });
    let mut mechanism = Mechanism::init(plan, encoding.layout(), randomness).expect("a legal plan");
    [0, 1].map(|t| {
        let sum = Sum::assertion(x[t].clone(), 64, encoding).expect("64 users can sum to it");
        mechanism.release(sum, &mut keys).expect("a planned step").values().iter().map(|v| *v as f64).collect()
    })
}

#[test]
fn p4_the_naive_form_reveals_every_sum() {
    let x = secrets();
    let (real, on_lattice) = coefficients();
    // That the coefficients are short numbers does not help, as long as the noise is not on their lattice.
    for coefficient in [real, on_lattice] {
        let [step_0, step_1] = naive(&x, sigma_of(&encoding()), coefficient);
        assert_eq!(found(&x[0], &step_0, &step_1, coefficient), TRIALS);
    }
}

/// Against what is released, the attack does as well as guessing. Noise of parameter 1024 leaves a right guess a chance of
/// at most 1 / 2048 in a coordinate, so in 10 runs of 200 coordinates there is 1 hit in the mean; 10 or more come with a
/// probability of 1.1e-7 (alpha).
#[test]
fn p4_what_the_mechanism_releases_withstands_the_attack() {
    let x = secrets();
    let encoding = encoding();
    assert!(sigma_of(&encoding) >= 1024);
    let (_, coefficient) = coefficients();
    let hits = |seed| {
        let [step_0, step_1] = released(&x, &encoding, coefficient, seed);
        found(&x[0], &step_0, &step_1, coefficient)
    };
    let total: usize = (0..10).map(hits).sum();
    assert!(total < 10, "{total} of 2000 sums were found");
}
