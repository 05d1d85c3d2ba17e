//! The device's own limits, the clock they are checked against, and the reasons to refuse an input.

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

/// The time, as a device knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    /// Milliseconds on a clock that never goes back, from any moment on.
    pub up_ms: u64,
    /// What the device takes for the time of day, in seconds since 1970. It may be wrong, and may be set.
    pub clock_s: u64,
}

impl Now {
    /// The day.
    #[must_use]
    pub fn day(self) -> Day {
        Day::at(self.clock_s)
    }
}

/// The device's own limits, over all tasks of all servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// MaxP: inputs that may leave within the window.
    pub most_inputs: u32,
    /// How long an input counts against it.
    pub window: Window,
    /// MinS: how far apart two steps of one task are, if the device asks for it.
    pub separation: Option<MinSeparation>,
    /// How long it rests after an input has left.
    pub timer: Timer,
}

/// How long a device rests after an input has left, in seconds, before the next one may: the timer of Xu et al. 2023, section 2.2. Zero is
/// no rest. Of the two the longer one holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Timer {
    /// The device's own: between any two inputs, whatever they are for.
    pub own_s: u64,
    /// The task's: between two inputs for it.
    pub task_s: u64,
}

impl Timer {
    /// No waiting time after an input.
    pub const NONE: Self = Self { own_s: 0, task_s: 0 };

    /// How long an input for a task waits for one that left before it, for the same task or for another.
    pub(super) const fn waits_s(self, same_task: bool) -> u64 {
        if same_task && self.task_s > self.own_s { self.task_s } else { self.own_s }
    }
}

/// How long an input counts against the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Window {
    /// On so many days, the day on which it left included.
    Days(NonZeroU32),
    /// No window: all inputs count.
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
    #[error("step {step}: an input for step {last} of this task was already sent, and steps only go forward")]
    Step {
        /// The requested step.
        step: u64,
        /// The last step with an input.
        last: u64,
    },
    /// An input for this model left already.
    #[error("an input for this same model was already sent; the sums of two of them could reveal it")]
    Model,
    /// Too many inputs left.
    #[error(
        "{have} inputs were sent and still count; this device allows {most} over all tasks, including failed attempts"
    )]
    TooMany {
        /// Inputs that count at present.
        have: u32,
        /// The largest number allowed.
        most: u32,
    },
    /// The last step of this task was too short a time ago.
    #[error(
        "step {step}: the last one was {last}, and this device keeps the steps of a task at least {distance} apart"
    )]
    TooSoon {
        /// The requested step.
        step: u64,
        /// The last step with an input.
        last: u64,
        /// How far apart they must be.
        distance: u64,
    },
    /// The last input left too short a time ago.
    #[error("this device rests for {} h after sending an input, and they have not passed yet", hours(*.wait_s))]
    Resting {
        /// The length of the rest, in seconds.
        wait_s: u64,
    },
    /// The guard cannot remember more inputs.
    #[error("this device has sent {MOST_INPUTS} inputs, the most that its guard can remember; it no longer takes part")]
    Full,
    /// What was to be made durable may not be.
    #[error("the input could not be recorded durably, so it is not sent")]
    NotSaved(#[from] StoreError),
    /// An earlier save failed.
    #[error("an earlier save failed; open the guard again to find out what was saved")]
    Unsure,
}

/// Seconds as hours, to a thousandth. How much of them is left is not said: one rest is one line of a diary.
pub(crate) fn hours(seconds: u64) -> String {
    let thousandths = u128::from(seconds).saturating_mul(1000).div_ceil(3600);
    let (whole, rest) = (thousandths / 1000, thousandths % 1000);
    let digits = format!("{whole}.{rest:03}");
    digits.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hours_are_short_and_never_too_few() {
        let known =
            [(0, "0"), (1, "0.001"), (36, "0.01"), (3600, "1"), (172_800, "48"), (8280, "2.3"), (3601, "1.001")];
        for (seconds, expected) in known {
            assert_eq!(hours(seconds), expected);
        }
        assert!(hours(u64::MAX).starts_with("5124095576030431"));
    }
}
