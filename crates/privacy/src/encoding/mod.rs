//! Encodes floats as checked integers: grid, rounding, rotation, and the layout of the vector.
//!
//! A clipped update of norm at most C becomes integers on a grid of step `C / 2^k`, so its norm is at most 2^k steps,
//! plus what rounding adds; the integer norm is checked exactly against that. Since the step follows the clip, integers,
//! noise and modulus stay the same when the clip moves (rule P9). With rotation (Xu et al. 2023, Algorithm 2) the update
//! is spread over its padded coordinates and each is clipped; only the update is rotated, clip bit, weight and counts are
//! appended as exact integers (rule P19).

mod carried;
mod distributed;
pub mod layout;
mod measured;
mod packing;
mod pairs;
pub mod rotation;
mod rounding;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use thiserror::Error;

pub use self::{
    distributed::{DistributedNoise, Survivors},
    layout::{Layout as VectorLayout, SegmentKind as VectorSegment},
    packing::Packing,
    rounding::{Rounding, XU_ALPHA},
};
use self::{
    layout::{FULL_WEIGHT, HALF_BIT, Layout, LayoutSegment, SegmentKind, sigma_for},
    rotation::Rotation,
    rounding::{Limits, Size},
};
pub(crate) use self::{
    measured::Measured,
    packing::{Reached, Unpacking},
};
use crate::{
    event::Adjacency,
    rng::RandomWords,
    units::{ClipNorm, NoiseMultiplier},
    workers::{self, Undone, Workers},
};

/// Coordinates that one worker reads at a time.
const PIECE: usize = 1 << 14;

/// The finest grid: one user's coordinates and their sum of squares fit machine words.
pub const MOST_GRID_BITS: u32 = 28;
/// The longest update: with the segments after it, its length fits a machine word of 32 bits.
const MOST_COORDINATES: usize = 1 << 31;

/// Why something cannot be encoded or decoded.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum EncodingError {
    /// A plan without meaning.
    #[error("{field}: {problem}")]
    Plan {
        /// The field.
        field: &'static str,
        /// A description of the problem.
        problem: String,
    },
    /// A sealed sum that does not open.
    #[error(
        "the sealed sum cannot be opened: it is damaged, or belongs to another key, another attempt or other users"
    )]
    Sealed,
    /// More noise than the samplers draw.
    #[error("the noise would need a parameter of {sigma:e} grid steps; use fewer grid_bits or less noise")]
    TooMuchNoise {
        /// The parameter.
        sigma: f64,
    },
    /// The auxiliary segments alone spend more than the whole release may.
    #[error(
        "clip bit, weight and counts alone have a noise multiplier of {auxiliary}, which leaves nothing for the update if all together have {joint}; give them more noise"
    )]
    Split {
        /// The multiplier of all of them together.
        auxiliary: f64,
        /// The multiplier asked for.
        joint: f64,
    },
    /// A vector of the wrong length.
    #[error("expected {expected} coordinates, got {got}")]
    Length {
        /// The length of the encoding.
        expected: usize,
        /// The value received.
        got: usize,
    },
    /// A vector of the wrong number of bytes.
    #[error("expected {expected} bytes, got {got}")]
    Bytes {
        /// What the vector of the encoding has.
        expected: usize,
        /// The value received.
        got: usize,
    },
    /// An update that was clipped to another norm than the encoding's.
    #[error("the update was clipped to {got}, but the encoding is for {expected}")]
    Clip {
        /// The encoding's.
        expected: f64,
        /// The update's.
        got: f64,
    },
    /// Values that no honest user sends.
    #[error("the {segment:?} segment exceeds its bound: {problem}")]
    Bound {
        /// The segment.
        segment: SegmentKind,
        /// A description of the problem.
        problem: String,
    },
    /// Workers that left something out.
    #[error(transparent)]
    Undone(#[from] Undone),
    /// An encoding that arrived is not the one that was sent.
    #[error("the received encoding is not the one that was sent; run the same version on both sides")]
    Other,
    /// Vectors of different encodings cannot be added.
    #[error("vectors of different encodings cannot be added")]
    Mixed,
    /// More users than a sum can hold without overflow.
    #[error("a sum holds at most 2^31 users")]
    TooManyUsers,
    /// A sum that nobody checked, where every part must be known to keep its bounds.
    #[error(
        "the vectors of the sum were not checked one by one, which the clipped denominator needs to bound each update by its weight; use a fixed denominator"
    )]
    Asserted,
    /// Residues of more bits than there are.
    #[error(
        "sums of {most_inputs} vectors need residues of {bits} bits, but at most 32 are supported; turn on privacy.rotation, or use fewer grid_bits or a smaller cohort"
    )]
    Modulus {
        /// The bits that are needed.
        bits: u32,
        /// The vectors of a round.
        most_inputs: u64,
    },
    /// A number that is no residue.
    #[error("{got} is not a residue of {bits} bits")]
    Residue {
        /// The value received.
        got: u32,
        /// Bits of the modulus.
        bits: u32,
    },
    /// Fewer or more users than a sum may be of.
    #[error("the sum has {got} users, expected from {least} to {most}")]
    Survivors {
        /// The number of survivors given.
        got: u64,
        /// The fewest whose noise is enough.
        least: u64,
        /// The most that do not overflow.
        most: u64,
    },
    /// Vectors with noise where they have none, or without it.
    #[error("{0}")]
    Noised(&'static str),
}

