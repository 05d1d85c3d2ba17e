//! What anyone may see, and the event that pays for it: as plain data, which proves nothing, and as what a mechanism made.

use std::ops::Deref;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{
    encoding::{
        Encoding, EncodingError, EncodingId,
        layout::{FULL_WEIGHT, HALF_BIT, Layout, SegmentKind},
    },
    event::PrivacyEvent,
    rng::Randomness,
};

/// The plain data of a release: a noised sum, and what is known of it. Anyone may have it, keep it and read it back, so it is
/// no evidence of anything: that a mechanism made it says a [`Released`].
#[derive(Debug, Clone, PartialEq)]
pub struct Published {
    values: Vec<i64>,
    facts: Facts,
}

/// A release that a mechanism made, or, marked as not private, [`super::Sum::release_without_privacy`]. There is one of each, and
/// it cannot be read from bytes: whoever has one has come by all the stages before it. It reads as the [`Published`] that it is.
#[must_use]
#[derive(Debug, PartialEq)]
pub struct Released(Published);

/// What is written beside the values.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Facts {
    layout: Layout,
    encoding: EncodingId,
    event: PrivacyEvent,
    randomness: Randomness,
    step: u64,
}

/// Bytes that are no release, or one that this version cannot read.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("the stored release cannot be read: {problem}")]
pub struct UnreadableRelease {
    problem: String,
}

impl Released {
    pub(crate) fn new(
        values: Vec<i64>,
        layout: Layout,
        encoding: EncodingId,
        event: PrivacyEvent,
        randomness: Randomness,
        step: u64,
    ) -> Self {
        Self(Published { values, facts: Facts { layout, encoding, event, randomness, step } })
    }

    /// What may be published of it: all.
    #[must_use]
    pub fn into_published(self) -> Published {
        self.0
    }
}

impl Deref for Released {
    type Target = Published;

    fn deref(&self) -> &Published {
        &self.0
    }
}

impl Published {
    /// The event that pays for this release. For correlated noise it stands for the run up to this step.
    #[must_use]
    pub const fn event(&self) -> &PrivacyEvent {
        &self.facts.event
    }

    /// Where its noise came from.
    #[must_use]
    pub const fn randomness(&self) -> Randomness {
        self.facts.randomness
    }

    /// Which step of its mechanism this is, from 0.
    #[must_use]
    pub const fn step(&self) -> u64 {
        self.facts.step
    }

    pub(crate) const fn encoding(&self) -> EncodingId {
        self.facts.encoding
    }

    pub(crate) const fn layout(&self) -> &Layout {
        &self.facts.layout
    }

    /// The integers, in grid steps.
    #[must_use]
    pub fn values(&self) -> &[i64] {
        &self.values
    }

    fn segment(&self, kind: SegmentKind) -> Option<&[i64]> {
        self.facts.layout.find(kind).map(|(_, range)| &self.values[range])
    }

    /// The noised sum of the updates, in the units of the model.
    ///
    /// # Errors
    /// When it was encoded differently.
    pub fn update(&self, encoding: &Encoding) -> Result<Vec<f32>, EncodingError> {
        if encoding.id() != self.facts.encoding {
            return Err(EncodingError::Mixed);
        }
        let update = self.segment(SegmentKind::Update).or_else(|| self.segment(SegmentKind::Quotient));
        Ok(encoding.decode_update(update.unwrap_or_default()))
    }

    /// The noised fraction of users under the tracked clip, `1/2 + sum / (2 h m)` with the planned number of users m,
    /// never the realised one (rule P9); none if users did not say.
    #[must_use]
    pub fn fraction_under_clip(&self, planned_users: f64) -> Option<f64> {
        let sum = self.segment(SegmentKind::ClipBit)?.first()?;
        Some(0.5 + *sum as f64 / (2.0 * f64::from(HALF_BIT) * planned_users))
    }

    /// The noised sum of the weights; none if users did not say.
    #[must_use]
    pub fn weight(&self) -> Option<f64> {
        self.segment(SegmentKind::Weight)?.first().map(|sum| *sum as f64 / f64::from(FULL_WEIGHT))
    }

    /// The noised counts.
    #[must_use]
    pub fn counts(&self) -> &[i64] {
        self.segment(SegmentKind::Counts).unwrap_or_default()
    }

    /// The bytes that are made durable together with the event: the facts as JSON, their length before them, then the
    /// values as 64-bit little-endian integers.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let facts = serde_json::to_vec(&self.facts).expect("plain numbers and names serialise");
        let mut bytes = Vec::with_capacity(8 + facts.len() + 8 * self.values.len());
        bytes.extend_from_slice(&(facts.len() as u64).to_le_bytes());
        bytes.extend_from_slice(&facts);
        self.values.iter().for_each(|v| bytes.extend_from_slice(&v.to_le_bytes()));
        bytes
    }

    /// Reads the bytes of [`Self::to_bytes`].
    ///
    /// # Errors
    /// When they are not such bytes.
    pub fn parse(bytes: &[u8]) -> Result<Self, UnreadableRelease> {
        let unreadable = |problem: &str| UnreadableRelease { problem: problem.to_owned() };
        let (length, rest) = bytes.split_first_chunk::<8>().ok_or_else(|| unreadable("too short"))?;
        let length = usize::try_from(u64::from_le_bytes(*length)).map_err(|_| unreadable("too long"))?;
        let (facts, values) = rest.split_at_checked(length).ok_or_else(|| unreadable("too short"))?;
        let facts: Facts = serde_json::from_slice(facts).map_err(|e| unreadable(&e.to_string()))?;
        let (values, rest) = values.as_chunks::<8>();
        if !rest.is_empty() || facts.coordinates() != Some(values.len()) {
            return Err(unreadable("the values are not those of the layout"));
        }
        Ok(Self { values: values.iter().map(|v| i64::from_le_bytes(*v)).collect(), facts })
    }
}

impl Facts {
    /// How many values there must be; none if that is more than there can be.
    fn coordinates(&self) -> Option<usize> {
        self.layout.segments().iter().try_fold(0usize, |all, segment| all.checked_add(segment.len))
    }
}
