//! Vouchers on their way: that survivors were shown the same drop-outs, where the server is not taken at its word.

use super::{CollectUnmask, Refusal, RoundFailure, check_count};
use crate::{
    ClientId,
    message::{Agreement, Voucher},
    parameters::Adversary,
};

/// A round that collects vouchers.
#[derive(Debug)]
pub struct CollectAgreement {
    unmask: CollectUnmask,
    /// Of each survivor that answered: its vouchers for its neighbours.
    vouchers: Vec<Option<Vec<Option<Voucher>>>>,
}

impl CollectAgreement {
    pub(super) fn new(unmask: CollectUnmask) -> Self {
        let vouchers = unmask.round.directory.members().iter().map(|_| None).collect();
        Self { unmask, vouchers }
    }

    /// Whether clients have to agree: against a semi-malicious server.
    #[must_use]
    pub fn is_needed(&self) -> bool {
        self.unmask.round.terms.assumptions.adversary == Adversary::SemiMalicious
    }

    /// Who are asked: survivors, or nobody.
    pub fn clients(&self) -> impl Iterator<Item = ClientId> + '_ {
        self.unmask.clients().filter(|_| self.is_needed())
    }

    /// The [`View`](crate::message::View) for a survivor, if clients have to agree: the same for everybody.
    #[must_use]
    pub fn view(&self, client: ClientId) -> Option<Vec<u8>> {
        self.unmask.survivor(client).ok().filter(|_| self.is_needed())?;
        Some(self.unmask.view().encode())
    }

    /// Takes a survivor's [`Agreement`].
    ///
    /// # Errors
    /// When it is not one, or not one of this session.
    pub fn receive(&mut self, from: ClientId, bytes: &[u8]) -> Result<(), Refusal> {
        let position = self.unmask.survivor(from)?;
        let Agreement { session, vouchers } = Agreement::decode(bytes)?;
        if session != self.unmask.round.session {
            return Err(Refusal::OtherSession);
        }
        check_count(self.unmask.round.parameters.degree() as usize, vouchers.len())?;
        let slot = &mut self.vouchers[position as usize];
        if slot.is_some() {
            return Err(Refusal::Repeated(from));
        }
        *slot = Some(vouchers);
        Ok(())
    }

    /// How many have agreed.
    #[must_use]
    pub fn arrived(&self) -> usize {
        self.vouchers.iter().flatten().count()
    }

    /// Ends the agreement. Whoever has not answered is in the sum all the same.
    ///
    /// # Errors
    /// When so few have answered that somebody's masks could not be taken off.
    pub fn close(self) -> Result<CollectUnmask, RoundFailure> {
        if !self.is_needed() {
            return Ok(self.unmask);
        }
        self.unmask.with_vouchers(self.vouchers)
    }
}
