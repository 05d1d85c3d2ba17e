//! Privacy-loss distributions: the tight accountant for Gaussian and Poisson-sampled Gaussian releases.
//!
//! The privacy loss of a run is a sum of independent losses; its law gives delta at every epsilon (Sommer et al. 2019,
//! Koskela et al. 2020). The law of each release is put on a lattice that dominates it (`law`), the laws are tilted
//! and composed by FFT (`compose`) as planned for the case at hand (`plan`), and epsilon is read off. Both directions
//! are computed, the user's data being in the one dataset or in the other, and the larger epsilon counts.
//!
//! **Never optimistic.** Epsilon is that of a law that dominates, at a delta from which everything left out or
//! inexact has been taken: losses beyond the lattice, mass beyond a window, a bound on FFT round-off. **Tight.** The
//! lattice is as fine as a budget of operations allows: all that costs at most 6e-4 of epsilon in the cases of
//! `tests/tight.rs`. A law that is dominated gives a lower bound, where a lattice resolves it. No answer is above that
//! of Renyi, which is a bound too.
//!
//! Closed forms are used where they exist: Gaussians alone, or a single release. Correlated-noise events come in as
//! one Gaussian each (rule P8). Fixed-size sampling is refused (rule P1): no tight dominating pair is known for it.

mod compose;
mod family;
mod law;
mod plan;

use super::{
    AccountError, AccountantKind, Judgement, Precision, gaussian, rdp,
    release::{Reduced, Release},
    sampled::SampledGaussian,
};
use crate::units::{Delta, Epsilon};
use compose::{Circle, Law, Transformed};
use family::{Direction, LossFamily};
use law::Atoms;
use plan::{Aim, Component, Estimate, Plan, Window};

/// How often the plan is refined when epsilon turns out smaller than estimated.
const MAX_PASSES: usize = 2;

/// Lattice indices beyond this are not exact as floating-point numbers.
const MAX_INDEX: f64 = 1e15;
/// What tilting can be off by, relative to the mass of a release.
const TILT_ROUNDING: f64 = 1e-14;

/// After so many lattice points, running products of exponentials are computed afresh.
const RENEW: usize = 64;

/// Epsilon by privacy-loss distributions.
pub(super) fn judge(reduced: &Reduced<'_>, delta: Delta, precision: Precision) -> Result<Judgement, AccountError> {
    reduced.refuse_unless(AccountantKind::Pld, "use rdp or best", |r| {
        matches!(r, Release::Gaussian { .. } | Release::Poisson { .. })
    })?;
    let answer = |upper: f64, lower: Option<f64>| Judgement {
        epsilon_lower: lower
            .filter(|lower| precision == Precision::Bounds && reduced.attained && (*lower > 0.0 || upper == 0.0))
            .map(Epsilon::from_bound),
        ..Judgement::new(AccountantKind::Pld, Epsilon::from_bound(upper))
    };
    if let Some(mu) = reduced.only_gaussian() {
        let epsilon = gaussian::epsilon(mu, delta);
        return Ok(answer(epsilon, Some(epsilon * (1.0 - 2e-12))));
    }
    if let [(Release::Poisson { q, z }, 1)] = reduced.releases[..] {
        let (upper, lower) = single_release(&SampledGaussian::new(q, z, reduced.group), delta.get());
        return Ok(answer(upper, Some(lower)));
    }
    let removal = components(reduced, Direction::Remove);
    if negligible(&removal, delta.get()) {
        return Ok(answer(0.0, Some(0.0)));
    }
    let too_large = || AccountError::NoLattice { accountant: AccountantKind::Pld };
    let aim = match precision {
        Precision::Bounds => Aim::UPPER,
        Precision::UpperOnly => Aim::QUICK,
    };
    let removed = upper_bound(&removal, delta.get(), aim).ok_or_else(too_large)?;
    let added = added_direction(&components(reduced, Direction::Add), delta.get(), aim, removed.epsilon);
    let lower = match precision {
        Precision::Bounds => lower_bound(&removal, delta.get(), removed),
        Precision::UpperOnly => None,
    };
    let upper = removed.epsilon.max(added);
    if !upper.is_finite() {
        return Err(too_large());
    }
    // Any bound is a bound; Renyi's is smaller where losses are too small to be worth a fine lattice.
    let renyi = rdp::judge(reduced, delta).map_or(f64::INFINITY, |judgement| judgement.epsilon.get());
    Ok(answer(upper.min(renyi), lower))
}

