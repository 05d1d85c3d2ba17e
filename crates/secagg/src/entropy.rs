//! The source of secrets: the operating system (feature `os-entropy`), or, in tests, a seed (feature `insecure`).

use thiserror::Error;

/// There was no randomness; no secret may be drawn.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("the operating system provided no randomness ({0}), so nothing can be masked")]
pub struct NoRandomness(pub String);

/// Fresh random bytes for keys, seeds, shares and nonces.
pub trait Entropy {
    /// Fills a buffer.
    ///
    /// # Errors
    /// When there is none to give.
    fn fill(&mut self, buffer: &mut [u8]) -> Result<(), NoRandomness>;
}

/// The operating system's. A machine without one that `getrandom` knows, such as a bare browser module, brings its own
/// [`Entropy`].
#[cfg(feature = "os-entropy")]
#[derive(Debug, Clone, Copy, Default)]
pub struct OsEntropy;

#[cfg(feature = "os-entropy")]
impl Entropy for OsEntropy {
    fn fill(&mut self, buffer: &mut [u8]) -> Result<(), NoRandomness> {
        getrandom::fill(buffer).map_err(|e| NoRandomness(e.to_string()))
    }
}

#[cfg(any(test, feature = "insecure"))]
pub use simulated::SimulatedEntropy;

#[cfg(any(test, feature = "insecure"))]
mod simulated {
    use aes::Aes256;
    use ctr::cipher::{KeyIvInit, StreamCipher};

    use super::{Entropy, NoRandomness};

    /// Insecure: bytes that follow from a key. Anyone who knows the key knows every secret.
    pub struct SimulatedEntropy(ctr::Ctr64LE<Aes256>);

    impl SimulatedEntropy {
        /// The bytes of a key.
        #[must_use]
        pub fn new(key: [u8; 32]) -> Self {
            Self(ctr::Ctr64LE::new(&key.into(), &[0; 16].into()))
        }

        /// The bytes of a number.
        #[must_use]
        pub fn from_seed(seed: u64) -> Self {
            let mut key = [0; 32];
            key[..8].copy_from_slice(&seed.to_le_bytes());
            Self::new(key)
        }
    }

    impl Entropy for SimulatedEntropy {
        fn fill(&mut self, buffer: &mut [u8]) -> Result<(), NoRandomness> {
            self.0.write_keystream(buffer);
            Ok(())
        }
    }

    impl std::fmt::Debug for SimulatedEntropy {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("SimulatedEntropy")
        }
    }
}
