//! The random rotation that spreads an update evenly over its coordinates, and the bound it makes possible.
//!
//! Secure aggregation sums residues, so every coordinate needs a bound; the update only has one on its L2 norm. After
//! a random rotation every coordinate is about norm / sqrt(d), and a bound a few times that is met almost surely (Xu et
//! al. 2023, section 2.4 and Algorithm 2; Kairouz et al. 2021, Lemmas 28 and 29). What exceeds it is cut, which cannot
//! raise the L2 norm: the bound costs utility if it is ever met, never privacy.
//!
//! | here              | paper          | meaning                                                        |
//! |-------------------|----------------|----------------------------------------------------------------|
//! | `dimension`       |                | coordinates of the update                                      |
//! | `padded`          | d              | the smallest c * 2^a that holds them, c one of 1, 3, 5, 7      |
//! | signs             | xi             | one bit for each padded coordinate, from the seed              |
//! | `forward`         | U = H D_xi     | signs, Hadamard transform, and for c > 1 a c x c matrix        |
//! | `inverse`         | D_xi H^T       | the same steps backwards                                       |
//! | `scaled_clip`     | s C            | the clip norm in steps of the grid                             |
//! | `linf_bound`      | C_inf          | ceil(2 s C ln(d) / sqrt(d)), times `peak`                      |
//!
//! The paper pads to a power of two; c keeps 2.4 million coordinates at 5 * 2^19 = 2.62 million where 2^22 would be
//! 4.19 million (rule P19: d is the padded size here and in the inflation of the norm). The matrix of the whole is
//! U = (M ⊗ H / sqrt(2^a)) D_xi with M of the private module `mix`; it is orthonormal because its factors are.
//!
//! **Why the coordinates are small.** Coordinate i of U x is the sum over j of U_ij xi_j x_j with independent signs.
//! E exp(t U_ij xi_j x_j) = cosh(t U_ij x_j) <= exp(t^2 U_ij^2 x_j^2 / 2), so the sum is sub-Gaussian with parameter
//! sigma^2 = sum_j U_ij^2 x_j^2 <= max_j U_ij^2 |x|^2 = peak^2 |x|^2 / d, where `peak` is the largest |U_ij| times
//! sqrt(d): 1 for c = 1, the paper's case, and at most 1.22 otherwise. Hence P(|(U x)_i| > t) <= 2 exp(-t^2 / (2
//! sigma^2)). The bound is 2 ln(d) times sigma's bound, so a single coordinate is cut with probability at most
//! 2 exp(-2 ln(d)^2), and any of the d with at most 2 d^(1 - 2 ln d): at d = 2^19 below 10^-144.
//!
//! The seed is public: the server sends it, the guarantee does not rest on it. Only the update is rotated; the clip
//! bit, the weight and the counts are exact integers beside it (P19).

mod hadamard;
mod lanes;
mod mix;
#[cfg(test)]
mod tests;

use std::{fmt, sync::Arc};

use chacha20::{
    ChaCha20,
    cipher::{KeyIvInit, StreamCipher},
};
use pulp::{Arch, Simd, WithSimd};
use thiserror::Error;

use self::{lanes::Coordinate, mix::Factor};

/// The longest vector that is rotated: a gibibyte of `f32`.
pub const MAX_DIMENSION: usize = 1 << 28;

/// Keeps this use of a seed apart from any other.
const NONCE: &[u8; 12] = b"rotation 1.0";

/// A block of the keystream is 16 words of 32 bits: the signs of 512 coordinates.
const WORDS: usize = 16;
const BLOCK: usize = WORDS * 32;

/// Why there is no such rotation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum RotationError {
    /// There is nothing to rotate.
    #[error("a vector without coordinates cannot be rotated")]
    Empty,
    /// Longer than anything this system trains.
    #[error("a vector of {got} coordinates is too long to rotate: at most {MAX_DIMENSION}")]
    TooLong {
        /// The length asked for.
        got: usize,
    },
}

/// A rotation of vectors of one length, given by a public seed.
///
/// ```
/// use keyhush_privacy::encoding::rotation::Rotation;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let rotation = Rotation::new(2_400_000, [7; 32])?;
/// assert_eq!(rotation.padded(), 5 << 19);
///
/// let mut update = vec![0.0_f32; 2_400_000];
/// update[12] = 1.0;
/// update.resize(rotation.padded(), 0.0);
/// rotation.forward(&mut update);
/// assert!(update.iter().all(|v| v.abs() < 1.3 / 1600.0)); // all of them share what one had
/// rotation.inverse(&mut update);
/// assert!((update[12] - 1.0).abs() < 1e-6);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Rotation {
    dimension: usize,
    factor: Factor,
    /// The length of each of the c blocks, 2^a.
    block: usize,
    /// Shared by clones: there is a bit for each coordinate, and a server has a clone of it for every report that it waits for.
    signs: Arc<[u32]>,
}

