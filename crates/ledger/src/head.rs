//! The head of a chain: keep a copy to detect a shortened ledger (rule P17).

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::digest::{Digest, HexError};

/// The length of the chain and the hash of its last entry; written as `<length>:<hash>`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Head {
    /// How many entries there are.
    pub length: u64,
    /// The hash of the last one.
    pub hash: Digest,
}

impl Head {
    /// Before the first entry.
    pub const EMPTY: Self = Self { length: 0, hash: Digest::ZERO };
}

/// Text that is not a head.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum HeadError {
    /// There is no length, or it is not a number.
    #[error("expected a head in the form LENGTH:HASH, got {got:?}")]
    Form {
        /// The beginning of what was given.
        got: String,
    },
    /// The hash is not one.
    #[error("hash of the head: {0}")]
    Hash(#[from] HexError),
}

impl fmt::Display for Head {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.length, self.hash)
    }
}

impl FromStr for Head {
    type Err = HeadError;
    fn from_str(text: &str) -> Result<Self, HeadError> {
        let form = || HeadError::Form { got: text.chars().take(90).collect() };
        let (length, hash) = text.split_once(':').ok_or_else(form)?;
        let length: u64 = length.parse().map_err(|_| form())?;
        let head = Self { length, hash: hash.parse()? };
        // One written form: no `+1`, no `01`, and nothing but zeros before the first entry.
        if head.to_string() != text || (length == 0) != (head.hash == Digest::ZERO) { Err(form()) } else { Ok(head) }
    }
}

impl TryFrom<String> for Head {
    type Error = HeadError;
    fn try_from(text: String) -> Result<Self, HeadError> {
        text.parse()
    }
}

impl From<Head> for String {
    fn from(head: Head) -> Self {
        head.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_has_one_written_form() {
        let head = Head { length: 12, hash: Digest::of("x", b"y") };
        assert_eq!(head.to_string().parse(), Ok(head));
        assert_eq!(Head::EMPTY.to_string().parse(), Ok(Head::EMPTY));
        for evil in [
            format!("+{head}"),
            format!("0{head}"),
            format!("{head} "),
            format!("0:{}", head.hash),
            format!("1:{}", Digest::ZERO),
            "12".into(),
            "12:abc".into(),
        ] {
            assert!(evil.parse::<Head>().is_err(), "{evil}");
        }
    }
}
