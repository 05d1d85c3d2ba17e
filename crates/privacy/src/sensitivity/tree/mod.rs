//! The sensitivity of (restarted) binary trees under participation limits.
//!
//! A tree releases the sum of each complete dyadic node, so a user who takes part at positions `pi` moves the release
//! by `S(pi) = sum over nodes of (participations in the node)^2`, and rho is `max S / (2 z^2)` (Kairouz et al. 2021,
//! appendix D; Xu et al. 2023). TensorFlow Privacy finds the maximum by dynamic programming over positions, in up to a
//! minute. Here it mostly takes well under a millisecond (`shapes`). Where the largest number of participations binds
//! and is large, there can be too many shapes to look at; then an upper bound is taken.

mod shapes;

use self::shapes::{Best, search};
use super::{Limits, MatrixSensitivity};
use crate::event::Segment;

pub(super) fn sensitivity(segments: &[Segment], limits: Limits) -> MatrixSensitivity {
    // Where a user can come often, coming as often as possible from the start is as bad as anything can be.
    let bound = level_bound(segments, limits);
    if segments.first().is_some_and(|first| packed_value(first, limits) == Some(bound)) {
        return MatrixSensitivity { squared: bound, attained: true };
    }
    let small = segments.iter().map(|s| u128::from(size(s))).sum::<u128>() < 1 << 62 && limits.distance < 1 << 62;
    let exact = |at_most| small.then(|| search(segments, limits.distance, at_most)).flatten();
    let unlimited = exact(None);
    match unlimited.filter(|best| best.count <= limits.count).or_else(|| exact(Some(limits.count))) {
        Some(best) => MatrixSensitivity { squared: rounded_up(best), attained: true },
        None => {
            MatrixSensitivity { squared: unlimited.map_or(bound, |best| bound.min(rounded_up(best))), attained: false }
        }
    }
}

