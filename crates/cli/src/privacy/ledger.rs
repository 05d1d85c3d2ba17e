//! Which ledger is meant, and which heads of it are known: what `statement` and `verify` share.

use std::path::{Path, PathBuf};

use clap::Args;
use federated::home::heads::{self, HeadsError, Shown};
use federated::ledger_file::{FileStore, Place};
use ledger::{Head, Ledger, LedgerError};

use crate::failure::BadInput;

/// A ledger, and what is known of it.
#[derive(Args)]
pub(crate) struct LedgerArgs {
    /// The ledger's file
    #[arg(long = "ledger", value_name = "FILE")]
    path: PathBuf,
    /// A head that the ledger must have had: LENGTH:HASH, or what holds one: a witness FILE.head, a statement.json, a
    /// checkpoint, the folder of a model
    #[arg(long = "head", value_name = "HEAD")]
    heads: Vec<String>,
}

impl LedgerArgs {
    /// Opens the ledger for reading, with every entry and every head checked, those that lie beside it too.
    pub(crate) fn read(&self) -> anyhow::Result<Ledger<FileStore>> {
        self.refuse_missing()?;
        let heads = self.heads()?;
        let ledger = self.open(&heads)?;
        self.beside()?;
        Ok(ledger)
    }

    /// What lies beside the ledger and was taken from it, in the folder of a run.
    pub(crate) fn beside(&self) -> Result<Vec<Shown>, HeadsError> {
        heads::check(&self.path)
    }

    /// The same, with errors of the ledger apart from those of the command line.
    pub(crate) fn open(&self, heads: &[Head]) -> Result<Ledger<FileStore>, LedgerError> {
        Place::new(&self.path).read(heads)
    }

    pub(crate) fn refuse_missing(&self) -> Result<(), BadInput> {
        if self.path.is_file() {
            return Ok(());
        }
        Err(BadInput::wrong("ledger", format!("there is no file {}", self.path.display())))
    }

    /// The heads that were given, as they are or from files.
    pub(crate) fn heads(&self) -> Result<Vec<Head>, BadInput> {
        self.heads.iter().map(|given| head(given)).collect()
    }
}

fn head(given: &str) -> Result<Head, BadInput> {
    let path = Path::new(given);
    if path.exists() {
        return heads::in_file(path).map_err(|error| BadInput::wrong("head", error));
    }
    given.parse().map_err(|error| BadInput::wrong("head", error))
}
