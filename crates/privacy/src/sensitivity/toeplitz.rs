//! The sensitivity of lower-triangular Toeplitz matrices (banded, BLT) under participation limits, rule P5.
//!
//! | coefficients                              | sensitivity                                                   |
//! |-------------------------------------------|---------------------------------------------------------------|
//! | non-negative, non-increasing              | participations exactly the minimum distance apart, from the first step (Kalinin and Lampert 2024, Theorem 2) |
//! | other non-negative, distance >= bands     | `sqrt(k) * norm of the column`                                |
//! | other non-negative                        | an upper bound from the column's autocorrelation              |
//! | with a negative coefficient               | refused                                                       |
//!
//! With restarts, every segment has its own copy of C. For given counts a segment, placing everything as early as
//! possible is best for every segment at once: each segment's part of the matrix is again such a Toeplitz matrix, the
//! larger the earlier it is entered. So only the counts are searched.

use super::{Limits, MatrixSensitivity};
use crate::event::{EventError, Segment};

/// How many sums may be formed before the segments are bounded one by one instead.
const WORK_LIMIT: u64 = 50_000_000;
/// The longest column that is written out.
const MAX_COLUMN: u64 = 50_000_000;

/// The first column of a BLT: `c_0 = 1`, `c_i = sum_j output_scale_j * buffer_decay_j^(i-1)`.
pub(super) fn blt_column(buffer_decay: &[f64], output_scale: &[f64], rounds: u64) -> Result<Vec<f64>, EventError> {
    if rounds > MAX_COLUMN {
        return Err(EventError::Matrix { matrix: "blt", problem: format!("segments of {rounds} rounds are too long") });
    }
    let mut buffers = output_scale.to_vec();
    let mut column = Vec::with_capacity(rounds as usize);
    column.push(1.0);
    for _ in 1..rounds {
        column.push(buffers.iter().sum());
        buffers.iter_mut().zip(buffer_decay).for_each(|(b, decay)| *b *= decay);
    }
    Ok(column)
}

pub(super) fn sensitivity(
    column: &[f64],
    segments: &[Segment],
    limits: Limits,
) -> Result<MatrixSensitivity, EventError> {
    let monotone = column.windows(2).all(|w| w[1] <= w[0]);
    let bound =
        if monotone { of_monotone(column, segments, limits) } else { of_autocorrelation(column, segments, limits) };
    // Sums of non-negative terms: the computed value is within so much of the true one.
    let rounds: f64 = segments.iter().map(|s| s.rounds as f64).sum();
    let terms = rounds.min(limits.count as f64 * column.len() as f64);
    let rounding = 1.0 + (terms + 8.0) * f64::EPSILON;
    Ok(MatrixSensitivity { squared: bound.squared * rounding, ..bound })
}

/// Squared norm of the sum of `count` columns `distance` apart, by how many rounds are left from the first on.
struct SpacedColumns<'a> {
    column: &'a [f64],
    distance: u64,
}

impl SpacedColumns<'_> {
    fn squared(&self, count: u64, rounds: u64) -> f64 {
        self.squared_by_rounds(count, rounds).last().copied().unwrap_or(0.0)
    }

    /// `[m]` is the squared norm when `m + 1` rounds are left.
    fn squared_by_rounds(&self, count: u64, rounds: u64) -> Vec<f64> {
        let band = self.column.len() as u64;
        let mut total = 0.0;
        (0..rounds)
            .map(|t| {
                let newest = (t / self.distance).min(count - 1);
                // Participation i is still felt at t when t - i * distance < band.
                let oldest = (t + 1).saturating_sub(band).div_ceil(self.distance);
                let at_t: f64 = (oldest..=newest).map(|i| self.column[(t - i * self.distance) as usize]).sum();
                total += at_t * at_t;
                total
            })
            .collect()
    }

    fn work(&self, count: u64, rounds: u64) -> u64 {
        let at_once = (self.column.len() as u64).div_ceil(self.distance).min(count);
        rounds.saturating_mul(at_once + 1)
    }
}

