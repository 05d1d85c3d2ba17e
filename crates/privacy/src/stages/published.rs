//! What anyone may see, and the event that pays for it: as plain data, which proves nothing, and as what a mechanism made.

use std::{
    ops::Deref,
    sync::atomic::{AtomicU64, Ordering},
};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{
    encoding::{
        Encoding, EncodingError, EncodingId,
        layout::{FULL_WEIGHT, HALF_BIT, Layout, SegmentKind},
    },
    event::PrivacyEvent,
    rng::Randomness,
    workers::{self, Alone, Undone, Workers},
};

/// Values that are written or read by one worker at a time.
const PIECE: usize = 1 << 14;

/// The plain data of a release: a noised sum, and what is known of it. Anyone may have it, keep it and read it back, so it is
/// no evidence of anything: that a mechanism made it says a [`Released`].
#[derive(Debug, Clone, PartialEq)]
pub struct Published {
    values: Vec<i64>,
    facts: Facts,
}

/// A release that a mechanism made, or, marked as not private, [`super::Sum::release_without_privacy`]. There is one of each, and
/// it cannot be read from bytes: it can only be made through all the stages before it. It reads as the [`Published`] that it is.
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

/// What stands before the values of a stored release.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    /// Bytes of each value: as few as all of them need.
    value_bytes: usize,
    facts: Facts,
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

    /// Everything of it, to publish.
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

    /// The origin of its noise.
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
        self.update_by(encoding, &Alone)
    }

    /// The same, computed by workers.
    ///
    /// # Errors
    /// As [`Self::update`]; and when they left something out.
    pub fn update_by(&self, encoding: &Encoding, workers: &dyn Workers) -> Result<Vec<f32>, EncodingError> {
        if encoding.id() != self.facts.encoding {
            return Err(EncodingError::Mixed);
        }
        let update = self.segment(SegmentKind::Update).or_else(|| self.segment(SegmentKind::Quotient));
        encoding.decode_update(update.unwrap_or_default(), workers)
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

    /// The bytes that are made durable together with the event: a header as JSON, its length before it, then the values as
    /// little-endian integers of as many bytes as the largest of them needs.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        self.to_bytes_by(&Alone).expect("whoever is alone leaves nothing out")
    }

    /// The same, written by workers.
    ///
    /// # Errors
    /// When they left something out.
    pub fn to_bytes_by(&self, workers: &dyn Workers) -> Result<Vec<u8>, Undone> {
        let value_bytes = value_bytes(&self.values, workers)?;
        let header = Header { value_bytes, facts: self.facts.clone() };
        let header = serde_json::to_vec(&header).expect("plain numbers and names serialise");
        let start = 8 + header.len();
        let mut bytes = vec![0; start + value_bytes * self.values.len()];
        bytes[..8].copy_from_slice(&(header.len() as u64).to_le_bytes());
        bytes[8..start].copy_from_slice(&header);
        let pieces = self.values.chunks(PIECE).zip(bytes[start..].chunks_mut(PIECE * value_bytes));
        workers::all(workers, pieces, |_, (values, bytes)| write_values(values, bytes, value_bytes))?;
        Ok(bytes)
    }

    /// Reads the bytes of [`Self::to_bytes`]; also of an older format, whose values had 8 bytes each and no header but the facts.
    ///
    /// # Errors
    /// When they are not such bytes.
    pub fn parse(bytes: &[u8]) -> Result<Self, UnreadableRelease> {
        let unreadable = |problem: &str| UnreadableRelease { problem: problem.to_owned() };
        let (length, rest) = bytes.split_first_chunk::<8>().ok_or_else(|| unreadable("too short"))?;
        let length = usize::try_from(u64::from_le_bytes(*length)).map_err(|_| unreadable("too long"))?;
        let (header, values) = rest.split_at_checked(length).ok_or_else(|| unreadable("too short"))?;
        let Header { value_bytes, facts } = serde_json::from_slice(header)
            .or_else(|e| serde_json::from_slice(header).map(|facts| Header { value_bytes: 8, facts }).map_err(|_| e))
            .map_err(|e| unreadable(&e.to_string()))?;
        if !(1..=8).contains(&value_bytes)
            || facts.coordinates().and_then(|n| n.checked_mul(value_bytes)) != Some(values.len())
        {
            return Err(unreadable("the values are not those of the layout"));
        }
        Ok(Self { values: values.chunks_exact(value_bytes).map(value).collect(), facts })
    }
}