fn components(reduced: &Reduced<'_>, direction: Direction) -> Vec<Component> {
    reduced
        .releases
        .iter()
        .map(|(release, times)| {
            let family = match *release {
                Release::Poisson { q, z } => LossFamily { law: SampledGaussian::new(q, z, reduced.group), direction },
                // A Gaussian looks the same in both directions; its scale already counts the group.
                Release::Gaussian { mu_squared } => LossFamily {
                    law: SampledGaussian::new(1.0, 1.0 / libm::sqrt(mu_squared), 1),
                    direction: Direction::Remove,
                },
                _ => unreachable!("refused by judge"),
            };
            Component { family, times: *times }
        })
        .collect()
}

/// Whether delta at epsilon 0, a total variation, is at most `delta` because the sum of those of the single releases is,
/// or by Pinsker's inequality: `TV <= sqrt(KL / 2)`, and KL is the mean loss. It is the same in both directions.
fn negligible(components: &[Component], delta: f64) -> bool {
    let sum = |of_one: &dyn Fn(&LossFamily) -> f64| -> f64 {
        components.iter().map(|c| c.times as f64 * of_one(&c.family)).sum()
    };
    let by_divergence = libm::sqrt(0.5 * sum(&LossFamily::mean_loss));
    // What cannot be computed is not small.
    let by_union =
        sum(&|family| Some(family.curve(0.0)).filter(|tv| !tv.is_nan()).map_or(f64::INFINITY, |tv| tv.max(0.0)));
    by_divergence.min(by_union) * (1.0 + 1e-6) < delta
}

/// Upper and lower bound for one release, from the closed form.
fn single_release(law: &SampledGaussian, delta: f64) -> (f64, f64) {
    let curve = |epsilon: f64| {
        [Direction::Remove, Direction::Add]
            .map(|direction| LossFamily { law: law.clone(), direction }.curve(epsilon))
            .into_iter()
            .fold(0.0, |a: f64, b| if b.is_nan() { b } else { a.max(b) })
    };
    // The tails of which the curve is a difference are each below 1.
    let rounding = |epsilon: f64| 16.0 * f64::EPSILON * law.upper_tail_with(law.x_of_loss(epsilon)).max(delta);
    let solve = |sign: f64| {
        // What cannot be computed is over delta where epsilon is bounded from above, and not where it is from below.
        let over = |epsilon: f64| {
            let at = curve(epsilon) + sign * rounding(epsilon);
            if at.is_nan() { sign > 0.0 } else { at > delta }
        };
        if !over(0.0) {
            return (0.0, 0.0);
        }
        let (mut lo, mut hi) = (0.0, 1e-9);
        while over(hi) {
            if hi > 1e12 {
                return (lo, f64::INFINITY);
            }
            (lo, hi) = (hi, hi * 2.0);
        }
        while hi - lo > 1e-13 * hi {
            let mid = 0.5 * (lo + hi);
            if over(mid) { lo = mid } else { hi = mid }
        }
        (lo, hi)
    };
    let upper = solve(1.0).1;
    // Beyond that the curve is only known from above.
    (upper, if upper < family::MAX_EXPONENT { solve(-1.0).0 } else { 0.0 })
}

/// A quick upper bound on epsilon in one direction.
fn scout(components: &[Component], delta: f64) -> Option<Estimate> {
    let plan = Plan::new(components, delta, Aim::SCOUT, None)?;
    compose(components, &plan, delta, Side::Upper)
}

/// An upper bound on epsilon in one direction.
fn upper_bound(components: &[Component], delta: f64, aim: Aim) -> Option<Estimate> {
    let mut found = scout(components, delta)?;
    for _ in 0..MAX_PASSES {
        let plan = Plan::new(components, delta, aim, Some(found))?;
        let again = compose(components, &plan, delta, Side::Upper)?;
        found = Estimate { epsilon: again.epsilon.min(found.epsilon), ..again };
        if plan.fine_enough(found) {
            break;
        }
    }
    Some(found)
}

