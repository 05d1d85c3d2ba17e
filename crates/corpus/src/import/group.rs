//! Puts users together: sorts each spill file and writes its users to the store.

use std::io;

use lm::vocabulary::UNK;

use super::{
    ImportError, ImportPlan, Progress, Summary,
    spill::{FIXED, Filled, Fixed, Spill},
};
use crate::store::{StoreError, StoreWriter, UserTag};

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
    let mut group = Group { plan, writer, summary, tokens: Vec::new(), ends: Vec::new(), width: width(plan) };
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

/// Bytes of an id in a spill file.
pub(super) fn width(plan: &ImportPlan) -> usize {
    if plan.vocabulary.vocabulary.len() <= 1 << 16 { 2 } else { 4 }
}

struct Group<'a> {
    plan: &'a ImportPlan,
    writer: StoreWriter,
    summary: &'a mut Summary,
    tokens: Vec<u32>,
    ends: Vec<u32>,
    width: usize,
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
            let parts = file.divide(&self.plan.out, self.width).map_err(failed)?;
            return parts.into_iter().try_for_each(|part| self.file(part));
        }
        let records = file.read().map_err(failed)?;
        let mut entries = entries(&records, self.width).ok_or_else(|| failed(io::ErrorKind::InvalidData.into()))?;
        entries.sort_unstable_by_key(|entry| (entry.tag, entry.place));
        entries.chunk_by(|a, b| a.tag == b.tag).try_for_each(|user| self.user(&records, user))
    }

    fn user(&mut self, records: &[u8], entries: &[Entry]) -> Result<(), ImportError> {
        let most = self.plan.tokens_per_user.map_or(usize::MAX, |most| most as usize);
        self.tokens.clear();
        self.ends.clear();
        let mut key = "";
        for entry in entries {
            let record = &records[entry.start..];
            let Some(fixed) = Fixed::read(record) else { continue };
            let (name, ids) = record[FIXED..FIXED + fixed.rest(self.width)].split_at(fixed.key);
            key = std::str::from_utf8(name).unwrap_or_default(); // it was a string when it was written
            let room = most - self.tokens.len();
            if room == 0 {
                break;
            }
            if self.width == 2 {
                let ids = ids.as_chunks().0.iter().take(room);
                self.tokens.extend(ids.map(|id| u32::from(u16::from_le_bytes(*id))));
            } else {
                self.tokens.extend(ids.as_chunks().0.iter().take(room).map(|id| u32::from_le_bytes(*id)));
            }
            self.ends.push(u32::try_from(self.tokens.len()).map_err(|_| StoreError::UserTooLong)?);
        }
        if self.plan.tokens_per_user.is_some() && self.tokens.len() < most {
            self.summary.dropped_users += 1;
            return Ok(());
        }
        self.summary.users += 1;
        self.summary.posts += self.ends.len() as u64;
        self.summary.tokens += self.tokens.len() as u64;
        self.summary.unknown += self.tokens.iter().filter(|id| **id == UNK).count() as u64;
        Ok(self.writer.user(entries[0].tag, key, &self.tokens, &self.ends)?)
    }
}

fn entries(records: &[u8], width: usize) -> Option<Vec<Entry>> {
    let mut entries = Vec::new();
    let mut start = 0;
    while start < records.len() {
        let fixed = Fixed::read(&records[start..])?;
        entries.push(Entry { tag: fixed.tag, place: fixed.place, start });
        start += FIXED + fixed.rest(width);
    }
    (start == records.len()).then_some(entries)
}
