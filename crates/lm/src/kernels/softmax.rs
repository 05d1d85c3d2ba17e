//! Logits to unnormalised probabilities, without a pass for the maximum.
//!
//! Rows are entries of the vocabulary, columns are tokens, so that the sums over the vocabulary are sums of vectors.

use pulp::{Simd, WithSimd};

use super::activation::exp2;

/// Powers of two below this are 0. The sums are at least what is safe in `model::fast`, so what is lost of a probability is less than 2^-40.
pub(crate) const SMALLEST: f32 = -60.0;

/// Replaces logits (in units of ln 2) by `2^(logit + bias - shift)`, or by 0 below `2^SMALLEST`, and adds them up over the rows.
pub(crate) struct ExpAndSum<'a> {
    /// `[row][token]`, padded.
    pub(crate) logits: &'a mut [f32],
    /// The padded length of a row.
    pub(crate) row: usize,
    /// A bias for each row, in units of ln 2; empty for none.
    pub(crate) bias: &'a [f32],
    /// What is taken off each token's logits.
    pub(crate) shift: &'a [f32],
    /// The sums.
    pub(crate) sums: &'a mut [f32],
}

impl WithSimd for ExpAndSum<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let (shift, _) = S::as_simd_f32s(self.shift);
        let (sums, _) = S::as_mut_simd_f32s(self.sums);
        let (smallest, zero) = (simd.splat_f32s(SMALLEST), simd.splat_f32s(0.0));
        for (n, row) in self.logits.chunks_exact_mut(self.row).enumerate() {
            let (row, _) = S::as_mut_simd_f32s(row);
            let bias = simd.splat_f32s(self.bias.get(n).copied().unwrap_or(0.0));
            for ((value, shift), sum) in row.iter_mut().zip(shift).zip(sums.iter_mut()) {
                let power = simd.add_f32s(simd.sub_f32s(*value, *shift), bias);
                let is_small = simd.less_than_f32s(power, smallest);
                let e = simd.select_f32s(is_small, zero, exp2(simd, power));
                *value = e;
                *sum = simd.add_f32s(*sum, e);
            }
        }
    }
}

/// The largest logit of each token, for [`ExpAndSum::shift`].
pub(crate) fn largest(logits: &[f32], row: usize, bias: &[f32], largest: &mut [f32]) {
    for (n, line) in logits.chunks_exact(row).enumerate() {
        let bias = bias.get(n).copied().unwrap_or(0.0);
        largest.iter_mut().zip(line).for_each(|(most, l)| *most = most.max(l + bias));
    }
}