/// An upper bound on epsilon in the direction of addition, no tighter than it takes to show that it is below `removed`.
fn added_direction(components: &[Component], delta: f64, aim: Aim, removed: f64) -> f64 {
    // There the loss of a sampled release is bounded: that alone often says enough.
    let bounded: f64 = components.iter().map(|c| c.times as f64 * c.family.supremum()).sum();
    if bounded <= removed {
        return bounded;
    }
    let quick = scout(components, delta).map_or(bounded, |found| found.epsilon.min(bounded));
    if quick <= removed {
        return quick;
    }
    upper_bound(components, delta, aim).map_or(quick, |found| found.epsilon.min(quick))
}

/// A lower bound on epsilon in one direction, given an upper one.
fn lower_bound(components: &[Component], delta: f64, upper: Estimate) -> Option<f64> {
    let plan = Plan::new(components, delta, Aim::LOWER, Some(upper))?;
    let found = compose(components, &plan, delta, Side::Lower)?.epsilon;
    // What rounding of the masses of the one-release laws can have added.
    let releases: f64 = components.iter().map(|c| c.times as f64).sum();
    let lower = found - 1e-9 * found - 1e-14 * releases;
    // Where the lattice cannot resolve the bulk of the losses, the bound says nothing.
    (lower.is_finite() && lower >= 0.5 * upper.epsilon).then_some(lower)
}

/// Epsilon as planned; nothing when a transform would be absurdly large.
fn compose(components: &[Component], plan: &Plan, delta: f64, side: Side) -> Option<Estimate> {
    let on_lattice = match side {
        Side::Upper => law::upper,
        Side::Lower => law::lower,
    };
    let atoms: Vec<Atoms> =
        components.iter().zip(&plan.indices).map(|(c, indices)| on_lattice(&c.family, indices, plan.step)).collect();
    let infinite: f64 = atoms.iter().zip(components).map(|(a, c)| a.infinite * c.times as f64).sum();
    Some(Composition::new(components, &atoms, plan, delta, side).run()?.solve(delta, infinite))
}

/// Which bound a composition is for; a lower one is computed in a single stage, for coarsening raises a law.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Upper,
    Lower,
}

/// A law in the course of composition: what it is made of bounds its tails.
struct Item {
    law: Law,
    /// How many such laws the run holds.
    copies: u64,
    made_of: Content,
}

/// What went into a law.
#[derive(Debug, Clone)]
struct Content {
    /// Releases of each component.
    counts: Vec<u64>,
    /// The sum of the squared lattice steps of all coarsenings: connecting the dots at step H multiplies
    /// `E[e^(t loss)]` by at most `e^(t (t + 1) H^2 / 8)` (Hoeffding's lemma, twice).
    coarsened: f64,
}

impl Content {
    fn of(parts: &[(&Content, u64)]) -> Self {
        let components = parts[0].0.counts.len();
        let counts = (0..components).map(|e| parts.iter().map(|(p, n)| p.counts[e] * n).sum()).collect();
        Self { counts, coarsened: parts.iter().map(|(p, n)| p.coarsened * *n as f64).sum() }
    }
}

/// A composition under way.
struct Composition<'a> {
    plan: &'a Plan,
    atoms: &'a [Atoms],
    delta: f64,
    side: Side,
    items: Vec<Item>,
    step: f64,
    /// The mean loss of the run (without what is unbounded): its Kullback-Leibler divergence.
    divergence: f64,
    /// ln of the mass of the tilted run.
    ln_scale: f64,
    /// How many releases the run has.
    releases: f64,
    /// Untilted mass above the windows, in units of delta.
    above: f64,
    /// Tilted mass beyond the windows.
    beyond: f64,
    /// The plan's steeper tilts, and `ln E[e^(t loss)]` of each component's atoms there as far as it was needed.
    steeper: Vec<f64>,
    log_mgfs: Vec<Vec<Option<f64>>>,
}

