//! Times: Sprig's functions for dates, and the methods of Go's `time.Time`.
//!
//! - `format`, `parse`: a time by a layout of Go, and back
//! - `duration`: Go's durations
//! - `integers`: Go's integers with a name, such as a month

mod duration;
mod format;
mod integers;
mod parse;

use std::any::Any;
use std::rc::Rc;
use std::time::SystemTime;

use causeway_go_template::{CallContext, FunctionError, Functions, IntegerType, Object, Signature, Type, Value};
use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Span, Timestamp, Zoned};

use super::text::string_of;
use format::formatted;
use integers::NamedInteger;
use parse::TimeError;

const RFC3339: &str = "2006-01-02T15:04:05.999999999Z07:00";
/// The layout of Go's `String`.
const PRINTED: &str = "2006-01-02 15:04:05.999999999 -0700 MST";

/// The message about a time that the server does not have.
const BEYOND: &str = "the time is out of range: the last one is 9999-12-30T22:00:00Z";

/// The current time, and the zone of times that have none.
#[derive(Clone)]
pub(super) struct Clock {
    pub(super) now: Timestamp,
    pub(super) zone: TimeZone,
}

impl Clock {
    fn now(&self) -> ZonedTime {
        ZonedTime::at(self.now, &self.zone)
    }

    /// Returns the nanoseconds since a time, saturated as Go's.
    fn since(&self, time: &ZonedTime) -> i64 {
        let difference = self.now.as_nanosecond() - time.at.timestamp().as_nanosecond();
        difference.clamp(i64::MIN.into(), i64::MAX.into()) as i64
    }
}

type Function = fn(&Clock, &[Value]) -> Result<Value, FunctionError>;

