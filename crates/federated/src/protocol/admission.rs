//! Who may enrol: a token of the operator's, or what a device's maker says of it.

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
