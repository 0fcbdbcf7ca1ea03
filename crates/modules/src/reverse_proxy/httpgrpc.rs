//! The transport `httpgrpc`: requests in gRPC messages, to programs of the Grafana stack or to another Causeway.
//!
//! - `ask`, `gather`: encode the request to the call's message
//! - `answer`: decodes the call's message to the response
//! - `stream`: responses of Causeway's own streaming service
//! - `error`: maps gRPC errors to HTTP statuses
//! - `dns`: upstream names that stand for all of their addresses

pub(super) mod answer;
pub(super) mod ask;
pub(super) mod dns;
mod error;
mod gather;
mod stream;

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use causeway_httpgrpc::{Limits, ResponseDecoder};
use causeway_pipeline::{Build, BuildError, StateId, UpstreamTransport, Versions};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

use super::backend::UpstreamConfig;
use super::transport::TransportParts;
use super::wire_form::WireForm;
use super::{read_duration, tls};
use crate::httpgrpc::lend::Lender;
use crate::httpgrpc::message_size;
use causeway_pipeline::build::DurationConfig;

/// Bounds in bytes of the limit on a response's head and on its trailers ([`head_bytes_max`]).
const HEAD_BYTES_MIN: u32 = 1024 * 1024;
const HEAD_BYTES_MAX: u32 = 16 * 1024 * 1024;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HttpGrpcTransportConfig {
    #[serde(rename = "protocol")]
    _protocol: String,
    max_message_size: Option<u64>,
    timeout: Option<DurationConfig>,
    dial_timeout: Option<DurationConfig>,
    #[serde(default)]
    forward_host: bool,
    #[serde(default)]
    stream: bool,
    keep_alive: Option<PingConfig>,
    tls: Option<IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PingConfig {
    ping_interval: Option<DurationConfig>,
    ping_timeout: Option<DurationConfig>,
}

/// The transport's options.
#[derive(Clone, Copy)]
pub(super) struct HttpGrpcOptions {
    message_bytes_max: u32,
    timeout: Option<Duration>,
    forward_host: bool,
    streams: bool,
    decoders: StateId<Rc<Lender<ResponseDecoder>>>,
}

pub(super) fn build(value: &Value, build: &mut Build<'_>) -> Result<TransportParts, BuildError> {
    let written: HttpGrpcTransportConfig = build.parse(value)?;
    let message_bytes_max = message_size(written.max_message_size, build)?;
    let mut duration = |key: &str, written: &Option<DurationConfig>| read_duration(key, written.as_ref(), build);
    let timeout = duration("timeout", &written.timeout)?;
    let mut transport = UpstreamTransport {
        versions: Versions::Http2,
        // The timeout applies to each phase. For a unary call `answer` also applies it to the whole call.
        head_timeout: timeout,
        read_timeout: timeout,
        write_timeout: timeout,
        head_bytes_max: head_bytes_max(message_bytes_max),
        ..UpstreamTransport::default()
    };
    if let Some(limit) = duration("dial_timeout", &written.dial_timeout)? {
        transport.connect_timeout = limit;
    }
    if let Some(pings) = &written.keep_alive {
        build.at("keep_alive", |build| {
            transport.ping_interval = read_duration("ping_interval", pings.ping_interval.as_ref(), build)?;
            if let Some(limit) = read_duration("ping_timeout", pings.ping_timeout.as_ref(), build)? {
                transport.ping_timeout = limit;
            }
            Ok(())
        })?;
    }
    let mut files = 0;
    if written.tls.is_some() {
        let built = build.at("tls", |build| tls::build(&value["tls"], build))?;
        // Its names may stand for many addresses, whose connections are those of one name.
        if built.server_name.is_some() || !built.client.except_ports.is_empty() {
            let expected = "neither `except_ports` nor placeholders in `server_name`: the transport httpgrpc has none";
            return build.at("tls", |build| Err(build.refuse("one of them", expected)));
        }
        transport.tls = Some(Arc::new(built.client));
        files = built.files;
        if let Some(limit) = built.handshake_timeout {
            transport.connect_timeout += limit;
        }
    }
    let limits = Limits { message_bytes_max, ..Limits::default() };
    let options = HttpGrpcOptions {
        message_bytes_max,
        timeout,
        forward_host: written.forward_host,
        streams: written.stream,
        decoders: build.allocate_state(move |_| Lender::new(limits)),
    };
    let key = format!("{value} {files:016x}");
    Ok(TransportParts {
        wire_form: WireForm::HttpGrpc(options),
        transport: Arc::new(transport),
        server_name: None,
        network_proxy: None,
        key,
    })
}

/// Returns the limit on a response's head, and on its trailers, for messages of this size. A failed call of dskit has
/// the response's content in its head or trailers three times: twice in base64 in the error's details, and once more as
/// its message, of which each byte may be percent-encoded.
fn head_bytes_max(message_bytes_max: u32) -> u32 {
    message_bytes_max.saturating_mul(6).clamp(HEAD_BYTES_MIN, HEAD_BYTES_MAX)
}

const DNS: &str = "dns:///";

/// Removes gRPC's address schemes: `direct://` for a single address, `dns:///` for all addresses of a name (the flag).
pub(super) fn strip_scheme(dial: &str) -> (&str, bool) {
    match (dial.strip_prefix(DNS), dial.strip_prefix("direct://")) {
        (Some(name), _) => (name, true),
        (_, Some(place)) => (place, false),
        _ => (dial, false),
    }
}

/// A source of upstreams: `a` has a name and a port, `multi` has nested sources.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct UpstreamSourceConfig {
    source: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    port: String,
    #[serde(default)]
    sources: Vec<UpstreamSourceConfig>,
}

/// Converts `dynamic_upstreams`, which the Caddyfile generates for `dns:///`, to upstreams with such names.
pub(super) fn named(value: &Value, build: &mut Build<'_>) -> Result<Vec<UpstreamConfig>, BuildError> {
    build.at("dynamic_upstreams", |build| {
        let mut backends = Vec::new();
        // The sources within `multi` in place of it. Reversed, so that the order is kept.
        let mut sources = vec![build.parse::<UpstreamSourceConfig>(value)?];
        while let Some(source) = sources.pop() {
            let UpstreamSourceConfig { source, name, port, sources: more } = source;
            match source.as_str() {
                "multi" => sources.extend(more.into_iter().rev()),
                "a" if name.is_empty() || port.is_empty() => {
                    return Err(build.refuse(format!("{name}:{port}"), "a source with a name and a port"));
                }
                "a" => {
                    // Only IPv6 addresses contain a colon.
                    let is_literal = name.contains(':');
                    let host = if is_literal { format!("[{name}]") } else { name };
                    backends.push(UpstreamConfig::to(format!("{DNS}{host}:{port}")));
                }
                _ => {
                    let expected = "a or multi; other sources are not supported (docs/refused.md)";
                    return build.at("source", |build| Err(build.refuse(source, expected)));
                }
            }
        }
        Ok(backends)
    })
}
