//! A ledger in a file, with the files that belong to it.
//!
//! | path                             | what it holds                                                              |
//! |----------------------------------|----------------------------------------------------------------------------|
//! | `FILE`                           | the entries, one line of JSON each                                         |
//! | `FILE.head`                      | the witness: the head that was acknowledged last                           |
//! | `FILE.released/INDEX.bin`        | the released vectors, so that a crash never asks for a second release      |
//! | `FILE.participations`            | who took part, as pseudonyms; stays with the run (mode 0600)               |
//! | `FILE.lock`                      | held by the one writer                                                     |
//! | `secret/NAME.signing-key`        | the signing key (mode 0600, the folder 0700)                               |
//! | `secret/NAME.pseudonym-key`      | the key of the pseudonyms, until the ledger is closed                      |
//! | `secret/NAME.noise-key`          | the noise key of the run, where it has one, until the ledger is closed     |
//! | `secret/NAME.step-keys`, `.noise-link` | the noise keys of its steps, no longer than they are needed |
//! | `secret/NAME.cohort-seed`        | what the cohort of the step that is not recorded yet is drawn from         |
//! | `secret/NAME.attempt`            | the attempt for which users were asked last, until the ledger is closed    |
//! | `secret/NAME.INDEX.pending`      | a vector whose entry is not durable yet                                    |
//! | `secret/NAME.beginning`          | what the run must recognise when it continues: keyed digests                 |
//! | `secret/NAME.closing`            | that the ledger is being closed, and why                                   |
//!
//! **Durable in this order**, each step synced before the next begins: the noise key of the step; the vector, in `secret/`;
//! the participations; the entry (and, once, the folder of the file); the head, by a rename, and the folder; then the vector
//! is moved out and the caller is told. So after a crash there is at most one record behind the head: whole, and then it
//! counts, or torn, and then it is dropped with a word. A vector or a noise key without an entry is destroyed. Anything else
//! that does not verify is damage, and a damaged ledger does not open.
//!
//! A witness can be kept on another disk too ([`Place::with_witness`]): restoring an old copy of the folder is then
//! noticed.

mod copy;
mod discarded;
#[cfg(test)]
mod power_loss;
mod scan;
mod store;

use std::{path::PathBuf, sync::Arc};

use durable::{
    disk::{Disk, OsDisk},
    files::beside,
};
use ledger::{Head, Ledger, LedgerError, Plan, PseudonymKey};

use crate::secrets::{
    Secrets, Vault,
    file::{FileVault, failed},
};
pub use store::FileStore;

/// The place of a ledger file and what belongs to it.
#[derive(Debug, Clone)]
pub struct Place {
    disk: Arc<dyn Disk>,
    ledger: PathBuf,
    witnesses: Vec<PathBuf>,
}

impl Place {
    /// The ledger in this file.
    #[must_use]
    pub fn new(ledger: impl Into<PathBuf>) -> Self {
        Self::on(Arc::new(OsDisk), ledger.into())
    }

    fn on(disk: Arc<dyn Disk>, ledger: PathBuf) -> Self {
        let witness = beside(&ledger, ".head");
        Self { disk, ledger, witnesses: vec![witness] }
    }

    /// Keeps the head in one more file, best on another disk.
    #[must_use]
    pub fn with_witness(mut self, witness: impl Into<PathBuf>) -> Self {
        self.witnesses.push(witness.into());
        self
    }

    /// Whether a ledger was begun here: its first entry is there, acknowledged or not.
    ///
    /// # Errors
    /// When the disk fails.
    pub fn is_begun(&self) -> Result<bool, LedgerError> {
        if FileStore::has_entries(self)? {
            return Ok(true);
        }
        for witness in &self.witnesses {
            if self.disk.reader(witness).map_err(failed("look at", witness))?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The folder `secret/` beside it.
    #[must_use]
    pub fn vault(&self) -> Arc<dyn Vault> {
        Arc::new(FileVault::beside(Arc::clone(&self.disk), &self.ledger))
    }

    /// The secrets of the ledger.
    #[must_use]
    pub fn secrets(&self) -> Secrets {
        Secrets::new(self.vault())
    }

    /// Draws keys and begins a ledger.
    ///
    /// # Errors
    /// When there is one already, the plan contradicts itself, or the disk fails.
    pub fn create(&self, plan: Plan, time: u64) -> Result<(Ledger<FileStore>, PseudonymKey), LedgerError> {
        plan.check()?;
        self.secrets().begin_ledger(FileStore::create(self)?, plan, time)
    }

    /// Opens a ledger for writing, and the key of its pseudonyms unless that is gone. Any heads that are known from
    /// checkpoints or models must lie on it.
    ///
    /// # Errors
    /// Another writer, damage, a rewound or forked chain, secrets that others can read, or a disk that fails.
    pub fn open(&self, heads: &[Head]) -> Result<(Ledger<FileStore>, Option<PseudonymKey>), LedgerError> {
        self.secrets().open_ledger(FileStore::open(self)?, heads)
    }

    /// Opens a ledger for reading. Nothing is written, no secret is needed, and a writer is not disturbed.
    ///
    /// # Errors
    /// Damage, a rewound or forked chain, or a file that cannot be read.
    pub fn read(&self, heads: &[Head]) -> Result<Ledger<FileStore>, LedgerError> {
        Ledger::open(FileStore::read_only(self)?, None, heads)
    }
}
