//! Seconds since 1970 as dates, in UTC.

/// A moment of the calendar, in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    year: u64,
    month: u64,
    day: u64,
    /// Seconds of the day.
    second: u64,
}

impl Moment {
    /// The moment so many seconds after 1970 began (Howard Hinnant's `civil_from_days`).
    #[must_use]
    pub const fn new(seconds: u64) -> Self {
        let z = seconds / 86_400 + 719_468;
        let (era, day_of_era) = (z / 146_097, z % 146_097);
        let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        // Years begin in March here.
        let month = (5 * day_of_year + 2) / 153;
        let day = day_of_year - (153 * month + 2) / 5 + 1;
        let month = if month < 10 { month + 3 } else { month - 9 };
        let year = year_of_era + era * 400 + (month <= 2) as u64;
        Self { year, month, day, second: seconds % 86_400 }
    }

    /// For the name of a folder: `2026-11-16-093005`.
    #[must_use]
    pub fn stamp(self) -> String {
        let Self { year, month, day, second } = self;
        format!("{year}-{month:02}-{day:02}-{:02}{:02}{:02}", second / 3600, second / 60 % 60, second % 60)
    }
}

impl std::fmt::Display for Moment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { year, month, day, second } = self;
        write!(f, "{year}-{month:02}-{day:02} {:02}:{:02} UTC", second / 3600, second / 60 % 60)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_those_of_the_calendar() {
        assert_eq!(Moment::new(0).to_string(), "1970-01-01 00:00 UTC");
        assert_eq!(Moment::new(951_782_400).to_string(), "2000-02-29 00:00 UTC");
        assert_eq!(Moment::new(1_794_787_199).stamp(), "2026-11-15-235959");
    }
}
