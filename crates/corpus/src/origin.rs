//! Records where a vocabulary came from, in a file next to it.
//!
//! Which words are in a vocabulary tells something about the text it was counted from. Lists and texts that are public tell
//! nothing about the users; a vocabulary counted from the users' own text is a release without privacy, and carries that
//! with it into every store, so that the ledger of a run can record it.
//!
//! A vocabulary file is one line `#keyhush-vocabulary {...}` with the rules and the origin, then one entry per line.

use std::{
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
};

use lm::{
    tokenizer::{Rules, Tokenizer},
    vocabulary::{Counts, Vocabulary, VocabularyError},
};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use thiserror::Error;

use crate::text;

const MARK: &str = "#keyhush-vocabulary ";

/// A file by which a vocabulary was counted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SourceFile {
    /// Its name.
    pub name: String,
    /// A hash of its length and its first mebibyte: enough to notice the same file under another name.
    pub fingerprint: String,
}

/// How much of a file its fingerprint looks at.
const LOOKED_AT: u64 = 1 << 20;

impl SourceFile {
    /// Looks at a file.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn of(path: &Path) -> io::Result<Self> {
        if text::is_standard_input(path) {
            let why = "a vocabulary records its source, so standard input is not possible; name a file";
            return Err(io::Error::new(io::ErrorKind::Unsupported, why));
        }
        let mut file = File::open(path)?;
        let mut hash = Sha256::new().chain_update(file.metadata()?.len().to_le_bytes());
        let mut start = Vec::new();
        file.by_ref().take(LOOKED_AT).read_to_end(&mut start)?;
        hash.update(&start);
        Ok(Self { name: name(path), fingerprint: short_hex(hash) })
    }
}

/// The last part of a path: where a file lay is nobody's business.
pub(crate) fn name(path: &Path) -> String {
    if text::is_standard_input(path) {
        return "standard input".to_owned();
    }
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// The fingerprint of a vocabulary: a hash of the rules and of every entry in order.
#[must_use]
pub fn fingerprint(rules: Rules, vocabulary: &Vocabulary) -> String {
    let hash = Sha256::new().chain_update(b"keyhush vocabulary 1\0").chain_update(rules.name());
    short_hex(hash.chain_update(b"\0").chain_update(vocabulary.to_text()))
}

/// The first 64 bits of a hash.
fn short_hex(hash: Sha256) -> String {
    let mut first = [0; 8];
    first.copy_from_slice(&hash.finalize()[..8]);
    format!("{:016x}", u64::from_be_bytes(first))
}

/// The origin of a vocabulary's words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Origin {
    /// The public list of the synthetic language, or all printable characters.
    BuiltIn,
    /// A public list.
    PublicList {
        /// Its name.
        name: String,
    },
    /// Counted from public text.
    PublicText {
        /// Its files.
        files: Vec<SourceFile>,
    },
    /// Counted from the users' own text, without privacy.
    UsersNonPrivately {
        /// The name of the text.
        name: String,
    },
}

impl Origin {
    /// The public list in a file.
    #[must_use]
    pub fn public_list(path: &Path) -> Self {
        Self::PublicList { name: name(path) }
    }

    /// The users' own text in these files.
    #[must_use]
    pub fn users_non_privately(paths: &[PathBuf]) -> Self {
        let names: Vec<String> = paths.iter().map(|path| name(path)).collect();
        Self::UsersNonPrivately { name: names.join(", ") }
    }

    /// The event without privacy that every run with this vocabulary must record, if any.
    #[must_use]
    pub fn non_private_event(&self) -> Option<String> {
        self.own_text()
            .map(|name| format!("the vocabulary was counted from the users' own text ({name}) without noise"))
    }

    /// The same for names of labels.
    #[must_use]
    pub fn non_private_labels(&self) -> Option<String> {
        self.own_text().map(|name| format!("the labels were counted from the users' own posts ({name}) without noise"))
    }

    fn own_text(&self) -> Option<&str> {
        match self {
            Self::UsersNonPrivately { name } => Some(name),
            Self::BuiltIn | Self::PublicList { .. } | Self::PublicText { .. } => None,
        }
    }
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::BuiltIn => f.write_str("built in"),
            Self::PublicList { name } => write!(f, "the public list {name}"),
            Self::PublicText { files } => {
                let names: Vec<&str> = files.iter().map(|file| file.name.as_str()).collect();
                write!(f, "the public text {}", names.join(", "))
            }
            Self::UsersNonPrivately { name } => write!(f, "the users' own text ({name}): NOT PRIVATE"),
        }
    }
}

/// A vocabulary with all that one must know of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownVocabulary {
    /// The entries.
    pub vocabulary: Vocabulary,
    /// The rules by which text becomes tokens.
    pub rules: Rules,
    /// The origin of the vocabulary.
    pub origin: Origin,
}

/// Why a file is not a vocabulary file.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum VocabularyFileError {
    /// The first line is not ours.
    #[error(
        "not a vocabulary file (its origin is missing); make one from a plain list with `keyhush data vocab --from-list`"
    )]
    NoOrigin,
    /// The first line cannot be read.
    #[error("its first line cannot be read: {0}")]
    Header(String),
    /// The rest is not a vocabulary.
    #[error(transparent)]
    Vocabulary(#[from] VocabularyError),
}

