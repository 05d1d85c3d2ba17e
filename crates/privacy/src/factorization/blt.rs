//! Buffered linear Toeplitz matrices with the least error (Dvijotham et al. 2024; McMahan et al. 2024).
//!
//! | here     | papers  | meaning                                                        |
//! |----------|---------|----------------------------------------------------------------|
//! | `decay`  | theta_j | what a buffer keeps from one round to the next, in [0, 1)      |
//! | `weight` | omega_j | how much of a buffer is read; c_i = sum_j omega_j theta_j^(i-1) |
//! | `prefix` | B's column | b of `C b = 1`: b_t = 1 - sum_j omega_j s_j(t), s_j(t+1) = theta_j s_j(t) + b_t |
//!
//! Unlike the papers, nothing is inverted: the recurrence for b runs on C's own buffers (McMahan et al. 2024,
//! Algorithm 3) in O(n * buffers), and is as good when two decays meet as when they are apart. So is its derivative,
//! which runs the recurrence backwards.
//!
//! The variables are `theta_j = 1 / (1 + e^(-u_j))` and `omega_j = e^(v_j) / (1 + sum e^v)`: any values of them make a
//! column that starts with 1, falls, and stays above 0. Over them the logarithm of the squared error has several
//! minima. The search therefore grows a BLT buffer by buffer, trying the new one at every time scale, and compares with
//! fresh starts whose decays are spread evenly over the time scales with the weights of `(1 - x)^(-1/2)`. One more
//! buffer is never worse.

use super::{
    Objective, Setting,
    column::Shape,
    quasi_newton::{Effort, Found, minimise},
};
use crate::event::NoiseMatrix;

/// A first look at a start.
const LOOK: Effort = Effort { steps: 40, memory: 20, tolerance: 1e-5 };
/// Effort of the final optimization.
const POLISH: Effort = Effort { steps: 400, memory: 20, tolerance: 1e-9 };
/// How many starts are followed to the end.
const FOLLOWED: usize = 2;
/// Where a new buffer is tried: `1 - theta` is the number of rounds to the minus these.
const TIME_SCALES: [f64; 6] = [1.1, 0.85, 0.6, 0.35, 0.1, 0.015];
/// The weight of a new buffer against all that is there, as a logarithm.
const NEW_WEIGHT: f64 = -2.5;

/// b of `C b = 1`.
pub(super) fn prefix_coefficients(decay: &[f64], weight: &[f64], rounds: usize) -> Vec<f64> {
    let mut states = vec![0.0; decay.len()];
    (0..rounds)
        .map(|_| {
            let b = 1.0 - states.iter().zip(weight).map(|(s, w)| s * w).sum::<f64>();
            states.iter_mut().zip(decay).for_each(|(s, d)| *s = *s * d + b);
            b
        })
        .collect()
}

/// The best BLT with so many buffers, slowest first.
pub(super) fn optimise(setting: &Setting, buffers: usize, objective: Objective) -> NoiseMatrix {
    let shape = Shape::new(setting, objective);
    let mut best = improve(shape, spread_starts(shape, 1));
    for count in 2..=buffers {
        let mut starts = grown_starts(shape, &best.point);
        starts.extend(spread_starts(shape, count));
        let found = improve(shape, starts);
        // A buffer without weight changes nothing: what was found before can always be kept.
        best = if found.value <= best.value { found } else { Found { point: with_idle(&best.point), ..best } };
    }
    matrix_of(&best.point)
}

/// Follows the most promising starts to their minima.
fn improve(shape: Shape, starts: Vec<Vec<f64>>) -> Found {
    let buffers = starts.first().map_or(0, |s| s.len() / 2);
    let mut problem = Problem::new(shape, buffers);
    let mut descend = |start: Vec<f64>, effort| minimise(start, effort, |x, gradient| problem.value(x, gradient));
    let mut looks: Vec<Found> = starts.into_iter().map(|start| descend(start, LOOK)).collect();
    looks.sort_by(|a, b| a.value.total_cmp(&b.value));
    looks.truncate(FOLLOWED);
    let ends = looks.into_iter().map(|look| descend(look.point, POLISH));
    ends.min_by(|a, b| a.value.total_cmp(&b.value)).expect("there is at least one start")
}

/// The variables: all u, then all v.
fn variables(decay: impl Iterator<Item = f64>, weight: impl Iterator<Item = f64>) -> Vec<f64> {
    let weights: Vec<f64> = weight.collect();
    let rest = 1.0 - weights.iter().sum::<f64>();
    let u = decay.map(|d| libm::log(d) - libm::log1p(-d));
    u.chain(weights.iter().map(|w| libm::log(w / rest))).collect()
}

