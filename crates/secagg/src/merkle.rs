//! The Merkle tree of RFC 9162 (section 2.1), and one proof for many of its leaves.
//!
//! A client is shown hundreds of members of a directory. A path for each would repeat most hashes; one proof for all of them
//! has the hash of every largest subtree that none of them is in, from left to right. No crate that we know has such proofs
//! for this tree, whose leaves and nodes cannot be taken for each other; its recursion is all there is to it. The root does not
//! say how many leaves there are: the session does.

use sha2::{Digest, Sha256};

/// A hash of a leaf or of a node.
pub(crate) type Hash = [u8; 32];

/// The hash of a leaf.
pub(crate) fn leaf(bytes: &[u8]) -> Hash {
    Sha256::new().chain_update([0]).chain_update(bytes).finalize().into()
}

fn node(left: &Hash, right: &Hash) -> Hash {
    Sha256::new().chain_update([1]).chain_update(left).chain_update(right).finalize().into()
}

/// Where a tree of so many leaves, more than one, is split: at the largest power of two below their number.
const fn split(leaves: usize) -> usize {
    leaves.next_power_of_two() / 2
}

/// All nodes of a tree. What is shown to one client costs as many steps as it has hashes, not as there are leaves.
#[derive(Debug)]
pub(crate) struct Tree {
    /// The leaves, then the nodes over two, four, eight of them, as far as they are full.
    levels: Vec<Vec<Hash>>,
}

impl Tree {
    pub(crate) fn new(leaves: Vec<Hash>) -> Self {
        let mut levels = vec![leaves];
        while let Some(below) = levels.last().filter(|level| level.len() > 1) {
            levels.push(below.as_chunks().0.iter().map(|[left, right]| node(left, right)).collect());
        }
        Self { levels }
    }

    fn leaves(&self) -> usize {
        self.levels[0].len()
    }

    /// The root; of no leaves, the hash of nothing.
    pub(crate) fn root(&self) -> Hash {
        if self.leaves() == 0 { Sha256::digest([]).into() } else { self.subtree(0, self.leaves()) }
    }

    /// The hash over so many leaves from one on, as the tree is split: full, or the rest at the right end.
    fn subtree(&self, first: usize, leaves: usize) -> Hash {
        if leaves.is_power_of_two() {
            return self.levels[leaves.ilog2() as usize][first / leaves];
        }
        let at = split(leaves);
        node(&self.subtree(first, at), &self.subtree(first + at, leaves - at))
    }

    /// The proof for the leaves at some positions, which ascend.
    pub(crate) fn prove(&self, positions: &[u32]) -> Vec<Hash> {
        let mut proof = Vec::new();
        self.collect(0, self.leaves(), positions, &mut proof);
        proof
    }

    fn collect(&self, first: usize, leaves: usize, positions: &[u32], proof: &mut Vec<Hash>) {
        if positions.is_empty() {
            proof.push(self.subtree(first, leaves));
        } else if leaves > 1 {
            let at = split(leaves);
            let (left, right) = positions.split_at(positions.partition_point(|p| (*p as usize) < first + at));
            self.collect(first, at, left, proof);
            self.collect(first + at, leaves - at, right, proof);
        }
    }
}

/// The root that a proof gives to a tree of so many leaves, with the known ones at positions that ascend. None where the
/// proof is not one for these positions, or a position is not in the tree.
pub(crate) fn proved_root(leaves: u32, known: &[(u32, Hash)], proof: &[Hash]) -> Option<Hash> {
    let in_order = known.is_sorted_by(|a, b| a.0 < b.0) && known.last().is_some_and(|last| last.0 < leaves);
    let mut rest = proof.iter();
    let root = in_order.then(|| put_together(leaves as usize, 0, known, &mut rest))??;
    rest.next().is_none().then_some(root)
}

fn put_together(
    leaves: usize,
    first: u32,
    known: &[(u32, Hash)],
    proof: &mut std::slice::Iter<'_, Hash>,
) -> Option<Hash> {
    match (known, leaves) {
        ([], _) => proof.next().copied(),
        ([(_, hash), ..], 1) => Some(*hash),
        _ => {
            let at = split(leaves);
            let middle = first + at as u32;
            let (left, right) = known.split_at(known.partition_point(|(p, _)| *p < middle));
            let left = put_together(at, first, left, proof)?;
            Some(node(&left, &put_together(leaves - at, middle, right, proof)?))
        }
    }
}

