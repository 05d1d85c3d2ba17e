//! Who is at work at a desk, until when, and who has been silent for so long that another device is asked instead.
//!
//! Devices vanish without a word, and may take minutes in rounds of seconds: a round that asked for exactly its goal would wait minutes for one
//! of them. Once half of the reports that an attempt lacks have arrived, it is known how long a report usually takes, and a device that has been silent for
//! several times as long is no longer counted on. It has not dropped out: its report is still taken while reports are wanted.
//!
//! Many may vanish together, and then half never arrive. A quarter are enough, but they may be the quick ones: the fewer there are, the
//! longer the others may be silent.

use std::collections::BTreeSet;

use device::protocol::message::DeviceKey;

use super::Windows;

/// So many times as long as the slowest of the first half took, a device may be silent.
const PATIENCE: u64 = 3;
/// With the power of this the patience grows where fewer than half have arrived: a quarter make it eight times as long.
const POWER: u32 = 3;
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
    /// Half of the reports that are lacking, how many of these have arrived, and the longest that one of those took.
    half: u64,
    arrived: u64,
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
            half: lacks.div_ceil(2),
            arrived: 0,
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
        if !self.is_known() {
            self.arrived += 1;
            self.longest_ms = self.longest_ms.max((now + self.report_ms).saturating_sub(until));
        }
    }

    /// Whether it is known how long a report usually takes.
    pub(super) const fn is_known(&self) -> bool {
        self.arrived >= self.half
    }

    /// How long a device may be silent, in milliseconds; none where nothing is known of that.
    fn patience_ms(&self) -> Option<u64> {
        let usual_ms = (PATIENCE * self.longest_ms).max(self.least_ms);
        if self.is_known() {
            return Some(usual_ms);
        }
        let [half, arrived] = [self.half, self.arrived].map(|reports| u128::from(reports).pow(POWER));
        let patience_ms = (u128::from(usual_ms) * half).checked_div(arrived).filter(|_| 2 * self.arrived >= self.half);
        patience_ms.and_then(|patience_ms| u64::try_from(patience_ms).ok())
    }

    /// Time passes: who has been silent for too long is not counted on from now on.
    pub(super) fn passes(&mut self, now: u64) {
        let Some(patience_ms) = self.patience_ms() else { return };
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
        // Four are not quite half of nine: the patience is (5 / 4)^3 times as long.
        assert_eq!(counted_on(&mut at_work, [5_858, 5_859, 5_860]), [5, 5, 0]);
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

    /// Where more than half of the devices of a round vanished together, it waited ten minutes.
    #[test]
    fn the_fewer_have_reported_the_longer_the_others_may_be_silent() {
        for (reported, patience_ms) in [(50, 6_000), (49, 6_374), (40, 11_718), (30, 27_777), (25, 48_000)] {
            let mut at_work = given_to(100);
            (0..reported).for_each(|byte| at_work.reports(device(byte), WINDOWS.report_ms, 2_000));
            let all = 100 - u64::from(reported);
            let at = [patience_ms - 1, patience_ms, patience_ms + 1];
            assert_eq!(counted_on(&mut at_work, at), [all, all, 0], "{reported} have reported");
        }
        for reported in [0, 1, 24] {
            let mut at_work = given_to(100);
            (0..reported).for_each(|byte| at_work.reports(device(byte), WINDOWS.report_ms, 2));
            let all = 100 - u64::from(reported);
            assert_eq!(counted_on(&mut at_work, [10_000, 100_000, 599_999]), [all; 3], "too few tell nothing");
        }
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
