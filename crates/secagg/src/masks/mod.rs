//! The masks that hide a vector, and the packed form of vectors and masks.
//!
//! A vector is residues mod 2^b in `u32` lanes. Lanes wrap, and whatever they hold above bit b is harmless: it cannot
//! flow down, and [`reduce`] or [`pack`] cuts it off once at the end. A vector is padded to whole blocks of [`BLOCK`]
//! lanes ([`Shape`]); every function here works on whole blocks, so that a vector can be cut into slices for different
//! threads, or be streamed in parts.
//!
//! **Packing.** A block is b rows of 32 words, 32-bit and little-endian. Lane 32 i + l of the block (i and l below 32)
//! is bits i b to i b + b - 1 of column l, its words joined from the first row on, lowest bits first. All 32 columns are
//! shifted alike, so packing and unpacking are a few vector instructions for any b on any processor. A packed block
//! has 128 b bytes without a gap: every buffer of the right length is the packing of exactly one reduced vector.
//!
//! **Masks.** The mask of a [`MaskKey`] is the packed vector that AES-256 in counter mode writes with that key: the
//! n-th 16 bytes are the encryption of n as a 64-bit little-endian number and eight zero bytes. Residues mod 2^b read
//! from uniform bits are uniform, none is rejected. The mask of any block can be computed alone. The nonce is zero: a
//! key makes one mask, in one session.
//!
//! Time and memory access depend on lengths and b only, which are public, never on keys or lanes.
//!
//! ```
//! use keyhush_secagg::masks::{MaskKey, Shape, Sign, add_packed, apply, pack, reduce};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let shape = Shape::new(2_000, 20)?;
//! let mut sum = vec![0; shape.padded()];
//! for (value, sign) in [(3, Sign::Plus), (4, Sign::Minus)] {
//!     let mut lanes = vec![value; shape.dimension()];
//!     lanes.resize(shape.padded(), 0);
//!     apply(&mut lanes, 0, shape.bits(), &[(MaskKey::new([9; 32]), sign)])?;
//!     let mut packed = Vec::with_capacity(shape.packed_len());
//!     pack(&lanes, shape.bits(), &mut packed)?; // looks random, alone
//!     add_packed(&mut sum, &packed, shape.bits())?;
//! }
//! reduce(&mut sum, shape.bits())?;
//! assert!(sum[..2_000].iter().all(|lane| *lane == 7));
//! assert!(sum[2_000..].iter().all(|lane| *lane == 0)); // the canary
//! # Ok(())
//! # }
//! ```

mod expand;
mod packing;
mod stream;
#[cfg(test)]
mod tests;

use thiserror::Error;

pub use self::{
    expand::apply,
    packing::{BLOCK, MAX_DIMENSION, Shape, add_packed, largest, pack, reduce, subtract_packed},
    stream::{MaskKey, Sign},
};

/// Why a vector cannot be masked, packed or unpacked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum MaskError {
    /// A lane has 32 bits.
    #[error("residues mod 2^{got} cannot be masked: choose 1 to 32 bits")]
    Bits {
        /// The bits asked for.
        got: u32,
    },
    /// Nothing to mask, or longer than anything this system trains.
    #[error("a vector of {got} elements cannot be masked: it must have 1 to {MAX_DIMENSION}")]
    Dimension {
        /// The elements asked for.
        got: usize,
    },
    /// Only whole blocks can be worked on.
    #[error("{got} lanes are not whole blocks of {BLOCK}: pad the vector, and cut it between blocks only")]
    PartialBlock {
        /// The number of lanes.
        got: usize,
    },
    /// Truncated or overlong.
    #[error("{got} packed bytes where these lanes have {wanted}: the buffer is cut short or belongs to another vector")]
    PackedLength {
        /// The bytes that the lanes have.
        wanted: usize,
        /// The bytes found.
        got: usize,
    },
    /// The mask's counter would start over.
    #[error("no mask reaches block {first_block}: the block number is not one of a vector")]
    Position {
        /// The first block asked for.
        first_block: u64,
    },
}
