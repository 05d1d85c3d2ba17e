//! Who may enrol: by the operator's token or by attestation, with limits per hour.

use std::{collections::HashMap, net::IpAddr};

use device::protocol::message::{DeviceKey, Enrol};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use super::store::{EnrolledInHour, Place, Write};

/// Decides who may enrol. A server that can ask a maker of devices has one of its own.
pub trait Admission: Send {
    /// Lets a device in.
    ///
    /// # Errors
    /// Why not, in words for the device's log.
    fn admits(&self, device: &DeviceKey, enrol: &Enrol) -> Result<(), String>;
}

/// Admits devices that know the token.
pub struct ByToken(Vec<u8>);

impl ByToken {
    /// Admits devices with this token.
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
            Err("wrong enrolment token for this server".into())
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
    /// The limit for all addresses together.
    pub an_hour: u64,
    /// From one address, as the caller tells addresses apart. Those of this machine are not limited by address.
    pub an_hour_by_address: u64,
}

impl Default for EnrolmentLimits {
    fn default() -> Self {
        Self { an_hour: 100_000, an_hour_by_address: 1_000 }
    }
}

/// Devices of one address that nobody vouched for, in an hour, after which nobody is asked about others of it. That is forgotten in a restart.
const MOST_NOT_ATTESTED: u64 = 20;

const MS_OF_HOUR: u64 = 60 * 60 * 1000;

/// The hour of a time in milliseconds.
pub(super) const fn hour_of(now: u64) -> u64 {
    now / MS_OF_HOUR
}

/// The key that hides the addresses of enrolments, which are counted across restarts. It is stored apart from the counts.
#[derive(Clone)]
pub struct PlaceKey(Zeroizing<[u8; 32]>);

impl std::fmt::Debug for PlaceKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PlaceKey")
    }
}

impl PlaceKey {
    /// The key of these bytes.
    #[must_use]
    pub const fn new(bytes: Zeroizing<[u8; 32]>) -> Self {
        Self(bytes)
    }

    /// The pseudonym under which an address is counted in an hour; it differs in other hours.
    #[must_use]
    pub fn place(&self, address: IpAddr, hour: u64) -> Place {
        let mut mac = Hmac::<Sha256>::new_from_slice(&*self.0).expect("HMAC takes keys of any length");
        mac.update(b"keyhush place v1\0");
        mac.update(&hour.to_le_bytes());
        mac.update(&address.to_canonical().to_string().into_bytes());
        let digest: [u8; 32] = mac.finalize().into_bytes().into();
        Place(*digest.first_chunk().expect("a digest is longer"))
    }
}

/// Why no more devices enrol now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Full {
    /// When there is room again, in seconds.
    pub(super) after_s: u64,
    /// A text for the device's log.
    pub(super) words: &'static str,
}

/// Who enrolled in this hour.
#[derive(Debug)]
pub(super) struct Enrolments {
    limits: EnrolmentLimits,
    /// None where addresses are not kept: then a restart forgets them.
    key: Option<PlaceKey>,
    hour: u64,
    all: u64,
    by_place: HashMap<Place, u64>,
    /// Whom nobody vouched for.
    not_attested: HashMap<Place, u64>,
}

impl Enrolments {
    /// With what was counted of an hour before.
    pub(super) fn new(limits: EnrolmentLimits, key: Option<PlaceKey>, hour: u64, before: &EnrolledInHour) -> Self {
        let by_place = before.by_place.iter().copied().collect();
        Self { limits, key, hour, all: before.all, by_place, not_attested: HashMap::new() }
    }

    /// One more device, if there is room: what is to be kept of it.
    pub(super) fn take(&mut self, from: Option<IpAddr>, now: u64) -> Result<Write, Full> {
        let place = self.has_room(from, now)?;
        if let Some(place) = place {
            *self.by_place.entry(place).or_default() += 1;
        }
        self.all += 1;
        Ok(Write::CountEnrolment { hour: self.hour, place: place.filter(|_| self.key.is_some()) })
    }

    /// Whether there is room for one more, and from which place it is.
    pub(super) fn has_room(&mut self, from: Option<IpAddr>, now: u64) -> Result<Option<Place>, Full> {
        let place = self.place(from, now);
        let full = |words| Err(Full { after_s: (MS_OF_HOUR - now % MS_OF_HOUR).div_ceil(1000), words });
        let of = |counts: &HashMap<Place, u64>| place.and_then(|place| counts.get(&place)).copied().unwrap_or(0);
        if self.all >= self.limits.an_hour {
            return full("too many devices have enrolled here in this hour");
        }
        if of(&self.by_place) >= self.limits.an_hour_by_address && place.is_some() {
            return full("too many devices have enrolled from this address in this hour");
        }
        if of(&self.not_attested) >= MOST_NOT_ATTESTED {
            return full("too many attestations from this address were not accepted in this hour");
        }
        Ok(place)
    }

    /// Nobody vouched for a device.
    pub(super) fn was_not_attested(&mut self, from: Option<IpAddr>, now: u64) {
        if let Some(place) = self.place(from, now) {
            *self.not_attested.entry(place).or_default() += 1;
        }
    }

    /// What an address is counted as; none for this machine.
    fn place(&mut self, from: Option<IpAddr>, now: u64) -> Option<Place> {
        let hour = hour_of(now);
        if hour != self.hour {
            (self.hour, self.all) = (hour, 0);
            self.by_place.clear();
            self.not_attested.clear();
        }
        let unkept = PlaceKey::new(Zeroizing::new([0; 32]));
        let key = self.key.as_ref().unwrap_or(&unkept);
        from.filter(|address| !address.is_loopback()).map(|address| key.place(address, hour))
    }
}
