//! Tests every mechanism against its dense matrix in exact arithmetic, for equality (rule P4).

use num_bigint::BigInt;

use super::{
    draws::{Draw, Draws},
    *,
};
use crate::{
    encoding::{Encoding, NoisePlan, VectorPlan},
    rng::{NoiseKey, SimulationKey},
    step_keys::{KeyShelf, MemoryShelf, SecretSteps},
    units::{ClipNorm, MinSeparation, NoiseMultiplier},
};

const SEED: u64 = 20_261_115;

const RANDOMNESS: Randomness = Randomness::Simulated { seed: SEED };

fn keys() -> SimulationKey {
    SimulationKey::new(SEED)
}

/// A vector with an update and a clip bit, whose noise differs.
fn encoding(dimension: usize) -> Encoding {
    let plan = VectorPlan { clip_bit: true, ..VectorPlan::of_update(dimension, 8) };
    let multiplier = NoiseMultiplier::new(2.0).unwrap();
    let noise = NoisePlan { clip_count_stddev: Some(3.0), ..NoisePlan::of_update(multiplier) };
    Encoding::new(plan, ClipNorm::new(1.0).unwrap(), Some(&noise), Adjacency::ZeroOut).unwrap()
}

fn plan(correlation: Correlation, segments: Vec<Segment>) -> MechanismPlan {
    let separation = MinSeparation::rounds_between(2).unwrap();
    let participation = Participation::MinSeparation { separation, max_participations: 3 };
    MechanismPlan { stream: 7, adjacency: Adjacency::ZeroOut, participation, correlation, segments, distributed: None }
}

/// Sums that are as unlike noise as can be.
fn sums(rounds: u64, len: usize) -> Vec<Vec<i64>> {
    let value = |t: u64, i: usize| ((t * 7919 + i as u64 * 104_729) % 400_009) as i64 - 200_004;
    (0..rounds).map(|t| (0..len).map(|i| value(t, i)).collect()).collect()
}

/// What the mechanism releases for these sums.
fn released(plan: &MechanismPlan, encoding: &Encoding, sums: &[Vec<i64>]) -> Vec<Vec<i64>> {
    let mut mechanism = Mechanism::init(plan.clone(), encoding.layout(), RANDOMNESS).unwrap();
    let release = |x: &Vec<i64>| {
        let sum = Sum::assertion(x.clone(), 1 << 20, encoding).unwrap();
        mechanism.release(sum, &mut keys()).unwrap().values().to_vec()
    };
    sums.iter().map(release).collect()
}

/// One draw of the whole vector, as the mechanism makes it.
fn drawn(encoding: &Encoding, fractional_bits: u32, position: &[u64]) -> Vec<i64> {
    let draws = Draws::new(encoding.layout(), fractional_bits).unwrap();
    let noise = keys().again(StepAt { stream: 7, segment: 0, step: 0 }).unwrap();
    let draw = Draw::at(&noise, position);
    let mut all = vec![0; encoding.layout().len()];
    for (number, chunk) in draws.chunks.iter().enumerate() {
        draws.fill(&draw, number, &mut all[chunk.coordinates.clone()]);
    }
    all
}

#[test]
fn independent_noise_is_its_draw() {
    let encoding = encoding(5000);
    let plan = plan(Correlation::Independent, vec![Segment::of(3)]);
    let x = sums(3, 5001);
    for (t, y) in released(&plan, &encoding, &x).iter().enumerate() {
        let z = drawn(&encoding, 0, &[INDEPENDENT, 7, 0, t as u64]);
        assert_ne!(z[..100], z[4096..4196], "two chunks with the same noise");
        assert!(y.iter().zip(&x[t]).zip(&z).all(|((y, x), z)| y - x == *z));
    }
}

/// The noisy sums of a tree's nodes, and Honaker's estimates from below, by the definition.
struct DenseTree<'a> {
    encoding: &'a Encoding,
    segment: u64,
    x: &'a [Vec<i64>],
}