/// Adds the functions.
pub(super) fn with(functions: Functions, clock: &Clock) -> Functions {
    const ANY: &[Type] = &[Type::Any];
    const TEXTS: &[Type] = &[Type::String, Type::String];
    const TEXT_AND_ANY: &[Type] = &[Type::String, Type::Any];
    const IN_ZONE: &[Type] = &[Type::String, Type::Any, Type::String];
    let table: &[(&str, &'static [Type], Function)] = &[
        ("ago", ANY, ago),
        ("date", TEXT_AND_ANY, |clock, args| in_zone(clock, &string_of(&args[0]), &args[1], "Local")),
        ("dateInZone", IN_ZONE, |clock, args| in_zone(clock, &string_of(&args[0]), &args[1], &string_of(&args[2]))),
        ("dateModify", TEXT_AND_ANY, modify),
        ("date_in_zone", IN_ZONE, |clock, args| in_zone(clock, &string_of(&args[0]), &args[1], &string_of(&args[2]))),
        ("date_modify", TEXT_AND_ANY, modify),
        ("duration", ANY, |_, args| {
            let seconds = match &args[0] {
                Value::String(_) => duration::decimal(&string_of(&args[0])),
                Value::Integer(seconds, IntegerType::Int64) => *seconds,
                _ => 0,
            };
            Ok(duration::go_duration(seconds.wrapping_mul(1_000_000_000)).into())
        }),
        ("durationRound", ANY, |clock, args| {
            let nanoseconds = match &args[0] {
                Value::String(_) => duration::parse(&string_of(&args[0])).unwrap_or(0),
                Value::Integer(nanoseconds, IntegerType::Int64) => *nanoseconds,
                value => time(value).map_or(0, |time| clock.since(time)),
            };
            Ok(duration::rounded(nanoseconds).into())
        }),
        ("htmlDate", ANY, |clock, args| in_zone(clock, "2006-01-02", &args[0], "Local")),
        ("htmlDateInZone", &[Type::Any, Type::String], |clock, args| {
            in_zone(clock, "2006-01-02", &args[0], &string_of(&args[1]))
        }),
        ("mustDateModify", TEXT_AND_ANY, must_modify),
        ("mustToDate", TEXTS, |clock, args| {
            Ok(parse::parsed(&string_of(&args[0]), &string_of(&args[1]), &clock.zone)?.into())
        }),
        ("must_date_modify", TEXT_AND_ANY, must_modify),
        ("now", &[], |clock, _| Ok(clock.now().into())),
        ("toDate", TEXTS, |clock, args| {
            match parse::parsed(&string_of(&args[0]), &string_of(&args[1]), &clock.zone) {
                // As in Sprig, a text of another form is the zero time.
                Err(TimeError::Form(_)) => Ok(ZonedTime::zero().into()),
                parsed => Ok(parsed?.into()),
            }
        }),
        ("unixEpoch", ANY, |_, args| Ok(time(&args[0])?.at.timestamp().as_second().to_string().into())),
    ];
    table.iter().fold(functions, |functions, &(name, parameters, function)| {
        let clock = clock.clone();
        functions.with(name, Signature::fixed(parameters), move |call, arguments| {
            // The longest part of a layout has three times as many bytes in the output.
            call.charge_memory(
                256 + 4 * arguments.iter().map(|value| value.as_bytes().map_or(0, <[u8]>::len)).sum::<usize>(),
            )?;
            function(&clock, arguments)
        })
    })
}

/// Reads a text by the first of the layouts that it has the form of. A time without a zone is in `zone`.
pub(super) fn by_layouts(layouts: &[&str], text: &str, zone: &TimeZone) -> Option<Value> {
    layouts.iter().find_map(|layout| parse::parsed(layout, text, zone).ok()).map(Value::from)
}

/// Reads a text that has the form of a layout, as Go's `time.Parse`: a time without a zone is in UTC.
pub(super) fn timestamp(layout: &str, text: &str) -> Result<Timestamp, TimeError> {
    Ok(parse::parsed(layout, text, &TimeZone::UTC)?.at.timestamp())
}

/// Returns the time that a value is.
fn time(value: &Value) -> Result<&ZonedTime, FunctionError> {
    if let Value::Object(object) = value
        && let Some(time) = object.as_any().and_then(|object| object.downcast_ref())
    {
        return Ok(time);
    }
    Err(format!("wrong type for value; expected time.Time; got {}", value.type_name()).into())
}

/// Returns a time: one of Go's, or seconds since 1970. Anything else is the current time, as in Sprig.
fn moment(clock: &Clock, value: &Value) -> Result<ZonedTime, FunctionError> {
    match value {
        Value::Int(seconds) | Value::Integer(seconds, IntegerType::Int64 | IntegerType::Int32) => {
            let at = Timestamp::from_second(*seconds).map_err(|_| BEYOND)?;
            Ok(ZonedTime::at(at, &clock.zone))
        }
        value => Ok(time(value).cloned().unwrap_or_else(|_| clock.now())),
    }
}

/// Formats in a zone by its name; an unknown name is UTC, as in Sprig.
fn in_zone(clock: &Clock, layout: &str, value: &Value, zone: &str) -> Result<Value, FunctionError> {
    let zone = match zone {
        "" | "UTC" => TimeZone::UTC,
        "Local" => clock.zone.clone(),
        name => TimeZone::get(name).unwrap_or(TimeZone::UTC),
    };
    Ok(formatted(&ZonedTime::at(moment(clock, value)?.at.timestamp(), &zone), layout).into())
}

/// Adds a duration. As in Sprig, a text that is none changes nothing.
fn modify(_: &Clock, args: &[Value]) -> Result<Value, FunctionError> {
    let time = time(&args[1])?;
    match duration::parse(&string_of(&args[0])) {
        Ok(duration) => time.plus(duration),
        Err(_) => Ok(time.clone().into()),
    }
}

fn must_modify(_: &Clock, args: &[Value]) -> Result<Value, FunctionError> {
    time(&args[1])?.plus(duration::parse(&string_of(&args[0]))?)
}

fn ago(clock: &Clock, args: &[Value]) -> Result<Value, FunctionError> {
    const SECOND: i64 = 1_000_000_000;
    let since = clock.since(&moment(clock, &args[0])?);
    // To the next second, half away from 0.
    let rest = since % SECOND;
    let away = if rest.abs() * 2 >= SECOND { SECOND * rest.signum() } else { 0 };
    Ok(duration::go_duration((since - rest).saturating_add(away)).into())
}

/// Returns a time of the system in UTC; one that is out of range is the start of 1970.
pub(super) fn utc(at: SystemTime) -> Value {
    system_time(at, &TimeZone::UTC)
}

/// As [`utc`], in the zone of the system.
pub(super) fn local(at: SystemTime) -> Value {
    system_time(at, &TimeZone::system())
}

fn system_time(at: SystemTime, zone: &TimeZone) -> Value {
    ZonedTime::at(Timestamp::try_from(at).unwrap_or(Timestamp::UNIX_EPOCH), zone).into()
}

/// Go's `time.Time`.
#[derive(Clone, Debug)]
struct ZonedTime {
    at: Zoned,
    /// The name of a zone that is no more than a name and an offset.
    zone_name: Option<Rc<str>>,
}

impl ZonedTime {
    fn at(at: Timestamp, zone: &TimeZone) -> Self {
        Self { at: at.to_zoned(zone.clone()), zone_name: None }
    }

    /// Returns the start of the year 1, Go's zero value.
    fn zero() -> Self {
        Self::at(Timestamp::from_second(-62_135_596_800).unwrap_or(Timestamp::UNIX_EPOCH), &TimeZone::UTC)
    }

    fn plus(&self, nanoseconds: i64) -> Result<Value, FunctionError> {
        let sum = self.at.checked_add(SignedDuration::from_nanos(nanoseconds));
        let at = sum.map_err(|_| BEYOND)?;
        Ok(Self { at, zone_name: self.zone_name.clone() }.into())
    }

    /// Adds years, months and days. As in Go, a day beyond the end of a month is one of the next month.
    fn plus_date(&self, [years, months, days]: [i64; 3]) -> Result<Value, FunctionError> {
        let date = self.at.date();
        let sum = || {
            let months = (i64::from(date.year()).checked_add(years)?)
                .checked_mul(12)?
                .checked_add(i64::from(date.month()) - 1)?
                .checked_add(months)?;
            let year = i16::try_from(months.div_euclid(12)).ok()?;
            let first = Date::new(year, i8::try_from(months.rem_euclid(12) + 1).ok()?, 1).ok()?;
            let days = Span::new().try_days(days.checked_add(i64::from(date.day()) - 1)?).ok()?;
            let date = first.checked_add(days).ok()?;
            date.to_datetime(self.at.time()).to_zoned(self.at.time_zone().clone()).ok()
        };
        Ok(Self { at: sum().ok_or(BEYOND)?, zone_name: self.zone_name.clone() }.into())
    }
}

impl From<ZonedTime> for Value {
    fn from(time: ZonedTime) -> Self {
        Self::Object(Rc::new(time))
    }
}

impl Object for ZonedTime {
    fn type_name(&self) -> &str {
        "time.Time"
    }

    fn kind(&self) -> &str {
        "struct"
    }

    fn method(&self, name: &str) -> Option<Signature> {
        match name {
            "Format" => Some(Signature::fixed(&[Type::String])),
            "After" | "Before" | "Compare" | "Equal" | "Sub" => Some(Signature::fixed(&[Type::Any])),
            "AddDate" => Some(Signature::fixed(&[Type::Int, Type::Int, Type::Int])),
            "Year" | "Month" | "Day" | "Hour" | "Minute" | "Second" | "Nanosecond" | "Weekday" | "YearDay" | "Unix"
            | "UnixMilli" | "UTC" | "Local" | "IsZero" | "String" => Some(Signature::fixed(&[])),
            _ => None,
        }
    }

    fn invoke(&self, name: &str, arguments: &[Value], call: &mut CallContext<'_>) -> Result<Value, FunctionError> {
        let at = &self.at;
        Ok(match name {
            "Format" => {
                let layout = string_of(&arguments[0]);
                call.charge_memory(256 + 4 * layout.len())?;
                formatted(self, &layout).into()
            }
            "Year" => Value::Int(at.year().into()),
            "Month" => NamedInteger::month(at.month()),
            "Weekday" => NamedInteger::weekday(at.weekday().to_sunday_zero_offset()),
            "Day" => Value::Int(at.day().into()),
            "Hour" => Value::Int(at.hour().into()),
            "Minute" => Value::Int(at.minute().into()),
            "Second" => Value::Int(at.second().into()),
            "Nanosecond" => Value::Int(at.subsec_nanosecond().into()),
            "YearDay" => Value::Int(at.day_of_year().into()),
            "Unix" => {
                Value::Integer(at.timestamp().as_nanosecond().div_euclid(1_000_000_000) as i64, IntegerType::Int64)
            }
            "UnixMilli" => {
                Value::Integer(at.timestamp().as_nanosecond().div_euclid(1_000_000) as i64, IntegerType::Int64)
            }
            "UTC" => Self::at(at.timestamp(), &TimeZone::UTC).into(),
            "Local" => Self::at(at.timestamp(), &TimeZone::system()).into(),
            "After" => Value::Bool(at.timestamp() > time(&arguments[0])?.at.timestamp()),
            "Before" => Value::Bool(at.timestamp() < time(&arguments[0])?.at.timestamp()),
            "Compare" => Value::Int(at.timestamp().cmp(&time(&arguments[0])?.at.timestamp()) as i64),
            "Equal" => Value::Bool(at.timestamp() == time(&arguments[0])?.at.timestamp()),
            "Sub" => {
                let other = time(&arguments[0])?.at.timestamp();
                let difference = at.timestamp().as_nanosecond() - other.as_nanosecond();
                // Saturated as in Go.
                NamedInteger::duration(difference.clamp(i64::MIN.into(), i64::MAX.into()) as i64)
            }
            "AddDate" => {
                let number = |index: usize| arguments[index].as_integer().unwrap_or_default();
                return self.plus_date([number(0), number(1), number(2)]);
            }
            "IsZero" => Value::Bool(at.timestamp() == Self::zero().at.timestamp()),
            _ => formatted(self, PRINTED).into(),
        })
    }

    fn text(&self) -> Option<String> {
        Some(formatted(self, PRINTED))
    }

    fn json_text(&self) -> Option<String> {
        Some(formatted(self, RFC3339))
    }

    fn as_any(&self) -> Option<&dyn Any> {
        Some(self)
    }
}

#[cfg(test)]
mod tests;