impl<'a> Composition<'a> {
    fn new(components: &[Component], atoms: &'a [Atoms], plan: &'a Plan, delta: f64, side: Side) -> Self {
        let mut items = Vec::with_capacity(atoms.len());
        let (mut ln_scale, mut divergence) = (0.0, 0.0);
        for (e, (atoms, component)) in atoms.iter().zip(components).enumerate() {
            let ln_total = log_mgf(atoms, plan.tilt, plan.step);
            let tilted = |&(i, p): &(i64, f64)| (i, p * libm::exp(plan.tilt * i as f64 * plan.step - ln_total));
            let law = Law { points: atoms.points.iter().map(tilted).collect(), error: 0.0 };
            let counts = (0..components.len()).map(|other| u64::from(other == e)).collect();
            items.push(Item { law, copies: component.times, made_of: Content { counts, coarsened: 0.0 } });
            ln_scale += component.times as f64 * ln_total;
            let mean: f64 = atoms.points.iter().map(|(i, p)| p * *i as f64 * plan.step).sum();
            divergence += component.times as f64 * mean;
        }
        let releases = components.iter().map(|c| c.times as f64).sum();
        let steeper: Vec<f64> = plan.steeper().collect();
        let log_mgfs = vec![vec![None; steeper.len()]; atoms.len()];
        Self {
            plan,
            atoms,
            delta,
            side,
            items,
            step: plan.step,
            divergence,
            ln_scale,
            releases,
            above: 0.0,
            beyond: 0.0,
            steeper,
            log_mgfs,
        }
    }

    fn run(mut self) -> Option<Composed> {
        for fold in &self.plan.folds {
            self.fold(fold.count)?;
            self.coarsen(fold.ratio);
        }
        let factors: Vec<(usize, u64)> = self.items.iter().enumerate().map(|(i, item)| (i, item.copies)).collect();
        let law = self.compose_all(&[(factors, 1)])?.remove(0);
        Some(Composed {
            tilt: self.plan.tilt,
            step: self.step,
            ln_scale: self.ln_scale,
            releases: self.releases,
            above: self.above,
            beyond: self.beyond,
            side: self.side,
            centre: self.plan.epsilon.max(0.0),
            law: law.law,
        })
    }

    /// Composes every `count` copies of each law into one; what is left over becomes one law of its own.
    fn fold(&mut self, count: u64) -> Option<()> {
        let mut outputs: Vec<(Vec<(usize, u64)>, u64)> = Vec::new();
        let mut rest = Vec::new();
        for (i, item) in self.items.iter().enumerate() {
            if item.copies >= count {
                outputs.push((vec![(i, count)], item.copies / count));
            }
            if item.copies % count > 0 {
                rest.push((i, item.copies % count));
            }
        }
        if !rest.is_empty() {
            outputs.push((rest, 1));
        }
        self.items = self.compose_all(&outputs)?;
        Some(())
    }

    fn coarsen(&mut self, ratio: i64) {
        let coarse = self.step * ratio as f64;
        for item in &mut self.items {
            item.law = item.law.coarsen(ratio, self.step, self.plan.tilt);
            item.made_of.coarsened += coarse * coarse;
        }
        self.step = coarse;
    }

    /// The laws made of the given powers of items, each with how many copies the run holds of it.
    fn compose_all(&mut self, outputs: &[(Vec<(usize, u64)>, u64)]) -> Option<Vec<Item>> {
        let mut windows = Vec::with_capacity(outputs.len());
        for (factors, copies) in outputs {
            let parts: Vec<(&Content, u64)> = factors.iter().map(|(i, n)| (&self.items[*i].made_of, *n)).collect();
            let made_of = Content::of(&parts);
            let window = self.window(&made_of, *copies);
            windows.push((made_of, window));
        }
        let widest = windows.iter().map(|(_, window)| window.width).fold(0.0, f64::max);
        if windows
            .iter()
            .any(|(_, window)| !(window.top / self.step).is_finite() || (window.top / self.step).abs() > MAX_INDEX)
        {
            return None;
        }
        let circle = Circle::at_least(widest / self.step + 8.0)?;
        let transformed: Vec<Transformed> = self.items.iter().map(|item| circle.transform(&item.law)).collect();
        let composed = outputs
            .iter()
            .zip(windows)
            .map(|((factors, copies), (made_of, window))| {
                let factors: Vec<(&Transformed, u64)> = factors.iter().map(|(i, n)| (&transformed[*i], *n)).collect();
                let top = libm::ceil(window.top / self.step) as i64 + 1;
                Item { law: circle.compose(&factors, top), copies: *copies, made_of }
            })
            .collect();
        Some(composed)
    }

