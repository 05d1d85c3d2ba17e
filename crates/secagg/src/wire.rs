//! Bytes of messages: little-endian, of exact length, read without trust. Nothing is allocated before what it is for is
//! known to be there.

use thiserror::Error;

/// The version of the protocol: of every message and every label.
pub const VERSION: u8 = 2;

/// Which algorithms: X25519, Ed25519, HKDF and SHA-256, AES-256 in GCM and counter mode, Shamir mod 2^61 - 1. It stands
/// beside the version in every message, so that others can be tried without another protocol.
pub const SUITE: u8 = 1;

/// Bytes that are not the message they should be.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum WireError {
    /// Too few bytes.
    #[error("the message is truncated")]
    Short,
    /// Too many bytes.
    #[error("the message has {extra} extra bytes")]
    Trailing {
        /// Number of extra bytes.
        extra: usize,
    },
    /// Another version of the protocol.
    #[error("the message has protocol version {got}, but this is version {ours}; update the older side")]
    Version {
        /// The value received.
        got: u8,
        /// The value this program supports.
        ours: u8,
    },
    /// The message uses other algorithms.
    #[error("the message uses algorithm suite {got}, but this is suite {ours}; update the older side")]
    Suite {
        /// The value received.
        got: u8,
        /// The value this program supports.
        ours: u8,
    },
    /// The message is of another kind.
    #[error("expected message {expected}, got number {got}")]
    Kind {
        /// The messages expected.
        expected: &'static str,
        /// The value received.
        got: u8,
    },
    /// A value without meaning.
    #[error("{what} is not valid here")]
    Value {
        /// What is wrong.
        what: &'static str,
    },
}

/// Takes values off the front of a message.
pub(crate) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(crate) fn bytes(&mut self, count: usize) -> Result<&'a [u8], WireError> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(WireError::Short)?;
        self.0 = rest;
        Ok(taken)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let (taken, rest) = self.0.split_first_chunk::<N>().ok_or(WireError::Short)?;
        self.0 = rest;
        Ok(*taken)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, WireError> {
        Ok(self.array::<1>()?[0])
    }

    pub(crate) fn u32(&mut self) -> Result<u32, WireError> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, WireError> {
        self.array().map(u64::from_le_bytes)
    }

    /// Version and suite, with which everything begins.
    pub(crate) fn protocol(&mut self) -> Result<(), WireError> {
        match (self.u8()?, self.u8()?) {
            (VERSION, SUITE) => Ok(()),
            (VERSION, got) => Err(WireError::Suite { got, ours: SUITE }),
            (got, _) => Err(WireError::Version { got, ours: VERSION }),
        }
    }

    /// Four bytes that say how many bytes follow, and those.
    pub(crate) fn long_bytes(&mut self) -> Result<&'a [u8], WireError> {
        let count = self.u32()?;
        self.bytes(count as usize)
    }

    /// A count of things that take at least `each` bytes: refused where the message cannot hold them.
    pub(crate) fn count(&mut self, each: usize) -> Result<usize, WireError> {
        let count = self.u32()? as usize;
        if count > self.0.len() / each.max(1) {
            return Err(WireError::Short);
        }
        Ok(count)
    }

    /// All remaining bytes.
    pub(crate) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }

    /// There must be nothing left.
    pub(crate) const fn end(self) -> Result<(), WireError> {
        if self.0.is_empty() { Ok(()) } else { Err(WireError::Trailing { extra: self.0.len() }) }
    }
}

/// One bit for each of some numbered things, the first in the lowest bit; bits beyond the last are zero.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bits(Vec<bool>);

impl Bits {
    /// A list of bits, one for each client.
    #[must_use]
    pub const fn new(bits: Vec<bool>) -> Self {
        Self(bits)
    }

    /// The bits, in order.
    pub fn iter(&self) -> impl Iterator<Item = bool> + '_ {
        self.0.iter().copied()
    }

    /// Whether it is true of one; of one that is not there it is not.
    #[must_use]
    pub fn get(&self, number: usize) -> bool {
        self.0.get(number).copied().unwrap_or(false)
    }

    /// How many things there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether it is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The number of bits that are set.
    #[must_use]
    pub fn ones(&self) -> usize {
        self.iter().filter(|b| *b).count()
    }

    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        for eight in self.0.chunks(8) {
            out.push(eight.iter().enumerate().map(|(i, b)| u8::from(*b) << i).sum());
        }
    }

    pub(crate) fn read(reader: &mut Reader<'_>, count: usize) -> Result<Self, WireError> {
        let bytes = reader.bytes(count.div_ceil(8))?;
        let bit = |i: usize| bytes[i / 8] >> (i % 8) & 1 == 1;
        if (count..8 * bytes.len()).any(bit) {
            return Err(WireError::Value { what: "a bit beyond the last" });
        }
        Ok(Self((0..count).map(bit).collect()))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_too_short_or_too_long_is_refused() {
        assert_eq!(Reader::new(&[1, 2, 3]).u32(), Err(WireError::Short));
        let mut reader = Reader::new(&[1, 2, 3]);
        assert_eq!(reader.u8(), Ok(1));
        assert_eq!(reader.end(), Err(WireError::Trailing { extra: 2 }));
        assert_eq!(Reader::new(&[255, 255, 255, 255, 0]).long_bytes(), Err(WireError::Short));
        assert_eq!(Reader::new(&[2, 0, 0, 0, 7, 8, 9]).long_bytes(), Ok(&[7, 8][..]));
    }

    #[test]
    fn a_count_that_the_message_cannot_hold_is_refused() {
        let message = [3, 0, 0, 0, 9, 9, 9, 9, 9, 9];
        assert_eq!(Reader::new(&message).count(2), Ok(3));
        assert_eq!(Reader::new(&message).count(3), Err(WireError::Short));
        assert_eq!(Reader::new(&u32::MAX.to_le_bytes()).count(108), Err(WireError::Short));
    }

    #[test]
    fn bits_beyond_the_last_must_be_zero() {
        assert!(Bits::read(&mut Reader::new(&[0b111]), 3).is_ok());
        assert!(Bits::read(&mut Reader::new(&[0b1111]), 3).is_err());
    }

    proptest! {
        #[test]
        fn bits_arrive_as_they_left(bits in prop::collection::vec(any::<bool>(), 0..70)) {
            let sent = Bits::new(bits);
            let mut bytes = Vec::new();
            sent.write(&mut bytes);
            let mut reader = Reader::new(&bytes);
            prop_assert_eq!(Bits::read(&mut reader, sent.len()), Ok(sent));
            prop_assert!(reader.end().is_ok());
        }
    }
}
