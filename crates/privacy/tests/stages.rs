//! The stages: what clipping and encoding promise, exactly.

#![allow(clippy::unwrap_used, reason = "a test that cannot be set up must stop")]

use keyhush_privacy::{
    Adjacency, ClipNorm, NoiseMultiplier, PrivacyEvent,
    encoding::{Counts, Encoding, EncodingError, NoisePlan, Rounding, VectorPlan, XU_ALPHA, layout, split},
    rng::{NoiseSource, Purpose, RandomWords, Randomness, SimulationKey},
    stages::{
        ClipBit, ClipRule, ClipRuleError, Clipping, Contribution, Encoded, LayerClip, Published, Sum, Update, project,
    },
};
use num_bigint::BigUint;
use proptest::prelude::*;

fn clip(c: f64) -> ClipNorm {
    ClipNorm::new(c).unwrap()
}

fn words(seed: u64) -> RandomWords {
    NoiseSource::from(SimulationKey::new(seed)).stream(Purpose::Rounding, &[]).chunk(0)
}

/// The exact integer `v * 2^149` of a finite f32 without its sign.
fn magnitude(v: f32) -> BigUint {
    let bits = v.to_bits() & 0x7fff_ffff;
    let (exponent, mantissa) = (bits >> 23, bits & 0x007f_ffff);
    if exponent == 0 { mantissa.into() } else { BigUint::from(mantissa | 0x0080_0000) << (exponent - 1) }
}

/// Whether the norm is at most the bound in exact arithmetic; the bound must be a normal number below 2^100.
fn within(values: &[f32], bound: f64) -> bool {
    let squared: BigUint = values.iter().map(|v| magnitude(*v).pow(2)).sum();
    let bits = bound.to_bits();
    let (exponent, mantissa) = ((bits >> 52) as i64 - 1075, bits & ((1 << 52) - 1) | 1 << 52);
    // Both sides times 2^(2 * 149) and, where the bound's last digit is smaller, times that.
    let raise = (-(exponent + 149)).max(0) as u64;
    let bound = BigUint::from(mantissa) << (exponent + 149 + raise as i64) as u64;
    squared << (2 * raise) <= bound.pow(2)
}

