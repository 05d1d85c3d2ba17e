//! Spills posts to disk, partitioned by user tag into pieces small enough to sort in memory.
//!
//! A record is the tag (16 bytes), the place (8), the length of the key (2), the number of ids (4), the number of labels (2),
//! the key, the ids (2 or 4 bytes each), the labels (2 bytes each), the user's features (4 bytes each). The files have no names: they are gone when the process is, however it ends.

use std::{
    fs::File,
    io::{self, BufReader, Read, Seek, SeekFrom, Write},
    path::Path,
    sync::{Mutex, PoisonError},
};

use crate::{partial::folder, store::UserTag};

/// Files of one level: six bits of the tag.
pub(super) const FILES: usize = 64;
const BITS: u32 = 6;
/// Levels after which a file is read as it is: it is one user's, or many users' whose tags nobody can have chosen.
const LEVELS: u32 = 4;
/// What a writer collects before it writes to a file.
const BUFFER: usize = 1 << 16;
pub(super) const FIXED: usize = 32;
/// Bytes of a label.
const LABEL: usize = 2;
/// Bytes of a feature.
const FEATURE: usize = 4;

/// The files of one level.
pub(super) struct Spill {
    level: u32,
    files: Vec<Mutex<File>>,
}

/// A file that was filled.
pub(super) struct Filled {
    pub(super) level: u32,
    file: File,
    pub(super) length: u64,
}

impl Spill {
    /// Files beside the store that is to be made.
    pub(super) fn create(out: &Path) -> io::Result<Self> {
        Self::at_level(out, 0)
    }

    fn at_level(out: &Path, level: u32) -> io::Result<Self> {
        let files = (0..FILES).map(|_| tempfile::tempfile_in(folder(out)).map(Mutex::new));
        Ok(Self { level, files: files.collect::<io::Result<_>>()? })
    }

    pub(super) fn writer(&self) -> SpillWriter<'_> {
        SpillWriter { spill: self, buffers: vec![Vec::new(); FILES] }
    }

    fn append(&self, index: usize, bytes: &[u8]) -> io::Result<()> {
        self.files[index].lock().unwrap_or_else(PoisonError::into_inner).write_all(bytes)
    }

    /// The files in the order of their tags.
    pub(super) fn into_filled(self) -> io::Result<Vec<Filled>> {
        let level = self.level;
        let filled = self.files.into_iter().map(|file| {
            let mut file = file.into_inner().unwrap_or_else(PoisonError::into_inner);
            let length = file.seek(SeekFrom::End(0))?;
            file.seek(SeekFrom::Start(0))?;
            Ok(Filled { level, file, length })
        });
        filled.collect()
    }
}

/// Collects records of one thread.
pub(super) struct SpillWriter<'a> {
    spill: &'a Spill,
    buffers: Vec<Vec<u8>>,
}

impl SpillWriter<'_> {
    /// Writes a record. Keys have at most 2^16 bytes, posts at most 2^32 ids and 2^16 labels; longer ones were refused before.
    pub(super) fn post(&mut self, record: &Record<'_>, shape: Shape) -> io::Result<()> {
        let buffer = self.buffer(record.tag);
        buffer.extend(record.tag.0.to_be_bytes());
        buffer.extend(record.place.to_le_bytes());
        buffer.extend((record.key.len() as u16).to_le_bytes());
        buffer.extend((record.ids.len() as u32).to_le_bytes());
        buffer.extend((record.labels.len() as u16).to_le_bytes());
        buffer.extend(record.key.as_bytes());
        if shape.id_bytes == 2 {
            buffer.extend(record.ids.iter().flat_map(|id| (*id as u16).to_le_bytes()));
        } else {
            buffer.extend(record.ids.iter().flat_map(|id| id.to_le_bytes()));
        }
        buffer.extend(record.labels.iter().flat_map(|id| (*id as u16).to_le_bytes()));
        buffer.extend(record.features.iter().flat_map(|number| number.to_le_bytes()));
        self.drain(self.index(record.tag), BUFFER)
    }

    fn index(&self, tag: UserTag) -> usize {
        (tag.0 >> (128 - BITS * (self.spill.level + 1))) as usize % FILES
    }

    fn buffer(&mut self, tag: UserTag) -> &mut Vec<u8> {
        let index = self.index(tag);
        &mut self.buffers[index]
    }

    fn drain(&mut self, index: usize, at_least: usize) -> io::Result<()> {
        let buffer = &mut self.buffers[index];
        if buffer.len() >= at_least {
            self.spill.append(index, buffer)?;
            buffer.clear();
        }
        Ok(())
    }

    /// Writes what is left.
    pub(super) fn finish(mut self) -> io::Result<()> {
        (0..FILES).try_for_each(|index| self.drain(index, 1))
    }
}