/// Capped counts beside the update.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Counts {
    /// Number of coordinates.
    pub len: usize,
    /// The most that one user counts in each.
    pub cap: u32,
}

/// The contents of a run's vector, and how it is rounded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VectorPlan {
    /// Coordinates of the update.
    pub dimension: usize,
    /// k: the grid step is C / 2^k.
    pub grid_bits: u32,
    /// How coordinates become integers.
    pub rounding: Rounding,
    /// The seed of the random rotation, public; none is no rotation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rotation_seed: Option<[u8; 32]>,
    /// Whether users say if they were under the tracked clip.
    #[serde(default)]
    pub clip_bit: bool,
    /// Whether users say their weight.
    #[serde(default)]
    pub weight: bool,
    /// Counts that users say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counts: Option<Counts>,
}

impl VectorPlan {
    /// An update alone: nearest rounding, no rotation.
    #[must_use]
    pub const fn of_update(dimension: usize, grid_bits: u32) -> Self {
        Self {
            dimension,
            grid_bits,
            rounding: Rounding::Nearest,
            rotation_seed: None,
            clip_bit: false,
            weight: false,
            counts: None,
        }
    }
}

/// The noise of a release: jointly, and that of each segment beside the update.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NoisePlan {
    /// z: the multiplier of the whole release.
    pub multiplier: NoiseMultiplier,
    /// sigma_b: the standard deviation of the noise on the number of users under the clip (Andrew et al. 2021).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clip_count_stddev: Option<f64>,
    /// The multiplier of the sum of weights.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<NoiseMultiplier>,
    /// The multiplier of the counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counts: Option<NoiseMultiplier>,
}

impl NoisePlan {
    /// Noise on an update alone.
    #[must_use]
    pub const fn of_update(multiplier: NoiseMultiplier) -> Self {
        Self { multiplier, clip_count_stddev: None, weight: None, counts: None }
    }
}

/// The multiplier that is left for the update when the whole release has `joint` and the other segments have theirs:
/// `(z^-2 - sum z_i^-2)^(-1/2)`. With the clip bit alone, whose multiplier is `2 sigma_b`, it is Theorem 1 of Andrew et
/// al. 2021.
///
/// # Errors
/// When the others alone spend all of it.
pub fn split(joint: NoiseMultiplier, others: &[f64]) -> Result<NoiseMultiplier, EncodingError> {
    let spent: f64 = others.iter().map(|z| 1.0 / (z * z)).sum();
    let precision = 1.0 / (joint.get() * joint.get()) - spent;
    let refused = EncodingError::Split { auxiliary: 1.0 / libm::sqrt(spent), joint: joint.get() };
    if precision.is_nan() || precision <= 0.0 {
        return Err(refused);
    }
    NoiseMultiplier::new(1.0 / libm::sqrt(precision)).map_err(|_| refused)
}

