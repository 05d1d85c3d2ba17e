//! Discretizes the privacy-loss distribution of one release on a lattice without ever understating it (or, for the lower bound, without
//! ever overstating it).
//!
//! Write `H(alpha) = sup_S P(S) - alpha Q(S)`, the privacy curve as a function of `alpha = e^eps`; it is convex, and a
//! pair of laws dominates another when its curve is nowhere below. A law on lattice points has a curve that is
//! piecewise linear between them.
//!
//! - **Upper** ("connect the dots", Doroshenko et al. 2022): the curve through `H` at the lattice points. Each cell's
//!   P and Q mass is split between its two ends so that both are preserved.
//! - **Lower**: a convex curve nowhere above `H`. In each cell take the tangent to `H` at the cell's middle, at each
//!   lattice point the lower of its two tangents, and then the greatest convex minorant.
//!
//! Both differ from `H` by the square of the cell width. Points are dense where the mass is and sparse in the tails.
//! Masses are differences of normal tails; what rounding can do to them is added to (or taken from) the mass that
//! moves to the upper end.

use super::family::{Direction, LossFamily};

/// What one evaluation of a normal tail can be off by, relative to the tail.
const TAIL_ROUNDING: f64 = 8.0 * f64::EPSILON;

/// Masses of P on lattice points, and what lies beyond them all.
#[derive(Debug, Clone)]
pub(super) struct Atoms {
    /// The lattice index and the P mass of each point, ascending.
    pub(super) points: Vec<(i64, f64)>,
    /// P mass with unbounded loss.
    pub(super) infinite: f64,
}

/// Masses of a range of outputs.
#[derive(Debug, Clone, Copy, Default)]
struct Masses {
    p: f64,
    q: f64,
    p_error: f64,
    q_error: f64,
}

impl Masses {
    /// `p - alpha q` and what it may be off by.
    fn excess(&self, alpha: f64) -> (f64, f64) {
        let value = self.p - alpha * self.q;
        (value, self.p_error + alpha * self.q_error + f64::EPSILON * (self.p + alpha * self.q))
    }
}

/// Boundaries between outputs, by loss: the normal tails at each boundary for each component of the mixture.
struct Boundaries<'a> {
    family: &'a LossFamily,
    /// `tails[boundary * components + j]`: the tail of N(j, z^2) away from j, negative below j.
    tails: Vec<f64>,
}

impl<'a> Boundaries<'a> {
    fn new(family: &'a LossFamily, losses: impl Iterator<Item = f64>) -> Self {
        let mut tails = Vec::new();
        for loss in losses {
            family.push_tails(loss, &mut tails);
        }
        Self { family, tails }
    }

    /// The masses between two boundaries, the lower loss first; `None` is the end of the line.
    fn between(&self, lower: Option<usize>, upper: Option<usize>) -> Masses {
        let (left, right) = match self.family.direction {
            Direction::Remove => (lower, upper),
            Direction::Add => (upper, lower),
        };
        let width = self.family.components();
        let tail = |boundary: Option<usize>, j: usize| boundary.map(|b| self.tails[b * width + j]);
        let mut masses = Masses::default();
        for j in 0..width {
            let (mass, error) = mass_between(tail(left, j), tail(right, j));
            let weight = self.family.weight(j);
            let (mixture, mixture_error) = match self.family.direction {
                Direction::Remove => (&mut masses.p, &mut masses.p_error),
                Direction::Add => (&mut masses.q, &mut masses.q_error),
            };
            *mixture += weight * mass;
            *mixture_error += weight * error;
            if j == 0 {
                let (plain, plain_error) = match self.family.direction {
                    Direction::Remove => (&mut masses.q, &mut masses.q_error),
                    Direction::Add => (&mut masses.p, &mut masses.p_error),
                };
                *plain += mass;
                *plain_error += error;
            }
        }
        masses
    }
}