impl Filled {
    /// Whether dividing makes smaller files.
    pub(super) const fn can_divide(&self) -> bool {
        self.level + 1 < LEVELS
    }

    /// All records, one after the other.
    pub(super) fn read(mut self) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::with_capacity(usize::try_from(self.length).unwrap_or(0));
        self.file.read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// Divides the records by the next bits of their tags.
    pub(super) fn divide(self, out: &Path, shape: Shape) -> io::Result<Vec<Self>> {
        let spill = Spill::at_level(out, self.level + 1)?;
        let mut writer = spill.writer();
        let mut from = BufReader::with_capacity(1 << 20, self.file.take(self.length));
        let mut left = self.length;
        let mut rest = Vec::new();
        while left > 0 {
            let mut fixed = [0; FIXED];
            from.read_exact(&mut fixed)?;
            let record = Fixed::read(&fixed).ok_or(io::ErrorKind::InvalidData)?;
            let length = record.rest(shape);
            rest.clear();
            from.by_ref().take(length as u64).read_to_end(&mut rest)?;
            let index = writer.index(record.tag);
            writer.buffers[index].extend(fixed);
            writer.buffers[index].extend(&rest);
            writer.drain(index, BUFFER)?;
            left = left.saturating_sub((FIXED + length) as u64);
        }
        writer.finish()?;
        spill.into_filled()
    }
}

/// What all records have in common.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shape {
    /// Bytes of an id.
    pub(super) id_bytes: usize,
    /// Features of a user.
    pub(super) features: usize,
}

/// A post on its way to disk.
pub(super) struct Record<'a> {
    pub(super) tag: UserTag,
    pub(super) place: u64,
    pub(super) key: &'a str,
    pub(super) ids: &'a [u32],
    pub(super) labels: &'a [u32],
    pub(super) features: &'a [f32],
}

/// The rest of a record as it is on disk.
pub(super) struct Rest<'a> {
    pub(super) key: &'a [u8],
    pub(super) ids: &'a [u8],
    pub(super) labels: &'a [[u8; LABEL]],
    pub(super) features: &'a [[u8; FEATURE]],
}

/// The part of a record that is always there.
pub(super) struct Fixed {
    pub(super) tag: UserTag,
    pub(super) place: u64,
    pub(super) key: usize,
    pub(super) ids: usize,
    pub(super) labels: usize,
}

impl Fixed {
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        Some(Self {
            tag: UserTag(u128::from_be_bytes(*bytes.first_chunk()?)),
            place: u64::from_le_bytes(*bytes.get(16..)?.first_chunk()?),
            key: u16::from_le_bytes(*bytes.get(24..)?.first_chunk()?).into(),
            ids: u32::from_le_bytes(*bytes.get(26..)?.first_chunk()?) as usize,
            labels: u16::from_le_bytes(*bytes.get(30..)?.first_chunk()?).into(),
        })
    }

    /// Bytes of the rest of the record.
    pub(super) const fn rest(&self, shape: Shape) -> usize {
        self.key + self.ids * shape.id_bytes + self.labels * LABEL + shape.features * FEATURE
    }

    /// The rest of the record that begins here; nothing if it is cut.
    pub(super) fn read_rest<'a>(&self, record: &'a [u8], shape: Shape) -> Option<Rest<'a>> {
        let (key, rest) = record.get(FIXED..FIXED + self.rest(shape))?.split_at_checked(self.key)?;
        let (ids, rest) = rest.split_at_checked(self.ids * shape.id_bytes)?;
        let (labels, features) = rest.split_at_checked(self.labels * LABEL)?;
        Some(Rest { key, ids, labels: labels.as_chunks().0, features: features.as_chunks().0 })
    }
}
