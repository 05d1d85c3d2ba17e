//! The disk operations a store needs: a trait, and the operating system's disk.
//!
//! A trait, so that tests can put a disk beneath a store that forgets, on a crash, whatever was not synced.

use std::{
    any::Any,
    fmt,
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
};

/// How a file is opened for writing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// It must not exist.
    New {
        /// Whether it is for its owner alone.
        private: bool,
    },
    /// Appends at the end.
    Append,
    /// From an offset on, keeping its length.
    At(u64),
    /// Emptied, or made.
    Replace,
}

/// Files and folders. Every failure is the disk's own.
pub trait Disk: fmt::Debug + Send + Sync {
    /// Opens a file for reading; none if there is no such file.
    ///
    /// # Errors
    /// When the disk fails.
    fn reader(&self, path: &Path) -> io::Result<Option<Box<dyn BufRead>>>;

    /// Opens a file for writing.
    ///
    /// # Errors
    /// When it is there and must not be, or the other way round, or the disk fails.
    fn writer(&self, path: &Path, how: How) -> io::Result<Box<dyn DiskFile>>;

    /// Makes a folder, a private one for its owner alone; whether it was made now.
    ///
    /// # Errors
    /// When the disk fails.
    fn create_folder(&self, path: &Path, private: bool) -> io::Result<bool>;

    /// The paths in a folder; none if there is no such folder.
    ///
    /// # Errors
    /// When the disk fails.
    fn list(&self, folder: &Path) -> io::Result<Vec<PathBuf>>;

    /// Gives a file another name, in the place of what had it.
    ///
    /// # Errors
    /// When there is no such file, or the disk fails.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file, if there is one.
    ///
    /// # Errors
    /// When the disk fails.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Gives a file a time, in seconds since 1970.
    ///
    /// # Errors
    /// When there is no such file, or the disk fails.
    fn set_time(&self, path: &Path, time: u64) -> io::Result<()>;

    /// Lets everyone read a file that was private.
    ///
    /// # Errors
    /// When there is no such file, or the disk fails.
    fn open_to_all(&self, path: &Path) -> io::Result<()>;

    /// Makes the names in a folder durable.
    ///
    /// # Errors
    /// When that is not certain.
    fn sync_folder(&self, folder: &Path) -> io::Result<()>;

    /// The permission bits, where there are such; none if there is no such path.
    ///
    /// # Errors
    /// When the disk fails.
    fn mode(&self, path: &Path) -> io::Result<Option<u32>>;

    /// Whether a file, if there is one, has this one name: no link leads to it, and it is none.
    ///
    /// # Errors
    /// When the disk fails.
    fn has_one_name(&self, path: &Path) -> io::Result<bool>;

    /// Takes a lock, in a file for its owner alone, until what is returned is dropped; none if somebody else has it.
    ///
    /// # Errors
    /// When the disk fails.
    fn lock(&self, path: &Path) -> io::Result<Option<Lock>>;

    /// Whether a thread may do something with it beside others. Where tests count what is done, in its order, it must not.
    fn works_beside(&self) -> bool {
        false
    }

    /// All bytes of a file; none if there is no such file.
    ///
    /// # Errors
    /// When the disk fails.
    fn read(&self, path: &Path) -> io::Result<Option<Vec<u8>>> {
        let Some(mut reader) = self.reader(path)? else { return Ok(None) };
        let mut bytes = Vec::new();
        reader.read_to_end(&mut bytes)?;
        Ok(Some(bytes))
    }
}

/// A lock, held until it is dropped.
pub type Lock = Box<dyn Any + Send + Sync>;

/// A file that is being written.
pub trait DiskFile: Write {
    /// Cuts it off, or fills it up.
    ///
    /// # Errors
    /// When the disk fails.
    fn set_length(&mut self, length: u64) -> io::Result<()>;

    /// Makes the content durable.
    ///
    /// # Errors
    /// When that is not certain.
    fn sync(&mut self) -> io::Result<()>;
}

/// The disk of the operating system.
#[derive(Debug, Clone, Copy)]
pub struct OsDisk;

impl Disk for OsDisk {
    fn works_beside(&self) -> bool {
        true
    }

    fn reader(&self, path: &Path) -> io::Result<Option<Box<dyn BufRead>>> {
        Ok(present(File::open(path))?.map(|file| Box::new(BufReader::new(file)) as Box<dyn BufRead>))
    }

    fn writer(&self, path: &Path, how: How) -> io::Result<Box<dyn DiskFile>> {
        let mut options = OpenOptions::new();
        match how {
            How::New { private } => {
                options.write(true).create_new(true);
                if private {
                    owner_only(&mut options);
                }
            }
            How::Append => drop(options.append(true)),
            How::At(_) => drop(options.write(true)),
            How::Replace => drop(options.write(true).create(true).truncate(true)),
        }
        let mut file = options.open(path)?;
        if let How::At(offset) = how {
            file.seek(SeekFrom::Start(offset))?;
        }
        Ok(Box::new(file))
    }

    fn create_folder(&self, path: &Path, private: bool) -> io::Result<bool> {
        let mut builder = fs::DirBuilder::new();
        if private {
            owner_only_folder(&mut builder);
        }
        match builder.create(path) {
            Ok(()) => Ok(true),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(false),
            Err(e) => Err(e),
        }
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<PathBuf>> {
        match present(fs::read_dir(folder))? {
            None => Ok(Vec::new()),
            Some(entries) => entries.map(|entry| entry.map(|entry| entry.path())).collect(),
        }
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        present(fs::remove_file(path)).map(drop)
    }

    fn set_time(&self, path: &Path, time: u64) -> io::Result<()> {
        let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(time);
        OpenOptions::new().write(true).open(path)?.set_modified(time)
    }

    fn open_to_all(&self, path: &Path) -> io::Result<()> {
        readable_by_all(path)
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

    fn lock(&self, path: &Path) -> io::Result<Option<Lock>> {
        let mut options = OpenOptions::new();
        owner_only(options.write(true).create(true).truncate(false));
        let file = options.open(path)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Box::new(file))),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(e)) => Err(e),
        }
    }
}

impl DiskFile for File {
    fn set_length(&mut self, length: u64) -> io::Result<()> {
        self.set_len(length)
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
fn owner_only(options: &mut OpenOptions) {
    use std::os::unix::fs::OpenOptionsExt;
    options.mode(0o600);
}

#[cfg(unix)]
fn readable_by_all(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(0o644))
}

#[cfg(not(unix))]
fn readable_by_all(_path: &Path) -> io::Result<()> {
    Ok(())
}

#[cfg(unix)]
fn owner_only_folder(builder: &mut fs::DirBuilder) {
    use std::os::unix::fs::DirBuilderExt;
    builder.mode(0o700);
}

/// Other systems inherit the folder's access list.
#[cfg(not(unix))]
fn owner_only(_options: &mut OpenOptions) {}

#[cfg(not(unix))]
fn owner_only_folder(_builder: &mut fs::DirBuilder) {}