/// The encoding of a round's vectors: one value for the device, the aggregator and the release.
#[derive(Debug, Clone)]
pub struct Encoding {
    plan: VectorPlan,
    clip: ClipNorm,
    rotation: Option<Rotation>,
    layout: Layout,
    id: EncodingId,
    /// How many coordinates of the update are in a report, each with its place; none for all.
    few: Option<usize>,
}

/// How a coordinate becomes an integer: scaled ([`Encoding::grid_scale`]) and rounded to a float, cut to the limit, rounded to an
/// integer. The integers of a user keep the largest and the norm, exactly.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GridRule {
    /// Up or down at random, by the words of the user's stream; otherwise to the nearest, ties to even.
    pub stochastic: bool,
    /// What a scaled coordinate is cut to.
    pub limit: f32,
    /// The largest absolute value of an integer.
    pub largest: u32,
    /// The largest squared norm of all of them.
    pub norm_squared: u64,
    /// Whether a vector that rounding to nearest takes beyond these bounds is rounded towards zero, coordinate by coordinate, and
    /// nothing else. So it is where a scaled vector within the clip norm keeps the bound with room to spare; otherwise it may be shrunk
    /// first.
    pub truncates: bool,
}

/// Which encoding a vector belongs to; vectors of different ones are never added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct EncodingId([u8; 32]);

impl EncodingId {
    pub(crate) const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    #[cfg(test)]
    pub(crate) const fn for_tests(byte: u8) -> Self {
        Self([byte; 32])
    }
}

impl Encoding {
    /// The encoding of a plan for a clip norm, with the noise of its release; `None` is a run without privacy.
    ///
    /// # Errors
    /// When plan and noise contradict each other or cannot be carried out.
    pub fn new(
        plan: VectorPlan,
        clip: ClipNorm,
        noise: Option<&NoisePlan>,
        adjacency: Adjacency,
    ) -> Result<Self, EncodingError> {
        check_plan(&plan)?;
        let rotation = rotation_of(&plan)?;
        let mut segments = segments_of(&plan, rotation.as_ref());
        set_noise(&mut segments, noise, adjacency)?;
        let layout = Layout { segments };
        let id = id_of(&plan, clip, &layout);
        Ok(Self { plan, clip, rotation, layout, id, few: None })
    }

    /// The same encoding, where at most so many coordinates of an update are not zero, and reports hold so many, each with its place. Sums are
    /// of the same vectors: those of both forms can be added.
    ///
    /// # Errors
    /// When there are not so many coordinates, or updates are rotated: then few are zero.
    pub fn with_few(self, count: usize) -> Result<Self, EncodingError> {
        if self.rotation.is_some() || !(1..=self.plan.dimension).contains(&count) {
            let problem =
                format!("must be from 1 to {} of an update that is not rotated, got {count}", self.plan.dimension);
            return Err(EncodingError::Plan { field: "few", problem });
        }
        Ok(Self { few: Some(count), ..self })
    }

    /// How many coordinates of the update are in a report, where it is not all of them.
    #[must_use]
    pub const fn few(&self) -> Option<usize> {
        self.few
    }

    /// The same encoding for another clip norm: integers, noise and event are unchanged.
    #[must_use]
    pub fn with_clip(&self, clip: ClipNorm) -> Self {
        Self { clip, id: id_of(&self.plan, clip, &self.layout), ..self.clone() }
    }

    /// The segments of the vector.
    #[must_use]
    pub const fn layout(&self) -> &Layout {
        &self.layout
    }

    /// How a user's integers lie in the bytes of a report.
    #[must_use]
    pub fn packing(&self) -> Packing {
        let packing = Packing::from(&self.layout);
        match self.few {
            Some(count) => packing.with_few(count),
            None => packing,
        }
    }

    /// Which encoding this is.
    #[must_use]
    pub const fn id(&self) -> EncodingId {
        self.id
    }

