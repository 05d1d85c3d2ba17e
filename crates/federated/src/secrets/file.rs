//! A folder of secrets, usually `secret/` next to a ledger: files that only their owner can read, and that can be overwritten and
//! removed.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    sync::Arc,
};

use durable::{
    disk::{Disk, How, OsDisk},
    files::{self, FileError, Replacement, beside, folder},
};
use ledger::LedgerError;
use zeroize::Zeroizing;

use super::vault::{SecretName, Vault};

/// Secrets as files of one folder: `secret/NAME.WORD` beside a ledger, or `FOLDER/WORD`.
#[derive(Debug, Clone)]
pub struct FileVault {
    disk: Arc<dyn Disk>,
    folder: PathBuf,
    /// The prefix of file names.
    prefix: OsString,
}

impl FileVault {
    /// The secrets of the ledger in a file.
    pub(crate) fn beside(disk: Arc<dyn Disk>, ledger: &Path) -> Self {
        let mut prefix = ledger.file_name().unwrap_or_default().to_owned();
        prefix.push(".");
        Self { disk, folder: folder(ledger).join("secret"), prefix }
    }

    /// The secrets in a folder, which is made where there is none, for its owner alone.
    ///
    /// # Errors
    /// When others can reach the folder, or it cannot be made.
    pub fn in_folder(folder: impl Into<PathBuf>) -> Result<Self, LedgerError> {
        let vault = Self { disk: Arc::new(OsDisk), folder: folder.into(), prefix: OsString::new() };
        vault.file(SecretName::SigningKey).make_folder()?;
        Ok(vault)
    }

    fn file(&self, name: SecretName) -> PrivateFile {
        let mut file = self.prefix.clone();
        file.push(name.word());
        PrivateFile::new(Arc::clone(&self.disk), self.folder.join(file))
    }
}

impl Vault for FileVault {
    fn read(&self, name: SecretName) -> Result<Option<Zeroizing<Vec<u8>>>, LedgerError> {
        self.file(name).read()
    }

    fn create(&self, name: SecretName, bytes: &[u8]) -> Result<(), LedgerError> {
        self.file(name).write(bytes)
    }

    fn replace(&self, name: SecretName, bytes: &[u8]) -> Result<(), LedgerError> {
        self.file(name).replace(bytes)
    }

    fn append(&self, name: SecretName, bytes: &[u8]) -> Result<(), LedgerError> {
        self.file(name).append(bytes)
    }

    fn wipe_from(&self, name: SecretName, offset: usize) -> Result<(), LedgerError> {
        self.file(name).wipe_from(offset)
    }

    fn destroy(&self, name: SecretName) -> Result<(), LedgerError> {
        self.file(name).destroy()
    }

    fn exists(&self, name: SecretName) -> Result<bool, LedgerError> {
        let file = self.file(name);
        Ok(file.exists()? || file.unfinished().exists()?)
    }

    fn place(&self, name: SecretName) -> String {
        self.file(name).path().display().to_string()
    }
}

/// A file in a folder of secrets (mode 0600, the folder 0700; looser modes are refused).
#[derive(Debug, Clone)]
pub(crate) struct PrivateFile {
    disk: Arc<dyn Disk>,
    path: PathBuf,
}