/// The mass between two signed tails and its rounding error; `None` is the end of the line on that side.
fn mass_between(left: Option<f64>, right: Option<f64>) -> (f64, f64) {
    let left = left.unwrap_or(-0.0);
    let right = right.unwrap_or(0.0);
    let size = left.abs().max(right.abs());
    let below = |t: f64| t.is_sign_negative();
    let mass = match (below(left), below(right)) {
        (true, true) => right.abs() - left.abs(),
        (false, false) => left - right,
        _ => 1.0 - left.abs() - right.abs(),
    };
    (mass.max(0.0), TAIL_ROUNDING * if below(left) == below(right) { size } else { 1.0 })
}

/// The law that dominates: upper bounds on epsilon come from it.
pub(super) fn upper(family: &LossFamily, indices: &[i64], step: f64) -> Atoms {
    let bounds = Boundaries::new(family, indices.iter().map(|i| *i as f64 * step));
    let mut points: Vec<(i64, f64)> = indices.iter().map(|i| (*i, 0.0)).collect();
    let below = bounds.between(None, Some(0));
    points[0].1 += below.p + below.p_error;
    let last = indices.len() - 1;
    for cell in 0..last {
        let masses = bounds.between(Some(cell), Some(cell + 1));
        let width = (indices[cell + 1] - indices[cell]) as f64 * step;
        let (excess, error) = masses.excess(libm::exp(indices[cell] as f64 * step));
        let whole = masses.p + masses.p_error;
        let up = ((excess.max(0.0) + error) / -libm::expm1(-width)).min(whole);
        points[cell].1 += whole - up;
        points[cell + 1].1 += up;
    }
    // The last cell has no upper end: what does not go to its lower end has unbounded loss.
    let above = bounds.between(Some(last), None);
    let (excess, error) = above.excess(libm::exp(indices[last] as f64 * step));
    let infinite = (excess.max(0.0) + error).min(above.p + above.p_error);
    points[last].1 += above.p + above.p_error - infinite;
    Atoms { points, infinite }
}

/// The law that is dominated: lower bounds on epsilon come from it.
pub(super) fn lower(family: &LossFamily, indices: &[i64], step: f64) -> Atoms {
    let middles = indices.windows(2).map(|w| 0.5 * (w[0] as f64 + w[1] as f64) * step);
    let ends = indices.iter().map(|i| *i as f64 * step);
    // Boundary 2i is lattice point i, boundary 2i + 1 the middle of the cell above it.
    let mut losses: Vec<f64> = ends.clone().chain(middles).collect();
    losses.sort_by(f64::total_cmp);
    let bounds = Boundaries::new(family, losses.into_iter());
    let alpha: Vec<f64> = ends.map(libm::exp).collect();
    let last = alpha.len() - 1;

    // How far below H some line is at lattice point i: what lies between its point of contact and i.
    let gap = |i: usize, lower: Option<usize>, upper: Option<usize>, sign: f64| {
        let (excess, error) = bounds.between(lower, upper).excess(alpha[i]);
        (sign * excess).max(0.0) + error
    };
    let tangent_above = |i: usize| gap(i, Some(2 * i), Some(2 * i + 1), 1.0);
    let tangent_below = |i: usize| gap(i, Some(2 * i - 1), Some(2 * i), -1.0);
    let start_line = |i: usize| gap(i, None, Some(2 * i), -1.0);
    let end_line = |i: usize| gap(i, Some(2 * i), None, 1.0);
    // The curve starts along 1 - alpha and ends along 0; tangents that would cross those lines are not used.
    let first = (0..last).rev().find(|i| tangent_above(*i) > start_line(*i)).map_or(0, |i| i + 1);
    let end = (first + 1..=last).find(|i| tangent_below(*i) > end_line(*i)).map_or(last, |i| i - 1);
    let lowered: Vec<f64> = (0..=last)
        .map(|i| match i {
            i if i <= first => start_line(i),
            i if i >= end => end_line(i),
            i => tangent_above(i).max(tangent_below(i)),
        })
        .collect();
    let slopes: Vec<(f64, f64)> = (0..last)
        .map(|i| {
            let width = alpha[i + 1] - alpha[i];
            let cell = bounds.between(Some(2 * i), Some(2 * i + 2)).excess(alpha[i]).0.max(0.0);
            let q_above = bounds.between(Some(2 * i + 2), None).q;
            (-q_above - (cell + lowered[i + 1] - lowered[i]) / width, width)
        })
        .collect();
    let slopes = convex_minorant(&slopes);
    let slope_below = |i: usize| if i == 0 { -1.0 } else { slopes[i - 1] };
    let slope_above = |i: usize| if i == last { 0.0 } else { slopes[i] };
    let points = (0..=last).map(|i| (indices[i], alpha[i] * (slope_above(i) - slope_below(i)).max(0.0))).collect();
    Atoms { points, infinite: 0.0 }
}

