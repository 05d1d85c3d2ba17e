//! Writes a file under a temporary name, and renames it when it is complete.
//!
//! It is written under another name in the same folder, locked for as long as its writer lives, and renamed at the end. A
//! writer that was killed leaves such a file behind; the next one in the same folder finds it without a lock and removes it.

use std::{
    fs::File,
    io::{self, Write},
    path::{Path, PathBuf},
};

use tempfile::NamedTempFile;

const PREFIX: &str = ".keyhush-partial-";

/// A file on its way to its name.
pub struct Partial {
    file: NamedTempFile,
    path: PathBuf,
    replace: bool,
}

impl Partial {
    /// Begins a file, and removes what killed writers left in its folder.
    ///
    /// # Errors
    /// When the name is taken and not to be replaced ([`io::ErrorKind::AlreadyExists`]), or the folder cannot be written.
    pub fn create(path: &Path, replace: bool) -> io::Result<Self> {
        refuse_taken(path, replace)?;
        if !folder(path).is_dir() {
            let problem = format!("folder {} does not exist", folder(path).display());
            return Err(io::Error::new(io::ErrorKind::NotFound, problem));
        }
        remove_left_behind(folder(path));
        let file = tempfile::Builder::new().prefix(PREFIX).tempfile_in(folder(path))?;
        // Where files cannot be locked nobody can tell that this one is left behind either.
        let _ = file.as_file().try_lock();
        Ok(Self { file, path: path.to_owned(), replace })
    }

    /// Makes the file durable and gives it its name.
    ///
    /// # Errors
    /// When the disk does not take it, or the name was taken meanwhile.
    pub fn finish(self) -> io::Result<()> {
        self.file.as_file().sync_all()?;
        refuse_taken(&self.path, self.replace)?;
        self.file.persist(&self.path).map_err(|error| error.error)?;
        // A folder can be synced on Unix only; elsewhere the rename is as durable as the system makes it.
        #[cfg(unix)]
        File::open(folder(&self.path))?.sync_all()?;
        Ok(())
    }
}

impl Write for Partial {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl io::Seek for Partial {
    fn seek(&mut self, to: io::SeekFrom) -> io::Result<u64> {
        self.file.seek(to)
    }
}

/// The folder that a file is in.
pub(crate) fn folder(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn refuse_taken(path: &Path, replace: bool) -> io::Result<()> {
    if replace || !path.exists() { Ok(()) } else { Err(io::ErrorKind::AlreadyExists.into()) }
}

/// A writer locks its file before it writes to it, so a file with something in it and without a lock is nobody's. What
/// cannot be looked at or removed stays: it does no harm.
fn remove_left_behind(folder: &Path) {
    let names = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let ours = names.filter(|entry| entry.file_name().to_string_lossy().starts_with(PREFIX));
    for entry in ours.filter(|entry| entry.metadata().is_ok_and(|meta| meta.is_file() && meta.len() > 0)) {
        if File::open(entry.path()).is_ok_and(|file| file.try_lock().is_ok()) {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_left_behind_is_removed_and_one_in_use_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let left = folder.path().join(format!("{PREFIX}left"));
        std::fs::write(&left, "half").unwrap();
        let mut first = Partial::create(&folder.path().join("a"), false).unwrap();
        first.write_all(b"whole").unwrap();
        assert!(!left.exists());
        let second = Partial::create(&folder.path().join("b"), false).unwrap();
        first.finish().unwrap();
        second.finish().unwrap();
        assert_eq!(std::fs::read(folder.path().join("a")).unwrap(), b"whole");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
    }

    #[test]
    fn a_name_is_not_taken_twice_without_being_asked() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        let late = Partial::create(&path, false).unwrap();
        std::fs::write(&path, "other").unwrap();
        assert_eq!(late.finish().unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(Partial::create(&path, false).err().map(|e| e.kind()), Some(io::ErrorKind::AlreadyExists));
        Partial::create(&path, true).unwrap().finish().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"");
    }
}
