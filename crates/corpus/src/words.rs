//! Makes vocabularies: from a public list, from public text, or from the users' own text, which is a release without privacy.

use std::path::PathBuf;

use lm::{
    tokenizer::Tokenizer,
    vocabulary::{Counts, Vocabulary, VocabularyError},
};
use thiserror::Error;

use crate::{
    import::{self, BadLine, Format, ImportError, Input, Progress},
    origin::{KnownVocabulary, Origin, SourceFile},
    text,
};

/// Files of text: posts where their names say so, and plain text elsewhere.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Texts {
    /// The files.
    pub paths: Vec<PathBuf>,
    /// The field of posts that says who wrote them, where it is not the usual one.
    pub user_key: Option<String>,
    /// The field of posts with their text, where it is not the usual one.
    pub text_key: Option<String>,
    /// The largest share of a file's posts that may be unreadable; they are skipped.
    pub most_bad_share: f64,
}

/// The source of a vocabulary's words.
#[derive(Debug, Clone, PartialEq)]
pub enum Words {
    /// A public list, one word a line with the most frequent first.
    List {
        /// Its file.
        path: PathBuf,
        /// Whether the signs that the tokenizer knows are added where the list has not got them.
        with_signs: bool,
    },
    /// Public text.
    Public(Texts),
    /// The users' own text, without any privacy.
    Users(Texts),
}

/// Warnings about a vocabulary.
#[derive(Debug, Clone, Default)]
pub struct Noticed {
    /// Signs that were added to a list which had not got them.
    pub signs_added: usize,
    /// Lines that could not be read.
    pub bad_lines: u64,
    /// The first of them.
    pub first_bad_lines: Vec<BadLine>,
}

/// Why there is no vocabulary.
#[derive(Debug, Error)]
pub enum WordsError {
    /// A list that cannot be read.
    #[error("{}: {error}", path.display())]
    List {
        /// The file.
        path: PathBuf,
        /// The system's error.
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
    /// The vocabulary of so many entries, which says where it came from. `progress` returns whether to continue.
    ///
    /// # Errors
    /// When something cannot be read, or there are too few words.
    pub fn vocabulary(
        &self,
        tokenizer: Tokenizer,
        size: usize,
        progress: &mut dyn FnMut(Progress) -> bool,
    ) -> Result<(KnownVocabulary, Noticed), WordsError> {
        let (vocabulary, origin, noticed) = match self {
            Self::List { path, with_signs } => {
                let unread = |error| WordsError::List { path: path.clone(), error };
                let list = text::read(path).map_err(unread)?;
                let (vocabulary, signs_added) = if *with_signs {
                    Vocabulary::from_list_with_signs(&list, tokenizer, size)?
                } else {
                    (Vocabulary::from_list(&list, tokenizer, size)?, 0)
                };
                (vocabulary, Origin::public_list(path), Noticed { signs_added, ..Noticed::default() })
            }
            Self::Public(texts) => {
                let (counts, noticed) = texts.count(tokenizer, progress)?;
                let vocabulary = counts.vocabulary(size)?;
                let files = texts.paths.iter().map(|path| SourceFile::of(path)).collect::<Result<_, _>>()?;
                (vocabulary, Origin::PublicText { files }, noticed)
            }
            Self::Users(texts) => {
                let (counts, noticed) = texts.count(tokenizer, progress)?;
                (counts.vocabulary(size)?, Origin::users_non_privately(&texts.paths), noticed)
            }
        };
        Ok((KnownVocabulary { vocabulary, rules: tokenizer.rules(), origin }, noticed))
    }
}

impl Texts {
    fn count(
        &self,
        tokenizer: Tokenizer,
        progress: &mut dyn FnMut(Progress) -> bool,
    ) -> Result<(Counts, Noticed), ImportError> {
        let all = self.paths.iter().cloned();
        let (posts, texts): (Vec<PathBuf>, Vec<PathBuf>) = all.partition(|path| Format::of(path).is_ok());
        let mut counts = import::count_text(&texts, tokenizer, progress)?;
        if posts.is_empty() {
            return Ok((counts, Noticed::default()));
        }
        let input = Input::files(&posts, None, self.user_key.as_deref(), self.text_key.as_deref());
        let (of_posts, summary) = import::count_posts(&input, tokenizer, progress)?;
        summary.refuse_bad_files(self.most_bad_share)?;
        counts.merge(of_posts);
        Ok((counts, Noticed { bad_lines: summary.bad_lines, first_bad_lines: summary.first_bad_lines, signs_added: 0 }))
    }
}