fn of_monotone(column: &[f64], segments: &[Segment], limits: Limits) -> MatrixSensitivity {
    let columns = SpacedColumns { column, distance: limits.distance };
    let counts = |s: &Segment| limits.fitting(s.rounds);
    let affordable = |one: u64| one <= WORK_LIMIT;
    if let [only] = segments {
        if affordable(columns.work(counts(only), only.rounds)) {
            return MatrixSensitivity { squared: columns.squared(counts(only), only.rounds), attained: true };
        }
    } else {
        let most = segments.iter().map(counts).max().unwrap_or(1);
        let longest = super::longest_segment(segments);
        if affordable(columns.work(most, longest).saturating_mul(most)) {
            let tables: Vec<Vec<f64>> = (1..=most).map(|c| columns.squared_by_rounds(c, longest)).collect();
            return MatrixSensitivity { squared: search_counts(&tables, segments, limits), attained: true };
        }
    }
    of_autocorrelation(column, segments, limits)
}

/// The best split of the participations over the segments; `tables[c - 1][m]` as in `squared_by_rounds`.
fn search_counts(tables: &[Vec<f64>], segments: &[Segment], limits: Limits) -> f64 {
    // placed[c]: with c participations so far, the value and the round before which no further one may come.
    let mut placed: Vec<Vec<(f64, u64)>> = vec![Vec::new(); limits.count as usize + 1];
    placed[0].push((0.0, 0));
    let mut start = 0;
    for segment in segments {
        let end = start + segment.rounds;
        let mut next = placed.clone();
        for (before, options) in placed.iter().enumerate() {
            for &(value, free_from) in options {
                let first = free_from.max(start);
                for (count, table) in (1u64..).zip(tables).take(placed.len() - 1 - before) {
                    let last = first + (count - 1) * limits.distance;
                    if last >= end {
                        break;
                    }
                    let value = value + table[(end - first - 1) as usize];
                    keep_best(&mut next[before + count as usize], value, last + limits.distance);
                }
            }
        }
        placed = next;
        start = end;
    }
    placed.iter().flatten().map(|p| p.0).fold(0.0, f64::max)
}

fn keep_best(options: &mut Vec<(f64, u64)>, value: f64, free_from: u64) {
    if options.iter().any(|o| o.0 >= value && o.1 <= free_from) {
        return;
    }
    options.retain(|o| !(value >= o.0 && free_from <= o.1));
    options.push((value, free_from));
}

/// An upper bound for any non-negative column: with `r_g` its autocorrelation, participations p and q of a segment
/// overlap by at most `max r_g` over `g >= |p - q| * distance`.
fn of_autocorrelation(column: &[f64], segments: &[Segment], limits: Limits) -> MatrixSensitivity {
    let squared_norm: f64 = column.iter().map(|c| c * c).sum();
    let bands = column.len() as u64;
    if limits.distance >= bands {
        let disjoint = limits.count as f64 * squared_norm;
        return MatrixSensitivity { squared: disjoint, attained: false };
    }
    let overlap = largest_overlaps(column, limits.distance);
    let of_segment = |segment: &Segment| {
        let k = limits.fitting(segment.rounds) as f64;
        let pairs: f64 = (1u64..).zip(&overlap).map(|(m, r)| (k - m as f64).max(0.0) * r).sum();
        k * squared_norm + 2.0 * pairs
    };
    // Merging all segments into one only adds overlaps, and so does allowing every segment its fill.
    let whole = of_segment(&Segment::of(segments.iter().map(|s| s.rounds).sum()));
    let apart: f64 = segments.iter().map(of_segment).sum();
    MatrixSensitivity { squared: whole.min(apart), attained: false }
}