fn any_update() -> impl Strategy<Value = Vec<f32>> {
    let coordinate = prop_oneof![
        8 => -10.0f32..10.0,
        1 => any::<f32>().prop_filter("finite", |v| v.is_finite()),
        1 => Just(0.0),
        1 => (0u32..0x0080_0000).prop_map(f32::from_bits),
    ];
    prop::collection::vec(coordinate, 1..200)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(800))]

    #[test]
    fn after_clipping_the_norm_is_at_most_the_bound_exactly(update in any_update(), c in 1e-20..1e20f64) {
        let clipping = Clipping::new(ClipRule::Flat(clip(c)), ClipBit::None).unwrap();
        let clipped = Update::new(update.clone()).clip(&clipping, Contribution::default()).unwrap();
        prop_assert!(within(clipped.values(), c));
        // Nothing that was surely inside is moved.
        if within(&update, c * 0.999_999) {
            prop_assert_eq!(clipped.values(), &update[..]);
        } else if !within(&update, c * 1.000_001) && update.iter().all(|v| *v == 0.0 || v.abs() > 1e-20) && c > 1e-10 {
            prop_assert!(!within(clipped.values(), c * 0.999_99), "clipped to far less than the bound");
        }
    }

    /// A scaled copy of one vector stands right at the bound, where rounding decides.
    #[test]
    fn the_bound_holds_at_its_very_edge(update in prop::collection::vec(-1.0f32..1.0, 1..500), nudge in -4i32..4) {
        let norm = update.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>().sqrt();
        prop_assume!(norm > 1e-3);
        let c = f64::from_bits((norm.to_bits() as i64 + i64::from(nudge)) as u64);
        let mut values = update;
        project(&mut values, &ClipRule::Flat(clip(c))).unwrap();
        prop_assert!(within(&values, c));
    }

    #[test]
    fn layers_keep_their_own_bounds(update in prop::collection::vec(-10.0f32..10.0, 30), c in 0.1..20.0f64) {
        let rule = ClipRule::even_layers(clip(c), &[10, 5, 15]).unwrap();
        prop_assert!(rule.bound().get() <= c);
        let mut values = update;
        project(&mut values, &rule).unwrap();
        for layer in [&values[..10], &values[10..15], &values[15..]] {
            prop_assert!(within(layer, c / 3.0f64.sqrt()));
        }
        prop_assert!(within(&values, c));
    }

    #[test]
    fn one_bad_coordinate_makes_all_of_a_user_zero(
        mut update in prop::collection::vec(-1.0f32..1.0, 20), at in 0usize..20,
        bad in prop_oneof![Just(f32::NAN), Just(f32::INFINITY), Just(f32::NEG_INFINITY)],
        layers in any::<bool>(),
    ) {
        update[at] = bad;
        let encoding = full_encoding(20, None);
        let rule = if layers { ClipRule::even_layers(clip(1.0), &[12, 8]).unwrap() } else { ClipRule::Flat(clip(1.0)) };
        let bit = if layers { ClipBit::None } else { ClipBit::NormAtMost(clip(0.5)) };
        let said = Contribution { counts: vec![3, 4], ..Contribution::default() };
        let clipped = Update::new(update).clip(&Clipping::new(rule, bit).unwrap(), said).unwrap();
        let encoded = clipped.encode(&encoding, &mut words(1)).unwrap();
        prop_assert!(encoded.values().iter().all(|v| *v == 0), "bit, weight and counts included");
    }

    /// The integers keep the stated bound whatever comes: checked here in wide arithmetic, from the bytes.
    #[test]
    fn the_integer_norm_is_within_the_stated_bound(
        update in any_update(), c in 1e-6..1e6f64, grid_bits in 1u32..=28, weight in -0.5..1.5f64,
        rounding in prop_oneof![Just(Rounding::Nearest), (0.01..0.99f64).prop_map(|alpha| Rounding::ConditionalStochastic { alpha })],
        rotated in any::<bool>(), seed in any::<u64>(),
    ) {
        let rotation_seed = rotated.then_some([7; 32]);
        let plan = VectorPlan { rounding, rotation_seed, ..VectorPlan::of_update(update.len(), grid_bits) };
        let encoding = Encoding::new(plan, clip(c), None, Adjacency::ZeroOut).unwrap();
        let clipping = Clipping::new(ClipRule::Flat(clip(c)), ClipBit::None).unwrap();
        let clipped = Update::new(update).clip(&clipping, Contribution { weight, ..Contribution::default() }).unwrap();
        let encoded = clipped.encode(&encoding, &mut words(seed)).unwrap();
        let norm: u128 = encoded.values().iter().map(|v| u128::from(v.unsigned_abs()).pow(2)).sum();
        let stated = encoding.layout().segments()[0];
        prop_assert!(norm <= u128::from(stated.norm_squared));
        prop_assert!(encoded.values().iter().all(|v| v.unsigned_abs() <= stated.largest));
        let again = Encoded::check(&encoded.to_bytes(), &encoding).unwrap();
        prop_assert_eq!(again.values(), encoded.values());
    }
}

/// Everything that a vector can hold.
fn full_encoding(dimension: usize, noise: Option<&NoisePlan>) -> Encoding {
    let counts = Some(Counts { len: 2, cap: 100 });
    let plan = VectorPlan { clip_bit: true, weight: true, counts, ..VectorPlan::of_update(dimension, 16) };
    Encoding::new(plan, clip(1.0), noise, Adjacency::ZeroOut).unwrap()
}

