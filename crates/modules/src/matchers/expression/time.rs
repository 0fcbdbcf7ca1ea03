//! Timestamps and durations of CEL: their texts, their arithmetic and the functions that take them apart.

use std::io::Write as _;

use causeway_pipeline::build::nanoseconds;
use jiff::civil::Weekday;
use jiff::fmt::temporal::Pieces;
use jiff::tz::{Offset, TimeZone};
use jiff::{SignedDuration, Timestamp};

use super::evaluate::{Evaluated, Halt, no_overload};
use super::function::Type;
use super::program::Arithmetic;
use super::value::Value;

/// A part of a timestamp or of a duration. Months, days of the month and days of the year count from 0, as in CEL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TimePart {
    Year,
    Month,
    /// The day of the month, from 1.
    Date,
    DayOfMonth,
    /// Sunday is 0.
    DayOfWeek,
    DayOfYear,
    Hours,
    Minutes,
    Seconds,
    Milliseconds,
}

/// The functions that return a part of a timestamp or duration. They are called on it, with a time zone or without one.
const PARTS: &[(&str, TimePart)] = &[
    ("getFullYear", TimePart::Year),
    ("getMonth", TimePart::Month),
    ("getDate", TimePart::Date),
    ("getDayOfMonth", TimePart::DayOfMonth),
    ("getDayOfWeek", TimePart::DayOfWeek),
    ("getDayOfYear", TimePart::DayOfYear),
    ("getHours", TimePart::Hours),
    ("getMinutes", TimePart::Minutes),
    ("getSeconds", TimePart::Seconds),
    ("getMilliseconds", TimePart::Milliseconds),
];

const RANGE: Halt = Halt::Error("an expression's time or duration is out of range");

/// Parses a timestamp of RFC 3339, with its `T` and its offset.
///
/// The last day of the year 9999 is beyond jiff's range. Expressions have it for "never", so that it is the last
/// timestamp.
pub(super) fn timestamp(text: &str) -> Option<Timestamp> {
    // jiff also reads other forms of ISO 8601: with a space, without seconds, or with a zone in brackets.
    let byte = |at: usize| text.as_bytes().get(at).copied();
    let is_strict = byte(10) == Some(b'T') && byte(16) == Some(b':') && !text.ends_with(']');
    if !is_strict {
        return None;
    }
    let parsed = text.parse().ok();
    let has_offset = || Pieces::parse(text).is_ok_and(|pieces| pieces.offset().is_some());
    parsed.or_else(|| (text.starts_with("9999-12-3") && has_offset()).then_some(Timestamp::MAX))
}

/// Returns the timestamp of so many seconds since 1970, with the same last one.
pub(super) fn from_seconds(seconds: i64) -> Option<Timestamp> {
    // CEL's last second is that of the year 9999.
    let is_last = (Timestamp::MAX.as_second()..=253_402_300_799).contains(&seconds);
    Timestamp::from_second(seconds).ok().or_else(|| is_last.then_some(Timestamp::MAX))
}

/// Parses a duration in Go's notation.
pub(super) fn duration(text: &str) -> Option<SignedDuration> {
    // Caddy's own durations have days too; CEL's have none.
    nanoseconds(text).filter(|_| !text.contains('d')).map(SignedDuration::from_nanos)
}

/// Finds a time zone: a name of the IANA's database, or an offset such as `-05:30`.
pub(super) fn zone(name: &str) -> Option<TimeZone> {
    let Some((hours, minutes)) = name.split_once(':') else {
        return match name {
            "" => Some(TimeZone::UTC),
            "Local" => Some(TimeZone::system()),
            _ => TimeZone::get(name).ok(),
        };
    };
    let sign = if hours.starts_with('-') { -1 } else { 1 };
    let (hours, minutes): (i32, i32) = (hours.parse().ok()?, minutes.parse().ok()?);
    let seconds = hours.checked_mul(3600)?.checked_add(minutes.checked_mul(sign * 60)?)?;
    Offset::from_seconds(seconds).ok().map(TimeZone::fixed)
}

