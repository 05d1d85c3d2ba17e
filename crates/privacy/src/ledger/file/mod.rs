//! A ledger in a file, with what belongs to it beside it. The one part of this crate that touches files (feature
//! `files`).
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
//! | `secret/NAME.noise-key`          | the noise key of the run, where it has one (mode 0600)                     |
//!
//! **Durable in this order**, each step synced before the next begins: the vector and its folder; the participations; the
//! entry (and, once, the folder of the file); the head, by a rename, and the folder; then the caller is told. So after
//! a crash there is at most one record behind the head: whole, and then it counts, or torn, and then it is dropped with
//! a word. Anything else that does not verify is damage, and a damaged ledger does not open.
//!
//! A witness can be kept on another disk too ([`Place::with_witness`]): restoring an old copy of the folder is then
//! noticed.

mod disk;
#[cfg(test)]
mod power_loss;
mod scan;
mod secret;
mod store;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{
    book::Ledger,
    error::LedgerError,
    head::Head,
    keys::SigningKey,
    participants::{KeyDestroyed, PseudonymKey},
    plan::Plan,
};
use crate::rng::NoiseKey;
use disk::{Disk, OsDisk};
use secret::Secrets;

pub use store::FileStore;

/// Where a ledger is kept.
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

    /// Whether a ledger was begun here: its first entry was acknowledged.
    ///
    /// # Errors
    /// When the disk fails.
    pub fn is_begun(&self) -> Result<bool, LedgerError> {
        for witness in &self.witnesses {
            if self.disk.reader(witness).map_err(failed("look at", witness))?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Draws keys and begins a ledger.
    ///
    /// # Errors
    /// When there is one already, the plan contradicts itself, or the disk fails.
    pub fn create(&self, plan: Plan, time: u64) -> Result<(Ledger<FileStore>, PseudonymKey), LedgerError> {
        plan.check()?;
        let store = FileStore::create(self)?;
        let secrets = Secrets::new(self);
        let (signing, pseudonyms) = secrets.draw()?;
        Ok((Ledger::create(store, plan, signing, time)?, pseudonyms))
    }

    /// Opens a ledger for writing, and the key of its pseudonyms unless that is gone. Any heads that are known from
    /// checkpoints or models must lie on it.
    ///
    /// # Errors
    /// Another writer, damage, a rewound or forked chain, secrets that others can read, or a disk that fails.
    pub fn open(&self, heads: &[Head]) -> Result<(Ledger<FileStore>, Option<PseudonymKey>), LedgerError> {
        let store = FileStore::open(self)?;
        let secrets = Secrets::new(self);
        let ledger = Ledger::open(store, Some(secrets.signing_key()?), heads)?;
        Ok((ledger, secrets.pseudonym_key()?))
    }

    /// Opens a ledger for reading. Nothing is written, no secret is needed, and a writer is not disturbed.
    ///
    /// # Errors
    /// Damage, a rewound or forked chain, or a file that cannot be read.
    pub fn read(&self, heads: &[Head]) -> Result<Ledger<FileStore>, LedgerError> {
        Ledger::open(FileStore::read_only(self)?, None, heads)
    }

    /// The key that signs the ledger, from `secret/`.
    ///
    /// # Errors
    /// When it is missing, or others can read it.
    pub fn signing_key(&self) -> Result<SigningKey, LedgerError> {
        Secrets::new(self).signing_key()
    }

    /// Draws the noise key of a run into `secret/`, before its ledger is begun.
    ///
    /// # Errors
    /// When there is a ledger already, which may have releases, or the disk fails.
    pub fn draw_noise_key(&self) -> Result<NoiseKey, LedgerError> {
        if self.is_begun()? {
            return Err(LedgerError::Exists { place: self.ledger.display().to_string() });
        }
        Secrets::new(self).draw_noise_key()
    }

    /// The noise key of a run that is resumed.
    ///
    /// # Errors
    /// When it is missing, or others can read it.
    pub fn noise_key(&self) -> Result<NoiseKey, LedgerError> {
        Secrets::new(self).noise_key()
    }

    /// Destroys the key of the pseudonyms: overwritten, synced, removed, the folder synced. Nothing happens if it is
    /// gone already.
    ///
    /// That is what a program can do. Journals, copy-on-write file systems, snapshots, backups and the spare blocks of
    /// a flash disk may keep the old bytes; where that matters, keep `secret/` on an encrypted volume and destroy its
    /// key, or in memory (tmpfs).
    ///
    /// # Errors
    /// When the disk fails; then the key must be taken to be there still.
    pub fn destroy_pseudonym_key(&self) -> Result<KeyDestroyed, LedgerError> {
        Secrets::new(self).destroy_pseudonym_key()
    }
}

/// The path with something after its name.
fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(suffix);
    path.with_file_name(name)
}

/// The folder in which a path lies.
fn folder(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_path_buf(),
        _ => PathBuf::from("."),
    }
}

/// A failure of the disk, with what was being done to what.
fn failed<'a>(doing: &'a str, path: &'a Path) -> impl FnOnce(std::io::Error) -> LedgerError + 'a {
    move |source| LedgerError::storage(format!("cannot {doing} {}", path.display()), source)
}