impl PrivateFile {
    pub(crate) const fn new(disk: Arc<dyn Disk>, path: PathBuf) -> Self {
        Self { disk, path }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// What it holds; none if there is no such file.
    pub(crate) fn read(&self) -> Result<Option<Zeroizing<Vec<u8>>>, LedgerError> {
        let Some(bytes) = self.disk.read(&self.path).map_err(failed("read", &self.path))? else { return Ok(None) };
        let bytes = Zeroizing::new(bytes);
        self.refuse_loose()?;
        Ok(Some(bytes))
    }

    /// Rewrites it. What was there is removed, not overwritten: for what was never used.
    pub(crate) fn write(&self, bytes: &[u8]) -> Result<(), LedgerError> {
        self.make_folder()?;
        self.disk.remove(&self.path).map_err(failed("replace", &self.path))?;
        self.create(&self.path, bytes)?;
        self.sync_folder()
    }

    /// Replaces it at once: after a crash it holds the old or the new.
    pub(crate) fn replace(&self, bytes: &[u8]) -> Result<(), LedgerError> {
        let by = Replacement { new: &replacement(&self.path), private: true, time: None };
        files::replace(&*self.disk, &self.path, by, |out| out.write_all(bytes)).map_err(not_replaced)
    }

    /// Adds to its end, or makes it.
    pub(crate) fn append(&self, bytes: &[u8]) -> Result<(), LedgerError> {
        if !self.exists()? {
            self.create(&self.path, bytes)?;
            return self.sync_folder();
        }
        let mut file = self.disk.writer(&self.path, How::Append).map_err(failed("write", &self.path))?;
        file.write_all(bytes).and_then(|()| file.sync()).map_err(failed("write", &self.path))
    }

    /// Overwrites what is behind an offset, and cuts it off.
    pub(crate) fn wipe_from(&self, offset: usize) -> Result<(), LedgerError> {
        let Some(old) = self.read()? else { return Ok(()) };
        if old.len() <= offset {
            return Ok(());
        }
        let nothing = vec![b'\n'; old.len() - offset];
        let mut file = self.disk.writer(&self.path, How::At(offset as u64)).map_err(failed("wipe", &self.path))?;
        file.write_all(&nothing).and_then(|()| file.sync()).map_err(failed("wipe", &self.path))?;
        file.set_length(offset as u64).and_then(|()| file.sync()).map_err(failed("wipe", &self.path))
    }

    /// Overwrites it, synced, and removes it, and what a crash may have left of a replacement, which is as secret. Nothing happens
    /// if it is gone already; the folder is synced in any case.
    pub(crate) fn destroy(&self) -> Result<(), LedgerError> {
        self.unfinished().wipe_out()?;
        self.wipe_out()?;
        self.sync_folder()
    }

    fn unfinished(&self) -> Self {
        Self::new(Arc::clone(&self.disk), replacement(&self.path))
    }

    fn wipe_out(&self) -> Result<(), LedgerError> {
        if self.exists()? {
            self.wipe_from(0)?;
            self.disk.remove(&self.path).map_err(failed("remove", &self.path))?;
        }
        Ok(())
    }

    pub(crate) fn exists(&self) -> Result<bool, LedgerError> {
        Ok(self.disk.reader(&self.path).map_err(failed("look at", &self.path))?.is_some())
    }

    fn create(&self, path: &Path, bytes: &[u8]) -> Result<(), LedgerError> {
        let mut file = self.disk.writer(path, How::New { private: true }).map_err(failed("make", path))?;
        file.write_all(bytes).and_then(|()| file.sync()).map_err(failed("write", path))
    }

    /// Makes the folder, for its owner alone.
    pub(crate) fn make_folder(&self) -> Result<(), LedgerError> {
        let secret = folder(&self.path);
        if self.disk.create_folder(secret, true).map_err(failed("make", secret))? {
            let above = folder(secret);
            self.disk.sync_folder(above).map_err(failed("sync", above))?;
        }
        self.refuse_loose_path(secret, 0o700)
    }

    fn sync_folder(&self) -> Result<(), LedgerError> {
        let secret = folder(&self.path);
        self.disk.sync_folder(secret).map_err(failed("sync", secret))
    }

    /// Refuses what others than the owner can reach.
    fn refuse_loose(&self) -> Result<(), LedgerError> {
        self.refuse_loose_path(folder(&self.path), 0o700)?;
        self.refuse_loose_path(&self.path, 0o600)
    }

    fn refuse_loose_path(&self, path: &Path, wanted: u32) -> Result<(), LedgerError> {
        match self.disk.mode(path).map_err(failed("look at", path))? {
            Some(mode) if mode & 0o077 != 0 => {
                Err(LedgerError::LooseSecret { place: path.display().to_string(), mode, wanted })
            }
            _ => Ok(()),
        }
    }
}

/// Where a file is written before it has its name.
fn replacement(path: &Path) -> PathBuf {
    beside(path, ".new")
}

/// A failure of the disk, with what was being done to what.
pub(crate) fn failed<'a>(doing: &'a str, path: &'a Path) -> impl FnOnce(std::io::Error) -> LedgerError + 'a {
    move |source| LedgerError::storage(format!("cannot {doing} {}", path.display()), source)
}

/// The same of a whole file.
pub(crate) fn not_replaced(FileError { what, path, error }: FileError) -> LedgerError {
    failed(what, &path)(error)
}
