//! Durations in configurations: Go's notation, as Caddy reads and prints it.

use std::time::Duration;

use causeway_message::syntax::write_number;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::{Build, BuildError, mistyped};

/// A duration in the JSON: an integer in nanoseconds, or a text that [`nanoseconds`] can parse.
#[derive(Debug, Clone)]
pub enum DurationConfig {
    /// Nanoseconds.
    Nanoseconds(i64),
    /// A text in Go's notation.
    Text(String),
}

impl<'de> Deserialize<'de> for DurationConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Value::deserialize(deserializer)? {
            Value::String(text) => Ok(Self::Text(text)),
            value => match value.as_i64() {
                Some(nanoseconds) => Ok(Self::Nanoseconds(nanoseconds)),
                None => Err(mistyped(&value, "a duration such as \"90s\", or a whole number of nanoseconds")),
            },
        }
    }
}

impl DurationConfig {
    /// Returns the duration; `None` for zero or less, which disables most options.
    ///
    /// # Errors
    /// If the text is not a valid duration.
    pub fn read(&self, build: &Build<'_>) -> Result<Option<Duration>, BuildError> {
        Ok(u64::try_from(self.signed(build)?).ok().filter(|&read| read > 0).map(Duration::from_nanos))
    }

    /// Returns the duration of an option for which zero is a value.
    ///
    /// # Errors
    /// If the duration is negative, or the text is not a valid duration.
    pub fn duration(&self, build: &Build<'_>) -> Result<Duration, BuildError> {
        let read = self.signed(build)?;
        u64::try_from(read).map(Duration::from_nanos).map_err(|_| build.refuse(self.written(), EXPECTED))
    }

    /// Returns the duration as it is written, for an error.
    #[must_use]
    pub fn written(&self) -> String {
        match self {
            Self::Nanoseconds(read) => read.to_string(),
            Self::Text(text) => text.clone(),
        }
    }

    /// Returns the duration in nanoseconds, for an option for which a negative value has a meaning.
    ///
    /// # Errors
    /// If the text is not a valid duration.
    pub fn signed(&self, build: &Build<'_>) -> Result<i64, BuildError> {
        match self {
            Self::Nanoseconds(read) => Ok(*read),
            Self::Text(text) => nanoseconds(text).ok_or_else(|| build.refuse(text.clone(), EXPECTED)),
        }
    }
}

impl Build<'_> {
    /// Returns the duration of an optional member for which zero is a value.
    ///
    /// # Errors
    /// As [`DurationConfig::duration`].
    pub fn optional_duration(
        &mut self,
        key: &str,
        written: Option<&DurationConfig>,
    ) -> Result<Option<Duration>, BuildError> {
        self.at(key, |build| written.map(|written| written.duration(build)).transpose())
    }
}

const EXPECTED: &str = "a duration such as 90s, 1m30s or 250ms";

