//! Unconstrained minimisation of a smooth function: limited-memory BFGS with a weak Wolfe line search.
//!
//! The two-loop recursion is Algorithm 7.4 of Nocedal and Wright (Numerical Optimization, second edition); the line
//! search is the bisection of Lewis and Overton 2013. Functions here are logarithms of errors over logarithmic
//! variables, so that an absolute tolerance and a longest step make sense. Deterministic: no randomness, no clock.
//!
//! Written here because `argmin` (0.11) ends its L-BFGS by the norm of the gradient or the gain of one step, not of several, and
//! depends on a clock (`web-time`), which no crate that builds for wasm may do here. `lbfgsb` wraps a C library, which would have
//! to be built for wasm too.

use std::collections::VecDeque;

/// Limits of the optimization.
#[derive(Debug, Clone, Copy)]
pub(super) struct Effort {
    /// The most steps.
    pub(super) steps: usize,
    /// How many pairs of step and change of gradient are remembered.
    pub(super) memory: usize,
    /// Stop once [`PATIENCE`] steps together gain less than this.
    pub(super) tolerance: f64,
}

/// A point and what the function is there.
#[derive(Debug, Clone)]
pub(super) struct Found {
    pub(super) point: Vec<f64>,
    pub(super) value: f64,
}

/// Over how many steps a gain is measured.
const PATIENCE: usize = 10;
/// No variable moves further than this in the first try of a step.
const LONGEST_MOVE: f64 = 2.0;
/// The part of the promised decrease that a step must keep.
const DECREASE: f64 = 1e-4;
/// The part of the slope that a step must leave behind.
const CURVATURE: f64 = 0.9;
/// How often a step is halved or doubled.
const TRIES: usize = 40;

/// One remembered step.
struct Pair {
    step: Vec<f64>,
    change: Vec<f64>,
    /// `1 / (step . change)`.
    rho: f64,
}

/// A point with value and gradient.
#[derive(Clone)]
struct Visited {
    point: Vec<f64>,
    value: f64,
    gradient: Vec<f64>,
}

/// Goes downhill from `start`. `function` returns its value and writes its gradient; a value that is not a number is
/// never stepped to. The result is never above the start.
pub(super) fn minimise(start: Vec<f64>, effort: Effort, mut function: impl FnMut(&[f64], &mut [f64]) -> f64) -> Found {
    let mut visit = |point: Vec<f64>| {
        let mut gradient = vec![0.0; point.len()];
        let value = function(&point, &mut gradient);
        Visited { point, value, gradient }
    };
    let mut at = visit(start);
    let mut pairs: VecDeque<Pair> = VecDeque::with_capacity(effort.memory);
    let mut milestone = at.value;
    for step in 1..=effort.steps {
        let mut direction = newton_direction(&at.gradient, &pairs);
        if dot(&direction, &at.gradient) >= 0.0 {
            pairs.clear();
            direction = newton_direction(&at.gradient, &pairs);
        }
        shorten(&mut direction);
        match line_search(&at, &direction, &mut visit) {
            Some(next) => {
                remember(&mut pairs, effort.memory, &at, &next);
                at = next;
            }
            // Along the gradient itself nothing is gained any more, or rounding hides it.
            None if pairs.is_empty() => break,
            None => pairs.clear(),
        }
        if step % PATIENCE == 0 {
            if milestone - at.value < effort.tolerance {
                break;
            }
            milestone = at.value;
        }
    }
    Found { point: at.point, value: at.value }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(x, y)| x * y).sum()
}

fn add(to: &mut [f64], scale: f64, what: &[f64]) {
    to.iter_mut().zip(what).for_each(|(t, w)| *t += scale * w);
}

