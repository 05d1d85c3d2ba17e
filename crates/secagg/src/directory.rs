//! The directory: every client's keys as a leaf of one Merkle tree, so that clients who were shown different keys have different roots, and
//! therefore different sessions.
//!
//! Members are known by pseudonyms, drawn for the round: neighbours learn nothing by which they could meet somebody again.
//! Positions are in the order of pseudonyms. Where the server is taken at its word, a client sees that of those it is shown, by
//! one proof for all of them ([`Proof::Beside`]). Where it is not, a client sees the names of all ([`Proof::Whole`]): evidence
//! does not say where somebody sits, so a server could seat each of its clients at many positions, and nobody would be shown
//! two of them.

use crate::{
    Pseudonym,
    entropy::NoRandomness,
    keys::PublicKeys,
    merkle::{self, Hash, Tree},
    session::{OfferHash, digest},
};

/// What a client asserts when it advertises its keys: that these are its keys in this round, under this pseudonym.
#[must_use]
pub fn statement(offer: &OfferHash, pseudonym: &Pseudonym, keys: &PublicKeys) -> Vec<u8> {
    [b"keyhush secagg keys v2", &offer.0[..], &pseudonym.0, &keys.sealing, &keys.masking, &keys.signing].concat()
}

/// Who may take part: how a client shows that its keys are a real device's, and who believes it. A server that can invent
/// clients can surround one with its own; to prevent that, let an issuer that the server does not control attest one
/// statement for each device and round, and has neighbours and committee checked here.
pub trait Admission {
    /// The evidence for a [`statement`] of our own; no longer than the offer says.
    ///
    /// # Errors
    /// When there is none: the device does not take part.
    fn attest(&self, statement: &[u8]) -> Result<Vec<u8>, NoEvidence>;

    /// Whether somebody's evidence holds.
    fn admits(&self, statement: &[u8], evidence: &[u8]) -> bool;
}

/// The issuer does not attest this device.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot get evidence for this device's keys: {0}")]
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

/// A member's entry in the directory, with all but its name hashed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Name {
    /// What it is called in this round.
    pub pseudonym: Pseudonym,
    /// The digest of its keys and of the evidence for them.
    pub rest: [u8; 32],
}

impl Name {
    pub(crate) fn leaf(&self) -> Hash {
        merkle::leaf(&[&self.pseudonym.0[..], &self.rest].concat())
    }
}

impl Member {
    /// Everything before the evidence is of one length: no two members have the same.
    #[must_use]
    pub fn name(&self) -> Name {
        let Self { pseudonym, keys, evidence } = self;
        let rest = digest(b"keyhush secagg member v2", &[&keys.sealing, &keys.masking, &keys.signing, evidence]);
        Name { pseudonym: *pseudonym, rest }
    }

    fn leaf(&self) -> Hash {
        self.name().leaf()
    }
}

/// Proves that members are at their positions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Proof {
    /// The hashes beside the paths to those who are shown.
    Beside(Vec<[u8; 32]>),
    /// The names of all, in the order of their positions.
    Whole(Vec<Name>),
}

impl Proof {
    /// Whether a directory of so many, with this root, has these members at these positions, which ascend; and, where all names
    /// are there, whether they are in order, so that nobody is there twice.
    pub(crate) fn holds(&self, root: &Hash, clients: u32, known: &[(u32, &Member)]) -> bool {
        match self {
            Self::Beside(hashes) => {
                let leaves: Vec<(u32, Hash)> = known.iter().map(|(at, member)| (*at, member.leaf())).collect();
                merkle::proved_root(clients, &leaves, hashes).as_ref() == Some(root)
            }
            Self::Whole(names) => {
                let has = |(at, member): &(u32, &Member)| names.get(*at as usize) == Some(&member.name());
                names.len() == clients as usize
                    && names.is_sorted_by(|a, b| a.pseudonym < b.pseudonym)
                    && known.iter().all(has)
                    && Tree::new(names.iter().map(Name::leaf).collect()).root() == *root
            }
        }
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
    names: Vec<Name>,
    tree: Tree,
}

impl Directory {
    pub(crate) fn new(members: Vec<Member>) -> Self {
        let names: Vec<Name> = members.iter().map(Member::name).collect();
        let tree = Tree::new(names.iter().map(Name::leaf).collect());
        Self { members, names, tree }
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
    pub(crate) fn proof(&self, positions: &[u32]) -> Proof {
        Proof::Beside(self.tree.prove(positions))
    }

    /// The names of all.
    pub(crate) fn names(&self) -> Proof {
        Proof::Whole(self.names.clone())
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
    fn both_proofs_hold_for_what_is_there_and_for_nothing_else() {
        let members = members(9);
        let directory = Directory::new(members.clone());
        let root = directory.root();
        let known: Vec<(u32, &Member)> = [1, 4, 7].map(|at: u32| (at, &members[at as usize])).to_vec();
        let moved: Vec<(u32, &Member)> = [(1, &members[1]), (5, &members[4])].to_vec();
        for proof in [directory.proof(&[1, 4, 7]), directory.names()] {
            assert!(proof.holds(&root, 9, &known));
            assert!(!proof.holds(&[0; 32], 9, &known) && !proof.holds(&root, 8, &known));
            assert!(!proof.holds(&root, 9, &moved));
            let mut other = members[4].clone();
            other.evidence.push(1);
            assert!(!proof.holds(&root, 9, &[(4, &other)]));
        }
    }

    /// Somebody who is seated twice, side by side or far apart: clients that see all names notice it, clients that are shown other members do not.
    #[test]
    fn all_names_show_who_is_seated_twice() {
        for seats in [vec![0, 1, 2, 2, 3], vec![0, 1, 2, 3, 1]] {
            let members: Vec<Member> = seats.iter().map(|at| members(5)[*at].clone()).collect();
            let directory = Directory::new(members.clone());
            let known = [(0, &members[0]), (1, &members[1])];
            assert!(directory.proof(&[0, 1]).holds(&directory.root(), 5, &known));
            assert!(!directory.names().holds(&directory.root(), 5, &known));
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
