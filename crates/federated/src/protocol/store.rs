//! What a coordinator must remember after a crash: enrolled devices, participations, the open attempt.
//!
//! A coordinator decides, and a store keeps. Writes come in batches; a batch is one transaction, there whole or not at all, and durable
//! when [`Store::commit`] returns. What would break an invariant is refused by the store too, whatever the coordinator thinks: a
//! device joins one attempt of a step, a report is in a sum once.
//!
//! No update is ever kept. What is kept of a sum is sealed, under a key that is kept elsewhere and destroyed when the sum is released.

mod memory;

use device::{guard::TaskDigest, protocol::message::DeviceKey};
use thiserror::Error;

pub use self::memory::MemoryStore;

/// One attempt of one task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AttemptAt {
    /// The task.
    pub task: TaskDigest,
    /// The round of the task: the steps of all its streams, counted through.
    pub round: u64,
    /// The attempt at it.
    pub attempt: u32,
}

/// The state of a device in a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Standing {
    /// The last round that devices had been given when its key was enrolled; none where it was there before the task began
    /// (rule P18).
    pub since: Option<u64>,
    /// The last attempt that it was given; it gets no other of that round, whatever became of it (rules P18 and P24).
    pub joined: Option<(u64, u32)>,
    /// In how many rounds it took part, as far as anybody can know: counted when it is given the task, taken back when the
    /// attempt is settled and nothing of it had arrived.
    pub participations: u64,
    /// How many attempts it was assigned to failed because some device sent something other than agreed, or vanished
    /// ([`Write::Spoiled`]).
    pub spoiled: u64,
}

/// An attempt that is not settled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenAttempt {
    /// The attempt.
    pub at: AttemptAt,
    /// Who was given the task, in the order of their keys.
    pub assigned: Vec<DeviceKey>,
    /// Whose reports are in the sealed sum, in the order of their keys.
    pub merged: Vec<DeviceKey>,
    /// The sum of those reports, sealed; none before the first merge.
    pub sealed: Option<Vec<u8>>,
}

/// An address that devices enrol from, as a keyed digest: it can be counted, and nobody without the key can tell whose it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place(pub [u8; 16]);

/// The number of enrolments in one hour.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EnrolledInHour {
    /// The count for all addresses together.
    pub all: u64,
    /// From each address that is known, in the order of their digests.
    pub by_place: Vec<(Place, u64)>,
}

/// One change. A batch of them is a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Write {
    /// A device is known from now on. Again changes nothing. In every task of which any device was ever given a round, whether or not
    /// it runs now, the key waits as if it had been given the last one (rule P18).
    Enrol {
        /// Its key.
        device: DeviceKey,
        /// Days since 1970.
        day: u64,
    },
    /// A device enrolled in an hour. What was counted in any other hour goes.
    CountEnrolment {
        /// Hours since 1970.
        hour: u64,
        /// From where, if that is known.
        place: Option<Place>,
    },
    /// An attempt begins. There is no other of its task, or it is this one already.
    Open(AttemptAt),
    /// Devices are about to be given the task. Each joins, and counts as taking part.
    Assign {
        /// The attempt.
        at: AttemptAt,
        /// The devices' keys.
        devices: Vec<DeviceKey>,
    },
    /// A sum takes the place of the one before it, with more reports in it.
    Merge {
        /// The attempt.
        at: AttemptAt,
        /// The sum of all reports so far, sealed.
        sealed: Vec<u8>,
        /// Whose reports are new in it.
        reports: Vec<DeviceKey>,
    },
    /// What became of an attempt is in the ledger: what was kept of it goes.
    Settle {
        /// The attempt.
        at: AttemptAt,
        /// Who was given the task, and sent nothing at all: they did not take part. Their place in the round is used up.
        absent: Vec<DeviceKey>,
    },
    /// Keeps bytes that never change, as they are sent.
    KeepBlob {
        /// SHA-256 of what they are when they are unpacked.
        digest: [u8; 32],
        /// gzip.
        packed: Vec<u8>,
    },
    /// Keeps the model that devices of a task are given, as [`Write::KeepBlob`] does. The one before it goes, unless another task gives it.
    KeepModel {
        /// The task.
        task: TaskDigest,
        /// SHA-256 of its parameters.
        digest: [u8; 32],
        /// gzip.
        packed: Vec<u8>,
    },
    /// An attempt failed because of one of its devices, and it is not known which: it counts for all of them.
    Spoiled(AttemptAt),
    /// A task has ended permanently: what is known of devices in it is deleted, with their assignments. The devices stay, for other tasks.
    Forget {
        /// The task.
        task: TaskDigest,
    },
}

/// Why a store does not do what it should.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum StoreError {
    /// The batch would break an invariant; nothing of it was kept. A bug of the coordinator, or two of them.
    #[error("refused, and nothing was stored: {0}")]
    Refused(String),
    /// It is not known what is durable: the server must stop, and begin again from what is there.
    #[error("the store failed: {0}")]
    Failed(String),
}

/// Keeps what a coordinator must not forget.
pub trait Store: Send + Sync {
    /// Which server this is: drawn once, when the store was made.
    ///
    /// # Errors
    /// When it cannot be read.
    fn realm(&self) -> Result<[u8; 32], StoreError>;

    /// Whether a device is enrolled.
    ///
    /// # Errors
    /// When that cannot be read.
    fn is_enrolled(&self, device: &DeviceKey) -> Result<bool, StoreError>;

    /// How many devices are enrolled.
    ///
    /// # Errors
    /// When that cannot be read.
    fn enrolled(&self) -> Result<u64, StoreError>;

    /// How many devices enrolled in an hour, as far as [`Write::CountEnrolment`] has said so.
    ///
    /// # Errors
    /// When that cannot be read.
    fn enrolled_in(&self, hour: u64) -> Result<EnrolledInHour, StoreError>;

    /// How many different devices were ever given a round of a task, whatever became of it.
    ///
    /// # Errors
    /// When that cannot be read.
    fn asked(&self, task: &TaskDigest) -> Result<u64, StoreError>;

    /// Where a device stands in a task; the default where nothing is known.
    ///
    /// # Errors
    /// When that cannot be read.
    fn standing(&self, task: &TaskDigest, device: &DeviceKey) -> Result<Standing, StoreError>;

    /// Who was given at least so many attempts of a task that were spoiled, and how many.
    ///
    /// # Errors
    /// When that cannot be read.
    fn spoiled(&self, task: &TaskDigest, least: u64) -> Result<Vec<(DeviceKey, u64)>, StoreError>;

    /// The attempt of a task that is not settled.
    ///
    /// # Errors
    /// When that cannot be read.
    fn open_attempt(&self, task: &TaskDigest) -> Result<Option<OpenAttempt>, StoreError>;

    /// Bytes that never change, as they are sent (gzip).
    ///
    /// # Errors
    /// When they cannot be read.
    fn blob(&self, digest: &[u8; 32]) -> Result<Option<Vec<u8>>, StoreError>;

    /// One transaction: all of it or nothing, durable when this returns.
    ///
    /// # Errors
    /// When an invariant would be broken, or it is not known whether it is durable.
    fn commit(&self, batch: &[Write]) -> Result<(), StoreError>;
}
