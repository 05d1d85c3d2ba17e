//! Who takes part: every client's keys as a leaf of one Merkle tree (RFC 9162, by `ct-merkle`), so that clients who were
//! shown different keys of anybody have different roots, and with them different sessions.

use ct_merkle::{InclusionProof, RootHash, mem_backed_tree::MemoryBackedTree};
use sha2::Sha256;

use crate::{ClientId, keys::PublicKeys, session::OfferHash};

/// Bytes of evidence at most.
pub const MOST_EVIDENCE: usize = 255;

/// What a client vouches for when it advertises its keys: that these are its keys in this round.
#[must_use]
pub fn statement(offer: &OfferHash, client: ClientId, keys: &PublicKeys) -> Vec<u8> {
    [b"keyhush secagg keys v1", &offer.0[..], &client.0.to_le_bytes(), &keys.sealing, &keys.masking].concat()
}

/// Who may take part: how a client shows that its keys are a real device's, and who believes it. A server that can invent
/// clients can surround one with its own; whoever fears that gives devices an identity and has its neighbours check it here.
pub trait Admission {
    /// The evidence for a [`statement`] of our own, of at most [`MOST_EVIDENCE`] bytes.
    fn attest(&self, statement: &[u8]) -> Vec<u8>;

    /// Whether somebody's evidence holds.
    fn admits(&self, client: ClientId, statement: &[u8], evidence: &[u8]) -> bool;
}

/// Everybody may: the server's directory is believed.
#[derive(Debug, Clone, Copy, Default)]
pub struct Everybody;

impl Admission for Everybody {
    fn attest(&self, _: &[u8]) -> Vec<u8> {
        Vec::new()
    }

    fn admits(&self, _: ClientId, _: &[u8], _: &[u8]) -> bool {
        true
    }
}

/// One client in the directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Who.
    pub client: ClientId,
    /// Its keys.
    pub keys: PublicKeys,
    /// The evidence for them.
    pub evidence: Vec<u8>,
}

impl Member {
    fn leaf(&self) -> Vec<u8> {
        [&self.client.0.to_le_bytes()[..], &self.keys.sealing, &self.keys.masking, &self.evidence].concat()
    }
}

/// All clients of a round, by position.
#[derive(Debug)]
pub(crate) struct Directory {
    members: Vec<Member>,
    tree: MemoryBackedTree<Sha256, Vec<u8>>,
}

impl Directory {
    pub(crate) fn new(members: Vec<Member>) -> Self {
        let mut tree = MemoryBackedTree::new();
        members.iter().for_each(|m| tree.push(m.leaf()));
        Self { members, tree }
    }

    pub(crate) fn root(&self) -> [u8; 32] {
        (*self.tree.root().as_bytes()).into()
    }

    pub(crate) fn member(&self, position: u32) -> &Member {
        &self.members[position as usize]
    }

    pub(crate) fn members(&self) -> &[Member] {
        &self.members
    }

    /// The proof that a position holds its member.
    pub(crate) fn proof(&self, position: u32) -> Vec<u8> {
        self.tree.prove_inclusion(position as usize).as_bytes().to_vec()
    }
}

/// Whether a position of a directory of so many holds a member.
pub(crate) fn holds(root: &[u8; 32], clients: u32, position: u32, member: &Member, proof: &[u8]) -> bool {
    let Ok(proof) = InclusionProof::<Sha256>::try_from_bytes(proof.to_vec()) else { return false };
    let root = RootHash::<Sha256>::new((*root).into(), u64::from(clients));
    root.verify_inclusion(&member.leaf(), u64::from(position), &proof).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(count: u8) -> Vec<Member> {
        let keys = |i| PublicKeys { sealing: [i; 32], masking: [i + 100; 32] };
        (0..count).map(|i| Member { client: ClientId(i.into()), keys: keys(i), evidence: vec![i; 3] }).collect()
    }

    #[test]
    fn every_member_is_shown_to_be_at_its_position_and_at_no_other() {
        for count in [1, 2, 3, 7, 8, 33] {
            let directory = Directory::new(members(count));
            let (root, n) = (directory.root(), u32::from(count));
            for at in 0..n {
                let (member, proof) = (directory.member(at), directory.proof(at));
                assert!(holds(&root, n, at, member, &proof));
                assert!((0..n + 2).filter(|p| *p != at).all(|p| !holds(&root, n, p, member, &proof)));
                let mut other = member.clone();
                other.keys.masking[0] ^= 1;
                assert!(!holds(&root, n, at, &other, &proof));
                assert!(!holds(&[0; 32], n, at, member, &proof));
                assert!(!holds(&root, n, at, member, &[&proof[..], &[0]].concat()));
                assert!(!holds(&root, n, at, member, &[&proof[..], &[0; 32]].concat()));
            }
        }
    }

    #[test]
    fn any_difference_is_another_root() {
        let root = |members| Directory::new(members).root();
        let all = root(members(5));
        let mut evidence = members(5);
        evidence[4].evidence.push(0);
        let mut swapped = members(5);
        swapped.swap(0, 1);
        for other in [members(4), evidence, swapped] {
            assert_ne!(root(other), all);
        }
    }
}