    /// The window for a law, what lies beyond it being added to what is left out.
    fn window(&mut self, made_of: &Content, copies: u64) -> Window {
        match self.side {
            Side::Upper => {
                let (window, steeper) = self.plan.upper_window(&made_of.counts, copies, self.delta);
                self.above += self.plan.spare;
                // The plan goes by samples of the laws; this bound by the laws themselves.
                let nats = libm::log(copies as f64 / (self.plan.spare * self.delta));
                let any = self.chernoff(made_of, steeper, nats);
                let top = self.chernoff(made_of, steeper, nats + libm::log(self.worth(any, steeper)));
                Window { top, width: window.width + (top - window.top).max(0.0) }
            }
            Side::Lower => {
                let (window, (steep, flat)) = self.plan.lower_window(&made_of.counts);
                self.beyond += self.tilted_beyond(made_of, steep, window.top);
                self.beyond += self.tilted_beyond(made_of, flat, window.top - window.width);
                window
            }
        }
    }

    /// A bound on the tilted mass of a law beyond `end`: above it for a steeper tilt t, below it for a flatter one.
    fn tilted_beyond(&self, made_of: &Content, t: f64, end: f64) -> f64 {
        let moments = |t: f64| -> f64 {
            let log_mgfs = self.atoms.iter().map(|a| log_mgf(a, t, self.plan.step));
            made_of.counts.iter().zip(log_mgfs).map(|(n, k)| *n as f64 * k).sum()
        };
        libm::exp((moments(t) - moments(self.plan.tilt) - (t - self.plan.tilt) * end).min(0.0))
    }

    /// What a unit of probability that a law exceeds `top` can add to delta at any epsilon >= 0. A loss l with a rest R
    /// adds at most `E[(1 - e^-(l + R))+] <= 1 - e^-l + E[(1 - e^-R)+]`, the last term being a total variation, below
    /// `sqrt(KL / 2)`; and `(1 - e^-l) e^(-t l)` is at most `e^(-t top) (1 - e^-top + 1 / (e t))` above top.
    fn worth(&self, top: f64, steeper: usize) -> f64 {
        // A hundredth more, for what coarser lattices add to the divergence.
        let rest = 1.01 * libm::sqrt(0.5 * self.divergence.max(0.0));
        (-libm::expm1(-top.max(0.0)) + 1.0 / (std::f64::consts::E * self.steeper[steeper]) + rest).min(1.0)
    }

    /// Where a law exceeds with at most e^-nats, by the tilt of this index and the atoms themselves.
    fn chernoff(&mut self, made_of: &Content, index: usize, nats: f64) -> f64 {
        let t = self.steeper[index];
        let moments: f64 = (0..self.atoms.len())
            .filter(|e| made_of.counts[*e] > 0)
            .map(|e| made_of.counts[e] as f64 * self.log_mgf_at(e, index))
            .sum();
        (moments + t * (t + 1.0) / 8.0 * made_of.coarsened + nats) / t
    }

    fn log_mgf_at(&mut self, component: usize, index: usize) -> f64 {
        let (t, step, atoms) = (self.steeper[index], self.plan.step, &self.atoms[component]);
        *self.log_mgfs[component][index].get_or_insert_with(|| log_mgf(atoms, t, step))
    }
}

/// `ln E[e^(t loss)]` of a law on lattice points, what has unbounded loss left out.
fn log_mgf(atoms: &Atoms, t: f64, step: f64) -> f64 {
    libm::log(atoms.points.iter().map(|(i, p)| p * libm::exp(t * *i as f64 * step)).sum())
}

/// The law of a whole run.
struct Composed {
    law: Law,
    tilt: f64,
    step: f64,
    ln_scale: f64,
    releases: f64,
    above: f64,
    beyond: f64,
    side: Side,
    /// Near which losses are measured, so that nothing overflows.
    centre: f64,
}