#[test]
fn encoding_is_close_and_unbiased() {
    let update: Vec<f32> = (0..4000).map(|i| ((i * 37 % 100) as f32 - 50.0) / 40_000.0).collect();
    let clipping = Clipping::new(ClipRule::Flat(clip(0.1)), ClipBit::None).unwrap();
    for (rotation_seed, rounding) in [
        (None, Rounding::Nearest),
        (None, Rounding::ConditionalStochastic { alpha: XU_ALPHA }),
        (Some([3; 32]), Rounding::ConditionalStochastic { alpha: XU_ALPHA }),
    ] {
        let plan = VectorPlan { rounding, rotation_seed, ..VectorPlan::of_update(4000, 10) };
        let encoding = Encoding::new(plan, clip(0.1), None, Adjacency::ZeroOut).unwrap();
        let mut sum = Sum::zero(&encoding);
        let users = 400;
        for user in 0..users {
            let clipped = Update::new(update.clone()).clip(&clipping, Contribution::default()).unwrap();
            sum.add(&clipped.encode(&encoding, &mut words(user)).unwrap()).unwrap();
        }
        let released = sum.release_without_privacy(0, "a test of the encoding", Randomness::Secret);
        assert!(matches!(released.event(), PrivacyEvent::NonPrivate { .. }));
        let mean: Vec<f64> = released.update(&encoding).unwrap().iter().map(|v| f64::from(*v) / users as f64).collect();
        let step = encoding.grid_step();
        let worst = mean.iter().zip(&update).map(|(m, u)| (m - f64::from(*u)).abs() / step).fold(0.0, f64::max);
        // A stochastic rounding has a standard deviation of at most half a step, the mean of 400 one fortieth; 6 of those.
        let allowed = if rounding == Rounding::Nearest { 0.51 } else { 6.0 * 0.5 / (users as f64).sqrt() };
        assert!(worst < allowed, "{rounding:?}, rotation {}: {worst} steps", rotation_seed.is_some());
    }
}

/// What [`Encoding::grid_rule`] says to engines that round elsewhere.
#[test]
fn what_rounding_to_nearest_takes_beyond_the_bound_is_rounded_towards_zero() {
    for (grid_bits, dimension) in [(8, 870), (12, 980), (18, 1000)] {
        let plan = VectorPlan { rounding: Rounding::Nearest, ..VectorPlan::of_update(dimension, grid_bits) };
        let encoding = Encoding::new(plan, clip(1.0), None, Adjacency::AddOrRemove).unwrap();
        let rule = encoding.grid_rule().unwrap();
        assert!(rule.truncates && !rule.stochastic);
        // Every coordinate lies 0.4 below an integer, and the norm a little below the clip norm.
        let norm = f64::from(1 << grid_bits);
        let steps = (norm / (dimension as f64).sqrt()).floor() + 0.6;
        let update = Update::new(vec![(steps / norm) as f32; dimension]);
        let clipping = Clipping::new(ClipRule::Flat(clip(1.0)), ClipBit::None).unwrap();
        let clipped = update.clip(&clipping, Contribution::default()).unwrap();
        assert!((dimension as f64) * steps.ceil().powi(2) > rule.norm_squared as f64, "{grid_bits}: nothing to cut");
        let encoded = clipped.encode(&encoding, &mut words(1)).unwrap();
        assert_eq!(encoded.values(), vec![steps.floor() as i32; dimension], "{grid_bits}");
    }
    // Here rounding to floats alone may take a vector beyond the bound.
    let plan = VectorPlan { rounding: Rounding::Nearest, ..VectorPlan::of_update(1000, 24) };
    assert!(!Encoding::new(plan, clip(1.0), None, Adjacency::AddOrRemove).unwrap().grid_rule().unwrap().truncates);
    let rounding = Rounding::ConditionalStochastic { alpha: XU_ALPHA };
    let plan = VectorPlan { rounding, ..VectorPlan::of_update(1000, 18) };
    let rule = Encoding::new(plan, clip(1.0), None, Adjacency::AddOrRemove).unwrap().grid_rule().unwrap();
    assert!(rule.stochastic && !rule.truncates, "drawn again instead");
}

