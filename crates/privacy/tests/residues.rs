//! Residues for secure aggregation: the same sum as of the integers themselves, to the bit (rule P19).

#![allow(clippy::unwrap_used, reason = "a test that cannot be set up must stop")]

use keyhush_privacy::{
    Adjacency, ClipNorm,
    encoding::{Counts, Encoding, EncodingError, Rounding, VectorPlan, XU_ALPHA, layout},
    rng::{NoiseSource, Purpose, RandomWords, Randomness, SimulationKey},
    stages::{ClipBit, ClipRule, Clipping, Contribution, Encoded, Quotient, Residues, Sum, Update},
};
use proptest::prelude::*;

fn words(seed: u64) -> RandomWords {
    NoiseSource::from(SimulationKey::new(seed)).stream(Purpose::Rounding, &[]).chunk(0)
}

/// Everything that a vector can hold.
fn full_encoding(dimension: usize, grid_bits: u32, rotated: bool) -> Encoding {
    let plan = VectorPlan {
        rounding: Rounding::ConditionalStochastic { alpha: XU_ALPHA },
        rotation_seed: rotated.then_some([5; 32]),
        clip_bit: true,
        weight: true,
        counts: Some(Counts { len: 3, cap: 40 }),
        ..VectorPlan::of_update(dimension, grid_bits)
    };
    Encoding::new(plan, ClipNorm::new(0.5).unwrap(), None, Adjacency::ZeroOut).unwrap()
}

fn of_integers(encoding: &Encoding, values: &[i32]) -> Encoded {
    Encoded::of(values.to_vec(), encoding).unwrap()
}

fn user(encoding: &Encoding, seed: u64) -> Encoded {
    let clip = encoding.clip();
    let clipping = Clipping::new(ClipRule::Flat(clip), ClipBit::NormAtMost(clip)).unwrap();
    let mut random = words(seed);
    let mut update: Vec<f32> =
        (0..encoding.dimension()).map(|_| (random.next_word() % 2001) as f32 / 1000.0 - 1.0).collect();
    if seed % 7 == 3 {
        update[0] = f32::NAN; // All of this user is zero, the clip bit too.
    }
    let counts = (0..3).map(|_| (random.next_word() % 60) as u32).collect();
    let said = Contribution { weight: (seed % 5) as f64 / 4.0, counts, ..Contribution::default() };
    Update::new(update).clip(&clipping, said).unwrap().encode(encoding, &mut random).unwrap()
}

/// What secure aggregation does: it adds, mod 2^b.
fn added(residues: &Residues, vectors: &[Vec<u32>]) -> Vec<u32> {
    let mask = u32::MAX >> (32 - residues.bits());
    let add = |sum: Vec<u32>, v: &Vec<u32>| sum.iter().zip(v).map(|(a, b)| a.wrapping_add(*b) & mask).collect();
    vectors.iter().fold(vec![0; residues.len()], add)
}

fn seen(sum: Sum) -> Vec<i64> {
    sum.release_without_privacy(0, "a test", Randomness::Secret).values().to_vec()
}

fn plain(encoding: &Encoding, users: &[Encoded]) -> Vec<i64> {
    let mut sum = Sum::zero(encoding);
    users.iter().for_each(|one| sum.add(one).unwrap());
    seen(sum)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// However many of those that were expected are left.
    #[test]
    fn p19_the_sum_is_the_plain_sum_of_the_survivors(
        dimension in 1usize..60, grid_bits in 1u32..=20, rotated in any::<bool>(),
        most in 1u64..40, survive in 0.0..=1.0f64, seed in any::<u32>(),
    ) {
        let encoding = full_encoding(dimension, grid_bits, rotated);
        let survivors = (survive * most as f64).round() as u64;
        let users: Vec<Encoded> = (0..survivors).map(|i| user(&encoding, u64::from(seed) + i)).collect();
        let residues = Residues::new(&encoding, most).unwrap();
        let vectors: Vec<Vec<u32>> = users.iter().map(|one| residues.of(one).unwrap().to_vec()).collect();
        prop_assert!(vectors.iter().flatten().all(|r| *r <= residues.largest()));
        let sum = residues.sum(&added(&residues, &vectors), survivors).unwrap();
        prop_assert_eq!(seen(sum), plain(&encoding, &users));
    }

    /// The modulus holds the largest sum of the most inputs, and half of it would not.
    #[test]
    fn p19_the_modulus_is_neither_too_small_nor_too_large(
        grid_bits in 1u32..=28, most in 1u64..=100_000, rotated in any::<bool>(), dimension in 1usize..3000,
    ) {
        let encoding = full_encoding(dimension, grid_bits, rotated);
        let segments = encoding.layout().segments();
        // Updates go both ways; weights and counts are not negative; a clip bit is one of three.
        let widths = [2 * u128::from(segments[0].largest), 2, 1 << 15, 40];
        let needed = widths.map(|w| w * u128::from(most) + 1).into_iter().max().unwrap();
        match Residues::new(&encoding, most) {
            Ok(residues) => {
                prop_assert!(needed <= 1 << residues.bits() && needed > 1 << (residues.bits() - 1));
                prop_assert_eq!(u128::from(residues.largest()), widths.into_iter().max().unwrap());
            }
            Err(EncodingError::Modulus { bits, .. }) => {
                prop_assert!(bits > 32 && needed > 1 << 32 && needed > 1 << (bits - 1) && needed <= 1 << bits);
            }
            Err(other) => prop_assert!(false, "{}", other),
        }
    }
}

