//! Who is at work at a desk, until when, and who has been silent for so long that another device is asked instead.
//!
//! Devices vanish without a word, and may take minutes in rounds of seconds: a round that asked for exactly its goal would wait minutes for one
//! of them. Once half of the reports that an attempt lacks have arrived, it is known how long a report usually takes, and a device that has been silent for
//! several times as long is no longer counted on. It has not dropped out: its report is still taken while reports are wanted.

use std::collections::BTreeSet;

use device::protocol::message::DeviceKey;

use super::Windows;

/// So many times as long as the slowest of the first half took, a device may be silent.
const PATIENCE: u64 = 3;
/// And so many times as long as the attempt took, after its end.
const SILENT: u64 = 2;
/// So long it may be silent in any case, in ticks and in milliseconds.
const LEAST_TICKS: u64 = 3;
const LEAST_MS: u64 = 2_000;

/// Devices at work. Nothing here takes longer the more of them there are, but for a logarithm.
#[derive(Debug)]
pub(super) struct AtWork {
    /// By when they have to be done, the earliest first.
    deadlines: BTreeSet<(u64, DeviceKey)>,
    /// The time from an assignment to its deadline.
    report_ms: u64,
    least_ms: u64,
    /// So many more reports are to arrive before it is known how long they take; the longest so far.
    unknown: u64,
    longest_ms: u64,
    /// Whose deadline is before this is silent, and so many are.
    silent_before: u64,
    silent: u64,
}

impl AtWork {
    /// Nobody yet, in an attempt that lacks so many reports.
    pub(super) fn new(windows: &Windows, lacks: u64) -> Self {
        Self {
            deadlines: BTreeSet::new(),
            report_ms: windows.report_ms,
            least_ms: LEAST_MS.max(LEAST_TICKS * u64::from(windows.tick_ms)),
            unknown: lacks.div_ceil(2),
            longest_ms: 0,
            silent_before: 0,
            silent: 0,
        }
    }

    /// A device was given the task.
    pub(super) fn begins(&mut self, device: DeviceKey, until: u64) {
        self.deadlines.insert((until, device));
    }

    /// A device is done, in one way or another.
    pub(super) fn ends(&mut self, device: DeviceKey, until: u64) {
        if self.deadlines.remove(&(until, device)) && self.is_silent(until) {
            self.silent -= 1;
        }
    }

    /// A device is done, and this is its report.
    pub(super) fn reports(&mut self, device: DeviceKey, until: u64, now: u64) {
        self.ends(device, until);
        if self.unknown > 0 {
            self.unknown -= 1;
            self.longest_ms = self.longest_ms.max((now + self.report_ms).saturating_sub(until));
        }
    }

    /// Time passes: who has been silent for too long is not counted on from now on.
    pub(super) fn passes(&mut self, now: u64) {
        if self.unknown > 0 {
            return;
        }
        let patience_ms = (PATIENCE * self.longest_ms).max(self.least_ms);
        let before = (now + self.report_ms).saturating_sub(patience_ms);
        if before > self.silent_before {
            let bound = |until| (until, DeviceKey([0; 32]));
            self.silent += self.deadlines.range(bound(self.silent_before)..bound(before)).count() as u64;
            self.silent_before = before;
        }
    }

    /// The next device whose time is over; it is at work no more.
    pub(super) fn expires(&mut self, now: u64) -> Option<DeviceKey> {
        let (until, device) = *self.deadlines.first().filter(|(until, _)| now > *until)?;
        self.ends(device, until);
        Some(device)
    }

    /// Whether a device with this deadline, if it is at work, has been silent for too long.
    pub(super) const fn is_silent(&self, until: u64) -> bool {
        until < self.silent_before
    }

    /// How many have been silent for too long.
    pub(super) const fn silent(&self) -> u64 {
        self.silent
    }

    /// How many reports may be expected of them.
    pub(super) fn counted_on(&self) -> u64 {
        self.deadlines.len() as u64 - self.silent
    }

    /// So long, in milliseconds, devices may be silent after an attempt that took so long, before they count as dropped out.
    pub(super) fn patience_after(&self, took_ms: u64) -> u64 {
        (SILENT * took_ms).max(self.least_ms).min(self.report_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOWS: Windows = Windows { select_ms: 1, report_ms: 600_000, answer_ms: 1, tick_ms: 1_000 };

    fn device(byte: u8) -> DeviceKey {
        DeviceKey([byte; 32])
    }

    /// So many devices that were given the task at 0, in an attempt that lacks as many reports.
    fn given_to(devices: u8) -> AtWork {
        let mut at_work = AtWork::new(&WINDOWS, devices.into());
        (0..devices).for_each(|byte| at_work.begins(device(byte), WINDOWS.report_ms));
        at_work
    }

    /// How many are counted on, one moment after another.
    fn counted_on(at_work: &mut AtWork, at: [u64; 3]) -> [u64; 3] {
        at.map(|now| {
            at_work.passes(now);
            at_work.counted_on()
        })
    }

    #[test]
    fn who_is_silent_for_three_times_as_long_as_half_of_them_took_is_not_counted_on() {
        let mut at_work = given_to(9);
        (0..4).for_each(|byte| at_work.reports(device(byte), WINDOWS.report_ms, 1_000));
        assert_eq!(counted_on(&mut at_work, [2_000, 20_000, 590_000]), [5, 5, 5], "fewer than half have reported");
        let mut at_work = given_to(9);
        (0..5).for_each(|byte| at_work.reports(device(byte), WINDOWS.report_ms, 1_000 * (1 + u64::from(byte))));
        // One who is asked now has as long.
        at_work.begins(device(10), 16_000 - 1 + WINDOWS.report_ms);
        assert_eq!(counted_on(&mut at_work, [14_999, 15_000, 15_001]), [5, 5, 1]);
        // Who comes after all tells nothing of how long the others may be silent, and who does not come expires.
        at_work.reports(device(5), WINDOWS.report_ms, 20_000);
        assert_eq!(counted_on(&mut at_work, [30_999, 31_000, 600_000]), [1, 0, 0]);
        let expired: Vec<DeviceKey> = std::iter::from_fn(|| at_work.expires(600_001)).collect();
        assert_eq!((expired, at_work.counted_on()), ((6..9).map(device).collect(), 0));
    }

    #[test]
    fn quick_reports_leave_the_others_a_few_ticks_and_two_seconds() {
        let mut at_work = given_to(2);
        at_work.reports(device(0), WINDOWS.report_ms, 5);
        assert_eq!(counted_on(&mut at_work, [2_500, 3_000, 3_001]), [1, 1, 0], "three ticks");
        let mut at_work = AtWork::new(&Windows { tick_ms: 1, ..WINDOWS }, 2);
        (0..2).for_each(|byte| at_work.begins(device(byte), WINDOWS.report_ms));
        at_work.reports(device(0), WINDOWS.report_ms, 5);
        assert_eq!(counted_on(&mut at_work, [1_999, 2_000, 2_001]), [1, 1, 0], "two seconds");
    }
}
