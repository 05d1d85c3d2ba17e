//! The random rotation and its bound: Xu et al. 2023, section 2.4 and Algorithm 2.

use keyhush_privacy::encoding::rotation::{MAX_DIMENSION, Rotation, RotationError, clamp_linf, linf_bound};
use proptest::prelude::*;

fn rotation(dimension: usize, seed: u8) -> Rotation {
    Rotation::new(dimension, [seed; 32]).expect("a legal dimension")
}

/// Independent of the library's own randomness.
fn sample(n: usize, seed: u64) -> Vec<f64> {
    let mut state = seed;
    let mut next = move || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ z >> 31) >> 11) as f64 / 2_f64.powi(52) - 1.0
    };
    (0..n).map(|_| next()).collect()
}

fn singles(values: &[f64]) -> Vec<f32> {
    values.iter().map(|v| *v as f32).collect()
}

fn norm(values: impl IntoIterator<Item = f64>) -> f64 {
    values.into_iter().map(|v| v * v).sum::<f64>().sqrt()
}

fn distance(a: &[f32], b: &[f32]) -> f64 {
    norm(a.iter().zip(b).map(|(a, b)| f64::from(*a) - f64::from(*b)))
}

/// The matrix, column by column, from what the way back does to the unit vectors in `f64`: its rows.
fn dense(rotation: &Rotation) -> Vec<Vec<f64>> {
    let row = |i: usize| {
        let mut row = vec![0.0; rotation.padded()];
        row[i] = 1.0;
        rotation.inverse_f64(&mut row);
        row
    };
    let rows: Vec<Vec<f64>> = (0..rotation.padded()).map(row).collect();
    (0..rotation.padded()).map(|j| rows.iter().map(|row| row[j]).collect()).collect()
}

/// c * 2^a for all c, on both sides of where vector code begins.
const SMALL: [usize; 21] = [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 64, 96, 128, 160, 224, 256, 384, 448, 640];

#[test]
fn padding_is_the_smallest_with_a_factor_of_1_3_5_or_7() {
    for (dimension, padded) in [
        (2_400_000, 5 << 19),
        (1_350_000, 3 << 19),
        (6_400_000, 7 << 20),
        (1 << 21, 1 << 21),
        ((1 << 21) + 1, 5 << 19),
        (1, 1),
        (9, 10),
        (11, 12),
        (13, 14),
        (15, 16),
        (17, 20),
    ] {
        assert_eq!(rotation(dimension, 0).padded(), padded, "{dimension}");
        assert_eq!(rotation(dimension, 0).dimension(), dimension);
    }
    assert_eq!((5 << 19, 3 << 19, 7 << 20), (2_621_440, 1_572_864, 7_340_032));
}

#[test]
fn nothing_and_too_much_are_refused() {
    assert_eq!(Rotation::new(0, [0; 32]), Err(RotationError::Empty));
    for got in [MAX_DIMENSION + 1, usize::MAX] {
        assert_eq!(Rotation::new(got, [0; 32]), Err(RotationError::TooLong { got }));
    }
}

#[test]
#[should_panic(expected = "another length")]
fn a_vector_of_another_length_is_refused() {
    rotation(100, 0).forward(&mut [0.0; 100]); // padded to 112
}

#[test]
fn the_matrix_is_orthonormal_and_peak_is_its_largest_entry() {
    for size in SMALL {
        let rotation = rotation(size, 9);
        let columns = dense(&rotation);
        let d = size as f64;
        // Each column with itself and, of many, with every seventh of the others.
        let every = if size > 64 { 7 } else { 1 };
        for (j, a) in columns.iter().enumerate() {
            for (k, b) in columns.iter().enumerate().skip(j).step_by(every) {
                let dot: f64 = a.iter().zip(b).map(|(a, b)| a * b).sum();
                assert!((dot - f64::from(u8::from(j == k))).abs() < 1e-14, "{size} {j} {k}: {dot}");
            }
        }
        let largest = columns.iter().flatten().fold(0.0_f64, |m, v| m.max(v.abs()));
        assert!((largest * d.sqrt() - rotation.peak()).abs() < 1e-14, "{size}");
        assert!(rotation.peak() < 1.22);
        if size.is_power_of_two() {
            assert_eq!(rotation.peak(), 1.0);
        }
    }
}

#[test]
fn single_precision_is_the_dense_matrix_up_to_rounding() {
    for size in SMALL {
        let rotation = rotation(size, 17);
        let x = sample(size, 5);
        let columns = dense(&rotation);
        let mut got = singles(&x);
        rotation.forward(&mut got);
        for (i, got) in got.iter().enumerate() {
            let want: f64 = columns.iter().zip(&x).map(|(column, x)| column[i] * x).sum();
            assert!((f64::from(*got) - want).abs() < 2e-6, "{size} {i}: {got} {want}");
        }
    }
}

/// What `f32` may lose, as a part of the norm: half a unit in the last place for each stage, and for the c x c matrix.
fn rounding(rotation: &Rotation) -> f64 {
    (f64::from(rotation.padded().ilog2()) + 10.0) * f64::from(f32::EPSILON) / 2.0
}

