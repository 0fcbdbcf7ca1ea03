//! Times: Sprig's functions for dates, and the methods of Go's `time.Time`, with Go's layouts.

use std::rc::Rc;
use std::time::SystemTime;

use causeway_go_template::{Call, Failure, Functions, IntegerType, Object, Signature, Type, Value};
use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};

/// Adds the functions.
pub(super) fn with(functions: Functions) -> Functions {
    const TO_TEXT: Signature = Signature::fixed(&[Type::String, Type::Any]);
    const IN_ZONE: Signature = Signature::fixed(&[Type::String, Type::Any, Type::String]);
    const ANY: Signature = Signature::fixed(&[Type::Any]);
    functions
        .with("now", Signature::fixed(&[]), |_, _| Ok(time(Zoned::now())))
        .with("date", TO_TEXT, |_, arguments| Ok(formatted(&moment(&arguments[1]), &text(&arguments[0])).into()))
        .with("dateInZone", IN_ZONE, in_zone)
        .with("date_in_zone", IN_ZONE, in_zone)
        .with("htmlDate", ANY, |_, arguments| Ok(formatted(&moment(&arguments[0]), "2006-01-02").into()))
        .with("unixEpoch", ANY, |_, arguments| Ok(moment(&arguments[0]).timestamp().as_second().to_string().into()))
}

fn text(value: &Value) -> String {
    String::from_utf8_lossy(value.as_bytes().unwrap_or_default()).into_owned()
}

/// Returns a time: one of Go's, or seconds since 1970. Anything else is the present, as in Sprig.
fn moment(value: &Value) -> Zoned {
    if let Value::Object(object) = value
        && let Some(seconds) = object.field(NANOSECONDS).and_then(|value| value.as_integer())
        && let Ok(at) = Timestamp::from_nanosecond(i128::from(seconds))
    {
        let zone = object.field(ZONE).map(|zone| text(&zone)).and_then(|zone| TimeZone::get(&zone).ok());
        return at.to_zoned(zone.unwrap_or_else(TimeZone::system));
    }
    let at = value.as_integer().and_then(|seconds| Timestamp::from_second(seconds).ok());
    at.map_or_else(Zoned::now, |at| at.to_zoned(TimeZone::system()))
}

/// Formats in a zone by its name; an unknown name is UTC, as in Sprig.
fn in_zone(_: &mut Call<'_>, arguments: &[Value]) -> Result<Value, Failure> {
    let zone = TimeZone::get(&text(&arguments[2])).unwrap_or(TimeZone::UTC);
    Ok(formatted(&moment(&arguments[1]).with_time_zone(zone), &text(&arguments[0])).into())
}

/// Returns a time of the system in UTC; one that is out of range is the start of 1970.
pub(super) fn utc(at: SystemTime) -> Value {
    time(Timestamp::try_from(at).unwrap_or(Timestamp::UNIX_EPOCH).to_zoned(TimeZone::UTC))
}

fn time(at: Zoned) -> Value {
    Value::Object(Rc::new(Time(at)))
}

/// Fields by which the functions know a time again. No template can name them.
const NANOSECONDS: &str = " nanoseconds";
const ZONE: &str = " zone";

/// Go's `time.Time`.
#[derive(Debug)]
struct Time(Zoned);

impl Object for Time {
    fn type_name(&self) -> &str {
        "time.Time"
    }

    fn kind(&self) -> &str {
        "struct"
    }

    fn field(&self, name: &str) -> Option<Value> {
        match name {
            NANOSECONDS => i64::try_from(self.0.timestamp().as_nanosecond()).ok().map(Value::Int),
            ZONE => Some(self.0.time_zone().iana_name().unwrap_or("UTC").into()),
            _ => None,
        }
    }

    fn method(&self, name: &str) -> Option<Signature> {
        match name {
            "Format" => Some(Signature::fixed(&[Type::String])),
            "Year" | "Month" | "Day" | "Hour" | "Minute" | "Second" | "Weekday" | "YearDay" | "Unix" | "UTC"
            | "String" => Some(Signature::fixed(&[])),
            _ => None,
        }
    }

    fn invoke(&self, name: &str, arguments: &[Value], _: &mut Call<'_>) -> Result<Value, Failure> {
        let at = &self.0;
        Ok(match name {
            "Format" => formatted(at, &text(&arguments[0])).into(),
            "Year" => Value::Int(at.year().into()),
            // Go prints a month and a day of the week by name.
            "Month" => formatted(at, "January").into(),
            "Weekday" => formatted(at, "Monday").into(),
            "Day" => Value::Int(at.day().into()),
            "Hour" => Value::Int(at.hour().into()),
            "Minute" => Value::Int(at.minute().into()),
            "Second" => Value::Int(at.second().into()),
            "YearDay" => Value::Int(at.day_of_year().into()),
            "Unix" => Value::Integer(at.timestamp().as_second(), IntegerType::Int64),
            "UTC" => time(at.with_time_zone(TimeZone::UTC)),
            _ => formatted(at, "2006-01-02 15:04:05.999999999 -0700 MST").into(),
        })
    }