/// Source: an independent evaluation of Xu et al. 2023, section 2.4 (C, d, s, alpha, C_inflated).
#[test]
fn the_inflation_is_that_of_xu_et_al() {
    let cases = [
        (5.0, 2_400_000, 1e3, XU_ALPHA, 5.060_214_876_531_355),
        (5.0, 2_400_000, 1e4, XU_ALPHA, 5.000_650_732_251_423),
        (5.0, 4_194_304, 1e4, XU_ALPHA, 5.001_099_479_114_567_5),
        (5.0, 4_400_000, 1e4, XU_ALPHA, 5.001_150_916_348_004),
        (5.0, 8_388_608, 1e5, XU_ALPHA, 5.000_025_985_934_02),
        (1.0, 6_400_000, 1e5, XU_ALPHA, 1.000_085_06),
        (0.5, 1024, 100.0, 0.1, 0.538_296_74),
        (15.0, 1_350_000, 1e3, 0.01, 15.012_820_72),
        (5.0, 2_400_000, 1e6, XU_ALPHA, 5.000_000_56),
    ];
    for (c, d, s, alpha, want) in cases {
        let rounding = Rounding::ConditionalStochastic { alpha };
        let got = rounding.norm_squared_bound(s * c, d).sqrt() / s;
        assert!((got - want).abs() < 1e-8, "C {c}, d {d}, s {s}: {got}, expected {want}");
    }
    // And it is in the sensitivity that the event has.
    let plan =
        VectorPlan { rounding: Rounding::ConditionalStochastic { alpha: 0.1 }, ..VectorPlan::of_update(1024, 6) };
    let encoding = Encoding::new(plan, clip(0.5), None, Adjacency::ZeroOut).unwrap();
    let want = Rounding::ConditionalStochastic { alpha: 0.1 }.norm_squared_bound(64.0, 1024).sqrt() / 128.0;
    let inflated = encoding.layout().segments()[0].sensitivity(Adjacency::ZeroOut) * encoding.grid_step();
    assert!((inflated / want - 1.0).abs() < 1e-4, "{inflated} {want}");
}

/// Source: Andrew et al. 2021, Theorem 1, evaluated independently (z, sigma_b, z_delta).
#[test]
fn p9_the_split_is_theorem_1_of_andrew_et_al() {
    let cases = [
        (1.0, 5.0, 1.005_037_815_259_212),
        (0.669, 111.55, 0.669_003_007_822_099_8),
        (0.513, 25.65, 0.513_025_651_923_910_4),
        (1.396, 697.9, 1.396_000_698_200_566_8),
        (7.0, 325.0, 7.000_405_952_470_763),
        (1.0, 1.0, 1.154_700_538_379_251_5),
    ];
    for (z, sigma_b, want) in cases {
        let got = split(NoiseMultiplier::new(z).unwrap(), &[2.0 * sigma_b]).unwrap().get();
        assert!((got - want).abs() < 1e-12 * want, "{z} {sigma_b}: {got}");
    }
    let refused = split(NoiseMultiplier::new(2.0).unwrap(), &[1.9]).unwrap_err();
    assert!(matches!(refused, EncodingError::Split { .. }), "{refused}");
}

#[test]
fn p9_the_joint_event_is_that_of_the_whole_layout() {
    let z = NoiseMultiplier::new(1.5).unwrap();
    let aside = NoiseMultiplier::new(40.0).unwrap();
    let noise = NoisePlan { multiplier: z, clip_count_stddev: Some(5.0), weight: Some(aside), counts: Some(aside) };
    let encoding = full_encoding(1000, Some(&noise));
    let segments = encoding.layout().segments();
    assert_eq!(segments.len(), 4);
    // Half a bit is 2^15 steps and gets noise of 2 h sigma_b: ten times half a bit.
    assert_eq!((segments[1].largest, segments[1].sigma), (1 << 15, 10 * (1 << 15) + 1));
    let precision: f64 =
        segments.iter().map(|s| s.sensitivity(Adjacency::ZeroOut).powi(2) / ((s.sigma as f64).powi(2) - 9.0)).sum();
    let joint = 1.0 / precision.sqrt();
    assert!((1.5..1.5 * (1.0 + 1e-4)).contains(&joint), "{joint}");
    // Noise without a segment, or a segment without noise, is refused before the run starts.
    let forgotten = NoisePlan { counts: None, ..noise };
    let plan = VectorPlan { counts: Some(Counts { len: 2, cap: 100 }), ..VectorPlan::of_update(10, 16) };
    let refused = Encoding::new(plan, clip(1.0), Some(&forgotten), Adjacency::ZeroOut).unwrap_err();
    assert!(matches!(refused, EncodingError::Plan { field: "clip_count_stddev", .. }), "{refused}");
    let plan = VectorPlan { weight: true, clip_bit: true, ..VectorPlan::of_update(10, 16) };
    let unset = NoisePlan { weight: None, counts: None, ..noise };
    let refused = Encoding::new(plan, clip(1.0), Some(&unset), Adjacency::ZeroOut).unwrap_err();
    assert!(matches!(refused, EncodingError::Plan { field: "weight", .. }), "{refused}");
}

