//! Tests that every vector width gives the same bits as the textbook transform.

use pulp::{Scalar, Simd};

use super::*;

/// The steps as the documentation of [`Rotation::forward`] names them, one coordinate at a time.
struct Textbook<'a>(&'a Rotation);

impl Textbook<'_> {
    fn signs<T: Coordinate>(&self, values: &mut [T]) {
        let a = self.0.block.ilog2();
        let scale = T::nearest(0.5_f64.powi(a as i32).sqrt());
        for (j, value) in values.iter_mut().enumerate() {
            let (k, v, i) = (j / 512, j % 512 / 16, j % 16);
            let bit = self.0.signs[16 * k + i] >> (31 - v) & 1;
            *value = value.times(T::nearest(if bit == 1 { -1.0 } else { 1.0 })).times(scale);
        }
    }

    fn stage<T: Coordinate>(&self, values: &mut [T], h: usize) {
        for i in 0..values.len() {
            if (i % self.0.block) & h == 0 {
                (values[i], values[i + h]) = (values[i].plus(values[i + h]), values[i].minus(values[i + h]));
            }
        }
    }

    fn mix<T: Coordinate>(&self, values: &mut [T]) {
        let (c, block, x) = (self.0.factor.get(), self.0.block, values.to_vec());
        for (j, value) in values.iter_mut().enumerate() {
            let term = |i: usize| T::nearest(self.0.factor.entry(j / block, i)).times(x[i * block + j % block]);
            *value = (1..c).fold(term(0), |sum, i| sum.plus(term(i)));
        }
    }

    fn forward<T: Coordinate>(&self, values: &mut [T]) {
        self.signs(values);
        (0..self.0.block.ilog2()).for_each(|s| self.stage(values, 1 << s));
        self.mix(values);
    }

    fn inverse<T: Coordinate>(&self, values: &mut [T]) {
        self.mix(values);
        (0..self.0.block.ilog2()).rev().for_each(|s| self.stage(values, 1 << s));
        self.signs(values);
    }
}