    fn text(&self) -> Option<String> {
        Some(formatted(&self.0, "2006-01-02 15:04:05.999999999 -0700 MST"))
    }
}

/// The parts of Go's layouts, and the conversions of `strftime` for them; longer ones before their beginnings.
const PARTS: &[(&str, &str)] = &[
    ("January", "%B"),
    ("Jan", "%b"),
    ("Monday", "%A"),
    ("Mon", "%a"),
    ("MST", "%Z"),
    ("2006", "%Y"),
    ("002", "%j"),
    ("01", "%m"),
    ("02", "%d"),
    ("03", "%I"),
    ("04", "%M"),
    ("05", "%S"),
    ("06", "%y"),
    ("15", "%H"),
    ("_2", "%e"),
    ("PM", "%p"),
    ("pm", "%P"),
    ("Z07:00", "%:z"),
    ("-07:00", "%:z"),
    ("Z0700", "%z"),
    ("-0700", "%z"),
    ("1", "%-m"),
    ("2", "%-d"),
    ("3", "%-I"),
    ("4", "%-M"),
    ("5", "%-S"),
];

/// Formats a time by Go's layout: an example, whose parts are replaced.
fn formatted(at: &Zoned, layout: &str) -> String {
    let mut out = String::new();
    let mut rest = layout;
    while !rest.is_empty() {
        if let Some((fraction, after)) = fraction(rest, at) {
            out.push_str(&fraction);
            rest = after;
            continue;
        }
        if let Some((part, conversion)) = PARTS.iter().find(|(part, _)| rest.starts_with(part)) {
            let is_utc = part.starts_with('Z') && at.offset().seconds() == 0;
            if is_utc {
                out.push('Z');
            } else {
                out.push_str(&at.strftime(conversion).to_string());
            }
            rest = &rest[part.len()..];
            continue;
        }
        let next = rest.chars().next().map_or(1, char::len_utf8);
        out.push_str(&rest[..next]);
        rest = &rest[next..];
    }
    out
}

/// Formats a fraction of a second: `.000` with all digits, `.999` without zeros at the end. Returns it and the rest of the layout.
fn fraction<'l>(layout: &'l str, at: &Zoned) -> Option<(String, &'l str)> {
    let digits = layout.strip_prefix(['.', ','])?;
    let kind = digits.chars().next().filter(|digit| matches!(digit, '0' | '9'))?;
    let after = digits.trim_start_matches(kind);
    let count = digits.len() - after.len();
    // Go: a digit after it makes it another number.
    if count > 9 || after.starts_with(|next: char| next.is_ascii_digit()) {
        return None;
    }
    let all = format!("{:09}", at.subsec_nanosecond());
    let shown = if kind == '9' { all[..count].trim_end_matches('0') } else { &all[..count] };
    Some((if shown.is_empty() { String::new() } else { format!("{}{shown}", &layout[..1]) }, after))
}

#[cfg(test)]
mod tests {
    use super::*;

    // Go, package time, "Constants": the parts of a layout.
    #[test]
    fn layouts() {
        let at: Zoned = "2009-02-03T14:05:06.070809+01:00[Europe/Berlin]".parse().unwrap();
        for (layout, want) in [
            ("Mon Jan _2 15:04:05 2006", "Tue Feb  3 14:05:06 2009"),
            ("Monday, 02-Jan-06 15:04:05 MST", "Tuesday, 03-Feb-09 14:05:06 CET"),
            ("2006-01-02T15:04:05Z07:00", "2009-02-03T14:05:06+01:00"),
            ("Mon, 02 Jan 2006 15:04:05 -0700", "Tue, 03 Feb 2009 14:05:06 +0100"),
            ("3:04PM 3:04pm 03 1/2 4 5", "2:05PM 2:05pm 02 2/3 5 6"),
            ("05.000 05.999999 05.999 05.0000", "06.070 06.070809 06.07 06.0708"),
            ("002 day January", "034 day February"),
            ("© 2006 ü %Y", "© 2009 ü %Y"),
            ("", ""),
        ] {
            assert_eq!(formatted(&at, layout), want, "{layout}");
        }
        let utc = at.with_time_zone(TimeZone::UTC);
        assert_eq!(formatted(&utc, "15:04Z07:00 Z0700 -07:00 MST"), "13:05Z Z +00:00 UTC");
    }
}
