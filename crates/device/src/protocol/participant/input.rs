//! The input a device sends: a plain or masked vector, cut into chunks only when they are sent.

use std::{fmt, sync::Arc};

use privacy::stages::Encoded;

use super::super::message::CHUNK;

/// An input. Those who send the same one, in measurements of a server, share it.
pub(super) enum Input {
    /// Integers, packed as they leave.
    Plain(Arc<Encoded>),
    /// A masked vector: the bytes of its message.
    Masked(Vec<u8>),
}

impl Input {
    /// Its bytes, all together. They depend on the model and on nothing else (rule P26).
    pub(super) fn len(&self) -> u64 {
        match self {
            Self::Plain(encoded) => encoded.bytes() as u64,
            Self::Masked(message) => message.len() as u64,
        }
    }

    /// Whether it is masked.
    pub(super) const fn is_masked(&self) -> bool {
        matches!(self, Self::Masked(_))
    }

    /// The chunk that begins at an offset: [`CHUNK`] bytes, or what is left.
    pub(super) fn chunk(&self, offset: u64) -> Vec<u8> {
        let (start, len) = (usize::try_from(offset).unwrap_or(usize::MAX), self.len() as usize);
        let start = start.min(len);
        let end = (start + CHUNK).min(len);
        match self {
            Self::Masked(message) => message[start..end].to_vec(),
            Self::Plain(encoded) => encoded.bytes_in(start..end),
        }
    }
}

impl fmt::Debug for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Input({} bytes)", self.len())
    }
}

#[cfg(test)]
mod tests {
    use privacy::{
        Adjacency, ClipNorm,
        encoding::{Encoding, VectorPlan},
    };

    use super::*;

    #[test]
    fn chunks_are_the_bytes_whatever_the_offset() {
        let len = CHUNK / 2 + 1001;
        let clip = ClipNorm::new(1.0).unwrap();
        let encoding = Encoding::new(VectorPlan::of_update(len, 20), clip, None, Adjacency::ZeroOut).unwrap();
        let encoded = Encoded::of((0..len as i32).map(|v| v % 1000 - 500).collect(), &encoding).unwrap();
        let values = encoded.to_bytes();
        assert_eq!(values.len(), (len * 22).div_ceil(8));
        for input in [Input::Plain(Arc::new(encoded)), Input::Masked(values.clone())] {
            assert_eq!(input.len(), values.len() as u64);
            for offset in [0, 1, 2, 3, 4, 4001, CHUNK, CHUNK + 3997, values.len() - 1, values.len(), usize::MAX] {
                let start = offset.min(values.len());
                let expected = &values[start..(start + CHUNK).min(values.len())];
                assert_eq!(input.chunk(offset as u64), expected, "{offset}");
            }
        }
    }
}
