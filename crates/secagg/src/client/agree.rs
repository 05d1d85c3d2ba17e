//! A client signs one view of who is alive, so that a lying server is held to one story (rule P25).
//!
//! What a client opens depends on who dropped out. A server that tells some of them one thing and others another can cut a
//! few off and learn their sum, or one client's input, with no secret opened twice; neighbours who confirm each other do not
//! stop it, since a ring can be split into arcs that agree among themselves. So the story is one for the whole round: a quorum
//! of the committee has signed it, each member signs one, and two quorums would have an honest member in common
//! ([`Committee`](crate::parameters::Committee)). A client opens nothing before it has seen the signatures, and nothing in a
//! story that contradicts what it was told before.

use super::{ClientError, Drawn, mask::Held};
use crate::{
    graph::Graph,
    keys::{Signature, SigningKey, is_signed},
    message::View,
    session::SessionId,
    wire::Bits,
};

/// What a client needs to see before it opens anything, where the server is not taken at its word.
#[derive(Debug)]
pub(super) struct Agreement {
    pub(super) drawn: Drawn,
    pub(super) position: u32,
    pub(super) least_survivors: usize,
    /// The committee's keys.
    pub(super) committee: Vec<[u8; 32]>,
    /// Of a member of the committee: its own.
    pub(super) signing_key: Option<SigningKey>,
    /// The digest it has signed, if any.
    pub(super) signed: Option<[u8; 32]>,
}

impl Agreement {
    /// Signs a view, if it is one that this client can believe and the first. The same view is signed again, with the same
    /// signature, since the answer may have been lost.
    pub(super) fn sign(&mut self, session: &SessionId, view: &View, held: &[Held]) -> Result<Signature, ClientError> {
        let key = self.signing_key.as_ref().ok_or(ClientError::NotInCommittee)?;
        self.told(held, &self.drawn.graph()).check(session, view)?;
        let digest = view.digest();
        if self.signed.is_some_and(|signed| signed != digest) {
            return Err(ClientError::SecondView);
        }
        self.signed = Some(digest);
        Ok(key.sign(&digest))
    }

    /// Which neighbours are in the sum, by a view that a quorum signed and this client can believe.
    pub(super) fn survivors(
        &self,
        session: &SessionId,
        view: &View,
        signatures: &[Option<Signature>],
        held: &[Held],
    ) -> Result<Bits, ClientError> {
        let graph = self.drawn.graph();
        self.told(held, &graph).check(session, view)?;
        let digest = view.digest();
        if self.signed.is_some_and(|signed| signed != digest) {
            return Err(ClientError::SecondView);
        }
        let (expected, got) = (self.committee.len(), signatures.len());
        if expected != got {
            return Err(ClientError::Count { expected, got });
        }
        let signs = |(key, signature): (&[u8; 32], &Option<Signature>)| {
            signature.as_ref().is_some_and(|signature| is_signed(key, &digest, signature))
        };
        let got = self.committee.iter().zip(signatures).filter(|both| signs(*both)).count();
        let needed = self.quorum();
        if got < needed {
            return Err(ClientError::NotAgreed { got, needed });
        }
        let neighbours = graph.neighbours(self.position);
        Ok(Bits::new(neighbours.iter().map(|at| view.alive.get(*at as usize)).collect()))
    }

    /// Signatures that decide. Parameters without a committee are below the floor of who does not trust the server.
    pub(super) fn quorum(&self) -> usize {
        self.drawn.parameters.committee().map_or(usize::MAX, |c| c.quorum as usize)
    }

    fn told<'a>(&self, held: &'a [Held], graph: &'a Graph) -> Told<'a, impl Fn(usize) -> bool + 'a> {
        Told {
            graph,
            position: self.position,
            threshold: self.drawn.parameters.threshold() as usize,
            least_survivors: self.least_survivors,
            is_present: |slot| !matches!(held[slot], Held::Absent),
        }
    }
}

/// What a client knows of a round when it is shown a view: the rules by which it believes it.
pub(super) struct Told<'a, P> {
    pub(super) graph: &'a Graph,
    pub(super) position: u32,
    pub(super) threshold: usize,
    pub(super) least_survivors: usize,
    /// Whether it was told that its neighbour of this number shared.
    pub(super) is_present: P,
}

impl<P: Fn(usize) -> bool> Told<'_, P> {
    /// Refuses a view that contradicts itself or what the client was told, or leaves somebody too little company.
    pub(super) fn check(&self, session: &SessionId, view: &View) -> Result<(), ClientError> {
        let View { session: of, present, alive } = view;
        if of != session {
            return Err(ClientError::OtherSession);
        }
        let clients = self.graph.clients() as usize;
        if present.len() != clients || alive.len() != clients {
            return Err(ClientError::View("it is not of this many clients"));
        }
        if present.iter().zip(alive.iter()).any(|(present, alive)| alive && !present) {
            return Err(ClientError::View("somebody is alive who never shared"));
        }
        if !alive.get(self.position as usize) {
            return Err(ClientError::View("we are alive"));
        }
        let neighbours = self.graph.neighbours(self.position);
        let other = |(slot, at): (usize, &u32)| present.get(*at as usize) != (self.is_present)(slot);
        if let Some(slot) = neighbours.iter().enumerate().position(other) {
            return Err(ClientError::OtherView { slot });
        }
        let (got, needed) = (alive.ones(), self.least_survivors);
        if got < needed {
            return Err(ClientError::TooFew { got, needed });
        }
        self.check_company(&neighbours, alive)
    }

    /// This client and each of its neighbours in the sum has a threshold of neighbours in the sum.
    fn check_company(&self, neighbours: &[u32], alive: &Bits) -> Result<(), ClientError> {
        let there = |at: &u32| alive.get(*at as usize);
        for at in neighbours.iter().copied().filter(there).chain([self.position]) {
            let (got, needed) = (self.graph.around(at).filter(there).count(), self.threshold);
            if got < needed {
                return Err(ClientError::TooFew { got, needed });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parameters::Parameters;

    /// Of twelve on a ring with four neighbours each and a threshold of three, all of whom shared: what the one at the first
    /// place says to those at some places being dead.
    fn says(dead: &[usize]) -> Result<(), ClientError> {
        let graph = Graph::new(&Parameters::from_parts(12, 4, 3, None).unwrap(), &[1; 32]);
        let order = graph.order();
        let mut alive = vec![true; 12];
        dead.iter().for_each(|place| alive[order[*place] as usize] = false);
        let view = View { session: SessionId([0; 32]), present: Bits::new(vec![true; 12]), alive: Bits::new(alive) };
        let told =
            Told { graph: &graph, position: order[0], threshold: 3, least_survivors: 5, is_present: |_: usize| true };
        told.check(&SessionId([0; 32]), &view)
    }

    #[test]
    fn a_client_and_its_neighbours_have_company() {
        assert_eq!(says(&[]), Ok(()));
        assert_eq!(says(&[1]), Ok(()), "three others are enough");
        // Places 1 and 11 are gone: two are left of its own four; those two, at 2 and 10, have three each.
        assert_eq!(says(&[1, 11]), Err(ClientError::TooFew { got: 2, needed: 3 }), "its own company");
        // Places 3 and 4 are gone: it has all four, and the one at place 2 has two.
        assert_eq!(says(&[3, 4]), Err(ClientError::TooFew { got: 2, needed: 3 }), "its neighbour's");
        assert_eq!(says(&[5, 6]), Ok(()), "whoever is further off is others' business");
    }
}
