//! The history of sent inputs: what it still allows, and its byte format.
//!
//! The bytes: `keyhush guard`, the format as 4 bytes, the number of records as 4; of each record task (32), step (8),
//! model (32) and day (4); SHA-256 of all that. Numbers are little-endian. Where a timer may run, the format is another: after the records
//! come the number of rests as 4 bytes and of each task (32), the second at which the input left (8) and for how many the
//! device rests (8).

use sha2::{Digest, Sha256};
use thiserror::Error;

use super::{
    GuardError,
    limits::{Day, Limits, Now, Refused},
    permit::{Asked, ModelDigest, TaskDigest},
    rests::{REST, Rests},
};

/// Inputs that a device lets go in its life.
pub const MOST_INPUTS: usize = 16_384;

const NAME: &[u8; 13] = b"keyhush guard";
/// Without rests: also of programs that knew no timer.
const FORMAT: u32 = 1;
/// The format with rests.
const WITH_RESTS: u32 = 2;
const HEAD: usize = NAME.len() + 4 + 4;
const RECORD: usize = 32 + 8 + 32 + 4;
const CHECKSUM: usize = 32;

/// Why bytes are not a valid guard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Damage {
    /// They do not begin like one.
    #[error("it does not start like a guard file")]
    Name,
    /// Some are missing, or there are too many.
    #[error("it has {got} bytes, expected {expected}")]
    Length {
        /// The actual length.
        got: usize,
        /// What its head promises.
        expected: usize,
    },
    /// The checksum does not match.
    #[error("checksum mismatch")]
    Checksum,
}

/// All inputs that have left, in order.
#[derive(Debug, Default)]
pub(super) struct History {
    records: Vec<Record>,
    rests: Rests,
}

#[derive(Debug, Clone, Copy)]
struct Record {
    asked: Asked,
    day: Day,
}

impl History {
    /// Whether one more may leave.
    pub(super) fn judge(&self, asked: &Asked, limits: &Limits, now: Now) -> Result<(), Refused> {
        self.judge_step(asked, limits)?;
        if self.records.iter().any(|r| r.asked.model == asked.model) {
            return Err(Refused::Model);
        }
        self.rests.judge(&asked.task, limits, now)?;
        let today = self.not_before_the_last(now.day());
        let counts = |r: &&Record| limits.window.holds(r.day, today);
        let have = u32::try_from(self.records.iter().filter(counts).count()).unwrap_or(u32::MAX);
        if have >= limits.most_inputs {
            return Err(Refused::TooMany { have, most: limits.most_inputs });
        }
        if self.records.len() >= MOST_INPUTS { Err(Refused::Full) } else { Ok(()) }
    }

    fn judge_step(&self, asked: &Asked, limits: &Limits) -> Result<(), Refused> {
        let of_task = self.records.iter().filter(|r| r.asked.task == asked.task);
        let Some(last) = of_task.map(|r| r.asked.step).max() else { return Ok(()) };
        let step = asked.step;
        if step <= last {
            return Err(Refused::Step { step, last });
        }
        match limits.separation.map(privacy::units::MinSeparation::as_distance) {
            Some(distance) if step - last < distance => Err(Refused::TooSoon { step, last, distance }),
            _ => Ok(()),
        }
    }

    /// Puts one on record. Days do not go back.
    pub(super) fn push(&mut self, asked: Asked, limits: &Limits, now: Now) {
        let day = self.not_before_the_last(now.day());
        self.records.push(Record { asked, day });
        self.rests.begin(asked.task, limits, now);
    }

    pub(super) const fn rests(&self) -> &Rests {
        &self.rests
    }

    pub(super) fn see(&mut self, now: Now) {
        self.rests.see(now);
    }

    fn not_before_the_last(&self, today: Day) -> Day {
        self.records.iter().map(|r| r.day).fold(today, Day::max)
    }

    pub(super) const fn len(&self) -> usize {
        self.records.len()
    }