    /// The norm that updates are clipped to.
    #[must_use]
    pub const fn clip(&self) -> ClipNorm {
        self.clip
    }

    /// Coordinates of the update.
    #[must_use]
    pub const fn dimension(&self) -> usize {
        self.plan.dimension
    }

    /// The step of the update's grid: C / 2^k.
    #[must_use]
    pub fn grid_step(&self) -> f64 {
        self.clip.get() / grid_norm(self.plan.grid_bits)
    }

    /// The plan of the vector.
    #[must_use]
    pub const fn plan(&self) -> &VectorPlan {
        &self.plan
    }

    /// How the quotient of this encoding's sums by their weight is read: a segment on a grid of its own in the update's
    /// place, no weight, and all else as it is.
    pub(crate) fn quotient(
        &self,
        quotient: LayoutSegment,
        grid_bits: u32,
        noise: Option<&NoisePlan>,
        adjacency: Adjacency,
    ) -> Result<Self, EncodingError> {
        let plan = VectorPlan { grid_bits, weight: false, ..self.plan.clone() };
        let kept =
            self.layout.segments.iter().filter(|s| ![SegmentKind::Update, SegmentKind::Weight].contains(&s.kind));
        let mut segments: Vec<LayoutSegment> = [quotient].into_iter().chain(kept.copied()).collect();
        set_noise(&mut segments, noise, adjacency)?;
        let layout = Layout { segments };
        let id = id_of(&plan, self.clip, &layout);
        Ok(Self { plan, clip: self.clip, rotation: self.rotation.clone(), layout, id, few: None })
    }

    /// What stands beside the integers of an update of this exact squared norm: clip bit, weight and counts, as far as the
    /// vector has them.
    #[must_use]
    pub fn beside(&self, side: i32, weight: f64, counts: &[u32], norm_squared: u128) -> Vec<i32> {
        let mut integers = Vec::new();
        if self.plan.clip_bit {
            integers.push(side);
        }
        if self.plan.weight {
            // Rounding can make the update a little longer than its weight's share: then the weight is that much more.
            let said = (weight * f64::from(FULL_WEIGHT)).round_ties_even() as u32;
            integers.push(said.max(self.least_weight(norm_squared)) as i32);
        }
        if let Some(Counts { len, cap }) = self.plan.counts {
            integers.extend((0..len).map(|i| counts.get(i).copied().unwrap_or(0).min(cap) as i32));
        }
        integers
    }

    /// How coordinates become integers, for engines that round elsewhere; none where updates are rotated first.
    #[must_use]
    pub fn grid_rule(&self) -> Option<GridRule> {
        let update = self.layout.segments[0];
        // Clipped and scaled coordinates are rounded to floats twice: their norm grows by less than 2^-22.
        let longest = grid_norm(self.plan.grid_bits).powi(2) * (1.0 + 2.0f64.powi(-21));
        let stochastic = self.plan.rounding != Rounding::Nearest;
        let rule = GridRule {
            stochastic,
            truncates: !stochastic && longest <= update.norm_squared as f64,
            limit: rotation::linf_limit(u64::from(update.largest)),
            largest: update.largest,
            norm_squared: update.norm_squared,
        };
        self.rotation.is_none().then_some(rule)
    }

    /// The factor from model units to grid steps, for a user of this weight.
    #[must_use]
    pub fn grid_scale(&self, weight: f64) -> f64 {
        weight * grid_norm(self.plan.grid_bits) / self.clip.get()
    }

    /// The smallest weight that covers an update's integers: their norm is at most the weight's share of the bound. It is
    /// never more than [`FULL_WEIGHT`], since the integers keep the bound.
    fn least_weight(&self, norm_squared: u128) -> u32 {
        let bound = self.layout.segments[0].norm_squared;
        let share = norm_squared as f64 / bound as f64;
        let mut weight = libm::floor(f64::from(FULL_WEIGHT) * libm::sqrt(share)) as u32;
        weight = weight.saturating_sub(1);
        while !covers(weight, norm_squared, bound) && weight < FULL_WEIGHT {
            weight += 1;
        }
        weight
    }