#[test]
fn norms_are_kept_and_vectors_come_back() {
    for dimension in [1, 9, 100, 1000, 1 << 12, 5000, 12_000, 100_000, 400_000, 1 << 20] {
        let rotation = rotation(dimension, 4);
        let x = singles(&sample(rotation.padded(), dimension as u64));
        let length = norm(x.iter().map(|v| f64::from(*v)));
        let mut y = x.clone();
        rotation.forward(&mut y);
        let rotated = norm(y.iter().map(|v| f64::from(*v)));
        assert!((rotated / length - 1.0).abs() < rounding(&rotation), "{dimension}: {rotated} {length}");
        rotation.inverse(&mut y);
        assert!(distance(&x, &y) < 2.0 * rounding(&rotation) * length, "{dimension}");
    }
}

/// A sum of rotated integer vectors, as the server rotates it back: in `f64`, without the padding.
fn rotated_back(rotation: &Rotation, sum: &[i64]) -> Vec<f64> {
    let mut values: Vec<f64> = sum.iter().map(|v| *v as f64).collect();
    rotation.inverse_f64(&mut values);
    values.truncate(rotation.dimension());
    values
}

#[test]
fn a_rotation_is_linear_in_the_sum_over_users() {
    // The server inverts the sum of what the devices rotated.
    let rotation = rotation(1000, 2);
    let mut sum = vec![0_i64; rotation.padded()];
    let mut want = vec![0.0; 1000];
    for user in 0..50 {
        let x = sample(1000, user);
        want.iter_mut().zip(&x).for_each(|(w, x)| *w += x);
        let mut y: Vec<f32> = x.iter().map(|v| (v * 1e4) as f32).collect();
        y.resize(rotation.padded(), 0.0);
        rotation.forward(&mut y);
        sum.iter_mut().zip(&y).for_each(|(s, y)| *s += y.round() as i64);
    }
    let back = rotated_back(&rotation, &sum);
    let error = norm(back.iter().zip(&want).map(|(b, w)| b / 1e4 - w));
    assert!(error < 0.03, "{error}"); // sqrt(50 * 1024 / 12) / 1e4 = 0.0065 is expected
}

/// The first block of ChaCha20 with key 01...01 and nonce `rotation 1.0`, by OpenSSL 3.0:
/// `head -c 64 /dev/zero | openssl enc -chacha20 -K 01...01 -iv 00000000726f746174696f6e20312e30`.
const KEYSTREAM: [u32; 16] = [
    0x4ead_adb1,
    0x371b_e316,
    0x9830_99b1,
    0x0eab_95d8,
    0x7211_2913,
    0x4c41_7746,
    0x0a9e_7cd9,
    0x43ee_44f7,
    0x90b9_5b5c,
    0xc7b5_48e9,
    0x9c24_61aa,
    0x380c_428d,
    0xe023_fc95,
    0xb188_5940,
    0xe18b_d220,
    0xa3d0_e291,
];

#[test]
fn the_signs_of_a_seed_are_those_of_the_keystream() {
    // The first row of a Hadamard matrix is all ones, so the first coordinate shows each sign.
    let signs: Vec<bool> = dense(&rotation(512, 1)).iter().map(|column| column[0] < 0.0).collect();
    let word = |i: usize| (0..32).fold(0, |word, v| word | u32::from(signs[16 * v + i]) << (31 - v));
    assert_eq!(std::array::from_fn(word), KEYSTREAM);
}

#[test]
fn seeds_differ_and_repeat() {
    let go = |seed| {
        let mut x = singles(&sample(1024, 1));
        rotation(1024, seed).forward(&mut x);
        x
    };
    assert_eq!(go(1), go(1));
    assert!(distance(&go(1), &go(2)) > 1.0);
    assert_eq!(rotation(1024, 1), rotation(1024, 1));
    assert_ne!(rotation(1024, 1), rotation(1024, 2));
}

/// The worst inputs for a rotation: all in one coordinate, two, few, all equal; and an ordinary one.
fn inputs(n: usize) -> Vec<Vec<f64>> {
    let sparse = |k: usize| (0..n).map(|j| f64::from(u8::from(j < k)) / (k as f64).sqrt()).collect::<Vec<_>>();
    let ordinary = sample(n, 77);
    let length = norm(ordinary.iter().copied());
    vec![sparse(1), sparse(2), sparse(37), sparse(n), ordinary.iter().map(|v| v / length).collect()]
}