/// Minus the gradient times the remembered inverse Hessian.
fn newton_direction(gradient: &[f64], pairs: &VecDeque<Pair>) -> Vec<f64> {
    let mut q = gradient.to_vec();
    let mut alphas = Vec::with_capacity(pairs.len());
    for pair in pairs.iter().rev() {
        let alpha = pair.rho * dot(&pair.step, &q);
        add(&mut q, -alpha, &pair.change);
        alphas.push(alpha);
    }
    if let Some(last) = pairs.back() {
        let scale = 1.0 / (last.rho * dot(&last.change, &last.change));
        q.iter_mut().for_each(|v| *v *= scale);
    }
    for (pair, alpha) in pairs.iter().zip(alphas.iter().rev()) {
        let beta = pair.rho * dot(&pair.change, &q);
        add(&mut q, alpha - beta, &pair.step);
    }
    q.iter_mut().for_each(|v| *v = -*v);
    q
}

fn shorten(direction: &mut [f64]) {
    let longest = direction.iter().fold(0.0, |m: f64, d| m.max(d.abs()));
    if longest > LONGEST_MOVE {
        let scale = LONGEST_MOVE / longest;
        direction.iter_mut().for_each(|d| *d *= scale);
    }
}

fn remember(pairs: &mut VecDeque<Pair>, memory: usize, from: &Visited, to: &Visited) {
    let difference = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(x, y)| x - y).collect::<Vec<f64>>();
    let step = difference(&to.point, &from.point);
    let change = difference(&to.gradient, &from.gradient);
    let curvature = dot(&step, &change);
    if curvature > f64::EPSILON * dot(&change, &change) {
        if pairs.len() == memory {
            pairs.pop_front();
        }
        pairs.push_back(Pair { step, change, rho: 1.0 / curvature });
    }
}

/// A point downhill along `direction` with a sufficient decrease and, where tries suffice, a flatter slope.
fn line_search(from: &Visited, direction: &[f64], visit: &mut impl FnMut(Vec<f64>) -> Visited) -> Option<Visited> {
    let slope = dot(direction, &from.gradient);
    let (mut low, mut high, mut length) = (0.0, f64::INFINITY, 1.0);
    let mut decreased = None;
    for _ in 0..TRIES {
        let mut point = from.point.clone();
        add(&mut point, length, direction);
        let there = visit(point);
        let enough = there.value <= from.value + DECREASE * length * slope && there.value < from.value;
        if !enough {
            high = length;
        } else if dot(direction, &there.gradient) < CURVATURE * slope {
            low = length;
            decreased = Some(there);
        } else {
            return Some(there);
        }
        length = if high.is_finite() { f64::midpoint(low, high) } else { 2.0 * low };
    }
    decreased
}

#[cfg(test)]
mod tests {
    use super::*;

    const EFFORT: Effort = Effort { steps: 500, memory: 10, tolerance: 1e-14 };

    #[test]
    fn finds_the_minimum_of_a_badly_scaled_quadratic() {
        let found = minimise(vec![1.0; 6], EFFORT, |x, g| {
            let mut value = 0.0;
            for (i, (x, g)) in x.iter().zip(g).enumerate() {
                let scale = libm::pow(10.0, i as f64);
                *g = 2.0 * scale * (x - 3.0);
                value += scale * (x - 3.0) * (x - 3.0);
            }
            value
        });
        assert!(found.value < 1e-12, "{found:?}");
    }

    #[test]
    fn finds_the_end_of_a_curved_valley() {
        // Rosenbrock's function.
        let found = minimise(vec![-1.2, 1.0], EFFORT, |x, g| {
            let (a, b) = (1.0 - x[0], x[1] - x[0] * x[0]);
            g[0] = -2.0 * a - 400.0 * x[0] * b;
            g[1] = 200.0 * b;
            a * a + 100.0 * b * b
        });
        assert!(found.value < 1e-12, "{found:?}");
    }

    #[test]
    fn never_steps_to_what_is_not_a_number() {
        let found = minimise(vec![1.0], EFFORT, |x, g| {
            g[0] = 1.0 - 1.0 / x[0];
            x[0] - libm::log(x[0]) + if x[0] < 0.5 { f64::NAN } else { 0.0 }
        });
        assert!((found.point[0] - 1.0).abs() < 1e-6 && found.value.is_finite(), "{found:?}");
    }
}