impl DenseTree<'_> {
    fn is_empty(&self, level: u32, index: u64) -> bool {
        index << level >= self.x.len() as u64
    }

    fn noisy(&self, level: u32, index: u64) -> Vec<i64> {
        let mut sum = drawn(self.encoding, 0, &[TREE, 7, self.segment, u64::from(level), index]);
        for x in self.x.iter().skip((index << level) as usize).take(1 << level) {
            sum.iter_mut().zip(x).for_each(|(s, x)| *s += x);
        }
        sum
    }

    /// The estimate of a node's sum, and its variance.
    fn estimate(&self, level: u32, index: u64) -> (Vec<i64>, f64) {
        if self.is_empty(level, index) {
            return (vec![0; self.encoding.layout().len()], 0.0);
        }
        if level == 0 {
            return (self.noisy(0, index), 1.0);
        }
        let (left, left_variance) = self.estimate(level - 1, 2 * index);
        let (right, right_variance) = self.estimate(level - 1, 2 * index + 1);
        let below = left_variance + right_variance;
        let one = 1i128 << 30;
        let w = (below / (1.0 + below) * one as f64).round_ties_even() as i128;
        let own = self.noisy(level, index);
        let joined = own.iter().zip(left.iter().zip(&right)).map(|(own, (l, r))| {
            let exact = w * i128::from(*own) + (one - w) * i128::from(l + r) + one / 2;
            exact.div_euclid(one) as i64
        });
        (joined.collect(), below / (1.0 + below))
    }

    /// The estimate of the sum of the first t rounds.
    fn prefix(&self, t: u64) -> Vec<i64> {
        let mut total = vec![0; self.encoding.layout().len()];
        let mut start = 0;
        for level in (0..64).rev().filter(|level| t >> level & 1 == 1) {
            let (node, _) = self.estimate(level, start >> level);
            total.iter_mut().zip(&node).for_each(|(t, n)| *t += n);
            start += 1 << level;
        }
        total
    }
}

#[test]
fn p4_the_tree_is_a_function_of_its_noisy_node_sums_alone() {
    let encoding = encoding(37);
    let segments =
        vec![Segment::of(13), Segment::completed(11), Segment { rounds: 4, completed_to: Some(16) }, Segment::of(1)];
    let plan = plan(Correlation::Matrix(NoiseMatrix::Tree), segments.clone());
    let x = sums(plan.rounds(), 38);
    let y = released(&plan, &encoding, &x);
    let mut start = 0;
    for (number, segment) in segments.iter().enumerate() {
        let rounds = segment.rounds as usize;
        let dense = DenseTree { encoding: &encoding, segment: number as u64, x: &x[start..start + rounds] };
        let mut so_far = vec![0; 38];
        for t in 1..=rounds {
            so_far.iter_mut().zip(&y[start + t - 1]).for_each(|(s, y)| *s += y);
            let want = match segment.completed_to {
                Some(size) if t == rounds => dense.estimate(size.ilog2(), 0).0,
                _ => dense.prefix(t as u64),
            };
            assert_eq!(so_far, want, "segment {number}, round {t}");
        }
        start += rounds;
    }
}

/// The variance of a prefix estimate is what Honaker promises: about half of the plain tree's.
#[test]
fn the_tree_reduces_variance() {
    let encoding = encoding(20_000);
    let plan = plan(Correlation::Matrix(NoiseMatrix::Tree), vec![Segment::of(8)]);
    let zeros = vec![vec![0; 20_001]; 8];
    let y = released(&plan, &encoding, &zeros);
    let sigma = encoding.layout().segments()[0].sigma as f64;
    // v_0 = 1, v_(h+1) = 2 v_h / (1 + 2 v_h): 1, 2/3, 4/7, 8/15.
    for (rounds, variance) in [(1, 1.0), (2, 2.0 / 3.0), (3, 2.0 / 3.0 + 1.0), (4, 4.0 / 7.0), (8, 8.0 / 15.0)] {
        let prefix = |i: usize| y[..rounds].iter().map(|y| y[i]).sum::<i64>() as f64 / sigma;
        let got = (0..20_000).map(|i| prefix(i) * prefix(i)).sum::<f64>() / 20_000.0;
        // A chi-square of 20,000 degrees of freedom is within 5 % of its mean but for 6e-7 of the time.
        assert!((got / variance - 1.0).abs() < 0.05, "after {rounds}: {got}, expected {variance}");
    }
}

