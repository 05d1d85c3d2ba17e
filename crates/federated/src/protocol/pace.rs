//! Pace steering: when a device that is not needed now is to come back (Bonawitz et al. 2019, section 2.3).
//!
//! A small population is called often, so that it is there together when a round needs it. A large one is spread, so that no more
//! check in a second than the server takes: each device comes back after a time drawn evenly around the mean, which keeps
//! what is spread spread, and spreads what an outage has brought together.

/// How often devices are to check in.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pace {
    /// Check-ins a second that the server takes, of all devices together.
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
    /// The mean time between two check-ins of a device, where so many are enrolled and rounds take so many a second.
    #[must_use]
    pub fn mean_s(&self, enrolled: u64, wanted_per_second: f64) -> f64 {
        let enrolled = enrolled.max(1) as f64;
        let rate = (wanted_per_second * self.surplus).min(self.most_per_second);
        let needed = if rate > 0.0 { enrolled / rate } else { self.most_s };
        needed.min(self.most_s).max(enrolled / self.most_per_second).max(self.least_s)
    }

    /// When one device is to come back, in seconds; `drawn` is even in [0, 1).
    #[must_use]
    pub fn after_s(&self, enrolled: u64, wanted_per_second: f64, drawn: f64) -> u64 {
        let mean = self.mean_s(enrolled, wanted_per_second);
        let spread = mean * (0.5 + drawn);
        // Below half a second it is at once: the device waits at the server then.
        libm::round(spread.max(self.least_s)) as u64
    }
}
