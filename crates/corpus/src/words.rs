//! Vocabularies: the words of a public list, of public text, or of the users' own text, which is a release without privacy.

use std::path::PathBuf;

use lm::{
    tokenizer::Tokenizer,
    vocabulary::{Counts, Vocabulary, VocabularyError},
};
use thiserror::Error;

use crate::{
    import::{self, BadLine, Format, ImportError, Input, Progress},
    origin::{KnownVocabulary, Origin, SourceFile},
};

/// Files of text: posts where their names say so, and plain text elsewhere.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Texts {
    /// The files.
    pub paths: Vec<PathBuf>,
    /// The field of posts that says who wrote them, where it is not the usual one.
    pub user_key: Option<String>,
    /// The field of posts with their text, where it is not the usual one.
    pub text_key: Option<String>,
}

/// Where words come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Words {
    /// A public list, one word a line with the most frequent first.
    List(PathBuf),
    /// Public text.
    Public(Texts),
    /// The users' own text, without any privacy.
    Users(Texts),
}

/// Lines that could not be read.
#[derive(Debug, Clone, Default)]
pub struct BadLines {
    /// How many.
    pub lines: u64,
    /// The first of them.
    pub first: Vec<BadLine>,
}

/// Why there is no vocabulary.
#[derive(Debug, Error)]
pub enum WordsError {
    /// A list that cannot be read.
    #[error("{}: {error}", path.display())]
    List {
        /// Which.
        path: PathBuf,
        /// What the system said.
        error: std::io::Error,
    },
    /// Words that make no vocabulary.
    #[error(transparent)]
    Vocabulary(#[from] VocabularyError),
    /// Text that cannot be read.
    #[error(transparent)]
    Import(#[from] ImportError),
    /// A file that was read and cannot be named.
    #[error(transparent)]
    File(#[from] std::io::Error),
}

impl Words {
    /// The vocabulary of so many entries, which says where it came from. `progress` says whether to go on.
    ///
    /// # Errors
    /// When something cannot be read, or there are too few words.
    pub fn vocabulary(
        &self,
        tokenizer: Tokenizer,
        size: usize,
        progress: &mut dyn FnMut(Progress) -> bool,
    ) -> Result<(KnownVocabulary, BadLines), WordsError> {
        let (vocabulary, origin, bad) = match self {
            Self::List(path) => {
                let unread = |error| WordsError::List { path: path.clone(), error };
                let list = std::fs::read_to_string(path).map_err(unread)?;
                let vocabulary = Vocabulary::from_list(&list, tokenizer, size)?;
                (vocabulary, Origin::public_list(path), BadLines::default())
            }
            Self::Public(texts) => {
                let (counts, bad) = texts.count(tokenizer, progress)?;
                let vocabulary = counts.vocabulary(size)?;
                let files = texts.paths.iter().map(|path| SourceFile::of(path)).collect::<Result<_, _>>()?;
                (vocabulary, Origin::PublicText { files }, bad)
            }
            Self::Users(texts) => {
                let (counts, bad) = texts.count(tokenizer, progress)?;
                (counts.vocabulary(size)?, Origin::users_non_privately(&texts.paths), bad)
            }
        };
        Ok((KnownVocabulary { vocabulary, rules: tokenizer.rules(), origin }, bad))
    }
}

impl Texts {
    fn count(
        &self,
        tokenizer: Tokenizer,
        progress: &mut dyn FnMut(Progress) -> bool,
    ) -> Result<(Counts, BadLines), ImportError> {
        let all = self.paths.iter().cloned();
        let (posts, texts): (Vec<PathBuf>, Vec<PathBuf>) = all.partition(|path| Format::of(path).is_ok());
        let mut counts = import::count_text(&texts, tokenizer, progress)?;
        if posts.is_empty() {
            return Ok((counts, BadLines::default()));
        }
        let input = Input::files(&posts, None, self.user_key.as_deref(), self.text_key.as_deref());
        let (of_posts, summary) = import::count_posts(&input, tokenizer, progress)?;
        counts.merge(of_posts);
        Ok((counts, BadLines { lines: summary.bad_lines, first: summary.first_bad_lines }))
    }
}