fn size(segment: &Segment) -> u64 {
    segment.completed_to.unwrap_or(segment.rounds)
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

/// An upper bound level by level. So many nodes of size 2^l are complete, each holds at most so many participations, and
/// all of them together at most as many as fit into their rounds: a sum of squares is largest with full nodes.
fn level_bound(segments: &[Segment], limits: Limits) -> f64 {
    let top = segments.iter().map(size).max().map_or(0, u64::ilog2);
    let of_level = |level: u32| {
        let complete = |s: &Segment| (size(s) >> level).min(s.rounds.div_ceil(1 << level));
        let nodes = segments.iter().map(complete).fold(0, u64::saturating_add);
        let in_rounds = |s: &Segment| limits.fitting(s.rounds.min(size(s) >> level << level));
        let count = segments.iter().map(in_rounds).fold(0, u64::saturating_add).min(limits.count);
        let in_node = limits.fitting(1 << level);
        let full = nodes.min(count / in_node);
        let rest = if full < nodes { count % in_node } else { 0 };
        full as f64 * in_node as f64 * in_node as f64 + rest as f64 * rest as f64
    };
    let sum: f64 = (0..=top).map(of_level).sum();
    // Below 2^53 nothing was rounded; above, each step by less than a part in 10^15.
    if sum < 9e15 { sum } else { sum * (1.0 + 1e-12) }
}

/// The value as a number that is not below it.
fn rounded_up(best: Best) -> f64 {
    let near = best.value as f64;
    if (near as u128) < best.value { near.next_up() } else { near }
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

    /// The same numbers in every run; what they are does not matter.
    fn numbers() -> impl FnMut(u64) -> u64 {
        let mut state = 0x9e37_79b9_7f4a_7c15u64;
        move |below| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % below
        }
    }

    /// One to four segments, completed to the next power of two, to something larger, or not at all.
    fn some_segments(total: u64, below: &mut impl FnMut(u64) -> u64) -> Vec<Segment> {
        let many = 1 + below(4);
        let one = |_| {
            let rounds = 1 + below(total / many);
            match below(4) {
                0 => Segment::completed(rounds),
                1 => Segment { rounds, completed_to: Some(rounds + below(rounds + 9)) },
                _ => Segment::of(rounds),
            }
        };
        (0..many).map(one).collect()
    }

    fn rounds(segments: &[Segment]) -> u64 {
        segments.iter().map(|s| s.rounds).sum()
    }

    #[test]
    fn where_only_the_separation_binds_it_equals_enumeration() {
        let mut below = numbers();
        for _ in 0..600 {
            let segments = some_segments(17, &mut below);
            let distance = 1 + below(8);
            let limits = Limits { distance, count: rounds(&segments).div_ceil(distance) };
            let got = sensitivity(&segments, limits);
            assert!(got.attained, "{segments:?} {limits:?}");
            assert_eq!(got.squared as u64, by_enumeration(&segments, limits), "{segments:?} {limits:?}");
        }
    }

    #[test]
    fn where_both_limits_bind_it_equals_enumeration() {
        let mut below = numbers();
        for _ in 0..600 {
            let segments = some_segments(17, &mut below);
            let distance = 1 + below(6);
            let limits = Limits { distance, count: 1 + below(rounds(&segments).div_ceil(distance)) };
            let got = sensitivity(&segments, limits);
            assert!(got.attained, "{segments:?} {limits:?}");
            assert_eq!(got.squared as u64, by_enumeration(&segments, limits), "{segments:?} {limits:?}");
        }
    }

    /// Rounds 0, 3 and 6 keep the distance and lie in three trees: 1 + 3 + 2. Rounds 1 and 4 share the middle one: 8.
    #[test]
    fn coming_less_often_can_move_more() {
        let segments = [Segment::of(1), Segment::of(4), Segment::of(2)];
        assert_eq!(search(&segments, 3, None), Some(Best { value: 8, count: 2 }));
        for count in [2, 3] {
            let got = sensitivity(&segments, Limits { distance: 3, count });
            assert_eq!(got, MatrixSensitivity { squared: 8.0, attained: true });
        }
    }

    /// A user who comes each of 255 rounds fills every complete node; there are `255 >> level` of a level. The bound once
    /// allowed a part of one more: 64,778 instead of 43,435.
    #[test]
    fn without_limits_every_node_is_full() {
        let full: u64 = (0..8).map(|level| (255 >> level) << (2 * level)).sum();
        assert_eq!(full, 43_435);
        let limits = Limits { distance: 1, count: 255 };
        let got = sensitivity(&[Segment::of(255)], limits);
        assert_eq!(got, MatrixSensitivity { squared: full as f64, attained: true });
        assert_eq!(level_bound(&[Segment::of(255)], limits), full as f64);
    }

    #[test]
    fn trees_of_every_usual_length_are_exact_where_only_the_separation_binds() {
        for rounds in [255, 256, 1000, 2047, 4095, 10_000] {
            for distance in [1, 2, 3, 7, 15, 21, 31, 63, 64, 65, 100, 127, 255, 511, 1000] {
                for segments in
                    [vec![Segment::of(rounds)], vec![Segment::completed(rounds / 2), Segment::of(rounds / 3)]]
                {
                    let limits = Limits { distance, count: super::tests::rounds(&segments).div_ceil(distance) };
                    let got = sensitivity(&segments, limits);
                    assert!(got.attained, "{segments:?} {limits:?}");
                    assert!(got.squared <= level_bound(&segments, limits), "{segments:?} {limits:?}");
                }
            }
        }
    }

    #[test]
    fn the_level_bound_is_never_below_the_maximum() {
        let mut below = numbers();
        for _ in 0..600 {
            let segments = some_segments(17, &mut below);
            let distance = 1 + below(6);
            let limits = Limits { distance, count: 1 + below(rounds(&segments).div_ceil(distance)) };
            let most = by_enumeration(&segments, limits) as f64;
            assert!(most <= level_bound(&segments, limits), "{segments:?} {limits:?}");
        }
        for _ in 0..2000 {
            let segments = some_segments(3000, &mut below);
            let distance = 1 + below(500);
            let limits = Limits { distance, count: 1 + below(rounds(&segments).div_ceil(distance).min(12)) };
            let got = sensitivity(&segments, limits);
            assert!(got.squared <= level_bound(&segments, limits), "{segments:?} {limits:?}");
        }
    }

    #[test]
    fn an_absurd_question_gets_an_answer_at_once() {
        let years = [Segment::of(1 << 40)];
        // Each of 41 levels: 2^40 / 2^l nodes of 4^l.
        let every_round = sensitivity(&years, Limits { distance: 1, count: 1 << 40 });
        assert_eq!(every_round, MatrixSensitivity { squared: 2f64.powi(81) - 2f64.powi(40), attained: true });
        let got = sensitivity(&years, Limits { distance: 3, count: 1 << 37 });
        assert!(!got.attained && got.squared.is_finite());
        assert!(got.squared < every_round.squared);
    }

    #[test]
    fn a_value_that_no_float_holds_is_rounded_up() {
        let value = (1u128 << 60) + 1;
        assert!(rounded_up(Best { value, count: 1 }) as u128 > value);
        assert_eq!(rounded_up(Best { value: 7, count: 1 }), 7.0);
    }
}
