//! Small operations on every row of a large table.

use pulp::{Simd, WithSimd};

/// Scales every row that is not zero to norm 1.
pub(crate) struct NormaliseRows<'a> {
    /// `[row][column]`, padded with zeros.
    pub(crate) values: &'a mut [f32],
    /// The padded length of a row.
    pub(crate) width: usize,
}

impl WithSimd for NormaliseRows<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        for row in self.values.chunks_exact_mut(self.width) {
            let (row, _) = S::as_mut_simd_f32s(row);
            let mut squares = simd.splat_f32s(0.0);
            row.iter().for_each(|v| squares = simd.mul_add_e_f32s(*v, *v, squares));
            let squared = simd.reduce_sum_f32s(squares);
            if squared > 0.0 {
                let factor = simd.splat_f32s(1.0 / squared.sqrt());
                row.iter_mut().for_each(|v| *v = simd.mul_f32s(*v, factor));
            }
        }
    }
}

/// `to -= rate * from`, summed over the rows of `from`.
pub(crate) struct SubtractRows<'a> {
    /// The row to change.
    pub(crate) to: &'a mut [f32],
    /// Rows as long as it.
    pub(crate) from: &'a [f32],
    /// The factor.
    pub(crate) rate: f32,
}

impl WithSimd for SubtractRows<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let width = self.to.len();
        let (to, _) = S::as_mut_simd_f32s(self.to);
        let rate = simd.splat_f32s(-self.rate);
        for row in self.from.chunks_exact(width) {
            let (row, _) = S::as_simd_f32s(row);
            to.iter_mut().zip(row).for_each(|(t, f)| *t = simd.mul_add_e_f32s(rate, *f, *t));
        }
    }
}

/// The sum of the products of two rows of one length.
pub(crate) struct Dot<'a> {
    /// The left operand, padded.
    pub(crate) a: &'a [f32],
    /// The second vector.
    pub(crate) b: &'a [f32],
}

impl WithSimd for Dot<'_> {
    type Output = f32;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> f32 {
        let (a, _) = S::as_simd_f32s(self.a);
        let (b, _) = S::as_simd_f32s(self.b);
        let mut sum = simd.splat_f32s(0.0);
        a.iter().zip(b).for_each(|(a, b)| sum = simd.mul_add_e_f32s(*a, *b, sum));
        simd.reduce_sum_f32s(sum)
    }
}