    pub(super) fn count(&self, task: &TaskDigest) -> usize {
        self.records.iter().filter(|r| r.asked.task == *task).count()
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(length_of(self.records.len()) + 4 + self.rests.len() * REST);
        let has_rests = self.rests.len() > 0;
        out.extend_from_slice(NAME);
        out.extend_from_slice(&if has_rests { WITH_RESTS } else { FORMAT }.to_le_bytes());
        out.extend_from_slice(&(self.records.len() as u32).to_le_bytes());
        for Record { asked: Asked { task, step, model }, day } in &self.records {
            out.extend_from_slice(&task.0);
            out.extend_from_slice(&step.to_le_bytes());
            out.extend_from_slice(model.as_bytes());
            out.extend_from_slice(&day.0.to_le_bytes());
        }
        if has_rests {
            out.extend_from_slice(&(self.rests.len() as u32).to_le_bytes());
            self.rests.encode(&mut out);
        }
        out.extend_from_slice(&Sha256::digest(&out));
        out
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, GuardError> {
        let rest = bytes.strip_prefix(NAME).ok_or(Damage::Name)?;
        let short = Damage::Length { got: bytes.len(), expected: length_of(0) };
        let (format, rest) = rest.split_first_chunk().ok_or(short)?;
        let got = u32::from_le_bytes(*format);
        if got != FORMAT && got != WITH_RESTS {
            return Err(GuardError::Version { got, ours: WITH_RESTS });
        }
        let (count, rest) = rest.split_first_chunk().ok_or(short)?;
        let count = u32::from_le_bytes(*count) as usize;
        let rests = match got {
            WITH_RESTS => {
                let after = rest.get(count.saturating_mul(RECORD)..).unwrap_or_default();
                let expected = length_of(count).saturating_add(4);
                let short = Damage::Length { got: bytes.len(), expected };
                let (rests, _) = after.split_first_chunk().ok_or(short)?;
                (u32::from_le_bytes(*rests) as usize).saturating_mul(REST).saturating_add(4)
            }
            _ => 0,
        };
        let expected = length_of(count).saturating_add(rests);
        if bytes.len() != expected {
            return Err(Damage::Length { got: bytes.len(), expected }.into());
        }
        let (content, checksum) = bytes.split_at(expected - CHECKSUM);
        if Sha256::digest(content)[..] != *checksum {
            return Err(Damage::Checksum.into());
        }
        let (records, rests) = content[HEAD..].split_at(count * RECORD);
        let (records, _) = records.as_chunks::<RECORD>();
        let rests = Rests::decode(rests.get(4..).unwrap_or_default())?;
        Ok(Self { records: records.iter().map(Record::decode).collect(), rests })
    }
}

impl Record {
    fn decode(bytes: &[u8; RECORD]) -> Self {
        let mut at = 0;
        let (task, step) = (part(bytes, &mut at), u64::from_le_bytes(part(bytes, &mut at)));
        let (model, day) = (part(bytes, &mut at), u32::from_le_bytes(part(bytes, &mut at)));
        Self { asked: Asked { task: TaskDigest(task), step, model: ModelDigest::recorded(model) }, day: Day(day) }
    }
}

/// The next bytes of a record.
fn part<const N: usize>(record: &[u8; RECORD], at: &mut usize) -> [u8; N] {
    let part = std::array::from_fn(|i| record[*at + i]);
    *at += N;
    part
}

/// The bytes of so many records; as many as there can be where that is no number.
const fn length_of(records: usize) -> usize {
    records.saturating_mul(RECORD).saturating_add(HEAD + CHECKSUM)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guard::{Timer, Window};

    #[test]
    fn p24_a_full_guard_refuses_and_forgets_nothing() {
        let asked = |n: usize| Asked { task: TaskDigest([1; 32]), step: n as u64, model: ModelDigest::of(&[n as f32]) };
        let mut history = History::default();
        let limits = Limits { most_inputs: u32::MAX, window: Window::Ever, separation: None, timer: Timer::NONE };
        let on = |day: u64| Now { up_ms: 0, clock_s: day * 86_400 };
        (0..MOST_INPUTS).for_each(|n| history.push(asked(n), &limits, on(n as u64)));
        let far = on(u32::MAX.into());
        assert_eq!(history.judge(&asked(MOST_INPUTS), &limits, far), Err(Refused::Full));
        let bytes = history.encode();
        assert_eq!(bytes.len(), 1_245_237);
        let history = History::decode(&bytes).unwrap();
        assert_eq!(history.judge(&asked(MOST_INPUTS), &limits, far), Err(Refused::Full));
        for n in [0, MOST_INPUTS - 1] {
            assert!(matches!(history.judge(&asked(n), &limits, far), Err(Refused::Step { .. })));
            let renamed = Asked { task: TaskDigest([2; 32]), ..asked(n) };
            assert_eq!(history.judge(&renamed, &limits, far), Err(Refused::Model));
        }
    }
}
