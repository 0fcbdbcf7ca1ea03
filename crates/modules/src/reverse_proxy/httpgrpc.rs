//! The transport `httpgrpc`: requests in messages of gRPC, to programs of the Grafana stack or to another Causeway.
//!
//! - `ask`, `gather`: from the request to the call's message
//! - `answer`: from the call's message to the answer
//! - `stream`: answers of our own service, whose content streams
//! - `fault`: what errors of gRPC are by HTTP
//! - `dns`: names that stand for all their addresses

pub(super) mod answer;
pub(super) mod ask;
pub(super) mod dns;
mod fault;
mod gather;
mod stream;

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use causeway_httpgrpc::{Limits, ResponseDecoder};
use causeway_pipeline::{Build, BuildError, StateId, Transport, Versions};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

use super::backend::WrittenBackend;
use super::carriage::Carriage;
use super::tls;
use super::transport::Built;
use crate::duration::Written as WrittenDuration;
use crate::httpgrpc::lend::Lender;
use crate::httpgrpc::message_size;

/// Octets of an answer's head, and of its trailers: an error of the call has the whole response in either.
const HEAD_OCTETS_MAX: u32 = 1024 * 1024;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    #[serde(rename = "protocol")]
    _protocol: String,
    max_message_size: Option<u64>,
    timeout: Option<WrittenDuration>,
    dial_timeout: Option<WrittenDuration>,
    #[serde(default)]
    forward_host: bool,
    #[serde(default)]
    stream: bool,
    tls: Option<IgnoredAny>,
}

/// The transport's options.
#[derive(Clone, Copy)]
pub(super) struct HttpGrpc {
    message_octets_max: u32,
    timeout: Option<Duration>,
    forward_host: bool,
    streams: bool,
    decoders: StateId<Rc<Lender<ResponseDecoder>>>,
}

pub(super) fn build(value: &Value, build: &mut Build<'_>) -> Result<Built, BuildError> {
    let written: Written = build.parse(value)?;
    let message_octets_max = message_size(written.max_message_size, build)?;
    let mut duration = |key: &str, written: &Option<WrittenDuration>| match written {
        Some(written) => build.at(key, |build| written.read(build)),
        None => Ok(None),
    };
    let timeout = duration("timeout", &written.timeout)?;
    let mut transport = Transport {
        versions: Versions::Http2,
        head_timeout: timeout,
        read_timeout: timeout,
        write_timeout: timeout,
        head_octets_max: HEAD_OCTETS_MAX,
        trailers_octets_max: HEAD_OCTETS_MAX,
        ..Transport::default()
    };
    if let Some(limit) = duration("dial_timeout", &written.dial_timeout)? {
        transport.connect_timeout = limit;
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
    let limits = Limits { message_bytes_max: message_octets_max, ..Limits::default() };
    let options = HttpGrpc {
        message_octets_max,
        timeout,
        forward_host: written.forward_host,
        streams: written.stream,
        decoders: build.state(move |_| Lender::new(limits)),
    };
    let key = format!("{value} {files:016x}");
    Ok(Built { carriage: Carriage::HttpGrpc(options), transport: Arc::new(transport), key })
}

const DNS: &str = "dns:///";

/// gRPC's ways to write an address: `direct://` for one, `dns:///` for all that a name has.
pub(super) fn strip_scheme(dial: &str) -> (&str, bool) {
    match (dial.strip_prefix(DNS), dial.strip_prefix("direct://")) {
        (Some(name), _) => (name, true),
        (_, Some(place)) => (place, false),
        _ => (dial, false),
    }
}

#[derive(Deserialize)]
#[serde(tag = "source", rename_all = "snake_case", deny_unknown_fields)]
enum Source {
    A { name: String, port: String },
    Multi { sources: Vec<Source> },
}

/// What the Caddyfile makes of `dns:///`: upstreams that are known by a name.
pub(super) fn named(value: &Value, build: &mut Build<'_>) -> Result<Vec<WrittenBackend>, BuildError> {
    build.at("dynamic_upstreams", |build| {
        let mut backends = Vec::new();
        let mut sources = vec![build.parse::<Source>(value)?];
        while let Some(source) = sources.pop() {
            match source {
                Source::Multi { sources: more } => sources.extend(more.into_iter().rev()),
                Source::A { name, port } => {
                    let is_literal = name.contains(':');
                    let host = if is_literal { format!("[{name}]") } else { name };
                    backends.push(WrittenBackend::to(format!("{DNS}{host}:{port}")));
                }
            }
        }
        Ok(backends)
    })
}
