//! Reads text input: plain or compressed (`.gz`, `.zst`), with or without a byte order mark, from a file or standard input.
//!
//! Everything that reads text reads it here, so that what one command reads every command does.

use std::{
    fs::File,
    io::{self, BufReader, Cursor, Read},
    path::Path,
};

/// By which standard input is named.
const STANDARD_INPUT: &str = "-";
/// The largest window of a zstd file, as a power of two; Reddit dumps have this one.
const LARGEST_WINDOW: u32 = 31;
/// What some programs write before UTF-8.
const BYTE_ORDER_MARK: [u8; 3] = [0xEF, 0xBB, 0xBF];

/// Whether this names standard input.
#[must_use]
pub fn is_standard_input(path: &Path) -> bool {
    path.as_os_str() == STANDARD_INPUT
}

/// Reads a whole text; `-` is standard input.
///
/// # Errors
/// When it cannot be read, is empty, or is not UTF-8.
pub fn read(path: &Path) -> io::Result<String> {
    let mut bytes = Vec::new();
    open(path, raw(path)?)?.read_to_end(&mut bytes)?;
    String::from_utf8(bytes)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, format!("not UTF-8: {}", error.utf8_error())))
}

/// The bytes of a file as they lie there, or those of standard input.
pub(crate) fn raw(path: &Path) -> io::Result<Box<dyn Read + Send>> {
    if is_standard_input(path) { Ok(Box::new(io::stdin())) } else { Ok(Box::new(File::open(path)?)) }
}

/// The text in some bytes: decompressed as the name says, without a byte order mark. What is empty is an error that says so.
pub(crate) fn open(path: &Path, raw: impl Read + Send + 'static) -> io::Result<Box<dyn Read + Send>> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
    let mut text: Box<dyn Read + Send> = if name.ends_with(".gz") {
        Box::new(flate2::bufread::MultiGzDecoder::new(BufReader::with_capacity(1 << 17, raw)))
    } else if name.ends_with(".zst") {
        let mut decoder = zstd::Decoder::new(raw)?;
        decoder.window_log_max(LARGEST_WINDOW)?;
        Box::new(decoder)
    } else {
        Box::new(raw)
    };
    let mut first = Vec::new();
    text.by_ref().take(BYTE_ORDER_MARK.len() as u64).read_to_end(&mut first)?;
    if first.is_empty() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the file is empty"));
    }
    if first == BYTE_ORDER_MARK {
        first.clear();
    }
    Ok(Box::new(Cursor::new(first).chain(text)))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn written(folder: &Path, name: &str, bytes: &[u8]) -> PathBuf {
        let path = folder.join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    }

    #[test]
    fn text_is_read_however_it_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let text = "see you at home\n";
        let marked = [&BYTE_ORDER_MARK, text.as_bytes()].concat();
        let files = [
            ("plain.txt", text.as_bytes().to_vec()),
            ("marked.txt", marked.clone()),
            ("packed.txt.zst", zstd::encode_all(text.as_bytes(), 1).unwrap()),
            ("marked.TXT.ZST", zstd::encode_all(&marked[..], 1).unwrap()),
        ];
        for (name, bytes) in files {
            assert_eq!(read(&written(folder.path(), name, &bytes)).unwrap(), text, "{name}");
        }
        assert_eq!(read(&written(folder.path(), "short", b"a")).unwrap(), "a");
    }

    /// An empty file was said to have no words, or no post with the right keys.
    #[test]
    fn what_is_empty_is_called_empty() {
        let folder = tempfile::tempdir().unwrap();
        for (name, bytes) in [("a.txt", Vec::new()), ("a.txt.zst", zstd::encode_all(&b""[..], 1).unwrap())] {
            let said = read(&written(folder.path(), name, &bytes)).unwrap_err().to_string();
            assert_eq!(said, "the file is empty", "{name}");
        }
        assert!(read(&written(folder.path(), "b.txt", b"\xff\xfe")).unwrap_err().to_string().contains("not UTF-8"));
    }
}
