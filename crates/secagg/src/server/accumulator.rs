//! Partial sums of masked inputs, and inputs being added to one.

use std::collections::BTreeMap;

use thiserror::Error;
use zeroize::Zeroizing;

use super::{Refusal, fates::Complaints};
use crate::{
    ClientId,
    masks::{self, BLOCK, Shape},
    message::masked_header,
    session::SessionId,
};

/// Lanes that are added at a time: all that an upload takes in memory.
const CHUNK: usize = 128 * BLOCK;

/// Adds packed lanes, or takes them off.
type OfPacked = fn(&mut [u32], &[u8], u32) -> Result<(), masks::MaskError>;

/// A spool cannot be written or read.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("an input on its way cannot be kept: {0}")]
pub struct SpoolError(pub String);

/// Stores a vector until it is complete: in a file, a database row, or memory for small rounds.
pub trait Spool {
    /// Puts bytes at the end.
    ///
    /// # Errors
    /// When they cannot be kept.
    fn put(&mut self, bytes: &[u8]) -> Result<(), SpoolError>;

    /// Fills a buffer from some byte on.
    ///
    /// # Errors
    /// When that is not there any more.
    fn read(&mut self, from: usize, buffer: &mut [u8]) -> Result<(), SpoolError>;
}

/// A spool in memory.
impl Spool for Vec<u8> {
    fn put(&mut self, bytes: &[u8]) -> Result<(), SpoolError> {
        self.extend_from_slice(bytes);
        Ok(())
    }

    fn read(&mut self, from: usize, buffer: &mut [u8]) -> Result<(), SpoolError> {
        let there = self.get(from..).and_then(|rest| rest.get(..buffer.len()));
        buffer.copy_from_slice(there.ok_or_else(|| SpoolError("it is shorter than it was".to_owned()))?);
        Ok(())
    }
}

/// A client's [`MaskedInput`](crate::message::MaskedInput) on its way. What comes before the vector stays here, and the vector
/// goes to a spool.
#[derive(Debug)]
pub struct Upload {
    from: ClientId,
    header: Vec<u8>,
    header_len: usize,
    spooled: usize,
    packed_len: usize,
}

impl Upload {
    pub(super) fn new(from: ClientId, degree: usize, shape: &Shape) -> Self {
        let header_len = masked_header(degree);
        Self { from, header: Vec::with_capacity(header_len), header_len, spooled: 0, packed_len: shape.packed_len() }
    }

    /// Takes the next bytes of the message.
    ///
    /// # Errors
    /// When they are more than a message has, or cannot be kept. The upload is of no use after that.
    pub fn push(&mut self, bytes: &[u8], spool: &mut dyn Spool) -> Result<(), Refusal> {
        let (header, vector) = bytes.split_at(bytes.len().min(self.header_len - self.header.len()));
        self.header.extend_from_slice(header);
        if vector.len() > self.packed_len - self.spooled {
            return Err(Refusal::Length { expected: self.packed_len, got: self.spooled + vector.len() });
        }
        spool.put(vector)?;
        self.spooled += vector.len();
        Ok(())
    }

    /// Bytes of the message that have come: where a transfer that broke off continues.
    #[must_use]
    pub fn received(&self) -> usize {
        self.header.len() + self.spooled
    }

    /// Bytes that the message has.
    #[must_use]
    pub const fn expected(&self) -> usize {
        self.header_len + self.packed_len
    }

    /// Who, and what it said before the vector, once all of it is there.
    pub(super) fn finish(self) -> Result<(ClientId, Vec<u8>), Refusal> {
        let (expected, got) = (self.expected(), self.received());
        if expected == got { Ok((self.from, self.header)) } else { Err(Refusal::Length { expected, got }) }
    }
}

/// Proof that a client's input was admitted. There is one for each, and adding the input uses it up.
#[derive(Debug)]
pub struct Claim {
    session: SessionId,
    position: u32,
    /// Whose shares were no good.
    complaints: Vec<u32>,
}

impl Claim {
    pub(super) const fn new(session: SessionId, position: u32, complaints: Vec<u32>) -> Self {
        Self { session, position, complaints }
    }

    pub(super) const fn session(&self) -> &SessionId {
        &self.session
    }

    pub(super) const fn position(&self) -> u32 {
        self.position
    }
}

/// A claim that was not added, and why.
#[derive(Debug)]
pub struct NotAdded {
    /// To be given back to the round.
    pub claim: Claim,
    /// The reason.
    pub why: Refusal,
}

/// The sum of some clients' masked inputs.
pub struct Accumulator {
    session: SessionId,
    shape: Shape,
    lanes: Zeroizing<Vec<u32>>,
    /// By position, with whose shares were no good.
    pub(super) inputs: BTreeMap<u32, Vec<u32>>,
    /// Half of an input is in it and could not be taken out again.
    spoiled: bool,
}

impl std::fmt::Debug for Accumulator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Accumulator({} inputs)", self.inputs.len())
    }
}

