//! Files that exist completely or not at all.

use std::{
    fs,
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
};

use thiserror::Error;

use crate::disk::{Disk, DiskFile, How, OsDisk};

/// A file that cannot be read or written.
#[derive(Debug, Error)]
#[error("cannot {what} {}: {error}", path.display())]
pub struct FileError {
    /// The operation that failed.
    pub what: &'static str,
    /// The file's path.
    pub path: PathBuf,
    /// The underlying error.
    pub error: io::Error,
}

/// Says what was tried with which file.
pub fn failed(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> FileError {
    move |error| FileError { what, path: path.to_owned(), error }
}

/// A file that is to take the place of another.
#[derive(Debug, Clone, Copy)]
pub struct Replacement<'a> {
    /// The name that it has until it is whole.
    pub new: &'a Path,
    /// Whether it is for its owner alone.
    pub private: bool,
    /// The time that it has before it has its name, in seconds since 1970, where that is not to be the clock's.
    pub time: Option<u64>,
}

/// Puts a file in the place of another, at once: written under another name, synced, renamed, and the folder synced, in this
/// order. After the loss of power at any point there is the old one or the new one, whole. Where it cannot be written, what there is of
/// it does not stay: it may be private, and fill the disk.
///
/// # Errors
/// When the disk fails. Before the rename the old one is still there; after it, which of the two is durable is not known.
pub fn replace(
    disk: &dyn Disk,
    path: &Path,
    by: Replacement<'_>,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<(), FileError> {
    let all = || {
        let mut file = open_new(disk, by)?;
        write(&mut file)?;
        by.time.map_or(Ok(()), |time| disk.set_time(by.new, time))?;
        file.sync()?;
        disk.rename(by.new, path)
    };
    all().map_err(|error| {
        // What failed is said, whatever comes of this.
        _ = disk.remove(by.new);
        failed("write", path)(error)
    })?;
    disk.sync_folder(folder(path)).map_err(failed("sync", folder(path)))
}

/// What a crash left is of no use; and a private file that somebody else made is not private.
fn open_new(disk: &dyn Disk, by: Replacement<'_>) -> io::Result<Box<dyn DiskFile>> {
    if !by.private {
        return disk.writer(by.new, How::Replace);
    }
    disk.remove(by.new)?;
    disk.writer(by.new, How::New { private: true })
}

/// Writes a file under another name, makes it durable, and renames it: what has its name is whole.
///
/// # Errors
/// When the disk fails; then the old file is still there.
pub fn write_with(path: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), FileError> {
    write_at(path, None, write)
}

/// The same; where it is said, the file has this time, in seconds since 1970, before it has its name.
///
/// # Errors
/// As [`write_with`].
pub fn write_at(
    path: &Path,
    time: Option<u64>,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<(), FileError> {
    let by = Replacement { new: &hidden(path), private: false, time };
    replace(&OsDisk, path, by, |out| {
        let mut out = BufWriter::with_capacity(1 << 20, out);
        write(&mut out)?;
        out.flush()
    })
}

/// Makes the names in a folder durable.
///
/// # Errors
/// When the disk fails.
pub fn sync_folder(folder: &Path) -> Result<(), FileError> {
    OsDisk.sync_folder(folder).map_err(failed("sync", folder))
}

/// The same for bytes.
///
/// # Errors
/// As [`write_with`].
pub fn write(path: &Path, bytes: &[u8]) -> Result<(), FileError> {
    write_with(path, |out| out.write_all(bytes))
}

/// Makes a folder and those above it, each durable before there is anything in it.
///
/// # Errors
/// When the disk fails.
pub fn make_folder(path: &Path) -> Result<(), FileError> {
    make_folder_on(&OsDisk, path)
}

/// The same on any disk.
///
/// # Errors
/// As [`make_folder`].
pub fn make_folder_on(disk: &dyn Disk, path: &Path) -> Result<(), FileError> {
    if path.as_os_str().is_empty() {
        return Ok(());
    }
    let made = match disk.create_folder(path, false) {
        Err(error) if error.kind() == io::ErrorKind::NotFound && path.parent().is_some() => {
            make_folder_on(disk, folder(path))?;
            disk.create_folder(path, false)
        }
        other => other,
    };
    if made.map_err(failed("make", path))? {
        disk.sync_folder(folder(path)).map_err(failed("sync", folder(path)))?;
    }
    Ok(())
}

/// A text file.
///
/// # Errors
/// When it cannot be read.
pub fn read_text(path: &Path) -> Result<String, FileError> {
    fs::read_to_string(path).map_err(failed("read", path))
}

/// Where a file is written before it has its name.
fn hidden(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.new"))
}

/// The folder in which a path lies.
#[must_use]
pub fn folder(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// The path with something after its name.
#[must_use]
pub fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(suffix);
    path.with_file_name(name)
}

/// Lines, one appended at a time.
#[derive(Debug)]
pub struct Lines {
    path: PathBuf,
    file: fs::File,
}

impl Lines {
    /// Continues with a file, or begins it. Only whole lines that `keep` wants stay: what was being written in a crash, and
    /// what will be written again, goes.
    ///
    /// # Errors
    /// When the disk fails.
    pub fn open(path: &Path, keep: impl Fn(&str) -> bool) -> Result<Self, FileError> {
        let old = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(failed("read", path)(error)),
        };
        let kept: String = old.split_inclusive('\n').filter(|l| l.ends_with('\n') && keep(l.trim_end())).collect();
        if kept != old || !path.exists() {
            write(path, kept.as_bytes())?;
        }
        let file = fs::OpenOptions::new().append(true).open(path).map_err(failed("open", path))?;
        Ok(Self { path: path.to_owned(), file })
    }

    /// Appends a line, which has no end of line in it.
    ///
    /// # Errors
    /// When the disk fails.
    pub fn append(&mut self, line: &str) -> Result<(), FileError> {
        self.file.write_all([line, "\n"].concat().as_bytes()).map_err(failed("write", &self.path))
    }

    /// Makes what was appended durable.
    ///
    /// # Errors
    /// When the disk fails.
    pub fn sync(&self) -> Result<(), FileError> {
        self.file.sync_data().map_err(failed("sync", &self.path))
    }
}

