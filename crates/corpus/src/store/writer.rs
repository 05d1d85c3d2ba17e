//! Writes a store one user at a time, in constant memory.

use std::{
    fs::File,
    io::{self, BufWriter, Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
};

use crc32fast::Hasher;
use lm::vocabulary::Vocabulary;

use super::{
    Labels, Meta, StoreError, UserTag, features,
    format::{ALIGNMENT, Extent, HEADER, Header, SECTIONS, Section},
};
use crate::partial::{Partial, folder};

const BUFFER: usize = 1 << 18;

/// A user as a store takes it.
#[derive(Debug, Clone, Copy)]
pub struct UserRecord<'a> {
    /// The user's tag.
    pub tag: UserTag,
    /// The key, which is kept if the store keeps keys.
    pub key: &'a str,
    /// The ids of all posts, one after the other.
    pub tokens: &'a [u32],
    /// Where each post ends in them.
    pub ends: &'a [u32],
    /// The ids of the labels of all posts, one after the other; none in a store without labels.
    pub labels: &'a [u32],
    /// Where those of each post end in them; empty in a store without labels.
    pub label_ends: &'a [u32],
    /// As many numbers as the store has features.
    pub features: &'a [f32],
}

/// Writes a store. Nothing has the store's name before [`StoreWriter::finish`].
pub struct StoreWriter {
    path: PathBuf,
    out: BufWriter<Partial>,
    tokens_crc: Hasher,
    /// Tables that are written while the tokens are; files without a name.
    tables: [Table; 8],
    header: Header,
    meta: Vec<u8>,
    vocabulary: String,
    labels: Labels,
    features: usize,
    bytes: Vec<u8>,
    keys: u64,
    labelled: u64,
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
const LABEL_ENDS: usize = 5;
const LABELS: usize = 6;
const FEATURES: usize = 7;

impl StoreWriter {
    /// Begins a store at a path. Keys are kept if asked for; tags always are. Users have the features that the meta data names.
    ///
    /// # Errors
    /// When the name is taken and not to be replaced, the folder cannot be written, or features cannot be named so.
    pub fn create(
        path: &Path,
        replace: bool,
        keep_keys: bool,
        meta: &Meta,
        vocabulary: &Vocabulary,
    ) -> Result<Self, StoreError> {
        features::check_names(&meta.features).map_err(StoreError::FeatureNames)?;
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
                    table(Section::LabelEnds)?,
                    table(Section::Labels)?,
                    table(Section::Features)?,
                ],
                header: Header {
                    id_bytes: if vocabulary.len() <= 1 << 16 { 2 } else { 4 },
                    users: 0,
                    posts: 0,
                    tokens: 0,
                    sections: [Extent::default(); SECTIONS.len()],
                },
                meta: serde_json::to_vec(meta)?,
                vocabulary: vocabulary.to_text(),
                labels: Labels::default(),
                features: meta.features.len(),
                bytes: Vec::new(),
                keys: 0,
                labelled: 0,
                keep_keys,
            })
        };
        begin().map_err(|error| failed(path, error))
    }

    /// The same store with labels of these names; to be said before the first user.
    #[must_use]
    pub fn with_labels(self, labels: &Labels) -> Self {
        Self { labels: labels.clone(), ..self }
    }

    /// Appends a user. Users come in the order of their tags.
    ///
    /// # Errors
    /// When the disk does not take it, there are too many tokens, or labels or features are not the store's.
    pub fn user(&mut self, user: &UserRecord<'_>) -> Result<(), StoreError> {
        if u32::try_from(user.tokens.len()).is_err() {
            return Err(StoreError::UserTooLong);
        }
        if !self.labels_fit(user) {
            return Err(StoreError::UserLabels { labels: self.labels.len() });
        }
        if user.features.len() != self.features || !user.features.iter().all(|number| number.is_finite()) {
            return Err(StoreError::UserFeatures { features: self.features });
        }
        self.append(user).map_err(|error| StoreError::Io { path: self.path.clone(), error })
    }

    fn labels_fit(&self, user: &UserRecord<'_>) -> bool {
        let posts = if self.labels.is_empty() { 0 } else { user.ends.len() };
        user.label_ends.len() == posts
            && user.label_ends.is_sorted()
            && user.label_ends.last().map_or(0, |end| *end as usize) == user.labels.len()
            && user.labels.iter().all(|id| (*id as usize) < self.labels.len())
    }

    fn append(&mut self, user: &UserRecord<'_>) -> io::Result<()> {
        self.place()?;
        self.write_tokens(user.tokens)?;
        for end in user.ends {
            self.tables[POSTS].push(&end.to_le_bytes())?;
        }
        self.tables[TAGS].push(&user.tag.0.to_be_bytes())?;
        self.write_key(user.key)?;
        self.write_labels(user)?;
        for number in user.features {
            self.tables[FEATURES].push(&number.to_le_bytes())?;
        }
        self.header.users += 1;
        self.header.posts += user.ends.len() as u64;
        self.header.tokens += user.tokens.len() as u64;
        Ok(())
    }

    fn write_tokens(&mut self, tokens: &[u32]) -> io::Result<()> {
        self.bytes.clear();
        if self.header.id_bytes == 2 {
            self.bytes.extend(tokens.iter().flat_map(|id| (*id as u16).to_le_bytes()));
        } else {
            self.bytes.extend(tokens.iter().flat_map(|id| id.to_le_bytes()));
        }
        self.tokens_crc.update(&self.bytes);
        self.out.write_all(&self.bytes)
    }

    fn write_key(&mut self, key: &str) -> io::Result<()> {
        if !self.keep_keys {
            return Ok(());
        }
        self.keys += key.len() as u64;
        self.tables[KEY_ENDS].push(&self.keys.to_le_bytes())?;
        self.tables[KEYS].push(key.as_bytes())
    }

    fn write_labels(&mut self, user: &UserRecord<'_>) -> io::Result<()> {
        for end in user.label_ends {
            self.tables[LABEL_ENDS].push(&(self.labelled + u64::from(*end)).to_le_bytes())?;
        }
        for id in user.labels {
            self.tables[LABELS].push(&(*id as u16).to_le_bytes())?;
        }
        self.labelled += user.labels.len() as u64;
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
        let names = if self.labels.is_empty() { Vec::new() } else { serde_json::to_vec(self.labels.names())? };
        let texts = [
            (Section::Meta, &self.meta[..]),
            (Section::Vocabulary, self.vocabulary.as_bytes()),
            (Section::LabelNames, &names),
        ];
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
