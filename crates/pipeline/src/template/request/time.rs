//! Placeholders of the clock.

use std::time::SystemTime;

use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};

use super::write;

/// A format of the current time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::template) enum Clock {
    Written,
    Http,
    Rfc3339,
    CommonLog,
    Year,
    Unix,
    UnixMs,
}

impl Clock {
    /// Parses the rest of a name after `time.now`.
    pub(in crate::template) fn find(name: &str) -> Option<Self> {
        Some(match name {
            "" => Self::Written,
            ".http" => Self::Http,
            ".rfc3339" => Self::Rfc3339,
            ".common_log" => Self::CommonLog,
            ".year" => Self::Year,
            ".unix" => Self::Unix,
            ".unix_ms" => Self::UnixMs,
            _ => return None,
        })
    }

    pub(super) fn render(self, now: SystemTime, out: &mut Vec<u8>) {
        let since = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let zoned = || {
            let stamp = Timestamp::try_from(now).unwrap_or(Timestamp::MAX);
            Zoned::new(stamp, TimeZone::system())
        };
        match self {
            Self::Unix => write(out, format_args!("{}", since.as_secs())),
            Self::UnixMs => write(out, format_args!("{}", since.as_millis())),
            Self::Http => write(out, format_args!("{}", httpdate::HttpDate::from(now))),
            Self::Year => write(out, format_args!("{}", zoned().year())),
            Self::Rfc3339 => {
                let zoned = zoned();
                // RFC 3339 allows both `Z` and `+00:00` for UTC; Go writes `Z`.
                let format = if zoned.offset().is_zero() { "%Y-%m-%dT%H:%M:%SZ" } else { "%Y-%m-%dT%H:%M:%S%:z" };
                write(out, format_args!("{}", zoned.strftime(format)));
            }
            Self::CommonLog => write(out, format_args!("{}", zoned().strftime("%d/%b/%Y:%H:%M:%S %z"))),
            Self::Written => write(out, format_args!("{}", zoned().strftime("%Y-%m-%d %H:%M:%S.%f %z %Z"))),
        }
    }
}
