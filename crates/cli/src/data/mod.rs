//! `keyhush data`: import text into a store, inspect a store, generate synthetic users.

mod import;
mod labels;
mod progress;
mod show;
mod stats;
mod synth;
mod vocab;

use std::path::Path;

use clap::Subcommand;
use corpus::{
    import::ImportError,
    origin::KnownVocabulary,
    store::{Store, StoreError},
};
use federated::numbers::grouped;

pub(crate) use self::stats::split;
use crate::failure::{BadInput, Interrupted};

/// Where more lines of a file than one in twenty are bad, it is not what it was taken for.
const MOST_BAD_LINES: f64 = 0.05;

/// Refuses a share of bad lines that is no share.
fn check_share(most_bad_lines: f64) -> Result<(), BadInput> {
    if (0.0..=1.0).contains(&most_bad_lines) {
        Ok(())
    } else {
        Err(BadInput::wrong("most_bad_lines", "must be from 0 to 1"))
    }
}

/// The subcommands of `keyhush data`.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Import users' posts into a store.
    ///
    /// Reads JSON lines, CSV and TSV with a header, Reddit dumps and LEAF files (also compressed with gzip or zstd), and Parquet. Users may be
    /// mixed in any order; posts are grouped by user on disk, and keep the order of the files.
    Import(import::ImportArgs),
    /// Generate synthetic users with their own topics, slang, typos and habits.
    Synth(synth::SynthArgs),
    /// Show users, tokens, their distribution, and the coverage of the vocabulary.
    Stats(stats::StatsArgs),
    /// Print a user's text.
    Show(show::ShowArgs),
    /// Make a vocabulary from a public word list or public text.
    Vocab(vocab::VocabArgs),
}

/// Runs a subcommand.
pub(crate) fn run(command: Command) -> anyhow::Result<()> {
    let outcome = match command {
        Command::Import(args) => import::import(&args),
        Command::Synth(args) => synth::synth(&args),
        Command::Stats(args) => stats::stats(&args),
        Command::Show(args) => show::show(&args),
        Command::Vocab(args) => vocab::vocab(&args),
    };
    if let Err(error) = &outcome
        && let Some(ImportError::Interrupted) = error.downcast_ref()
    {
        return Err(Interrupted(error.to_string()).into());
    }
    outcome
}

/// Tells what the user typed wrongly from what failed.
fn sorted(error: ImportError) -> anyhow::Error {
    match error {
        ImportError::UnknownFormat(_)
        | ImportError::UnknownInput
        | ImportError::NoColumn { .. }
        | ImportError::NoParquet(_)
        | ImportError::NotPublic(_)
        | ImportError::Store(StoreError::FeatureNames(_))
        | ImportError::Store(StoreError::Exists(_)) => BadInput::Refused(error.to_string()).into(),
        ImportError::Read { error: ref io, .. } | ImportError::Store(StoreError::Io { error: ref io, .. })
            if matches!(io.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::InvalidInput) =>
        {
            BadInput::Refused(error.to_string()).into()
        }
        error => error.into(),
    }
}

/// A name that is taken.
fn taken(path: &Path) -> BadInput {
    BadInput::Refused(StoreError::Exists(path.to_owned()).to_string())
}

/// Opens a store that the user named.
pub(crate) fn open(path: &Path) -> anyhow::Result<Store> {
    Store::open(path).map_err(|error| match error {
        StoreError::NotAStore(_) => BadInput::Refused(error.to_string()).into(),
        StoreError::Io { ref error, .. } if error.kind() == std::io::ErrorKind::NotFound => {
            BadInput::Refused(format!("store {} does not exist", path.display())).into()
        }
        error => error.into(),
    })
}

/// The vocabulary of a file, or the one that is built in.
fn vocabulary(file: Option<&Path>, size: usize, characters: bool) -> anyhow::Result<KnownVocabulary> {
    match file {
        Some(path) => Ok(read_vocabulary(path)?),
        None if characters => Ok(KnownVocabulary::built_in_characters()?),
        None => Ok(KnownVocabulary::built_in(size).map_err(|e| BadInput::wrong("vocab_size", e))?),
    }
}

fn read_vocabulary(path: &Path) -> Result<KnownVocabulary, BadInput> {
    let wrong = |problem: String| BadInput::wrong("vocab", format!("{}: {problem}", path.display()));
    let text = corpus::text::read(path).map_err(|error| wrong(error.to_string()))?;
    KnownVocabulary::parse(&text).map_err(|error| wrong(error.to_string()))
}

/// A share of a whole, for people.
fn percent(part: u64, whole: u64) -> String {
    if whole == 0 { "-".to_owned() } else { format!("{:.2} %", 100.0 * part as f64 / whole as f64) }
}
