//! Waits until a TXT record is visible to the authority.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use hickory_proto::op::ResponseCode;
use hickory_proto::rr::{Name, RData, RecordType};
use tokio::time::Instant;

use super::zone::{Resolvers, ZoneError, query_server};

/// The pause before each look. The first look waits too: a resolver caches the absence of a record that is queried too
/// early.
const INTERVAL: Duration = Duration::from_secs(2);

/// The record did not become visible.
#[derive(Debug)]
pub struct PropagationError {
    timeout: Duration,
    /// The failure of the last look, if it failed.
    last: Option<ZoneError>,
}

impl fmt::Display for PropagationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the TXT record was not visible after {} s", self.timeout.as_secs_f32())?;
        self.last.as_ref().map_or(Ok(()), |error| write!(f, ": {error}"))
    }
}

impl std::error::Error for PropagationError {}

/// Waits until all servers that answer have the record, for at most `timeout`. A failed look is repeated: resolvers
/// recover.
pub(crate) async fn wait(
    resolvers: &Resolvers,
    name: &Name,
    value: &str,
    timeout: Duration,
) -> Result<(), PropagationError> {
    let end = Instant::now() + timeout;
    loop {
        tokio::time::sleep(INTERVAL.min(end.saturating_duration_since(Instant::now()))).await;
        let last = match look(resolvers, name, value).await {
            Ok(true) => return Ok(()),
            Ok(false) => None,
            Err(error) => Some(error),
        };
        if Instant::now() >= end {
            return Err(PropagationError { timeout, last });
        }
    }
}

async fn look(resolvers: &Resolvers, name: &Name, value: &str) -> Result<bool, ZoneError> {
    // The authority follows CNAME records (RFC 8555 §8.4).
    let target = resolvers.target(name).await?;
    visible(&resolvers.servers_to_check(&target).await?, &target, value).await
}

/// Whether at least one server answers, and all that do have the record. The authority, too, queries another server if
/// one is silent or is not responsible for the zone (a lame delegation).
async fn visible(servers: &[Vec<SocketAddr>], name: &Name, value: &str) -> Result<bool, ZoneError> {
    let mut seen = false;
    let mut refusal = None;
    for addresses in servers {
        for &address in addresses {
            let Ok(response) = query_server(address, name, RecordType::TXT).await else { continue };
            match response.response_code {
                ResponseCode::NoError => {}
                // The record appears later, or the server is loading its zone.
                ResponseCode::NXDomain | ResponseCode::ServFail => return Ok(false),
                code => {
                    refusal = Some(code);
                    continue;
                }
            }
            let is_here = response.answers.iter().any(|record| match &record.data {
                RData::TXT(text) => text.txt_data.concat() == value.as_bytes(),
                _ => false,
            });
            if !is_here {
                return Ok(false);
            }
            seen = true;
            break;
        }
    }
    match refusal {
        Some(code) if !seen => Err(ZoneError::Code(name.to_string(), code.to_string())),
        _ => Ok(seen),
    }
}