/// A vocabulary that a model of public text alone cannot have.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum NotPublicError {
    /// The file cannot be read.
    #[error(transparent)]
    File(#[from] VocabularyFileError),
    /// A plain list that is no vocabulary.
    #[error(transparent)]
    List(#[from] VocabularyError),
    /// Its words are not as the model reads them.
    #[error("its words follow the rules {its}, but this model uses {model}")]
    Rules {
        /// The tokenizer rules of the vocabulary file.
        its: Rules,
        /// The model's tokenizer rules.
        model: Rules,
    },
    /// It was counted in users' text.
    #[error("it comes from {0}, but this model may only use public text")]
    Origin(Origin),
}

/// The vocabulary of a model of public text that is counted in that text: so many of its most frequent entries.
///
/// # Errors
/// When there is no room for words.
pub fn counted_vocabulary(texts: &[String], tokenizer: Tokenizer, size: usize) -> Result<Vocabulary, VocabularyError> {
    let mut counts = Counts::new();
    texts.iter().flat_map(|text| text.lines()).for_each(|line| counts.add(tokenizer, line));
    counts.vocabulary(size)
}

/// The vocabulary of a model of public text: of a file that says where it came from, or of a model folder, which does not.
///
/// # Errors
/// When it cannot be read, follows other rules, or was counted in users' text.
pub fn public_vocabulary(text: &str, tokenizer: Tokenizer) -> Result<Vocabulary, NotPublicError> {
    let known = match KnownVocabulary::parse(text) {
        Ok(known) => known,
        Err(VocabularyFileError::NoOrigin) => return Ok(Vocabulary::parse(text)?),
        Err(error) => return Err(error.into()),
    };
    if known.rules != tokenizer.rules() {
        return Err(NotPublicError::Rules { its: known.rules, model: tokenizer.rules() });
    }
    match known.origin.non_private_event() {
        Some(_) => Err(NotPublicError::Origin(known.origin)),
        None => Ok(known.vocabulary),
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    rules: Rules,
    origin: Origin,
}

impl KnownVocabulary {
    /// The vocabulary that comes with the program: the synthetic language's most frequent words.
    ///
    /// # Errors
    /// When `size` leaves no room for words.
    pub fn built_in(size: usize) -> Result<Self, VocabularyError> {
        Ok(Self { vocabulary: crate::synth::vocabulary(size)?, rules: Rules::Words1, origin: Origin::BuiltIn })
    }

    /// All printable ASCII characters, tab and newline.
    ///
    /// # Errors
    /// Never; the entries are distinct.
    pub fn built_in_characters() -> Result<Self, VocabularyError> {
        let characters = ['\t', '\n'].into_iter().chain(' '..='~').map(String::from);
        let vocabulary = Vocabulary::new(characters)?;
        Ok(Self { vocabulary, rules: Rules::Characters1, origin: Origin::BuiltIn })
    }

    /// The fingerprint of the vocabulary.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        fingerprint(self.rules, &self.vocabulary)
    }

    /// The tokenizer that goes with it.
    #[must_use]
    pub const fn tokenizer(&self) -> Tokenizer {
        Tokenizer::new(self.rules)
    }

    /// Reads what [`KnownVocabulary::to_file`] wrote.
    ///
    /// # Errors
    /// When the text is not such a file.
    pub fn parse(text: &str) -> Result<Self, VocabularyFileError> {
        let rest = text.strip_prefix(MARK).ok_or(VocabularyFileError::NoOrigin)?;
        let (header, entries) = rest.split_once('\n').ok_or(VocabularyFileError::NoOrigin)?;
        let header: Header =
            serde_json::from_str(header).map_err(|error| VocabularyFileError::Header(error.to_string()))?;
        Ok(Self { vocabulary: Vocabulary::parse(entries)?, rules: header.rules, origin: header.origin })
    }

    /// The text of a vocabulary file.
    #[must_use]
    pub fn to_file(&self) -> String {
        let header = Header { rules: self.rules, origin: self.origin.clone() };
        let header = serde_json::to_string(&header).expect("strings and unit variants serialise");
        format!("{MARK}{header}\n{}", self.vocabulary.to_text())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_keeps_the_origin() {
        let vocabulary = Vocabulary::new(["a", "b"]).unwrap();
        let origin = Origin::UsersNonPrivately { name: "diary.jsonl".into() };
        let known = KnownVocabulary { vocabulary, rules: Rules::Words1, origin };
        assert_eq!(KnownVocabulary::parse(&known.to_file()).unwrap(), known);
        assert!(known.origin.non_private_event().unwrap().contains("diary.jsonl"));
        assert!(Origin::BuiltIn.non_private_event().is_none());
    }

    #[test]
    fn a_plain_list_says_nothing_of_its_origin() {
        assert_eq!(KnownVocabulary::parse("the\nof\n").unwrap_err(), VocabularyFileError::NoOrigin);
        let cut = format!("{MARK}{{\"rules\":\"words-9\"}}\n");
        assert!(matches!(KnownVocabulary::parse(&cut), Err(VocabularyFileError::Header(_))));
    }

    #[test]
    fn files_and_vocabularies_have_fingerprints() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            SourceFile::of(&path).unwrap().fingerprint
        };
        assert_eq!(write("a", "some text"), write("b", "some text"));
        assert_ne!(write("a", "some text"), write("b", "some test"));
        let of = |rules, words: &[&str]| fingerprint(rules, &Vocabulary::new(words).unwrap());
        assert_eq!(of(Rules::Words1, &["a", "b"]), of(Rules::Words1, &["a", "b"]));
        assert_ne!(of(Rules::Words1, &["a", "b"]), of(Rules::Words1, &["b", "a"]));
        assert_ne!(of(Rules::Words1, &["a", "b"]), of(Rules::Characters1, &["a", "b"]));
    }

    #[test]
    fn characters_have_entries_for_all_that_is_printable() {
        let known = KnownVocabulary::built_in_characters().unwrap();
        assert_eq!(known.vocabulary.len(), 3 + 2 + 95);
        assert_eq!(KnownVocabulary::parse(&known.to_file()).unwrap(), known);
    }
}
