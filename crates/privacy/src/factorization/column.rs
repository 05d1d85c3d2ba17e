//! Sums over a column of C under participation limits, and their gradients.
//!
//! With participations at steps 0, b, 2b, ... (k of them), which is the worst pattern for a column that never rises,
//! one user moves `C x` at step t by `v_t = sum_(i < k, i b <= t) c_(t - i b)`, and the squared sensitivity is
//! `sum_t v_t^2` (Kalinin and Lampert 2024, Theorem 2). Both directions take O(n).

use super::{Objective, Setting};

/// The numbers of a [`Setting`] as indices.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shape {
    pub(super) rounds: usize,
    /// The distance of two participations.
    pub(super) distance: usize,
    /// The number of participations that fit.
    pub(super) count: usize,
    pub(super) objective: Objective,
}

impl Shape {
    pub(super) fn new(setting: &Setting, objective: Objective) -> Self {
        Self {
            rounds: setting.rounds() as usize,
            distance: setting.distance() as usize,
            count: setting.participations() as usize,
            objective,
        }
    }

    /// How much the square of B's t-th coefficient counts: it stands in every row from t on.
    pub(super) fn weight(&self, t: usize) -> f64 {
        match self.objective {
            Objective::Max => 1.0,
            Objective::Mean => (self.rounds - t) as f64 / self.rounds as f64,
        }
    }

    /// Squared sensitivity of a full-length column; leaves its gradient in `gradient`, which must be as long.
    pub(super) fn squared_sensitivity(&self, column: &[f64], gradient: &mut [f64]) -> f64 {
        let (b, span) = (self.distance, self.distance.saturating_mul(self.count));
        // v, by v_t = c_t + v_(t-b) - c_(t-kb).
        gradient.copy_from_slice(column);
        for t in b..column.len() {
            gradient[t] += gradient[t - b];
            if t >= span {
                gradient[t] -= column[t - span];
            }
        }
        let squared = gradient.iter().map(|v| v * v).sum();
        // Twice v, summed over the participations that see c_t, from the back: w_t = v_t + w_(t+b) - v_(t+kb).
        let moved = (span < column.len()).then(|| gradient.to_vec());
        for t in (0..column.len().saturating_sub(b)).rev() {
            gradient[t] += gradient[t + b];
            if let Some(moved) = &moved
                && t + span < column.len()
            {
                gradient[t] -= moved[t + span];
            }
        }
        gradient.iter_mut().for_each(|g| *g *= 2.0);
        squared
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shapes() -> impl Iterator<Item = Shape> {
        [(1, 1), (1, 3), (1, 12), (4, 2), (5, 3), (12, 1)]
            .map(|(distance, count)| Shape { rounds: 12, distance, count, objective: Objective::Max })
            .into_iter()
    }

    #[test]
    fn sensitivity_is_that_of_the_spaced_columns() {
        let column: Vec<f64> = (0..12).map(|i| 1.0 / (1.0 + f64::from(i))).collect();
        for shape in shapes() {
            let mut want = 0.0;
            for t in 0..12 {
                let participations = (0..shape.count).map(|i| i * shape.distance).filter(|p| *p <= t);
                let v: f64 = participations.map(|p| column[t - p]).sum();
                want += v * v;
            }
            let got = shape.squared_sensitivity(&column, &mut [0.0; 12]);
            assert!((got - want).abs() < 1e-12 * want, "{shape:?}: {got} {want}");
        }
    }

    #[test]
    fn its_gradient_is_that_of_finite_differences() {
        let column: Vec<f64> = (0..12).map(|i| 1.0 / (1.0 + f64::from(i))).collect();
        for shape in shapes() {
            let mut gradient = [0.0; 12];
            shape.squared_sensitivity(&column, &mut gradient);
            for i in 0..12 {
                let at = |step: f64| {
                    let mut moved = column.clone();
                    moved[i] += step;
                    shape.squared_sensitivity(&moved, &mut [0.0; 12])
                };
                let want = (at(1e-3) - at(-1e-3)) / 2e-3; // exact for a quadratic, up to rounding
                assert!(
                    (gradient[i] - want).abs() < 1e-9 * (1.0 + want.abs()),
                    "{shape:?} {i}: {} {want}",
                    gradient[i]
                );
            }
        }
    }
}
