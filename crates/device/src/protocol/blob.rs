//! Downloads of immutable blobs: decompressed as they arrive, within the declared size, and verified by SHA-256.
//!
//! A connection that breaks costs nothing: [`Download::offset`] is where the next range begins. That what arrived is whole is
//! decided by its length and its digest; what gzip says of itself is not asked.

use std::io::{self, Write};

use flate2::write::GzDecoder;
use sha2::{Digest, Sha256};
use thiserror::Error;

use super::message::Blob;

/// Packed bytes that are unpacked at a time. zlib-rs goes from block to block by calls that need not become jumps (its issue 230), so
/// what one call is given bounds how deep a server can send it.
const PIECE: usize = 512;

/// Bytes that are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Wanted {
    /// The SHA-256 of the bytes.
    pub digest: [u8; 32],
    /// How many they are, unpacked.
    pub bytes: u64,
}

/// Why there are no such bytes.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum BlobError {
    /// Nothing is named by this.
    #[error("the digest of {what} has {got} bytes, expected 32")]
    Name {
        /// The blob whose digest is malformed.
        what: &'static str,
        /// The bytes of the name.
        got: usize,
    },
    /// More than a device takes.
    #[error("{what} has {got} bytes, but this device accepts at most {most}")]
    TooLarge {
        /// The blob that is too large.
        what: &'static str,
        /// The actual size.
        got: u64,
        /// The largest size allowed.
        most: u64,
    },
    /// More came than was declared.
    #[error("received more than the {declared} declared bytes")]
    TooMany {
        /// The declared number of bytes.
        declared: u64,
    },
    /// What came is not packed by gzip.
    #[error("the received data cannot be decompressed: {0}")]
    NotPacked(String),
    /// Other bytes than those that were asked for.
    #[error("the received data is not what was requested: digest mismatch")]
    Other,
    /// Some bytes are missing.
    #[error("received {got} of {declared} bytes")]
    Short {
        /// The number of bytes received.
        got: u64,
        /// The declared number of bytes.
        declared: u64,
    },
}

impl Wanted {
    /// The blob that a message names, if its size is within the limit.
    ///
    /// # Errors
    /// When it is named by no digest, or too large.
    pub fn of(blob: &Blob, what: &'static str, most: u64) -> Result<Self, BlobError> {
        let digest = blob.digest.as_slice().try_into().map_err(|_| BlobError::Name { what, got: blob.digest.len() })?;
        if blob.bytes > most {
            return Err(BlobError::TooLarge { what, got: blob.bytes, most });
        }
        Ok(Self { digest, bytes: blob.bytes })
    }
}

/// Bytes that are arriving.
#[derive(Debug)]
pub struct Download {
    wanted: Wanted,
    arrived: u64,
    unpacking: GzDecoder<Unpacked>,
}

impl Download {
    /// Nothing has arrived yet.
    #[must_use]
    pub fn new(wanted: Wanted) -> Self {
        let unpacked = Unpacked { bytes: Vec::new(), most: wanted.bytes, hash: Sha256::new() };
        Self { wanted, arrived: 0, unpacking: GzDecoder::new(unpacked) }
    }

    /// The requested blob.
    #[must_use]
    pub const fn wanted(&self) -> Wanted {
        self.wanted
    }

    /// Packed bytes that have arrived: where the next range begins.
    #[must_use]
    pub const fn offset(&self) -> u64 {
        self.arrived
    }

    /// Takes what came next.
    ///
    /// # Errors
    /// When it is not what was asked for. Then there is no use in continuing.
    pub fn take(&mut self, packed: &[u8]) -> Result<(), BlobError> {
        self.arrived += packed.len() as u64;
        // What cannot be packed grows by an eighth where codes are fixed, and has a head.
        if self.arrived > self.wanted.bytes + self.wanted.bytes / 8 + (1 << 17) {
            return Err(BlobError::TooMany { declared: self.wanted.bytes });
        }
        let mut pieces = packed.chunks(PIECE);
        let unpacked =
            pieces.try_for_each(|piece| self.unpacking.write_all(piece)).and_then(|()| self.unpacking.flush());
        unpacked.map_err(|error| match error.kind() {
            io::ErrorKind::FileTooLarge => BlobError::TooMany { declared: self.wanted.bytes },
            _ => BlobError::NotPacked(error.to_string()),
        })
    }

