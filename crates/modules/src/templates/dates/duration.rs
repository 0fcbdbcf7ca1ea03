//! Go's `time.Duration`, in nanoseconds.

use std::time::Duration;

use causeway_pipeline::build;

const SECOND: u64 = 1_000_000_000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;
/// The magnitude of the smallest duration.
const MAGNITUDE_MAX: u64 = 1 << 63;

/// Parses a sequence of numbers with units, such as `1h15m30.5s`. Unlike the durations of configurations, it has no
/// days, and its fractions are rounded and its errors worded as Go's.
pub(super) fn parse(text: &str) -> Result<i64, String> {
    let invalid = || format!("time: invalid duration {text:?}");
    let is_negative = text.starts_with('-');
    let mut rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    if rest == "0" {
        return Ok(0);
    }
    if rest.is_empty() {
        return Err(invalid());
    }
    let mut total = 0_u64;
    while !rest.is_empty() {
        let (whole, after) = digits(rest);
        let (fraction, after) = match after.strip_prefix('.') {
            Some(after) => digits(after),
            None => ("", after),
        };
        if whole.is_empty() && fraction.is_empty() {
            return Err(invalid());
        }
        let name = after.split(|c: char| c == '.' || c.is_ascii_digit()).next().unwrap_or_default();
        let unit = match name {
            "ns" => 1,
            // U+00B5, and U+03BC.
            "us" | "µs" | "μs" => 1000,
            "ms" => 1_000_000,
            "s" => SECOND,
            "m" => MINUTE,
            "h" => HOUR,
            "" => return Err(format!("time: missing unit in duration {text:?}")),
            _ => return Err(format!("time: unknown unit {name:?} in duration {text:?}")),
        };
        let whole = if whole.is_empty() { Some(0) } else { whole.parse::<u64>().ok() };
        let value = whole.and_then(|whole| whole.checked_mul(unit)).filter(|value| *value <= MAGNITUDE_MAX);
        let sum = value.and_then(|value| value.checked_add(part(fraction, unit))?.checked_add(total));
        total = sum.filter(|sum| *sum <= MAGNITUDE_MAX).ok_or_else(invalid)?;
        rest = &after[name.len()..];
    }
    match (is_negative, i64::try_from(total)) {
        (true, _) => Ok(total.wrapping_neg().cast_signed()),
        (false, Ok(total)) => Ok(total),
        (false, Err(_)) => Err(invalid()),
    }
}

fn digits(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()))
}

/// Returns a fraction of a unit. As in Go, digits that do not fit an integer are dropped.
fn part(digits: &str, unit: u64) -> u64 {
    let (mut value, mut scale) = (0_u64, 1.0);
    for digit in digits.bytes() {
        let Some(next) = value.checked_mul(10).and_then(|value| value.checked_add(u64::from(digit - b'0'))) else {
            break;
        };
        if next > MAGNITUDE_MAX {
            break;
        }
        value = next;
        scale *= 10.0;
    }
    (value as f64 * (unit as f64 / scale)) as u64
}

/// Parses an integer as Go's `ParseInt`: the largest or smallest for one out of range, and 0 for another text.
pub(super) fn decimal(text: &str) -> i64 {
    use std::num::IntErrorKind::{NegOverflow, PosOverflow};
    text.parse().unwrap_or_else(|error: std::num::ParseIntError| match error.kind() {
        PosOverflow => i64::MAX,
        NegOverflow => i64::MIN,
        _ => 0,
    })
}

/// Returns the form of Go's `String`, such as `1h15m30.5s`.
pub(super) fn go_duration(nanoseconds: i64) -> String {
    let mut out = Vec::from(if nanoseconds < 0 { "-" } else { "" });
    build::go_duration(Duration::from_nanos(nanoseconds.unsigned_abs()), &mut out);
    String::from_utf8(out).expect("digits and units are UTF-8")
}

/// Returns the largest unit of which there is more than one, without a sign.
pub(super) fn rounded(nanoseconds: i64) -> String {
    let total = nanoseconds.unsigned_abs();
    let units = [(365 * DAY, "y"), (30 * DAY, "mo"), (DAY, "d"), (HOUR, "h"), (MINUTE, "m"), (SECOND, "s")];
    match units.iter().find(|(unit, _)| total > *unit) {
        Some((unit, name)) => format!("{}{name}", total / unit),
        None => "0s".to_owned(),
    }
}
