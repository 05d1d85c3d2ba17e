//! A ledger in a file, with what belongs to it beside it.
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
//! | `secret/NAME.beginning`          | what the run must recognise when it goes on: keyed digests                 |
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

#[cfg(test)]
mod power_loss;
mod private;
mod scan;
mod secret;
mod step_keys;
mod store;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use durable::{
    disk::{Disk, OsDisk},
    files::{FileError, beside},
};
use ledger::{Ended, Head, KeyDestroyed, Ledger, LedgerError, NoiseDestroyed, Plan, PseudonymKey, SigningKey};
use privacy::{
    rng::NoiseKey,
    step_keys::{LastStep, SecretSteps},
};
use secret::Secrets;

use zeroize::Zeroizing;

pub use step_keys::FileShelf;
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
    pub fn draw_noise_key(&self) -> Result<(), LedgerError> {
        if self.is_begun()? {
            return Err(LedgerError::Exists { place: self.ledger.display().to_string() });
        }
        Secrets::new(self).draw_noise_key()
    }

    /// The noise key of a run.
    ///
    /// # Errors
    /// When it is missing, or others can read it.
    pub fn noise_key(&self) -> Result<NoiseKey, LedgerError> {
        Secrets::new(self).noise_key()
    }

    /// The noise keys of the run's steps. `last` is the last release of the ledger whose noise the run drew: a key behind it
    /// is destroyed, keys that are no longer needed are erased, and those of another state of the run are refused (rule P21).
    ///
    /// # Errors
    /// When they do not fit the ledger, are missing, or others can read them.
    pub fn step_keys(&self, last: Option<LastStep>) -> Result<SecretSteps<FileShelf>, LedgerError> {
        let secrets = Secrets::new(self);
        Ok(SecretSteps::new(secrets.noise_key()?, secrets.shelf.open(last)?))
    }

    /// What the cohort of a round is drawn from: its own seed, durable before it is used, and the same again after a crash
    /// (another one would favour cohorts that do not crash; rule P21).
    ///
    /// # Errors
    /// When there is no randomness, the disk fails, or the seed of a later round is there.
    pub fn cohort_seed(&self, round: u64) -> Result<NoiseKey, LedgerError> {
        Secrets::new(self).cohort_seed(round)
    }

    /// Erases the seed of the last cohort, once its round is recorded.
    ///
    /// # Errors
    /// When the disk fails; then the seed must be taken to be there still.
    pub fn erase_cohort_seed(&self) -> Result<(), LedgerError> {
        Secrets::new(self).erase_cohort_seed()
    }

    /// Erases what a crash left of cohorts of rounds before this one, which are recorded.
    ///
    /// # Errors
    /// When the disk fails.
    pub fn settle_cohort_seed(&self, next_round: u64) -> Result<(), LedgerError> {
        Secrets::new(self).settle_cohort_seed(next_round)
    }

    /// What was kept by [`Self::keep_beginning`].
    ///
    /// # Errors
    /// When it cannot be read, or others can read it.
    pub fn beginning(&self) -> Result<Option<Zeroizing<Vec<u8>>>, LedgerError> {
        Secrets::new(self).beginning()
    }

    /// Keeps what the run must recognise when it goes on.
    ///
    /// # Errors
    /// When the disk fails.
    pub fn keep_beginning(&self, bytes: &[u8]) -> Result<(), LedgerError> {
        Secrets::new(self).keep_beginning(bytes)
    }

    /// Destroys noise key, noise state and the key of the pseudonyms, and closes the ledger: nothing can be released after
    /// this. A crash in between is found by [`Self::closing_begun`], and closing again brings it to its end.
    ///
    /// # Errors
    /// When the disk fails.
    pub fn close(&self, ledger: &mut Ledger<FileStore>, because: Ended, time: u64) -> Result<(), LedgerError> {
        let secrets = Secrets::new(self);
        secrets.begin_closing(because)?;
        let (noise, pseudonyms) = (secrets.destroy_noise()?, secrets.destroy_pseudonym_key()?);
        let _receipt = ledger.close(because, pseudonyms, noise, time)?;
        secrets.end_closing()
    }

    /// Removes what says that a ledger is being closed, once it is.
    ///
    /// # Errors
    /// When the disk fails.
    pub fn end_closing(&self) -> Result<(), LedgerError> {
        Secrets::new(self).end_closing()
    }

    /// Why the ledger is being closed, if that was begun.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn closing_begun(&self) -> Result<Option<Ended>, LedgerError> {
        Secrets::new(self).closing_begun()
    }

    /// Whether anything is left that noise could be drawn again from.
    ///
    /// # Errors
    /// When the disk fails.
    pub fn has_noise(&self) -> Result<bool, LedgerError> {
        Secrets::new(self).has_noise()
    }

    /// Destroys the noise key of the run and everything else that noise could be drawn again from, as
    /// [`Self::destroy_pseudonym_key`] does.
    ///
    /// # Errors
    /// When the disk fails; then they must be taken to be there still.
    pub fn destroy_noise(&self) -> Result<NoiseDestroyed, LedgerError> {
        Secrets::new(self).destroy_noise()
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

/// A failure of the disk, with what was being done to what.
fn failed<'a>(doing: &'a str, path: &'a Path) -> impl FnOnce(std::io::Error) -> LedgerError + 'a {
    move |source| LedgerError::storage(format!("cannot {doing} {}", path.display()), source)
}

/// The same of a whole file.
fn not_replaced(FileError { what, path, error }: FileError) -> LedgerError {
    failed(what, &path)(error)
}
