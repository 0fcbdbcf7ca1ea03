//! Durations as Caddy's JSON has them: nanoseconds, or Go's notation.

use std::time::Duration;

use causeway_pipeline::build::nanoseconds;
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
        let read = match self {
            Self::Nanoseconds(nanoseconds) => *nanoseconds,
            Self::Text(text) => {
                nanoseconds(text).ok_or_else(|| build.refuse(text.clone(), "a duration such as 90s, 1m30s or 250ms"))?
            }
        };
        Ok(u64::try_from(read).ok().filter(|&read| read > 0).map(Duration::from_nanos))
    }
}
