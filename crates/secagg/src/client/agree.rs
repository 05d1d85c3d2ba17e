//! What became of everybody, agreed upon: a server that may lie about who dropped out is held to one story.
//!
//! Thresholds alone keep both secrets of one client apart. They do not keep a server from telling one client that most of
//! its neighbours are gone, and those neighbours' neighbours, a few each, that they are: then one client's masks come off and
//! its input is bare, with no secret opened twice. So every survivor is shown the whole round, checks what it can see of it,
//! and opens nothing before a threshold of its neighbours has vouched that they were shown the same. A threshold is more than
//! half of the honest neighbours, and neighbourhoods on the ring overlap: one story is left.

use super::{AwaitUnmask, ClientError, Drawn, Neighbour, mask::Held};
use crate::{
    message::{Agreement, View},
    session::SessionId,
    wire::Bits,
};

/// A client that has sent its masked input, until it is shown what became of everybody.
#[derive(Debug)]
pub struct AwaitView {
    pub(super) session: SessionId,
    pub(super) drawn: Drawn,
    pub(super) position: u32,
    pub(super) threshold: usize,
    pub(super) least_survivors: usize,
    pub(super) neighbours: Vec<Neighbour>,
    pub(super) held: Vec<Held>,
}

/// What a client vouched for.
#[derive(Debug)]
pub(super) struct Agreed {
    pub(super) position: u32,
    pub(super) neighbours: Vec<Neighbour>,
    pub(super) alive: Bits,
    pub(super) digest: [u8; 32],
}

impl AwaitView {
    /// Checks the view and vouches for it to every neighbour that is alive in it.
    ///
    /// # Errors
    /// When the view contradicts itself or what the client was told before, or leaves somebody too few neighbours.
    pub fn agree(self, view: &View) -> Result<(AwaitUnmask, Agreement), ClientError> {
        self.check(view)?;
        let Self { session, position, threshold, neighbours, held, .. } = self;
        let digest = view.digest();
        let alive = Bits::new(neighbours.iter().map(|n| view.alive.get(n.position as usize)).collect());
        let voucher = |(neighbour, alive): (&Neighbour, bool)| {
            alive.then(|| neighbour.sealing.voucher(&session, position, neighbour.position, &digest))
        };
        let vouchers = neighbours.iter().zip(alive.iter()).map(voucher).collect();
        let agreed = Some(Agreed { position, neighbours, alive, digest });
        Ok((AwaitUnmask { session, threshold, held, agreed }, Agreement { session, vouchers }))
    }

    fn check(&self, view: &View) -> Result<(), ClientError> {
        let View { session, present, alive } = view;
        if *session != self.session {
            return Err(ClientError::OtherSession);
        }
        let clients = self.drawn.parameters.clients() as usize;
        if present.len() != clients || alive.len() != clients {
            return Err(ClientError::View("it is not of this many clients"));
        }
        if present.iter().zip(alive.iter()).any(|(present, alive)| alive && !present) {
            return Err(ClientError::View("somebody is alive who never shared"));
        }
        if !alive.get(self.position as usize) {
            return Err(ClientError::View("we are alive"));
        }
        for (slot, (neighbour, held)) in self.neighbours.iter().zip(&self.held).enumerate() {
            if present.get(neighbour.position as usize) == matches!(held, Held::Absent) {
                return Err(ClientError::OtherView { slot });
            }
        }
        let (got, needed) = (alive.ones(), self.least_survivors);
        if got < needed {
            return Err(ClientError::TooFew { got, needed });
        }
        self.check_company(alive)
    }

    /// This client and each of its neighbours in the sum has a threshold of neighbours in the sum.
    fn check_company(&self, alive: &Bits) -> Result<(), ClientError> {
        let there = |at: &u32| alive.get(*at as usize);
        let graph = self.drawn.graph();
        let around = self.neighbours.iter().map(|n| n.position).filter(there).chain([self.position]);
        for at in around {
            let (got, needed) = (graph.around(at).filter(there).count(), self.threshold);
            if got < needed {
                return Err(ClientError::TooFew { got, needed });
            }
        }
        Ok(())
    }
}
