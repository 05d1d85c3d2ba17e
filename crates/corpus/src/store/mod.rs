//! The store: all users' tokens in one immutable, memory-mapped file.
//!
//! Little-endian throughout. A header of 512 bytes ([`format`]) says where the sections are; each begins at a multiple of 64.
//!
//! | section     | what                                                                                            |
//! |-------------|-------------------------------------------------------------------------------------------------|
//! | tokens      | ids of all users one after the other, 16 bits each if the vocabulary fits, else 32              |
//! | posts       | for each post where it ends, in tokens from the user's first, 32 bits                           |
//! | users       | for each user the first token and the first post, 64 bits each; one more at the end             |
//! | tags        | for each user 128 bits of the SHA-256 of the key; users are in the order of their tags          |
//! | key ends    | for each user where the key ends, 64 bits; empty if keys were not kept                          |
//! | keys        | the keys                                                                                        |
//! | meta        | [`Meta`] as JSON; it names the features                                                         |
//! | vocabulary  | one entry per line                                                                                |
//! | label ends  | for each post where its labels end, in labels from the first of all, 64 bits; empty if there are none |
//! | labels      | ids of the labels of all posts one after the other, 16 bits each                                |
//! | label names | the names as a list in JSON; empty if posts have no labels                                      |
//! | features    | for each user as many numbers as there are features, 32-bit floating point                      |
//!
//! Every section has a CRC-32. Those of the header, the users, the meta data, the vocabulary and the names of the labels are
//! checked when a store is opened, all of them by [`Store::verify`]. Every access is checked against the bounds, so a damaged store gives errors and
//! never a panic. BOS and EOS are not stored: every post begins and ends.
//!
//! A store is written under a temporary name, synced, and renamed: a name that exists is a whole store.

mod features;
mod format;
mod map;
mod reader;
mod split;
pub mod stats;
mod writer;

use std::path::PathBuf;

pub use features::{FeatureNamesError, Features, MOST_FEATURES};
use lm::{tokenizer::Rules, vocabulary::VocabularyError};
pub use reader::{Post, Store, Tokens, User};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
pub use split::{Part, Split, SplitError};
use thiserror::Error;
pub use writer::{StoreWriter, UserRecord};

pub use crate::labels::{LabelIds, Labels, LabelsError, MOST_LABELS};
use crate::{origin::Origin, synth::SynthPlan};

/// Which user: 128 bits of the SHA-256 of the key. Users are told apart, ordered and split by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UserTag(pub(crate) u128);

impl UserTag {
    /// The tag of a key.
    #[must_use]
    pub fn of(key: &str) -> Self {
        let digest = Sha256::new().chain_update(b"keyhush user 1\0").chain_update(key.as_bytes()).finalize();
        let mut first = [0; 16];
        first.copy_from_slice(&digest[..16]);
        Self(u128::from_be_bytes(first))
    }
}

impl std::fmt::Display for UserTag {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// The metadata of a store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Meta {
    /// The rules of the tokenizer.
    pub rules: Rules,
    /// Where the vocabulary came from.
    pub vocabulary: Origin,
    /// What was computed from users' data and kept without privacy; every ledger of a run on this store must record it.
    pub non_private: Vec<String>,
    /// If set, every user has exactly this many tokens, and users with fewer were dropped.
    pub tokens_per_user: Option<u32>,
    /// The names of the files that were imported.
    pub sources: Vec<String>,
    /// The crowd, if it is a synthetic one.
    pub crowd: Option<SynthPlan>,
    /// Where the names of the labels came from, if posts have labels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<Origin>,
    /// The names of the users' features, in the order of their numbers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub features: Vec<String>,
}

/// Why a store cannot be read or written.
#[derive(Debug, Error)]
pub enum StoreError {
    /// The operating system.
    #[error("{}: {error}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        error: std::io::Error,
    },
    /// Another kind of file.
    #[error("{} is not a keyhush store; make one with `keyhush data import` or `keyhush data synth`", .0.display())]
    NotAStore(PathBuf),
    /// A store of another version.
    #[error("{} is a store of version {got}, but this program reads versions 1 to {known}; import the text again", path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// Its version.
        got: u32,
        /// The newest version this program reads.
        known: u32,
    },
    /// A store that was damaged or cut.
    #[error("{} is damaged: {what}; import the text again", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: &'static str,
    },
    /// A name that is taken.
    #[error("{} already exists; choose another name, or use --replace", .0.display())]
    Exists(PathBuf),
    /// The vocabulary in it.
    #[error("{}: {error}", path.display())]
    Vocabulary {
        /// The file.
        path: PathBuf,
        /// The underlying error.
        error: VocabularyError,
    },
    /// A vocabulary or rules that are not the store's.
    #[error(
        "{} was made with a different vocabulary ({own}, not {given}); import the text again with the given one",
        path.display()
    )]
    OtherVocabulary {
        /// The file.
        path: PathBuf,
        /// The store's rules, number of entries and fingerprint.
        own: String,
        /// Vocabulary and rules that were given.
        given: String,
    },
    /// No such user.
    #[error("no user {index}: the store has {users} user{}, numbered from 0", if *users == 1 { "" } else { "s" })]
    NoUser {
        /// The requested index.
        index: u64,
        /// The number of users.
        users: u64,
    },
    /// The names of its features.
    #[error(transparent)]
    FeatureNames(FeatureNamesError),
    /// A user whose labels are not the store's.
    #[error("a user's labels must be one list per post, with ids below {labels}")]
    UserLabels {
        /// How many labels the store names.
        labels: usize,
    },
    /// A user whose features are not the store's.
    #[error("a user's features must be {features} finite numbers")]
    UserFeatures {
        /// How many features the store names.
        features: usize,
    },
    /// More tokens than one user may have.
    #[error("a user has more than {} tokens", u32::MAX)]
    UserTooLong,
}
