//! SHA-256 digests and their hexadecimal form, in lower case only.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use thiserror::Error;

/// A SHA-256 value. It is written as 64 lower-case hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Digest([u8; 32]);

impl Digest {
    /// What stands before the first entry.
    pub const ZERO: Self = Self([0; 32]);

    /// The digest of the bytes under a label: equal bytes in another role have another digest.
    pub(crate) fn of(label: &str, bytes: &[u8]) -> Self {
        let mut hash = Sha256::new();
        hash.update(label.as_bytes());
        hash.update([0]);
        hash.update(bytes);
        Self(hash.finalize().into())
    }

    /// The plain SHA-256 of a released vector, as `sha256sum` prints it.
    #[must_use]
    pub fn of_released(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    pub(crate) const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The value.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

/// Text that is not the hexadecimal form of what was expected.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("expected {digits} lower-case hexadecimal digits, got {got:?}")]
pub struct HexError {
    /// How many digits there should be.
    digits: usize,
    /// The beginning of what was given.
    got: String,
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Digest {
    type Err = HexError;
    fn from_str(text: &str) -> Result<Self, HexError> {
        unhex(text).map(Self)
    }
}

impl TryFrom<String> for Digest {
    type Error = HexError;
    fn try_from(text: String) -> Result<Self, HexError> {
        text.parse()
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> Self {
        digest.to_string()
    }
}

/// Lower-case hexadecimal. It is written here and not taken from a crate since the other way has to refuse every second written form, and
/// secret keys pass through both: no copy is left where a text grows.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        text.push(char::from(DIGITS[usize::from(byte >> 4)]));
        text.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
    text
}

/// The other way; upper case and any other length are refused, so that a value has one written form.
///
/// # Errors
/// When the text is not that.
pub fn unhex<const N: usize>(text: &str) -> Result<[u8; N], HexError> {
    let error = || HexError { digits: 2 * N, got: text.chars().take(80).collect() };
    if text.len() != 2 * N {
        return Err(error());
    }
    let digit = |c: u8| match c {
        b'0'..=b'9' => Ok(c - b'0'),
        b'a'..=b'f' => Ok(c - b'a' + 10),
        _ => Err(error()),
    };
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_has_one_written_form() {
        let digest = Digest::of("label", b"bytes");
        assert_eq!(digest.to_string().parse::<Digest>(), Ok(digest));
        assert!(digest.to_string().to_uppercase().parse::<Digest>().is_err());
        assert!(format!("{digest}0").parse::<Digest>().is_err());
        assert_ne!(Digest::of("labelb", b"ytes"), digest);
    }

    #[test]
    fn released_vectors_are_hashed_as_everyone_does() {
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(Digest::of_released(b"").to_string(), empty);
    }
}
