//! Sealed shares on their way: the server passes on what it cannot read.

use super::{CollectMasked, Refusal, Round, RoundFailure, check_count};
use crate::{
    ClientId,
    message::{Listing, Neighbourhood, SEALED, ShareKeys},
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
    round: Round,
    dealt: Vec<Option<Dealt>>,
}

impl CollectShares {
    pub(super) fn new(round: Round) -> Self {
        let dealt = round.directory.members().iter().map(|_| None).collect();
        Self { round, dealt }
    }

    /// Who are in the directory.
    pub fn clients(&self) -> impl Iterator<Item = ClientId> + '_ {
        self.round.positions.keys().copied()
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
        let listing =
            |at: u32| Listing { member: round.directory.member(at).clone(), proof: round.directory.proof(at) };
        let message = Neighbourhood {
            parameters: round.parameters,
            root: round.root,
            coin: round.coin,
            position,
            own_proof: round.directory.proof(position),
            neighbours: round.graph.neighbours(position).into_iter().map(listing).collect(),
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
        if session != self.round.session {
            return Err(Refusal::OtherSession);
        }
        check_count(self.round.parameters.degree() as usize, sealed.len())?;
        let slot = &mut self.dealt[position as usize];
        if slot.is_some() {
            return Err(Refusal::Repeated(from));
        }
        *slot = Some(Dealt { commitment, sealed });
        Ok(())
    }

    /// How many have shared.
    #[must_use]
    pub fn arrived(&self) -> usize {
        self.dealt.iter().flatten().count()
    }

    /// Ends the sharing. Whoever has not shared is out, at no cost to anybody.
    ///
    /// # Errors
    /// When too few are left.
    pub fn close(mut self) -> Result<CollectMasked, RoundFailure> {
        self.leave_out_the_lonely();
        self.round.enough(self.arrived())?;
        Ok(CollectMasked::new(self.round, self.dealt))
    }

    /// A client with fewer neighbours left than the threshold will not go on, and nobody could take its masks off: it is
    /// left out before anybody shares a mask with it. That can leave others lonely.
    fn leave_out_the_lonely(&mut self) {
        let threshold = self.round.threshold();
        loop {
            let is_lonely = |at: &u32| {
                let present = |at: &u32| self.dealt[*at as usize].is_some();
                present(at) && self.round.graph.around(*at).filter(|n| present(n)).count() < threshold
            };
            let lonely: Vec<u32> = (0..self.round.parameters.clients()).filter(is_lonely).collect();
            if lonely.is_empty() {
                return;
            }
            lonely.into_iter().for_each(|at| self.dealt[at as usize] = None);
        }
    }
}
