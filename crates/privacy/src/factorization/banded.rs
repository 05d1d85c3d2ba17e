//! Banded Toeplitz matrices with the least error (Choquette-Choo et al. 2023; for Toeplitz, McKenna 2024).
//!
//! The column is written as `c_i = sum_(m >= i) e^(y_m) / sum_m e^(y_m)`: every y gives a column that starts with 1 and
//! falls, and every such column has a y. Over y, the logarithm of the squared error is minimised by L-BFGS, from the
//! first coefficients of `(1 - x)^(-1/2)`, which are the best column without a limit on the bands for one participation
//! (Fichtenberger et al. 2023). With `C b = 1` and `E = sum_t w_t b_t^2`, the gradient is
//!
//! `dE/dc_m = - sum_t l_t b_(t-m)` where `C^T l = 2 w b`: a second solve, and a correlation; O(n * bands) each.
//!
//! Where some coefficients ought to be equal, as with more bands than the distance, y runs off to minus infinity, and
//! what went there too early would not come back. So the search begins with a logarithmic barrier, `-mu sum_m ln(c_m -
//! c_(m+1))`, which is linear in y up to the normalisation, and repeats with ever less of it.

use super::{
    Objective, Setting,
    column::Shape,
    quasi_newton::{Effort, minimise},
};

/// For each strength of the barrier.
const EFFORT: Effort = Effort { steps: 200, memory: 12, tolerance: 1e-7 };
/// How much of the logarithm of the error the barrier may cost, from the first search to the last.
const BARRIERS: [f64; 5] = [1e-2, 1e-3, 1e-4, 1e-5, 1e-6];

/// Solves `C x = right` for a lower-triangular Toeplitz C with this first column, in place.
pub(super) fn solve(column: &[f64], right: &mut [f64]) {
    let Some((first, rest)) = column.split_first() else { return };
    for t in 0..right.len() {
        let (known, unknown) = right.split_at_mut(t + 1);
        known[t] /= first;
        let x = known[t];
        unknown.iter_mut().zip(rest).for_each(|(r, c)| *r -= c * x);
    }
}

/// The column of the best banded matrix, starting with 1 and never rising.
pub(super) fn optimise(setting: &Setting, bands: usize, objective: Objective) -> Vec<f64> {
    let shape = Shape::new(setting, objective);
    let mut problem = Problem::new(shape, bands);
    let start = square_root(bands);
    let mut y = logarithms(&start);
    for barrier in BARRIERS {
        problem.barrier = barrier / bands as f64;
        y = minimise(y, EFFORT, |y, gradient| problem.value(y, gradient)).point;
    }
    // The last of the barrier costs a millionth or so; where a known column is exactly best, it is taken.
    let mut identity = vec![0.0; bands];
    identity[0] = 1.0;
    let candidates = [start, identity, column_of(&y)];
    let judged = candidates.into_iter().map(|column| (problem.squared_error(&column), column));
    judged.min_by(|a, b| a.0.total_cmp(&b.0)).map(|best| best.1).expect("there are three")
}

/// The first coefficients of `(1 - x)^(-1/2)`: 1, 1/2, 3/8, ...
fn square_root(bands: usize) -> Vec<f64> {
    let ratio = |i: usize| if i == 0 { 1.0 } else { (2 * i - 1) as f64 / (2 * i) as f64 };
    let next = |c: &mut f64, i: usize| {
        *c *= ratio(i);
        Some(*c)
    };
    (0..bands).scan(1.0, next).collect()
}

/// The y of a falling column.
fn logarithms(column: &[f64]) -> Vec<f64> {
    let after = column.iter().skip(1).chain(std::iter::once(&0.0));
    column.iter().zip(after).map(|(c, next)| libm::log(c - next)).collect()
}

/// The column of a y.
fn column_of(y: &[f64]) -> Vec<f64> {
    let largest = y.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let mut column: Vec<f64> = y.iter().map(|v| libm::exp(v - largest)).collect();
    for i in (1..column.len()).rev() {
        column[i - 1] += column[i];
    }
    let sum = column[0];
    column.iter_mut().for_each(|c| *c /= sum);
    column
}

/// `ln sum_m e^(y_m)`.
fn log_sum(y: &[f64]) -> f64 {
    let largest = y.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    largest + libm::log(y.iter().map(|v| libm::exp(v - largest)).sum())
}

/// The logarithm of the squared error as a function of y, with the barrier, with room to work in.
struct Problem {
    shape: Shape,
    /// The strength mu of the barrier.
    barrier: f64,
    /// b, of `C b = 1`.
    prefix: Vec<f64>,
    /// l, of `C^T l = 2 w b`, the last entry first: then it is a solve with C as well.
    adjoint: Vec<f64>,
    full_column: Vec<f64>,
    of_sensitivity: Vec<f64>,
    of_error: Vec<f64>,
}

