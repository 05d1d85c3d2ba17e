//! Chooses tilt, lattice spacing and number of stages for each question.
//!
//! Everything here is planning. A bad plan costs tightness or time, never validity: what the windows leave out is
//! bounded again with the laws that are really composed.

use super::{
    compose::Circle,
    family::{LossFamily, Node},
};
use crate::accountant::minimise::minimise;

/// The largest part of delta that may be left out at once.
const MAX_LEFT_OUT: f64 = 1e-5;
/// The tilted mass that may lie beyond each end of a window, relative to that which makes up delta.
const BEYOND_WINDOW: f64 = 2e-6;
/// A tilted mass that makes up delta is not taken to be below e to this, whatever a bad tilt says.
const LEAST_LN_TARGET: f64 = -60.0;
/// How large the tilted mass that makes up delta must be, for each release of a run, to stand out of round-off.
const ROUND_OFF_ROOM: f64 = 1e-10;
/// Operations of a transform of 2^17 points.
const TRANSFORM: f64 = 131_072.0 * 27.0;
/// The largest transform.
const MAX_POINTS: usize = 1 << 18;
/// The coarsest lattice.
const MAX_STEP: f64 = 64.0;
/// How wide cells may be where there is little: together they add the square of this to the variance of a uniform lattice.
const WIDENING: f64 = 0.3;
/// The most lattice points of one law; fewer for groups, whose losses take longer to find.
const MAX_ATOMS: f64 = 4e4;
/// Losses beyond this are not put on a lattice: e^loss would not be a number.
const MAX_LOSS: f64 = 600.0;

/// What a plan aims at.
#[derive(Debug, Clone, Copy)]
pub(super) struct Aim {
    /// The discretisation error in epsilon, relative to it and absolute.
    relative_error: f64,
    absolute_error: f64,
    /// By how much the errors may be larger where small ones would take more than `budget` operations.
    relief: f64,
    /// Operations that are not too many.
    budget: f64,
    /// Whether laws may be composed in stages.
    stages: bool,
}

impl Aim {
    /// For a first idea of epsilon.
    pub(super) const SCOUT: Self =
        Self { relative_error: 3e-3, absolute_error: 1e-5, relief: 1.0, budget: TRANSFORM, stages: true };
    /// The aim for upper bounds.
    pub(super) const UPPER: Self =
        Self { relative_error: 2e-7, absolute_error: 2e-9, relief: 2000.0, budget: 4.5 * TRANSFORM, stages: true };
    /// For upper bounds that a search asks for one after the other.
    pub(super) const QUICK: Self =
        Self { relative_error: 2e-6, absolute_error: 2e-8, relief: 200.0, budget: 0.6 * TRANSFORM, stages: true };
    /// For lower bounds, which are for judging the upper ones.
    pub(super) const LOWER: Self =
        Self { relative_error: 2e-4, absolute_error: 1e-6, relief: 10.0, budget: 2.0 * TRANSFORM, stages: false };

    /// The variance of the loss that may be added: variance v moves epsilon by about `tilt * v / 2`.
    fn variance(self, at: Estimate) -> f64 {
        2.0 * (self.relative_error * at.epsilon.max(0.0) + self.absolute_error) / at.slope
    }

    /// The part of delta that may be left out at once, beyond the lattice or above a window: it moves epsilon by that
    /// over the slope, which is to be next to nothing.
    fn left_out(self, at: Option<Estimate>) -> f64 {
        let moves = |at: Estimate| 0.05 * (self.relative_error * at.epsilon.max(0.0) + self.absolute_error) * at.slope;
        at.map_or(MAX_LEFT_OUT, moves).clamp(1e-3 * MAX_LEFT_OUT, MAX_LEFT_OUT)
    }
}

/// An epsilon, and how fast ln delta falls there.
#[derive(Debug, Clone, Copy)]
pub(super) struct Estimate {
    pub(super) epsilon: f64,
    pub(super) slope: f64,
}

/// One kind of release and how often it happened.
#[derive(Debug, Clone)]
pub(super) struct Component {
    pub(super) family: LossFamily,
    pub(super) times: u64,
}