impl Accumulator {
    pub(super) fn new(session: SessionId, shape: Shape) -> Self {
        let lanes = Zeroizing::new(vec![0; shape.padded()]);
        Self { session, shape, lanes, inputs: BTreeMap::new(), spoiled: false }
    }

    /// Restores a saved accumulator.
    pub(super) fn restored(session: SessionId, shape: Shape, lanes: Vec<u32>, inputs: BTreeMap<u32, Vec<u32>>) -> Self {
        Self { session, shape, lanes: Zeroizing::new(lanes), inputs, spoiled: false }
    }

    /// How many inputs are in it.
    #[must_use]
    pub fn len(&self) -> usize {
        self.inputs.len()
    }

    /// Whether there is no input.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.inputs.is_empty()
    }

    /// Refuses one that is spoiled.
    pub(super) const fn check(&self) -> Result<(), Refusal> {
        if self.spoiled { Err(Refusal::Spoiled) } else { Ok(()) }
    }

    /// Refuses an input that is there.
    fn lacks(&self, position: u32) -> Result<(), Refusal> {
        if self.has(position) { Err(Refusal::Merged { position }) } else { Ok(()) }
    }

    pub(super) fn positions(&self) -> impl Iterator<Item = u32> + '_ {
        self.inputs.keys().copied()
    }

    pub(super) fn has(&self, position: u32) -> bool {
        self.inputs.contains_key(&position)
    }

    pub(super) const fn session(&self) -> &SessionId {
        &self.session
    }

    pub(super) const fn shape(&self) -> &Shape {
        &self.shape
    }

    pub(super) fn lanes(&self) -> &[u32] {
        &self.lanes
    }

    pub(super) fn into_lanes(self) -> Zeroizing<Vec<u32>> {
        self.lanes
    }

    pub(super) fn complaints(&self) -> Complaints {
        self.inputs.iter().flat_map(|(who, whose)| whose.iter().map(|w| (*who, *w))).collect()
    }

    /// Adds a vector that is whole in memory.
    pub(super) fn add_whole(&mut self, claim: Claim, packed: &[u8]) -> Result<(), Refusal> {
        self.lacks(claim.position)?;
        let expected = self.shape.packed_len();
        let length = |_| Refusal::Length { expected, got: packed.len() };
        masks::add_packed(&mut self.lanes, packed, self.shape.bits()).map_err(length)?;
        self.inputs.insert(claim.position, claim.complaints);
        Ok(())
    }

    /// Adds a vector from its spool. One that cannot be read to its end is taken out again.
    ///
    /// # Errors
    /// The claim, if nothing was added: when it is of another round, or the spool cannot be read. An accumulator out of which
    /// half a vector could not be taken again is spoiled: it cannot be merged, and the round takes back what was in it
    /// ([`CollectMasked::discard`](super::CollectMasked::discard)).
    pub fn add(&mut self, claim: Claim, spool: &mut dyn Spool) -> Result<(), NotAdded> {
        if claim.session != self.session {
            return Err(NotAdded { claim, why: Refusal::OtherSession });
        }
        if let Err(why) = self.check().and_then(|()| self.lacks(claim.position)) {
            return Err(NotAdded { claim, why });
        }
        let mut done = 0;
        if let Err(broken) = self.each_chunk(spool, usize::MAX, &mut done, masks::add_packed) {
            self.spoiled = self.each_chunk(spool, done, &mut 0, masks::subtract_packed).is_err();
            return Err(NotAdded { claim, why: broken.into() });
        }
        self.inputs.insert(claim.position, claim.complaints);
        Ok(())
    }

    /// Does something with the lanes and the bytes of each chunk, up to so many chunks; counts those that are done.
    fn each_chunk(
        &mut self,
        spool: &mut dyn Spool,
        most: usize,
        done: &mut usize,
        what: OfPacked,
    ) -> Result<(), SpoolError> {
        let mut buffer = vec![0; self.shape.packed_len_of(CHUNK.min(self.shape.padded()))];
        let mut from = 0;
        for lanes in self.lanes.chunks_mut(CHUNK).take(most) {
            let packed = &mut buffer[..self.shape.packed_len_of(lanes.len())];
            spool.read(from, packed)?;
            what(lanes, packed, self.shape.bits()).map_err(|e| SpoolError(e.to_string()))?;
            (from, *done) = (from + packed.len(), *done + 1);
        }
        Ok(())
    }

    /// Adds another's inputs to this one's.
    ///
    /// # Errors
    /// When it is of another round, one of both is spoiled, or they have an input in common; nothing is added then.
    pub fn merge(&mut self, other: Self) -> Result<(), Refusal> {
        if other.session != self.session || other.shape != self.shape {
            return Err(Refusal::OtherSession);
        }
        self.check()?;
        other.check()?;
        other.positions().try_for_each(|at| self.lacks(at))?;
        self.lanes.iter_mut().zip(&*other.lanes).for_each(|(sum, more)| *sum = sum.wrapping_add(*more));
        self.inputs.extend(other.inputs);
        Ok(())
    }
}
