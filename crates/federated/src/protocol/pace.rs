//! Pace steering: when a device that is not needed now should come back (Bonawitz et al. 2019, section 2.3).
//!
//! A small population is called often, so that it is there together when a round needs it. A large one is spread, so that no more
//! check in a second than the server takes: each device comes back after a time drawn evenly around the mean, which keeps
//! what is spread spread, and spreads what an outage has brought together.

/// Devices that a round wants are to be able to come together within so many seconds: less than they wait for it.
const TOGETHER_S: f64 = 5.0;
/// And no more than so many check-ins per second for that.
const MOST_TOGETHER: f64 = 2_000.0;

/// How often devices should check in.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pace {
    /// Check-ins per second that the server takes, of all devices together; more where rounds want so many devices at once that they would
    /// never be there together otherwise.
    pub most_per_second: f64,
    /// No device comes back sooner, in seconds.
    pub least_s: f64,
    /// No device stays away longer on average, in seconds.
    pub most_s: f64,
    /// How many more devices are to check in than rounds take: some of them may not be eligible.
    pub surplus: f64,
}

impl Default for Pace {
    fn default() -> Self {
        Self { most_per_second: 200.0, least_s: 1.0, most_s: 6.0 * 3600.0, surplus: 2.0 }
    }
}

impl Pace {
    /// The mean time between two check-ins of a device.
    #[must_use]
    pub fn mean_s(&self, calls: Calls) -> f64 {
        let enrolled = calls.enrolled.max(1) as f64;
        let together = (self.surplus * calls.together as f64 / TOGETHER_S).min(MOST_TOGETHER);
        let most = self.most_per_second.max(together);
        let rate = (calls.per_second * self.surplus).min(most);
        let needed = if rate > 0.0 { enrolled / rate } else { self.most_s };
        needed.min(self.most_s).max(enrolled / most).max(self.least_s)
    }

    /// When one device is to come back, in seconds; `drawn` is even in [0, 1).
    #[must_use]
    pub fn after_s(&self, calls: Calls, drawn: f64) -> u64 {
        let spread = self.mean_s(calls) * (0.5 + drawn);
        // Below half a second it is at once: the device waits at the server then.
        libm::round(spread.max(self.least_s)) as u64
    }
}

/// The demand for devices.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Calls {
    /// Devices that are enrolled.
    pub enrolled: u64,
    /// Devices that rounds take a second.
    pub per_second: f64,
    /// The most devices that one round wants at once.
    pub together: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_round_gets_its_devices_together() {
        let pace = Pace::default();
        // At 200 per second, 20 seconds of patience never bring more than 4,000 of these together.
        let mean_s = |together| pace.mean_s(Calls { enrolled: 10_000, per_second: f64::INFINITY, together });
        let there = |together| 10_000.0 * 20.0 / (20.0 + mean_s(together));
        assert!((mean_s(130) - 50.0).abs() < 1e-9, "a small round changes nothing");
        assert!(there(8_450) > 7_500.0, "of 8,450 for a goal of 6,500, {} are there", there(8_450));
        // Once it is known how long rounds take, large ones are as calm as others.
        let calm = Calls { enrolled: 1_000_000, per_second: 8_450.0 / 60.0, together: 8_450 };
        assert!((pace.mean_s(calm) - 1e6 / (2.0 * 8_450.0 / 60.0)).abs() < 1e-6);
    }
}
