//! Which ledger is meant, and which heads of it are known: what `statement` and `verify` share.

use std::path::{Path, PathBuf};

use clap::Args;
use privacy::ledger::{
    Head, Ledger, LedgerError,
    file::{FileStore, Place},
};

use crate::failure::BadInput;

/// A ledger, and what is known of it.
#[derive(Args)]
pub(crate) struct LedgerArgs {
    /// The ledger's file
    #[arg(long = "ledger", value_name = "FILE")]
    path: PathBuf,
    /// A head that the ledger must have had: LENGTH:HASH from a statement, checkpoint or model, or a file that holds one
    #[arg(long = "head", value_name = "HEAD")]
    heads: Vec<String>,
}

impl LedgerArgs {
    /// Opens the ledger for reading, with every entry and every head checked.
    pub(crate) fn read(&self) -> anyhow::Result<Ledger<FileStore>> {
        self.refuse_missing()?;
        Ok(self.open(&self.heads()?)?)
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
    let text = match std::fs::read_to_string(given) {
        Ok(text) => text,
        Err(_) if !Path::new(given).exists() => given.to_owned(),
        Err(error) => return Err(BadInput::wrong("head", format!("{given}: {error}"))),
    };
    text.trim_end().parse().map_err(|error| BadInput::wrong("head", error))
}