/// Everybody at the bound, on both sides of it, and one user more than fits in a bit less.
#[test]
fn p19_sums_at_the_very_edge_do_not_wrap() {
    let plan = VectorPlan { counts: Some(Counts { len: 1, cap: 31 }), ..VectorPlan::of_update(1, 1) };
    let encoding = Encoding::new(plan, ClipNorm::new(1.0).unwrap(), None, Adjacency::ZeroOut).unwrap();
    let most = encoding.layout().segments()[0].largest as i32;
    // 31 * 33 = 2^10 - 1.
    for (inputs, bits) in [(33, 10), (34, 11)] {
        let residues = Residues::new(&encoding, inputs).unwrap();
        assert_eq!(residues.bits(), bits);
        for end in [most, -most] {
            let all = of_integers(&encoding, &[end, 31]);
            let vectors = vec![residues.of(&all).unwrap().to_vec(); inputs as usize];
            let sum = residues.sum(&added(&residues, &vectors), inputs).unwrap();
            assert_eq!(seen(sum), [i64::from(end) * inputs as i64, 31 * inputs as i64]);
        }
    }
}

/// A clip bit is carried as one of three, so it does not decide the modulus; half a bit is 2^15 grid steps.
#[test]
fn p9_a_clip_bit_takes_two_bits_of_the_modulus() {
    let plan = |clip_bit| VectorPlan { clip_bit, rotation_seed: Some([1; 32]), ..VectorPlan::of_update(100_000, 10) };
    let bits = |clip_bit| {
        let encoding = Encoding::new(plan(clip_bit), ClipNorm::new(1.0).unwrap(), None, Adjacency::ZeroOut).unwrap();
        Residues::new(&encoding, 1000).unwrap().bits()
    };
    assert_eq!(bits(true), bits(false));
    let encoding = full_encoding(1, 8, false);
    let residues = Residues::new(&encoding, 3).unwrap();
    let half = layout::HALF_BIT as i32;
    let of = |bit| residues.of(&of_integers(&encoding, &[0, bit, 0, 0, 0, 0])).unwrap()[1];
    assert_eq!([of(-half), of(0), of(half)], [0, 1, 2]);
}

#[test]
fn p19_what_cannot_be_a_sum_is_refused() {
    let encoding = full_encoding(4, 8, false);
    let residues = Residues::new(&encoding, 5).unwrap();
    let none = vec![0; residues.len()];
    assert_eq!(seen(residues.sum(&none, 0).unwrap()), vec![0; residues.len()], "nobody");
    assert_eq!(residues.sum(&none, 6).unwrap_err(), EncodingError::Survivors { got: 6, least: 0, most: 5 });
    assert!(matches!(residues.sum(&none[1..], 5).unwrap_err(), EncodingError::Length { .. }));
    let mut beyond = none.clone();
    beyond[2] = 1 << residues.bits();
    let (got, bits) = (beyond[2], residues.bits());
    assert_eq!(residues.sum(&beyond, 5).unwrap_err(), EncodingError::Residue { got, bits });
    // More than five users have, though it is a residue: 5 * 40 counts are the most.
    let mut many = residues.of(&user(&encoding, 1)).unwrap().to_vec();
    many[7] = 201;
    assert!(matches!(residues.sum(&many, 5).unwrap_err(), EncodingError::Bound { .. }));
    let other = encoding.with_clip(ClipNorm::new(1.0).unwrap());
    assert_eq!(Residues::new(&other, 5).unwrap().of(&user(&encoding, 1)).unwrap_err(), EncodingError::Mixed);
    for most_inputs in [0, 1 << 32] {
        let refused = Residues::new(&encoding, most_inputs).unwrap_err();
        assert!(matches!(refused, EncodingError::Plan { field: "most_inputs", .. }), "{refused}");
    }
    let fine = full_encoding(4, 24, false);
    let refused = Residues::new(&fine, 1000).unwrap_err();
    assert_eq!(refused, EncodingError::Modulus { bits: 35, most_inputs: 1000 });
    for advice in ["35 bits", "privacy.rotation", "grid_bits", "smaller cohort"] {
        assert!(refused.to_string().contains(advice), "{refused}");
    }
    let noised = residues.noised(user(&encoding, 1), &mut words(1)).unwrap_err();
    assert!(matches!(noised, EncodingError::Noised(_)), "{noised}");
    assert!(matches!(residues.noised_sum(&none, 0).unwrap_err(), EncodingError::Noised(_)));
}

/// The lemma of the clipped denominator needs every update to keep to its weight, and of these nobody saw one.
#[test]
fn p10_an_asserted_sum_is_not_divided_by_its_weight() {
    let plan = VectorPlan { weight: true, ..VectorPlan::of_update(2, 8) };
    let encoding = Encoding::new(plan, ClipNorm::new(1.0).unwrap(), None, Adjacency::AddOrRemove).unwrap();
    let quotient = Quotient::new(&encoding, 1.0, None, Adjacency::AddOrRemove).unwrap();
    let one = of_integers(&encoding, &[100, -100, 1 << 15]);
    let residues = Residues::new(&encoding, 1).unwrap();
    let asserted = || residues.sum(&residues.of(&one).unwrap(), 1).unwrap();
    assert_eq!(quotient.divide(asserted()).unwrap_err(), EncodingError::Asserted);
    let mut merged = Sum::zero(&encoding);
    merged.add(&one).unwrap();
    merged.merge(asserted()).unwrap();
    assert_eq!(quotient.divide(merged).unwrap_err(), EncodingError::Asserted);
    let mut checked = Sum::zero(&encoding);
    checked.add(&one).unwrap();
    assert!(quotient.divide(checked).is_ok());
}
