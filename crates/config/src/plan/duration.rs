//! Caddy's durations.

use std::time::Duration;

use causeway_pipeline::{Build, BuildError};
use serde::Deserialize;

/// A Caddy duration: nanoseconds, or Go's notation (`1h30m`, `1.5s`, `250ms`), days included.
#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum Span {
    Nanoseconds(u64),
    Text(String),
}

impl Span {
    pub(super) fn duration(&self, build: &Build<'_>) -> Result<Duration, BuildError> {
        match self {
            Self::Nanoseconds(nanoseconds) => Ok(Duration::from_nanos(*nanoseconds)),
            Self::Text(text) => {
                parse_duration(text).ok_or_else(|| build.refuse(text.clone(), "a duration such as 90s, 1m30s or 250ms"))
            }
        }
    }
}

pub(super) fn parse_duration(text: &str) -> Option<Duration> {
    let mut total = 0.0;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, tail) = rest.split_at(digits);
        let unit = tail.find(|c: char| c.is_ascii_digit()).unwrap_or(tail.len());
        let seconds = match &tail[..unit] {
            "ns" => 1e-9,
            "us" | "µs" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            "d" => 86_400.0,
            _ => return None,
        };
        total += number.parse::<f64>().ok()? * seconds;
        rest = &tail[unit..];
    }
    (!text.is_empty()).then(|| Duration::try_from_secs_f64(total).ok()).flatten()
}
