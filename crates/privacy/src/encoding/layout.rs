//! The segments of a round's vector: how far one user moves each, and its noise.
//!
//! All segments are released together with independent noise, so what one user can do to all of them at once is one
//! event, computed here from the layout and nowhere else (Andrew et al. 2021, Theorem 1; rule P9).

use serde::{Deserialize, Serialize};

use super::EncodingError;
use crate::event::{Adjacency, DiscreteGaussian, JointDiscreteGaussian, Noise};

/// Half a clip bit, in grid steps: a user under the tracked clip counts `+HALF_BIT`, one over it `-HALF_BIT`, an absent
/// or unusable one 0.
pub const HALF_BIT: u32 = 1 << 15;
/// A weight of 1, in grid steps.
pub const FULL_WEIGHT: u32 = 1 << 15;

/// The kind of a segment of the vector.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SegmentKind {
    /// The update, rotated or not.
    Update,
    /// One coordinate: whether the update was under the tracked clip.
    ClipBit,
    /// One coordinate: the user's weight.
    Weight,
    /// Capped counts, such as tokens or right predictions.
    Counts,
    /// The update divided by the weight, in the update's place: see [`Quotient`](crate::stages::Quotient).
    Quotient,
}

/// A run of coordinates with one sensitivity and one noise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LayoutSegment {
    /// The kind of segment.
    pub kind: SegmentKind,
    /// The number of coordinates.
    pub len: usize,
    /// The largest squared L2 norm of one user's part, in squared grid steps; of a quotient, which has no such parts, the
    /// square of how far one user more or less can move it.
    pub norm_squared: u64,
    /// The largest absolute value of one user's coordinate; of a quotient, how far one user can move a coordinate.
    pub largest: u32,
    /// The parameter of its discrete Gaussian noise, in grid steps; 0 is no noise.
    pub sigma: u64,
}

impl LayoutSegment {
    /// How far one user can move it, in grid steps: the norm, or twice the norm where users are replaced (rule P1). Of a
    /// quotient that is rounded, the rounding counts once: who is replaced is not rounded a second time.
    #[must_use]
    pub fn sensitivity(&self, adjacency: Adjacency) -> f64 {
        let norm = sqrt_up(self.norm_squared);
        match (adjacency, self.kind) {
            (Adjacency::ReplaceOne, SegmentKind::Quotient) => {
                (2.0 * norm - libm::sqrt(self.len as f64)) * (1.0 + 4.0 * f64::EPSILON)
            }
            (Adjacency::ReplaceOne, _) => 2.0 * norm,
            _ => norm,
        }
    }
}

/// The square root, rounded up.
pub(crate) fn sqrt_up(squared: u64) -> f64 {
    libm::sqrt(squared as f64) * (1.0 + 4.0 * f64::EPSILON)
}

/// The smallest integer parameter whose noise has at least this standard deviation after what rule P3 subtracts.
pub(crate) fn sigma_for(wanted: f64) -> Result<u64, EncodingError> {
    let sigma = libm::ceil(libm::sqrt(wanted * wanted + 9.0) * (1.0 + 8.0 * f64::EPSILON));
    if !(sigma.is_finite() && sigma <= 2.0f64.powi(57)) {
        return Err(EncodingError::TooMuchNoise { sigma });
    }
    Ok((sigma as u64).max(DiscreteGaussian::MIN_SIGMA as u64))
}

/// The segments in their order: update, clip bit, weight, counts, as far as there are such.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layout {
    pub(crate) segments: Vec<LayoutSegment>,
}

impl Layout {
    /// The segments.
    #[must_use]
    pub fn segments(&self) -> &[LayoutSegment] {
        &self.segments
    }

    /// The segment of a kind, if there is one, and where its coordinates lie.
    #[must_use]
    pub fn find(&self, kind: SegmentKind) -> Option<(LayoutSegment, std::ops::Range<usize>)> {
        let mut start = 0;
        for segment in &self.segments {
            if segment.kind == kind {
                return Some((*segment, start..start + segment.len));
            }
            start += segment.len;
        }
        None
    }

    /// The number of coordinates of all segments.
    #[must_use]
    pub fn len(&self) -> usize {
        self.segments.iter().map(|s| s.len).sum()
    }

    /// Whether it is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The noise of one release of all segments, or none if a segment has none: then the release is not private.
    ///
    /// `slack` is what a mechanism's arithmetic adds to each segment's sensitivity: 0 for all but BLT.
    pub(crate) fn noise(&self, adjacency: Adjacency, slack: impl Fn(&LayoutSegment) -> f64) -> Option<Noise> {
        let part = |s: &LayoutSegment| DiscreteGaussian::new(s.sigma as f64, s.sensitivity(adjacency) + slack(s)).ok();
        let parts: Vec<DiscreteGaussian> = self.segments.iter().map(part).collect::<Option<_>>()?;
        match parts[..] {
            [only] => Some(Noise::DiscreteGaussian(only)),
            _ => JointDiscreteGaussian::new(parts).ok().map(Noise::JointDiscreteGaussian),
        }
    }
}
