//! The largest value over all patterns of participation, found among the shapes that can be optimal.
//!
//! Fix a *shape*: which child of each node each participation goes to. Placing every participation as early as the
//! shape and the separation `b` allow gives `last = max(earliest_end, start + (c - 1) b)` for any
//! `start <= latest_start`, a function of two numbers. Shapes of two children compose into a shape of the parent, and
//! only those are kept that no other beats in value, `latest_start` and `earliest_end`. All nodes of a level are alike,
//! so there is one such frontier for each level. A forest (the complete subtrees of each tree, tree after tree) is then
//! walked once from left to right.
//!
//! What keeps frontiers small:
//! - a user who took part before a subtree did so at least one round before it, so no start is later than `b - 1`;
//! - an end that leaves the first round after the subtree free is as good as any earlier one;
//! - of two shapes, one of which can start where the other no longer can, the choice is again such a function, with the
//!   smaller value;
//! - where the number of participations is not limited, a shape with more of them beats one with fewer that has neither
//!   value nor freedom to show for it. Where it is limited, shapes are only compared with shapes of as many.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use crate::event::Segment;

/// How many pairs of shapes may be looked at before a search is given up, tens of milliseconds: where the number of
/// participations is limited there can be a frontier for each number up to it.
const LIMITED_WORK: u64 = 1_000_000;
/// The same where it is not. Few numbers matter then, and up to 10,000 rounds nothing came near it.
const UNLIMITED_WORK: u64 = 4_000_000;

/// Participations placed in one subtree; positions count from its first leaf.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Shape {
    /// Sum over the subtree's nodes of the squared participations.
    value: u128,
    /// The latest position from which the first participation may be sought.
    latest_start: i64,
    /// The position of the last participation when the first may stand at position 0.
    earliest_end: i64,
}

impl Shape {
    /// Whether it is as good as another with as many participations, whatever is around them.
    fn beats(&self, other: &Self) -> bool {
        self.value >= other.value && self.latest_start >= other.latest_start && self.earliest_end <= other.earliest_end
    }

    /// Whether, with `count` participations, it is as good as another with fewer: it ends no later from any start.
    fn beats_fewer(&self, count: u64, other: &Self, distance: i64) -> bool {
        self.beats(other) && other.latest_start + (count as i64 - 1) * distance <= other.earliest_end
    }
}

/// For each number of participations the unbeaten shapes with that many in one subtree. None is not listed.
type Frontier = BTreeMap<u64, Vec<Shape>>;

/// The unbeaten ones of shapes with as many participations, whose first and last are at least `span` apart.
fn unbeaten(shapes: &mut [Shape], span: i64) -> Vec<Shape> {
    shapes.sort_unstable_by_key(|s| (Reverse(s.value), s.earliest_end, Reverse(s.latest_start)));
    let mut found = Vec::new();
    // The unbeaten ones of the values so far, were they all of the least: the later the start, the later the end.
    let mut steps: Vec<Shape> = Vec::new();
    for of_value in shapes.chunk_by(|a, b| a.value == b.value) {
        of_value.iter().for_each(|shape| add_step(&mut steps, *shape, span));
        found.extend(steps.iter().filter(|s| s.value == of_value[0].value));
    }
    found
}

/// Adds a shape of the smallest value so far. Where it begins before its neighbour stops, having the choice of both is
/// a shape as well, of the smaller value.
fn add_step(steps: &mut Vec<Shape>, mut shape: Shape, span: i64) {
    if steps.iter().any(|s| s.beats(&shape)) {
        return;
    }
    let meets = |first: &Shape, then: &Shape| then.earliest_end - span <= first.latest_start + 1;
    let mut at = steps.partition_point(|s| s.latest_start < shape.latest_start);
    while at > 0 && (shape.earliest_end <= steps[at - 1].earliest_end || meets(&steps[at - 1], &shape)) {
        at -= 1;
        shape.earliest_end = shape.earliest_end.min(steps.remove(at).earliest_end);
    }
    while at < steps.len() && meets(&shape, &steps[at]) {
        shape.latest_start = steps.remove(at).latest_start;
    }
    steps.insert(at, shape);
}

/// The best that can be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Best {
    /// The squared sensitivity.
    pub(super) value: u128,
    /// How many participations it takes.
    pub(super) count: u64,
}

/// The largest value of participations at least `distance` apart, and at most so many where that is limited; nothing
/// when it would take too long. Together the segments and the distance must be below 2^62.
pub(super) fn search(segments: &[Segment], distance: u64, at_most: Option<u64>) -> Option<Best> {
    let leaf = Frontier::from([(1, vec![Shape { value: 1, latest_start: 0, earliest_end: 0 }])]);
    let work_left = if at_most.is_some() { LIMITED_WORK } else { UNLIMITED_WORK };
    Search { distance: distance as i64, at_most, complete: vec![leaf], work_left }.walk(segments)
}