/// Parses a duration such as `1m30s`, `1.5h` or `2d` to nanoseconds: Go's notation, and `d` for 24 hours; at most
/// 1024 bytes. `None` for any other text, and for durations that exceed an `i64`.
#[must_use]
pub fn nanoseconds(text: &str) -> Option<i64> {
    let (negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() || rest.len() > 1024 {
        return None;
    }
    let mut total = 0_i128;
    while !rest.is_empty() {
        let digits = rest.find(|ch: char| !ch.is_ascii_digit() && ch != '.').unwrap_or(rest.len());
        let (number, after) = rest.split_at(digits);
        let unit = after.find(|ch: char| ch.is_ascii_digit() || ch == '.').unwrap_or(after.len());
        let (unit, after) = after.split_at(unit);
        let scale: i128 = match unit {
            "ns" => 1,
            "us" | "µs" | "μs" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            "d" => 86_400_000_000_000,
            _ => return None,
        };
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        // At most 19 digits, so that the products below cannot overflow.
        if whole.len() + fraction.len() == 0 || fraction.contains('.') || whole.len() > 19 {
            return None;
        }
        // Eighteen decimals resolve less than a nanosecond of any unit; more cannot change the result, but would
        // overflow.
        let fraction = &fraction[..fraction.len().min(18)];
        let whole: i128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
        let part: i128 = if fraction.is_empty() { 0 } else { fraction.parse().ok()? };
        total += whole * scale + part * scale / 10_i128.pow(u32::try_from(fraction.len()).ok()?);
        rest = after;
    }
    i64::try_from(if negative { -total } else { total }).ok()
}

/// Appends a duration in Go's notation: `1h2m3.5s`, `1.5ms`, `0s`. Allocates only to grow `out`.
pub fn go_duration(duration: Duration, out: &mut Vec<u8>) {
    let (mut seconds, nanoseconds) = (duration.as_secs(), duration.subsec_nanos());
    if seconds == 0 && nanoseconds > 0 {
        let (unit, name) = match nanoseconds {
            0..1_000 => (1, "ns"),
            1_000..1_000_000 => (1_000, "µs"),
            _ => (1_000_000, "ms"),
        };
        put_decimal((nanoseconds / unit).into(), nanoseconds % unit, unit, out);
        out.extend_from_slice(name.as_bytes());
        return;
    }
    // Go writes all units from the largest nonzero one down to seconds, zeros included.
    let has_minutes = seconds >= 60;
    if seconds >= 3600 {
        put_decimal(seconds / 3600, 0, 1, out);
        out.push(b'h');
        seconds %= 3600;
    }
    if has_minutes {
        put_decimal(seconds / 60, 0, 1, out);
        out.push(b'm');
    }
    put_decimal(seconds % 60, nanoseconds, 1_000_000_000, out);
    out.push(b's');
}

/// Appends `whole` and the fraction `part / per` without its trailing zeros; `per` is a power of 10.
fn put_decimal(whole: u64, mut part: u32, per: u32, out: &mut Vec<u8>) {
    out.extend_from_slice(write_number(whole, &mut [0; 20]));
    if part == 0 {
        return;
    }
    out.push(b'.');
    let mut digit = per / 10;
    while part > 0 {
        out.push(b'0' + (part / digit) as u8);
        part %= digit;
        digit /= 10;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Go, package time, func (Duration) String.
    #[test]
    fn durations_as_go_writes_them() {
        for (nanoseconds, want) in [
            (0, "0s"),
            (1, "1ns"),
            (1_100, "1.1µs"),
            (971_676, "971.676µs"),
            (2_200_000, "2.2ms"),
            (1_000_000_000, "1s"),
            (3_300_000_000, "3.3s"),
            (60_000_000_000, "1m0s"),
            (61_000_000_001, "1m1.000000001s"),
            (245_000_000_000, "4m5s"),
            (3_600_500_000_000, "1h0m0.5s"),
            (18_367_001_000_000, "5h6m7.001s"),
            (28_800_000_000_001, "8h0m0.000000001s"),
            (u64::MAX, "5124095h34m33.709551615s"),
        ] {
            let mut out = Vec::new();
            go_duration(Duration::from_nanos(nanoseconds), &mut out);
            assert_eq!(String::from_utf8_lossy(&out), want);
        }
    }

    // Go, time.ParseDuration; Caddy, caddy.ParseDuration: `d` is 24 hours.
    #[test]
    fn texts() {
        for (text, want) in [
            ("0", Some(0)),
            ("1ns", Some(1)),
            ("1m30s", Some(90_000_000_000)),
            ("1.5h", Some(5_400_000_000_000)),
            (".5s", Some(500_000_000)),
            ("2d", Some(172_800_000_000_000)),
            ("-1s", Some(-1_000_000_000)),
            ("+250ms", Some(250_000_000)),
            ("0s", Some(0)),
            ("0s1s", Some(1_000_000_000)),
            ("1us1µs", Some(2_000)),
            ("", None),
            ("s", None),
            ("1", None),
            ("1x", None),
            (".s", None),
            ("1.2.3s", None),
            ("1s ", None),
            ("999999999999999999h", None),
        ] {
            assert_eq!(nanoseconds(text), want, "{text:?}");
        }
    }
}
