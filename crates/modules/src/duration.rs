//! Durations as Caddy's JSON has them: nanoseconds, or Go's notation.

use std::time::Duration;

use causeway_pipeline::{Build, BuildError};
use serde::Deserialize;

/// A duration as it is written.
#[derive(Deserialize)]
#[serde(untagged)]
pub(crate) enum Written {
    Nanoseconds(i64),
    Text(String),
}

impl Written {
    /// `None` for what means "none": zero and below.
    pub(crate) fn read(&self, build: &Build<'_>) -> Result<Option<Duration>, BuildError> {
        let nanoseconds = match self {
            Self::Nanoseconds(nanoseconds) => *nanoseconds,
            Self::Text(text) => {
                parse(text).ok_or_else(|| build.refuse(text.clone(), "a duration such as 90s, 1m30s or 250ms"))?
            }
        };
        Ok(u64::try_from(nanoseconds).ok().filter(|&nanoseconds| nanoseconds > 0).map(Duration::from_nanos))
    }
}

/// Nanoseconds of `1m30s`, `1.5h`, `-2d`: a sum of numbers, each with its unit.
fn parse(text: &str) -> Option<i64> {
    let (sign, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Some(0);
    }
    let mut sum = 0_i128;
    while !rest.is_empty() || sum == 0 {
        let unit_at = rest.find(|char: char| !char.is_ascii_digit() && char != '.')?;
        let (number, behind) = rest.split_at(unit_at);
        let unit_end = behind.find(|char: char| char.is_ascii_digit() || char == '.').unwrap_or(behind.len());
        let (unit, behind) = behind.split_at(unit_end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        let is_number = !number.is_empty() && number != "." && whole.len() <= 18 && fraction.len() <= 18;
        if !is_number || fraction.contains('.') {
            return None;
        }
        let digits = |text: &str| if text.is_empty() { Some(0) } else { text.parse::<i128>().ok() };
        let scale = nanoseconds_per(unit)?;
        sum += digits(whole)? * scale + digits(fraction)? * scale / 10_i128.pow(fraction.len() as u32);
        rest = behind;
        if rest.is_empty() {
            break;
        }
    }
    i64::try_from(sign * sum).ok()
}

fn nanoseconds_per(unit: &str) -> Option<i128> {
    Some(match unit {
        "ns" => 1,
        "us" | "µs" | "μs" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        "d" => 86_400_000_000_000,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

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
            assert_eq!(parse(text), want, "{text:?}");
        }
    }
}