#[test]
fn p1_replacing_a_user_moves_twice_as_far() {
    let noise = NoisePlan::of_update(NoiseMultiplier::new(3.0).unwrap());
    let of = |adjacency| {
        let plan = VectorPlan::of_update(100, 16);
        Encoding::new(plan, clip(1.0), Some(&noise), adjacency).unwrap().layout().segments()[0]
    };
    let (zero_out, replace) = (of(Adjacency::ZeroOut), of(Adjacency::ReplaceOne));
    assert_eq!(replace.sensitivity(Adjacency::ReplaceOne), 2.0 * zero_out.sensitivity(Adjacency::ZeroOut));
    assert!(replace.sigma >= 2 * zero_out.sigma - 2);
}

#[test]
fn p9_the_clip_bit_and_the_grid() {
    let encoding = full_encoding(4, None);
    let flat = |bit| Clipping::new(ClipRule::Flat(clip(1.0)), bit).unwrap();
    let bit_of = |update: Vec<f32>, clipping: &Clipping, said| {
        let clipped = Update::new(update).clip(clipping, said).unwrap();
        clipped.encode(&encoding, &mut words(1)).unwrap().values()[4]
    };
    let half = layout::HALF_BIT as i32;
    let tracked = flat(ClipBit::NormAtMost(clip(0.5)));
    assert_eq!(
        bit_of(vec![0.0, 0.5, 0.0, 0.0], &tracked, Contribution::default()),
        half,
        "at the tracked clip is under"
    );
    assert_eq!(bit_of(vec![0.0, 0.500_001, 0.0, 0.0], &tracked, Contribution::default()), -half);
    let greedy = flat(ClipBit::NeverProjected);
    let projected = Contribution { projected: true, ..Contribution::default() };
    assert_eq!(bit_of(vec![0.1; 4], &greedy, projected), -half);
    assert_eq!(bit_of(vec![0.1; 4], &greedy, Contribution::default()), half);
    for evil in [f32::NAN, f32::INFINITY] {
        for clipping in [&tracked, &greedy] {
            let bit = bit_of(vec![0.0, evil, 0.0, 0.0], clipping, Contribution::default());
            assert_eq!(bit, 0, "who is not finite is nothing");
        }
    }
    let refused = Clipping::new(ClipRule::even_layers(clip(1.0), &[2, 2]).unwrap(), ClipBit::NormAtMost(clip(1.0)));
    assert_eq!(refused.unwrap_err(), ClipRuleError::AdaptiveLayers);

    // The grid follows the clip: integers, bounds and noise stay.
    let moved = encoding.with_clip(clip(0.01));
    assert_eq!(moved.layout(), encoding.layout());
    assert_eq!(moved.grid_step(), encoding.grid_step() * 0.01);
    assert_ne!(moved.id(), encoding.id(), "but vectors of the two are never added");
}

#[test]
fn p10_weights_multiply_after_clipping() {
    let encoding = full_encoding(2, None);
    let clipping = Clipping::new(ClipRule::Flat(clip(1.0)), ClipBit::None).unwrap();
    let of = |weight: f64| {
        let said = Contribution { weight, counts: vec![7, 1000], ..Contribution::default() };
        let clipped = Update::new(vec![30.0, 40.0]).clip(&clipping, said).unwrap();
        clipped.encode(&encoding, &mut words(1)).unwrap().values().to_vec()
    };
    let near = |got: i32, want: f64| (f64::from(got) - want).abs() <= 1.0;
    let quarter = of(0.25);
    assert!(near(quarter[0], 0.6 * 16384.0) && near(quarter[1], 0.8 * 16384.0), "{quarter:?}");
    assert_eq!(quarter[3..], [1 << 13, 7, 100], "weight, and counts cut to their cap");
    assert_eq!(of(2.0)[3], 1 << 15, "at most 1");
    for bad in [f64::NAN, -1.0] {
        assert_eq!(of(bad)[..2], [0, 0], "no weight, no update");
    }
}

