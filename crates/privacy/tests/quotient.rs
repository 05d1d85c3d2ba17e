//! The clipped denominator: what one user can move, exactly, and where it is refused (rule P10).

#![allow(clippy::unwrap_used, reason = "a test that cannot be set up must stop")]

use keyhush_privacy::{
    Adjacency, ClipNorm, NoiseMatrix, NoiseMultiplier, Participation, SamplingRate, Segment,
    encoding::{Encoding, EncodingError, NoisePlan, Rounding, VectorPlan, layout},
    mechanism::{Correlation, Mechanism, MechanismError, MechanismPlan},
    rng::{NoiseSource, Purpose, RandomWords, Randomness, SimulationKey},
    stages::{ClipBit, ClipRule, Clipping, Contribution, Encoded, Quotient, Sum, Update},
};
use proptest::prelude::*;

const FULL: i32 = layout::FULL_WEIGHT as i32;

fn clip(c: f64) -> ClipNorm {
    ClipNorm::new(c).unwrap()
}

fn words(seed: u64) -> RandomWords {
    NoiseSource::from(SimulationKey::new(seed)).stream(Purpose::Rounding, &[]).chunk(0)
}

fn encoding_of(dimension: usize, grid_bits: u32) -> Encoding {
    let plan = VectorPlan { weight: true, ..VectorPlan::of_update(dimension, grid_bits) };
    Encoding::new(plan, clip(1.0), None, Adjacency::AddOrRemove).unwrap()
}

fn quotient_of(encoding: &Encoding, least_weight: f64) -> Quotient {
    Quotient::new(encoding, least_weight, None, Adjacency::AddOrRemove).unwrap()
}

/// Somebody who sends as much as the weight allows, along a direction.
fn extreme(encoding: &Encoding, direction: &[f64], weight: i32) -> Vec<i32> {
    let norm = direction.iter().map(|v| v * v).sum::<f64>().sqrt().max(1e-9);
    let bound = (encoding.layout().segments()[0].norm_squared as f64).sqrt() * f64::from(weight) / f64::from(FULL);
    direction.iter().map(|v| (v / norm * bound * (1.0 - 1e-12)).trunc() as i32).chain([weight]).collect()
}

fn encoded(encoding: &Encoding, user: &[i32]) -> Encoded {
    Encoded::of(user.to_vec(), encoding).unwrap()
}

/// The quotient's integers.
fn divided(encoding: &Encoding, quotient: &Quotient, users: &[&[i32]]) -> Vec<i64> {
    let mut sum = Sum::zero(encoding);
    users.iter().for_each(|user| sum.add(&encoded(encoding, user)).unwrap());
    let quotient = quotient.divide(sum).unwrap();
    quotient.release_without_privacy(0, "a test", Randomness::Secret).values().to_vec()
}

fn distance(a: &[i64], b: &[i64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| ((a - b) as f64).powi(2)).sum::<f64>().sqrt()
}

fn any_weight() -> impl Strategy<Value = i32> {
    prop_oneof![Just(FULL), Just(1), Just(0), 0..=FULL, 0..100]
}

/// Directions that agree, that oppose, and that have nothing to do with each other.
fn any_direction(dimension: usize) -> impl Strategy<Value = Vec<f64>> {
    prop_oneof![
        Just(vec![1.0; dimension]),
        Just(vec![-1.0; dimension]),
        prop::collection::vec(-1.0..1.0f64, dimension),
        (0..dimension).prop_map(move |at| (0..dimension).map(|i| f64::from(u8::from(i == at))).collect()),
    ]
}

