//! The clipped denominator (McMahan et al. 2018, section 2, estimator f_c; rule P10): the sum of the weighted updates,
//! divided by the sum of the weights or by q W_min, whichever is more.
//!
//! The integer sum is divided by the integer weight onto a grid, exactly; the noise goes on the quotient, and the sum of
//! the weights is gone. The quotient is no sum: it is made here and nowhere else, gets independent noise only, and has a
//! sensitivity of its own.
//!
//! With n_k a user's integers, w_k the integer weight, h the weight of 1 and S the bound on the integers of a user of full
//! weight, [`super::Encoded`] has checked `|n_k| <= S w_k / h` and `w_k <= h`. Let N and W be the sums of the n_k and the
//! w_k, M the integer q W_min and `D = max(M, W)`; primes are with one user k more. Then `|N| / D <= S W / (h D) <= S / h`,
//! `0 <= D' - D <= w_k <= h` and `D' >= M`, and (Lemma 1 of the paper, whose proof needs the bound by the weight as well)
//!
//! ```text
//! |N'/D' - N/D| = |n_k/D' - (N/D) (D' - D)/D'| <= (S w_k / h) / D' + (S / h) w_k / D' <= 2 S / M.
//! ```
//!
//! In units of a weight of 1 that is 2 S / (q W_min). Rounding moves each of two neighbours by at most half a grid step in
//! each of d coordinates: `sqrt(d)` steps more. To replace a user is to remove one and to add one: twice the lemma's part,
//! and the rounding once.

use super::Sum;
use crate::{
    encoding::{
        Encoding, EncodingError, NoisePlan,
        layout::{FULL_WEIGHT, LayoutSegment, SegmentKind, sqrt_up},
    },
    event::Adjacency,
};

/// What the lemma's part of the sensitivity is at most, in grid steps. The grid is the finest that keeps it: then what
/// rounding adds to the sensitivity is next to nothing (1,550 steps for 2.4 million coordinates).
const LEMMA_STEPS: f64 = (1 << 26) as f64;
/// The finest grid: numerators fit 128 bits.
const MOST_GRID_BITS: u32 = 48;
/// The largest q W_min: as many users as a sum takes.
const MOST_LEAST_WEIGHT: f64 = (1u64 << 31) as f64;

/// Divides sums by their weight. Sums of another clip norm need another one, whose integers, noise and event are the same.
#[derive(Debug, Clone)]
pub struct Quotient {
    sums: Encoding,
    quotients: Encoding,
    /// Where the sums have their weight.
    weight: usize,
    /// q W_min, in grid steps of the weight.
    least_weight: i64,
}

impl Quotient {
    /// For sums of an encoding with weights and without noise, the smallest denominator `least_weight` (q W_min) and the
    /// noise of the quotient and of the segments beside it; `None` is a run without privacy.
    ///
    /// # Errors
    /// When the encoding has no weights, or noise that would never be used; when `least_weight` is not a number from
    /// 2^-15 to 2^31; when the noise contradicts the segments.
    pub fn new(
        encoding: &Encoding,
        least_weight: f64,
        noise: Option<&NoisePlan>,
        adjacency: Adjacency,
    ) -> Result<Self, EncodingError> {
        let refuse = |field, problem: &str| Err(EncodingError::Plan { field, problem: problem.to_owned() });
        let Some((_, weight)) = encoding.layout().find(SegmentKind::Weight) else {
            return refuse("weight", "the clipped denominator needs users to report their weight");
        };
        if encoding.layout().segments().iter().any(|s| s.sigma != 0) {
            return refuse(
                "noise",
                "with the clipped denominator the noise is on the quotient, so the sum must have none",
            );
        }
        // Rounded down, and the sensitivity is for what it was rounded to.
        let units = libm::floor(least_weight * f64::from(FULL_WEIGHT));
        if !(1.0..=MOST_LEAST_WEIGHT * f64::from(FULL_WEIGHT)).contains(&units) {
            return refuse("least_weight", "the smallest denominator must be from 2^-15 to 2^31");
        }
        let (segment, grid_bits) = segment_of(encoding, units);
        let quotients = encoding.quotient(segment, grid_bits, noise, adjacency)?;
        Ok(Self { sums: encoding.clone(), quotients, weight: weight.start, least_weight: units as i64 })
    }

    /// How quotients are laid out and read: the quotient, then what else the sums have, without the weight. It reads a
    /// release as the average itself, so that there is nothing left to divide by; no user encodes with it.
    #[must_use]
    pub const fn encoding(&self) -> &Encoding {
        &self.quotients
    }

    /// How far one user can move the average, in the units of the model.
    #[must_use]
    pub fn sensitivity(&self, adjacency: Adjacency) -> f64 {
        self.quotients.layout().segments()[0].sensitivity(adjacency) * self.quotients.grid_step()
    }

    /// The weighted average, on the grid, to the nearest; what else the sum has stays, the weight goes.
    ///
    /// # Errors
    /// When the sum is of another encoding, when it is asserted, since nobody checked then that updates keep to their
    /// weights, or when processes added up more update than its weight allows.
    pub fn divide(&self, mut sum: Sum) -> Result<Sum, EncodingError> {
        if sum.id != self.sums.id() {
            return Err(EncodingError::Mixed);
        }
        if sum.asserted {
            return Err(EncodingError::Asserted);
        }
        let (from, to) = (self.sums.plan().grid_bits, self.quotients.plan().grid_bits);
        let denominator = i128::from(sum.values[self.weight].max(self.least_weight)) << from;
        let factor = i128::from(FULL_WEIGHT) << to;
        for v in &mut sum.values[..self.quotients.layout().segments()[0].len] {
            *v = nearest(i128::from(*v) * factor, denominator).ok_or_else(|| EncodingError::Bound {
                segment: SegmentKind::Weight,
                problem: "the sum of the updates exceeds what their weight allows".to_owned(),
            })?;
        }
        let mut quotient = Sum::zero(&self.quotients);
        let (before, after) = sum.values.split_at(self.weight);
        let kept = before.iter().chain(&after[1..]);
        quotient.values.iter_mut().zip(kept).for_each(|(to, from)| *to = *from);
        Ok(quotient)
    }
}

/// The quotient's segment, without noise, and the bits of its grid.
fn segment_of(encoding: &Encoding, least_weight: f64) -> (LayoutSegment, u32) {
    let update = encoding.layout().segments()[0];
    let bound = sqrt_up(update.norm_squared) / (1u64 << encoding.plan().grid_bits) as f64;
    // The lemma's part for a grid of so many bits, rounded up.
    let lemma = |grid_bits: u32| {
        let steps = 2.0 * bound * f64::from(FULL_WEIGHT) / least_weight * (1u64 << grid_bits) as f64;
        steps * (1.0 + 8.0 * f64::EPSILON)
    };
    let grid_bits = (1..=MOST_GRID_BITS).rev().find(|bits| lemma(*bits) <= LEMMA_STEPS).unwrap_or(1);
    let moved = lemma(grid_bits) + sqrt_up(update.len as u64);
    let norm_squared = libm::ceil(moved * moved * (1.0 + 8.0 * f64::EPSILON)) as u64;
    let segment = LayoutSegment {
        kind: SegmentKind::Quotient,
        len: update.len,
        norm_squared,
        largest: libm::floor(moved) as u32,
        sigma: 0,
    };
    (segment, grid_bits)
}

/// The nearest integer to a quotient; of two, the upper one.
fn nearest(numerator: i128, denominator: i128) -> Option<i64> {
    i64::try_from((2 * numerator + denominator).div_euclid(2 * denominator)).ok()
}
