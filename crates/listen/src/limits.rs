//! Limits on the number, duration and slowness of connections.

use std::time::Duration;

/// The limits of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The most connections at a time. Where the system lets the process have fewer files, fewer.
    pub connections: usize,
    /// The most of them from one address, or from one /64 network of IPv6, which one machine can fill by itself.
    pub by_address: usize,
    /// The most of them from one loopback address, or from a proxy that is trusted ([`crate::Proxies`]).
    pub by_loopback: usize,
    /// How long the handshake of TLS may take.
    pub handshake: Duration,
    /// How long a header may take, from its first byte to its last; and the first byte of a connection.
    pub header: Duration,
    /// How long a connection may be quiet between two requests.
    pub idle: Duration,
    /// How long a body may take.
    pub body: Duration,
    /// How long an answer may take: more than the patience of any device.
    pub answer: Duration,
    /// The least rate of a body, in bytes per second.
    pub rate: u32,
    /// How long a body may take without being slower than `rate`; at no time may it pause for longer than twice this.
    pub grace: Duration,
    /// How long a device may take none of its answer; over time it must take `rate` bytes per second.
    pub stall: Duration,
    /// The most bytes of bodies in memory.
    pub room: usize,
    /// How long a body waits for room before the device is told to come back.
    pub room_wait: Duration,
    /// How long requests may continue when the server is told to stop.
    pub finish: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self {
            connections: 16_384,
            by_address: 256,
            by_loopback: 16_384,
            handshake: seconds(10),
            header: seconds(5),
            idle: seconds(75),
            body: seconds(180),
            answer: seconds(300),
            rate: 8 << 10,
            grace: seconds(5),
            stall: seconds(30),
            room: 256 << 20,
            room_wait: seconds(10),
            finish: seconds(3),
        }
    }
}

/// Whether bytes flow fast enough, of a body or of an answer: a bucket of time, which waiting empties and bytes fill.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// For how long nothing may flow from now on.
    credit: Duration,
    most: Duration,
    rate: u32,
}

impl Pace {
    /// A flow of at least `rate` bytes per second that may pause for `start` at first, and never for longer than `most`.
    #[must_use]
    pub fn new(rate: u32, start: Duration, most: Duration) -> Self {
        Self { credit: start, most, rate: rate.max(1) }
    }

    /// For how long nothing may flow from now on.
    #[must_use]
    pub const fn patience(&self) -> Duration {
        self.credit
    }

    /// So many bytes came after so much waiting.
    pub fn flowed(&mut self, bytes: usize, waited: Duration) {
        let earned = Duration::from_secs_f64(bytes as f64 / f64::from(self.rate));
        self.credit = (self.credit.saturating_sub(waited) + earned).min(self.most);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seconds until a flow of one byte every so many seconds is cut, if it is within a minute.
    fn cut(mut pace: Pace, bytes: usize, every: f64) -> Option<f64> {
        let mut at = 0.0;
        while at < 60.0 {
            let every = Duration::from_secs_f64(every);
            if pace.patience() < every {
                return Some(at + pace.patience().as_secs_f64());
            }
            pace.flowed(bytes, every);
            at += every.as_secs_f64();
        }
        None
    }

    #[test]
    fn slow_flows_are_cut_and_others_are_not() {
        let pace = Pace::new(8192, Duration::from_secs(5), Duration::from_secs(10));
        assert_eq!(cut(pace, 8192, 1.0), None, "the least rate is enough");
        assert_eq!(cut(pace, 8192 * 4, 4.0), None, "and so it is in bursts");
        let slow = cut(pace, 1, 1.0).expect("a byte a second is too slow");
        assert!((5.0..5.1).contains(&slow), "cut after {slow} s");
        let slow = cut(pace, 4096, 1.0).expect("half the rate is too slow");
        assert!((8.0..12.0).contains(&slow), "cut after {slow} s");
        assert!(cut(pace, 1 << 30, 11.0).is_some(), "what came before buys no long pause");
    }
}
