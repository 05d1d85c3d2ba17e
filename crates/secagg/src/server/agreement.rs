//! Collects signatures: a quorum of the committee was shown the same view (only against a semi-malicious server).

use std::collections::BTreeMap;

use zeroize::Zeroizing;

use super::{CollectUnmask, Refusal, Round, RoundFailure, fates::Fates};
use crate::{
    ClientId,
    keys::{Signature, is_signed},
    masks::Shape,
    message::{Agreement, View},
};

/// A round whose inputs are in: the sum of masked vectors, and what became of everybody.
pub(super) struct Summed {
    pub(super) round: Round,
    pub(super) shape: Shape,
    pub(super) commitments: Vec<Option<[u8; 32]>>,
    pub(super) fates: Fates,
    pub(super) lanes: Zeroizing<Vec<u32>>,
}

impl Summed {
    /// The clients whose inputs arrived.
    pub(super) fn survivors(&self) -> impl Iterator<Item = ClientId> + '_ {
        self.round.clients().filter(|(_, at)| self.fates.is_alive(*at)).map(|(client, _)| client)
    }

    pub(super) fn survivor(&self, client: ClientId) -> Result<u32, Refusal> {
        let position = self.round.position(client)?;
        if self.fates.is_alive(position) { Ok(position) } else { Err(Refusal::Stranger(client)) }
    }
}

/// A round that collects signatures.
pub struct CollectAgreement {
    pub(super) summed: Summed,
    view: View,
    digest: [u8; 32],
    /// By place in the committee.
    pub(super) signatures: BTreeMap<usize, Signature>,
}

impl std::fmt::Debug for CollectAgreement {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CollectAgreement({} of {})", self.arrived(), self.summed.round.quorum())
    }
}

impl CollectAgreement {
    pub(super) fn new(summed: Summed) -> Self {
        let view = summed.fates.view(&summed.round);
        Self { digest: view.digest(), view, summed, signatures: BTreeMap::new() }
    }

    /// Whether anybody has to sign: against a semi-malicious server.
    #[must_use]
    pub fn is_needed(&self) -> bool {
        self.summed.round.quorum() > 0
    }

    /// The clients that are asked: members of the committee that are present, or none.
    pub fn clients(&self) -> impl Iterator<Item = ClientId> + '_ {
        let Summed { round, fates, .. } = &self.summed;
        round.committee.iter().filter(|at| fates.is_alive(**at)).map(|at| round.client(*at))
    }

    /// The [`View`] for a member of the committee: the same for everybody.
    #[must_use]
    pub fn view(&self, client: ClientId) -> Option<Vec<u8>> {
        self.signer(client).ok()?;
        Some(self.view.encode())
    }

    /// A client's place in the committee.
    fn signer(&self, client: ClientId) -> Result<usize, Refusal> {
        let position = self.summed.survivor(client)?;
        self.summed.round.committee.binary_search(&position).map_err(|_| Refusal::Stranger(client))
    }

    /// Takes an [`Agreement`] of a member of the committee.
    ///
    /// # Errors
    /// When it is not one, not one of this session, or not signed.
    pub fn receive(&mut self, from: ClientId, bytes: &[u8]) -> Result<(), Refusal> {
        let slot = self.signer(from)?;
        let Agreement { session, signature } = Agreement::decode(bytes)?;
        let round = &self.summed.round;
        round.check_session(&session)?;
        if self.signatures.contains_key(&slot) {
            return Err(Refusal::Repeated(from));
        }
        let key = &round.directory.member(round.committee[slot]).keys.signing;
        if !is_signed(key, &self.digest, &signature) {
            return Err(Refusal::Signature(from));
        }
        self.signatures.insert(slot, signature);
        Ok(())
    }

    /// The number of signatures received.
    #[must_use]
    pub fn arrived(&self) -> usize {
        self.signatures.len()
    }

    /// Whether a quorum has signed: nobody else has to be waited for.
    ///
    /// # Errors
    /// When too few have.
    pub fn can_close(&self) -> Result<(), RoundFailure> {
        let (got, needed) = (self.arrived(), self.summed.round.quorum());
        if got < needed { Err(RoundFailure::NotAgreed { got, needed }) } else { Ok(()) }
    }

    /// Ends the agreement. Clients that have not signed are in the sum nevertheless, and are asked like all others.
    ///
    /// # Errors
    /// When too few have signed.
    pub fn close(self) -> Result<CollectUnmask, RoundFailure> {
        self.can_close()?;
        let is_needed = self.is_needed();
        let Self { summed, view, signatures, .. } = self;
        let mut of_committee: Vec<Option<Signature>> = vec![None; summed.round.committee.len()];
        let enough = signatures.into_iter().take(summed.round.quorum());
        enough.for_each(|(slot, signature)| of_committee[slot] = Some(signature));
        Ok(CollectUnmask::new(summed, is_needed.then_some((view, of_committee))))
    }
}
