//! Suggestions while a user types.
//!
//! A keyboard shows the likeliest words that begin with what was typed of the current one. Log-probabilities come from a
//! model, once for a context; every further letter only narrows the words down. Words that begin alike stand together in
//! alphabetical order, so narrowing is two binary searches.
//!
//! One order holds everywhere: the likelier word first, of equally likely ones the one with the lower id. What has no
//! number (NaN) is never suggested. BOS, EOS and UNK are no words and are never suggested either, nor are the entries that
//! stand for many words, such as `<num>`.

use std::ops::Range;

use serde::Serialize;

use crate::{
    language_model::{LanguageModel, Reader},
    rank::likelier,
    tokenizer::{ADDRESS, Current, NUMBER, Rules, Tokenizer, current, is_closing, wants_space},
    vocabulary::{BOS, UNK, Vocabulary},
};

/// How many suggestions a keyboard shows (Popov et al. 2018, section 2.4: "we used top-3 suggestion lists").
pub const SHOWN: usize = 3;

/// The first id that is a word.
pub const FIRST_WORD: usize = UNK as usize + 1;

/// The words of a vocabulary in alphabetical order, to be found by their first letters.
#[derive(Debug, Clone)]
pub struct Keyboard<'a> {
    /// In the order of their ids, the special entries included.
    words: Vec<&'a str>,
    /// Ids of all words, in the order of their bytes, which keeps words with a common beginning together.
    sorted: Vec<u32>,
    /// Ids of entries that are not suggested, besides the special ones.
    hidden: Vec<u32>,
}

impl<'a> Keyboard<'a> {
    /// A keyboard for the entries of a vocabulary in the order of their ids, the three special ones first.
    #[must_use]
    pub fn new(entries: impl IntoIterator<Item = &'a str>) -> Self {
        let words: Vec<&str> = entries.into_iter().collect();
        let ids = (0..words.len() as u32).skip(FIRST_WORD);
        let (hidden, mut sorted): (Vec<u32>, Vec<u32>) =
            ids.partition(|id| [NUMBER, ADDRESS].contains(&words[*id as usize]));
        sorted.sort_unstable_by_key(|id| words[*id as usize]);
        Self { words, sorted, hidden }
    }

    /// The word with an id; empty where there is none.
    #[must_use]
    pub fn word(&self, id: u32) -> &'a str {
        self.words.get(id as usize).copied().unwrap_or_default()
    }

    /// The ids of all words that begin with `typed`, in alphabetical order.
    #[must_use]
    pub fn beginning_with(&self, typed: &str) -> &[u32] {
        &self.sorted[self.narrow(0..self.sorted.len(), typed)]
    }

    /// The likeliest words that begin with `typed`, the likeliest first: at most `count`.
    #[must_use]
    pub fn suggest(&self, log_probabilities: &[f32], typed: &str, count: usize) -> Vec<u32> {
        let value = |id: u32| log_probabilities.get(id as usize).copied().unwrap_or(f32::NAN);
        let mut best: Vec<u32> = Vec::with_capacity(count + 1);
        for id in self.beginning_with(typed).iter().copied().filter(|id| !value(*id).is_nan()) {
            let place = best.iter().position(|b| before(value(id), id, value(*b), *b)).unwrap_or(best.len());
            if place < count {
                best.insert(place, id);
                best.truncate(count);
            }
        }
        best
    }

    /// How many letters of a word have to be typed until it is among the `shown` suggestions: 0 when it is there before the
    /// first letter. `None` when it never is, and for what is no word of this keyboard.
    #[must_use]
    pub fn letters_until_shown(&self, log_probabilities: &[f32], id: u32, shown: usize) -> Option<usize> {
        let index = id as usize;
        let (word, value) = (self.words.get(index)?, *log_probabilities.get(index)?);
        if index < FIRST_WORD || value.is_nan() || self.hidden.contains(&id) {
            return None;
        }
        let (earlier, later) = (log_probabilities.get(FIRST_WORD..index)?, log_probabilities.get(index + 1..)?);
        let hidden = self.hidden.iter().filter(|h| {
            let theirs = log_probabilities.get(**h as usize).copied().unwrap_or(f32::NAN);
            before(theirs, **h, value, id)
        });
        if likelier(earlier, later, value) - hidden.count() < shown {
            return Some(0);
        }
        let mut range = 0..self.sorted.len();
        for (letters, (at, letter)) in word.char_indices().enumerate() {
            range = self.narrow(range, &word[..at + letter.len_utf8()]);
            let ahead = |other: &&u32| {
                let theirs = log_probabilities.get(**other as usize).copied().unwrap_or(f32::NAN);
                before(theirs, **other, value, id)
            };
            if self.sorted[range.clone()].iter().filter(ahead).take(shown).count() < shown {
                return Some(letters + 1);
            }
        }
        None
    }

    /// The part of a range whose words begin with `typed`.
    fn narrow(&self, range: Range<usize>, typed: &str) -> Range<usize> {
        let words = &self.sorted[range.clone()];
        let word = |id: &u32| self.words[*id as usize].as_bytes();
        let start = words.partition_point(|id| word(id) < typed.as_bytes());
        let len = words[start..].partition_point(|id| word(id).starts_with(typed.as_bytes()));
        range.start + start..range.start + start + len
    }
}