/// Decays spread evenly over the time scales up to the segment and up to a separation, with the weights that
/// approximate i^(-1/2): a decay of 1 - s counts for s^(1/2).
fn spread_starts(shape: Shape, buffers: usize) -> Vec<Vec<f64>> {
    let spread = |horizon: usize| {
        let scales: Vec<f64> = (0..buffers)
            .map(|j| libm::pow((horizon as f64).max(2.0), -((buffers - j) as f64 - 0.4) / buffers as f64))
            .collect();
        let total: f64 = scales.iter().map(|s| libm::sqrt(*s)).sum();
        variables(scales.iter().map(|s| 1.0 - s), scales.iter().map(|s| 0.5 * libm::sqrt(*s) / total))
    };
    let mut starts = vec![spread(shape.rounds)];
    if shape.distance < shape.rounds {
        starts.push(spread(shape.distance));
    }
    starts
}

/// What was found, with a light new buffer at each time scale.
fn grown_starts(shape: Shape, point: &[f64]) -> Vec<Vec<f64>> {
    let (u, v) = point.split_at(point.len() / 2);
    let total: f64 = v.iter().map(|v| libm::exp(*v)).sum();
    let new_v = (libm::log(total) + NEW_WEIGHT).max(-12.0);
    let with = |power: &f64| {
        let scale = libm::pow((shape.rounds as f64).max(2.0), -power);
        let new_u = libm::log1p(-scale) - libm::log(scale);
        [u, &[new_u], v, &[new_v]].concat()
    };
    TIME_SCALES.iter().map(with).collect()
}

/// The same BLT with one more buffer that is not read.
fn with_idle(point: &[f64]) -> Vec<f64> {
    let (u, v) = point.split_at(point.len() / 2);
    [u, &[0.0], v, &[f64::NEG_INFINITY]].concat()
}

/// Decays and weights of a point.
fn parameters(point: &[f64]) -> (Vec<f64>, Vec<f64>) {
    let (u, v) = point.split_at(point.len() / 2);
    let decay = u.iter().map(|u| 1.0 / (1.0 + libm::exp(-u))).collect();
    // Against the largest, so that nothing overflows.
    let largest = v.iter().copied().fold(0.0, f64::max);
    let parts: Vec<f64> = v.iter().map(|v| libm::exp(v - largest)).collect();
    let whole = libm::exp(-largest) + parts.iter().sum::<f64>();
    (decay, parts.iter().map(|p| p / whole).collect())
}

fn matrix_of(point: &[f64]) -> NoiseMatrix {
    let (decay, weight) = parameters(point);
    let mut buffers: Vec<(f64, f64)> = decay.into_iter().zip(weight).collect();
    buffers.sort_by(|a, b| b.0.total_cmp(&a.0));
    let (buffer_decay, output_scale) = buffers.into_iter().unzip();
    NoiseMatrix::Blt { buffer_decay, output_scale }
}

/// The logarithm of the squared error as a function of the variables, with room to work in.
struct Problem {
    shape: Shape,
    column: Vec<f64>,
    of_column: Vec<f64>,
    prefix: Vec<f64>,
    /// The buffers before each round.
    states: Vec<f64>,
}

/// Derivatives with respect to decays and weights.
struct Slopes {
    decay: Vec<f64>,
    weight: Vec<f64>,
}

impl Problem {
    fn new(shape: Shape, buffers: usize) -> Self {
        let room = || vec![0.0; shape.rounds];
        Self { shape, column: room(), of_column: room(), prefix: room(), states: vec![0.0; shape.rounds * buffers] }
    }

    fn value(&mut self, point: &[f64], gradient: &mut [f64]) -> f64 {
        let (decay, weight) = parameters(point);
        let (squared, of_sensitivity) = self.sensitivity(&decay, &weight);
        let (error, of_error) = self.error(&decay, &weight);
        let slope = |e: f64, s: f64| e / error + s / squared;
        let buffers = decay.len();
        let of_weight: Vec<f64> =
            of_error.weight.iter().zip(&of_sensitivity.weight).map(|(e, s)| slope(*e, *s)).collect();
        let shared: f64 = of_weight.iter().zip(&weight).map(|(g, w)| g * w).sum();
        for j in 0..buffers {
            let of_decay = slope(of_error.decay[j], of_sensitivity.decay[j]);
            gradient[j] = of_decay * decay[j] * (1.0 - decay[j]);
            gradient[buffers + j] = weight[j] * (of_weight[j] - shared);
        }
        libm::log(error) + libm::log(squared)
    }