/// How a composition is going to be computed.
#[derive(Debug)]
pub(super) struct Plan {
    /// The tilt theta.
    pub(super) tilt: f64,
    /// Roughly the epsilon that will come out.
    pub(super) epsilon: f64,
    /// The part of delta that may be left out at once.
    pub(super) spare: f64,
    /// The finest lattice step, a power of two so that neighbouring questions share a lattice.
    pub(super) step: f64,
    /// How many laws each stage but the last composes into one, and by how much the lattice is coarser after it.
    pub(super) folds: Vec<Fold>,
    /// The lattice points of each component.
    pub(super) indices: Vec<Vec<i64>>,
    /// Variance of the loss, over the whole run, that the lattices add.
    added_variance: f64,
    /// How many times the variance aimed at was allowed for the sake of speed.
    allowed: f64,
    tables: Tables,
    aim: Aim,
}

/// A stage: so many laws into one, then a lattice coarser by `ratio`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Fold {
    pub(super) count: u64,
    pub(super) ratio: i64,
}

/// A delta, and the part of it that may be left out at once.
#[derive(Debug, Clone, Copy)]
struct Spending {
    delta: f64,
    spare: f64,
}

/// Samples of a component's loss.
struct Sample {
    nodes: Vec<Node>,
    times: f64,
}

impl Sample {
    /// The Kullback-Leibler divergence of all releases: their mean loss.
    fn divergence(&self) -> f64 {
        (self.times * self.nodes.iter().map(|n| n.mass * n.loss).sum::<f64>()).max(0.0)
    }

    /// `ln E[e^(t loss)]`.
    fn log_mgf(&self, t: f64) -> f64 {
        libm::log(self.nodes.iter().map(|n| n.mass * libm::exp(t * n.loss)).sum())
    }
}

/// Log moment generating functions at the tilts that windows are looked for with, a row for each component.
#[derive(Debug)]
struct Tables {
    tilt: f64,
    /// The tilted mass that may lie beyond each end of a window.
    beyond: f64,
    /// About the most that the rest of a run can add to delta, `sqrt(KL / 2)`.
    variation: f64,
    at_tilt: Vec<f64>,
    steeper: Vec<(f64, Vec<f64>)>,
    flatter: Vec<(f64, Vec<f64>)>,
}

impl Tables {
    fn new(samples: &[Sample], tilt: f64, delta: f64, epsilon: f64, largest_loss: f64) -> Self {
        let row = |t: f64| (t, samples.iter().map(|s| s.log_mgf(t)).collect::<Vec<f64>>());
        let finite = |(_, row): &(f64, Vec<f64>)| row.iter().all(|k| k.is_finite());
        let geometric =
            |first: f64, ratio: f64, count: i32| (0..count).map(move |i| first * libm::pow(ratio, f64::from(i)));
        let at_tilt = row(tilt).1;
        let ln_scale: f64 = samples.iter().zip(&at_tilt).map(|(s, k)| s.times * k).sum();
        Self {
            tilt,
            beyond: BEYOND_WINDOW
                * libm::exp((libm::log(delta) + tilt * epsilon - ln_scale).clamp(LEAST_LN_TARGET, 0.0)),
            variation: libm::sqrt(0.5 * samples.iter().map(Sample::divergence).sum::<f64>()),
            at_tilt,
            steeper: geometric(1.06, 1.0, 1)
                .chain(geometric(1.12, 1.3, 20))
                .map(|c| tilt * c)
                .filter(|t| t * largest_loss < MAX_LOSS)
                .map(row)
                .filter(finite)
                .collect(),
            flatter: geometric(0.06, 1.5, 18).map(|c| tilt * (1.0 - c)).map(row).filter(finite).collect(),
        }
    }

    fn sum(row: &[f64], counts: &[u64]) -> f64 {
        row.iter().zip(counts).map(|(k, n)| k * *n as f64).sum()
    }

    /// Where the sum of so many losses exceeds with at most e^-nats, and the tilt (as an index) that shows it.
    fn top(&self, counts: &[u64], nats: f64) -> (f64, usize) {
        self.steeper
            .iter()
            .map(|(t, row)| (Self::sum(row, counts) + nats) / t)
            .zip(0..)
            .min_by(|a, b| a.0.total_cmp(&b.0))
            .unwrap_or((f64::INFINITY, 0))
    }