/// The slopes of the greatest convex minorant, from (slope, width) pieces: pool adjacent violators. No slope is below
/// -1 or above 0, those of the curve beyond the ends.
fn convex_minorant(pieces: &[(f64, f64)]) -> Vec<f64> {
    let mut pools: Vec<(f64, f64, usize)> = Vec::with_capacity(pieces.len());
    for &(slope, width) in pieces {
        let mut pool = (slope, width, 1);
        while let Some(&(before, before_width, count)) = pools.last() {
            if before <= pool.0 {
                break;
            }
            let total = before_width + pool.1;
            pool = ((before * before_width + pool.0 * pool.1) / total, total, count + pool.2);
            pools.pop();
        }
        pools.push(pool);
    }
    pools.iter().flat_map(|(slope, _, count)| std::iter::repeat_n(slope.clamp(-1.0, 0.0), *count)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accountant::sampled::SampledGaussian;

    /// `H(e^eps)` of a law on lattice points.
    fn curve(atoms: &Atoms, step: f64, epsilon: f64) -> f64 {
        let of_point = |&(i, p): &(i64, f64)| p * (-libm::expm1(epsilon - i as f64 * step)).max(0.0);
        atoms.infinite + atoms.points.iter().map(of_point).sum::<f64>()
    }

    #[test]
    fn the_laws_bracket_the_exact_curve() {
        let step = 0.01;
        let indices: Vec<i64> = (-300..0).step_by(3).chain(0..100).chain((100..=800).step_by(7)).collect();
        for (q, z, group) in [(0.01, 1.0, 1), (0.3, 0.8, 1), (0.9, 2.0, 1), (1.0, 1.5, 1), (0.05, 1.0, 3)] {
            for direction in [Direction::Remove, Direction::Add] {
                if direction == Direction::Add && q == 1.0 {
                    continue;
                }
                let family = LossFamily { law: SampledGaussian::new(q, z, group), direction };
                let (upper, lower) = (upper(&family, &indices, step), lower(&family, &indices, step));
                let total: f64 = upper.points.iter().map(|p| p.1).sum::<f64>() + upper.infinite;
                assert!((total - 1.0).abs() < 1e-9, "mass {total}");
                for k in -150..400 {
                    let eps = f64::from(k) * 0.0173;
                    let exact = family.curve(eps);
                    let (lo, hi) = (curve(&lower, step, eps), curve(&upper, step, eps));
                    assert!(hi >= exact * (1.0 - 1e-12), "upper {hi} below {exact} at {eps}: {q} {z} {direction:?}");
                    assert!(
                        lo <= exact * (1.0 + 1e-12) + 1e-15,
                        "lower {lo} above {exact} at {eps}: {q} {z} {direction:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn the_minorant_of_a_convex_curve_is_itself() {
        assert_eq!(convex_minorant(&[(-0.9, 1.0), (-0.5, 2.0), (-0.1, 1.0)]), [-0.9, -0.5, -0.1]);
        let pooled = convex_minorant(&[(-0.9, 1.0), (-0.2, 1.0), (-0.4, 1.0), (-0.1, 1.0)]);
        for (got, want) in pooled.iter().zip([-0.9, -0.3, -0.3, -0.1]) {
            assert!((got - want).abs() < 1e-15, "{pooled:?}");
        }
    }
}
