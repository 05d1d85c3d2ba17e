//! A user's posts as one stream of tokens, and the stream as batches.
//!
//! Every post is read from BOS on and predicted to its EOS; posts follow one another. A batch has several sequences side by
//! side, each a part of the stream, read a few tokens at a time with carried state: truncated backpropagation.

use lm::{
    model::batch::Batch,
    vocabulary::{BOS, EOS},
};

/// What a user typed, as what is read and what is to be predicted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UserText {
    inputs: Vec<u32>,
    targets: Vec<u32>,
}

impl UserText {
    /// Nothing yet.
    #[must_use]
    pub const fn new() -> Self {
        Self { inputs: Vec::new(), targets: Vec::new() }
    }

    /// Appends a post, as ids without BOS and EOS; an empty one is nothing.
    pub fn push(&mut self, post: &[u32]) {
        if post.is_empty() {
            return;
        }
        self.inputs.push(BOS);
        self.inputs.extend_from_slice(post);
        self.targets.extend_from_slice(post);
        self.targets.push(EOS);
    }

    /// Forgets what comes after so many tokens (McMahan et al. 2018: 1,600 a user).
    pub fn truncate(&mut self, tokens: usize) {
        self.inputs.truncate(tokens);
        self.targets.truncate(tokens);
    }

    /// Forgets everything, and keeps the memory.
    pub fn clear(&mut self) {
        self.truncate(0);
    }

    /// How many tokens are to be predicted.
    #[must_use]
    pub const fn tokens(&self) -> usize {
        self.targets.len()
    }

    /// The posts, each as `BOS w1 ... wn EOS`; one that was cut has no EOS. What is visited is valid for the visit only.
    pub fn for_each_post(&self, mut visit: impl FnMut(&[u32])) {
        let starts = (0..self.inputs.len()).filter(|i| self.inputs[*i] == BOS);
        let ends = starts.clone().skip(1).chain([self.inputs.len()]);
        let mut post = Vec::new();
        for (start, end) in starts.zip(ends) {
            post.clear();
            post.extend_from_slice(&self.inputs[start..end]);
            post.push(self.targets[end - 1]);
            visit(&post);
        }
    }

    /// Cuts the stream into `rows` sequences of one length; the last may end early.
    #[must_use]
    pub fn cut(&self, rows: usize, unroll: usize) -> Cut<'_> {
        let rows = rows.clamp(1, self.tokens().max(1));
        Cut { text: self, rows, unroll: unroll.max(1), length: self.tokens().div_ceil(rows) }
    }
}

/// A stream cut into sequences that are read side by side.
#[derive(Debug, Clone, Copy)]
pub struct Cut<'a> {
    text: &'a UserText,
    rows: usize,
    unroll: usize,
    length: usize,
}

/// Memory for one batch.
#[derive(Debug, Clone, Default)]
pub struct Room {
    inputs: Vec<u32>,
    targets: Vec<u32>,
}

impl Cut<'_> {
    /// How many batches one reading has.
    #[must_use]
    pub const fn batches(&self) -> usize {
        self.length.div_ceil(self.unroll)
    }

    /// One of them. Where a sequence has ended, nothing is to be predicted.
    pub fn batch<'r>(&self, number: usize, room: &'r mut Room) -> Batch<'r> {
        room.inputs.clear();
        room.targets.clear();
        let start = number * self.unroll;
        for t in start..(start + self.unroll).min(self.length) {
            for row in 0..self.rows {
                let at = row * self.length + t;
                room.inputs.push(self.text.inputs.get(at).copied().unwrap_or(EOS));
                room.targets.push(self.text.targets.get(at).copied().unwrap_or(Batch::NONE));
            }
        }
        Batch { rows: self.rows, inputs: &room.inputs, targets: &room.targets, context: &[] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(posts: &[&[u32]]) -> UserText {
        let mut text = UserText::new();
        posts.iter().for_each(|p| text.push(p));
        text
    }

    #[test]
    fn posts_are_read_from_their_beginning_and_predicted_to_their_end() {
        let text = text(&[&[7, 8], &[], &[9]]);
        assert_eq!(text.inputs, [BOS, 7, 8, BOS, 9]);
        assert_eq!(text.targets, [7, 8, EOS, 9, EOS]);
    }

    #[test]
    fn posts_come_back_as_they_were_and_a_cut_one_has_no_end() {
        let mut text = text(&[&[7, 8], &[9]]);
        let posts = |text: &UserText| {
            let mut posts = Vec::new();
            text.for_each_post(|post| posts.push(post.to_vec()));
            posts
        };
        assert_eq!(posts(&text), [vec![BOS, 7, 8, EOS], vec![BOS, 9, EOS]]);
        text.truncate(4);
        assert_eq!(posts(&text), [vec![BOS, 7, 8, EOS], vec![BOS, 9]]);
        text.truncate(2);
        assert_eq!(posts(&text), [vec![BOS, 7, 8]]);
        text.clear();
        assert!(posts(&text).is_empty());
    }

    /// Every token is predicted once, whatever the shape; what is padded is not.
    #[test]
    fn a_reading_predicts_every_token_once() {
        let posts: Vec<Vec<u32>> = (0..9).map(|n| (0..n).map(|i| 10 + i + n).collect()).collect();
        let text = text(&posts.iter().map(Vec::as_slice).collect::<Vec<_>>());
        for (rows, unroll) in [(1, 1), (3, 4), (8, 10), (100, 3), (0, 0), (7, 1000)] {
            let cut = text.cut(rows, unroll);
            let mut room = Room::default();
            let (mut read, mut predicted) = (Vec::new(), Vec::new());
            for number in 0..cut.batches() {
                let batch = cut.batch(number, &mut room);
                assert_eq!(batch.inputs.len(), batch.targets.len());
                let counted = batch.inputs.iter().zip(batch.targets).filter(|(_, t)| **t != Batch::NONE);
                counted.for_each(|(i, t)| {
                    read.push(*i);
                    predicted.push(*t);
                });
            }
            for (mut got, mut want) in [(read, text.inputs.clone()), (predicted, text.targets.clone())] {
                got.sort_unstable();
                want.sort_unstable();
                assert_eq!(got, want, "{rows} x {unroll}");
            }
        }
    }

    #[test]
    fn somebody_who_typed_nothing_has_no_batches() {
        assert_eq!(UserText::new().cut(8, 10).batches(), 0);
    }
}
