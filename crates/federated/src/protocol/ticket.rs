//! Tickets: identify a participation in all messages after its assignment.
//!
//! A ticket is a MAC over device, task, round, attempt and model under the key of the round, so it is bound to all of them, cannot be
//! guessed, and needs no record: after a restart the same ones hold.

use device::protocol::message::{DeviceKey, Ticket};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use zeroize::Zeroizing;

use super::store::AttemptAt;

/// The secret of one attempt: its tickets, and the seal of its sum, follow from it. It is destroyed with the sum.
#[derive(Clone)]
pub struct RoundKey(Zeroizing<[u8; 32]>);

impl std::fmt::Debug for RoundKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("RoundKey")
    }
}

impl RoundKey {
    /// The key of these bytes.
    #[must_use]
    pub const fn new(bytes: Zeroizing<[u8; 32]>) -> Self {
        Self(bytes)
    }

    /// The ticket of a device.
    #[must_use]
    pub fn ticket(&self, at: &AttemptAt, model: &[u8; 32], device: &DeviceKey) -> Ticket {
        let AttemptAt { task, round, attempt } = at;
        Ticket(self.mac(b"ticket", &[&task.0, &round.to_le_bytes(), &attempt.to_le_bytes(), model, &device.0]))
    }

    /// What the sum of the attempt is sealed with.
    #[must_use]
    pub fn seal(&self, at: &AttemptAt) -> privacy::stages::SealingKey {
        let AttemptAt { task, round, attempt } = at;
        let bytes = self.mac(b"seal", &[&task.0, &round.to_le_bytes(), &attempt.to_le_bytes()]);
        privacy::stages::SealingKey::from_secret_bytes(Zeroizing::new(bytes))
    }

    fn mac(&self, purpose: &[u8], parts: &[&[u8]]) -> [u8; 32] {
        let mut mac = Hmac::<Sha256>::new_from_slice(&*self.0).expect("HMAC takes keys of any length");
        mac.update(b"keyhush round key v1\0");
        mac.update(purpose);
        mac.update(&[0]);
        parts.iter().for_each(|part| mac.update(part));
        mac.finalize().into_bytes().into()
    }
}