#[test]
fn hostile_bytes_do_not_become_encoded() {
    let encoding = full_encoding(3, None);
    let half = layout::HALF_BIT as i32;
    let honest = Encoded::of(vec![100, -5, 60_000, half, 1 << 15, 100, 0], &encoding).unwrap().to_bytes();
    // 18, 17, 17 and 8 bits: three, one, one and two of them, each in whole bytes.
    assert_eq!(honest.len(), 7 + 3 + 3 + 2);
    assert!(Encoded::check(&honest, &encoding).is_ok());
    for (evil, why) in [
        ([65_537, 65_537, 0, half, 0, 0, 0], "norm"),
        ([i32::MIN, 0, 0, half, 0, 0, 0], "range"),
        ([0, 0, 0, 1, 0, 0, 0], "a bit that is none"),
        ([0, 0, 0, half, (1 << 15) + 1, 0, 0], "weight above 1"),
        ([0, 0, 0, half, -1, 0, 0], "negative weight"),
        ([0, 0, 0, half, 0, 101, 0], "count above its cap"),
        ([0, 0, 0, half, 0, 0, -1], "negative count"),
    ] {
        let refused = Encoded::of(evil.to_vec(), &encoding).unwrap_err();
        assert!(matches!(refused, EncodingError::Bound { .. }), "{why}: {refused}");
    }
    // As bytes: a norm that is too large, a lane of -2^(b-1), a weight above 1, a bit that is none, something behind the end.
    for (at, evil) in [(1, 0xff), (2, 0x02), (11, 0xff), (7, 0x01), (6, 0x80)] {
        let mut bytes = honest.clone();
        bytes[at] = evil;
        let refused = Encoded::check(&bytes, &encoding).unwrap_err();
        assert!(matches!(refused, EncodingError::Bound { .. }), "{at}: {refused}");
    }
    for cut in [0, 4, 14, 16] {
        assert!(matches!(Encoded::check(&vec![0; cut], &encoding).unwrap_err(), EncodingError::Bytes { .. }));
    }
    assert!(matches!(Encoded::of(vec![0; 6], &encoding).unwrap_err(), EncodingError::Length { .. }));
}

#[test]
fn sums_do_not_mix_and_do_not_depend_on_order() {
    let encoding = full_encoding(50, None);
    let other = encoding.with_clip(clip(2.0));
    let clipping = Clipping::new(ClipRule::Flat(clip(1.0)), ClipBit::NormAtMost(clip(1.0))).unwrap();
    let user = |i: u64, encoding: &Encoding| {
        let update = (0..50).map(|j| ((i * 31 + j * 17) % 13) as f32 - 6.0).collect();
        let clipped = Update::new(update).clip(&clipping, Contribution::default()).unwrap();
        clipped.encode(encoding, &mut words(i)).unwrap()
    };
    let total = |order: &[u64], split_at: usize| {
        let (mut a, mut b) = (Sum::zero(&encoding), Sum::zero(&encoding));
        for (n, i) in order.iter().enumerate() {
            if n < split_at { a.add(&user(*i, &encoding)).unwrap() } else { b.add(&user(*i, &encoding)).unwrap() }
        }
        a.merge(b).unwrap();
        a.release_without_privacy(0, "a test", Randomness::Secret).values().to_vec()
    };
    assert_eq!(total(&[1, 2, 3, 4, 5], 5), total(&[5, 3, 1, 2, 4], 2));
    let mut sum = Sum::zero(&encoding);
    assert_eq!(sum.add(&user(1, &other)).unwrap_err(), EncodingError::Mixed);
    assert_eq!(sum.merge(Sum::zero(&other)).unwrap_err(), EncodingError::Mixed);
    // What the parts of an asserted sum cannot have been is refused.
    let impossible = vec![3 << 16; 54];
    assert!(matches!(Sum::assertion(impossible, 2, &encoding).unwrap_err(), EncodingError::Bound { .. }));
    assert!(matches!(Sum::assertion(vec![0; 5], 2, &encoding).unwrap_err(), EncodingError::Length { .. }));
}

