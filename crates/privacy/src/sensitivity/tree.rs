//! The sensitivity of (restarted) binary trees under participation limits.
//!
//! A tree releases the sum of each complete dyadic node, so a user who takes part at positions `pi` moves the release
//! by `S(pi) = sum over nodes of (participations in the node)^2`, and rho is `max S / (2 z^2)` (Kairouz et al. 2021,
//! appendix D; Xu et al. 2023). TensorFlow Privacy finds the maximum by dynamic programming over positions, in up to a
//! minute. Here it takes well under a millisecond, by this observation:
//!
//! Fix a *shape*: which child of each node each participation goes to. Placing every participation as early as the
//! shape and the separation `b` allow gives `last = max(earliest_end, start + (c - 1) b)` for any
//! `start <= latest_start`, a function of two numbers. Shapes of two children compose into a shape of the parent, and
//! of all shapes with `c` participations only those that no other beats in value, `latest_start` and `earliest_end`
//! are kept. All nodes of a level are alike, so there is one such frontier for each level and count. A forest
//! (the complete subtrees of each tree, tree after tree) is then walked once from left to right.

use super::{Limits, MatrixSensitivity};
use crate::event::Segment;

/// How many shapes may be looked at before the closed-form bound is taken instead: a few milliseconds.
const WORK_LIMIT: u64 = 8_000_000;

/// Participations placed in one complete subtree; positions count from its first leaf.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Shape {
    /// Sum over the subtree's nodes of the squared participations.
    value: u64,
    /// The latest position from which the first participation may be sought.
    latest_start: i64,
    /// The position of the last participation when the first may stand at position 0.
    earliest_end: i64,
}

impl Shape {
    fn beats(&self, other: &Self) -> bool {
        self.value >= other.value && self.latest_start >= other.latest_start && self.earliest_end <= other.earliest_end
    }
}

/// Adds a candidate to a set of which no member beats another.
fn keep_unbeaten(frontier: &mut Vec<Shape>, candidate: Shape) {
    if frontier.iter().any(|s| s.beats(&candidate)) {
        return;
    }
    frontier.retain(|s| !candidate.beats(s));
    frontier.push(candidate);
}

/// `frontiers[c]` holds the unbeaten shapes with `c` participations in a complete subtree of one level.
type Frontiers = Vec<Vec<Shape>>;

pub(super) fn sensitivity(segments: &[Segment], limits: Limits) -> MatrixSensitivity {
    let size = |s: &Segment| s.completed_to.unwrap_or(s.rounds);
    let top = segments.iter().map(size).max().map_or(0, u64::ilog2);
    // Where a user can come often, coming as often as possible from the start is as bad as anything can be.
    let bound = level_bound(top, limits);
    if segments.first().is_some_and(|first| packed_value(first, limits) == Some(bound)) {
        return MatrixSensitivity { squared: bound, attained: true };
    }
    let small = segments.iter().map(|s| u128::from(size(s))).sum::<u128>() < 1 << 62 && limits.distance < 1 << 62;
    let exact =
        small.then(|| all_frontiers(top, limits)).flatten().and_then(|levels| walk_forest(segments, &levels, limits));
    match exact {
        Some(value) => MatrixSensitivity { squared: value as f64, attained: true },
        None => MatrixSensitivity { squared: bound, attained: false },
    }
}

/// The value of taking part as often and as early as possible, all of it within one tree; nothing when it does not fit
/// or takes long to say.
fn packed_value(tree: &Segment, limits: Limits) -> Option<f64> {
    let last = (limits.count - 1).checked_mul(limits.distance)?;
    if limits.count > 4096 || last >= tree.rounds {
        return None;
    }
    let size = tree.completed_to.unwrap_or(tree.rounds);
    let positions = || (0..limits.count).map(|i| i * limits.distance);
    let mut value = 0.0;
    for level in 0..=size.ilog2() {
        // Participations come in ascending order: those of a node follow each other.
        let complete = size >> level;
        let mut node = u64::MAX;
        let mut inside = 0.0;
        for position in positions() {
            if position >> level != node {
                value += inside * inside;
                (node, inside) = (position >> level, 0.0);
            }
            inside += if node < complete { 1.0 } else { 0.0 };
        }
        value += inside * inside;
    }
    Some(value)
}