    /// Where the tilted law of the sum exceeds with at most e^-nats, and the tilt that shows it.
    fn tilted_top(&self, counts: &[u64], nats: f64) -> (f64, f64) {
        let here = Self::sum(&self.at_tilt, counts);
        let bound = |(t, row): &(f64, Vec<f64>)| ((Self::sum(row, counts) - here + nats) / (t - self.tilt), *t);
        self.steeper.iter().map(bound).min_by(|a, b| a.0.total_cmp(&b.0)).unwrap_or((f64::INFINITY, self.tilt))
    }

    /// Below which the tilted law of the sum falls with at most e^-nats, and the tilt that shows it.
    fn tilted_bottom(&self, counts: &[u64], nats: f64) -> (f64, f64) {
        let here = Self::sum(&self.at_tilt, counts);
        let bound = |(t, row): &(f64, Vec<f64>)| (-(Self::sum(row, counts) - here + nats) / (self.tilt - t), *t);
        self.flatter.iter().map(bound).max_by(|a, b| a.0.total_cmp(&b.0)).unwrap_or((f64::NEG_INFINITY, self.tilt))
    }

    /// About the mean of the tilted law of the sum.
    fn tilted_mean(&self, counts: &[u64]) -> f64 {
        let here = Self::sum(&self.at_tilt, counts);
        let slope = |(t, row): &(f64, Vec<f64>)| (Self::sum(row, counts) - here) / (t - self.tilt);
        self.flatter.first().map_or(0.0, slope)
    }

    /// What comes back from above the window must not land where the bulk is, and the bulk must fit.
    fn upper_window(&self, counts: &[u64], copies: f64, spending: Spending) -> (Window, usize) {
        let nats = libm::log(copies / self.beyond);
        let above = libm::log(copies / (spending.spare * spending.delta));
        // As in the composition, what lies above the window counts for less than 1.
        let (any, steepest) = self.top(counts, above);
        let t = self.steeper.get(steepest).map_or(self.tilt, |(t, _)| *t);
        let worth = -libm::expm1(-any.max(0.0)) + 1.0 / (std::f64::consts::E * t) + self.variation;
        let (top, steeper) = self.top(counts, above + libm::log(worth.min(1.0)));
        let bulk = top - self.tilted_bottom(counts, nats).0;
        let returned = self.tilted_top(counts, nats).0 - self.tilted_mean(counts);
        (Window { top, width: bulk.max(returned) }, steeper)
    }

    fn lower_window(&self, counts: &[u64]) -> (Window, (f64, f64)) {
        let nats = -libm::log(self.beyond);
        let ((top, steep), (bottom, flat)) = (self.tilted_top(counts, nats), self.tilted_bottom(counts, nats));
        (Window { top, width: top - bottom }, (steep, flat))
    }
}

/// The part of the lattice that a composed law is read off.
#[derive(Debug, Clone, Copy)]
pub(super) struct Window {
    /// Its upper end.
    pub(super) top: f64,
    /// Its width; what lies outside comes back inside, shifted by it.
    pub(super) width: f64,
}

impl Plan {
    /// A plan for epsilon at `delta`, or nothing when losses are too large for a lattice. An estimate of the answer
    /// makes for a better one.
    pub(super) fn new(components: &[Component], delta: f64, aim: Aim, known: Option<Estimate>) -> Option<Self> {
        let spare = aim.left_out(known);
        let left_out = spare * delta / components.len() as f64;
        let largest = |c: &Component| c.family.largest_loss(c.times as f64, left_out);
        let largest_loss = components.iter().map(largest).fold(0.0, f64::max);
        if largest_loss.is_nan() || largest_loss >= MAX_LOSS {
            return None;
        }
        let samples: Vec<Sample> = components
            .iter()
            .map(|c| Sample { nodes: c.family.nodes(c.times as f64, left_out), times: c.times as f64 })
            .collect();
        let guess = known.unwrap_or_else(|| saddle(&samples, delta, largest_loss));
        let saddle = match known {
            // Where even the Chernoff bound finds epsilon near 0, its tilt means nothing.
            None if guess.epsilon > 0.0 => guess,
            _ => Estimate {
                epsilon: guess.epsilon.max(0.0),
                slope: tilt_towards(&samples, guess.epsilon.max(0.0), largest_loss),
            },
        };
        let counts: Vec<u64> = components.iter().map(|c| c.times).collect();
        let tables = narrowest(&samples, &counts, Spending { delta, spare }, saddle, largest_loss);
        let variance = aim.variance(guess);
        let (folds, step) = cheapest_folds(&tables, &counts, Spending { delta, spare }, variance, aim)?;
        let step = if aim.stages { step } else { aligned(components, step, tables.lower_window(&counts).0.width)? };
        let mut plan = Self {
            tilt: tables.tilt,
            epsilon: saddle.epsilon,
            spare,
            step,
            folds,
            indices: Vec::new(),
            added_variance: 0.0,
            allowed: aim.relief,
            tables,
            aim,
        };
        let releases: f64 = samples.iter().map(|s| s.times).sum();
        for (sample, component) in samples.iter().zip(components) {
            let share = sample.times * samples.len() as f64 / releases;
            plan.lay_points(sample, component.family.components() - 1, largest(component), share, saddle.slope);
        }
        plan.added_variance += coarsening_variance(&plan.folds, plan.step, releases);
        Some(plan)
    }

