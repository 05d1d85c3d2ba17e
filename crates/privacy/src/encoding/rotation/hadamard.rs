//! The fast Walsh-Hadamard transform, in place: log2(n) stages of a + b and a - b.
//!
//! The stage of stride h replaces each pair (x[i], x[i + h]) by its sum and difference. Sums are not regrouped: the
//! stages are run with rising strides (forward) or falling ones (inverse), and whatever the blocking, every coordinate
//! goes through the stages in that order. The result is therefore the textbook loop's, bit for bit, on every machine.
//!
//! For speed the vector is a tree: a leaf of at most 2^12 coordinates fits the first-level cache and is finished there,
//! first inside registers; eight neighbours are joined by three stages at once (radix 8), and so on upwards, each join
//! as soon as its eight parts are done and still near. Eight rows at a power-of-two distance share one cache set, which
//! holds eight lines on most machines: a larger radix would push its own rows out.

use std::array;

use pulp::Simd;

use super::lanes::Coordinate;

/// Three stages at a time.
const RADIX: usize = 8;
const RADIX_LOG2: u32 = RADIX.ilog2();

/// The largest leaf: 16 KiB of `f32`.
const LEAF_LOG2: u32 = 12;

/// Shorter transforms take [`plain`]: below this, not every machine can fill [`RADIX`] registers.
pub(super) const SHORTEST: usize = 128;

/// Strides rise from 1 to n / 2.
pub(super) const RISING: bool = true;
/// Strides fall from n / 2 to 1.
pub(super) const FALLING: bool = false;

/// Transforms `values`, whose length is a power of two and at least [`SHORTEST`].
///
/// `each_leaf` is called once for every leaf with its position and its coordinates while they are in cache: before
/// their first stage if strides rise, after their last if they fall.
#[inline(always)]
pub(super) fn transform<T: Coordinate, S: Simd, const UP: bool>(
    simd: S,
    values: &mut [T],
    each_leaf: impl Fn(usize, &mut [T]),
) {
    let levels = values.len().ilog2().saturating_sub(LEAF_LOG2).div_ceil(RADIX_LOG2);
    let leaf = values.len() >> (levels * RADIX_LOG2);
    for start in (0..values.len()).step_by(leaf) {
        if !UP {
            // The joins that begin here, from the root down.
            for level in (1..=levels).rev() {
                let size = leaf << (level * RADIX_LOG2);
                if start.is_multiple_of(size) {
                    join::<T, S, RADIX, UP>(simd, &mut values[start..start + size], size / RADIX);
                }
            }
        }
        let block = &mut values[start..start + leaf];
        if UP {
            each_leaf(start, block);
            grow::<T, S>(simd, block);
        } else {
            shrink::<T, S>(simd, block);
            each_leaf(start, block);
        }
        if UP {
            // The joins that end here, towards the root.
            let end = start + leaf;
            for level in 1..=levels {
                let size = leaf << (level * RADIX_LOG2);
                if end.is_multiple_of(size) {
                    join::<T, S, RADIX, UP>(simd, &mut values[end - size..end], size / RADIX);
                }
            }
        }
    }
}

/// All stages of a leaf, strides rising.
#[inline(always)]
fn grow<T: Coordinate, S: Simd>(simd: S, leaf: &mut [T]) {
    registers::<T, S, RISING>(simd, leaf);
    let mut done = in_registers::<T, S>();
    while done < leaf.len() {
        let radix = RADIX.min(leaf.len() / done);
        join_by::<T, S, RISING>(simd, leaf, done, radix);
        done *= radix;
    }
}

/// All stages of a leaf, strides falling.
#[inline(always)]
fn shrink<T: Coordinate, S: Simd>(simd: S, leaf: &mut [T]) {
    let least = in_registers::<T, S>();
    let mut left = leaf.len();
    while left > least {
        let radix = RADIX.min(left / least);
        left /= radix;
        join_by::<T, S, FALLING>(simd, leaf, left, radix);
    }
    registers::<T, S, FALLING>(simd, leaf);
}

/// How many coordinates [`registers`] transforms at a time.
#[inline(always)]
const fn in_registers<T: Coordinate, S: Simd>() -> usize {
    RADIX * size_of::<T::Vector<S>>() / size_of::<T>()
}

/// The stages of every stride below [`in_registers`].
#[inline(always)]
fn registers<T: Coordinate, S: Simd, const UP: bool>(simd: S, leaf: &mut [T]) {
    for chunk in T::vectors::<S>(leaf).as_chunks_mut::<RADIX>().0 {
        let mut x = *chunk;
        if UP {
            x = x.map(|v| T::rise(simd, v));
        }
        butterflies::<T, S, RADIX, UP>(simd, &mut x);
        if !UP {
            x = x.map(|v| T::fall(simd, v));
        }
        *chunk = x;
    }
}

/// [`join`] with a radix known at run time: 2, 4 or 8.
#[inline(always)]
fn join_by<T: Coordinate, S: Simd, const UP: bool>(simd: S, values: &mut [T], stride: usize, radix: usize) {
    match radix {
        2 => join::<T, S, 2, UP>(simd, values, stride),
        4 => join::<T, S, 4, UP>(simd, values, stride),
        _ => join::<T, S, 8, UP>(simd, values, stride),
    }
}

/// The log2(R) stages of strides `stride` to `stride * R / 2`, in one pass over the values.
#[inline(always)]
fn join<T: Coordinate, S: Simd, const R: usize, const UP: bool>(simd: S, values: &mut [T], stride: usize) {
    for group in values.chunks_exact_mut(R * stride) {
        let mut parts = group.chunks_exact_mut(stride);
        let rows: [_; R] = array::from_fn(|_| parts.next().map(T::vectors::<S>).unwrap_or_default());
        for column in 0..rows[0].len() {
            let mut x: [T::Vector<S>; R] = array::from_fn(|r| rows[r][column]);
            butterflies::<T, S, R, UP>(simd, &mut x);
            for r in 0..R {
                rows[r][column] = x[r];
            }
        }
    }
}

/// log2(R) stages across R registers.
#[inline(always)]
fn butterflies<T: Coordinate, S: Simd, const R: usize, const UP: bool>(simd: S, x: &mut [T::Vector<S>; R]) {
    for stage in 0..R.ilog2() {
        let h = if UP { 1 << stage } else { R >> (stage + 1) };
        for i in 0..R {
            if i & h == 0 {
                let (a, b) = (x[i], x[i + h]);
                x[i] = T::add(simd, a, b);
                x[i + h] = T::sub(simd, a, b);
            }
        }
    }
}

/// The textbook loop, for transforms that are too short for registers.
pub(super) fn plain<T: Coordinate, const UP: bool>(values: &mut [T]) {
    let stages = values.len().ilog2();
    for stage in 0..stages {
        let h = 1 << if UP { stage } else { stages - 1 - stage };
        for pair in values.chunks_exact_mut(2 * h) {
            for i in 0..h {
                let (a, b) = (pair[i], pair[i + h]);
                pair[i] = a.plus(b);
                pair[i + h] = a.minus(b);
            }
        }
    }
}
