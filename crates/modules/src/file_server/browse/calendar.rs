//! Dates in the proleptic Gregorian calendar, UTC.

use std::time::{SystemTime, UNIX_EPOCH};

/// A time in UTC, split into its fields, to the second. Times before 1970 are clamped to 1970-01-01.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Moment {
    pub(super) year: u64,
    pub(super) month: u64,
    pub(super) day: u64,
    pub(super) hour: u64,
    pub(super) minute: u64,
    pub(super) second: u64,
}

impl Moment {
    pub(super) fn of(time: SystemTime) -> Self {
        let seconds = time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let (days, rest) = (seconds / 86_400, seconds % 86_400);
        let (year, month, day) = date(days);
        Self { year, month, day, hour: rest / 3600, minute: rest / 60 % 60, second: rest % 60 }
    }

    /// Formats as `2026-11-21T20:25:26Z` (RFC 3339).
    pub(super) fn rfc3339(self) -> String {
        let Self { year, month, day, hour, minute, second } = self;
        format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
    }

    /// Formats as `2026-11-21 20:25`.
    pub(super) fn short(self) -> String {
        let Self { year, month, day, hour, minute, .. } = self;
        format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}")
    }

    pub(super) fn month_name(self) -> &'static str {
        const NAMES: [&str; 12] = [
            "January",
            "February",
            "March",
            "April",
            "May",
            "June",
            "July",
            "August",
            "September",
            "October",
            "November",
            "December",
        ];
        NAMES[(self.month - 1) as usize]
    }
}

/// Converts days since 1970 to year, month and day. Years are counted from March, so that a leap day is the last of its
/// year.
fn date(days: u64) -> (u64, u64, u64) {
    // Day 0 of this count is 1 March of the year 0, 719 468 days before 1970.
    let days = days + 719_468;
    // The calendar repeats every 400 years (an era), which have 146 097 days.
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    // From March on, the months' lengths repeat every five months with 153 days.
    let month_from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (400 * era + year_of_era + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn dates() {
        for (seconds, want) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (951_868_800, "2000-03-01T00:00:00Z"),
            (1_700_000_000, "2023-11-14T22:13:20Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            let moment = Moment::of(UNIX_EPOCH + Duration::from_secs(seconds));
            assert_eq!(moment.rfc3339(), want);
        }
        // Compare with an independent implementation.
        for day in (0..80_000).step_by(13) {
            let time = UNIX_EPOCH + Duration::from_secs(day * 86_400);
            let moment = Moment::of(time);
            let want = httpdate::fmt_http_date(time);
            let got = format!("{:02} {} {:04}", moment.day, &moment.month_name()[..3], moment.year);
            assert_eq!(got, want[5..16], "{day}");
        }
    }
}