/// Something without pattern, of both signs and many magnitudes.
fn sample<T: Coordinate>(n: usize) -> Vec<T> {
    (0..n as u64)
        .map(|i| {
            let bits = (i + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let bits = (bits ^ bits >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            T::nearest((bits >> 11) as f64 / 2_f64.powi(40 + (bits % 16) as i32) - 16.0)
        })
        .collect()
}

fn bits<T: Coordinate>(values: &[T]) -> &[u8] {
    pulp::bytemuck::cast_slice(values)
}

fn agrees_on<T: Coordinate, S: Simd>(simd: S, rotation: &Rotation) {
    let x: Vec<T> = sample(rotation.padded());
    let what = (rotation, size_of::<T>(), size_of::<T::Vector<S>>());

    let (mut fast, mut slow) = (x.clone(), x.clone());
    Simd::vectorize(simd, Forward { rotation, values: &mut fast });
    Textbook(rotation).forward(&mut slow);
    assert!(bits(&fast) == bits(&slow), "forward {what:?}");

    let (mut fast, mut slow) = (x.clone(), x);
    Simd::vectorize(simd, Inverse { rotation, values: &mut fast });
    Textbook(rotation).inverse(&mut slow);
    assert!(bits(&fast) == bits(&slow), "inverse {what:?}");
}

/// Every factor with every number of stages up to 2^17, which has two levels above its leaves.
fn rotations() -> impl Iterator<Item = Rotation> {
    let sizes = (0..=17).flat_map(|a| [1, 3, 5, 7].map(|c| c << a));
    sizes.filter(|size| *size <= 5 << 15).map(|size| Rotation::new(size, [3; 32]).unwrap())
}

#[test]
fn one_lane_gives_the_textbooks_bits() {
    for rotation in rotations() {
        agrees_on::<f32, _>(Scalar, &rotation);
        agrees_on::<f64, _>(Scalar, &rotation);
    }
}

#[test]
fn the_instruction_set_found_gives_the_textbooks_bits() {
    for rotation in rotations() {
        let x: Vec<f32> = sample(rotation.padded());
        let (mut fast, mut slow) = (x.clone(), x);
        rotation.forward(&mut fast);
        Textbook(&rotation).forward(&mut slow);
        assert!(bits(&fast) == bits(&slow), "{rotation:?}");

        let x: Vec<f64> = sample(rotation.padded());
        let (mut fast, mut slow) = (x.clone(), x);
        rotation.inverse_f64(&mut fast);
        Textbook(&rotation).inverse(&mut slow);
        assert!(bits(&fast) == bits(&slow), "{rotation:?}");
    }
}

#[test]
#[cfg(target_arch = "x86_64")]
fn vectors_of_128_256_and_512_bits_give_the_textbooks_bits() {
    use pulp::x86::{V3, V3_128b, V3_256b, V3_512b};
    let Some(v3) = V3::try_new() else { return };
    for rotation in rotations() {
        agrees_on::<f32, _>(V3_128b(v3), &rotation);
        agrees_on::<f64, _>(V3_128b(v3), &rotation);
        agrees_on::<f32, _>(V3_256b(v3), &rotation);
        agrees_on::<f64, _>(V3_256b(v3), &rotation);
        agrees_on::<f32, _>(V3_512b(v3), &rotation);
        agrees_on::<f64, _>(V3_512b(v3), &rotation);
    }
}

/// [`Rotation::forward`] in `f64`, which looks closer than `f32` can.
fn forward_f64(rotation: &Rotation, values: &mut [f64]) {
    Arch::new().dispatch(Forward { rotation, values });
}

#[test]
fn sums_of_integers_come_back() {
    let rotation = Rotation::new(2300, [6; 32]).unwrap();
    let x: Vec<f64> = (1..=2300_u32).map(|i| f64::from(i.wrapping_mul(2_654_435_761)) / 2_f64.powi(31) - 1.0).collect();
    let scale = 2_f64.powi(50);
    let mut y: Vec<f64> = x.iter().map(|v| v * scale).collect();
    y.resize(rotation.padded(), 0.0);
    forward_f64(&rotation, &mut y);
    y.iter_mut().for_each(|v| *v = v.round());
    rotation.inverse_f64(&mut y);
    for (x, back) in x.iter().zip(&y) {
        assert!((back / scale - x).abs() < 1e-14); // 2^-50 for rounding to integers, 2^-52 for each stage
    }
}

/// U_ij by its definition: (M ⊗ H / sqrt(2^a)) D_xi.
fn entry(rotation: &Rotation, i: usize, j: usize) -> f64 {
    let block = rotation.block;
    let hadamard = if ((i % block) & (j % block)).count_ones().is_multiple_of(2) { 1.0 } else { -1.0 };
    let sign = if rotation.signs[j / 512 * 16 + j % 16] >> (31 - j % 512 / 16) & 1 == 1 { -1.0 } else { 1.0 };
    rotation.factor.entry(i / block, j / block) * hadamard * sign / (block as f64).sqrt()
}

#[test]
fn both_directions_are_the_dense_matrix() {
    for rotation in rotations().filter(|rotation| rotation.padded() <= 1024) {
        let n = rotation.padded();
        let x: Vec<f64> = sample(n);
        let (mut forward, mut inverse) = (x.clone(), x.clone());
        forward_f64(&rotation, &mut forward);
        rotation.inverse_f64(&mut inverse);
        for i in 0..n {
            let row: f64 = (0..n).map(|j| entry(&rotation, i, j) * x[j]).sum();
            let column: f64 = (0..n).map(|j| entry(&rotation, j, i) * x[j]).sum();
            assert!((forward[i] - row).abs() < 1e-6 && (inverse[i] - column).abs() < 1e-6, "{rotation:?} {i}");
        }
    }
}

#[test]
fn small_matrices_are_orthonormal_symmetric_and_as_flat_as_said() {
    for factor in Factor::ALL {
        let c = factor.get();
        let mut largest = 0.0_f64;
        for i in 0..c {
            for j in 0..c {
                let dot: f64 = (0..c).map(|k| factor.entry(i, k) * factor.entry(j, k)).sum();
                assert!((dot - f64::from(u8::from(i == j))).abs() < 1e-15, "{factor:?} {i} {j}: {dot}");
                assert_eq!(factor.entry(i, j), factor.entry(j, i));
                largest = largest.max(factor.entry(i, j).abs());
            }
        }
        assert_eq!(largest, factor.largest());
        let hartley = (0..c).map(|k| 2.0 * std::f64::consts::PI * k as f64 / c as f64);
        let hartley = hartley.map(|t| (t.cos() + t.sin()).abs()).fold(0.0, f64::max) / (c as f64).sqrt();
        assert!(largest <= hartley, "{factor:?} is not flatter than the Hartley matrix");
    }
}

/// A server has an encoding for each report that is on its way, or waits for room.
#[test]
fn clones_share_their_signs() {
    let rotation = Rotation::new(2_400_000, [7; 32]).unwrap();
    assert!(Arc::ptr_eq(&rotation.signs, &rotation.clone().signs));
}
