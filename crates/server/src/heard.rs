//! Replay protection: a repeated request gets no place in a round, and does not end the wait of the device it came from.
//!
//! Each request of a device has the server's clock as the device knows it, and a number that counts what it has said since it was
//! started; both are signed. Of every device the last pair is remembered, and a request counts only if its own is larger; a check-in also only if
//! it is not older than the server. So what somebody has seen and plays again is told to come back, and so is what was sent before and arrives after. A device whose
//! answer was lost signs again. It takes a few bytes for each enrolled device that spoke within the time that clocks may be apart.

use std::collections::HashMap;

use device::protocol::message::{CLOCKS_APART_S, DeviceKey};

/// How often what is too old to be taken is forgotten, in seconds.
const SWEPT_EVERY_S: u64 = 60;

/// What a device says of when it spoke.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Spoken {
    pub(crate) time_s: u64,
    pub(crate) number: u64,
}

/// What was heard last of each device.
#[derive(Debug)]
pub(crate) struct Heard {
    since_s: u64,
    swept_s: u64,
    last: HashMap<DeviceKey, Spoken>,
}

impl Heard {
    /// Nothing yet. What was said before now is not known, and is taken for old.
    pub(crate) fn new(now_s: u64) -> Self {
        Self { since_s: now_s, swept_s: now_s, last: HashMap::new() }
    }

    /// Whether a device says something that was not heard before, and nothing that it said after it.
    pub(crate) fn is_new(&mut self, device: &DeviceKey, spoken: Spoken, now_s: u64) -> bool {
        if now_s >= self.swept_s + SWEPT_EVERY_S {
            self.last.retain(|_, last| last.time_s + CLOCKS_APART_S >= now_s);
            self.swept_s = now_s;
        }
        let new = spoken.time_s >= self.since_s && self.last.get(device).is_none_or(|last| spoken > *last);
        if new {
            self.last.insert(*device, spoken);
        }
        new
    }

    /// The same for what gives nobody a place: what was said before the server was started is taken too, so that a part that was begun then
    /// does not wait for clocks.
    pub(crate) fn is_newest(&mut self, device: &DeviceKey, spoken: Spoken) -> bool {
        let newest = self.last.get(device).is_none_or(|last| spoken > *last);
        if newest {
            self.last.insert(*device, spoken);
        }
        newest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: DeviceKey = DeviceKey([1; 32]);
    const OTHER: DeviceKey = DeviceKey([2; 32]);

    fn at(time_s: u64, number: u64) -> Spoken {
        Spoken { time_s, number }
    }

    #[test]
    fn what_is_played_again_is_known() {
        let mut heard = Heard::new(1_000);
        assert!(heard.is_new(&ONE, at(1_000, 7), 1_001));
        assert!(!heard.is_new(&ONE, at(1_000, 7), 1_002), "the same again");
        assert!(heard.is_new(&OTHER, at(1_000, 7), 1_002), "of another device it is another");
        assert!(heard.is_new(&ONE, at(1_000, 8), 1_002), "signed anew in the same second");
        assert!(heard.is_new(&ONE, at(1_030, 1), 1_031), "after a restart of the device");
        assert!(!heard.is_new(&ONE, at(1_029, 99), 1_031), "what was kept back and comes late");
        assert!(!Heard::new(2_000).is_new(&ONE, at(1_999, 1), 2_001), "what was said before the server was started");
        let mut restarted = Heard::new(2_000);
        assert!(restarted.is_newest(&ONE, at(1_999, 1)) && !restarted.is_newest(&ONE, at(1_999, 1)), "a part goes on");
    }

    #[test]
    fn it_is_forgotten_only_when_its_clock_is_refused() {
        let mut heard = Heard::new(0);
        // A clock that is ahead by as much as it may be.
        assert!(heard.is_new(&ONE, at(300, 1), 0));
        for now in (0..=600).step_by(50) {
            assert!(!heard.is_new(&ONE, at(300, 1), now), "{now}");
        }
        assert!(heard.is_new(&OTHER, at(700, 1), 700));
        assert_eq!(heard.last.len(), 1, "memory comes back");
    }
}