impl Composed {
    /// The L2 norm of `w(l) = e^(-tilt (l - epsilon)) (1 - e^(epsilon - l))` over the lattice points above epsilon: what
    /// an error of the law is weighed with. Both `1 - e^-u <= 1` and `1 - e^-u <= u` are summed in closed form.
    fn weight_norm(&self) -> f64 {
        let r = libm::exp(-2.0 * self.tilt * self.step);
        let gap = -libm::expm1(-2.0 * self.tilt * self.step);
        let by_one = 1.0 / gap;
        let by_loss = self.step * self.step * (1.0 + r) / (gap * gap * gap);
        libm::sqrt(by_one.min(by_loss))
    }

    /// The largest such weight.
    fn largest_weight(&self) -> f64 {
        (1.0 / (std::f64::consts::E * self.tilt)).min(1.0)
    }

    /// The smallest epsilon whose delta, with all that was left out, is at most `delta` (for a lower bound: the
    /// largest whose delta, without all that may be too much, is at least `delta`).
    fn solve(&self, delta: f64, infinite: f64) -> Estimate {
        // Everything is counted in units of e^unit, in which delta is of the size of the tilted law's masses.
        let unit = self.ln_scale - self.tilt * self.centre;
        // Tilting rounds the mass of each release, and all of them multiply.
        let rounding = TILT_ROUNDING * self.releases;
        let left = match self.side {
            Side::Upper => delta * (1.0 - self.above - rounding) - infinite,
            Side::Lower => delta * (1.0 + rounding),
        };
        if left <= 0.0 {
            return Estimate { epsilon: f64::INFINITY, slope: self.tilt };
        }
        let target = libm::exp(libm::log(left) - unit);
        let slack = match self.side {
            Side::Upper => self.law.error * self.weight_norm(),
            Side::Lower => -(self.law.error * self.weight_norm() + self.beyond * self.largest_weight()),
        };
        let (mut p_above, mut q_above) = (0.0, 0.0);
        // Going down a lattice step multiplies the weight of P, that of Q and alpha each by a constant.
        let steps = [self.tilt, self.tilt + 1.0, -1.0].map(|rate| libm::exp(rate * self.step));
        let [mut weight, mut q_weight, mut alpha] = [0.0; 3];
        for (n, &(index, mass)) in self.law.points.iter().rev().enumerate() {
            let at = index as f64 * self.step - self.centre;
            if n % RENEW == 0 {
                [weight, q_weight, alpha] = [-self.tilt, -self.tilt - 1.0, 1.0].map(|rate| libm::exp(rate * at));
            } else {
                [weight, q_weight, alpha] = [weight * steps[0], q_weight * steps[1], alpha * steps[2]];
            }
            let allowance = slack * weight;
            // Far above epsilon alpha may be infinite, and then nothing of q is there yet.
            let excess = if q_above == 0.0 { p_above } else { p_above - alpha * q_above };
            if excess + allowance >= target {
                // Between this point and the one above, delta = p_above - e^epsilon q_above.
                let epsilon = libm::log((p_above + allowance - target).max(0.0) / q_above) + self.centre;
                let epsilon = if epsilon.is_nan() { f64::INFINITY } else { epsilon.max(at + self.centre) };
                let slope = alpha * q_above / target;
                return Estimate { epsilon, slope: if slope.is_finite() { slope.max(self.tilt) } else { self.tilt } };
            }
            p_above += mass * weight;
            q_above += mass * q_weight;
            if at + self.centre < -self.step {
                break;
            }
        }
        self.below_the_window(p_above)
    }

    /// When delta is below the target throughout the window, epsilon lies below it.
    fn below_the_window(&self, p_above: f64) -> Estimate {
        let bottom = self.law.points.first().map_or(f64::INFINITY, |p| p.0 as f64 * self.step);
        let epsilon = match self.side {
            Side::Lower => 0.0,
            Side::Upper if p_above.is_finite() => bottom.max(0.0),
            Side::Upper => f64::INFINITY,
        };
        Estimate { epsilon, slope: self.tilt }
    }
}
