//! Groups posts by user: sorts each spill file and writes its users to the store.

use std::io;

use lm::vocabulary::UNK;

use super::{
    ImportError, ImportPlan, Input, Progress, Summary, source,
    spill::{FIXED, Filled, Fixed, Rest, Shape, Spill},
};
use crate::{
    origin,
    store::{StoreError, StoreWriter, UserRecord, UserTag},
};

/// A spill file that is larger is divided before it is read.
const LARGEST: u64 = 96 << 20;

/// Writes every user of the spill files and finishes the store.
pub(super) fn write(
    plan: &ImportPlan,
    spill: Spill,
    writer: StoreWriter,
    summary: &mut Summary,
    progress: &mut dyn FnMut(Progress) -> bool,
) -> Result<(), ImportError> {
    let failed = |error| ImportError::Spill { path: plan.out.clone(), error };
    let files = spill.into_filled().map_err(failed)?;
    let total = files.len() as u64;
    let mut group = Group { plan, writer, summary, gathered: Gathered::default(), shape: shape(plan) };
    for (done, file) in files.into_iter().enumerate() {
        if !progress(Progress::Grouping { done: done as u64, total }) {
            return Err(ImportError::Interrupted);
        }
        group.file(file)?;
    }
    let Group { writer, summary, .. } = group;
    if summary.users == 0 {
        return Err(match plan.tokens_per_user.filter(|_| summary.dropped_users > 0) {
            Some(tokens) => ImportError::NobodyLongEnough { users: summary.dropped_users, tokens },
            None => ImportError::Nothing { bad: summary.bad_lines, first: summary.first_bad_lines.first().cloned() },
        });
    }
    Ok(writer.finish()?)
}

/// What the records of a spill file have in common.
pub(super) fn shape(plan: &ImportPlan) -> Shape {
    let id_bytes = if plan.vocabulary.vocabulary.len() <= 1 << 16 { 2 } else { 4 };
    Shape { id_bytes, features: plan.input.feature_names().len() }
}

struct Group<'a> {
    plan: &'a ImportPlan,
    writer: StoreWriter,
    summary: &'a mut Summary,
    gathered: Gathered,
    shape: Shape,
}

/// What a user has, as a store takes it.
#[derive(Default)]
struct Gathered {
    tokens: Vec<u32>,
    ends: Vec<u32>,
    labels: Vec<u32>,
    label_ends: Vec<u32>,
    features: Vec<f32>,
}

impl Gathered {
    fn clear(&mut self) {
        self.tokens.clear();
        self.ends.clear();
        self.labels.clear();
        self.label_ends.clear();
        self.features.clear();
    }

    /// Takes a post, cut where the user has no more room.
    fn post(&mut self, rest: &Rest<'_>, id_bytes: usize, room: usize) -> Result<(), StoreError> {
        if id_bytes == 2 {
            let ids = rest.ids.as_chunks().0.iter().take(room);
            self.tokens.extend(ids.map(|id| u32::from(u16::from_le_bytes(*id))));
        } else {
            self.tokens.extend(rest.ids.as_chunks().0.iter().take(room).map(|id| u32::from_le_bytes(*id)));
        }
        let end = |length: usize| u32::try_from(length).map_err(|_| StoreError::UserTooLong);
        self.ends.push(end(self.tokens.len())?);
        self.labels.extend(rest.labels.iter().map(|id| u32::from(u16::from_le_bytes(*id))));
        self.label_ends.push(end(self.labels.len())?);
        Ok(())
    }
}

/// Where a record is.
struct Entry {
    tag: UserTag,
    place: u64,
    start: usize,
}