impl fmt::Debug for Rotation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rotation")
            .field("dimension", &self.dimension)
            .field("factor", &self.factor)
            .field("block", &self.block)
            .finish_non_exhaustive()
    }
}

impl Rotation {
    /// The rotation of vectors of `dimension` coordinates that belongs to a seed.
    ///
    /// The signs are the keystream of ChaCha20 (RFC 8439) with the seed as key, `rotation 1.0` as nonce and counter 0:
    /// coordinate 512 k + 16 v + i is negated if bit 31 - v of the little-endian word i of block k is set.
    pub fn new(dimension: usize, seed: [u8; 32]) -> Result<Self, RotationError> {
        let (factor, block) = padding(dimension)?;
        let blocks = (factor.get() * block).div_ceil(BLOCK);
        let mut stream = vec![0_u8; blocks * WORDS * 4];
        ChaCha20::new(&seed.into(), &(*NONCE).into()).apply_keystream(&mut stream);
        let signs = stream.as_chunks().0.iter().map(|bytes| u32::from_le_bytes(*bytes)).collect();
        Ok(Self { dimension, factor, block, signs })
    }

    /// The number of coordinates before padding.
    #[must_use]
    pub fn dimension(&self) -> usize {
        self.dimension
    }

    /// The number of coordinates after padding: d.
    #[must_use]
    pub fn padded(&self) -> usize {
        self.factor.get() * self.block
    }

    /// The largest entry of the orthonormal matrix in absolute value, times sqrt(d).
    ///
    /// A rotated coordinate of x is sub-Gaussian with parameter peak^2 |x|^2 / d; see the module's proof. The Hadamard
    /// factor has entries of 1 / sqrt(2^a) only, so the peak is that of the c x c matrix: 1, 1.155, 1.220 or 1.180.
    #[must_use]
    pub fn peak(&self) -> f64 {
        self.factor.largest() * libm::sqrt(self.factor.get() as f64)
    }

    /// Rotates a vector of [`Rotation::padded`] coordinates in place; beyond the dimension they are zero.
    ///
    /// In this order: signs; one multiplication with 2^(-a/2), a power of two where a is even; the stages of the
    /// Hadamard transform in each of the c blocks, strides rising; the c x c matrix, from left to right. The bits of
    /// the result do not depend on the machine. A coordinate that is not finite spoils all: clip first.
    ///
    /// # Panics
    ///
    /// If the length is not [`Rotation::padded`], here and in the other directions.
    pub fn forward(&self, values: &mut [f32]) {
        Arch::new().dispatch(Forward { rotation: self, values });
    }

    /// Undoes [`Rotation::forward`], its steps in the opposite order, up to rounding. The padding stays.
    pub fn inverse(&self, values: &mut [f32]) {
        Arch::new().dispatch(Inverse { rotation: self, values });
    }

    /// [`Rotation::inverse`] in `f64`.
    pub fn inverse_f64(&self, values: &mut [f64]) {
        Arch::new().dispatch(Inverse { rotation: self, values });
    }

    /// The bound on a rotated coordinate, C_inf: that of [`linf_bound`] for the padded size, times [`Rotation::peak`].
    ///
    /// The paper's bound is so many of its sigmas; where c > 1 sigma is larger by `peak`, and so is the bound. Fewer
    /// than three coordinates leave its logarithm no room; no coordinate exceeds the norm, which then is the bound.
    #[must_use]
    pub fn linf_bound(&self, scaled_clip: f64) -> u64 {
        match self.padded() {
            0..3 => scaled_clip.ceil() as u64,
            padded => (paper_bound(scaled_clip, padded) * self.peak()).ceil() as u64,
        }
    }

    /// 2^(-a/2).
    fn scale<T: Coordinate>(&self) -> T {
        let a = self.block.ilog2();
        let odd = if a % 2 == 1 { std::f64::consts::FRAC_1_SQRT_2 } else { 1.0 };
        T::nearest(odd / (1_u64 << (a / 2)) as f64)
    }

    /// Signs and scale of whole groups of 16 coordinates, the first of them at `start`, a multiple of 16.
    #[inline(always)]
    fn flip<T: Coordinate>(&self, start: usize, values: &mut [T], scale: T) {
        for (group, coordinates) in values.as_chunks_mut::<WORDS>().0.iter_mut().enumerate() {
            let at = start + group * WORDS;
            let Some(words) = self.signs[at / BLOCK * WORDS..].first_chunk::<WORDS>() else { return };
            let v = at % BLOCK / WORDS;
            for (value, word) in coordinates.iter_mut().zip(words) {
                *value = value.flip_and_scale(word << v, scale);
            }
        }
    }

