//! Compares many numbers: how many are larger than one, and which are the largest.
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
    /// The number that each is compared with.
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

/// The `N` largest numbers with their places, the largest first, of equals the one with the lower place; and how many were found, since
/// there may be fewer that are not NaN.
pub(crate) struct Largest<'a, const N: usize> {
    /// What is compared.
    pub(crate) values: &'a [f32],
}

impl<const N: usize> WithSimd for Largest<'_, N> {
    type Output = ([(f32, usize); N], usize);

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> Self::Output {
        let mut best = Best { best: [(f32::NEG_INFINITY, usize::MAX); N], found: 0 };
        let mut next = 0;
        while best.found < N && next < self.values.len() {
            best.take(self.values[next], next);
            next += 1;
        }
        // From here on only what is larger than the least of them counts, and few are: vectors are looked into only where one is.
        let (vectors, rest) = S::as_simd_f32s(&self.values[next..]);
        for group in vectors.chunks(TOGETHER) {
            let least = simd.splat_f32s(best.least());
            let larger = group.iter().map(|v| simd.greater_than_f32s(*v, least));
            let any = larger.reduce(|a, b| simd.or_m32s(a, b));
            if any.is_some_and(|any| simd.first_true_m32s(any) < S::F32_LANES) {
                best.take_larger(bytemuck::cast_slice(group), next);
            }
            next += group.len() * S::F32_LANES;
        }
        best.take_larger(rest, next);
        (best.best, best.found)
    }
}

/// The largest numbers so far, in order.
struct Best<const N: usize> {
    best: [(f32, usize); N],
    found: usize,
}

impl<const N: usize> Best<N> {
    /// What a number must be larger than, once there are `N`; before that nothing counts.
    #[inline(always)]
    fn least(&self) -> f32 {
        if self.found < N { f32::INFINITY } else { self.best.last().map_or(f32::INFINITY, |(least, _)| *least) }
    }

    /// Takes a number, unless it is NaN or, once there are `N`, no larger than all of them.
    #[inline(always)]
    fn take(&mut self, value: f32, place: usize) {
        if value.is_nan() || (self.found == N && value <= self.least()) {
            return;
        }
        let mut at = self.found.min(N - 1);
        while at > 0 && value > self.best[at - 1].0 {
            self.best[at] = self.best[at - 1];
            at -= 1;
        }
        self.best[at] = (value, place);
        self.found = N.min(self.found + 1);
    }

    #[inline(always)]
    fn take_larger(&mut self, values: &[f32], first: usize) {
        for (i, value) in values.iter().enumerate() {
            if *value > self.least() {
                self.take(*value, first + i);
            }
        }
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
                }
                let mut order: Vec<usize> = (0..len).filter(|i| !values[*i].is_nan()).collect();
                order.sort_by(|a, b| values[*b].partial_cmp(&values[*a]).unwrap().then(a.cmp(b)));
                let (best, found) = path.run(Largest::<5> { values: &values }).unwrap();
                let places: Vec<usize> = best[..found].iter().map(|(_, place)| *place).collect();
                assert_eq!(places, order[..order.len().min(5)], "{path:?} {len}");
            }
        }
    }
}