/// The frontiers of every level up to `top`; nothing when that is too much work.
fn all_frontiers(top: u32, limits: Limits) -> Option<Vec<Frontiers>> {
    let mut work = 0;
    let mut levels = vec![level_of_single(0, limits)];
    for level in 1..=top {
        let next = join_children(level, &levels[level as usize - 1], limits, &mut work)?;
        levels.push(next);
    }
    Some(levels)
}

/// The level's frontiers as far as no or one participation goes.
fn level_of_single(level: u32, limits: Limits) -> Frontiers {
    let size = 1u64 << level;
    let mut frontiers = vec![Vec::new(); limits.fitting(size) as usize + 1];
    let single = Shape { value: u64::from(level) + 1, latest_start: size as i64 - 1, earliest_end: 0 };
    if let Some(one) = frontiers.get_mut(1) {
        one.push(single);
    }
    frontiers
}

/// The frontiers of a level from those of its children.
fn join_children(level: u32, child: &Frontiers, limits: Limits, work: &mut u64) -> Option<Frontiers> {
    let half = 1i64 << (level - 1);
    let mut frontiers = level_of_single(level, limits);
    for (count, frontier) in frontiers.iter_mut().enumerate().skip(2) {
        let here = (count * count) as u64;
        for left in count.saturating_sub(child.len() - 1)..=count.min(child.len() - 1) {
            let right = count - left;
            *work += (child[left].len().max(1) * child[right].len().max(1)) as u64;
            if *work > WORK_LIMIT {
                return None;
            }
            join(&child[left], &child[right], (left, right), half, limits.distance as i64, |shape| {
                *work += frontier.len() as u64;
                keep_unbeaten(frontier, Shape { value: shape.value + here, ..shape });
            });
        }
    }
    Some(frontiers)
}

/// Every way to put `counts` participations into a left and a right child.
fn join(
    left: &[Shape],
    right: &[Shape],
    counts: (usize, usize),
    half: i64,
    distance: i64,
    mut found: impl FnMut(Shape),
) {
    match counts {
        (_, 0) => left.iter().copied().for_each(found),
        (0, _) => right.iter().for_each(|r| {
            found(Shape { latest_start: half + r.latest_start, earliest_end: half + r.earliest_end, ..*r });
        }),
        (in_left, in_right) => {
            for l in left {
                for r in right {
                    // The right child is entered `distance` after the left's last participation.
                    let latest_end = r.latest_start + half - distance;
                    let latest_start = l.latest_start.min(latest_end - (in_left as i64 - 1) * distance);
                    if l.earliest_end <= latest_end && latest_start >= 0 {
                        let earliest_end = (half + r.earliest_end).max(l.earliest_end + in_right as i64 * distance);
                        found(Shape { value: l.value + r.value, latest_start, earliest_end });
                    }
                }
            }
        }
    }
}

/// Participations placed from the first round up to some subtree.
#[derive(Debug, Clone, Copy)]
struct Placed {
    value: u64,
    /// The round before which no further participation may come.
    free_from: i64,
}

/// The largest value over all complete subtrees, from left to right.
fn walk_forest(segments: &[Segment], levels: &[Frontiers], limits: Limits) -> Option<u64> {
    let mut placed: Vec<Vec<Placed>> = vec![Vec::new(); limits.count as usize + 1];
    placed[0].push(Placed { value: 0, free_from: 0 });
    let mut work = 0;
    let mut start = 0i64;
    for segment in segments {
        let end = start + segment.rounds as i64;
        let size = segment.completed_to.unwrap_or(segment.rounds);
        let mut offset = start;
        for level in (0..=size.ilog2()).rev().filter(|level| size >> level & 1 == 1) {
            if offset < end {
                placed = place_in_subtree(&placed, &levels[level as usize], offset, end, limits, &mut work)?;
            }
            offset += 1 << level;
        }
        start = end;
    }
    placed.iter().flatten().map(|p| p.value).max()
}