#[cfg(test)]
mod tests {
    use ct_merkle::mem_backed_tree::MemoryBackedTree;
    use proptest::prelude::*;

    use super::*;

    fn leaves(count: u32) -> Vec<Hash> {
        (0..count).map(|i| leaf(&i.to_le_bytes())).collect()
    }

    #[test]
    fn roots_are_those_of_another_implementation() {
        let mut tree = MemoryBackedTree::<Sha256, Vec<u8>>::new();
        for count in 0..200_u32 {
            assert_eq!(Tree::new(leaves(count)).root(), <[u8; 32]>::from(*tree.root().as_bytes()), "{count}");
            tree.push(count.to_le_bytes().to_vec());
        }
    }

    #[test]
    fn a_proof_for_one_leaf_is_its_path() {
        let mut tree = MemoryBackedTree::<Sha256, Vec<u8>>::new();
        (0..53_u32).for_each(|i| tree.push(i.to_le_bytes().to_vec()));
        for at in 0..53 {
            let mut path: Vec<Hash> =
                tree.prove_inclusion(at as usize).as_bytes().chunks(32).map(|h| h.try_into().unwrap()).collect();
            let mut ours = Tree::new(leaves(53)).prove(&[at]);
            path.sort_unstable();
            ours.sort_unstable();
            assert_eq!(ours, path, "the same hashes, in another order");
        }
    }

    #[test]
    fn what_is_all_known_needs_no_proof() {
        let all = leaves(37);
        let known: Vec<(u32, Hash)> = (0..).zip(all.iter().copied()).collect();
        let tree = Tree::new(all);
        assert!(tree.prove(&(0..37).collect::<Vec<_>>()).is_empty());
        assert_eq!(proved_root(37, &known, &[]), Some(tree.root()));
    }

    #[test]
    fn positions_out_of_order_or_out_of_the_tree_prove_nothing() {
        let all = leaves(5);
        let tree = Tree::new(all.clone());
        let proof = tree.prove(&[1, 3]);
        let known = |positions: &[u32]| positions.iter().map(|p| (*p, all[*p as usize % 5])).collect::<Vec<_>>();
        assert_eq!(proved_root(5, &known(&[1, 3]), &proof), Some(tree.root()));
        for wrong in [&[3, 1][..], &[1, 1], &[1, 8], &[]] {
            assert_eq!(proved_root(5, &known(wrong), &proof), None, "{wrong:?}");
        }
        assert_eq!(proved_root(0, &known(&[0]), &[]), None);
    }

    proptest! {
        #[test]
        fn a_proof_holds_for_its_leaves_and_for_nothing_else(
            count in 1_u32..70,
            chosen in prop::collection::btree_set(any::<u32>(), 1..12),
            other in any::<(u32, u8)>(),
        ) {
            let all = leaves(count);
            let positions: Vec<u32> = chosen.into_iter().map(|p| p % count).collect::<std::collections::BTreeSet<_>>().into_iter().collect();
            let tree = Tree::new(all.clone());
            let (proof, root) = (tree.prove(&positions), tree.root());
            let known: Vec<(u32, Hash)> = positions.iter().map(|p| (*p, all[*p as usize])).collect();
            prop_assert_eq!(proved_root(count, &known, &proof), Some(root));
            // One bit of a leaf, or of the proof.
            let at = other.0 as usize % (known.len() + proof.len());
            let (mut bad_known, mut bad_proof) = (known.clone(), proof.clone());
            let hash = if at < known.len() { &mut bad_known[at].1 } else { &mut bad_proof[at - known.len()] };
            hash[usize::from(other.1) % 32] ^= 1 << (other.1 >> 5);
            prop_assert_ne!(proved_root(count, &bad_known, &bad_proof), Some(root));
            // Another position, a longer or a shorter proof.
            let mut moved = known.clone();
            moved[0].0 = if moved[0].0 == 0 { count } else { moved[0].0 - 1 };
            prop_assert_ne!(proved_root(count, &moved, &proof), Some(root));
            prop_assert_eq!(proved_root(count, &known, &[&proof[..], &[[0; 32]]].concat()), None);
            if let Some((_, shorter)) = proof.split_last() {
                prop_assert_eq!(proved_root(count, &known, shorter), None);
            }
        }
    }
}