    /// Lattice points for a component: dense where its mass is under the tilt at the saddle, sparse elsewhere, and the
    /// sparser the smaller its share of the releases is.
    fn lay_points(&mut self, sample: &Sample, components: usize, largest: f64, share: f64, saddle: f64) {
        let ln_total = sample.log_mgf(saddle);
        let tilted: Vec<f64> = sample.nodes.iter().map(|n| n.mass * libm::exp(saddle * n.loss - ln_total)).collect();
        // A cell may be wide where it holds little, but the tilt must not vary much over it.
        let widest = (0.25 / (saddle.max(self.tilt) * self.step)).clamp(1.0, 1e9);
        // What counts is how often a loss lies here in runs with epsilon in all: between the plain law and the tilted
        // one, or a single large loss among small ones.
        let count = sample.nodes.len() as f64;
        let relevant: Vec<f64> = sample
            .nodes
            .iter()
            .zip(&tilted)
            .map(|(n, tilted)| n.mass.max(*tilted).max(1.0 / (count * sample.times)))
            .collect();
        let widths: Vec<f64> =
            relevant.iter().map(|m| (WIDENING / libm::sqrt(m * count * share)).clamp(1.0, widest)).collect();
        let points: f64 =
            sample.nodes.windows(2).zip(&widths).map(|(n, w)| (n[1].loss - n[0].loss) / (w * self.step)).sum();
        let too_many = libm::ceil(points * (components * components * components) as f64 / MAX_ATOMS).max(1.0);
        let widths: Vec<i64> = widths.iter().map(|w| (w * too_many) as i64).collect();
        let variance: f64 =
            relevant.iter().zip(&widths).map(|(m, w)| m * (*w as f64 * self.step) * (*w as f64 * self.step)).sum();
        self.added_variance += sample.times * variance / 6.0;

        let index_of = |loss: f64| libm::floor(loss / self.step) as i64;
        let top = index_of(largest) + 1;
        let mut index = index_of(sample.nodes[0].loss).min(top - 2) - 1;
        let mut indices = vec![index];
        let mut node = 0;
        while index < top {
            while node + 1 < sample.nodes.len() && index_of(sample.nodes[node + 1].loss) <= index {
                node += 1;
            }
            let here = widths[node].min(widths[(node + 1).min(widths.len() - 1)]);
            // Do not jump over the next change of width, nor beyond the end.
            let next_change = sample.nodes.get(node + 1).map_or(top, |n| index_of(n.loss).max(index + 1));
            index = (index + here).min(next_change.max(index + 1)).min(top);
            indices.push(index);
        }
        self.indices.push(indices);
    }

    /// The window for the sum of so many losses, for an upper bound: nearly at most `spare * delta / copies` of
    /// it lies above; and the index of the tilt that shows it.
    pub(super) fn upper_window(&self, counts: &[u64], copies: u64, delta: f64) -> (Window, usize) {
        self.tables.upper_window(counts, copies as f64, Spending { delta, spare: self.spare })
    }

    /// The window for a lower bound: nearly at most `beyond` of the tilted law lies beyond each end; and the tilts that
    /// show it for the upper and the lower one.
    pub(super) fn lower_window(&self, counts: &[u64]) -> (Window, (f64, f64)) {
        self.tables.lower_window(counts)
    }

