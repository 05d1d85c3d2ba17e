//! Writes a store, one user after the other, with memory that does not grow.

use std::{
    fs::File,
    io::{self, BufWriter, Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
};

use crc32fast::Hasher;
use lm::vocabulary::Vocabulary;

use super::{
    Meta, StoreError, UserTag,
    format::{ALIGNMENT, Extent, HEADER, Header, Section},
};
use crate::partial::{Partial, folder};

const BUFFER: usize = 1 << 18;

/// Writes a store. Nothing has the store's name before [`StoreWriter::finish`].
pub struct StoreWriter {
    path: PathBuf,
    out: BufWriter<Partial>,
    tokens_crc: Hasher,
    /// Tables that are written while the tokens are; files without a name.
    tables: [Table; 5],
    header: Header,
    meta: Vec<u8>,
    vocabulary: String,
    bytes: Vec<u8>,
    keys: u64,
    keep_keys: bool,
}

/// A section that grows in a file of its own.
struct Table {
    section: Section,
    file: BufWriter<File>,
    length: u64,
    crc: Hasher,
}

impl Table {
    fn push(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.length += bytes.len() as u64;
        self.crc.update(bytes);
        self.file.write_all(bytes)
    }
}

const POSTS: usize = 0;
const USERS: usize = 1;
const TAGS: usize = 2;
const KEY_ENDS: usize = 3;
const KEYS: usize = 4;

impl StoreWriter {
    /// Begins a store at a path. Keys are kept if asked for; tags always are.
    ///
    /// # Errors
    /// When the name is taken and not to be replaced, or the folder cannot be written.
    pub fn create(
        path: &Path,
        replace: bool,
        keep_keys: bool,
        meta: &Meta,
        vocabulary: &Vocabulary,
    ) -> Result<Self, StoreError> {
        let table = |section| -> io::Result<Table> {
            let file = BufWriter::new(tempfile::tempfile_in(folder(path))?);
            Ok(Table { section, file, length: 0, crc: Hasher::new() })
        };
        let begin = || -> io::Result<Self> {
            let mut out = BufWriter::with_capacity(BUFFER, Partial::create(path, replace)?);
            out.write_all(&[0; HEADER])?;
            out.flush()?; // so that it is known to be a file with something in it
            Ok(Self {
                path: path.to_owned(),
                out,
                tokens_crc: Hasher::new(),
                tables: [
                    table(Section::Posts)?,
                    table(Section::Users)?,
                    table(Section::Tags)?,
                    table(Section::KeyEnds)?,
                    table(Section::Keys)?,
                ],
                header: Header {
                    id_bytes: if vocabulary.len() <= 1 << 16 { 2 } else { 4 },
                    users: 0,
                    posts: 0,
                    tokens: 0,
                    sections: [Extent::default(); 8],
                },
                meta: serde_json::to_vec(meta)?,
                vocabulary: vocabulary.to_text(),
                bytes: Vec::new(),
                keys: 0,
                keep_keys,
            })
        };
        begin().map_err(|error| failed(path, error))
    }

    /// Appends a user: the ids of all posts, and where each post ends. Users come in the order of their tags.
    ///
    /// # Errors
    /// When the disk does not take it, or there are too many tokens.
    pub fn user(&mut self, tag: UserTag, key: &str, tokens: &[u32], ends: &[u32]) -> Result<(), StoreError> {
        if u32::try_from(tokens.len()).is_err() {
            return Err(StoreError::UserTooLong);
        }
        self.append(tag, key, tokens, ends).map_err(|error| StoreError::Io { path: self.path.clone(), error })
    }

    fn append(&mut self, tag: UserTag, key: &str, tokens: &[u32], ends: &[u32]) -> io::Result<()> {
        self.place()?;
        self.bytes.clear();
        if self.header.id_bytes == 2 {
            self.bytes.extend(tokens.iter().flat_map(|id| (*id as u16).to_le_bytes()));
        } else {
            self.bytes.extend(tokens.iter().flat_map(|id| id.to_le_bytes()));
        }
        self.tokens_crc.update(&self.bytes);
        self.out.write_all(&self.bytes)?;
        for end in ends {
            self.tables[POSTS].push(&end.to_le_bytes())?;
        }
        self.tables[TAGS].push(&tag.0.to_be_bytes())?;
        if self.keep_keys {
            self.keys += key.len() as u64;
            self.tables[KEY_ENDS].push(&self.keys.to_le_bytes())?;
            self.tables[KEYS].push(key.as_bytes())?;
        }
        self.header.users += 1;
        self.header.posts += ends.len() as u64;
        self.header.tokens += tokens.len() as u64;
        Ok(())
    }

    /// Writes where the next user begins.
    fn place(&mut self) -> io::Result<()> {
        let (token, post) = (self.header.tokens, self.header.posts);
        self.tables[USERS].push(&token.to_le_bytes())?;
        self.tables[USERS].push(&post.to_le_bytes())
    }

    /// Makes the store whole and durable, and gives it its name.
    ///
    /// # Errors
    /// When the disk does not take it, or the name was taken meanwhile.
    pub fn finish(self) -> Result<(), StoreError> {
        let path = self.path.clone();
        self.whole().map_err(|error| failed(&path, error))
    }

    fn whole(mut self) -> io::Result<()> {
        self.complete()?;
        self.out.into_inner().map_err(io::IntoInnerError::into_error)?.finish()
    }

    fn complete(&mut self) -> io::Result<()> {
        self.place()?;
        let length = self.header.tokens * u64::from(self.header.id_bytes);
        let crc = std::mem::take(&mut self.tokens_crc).finalize();
        self.header.sections[Section::Tokens as usize] = Extent { offset: HEADER as u64, length, crc };
        let mut end = HEADER as u64 + length;
        for table in &mut self.tables {
            let offset = pad(&mut self.out, end)?;
            table.file.flush()?;
            let file = table.file.get_mut();
            file.seek(SeekFrom::Start(0))?;
            io::copy(&mut file.take(table.length), &mut self.out)?;
            let crc = std::mem::take(&mut table.crc).finalize();
            self.header.sections[table.section as usize] = Extent { offset, length: table.length, crc };
            end = offset + table.length;
        }
        let texts = [(Section::Meta, &self.meta[..]), (Section::Vocabulary, self.vocabulary.as_bytes())];
        for (section, bytes) in texts {
            let offset = pad(&mut self.out, end)?;
            self.out.write_all(bytes)?;
            let length = bytes.len() as u64;
            self.header.sections[section as usize] = Extent { offset, length, crc: crc32fast::hash(bytes) };
            end = offset + length;
        }
        self.out.seek(SeekFrom::Start(0))?;
        self.out.write_all(&self.header.to_bytes())?;
        self.out.flush()
    }
}

fn failed(path: &Path, error: io::Error) -> StoreError {
    match error.kind() {
        io::ErrorKind::AlreadyExists => StoreError::Exists(path.to_owned()),
        _ => StoreError::Io { path: path.to_owned(), error },
    }
}

fn pad(out: &mut impl Write, at: u64) -> io::Result<u64> {
    let next = at.next_multiple_of(ALIGNMENT);
    out.write_all(&[0; ALIGNMENT as usize][..(next - at) as usize])?;
    Ok(next)
}