    /// [`Rotation::flip`] without the condition on the length.
    fn flip_plain<T: Coordinate>(&self, values: &mut [T]) {
        let scale = self.scale();
        for (at, value) in values.iter_mut().enumerate() {
            let word = self.signs[at / BLOCK * WORDS + at % WORDS];
            *value = value.flip_and_scale(word << (at % BLOCK / WORDS), scale);
        }
    }
}

/// What [`Rotation::forward`] runs on the instruction set that was found.
struct Forward<'a, T> {
    rotation: &'a Rotation,
    values: &'a mut [T],
}

impl<T: Coordinate> WithSimd for Forward<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { rotation, values } = self;
        let block = rotation.block;
        assert_eq!(values.len(), rotation.padded(), "the rotation is for another length");
        if block < hadamard::SHORTEST {
            rotation.flip_plain(values);
            values.chunks_exact_mut(block).for_each(hadamard::plain::<T, { hadamard::RISING }>);
            return rotation.factor.mix_plain(values);
        }
        let scale = rotation.scale();
        for (row, part) in values.chunks_exact_mut(block).enumerate() {
            let signs = |start, leaf: &mut [T]| rotation.flip(row * block + start, leaf, scale);
            hadamard::transform::<T, S, { hadamard::RISING }>(simd, part, signs);
        }
        rotation.factor.mix(simd, values);
    }
}

/// What [`Rotation::inverse`] runs on the instruction set that was found.
struct Inverse<'a, T> {
    rotation: &'a Rotation,
    values: &'a mut [T],
}

impl<T: Coordinate> WithSimd for Inverse<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { rotation, values } = self;
        let block = rotation.block;
        assert_eq!(values.len(), rotation.padded(), "the rotation is for another length");
        if block < hadamard::SHORTEST {
            rotation.factor.mix_plain(values);
            values.chunks_exact_mut(block).for_each(hadamard::plain::<T, { hadamard::FALLING }>);
            return rotation.flip_plain(values);
        }
        rotation.factor.mix(simd, values);
        let scale = rotation.scale();
        for (row, part) in values.chunks_exact_mut(block).enumerate() {
            let signs = |start, leaf: &mut [T]| rotation.flip(row * block + start, leaf, scale);
            hadamard::transform::<T, S, { hadamard::FALLING }>(simd, part, signs);
        }
    }
}

/// The l-infinity bound of Xu et al. 2023, Algorithm 2: ceil(2 s C ln(d) / sqrt(d)), for a Hadamard matrix of size d.
///
/// `scaled_clip` is s C. [`Rotation::linf_bound`] is what a rotation needs; this is the bare formula. One that is not a
/// positive number gives 0, which cuts everything.
#[must_use]
pub fn linf_bound(scaled_clip: f64, dimension: usize) -> u64 {
    paper_bound(scaled_clip, dimension).ceil() as u64
}

/// The paper's bound before it is rounded up.
fn paper_bound(scaled_clip: f64, dimension: usize) -> f64 {
    let d = dimension as f64;
    2.0 * scaled_clip * libm::log(d) / libm::sqrt(d)
}

/// Cuts every coordinate to [-bound, bound]; one that is not a number becomes zero.
///
/// Cutting never raises the L2 norm. A bound above 2^24 that `f32` cannot hold is rounded down.
pub fn clamp_linf(values: &mut [f32], bound: u64) {
    let limit = linf_limit(bound);
    values.iter_mut().for_each(|value| *value = clamped(*value, limit));
}

/// The largest float that is at most the bound.
pub(super) fn linf_limit(bound: u64) -> f32 {
    let nearest = bound as f32;
    if nearest as u128 > u128::from(bound) { nearest.next_down() } else { nearest }
}

/// A value within the limit; what is not a number is 0.
#[inline]
pub(super) fn clamped(value: f32, limit: f32) -> f32 {
    if value.is_nan() { 0.0 } else { value.clamp(-limit, limit) }
}

/// The smallest c * 2^a that is at least `dimension`, as c and 2^a.
fn padding(dimension: usize) -> Result<(Factor, usize), RotationError> {
    match dimension {
        0 => Err(RotationError::Empty),
        1..=MAX_DIMENSION => {
            let sized = |factor: Factor| (factor, dimension.div_ceil(factor.get()).next_power_of_two());
            let smallest = Factor::ALL.map(sized).into_iter().min_by_key(|(factor, block)| factor.get() * block);
            smallest.ok_or(RotationError::Empty)
        }
        got => Err(RotationError::TooLong { got }),
    }
}