    /// The squared sensitivity and its derivatives.
    fn sensitivity(&mut self, decay: &[f64], weight: &[f64]) -> (f64, Slopes) {
        let buffers = decay.len();
        self.column.fill(0.0);
        self.column[0] = 1.0;
        for (d, w) in decay.iter().zip(weight) {
            let mut buffer = *w;
            for c in &mut self.column[1..] {
                *c += buffer;
                buffer *= d;
            }
        }
        let squared = self.shape.squared_sensitivity(&self.column, &mut self.of_column);
        let mut slopes = Slopes { decay: vec![0.0; buffers], weight: vec![0.0; buffers] };
        for j in 0..buffers {
            // theta^(i-1) and its derivative.
            let (mut power, mut rise) = (1.0, 0.0);
            let (mut of_weight, mut of_decay) = (0.0, 0.0);
            for g in &self.of_column[1..] {
                of_weight += g * power;
                of_decay += g * rise;
                rise = rise * decay[j] + power;
                power *= decay[j];
            }
            slopes.weight[j] = of_weight;
            slopes.decay[j] = weight[j] * of_decay;
        }
        (squared, slopes)
    }

    /// `sum_t w_t b_t^2` and its derivatives: the recurrence for b forwards, its adjoint backwards.
    fn error(&mut self, decay: &[f64], weight: &[f64]) -> (f64, Slopes) {
        let buffers = decay.len();
        let mut state = vec![0.0; buffers];
        let mut error = 0.0;
        for (t, b) in self.prefix.iter_mut().enumerate() {
            self.states[t * buffers..][..buffers].copy_from_slice(&state);
            *b = 1.0 - state.iter().zip(weight).map(|(s, w)| s * w).sum::<f64>();
            state.iter_mut().zip(decay).for_each(|(s, d)| *s = *s * d + *b);
            error += self.shape.weight(t) * *b * *b;
        }
        let mut slopes = Slopes { decay: vec![0.0; buffers], weight: vec![0.0; buffers] };
        // How the error moves with each buffer after the round, and with b in the round.
        let mut of_state = vec![0.0; buffers];
        for (t, b) in self.prefix.iter().enumerate().rev() {
            let before = &self.states[t * buffers..][..buffers];
            let of_b = 2.0 * self.shape.weight(t) * b + of_state.iter().sum::<f64>();
            for j in 0..buffers {
                slopes.decay[j] += of_state[j] * before[j];
                slopes.weight[j] -= of_b * before[j];
                of_state[j] = of_state[j] * decay[j] - of_b * weight[j];
            }
        }
        (error, slopes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_buffer_is_a_geometric_series() {
        // C = 1 + w x / (1 - d x), so B = (1 - d x) / ((1 - x) (1 - (d - w) x)).
        let (d, w) = (0.75, 0.5);
        let got = prefix_coefficients(&[d], &[w], 6);
        let mut noise = vec![1.0]; // C^-1: 1, -w, -w (d - w), ...
        (0..5).for_each(|i| noise.push(-w * (d - w).powi(i)));
        let want: Vec<f64> = (0..6).map(|t| noise[..=t].iter().sum()).collect();
        assert!(got.iter().zip(&want).all(|(a, b)| (a - b).abs() < 1e-15), "{got:?} {want:?}");
    }

    #[test]
    fn variables_and_parameters_are_inverse() {
        let (decay, weight) = ([0.999_9, 0.7, 0.2], [0.02, 0.3, 0.1]);
        let (d, w) = parameters(&variables(decay.into_iter(), weight.into_iter()));
        assert!(d.iter().zip(decay).chain(w.iter().zip(weight)).all(|(a, b)| (a - b).abs() < 1e-12), "{d:?} {w:?}");
    }

    #[test]
    fn any_variables_make_a_falling_column() {
        for point in [[800.0, -800.0, 900.0, 900.0], [0.0, 40.0, -900.0, f64::NEG_INFINITY], [1.0, 1.0, 3.0, 3.0]] {
            let (decay, weight) = parameters(&point);
            assert!(decay.iter().all(|d| (0.0..=1.0).contains(d)), "{decay:?}");
            assert!(weight.iter().all(|w| *w >= 0.0) && weight.iter().sum::<f64>() <= 1.0, "{weight:?}");
        }
    }

    #[test]
    fn gradients_are_those_of_finite_differences() {
        for objective in [Objective::Max, Objective::Mean] {
            for (distance, count) in [(40, 1), (9, 5), (9, 2), (1, 40)] {
                let shape = Shape { rounds: 40, distance, count, objective };
                let mut problem = Problem::new(shape, 3);
                // Two decays that nearly meet: nothing here minds.
                let point = [3.0, 0.5, 0.500_001, -2.0, -1.0, -1.5];
                let mut gradient = [0.0; 6];
                problem.value(&point, &mut gradient);
                for i in 0..6 {
                    let mut at = |step: f64| {
                        let mut moved = point;
                        moved[i] += step;
                        problem.value(&moved, &mut [0.0; 6])
                    };
                    let want = (at(1e-5) - at(-1e-5)) / 2e-5;
                    assert!((gradient[i] - want).abs() < 1e-8, "{shape:?} {i}: {} {want}", gradient[i]);
                }
            }
        }
    }
}
