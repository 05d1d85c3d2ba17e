//! The few vector operations that the rotation needs, written once for `f32` and `f64`.
//!
//! `pulp` picks the instruction set at run time. Every operation here is exact or correctly rounded in each lane, and
//! none is fused, so the same values come out whatever the vector's width.

use pulp::{Simd, bytemuck};

/// A coordinate of a vector that can be rotated: `f32` (a device's update) or `f64` (the server's sum).
pub(super) trait Coordinate: bytemuck::Pod {
    /// A register full of coordinates.
    type Vector<S: Simd>: bytemuck::Pod;

    /// The nearest value to a constant.
    fn nearest(constant: f64) -> Self;

    /// The value with its sign changed where the highest bit of `word` is set, times a factor.
    fn flip_and_scale(self, word: u32, factor: Self) -> Self;

    /// `self * factor`, outside of vectors.
    fn times(self, factor: Self) -> Self;

    /// `self + other`, outside of vectors.
    fn plus(self, other: Self) -> Self;

    /// `self - other`, outside of vectors.
    fn minus(self, other: Self) -> Self;

    /// A slice as whole registers; what does not fill one is left out.
    fn vectors<S: Simd>(values: &mut [Self]) -> &mut [Self::Vector<S>];

    /// One value in every lane.
    fn splat<S: Simd>(simd: S, value: Self) -> Self::Vector<S>;

    /// `a + b` in every lane.
    fn add<S: Simd>(simd: S, a: Self::Vector<S>, b: Self::Vector<S>) -> Self::Vector<S>;

    /// `a - b` in every lane.
    fn sub<S: Simd>(simd: S, a: Self::Vector<S>, b: Self::Vector<S>) -> Self::Vector<S>;

    /// `a * b` in every lane.
    fn mul<S: Simd>(simd: S, a: Self::Vector<S>, b: Self::Vector<S>) -> Self::Vector<S>;

    /// The butterflies inside a register, strides rising.
    fn rise<S: Simd>(simd: S, x: Self::Vector<S>) -> Self::Vector<S>;

    /// The butterflies inside a register, strides falling.
    fn fall<S: Simd>(simd: S, x: Self::Vector<S>) -> Self::Vector<S>;
}

/// Butterflies between lanes whose numbers differ by `h`, for each `h` in turn.
///
/// Lane l becomes `x[l] + x[l + h]` where bit h of l is clear and `x[l - h] - x[l]` where it is set. The second is
/// computed as `x[l - h] + (-x[l])`, which IEEE 754 makes the same: one permutation, one change of signs, one addition.
/// The lanes are spelled out, not looped over, so that the compiler sees a single shuffle.
macro_rules! butterflies {
    ($simd:ident, $xor:ident, $x:ident, [$($h:literal),*], $lanes:tt) => {{
        let mut x = $x;
        $( x = butterflies!(@one $simd, $xor, x, $h, $lanes); )*
        x
    }};
    (@one $simd:ident, $xor:ident, $x:ident, $h:literal, [$($l:literal),*]) => {{
        let lanes = bytemuck::cast::<_, [Self; [$($l),*].len()]>($x);
        let partners = [$(lanes[$l ^ $h]),*];
        let signs = [$(if $l & $h == 0 { 0.0 } else { -0.0 as Self }),*];
        Self::add($simd, bytemuck::cast(partners), $simd.$xor($x, bytemuck::cast(signs)))
    }};
}

macro_rules! coordinate {
    ($ty:ident, $bits:ident, $vector:ident, $lanes:ident, $vectors:ident,
     $splat:ident, $add:ident, $sub:ident, $mul:ident, $xor:ident) => {
        impl Coordinate for $ty {
            type Vector<S: Simd> = S::$vector;

            #[inline(always)]
            fn nearest(constant: f64) -> Self {
                constant as $ty
            }

            #[inline(always)]
            fn flip_and_scale(self, word: u32, factor: Self) -> Self {
                let sign = $bits::from(word & 1 << 31) << ($bits::BITS - 32);
                $ty::from_bits(self.to_bits() ^ sign) * factor
            }

            #[inline(always)]
            fn times(self, factor: Self) -> Self {
                self * factor
            }

            #[inline(always)]
            fn plus(self, other: Self) -> Self {
                self + other
            }

            #[inline(always)]
            fn minus(self, other: Self) -> Self {
                self - other
            }

            #[inline(always)]
            fn vectors<S: Simd>(values: &mut [Self]) -> &mut [S::$vector] {
                S::$vectors(values).0
            }

            #[inline(always)]
            fn splat<S: Simd>(simd: S, value: Self) -> S::$vector {
                simd.$splat(value)
            }

            #[inline(always)]
            fn add<S: Simd>(simd: S, a: S::$vector, b: S::$vector) -> S::$vector {
                simd.$add(a, b)
            }

            #[inline(always)]
            fn sub<S: Simd>(simd: S, a: S::$vector, b: S::$vector) -> S::$vector {
                simd.$sub(a, b)
            }

            #[inline(always)]
            fn mul<S: Simd>(simd: S, a: S::$vector, b: S::$vector) -> S::$vector {
                simd.$mul(a, b)
            }

            #[inline(always)]
            fn rise<S: Simd>(simd: S, x: S::$vector) -> S::$vector {
                match S::$lanes {
                    16 => butterflies!(
                        simd,
                        $xor,
                        x,
                        [1, 2, 4, 8],
                        [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]
                    ),
                    8 => butterflies!(simd, $xor, x, [1, 2, 4], [0, 1, 2, 3, 4, 5, 6, 7]),
                    4 => butterflies!(simd, $xor, x, [1, 2], [0, 1, 2, 3]),
                    2 => butterflies!(simd, $xor, x, [1], [0, 1]),
                    _ => x,
                }
            }

            #[inline(always)]
            fn fall<S: Simd>(simd: S, x: S::$vector) -> S::$vector {
                match S::$lanes {
                    16 => butterflies!(
                        simd,
                        $xor,
                        x,
                        [8, 4, 2, 1],
                        [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]
                    ),
                    8 => butterflies!(simd, $xor, x, [4, 2, 1], [0, 1, 2, 3, 4, 5, 6, 7]),
                    4 => butterflies!(simd, $xor, x, [2, 1], [0, 1, 2, 3]),
                    2 => butterflies!(simd, $xor, x, [1], [0, 1]),
                    _ => x,
                }
            }
        }
    };
}

coordinate!(f32, u32, f32s, F32_LANES, as_mut_simd_f32s, splat_f32s, add_f32s, sub_f32s, mul_f32s, xor_f32s);
coordinate!(f64, u64, f64s, F64_LANES, as_mut_simd_f64s, splat_f64s, add_f64s, sub_f64s, mul_f64s, xor_f64s);
