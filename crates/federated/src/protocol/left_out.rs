//! Which devices are no longer asked for secure rounds because they were in many spoiled attempts.
//!
//! The rule is that of simulated users ([`crate::cohort::left_out`], which says why): by participation alone, at most a tenth of the
//! declared population, those with the most spoiled attempts first. Between equals an order decides that follows from a secret of the
//! server and not from the key, so that nobody can have a key that is always asked.

use std::collections::BTreeSet;

use device::protocol::message::DeviceKey;
use sha2::{Digest, Sha256};

/// The share of the population that may be left out: one in so many.
const ONE_IN: u64 = 10;

/// When devices are left out of a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaveOut {
    /// After so many spoiled attempts.
    pub after: u64,
    /// The population that was declared: at most a tenth of so many are left out.
    pub population: u64,
    /// What the order between equals follows from.
    pub between_equals: [u8; 32],
}

/// Who is left out, of those who were in so many spoiled attempts.
pub(super) fn left_out(spoiled: &[(DeviceKey, u64)], leave_out: &LeaveOut) -> BTreeSet<DeviceKey> {
    let often = spoiled.iter().filter(|(_, times)| *times >= leave_out.after);
    let order = |device: &DeviceKey| -> [u8; 32] {
        Sha256::new().chain_update(leave_out.between_equals).chain_update(device.0).finalize().into()
    };
    let mut often: Vec<(u64, [u8; 32], DeviceKey)> =
        often.map(|(device, times)| (u64::MAX - times, order(device), *device)).collect();
    often.sort_unstable();
    let most = (leave_out.population / ONE_IN) as usize;
    often.into_iter().take(most).map(|(_, _, device)| device).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn out(spoiled: &[(u8, u64)], population: u64, secret: u8) -> Vec<u8> {
        let spoiled: Vec<_> = spoiled.iter().map(|(device, times)| (DeviceKey([*device; 32]), *times)).collect();
        let leave_out = LeaveOut { after: 2, population, between_equals: [secret; 32] };
        left_out(&spoiled, &leave_out).iter().map(|device| device.0[0]).collect()
    }

    #[test]
    fn the_most_often_spoiled_are_left_out_and_never_more_than_a_tenth() {
        assert_eq!(out(&[(1, 1), (2, 2), (3, 5)], 100, 0), [2, 3]);
        assert_eq!(out(&[(1, 2), (2, 3), (3, 5)], 20, 0), [2, 3], "those with the most");
        assert!(out(&[(1, 9)], 9, 0).is_empty(), "a tenth of nine is nobody");
    }

    #[test]
    fn between_equals_no_key_is_favoured() {
        let equals: Vec<(u8, u64)> = (0..20).map(|device| (device, 2)).collect();
        let mut times = [0; 20];
        for secret in 0..200 {
            out(&equals, 50, secret).into_iter().for_each(|device| times[usize::from(device)] += 1);
        }
        // Each is left out in a quarter of 200 servers; 4 standard deviations are 25.
        assert!(times.iter().all(|times| (25..75).contains(times)), "{times:?}");
    }
}