/// Extends every placement by every shape of the subtree at `offset`; no round from `end` on is taken part in.
fn place_in_subtree(
    placed: &[Vec<Placed>],
    frontiers: &Frontiers,
    offset: i64,
    end: i64,
    limits: Limits,
    work: &mut u64,
) -> Option<Vec<Vec<Placed>>> {
    let distance = limits.distance as i64;
    let mut next = placed.to_vec();
    for (before, options) in placed.iter().enumerate() {
        for (count, frontier) in frontiers.iter().enumerate().take(placed.len() - before).skip(1) {
            *work += (options.len() * frontier.len()) as u64;
            if *work > WORK_LIMIT {
                return None;
            }
            for (p, shape) in options.iter().flat_map(|p| frontier.iter().map(move |s| (p, s))) {
                let start = (p.free_from - offset).max(0);
                let last = offset + shape.earliest_end.max(start + (count as i64 - 1) * distance);
                if start <= shape.latest_start && last < end {
                    *work += next[before + count].len() as u64;
                    keep_best(&mut next[before + count], p.value + shape.value, last + distance);
                }
            }
        }
    }
    Some(next)
}

/// Keeps the placements of which none has both a larger value and an earlier end.
fn keep_best(placements: &mut Vec<Placed>, value: u64, free_from: i64) {
    if placements.iter().any(|p| p.value >= value && p.free_from <= free_from) {
        return;
    }
    placements.retain(|p| !(value >= p.value && free_from <= p.free_from));
    placements.push(Placed { value, free_from });
}

/// An upper bound level by level: `count` participations, of which a node of size 2^l holds at most so many.
fn level_bound(top: u32, limits: Limits) -> f64 {
    (0..=top)
        .map(|level| {
            let in_node = limits.fitting(1u64.checked_shl(level).unwrap_or(u64::MAX)) as f64;
            let (full, rest) = (libm::floor(limits.count as f64 / in_node), limits.count as f64 % in_node);
            full * in_node * in_node + rest * rest
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The definition: every pattern of participation, every complete node.
    fn by_enumeration(segments: &[Segment], limits: Limits) -> u64 {
        fn extend(chosen: &mut Vec<u64>, from: u64, rounds: u64, limits: Limits, best: &mut impl FnMut(&[u64])) {
            best(chosen);
            if chosen.len() as u64 == limits.count {
                return;
            }
            for position in from..rounds {
                chosen.push(position);
                extend(chosen, position + limits.distance, rounds, limits, best);
                chosen.pop();
            }
        }
        let rounds = segments.iter().map(|s| s.rounds).sum();
        let mut best = 0;
        extend(&mut Vec::new(), 0, rounds, limits, &mut |chosen| {
            let mut value = 0;
            let mut start = 0;
            for segment in segments {
                let size = segment.completed_to.unwrap_or(segment.rounds);
                let inside = |lo: u64, hi: u64| chosen.iter().filter(|p| (lo..hi).contains(*p)).count() as u64;
                for level in 0..=size.ilog2() {
                    let width = 1 << level;
                    for node in 0..size / width {
                        let lo = start + node * width;
                        let count = inside(lo, (lo + width).min(start + segment.rounds));
                        value += count * count;
                    }
                }
                start += segment.rounds;
            }
            best = best.max(value);
        });
        best
    }

    #[test]
    fn equals_enumeration_of_all_patterns() {
        for rounds in 1..=17 {
            for distance in 1..=7 {
                for count in 1..=4 {
                    for segments in [
                        vec![Segment::of(rounds)],
                        vec![Segment::completed(rounds)],
                        vec![Segment::of(rounds.div_ceil(2)), Segment::of(3)],
                        vec![Segment::completed(5), Segment::of(rounds.min(9))],
                    ] {
                        let limits = Limits { distance, count };
                        let got = sensitivity(&segments, limits);
                        assert!(got.attained);
                        assert_eq!(got.squared as u64, by_enumeration(&segments, limits), "{segments:?} {limits:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn the_level_bound_is_never_below_the_maximum() {
        for rounds in [1, 7, 100, 930, 2000] {
            for distance in [1, 3, 50, 400] {
                for count in [1, 2, 5] {
                    let limits = Limits { distance, count };
                    let exact = sensitivity(&[Segment::of(rounds)], limits);
                    assert!(exact.squared <= level_bound(rounds.ilog2(), limits));
                    assert!(exact.attained || distance < 50, "{rounds} {limits:?}");
                }
            }
        }
    }

    #[test]
    fn an_absurd_question_gets_an_upper_bound_at_once() {
        let got = sensitivity(&[Segment::of(1 << 40)], Limits { distance: 1, count: 1 << 40 });
        assert!(!got.attained && got.squared.is_finite());
    }
}
