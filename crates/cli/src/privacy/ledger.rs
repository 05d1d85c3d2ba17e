//! Finds the ledger that arguments name and its known heads, for `statement`, `verify` and `compose`.

use std::path::{Path, PathBuf};

use clap::Args;
use federated::home::heads::{self, HeadsError, Shown};
use federated::{
    home::LEDGER_FILE,
    ledger_file::{FileStore, Place},
};
use ledger::{Head, Ledger, LedgerError};

use crate::failure::BadInput;

/// A ledger, and what is known of it.
#[derive(Args)]
pub(crate) struct LedgerArgs {
    /// Folder of a run, or of a finished task of `keyhush serve`
    #[arg(value_name = "DIR", required_unless_present = "file")]
    folder: Option<PathBuf>,
    /// Ledger file, instead of a folder
    #[arg(long = "ledger", value_name = "FILE", conflicts_with = "folder")]
    file: Option<PathBuf>,
    /// An earlier head of the ledger, to detect truncation: LENGTH:HASH, or a file with one (FILE.head, statement.json, a checkpoint, the folder
    /// of a model); may be repeated
    #[arg(long = "head", value_name = "HEAD")]
    heads: Vec<String>,
}

impl LedgerArgs {
    /// Opens the ledger for reading, and checks every entry and every head, including those stored next to it.
    pub(crate) fn read(&self) -> anyhow::Result<Ledger<FileStore>> {
        self.refuse_missing()?;
        let heads = self.heads()?;
        let ledger = self.open(&heads)?;
        self.beside()?;
        Ok(ledger)
    }

    /// The heads stored next to the ledger in the folder of a run.
    pub(crate) fn beside(&self) -> Result<Vec<Shown>, HeadsError> {
        heads::check(&self.path())
    }

    /// The same, with errors of the ledger apart from those of the command line.
    pub(crate) fn open(&self, heads: &[Head]) -> Result<Ledger<FileStore>, LedgerError> {
        Place::new(self.path()).read(heads)
    }

    /// The ledger's file.
    fn path(&self) -> PathBuf {
        let in_folder = || self.folder.as_deref().map(in_folder);
        self.file.clone().or_else(in_folder).unwrap_or_default()
    }

    pub(crate) fn refuse_missing(&self) -> Result<(), BadInput> {
        refuse_missing(&self.path())
    }

    /// The heads that were given, as they are or from files.
    pub(crate) fn heads(&self) -> Result<Vec<Head>, BadInput> {
        self.heads.iter().map(|given| head(given)).collect()
    }
}

/// The ledger in the folder of a run.
fn in_folder(folder: &Path) -> PathBuf {
    folder.join(LEDGER_FILE)
}

/// A ledger that is named by its file or by the folder of its run, checked against the heads stored next to it.
pub(crate) fn read(place: &Path) -> anyhow::Result<Ledger<FileStore>> {
    let path = if place.is_dir() { in_folder(place) } else { place.to_owned() };
    refuse_missing(&path)?;
    let ledger = Place::new(&path).read(&[])?;
    heads::check(&path)?;
    Ok(ledger)
}

fn refuse_missing(path: &Path) -> Result<(), BadInput> {
    if path.is_file() {
        return Ok(());
    }
    Err(BadInput::wrong("ledger", format!("file {} does not exist", path.display())))
}

fn head(given: &str) -> Result<Head, BadInput> {
    let path = Path::new(given);
    if path.exists() {
        return heads::in_file(path).map_err(|error| BadInput::wrong("head", error));
    }
    given.parse().map_err(|error| BadInput::wrong("head", error))
}