/// Bytes that each of some values fits in.
fn value_bytes(values: &[i64], workers: &dyn Workers) -> Result<usize, Undone> {
    let used = AtomicU64::new(0);
    workers::all(workers, values.chunks(PIECE), |_, values| {
        // A negative number needs as many bits as what is left of it.
        let bits = pulp::Arch::new().dispatch(|| values.iter().fold(0, |bits, v| bits | (v ^ (v >> 63)) as u64));
        used.fetch_or(bits, Ordering::Relaxed);
    })?;
    let bits = u64::BITS - used.into_inner().leading_zeros() + 1;
    Ok(bits.div_ceil(8) as usize)
}

/// Writes values as little-endian integers of so many bytes.
fn write_values(values: &[i64], bytes: &mut [u8], value_bytes: usize) {
    /// With the number of bytes known to the compiler.
    fn write<const N: usize>(values: &[i64], bytes: &mut [u8]) {
        for (v, to) in values.iter().zip(bytes.as_chunks_mut::<N>().0) {
            to.copy_from_slice(&v.to_le_bytes()[..N]);
        }
    }
    match value_bytes {
        1 => write::<1>(values, bytes),
        2 => write::<2>(values, bytes),
        3 => write::<3>(values, bytes),
        4 => write::<4>(values, bytes),
        5 => write::<5>(values, bytes),
        6 => write::<6>(values, bytes),
        7 => write::<7>(values, bytes),
        _ => write::<8>(values, bytes),
    }
}

/// A little-endian integer of at most 8 bytes.
fn value(bytes: &[u8]) -> i64 {
    let mut eight = [0; 8];
    // At the upper end, so that the sign is where it belongs.
    eight[8 - bytes.len()..].copy_from_slice(bytes);
    i64::from_le_bytes(eight) >> (64 - 8 * bytes.len())
}

impl Facts {
    /// How many values there must be; none if that is more than there can be.
    fn coordinates(&self) -> Option<usize> {
        self.layout.segments().iter().try_fold(0usize, |all, segment| all.checked_add(segment.len))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Adjacency, ClipNorm,
        encoding::{Encoding, VectorPlan},
        stages::Sum,
    };

    /// A release of these values, whose event says that it is not private.
    fn released(values: &[i64]) -> Published {
        let plan = VectorPlan::of_update(values.len(), 14);
        let encoding = Encoding::new(plan, ClipNorm::new(1.0).unwrap(), None, Adjacency::AddOrRemove).unwrap();
        let zero = Sum::zero(&encoding).release_without_privacy(3, "a test", Randomness::Secret).into_published();
        Published { values: values.to_vec(), ..zero }
    }

    #[test]
    fn a_release_is_read_back_from_as_many_bytes_as_it_needs() {
        let ends = |bits: u32| [(1i64 << (bits - 1)) - 1, -(1i64 << (bits - 1))];
        for bytes in 1..=8u32 {
            let [most, least] = if bytes == 8 { [i64::MAX, i64::MIN] } else { ends(8 * bytes) };
            for values in [vec![0, most, 1], vec![-1, least, 0], vec![most; 2 * PIECE + 5]] {
                let one = released(&values);
                let written = one.to_bytes();
                let header = u64::from_le_bytes(*written.first_chunk().unwrap()) as usize;
                assert_eq!(written.len(), 8 + header + bytes as usize * values.len(), "{bytes}");
                assert_eq!(Published::parse(&written).unwrap(), one);
            }
        }
        assert_eq!(Published::parse(&released(&[0, 0]).to_bytes()).unwrap(), released(&[0, 0]));
    }

    /// Runs that were begun before have vectors of 8 bytes a value.
    #[test]
    fn what_was_stored_before_is_read() {
        let one = released(&[5, -7, 1 << 40]);
        let facts = serde_json::to_vec(&one.facts).unwrap();
        let mut written = (facts.len() as u64).to_le_bytes().to_vec();
        written.extend(facts);
        one.values.iter().for_each(|v| written.extend(v.to_le_bytes()));
        assert_eq!(Published::parse(&written).unwrap(), one);
        assert!(Published::parse(&written[..written.len() - 1]).is_err());
    }

    #[test]
    fn values_of_another_length_are_refused() {
        let one = released(&[5, -7, 300]);
        let written = one.to_bytes();
        for (from, to) in [(r#""value_bytes":2"#, r#""value_bytes":1"#), (r#""value_bytes":2"#, r#""value_bytes":0"#)] {
            let at = written.windows(from.len()).position(|w| w == from.as_bytes()).unwrap();
            let mut other = written.clone();
            other[at..at + from.len()].copy_from_slice(to.as_bytes());
            assert!(Published::parse(&other).is_err(), "{to}");
        }
    }
}
