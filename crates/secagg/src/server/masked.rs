//! Masked inputs, added up as they arrive. A round has one sum however many clients there are, and beside it what they dealt:
//! n k sealed shares of 108 bytes, which neighbours still have to be given ([`Holdings`](crate::message::Holdings)).
//!
//! A network brings inputs in pieces, many at a time. Each is spooled by the transport ([`Upload`], [`Spool`]) and
//! added when it is whole: the round lets a client's input in once ([`CollectMasked::claim`]), and what was let in is added
//! into any [`Accumulator`], on any thread, and with it merged into the round. An input that is not merged when the round
//! closes has not arrived.

use super::{
    Accumulator, Claim, CollectAgreement, NotAdded, Refusal, Round, RoundFailure, Spool, Upload, agreement::Summed,
    check_count, fates::Fates, shares::Dealt,
};
use crate::{
    ClientId,
    masks::Shape,
    message::{Delivery, MaskedInput, SEALED},
};

/// A round that adds up masked inputs.
pub struct CollectMasked {
    pub(super) round: Round,
    shape: Shape,
    pub(super) dealt: Vec<Option<Dealt>>,
    /// Whose input was let in: it is in some accumulator, or will be.
    claimed: Vec<bool>,
    pub(super) sum: Accumulator,
}

impl std::fmt::Debug for CollectMasked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CollectMasked({} of {})", self.arrived(), self.claimed.len())
    }
}

impl CollectMasked {
    pub(super) fn new(round: Round, dealt: Vec<Option<Dealt>>) -> Self {
        let shape = round.terms().shape().expect("the terms were checked when the round was opened");
        let claimed = vec![false; dealt.len()];
        let sum = Accumulator::new(round.session, shape);
        Self { round, shape, dealt, claimed, sum }
    }

    /// Continues with inputs that were added before.
    pub(super) fn with_sum(mut self, sum: Accumulator) -> Result<Self, Refusal> {
        sum.positions().for_each(|at| self.claimed[at as usize] = true);
        self.merge(sum)?;
        Ok(self)
    }

