//! Measures a model in one pass over a test set.

use thiserror::Error;

use super::counts::{Counts, HEADS};
use crate::{
    language_model::LanguageModel,
    predict::{FIRST_WORD, Keyboard, SHOWN},
    rank::{largest, rank},
    vocabulary::{BOS, EOS, UNK},
};

/// The number of first predictions compared with the head.
pub const LISTED: usize = 10;

/// A sequence to be measured on.
#[derive(Debug, Clone, Copy)]
pub struct Sequence<'a> {
    /// `BOS w1 ... wn EOS`, or without EOS where the sequence was cut.
    pub ids: &'a [u32],
    /// How many characters each token has in the text, 0 for BOS and EOS; unknown words too, since they are typed. Empty
    /// when keystrokes are not measured.
    pub letters: &'a [u32],
}

impl Sequence<'_> {
    /// Refuses what is not a sequence for a model with so many entries; `sequence` is its number in what is said.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn check(&self, sequence: usize, vocabulary: usize) -> Result<(), MetricsError> {
        let Self { ids, letters } = self;
        if let Some((token, id)) = ids.iter().copied().enumerate().find(|(_, id)| *id as usize >= vocabulary) {
            return Err(MetricsError::Id { sequence, token, id, vocabulary });
        }
        if ids.iter().enumerate().any(|(token, id)| (*id == BOS) != (token == 0)) {
            return Err(MetricsError::Begin { sequence });
        }
        if !letters.is_empty() && letters.len() != ids.len() {
            return Err(MetricsError::Letters { sequence, letters: letters.len(), tokens: ids.len() });
        }
        Ok(())
    }
}

/// A sequence that cannot be measured on.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum MetricsError {
    /// An id that the model does not have.
    #[error("sequence {sequence}, token {token}: the id {id} is not below the model's vocabulary of {vocabulary}")]
    Id {
        /// Which sequence, from 0.
        sequence: usize,
        /// Which token of it, from 0.
        token: usize,
        /// The id.
        id: u32,
        /// Entries that the model has.
        vocabulary: usize,
    },
    /// BOS elsewhere than at the beginning, or not there.
    #[error("sequence {sequence}: must begin with BOS and contain no other BOS")]
    Begin {
        /// Which sequence, from 0.
        sequence: usize,
    },
    /// Letters of another sequence.
    #[error("sequence {sequence}: has {letters} letter counts for {tokens} tokens")]
    Letters {
        /// Which sequence, from 0.
        sequence: usize,
        /// Numbers of letters.
        letters: usize,
        /// Tokens.
        tokens: usize,
    },
}

/// The most frequent words, for the headedness histograms.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeadWords {
    /// For each id a bit for each head that it belongs to.
    member: Vec<u8>,
}

impl HeadWords {
    /// The head of words sorted by frequency, the most frequent first. BOS, EOS and UNK are skipped.
    #[must_use]
    pub fn new(by_frequency: impl IntoIterator<Item = u32>) -> Self {
        let most = HEADS[HEADS.len() - 1];
        let words = by_frequency.into_iter().filter(|id| *id as usize >= FIRST_WORD).take(most);
        let mut member = Vec::new();
        for (place, id) in words.enumerate() {
            member.resize(member.len().max(id as usize + 1), 0);
            let bits = HEADS.iter().enumerate().map(|(h, head)| u8::from(place < *head) << h);
            member[id as usize] |= bits.sum::<u8>();
        }
        Self { member }
    }

    /// The head of a vocabulary sorted by frequency.
    #[must_use]
    pub fn in_order(vocabulary: usize) -> Self {
        Self::new(0..u32::try_from(vocabulary).unwrap_or(u32::MAX))
    }

    fn count(&self, heads: &mut [[u64; LISTED + 1]; HEADS.len()], words: &[u32]) {
        let mut common = [0; HEADS.len()];
        for word in words.iter().take(LISTED) {
            let bits = self.member.get(*word as usize).copied().unwrap_or(0);
            common.iter_mut().enumerate().for_each(|(h, n)| *n += usize::from(bits >> h & 1));
        }
        heads.iter_mut().zip(common).for_each(|(head, n)| head[n] += 1);
    }
}

/// What is counted about the predictions of one target.
#[derive(Debug, Clone, Copy)]
pub struct Predicted<'a> {
    /// The target.
    pub target: u32,
    /// How many entries of the vocabulary are predicted before it: those that are likelier, and those with lower ids that are as
    /// likely. None where its probability is no number.
    pub rank: Option<usize>,
    /// The natural logarithm of its probability.
    pub log_probability: f32,
    /// The [`LISTED`] likeliest words, from [`FIRST_WORD`](crate::predict::FIRST_WORD) on, of equals the one with the lower id first; fewer where fewer have a
    /// probability that is a number.
    pub words: &'a [u32],
}