    /// The bytes, if they are all there and the right ones; otherwise why not. [`BlobError::Short`] can be mended by more.
    ///
    /// # Errors
    /// When they are not.
    pub fn finish(&mut self) -> Result<Vec<u8>, BlobError> {
        let unpacked = self.unpacking.get_mut();
        let (got, declared) = (unpacked.bytes.len() as u64, self.wanted.bytes);
        if got < declared {
            return Err(BlobError::Short { got, declared });
        }
        if unpacked.hash.clone().finalize()[..] != self.wanted.digest {
            return Err(BlobError::Other);
        }
        Ok(std::mem::take(&mut unpacked.bytes))
    }
}

/// What is unpacked, and no more of it than was declared.
#[derive(Debug)]
struct Unpacked {
    bytes: Vec<u8>,
    most: u64,
    hash: Sha256,
}

impl Write for Unpacked {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.bytes.len() as u64 + bytes.len() as u64 > self.most {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.hash.update(bytes);
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use flate2::{Compression, write::GzEncoder};

    use super::*;

    fn packed(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn wanted(bytes: &[u8]) -> Wanted {
        Wanted { digest: Sha256::digest(bytes).into(), bytes: bytes.len() as u64 }
    }

    #[test]
    fn bytes_arrive_in_any_pieces_and_a_break_costs_nothing() {
        let bytes: Vec<u8> = (0..100_000u32).flat_map(|i| i.wrapping_mul(i).to_le_bytes()).collect();
        let packed = packed(&bytes);
        for piece in [1, 7, 1000, packed.len()] {
            let mut download = Download::new(wanted(&bytes));
            for part in packed.chunks(piece) {
                let at = download.offset() as usize;
                // All of it can be there before the last bytes of gzip are, which nobody needs.
                if at + 1000 < packed.len() {
                    assert!(matches!(download.finish(), Err(BlobError::Short { .. })));
                }
                download.take(&packed[at..at + part.len()]).unwrap();
            }
            assert_eq!(download.finish().unwrap(), bytes);
        }
        let mut nothing = Download::new(wanted(b""));
        assert_eq!(nothing.finish(), Ok(Vec::new()));
    }

    #[test]
    fn what_was_not_asked_for_is_refused() {
        let bytes = vec![7; 10_000];
        let take = |wanted: Wanted, packed: &[u8]| {
            let mut download = Download::new(wanted);
            download.take(packed).and_then(|()| download.finish())
        };
        assert_eq!(take(wanted(&[8; 10_000]), &packed(&bytes)), Err(BlobError::Other));
        assert_eq!(take(wanted(&bytes[1..]), &packed(&bytes)), Err(BlobError::TooMany { declared: 9_999 }));
        assert!(matches!(take(wanted(&bytes), b"no gzip at all"), Err(BlobError::NotPacked(_))));
        // A bomb: ten megabytes in ten kilobytes.
        let bomb = packed(&vec![0; 10 << 20]);
        assert!(bomb.len() < 20_000);
        assert_eq!(take(wanted(&bytes), &bomb), Err(BlobError::TooMany { declared: 10_000 }));
        // More packed bytes than anything of that size can have.
        let mut download = Download::new(Wanted { digest: [0; 32], bytes: 10 });
        let noise: Vec<u8> = packed(b"0123456789").into_iter().chain(vec![0; 1 << 18]).collect();
        assert!(noise.chunks(100).any(|piece| download.take(piece).is_err()));
    }

    #[test]
    fn what_is_named_wrongly_or_too_large_is_not_asked_for() {
        let blob = |digest: usize, bytes| Blob { digest: vec![1; digest], bytes };
        assert!(Wanted::of(&blob(32, 100), "the model", 100).is_ok());
        for wrong in [blob(0, 1), blob(31, 1), blob(33, 1), blob(32, 101), blob(32, u64::MAX)] {
            assert!(Wanted::of(&wrong, "the model", 100).is_err(), "{wrong:?}");
        }
    }
}
