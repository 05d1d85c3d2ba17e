//! What operators of a server may see of its rounds (rule P26): counts and times, and no device in any of them.
//!
//! When an attempt ends, the coordinator counts how the parts of its devices went, as Bonawitz et al., "Towards Federated Learning at Scale:
//! System Design" (MLSys 2019), do in table 1: each part is a string of signs, its *session shape*. There devices log their own steps; a server sees only
//! what they say to it, so some signs follow from others:
//!
//! | sign | there                | here                                                                                            |
//! |------|----------------------|-------------------------------------------------------------------------------------------------|
//! | `-`  | checked in           | the device was given the attempt                                                                |
//! | `v`  | downloaded the plan  | follows from what comes later: tasks and models are asked for by digest, and nobody says who asks |
//! | `[`  | training started     | never seen; follows from an upload                                                              |
//! | `]`  | training completed   | the same                                                                                        |
//! | `+`  | upload started       | the first chunk of a report came, or was offered                                                |
//! | `^`  | upload completed     | the report is in the sum; with secure aggregation, the masked input was taken                   |
//! | `#`  | upload rejected      | the attempt needed no more reports, or the device's time was over                               |
//! | `!`  | interrupted          | nothing more was heard in time                                                                  |
//! | `*`  | error                | what came was no report, or broke its bounds                                                    |
//!
//! So a device that vanished while it trained and one that vanished before it downloaded anything have the same shape, `-!`: the server cannot tell.
//! Of devices that were given the attempt before a restart, only what they said since then is known.

use std::ops::AddAssign;

use super::store::AttemptAt;

/// How the part of a device in an attempt went, as far as a server can see.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Shape {
    /// Its report is in the sum, or its masked input was taken.
    Completed,
    /// Its report came when it was not needed any more, or too late.
    Rejected,
    /// What it sent was no report, or broke its bounds.
    Wrong,
    /// It began to send a report, and did not finish.
    BrokeOff,
    /// It said something in secure aggregation, and vanished before its input came.
    Spoke,
    /// Nothing was heard of it.
    Silent,
}

impl Shape {
    /// All shapes, the usual one first.
    pub const ALL: [Self; 6] =
        [Self::Completed, Self::Rejected, Self::Wrong, Self::BrokeOff, Self::Spoke, Self::Silent];

    /// Its signs.
    #[must_use]
    pub const fn signs(self) -> &'static str {
        match self {
            Self::Completed => "-v[]+^",
            Self::Rejected => "-v[]+#",
            Self::Wrong => "-v[]+*",
            Self::BrokeOff => "-v[]+!",
            Self::Spoke => "-v!",
            Self::Silent => "-!",
        }
    }

    /// What it means, in a few words.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Completed => "report accepted",
            Self::Rejected => "report came too late, or was not needed any more",
            Self::Wrong => "sent something that is not a valid report",
            Self::BrokeOff => "started to send its report and did not finish",
            Self::Spoke => "answered, then vanished before its report",
            Self::Silent => "was given the round, then vanished",
        }
    }
}

/// How many devices had a part of each shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Shapes([u64; Shape::ALL.len()]);

impl Shapes {
    /// One more device.
    pub const fn count(&mut self, shape: Shape) {
        self.0[shape as usize] += 1;
    }

    /// The devices with this shape.
    #[must_use]
    pub const fn of(&self, shape: Shape) -> u64 {
        self.0[shape as usize]
    }

    /// How many there are of all shapes together.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }
}

impl AddAssign for Shapes {
    fn add_assign(&mut self, other: Self) {
        self.0.iter_mut().zip(other.0).for_each(|(count, more)| *count += more);
    }
}

/// What a device has said in its part, as far as its shape depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Signs {
    pub(super) spoke: bool,
    pub(super) began: bool,
    pub(super) completed: bool,
    pub(super) rejected: bool,
    pub(super) wrong: bool,
}

impl Signs {
    /// The shape of a part that ends with these.
    pub(super) const fn shape(self) -> Shape {
        match self {
            Self { completed: true, .. } => Shape::Completed,
            Self { wrong: true, .. } => Shape::Wrong,
            Self { rejected: true, .. } => Shape::Rejected,
            Self { began: true, .. } => Shape::BrokeOff,
            Self { spoke: true, .. } => Shape::Spoke,
            _ => Shape::Silent,
        }
    }
}

/// Something that happened to an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    /// It was opened, or opened again after a restart.
    Opened {
        /// The attempt.
        at: AttemptAt,
        /// How many reports the sum is of.
        goal: u64,
        /// Whether sums are made securely.
        secure: bool,
    },
    /// It is settled: its end is in the ledger.
    Settled {
        /// The attempt.
        at: AttemptAt,
        /// Whether its sum was released.
        released: bool,
        /// Its devices and reports at the end.
        progress: Progress,
        /// How the parts went that are over. Devices that are still at work follow.
        shapes: Shapes,
    },
    /// More devices of an attempt that was settled are done, or were waited for long enough.
    Ended {
        /// The attempt.
        at: AttemptAt,
        /// How their parts went.
        shapes: Shapes,
    },
}

/// How far an attempt is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Progress {
    /// Devices that were given it.
    pub asked: u64,
    /// Reports in the sum; with secure aggregation, masked inputs that were taken.
    pub reported: u64,
    /// Devices that have dropped out: their time was over, or what they sent was no report.
    pub dropped: u64,
    /// Since when devices have it, in milliseconds since 1970.
    pub since_ms: Option<u64>,
}

/// How a task stands at this moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TaskNow {
    /// Devices in the lobby that wait for it. One may wait for several tasks.
    pub waiting: u64,
    /// The attempt that is open.
    pub open: Option<(AttemptAt, Progress)>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shape_is_counted_in_its_own_place_and_has_its_own_signs() {
        let mut shapes = Shapes::default();
        for (many, shape) in Shape::ALL.into_iter().enumerate() {
            (0..=many).for_each(|_| shapes.count(shape));
        }
        let counts: Vec<u64> = Shape::ALL.iter().map(|shape| shapes.of(*shape)).collect();
        assert_eq!((counts, shapes.total()), (vec![1, 2, 3, 4, 5, 6], 21));
        let mut signs: Vec<&str> = Shape::ALL.iter().map(|shape| shape.signs()).collect();
        signs.sort_unstable();
        signs.dedup();
        assert_eq!(signs.len(), Shape::ALL.len());
        assert!(
            signs.iter().all(|signs| signs.starts_with('-') && signs.chars().all(|sign| "-v[]+^#!*".contains(sign)))
        );
    }

    #[test]
    fn the_last_thing_a_device_did_decides() {
        let began = Signs { spoke: true, began: true, ..Signs::default() };
        assert_eq!(Signs::default().shape(), Shape::Silent);
        assert_eq!(Signs { spoke: true, ..Signs::default() }.shape(), Shape::Spoke);
        assert_eq!(began.shape(), Shape::BrokeOff);
        assert_eq!(Signs { rejected: true, ..began }.shape(), Shape::Rejected);
        assert_eq!(
            Signs { wrong: true, rejected: true, ..began }.shape(),
            Shape::Wrong,
            "it came again, and was refused"
        );
        assert_eq!(Signs { completed: true, rejected: true, ..began }.shape(), Shape::Completed);
    }
}