    /// The update's integers: scaled to the grid, rotated, clipped in every coordinate, rounded within the bound.
    pub(crate) fn encode_update(&self, values: &[f32], weight: f64, words: &mut RandomWords) -> Vec<i32> {
        let scale = self.grid_scale(weight);
        let update = self.layout.segments[0];
        let limits = Limits { norm_squared: update.norm_squared, largest: update.largest };
        let mut integers = Vec::with_capacity(self.layout.len());
        let plain = self.rotation.is_none() && self.plan.rounding == Rounding::Nearest;
        if plain && rounding::scaled_to_nearest(values, scale, limits, &mut integers) {
            return integers;
        }
        let mut scaled: Vec<f32> = values.iter().map(|v| (f64::from(*v) * scale) as f32).collect();
        if let Some(rotation) = &self.rotation {
            scaled.resize(update.len, 0.0);
            rotation.forward(&mut scaled);
        }
        rotation::clamp_linf(&mut scaled, u64::from(update.largest));
        rounding::round(&scaled, self.plan.rounding, limits, words, &mut integers);
        integers
    }

    /// The update of released integers, in the units of the model.
    pub(crate) fn decode_update(&self, values: &[i64], workers: &dyn Workers) -> Result<Vec<f32>, EncodingError> {
        let step = self.grid_step();
        match &self.rotation {
            None => {
                let mut update = vec![0.0; values.len()];
                let pieces = values.chunks(PIECE).zip(update.chunks_mut(PIECE));
                workers::all(workers, pieces, |_, (values, update)| {
                    update.iter_mut().zip(values).for_each(|(u, v)| *u = (*v as f64 * step) as f32);
                })?;
                Ok(update)
            }
            Some(rotation) => {
                let mut update: Vec<f64> = values.iter().map(|v| *v as f64 * step).collect();
                rotation.inverse_f64(&mut update);
                update.truncate(self.plan.dimension);
                Ok(update.iter().map(|v| *v as f32).collect())
            }
        }
    }

    /// Checks one user's integers, whose sizes were measured, against every bound of the layout, exactly.
    pub(crate) fn check(&self, values: &[i32], measured: &Measured) -> Result<(), EncodingError> {
        if values.len() != self.layout.len() || measured.len() != values.len() {
            return Err(EncodingError::Length { expected: self.layout.len(), got: values.len() });
        }
        let mut start = 0;
        for (segment, size) in self.layout.segments.iter().zip(measured.sizes()) {
            check_segment(segment, &values[start..start + segment.len], size)?;
            start += segment.len;
        }
        self.check_few(values)?;
        self.check_weight(values, measured)
    }

    /// What is not in the report would be lost.
    fn check_few(&self, values: &[i32]) -> Result<(), EncodingError> {
        let Some(most) = self.few else { return Ok(()) };
        match pairs::nonzero(&values[..self.layout.segments[0].len]) {
            got if got <= most => Ok(()),
            got => Err(EncodingError::Bound {
                segment: SegmentKind::Update,
                problem: format!("{got} coordinates are not zero, at most {most} are sent"),
            }),
        }
    }

    /// A user's update is at most the weight's share of the bound (rule P10), so that weighted averages are bounded too.
    fn check_weight(&self, values: &[i32], measured: &Measured) -> Result<(), EncodingError> {
        let Some((_, at)) = self.layout.find(SegmentKind::Weight) else { return Ok(()) };
        // The update is the first segment.
        let norm_squared = measured.sizes().next().unwrap_or_default().norm_squared;
        let (weight, least) = (values[at.start].unsigned_abs(), self.least_weight(norm_squared));
        if weight >= least {
            return Ok(());
        }
        let problem = format!("a weight of {weight} does not cover the update, which needs {least}");
        Err(EncodingError::Bound { segment: SegmentKind::Weight, problem })
    }
}

/// The exact squared norm of integers.
pub(crate) fn norm_squared_of(integers: &[i32]) -> u128 {
    rounding::norm_squared(integers)
}

