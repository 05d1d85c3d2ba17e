//! Forwards sealed shares, which the server cannot read.

use super::{CollectMasked, Refusal, Round, RoundFailure, check_count};
use crate::{
    ClientId,
    message::{Neighbourhood, SEALED, ShareKeys},
};

/// What a client dealt.
#[derive(Debug)]
pub(super) struct Dealt {
    pub(super) commitment: [u8; 32],
    pub(super) sealed: Vec<[u8; SEALED]>,
}

/// A round that collects shares.
#[derive(Debug)]
pub struct CollectShares {
    pub(super) round: Round,
    pub(super) dealt: Vec<Option<Dealt>>,
}

impl CollectShares {
    pub(super) fn new(round: Round) -> Self {
        let dealt = round.directory.members().iter().map(|_| None).collect();
        Self { round, dealt }
    }

    /// The clients in the directory.
    pub fn clients(&self) -> impl Iterator<Item = ClientId> + '_ {
        self.round.clients().map(|(client, _)| client)
    }

    /// How clients are connected.
    #[must_use]
    pub const fn parameters(&self) -> &crate::parameters::Parameters {
        &self.round.parameters
    }

    /// The [`Neighbourhood`] of a client in the directory.
    #[must_use]
    pub fn neighbourhood(&self, client: ClientId) -> Option<Vec<u8>> {
        let round = &self.round;
        let position = round.position(client).ok()?;
        let members = round.shown(position).members;
        let message = Neighbourhood {
            offer: round.offer.hash(),
            parameters: round.parameters,
            root: round.root,
            coin: round.coin,
            position,
            members: members.iter().map(|at| round.directory.member(*at).clone()).collect(),
            proof: round.proof(&members, position),
        };
        Some(message.encode())
    }

    /// Takes a client's [`ShareKeys`].
    ///
    /// # Errors
    /// When it is not one, or not one of this session.
    pub fn receive(&mut self, from: ClientId, bytes: &[u8]) -> Result<(), Refusal> {
        let position = self.round.position(from)?;
        let ShareKeys { session, commitment, sealed } = ShareKeys::decode(bytes)?;
        self.round.check_session(&session)?;
        check_count(self.round.parameters.degree() as usize, sealed.len())?;
        let slot = &mut self.dealt[position as usize];
        if slot.is_some() {
            return Err(Refusal::Repeated(from));
        }
        *slot = Some(Dealt { commitment, sealed });
        Ok(())
    }

    /// The number of clients that have shared.
    #[must_use]
    pub fn arrived(&self) -> usize {
        self.dealt.iter().flatten().count()
    }

    /// Whether the sharing can be ended.
    ///
    /// # Errors
    /// When too few are left.
    pub fn can_close(&self) -> Result<(), RoundFailure> {
        self.round.enough(self.in_company().iter().filter(|there| **there).count())
    }

    /// Ends the sharing. Clients that have not shared are left out, at no cost to others.
    ///
    /// # Errors
    /// When too few are left.
    pub fn close(mut self) -> Result<CollectMasked, RoundFailure> {
        self.can_close()?;
        let there = self.in_company();
        self.dealt.iter_mut().zip(there).filter(|(_, there)| !there).for_each(|(dealt, _)| *dealt = None);
        Ok(CollectMasked::new(self.round, self.dealt))
    }

    /// Who shared and has company. A client with fewer neighbours left than the threshold will not continue, and nobody could
    /// take its masks off: it is left out before anybody shares a mask with it. That can leave others lonely.
    fn in_company(&self) -> Vec<bool> {
        let (threshold, graph) = (self.round.threshold(), &self.round.graph);
        let mut there: Vec<bool> = self.dealt.iter().map(Option::is_some).collect();
        loop {
            let is_lonely =
                |at: &u32| there[*at as usize] && graph.around(*at).filter(|n| there[*n as usize]).count() < threshold;
            let lonely: Vec<u32> = (0..self.round.parameters.clients()).filter(is_lonely).collect();
            if lonely.is_empty() {
                return there;
            }
            lonely.into_iter().for_each(|at| there[at as usize] = false);
        }
    }
}