/// Whether the first of two entries comes before the second in every list of predictions.
fn before(value: f32, id: u32, other: f32, other_id: u32) -> bool {
    value > other || (value == other && id < other_id)
}

/// The text typed so far: finished tokens, and the beginning of the current word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Typed<'a> {
    /// BOS and the ids of all finished tokens: what a model is to read.
    pub context: Vec<u32>,
    /// The text before the current word.
    pub finished: &'a str,
    /// The beginning of the current word as the vocabulary writes it; empty before its first letter.
    pub beginning: String,
    /// Whether it is a word at all: in the middle of `12:30` or of an address nothing is suggested.
    pub is_word: bool,
}

impl<'a> Typed<'a> {
    /// Splits a text. The current word is what stands at the end without space or sign; with characters for tokens there is
    /// none, and every character is finished.
    #[must_use]
    pub fn new(text: &'a str, rules: Rules, vocabulary: &Vocabulary) -> Self {
        let (finished, current) = match rules {
            Rules::Words1 => current(text),
            Rules::Characters1 => (text, Current::Word(String::new())),
        };
        let (beginning, is_word) = match current {
            Current::Word(beginning) => (beginning, true),
            Current::NoWord => (String::new(), false),
        };
        let mut context = vec![BOS];
        vocabulary.encode(Tokenizer::new(rules), finished, &mut context);
        Self { context, finished, beginning, is_word }
    }
}

/// A word and how likely it is after the words before it, whatever was typed of it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Suggestion {
    /// The word.
    pub word: String,
    /// The probability, from 0 to 1.
    pub probability: f64,
}

/// Suggests while somebody types. A model is asked when a word was finished or taken back, and then for that word only;
/// every other letter narrows down what it said.
pub struct Predictor<'a> {
    reader: Box<dyn Reader + 'a>,
    vocabulary: &'a Vocabulary,
    keyboard: Keyboard<'a>,
    rules: Rules,
}

impl<'a> Predictor<'a> {
    /// A predictor with a model and its vocabulary.
    #[must_use]
    pub fn new(model: &'a dyn LanguageModel, vocabulary: &'a Vocabulary, rules: Rules) -> Self {
        Self { reader: model.reader(), vocabulary, keyboard: Keyboard::new(vocabulary.words()), rules }
    }

    /// The likeliest words at the end of a text, the likeliest first: at most `count`.
    pub fn suggest(&mut self, text: &str, count: usize) -> Vec<Suggestion> {
        let Typed { context, beginning, is_word, .. } = Typed::new(text, self.rules, self.vocabulary);
        if !is_word {
            return Vec::new();
        }
        let log_probabilities = self.reader.after(&context);
        let ids = self.keyboard.suggest(log_probabilities, &beginning, count);
        let suggestion = |id: u32| Suggestion {
            word: self.keyboard.word(id).to_owned(),
            probability: libm::exp(f64::from(log_probabilities[id as usize])),
        };
        ids.into_iter().map(suggestion).collect()
    }

    /// A suggestion as it would be typed after a text: with its capital, or all in capitals, where what was typed of it is.
    #[must_use]
    pub fn as_typed(&self, text: &str, word: &str) -> String {
        let typed = &text[Typed::new(text, self.rules, self.vocabulary).finished.len()..];
        let capitals = typed.chars().filter(|c| c.is_uppercase()).count();
        if self.rules == Rules::Characters1 || !typed.starts_with(char::is_uppercase) {
            return word.to_owned();
        }
        if capitals > 1 && !typed.chars().any(char::is_lowercase) {
            return word.to_uppercase();
        }
        let mut letters = word.chars();
        letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
    }

    /// The text after a suggestion was taken: in place of what was typed of it, as it would be typed, and a space. A sign takes the place
    /// of the space before it, and a word after a sign gets one.
    #[must_use]
    pub fn accept(&self, text: &str, word: &str) -> String {
        let finished = Typed::new(text, self.rules, self.vocabulary).finished;
        if self.rules == Rules::Characters1 {
            return format!("{finished}{word}");
        }
        if is_closing(word) {
            return format!("{}{word} ", finished.trim_end());
        }
        let space = if wants_space(finished) { " " } else { "" };
        format!("{finished}{space}{} ", self.as_typed(text, word))
    }
}
