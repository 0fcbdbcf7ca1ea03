//! The clock and durations.

use std::time::{Duration, SystemTime};

use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};

use super::write;

/// How the present moment is written.
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
    /// From what follows `time.now`.
    pub(super) fn find(name: &str) -> Option<Self> {
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
                // UTC is written as a letter there.
                let format = if zoned.offset().is_zero() { "%Y-%m-%dT%H:%M:%SZ" } else { "%Y-%m-%dT%H:%M:%S%:z" };
                write(out, format_args!("{}", zoned.strftime(format)));
            }
            Self::CommonLog => write(out, format_args!("{}", zoned().strftime("%d/%b/%Y:%H:%M:%S %z"))),
            Self::Written => write(out, format_args!("{}", zoned().strftime("%Y-%m-%d %H:%M:%S.%f %z %Z"))),
        }
    }
}

/// Appends a duration as Go writes it: `1h2m3.5s`, `1.5ms`, `0s`.
pub fn go_duration(duration: Duration, out: &mut Vec<u8>) {
    let nanoseconds = duration.as_nanos();
    let (unit, per) = match nanoseconds {
        0 => return out.extend_from_slice(b"0s"),
        1..1_000 => ("ns", 1),
        1_000..1_000_000 => ("µs", 1_000),
        1_000_000..1_000_000_000 => ("ms", 1_000_000),
        _ => ("s", 1_000_000_000),
    };
    let mut rest = nanoseconds;
    if unit == "s" {
        let (hours, minutes) = (rest / 3_600_000_000_000, rest / 60_000_000_000 % 60);
        if hours > 0 {
            write(out, format_args!("{hours}h"));
        }
        if hours > 0 || minutes > 0 {
            write(out, format_args!("{minutes}m"));
        }
        rest %= 60_000_000_000;
    }
    write(out, format_args!("{}", rest / per));
    let mut fraction = rest % per;
    if fraction > 0 {
        out.push(b'.');
        let mut digit = per / 10;
        while fraction > 0 {
            out.push(b'0' + (fraction / digit) as u8);
            fraction %= digit;
            digit /= 10;
        }
    }
    out.extend_from_slice(unit.as_bytes());
}
