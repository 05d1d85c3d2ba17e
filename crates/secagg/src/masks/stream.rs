//! The keystream of a mask key.

use std::fmt;

use aes::{Aes256Enc, Block, cipher::KeyInit};
use ctr::{
    CtrCore,
    cipher::{InnerIvInit, StreamCipherCore, StreamCipherSeekCore, array::Array},
    flavors::Ctr64LE,
};
use zeroize::{Zeroize, ZeroizeOnDrop};

/// The secret of one mask: it is used for one vector, in one session.
#[derive(Zeroize, ZeroizeOnDrop)]
pub struct MaskKey([u8; 32]);

impl MaskKey {
    /// The key with these bytes, which come from a key derivation.
    #[must_use]
    pub const fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }
}

impl fmt::Debug for MaskKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MaskKey")
    }
}

/// Whether a mask is added or subtracted: of two neighbours one does the one, and one the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sign {
    /// The mask is added.
    Plus,
    /// The mask is subtracted.
    Minus,
}

/// AES-256 in counter mode at some position. The key schedule is zeroized on drop, and there is no buffer.
pub(super) struct Keystream(CtrCore<Aes256Enc, Ctr64LE>);

/// The bytes that are encrypted at once.
pub(super) const CIPHER_BLOCK: usize = 16;

impl Keystream {
    /// The keystream of a key, from the cipher block of this number on.
    pub(super) fn new(key: &MaskKey, position: u64) -> Self {
        let mut core = CtrCore::inner_iv_init(Aes256Enc::new(&key.0.into()), &Array::default());
        core.set_block_pos(position);
        Self(core)
    }

    /// Writes the next bytes, whole cipher blocks.
    pub(super) fn write(&mut self, bytes: &mut [u8]) {
        let blocks: &mut [Block] = Array::slice_as_chunks_mut(bytes).0;
        self.0.write_keystream_blocks(blocks);
    }
}