/// `n_t = floor(Z_t - sum c_s n_(t-s) + 1/2)` and the same from `C x + Z`, coefficients as exact fractions of `2^-bits`.
struct DenseToeplitz {
    /// `c_s * 2^(bits * s)`, exactly.
    numerators: Vec<BigInt>,
    bits: u32,
}

impl DenseToeplitz {
    /// The correlated noise of one coordinate whose x is given; z in units of `2^-fine`. Returns x + n by both ways.
    fn both_ways(&self, x: &[i64], z: &[i64], fine: u32) -> (Vec<i64>, Vec<i64>) {
        let rounds = x.len();
        // Everything in units of 2^-unit.
        let unit = fine.max(self.bits * rounds as u32);
        let c = |s: usize| self.numerators.get(s).map(|c| c << (unit - self.bits * s as u32));
        let floor_half = |exact: BigInt| (exact + (BigInt::from(1) << (unit - 1))) >> unit;
        let to_i64 = |v: BigInt| i64::try_from(v).unwrap();
        let (mut n, mut y) = (Vec::new(), Vec::new());
        for t in 0..rounds {
            let z_t = BigInt::from(z[t]) << (unit - fine);
            let past = |values: &[i64]| -> BigInt { (1..=t).filter_map(|s| Some(c(s)? * values[t - s])).sum() };
            let cx = (BigInt::from(x[t]) << unit) + past(x);
            n.push(to_i64(floor_half(&z_t - past(&n))));
            y.push(to_i64(floor_half(cx + &z_t - past(&y))));
        }
        (x.iter().zip(&n).map(|(x, n)| x + n).collect(), y)
    }

    fn compare(&self, plan: &MechanismPlan, encoding: &Encoding, fine: u32) {
        let len = encoding.layout().len();
        let x = sums(plan.rounds(), len);
        let y = released(plan, encoding, &x);
        let mut start = 0;
        for (number, segment) in plan.segments.iter().enumerate() {
            let rounds = start..start + segment.rounds as usize;
            let z: Vec<Vec<i64>> =
                (0..segment.rounds).map(|t| drawn(encoding, fine, &[TOEPLITZ, 7, number as u64, t])).collect();
            for i in 0..len {
                let column = |v: &[Vec<i64>]| v.iter().map(|row| row[i]).collect::<Vec<i64>>();
                let (streamed, from_cx_plus_z) = self.both_ways(&column(&x[rounds.clone()]), &column(&z), fine);
                assert_eq!(column(&y[rounds.clone()]), streamed, "segment {number}, coordinate {i}");
                assert_eq!(streamed, from_cx_plus_z, "segment {number}, coordinate {i}: not a function of Cx + Z");
            }
            start = rounds.end;
        }
    }
}

#[test]
fn p4_banded_noise_is_a_function_of_cx_plus_z_alone() {
    let one = f64::from(1 << 24);
    for fixed in
        [vec![1 << 24], vec![1 << 24, 8_388_609, 6_000_001, 5_000_003], (0..30).map(|i| (1 << 24) / (i + 1)).collect()]
    {
        let coefficients: Vec<f64> = fixed.iter().map(|c: &i32| f64::from(*c) / one).collect();
        // In units of 2^-(24 s), as the dense form wants them.
        let numerators = fixed
            .iter()
            .enumerate()
            .map(|(s, c)| if s == 0 { BigInt::from(1) } else { BigInt::from(*c) << (24 * (s - 1)) });
        let dense = DenseToeplitz { numerators: numerators.collect(), bits: 24 };
        let plan =
            plan(Correlation::Matrix(NoiseMatrix::Banded { coefficients }), vec![Segment::of(40), Segment::of(9)]);
        dense.compare(&plan, &encoding(11), 24);
    }
}

