//! Import: turns files of posts into a store, grouped by user, in bounded memory.
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
mod labels;
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
pub use labels::{KnownLabels, LabelColumn, LabelCounts, count_labels};
use serde::Serialize;
pub use source::Format;
use thiserror::Error;

pub use crate::progress::Progress;
use crate::{
    origin::{self, KnownVocabulary, Origin, SourceFile},
    store::{Meta, StoreError, StoreWriter},
    synth::{Crowd, FEATURES},
    text,
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

/// The input of an import.
#[derive(Debug, Clone)]
pub enum Input {
    /// Files.
    Files {
        /// The files, in this order.
        paths: Vec<PathBuf>,
        /// What they are; by their names by default.
        format: Option<Format>,
        /// Which fields or columns are read.
        columns: Columns,
    },
    /// A synthetic crowd.
    Crowd {
        /// The synthetic users.
        crowd: Crowd,
        /// Whether what is known of everybody is kept: [`FEATURES`].
        features: bool,
    },
}

/// The names of the fields or columns of files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Columns {
    /// Who wrote a post; what is usual for the format of each file by default.
    pub user: Option<String>,
    /// What it says; the same.
    pub text: Option<String>,
    /// The column of labels.
    pub labels: Option<LabelColumn>,
    /// What is known of the user: numbers, the same in every row of a user.
    pub features: Vec<String>,
}

impl Columns {
    /// A user and a text and nothing else.
    #[must_use]
    pub fn new(user: &str, text: &str) -> Self {
        Self { user: Some(user.to_owned()), text: Some(text.to_owned()), ..Self::default() }
    }

    /// Those of a file of this format: what was not said is what is usual for it.
    pub(crate) fn of(&self, format: Format) -> Self {
        let (user, text) = if format == Format::Reddit { ("author", "body") } else { ("user", "text") };
        let said = |said: &Option<String>, usual: &str| said.clone().or_else(|| Some(usual.to_owned()));
        Self { user: said(&self.user, user), text: said(&self.text, text), ..self.clone() }
    }

    /// The key of the user.
    pub(crate) fn user(&self) -> &str {
        self.user.as_deref().unwrap_or("user")
    }

    /// The key of the text.
    pub(crate) fn text(&self) -> &str {
        self.text.as_deref().unwrap_or("text")
    }
}

impl Input {
    /// Files, with the columns that are usual for the format of each where none are said.
    #[must_use]
    pub fn files(paths: &[PathBuf], format: Option<Format>, user: Option<&str>, text: Option<&str>) -> Self {
        let (user, text) = (user.map(str::to_owned), text.map(str::to_owned));
        let columns = Columns { user, text, ..Columns::default() };
        Self::Files { paths: paths.to_vec(), format, columns }
    }

    /// The names of the users' features.
    #[must_use]
    pub fn feature_names(&self) -> Vec<String> {
        match self {
            Self::Files { columns, .. } => columns.features.clone(),
            Self::Crowd { features: true, .. } => FEATURES.map(str::to_owned).to_vec(),
            Self::Crowd { .. } => Vec::new(),
        }
    }
}

/// What to import, and how.
#[derive(Debug, Clone)]
pub struct ImportPlan {
    /// The input.
    pub input: Input,
    /// The store.
    pub out: PathBuf,
    /// Whether a file of that name is replaced.
    pub replace: bool,
    /// The words that get ids.
    pub vocabulary: KnownVocabulary,
    /// The labels that get ids; without them posts have none.
    pub labels: Option<KnownLabels>,
    /// Truncates every user to this many tokens and drops those with fewer.
    pub tokens_per_user: Option<u32>,
    /// Whether the users' keys are kept in the store.
    pub keep_keys: bool,
    /// What to do about lines that cannot be read.
    pub on_bad_line: OnBadLine,
    /// The largest share of lines that may be bad where they are skipped: with more the files are not what they were taken for.
    pub most_bad_share: f64,
    /// Worker threads; at least one.
    pub threads: usize,
}

impl ImportPlan {
    /// What was computed from users' data without privacy: every run on the store records it.
    #[must_use]
    pub fn non_private_events(&self) -> Vec<String> {
        let words = self.vocabulary.origin.non_private_event();
        let labels = self.labels.as_ref().and_then(|known| known.origin.non_private_labels());
        words.into_iter().chain(labels).collect()
    }
}

