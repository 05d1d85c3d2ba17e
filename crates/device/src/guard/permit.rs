//! The purpose of an input, and the permit it needs to be sent.

use sha2::{Digest, Sha256};

/// The digest of a task: what the device was told to compute, and for whom. Without the latter a server could name a task of
/// somebody else's with a high step, and keep the device out of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskDigest(pub [u8; 32]);

/// The digest of a model. It is made from the parameters that the device trains, and in no other way: a digest that a server
/// only tells can be another one each time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ModelDigest([u8; 32]);

impl ModelDigest {
    /// SHA-256 of the parameters, little-endian.
    #[must_use]
    pub fn of(parameters: &[f32]) -> Self {
        let mut hash = Sha256::new();
        for values in parameters.chunks(1024) {
            hash.update(values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>());
        }
        Self(hash.finalize().into())
    }

    /// The same model where it is measured and not trained. What leaves then is no update: the two are different inputs about one model,
    /// and one of each may leave. Two of a kind may not, whatever the model is called.
    #[must_use]
    pub fn measured(&self) -> Self {
        Self(Sha256::new().chain_update(b"keyhush evaluation of a model v1").chain_update(self.0).finalize().into())
    }

    /// Its bytes, to compare with what an offer says.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// A permit for an input that is recorded.
    pub(super) const fn recorded(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }
}

/// The task, step and model of an input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asked {
    /// The task.
    pub task: TaskDigest,
    /// The step of the task's mechanism that the sum is for. A retry has the same step.
    pub step: u64,
    /// The model that it begins with, or that is measured ([`ModelDigest::measured`]).
    pub model: ModelDigest,
}

/// The permission to send one input, which is already recorded as sent. It cannot be made, copied or stored; if it is not used, it is lost.
#[derive(Debug)]
#[must_use = "the input is on record as gone: a permit that is dropped has cost the step"]
pub struct Permit {
    asked: Asked,
}

impl Permit {
    pub(super) const fn new(asked: Asked) -> Self {
        Self { asked }
    }

    /// The task, step and model of the input.
    #[must_use]
    pub const fn asked(&self) -> &Asked {
        &self.asked
    }

    /// Lets the one input go: it can be sent from here on.
    pub fn let_go<T>(self, input: T) -> Outgoing<T> {
        Outgoing { asked: self.asked, input }
    }
}

/// An input with its permit: what senders take. In the same attempt the same bytes may be sent again, where a connection
/// broke. Anything else needs another permit.
#[derive(Debug)]
#[must_use = "the input is on record as gone: send it"]
pub struct Outgoing<T> {
    asked: Asked,
    input: T,
}

impl<T> Outgoing<T> {
    /// The task, step and model of the input. A sender compares them with its destination.
    #[must_use]
    pub const fn asked(&self) -> &Asked {
        &self.asked
    }

    /// The input to send.
    #[must_use]
    pub const fn input(&self) -> &T {
        &self.input
    }
}