/// Whether a squared norm is at most the weight's share of the bound, exactly.
fn covers(weight: u32, norm_squared: u128, bound: u64) -> bool {
    norm_squared * u128::from(FULL_WEIGHT).pow(2) <= u128::from(weight).pow(2) * u128::from(bound)
}

fn grid_norm(grid_bits: u32) -> f64 {
    (1u64 << grid_bits) as f64
}

fn check_plan(plan: &VectorPlan) -> Result<(), EncodingError> {
    let refuse = |field, problem: &str| Err(EncodingError::Plan { field, problem: problem.to_owned() });
    if !(1..=MOST_COORDINATES).contains(&plan.dimension) {
        return refuse("dimension", "must be at least 1 and at most 2^31");
    }
    if !(1..=MOST_GRID_BITS).contains(&plan.grid_bits) {
        return refuse("grid_bits", "must be from 1 to 28");
    }
    if !plan.rounding.is_legal() {
        return refuse("alpha", "must be above 0 and below 1");
    }
    match plan.counts {
        Some(Counts { len: 0, .. } | Counts { cap: 0, .. }) => refuse("counts", "len and cap must be at least 1"),
        Some(Counts { cap, .. }) if cap > 1 << 24 => refuse("counts", "cap must be at most 2^24"),
        Some(Counts { len, .. }) if len > 1 << 14 => refuse("counts", "there can be at most 2^14"),
        _ => Ok(()),
    }
}

fn rotation_of(plan: &VectorPlan) -> Result<Option<Rotation>, EncodingError> {
    let rotation = plan.rotation_seed.map(|seed| Rotation::new(plan.dimension, seed)).transpose();
    rotation.map_err(|e| EncodingError::Plan { field: "dimension", problem: e.to_string() })
}

fn segments_of(plan: &VectorPlan, rotation: Option<&Rotation>) -> Vec<LayoutSegment> {
    let norm = grid_norm(plan.grid_bits);
    let len = rotation.map_or(plan.dimension, Rotation::padded);
    let norm_squared = libm::floor(plan.rounding.norm_squared_bound(norm, len)) as u64;
    let largest = rotation.map_or(u64::MAX, |r| r.linf_bound(norm)).min(libm::sqrt(norm_squared as f64) as u64);
    let one =
        |kind, largest: u32| LayoutSegment { kind, len: 1, norm_squared: u64::from(largest).pow(2), largest, sigma: 0 };
    let mut segments =
        vec![LayoutSegment { kind: SegmentKind::Update, len, norm_squared, largest: largest as u32, sigma: 0 }];
    if plan.clip_bit {
        segments.push(one(SegmentKind::ClipBit, HALF_BIT));
    }
    if plan.weight {
        segments.push(one(SegmentKind::Weight, FULL_WEIGHT));
    }
    if let Some(counts) = plan.counts {
        let norm_squared = u64::from(counts.cap).pow(2) * counts.len as u64;
        let (len, largest) = (counts.len, counts.cap);
        segments.push(LayoutSegment { kind: SegmentKind::Counts, len, norm_squared, largest, sigma: 0 });
    }
    segments
}

/// Sets each segment's parameter so that the joint multiplier is at least the one asked for.
fn set_noise(
    segments: &mut [LayoutSegment],
    noise: Option<&NoisePlan>,
    adjacency: Adjacency,
) -> Result<(), EncodingError> {
    let Some(noise) = noise else { return Ok(()) };
    let discrete_gaussian = |wanted: f64| {
        let sigma = sigma_for(wanted)?;
        Ok((sigma, sigma as f64 * sigma as f64 - 9.0))
    };
    let sigmas = parameters(segments, noise, adjacency, discrete_gaussian)?;
    segments.iter_mut().zip(sigmas).for_each(|(segment, sigma)| segment.sigma = sigma);
    Ok(())
}