    /// Whether the lattices cost no more than what was aimed at, given what came out.
    pub(super) fn fine_enough(&self, found: Estimate) -> bool {
        self.added_variance <= 4.0 * self.allowed * self.aim.variance(found)
    }

    /// The tilts above `tilt` that serve for bounds on upper tails.
    pub(super) fn steeper(&self) -> impl ExactSizeIterator<Item = f64> + '_ {
        self.tables.steeper.iter().map(|(t, _)| *t)
    }
}

/// The tilt at which the Chernoff bound on delta is smallest, and the epsilon that it gives.
fn saddle(samples: &[Sample], delta: f64, largest_loss: f64) -> Estimate {
    let ln_delta = libm::log(delta);
    let variance: f64 =
        samples.iter().map(|s| s.times * s.nodes.iter().map(|n| n.mass * n.loss * n.loss).sum::<f64>()).sum();
    let objective = |ln_t: f64| {
        let t = libm::exp(ln_t);
        let moments: f64 = samples.iter().map(|s| s.times * s.log_mgf(t)).sum();
        (moments - ln_delta - libm::log1p(t) - t * libm::log1p(1.0 / t)) / t
    };
    let highest = highest_tilt(largest_loss);
    let start = 0.5 * libm::log(-2.0 * ln_delta / variance.max(1e-18));
    let (ln_t, epsilon) = minimise(objective, start.min(highest - 2.0), 0.7, (-20.0, highest), 0.02);
    Estimate { epsilon, slope: libm::exp(ln_t) }
}

/// The tilt that needs the narrowest window. Where a single large loss among many small ones makes up delta, the
/// tilt at the saddle raises those large losses so much that it pays to tilt less, as far as round-off allows.
fn narrowest(samples: &[Sample], counts: &[u64], spending: Spending, saddle: Estimate, largest_loss: f64) -> Tables {
    let releases: f64 = samples.iter().map(|s| s.times).sum();
    let least = BEYOND_WINDOW * ROUND_OFF_ROOM * releases;
    let table = |part: f64| Tables::new(samples, part * saddle.slope, spending.delta, saddle.epsilon, largest_loss);
    let width = |t: &Tables| t.upper_window(counts, 1.0, spending).0.width;
    let mut best = table(1.0);
    for part in [0.6, 0.36, 0.2, 0.12] {
        let flatter = table(part);
        if flatter.beyond < least / flatter.tilt.max(1.0) {
            break;
        }
        if width(&flatter) < width(&best) {
            best = flatter;
        }
    }
    best
}

/// The tilt under which the mean of the run's loss is `epsilon`.
fn tilt_towards(samples: &[Sample], epsilon: f64, largest_loss: f64) -> f64 {
    let objective = |ln_t: f64| {
        let t = libm::exp(ln_t);
        samples.iter().map(|s| s.times * s.log_mgf(t)).sum::<f64>() - t * epsilon
    };
    let highest = highest_tilt(largest_loss);
    libm::exp(minimise(objective, highest - 4.0, 1.0, (highest - 20.0, highest), 0.05).0)
}

/// ln of the steepest tilt that is looked at.
fn highest_tilt(largest_loss: f64) -> f64 {
    libm::log(0.25 * MAX_LOSS / largest_loss.max(1e-9))
}

/// A lattice not coarser than `step` for a law that is dominated; nothing when a window of `width` has too many points.
///
/// The bulk of a sampled release's losses lies just above the smallest one. A dominated law on a lattice that does not
/// resolve it has lost almost everything, unless the smallest loss is a lattice point: at little noise nearly all the
/// mass is there.
fn aligned(components: &[Component], step: f64, width: f64) -> Option<f64> {
    let affordable = |step: &f64| width / step <= 2.0 * MAX_POINTS as f64;
    let [only] = components else { return Some(step).filter(affordable) };
    let least = -only.family.infimum();
    if !(least.is_finite() && least > 0.0) {
        return Some(step).filter(affordable);
    }
    let dividing = |parts: f64| least / libm::ceil(parts.max(least / step));
    [dividing(4.0), dividing(1.0)].into_iter().find(affordable)
}

