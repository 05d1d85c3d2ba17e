//! Blocks of input, which the reading thread hands to the workers.

use std::{io::Read, ops::Range};

use serde::Serialize;
use thiserror::Error;

use super::{Columns, labels::Tags};

/// Bytes of a block of lines.
const BLOCK: usize = 1 << 21;
/// A longer line is absurd.
pub(super) const LONGEST_LINE: usize = 1 << 24;
/// A longer text of one post is absurd.
pub(super) const LONGEST_TEXT: usize = 1 << 22;
/// A longer key of a user is absurd.
pub(super) const LONGEST_KEY: usize = 512;

/// A longer name of a label is absurd.
pub(super) const LONGEST_LABEL: usize = 512;

/// Work for a worker.
pub(super) enum Block {
    /// Whole lines of a file of JSON lines.
    Lines { file: usize, first_line: u64, bytes: Vec<u8> },
    /// Posts that were taken apart already.
    Posts { file: usize, posts: Vec<RawPost> },
    /// Users of a crowd.
    Users(Range<u64>),
}

/// A post before anybody looked whether it is UTF-8.
pub(super) struct RawPost {
    pub(super) line: u64,
    pub(super) user: Vec<u8>,
    pub(super) text: Vec<u8>,
    pub(super) labels: Tags<Vec<u8>>,
    pub(super) features: Vec<Vec<u8>>,
}

impl RawPost {
    pub(super) fn new(line: u64, user: &[u8], text: &[u8]) -> Self {
        Self { line, user: user.to_vec(), text: text.to_vec(), labels: Tags::default(), features: Vec::new() }
    }

    /// How much memory it takes, about.
    pub(super) fn bytes(&self) -> usize {
        let labels = match &self.labels {
            Tags::Joined(text) => text.len(),
            Tags::Listed(list) => list.iter().map(Vec::len).sum(),
        };
        self.user.len() + self.text.len() + labels + self.features.iter().map(Vec::len).sum::<usize>()
    }

    /// The features as numbers.
    pub(super) fn numbers(&self, columns: &Columns) -> Result<Vec<f32>, BadLineReason> {
        let number = |text: &[u8]| str::from_utf8(text).ok()?.trim().parse().ok().filter(|n: &f32| n.is_finite());
        let named = self.features.iter().zip(&columns.features);
        named.map(|(text, key)| number(text).ok_or_else(|| BadLineReason::NoNumber { key: key.clone() })).collect()
    }
}

/// A line that could not be read.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct BadLine {
    /// The file.
    pub file: String,
    /// The line, from 1.
    pub line: u64,
    /// What is wrong with it.
    pub reason: BadLineReason,
}

impl std::fmt::Display for BadLine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}: {}", self.file, self.line, self.reason)
    }
}

/// Why a line is bad. Nothing of the line itself, which is a user's text.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Error)]
#[serde(rename_all = "snake_case")]
pub enum BadLineReason {
    /// Broken UTF-8.
    #[error("not valid UTF-8")]
    NotUtf8,
    /// Not JSON, or not an object.
    #[error("not a JSON object (column {column})")]
    NotJson {
        /// The column at which parsing failed.
        column: u64,
    },
    /// A key that is not there.
    #[error("no string {key:?}")]
    NoKey {
        /// The key.
        key: String,
    },
    /// A number that is not there.
    #[error("no finite number {key:?}")]
    NoNumber {
        /// Its key.
        key: String,
    },
    /// Labels of another kind.
    #[error("{key:?} is neither a list of strings nor a string")]
    NotLabels {
        /// The name of the column.
        key: String,
    },
    /// Too long a line, text or key.
    #[error("{what} has more than {most} bytes")]
    TooLong {
        /// What is too long: a line, text or key.
        what: &'static str,
        /// The most that is read.
        most: u64,
    },
    /// A user without a name.
    #[error("the user is empty")]
    NoUser,
    /// A row that is not like the header.
    #[error("has {got} {}, but the header has {expected}", if *got == 1 { "field" } else { "fields" })]
    Fields {
        /// The number of fields in the line.
        got: usize,
        /// How many the header has.
        expected: usize,
    },
}

/// Cuts a file into blocks of whole lines.
pub(super) struct Lines<R> {
    from: R,
    /// What was read after the last whole line.
    rest: Vec<u8>,
    next_line: u64,
    ended: bool,
}

/// What [`Lines::next`] found.
pub(super) enum Cut {
    Block { first_line: u64, bytes: Vec<u8> },
    TooLong { line: u64 },
    End,
}

impl<R: Read> Lines<R> {
    pub(super) fn new(from: R) -> Self {
        Self { from, rest: Vec::new(), next_line: 1, ended: false }
    }

    pub(super) fn next(&mut self) -> std::io::Result<Cut> {
        let mut bytes = std::mem::take(&mut self.rest);
        loop {
            if !self.ended {
                let before = bytes.len();
                let read = self.from.by_ref().take(BLOCK as u64).read_to_end(&mut bytes)?;
                self.ended = read == 0;
                debug_assert_eq!(bytes.len(), before + read);
            }
            if self.ended && bytes.is_empty() {
                return Ok(Cut::End);
            }
            let end = if self.ended { Some(bytes.len()) } else { memchr::memrchr(b'\n', &bytes).map(|at| at + 1) };
            match end {
                Some(end) => {
                    self.rest = bytes.split_off(end);
                    let first_line = self.next_line;
                    self.next_line += memchr::memchr_iter(b'\n', &bytes).count() as u64;
                    return Ok(Cut::Block { first_line, bytes });
                }
                None if bytes.len() > LONGEST_LINE => return self.skip_line(),
                None => {}
            }
        }
    }

    /// Steps over a line that is too long to keep.
    fn skip_line(&mut self) -> std::io::Result<Cut> {
        let mut piece = Vec::new();
        let line = self.next_line;
        self.next_line += 1;
        loop {
            piece.clear();
            if self.from.by_ref().take(BLOCK as u64).read_to_end(&mut piece)? == 0 {
                self.ended = true;
                break;
            }
            if let Some(at) = memchr::memchr(b'\n', &piece) {
                self.rest = piece.split_off(at + 1);
                break;
            }
        }
        Ok(Cut::TooLong { line })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(text: &[u8]) -> Vec<(u64, usize)> {
        let mut lines = Lines::new(text);
        let mut found = Vec::new();
        loop {
            match lines.next().unwrap() {
                Cut::Block { first_line, bytes } => found.push((first_line, bytes.len())),
                Cut::TooLong { line } => found.push((line, usize::MAX)),
                Cut::End => return found,
            }
        }
    }

    #[test]
    fn lines_are_whole_and_counted() {
        assert_eq!(cut(b""), []);
        assert_eq!(cut(b"a\nb"), [(1, 2), (2, 1)]);
        let line = [vec![b'x'; 999_999], vec![b'\n']].concat();
        let blocks = cut(&line.repeat(7));
        assert_eq!(blocks.iter().map(|(_, length)| length).sum::<usize>(), 7_000_000);
        assert!(blocks.iter().all(|(first, length)| length % 1_000_000 == 0 && *first >= 1));
    }

    #[test]
    fn a_line_without_end_is_skipped_and_the_next_ones_are_read() {
        let text = [vec![b'x'; LONGEST_LINE + 3_000_000], b"\nok\n".to_vec()].concat();
        assert_eq!(cut(&text), [(1, usize::MAX), (2, 3)]);
        assert_eq!(cut(&vec![b'x'; LONGEST_LINE + 3_000_000]), [(1, usize::MAX)]);
    }
}