impl Group<'_> {
    fn file(&mut self, file: Filled) -> Result<(), ImportError> {
        let failed = |error| ImportError::Spill { path: self.plan.out.clone(), error };
        if file.length > LARGEST && file.can_divide() {
            let parts = file.divide(&self.plan.out, self.shape).map_err(failed)?;
            return parts.into_iter().try_for_each(|part| self.file(part));
        }
        let records = file.read().map_err(failed)?;
        let mut entries = entries(&records, self.shape).ok_or_else(|| failed(io::ErrorKind::InvalidData.into()))?;
        entries.sort_unstable_by_key(|entry| (entry.tag, entry.place));
        entries.chunk_by(|a, b| a.tag == b.tag).try_for_each(|user| self.user(&records, user))
    }

    fn user(&mut self, records: &[u8], entries: &[Entry]) -> Result<(), ImportError> {
        let most = self.plan.tokens_per_user.map_or(usize::MAX, |most| most as usize);
        self.gathered.clear();
        self.check_features(records, entries)?;
        let mut key = "";
        for entry in entries {
            let Some((_, rest)) = self.record(records, entry) else { continue };
            key = std::str::from_utf8(rest.key).unwrap_or_default(); // it was a string when it was written
            let room = most - self.gathered.tokens.len();
            if room == 0 {
                break;
            }
            self.gathered.post(&rest, self.shape.id_bytes, room)?;
        }
        if self.plan.tokens_per_user.is_some() && self.gathered.tokens.len() < most {
            self.summary.dropped_users += 1;
            return Ok(());
        }
        self.write(entries[0].tag, key)
    }

    fn write(&mut self, tag: UserTag, key: &str) -> Result<(), ImportError> {
        let Gathered { tokens, ends, labels, label_ends, features } = &self.gathered;
        self.summary.users += 1;
        self.summary.posts += ends.len() as u64;
        self.summary.tokens += tokens.len() as u64;
        self.summary.labels += labels.len() as u64;
        self.summary.unknown += tokens.iter().filter(|id| **id == UNK).count() as u64;
        let has_labels = self.plan.labels.as_ref().is_some_and(|known| !known.labels.is_empty());
        let label_ends = if has_labels { &label_ends[..] } else { &[] };
        Ok(self.writer.user(&UserRecord { tag, key, tokens, ends, labels, label_ends, features })?)
    }

    fn record<'a>(&self, records: &'a [u8], entry: &Entry) -> Option<(Fixed, Rest<'a>)> {
        let record = &records[entry.start..];
        let fixed = Fixed::read(record)?;
        let rest = fixed.read_rest(record, self.shape)?;
        Some((fixed, rest))
    }

    /// Takes the features of the first row; the others must say the same.
    fn check_features(&mut self, records: &[u8], entries: &[Entry]) -> Result<(), ImportError> {
        if self.shape.features == 0 {
            return Ok(());
        }
        for (i, entry) in entries.iter().enumerate() {
            let Some((fixed, rest)) = self.record(records, entry) else { continue };
            let numbers = rest.features.iter().map(|number| f32::from_le_bytes(*number));
            if i == 0 {
                self.gathered.features.extend(numbers);
            } else if let Some(column) = self.gathered.features.iter().zip(numbers).position(|(a, b)| *a != b) {
                return Err(self.contradiction(fixed.place, column));
            }
        }
        Ok(())
    }

    fn contradiction(&self, place: u64, column: usize) -> ImportError {
        let (file, line) = source::file_and_line(place);
        let file = match &self.plan.input {
            Input::Files { paths, .. } => paths.get(file).map(|path| origin::name(path)).unwrap_or_default(),
            Input::Crowd { .. } => String::new(),
        };
        let column = self.plan.input.feature_names().get(column).cloned().unwrap_or_default();
        ImportError::Contradiction { file, line, column }
    }
}

fn entries(records: &[u8], shape: Shape) -> Option<Vec<Entry>> {
    let mut entries = Vec::new();
    let mut start = 0;
    while start < records.len() {
        let fixed = Fixed::read(&records[start..])?;
        entries.push(Entry { tag: fixed.tag, place: fixed.place, start });
        start += FIXED + fixed.rest(shape);
    }
    (start == records.len()).then_some(entries)
}
