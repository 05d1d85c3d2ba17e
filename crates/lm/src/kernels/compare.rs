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
        let (vectors, rest) = S::as_simd_f32s(self.values);
        let mut best =
            Best { floor: floor::<S, N>(simd, vectors), best: [(f32::NEG_INFINITY, usize::MAX); N], found: 0 };
        let mut next = 0;
        for group in vectors.chunks(TOGETHER) {
            if best.has_room_for_any(simd, group) {
                for v in group {
                    if best.has_room_for_any(simd, std::slice::from_ref(v)) {
                        best.take_all(bytemuck::cast_slice(std::slice::from_ref(v)), next);
                    }
                    next += S::F32_LANES;
                }
            } else {
                next += group.len() * S::F32_LANES;
            }
        }
        best.take_all(rest, next);
        (best.best, best.found)
    }
}

/// A number that at least `N` of all are not below, so that nothing below it is among the largest: the `N`th largest of the maxima of
/// groups. Few numbers are above it, and without it every vector at the beginning has one that is among the largest so far.
#[inline(always)]
fn floor<S: Simd, const N: usize>(simd: S, vectors: &[S::f32s]) -> f32 {
    let mut maxima = [simd.splat_f32s(f32::NEG_INFINITY); TOGETHER];
    for group in vectors.chunks(TOGETHER) {
        for (max, v) in maxima.iter_mut().zip(group) {
            // NaN is not greater than anything, so it is never a maximum.
            *max = simd.select_f32s(simd.greater_than_f32s(*v, *max), *v, *max);
        }
    }
    let lanes: &[f32] = bytemuck::cast_slice(&maxima);
    let mut largest = [f32::NEG_INFINITY; N];
    for lane in lanes {
        let mut lane = *lane;
        for held in &mut largest {
            let (high, low) = if lane > *held { (lane, *held) } else { (*held, lane) };
            (*held, lane) = (high, low);
        }
    }
    // Where there are fewer groups than `N`, the last is still minus infinity.
    largest.last().copied().unwrap_or(f32::INFINITY)
}

/// The largest numbers so far, in order.
struct Best<const N: usize> {
    /// Nothing below it is taken.
    floor: f32,
    best: [(f32, usize); N],
    found: usize,
}

impl<const N: usize> Best<N> {
    /// The least of those that were found, once there are `N`.
    #[inline(always)]
    fn least(&self) -> Option<f32> {
        self.best.last().filter(|_| self.found == N).map(|(least, _)| *least)
    }

    /// Whether any of these numbers may be taken.
    #[inline(always)]
    fn has_room_for_any<S: Simd>(&self, simd: S, vectors: &[S::f32s]) -> bool {
        let any = match self.least() {
            Some(least) => {
                let least = simd.splat_f32s(least);
                vectors.iter().map(|v| simd.greater_than_f32s(*v, least)).reduce(|a, b| simd.or_m32s(a, b))
            }
            None => {
                let floor = simd.splat_f32s(self.floor);
                vectors.iter().map(|v| simd.greater_than_or_equal_f32s(*v, floor)).reduce(|a, b| simd.or_m32s(a, b))
            }
        };
        any.is_some_and(|any| simd.first_true_m32s(any) < S::F32_LANES)
    }

    /// Takes those that are among the largest so far: of equals the first.
    #[inline(always)]
    fn take_all(&mut self, values: &[f32], first: usize) {
        for (i, value) in values.iter().enumerate() {
            if self.least().map_or(*value >= self.floor, |least| *value > least) {
                self.take(*value, first + i);
            }
        }
    }

    #[inline(always)]
    fn take(&mut self, value: f32, place: usize) {
        let Some(last) = N.checked_sub(1) else { return };
        let mut at = self.found.min(last);
        while at > 0 && value > self.best[at - 1].0 {
            self.best[at] = self.best[at - 1];
            at -= 1;
        }
        self.best[at] = (value, place);
        self.found = N.min(self.found + 1);
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
                // Fewer than, as many as, and more than the groups that a path has maxima of.
                fn places<const N: usize>(path: KernelPath, values: &[f32]) -> Vec<usize> {
                    let (best, found) = path.run(Largest::<N> { values }).unwrap();
                    best[..found].iter().map(|(_, place)| *place).collect()
                }
                for (most, places) in [
                    (1, places::<1>(path, &values)),
                    (4, places::<4>(path, &values)),
                    (5, places::<5>(path, &values)),
                    (100, places::<100>(path, &values)),
                ] {
                    assert_eq!(places, order[..order.len().min(most)], "{path:?} {len} {most}");
                }
            }
        }
    }
}
