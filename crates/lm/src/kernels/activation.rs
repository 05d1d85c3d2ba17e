//! Exponentials, sigmoids and hyperbolic tangents, a vector at a time.
//!
//! `2^x` is split into an integer power, made by shifting bits, and a polynomial of the rest in [-1/2, 1/2]: off by at
//! most 2e-7 of the value.
//!
//! Numbers below 2^-126 are subnormal, and an Intel core takes some 150 cycles for each product that meets one. What saturates would
//! make them: so a sigmoid ends at [`CLOSED`], and what cells keep and hand on is [`quiet`]: 0 where it is far below all that counts.

use pulp::Simd;

/// Taylor coefficients of `2^f` in powers of f: `ln(2)^n / n!`.
const EXP2: [f32; 7] =
    [1.0, std::f32::consts::LN_2, 0.240_226_5, 0.055_504_11, 0.009_618_129, 0.001_333_355_8, 0.000_154_035_3];

/// `2^x`, for x cut to [-126, 126].
#[inline(always)]
pub(crate) fn exp2<S: Simd>(simd: S, x: S::f32s) -> S::f32s {
    // Adding 1.5 * 2^23 rounds to an integer and leaves it in the last bits.
    const ROUNDER: f32 = 12_582_912.0;
    let x = simd.min_f32s(simd.max_f32s(x, simd.splat_f32s(-126.0)), simd.splat_f32s(126.0));
    let rounder = simd.splat_f32s(ROUNDER);
    let shifted = simd.add_f32s(x, rounder);
    let rest = simd.sub_f32s(x, simd.sub_f32s(shifted, rounder));
    let mut sum = simd.splat_f32s(EXP2[6]);
    for coefficient in EXP2[..6].iter().rev() {
        sum = simd.mul_add_e_f32s(sum, rest, simd.splat_f32s(*coefficient));
    }
    // The exponent field: the integer plus 127, shifted into place; the rounder's own bits fall off the top.
    let bits = simd.add_u32s(simd.transmute_u32s_f32s(shifted), simd.splat_u32s(127));
    let power = simd.wrapping_dyn_shl_u32s(bits, simd.splat_u32s(23));
    simd.mul_f32s(sum, simd.transmute_f32s_u32s(power))
}

/// Smaller numbers are taken as 0: two factors of this size have a product that is not subnormal.
pub(crate) const QUIET: f32 = 1.0 / (1u64 << 60) as f32;

/// A sigmoid is not less than `2^-CLOSED`.
const CLOSED: f32 = 40.0;

/// The number, or 0 if it is smaller than [`QUIET`].
#[inline(always)]
pub(crate) fn quiet<S: Simd>(simd: S, x: S::f32s) -> S::f32s {
    let is_small = simd.less_than_f32s(simd.abs_f32s(x), simd.splat_f32s(QUIET));
    simd.select_f32s(is_small, simd.splat_f32s(0.0), x)
}

/// `1 / (1 + e^-x)`, but for x below -27.7, where it stays as it is there.
#[inline(always)]
pub(crate) fn sigmoid<S: Simd>(simd: S, x: S::f32s) -> S::f32s {
    let one = simd.splat_f32s(1.0);
    let bits = simd.mul_f32s(x, simd.splat_f32s(-std::f32::consts::LOG2_E));
    let e = exp2(simd, simd.min_f32s(bits, simd.splat_f32s(CLOSED)));
    simd.div_f32s(one, simd.add_f32s(one, e))
}

/// `tanh(x) = 1 - 2 / (1 + e^2x)`; near 0 its odd series, which loses no digits there.
#[inline(always)]
pub(crate) fn tanh<S: Simd>(simd: S, x: S::f32s) -> S::f32s {
    let one = simd.splat_f32s(1.0);
    let e = exp2(simd, simd.mul_f32s(x, simd.splat_f32s(2.0 * std::f32::consts::LOG2_E)));
    let far = simd.sub_f32s(one, simd.div_f32s(simd.splat_f32s(2.0), simd.add_f32s(one, e)));
    let square = simd.mul_f32s(x, x);
    let mut series = simd.splat_f32s(62.0 / 2835.0);
    for coefficient in [-17.0 / 315.0, 2.0 / 15.0, -1.0 / 3.0, 1.0] {
        series = simd.mul_add_e_f32s(series, square, simd.splat_f32s(coefficient));
    }
    let near = simd.mul_f32s(x, series);
    let is_near = simd.less_than_f32s(square, simd.splat_f32s(0.04));
    simd.select_f32s(is_near, near, far)
}

#[cfg(test)]
mod tests {
    use pulp::WithSimd;

    use super::*;
    use crate::kernels::KernelPath;

    struct Evaluate<'a>(&'a mut [f32], u8);
    impl WithSimd for Evaluate<'_> {
        type Output = ();
        #[inline(always)]
        fn with_simd<S: Simd>(self, simd: S) {
            let (vectors, _) = S::as_mut_simd_f32s(self.0);
            for v in vectors {
                *v = match self.1 {
                    0 => exp2(simd, *v),
                    1 => sigmoid(simd, *v),
                    _ => tanh(simd, *v),
                };
            }
        }
    }

    #[test]
    fn activations_are_what_they_stand_for_on_every_path() {
        let inputs: Vec<f32> = (-4000..4000).map(|i| i as f32 / 160.0).collect();
        let exact: [fn(f64) -> f64; 3] = [libm::exp2, |x| 1.0 / (1.0 + libm::exp(-x)), libm::tanh];
        for path in KernelPath::ALL.into_iter().filter(|p| p.is_available()) {
            for (which, exact) in (0u8..).zip(exact) {
                let mut got = inputs.clone();
                path.run(Evaluate(&mut got, which)).unwrap();
                for (x, y) in inputs.iter().zip(&got) {
                    let want = exact(f64::from(*x));
                    let off = (f64::from(*y) - want).abs() / want.abs().max(1e-6);
                    assert!(off < 2e-6, "{path:?} {which} at {x}: {y}, expected {want}");
                }
            }
        }
        let mut extreme =
            vec![f32::MAX, f32::MIN, 1e30, -1e30, 0.0, -0.0, 300.0, -300.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0];
        KernelPath::best().run(Evaluate(&mut extreme, 2)).unwrap();
        assert_eq!(extreme[..4], [1.0, -1.0, 1.0, -1.0]);
    }
}