#[test]
fn sums_of_several_processes_are_added_where_they_could_be_sums() {
    let encoding = full_encoding(50, None);
    let largest = i64::from(encoding.layout().segments()[0].largest);
    let of_all = |value: i64, all: u64| {
        Sum::zero(&encoding).across_processes(|values, users| -> Result<(), EncodingError> {
            assert_eq!((values.len(), *users), (54, 0));
            values[7] += value;
            *users += all;
            Ok(())
        })
    };
    let sum = of_all(-3 * largest, 3).unwrap().release_without_privacy(0, "a test", Randomness::Secret);
    assert_eq!(sum.values().iter().sum::<i64>(), -3 * largest);
    assert!(matches!(of_all(3 * largest + 1, 3).unwrap_err(), EncodingError::Bound { .. }));
    assert_eq!(of_all(0, 1 << 32).unwrap_err(), EncodingError::TooManyUsers);
    let failed = Sum::zero(&encoding).across_processes(|_, _| Err(EncodingError::Other));
    assert_eq!(failed.unwrap_err(), EncodingError::Other);
}

#[test]
fn rules_of_clipping_arrive_as_they_left_and_are_checked() {
    let layers = ClipRule::even_layers(clip(0.3), &[2, 3]).unwrap();
    for (rule, bit) in [
        (ClipRule::Flat(clip(0.1)), ClipBit::None),
        (ClipRule::Flat(clip(0.1)), ClipBit::NormAtMost(clip(0.7))),
        (ClipRule::Flat(clip(0.1)), ClipBit::NeverProjected),
        (layers, ClipBit::None),
    ] {
        let sent = Clipping::new(rule, bit).unwrap();
        let text = serde_json::to_string(&sent).unwrap();
        assert_eq!(serde_json::from_str::<Clipping>(&text).unwrap(), sent, "{text}");
    }
    let layers_with_a_bit = r#"{"rule":{"per_layer":[{"len":2,"bound":0.1}]},"bit":"never_projected"}"#;
    let refused = serde_json::from_str::<Clipping>(layers_with_a_bit).unwrap_err().to_string();
    assert!(refused.contains(&ClipRuleError::AdaptiveLayers.to_string()), "{refused}");
}

#[test]
fn p12_nothing_of_a_user_is_shown() {
    let clipping = Clipping::new(ClipRule::Flat(clip(1.0)), ClipBit::None).unwrap();
    let update = Update::new(vec![0.123_456, 0.5]);
    assert_eq!(format!("{update:?}"), "Update(2 coordinates)");
    let clipped = update.clip(&clipping, Contribution::default()).unwrap();
    assert_eq!(format!("{clipped:?}"), "Clipped(2 coordinates to norm 1)");
    let encoding = full_encoding(2, None);
    let encoded = clipped.encode(&encoding, &mut words(1)).unwrap();
    assert_eq!(format!("{encoded:?}"), "Encoded(6 integers)");
    let mut sum = Sum::zero(&encoding);
    sum.add(&encoded).unwrap();
    assert_eq!(format!("{sum:?}"), "Sum(6 integers)");
}

#[test]
fn what_was_published_is_read_back_or_refused() {
    let encoding = full_encoding(30, None);
    let released = Sum::zero(&encoding).release_without_privacy(4, "a test", Randomness::Simulated { seed: 3 });
    let bytes = released.to_bytes();
    assert_eq!(Published::parse(&bytes).unwrap(), *released);
    for length in 0..bytes.len() {
        assert!(Published::parse(&bytes[..length]).is_err(), "{length} bytes");
    }
    let text = String::from_utf8_lossy(&bytes[8..]).replacen("\"len\":30", &format!("\"len\":{}", usize::MAX), 1);
    let facts = text.split_once('\0').unwrap().0;
    let too_many = [&(facts.len() as u64).to_le_bytes(), facts.as_bytes()].concat();
    assert!(Published::parse(&too_many).unwrap_err().to_string().contains("not those of the layout"));
}

#[test]
fn layers_must_be_those_of_the_update() {
    let rule = ClipRule::PerLayer(vec![LayerClip { len: 3, bound: clip(1.0) }]);
    let refused = project(&mut [0.0; 4], &rule).unwrap_err();
    assert_eq!(refused, ClipRuleError::Length { expected: 3, got: 4 });
    assert_eq!(Clipping::new(ClipRule::PerLayer(Vec::new()), ClipBit::None).unwrap_err(), ClipRuleError::NoLayers);
}