/// The lines of a file of JSON.
///
/// # Errors
/// When it cannot be read, or a line is none of these.
pub fn read_lines<T: serde::de::DeserializeOwned>(path: &Path) -> Result<Vec<T>, FileError> {
    let text = read_text(path)?;
    let lines: Result<Vec<T>, _> = text.lines().map(serde_json::from_str).collect();
    lines.map_err(|error| failed("understand", path)(error.into()))
}

/// The same of a file that may be being written, or may not be there: what is not a whole line is left out.
///
/// # Errors
/// As [`read_lines`].
pub fn read_whole_lines<T: serde::de::DeserializeOwned>(path: &Path) -> Result<Vec<T>, FileError> {
    let lines: Result<Vec<T>, _> = whole_lines(path)?.iter().map(|line| serde_json::from_str(line)).collect();
    lines.map_err(|error| failed("understand", path)(error.into()))
}

/// The same lines as they are.
///
/// # Errors
/// When they cannot be read.
pub fn whole_lines(path: &Path) -> Result<Vec<String>, FileError> {
    let mut bytes = match fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        other => other.map_err(failed("read", path))?,
    };
    // What is being written may end within a letter.
    bytes.truncate(bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1));
    let not_text = |error| failed("read", path)(io::Error::new(io::ErrorKind::InvalidData, error));
    Ok(String::from_utf8(bytes).map_err(not_text)?.lines().map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A line was cut within a letter that has two bytes, and readers of the run reported a damaged file.
    #[test]
    fn a_line_may_end_within_a_letter() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("samples.jsonl");
        fs::write(&path, [b"one\ntwo\n\xc3".as_slice()].concat()).unwrap();
        assert_eq!(whole_lines(&path).unwrap(), ["one", "two"]);
        fs::write(&path, b"one\n\xc3\ntwo\n").unwrap();
        assert!(whole_lines(&path).is_err(), "damage within the file is not left out in silence");
    }

    #[test]
    fn lines_that_were_being_written_or_will_be_again_go() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("metrics.jsonl");
        let mut lines = Lines::open(&path, |_| true).unwrap();
        (0..4).for_each(|n| lines.append(&n.to_string()).unwrap());
        lines.sync().unwrap();
        fs::write(&path, "0\n1\n2\n3\n4").unwrap();
        let mut lines = Lines::open(&path, |line| line != "3").unwrap();
        lines.append("7").unwrap();
        assert_eq!(read_lines::<u32>(&path).unwrap(), [0, 1, 2, 7]);
        fs::write(&path, "0\n1\n2").unwrap();
        assert_eq!(read_whole_lines::<u32>(&path).unwrap(), [0, 1]);
        assert_eq!(read_whole_lines::<u32>(&folder.path().join("none")).unwrap(), [0; 0]);
        assert!(read_lines::<bool>(&path).unwrap_err().to_string().contains("cannot understand"));
    }

    #[test]
    fn a_write_that_fails_leaves_the_old_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        write(&path, b"old").unwrap();
        let error = write_with(&path, |out| {
            out.write_all(b"new and")?;
            Err(io::Error::other("the disk is full"))
        });
        assert!(error.unwrap_err().to_string().contains("the disk is full"));
        assert_eq!(fs::read(&path).unwrap(), b"old");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "and nothing of the new one");
    }
}
