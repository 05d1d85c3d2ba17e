//! Days as a device's clock tells them, for what is kept for so many days: text, and what was learned from it.
//!
//! **Clocks are wrong at times.** Who keeps something for days records the latest day that they were told beside it, durably. A clock that says less
//! than that was set back: as many days are taken from all that is recorded, so that nothing becomes younger, and what a clock that was years ahead has
//! recorded goes in as many days as anything else. A clock that is set forward ends early what is kept.
//!
//! **A clock that is not set**, as many are after a restart, stands still at the latest day. If it is never set, a day passes only when the device runs for longer
//! at a stretch than it ever has: such a device may keep things for ever, until they are deleted or make room.

/// The first of 2026, in days since 1970: a clock that says less is not set.
pub const CLOCK_IS_SET: u32 = 20_454;

/// What a clock says, compared with what was recorded by it before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Told {
    /// The day to go by.
    pub today: u32,
    /// The days that the clock was set back.
    back: u32,
}

impl Told {
    /// A clock says this day, and the latest that was recorded is that.
    #[must_use]
    pub const fn new(clock: u32, latest: u32) -> Self {
        let today = if clock < CLOCK_IS_SET && clock < latest { latest } else { clock };
        Self { today, back: latest.saturating_sub(today) }
    }

    /// A day that was recorded, by the clock as it is now.
    #[must_use]
    pub const fn recorded(&self, day: u32) -> u32 {
        day.saturating_sub(self.back)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_is_set_back_makes_nothing_younger_and_one_that_is_not_set_stands_still() {
        let now = CLOCK_IS_SET + 10;
        let of = |clock, latest, recorded| {
            let told = Told::new(clock, latest);
            (told.today, told.recorded(recorded))
        };
        assert_eq!(of(now + 3, now, now - 2), (now + 3, now - 2));
        assert_eq!(of(now, now + 3650, now + 3640), (now, now - 10));
        assert_eq!(of(CLOCK_IS_SET, now, now), (CLOCK_IS_SET, CLOCK_IS_SET), "it is set");
        assert_eq!(of(CLOCK_IS_SET - 1, now, now - 4), (now, now - 4), "it is not");
        // Never set: only what goes beyond the latest is time that passed.
        assert_eq!(of(3, 5, 1), (5, 1));
        assert_eq!(of(6, 5, 1), (6, 1));
    }
}
