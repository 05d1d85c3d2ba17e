//! The odd factor of the padded size: small orthonormal matrices with flat entries.
//!
//! A Hadamard matrix has a power-of-two size, and padding to one would cost up to twice the bytes. A factor c of 3, 5
//! or 7 takes that down to a quarter at most. It needs an orthonormal c x c matrix whose largest entry is small, since
//! that entry bounds how much of one coordinate can land in another; 1 / sqrt(c) is out of reach for these c. The
//! Hartley matrix exceeds it by up to sqrt(2). These are flatter, and symmetric, hence their own inverses:
//!
//! - c = 3: entries 2/3, and -1/3 on the diagonal (a Householder reflection, negated): 1.155 / sqrt(3);
//! - c = 5: entries 6/11 three times per row, 2/11 and 3/11 once each: 1.220 / sqrt(5);
//! - c = 7: entries x = (2 + 3 sqrt 2) / 14 and -y = -(2 sqrt 2 - 1) / 7, the latter where row + column is a square
//!   modulo 7 (1, 2, 4): 1.180 / sqrt(7). Two rows share two x's, one y and four mixed places, and
//!   2 x^2 - 4 x y + y^2 = 0.

use std::{array, f64::consts::SQRT_2};

use pulp::Simd;

use super::lanes::Coordinate;

/// The larger entry of the matrix for 7, and the absolute value of the smaller one.
const X7: f64 = (2.0 + 3.0 * SQRT_2) / 14.0;
const Y7: f64 = (2.0 * SQRT_2 - 1.0) / 7.0;

const THIRDS: [[i8; 3]; 3] = [[-1, 2, 2], [2, -1, 2], [2, 2, -1]];

const ELEVENTHS: [[i8; 5]; 5] =
    [[3, 2, 6, 6, 6], [2, 6, -3, 6, -6], [6, -3, 6, -2, -6], [6, 6, -2, -6, 3], [6, -6, -6, 3, 2]];

/// The number of blocks of a power-of-two length that make up the padded vector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Factor {
    One,
    Three,
    Five,
    Seven,
}

impl Factor {
    pub(super) const ALL: [Self; 4] = [Self::One, Self::Three, Self::Five, Self::Seven];

    pub(super) const fn get(self) -> usize {
        match self {
            Self::One => 1,
            Self::Three => 3,
            Self::Five => 5,
            Self::Seven => 7,
        }
    }

    /// The entry of the orthonormal matrix.
    pub(super) fn entry(self, row: usize, column: usize) -> f64 {
        match self {
            Self::One => 1.0,
            Self::Three => f64::from(THIRDS[row][column]) / 3.0,
            Self::Five => f64::from(ELEVENTHS[row][column]) / 11.0,
            Self::Seven if matches!((row + column) % 7, 1 | 2 | 4) => -Y7,
            Self::Seven => X7,
        }
    }

    /// The largest entry in absolute value.
    pub(super) fn largest(self) -> f64 {
        match self {
            Self::One => 1.0,
            Self::Three => 2.0 / 3.0,
            Self::Five => 6.0 / 11.0,
            Self::Seven => X7,
        }
    }

    /// Multiplies the matrix with every column of c coordinates that lie a c-th of the vector apart.
    #[inline(always)]
    pub(super) fn mix<T: Coordinate, S: Simd>(self, simd: S, values: &mut [T]) {
        match self {
            Self::One => {}
            Self::Three => mix::<T, S, 3>(simd, values, self),
            Self::Five => mix::<T, S, 5>(simd, values, self),
            Self::Seven => mix::<T, S, 7>(simd, values, self),
        }
    }

    /// The same for blocks that do not fill a register.
    pub(super) fn mix_plain<T: Coordinate>(self, values: &mut [T]) {
        let (c, block) = (self.get(), values.len() / self.get());
        if c == 1 {
            return;
        }
        for column in 0..block {
            let x: Vec<T> = (0..c).map(|i| values[i * block + column]).collect();
            for row in 0..c {
                let term = |i: usize| T::nearest(self.entry(row, i)).times(x[i]);
                values[row * block + column] = (1..c).fold(term(0), |sum, i| sum.plus(term(i)));
            }
        }
    }
}

/// [`Factor::mix`] for one c: products and sums from left to right, none of them fused.
#[inline(always)]
fn mix<T: Coordinate, S: Simd, const C: usize>(simd: S, values: &mut [T], factor: Factor) {
    let matrix: [[T::Vector<S>; C]; C] =
        array::from_fn(|row| array::from_fn(|i| T::splat(simd, T::nearest(factor.entry(row, i)))));
    let block = values.len() / C;
    let mut parts = values.chunks_exact_mut(block);
    let mut rows: [_; C] = array::from_fn(|_| parts.next().map(T::vectors::<S>).unwrap_or_default());
    for column in 0..rows[0].len() {
        let x: [T::Vector<S>; C] = array::from_fn(|i| rows[i][column]);
        for (row, entries) in rows.iter_mut().zip(&matrix) {
            let mut sum = T::mul(simd, entries[0], x[0]);
            for i in 1..C {
                sum = T::add(simd, sum, T::mul(simd, entries[i], x[i]));
            }
            row[column] = sum;
        }
    }
}