/// Each segment's parameter of noise, such that the joint multiplier is at least the one asked for. `of` says for a
/// standard deviation which parameter has it, and which variance an accountant grants that one.
fn parameters(
    segments: &[LayoutSegment],
    noise: &NoisePlan,
    adjacency: Adjacency,
    of: impl Fn(f64) -> Result<(u64, f64), EncodingError>,
) -> Result<Vec<u64>, EncodingError> {
    let has = |kind| segments.iter().any(|s| s.kind == kind);
    for (field, given, kind) in [
        ("clip_count_stddev", noise.clip_count_stddev.is_some(), SegmentKind::ClipBit),
        ("weight", noise.weight.is_some(), SegmentKind::Weight),
        ("counts", noise.counts.is_some(), SegmentKind::Counts),
    ] {
        if given && !has(kind) {
            return Err(EncodingError::Plan {
                field,
                problem: "noise for a segment that the vector does not have".into(),
            });
        }
    }
    let (mut others, mut found) = (Vec::new(), vec![0]);
    for segment in &segments[1..] {
        let z = multiplier_beside_the_update(segment.kind, noise)?;
        // sigma_b is relative to one user's half bit whatever the adjacency: P1's factor is the accountant's.
        let unit =
            segment.sensitivity(if segment.kind == SegmentKind::ClipBit { Adjacency::ZeroOut } else { adjacency });
        let (parameter, variance) = of(z * unit)?;
        found.push(parameter);
        others.push(libm::sqrt(variance) / segment.sensitivity(adjacency));
    }
    let update = split(noise.multiplier, &others)?;
    found[0] = of(update.get() * segments[0].sensitivity(adjacency))?.0;
    Ok(found)
}

/// The multiplier that the plan gives a segment beside the update.
fn multiplier_beside_the_update(kind: SegmentKind, noise: &NoisePlan) -> Result<f64, EncodingError> {
    let (field, given) = match kind {
        // Noise of 2 h sigma_b on values of +-h: a multiplier of 2 sigma_b.
        SegmentKind::ClipBit => ("clip_count_stddev", noise.clip_count_stddev.map(|sigma_b| 2.0 * sigma_b)),
        SegmentKind::Weight => ("weight", noise.weight.map(NoiseMultiplier::get)),
        SegmentKind::Counts => ("counts", noise.counts.map(NoiseMultiplier::get)),
        SegmentKind::Update | SegmentKind::Quotient => unreachable!("these come first"),
    };
    match given {
        Some(z) if z.is_finite() && z > 0.0 => Ok(z),
        Some(_) => Err(EncodingError::Plan { field, problem: "must be finite and above 0".into() }),
        None => Err(EncodingError::Plan {
            field,
            problem: "the vector has such a segment, so its noise must be given".into(),
        }),
    }
}

fn check_segment(segment: &LayoutSegment, values: &[i32], size: Size) -> Result<(), EncodingError> {
    let refuse = |problem: String| Err(EncodingError::Bound { segment: segment.kind, problem });
    let limits = Limits { norm_squared: segment.norm_squared, largest: segment.largest };
    if !size.keeps(limits) {
        let Size { largest, norm_squared } = size;
        return refuse(format!(
            "squared norm {norm_squared} and coordinates up to {largest}, at most {} and {} are allowed",
            segment.norm_squared, segment.largest
        ));
    }
    let half = HALF_BIT as i32;
    match segment.kind {
        SegmentKind::ClipBit if !values.iter().all(|v| [-half, 0, half].contains(v)) => {
            refuse(format!("a clip bit is {half}, -{half} or 0"))
        }
        SegmentKind::Quotient => refuse("a quotient is made of a sum: no user sends one".to_owned()),
        SegmentKind::Weight | SegmentKind::Counts if values.iter().any(|v| *v < 0) => {
            refuse("weights and counts are not negative".to_owned())
        }
        _ => Ok(()),
    }
}

fn id_of(plan: &VectorPlan, clip: ClipNorm, layout: &Layout) -> EncodingId {
    let mut hash = Sha256::new();
    hash.update(b"keyhush encoding v1");
    let form = serde_json::to_vec(&(plan, layout)).expect("plain numbers and names serialise");
    hash.update(form);
    hash.update(clip.get().to_bits().to_le_bytes());
    EncodingId(hash.finalize().into())
}
