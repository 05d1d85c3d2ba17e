//! How many multiply-adds a core can make, for benchmarks that name their share of it.
//!
//! Sums that fill the registers and wait for nothing: what products of matrices would reach if loads cost nothing.

use pulp::{Simd, WithSimd};

use super::KernelPath;

/// Sums side by side: enough to fill two units that take four or five cycles, few enough for 16 registers.
const SUMS: usize = 12;

/// Makes multiply-adds of vectors, `SUMS` in each turn. Returns the floating-point operations, and a number that depends on them all.
///
/// `factor` must not be known when compiling (`std::hint::black_box`), or there is nothing left to compute.
#[must_use]
pub fn multiply_adds(path: KernelPath, turns: usize, factor: f32) -> (f64, f32) {
    path.run(MultiplyAdds { turns, factor }).unwrap_or_default()
}

struct MultiplyAdds {
    turns: usize,
    factor: f32,
}

impl WithSimd for MultiplyAdds {
    type Output = (f64, f32);

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> (f64, f32) {
        let factor = simd.splat_f32s(self.factor);
        let mut sums = [simd.splat_f32s(1.0); SUMS];
        for _ in 0..self.turns {
            for sum in &mut sums {
                *sum = simd.mul_add_e_f32s(*sum, factor, factor);
            }
        }
        let all = sums.into_iter().reduce(|a, b| simd.add_f32s(a, b)).map_or(0.0, |sum| simd.reduce_sum_f32s(sum));
        ((2 * S::F32_LANES * SUMS * self.turns) as f64, all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_path_makes_the_multiply_adds_that_it_counts() {
        for path in KernelPath::ALL.into_iter().filter(|p| p.is_available()) {
            let (operations, sum) = multiply_adds(path, 3, 0.5);
            // 1, 1, 1, ...: each sum stays where it began, and there are as many as operations of one turn.
            assert_eq!(f64::from(sum) * 2.0 * 3.0, operations, "{path:?}");
        }
    }
}