struct Search {
    distance: i64,
    at_most: Option<u64>,
    /// The frontiers of complete subtrees, by level, as far as they were needed.
    complete: Vec<Frontier>,
    work_left: u64,
}

impl Search {
    /// Counts work; nothing when it is too much.
    fn spend(&mut self, work: usize) -> Option<()> {
        self.work_left = self.work_left.checked_sub(work as u64)?;
        Some(())
    }

    /// The frontier of a complete subtree.
    fn complete(&mut self, level: u32) -> Option<Frontier> {
        while self.complete.len() <= level as usize {
            let child = self.complete.last()?.clone();
            let width = 1i64 << (self.complete.len() - 1);
            let next = self.parent(&child, &child, width, width)?;
            self.complete.push(next);
        }
        self.complete.get(level as usize).cloned()
    }

    /// The frontier of a subtree of which only the first `rounds` are taken part in; the rest was padded.
    fn subtree(&mut self, level: u32, rounds: i64) -> Option<Frontier> {
        if rounds == 1 << level {
            return self.complete(level);
        }
        let half = 1i64 << (level - 1);
        if rounds <= half {
            let mut only = self.subtree(level - 1, rounds)?;
            only.iter_mut().for_each(|(count, shapes)| shapes.iter_mut().for_each(|s| s.value += squared(*count)));
            return Some(only);
        }
        let (left, right) = (self.complete(level - 1)?, self.subtree(level - 1, rounds - half)?);
        self.parent(&left, &right, half, rounds - half)
    }

    /// The frontier of a node from those of its children, which have so many rounds.
    fn parent(&mut self, left: &Frontier, right: &Frontier, half: i64, rest: i64) -> Option<Frontier> {
        let ends = |of: &Frontier| Some((*of.keys().next()?, *of.keys().next_back()?));
        let ((least_left, most_left), (least_right, most_right)) = (ends(left)?, ends(right)?);
        let in_both = least_left + least_right..=(most_left + most_right).min(self.at_most.unwrap_or(u64::MAX));
        let in_one: BTreeSet<u64> = left.keys().chain(right.keys()).copied().collect();
        let only_in_one = in_one.into_iter().filter(|count| !in_both.contains(count));
        let mut joined = Frontier::new();
        let mut candidates = Vec::new();
        for count in only_in_one.chain(in_both.clone()) {
            self.spend(1)?;
            self.joined(left, right, count, half, &mut candidates)?;
            candidates.iter_mut().for_each(|s| *s = self.shape_of_node(*s, count, half + rest));
            let shapes = unbeaten(&mut candidates, (count as i64 - 1) * self.distance);
            if !shapes.is_empty() {
                joined.insert(count, shapes);
            }
        }
        if self.at_most.is_none() {
            self.drop_beaten_by_more(&mut joined)?;
        }
        Some(joined)
    }

    /// Every way to put so many participations into a left and a right child.
    fn joined(
        &mut self,
        left: &Frontier,
        right: &Frontier,
        count: u64,
        half: i64,
        into: &mut Vec<Shape>,
    ) -> Option<()> {
        let later = |s: &Shape| {
            let (latest_start, earliest_end) = (half + s.latest_start, half + s.earliest_end);
            Shape { value: s.value, latest_start, earliest_end }
        };
        into.clear();
        into.extend(left.get(&count).into_iter().flatten());
        into.extend(right.get(&count).into_iter().flatten().map(later));
        for (in_left, of_left) in left.range(..count) {
            let in_right = count - in_left;
            let Some(of_right) = right.get(&in_right) else { continue };
            self.spend(of_left.len() * of_right.len())?;
            let pairs = of_left.iter().flat_map(|l| of_right.iter().map(move |r| (l, r)));
            into.extend(pairs.filter_map(|(l, r)| self.both((*in_left, l), (in_right, r), half)));
        }
        Some(())
    }

    /// Participations in the left and in the right child, where they can follow each other.
    fn both(&self, left: (u64, &Shape), right: (u64, &Shape), half: i64) -> Option<Shape> {
        let ((in_left, l), (in_right, r)) = (left, right);
        // The right child is entered `distance` after the left's last participation.
        let latest_end = r.latest_start + half - self.distance;
        let latest_start = l.latest_start.min(latest_end - (in_left as i64 - 1) * self.distance);
        let earliest_end = (half + r.earliest_end).max(l.earliest_end + in_right as i64 * self.distance);
        let possible = l.earliest_end <= latest_end && latest_start >= 0;
        possible.then_some(Shape { value: l.value + r.value, latest_start, earliest_end })
    }

