//! Binary-tree noise with the variance-reducing estimate, restarts and completion.
//!
//! Kairouz et al. 2021 (arXiv:2103.00039), appendix B: the sum of each complete node of a binary tree over the rounds is
//! noised, and the sum of the first t rounds is estimated from them. Honaker 2015 ("Efficient use of differentially private
//! binary trees"), from below: a node's sum is estimated from its own noisy sum and from its two children's estimates,
//! weighted by precision, which takes the variance of a large node from 1 to about 1/2.
//!
//! What is released at step t is the residual: `x_t` plus the difference of the estimates' noise after t and after
//! t - 1 (Xu et al. 2023, section 3), so that only noise is stored, one vector for each node that is alive.
//!
//! | here         | paper | meaning                                          |
//! |--------------|-------|--------------------------------------------------|
//! | `level`      | h     | a node of level h covers 2^h rounds              |
//! | `own_weight` | v_h   | weight of a node's own noise; also its variance  |
//!
//! **Exact** (rule P4): the matrix has entries 0 and 1, so node sums and noise share the integers. Weights are multiples of
//! 2^-30 and `w own + (1 - w) (left + right)` is rounded to an integer; adding an integer S to the node's sum, hence to
//! own and to left + right, adds exactly S to the estimate, so the release is a function of the noisy node sums alone.
//!
//! **Completion** (Kairouz et al., appendix D.2.1): at the last round of a completed segment the tree is filled up with
//! empty rounds. A node with nothing but empty rounds has the known sum 0, needs no noise and has variance 0; the nodes
//! above both kinds are released with it, and the event carries the padded size (rule P7).
//!
//! The leaf of a round and every node that is complete with it, those of a completion included, are drawn from that round's
//! key.

use super::{
    MechanismError, StreamingMatrix, TREE,
    draws::{CHUNK, Draw, Draws},
};
use crate::{
    encoding::layout::Layout,
    event::Segment,
    step_keys::StepNoise,
    workers::{self, Workers},
};

/// Fixed-point weights have so many bits.
const WEIGHT_BITS: u32 = 30;

/// One more node towards the root: its own noise is drawn and joined with what lies below.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Join {
    /// The level and number of the node.
    level: u32,
    index: u64,
    /// Whether its left child holds a stored estimate; otherwise its right child is empty and known to be 0.
    with_left: bool,
    /// The weight of its own noise, in units of 2^-30.
    own_weight: i64,
}

/// The weight of a node's own noise, of variance 1, against what lies below, of variance `below`.
fn own_weight(below: f64) -> i64 {
    libm::rint(below / (1.0 + below) * (1i64 << WEIGHT_BITS) as f64) as i64
}

/// The variance of the estimate of a complete node of each level.
fn variance(level: u32) -> f64 {
    (0..level).fold(1.0, |v, _| joined_variance(2.0 * v))
}

/// The variance of an estimate from the node's own noise and from what lies below.
fn joined_variance(below: f64) -> f64 {
    below / (1.0 + below)
}

/// The joins of a step: those that a binary counter makes, and after a segment's last round those of its completion.
fn joins(round: u64, segment: Segment) -> Vec<Join> {
    let mut joins = Vec::new();
    let mut level = 0;
    while round >> level & 1 == 1 {
        let own_weight = own_weight(2.0 * variance(level));
        level += 1;
        joins.push(Join { level, index: round >> level, with_left: true, own_weight });
    }
    if round + 1 == segment.rounds
        && let Some(size) = segment.completed_to
    {
        let mut below = variance(level);
        while 1 << level < size {
            let with_left = round >> level & 1 == 1;
            let total = below + if with_left { variance(level) } else { 0.0 };
            level += 1;
            joins.push(Join { level, index: round >> level, with_left, own_weight: own_weight(total) });
            below = joined_variance(total);
        }
    }
    joins
}

/// The estimates of the nodes that are alive.
#[derive(Debug)]
pub(super) struct Tree {
    draws: Draws,
    segments: Vec<Segment>,
    /// `alive[h]` is the noise of the estimate of the node of level h, where there is one.
    alive: Vec<Vec<i32>>,
    len: usize,
}