/// Returns the type of a sum or difference of which at least one side is a timestamp or duration.
pub(super) fn type_of(operator: Arithmetic, one: Type, other: Type) -> Option<Type> {
    use Type::{Duration, Dyn, Time};
    Some(match (operator, one, other) {
        (Arithmetic::Add, Time, Duration | Dyn) | (Arithmetic::Add, Duration | Dyn, Time) => Time,
        (Arithmetic::Subtract, Time, Duration) => Time,
        (Arithmetic::Subtract, Time | Dyn, Time) => Duration,
        (Arithmetic::Add | Arithmetic::Subtract, Duration, Duration) | (Arithmetic::Subtract, Duration, Dyn) => {
            Duration
        }
        // The other side decides at run time.
        (Arithmetic::Add, Duration, Dyn) | (Arithmetic::Add | Arithmetic::Subtract, Dyn, Duration) => Dyn,
        (Arithmetic::Subtract, Time, Dyn) => Dyn,
        _ => return None,
    })
}

/// Adds or subtracts timestamps and durations.
pub(super) fn arithmetic(operator: Arithmetic, one: Value, other: Value) -> Evaluated {
    let result = match (operator, one, other) {
        (Arithmetic::Add, Value::Time(time), Value::Duration(span))
        | (Arithmetic::Add, Value::Duration(span), Value::Time(time)) => time.checked_add(span).ok().map(Value::Time),
        (Arithmetic::Subtract, Value::Time(time), Value::Duration(span)) => {
            time.checked_sub(span).ok().map(Value::Time)
        }
        (Arithmetic::Subtract, Value::Time(one), Value::Time(other)) => {
            Some(Value::Duration(one.duration_since(other)))
        }
        (Arithmetic::Add, Value::Duration(one), Value::Duration(other)) => one.checked_add(other).map(Value::Duration),
        (Arithmetic::Subtract, Value::Duration(one), Value::Duration(other)) => {
            one.checked_sub(other).map(Value::Duration)
        }
        _ => return no_overload(),
    };
    result.ok_or(RANGE)
}

impl TimePart {
    /// Returns the part that a function returns.
    pub(super) fn named(function: &str) -> Option<Self> {
        PARTS.iter().find(|(known, _)| *known == function).map(|(_, part)| *part)
    }

    /// Returns whether durations have this part too.
    pub(super) fn is_of_durations(self) -> bool {
        matches!(self, Self::Hours | Self::Minutes | Self::Seconds | Self::Milliseconds)
    }

    /// Returns the part of a timestamp in a time zone, or of a whole duration.
    pub(super) fn of(self, value: Value, zone: &TimeZone) -> Evaluated {
        let time = match value {
            Value::Time(time) => time.to_zoned(zone.clone()),
            Value::Duration(span) => {
                return Ok(Value::Int(match self {
                    Self::Hours => span.as_hours(),
                    Self::Minutes => span.as_mins(),
                    Self::Seconds => span.as_secs(),
                    Self::Milliseconds => i64::try_from(span.as_millis()).map_err(|_| RANGE)?,
                    _ => return no_overload(),
                }));
            }
            _ => return no_overload(),
        };
        Ok(Value::Int(match self {
            Self::Year => time.year().into(),
            Self::Month => i64::from(time.month()) - 1,
            Self::Date => time.day().into(),
            Self::DayOfMonth => i64::from(time.day()) - 1,
            Self::DayOfWeek => time.weekday().since(Weekday::Sunday).into(),
            Self::DayOfYear => i64::from(time.day_of_year()) - 1,
            Self::Hours => time.hour().into(),
            Self::Minutes => time.minute().into(),
            Self::Seconds => time.second().into(),
            Self::Milliseconds => time.millisecond().into(),
        }))
    }
}

/// Appends a timestamp as RFC 3339 has it, in UTC.
pub(super) fn write_timestamp(time: Timestamp, out: &mut Vec<u8>) {
    // Writing to a vector cannot fail.
    let _ = write!(out, "{time}");
}

/// Appends a duration as CEL has it: seconds, with as many decimals as needed.
pub(super) fn write_duration(span: SignedDuration, out: &mut Vec<u8>) {
    let _ = write!(out, "{}s", span.as_secs_f64());
}
