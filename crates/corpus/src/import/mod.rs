//! Import: files of posts become a store, grouped by user, in bounded memory.
//!
//! ```text
//! files -> blocks -> workers: parse, tokenise -> spill files by tag -> each sorted by (tag, place) -> store
//!          (1 thread)   (all cores)              (no names on disk)      (one after the other)
//! ```
//!
//! The place of a post is its file and its line, so the store is the same for any number of threads. A spill file that is
//! too large for memory is divided again. Spill files have no names and the store gets its name when it is whole: whenever
//! an import ends, however it ends, there is a whole store or none.

mod block;
mod count;
mod group;
mod json;
mod leaf;
#[cfg(feature = "parquet")]
mod parquet;
mod source;
mod spill;
mod table;
mod work;

use std::path::PathBuf;

pub use block::{BadLine, BadLineReason};
pub use count::{count_posts, count_text};
use serde::Serialize;
pub use source::Format;
use thiserror::Error;

use crate::{
    origin::{KnownVocabulary, Origin, SourceFile},
    store::{Meta, StoreError, StoreWriter},
    synth::Crowd,
};

/// What to do about a line that cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnBadLine {
    /// Count it and go on.
    #[default]
    Skip,
    /// Stop, and leave no store.
    Stop,
}

/// Where posts come from.
#[derive(Debug, Clone)]
pub enum Input {
    /// Files.
    Files {
        /// Which, in this order.
        paths: Vec<PathBuf>,
        /// What they are; by their names if nothing is said.
        format: Option<Format>,
        /// The name of the field or column that says who wrote a post.
        user_key: String,
        /// The name of the field or column with the text.
        text_key: String,
    },
    /// A synthetic crowd.
    Crowd(Crowd),
}

impl Input {
    /// Files, with the usual keys where none are said: those of Reddit for its dumps.
    #[must_use]
    pub fn files(paths: &[PathBuf], format: Option<Format>, user: Option<&str>, text: Option<&str>) -> Self {
        let dump = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("RC_"));
        let reddit = format == Some(Format::Reddit) || (format.is_none() && paths.iter().all(dump));
        let (author, body) = if reddit { ("author", "body") } else { ("user", "text") };
        let or = |given: Option<&str>, usual: &str| given.unwrap_or(usual).to_owned();
        Self::Files { paths: paths.to_vec(), format, user_key: or(user, author), text_key: or(text, body) }
    }
}

/// What to import, and how.
#[derive(Debug, Clone)]
pub struct ImportPlan {
    /// Where posts come from.
    pub input: Input,
    /// The store.
    pub out: PathBuf,
    /// Whether a file of that name is replaced.
    pub replace: bool,
    /// The words that get ids.
    pub vocabulary: KnownVocabulary,
    /// Truncates every user to this many tokens and drops those with fewer.
    pub tokens_per_user: Option<u32>,
    /// Whether the users' keys are kept in the store.
    pub keep_keys: bool,
    /// What to do about lines that cannot be read.
    pub on_bad_line: OnBadLine,
    /// Worker threads; at least one.
    pub threads: usize,
}

/// How far an import is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// Files are read.
    Reading {
        /// Bytes read from disk, or users made.
        done: u64,
        /// Of how many.
        total: u64,
        /// Lines that could not be read, so far.
        bad: u64,
    },
    /// Users are put together.
    Grouping {
        /// Spill files done.
        done: u64,
        /// Of how many.
        total: u64,
    },
}

/// What an import did.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// Users in the store.
    pub users: u64,
    /// Posts in the store.
    pub posts: u64,
    /// Tokens in the store.
    pub tokens: u64,
    /// Tokens that are not in the vocabulary.
    pub unknown: u64,
    /// Users with too few tokens.
    pub dropped_users: u64,
    /// Posts without a token, and posts that their authors deleted.
    pub empty_posts: u64,
    /// Bytes of text in the posts that were read.
    pub text_bytes: u64,
    /// Lines that could not be read.
    pub bad_lines: u64,
    /// The first of them.
    pub first_bad_lines: Vec<BadLine>,
}

