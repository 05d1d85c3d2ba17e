//! Compares many numbers with one: how many are larger, and where the next larger one is.
//!
//! Results are integers, the same on every path. NaN is neither larger than, nor equal to anything.

use pulp::{Simd, WithSimd, bytemuck};

/// Vectors that are compared before anybody looks at the result.
const TOGETHER: usize = 4;

/// Sums of 32 bits that a vector can hold without overflow, for as many numbers as are given at once.
const AT_ONCE: usize = 1 << 24;

/// How many numbers are larger than one, or as large, too.
pub(crate) struct CountLarger<'a> {
    /// What is compared.
    pub(crate) values: &'a [f32],
    /// With what.
    pub(crate) than: f32,
    /// Whether those that are as large count.
    pub(crate) or_equal: bool,
}

impl WithSimd for CountLarger<'_> {
    type Output = usize;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> usize {
        let Self { values, than, or_equal } = self;
        // Two loops, so that neither asks in each turn which of the two it is.
        values
            .chunks(AT_ONCE)
            .map(|values| match or_equal {
                true => count(simd, values, |v, x| simd.greater_than_or_equal_f32s(v, x), than, |v| v >= than),
                false => count(simd, values, |v, x| simd.greater_than_f32s(v, x), than, |v| v > than),
            })
            .sum()
    }
}

#[inline(always)]
fn count<S: Simd>(
    simd: S,
    values: &[f32],
    vectors_ahead: impl Fn(S::f32s, S::f32s) -> S::m32s,
    than: f32,
    ahead: impl Fn(f32) -> bool,
) -> usize {
    let (vectors, rest) = S::as_simd_f32s(values);
    let (groups, single) = vectors.as_chunks::<TOGETHER>();
    let (all, one, none) = (simd.splat_f32s(than), simd.splat_u32s(1), simd.splat_u32s(0));
    let more = |sum: &mut S::u32s, v: S::f32s| {
        *sum = simd.add_u32s(*sum, simd.select_u32s(vectors_ahead(v, all), one, none));
    };
    let mut sums = [none; TOGETHER];
    for group in groups {
        for (sum, v) in sums.iter_mut().zip(group) {
            more(sum, *v);
        }
    }
    single.iter().for_each(|v| more(&mut sums[0], *v));
    let lanes: &[u32] = bytemuck::cast_slice(&sums);
    let in_vectors: usize = lanes.iter().map(|lane| *lane as usize).sum();
    in_vectors + rest.iter().filter(|v| ahead(**v)).count()
}

/// The first block of numbers with one that is larger; none if there is no such block.
pub(crate) struct NextLarger<'a> {
    /// What is compared.
    pub(crate) values: &'a [f32],
    /// With what.
    pub(crate) than: f32,
    /// Numbers in a block: as many as fill some vectors of every path. The last block may have fewer.
    pub(crate) block: usize,
}

impl WithSimd for NextLarger<'_> {
    type Output = Option<usize>;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> Option<usize> {
        let Self { values, than, block } = self;
        let all = simd.splat_f32s(than);
        values.chunks(block).position(|values| {
            let (vectors, rest) = S::as_simd_f32s(values);
            let larger = |v: &S::f32s| simd.greater_than_f32s(*v, all);
            let any = vectors.iter().map(larger).reduce(|a, b| simd.or_m32s(a, b));
            any.is_some_and(|any| simd.first_true_m32s(any) < S::F32_LANES) || rest.iter().any(|v| *v > than)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::KernelPath;

    /// Every length up to some vectors and a rest, with ties, infinities and NaN in every lane.
    #[test]
    fn every_path_counts_and_finds_as_one_number_after_the_other() {
        let some = [0.5, -1.0, f32::NAN, f32::INFINITY, -0.0, 0.0, f32::NEG_INFINITY, 0.5, 3.0];
        for path in KernelPath::ALL.into_iter().filter(|p| p.is_available()) {
            for len in 0..300 {
                let values: Vec<f32> = (0..len).map(|i| some[i * i % 9]).collect();
                for than in some {
                    let count = |or_equal| path.run(CountLarger { values: &values, than, or_equal }).unwrap();
                    let larger = values.iter().filter(|v| **v > than).count();
                    let equal = values.iter().filter(|v| **v == than).count();
                    assert_eq!((count(false), count(true)), (larger, larger + equal), "{path:?} {len} {than}");
                    for from in [0, len / 2, len.saturating_sub(3)] {
                        let values = &values[from..];
                        let next = path.run(NextLarger { values, than, block: 64 }).unwrap();
                        let expected = values.iter().position(|v| *v > than).map(|at| at / 64);
                        assert_eq!(next, expected, "{path:?} {len} {than} from {from}");
                    }
                }
            }
        }
    }
}
