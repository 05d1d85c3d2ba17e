//! The timer: how long a device rests after it sent an input (Xu et al. 2023, section 2.2).
//!
//! A rest is over when the clock of the device says so, or when the device has been up for all of it. What is kept is when the input left by the
//! clock; the monotonic clock starts over with each start of the program. So a clock that is set back ends no rest early: by
//! the clock it lasts longer then, and by the other it lasts as long as it should from the start of the program on. A clock that was
//! wrong by years keeps the device away for one whole rest, and not for years.
//!
//! A clock that is set forward ends a rest early, as it ends windows.

use super::{
    history::Damage,
    limits::{Day, Limits, Now, Refused},
    permit::TaskDigest,
};

/// Bytes of one: the task, when the input left, and for how long the device rests from it.
pub(super) const REST: usize = 32 + 8 + 8;

/// What is not over yet, or was not when an input left last: one of each task.
#[derive(Debug, Default)]
pub(super) struct Rests {
    rests: Vec<Rest>,
}

#[derive(Debug, Clone, Copy)]
struct Rest {
    task: TaskDigest,
    left_s: u64,
    wait_s: u64,
    /// Since when this life of the program knows of it, on the clock that never goes back.
    since_ms: Option<u64>,
}

impl Rest {
    /// How many milliseconds of so long a wait are left.
    fn left_ms(&self, wait_s: u64, now: Now) -> u64 {
        let by_clock = self.left_s.saturating_add(wait_s).saturating_sub(now.clock_s).saturating_mul(1000);
        let up = |since_ms: u64| wait_s.saturating_mul(1000).saturating_sub(now.up_ms.saturating_sub(since_ms));
        self.since_ms.map_or(by_clock, |since_ms| by_clock.min(up(since_ms)))
    }
}

impl Rests {
    /// Whether an input for a task may leave.
    pub(super) fn judge(&self, task: &TaskDigest, limits: &Limits, now: Now) -> Result<(), Refused> {
        let waits_s = |rest: &Rest| limits.timer.waits_s(rest.task == *task);
        let rests = self.rests.iter().find(|rest| rest.left_ms(waits_s(rest), now) > 0);
        rests.map_or(Ok(()), |rest| Err(Refused::Resting { wait_s: waits_s(rest) }))
    }

    /// An input leaves. Rests that are over are forgotten: when they began is nobody's business any more.
    pub(super) fn begin(&mut self, task: TaskDigest, limits: &Limits, now: Now) {
        // While the clock is back the last input on record is the latest that is known.
        let left_s = self.rests.iter().map(|rest| rest.left_s).fold(now.clock_s, u64::max);
        self.rests.retain(|rest| rest.task != task && rest.left_ms(rest.wait_s, now) > 0);
        let wait_s = limits.timer.waits_s(true);
        if wait_s > 0 {
            self.rests.push(Rest { task, left_s, wait_s, since_ms: Some(now.up_ms) });
        }
    }

    /// The program runs: what it did not know of it knows from now on.
    pub(super) fn see(&mut self, now: Now) {
        for rest in self.rests.iter_mut().filter(|rest| rest.since_ms.is_none()) {
            rest.since_ms = Some(now.up_ms);
        }
    }

    /// How long the device rests from everything, in milliseconds.
    pub(super) fn all_ms(&self, own_s: u64, now: Now) -> u64 {
        self.rests.iter().map(|rest| rest.left_ms(own_s, now)).max().unwrap_or(0)
    }

    /// From which tasks it rests, and until which day by the clock.
    pub(super) fn under_way(&self, now: Now) -> impl Iterator<Item = (TaskDigest, Day)> + '_ {
        let until = |rest: &Rest| Day::at(rest.left_s.saturating_add(rest.wait_s));
        self.rests
            .iter()
            .filter(move |rest| rest.left_ms(rest.wait_s, now) > 0)
            .map(move |rest| (rest.task, until(rest)))
    }

    pub(super) const fn len(&self) -> usize {
        self.rests.len()
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        for Rest { task, left_s, wait_s, .. } in &self.rests {
            out.extend_from_slice(&task.0);
            out.extend_from_slice(&left_s.to_le_bytes());
            out.extend_from_slice(&wait_s.to_le_bytes());
        }
    }

    /// Bytes of whole rests.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, Damage> {
        let (rests, rest) = bytes.as_chunks::<REST>();
        if !rest.is_empty() {
            return Err(Damage::Length { got: bytes.len(), expected: bytes.len() - rest.len() });
        }
        Ok(Self { rests: rests.iter().map(Rest::decode).collect() })
    }
}

impl Rest {
    fn decode(bytes: &[u8; REST]) -> Self {
        let number = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
        let task = TaskDigest(std::array::from_fn(|i| bytes[i]));
        Self { task, left_s: number(32), wait_s: number(40), since_ms: None }
    }
}