#[test]
fn tails_are_sub_gaussian() {
    for dimension in [1 << 16, 3 << 14, 5 << 14, 7 << 13] {
        for x in inputs(dimension) {
            let (mut above, mut total) = ([0_u32; 5], 0_u32);
            for seed in 0..8 {
                let rotation = rotation(dimension, seed);
                let mut y = singles(&x);
                rotation.forward(&mut y);
                let sigma = rotation.peak() / (dimension as f64).sqrt();
                for v in y {
                    let t = f64::from(v.abs()) / sigma;
                    for (k, count) in above.iter_mut().enumerate() {
                        *count += u32::from(t > 1.0 + k as f64);
                    }
                    total += 1;
                }
            }
            for (k, count) in above.iter().enumerate() {
                let t = 1.0 + k as f64;
                let bound = 2.0 * (-t * t / 2.0).exp();
                let share = f64::from(*count) / f64::from(total);
                assert!(share <= bound, "{dimension}: {share} above {t} sigma, at most {bound}");
            }
        }
    }
}

#[test]
fn the_bound_is_not_met_by_any_vector_within_the_clip() {
    for dimension in [1000, 20_000, 300_000] {
        for seed in 0..4 {
            let rotation = rotation(dimension, seed);
            let bound = rotation.linf_bound(1e6) as f32;
            for x in inputs(rotation.padded()) {
                let mut y: Vec<f32> = x.iter().map(|v| (v * 1e6) as f32).collect();
                rotation.forward(&mut y);
                assert!(y.iter().all(|v| v.abs() < bound));
            }
        }
    }
}

#[test]
fn the_papers_bound() {
    // ceil(2 s C ln(d) / sqrt(d)), natural logarithm; evaluated independently of this code.
    for (clip, dimension, scale, bound) in [
        (5.0, 2_400_000, 1e3, 95),
        (5.0, 2_400_000, 1e4, 949),
        (5.0, 4_194_304, 1e4, 745),
        (5.0, 4_400_000, 1e4, 730),
        (5.0, 8_388_608, 1e5, 5505),
        (1.0, 6_400_000, 1e5, 1239),
        (0.5, 1024, 1e2, 22),
        (15.0, 1_350_000, 1e3, 365),
        (5.0, 2_400_000, 1e6, 94_830),
    ] {
        assert_eq!(linf_bound(clip * scale, dimension), bound, "C={clip} d={dimension} s={scale}");
    }
}

#[test]
fn p19_the_bound_is_for_the_padded_size_and_its_peak() {
    assert_eq!(rotation(1 << 22, 0).linf_bound(5e4), linf_bound(5e4, 1 << 22));
    assert_eq!(rotation((7 << 19) + 1, 0).linf_bound(5e4), linf_bound(5e4, 1 << 22));
    let odd = rotation(2_400_000, 0);
    assert_eq!(odd.linf_bound(5e6), linf_bound(5e6 * odd.peak(), 5 << 19));
    assert!((odd.peak() - 1.219_65).abs() < 1e-4);
    assert_eq!([1, 2].map(|d| rotation(d, 0).linf_bound(41.5)), [42, 42]);
    for nothing in [0.0, -1.0, f64::NAN] {
        assert_eq!(odd.linf_bound(nothing), 0);
    }
}

#[test]
fn clamping_cuts_and_leaves_nothing_that_is_not_a_number() {
    let mut values = [-8.0, -7.0, -6.5, -0.0, 3.25, 7.0, 7.000_001, f32::INFINITY, f32::NEG_INFINITY, f32::NAN];
    clamp_linf(&mut values, 7);
    assert_eq!(values, [-7.0, -7.0, -6.5, 0.0, 3.25, 7.0, 7.0, 7.0, -7.0, 0.0]);
    for bound in [(1 << 24) + 1, u64::from(u32::MAX), u64::MAX] {
        let mut values = [f32::MAX, f32::MIN];
        clamp_linf(&mut values, bound);
        assert!(values[0] as u128 <= u128::from(bound) && values[1] == -values[0]);
        assert!(values[0] as u128 >= u128::from(bound - bound / (1 << 23)));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_vector_keeps_its_norm_and_comes_back(
        x in prop::collection::vec(-1e3_f32..1e3, 1..3000),
        seed in any::<[u8; 32]>(),
    ) {
        let rotation = Rotation::new(x.len(), seed).unwrap();
        prop_assert!(rotation.padded() >= x.len() && 4 * rotation.padded() < 5 * x.len() + 4);
        let mut y = x.clone();
        y.resize(rotation.padded(), 0.0);
        let length = norm(y.iter().map(|v| f64::from(*v)));
        rotation.forward(&mut y);
        prop_assert!((norm(y.iter().map(|v| f64::from(*v))) - length).abs() <= rounding(&rotation) * length);
        rotation.inverse(&mut y);
        y.truncate(x.len());
        prop_assert!(distance(&x, &y) <= 2.0 * rounding(&rotation) * length);
    }

    #[test]
    fn clamping_never_raises_a_norm(mut x in prop::collection::vec(any::<f32>(), 1..50), bound in any::<u64>()) {
        let before = x.clone();
        clamp_linf(&mut x, bound);
        for (after, before) in x.iter().zip(before) {
            prop_assert!(after.abs() <= before.abs() || before.is_nan() && *after == 0.0);
            prop_assert!(after.abs() as u128 <= u128::from(bound));
        }
    }
}