#[test]
fn p4_blt_noise_is_that_of_the_exact_matrix() {
    let (decay, scale) = ([0.998_046_875, 0.875, 0.3125], [0.125, 0.25, 0.0625]);
    let fixed = |v: f64| BigInt::from((v * 2.0f64.powi(62)) as u64);
    let rounds = 24;
    let numerators = (0..rounds).map(|s: u32| match s {
        0 => BigInt::from(1),
        s => decay.iter().zip(&scale).map(|(d, w)| fixed(*w) * fixed(*d).pow(s - 1)).sum(),
    });
    let dense = DenseToeplitz { numerators: numerators.collect(), bits: 62 };
    let matrix = NoiseMatrix::Blt { buffer_decay: decay.to_vec(), output_scale: scale.to_vec() };
    let plan = plan(Correlation::Matrix(matrix), vec![Segment::of(u64::from(rounds)), Segment::of(10)]);
    let encoding = encoding(9);
    dense.compare(&plan, &encoding, blt::fractional_bits(encoding.layout()));
}

/// Every kind of noise.
fn kinds() -> [Correlation; 4] {
    let blt = NoiseMatrix::Blt { buffer_decay: vec![0.9375, 0.5], output_scale: vec![0.25, 0.125] };
    let banded = NoiseMatrix::Banded { coefficients: vec![1.0, 0.5, 0.25, 0.125] };
    [
        Correlation::Independent,
        Correlation::Matrix(NoiseMatrix::Tree),
        Correlation::Matrix(banded),
        Correlation::Matrix(blt),
    ]
}

/// A mechanism that is taken up again at a position, which holds no noise, continues as if nothing had happened: simulated, and
/// with keys that are kept.
#[test]
fn p20_a_position_is_all_that_is_kept() {
    let encoding = encoding(5000);
    for kind in kinds() {
        let plan = plan(kind, vec![Segment::of(6), Segment::of(7)]);
        let x = sums(13, 5001);
        let whole = released(&plan, &encoding, &x);
        let mut position = Mechanism::init(plan.clone(), encoding.layout(), RANDOMNESS).unwrap().position();
        for (x, want) in x.iter().zip(&whole) {
            let written = serde_json::to_vec(&position).unwrap();
            assert!(written.len() < 300, "{} bytes", written.len());
            let position_read = serde_json::from_slice(&written).unwrap();
            let mut mechanism = Mechanism::at(plan.clone(), encoding.layout(), RANDOMNESS, position_read).unwrap();
            let sum = Sum::assertion(x.clone(), 1 << 20, &encoding).unwrap();
            assert_eq!(mechanism.release(sum, &mut keys()).unwrap().values(), want);
            position = mechanism.position();
        }
        let mut mechanism = Mechanism::at(plan, encoding.layout(), RANDOMNESS, position).unwrap();
        let finished = mechanism.release(Sum::zero(&encoding), &mut keys()).unwrap_err();
        assert_eq!(finished, MechanismError::Finished { rounds: 13 });
    }
}

/// With secret keys: a mechanism that remembers its noise and one that draws all of it again before each step release the
/// same from the same keys.
#[test]
fn p20_secret_noise_is_drawn_again_from_the_keys_of_its_segment() {
    let encoding = encoding(100);
    for kind in kinds() {
        let plan = plan(kind, vec![Segment::of(6), Segment::of(3)]);
        let start = || Mechanism::init(plan.clone(), encoding.layout(), Randomness::Secret).unwrap();
        let mut keys = SecretSteps::new(NoiseKey::generate().unwrap(), MemoryShelf::default());
        let (mut remembers, mut forgets) = (start(), start());
        for x in sums(9, 101) {
            let sum = || Sum::assertion(x.clone(), 1 << 20, &encoding).unwrap();
            let at = remembers.step_at(remembers.position.rounds);
            let first = remembers.release(sum(), &mut keys).unwrap();
            let mut again = Replayed(keys.again(at).unwrap(), &keys);
            forgets = Mechanism::at(plan.clone(), encoding.layout(), Randomness::Secret, forgets.position()).unwrap();
            let second = forgets.release(sum(), &mut again).unwrap();
            assert_eq!(first, second, "{at}");
            keys.recorded(at, remembers.needs_noise_again()).unwrap();
        }
        assert_eq!(keys.shelf().last(), None, "at the end no key is left");
    }
}

/// Keys that give a step the noise that was drawn for it before. Only a test may have such.
struct Replayed<'a>(StepNoise, &'a SecretSteps<MemoryShelf>);

