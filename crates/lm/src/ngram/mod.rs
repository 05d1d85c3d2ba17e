//! Interpolated Kneser-Ney n-gram models, the baseline of the papers.
//!
//! Modified Kneser-Ney smoothing of Chen and Goodman 1998 (section 3.3 there), interpolated:
//!
//! ```text
//! p(w | h) = (a(h w) - D(a(h w))) / sum_x a(h x)  +  gamma(h) p(w | h')          h' is h without its first word
//! gamma(h) = (D(1) N1(h) + D(2) N2(h) + D(3) N3+(h)) / sum_x a(h x)              so that p(. | h) sums to 1
//! p(w)     = (a(w) - D(a(w))) / sum_x a(x)        +  gamma / (V - 1)             every entry but BOS
//! ```
//!
//! `a` is the count of an n-gram of the highest order, and of one that begins with BOS; for any other it is the number of
//! different words that were seen before it. `Nk(h)` is how many words follow h with `a = k`. `D` has three values for
//! each order, estimated from how many n-grams have `a` = 1, 2, 3 and 4; where there is none with one of these, or the
//! estimate is not between 0 and k (tiny corpora), 0.5, 1 and 1.5 are taken. Treatment of BOS and of unigrams as in KenLM (Heafield et al. 2013, section 3).
//!
//! UNK is an entry like any other: text is mapped to the vocabulary before it is counted. BOS is never predicted.

mod bytes;
mod trie;

use std::ops::RangeInclusive;

use thiserror::Error;
use trie::Trie;

use crate::{language_model::LanguageModel, vocabulary::BOS};

/// The orders that can be counted: from bigrams to 5-grams.
pub const ORDERS: RangeInclusive<usize> = 2..=5;

/// The largest vocabulary, as of the other models.
const MOST_ENTRIES: usize = 1 << 24;

/// What is taken where the counts do not admit an estimate.
const FALLBACK: [f64; 3] = [0.5, 1.0, 1.5];

/// An n-gram model that cannot be made or read.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum NgramError {
    /// An order outside [`ORDERS`].
    #[error("the order must be from {} to {}, got {got}", ORDERS.start(), ORDERS.end())]
    Order {
        /// The refused value.
        got: usize,
    },
    /// A vocabulary that no model of keyhush has.
    #[error("the vocabulary must have from 2 to {MOST_ENTRIES} entries, got {got}")]
    Vocabulary {
        /// The refused value.
        got: usize,
    },
    /// No sequence with a target.
    #[error("the text is empty")]
    NoText,
    /// More tokens than can be counted.
    #[error("the text has more than {most} tokens, the most that one model can count")]
    TooLong {
        /// The largest number of tokens.
        most: u32,
    },
    /// A sequence that is not `BOS w1 ... wn` with ids of the vocabulary.
    #[error("sequence {sequence}: must begin with BOS, contain no other BOS, and have ids below {vocabulary}")]
    Sequence {
        /// The index of the sequence, from 0.
        sequence: usize,
        /// Entries of the vocabulary.
        vocabulary: usize,
    },
    /// Bytes that are something else.
    #[error("not an n-gram model of keyhush (wrong magic bytes)")]
    NotNgrams,
    /// Fewer or more bytes than the header says.
    #[error("the n-gram file has {got} bytes, but its header says {want}; it was truncated or extended")]
    Length {
        /// The length in the header.
        want: u64,
        /// The value found.
        got: u64,
    },
    /// A checksum that does not match.
    #[error("the n-gram file is damaged: checksum mismatch")]
    Checksum,
    /// Counts that no text can have.
    #[error("the n-gram file was not written by keyhush: its {order}-grams are not sorted")]
    Structure {
        /// The level at which it was noticed.
        order: usize,
    },
}

/// An interpolated Kneser-Ney model.
#[derive(Debug, Clone)]
pub struct KneserNey {
    trie: Trie,
    /// For each order the discounts of n-grams with `a` = 1, 2, and 3 or more.
    discounts: Vec<[f64; 3]>,
    /// Natural logarithms of the probabilities without context; minus infinity for BOS.
    log_unigram: Vec<f64>,
    /// The same as probabilities.
    unigram: Vec<f64>,
}