/// The variance that connecting the dots after each stage adds over a run of so many releases.
fn coarsening_variance(folds: &[Fold], step: f64, releases: f64) -> f64 {
    let (mut step, mut laws, mut sum) = (step, releases, 0.0);
    for fold in folds {
        step *= fold.ratio as f64;
        laws /= fold.count as f64;
        sum += laws * step * step / 6.0;
    }
    sum
}

/// The stages that need the fewest operations for a given error, and the finest lattice step.
fn cheapest_folds(
    tables: &Tables,
    counts: &[u64],
    spending: Spending,
    variance: f64,
    aim: Aim,
) -> Option<(Vec<Fold>, f64)> {
    let most = counts.iter().copied().max()?;
    let releases: f64 = counts.iter().map(|n| *n as f64).sum();
    let powers: Vec<u64> = (2..63).map(|k| 1u64 << k).take_while(|n| aim.stages && *n <= most / 4).collect();
    let fold = |count: u64| Fold { count, ratio: 1 << (count.ilog2() / 2) };
    let mut candidates: Vec<Vec<Fold>> = vec![Vec::new()];
    for &n in &powers {
        candidates.push(vec![fold(n)]);
        candidates.extend(powers.iter().filter(|m| **m > n).map(|m| vec![fold(n), fold(m / n)]));
    }
    let widths = Widths::new(tables, counts, spending, &powers, aim);
    candidates
        .into_iter()
        .filter_map(|folds| {
            // The lattice of the releases and each coarser lattice add about the same.
            let added = |step: f64| releases * step * step * (1.1 + folds.len() as f64) / 6.0;
            let step_for = |variance: f64| power_of_two_below(libm::sqrt(variance / added(1.0)));
            // However little precision is asked for, the tilt must not vary much from point to point.
            let mut step = step_for(variance).min(power_of_two_below(0.5 / tables.tilt));
            let too_slow = |step: f64| widths.cost(&folds, step).is_none_or(|cost| cost > aim.budget);
            while too_slow(step) && step < step_for(aim.relief * variance) {
                step *= 2.0;
            }
            let mut cost = widths.cost(&folds, step);
            while cost.is_none() && step < MAX_STEP {
                step *= 2.0;
                cost = widths.cost(&folds, step);
            }
            let score = cost? * (added(step) / variance).max(1.0);
            Some((score, folds, step))
        })
        .min_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, folds, step)| (folds, step))
}

fn power_of_two_below(x: f64) -> f64 {
    libm::exp2(libm::floor(libm::log2(x)))
}

/// The widths of the windows for sums of 4, 8, 16, ... releases and of all.
struct Widths {
    powers: Vec<(u64, f64)>,
    all: f64,
}

impl Widths {
    fn new(tables: &Tables, counts: &[u64], spending: Spending, powers: &[u64], aim: Aim) -> Self {
        let most = counts.iter().copied().max().unwrap_or(1);
        let width = |n: u64| {
            let counts: Vec<u64> = counts.iter().map(|c| (*c).min(n)).collect();
            let copies = (most / n).max(1) as f64;
            if aim.stages {
                tables.upper_window(&counts, copies, spending).0.width
            } else {
                tables.lower_window(&counts).0.width
            }
        };
        Self { powers: powers.iter().map(|n| (*n, width(*n))).collect(), all: width(most) }
    }

    fn of(&self, folded: u64) -> f64 {
        self.powers.iter().find(|(n, _)| *n == folded).map_or(f64::INFINITY, |(_, width)| *width)
    }

    /// Operations of a sequence of stages; nothing when a transform would be too large.
    fn cost(&self, folds: &[Fold], finest: f64) -> Option<f64> {
        let (mut step, mut folded, mut cost) = (finest, 1, 0.0);
        for fold in folds {
            folded *= fold.count;
            cost += 5.0 * transform_cost(self.of(folded) / step)?;
            step *= fold.ratio as f64;
        }
        let transforms = if folds.is_empty() { 2.0 } else { 3.0 };
        Some(cost + transforms * transform_cost(self.all / step)?)
    }
}

fn transform_cost(points: f64) -> Option<f64> {
    let size = Circle::at_least(points + 8.0)?.size;
    (size <= MAX_POINTS).then(|| size as f64 * (libm::log2(size as f64) + 10.0))
}
