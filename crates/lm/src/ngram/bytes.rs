//! An n-gram model as bytes, little-endian:
//!
//! ```text
//! "KHNGRAM1"  order u32  vocabulary u32  n-grams of each order u64...   the header
//! words u32...  counts u32...  where followers begin u32...             of each order; the last has no followers
//! SHA-256 of everything before it
//! ```
//!
//! What is derived (discounts, unigram probabilities) is computed again when it is read.

use sha2::{Digest, Sha256};

use super::{
    NgramError, ORDERS,
    trie::{Level, Trie},
};

const MAGIC: &[u8; 8] = b"KHNGRAM1";
const DIGEST: usize = 32;

pub(super) fn write(trie: &Trie) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    // Both fit: the order is at most 5, and ids of the vocabulary are u32.
    out.extend((trie.order() as u32).to_le_bytes());
    out.extend((trie.vocabulary() as u32).to_le_bytes());
    trie.levels().iter().for_each(|l| out.extend((l.words.len() as u64).to_le_bytes()));
    for Level { words, counts, children } in trie.levels() {
        for values in [words, counts, children] {
            values.iter().for_each(|v| out.extend(v.to_le_bytes()));
        }
    }
    let digest = Sha256::digest(&out);
    out.extend_from_slice(&digest);
    out
}

pub(super) fn read(bytes: &[u8]) -> Result<Trie, NgramError> {
    let (magic, mut rest) = bytes.split_at_checked(MAGIC.len()).ok_or(NgramError::NotNgrams)?;
    if magic != MAGIC {
        return Err(NgramError::NotNgrams);
    }
    let got = bytes.len() as u64;
    let short = |want: usize| NgramError::Length { want: want as u64, got };
    let least = MAGIC.len() + 8;
    let mut number = |size: usize, least: usize| -> Result<u64, NgramError> {
        let (taken, left) = rest.split_at_checked(size).ok_or_else(|| short(least))?;
        rest = left;
        Ok(taken.iter().rev().fold(0, |n, byte| n << 8 | u64::from(*byte)))
    };
    let (order, vocabulary) = (number(4, least)? as usize, number(4, least)? as usize);
    if !ORDERS.contains(&order) {
        return Err(NgramError::Order { got: order });
    }
    let header = least + 8 * order;
    let lengths = (0..order).map(|_| number(8, header)).collect::<Result<Vec<u64>, _>>()?;
    let want = size(header, &lengths).ok_or(NgramError::Structure { order: 1 })?;
    if want != got {
        return Err(NgramError::Length { want, got });
    }
    let (content, digest) = bytes.split_at(bytes.len() - DIGEST);
    if Sha256::digest(content).as_slice() != digest {
        return Err(NgramError::Checksum);
    }
    let mut values = content[header..].chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]));
    let mut take = |n: u64| -> Vec<u32> { values.by_ref().take(n as usize).collect() };
    let last = order - 1;
    let level = |(n, len): (usize, u64)| Level {
        words: take(len),
        counts: take(len),
        children: if n < last { take(len + 1) } else { Vec::new() },
    };
    Trie::from_levels(vocabulary, lengths.into_iter().enumerate().map(level).collect())
}

/// How long a file with these numbers of n-grams is; `None` where no file can be.
fn size(header: usize, lengths: &[u64]) -> Option<u64> {
    let mut size = (header + DIGEST) as u64;
    for (n, len) in lengths.iter().enumerate() {
        let values = if n + 1 < lengths.len() { len.checked_mul(3)?.checked_add(1)? } else { len.checked_mul(2)? };
        size = size.checked_add(values.checked_mul(4)?)?;
    }
    Some(size)
}
