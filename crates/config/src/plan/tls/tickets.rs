//! `apps.tls.session_tickets`: the keys that seal the tickets of sessions.

use std::time::Duration;

use causeway_pipeline::build::{DurationConfig, Problem};
use causeway_pipeline::{Build, BuildError};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::super::certificates::{SessionTickets, TicketKeySource};
use super::super::storage::read_own;

/// Caddy's defaults.
const ROTATION_INTERVAL: Duration = Duration::from_secs(12 * 60 * 60);
const KEYS: usize = 4;
/// The shortest interval, and the most keys. A handshake with an unknown ticket tries the names of all keys.
const ROTATION_INTERVAL_MIN: Duration = Duration::from_secs(1);
const KEYS_MAX: i64 = 64;

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub(super) struct SessionTicketsConfig {
    #[serde(default)]
    key_source: Option<Map<String, Value>>,
    #[serde(default)]
    rotation_interval: Option<DurationConfig>,
    #[serde(default)]
    max_keys: i64,
    #[serde(default)]
    disable_rotation: bool,
    #[serde(default)]
    disabled: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StandardConfig {
    #[serde(rename = "provider")]
    _provider: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DistributedConfig {
    #[serde(rename = "provider")]
    _provider: String,
    #[serde(default)]
    storage: Option<Value>,
}

impl SessionTicketsConfig {
    pub(super) fn read(&self, build: &mut Build<'_>) -> Result<SessionTickets, BuildError> {
        let source = self.key_source.as_ref();
        let source = build.at("key_source", |build| source.map(|source| key_source(source, build)).transpose())?;
        let interval = self.rotation_interval.as_ref();
        let interval = build.at("rotation_interval", |build| {
            let interval = interval.map(|span| span.duration(build)).transpose()?.filter(|span| !span.is_zero());
            match interval {
                Some(interval) if interval < ROTATION_INTERVAL_MIN => {
                    Err(build.refuse(format!("{} ms", interval.as_millis()), "at least 1s"))
                }
                interval => Ok(interval),
            }
        })?;
        // As in Caddy, a number below 1 is the default.
        let max_keys = match self.max_keys {
            ..1 => None,
            1..=KEYS_MAX => usize::try_from(self.max_keys).ok(),
            found => {
                let expected = "at most 64 keys";
                return build.at("max_keys", |build| Err(build.refuse(found.to_string(), expected)));
            }
        };
        if self.disabled {
            return Ok(SessionTickets::Disabled);
        }
        // As in Caddy, the keys of the TLS library are used if its own do not rotate.
        if self.disable_rotation || (source.is_none() && interval.is_none() && max_keys.is_none()) {
            return Ok(SessionTickets::Process);
        }
        Ok(SessionTickets::Rotating {
            interval: interval.unwrap_or(ROTATION_INTERVAL),
            max_keys: max_keys.unwrap_or(KEYS),
            source: source.unwrap_or_default(),
        })
    }
}

fn key_source(written: &Map<String, Value>, build: &mut Build<'_>) -> Result<TicketKeySource, BuildError> {
    let json = Value::Object(written.clone());
    match written.get("provider").and_then(Value::as_str) {
        Some("standard") => {
            let StandardConfig { .. } = build.parse(&json)?;
            Ok(TicketKeySource::Standard)
        }
        Some("distributed") => {
            let written: DistributedConfig = build.parse(&json)?;
            Ok(TicketKeySource::Distributed(read_own(written.storage.as_ref(), build)?))
        }
        Some(name) => Err(build.error(Problem::UnknownModule { kind: "stek", name: name.to_owned() })),
        None => Err(build.refuse(json.to_string(), "an object with a 'provider' key, as {\"provider\": \"standard\"}")),
    }
}
