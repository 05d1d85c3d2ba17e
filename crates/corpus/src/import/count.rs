//! Counts words for a vocabulary in bounded memory, in users' posts or in public text.

use std::{
    io::{self, BufRead, BufReader, Read},
    path::{Path, PathBuf},
};

use lm::{tokenizer::Tokenizer, vocabulary::Counts};

use super::{
    ImportError, Input, Progress, Summary,
    block::LONGEST_LINE,
    source::Files,
    work::{self, Found, Take},
};

/// Different words after which rare ones are forgotten.
const MOST_WORDS: usize = 4_000_000;
/// Lines of text between two looks at the progress.
const LINES: u64 = 10_000;

/// Counts, and forgets rare words when there are too many.
struct Counting {
    counts: Counts,
    tokenizer: Tokenizer,
    least: u64,
}

impl Counting {
    fn new(tokenizer: Tokenizer) -> Self {
        Self { counts: Counts::new(), tokenizer, least: 2 }
    }

    fn add(&mut self, text: &str) {
        self.counts.add(self.tokenizer, text);
        if self.counts.distinct() > MOST_WORDS {
            self.counts.prune(self.least);
            self.least += 1;
        }
    }
}

impl Take for Counting {
    fn post(&mut self, post: &Found<'_>, _: u64) -> io::Result<bool> {
        self.add(post.text);
        Ok(true)
    }
}

/// Counts the words of posts. Bad lines are skipped and counted.
///
/// # Errors
/// When something cannot be read, or it was told to stop.
pub fn count_posts(
    input: &Input,
    tokenizer: Tokenizer,
    progress: &mut dyn FnMut(Progress) -> bool,
) -> Result<(Counts, Summary), ImportError> {
    let counting = work::drive(input, 1, false, || Counting::new(tokenizer), progress);
    let (takers, summary) = counting.map_err(|error| error.with_spill(Path::new("")))?;
    let mut counts = Counts::new();
    takers.into_iter().for_each(|taker| counts.merge(taker.counts));
    Ok((counts, summary))
}

/// Counts the words of plain text, line by line, decompressed as its name says. Broken UTF-8 separates words.
///
/// # Errors
/// When something cannot be read, or it was told to stop.
pub fn count_text(
    paths: &[PathBuf],
    tokenizer: Tokenizer,
    progress: &mut dyn FnMut(Progress) -> bool,
) -> Result<Counts, ImportError> {
    let files = Files::new(paths)?;
    let mut counting = Counting::new(tokenizer);
    let mut line = Vec::new();
    for path in paths {
        let failed = |error| ImportError::Read { path: path.clone(), error };
        let mut from = BufReader::with_capacity(1 << 18, files.open(path).map_err(failed)?);
        for number in 0.. {
            line.clear();
            let read = from.by_ref().take(LONGEST_LINE as u64).read_until(b'\n', &mut line).map_err(failed)?;
            if number % LINES == 0 && !progress(Progress::Reading { done: files.read(), total: files.total, bad: 0 }) {
                return Err(ImportError::Interrupted);
            }
            if read == 0 {
                break;
            }
            counting.add(&String::from_utf8_lossy(&line));
        }
    }
    Ok(counting.counts)
}
