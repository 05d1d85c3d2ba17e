//! Who may enrol: a token of the operator's, or what a device's maker says of it; and how many in an hour.

use std::{collections::HashMap, net::IpAddr};

use device::protocol::message::{DeviceKey, Enrol};
use subtle::ConstantTimeEq;

/// Decides who may enrol. A server that can ask a maker of devices has one of its own.
pub trait Admission: Send {
    /// Lets a device in.
    ///
    /// # Errors
    /// Why not, in words for the device's log.
    fn admits(&self, device: &DeviceKey, enrol: &Enrol) -> Result<(), String>;
}

/// Whoever knows the token.
pub struct ByToken(Vec<u8>);

impl ByToken {
    /// With this token.
    #[must_use]
    pub const fn new(token: Vec<u8>) -> Self {
        Self(token)
    }
}

impl Admission for ByToken {
    fn admits(&self, _device: &DeviceKey, enrol: &Enrol) -> Result<(), String> {
        if bool::from(self.0.ct_eq(&enrol.token)) {
            Ok(())
        } else {
            Err("the enrolment token is not this server's".into())
        }
    }
}

/// Anybody: for simulations, and for servers that nobody else can reach.
#[derive(Debug, Clone, Copy, Default)]
pub struct Anybody;

impl Admission for Anybody {
    fn admits(&self, _device: &DeviceKey, _enrol: &Enrol) -> Result<(), String> {
        Ok(())
    }
}

/// How many devices may enrol in an hour. Each can be one person's, so this bounds how fast somebody who holds the token can become many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EnrolmentLimits {
    /// In all.
    pub an_hour: u64,
    /// From one address, as the caller tells addresses apart. Those of this machine are not limited by address.
    pub an_hour_by_address: u64,
}

impl Default for EnrolmentLimits {
    fn default() -> Self {
        Self { an_hour: 100_000, an_hour_by_address: 1_000 }
    }
}

const MS_OF_HOUR: u64 = 60 * 60 * 1000;

/// Why no more devices enrol now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Full {
    /// When there is room again, in seconds.
    pub(super) after_s: u64,
    /// For the device's log.
    pub(super) words: &'static str,
}

/// Who enrolled in this hour. It is in memory alone: a restart begins the hour anew.
#[derive(Debug)]
pub(super) struct Enrolments {
    limits: EnrolmentLimits,
    hour: u64,
    all: u64,
    by_address: HashMap<IpAddr, u64>,
}

impl Enrolments {
    pub(super) fn new(limits: EnrolmentLimits) -> Self {
        Self { limits, hour: 0, all: 0, by_address: HashMap::new() }
    }

    /// One more device, if there is room.
    pub(super) fn take(&mut self, from: Option<IpAddr>, now: u64) -> Result<(), Full> {
        let hour = now / MS_OF_HOUR;
        if hour != self.hour {
            (self.hour, self.all) = (hour, 0);
            self.by_address.clear();
        }
        let after_s = (MS_OF_HOUR - now % MS_OF_HOUR).div_ceil(1000);
        if self.all >= self.limits.an_hour {
            return Err(Full { after_s, words: "as many devices as may have enrolled here in this hour" });
        }
        if let Some(address) = from.filter(|address| !address.is_loopback()) {
            let there = self.by_address.entry(address).or_default();
            if *there >= self.limits.an_hour_by_address {
                return Err(Full {
                    after_s,
                    words: "as many devices as may have enrolled from this address in this hour",
                });
            }
            *there += 1;
        }
        self.all += 1;
        Ok(())
    }
}