/// Measurements besides accuracy and loss.
#[derive(Debug, Clone)]
pub struct Measure<'a> {
    head: HeadWords,
    keyboard: Option<&'a Keyboard<'a>>,
}

impl<'a> Measure<'a> {
    /// Measures with these words as the head.
    #[must_use]
    pub const fn new(head: HeadWords) -> Self {
        Self { head, keyboard: None }
    }

    /// Also measures keystrokes, on a keyboard with the model's vocabulary.
    #[must_use]
    pub fn with_keyboard(self, keyboard: &'a Keyboard<'a>) -> Self {
        Self { keyboard: Some(keyboard), ..self }
    }

    /// Counts over sequences that the model reads side by side. A sequence without targets counts for nothing.
    ///
    /// # Errors
    /// When a sequence is not what [`Sequence`] says.
    pub fn count(&self, model: &dyn LanguageModel, sequences: &[Sequence<'_>]) -> Result<Counts, MetricsError> {
        for (sequence, s) in sequences.iter().enumerate() {
            s.check(sequence, model.vocabulary())?;
        }
        let inputs: Vec<&[u32]> = sequences.iter().map(|s| &s.ids[..s.ids.len().saturating_sub(1)]).collect();
        let mut counts = Counts::default();
        model.read(&inputs, &mut |sequence, position, log_probabilities| {
            let (s, token) = (&sequences[sequence], position + 1);
            self.count_target(&mut counts, s.ids[token], s.letters.get(token).copied(), log_probabilities);
        });
        Ok(counts)
    }

    /// Counts a target whose predictions were put in order elsewhere; keystrokes are not measured.
    pub fn add(&self, counts: &mut Counts, predicted: Predicted<'_>) {
        let Predicted { target, rank, log_probability, words } = predicted;
        let tally = match target {
            EOS => &mut counts.ends,
            UNK => &mut counts.unknown,
            _ => &mut counts.words,
        };
        tally.add(rank, log_probability);
        self.head.count(&mut counts.heads, words);
    }

    fn count_target(&self, counts: &mut Counts, target: u32, letters: Option<u32>, log_probabilities: &[f32]) {
        let (mut words, mut listed) = ([0; LISTED], 0);
        for place in largest::<LISTED>(log_probabilities.get(FIRST_WORD..).unwrap_or_default()) {
            words[listed] = (FIRST_WORD + place) as u32;
            listed += 1;
        }
        let (rank, log_probability) = (rank(log_probabilities, target as usize), log_probabilities[target as usize]);
        self.add(counts, Predicted { target, rank, log_probability, words: &words[..listed] });
        if let (Some(keyboard), Some(letters)) = (self.keyboard, letters.filter(|_| target != EOS)) {
            let letters = u64::from(letters);
            let typed = keyboard.letters_until_shown(log_probabilities, target, SHOWN);
            counts.keys.total += letters;
            counts.keys.typed += typed.map_or(letters, |typed| letters.min(typed as u64));
        }
    }
}

/// Batches that a large test set has at least, so that there is something to do for many threads.
const MANY_BATCHES: usize = 64;
/// Tokens that a batch may have in any case.
const FEW_TOKENS: usize = 1024;

/// Which sequences are read side by side: at most `rows` of about the same length, so that little is padded, and at most a share of
/// all tokens, so that a few long texts are not left to one thread. The batches depend on the lengths alone and never on threads, so
/// a model computes the same numbers on any thread. Those with the most to read come first.
#[must_use]
pub fn batches(lengths: &[usize], rows: usize) -> Vec<Vec<usize>> {
    let mut order: Vec<usize> = (0..lengths.len()).collect();
    order.sort_by_key(|i| (std::cmp::Reverse(lengths[*i]), *i));
    let most = (lengths.iter().sum::<usize>() / MANY_BATCHES).max(FEW_TOKENS);
    let mut batches: Vec<Vec<usize>> = Vec::new();
    let mut read = 0;
    for sequence in order {
        match batches.last_mut() {
            Some(batch) if batch.len() < rows && read + lengths[sequence] <= most => {
                batch.push(sequence);
                read += lengths[sequence];
            }
            _ => {
                batches.push(vec![sequence]);
                read = lengths[sequence];
            }
        }
    }
    batches
}