prop_compose! {
    fn any_case()(dimension in prop_oneof![Just(1usize), Just(3), Just(50)], alike in any::<bool>())(
        crowd in prop::collection::vec((any_direction(dimension), any_weight()), 0..40),
        one in (any_direction(dimension), any_weight()),
        other in (any_direction(dimension), any_weight()),
        grid_bits in 1u32..=28,
        off in prop_oneof![Just(0), Just(1), Just(-1), -FULL..=FULL, -FULL * 40..=FULL * 40],
        alike in Just(alike),
    ) -> (u32, Vec<(Vec<f64>, i32)>, [(Vec<f64>, i32); 2], i32) {
        // A crowd of one mind is what moves most when somebody disagrees.
        let crowd = match crowd.first().cloned() {
            Some((direction, _)) if alike => crowd.into_iter().map(|(_, w)| (direction.clone(), w)).collect(),
            _ => crowd,
        };
        (grid_bits, crowd, [one, other], off)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    /// The crowd's weight is close to the smallest denominator, above it and below it, or far from it.
    #[test]
    fn p10_no_user_moves_the_quotient_farther_than_is_stated((grid_bits, crowd, [one, other], off) in any_case()) {
        let dimension = one.0.len();
        let encoding = encoding_of(dimension, grid_bits);
        let weight: i64 = crowd.iter().map(|(_, w)| i64::from(*w)).sum();
        let least = (weight + i64::from(off)).max(1) as f64 / f64::from(FULL);
        let quotient = quotient_of(&encoding, least);
        let crowd: Vec<Vec<i32>> = crowd.iter().map(|(d, w)| extreme(&encoding, d, *w)).collect();
        let with = |user: Option<&(Vec<f64>, i32)>| {
            let user = user.map(|(d, w)| extreme(&encoding, d, *w));
            divided(&encoding, &quotient, &crowd.iter().chain(&user).map(Vec::as_slice).collect::<Vec<_>>())
        };
        let (without, with_one, with_other) = (with(None), with(Some(&one)), with(Some(&other)));
        let stated = |adjacency| quotient.encoding().layout().segments()[0].sensitivity(adjacency);
        for neighbours in [Adjacency::AddOrRemove, Adjacency::ZeroOut] {
            prop_assert!(distance(&without, &with_one) <= stated(neighbours));
            prop_assert!(distance(&without, &with_other) <= stated(neighbours));
        }
        prop_assert!(distance(&with_one, &with_other) <= stated(Adjacency::ReplaceOne));
    }

    /// Whatever is rounded and however, the weight that goes with an update covers it, and is hardly more than was said.
    #[test]
    fn p10_the_weight_covers_the_update(
        update in prop::collection::vec(-1.0f32..1.0, 1..60), weight in prop_oneof![0.0..1.0f64, 0.0..1e-4f64],
        grid_bits in 1u32..=28, rotated in any::<bool>(), seed in any::<u64>(),
        rounding in prop_oneof![Just(Rounding::Nearest), Just(Rounding::ConditionalStochastic { alpha: 0.5 })],
    ) {
        let rotation_seed = rotated.then_some([7; 32]);
        let of = VectorPlan::of_update(update.len(), grid_bits);
        let plan = VectorPlan { weight: true, rounding, rotation_seed, ..of };
        let encoding = Encoding::new(plan, clip(0.5), None, Adjacency::ZeroOut).unwrap();
        let clipping = Clipping::new(ClipRule::Flat(clip(0.5)), ClipBit::None).unwrap();
        let clipped = Update::new(update).clip(&clipping, Contribution { weight, ..Contribution::default() }).unwrap();
        let encoded = clipped.encode(&encoding, &mut words(seed)).unwrap();
        let (got, integers) = encoded.values().split_last().unwrap();
        let norm: u128 = integers.iter().map(|v| u128::from(v.unsigned_abs()).pow(2)).sum();
        let bound = u128::from(encoding.layout().segments()[0].norm_squared);
        prop_assert!(norm * (1 << 30) <= (*got as u128).pow(2) * bound);
        // Rounding adds at most a step in each coordinate to a norm of 2^k steps; weights are rounded too.
        let slack = (integers.len() as f64).sqrt() / f64::from(1u32 << grid_bits) * f64::from(FULL) + 2.0;
        prop_assert!((f64::from(*got) - weight * f64::from(FULL)).abs() <= slack, "{got} for {weight}");
    }
}

/// The bound is not loose: a crowd of one mind just above the smallest denominator, and one who disagrees.
#[test]
fn p10_the_sensitivity_is_nearly_attained() {
    let mut nearest: f64 = 0.0;
    for (dimension, users) in [(1usize, 2usize), (3, 3), (50, 10), (50, 40)] {
        let encoding = encoding_of(dimension, 24);
        let quotient = quotient_of(&encoding, users as f64);
        let agree = extreme(&encoding, &vec![1.0; dimension], FULL);
        let disagree = extreme(&encoding, &vec![-1.0; dimension], FULL);
        let crowd: Vec<&[i32]> = vec![&agree; users];
        let joined = [&crowd[..], &[&disagree]].concat();
        let replaced = [&crowd[1..], &[&disagree]].concat();
        let segment = quotient.encoding().layout().segments()[0];
        let of = |users: &[&[i32]]| divided(&encoding, &quotient, users);
        let share = distance(&of(&crowd), &of(&joined)) / segment.sensitivity(Adjacency::AddOrRemove);
        assert!(share > 0.6 && share <= 1.0, "{users} users: {share}");
        nearest = nearest.max(share);
        let share = distance(&of(&crowd), &of(&replaced)) / segment.sensitivity(Adjacency::ReplaceOne);
        assert!(share > 0.4 && share <= 1.0, "{users} users, one replaced: {share}");
        // In the units of the model: 2 S / (q W_min), and next to nothing for the grid.
        let inflated = encoding.layout().segments()[0].sensitivity(Adjacency::ZeroOut) * encoding.grid_step();
        let want = 2.0 * inflated / users as f64;
        assert!((quotient.sensitivity(Adjacency::AddOrRemove) / want - 1.0).abs() < 1e-6);
    }
    assert!(nearest > 0.95, "{nearest}");
}

#[test]
fn p10_an_update_without_its_weight_is_refused() {
    let encoding = encoding_of(2, 16);
    let check = |user: [i32; 3]| Encoded::of(user.to_vec(), &encoding);
    assert!(check([1 << 15, 0, FULL / 2]).is_ok());
    assert!(check([0, 0, 0]).is_ok());
    for evil in [[1 << 16, 0, FULL / 2], [1, 0, 0], [30_000, 30_000, 20_000]] {
        let refused = check(evil).unwrap_err();
        assert!(matches!(refused, EncodingError::Bound { segment: layout::SegmentKind::Weight, .. }), "{refused}");
    }
}

/// The weighted average, or the sum over the smallest denominator; the bits stay, the weight goes.
#[test]
fn p10_the_quotient_is_the_weighted_average() {
    let plan = VectorPlan { weight: true, clip_bit: true, ..VectorPlan::of_update(2, 20) };
    let first = Encoding::new(plan, clip(4.0), None, Adjacency::AddOrRemove).unwrap();
    for (c, least, want) in [(4.0, 1.0, [0.5, 1.25]), (4.0, 16.0, [0.0625, 0.15625]), (8.0, 1.0, [0.5, 1.25])] {
        let encoding = first.with_clip(clip(c));
        let quotient = quotient_of(&encoding, least);
        assert_eq!(quotient.encoding().layout(), quotient_of(&first, least).encoding().layout(), "the grid follows");
        let clipping = Clipping::new(ClipRule::Flat(clip(c)), ClipBit::NormAtMost(clip(2.0))).unwrap();
        let mut sum = Sum::zero(&encoding);
        for (update, weight) in [([1.0, 0.0], 1.0), ([0.0, 2.5], 0.5), ([0.0, 2.5], 0.5)] {
            let said = Contribution { weight, ..Contribution::default() };
            let clipped = Update::new(update.to_vec()).clip(&clipping, said).unwrap();
            sum.add(&clipped.encode(&encoding, &mut words(1)).unwrap()).unwrap();
        }
        let divided = quotient.divide(sum).unwrap();
        let released = divided.release_without_privacy(0, "a test", Randomness::Secret);
        let average = released.update(quotient.encoding()).unwrap();
        let close = |(got, want): (&f32, f64)| (f64::from(*got) - want).abs() < 2.0 * encoding.grid_step();
        assert!(average.iter().zip(want).all(close), "{average:?} instead of {want:?}");
        assert!((released.fraction_under_clip(3.0).unwrap() - 1.0 / 3.0).abs() < 1e-12);
        assert_eq!(released.weight(), None);
        assert!(released.update(&encoding).is_err(), "it is no sum");
        // Nobody is an average of nothing, and another encoding's sum is not divided.
        let nobody = quotient.divide(Sum::zero(&encoding)).unwrap();
        assert_eq!(nobody.release_without_privacy(0, "a test", Randomness::Secret).values(), [0, 0, 0]);
        let zeros = vec![0; quotient.encoding().packing().bytes()];
        assert!(Encoded::check(&zeros, quotient.encoding()).is_err(), "no user sends a quotient");
        let other = encoding.with_clip(clip(5.0));
        assert_eq!(quotient.divide(Sum::zero(&other)).unwrap_err(), EncodingError::Mixed);
    }
}

fn mechanism_plan(correlation: Correlation) -> MechanismPlan {
    let rate = SamplingRate::new(0.01).unwrap();
    MechanismPlan {
        stream: 0,
        adjacency: Adjacency::AddOrRemove,
        participation: match correlation {
            Correlation::Independent => Participation::Poisson { rate },
            Correlation::Matrix(_) => Participation::Once,
        },
        correlation,
        segments: vec![Segment::of(10)],
        distributed: None,
    }
}

#[test]
fn p10_the_noise_is_on_the_quotient_and_not_correlated() {
    let z = NoiseMultiplier::new(1.5).unwrap();
    let noise = NoisePlan { clip_count_stddev: Some(5.0), ..NoisePlan::of_update(z) };
    let plan = VectorPlan { weight: true, clip_bit: true, ..VectorPlan::of_update(2000, 20) };
    let encoding = Encoding::new(plan.clone(), clip(0.5), None, Adjacency::AddOrRemove).unwrap();
    let quotient = Quotient::new(&encoding, 100.0, Some(&noise), Adjacency::AddOrRemove).unwrap();
    let (mut keys, randomness) = (SimulationKey::new(1), Randomness::Simulated { seed: 1 });
    let independent = mechanism_plan(Correlation::Independent);
    let mut mechanism = Mechanism::init(independent.clone(), quotient.encoding().layout(), randomness).unwrap();
    let released = mechanism.release(quotient.divide(Sum::zero(&encoding)).unwrap(), &mut keys).unwrap();
    let noised = released.update(quotient.encoding()).unwrap();
    let deviation = (noised.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>() / 2000.0).sqrt();
    // The update's share of the multiplier is a little more than 1.5 (Andrew et al. 2021, Theorem 1); 2 S / (q W_min) is 0.01.
    let want = 0.01 / (1.5f64.powi(-2) - 0.01).sqrt();
    assert!((deviation / want - 1.0).abs() < 5.0 / (2.0f64 * 2000.0).sqrt(), "{deviation} instead of {want}");
    // The sum itself has no noise, so that no mechanism releases it.
    assert!(matches!(Mechanism::init(independent, encoding.layout(), randomness), Err(MechanismError::Sigma(_))));
    assert!(matches!(mechanism.release(Sum::zero(&encoding), &mut keys), Err(MechanismError::Layout)));
    let matrices = [
        NoiseMatrix::Tree,
        NoiseMatrix::Banded { coefficients: vec![1.0, 0.5] },
        NoiseMatrix::Blt { buffer_decay: vec![0.5], output_scale: vec![0.5] },
    ];
    for matrix in matrices {
        let plan = mechanism_plan(Correlation::Matrix(matrix));
        assert_eq!(plan.check(quotient.encoding().layout()), Err(MechanismError::Quotient));
        assert!(Mechanism::init(plan, quotient.encoding().layout(), randomness).is_err());
    }

    let refused = |encoding: &Encoding, least: f64, noise: &NoisePlan| match Quotient::new(
        encoding,
        least,
        Some(noise),
        Adjacency::AddOrRemove,
    ) {
        Err(EncodingError::Plan { field, .. }) => field,
        other => panic!("{other:?}"),
    };
    for least in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e-5] {
        assert_eq!(refused(&encoding, least, &noise), "least_weight");
    }
    let weightless = VectorPlan { weight: false, ..plan.clone() };
    let weightless = Encoding::new(weightless, clip(0.5), None, Adjacency::AddOrRemove).unwrap();
    assert_eq!(refused(&weightless, 100.0, &noise), "weight");
    let with_weight = NoisePlan { weight: Some(z), ..noise };
    let aside = NoisePlan { weight: Some(NoiseMultiplier::new(40.0).unwrap()), ..noise };
    let noised = Encoding::new(plan, clip(0.5), Some(&aside), Adjacency::AddOrRemove).unwrap();
    assert_eq!(refused(&noised, 100.0, &noise), "noise");
    assert_eq!(refused(&encoding, 100.0, &with_weight), "weight", "the weight is not released");
}

/// Replacing a user moves the lemma's part twice and the rounding once.
#[test]
fn p10_replacing_moves_twice_as_far_and_is_rounded_once() {
    let encoding = encoding_of(50, 20);
    let segment = quotient_of(&encoding, 1e6).encoding().layout().segments()[0];
    let (added, replaced) = (segment.sensitivity(Adjacency::ZeroOut), segment.sensitivity(Adjacency::ReplaceOne));
    let rounding = 50.0f64.sqrt();
    assert!((replaced - (2.0 * (added - rounding) + rounding)).abs() < 1e-6, "{replaced} {added}");
}
