//! Who takes part: every client's keys as a leaf of one Merkle tree, so that clients who were shown different keys of
//! anybody have different roots, and with them different sessions.
//!
//! Members are known by pseudonyms, drawn for the round: neighbours learn nothing by which they could meet somebody again.
//! Positions are in the order of pseudonyms, which every client checks among those it is shown.

use crate::{
    Pseudonym,
    entropy::NoRandomness,
    keys::PublicKeys,
    merkle::{self, Hash, Tree},
    session::OfferHash,
};

/// What a client vouches for when it advertises its keys: that these are its keys in this round, under this pseudonym.
#[must_use]
pub fn statement(offer: &OfferHash, pseudonym: &Pseudonym, keys: &PublicKeys) -> Vec<u8> {
    [b"keyhush secagg keys v2", &offer.0[..], &pseudonym.0, &keys.sealing, &keys.masking, &keys.signing].concat()
}

/// Who may take part: how a client shows that its keys are a real device's, and who believes it. A server that can invent
/// clients can surround one with its own; whoever fears that has an issuer that the server does not control attest one
/// statement for each device and round, and has neighbours and committee checked here.
pub trait Admission {
    /// The evidence for a [`statement`] of our own; no longer than the offer says.
    ///
    /// # Errors
    /// When there is none to be had: the device does not take part.
    fn attest(&self, statement: &[u8]) -> Result<Vec<u8>, NoEvidence>;

    /// Whether somebody's evidence holds.
    fn admits(&self, statement: &[u8], evidence: &[u8]) -> bool;
}

/// Whoever attests devices does not attest this one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no evidence for this device's keys: {0}")]
pub struct NoEvidence(pub String);

/// Everybody may: the server's directory is believed.
#[derive(Debug, Clone, Copy, Default)]
pub struct Everybody;

impl Admission for Everybody {
    fn attest(&self, _: &[u8]) -> Result<Vec<u8>, NoEvidence> {
        Ok(Vec::new())
    }

    fn admits(&self, _: &[u8], _: &[u8]) -> bool {
        true
    }
}

/// One client in the directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// What it is called in this round.
    pub pseudonym: Pseudonym,
    /// Its keys.
    pub keys: PublicKeys,
    /// The evidence for them.
    pub evidence: Vec<u8>,
}

impl Member {
    /// Everything before the evidence is of one length: no two members have the same leaf.
    pub(crate) fn leaf(&self) -> Hash {
        let Self { pseudonym, keys, evidence } = self;
        merkle::leaf(&[&pseudonym.0[..], &keys.sealing, &keys.masking, &keys.signing, evidence].concat())
    }
}

impl Pseudonym {
    /// A fresh one.
    pub(crate) fn draw(entropy: &mut dyn crate::entropy::Entropy) -> Result<Self, NoRandomness> {
        let mut bytes = [0; 16];
        entropy.fill(&mut bytes)?;
        Ok(Self(bytes))
    }
}

/// All clients of a round, by position.
#[derive(Debug)]
pub(crate) struct Directory {
    members: Vec<Member>,
    tree: Tree,
}

impl Directory {
    pub(crate) fn new(members: Vec<Member>) -> Self {
        let tree = Tree::new(members.iter().map(Member::leaf).collect());
        Self { members, tree }
    }

    pub(crate) fn root(&self) -> Hash {
        self.tree.root()
    }

    pub(crate) fn member(&self, position: u32) -> &Member {
        &self.members[position as usize]
    }

    pub(crate) fn members(&self) -> &[Member] {
        &self.members
    }

    /// The proof that positions, which ascend, hold their members.
    pub(crate) fn proof(&self, positions: &[u32]) -> Vec<Hash> {
        self.tree.prove(positions)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(count: u8) -> Vec<Member> {
        let keys = |i| PublicKeys { sealing: [i; 32], masking: [i + 100; 32], signing: [i + 200; 32] };
        let member = |i| Member { pseudonym: Pseudonym([i; 16]), keys: keys(i), evidence: vec![i; 3] };
        (0..count).map(member).collect()
    }

    #[test]
    fn any_difference_is_another_root() {
        let root = |members| Directory::new(members).root();
        let change = |change: fn(&mut Member)| {
            let mut members = members(5);
            change(&mut members[4]);
            members
        };
        let mut swapped = members(5);
        swapped.swap(0, 1);
        let others = [
            members(4),
            swapped,
            change(|m| m.evidence.push(0)),
            change(|m| m.keys.sealing[0] ^= 1),
            change(|m| m.keys.masking[0] ^= 1),
            change(|m| m.keys.signing[0] ^= 1),
            change(|m| m.pseudonym.0[0] ^= 1),
        ];
        for other in others {
            assert_ne!(root(other), root(members(5)));
        }
    }

    #[test]
    fn every_part_of_a_statement_counts() {
        let keys = PublicKeys { sealing: [1; 32], masking: [2; 32], signing: [3; 32] };
        let (offer, pseudonym) = (OfferHash([4; 32]), Pseudonym([5; 16]));
        let said = statement(&offer, &pseudonym, &keys);
        let others = [
            statement(&OfferHash([0; 32]), &pseudonym, &keys),
            statement(&offer, &Pseudonym([0; 16]), &keys),
            statement(&offer, &pseudonym, &PublicKeys { sealing: [0; 32], ..keys }),
            statement(&offer, &pseudonym, &PublicKeys { masking: [0; 32], ..keys }),
            statement(&offer, &pseudonym, &PublicKeys { signing: [0; 32], ..keys }),
        ];
        assert!(others.iter().all(|other| *other != said));
    }
}