    /// The clients that shared and can send an input.
    pub fn clients(&self) -> impl Iterator<Item = ClientId> + '_ {
        self.round.clients().filter_map(|(client, at)| self.dealt[at as usize].is_some().then_some(client))
    }

    /// Whether a client shared.
    #[must_use]
    pub fn shared(&self, client: ClientId) -> bool {
        self.sender(client).is_ok()
    }

    /// The [`Delivery`] for a client that shared.
    #[must_use]
    pub fn delivery(&self, client: ClientId) -> Option<Vec<u8>> {
        let position = self.sender(client).ok()?;
        let sealed_by = |from: u32| -> Option<[u8; SEALED]> {
            let slot = self.round.graph.slot(from, position)?;
            self.dealt[from as usize].as_ref().map(|d| d.sealed[slot])
        };
        let sealed = self.round.graph.neighbours(position).into_iter().map(sealed_by).collect();
        Some(Delivery { session: self.round.session, sealed }.encode())
    }

    fn sender(&self, client: ClientId) -> Result<u32, Refusal> {
        let position = self.round.position(client)?;
        if self.dealt[position as usize].is_some() { Ok(position) } else { Err(Refusal::Stranger(client)) }
    }

    /// Takes a client's whole [`MaskedInput`] and adds it.
    ///
    /// # Errors
    /// When it is not one, or not one of this session.
    pub fn receive(&mut self, from: ClientId, bytes: &[u8]) -> Result<(), Refusal> {
        let MaskedInput { packed, .. } = MaskedInput::decode(bytes)?;
        let (expected, got) = (self.shape.packed_len(), packed.len());
        if expected != got {
            return Err(Refusal::Length { expected, got });
        }
        let claim = self.admit(from, bytes)?;
        self.claimed[claim.position() as usize] = true;
        self.sum.add_whole(claim, packed)
    }

    /// A place for a client's [`MaskedInput`] that comes in pieces.
    ///
    /// # Errors
    /// When the client takes no part, or its input is there already.
    pub fn upload(&self, from: ClientId) -> Result<Upload, Refusal> {
        let position = self.sender(from)?;
        if self.claimed[position as usize] {
            return Err(Refusal::Repeated(from));
        }
        Ok(Upload::new(from, self.round.parameters.degree() as usize, &self.shape))
    }

    /// Lets a whole upload in, once: what it gives back is added into an accumulator, and merged with it.
    ///
    /// # Errors
    /// When it is not whole, not of this session, or the client's input is there already.
    pub fn claim(&mut self, upload: Upload) -> Result<Claim, Refusal> {
        let (from, header) = upload.finish()?;
        let claim = self.admit(from, &header)?;
        self.claimed[claim.position() as usize] = true;
        Ok(claim)
    }

    /// Admits a complete upload and adds it, for callers with one thread: what cannot be read to its end leaves no trace.
    ///
    /// # Errors
    /// When it cannot be let in, or its spool cannot be read: it can be uploaded again then.
    pub fn commit(&mut self, upload: Upload, spool: &mut dyn Spool) -> Result<(), Refusal> {
        let claim = self.claim(upload)?;
        let mut alone = self.accumulator();
        match alone.add(claim, spool) {
            Ok(()) => self.merge(alone),
            Err(NotAdded { claim, why }) => self.give_back(claim).and(Err(why)),
        }
    }

    /// Takes back a claim that could not be added: the client can upload again.
    ///
    /// # Errors
    /// When it is of another round.
    pub fn give_back(&mut self, claim: Claim) -> Result<(), Refusal> {
        self.round.check_session(claim.session())?;
        self.release(claim.position())
    }

    /// Takes back all that is in a partial sum, spoiled or not, that is not to be merged: its inputs can be let in again, from
    /// their spools.
    ///
    /// # Errors
    /// When it is of another round, or has an input that is in the sum already.
    pub fn discard(&mut self, sum: Accumulator) -> Result<(), Refusal> {
        self.round.check_session(sum.session())?;
        sum.positions().try_for_each(|at| self.release(at))
    }

    /// Clients in the sum stay there.
    fn release(&mut self, position: u32) -> Result<(), Refusal> {
        if self.sum.has(position) {
            return Err(Refusal::Merged { position });
        }
        if let Some(claimed) = self.claimed.get_mut(position as usize) {
            *claimed = false;
        }
        Ok(())
    }

    /// What a client says before its vector, if it is this client's turn to say it.
    fn admit(&self, from: ClientId, bytes: &[u8]) -> Result<Claim, Refusal> {
        let position = self.sender(from)?;
        let MaskedInput { session, complaints, .. } = MaskedInput::decode(bytes)?;
        self.round.check_session(&session)?;
        if self.claimed[position as usize] {
            return Err(Refusal::Repeated(from));
        }
        let neighbours = self.round.graph.neighbours(position);
        check_count(neighbours.len(), complaints.len())?;
        let about: Vec<u32> =
            neighbours.into_iter().zip(complaints.iter()).filter_map(|(n, complaint)| complaint.then_some(n)).collect();
        match about.iter().find(|n| self.dealt[**n as usize].is_none()) {
            Some(absent) => Err(Refusal::Complaint(self.round.client(*absent))),
            None => Ok(Claim::new(session, position, about)),
        }
    }

    /// An empty sum, to be filled elsewhere and merged.
    #[must_use]
    pub fn accumulator(&self) -> Accumulator {
        Accumulator::new(self.round.session, self.shape)
    }

    /// Adds a partial sum to the round's.
    ///
    /// # Errors
    /// When it is of another round, is spoiled, or has an input that this round did not let in or has already; nothing is
    /// added then.
    pub fn merge(&mut self, other: Accumulator) -> Result<(), Refusal> {
        self.round.check_session(other.session())?;
        if let Some(at) = other.positions().find(|at| !self.claimed.get(*at as usize).is_some_and(|c| *c)) {
            return Err(Refusal::Unclaimed { position: at });
        }
        self.sum.merge(other)
    }

    /// How many inputs have arrived.
    #[must_use]
    pub fn arrived(&self) -> usize {
        self.sum.len()
    }

    /// Whether the collection can be ended.
    ///
    /// # Errors
    /// When too few are left, or somebody's masks could not be taken off.
    pub fn can_close(&self) -> Result<(), RoundFailure> {
        self.round.enough(self.arrived())?;
        self.fates().check_within_reach(&self.round)
    }

    fn fates(&self) -> Fates {
        Fates::new(self.dealt.iter().map(Option::is_some), |at| self.sum.has(at), self.sum.complaints())
    }

    /// Ends the collection. Clients that shared and sent no input have dropped out, and their masks must be removed.
    ///
    /// # Errors
    /// When too few are left, or somebody's masks could not be taken off: before anybody is asked for a share.
    pub fn close(self) -> Result<CollectAgreement, RoundFailure> {
        self.can_close()?;
        let fates = self.fates();
        let commitments = self.dealt.into_iter().map(|d| d.map(|d| d.commitment)).collect();
        let Self { round, shape, sum, .. } = self;
        Ok(CollectAgreement::new(Summed { round, shape, commitments, fates, lanes: sum.into_lanes() }))
    }
}