impl Problem {
    fn new(shape: Shape, bands: usize) -> Self {
        let room = || vec![0.0; shape.rounds];
        Self {
            shape,
            barrier: 0.0,
            prefix: room(),
            adjoint: room(),
            full_column: room(),
            of_sensitivity: room(),
            of_error: vec![0.0; bands],
        }
    }

    fn value(&mut self, y: &[f64], gradient: &mut [f64]) -> f64 {
        let column = column_of(y);
        let squared = self.squared_sensitivity(&column);
        let error = self.error(&column);
        // Scaling the column changes nothing, so that the scale to c_0 = 1 needs no derivative. From c to y:
        // c_i moves with every e^(y_m), m >= i.
        let mut below = 0.0;
        let all = self.barrier * column.len() as f64;
        for (i, g) in gradient.iter_mut().enumerate() {
            below += self.of_error[i] / error + self.of_sensitivity[i] / squared;
            let part = column[i] - column.get(i + 1).copied().unwrap_or(0.0);
            *g = part * (below + all) - self.barrier;
        }
        libm::log(error) + libm::log(squared) + all * log_sum(y) - self.barrier * y.iter().sum::<f64>()
    }

    /// What is made small: squared error times squared sensitivity.
    fn squared_error(&mut self, column: &[f64]) -> f64 {
        self.error(column) * self.squared_sensitivity(column)
    }

    /// The squared sensitivity, and its gradient in `of_sensitivity`.
    fn squared_sensitivity(&mut self, column: &[f64]) -> f64 {
        self.full_column[..column.len()].copy_from_slice(column);
        self.shape.squared_sensitivity(&self.full_column, &mut self.of_sensitivity)
    }

    /// `sum_t w_t b_t^2`, and its gradient over the bands in `of_error`.
    fn error(&mut self, column: &[f64]) -> f64 {
        let n = self.shape.rounds;
        self.prefix.fill(1.0);
        solve(column, &mut self.prefix);
        let mut error = 0.0;
        for (t, b) in self.prefix.iter().enumerate() {
            let weighted = self.shape.weight(t) * b;
            error += weighted * b;
            self.adjoint[n - 1 - t] = 2.0 * weighted;
        }
        solve(column, &mut self.adjoint);
        self.adjoint.reverse();
        self.of_error.fill(0.0);
        for (s, b) in self.prefix.iter().enumerate() {
            self.of_error.iter_mut().zip(&self.adjoint[s..]).for_each(|(g, l)| *g -= l * b);
        }
        error
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_solve_undoes_a_product() {
        let (column, x) = ([2.0, 1.0, 0.5], [1.0, -1.0, 3.0, 0.25, 2.0]);
        let mut right: Vec<f64> = (0..5).map(|t| (0..=t.min(2)).map(|m| column[m] * x[t - m]).sum::<f64>()).collect();
        solve(&column, &mut right);
        assert_eq!(right, x);
    }

    #[test]
    fn every_y_is_a_falling_column_and_back() {
        let column = square_root(6);
        assert_eq!(&column[..4], [1.0, 0.5, 0.375, 0.3125]);
        let again = column_of(&logarithms(&column));
        assert!(again.iter().zip(&column).all(|(a, b)| (a - b).abs() < 1e-15), "{again:?}");
        let wild = column_of(&[3.0, -700.0, 20.0, 0.0]);
        assert!(wild[0] == 1.0 && wild.windows(2).all(|w| w[1] <= w[0] && w[1] >= 0.0), "{wild:?}");
    }

    #[test]
    fn gradients_are_those_of_finite_differences() {
        for objective in [Objective::Max, Objective::Mean] {
            for (distance, count) in [(30, 1), (7, 4), (2, 9), (1, 30)] {
                let shape = Shape { rounds: 30, distance, count, objective };
                let mut problem = Problem::new(shape, 5);
                problem.barrier = 0.01;
                let y = [0.3, -1.0, -2.0, -0.5, -1.5];
                let mut gradient = [0.0; 5];
                problem.value(&y, &mut gradient);
                for i in 0..5 {
                    let mut at = |step: f64| {
                        let mut moved = y;
                        moved[i] += step;
                        problem.value(&moved, &mut [0.0; 5])
                    };
                    let want = (at(1e-5) - at(-1e-5)) / 2e-5;
                    assert!((gradient[i] - want).abs() < 1e-8, "{shape:?} {i}: {} {want}", gradient[i]);
                }
            }
        }
    }
}
