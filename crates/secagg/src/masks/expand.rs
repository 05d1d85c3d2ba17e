//! Adds masks to lanes without ever storing a mask.

use zeroize::Zeroize;

use super::{
    BLOCK, MaskError, MaskKey, Sign,
    packing::{check_bits, check_blocks, packed_len, unpack_two_with, unpack_with},
    stream::{CIPHER_BLOCK, Keystream},
};

/// The lanes that are worked on at a time: 32 KiB of them, which stay near while many masks are added.
///
/// Their keystream is 64 b cipher blocks, a multiple of what the widest implementation of AES encrypts at once.
const CHUNK: usize = 8 * BLOCK;

/// The masks that are added in one pass over the lanes; their key schedules are kept that long.
const TILE: usize = 64;

/// Adds the masks of many keys to the lanes, or subtracts them.
///
/// The lanes are whole blocks of a vector, the first of them number `first_block`. They wrap: [`super::reduce`] or
/// [`super::pack`] them at the end.
///
/// # Errors
/// If lanes are not whole blocks, bits not 1 to 32, or the blocks beyond every vector; no lane is changed then.
pub fn apply(lanes: &mut [u32], first_block: u64, bits: u32, streams: &[(MaskKey, Sign)]) -> Result<(), MaskError> {
    let bits = check_bits(bits)?;
    let len = check_blocks(lanes, bits)?;
    let position = position(first_block, len, bits).ok_or(MaskError::Position { first_block })?;
    let mut buffers = [Buffer::new(), Buffer::new()];
    for tile in streams.chunks(TILE) {
        let mut keystreams: Vec<_> = tile.iter().map(|(key, sign)| (Keystream::new(key, position), *sign)).collect();
        for chunk in lanes.chunks_mut(CHUNK) {
            let len = packed_len(chunk.len(), bits);
            let (pairs, last) = keystreams.as_chunks_mut::<2>();
            pairs.iter_mut().for_each(|pair| add_two(chunk, pair, &mut buffers, len, bits));
            last.iter_mut().for_each(|one| add_one(chunk, one, &mut buffers[0], len, bits));
        }
    }
    Ok(())
}

/// Adds two masks to a chunk at once, which reads and writes its lanes half as often.
fn add_two(
    chunk: &mut [u32],
    pair: &mut [(Keystream, Sign); 2],
    buffers: &mut [Box<Buffer>; 2],
    len: usize,
    bits: usize,
) {
    let [(a, _), (b, _)] = pair;
    let [first, second] = buffers;
    let packed = [first.fill(a, len), second.fill(b, len)];
    match pair.each_ref().map(|(_, sign)| *sign) {
        [Sign::Plus, Sign::Plus] => {
            unpack_two_with(chunk, packed, bits, |lane, a, b| *lane = lane.wrapping_add(a).wrapping_add(b));
        }
        [Sign::Plus, Sign::Minus] => {
            unpack_two_with(chunk, packed, bits, |lane, a, b| *lane = lane.wrapping_add(a).wrapping_sub(b));
        }
        [Sign::Minus, Sign::Plus] => {
            unpack_two_with(chunk, packed, bits, |lane, a, b| *lane = lane.wrapping_sub(a).wrapping_add(b));
        }
        [Sign::Minus, Sign::Minus] => {
            unpack_two_with(chunk, packed, bits, |lane, a, b| *lane = lane.wrapping_sub(a).wrapping_sub(b));
        }
    }
}

/// Adds one mask to a chunk.
fn add_one(chunk: &mut [u32], (keystream, sign): &mut (Keystream, Sign), buffer: &mut Buffer, len: usize, bits: usize) {
    let packed = buffer.fill(keystream, len);
    match sign {
        Sign::Plus => unpack_with(chunk, packed, bits, |lane, mask| *lane = lane.wrapping_add(mask)),
        Sign::Minus => unpack_with(chunk, packed, bits, |lane, mask| *lane = lane.wrapping_sub(mask)),
    }
}

/// The cipher block at which a mask's `first_block` begins, if `len` bytes can follow it.
fn position(first_block: u64, len: usize, bits: usize) -> Option<u64> {
    let position = first_block.checked_mul((packed_len(BLOCK, bits) / CIPHER_BLOCK) as u64)?;
    position.checked_add((len / CIPHER_BLOCK) as u64)?;
    Some(position)
}

/// The keystream of a chunk of lanes, on the boundary of a cache line.
#[repr(align(64))]
struct Buffer {
    bytes: [u8; packed_len(CHUNK, 32)],
    /// Number of blocks written so far.
    used: usize,
}

impl Buffer {
    fn new() -> Box<Self> {
        Box::new(Self { bytes: [0; _], used: 0 })
    }

    /// The next bytes of a keystream.
    fn fill(&mut self, keystream: &mut Keystream, len: usize) -> &[u8] {
        self.used = self.used.max(len);
        let bytes = &mut self.bytes[..len];
        keystream.write(bytes);
        bytes
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // Byte by byte, since the compiler may not leave it out: what was not used is not worth it.
        self.bytes[..self.used].zeroize();
    }
}
