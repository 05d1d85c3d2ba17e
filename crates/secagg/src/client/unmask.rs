//! The last answer: of each neighbour one share, of one kind.

use super::{ClientError, Neighbour, agree::Agreed, mask::Held};
use crate::{
    message::{Opened, UnmaskRequest, UnmaskResponse, Voucher},
    session::SessionId,
};

/// A client that has sent its masked input. It holds shares, and no keys any more.
#[derive(Debug)]
pub struct AwaitUnmask {
    pub(super) session: SessionId,
    pub(super) threshold: usize,
    pub(super) held: Vec<Held>,
    /// What was vouched for, where the server is not taken at its word.
    pub(super) agreed: Option<Agreed>,
}

impl AwaitUnmask {
    /// Opens of each neighbour the share that the server may have. Whoever is asked is alive itself: the question is only
    /// put to clients whose input arrived. The client is gone afterwards, so nobody gets the other share.
    ///
    /// # Errors
    /// When the message is not of this session, names somebody alive who never shared, or leaves so few alive that the sum
    /// could be of too few.
    pub fn unmask(self, message: &UnmaskRequest) -> Result<UnmaskResponse, ClientError> {
        if message.session != self.session {
            return Err(ClientError::OtherSession);
        }
        if message.alive.len() != self.held.len() {
            return Err(ClientError::Count { expected: self.held.len(), got: message.alive.len() });
        }
        if let Some(agreed) = &self.agreed {
            self.check_agreement(agreed, message)?;
        }
        let alive = message.alive.ones();
        if alive < self.threshold {
            return Err(ClientError::TooFew { got: alive, needed: self.threshold });
        }
        let one = |(slot, (held, alive)): (usize, (&Held, bool))| match (held, alive) {
            (Held::Absent, true) => Err(ClientError::Risen { slot }),
            (Held::Absent, false) | (Held::Useless, _) => Ok(Opened::Nothing),
            (Held::Shares { self_seed, .. }, true) => Ok(Opened::SelfSeed(self_seed.to_bytes())),
            (Held::Shares { mask_key, .. }, false) => Ok(Opened::MaskKey(mask_key.to_bytes())),
        };
        let opened = self.held.iter().zip(message.alive.iter()).enumerate().map(one).collect::<Result<_, _>>()?;
        Ok(UnmaskResponse { session: self.session, opened })
    }

    /// The drop-outs are those of the view, and a threshold of living neighbours was shown the same one.
    fn check_agreement(&self, agreed: &Agreed, message: &UnmaskRequest) -> Result<(), ClientError> {
        if let Some(slot) = agreed.alive.iter().zip(message.alive.iter()).position(|(view, now)| view != now) {
            return Err(ClientError::OtherView { slot });
        }
        let (expected, got) = (agreed.neighbours.len(), message.vouchers.len());
        if expected != got {
            return Err(ClientError::Count { expected, got });
        }
        let Agreed { position, neighbours, alive, digest } = agreed;
        let vouches = |(slot, (neighbour, voucher)): (usize, (&Neighbour, &Option<Voucher>))| {
            let of_neighbour = |v| neighbour.sealing.vouches(&self.session, neighbour.position, *position, digest, v);
            alive.get(slot) && voucher.as_ref().is_some_and(of_neighbour)
        };
        let got = neighbours.iter().zip(&message.vouchers).enumerate().filter(|both| vouches(*both)).count();
        if got < self.threshold { Err(ClientError::NotAgreed { got, needed: self.threshold }) } else { Ok(()) }
    }
}
