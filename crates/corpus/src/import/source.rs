//! Input files: their format by name, and their decompressed bytes.

use std::{
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use super::ImportError;
use crate::{origin, text};

/// The format of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// A JSON object a line.
    Jsonl,
    /// A Reddit dump: JSON lines with `author` and `body`, deleted comments among them.
    Reddit,
    /// The JSON files of the LEAF benchmark: `user_data` with the samples `x` of each user.
    Leaf,
    /// Comma-separated values with a header.
    Csv,
    /// Tab-separated values with a header.
    Tsv,
    /// Parquet.
    Parquet,
}

impl Format {
    /// The format and compression of a file, by its name.
    ///
    /// # Errors
    /// When the name does not say.
    pub fn of(path: &Path) -> Result<Self, ImportError> {
        let name = origin::name(path);
        let plain = name.strip_suffix(".gz").or_else(|| name.strip_suffix(".zst")).unwrap_or(&name);
        let ends = |ending: &str| plain.to_ascii_lowercase().ends_with(ending);
        if (name.starts_with("RC_") || name.starts_with("RS_")) && !ends(".csv") && !ends(".tsv") {
            Ok(Self::Reddit)
        } else if ends(".jsonl") || ends(".ndjson") || ends(".json") {
            Ok(Self::Jsonl)
        } else if ends(".csv") {
            Ok(Self::Csv)
        } else if ends(".tsv") {
            Ok(Self::Tsv)
        } else if ends(".parquet") {
            Ok(Self::Parquet)
        } else {
            let unknown = || ImportError::UnknownFormat(path.to_owned());
            Err(if text::is_standard_input(path) { ImportError::UnknownInput } else { unknown() })
        }
    }
}

/// Where a post is: the number of its file, and its line. Places are in the order of time.
pub(super) const fn place(file: usize, line: u64) -> u64 {
    (file as u64) << 40 | line
}

/// The file and the line of a place.
pub(super) const fn file_and_line(place: u64) -> (usize, u64) {
    ((place >> 40) as usize, place & ((1 << 40) - 1))
}

/// All files, and how much of them was read.
pub(super) struct Files<'a> {
    pub(super) paths: &'a [PathBuf],
    pub(super) total: u64,
    read: Arc<AtomicU64>,
}

impl<'a> Files<'a> {
    /// Looks at every file before the first is read, so that a typo in the last name is noticed at once.
    pub(super) fn new(paths: &'a [PathBuf]) -> Result<Self, ImportError> {
        let mut total = 0;
        for path in paths.iter().filter(|path| !text::is_standard_input(path)) {
            let failed = |error| ImportError::Read { path: path.clone(), error };
            let file = File::open(path).map_err(failed)?;
            let meta = file.metadata().map_err(failed)?;
            if meta.is_dir() {
                return Err(failed(io::Error::new(io::ErrorKind::IsADirectory, "this is a folder; name its files")));
            }
            total += meta.len();
        }
        Ok(Self { paths, total, read: Arc::default() })
    }

    /// Bytes read from disk so far.
    pub(super) fn read(&self) -> u64 {
        self.read.load(Ordering::Relaxed)
    }

    /// The text of a file, decompressed as its name says.
    pub(super) fn open(&self, path: &Path) -> io::Result<Box<dyn Read + Send>> {
        text::open(path, Counted { file: text::raw(path)?, read: Arc::clone(&self.read) })
    }
}

/// A file that counts what is read of it.
struct Counted {
    file: Box<dyn Read + Send>,
    read: Arc<AtomicU64>,
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(buffer)?;
        self.read.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_what_a_file_is() {
        let format = |name: &str| Format::of(Path::new(name)).ok();
        assert_eq!(format("a/b.jsonl.zst"), Some(Format::Jsonl));
        assert_eq!(format("RC_2017-11.zst"), Some(Format::Reddit));
        assert_eq!(format("x.CSV.gz"), Some(Format::Csv));
        assert_eq!(format("x.tsv"), Some(Format::Tsv));
        assert_eq!(format("x.parquet"), Some(Format::Parquet));
        assert_eq!(format("x.docx"), None);
    }
}
