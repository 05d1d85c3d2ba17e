//! What the file store asks of a disk, and the disk of the operating system.
//!
//! A trait, so that tests can put a disk beneath it that forgets, on a crash, whatever was not synced.

use std::{
    any::Any,
    fmt,
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, Write},
    path::Path,
};

/// Files in a folder.
pub(super) trait Disk: fmt::Debug + Send + Sync {
    /// All bytes of a file; none if there is no such file.
    fn read(&self, path: &Path) -> io::Result<Option<Vec<u8>>>;
    /// Makes a file for its owner alone. It must not exist.
    fn create_private(&self, path: &Path) -> io::Result<Box<dyn DiskFile>>;
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    fn remove_if_there(&self, path: &Path) -> io::Result<()>;
    /// Makes the names in a folder durable.
    fn sync_folder(&self, folder: &Path) -> io::Result<()>;
    /// The permission bits, where there are such; none if there is no such file.
    fn mode(&self, path: &Path) -> io::Result<Option<u32>>;
    /// Whether a file, if there is one, has this one name: no link leads to it, and it is none.
    fn has_one_name(&self, path: &Path) -> io::Result<bool>;
    /// Takes a lock until what is returned is dropped; none if somebody else has it.
    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn Any + Send + Sync>>>;
}

/// A file that is being written.
pub(super) trait DiskFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()>;
    /// Makes the content durable.
    fn sync(&mut self) -> io::Result<()>;
}

/// The disk of the operating system.
#[derive(Debug)]
pub(super) struct OsDisk;

impl Disk for OsDisk {
    fn read(&self, path: &Path) -> io::Result<Option<Vec<u8>>> {
        present(fs::read(path))
    }

    fn create_private(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        Ok(Box::new(owner_only(OpenOptions::new().write(true).create_new(true)).open(path)?))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove_if_there(&self, path: &Path) -> io::Result<()> {
        present(fs::remove_file(path)).map(drop)
    }

    #[cfg(unix)]
    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        File::open(folder)?.sync_all()
    }

    /// Windows has no such call: its file systems journal names themselves.
    #[cfg(not(unix))]
    fn sync_folder(&self, _folder: &Path) -> io::Result<()> {
        Ok(())
    }

    #[cfg(unix)]
    fn mode(&self, path: &Path) -> io::Result<Option<u32>> {
        use std::os::unix::fs::PermissionsExt;
        Ok(present(fs::metadata(path))?.map(|meta| meta.permissions().mode() & 0o777))
    }

    #[cfg(not(unix))]
    fn mode(&self, _path: &Path) -> io::Result<Option<u32>> {
        Ok(None)
    }

    #[cfg(unix)]
    fn has_one_name(&self, path: &Path) -> io::Result<bool> {
        use std::os::unix::fs::MetadataExt;
        Ok(present(fs::symlink_metadata(path))?.is_none_or(|meta| meta.is_file() && meta.nlink() == 1))
    }

    #[cfg(not(unix))]
    fn has_one_name(&self, path: &Path) -> io::Result<bool> {
        Ok(present(fs::symlink_metadata(path))?.is_none_or(|meta| meta.is_file()))
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn Any + Send + Sync>>> {
        let file = owner_only(OpenOptions::new().write(true).create(true).truncate(false)).open(path)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Box::new(file))),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(e)) => Err(e),
        }
    }
}

impl DiskFile for File {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write_all(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sync_all()
    }
}

/// A missing file is an answer, not a failure.
fn present<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e),
    }
}

#[cfg(unix)]
fn owner_only(options: &mut OpenOptions) -> &mut OpenOptions {
    use std::os::unix::fs::OpenOptionsExt;
    options.mode(0o600)
}

/// Other systems inherit the folder's access list.
#[cfg(not(unix))]
fn owner_only(options: &mut OpenOptions) -> &mut OpenOptions {
    options
}
