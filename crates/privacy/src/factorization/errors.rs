//! Sensitivity and errors of a strategy matrix on the prefix sums, by their definition.
//!
//! For a lower-triangular Toeplitz C, `B = A C^-1` is one too, and its column b solves `C b = 1`. Row t of B has the
//! coefficients b_0 .. b_t, so its squared norm never falls with t: the worst prefix sum is the last. (jax_privacy:
//! `toeplitz.per_query_error`, times `toeplitz.minsep_sensitivity_squared`.)
//!
//! For a tree, B is the estimate from below of Honaker 2015, as Kairouz et al. 2021 use it: a complete subtree of
//! height h is known with variance `1 / (2 - 2^-h)`, and round t adds up the subtrees of t's binary digits.

use super::{FactorizationError, Setting, banded, blt};
use crate::{
    event::{NoiseMatrix, Segment},
    sensitivity,
};

/// The errors of a strategy matrix on prefix sums, for unit clip and unit noise multiplier.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Errors {
    /// The squared sensitivity of C under the participation limits.
    pub squared_sensitivity: f64,
    /// The largest squared error of a prefix sum: a squared row norm of B, times the squared sensitivity.
    pub max_squared: f64,
    /// The mean over the prefix sums of the squared error.
    pub mean_squared: f64,
}

impl Errors {
    /// The sensitivity of C.
    #[must_use]
    pub fn sensitivity(&self) -> f64 {
        libm::sqrt(self.squared_sensitivity)
    }

    /// The standard deviation of the worst prefix sum's error.
    #[must_use]
    pub fn max(&self) -> f64 {
        libm::sqrt(self.max_squared)
    }

    /// The root of the mean squared error.
    #[must_use]
    pub fn mean(&self) -> f64 {
        libm::sqrt(self.mean_squared)
    }
}

/// Squared row norms of B: the largest, and their mean.
struct RowNorms {
    max: f64,
    mean: f64,
}

/// The sensitivity and the errors of a matrix over one segment.
///
/// # Errors
/// When the matrix contradicts itself.
pub fn evaluate(matrix: &NoiseMatrix, setting: &Setting) -> Result<Errors, FactorizationError> {
    let participation = setting.participation();
    let squared = sensitivity::of_matrix(matrix, &[Segment::of(setting.rounds())], &participation)?.squared;
    let rounds = setting.rounds() as usize;
    let rows = match matrix {
        NoiseMatrix::Tree => rows_of_tree(setting.rounds()),
        NoiseMatrix::Banded { coefficients } => {
            let mut prefix = vec![1.0; rounds];
            banded::solve(coefficients, &mut prefix);
            rows_of_toeplitz(&prefix)
        }
        NoiseMatrix::Blt { buffer_decay, output_scale } => {
            rows_of_toeplitz(&blt::prefix_coefficients(buffer_decay, output_scale, rounds))
        }
    };
    Ok(Errors { squared_sensitivity: squared, max_squared: rows.max * squared, mean_squared: rows.mean * squared })
}

/// The errors of independent noise, C = I: the sensitivity is the root of the participations, and the noise adds up.
#[must_use]
pub fn independent(setting: &Setting) -> Errors {
    let (squared, rounds) = (setting.participations() as f64, setting.rounds() as f64);
    Errors {
        squared_sensitivity: squared,
        max_squared: rounds * squared,
        mean_squared: f64::midpoint(rounds, 1.0) * squared,
    }
}

fn rows_of_toeplitz(prefix: &[f64]) -> RowNorms {
    let (mut row, mut total) = (0.0, 0.0);
    for b in prefix {
        row += b * b;
        total += row;
    }
    RowNorms { max: row, mean: total / prefix.len() as f64 }
}

