//! `transport`: the settings of upstream connections.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use causeway_pipeline::{Build, BuildError, ProxyHeader, ProxyProtocolVersion, Template, UpstreamTransport, Versions};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

use super::address::Address;
use super::dynamic::resolver::{self, ResolverConfig};
use super::network_proxy::{self, ConfiguredProxy, NetworkProxyConfig};
use super::wire_form::{Protocol, WireForm};
use super::{fastcgi, httpgrpc, read_duration, tls};
use causeway_pipeline::build::DurationConfig;
use causeway_pipeline::upstream::ConnectionLimits;

/// A compiled `transport`.
pub(super) struct TransportParts {
    pub(super) wire_form: WireForm,
    pub(super) transport: Arc<UpstreamTransport>,
    /// The server name for TLS, if each request has its own.
    pub(super) server_name: Option<Template>,
    /// The URL of the network proxy, likewise.
    pub(super) network_proxy: Option<Template>,
    /// Identifies the connection settings: a reload with an equal key keeps the open connections.
    pub(super) key: String,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct ProxyTransportConfig {
    #[serde(rename = "protocol")]
    _protocol: Option<String>,
    tls: Option<IgnoredAny>,
    resolver: Option<ResolverConfig>,
    versions: Vec<String>,
    proxy_protocol: String,
    local_address: String,
    dial_timeout: Option<DurationConfig>,
    dial_fallback_delay: Option<DurationConfig>,
    response_header_timeout: Option<DurationConfig>,
    read_timeout: Option<DurationConfig>,
    write_timeout: Option<DurationConfig>,
    keep_alive: Option<IgnoredAny>,
    /// Checked, without effect: the proxy responds to `Expect: 100-continue` itself and does not forward it, so an
    /// upstream is never waited for.
    expect_continue_timeout: Option<DurationConfig>,
    network_proxy: Option<NetworkProxyConfig>,
    /// The former name of `network_proxy` with `url`.
    forward_proxy_url: String,
    max_conns_per_host: i64,
    /// Not in Caddy.
    queue_timeout: Option<DurationConfig>,
    max_response_header_size: i64,
    /// Accepted without effect: the client's Accept-Encoding is forwarded unchanged. In Go's client, compression
    /// between proxy and upstream is invisible to the client.
    compression: Option<bool>,
    /// Accepted without effect, as the next one.
    read_buffer_size: i64,
    write_buffer_size: i64,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct KeepAliveConfig {
    enabled: Option<bool>,
    max_idle_conns: usize,
    max_idle_conns_per_host: usize,
    idle_timeout: Option<DurationConfig>,
    probe_interval: Option<DurationConfig>,
    /// Not in Caddy, as the next one.
    ping_interval: Option<DurationConfig>,
    ping_timeout: Option<DurationConfig>,
}

/// Upper bound in bytes for the configured limit on response heads: a longer head could not be forwarded.
const HEAD_BYTES_MAX: u32 = 1024 * 1024;

pub(super) fn build(value: Option<&Value>, build: &mut Build<'_>) -> Result<TransportParts, BuildError> {
    let none = Value::Object(serde_json::Map::new());
    let value = value.unwrap_or(&none);
    build.at("transport", |build| {
        let protocol = value.get("protocol").and_then(Value::as_str).unwrap_or("http");
        match build.at("protocol", |build| Protocol::find(protocol, build))? {
            Protocol::Http => {}
            Protocol::HttpGrpc => return httpgrpc::build(value, build),
            Protocol::FastCgi => return fastcgi::build(value, build),
        }
        let written: ProxyTransportConfig = build.parse(value)?;
        let (mut transport, server_name, files) = read(value, &written, build)?;
        // A changed certificate under an unchanged file name must also close the connections.
        let mut key = format!("{value} {files:016x}");
        let proxy = network_proxy::configured(written.network_proxy.as_ref(), &written.forward_proxy_url, build)?;
        let tls = transport.tls.as_deref();
        let network_proxy = match proxy {
            None => None,
            Some(ConfiguredProxy::Fixed { url, proxy }) => {
                // The URL may come from the environment or a file; a change there must close the connections too.
                key.push_str(&url);
                transport.network_proxy = Some(network_proxy::secured(proxy, tls));
                None
            }
            Some(ConfiguredProxy::OfRequests(url)) => {
                // As in Caddy, connections without a request, those of health checks, have a URL without its
                // placeholders.
                let proxy = network_proxy::parse(&url.text_of_unknown()).ok();
                transport.network_proxy = proxy.map(|proxy| network_proxy::secured(proxy, tls));
                Some(url)
            }
        };
        let transport = Arc::new(transport);
        Ok(TransportParts { wire_form: WireForm::Http, transport, server_name, network_proxy, key })
    })
}

/// Returns the transport, a server name with placeholders, and a digest of the files that it was read from.
fn read(
    value: &Value,
    written: &ProxyTransportConfig,
    build: &mut Build<'_>,
) -> Result<(UpstreamTransport, Option<Template>, u64), BuildError> {
    let mut transport = UpstreamTransport::default();
    set_limits(&mut transport, written, build)?;
    if written.keep_alive.is_some() {
        build.at("keep_alive", |build| keep_alive(&value["keep_alive"], &mut transport, build))?;
    }
    transport.proxy_header = match &*written.proxy_protocol {
        "" => None,
        "v1" => Some(ProxyHeader { version: ProxyProtocolVersion::One, source: None }),
        "v2" => Some(ProxyHeader { version: ProxyProtocolVersion::Two, source: None }),
        other => return build.at("proxy_protocol", |build| Err(build.refuse(other, "v1 or v2"))),
    };
    transport.resolver = resolver::build(written.resolver.as_ref(), written.dial_timeout.as_ref(), None, build)?;
    if !written.local_address.is_empty() {
        transport.local_address =
            Some(build.at("local_address", |build| local_address(&written.local_address, build))?);
    }
    let mut server_name = None;
    let mut files = 0;
    if written.tls.is_some() {
        let built = build.at("tls", |build| tls::build(&value["tls"], build))?;
        transport.tls = Some(Arc::new(built.client));
        (server_name, files) = (built.server_name, built.files);
        // One deadline covers connecting and the handshake.
        if let Some(limit) = built.handshake_timeout {
            transport.connect_timeout += limit;
        }
    }
    transport.versions = versions(&written.versions, transport.tls.is_some(), build)?;
    Ok((transport, server_name, files))
}

/// Sets the bound of a response's head, `max_response_header_size`. Without a positive one it stays.
pub(super) fn set_head_bytes_max(transport: &mut UpstreamTransport, written: i64) {
    if written > 0 {
        transport.head_bytes_max = u32::try_from(written).map_or(HEAD_BYTES_MAX, |bytes| bytes.min(HEAD_BYTES_MAX));
    }
}

/// Sets the limits on time, connections and heads.
fn set_limits(
    transport: &mut UpstreamTransport,
    written: &ProxyTransportConfig,
    build: &mut Build<'_>,
) -> Result<(), BuildError> {
    for (key, size) in
        [("read_buffer_size", written.read_buffer_size), ("write_buffer_size", written.write_buffer_size)]
    {
        if size > 0 {
            build.warn_unused(key, "connections read into blocks of one size, and write without a buffer");
        }
    }
    let mut duration = |key: &str, written: &Option<DurationConfig>| read_duration(key, written.as_ref(), build);
    if let Some(limit) = duration("dial_timeout", &written.dial_timeout)? {
        transport.connect_timeout = limit;
    }
    transport.read_timeout = duration("read_timeout", &written.read_timeout)?;
    // As in Caddy, the limit on reads is one on the wait for the head too.
    let head_timeout = duration("response_header_timeout", &written.response_header_timeout)?;
    transport.head_timeout = [head_timeout, transport.read_timeout].into_iter().flatten().min();
    let continue_timeout = duration("expect_continue_timeout", &written.expect_continue_timeout)?;
    transport.write_timeout = duration("write_timeout", &written.write_timeout)?;
    let connections_max = usize::try_from(written.max_conns_per_host).ok().filter(|&max| max > 0);
    transport.connection_limits = connections_max.map(|max| Arc::new(ConnectionLimits::new(max)));
    transport.queue_timeout = duration("queue_timeout", &written.queue_timeout)?;
    if continue_timeout.is_some() {
        build.warn_unused("expect_continue_timeout", "the proxy does not forward `Expect: 100-continue`");
    }
    // `compression off` is the proxy's behaviour.
    if written.compression == Some(true) {
        build.warn_unused("compression", "the client's Accept-Encoding is forwarded unchanged");
    }
    set_head_bytes_max(transport, written.max_response_header_size);
    if let Some(delay) = &written.dial_fallback_delay {
        build.at("dial_fallback_delay", |build| switchable(delay, &mut transport.fallback_delay, build))?;
    }
    Ok(())
}

/// Reads an option which, as in Go, is off if it is negative; zero is the default.
fn switchable(written: &DurationConfig, option: &mut Option<Duration>, build: &Build<'_>) -> Result<(), BuildError> {
    match written.signed(build)? {
        0 => {}
        nanoseconds => *option = u64::try_from(nanoseconds).ok().map(Duration::from_nanos),
    }
    Ok(())
}

/// Parses the address that connections come from: an IP address with or without a port, and with or without the
/// network.
fn local_address(text: &str, build: &Build<'_>) -> Result<SocketAddr, BuildError> {
    let address = text.strip_prefix("tcp/").unwrap_or(text);
    let bare = address.trim_start_matches('[').trim_end_matches(']');
    let with_port = address.parse().ok();
    let parsed = with_port.or_else(|| Some(SocketAddr::new(bare.parse().ok()?, 0)));
    parsed.ok_or_else(|| build.refuse(text, "an IP address of this machine, with or without a port"))
}

/// Returns the transport for an address: without TLS for a port of `tls_except_ports`, and with the families of its
/// network.
pub(super) fn to_address(transport: &Arc<UpstreamTransport>, address: &Address) -> Arc<UpstreamTransport> {
    let families = address.families();
    let is_clear =
        transport.tls.as_ref().is_some_and(|tls| tls.except_ports.iter().any(|port| **port == *address.port));
    if !is_clear && families == transport.families {
        return Arc::clone(transport);
    }
    let tls = if is_clear { None } else { transport.tls.clone() };
    Arc::new(UpstreamTransport { tls, families, ..(**transport).clone() })
}

fn keep_alive(value: &Value, transport: &mut UpstreamTransport, build: &mut Build<'_>) -> Result<(), BuildError> {
    let written: KeepAliveConfig = build.parse(value)?;
    if let Some(limit) = &written.idle_timeout
        && let Some(limit) = build.at("idle_timeout", |build| limit.read(build))?
    {
        transport.idle_timeout = limit;
    }
    if let Some(interval) = &written.probe_interval {
        build.at("probe_interval", |build| switchable(interval, &mut transport.probe_interval, build))?;
    }
    if let Some(interval) = &written.ping_interval {
        transport.ping_interval = build.at("ping_interval", |build| interval.read(build))?;
    }
    if let Some(limit) = &written.ping_timeout
        && let Some(limit) = build.at("ping_timeout", |build| limit.read(build))?
    {
        transport.ping_timeout = limit;
    }
    if written.max_idle_conns_per_host > 0 {
        transport.idle_max = written.max_idle_conns_per_host;
    }
    if written.max_idle_conns > 0 {
        // Both limits apply to one address here, so the smaller one counts.
        transport.idle_max = transport.idle_max.min(written.max_idle_conns);
    }
    if written.enabled == Some(false) {
        // Without keep-alive a connection serves one request.
        transport.idle_timeout = Duration::ZERO;
    }
    Ok(())
}

/// Selects the HTTP versions as Go's client does: over TLS, ALPN negotiates HTTP/2 if the list permits it; in cleartext
/// it is HTTP/1.1, or with `h2c` only HTTP/2.
fn versions(written: &[String], is_secure: bool, build: &mut Build<'_>) -> Result<Versions, BuildError> {
    for (index, version) in written.iter().enumerate() {
        if !matches!(version.as_str(), "1.1" | "2" | "h2c") {
            let expected = "1.1, 2 or h2c; HTTP/3 is not supported (docs/refused.md)";
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