/// `[m - 1]` is the largest autocorrelation at a lag of at least `m * distance`.
fn largest_overlaps(column: &[f64], distance: u64) -> Vec<f64> {
    let distance = distance as usize;
    let lags = (column.len() - 1) / distance;
    // Exact at affordable sizes; otherwise Cauchy-Schwarz with the tail of the column.
    let exact = (column.len() as u64).saturating_mul(column.len() as u64) <= WORK_LIMIT;
    let mut overlaps = vec![0.0; lags];
    let mut largest = 0.0f64;
    if exact {
        for lag in (distance..column.len()).rev() {
            largest = largest.max(column.iter().zip(&column[lag..]).map(|(a, b)| a * b).sum());
            if lag % distance == 0 {
                overlaps[lag / distance - 1] = largest;
            }
        }
    } else {
        let norm = libm::sqrt(column.iter().map(|c| c * c).sum());
        let mut tail = 0.0;
        for lag in (distance..column.len()).rev() {
            tail += column[lag] * column[lag];
            if lag % distance == 0 {
                overlaps[lag / distance - 1] = norm * libm::sqrt(tail);
            }
        }
    }
    overlaps
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The definition: every pattern of participation, the dense block-diagonal matrix.
    fn by_enumeration(column: &[f64], segments: &[Segment], limits: Limits) -> f64 {
        fn extend(chosen: &mut Vec<u64>, from: u64, rounds: u64, limits: Limits, visit: &mut impl FnMut(&[u64])) {
            visit(chosen);
            if (chosen.len() as u64) < limits.count {
                for position in from..rounds {
                    chosen.push(position);
                    extend(chosen, position + limits.distance, rounds, limits, visit);
                    chosen.pop();
                }
            }
        }
        let mut best = 0.0f64;
        extend(&mut Vec::new(), 0, segments.iter().map(|s| s.rounds).sum(), limits, &mut |chosen| {
            let (mut total, mut start) = (0.0, 0);
            for s in segments {
                for t in start..start + s.rounds {
                    let row: f64 = chosen
                        .iter()
                        .filter(|p| **p >= start && **p <= t)
                        .filter_map(|p| column.get((t - p) as usize))
                        .sum();
                    total += row * row;
                }
                start += s.rounds;
            }
            best = best.max(total);
        });
        best
    }

    fn cases() -> impl Iterator<Item = (Vec<Segment>, Limits)> {
        let layouts = [vec![11], vec![5, 6], vec![3, 8, 2], vec![1, 1, 1, 9]];
        layouts.into_iter().flat_map(|layout| {
            (1..=5).flat_map(move |distance| {
                let segments: Vec<Segment> = layout.iter().map(|r| Segment::of(*r)).collect();
                (1..=4).map(move |count| (segments.clone(), Limits { distance, count }))
            })
        })
    }

    #[test]
    fn p5_monotone_columns_equal_enumeration() {
        let columns: [&[f64]; 4] = [
            &[1.0],
            &[1.0, 0.5, 0.3, 0.2],
            &[1.0, 1.0, 0.25],
            &[1.0, 0.7, 0.6, 0.5, 0.4, 0.3, 0.25, 0.2, 0.1, 0.1, 0.05],
        ];
        for (column, (segments, limits)) in columns.iter().flat_map(|c| cases().map(move |case| (c, case))) {
            let got = sensitivity(column, &segments, limits).unwrap();
            let want = by_enumeration(column, &segments, limits);
            assert!(got.attained);
            assert!((got.squared - want).abs() <= 1e-12 * want, "{column:?} {segments:?} {limits:?}: {got:?} {want}");
        }
    }

    #[test]
    fn p5_other_columns_are_bounded_from_above() {
        let columns: [&[f64]; 3] = [&[0.5, 1.0, 0.3], &[1.0, 0.0, 0.9, 0.1], &[0.2, 0.3, 0.4, 0.5, 1.0]];
        for (column, (segments, limits)) in columns.iter().flat_map(|c| cases().map(move |case| (c, case))) {
            let got = sensitivity(column, &segments, limits).unwrap();
            let want = by_enumeration(column, &segments, limits);
            assert!(!got.attained && got.squared >= want, "{column:?} {segments:?} {limits:?}: {got:?} {want}");
        }
    }

    #[test]
    fn p5_the_fallback_bounds_are_never_below() {
        let column = [1.0, 0.7, 0.6, 0.5, 0.4, 0.3, 0.25, 0.2, 0.1];
        for (segments, limits) in cases() {
            let want = by_enumeration(&column, &segments, limits);
            assert!(of_autocorrelation(&column, &segments, limits).squared >= want * (1.0 - 1e-12));
        }
    }

    #[test]
    fn a_blt_with_one_buffer_is_a_geometric_column() {
        assert_eq!(blt_column(&[0.5], &[0.25], 4).unwrap(), [1.0, 0.25, 0.125, 0.0625]);
    }
}
