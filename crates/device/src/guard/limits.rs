//! The device's own limits, in days, and why an input may not leave.

use std::num::NonZeroU32;

use privacy::units::MinSeparation;
use thiserror::Error;

use super::{history::MOST_INPUTS, store::StoreError};

/// A day, counted from 1970 (UTC). The guard knows no finer time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Day(pub(super) u32);

impl Day {
    /// The day of a time in seconds since 1970. The clock is the device's own, never the server's.
    #[must_use]
    pub fn at(seconds: u64) -> Self {
        const DAY: u64 = 24 * 60 * 60;
        Self(u32::try_from(seconds / DAY).unwrap_or(u32::MAX))
    }

    /// How many days after the first of January 1970 it is.
    #[must_use]
    pub const fn number(self) -> u32 {
        self.0
    }
}

/// What a device allows itself, over all tasks of all servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// MaxP: inputs that may leave within the window.
    pub most_inputs: u32,
    /// How long an input counts against it.
    pub window: Window,
    /// MinS: how far apart two steps of one task are, if the device asks for it.
    pub separation: Option<MinSeparation>,
}

/// How long an input counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Window {
    /// On so many days, the day on which it left included.
    Days(NonZeroU32),
    /// For ever.
    Ever,
}

impl Window {
    /// Whether what left on one day still counts on a later one.
    pub(super) fn holds(self, left: Day, today: Day) -> bool {
        match self {
            Self::Days(days) => u64::from(today.0) < u64::from(left.0) + u64::from(days.get()),
            Self::Ever => true,
        }
    }
}

/// Why an input may not leave. For the device itself: told to a server, it would tell of other tasks.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Refused {
    /// An input for this step left already, or one for a later step did.
    #[error("step {step}: an input for step {last} of this task has left already, and steps only go forward")]
    Step {
        /// What was asked for.
        step: u64,
        /// The last one.
        last: u64,
    },
    /// An input for this model left already.
    #[error("an input for this very model has left already: two of them could be told apart by their sums")]
    Model,
    /// Too many inputs left.
    #[error(
        "{have} inputs have left and still count; this device allows {most}, over all tasks, failed attempts included"
    )]
    TooMany {
        /// What counts now.
        have: u32,
        /// What is allowed.
        most: u32,
    },
    /// The last step of this task was too short a time ago.
    #[error("step {step}: the last one was {last}, and this device keeps steps of a task {distance} apart")]
    TooSoon {
        /// What was asked for.
        step: u64,
        /// The last one.
        last: u64,
        /// How far apart they must be.
        distance: u64,
    },
    /// No more fits in.
    #[error(
        "this device has let go of {MOST_INPUTS} inputs; to remember more it would have to forget, so it takes part no more"
    )]
    Full,
    /// What was to be made durable may not be.
    #[error("what leaves could not be made durable, so it does not leave")]
    NotSaved(#[from] StoreError),
    /// An earlier save failed.
    #[error("an earlier save failed, so what is durable is not known: open the guard again")]
    Unsure,
}