impl Tree {
    pub(super) fn init(layout: &Layout, segments: &[Segment]) -> Result<Self, MechanismError> {
        if let Some(size) = segments.iter().filter_map(|s| s.completed_to).find(|s| !s.is_power_of_two()) {
            return Err(MechanismError::Completion { size });
        }
        Ok(Self { draws: Draws::new(layout, 0)?, segments: segments.to_vec(), alive: Vec::new(), len: layout.len() })
    }

    /// Bytes of the estimates that can be alive at once.
    pub(super) fn memory(layout: &Layout, segments: &[Segment]) -> u64 {
        let levels = segments.iter().map(|s| u64::from(s.rounds.max(1).ilog2()) + 1).max().unwrap_or(0);
        levels * layout.len() as u64 * size_of::<i32>() as u64
    }

    /// Makes room for the estimate of a node of a level.
    fn level(&mut self, level: usize) {
        if self.alive.len() <= level {
            self.alive.resize_with(level + 1, Vec::new);
        }
        self.alive[level].resize(self.len, 0);
    }
}

impl StreamingMatrix for Tree {
    fn next(
        &mut self,
        noise: &StepNoise,
        position: [u64; 3],
        values: &mut [i64],
        workers: &dyn Workers,
    ) -> Result<(), MechanismError> {
        let [stream, segment, round] = position;
        let joins = joins(round, self.segments[segment as usize]);
        let draw = |level: u32, index: u64| Draw::at(noise, &[TREE, stream, segment, u64::from(level), index]);
        let leaf = draw(0, round);
        let own: Vec<Draw> = joins.iter().map(|j| draw(j.level, j.index)).collect();
        let top = joins.last().map_or(0, |j| j.level) as usize;
        self.level(top);
        let Self { draws, alive, .. } = self;
        let (below, from_top) = alive.split_at_mut(top);
        workers::each(workers, draws.cut(values).zip(draws.cut(&mut from_top[0])), |number, (values, stored)| {
            let at = draws.chunks[number].coordinates.clone();
            let (mut estimate, mut drawn) = ([0; CHUNK], [0; CHUNK]);
            let (estimate, drawn) = (&mut estimate[..at.len()], &mut drawn[..at.len()]);
            draws.fill(&leaf, number, estimate);
            for (join, own) in joins.iter().zip(&own) {
                draws.fill(own, number, drawn);
                let left = if join.with_left { &below[join.level as usize - 1][at.clone()] } else { &[] };
                join_up(estimate, drawn, left, join.own_weight, values);
            }
            store(estimate, stored, values)
        })?;
        for join in joins.iter().filter(|j| j.with_left) {
            self.alive[join.level as usize - 1] = Vec::new();
        }
        Ok(())
    }

    fn restart(&mut self) {
        self.alive.clear();
    }
}

/// `estimate` becomes the parent's: its own noise joined with the estimate and its left sibling's, whose noise leaves
/// the release.
fn join_up(estimate: &mut [i64], own: &[i64], left: &[i32], own_weight: i64, values: &mut [i64]) {
    let below_weight = (1 << WEIGHT_BITS) - own_weight;
    let half = 1 << (WEIGHT_BITS - 1);
    let joined = |own: i64, below: i64| (own_weight * own + below_weight * below + half) >> WEIGHT_BITS;
    if left.is_empty() {
        estimate.iter_mut().zip(own).for_each(|(e, own)| *e = joined(*own, *e));
        return;
    }
    for (((e, own), left), v) in estimate.iter_mut().zip(own).zip(left).zip(values) {
        let left = i64::from(*left);
        *e = joined(*own, left + *e);
        *v -= left;
    }
}

fn store(estimate: &[i64], alive: &mut [i32], values: &mut [i64]) -> Result<(), MechanismError> {
    for ((e, alive), v) in estimate.iter().zip(alive).zip(values) {
        *alive = i32::try_from(*e).map_err(|_| MechanismError::Overflow)?;
        *v += e;
    }
    Ok(())
}