impl KneserNey {
    /// Counts sequences, each `BOS w1 ... wn EOS`.
    ///
    /// # Errors
    /// When the order is none of [`ORDERS`], a sequence has another form, or there is nothing to count.
    pub fn train<'a>(
        order: usize,
        vocabulary: usize,
        sequences: impl IntoIterator<Item = &'a [u32]>,
    ) -> Result<Self, NgramError> {
        Trie::count(order, vocabulary, sequences).map(Self::new)
    }

    fn new(trie: Trie) -> Self {
        let discounts: Vec<[f64; 3]> = (1..=trie.order()).map(|n| discounts(&trie.counts_of_counts(n))).collect();
        let unigram = unigram(&trie, &discounts[0]);
        let log_unigram = unigram.iter().map(|p| libm::log(*p)).collect();
        Self { trie, discounts, log_unigram, unigram }
    }

    /// How many words an n-gram has at most.
    #[must_use]
    pub fn order(&self) -> usize {
        self.trie.order()
    }

    /// How many different n-grams of `n` words are kept; BOS is one of the unigrams.
    #[must_use]
    pub fn ngrams(&self, n: usize) -> usize {
        self.trie.len(n)
    }

    /// The discounts of n-grams of `n` words with `a` = 1, 2, and 3 or more.
    #[must_use]
    pub fn discounts(&self, n: usize) -> Option<[f64; 3]> {
        self.discounts.get(n.checked_sub(1)?).copied()
    }

    /// Encodes the model for [`KneserNey::from_bytes`].
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        bytes::write(&self.trie)
    }

    /// Decodes the bytes of [`KneserNey::to_bytes`].
    ///
    /// # Errors
    /// When they are cut, damaged, or something else.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, NgramError> {
        bytes::read(bytes).map(Self::new)
    }

    /// Writes the log-probabilities after a context. `scratch` has an element for each entry; what is in it does not matter.
    ///
    /// Whatever follows a context also follows its shorter ones, so all that differs from the unigrams by more than a
    /// factor are the words that follow the last word; only those are computed one by one.
    fn fill(&self, context: &[u32], scratch: &mut [f64], out: &mut [f32]) {
        let context = &context[context.len().saturating_sub(self.order() - 1)..];
        let last = self.trie.followers(&context[context.len().saturating_sub(1)..]);
        last.words.iter().for_each(|w| scratch[*w as usize] = self.unigram[*w as usize]);
        let mut gamma_of_all = 1.0;
        for length in 1..=context.len() {
            let followers = self.trie.followers(&context[context.len() - length..]);
            if followers.words.is_empty() {
                break; // no longer context was seen either
            }
            let discounts = &self.discounts[length];
            let total: f64 = followers.counts.iter().map(|a| f64::from(*a)).sum();
            let gamma = followers.counts.iter().map(|a| discount(discounts, *a)).sum::<f64>() / total;
            gamma_of_all *= gamma;
            last.words.iter().for_each(|w| scratch[*w as usize] *= gamma);
            for (w, a) in followers.words.iter().zip(followers.counts) {
                scratch[*w as usize] += (f64::from(*a) - discount(discounts, *a)) / total;
            }
        }
        let shift = libm::log(gamma_of_all);
        out.iter_mut().zip(&self.log_unigram).for_each(|(out, log)| *out = (log + shift) as f32);
        last.words.iter().for_each(|w| out[*w as usize] = libm::log(scratch[*w as usize]) as f32);
    }
}

impl LanguageModel for KneserNey {
    fn vocabulary(&self) -> usize {
        self.trie.vocabulary()
    }

    /// Only the last words count.
    fn after(&self, sequence: &[u32]) -> Option<Vec<f32>> {
        let (mut scratch, mut out) = (vec![0.0; self.vocabulary()], vec![0.0; self.vocabulary()]);
        (!sequence.is_empty()).then(|| self.fill(sequence, &mut scratch, &mut out)).map(|()| out)
    }

    fn read(&self, sequences: &[&[u32]], visit: &mut dyn FnMut(usize, usize, &[f32])) {
        let mut scratch = vec![0.0; self.vocabulary()];
        let mut out = vec![0.0; self.vocabulary()];
        for (s, sequence) in sequences.iter().enumerate() {
            for t in 0..sequence.len() {
                self.fill(&sequence[..=t], &mut scratch, &mut out);
                visit(s, t, &out);
            }
        }
    }
}

/// The discount of an n-gram with this count.
fn discount(discounts: &[f64; 3], count: u32) -> f64 {
    discounts[count.clamp(1, 3) as usize - 1]
}

/// `D(k) = k - (k + 1) Y t(k+1) / t(k)` with `Y = t1 / (t1 + 2 t2)`, from the numbers t of n-grams with `a` = 1, 2, 3, 4.
fn discounts(t: &[u64; 4]) -> [f64; 3] {
    let t = t.map(|t| t as f64);
    let y = t[0] / (t[0] + 2.0 * t[1]);
    let found = std::array::from_fn(|i| (i + 1) as f64 - (i + 2) as f64 * y * t[i + 1] / t[i]);
    // All of a count taken away, for want of a single n-gram with the next count, is no estimate. False for NaN.
    let admitted = |(i, d): (usize, &f64)| *d > 0.0 && *d < (i + 1) as f64;
    if found.iter().enumerate().all(admitted) { found } else { FALLBACK }
}

/// Probabilities without context.
fn unigram(trie: &Trie, discounts: &[f64; 3]) -> Vec<f64> {
    let all = trie.followers(&[]);
    let seen = || all.words.iter().zip(all.counts).filter(|(w, _)| **w != BOS);
    let total: f64 = seen().map(|(_, a)| f64::from(*a)).sum();
    let gamma = seen().map(|(_, a)| discount(discounts, *a)).sum::<f64>() / total;
    let mut unigram = vec![gamma / (trie.vocabulary() - 1) as f64; trie.vocabulary()];
    for (w, a) in seen() {
        unigram[*w as usize] += (f64::from(*a) - discount(discounts, *a)) / total;
    }
    unigram[BOS as usize] = 0.0;
    unigram
}
