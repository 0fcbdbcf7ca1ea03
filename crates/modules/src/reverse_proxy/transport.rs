//! `transport`: how calls are carried.

use std::sync::Arc;

use causeway_pipeline::{Build, BuildError, Transport, Versions};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

use super::carriage::{Carriage, Protocol};
use super::{httpgrpc, tls, unbuilt};
use crate::duration::Written as WrittenDuration;

/// What a `transport` became.
pub(super) struct Built {
    pub(super) carriage: Carriage,
    pub(super) transport: Arc<Transport>,
    /// What connections depend on, so that those of an equal transport may serve after a reload.
    pub(super) key: String,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct Written {
    #[serde(rename = "protocol")]
    _protocol: Option<String>,
    tls: Option<IgnoredAny>,
    versions: Vec<String>,
    dial_timeout: Option<WrittenDuration>,
    response_header_timeout: Option<WrittenDuration>,
    read_timeout: Option<WrittenDuration>,
    write_timeout: Option<WrittenDuration>,
    keep_alive: Option<IgnoredAny>,
    max_conns_per_host: i64,
    max_response_header_size: i64,
    /// Without it an upstream is asked for no coding but those that the client takes, and with it too: what Go's client then
    /// unpacks, nobody sees.
    #[serde(rename = "compression")]
    _compression: Option<bool>,
}

const UNBUILT: &[&str] = &[
    "dial_fallback_delay",
    "expect_continue_timeout",
    "forward_proxy_url",
    "local_address",
    "network_proxy",
    "proxy_protocol",
    "read_buffer_size",
    "resolver",
    "write_buffer_size",
];

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct WrittenKeepAlive {
    enabled: Option<bool>,
    max_idle_conns: usize,
    max_idle_conns_per_host: usize,
    idle_timeout: Option<WrittenDuration>,
}

/// Octets of an answer's head that may be asked for at most: of what is longer no exchange can be made.
const HEAD_OCTETS_MAX: u32 = 1024 * 1024;

pub(super) fn build(value: Option<&Value>, build: &mut Build<'_>) -> Result<Built, BuildError> {
    let none = Value::Object(serde_json::Map::new());
    let value = value.unwrap_or(&none);
    build.at("transport", |build| {
        let protocol = value.get("protocol").and_then(Value::as_str).unwrap_or("http");
        if build.at("protocol", |build| Protocol::find(protocol, build))? == Protocol::HttpGrpc {
            return httpgrpc::build(value, build);
        }
        unbuilt::refuse(value, UNBUILT, build)?;
        let written: Written = build.parse(value)?;
        let (transport, files) = read(value, &written, build)?;
        // The certificates themselves count, not only the names of their files.
        let key = format!("{value} {files:016x}");
        Ok(Built { carriage: Carriage::Http, transport: Arc::new(transport), key })
    })
}

fn read(value: &Value, written: &Written, build: &mut Build<'_>) -> Result<(Transport, u64), BuildError> {
    let mut transport = Transport::default();
    let mut duration = |key: &str, written: &Option<WrittenDuration>| match written {
        Some(written) => build.at(key, |build| written.read(build)),
        None => Ok(None),
    };
    if let Some(limit) = duration("dial_timeout", &written.dial_timeout)? {
        transport.connect_timeout = limit;
    }
    transport.head_timeout = duration("response_header_timeout", &written.response_header_timeout)?;
    transport.read_timeout = duration("read_timeout", &written.read_timeout)?;
    transport.write_timeout = duration("write_timeout", &written.write_timeout)?;
    transport.connections_max = usize::try_from(written.max_conns_per_host).ok().filter(|&max| max > 0);
    if let Some(octets) = u32::try_from(written.max_response_header_size).ok().filter(|&octets| octets > 0) {
        transport.head_octets_max = octets.min(HEAD_OCTETS_MAX);
    } else if written.max_response_header_size > 0 {
        transport.head_octets_max = HEAD_OCTETS_MAX;
    }
    if written.keep_alive.is_some() {
        build.at("keep_alive", |build| keep_alive(&value["keep_alive"], &mut transport, build))?;
    }
    let mut files = 0;
    if written.tls.is_some() {
        let built = build.at("tls", |build| tls::build(&value["tls"], build))?;
        transport.tls = Some(Arc::new(built.client));
        files = built.files;
        if let Some(limit) = built.handshake_timeout {
            transport.connect_timeout += limit;
        }
    }
    transport.versions = versions(&written.versions, transport.tls.is_some(), build)?;
    Ok((transport, files))
}

fn keep_alive(value: &Value, transport: &mut Transport, build: &mut Build<'_>) -> Result<(), BuildError> {
    unbuilt::refuse(value, &["probe_interval"], build)?;
    let written: WrittenKeepAlive = build.parse(value)?;
    if let Some(limit) = &written.idle_timeout
        && let Some(limit) = build.at("idle_timeout", |build| limit.read(build))?
    {
        transport.idle_timeout = limit;
    }
    if written.max_idle_conns_per_host > 0 {
        transport.idle_max = written.max_idle_conns_per_host;
    }
    if written.max_idle_conns > 0 {
        transport.idle_max = transport.idle_max.min(written.max_idle_conns);
    }
    if written.enabled == Some(false) {
        transport.idle_timeout = std::time::Duration::ZERO;
    }
    Ok(())
}

/// As Go's client has it: HTTP/2 over TLS is agreed on by ALPN wherever it may be spoken; in the clear there is HTTP/1.1, or with
/// `h2c` nothing but HTTP/2.
fn versions(written: &[String], is_secure: bool, build: &mut Build<'_>) -> Result<Versions, BuildError> {
    for (index, version) in written.iter().enumerate() {
        if !matches!(version.as_str(), "1.1" | "2" | "h2c") {
            let expected = "1.1, 2 or h2c; HTTP/3 is not built into this version";
            return build.at(format!("versions[{index}]"), |build| Err(build.refuse(version.clone(), expected)));
        }
    }
    let has = |version: &str| written.iter().any(|known| known == version);
    Ok(match (has("h2c"), has("2") || written.is_empty()) {
        (true, _) if !is_secure => Versions::Http2,
        (false, false) => Versions::Http1,
        _ => Versions::Negotiated,
    })
}
