//! Text as sequences: one per line, or one long stream of ids cut into as many sequences as a batch has (Zaremba et al. 2014).

use serde::{Deserialize, Serialize};

use crate::{
    tokenizer::Tokenizer,
    vocabulary::{BOS, EOS, Vocabulary},
};

/// A line of text as ids and as numbers of letters.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Line {
    /// `BOS ... EOS`.
    pub ids: Vec<u32>,
    /// Of each id, how many letters were typed for it; nothing where that is not known.
    pub letters: Vec<u32>,
}

/// One sequence a line, `BOS ... EOS`; lines without tokens are left out.
#[must_use]
pub fn lines(text: &str, tokenizer: Tokenizer, vocabulary: &Vocabulary) -> Vec<Line> {
    let line = |line: &str| {
        let mut ids = vec![BOS];
        let mut letters = vec![0];
        tokenizer.for_each_typed(line, |token, typed| {
            ids.push(vocabulary.id(token));
            letters.push(typed.try_into().unwrap_or(u32::MAX));
        });
        ids.push(EOS);
        letters.push(0);
        Line { ids, letters }
    };
    text.lines().map(line).filter(|line| line.ids.len() > 2).collect()
}

/// Text as what is read and what is to be predicted.
#[derive(Debug, Clone)]
pub struct Stream {
    inputs: Vec<u32>,
    targets: Vec<u32>,
}

/// The fingerprint of a stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fingerprint {
    tokens: usize,
    /// FNV-1a over the ids.
    hash: String,
}

impl Stream {
    /// Text, one sequence a line: BOS is read and never predicted, EOS is predicted.
    #[must_use]
    pub fn new<'a>(texts: impl IntoIterator<Item = &'a str>, tokenizer: Tokenizer, vocabulary: &Vocabulary) -> Self {
        let mut stream = Self { inputs: Vec::new(), targets: Vec::new() };
        for line in texts.into_iter().flat_map(|text| lines(text, tokenizer, vocabulary)) {
            stream.inputs.extend_from_slice(&line.ids[..line.ids.len() - 1]);
            stream.targets.extend_from_slice(&line.ids[1..]);
        }
        stream
    }

    /// Tokens to predict.
    #[must_use]
    pub const fn tokens(&self) -> usize {
        self.targets.len()
    }

    /// The fingerprint of this stream.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        let bytes = self.inputs.iter().chain(&self.targets).flat_map(|id| id.to_le_bytes());
        let hash =
            bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
        Fingerprint { tokens: self.tokens(), hash: format!("{hash:016x}") }
    }

    /// How many batches an epoch has.
    #[must_use]
    pub const fn batch_count(&self, rows: usize, unroll: usize) -> usize {
        (self.inputs.len() / rows).div_ceil(unroll)
    }

    /// The batches of one epoch from the `first` on, inputs and targets `[step][row]`: `rows` parts of the stream side by
    /// side.
    pub fn batches(&self, rows: usize, unroll: usize, first: usize) -> impl Iterator<Item = (Vec<u32>, Vec<u32>)> + '_ {
        let length = self.inputs.len() / rows;
        (first..self.batch_count(rows, unroll)).map(move |n| {
            let steps = n * unroll..((n + 1) * unroll).min(length);
            let places = steps.flat_map(move |t| (0..rows).map(move |row| row * length + t));
            let gather = |from: &[u32]| places.clone().map(|place| from[place]).collect();
            (gather(&self.inputs), gather(&self.targets))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_read_side_by_side_and_every_place_once() {
        let stream = Stream { inputs: (0..23).collect(), targets: (1..24).collect() };
        let batches: Vec<_> = stream.batches(3, 4, 0).collect();
        assert_eq!(batches.len(), stream.batch_count(3, 4));
        assert_eq!(batches[0].0, [0, 7, 14, 1, 8, 15, 2, 9, 16, 3, 10, 17]);
        assert_eq!(batches[1].0, [4, 11, 18, 5, 12, 19, 6, 13, 20]);
        assert!(batches.iter().all(|(inputs, targets)| inputs.iter().zip(targets).all(|(i, t)| i + 1 == *t)));
        assert_eq!(stream.batches(3, 4, 1).collect::<Vec<_>>(), batches[1..]);
    }

    #[test]
    fn another_text_has_another_fingerprint() {
        let stream = |last: u32| Stream { inputs: vec![0, 5], targets: vec![5, last] };
        assert_eq!(stream(1).fingerprint(), stream(1).fingerprint());
        assert_ne!(stream(1).fingerprint(), stream(2).fingerprint());
    }
}
