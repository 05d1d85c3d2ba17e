//! The last answer: one share for each neighbour, of one kind.

use super::{ClientError, agree::Agreement, mask::Held};
use crate::{
    message::{self, Opened, Survivors, UnmaskRequest, UnmaskResponse, View},
    session::SessionId,
    wire::Bits,
};

/// A client that has sent its masked input. It holds shares, and no keys of masks any more.
#[derive(Debug)]
pub struct AwaitUnmask {
    pub(super) session: SessionId,
    pub(super) threshold: usize,
    pub(super) held: Vec<Held>,
    /// Where the server is not taken at its word.
    pub(super) agreement: Option<Agreement>,
}

impl AwaitUnmask {
    /// Signs what became of everybody, as a member of the committee: one view, ever.
    ///
    /// # Errors
    /// When this client is not asked to, has signed another view, or cannot believe this one.
    pub fn sign(mut self, view: &View) -> Result<(Self, message::Agreement), ClientError> {
        let agreement = self.agreement.as_mut().ok_or(ClientError::NotInCommittee)?;
        let signature = agreement.sign(&self.session, view, &self.held)?;
        let session = self.session;
        Ok((self, message::Agreement { session, signature }))
    }

    /// Opens of each neighbour the share that the server may have. A client that is asked is alive itself: the question is only
    /// put to clients whose input arrived. The client is gone afterwards, so nobody gets the other share.
    ///
    /// # Errors
    /// When the message is not of this session, names somebody alive who never shared, leaves so few alive that the sum
    /// could be of too few, or, where the server is not taken at its word, a quorum has not signed it.
    pub fn unmask(self, message: &UnmaskRequest) -> Result<UnmaskResponse, ClientError> {
        if message.session != self.session {
            return Err(ClientError::OtherSession);
        }
        let survivors = self.survivors(&message.survivors)?;
        if survivors.len() != self.held.len() {
            return Err(ClientError::Count { expected: self.held.len(), got: survivors.len() });
        }
        let alive = survivors.ones();
        if alive < self.threshold {
            return Err(ClientError::TooFew { got: alive, needed: self.threshold });
        }
        let one = |(slot, (held, alive)): (usize, (&Held, bool))| match (held, alive) {
            (Held::Absent, true) => Err(ClientError::Risen { slot }),
            (Held::Absent, false) | (Held::Useless, _) => Ok(Opened::Nothing),
            (Held::Shares { self_seed, .. }, true) => Ok(Opened::SelfSeed(self_seed.to_bytes())),
            (Held::Shares { mask_key, .. }, false) => Ok(Opened::MaskKey(mask_key.to_bytes())),
        };
        let opened = self.held.iter().zip(survivors.iter()).enumerate().map(one).collect::<Result<_, _>>()?;
        Ok(UnmaskResponse { session: self.session, opened })
    }

    /// Which neighbours are in the sum: as the server says, if it is taken at its word, or as a quorum has signed.
    fn survivors(&self, survivors: &Survivors) -> Result<Bits, ClientError> {
        match (&self.agreement, survivors) {
            (None, Survivors::Said(alive)) => Ok(alive.clone()),
            (Some(agreement), Survivors::Agreed { view, signatures }) => {
                agreement.survivors(&self.session, view, signatures, &self.held)
            }
            (Some(agreement), Survivors::Said(_)) => Err(ClientError::NotAgreed { got: 0, needed: agreement.quorum() }),
            (None, Survivors::Agreed { .. }) => Err(ClientError::View("nobody asked for one")),
        }
    }
}
