//! Measures how well a model predicts text that is not trained on: files, and stores of `keyhush data import`.

use std::sync::atomic::{AtomicU64, Ordering};

use corpus::store::{Part, Split, Store, StoreError};
use lm::{
    language_model::LanguageModel,
    metrics::{Counts, HeadWords, Measure, Metrics, MetricsError, Sequence, average_perplexity},
    predict::Keyboard,
    stream::Line,
    tokenizer::{Rules, Tokenizer},
    vocabulary::{BOS, EOS, Vocabulary},
};
use thiserror::Error;

use crate::evaluate;

/// Tokens of a store that are in memory at a time.
const TOKENS: usize = 1 << 20;

/// Why a model was not measured on a set.
#[derive(Debug, Error)]
pub enum TestSetError {
    /// The store cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A sequence that the model cannot read.
    #[error(transparent)]
    Metrics(#[from] MetricsError),
}

/// A store whose ids mean something else to the model.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum OtherIdsError {
    /// Text became tokens by other rules.
    #[error("was made with the rules {its}, but the model with {model}")]
    Rules {
        /// The store's tokenizer rules.
        its: Rules,
        /// The model's tokenizer rules.
        model: Rules,
    },
    /// A vocabulary of another size.
    #[error("has a different vocabulary: {its} entries, but the model has {model}")]
    Size {
        /// The size of the store's vocabulary.
        its: usize,
        /// The size of the model's vocabulary.
        model: usize,
    },
    /// A vocabulary of the same size with another entry.
    #[error("has a different vocabulary: entry {id} is {its:?}, but the model has {model:?}")]
    Entry {
        /// The entry's id.
        id: usize,
        /// The store's entry.
        its: String,
        /// The model's entry.
        model: String,
    },
}

/// Refuses a store whose ids mean something else to the model.
///
/// # Errors
/// With the first difference.
pub fn check_store(store: &Store, vocabulary: &Vocabulary, tokenizer: Tokenizer) -> Result<(), OtherIdsError> {
    let theirs = store.vocabulary();
    if store.tokenizer() != tokenizer {
        return Err(OtherIdsError::Rules { its: store.tokenizer().rules(), model: tokenizer.rules() });
    }
    if theirs.len() != vocabulary.len() {
        return Err(OtherIdsError::Size { its: theirs.len(), model: vocabulary.len() });
    }
    match theirs.words().zip(vocabulary.words()).enumerate().find(|(_, (a, b))| a != b) {
        Some((id, (a, b))) => Err(OtherIdsError::Entry { id, its: a.to_owned(), model: b.to_owned() }),
        None => Ok(()),
    }
}

/// A model that is measured, with so many threads.
pub struct Measured<'a> {
    model: &'a dyn LanguageModel,
    measure: Measure<'a>,
    threads: usize,
}

impl<'a> Measured<'a> {
    /// A model that reads text by rules. Where these have no words, there are none to suggest, and keystrokes are not measured.
    #[must_use]
    pub fn new(model: &'a dyn LanguageModel, rules: Rules, keyboard: &'a Keyboard<'a>, threads: usize) -> Self {
        let measure = Measure::new(HeadWords::in_order(model.vocabulary()));
        let measure = match rules {
            Rules::Words1 => measure.with_keyboard(keyboard),
            Rules::Characters1 => measure,
        };
        Self { model, measure, threads }
    }

    /// Over lines; `done` is told how many were read since it was last told.
    ///
    /// # Errors
    /// When a line has an id that the model does not know.
    pub fn lines(&self, lines: &[Line], done: impl Fn(u64) + Sync) -> Result<Counts, MetricsError> {
        let sequences: Vec<_> = lines.iter().map(|line| Sequence { ids: &line.ids, letters: &line.letters }).collect();
        evaluate::count(self.model, &self.measure, &sequences, self.threads, done)
    }

    /// Over the posts of all users of a store, or of a part of them; `done` is told how many users were read since it was last told.
    ///
    /// # Errors
    /// When the store is damaged, or has an id that the model does not know.
    pub fn store(
        &self,
        store: &Store,
        users: Option<(Split, Part)>,
        done: impl Fn(u64) + Sync,
    ) -> Result<Counts, TestSetError> {
        let mut total = Counts::default();
        let (mut lines, mut tokens, mut first) = (Vec::new(), 0, 0);
        for index in 0..store.users() {
            let user = store.user(index)?;
            if users.is_none_or(|(split, part)| split.part(user.tag()) == part) {
                for post in user.posts().map(|post| post.tokens()).filter(|post| !post.is_empty()) {
                    tokens += post.len();
                    let ids = [BOS].into_iter().chain(post.iter()).chain([EOS]).collect();
                    lines.push(Line { ids, letters: Vec::new() });
                }
            }
            let next = index + 1;
            if tokens >= TOKENS || next == store.users() {
                total.merge(&self.lines_of(&lines, next - first, &done)?);
                lines.clear();
                (tokens, first) = (0, next);
            }
        }
        Ok(total)
    }

    /// Over the lines of so many users; `done` is told of them bit by bit.
    fn lines_of(&self, lines: &[Line], users: u64, done: &(impl Fn(u64) + Sync)) -> Result<Counts, MetricsError> {
        let all = lines.len() as u64;
        let read = AtomicU64::new(0);
        let users_in = |lines: u64| (u128::from(users) * u128::from(lines) / u128::from(all.max(1))) as u64;
        let counts = self.lines(lines, |more| {
            let before = read.fetch_add(more, Ordering::Relaxed);
            done(users_in(before + more) - users_in(before));
        })?;
        if all == 0 {
            done(users);
        }
        Ok(counts)
    }
}

/// The average perplexity over several sets (Popov et al. 2018), with UNK or without it; none for a single set.
#[must_use]
pub fn average(sets: &[&Metrics], without_unk: bool) -> Option<f64> {
    let of = |m: &&Metrics| match without_unk {
        true => Some((m.tokens - m.unknown, m.perplexity_without_unk?)),
        false => Some((m.tokens, m.perplexity?)),
    };
    let parts: Option<Vec<(u64, f64)>> = sets.iter().map(of).collect();
    parts.filter(|parts| parts.len() > 1).and_then(|parts| average_perplexity(&parts))
}