/// The summary of an import.
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
    /// Labels in the store, of all posts together.
    pub labels: u64,
    /// Labels that were left out because the store has no such name.
    pub unknown_labels: u64,
    /// Users with too few tokens.
    pub dropped_users: u64,
    /// Posts without a token, and posts that their authors deleted.
    pub empty_posts: u64,
    /// Bytes of text in the posts that were read.
    pub text_bytes: u64,
    /// Lines, rows or samples that were read, good and bad.
    pub lines: u64,
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
    /// Standard input has no name that says what it is.
    #[error("the format of standard input is not known; use --format")]
    UnknownInput,
    /// Too many lines that cannot be read.
    #[error(
        "{bad} of {lines} lines could not be read, more than {} %, so nothing was imported. The first: {first}. Check --format, --user-key and --text-key, or allow more with --most-bad-lines",
        100.0 * most
    )]
    TooManyBad {
        /// How many lines were bad.
        bad: u64,
        /// The number of lines read.
        lines: u64,
        /// The share that is allowed.
        most: f64,
        /// The first of them.
        first: BadLine,
    },
    /// A file whose name does not say what it is.
    #[error("{}: unknown file type (expected .jsonl, .csv, .tsv or .parquet, optionally .gz or .zst); use --format", .0.display())]
    UnknownFormat(PathBuf),
    /// A table without the column.
    #[error("{}: no column {key:?}; its columns are: {}", path.display(), columns.join(", "))]
    NoColumn {
        /// The file.
        path: PathBuf,
        /// The column asked for.
        key: String,
        /// The existing columns.
        columns: Vec<String>,
    },
    /// A file that is not what it is said to be.
    #[error("{} cannot be read as {format}: {problem}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The expected format.
        format: &'static str,
        /// A description of the problem.
        problem: String,
    },
    /// A program that was built without Parquet.
    #[error("{}: this program was built without Parquet; build it with `cargo build --release --features full`", .0.display())]
    NoParquet(PathBuf),
    /// A vocabulary that was counted from the very text that is imported.
    #[error(
        "{}: the vocabulary was counted from this file but is labelled as public. Text of users to be protected is not public; count the words of another text, or use --from-users-non-privately",
        .0.display()
    )]
    NotPublic(PathBuf),
    /// A bad line where none is allowed.
    #[error("{0}; nothing was imported (--on-bad-line skip counts and skips such lines)")]
    BadLine(BadLine),
    /// Two rows of a user that say different things of the user.
    #[error("{file}:{line}: {column:?} differs from the first row of the same user; nothing was imported")]
    Contradiction {
        /// The file.
        file: String,
        /// The line, from 1, of the row that contradicts.
        line: u64,
        /// The column.
        column: String,
    },
    /// Nothing could be read.
    #[error("no post could be read (bad lines: {bad}{}); check --format, --user-key and --text-key", first.as_ref().map(|line| format!(", the first {line}")).unwrap_or_default())]
    Nothing {
        /// How many lines were bad.
        bad: u64,
        /// The first of them.
        first: Option<BadLine>,
    },
    /// Nobody has enough tokens.
    #[error("no user has {tokens} tokens (the input has {users} user{}); nothing was imported", if *users == 1 { "" } else { "s" })]
    NobodyLongEnough {
        /// How many users there are.
        users: u64,
        /// How many tokens were asked for.
        tokens: u32,
    },
    /// A spill file.
    #[error("temporary files next to {}: {error}", path.display())]
    Spill {
        /// The store.
        path: PathBuf,
        /// The system's error.
        error: std::io::Error,
    },
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The import was interrupted.
    #[error("interrupted; nothing was imported")]
    Interrupted,
}

/// How many bad lines are shown.
pub(crate) const SHOWN_BAD_LINES: usize = 5;

/// Imports. `progress` is called now and then, and returns whether to continue.
///
/// # Errors
/// When something cannot be read or written, or it was told to stop. There is no store then.
pub fn run(plan: &ImportPlan, progress: &mut dyn FnMut(Progress) -> bool) -> Result<Summary, ImportError> {
    refuse_own_words(plan)?;
    let meta = meta(plan);
    let mut writer = StoreWriter::create(&plan.out, plan.replace, plan.keep_keys, &meta, &plan.vocabulary.vocabulary)?;
    if let Some(known) = &plan.labels {
        writer = writer.with_labels(&known.labels);
    }
    let failed = |error| ImportError::Spill { path: plan.out.clone(), error };
    let spill = spill::Spill::create(&plan.out).map_err(failed)?;
    let mut summary = work::read_all(plan, &spill, progress)?;
    if plan.on_bad_line == OnBadLine::Stop
        && let Some(first) = summary.first_bad_lines.first()
    {
        return Err(ImportError::BadLine(first.clone()));
    }
    refuse_too_many_bad(plan, &summary)?;
    group::write(plan, spill, writer, &mut summary, progress)?;
    Ok(summary)
}

/// Files of which much cannot be read are not what they were taken for.
fn refuse_too_many_bad(plan: &ImportPlan, summary: &Summary) -> Result<(), ImportError> {
    let Summary { bad_lines: bad, lines, ref first_bad_lines, .. } = *summary;
    match first_bad_lines.first() {
        // Where nothing could be read at all, that is said.
        Some(first) if bad < lines && bad as f64 > plan.most_bad_share * lines as f64 => {
            Err(ImportError::TooManyBad { bad, lines, most: plan.most_bad_share, first: first.clone() })
        }
        _ => Ok(()),
    }
}

/// Notices users' text that was called public when its words were counted.
fn refuse_own_words(plan: &ImportPlan) -> Result<(), ImportError> {
    let (Origin::PublicText { files }, Input::Files { paths, .. }) = (&plan.vocabulary.origin, &plan.input) else {
        return Ok(());
    };
    for path in paths.iter().filter(|path| !text::is_standard_input(path)) {
        let file = SourceFile::of(path).map_err(|error| ImportError::Read { path: path.clone(), error })?;
        if files.iter().any(|public| public.fingerprint == file.fingerprint) {
            return Err(ImportError::NotPublic(path.clone()));
        }
    }
    Ok(())
}

fn meta(plan: &ImportPlan) -> Meta {
    let (sources, crowd) = match &plan.input {
        Input::Files { paths, .. } => (paths.iter().map(|path| origin::name(path)).collect(), None),
        Input::Crowd { crowd, .. } => (vec!["a synthetic crowd".to_owned()], Some(crowd.plan().clone())),
    };
    Meta {
        rules: plan.vocabulary.rules,
        vocabulary: plan.vocabulary.origin.clone(),
        non_private: plan.non_private_events(),
        tokens_per_user: plan.tokens_per_user,
        sources,
        crowd,
        labels: plan.labels.as_ref().map(|known| known.origin.clone()),
        features: plan.input.feature_names(),
    }
}
