//! The signing key of a ledger, and its public verifying key.

use std::{fmt, str::FromStr};

use ed25519_dalek::{Signature, Signer};
use serde::{Deserialize, Serialize};
use thiserror::Error;
use zeroize::Zeroizing;

use crate::digest::{Digest, HexError, hex, unhex};
use privacy::rng::NoRandomness;

/// What stands before a hash when it is signed, so that a signature means nothing elsewhere.
const LABEL: &[u8] = b"keyhush ledger signature v1\0";

/// The Ed25519 key that signs entries. Anyone who has it can write any ledger: keep it in `secret/`.
///
/// It is wiped from memory when dropped, and `Debug` shows the public half only.
#[derive(Clone)]
pub struct SigningKey(ed25519_dalek::SigningKey);

/// The public half: with it everyone can check a ledger. It is written as 64 lower-case hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct VerifyingKey([u8; 32]);

/// A key that is none, or that could not be drawn.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum KeyError {
    /// Not the written form of a key.
    #[error(transparent)]
    Hex(#[from] HexError),
    /// Not a point of the curve, or one of small order, under which signatures prove nothing.
    #[error("not an Ed25519 public key")]
    NotAKey,
    /// The operating system gave no randomness.
    #[error(transparent)]
    Randomness(#[from] NoRandomness),
}

impl SigningKey {
    /// A new key from the operating system.
    ///
    /// # Errors
    /// When the operating system has no randomness to give.
    #[cfg(feature = "os-entropy")]
    pub fn generate() -> Result<Self, KeyError> {
        Ok(Self::from_seed(&*random_seed()?))
    }

    /// The key of a seed; the seed is as secret as the key.
    #[must_use]
    pub fn from_seed(seed: &[u8; 32]) -> Self {
        Self(ed25519_dalek::SigningKey::from_bytes(seed))
    }

    /// The public half.
    #[must_use]
    pub fn verifying_key(&self) -> VerifyingKey {
        VerifyingKey(self.0.verifying_key().to_bytes())
    }

    /// The written form, for the run's secret folder and nothing else.
    #[must_use]
    pub fn to_secret_text(&self) -> Zeroizing<String> {
        secret_text(&Zeroizing::new(self.0.to_bytes()))
    }

    /// Reads the written form.
    ///
    /// # Errors
    /// When it is none; the error does not repeat the text.
    pub fn from_secret_text(text: &str) -> Result<Self, KeyError> {
        Ok(Self::from_seed(&*seed_from_text(text)?))
    }

    pub(crate) fn sign(&self, hash: &Digest) -> [u8; 64] {
        self.0.sign(&message(hash)).to_bytes()
    }
}

impl VerifyingKey {
    pub(crate) fn verifies(&self, hash: &Digest, signature: &[u8; 64]) -> bool {
        let key = ed25519_dalek::VerifyingKey::from_bytes(&self.0);
        key.is_ok_and(|key| key.verify_strict(&message(hash), &Signature::from_bytes(signature)).is_ok())
    }
}

fn message(hash: &Digest) -> Vec<u8> {
    [LABEL, hash.as_bytes()].concat()
}

/// 256 bits from the operating system.
#[cfg(feature = "os-entropy")]
pub(crate) fn random_seed() -> Result<Zeroizing<[u8; 32]>, KeyError> {
    let mut seed = Zeroizing::new([0; 32]);
    privacy::rng::fill_from_os(&mut *seed)?;
    Ok(seed)
}

/// A key as its file holds it.
pub(crate) fn secret_text(seed: &[u8; 32]) -> Zeroizing<String> {
    let mut text = Zeroizing::new(String::with_capacity(65));
    text.push_str(&Zeroizing::new(hex(seed)));
    text.push('\n');
    text
}

/// A key from what its file holds. The error does not repeat the text.
pub(crate) fn seed_from_text(text: &str) -> Result<Zeroizing<[u8; 32]>, KeyError> {
    unhex(text.trim_end()).map(Zeroizing::new).map_err(|_| KeyError::NotAKey)
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SigningKey(secret, of {})", self.verifying_key())
    }
}

impl fmt::Display for VerifyingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

impl fmt::Debug for VerifyingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VerifyingKey({self})")
    }
}

impl FromStr for VerifyingKey {
    type Err = KeyError;
    fn from_str(text: &str) -> Result<Self, KeyError> {
        let bytes = unhex(text)?;
        let key = ed25519_dalek::VerifyingKey::from_bytes(&bytes).map_err(|_| KeyError::NotAKey)?;
        if key.is_weak() { Err(KeyError::NotAKey) } else { Ok(Self(bytes)) }
    }
}

impl TryFrom<String> for VerifyingKey {
    type Error = KeyError;
    fn try_from(text: String) -> Result<Self, KeyError> {
        text.parse()
    }
}

impl From<VerifyingKey> for String {
    fn from(key: VerifyingKey) -> Self {
        key.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_key_that_signed_verifies() {
        let (one, other) = (SigningKey::from_seed(&[1; 32]), SigningKey::from_seed(&[2; 32]));
        let hash = Digest::of("x", b"y");
        let signature = one.sign(&hash);
        assert!(one.verifying_key().verifies(&hash, &signature));
        assert!(!other.verifying_key().verifies(&hash, &signature));
        assert!(!one.verifying_key().verifies(&Digest::ZERO, &signature));
    }

    #[test]
    fn p13_debug_does_not_show_a_secret() {
        let key = SigningKey::from_seed(&[7; 32]);
        let shown = format!("{key:?}");
        assert!(shown.contains(&key.verifying_key().to_string()) && !shown.contains("07070707"), "{shown}");
    }

    #[test]
    fn a_key_under_which_anything_verifies_is_refused() {
        assert_eq!(format!("01{}", "00".repeat(31)).parse::<VerifyingKey>(), Err(KeyError::NotAKey));
    }
}
