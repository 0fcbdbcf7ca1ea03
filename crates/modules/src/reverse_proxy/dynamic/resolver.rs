//! `resolver`: DNS servers to query in place of the system's.

use std::sync::Arc;
use std::time::Duration;

use causeway_pipeline::build::DurationConfig;
use causeway_pipeline::worker::{Resolver, ResolverServer};
use causeway_pipeline::{Build, BuildError};
use serde::Deserialize;

/// The pause before the second family of a server's addresses is tried; Go's.
const FALLBACK_DELAY: Duration = Duration::from_millis(300);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(in super::super) struct ResolverConfig {
    #[serde(default)]
    addresses: Vec<String>,
}

/// Compiles `resolver`; `None` if there is none. Then the two limits have no effect, as in Caddy.
pub(in super::super) fn build(
    written: Option<&ResolverConfig>,
    dial_timeout: Option<&DurationConfig>,
    fallback_delay: Option<&DurationConfig>,
    build: &mut Build<'_>,
) -> Result<Option<Arc<Resolver>>, BuildError> {
    let dial_timeout = match dial_timeout {
        Some(limit) => build.at("dial_timeout", |build| limit.read(build))?,
        None => None,
    };
    let fallback_delay = fallback_delay_of(fallback_delay, build)?;
    let Some(written) = written else { return Ok(None) };
    build.at("resolver", |build| {
        if written.addresses.is_empty() {
            return Err(build.refuse("no addresses", "at least one DNS server"));
        }
        let mut servers = Vec::with_capacity(written.addresses.len());
        for (index, text) in written.addresses.iter().enumerate() {
            match ResolverServer::parse(text) {
                Ok(server) => servers.push(server),
                Err(expected) => {
                    return build.at(format!("addresses[{index}]"), |build| Err(build.refuse(&**text, expected)));
                }
            }
        }
        Ok(Some(Arc::new(Resolver { servers: servers.into(), dial_timeout, fallback_delay })))
    })
}

/// Reads `dial_fallback_delay`: zero is the default, a negative value tries one family after the other.
fn fallback_delay_of(written: Option<&DurationConfig>, build: &mut Build<'_>) -> Result<Option<Duration>, BuildError> {
    let Some(written) = written else { return Ok(Some(FALLBACK_DELAY)) };
    let nanoseconds = build.at("dial_fallback_delay", |build| written.signed(build))?;
    Ok(match u64::try_from(nanoseconds) {
        Ok(0) => Some(FALLBACK_DELAY),
        Ok(nanoseconds) => Some(Duration::from_nanos(nanoseconds)),
        Err(_) => None,
    })
}
