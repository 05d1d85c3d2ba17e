//! Masked inputs, added up as they arrive: memory is that of one vector, however many clients there are.

use super::{CollectAgreement, CollectUnmask, Complaints, Refusal, Round, RoundFailure, check_count, shares::Dealt};
use crate::{
    ClientId,
    masks::{self, Shape},
    message::{Delivery, MaskedInput, SEALED},
};

/// A round that adds up masked inputs.
pub struct CollectMasked {
    round: Round,
    shape: Shape,
    dealt: Vec<Option<Dealt>>,
    /// Whose input arrived.
    arrived: Vec<bool>,
    complaints: Complaints,
    lanes: Vec<u32>,
}

impl std::fmt::Debug for CollectMasked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CollectMasked({} of {})", self.arrived(), self.arrived.len())
    }
}

impl CollectMasked {
    pub(super) fn new(round: Round, dealt: Vec<Option<Dealt>>) -> Self {
        let shape = round.terms.shape().expect("the terms were checked when the round was opened");
        let arrived = vec![false; dealt.len()];
        Self { round, shape, dealt, arrived, complaints: Complaints::new(), lanes: vec![0; shape.padded()] }
    }

    /// Who shared, and can send an input.
    pub fn clients(&self) -> impl Iterator<Item = ClientId> + '_ {
        let shared = |(client, at): (&ClientId, &u32)| self.dealt[*at as usize].is_some().then_some(*client);
        self.round.positions.iter().filter_map(shared)
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

    /// Takes a client's [`MaskedInput`] and adds it.
    ///
    /// # Errors
    /// When it is not one, or not one of this session.
    pub fn receive(&mut self, from: ClientId, bytes: &[u8]) -> Result<(), Refusal> {
        let position = self.sender(from)?;
        let MaskedInput { session, complaints, packed } = MaskedInput::decode(bytes)?;
        if session != self.round.session {
            return Err(Refusal::OtherSession);
        }
        if self.arrived[position as usize] {
            return Err(Refusal::Repeated(from));
        }
        let neighbours = self.round.graph.neighbours(position);
        check_count(neighbours.len(), complaints.len())?;
        let about =
            neighbours.iter().copied().zip(complaints.iter()).filter_map(|(n, complaint)| complaint.then_some(n));
        let about: Vec<u32> = about.collect();
        if let Some(absent) = about.iter().find(|n| self.dealt[**n as usize].is_none()) {
            return Err(Refusal::Complaint(self.round.client(*absent)));
        }
        let (expected, got) = (self.shape.packed_len(), packed.len());
        if masks::add_packed(&mut self.lanes, packed, self.shape.bits()).is_err() {
            return Err(Refusal::Length { expected, got });
        }
        self.arrived[position as usize] = true;
        self.complaints.extend(about.into_iter().map(|n| (position, n)));
        Ok(())
    }

    /// How many inputs have arrived.
    #[must_use]
    pub fn arrived(&self) -> usize {
        self.arrived.iter().filter(|arrived| **arrived).count()
    }

    /// Ends the collection. Whoever shared and sent no input has dropped out, and its masks are to be taken off.
    ///
    /// # Errors
    /// When too few are left, or somebody's masks could not be taken off: before anybody is asked for a share.
    pub fn close(self) -> Result<CollectAgreement, RoundFailure> {
        self.round.enough(self.arrived())?;
        let commitments = self.dealt.into_iter().map(|d| d.map(|d| d.commitment)).collect();
        let Self { round, shape, arrived, complaints, lanes, .. } = self;
        let unmask = CollectUnmask::new(round, shape, commitments, &arrived, complaints, lanes)?;
        Ok(CollectAgreement::new(unmask))
    }
}