    /// What a shape of the children is to their parent, without differences that nothing around can tell.
    fn shape_of_node(&self, shape: Shape, count: u64, rounds: i64) -> Shape {
        Shape {
            value: shape.value + squared(count),
            latest_start: shape.latest_start.min(self.distance - 1),
            earliest_end: shape.earliest_end.max(rounds - self.distance),
        }
    }

    /// Where the number of participations is not limited: drops the shapes that one with more of them beats.
    fn drop_beaten_by_more(&mut self, frontier: &mut Frontier) -> Option<()> {
        let mut kept: Vec<(u64, Shape)> = Vec::new();
        for (count, shapes) in frontier.iter_mut().rev() {
            self.spend(shapes.len() * kept.len())?;
            let distance = self.distance;
            shapes.retain(|s| !kept.iter().any(|(more, k)| k.beats_fewer(*more, s, distance)));
            kept.extend(shapes.iter().map(|s| (*count, *s)));
        }
        frontier.retain(|_, shapes| !shapes.is_empty());
        Some(())
    }

    /// The largest value over all subtrees, from left to right.
    fn walk(&mut self, segments: &[Segment]) -> Option<Best> {
        let mut placed = Placements::from([(0, vec![Placed { value: 0, free_from: 0 }])]);
        let mut start = 0i64;
        for segment in segments {
            let end = start + segment.rounds as i64;
            let size = segment.completed_to.unwrap_or(segment.rounds);
            let mut offset = start;
            for level in (0..=size.ilog2()).rev().filter(|level| size >> level & 1 == 1) {
                if offset < end {
                    let rounds = (end - offset).min(1 << level);
                    let frontier = self.subtree(level, rounds)?;
                    placed = self.place(&placed, &frontier, offset, rounds)?;
                }
                offset += 1 << level;
            }
            start = end;
        }
        let ends = placed.iter().flat_map(|(count, of)| of.iter().map(|p| Best { value: p.value, count: *count }));
        ends.max_by_key(|best| (best.value, Reverse(best.count)))
    }

    /// Extends every placement by every shape of the subtree at `offset`, which has so many rounds.
    fn place(&mut self, placed: &Placements, frontier: &Frontier, offset: i64, rounds: i64) -> Option<Placements> {
        let mut next = placed.clone();
        next.values_mut().flatten().for_each(|p| p.free_from = p.free_from.max(offset + rounds));
        for (before, options) in placed {
            for (count, shapes) in frontier {
                if self.at_most.is_some_and(|most| before + count > most) {
                    break;
                }
                for (p, shape) in options.iter().flat_map(|p| shapes.iter().map(move |s| (p, s))) {
                    let start = (p.free_from - offset).max(0);
                    if start <= shape.latest_start {
                        let last = shape.earliest_end.max(start + (*count as i64 - 1) * self.distance);
                        let one = Placed { value: p.value + shape.value, free_from: offset + last + self.distance };
                        let beside = next.entry(before + count).or_default();
                        self.spend(beside.len())?;
                        keep_best(beside, one);
                    }
                    self.spend(1)?;
                }
            }
        }
        Some(if self.at_most.is_none() { best_of_all(&next) } else { next })
    }
}

fn squared(count: u64) -> u128 {
    u128::from(count) * u128::from(count)
}

/// Participations placed from the first round up to some subtree.
#[derive(Debug, Clone, Copy)]
struct Placed {
    value: u128,
    /// The round before which no further participation may come.
    free_from: i64,
}

impl Placed {
    fn beats(&self, other: &Self) -> bool {
        self.value >= other.value && self.free_from <= other.free_from
    }
}

/// Placements by their number of participations.
type Placements = BTreeMap<u64, Vec<Placed>>;

/// Keeps the placements of which none has both a larger value and an earlier end.
fn keep_best(placements: &mut Vec<Placed>, candidate: Placed) {
    if placements.iter().any(|p| p.beats(&candidate)) {
        return;
    }
    placements.retain(|p| !candidate.beats(p));
    placements.push(candidate);
}

/// Where the number of participations is not limited it does not matter how many earlier trees hold: the same over all
/// numbers, and of equally good placements the one with the fewest.
fn best_of_all(placements: &Placements) -> Placements {
    let mut all: Vec<(u64, Placed)> =
        placements.iter().flat_map(|(count, of)| of.iter().map(|p| (*count, *p))).collect();
    all.sort_by_key(|(count, p)| (p.free_from, Reverse(p.value), *count));
    let mut best = Placements::new();
    let mut most = None;
    for (count, p) in all {
        if most.is_none_or(|most| p.value > most) {
            most = Some(p.value);
            best.entry(count).or_default().push(p);
        }
    }
    best
}