impl StepKeys for Replayed<'_> {
    fn randomness(&self) -> Randomness {
        self.1.randomness()
    }

    fn draw(&mut self, at: StepAt, _added_to: &AddedTo) -> Result<StepNoise, StepKeyError> {
        let again = self.1.again(at)?;
        Ok(std::mem::replace(&mut self.0, again))
    }

    fn again(&self, at: StepAt) -> Result<StepNoise, StepKeyError> {
        self.1.again(at)
    }

    fn recorded(&mut self, _at: StepAt, _needed_again: bool) -> Result<(), StepKeyError> {
        Ok(())
    }
}

/// Rule P21: a run that is copied during a segment, with all its keys, and continues with a sum in which one user
/// differs. The difference of the two releases is not that user's update: it is covered by noise of both.
#[test]
fn p21_the_releases_of_two_copies_do_not_differ_by_one_user() {
    let encoding = encoding(4000);
    let sigma = encoding.layout().segments()[0].sigma as f64;
    for kind in kinds() {
        let plan = plan(kind, vec![Segment::of(9)]);
        let run = NoiseKey::generate().unwrap();
        let copy = NoiseKey::from_secret_bytes(run.secret_bytes());
        let mut keys = SecretSteps::new(run, MemoryShelf::default());
        let mut mechanism = Mechanism::init(plan.clone(), encoding.layout(), Randomness::Secret).unwrap();
        for x in sums(5, 4001) {
            let at = mechanism.step_at(mechanism.position.rounds);
            let _ = mechanism.release(Sum::assertion(x, 1 << 20, &encoding).unwrap(), &mut keys).unwrap();
            keys.recorded(at, mechanism.needs_noise_again()).unwrap();
        }
        let mut forked_keys = SecretSteps::new(copy, keys.shelf().clone());
        let mut forked = Mechanism::at(plan, encoding.layout(), Randomness::Secret, mechanism.position()).unwrap();
        for x in sums(4, 4001) {
            let mut without_one = x.clone();
            without_one[..4000].iter_mut().for_each(|v| *v -= 1);
            let release = |mechanism: &mut Mechanism, keys: &mut SecretSteps<MemoryShelf>, x: Vec<i64>| {
                let at = mechanism.step_at(mechanism.position.rounds);
                let sum = Sum::assertion(x, 1 << 20, &encoding).unwrap();
                let released = mechanism.release(sum, keys).unwrap();
                keys.recorded(at, mechanism.needs_noise_again()).unwrap();
                released.values()[..4000].to_vec()
            };
            let here = release(&mut mechanism, &mut keys, x);
            let there = release(&mut forked, &mut forked_keys, without_one);
            let squares: f64 = here.iter().zip(&there).map(|(a, b)| ((a - b) as f64).powi(2)).sum();
            // Two draws of at least half a sigma squared each: a mean square of sigma squared, far above the 1 of the user.
            let spread = (squares / 4000.0).sqrt();
            assert!(spread > 0.9 * sigma, "{spread} where sigma is {sigma}");
        }
    }
}

#[test]
fn positions_that_the_plan_does_not_have_are_refused() {
    let encoding = encoding(50);
    let plan = plan(Correlation::Matrix(NoiseMatrix::Tree), vec![Segment::of(6), Segment::of(2)]);
    let at = |segment, rounds| {
        let position = Position { segment, rounds, encoding: None };
        Mechanism::at(plan.clone(), encoding.layout(), RANDOMNESS, position).map(|m| m.step())
    };
    assert_eq!((at(0, 5).unwrap(), at(1, 1).unwrap(), at(2, 0).unwrap()), (5, 7, 8));
    for (segment, rounds) in [(0, 6), (1, 2), (2, 1), (3, 0)] {
        assert_eq!(at(segment, rounds).unwrap_err(), MechanismError::Position { segment, rounds });
    }
}

