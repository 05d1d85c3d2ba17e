//! A guard in a file. The only part of this crate that needs files (feature `files`), through `durable` alone.
//!
//! | path        | what it holds                                    |
//! |-------------|--------------------------------------------------|
//! | `FILE`      | the guard (mode 0600; looser modes are refused)  |
//! | `FILE.new`  | the next one, while it is written: who dies then leaves it, and it goes when the file is opened |
//! | `FILE.lock` | held by the one process that uses it             |
//!
//! **To save** is to write `FILE.new`, sync it, rename it to `FILE` and sync the folder, in this order. After the loss of
//! power at any point `FILE` is the old one or the new one, whole. What else is found there is damage.
//!
//! **To look whether there is room** is to write as many bytes to `FILE.new`, sync it and remove it: `FILE` is not touched.
//!
//! **What was never saved goes** when the file is loaded: text and what was learned from it are in `FILE.new` too, and nobody would delete it there.
//!
//! The folder must exist, and be as durable as the guard is to be: who makes it syncs what it lies in.

#[cfg(test)]
mod power_loss;

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
    sync::Arc,
};

use durable::{
    disk::{Disk, How, Lock, OsDisk},
    files::{self, FileError, Replacement, beside, folder},
};
use sha2::{Digest, Sha256};

use super::store::{Store, StoreError};

/// A guard's file, locked until this is dropped.
#[derive(Debug)]
pub struct FileStore {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    /// The digest of what is there, as far as this process knows; none before it looked.
    known: Option<Option<[u8; 32]>>,
    _lock: Lock,
}

impl FileStore {
    /// Takes the lock. Whether there is a file is seen later.
    ///
    /// # Errors
    /// When another process has it, or the disk fails.
    pub fn lock(path: impl Into<PathBuf>) -> Result<Self, StoreError> {
        Self::on(Arc::new(OsDisk), path.into())
    }

    fn on(disk: Arc<dyn Disk>, path: PathBuf) -> Result<Self, StoreError> {
        let lock = beside(&path, ".lock");
        match disk.lock(&lock).map_err(failed("lock", &lock))? {
            Some(held) => Ok(Self { disk, path, known: None, _lock: held }),
            None => Err(StoreError::Locked { place: lock.display().to_string() }),
        }
    }

    fn new_file(&self) -> PathBuf {
        beside(&self.path, ".new")
    }

    /// Under two names a guard would have two locks, and a new file takes the place of one name only.
    fn look<T>(&self, read: impl FnOnce() -> io::Result<T>) -> Result<T, StoreError> {
        if !self.disk.has_one_name(&self.path).map_err(failed("look at", &self.path))? {
            return Err(StoreError::Linked { place: self.path.display().to_string() });
        }
        let found = read().map_err(failed("read", &self.path))?;
        let mode = self.disk.mode(&self.path).map_err(failed("look at", &self.path))?;
        match mode.filter(|mode| mode & 0o077 != 0) {
            Some(mode) => Err(StoreError::Loose { place: self.path.display().to_string(), mode }),
            None => Ok(found),
        }
    }

    fn sync_folder(&self) -> Result<(), StoreError> {
        let folder = folder(&self.path);
        self.disk.sync_folder(folder).map_err(failed("sync", folder))
    }

    /// The lock can be removed under us, and the file restored: then there may be two, or one that knows less. What is there can be large, so it is read
    /// piece by piece.
    fn refuse_changed(&self) -> Result<(), StoreError> {
        let digest = || self.disk.reader(&self.path)?.map(digest).transpose();
        match &self.known {
            Some(known) if *known == self.look(digest)? => Ok(()),
            _ => Err(StoreError::Changed { place: self.path.display().to_string() }),
        }
    }
}

impl Store for FileStore {
    /// What was renamed by a process that died before it could sync is durable when this returns, and what it had not renamed is gone.
    fn load(&mut self) -> Result<Option<Vec<u8>>, StoreError> {
        let found = self.look(|| self.disk.read(&self.path))?;
        let new = self.new_file();
        self.disk.remove(&new).map_err(failed("remove", &new))?;
        self.sync_folder()?;
        self.known = Some(found.as_ref().map(|bytes| Sha256::digest(bytes).into()));
        Ok(found)
    }

    fn save(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        self.refuse_changed()?;
        let by = Replacement { new: &self.new_file(), private: true, time: None };
        files::replace(&*self.disk, &self.path, by, |out| out.write_all(bytes))?;
        self.known = Some(Some(Sha256::digest(bytes).into()));
        Ok(())
    }

    fn has_room(&mut self, bytes: u64) -> Result<(), StoreError> {
        let new = self.new_file();
        let written = self.disk.remove(&new).and_then(|()| {
            let mut file = self.disk.writer(&new, How::New { private: true })?;
            fill(&mut file, bytes)?;
            file.sync()
        });
        let removed = self.disk.remove(&new);
        written.and(removed).map_err(failed("write", &new))
    }
}

/// Bytes that no file system takes for holes, and that none makes smaller by much.
fn fill(out: &mut dyn Write, bytes: u64) -> io::Result<()> {
    let (mut piece, mut state) = (vec![0; 1 << 16], 1_u64);
    let mut left = bytes;
    while left > 0 {
        for eight in piece.as_chunks_mut::<8>().0 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            *eight = state.to_le_bytes();
        }
        let now = left.min(piece.len() as u64);
        out.write_all(&piece[..now as usize])?;
        left -= now;
    }
    Ok(())
}

fn digest(mut reader: impl io::Read) -> io::Result<[u8; 32]> {
    let (mut digest, mut piece) = (Sha256::new(), vec![0; 1 << 16]);
    loop {
        match reader.read(&mut piece) {
            Ok(0) => return Ok(digest.finalize().into()),
            Ok(read) => digest.update(&piece[..read]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

fn failed(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> StoreError {
    let place = path.display().to_string();
    move |error| StoreError::Failed { doing, place, problem: error.to_string() }
}

impl From<FileError> for StoreError {
    fn from(FileError { what, path, error }: FileError) -> Self {
        failed(what, &path)(error)
    }
}