/// Why an import failed.
#[derive(Debug, Error)]
pub enum ImportError {
    /// A file that cannot be read.
    #[error("{}: {error}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system or the decoder said.
        error: std::io::Error,
    },
    /// A file whose name does not say what it is.
    #[error("{}: the name does not say what it is (.jsonl, .csv, .tsv or .parquet, plain or .gz or .zst); say --format", .0.display())]
    UnknownFormat(PathBuf),
    /// A table without the column.
    #[error("{}: there is no column {key:?}; there are: {}", path.display(), columns.join(", "))]
    NoColumn {
        /// The file.
        path: PathBuf,
        /// The column asked for.
        key: String,
        /// Those there are.
        columns: Vec<String>,
    },
    /// A file that is not what it is said to be.
    #[error("{} cannot be read as {format}: {problem}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What it is said to be.
        format: &'static str,
        /// What is wrong.
        problem: String,
    },
    /// A program that was built without Parquet.
    #[error("{}: this program was built without Parquet; build it with `--features parquet`", .0.display())]
    NoParquet(PathBuf),
    /// A vocabulary that was counted from the very text that is imported.
    #[error(
        "{}: the vocabulary was counted from this file and is called public. Text of users that are to be protected is not: count the words of another text, or say --from-users-non-privately",
        .0.display()
    )]
    NotPublic(PathBuf),
    /// A bad line where none is allowed.
    #[error("{0}; nothing was imported (--on-bad-line skip counts such lines and goes on)")]
    BadLine(BadLine),
    /// Nothing could be read.
    #[error("no post could be read (bad lines: {bad}{}): check the keys of the user and the text, and the format", first.as_ref().map(|line| format!(", the first {line}")).unwrap_or_default())]
    Nothing {
        /// How many lines were bad.
        bad: u64,
        /// The first of them.
        first: Option<BadLine>,
    },
    /// Nobody has enough tokens.
    #[error("none of the {users} users has {tokens} tokens: nothing was imported")]
    NobodyLongEnough {
        /// How many users there are.
        users: u64,
        /// How many tokens were asked for.
        tokens: u32,
    },
    /// A spill file.
    #[error("temporary files beside {}: {error}", path.display())]
    Spill {
        /// The store.
        path: PathBuf,
        /// What the system said.
        error: std::io::Error,
    },
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Somebody wants it to stop.
    #[error("interrupted: nothing was imported")]
    Interrupted,
}

/// How many bad lines are shown.
pub(crate) const SHOWN_BAD_LINES: usize = 5;

/// Imports. `progress` is called now and then, and says whether to go on.
///
/// # Errors
/// When something cannot be read or written, or it was told to stop. There is no store then.
pub fn run(plan: &ImportPlan, progress: &mut dyn FnMut(Progress) -> bool) -> Result<Summary, ImportError> {
    refuse_own_words(plan)?;
    let meta = meta(plan);
    let writer = StoreWriter::create(&plan.out, plan.replace, plan.keep_keys, &meta, &plan.vocabulary.vocabulary)?;
    let failed = |error| ImportError::Spill { path: plan.out.clone(), error };
    let spill = spill::Spill::create(&plan.out).map_err(failed)?;
    let mut summary = work::read_all(plan, &spill, progress)?;
    if plan.on_bad_line == OnBadLine::Stop
        && let Some(first) = summary.first_bad_lines.first()
    {
        return Err(ImportError::BadLine(first.clone()));
    }
    group::write(plan, spill, writer, &mut summary, progress)?;
    Ok(summary)
}

/// Notices users' text that was called public when its words were counted.
fn refuse_own_words(plan: &ImportPlan) -> Result<(), ImportError> {
    let (Origin::PublicText { files }, Input::Files { paths, .. }) = (&plan.vocabulary.origin, &plan.input) else {
        return Ok(());
    };
    for path in paths {
        let file = SourceFile::of(path).map_err(|error| ImportError::Read { path: path.clone(), error })?;
        if files.iter().any(|public| public.fingerprint == file.fingerprint) {
            return Err(ImportError::NotPublic(path.clone()));
        }
    }
    Ok(())
}

fn meta(plan: &ImportPlan) -> Meta {
    let (sources, crowd) = match &plan.input {
        Input::Files { paths, .. } => (paths.iter().map(|path| source::name(path)).collect(), None),
        Input::Crowd(crowd) => (vec!["a synthetic crowd".to_owned()], Some(crowd.plan().clone())),
    };
    Meta {
        rules: plan.vocabulary.rules,
        vocabulary: plan.vocabulary.origin.clone(),
        non_private: plan.vocabulary.origin.non_private_event().into_iter().collect(),
        tokens_per_user: plan.tokens_per_user,
        sources,
        crowd,
    }
}
