//! Rounds coefficients to a grid: the exact mechanism needs multiples of a power of two (rule P4).
//!
//! Rounding to the nearest multiple keeps the order of the coefficients, so a column that never rises still does not,
//! and a 1 stays a 1. BLT weights are rounded down, so that their sum, which is c_1, stays at most 1.

use crate::event::NoiseMatrix;

/// The grid of banded coefficients is 2 to the minus this.
pub const BANDED_BITS: u32 = 24;
/// The grid of a BLT's decays and weights is 2 to the minus this.
pub const BLT_BITS: u32 = 52;

/// The same matrix with its coefficients (or decays and weights) on the multiples of `2^-bits`, for `bits` up to 52.
///
/// The first column is scaled to start with exactly 1. What had no coefficients, a tree, stays as it is.
///
/// # Panics
/// When `bits` is more than 52.
#[must_use]
pub fn quantise(matrix: &NoiseMatrix, bits: u32) -> NoiseMatrix {
    assert!(bits <= 52, "a double holds at most 52 bits after the point of a number near 1");
    let grid = (1u64 << bits) as f64; // powers of two: multiplying and dividing by it is exact
    match matrix {
        NoiseMatrix::Tree => NoiseMatrix::Tree,
        NoiseMatrix::Banded { coefficients } => {
            let first = coefficients.first().copied().unwrap_or(1.0);
            let nearest = |c: &f64| libm::rint(c / first * grid) / grid;
            NoiseMatrix::Banded { coefficients: coefficients.iter().map(nearest).collect() }
        }
        NoiseMatrix::Blt { buffer_decay, output_scale } => {
            let decay = |d: &f64| libm::rint(d * grid).min(grid - 1.0) / grid;
            let weight = |w: &f64| libm::floor(w * grid) / grid;
            NoiseMatrix::Blt {
                buffer_decay: buffer_decay.iter().map(decay).collect(),
                output_scale: output_scale.iter().map(weight).collect(),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p4_banded_coefficients_start_with_one_and_never_rise() {
        let coefficients: Vec<f64> = (0..200).map(|i| 3.0 / libm::sqrt(1.0 + f64::from(i))).collect();
        for bits in [0, 8, 24, 52] {
            let NoiseMatrix::Banded { coefficients } =
                quantise(&NoiseMatrix::Banded { coefficients: coefficients.clone() }, bits)
            else {
                panic!("it was banded")
            };
            assert_eq!(coefficients[0], 1.0);
            assert!(coefficients.windows(2).all(|w| w[1] <= w[0]));
            let grid = (1u64 << bits) as f64;
            assert!(coefficients.iter().all(|c| libm::trunc(c * grid) == c * grid));
        }
    }

    #[test]
    fn p4_blt_parameters_stay_legal() {
        let matrix = NoiseMatrix::Blt {
            buffer_decay: vec![1.0 - f64::EPSILON / 2.0, 1.0 / 3.0, 0.0],
            output_scale: vec![1.0 / 3.0, 2.0 / 3.0, 1e-17],
        };
        let NoiseMatrix::Blt { buffer_decay, output_scale } = quantise(&matrix, BLT_BITS) else {
            panic!("it was a BLT")
        };
        assert!(buffer_decay.iter().all(|d| (0.0..1.0).contains(d)));
        assert!(output_scale.iter().sum::<f64>() <= 1.0);
        assert_eq!(output_scale[2], 0.0);
        let grid = (1u64 << BLT_BITS) as f64;
        assert!(buffer_decay.iter().chain(&output_scale).all(|c| libm::trunc(c * grid) == c * grid));
    }

    #[test]
    fn a_tree_is_a_tree() {
        assert_eq!(quantise(&NoiseMatrix::Tree, 24), NoiseMatrix::Tree);
    }
}
