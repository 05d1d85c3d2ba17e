//! A file that nobody but its owner may reach, and that can be made to have never held anything.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use durable::{
    disk::{Disk, How},
    files::{self, Replacement, beside, folder},
};
use ledger::LedgerError;
use zeroize::Zeroizing;

use super::{failed, not_replaced};

/// A file in `secret/` (mode 0600, the folder 0700; looser modes are refused).
#[derive(Debug, Clone)]
pub(super) struct PrivateFile {
    disk: Arc<dyn Disk>,
    path: PathBuf,
}

impl PrivateFile {
    pub(super) const fn new(disk: Arc<dyn Disk>, path: PathBuf) -> Self {
        Self { disk, path }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// What it holds; none if there is no such file.
    pub(super) fn read(&self) -> Result<Option<Zeroizing<Vec<u8>>>, LedgerError> {
        let Some(bytes) = self.disk.read(&self.path).map_err(failed("read", &self.path))? else { return Ok(None) };
        let bytes = Zeroizing::new(bytes);
        self.refuse_loose()?;
        Ok(Some(bytes))
    }

    /// The same as text; bytes that are not are replaced, and then are no key.
    pub(super) fn read_text(&self) -> Result<Option<Zeroizing<String>>, LedgerError> {
        Ok(self.read()?.map(|bytes| Zeroizing::new(String::from_utf8_lossy(&bytes).into_owned())))
    }

    /// Writes it anew. What was there is removed, not overwritten: for what was never used.
    pub(super) fn write(&self, bytes: &[u8]) -> Result<(), LedgerError> {
        self.make_folder()?;
        self.disk.remove(&self.path).map_err(failed("replace", &self.path))?;
        self.create(&self.path, bytes)?;
        self.sync_folder()
    }

    /// Replaces it at once: after a crash it holds the old or the new.
    pub(super) fn replace(&self, bytes: &[u8]) -> Result<(), LedgerError> {
        let by = Replacement { new: &beside(&self.path, ".new"), private: true, time: None };
        files::replace(&*self.disk, &self.path, by, |out| out.write_all(bytes)).map_err(not_replaced)
    }

    /// Adds to its end, or makes it.
    pub(super) fn append(&self, bytes: &[u8]) -> Result<(), LedgerError> {
        if !self.exists()? {
            self.create(&self.path, bytes)?;
            return self.sync_folder();
        }
        let mut file = self.disk.writer(&self.path, How::Append).map_err(failed("write", &self.path))?;
        file.write_all(bytes).and_then(|()| file.sync()).map_err(failed("write", &self.path))
    }

    /// Overwrites what is behind an offset, and cuts it off.
    pub(super) fn wipe_from(&self, offset: usize) -> Result<(), LedgerError> {
        let Some(old) = self.read()? else { return Ok(()) };
        if old.len() <= offset {
            return Ok(());
        }
        let nothing = vec![b'\n'; old.len() - offset];
        let mut file = self.disk.writer(&self.path, How::At(offset as u64)).map_err(failed("wipe", &self.path))?;
        file.write_all(&nothing).and_then(|()| file.sync()).map_err(failed("wipe", &self.path))?;
        file.set_length(offset as u64).and_then(|()| file.sync()).map_err(failed("wipe", &self.path))
    }

    /// Overwrites it, synced, and removes it. Nothing happens if it is gone already; the folder is synced in any case.
    pub(super) fn destroy(&self) -> Result<(), LedgerError> {
        if self.exists()? {
            self.wipe_from(0)?;
            self.disk.remove(&self.path).map_err(failed("remove", &self.path))?;
        }
        self.sync_folder()
    }

    pub(super) fn exists(&self) -> Result<bool, LedgerError> {
        Ok(self.disk.reader(&self.path).map_err(failed("look at", &self.path))?.is_some())
    }

    fn create(&self, path: &Path, bytes: &[u8]) -> Result<(), LedgerError> {
        let mut file = self.disk.writer(path, How::New { private: true }).map_err(failed("make", path))?;
        file.write_all(bytes).and_then(|()| file.sync()).map_err(failed("write", path))
    }

    /// Makes the folder `secret/`, for its owner alone.
    pub(super) fn make_folder(&self) -> Result<(), LedgerError> {
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