fn rows_of_tree(rounds: u64) -> RowNorms {
    let variance = |height: u32| 1.0 / (2.0 - libm::scalbn(1.0, -(height as i32)));
    let row = |t: u64| (0..u64::BITS).filter(|h| t >> h & 1 == 1).map(variance).sum::<f64>();
    let (mut max, mut total) = (0.0f64, 0.0);
    for norm in (1..=rounds).map(row) {
        max = max.max(norm);
        total += norm;
    }
    RowNorms { max, mean: total / rounds as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{participation::Participation, units::MinSeparation};

    const ROUNDS: usize = 17;

    fn setting(distance: u64, max_participations: u64) -> Setting {
        let separation = MinSeparation::distance(distance).unwrap();
        Setting::new(ROUNDS as u64, Participation::MinSeparation { separation, max_participations }).unwrap()
    }

    /// B = A C^-1 by dense elimination, and the squared norms of its rows.
    fn dense_rows(column: &[f64]) -> Vec<f64> {
        let n = ROUNDS;
        let c = |i: usize, j: usize| if i >= j { column.get(i - j).copied().unwrap_or(0.0) } else { 0.0 };
        // Rows of B C = A, solved from the last column back.
        (0..n)
            .map(|i| {
                let mut row = vec![0.0; n];
                for j in (0..n).rev() {
                    let known: f64 = (j + 1..n).map(|l| row[l] * c(l, j)).sum();
                    row[j] = (f64::from(u8::from(j <= i)) - known) / c(j, j);
                }
                row.iter().map(|b| b * b).sum()
            })
            .collect()
    }

    /// The squared sensitivity by trying every pattern of participation on the dense matrix.
    fn dense_sensitivity(column: &[f64], distance: usize, count: usize) -> f64 {
        fn extend(moved: &[f64], column: &[f64], from: usize, distance: usize, left: usize) -> f64 {
            let here = moved.iter().map(|v| v * v).sum();
            if left == 0 {
                return here;
            }
            (from..ROUNDS).fold(here, |best: f64, p| {
                let mut next = moved.to_vec();
                next[p..].iter_mut().zip(column).for_each(|(v, c)| *v += c);
                best.max(extend(&next, column, p + distance, distance, left - 1))
            })
        }
        extend(&[0.0; ROUNDS], column, 0, distance, count)
    }

    fn assert_like_dense(matrix: &NoiseMatrix, column: &[f64]) {
        let rows = dense_rows(column);
        for (distance, count) in [(1, 1), (1, 3), (4, 5), (6, 2), (17, 1)] {
            let squared = dense_sensitivity(column, distance, count);
            let got = evaluate(matrix, &setting(distance as u64, count as u64)).unwrap();
            let want = [squared, rows[ROUNDS - 1] * squared, rows.iter().sum::<f64>() / ROUNDS as f64 * squared];
            for (got, want) in [got.squared_sensitivity, got.max_squared, got.mean_squared].iter().zip(want) {
                assert!((got - want).abs() <= 1e-11 * want, "{matrix:?} {distance} {count}: {got} {want}");
            }
        }
    }

    #[test]
    fn banded_errors_are_those_of_the_dense_matrices() {
        for coefficients in [vec![1.0], vec![1.0, 0.5, 0.375], vec![2.0, 1.5, 1.5, 0.25, 0.0, 0.0]] {
            assert_like_dense(&NoiseMatrix::Banded { coefficients: coefficients.clone() }, &coefficients);
        }
    }

    #[test]
    fn blt_errors_are_those_of_the_dense_matrices() {
        let (buffer_decay, output_scale) = (vec![0.95, 0.6, 0.0], vec![0.1, 0.25, 0.15]);
        let c = |i: i32| buffer_decay.iter().zip(&output_scale).map(|(d, w): (&f64, &f64)| w * d.powi(i - 1)).sum();
        let column: Vec<f64> = std::iter::once(1.0).chain((1..ROUNDS as i32).map(c)).collect();
        assert_like_dense(&NoiseMatrix::Blt { buffer_decay: buffer_decay.clone(), output_scale }, &column);
    }

    #[test]
    fn independent_noise_is_a_single_band() {
        for (distance, count) in [(1, 17), (4, 5), (6, 2)] {
            let setting = setting(distance, count);
            let band = evaluate(&NoiseMatrix::Banded { coefficients: vec![1.0] }, &setting).unwrap();
            let got = independent(&setting);
            for (a, b) in [(got.max_squared, band.max_squared), (got.mean_squared, band.mean_squared)] {
                assert!((a - b).abs() <= 1e-13 * b);
            }
        }
    }

    #[test]
    fn a_tree_is_estimated_from_below() {
        // Honaker 2015: a leaf has variance 1, two leaves below a node 2/3, then 4/7, ...
        let want = [1.0, 2.0 / 3.0, 1.0 + 2.0 / 3.0, 4.0 / 7.0];
        let rows = rows_of_tree(4);
        assert!((rows.max - want[2]).abs() < 1e-15);
        assert!((rows.mean - want.iter().sum::<f64>() / 4.0).abs() < 1e-15);
    }
}
