//! A device's view of time: backoff after failures, and the server's clock.

use super::Now;

/// The first wait after a failure.
const FIRST_MS: u64 = 1000;

/// The server's clock, as an answer of its gave it. It runs on by the device's own steady clock: what the device takes for the time of
/// day does not matter.
#[derive(Debug, Clone, Copy)]
pub(super) struct ServerClock {
    time_s: u64,
    at_ms: u64,
}

impl ServerClock {
    pub(super) const fn set(time_s: u64, now: Now) -> Self {
        Self { time_s, at_ms: now.up_ms }
    }

    pub(super) const fn time_s(&self, now: Now) -> u64 {
        self.time_s.saturating_add(now.up_ms.saturating_sub(self.at_ms) / 1000)
    }
}

/// Failures one after the other.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Backoff {
    failures: u32,
}

impl Backoff {
    /// One more: how long to wait now. Waits double up to the most, and are drawn between half and all of that, so that devices that
    /// lost one server together do not come back together.
    pub(super) const fn wait_ms(&mut self, most_ms: u64, chance: u64) -> u64 {
        let doubled = FIRST_MS.saturating_mul(1 << if self.failures < 40 { self.failures } else { 40 });
        self.failures = self.failures.saturating_add(1);
        jittered(if doubled < most_ms { doubled } else { most_ms }, chance)
    }

    /// Resets the backoff after a success.
    pub(super) const fn reset(&mut self) {
        self.failures = 0;
    }
}

/// Between half of a wait and all of it.
pub(super) const fn jittered(wait_ms: u64, chance: u64) -> u64 {
    let half = wait_ms / 2;
    wait_ms - half + chance % (half + 1)
}

/// Between half of a wait and one and a half times it: on average it.
pub(super) const fn around(wait_ms: u64, chance: u64) -> u64 {
    wait_ms - wait_ms / 2 + chance % (wait_ms + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_a_cap_and_are_spread() {
        let mut backoff = Backoff::default();
        let waits: Vec<u64> = (0..60).map(|n| backoff.wait_ms(60_000, n * 7919)).collect();
        for (n, wait) in waits.iter().enumerate() {
            let full = (1000u64 << n.min(20)).min(60_000);
            assert!((full / 2..=full).contains(wait), "{n}: {wait}");
        }
        backoff.reset();
        assert!(backoff.wait_ms(60_000, 0) <= 1000);
        assert_eq!((jittered(0, 5), jittered(1, 5), jittered(10, u64::MAX)), (0, 1, 8));
        assert_eq!((around(0, 5), around(10, 0), around(10, 10), around(10, 11)), (0, 5, 15, 5));
    }

    #[test]
    fn the_servers_clock_runs_by_the_steady_one() {
        let at = |up_ms| Now { up_ms, clock_s: 0 };
        let clock = ServerClock::set(1000, at(5000));
        assert_eq!((clock.time_s(at(5999)), clock.time_s(at(7000)), clock.time_s(at(0))), (1000, 1002, 1000));
        assert_eq!(ServerClock::set(u64::MAX, at(0)).time_s(at(u64::MAX)), u64::MAX);
    }
}