/// The noise of a step is bound to what it is added to: the key is asked for with the digest of this sum, in this encoding.
#[test]
fn p21_a_step_is_bound_to_its_sum() {
    struct Asked(Vec<[u8; 32]>);
    impl StepKeys for Asked {
        fn randomness(&self) -> Randomness {
            RANDOMNESS
        }
        fn draw(&mut self, at: StepAt, added_to: &AddedTo) -> Result<StepNoise, StepKeyError> {
            self.0.push(added_to.bytes());
            keys().again(at)
        }
        fn again(&self, at: StepAt) -> Result<StepNoise, StepKeyError> {
            keys().again(at)
        }
        fn recorded(&mut self, _at: StepAt, _needed_again: bool) -> Result<(), StepKeyError> {
            Ok(())
        }
    }
    let here = encoding(20);
    let moved = here.with_clip(ClipNorm::new(0.5).unwrap());
    let mut asked = Asked(Vec::new());
    let mut mechanism =
        Mechanism::init(plan(Correlation::Independent, vec![Segment::of(9)]), here.layout(), RANDOMNESS).unwrap();
    for (encoding, value) in [(&here, 1), (&here, 1), (&here, 2), (&moved, 1)] {
        let mut x = vec![0; 21];
        x[19] = value;
        let _ = mechanism.release(Sum::assertion(x, 1 << 20, encoding).unwrap(), &mut asked).unwrap();
    }
    let asked = asked.0;
    assert_eq!(asked[0], asked[1]);
    assert!(asked[0] != asked[2] && asked[0] != asked[3] && asked[2] != asked[3]);
}

#[test]
fn keys_of_other_randomness_are_refused() {
    let encoding = encoding(50);
    let plan = plan(Correlation::Independent, vec![Segment::of(6)]);
    let mut mechanism = Mechanism::init(plan, encoding.layout(), Randomness::Secret).unwrap();
    let refused = mechanism.release(Sum::zero(&encoding), &mut keys()).unwrap_err();
    assert_eq!(refused, MechanismError::OtherRandomness);
}

#[test]
fn memory_is_stated_beforehand() {
    let noise = NoisePlan::of_update(NoiseMultiplier::new(7.0).unwrap());
    let update = VectorPlan::of_update(2_400_000, 15);
    let encoding = Encoding::new(update, ClipNorm::new(1.0).unwrap(), Some(&noise), Adjacency::ZeroOut).unwrap();
    let memory = |matrix| plan(Correlation::Matrix(matrix), vec![Segment::of(2000)]).memory(encoding.layout());
    assert_eq!(memory(NoiseMatrix::Banded { coefficients: vec![1.0; 400] }), 399 * 2_400_000 * 4);
    assert_eq!(memory(NoiseMatrix::Tree), 11 * 2_400_000 * 4);
    let blt = NoiseMatrix::Blt { buffer_decay: vec![0.5; 4], output_scale: vec![0.1; 4] };
    assert_eq!(memory(blt), 4 * 2_400_000 * 8);
}

/// A sampled step of which nothing is released is skipped: the steps after it have the noise of their own numbers, and no
/// noise is used for two sums. Anything else is attempted again.
#[test]
fn p21_a_step_that_failed_is_passed_over_where_users_are_sampled() {
    let encoding = encoding(3);
    let rate = crate::units::SamplingRate::new(0.1).unwrap();
    let participation = Participation::Poisson { rate };
    let (adjacency, correlation, segments) = (Adjacency::AddOrRemove, Correlation::Independent, vec![Segment::of(3)]);
    let sampled = MechanismPlan { stream: 7, adjacency, participation, correlation, segments, distributed: None };
    let sums = sums(3, encoding.layout().len());
    let all = released(&sampled, &encoding, &sums);
    let mut mechanism = Mechanism::init(sampled, encoding.layout(), RANDOMNESS).unwrap();
    for step in [0, 1, 2] {
        assert_eq!(mechanism.step(), step);
        if step == 1 {
            mechanism.pass_over().unwrap();
            continue;
        }
        let sum = Sum::assertion(sums[step as usize].clone(), 1 << 20, &encoding).unwrap();
        let released = mechanism.release(sum, &mut keys()).unwrap();
        assert_eq!((released.step(), released.values()), (step, &all[step as usize][..]));
    }
    assert_eq!(mechanism.pass_over(), Err(MechanismError::Finished { rounds: 3 }));

    for correlation in kinds() {
        let mut mechanism =
            Mechanism::init(plan(correlation, vec![Segment::of(3)]), encoding.layout(), RANDOMNESS).unwrap();
        assert_eq!(mechanism.pass_over(), Err(MechanismError::PassedOver));
        assert_eq!(mechanism.step(), 0);
    }
}
