//! Durations of the JSON: numbers, or texts.

use std::time::Duration;

use causeway_pipeline::{Build, BuildError};
use serde::Deserialize;

use causeway_pipeline::build::nanoseconds;

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
    nanoseconds(text).and_then(|nanoseconds| u64::try_from(nanoseconds).ok()).map(Duration::from_nanos)
}
