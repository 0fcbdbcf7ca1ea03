//! Placeholders of a request: Caddy's HTTP placeholders, except those of the proxy, and the clock.
//!
//! - `target`: the request target and its parts
//! - `time`: the clock and durations
//! - `tls`: the result of a TLS handshake

mod target;
mod time;
mod tls;

use std::io::Write as _;
use std::net::SocketAddr;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use causeway_message::{FieldMap, FieldName, Head, NameRef, Version, cookies, names};

use target::{TargetEncoding, TargetPart, part_of, query_values};
pub(super) use time::Clock;
use tls::OfTls;

use super::{VARIABLES, load_time};
use crate::build::Build;
use crate::build::go_duration;
use crate::context::{Client, Context, ValueKind, VarId, split_authority, uuid_text};
use crate::handler::{Fault, FaultId, Reason};
use crate::listen::{Endpoints, UNIX_PEER};

/// The compiled meaning of a name.
pub(super) enum CompiledName {
    /// A text that is constant for all requests.
    Text(String),
    Placeholder(PlaceholderId),
}

/// A placeholder of an exchange.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PlaceholderId {
    Method(Which),
    Scheme,
    Protocol,
    ProtocolName,
    Host,
    HostPort,
    Port,
    /// A label of the host, counted from the right, from 0.
    HostLabel(usize),
    Local(AddressPart),
    Remote(AddressPart),
    /// The peer's network, with prefix lengths in bits for IPv4 and IPv6.
    RemoteNetwork {
        v4: u8,
        v6: u8,
    },
    /// A network with an invalid prefix length; empty.
    Nowhere,
    Target(Which, TargetPart, TargetEncoding),
    QueryValue(Box<[u8]>),
    Field(FieldName),
    /// A field with an invalid name; empty.
    NoField,
    ResponseField(FieldName),
    Cookie(Box<[u8]>),
    Duration,
    DurationMs,
    Uuid,
    Body,
    BodyBase64,
    Tls(OfTls),
    Variable(VarId),
    /// The variable, if a handler set it; otherwise the address of [`Context::client`].
    ClientIp(VarId),
    TrustedProxy(VarId),
    Fault(OfFault),
    Now(Clock),
    ShuttingDown,
    TimeUntilShutdown,
}

/// Variables that Caddy's server sets for each request.
const CLIENT_IP: &str = "client_ip";
const TRUSTED_PROXY: &str = "trusted_proxy";

/// Selects the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Which {
    /// With the changes of handlers.
    Current,
    /// As it arrived.
    Original,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AddressPart {
    Both,
    Host,
    Port,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OfFault {
    Status,
    StatusText,
    Message,
    /// The id, the status and the message.
    Whole,
    Trace,
    Id,
}

impl CompiledName {
    pub(super) fn find(name: &str, build: &mut Build<'_>) -> Option<Self> {
        if let Some(variable) = name.strip_prefix(VARIABLES) {
            let id = build.allocate_variable(variable);
            return Some(Self::Placeholder(match variable {
                CLIENT_IP => PlaceholderId::ClientIp(id),
                TRUSTED_PROXY => PlaceholderId::TrustedProxy(id),
                _ => PlaceholderId::Variable(id),
            }));
        }
        let place = match name.strip_prefix("http.") {
            Some(rest) => PlaceholderId::of_exchange(rest),
            None => name.strip_prefix("time.now").and_then(Clock::find).map(PlaceholderId::Now),
        };
        if matches!(place, Some(PlaceholderId::Body | PlaceholderId::BodyBase64)) {
            // The route or handler with this template then runs after the whole body was read.
            build.record_body_use();
        }
        place.map(Self::Placeholder).or_else(|| load_time::text(name, build).map(Self::Text))
    }
}

impl PlaceholderId {
    /// Compiles the name of a placeholder, without its `http.` prefix.
    pub(super) fn of_exchange(name: &str) -> Option<Self> {
        if let Some(field) = name.strip_prefix("response.header.") {
            return Some(FieldName::parse(field).map_or(Self::NoField, Self::ResponseField));
        }
        if let Some(rest) = name.strip_prefix("request.") {
            return Self::of_request(rest);
        }
        Some(match name {
            "error.status_code" => Self::Fault(OfFault::Status),
            "error.status_text" => Self::Fault(OfFault::StatusText),
            "error.message" => Self::Fault(OfFault::Message),
            "error" => Self::Fault(OfFault::Whole),
            "error.trace" => Self::Fault(OfFault::Trace),
            "error.id" => Self::Fault(OfFault::Id),
            "shutting_down" => Self::ShuttingDown,
            "time_until_shutdown" => Self::TimeUntilShutdown,
            _ => return None,
        })
    }

    fn of_request(name: &str) -> Option<Self> {
        if let Some(field) = name.strip_prefix("header.") {
            return Some(FieldName::parse(field).map_or(Self::NoField, Self::Field));
        }
        if let Some(cookie) = name.strip_prefix("cookie.") {
            return Some(Self::Cookie(cookie.as_bytes().into()));
        }
        if let Some(key) = name.strip_prefix("uri.query.") {
            return Some(Self::QueryValue(key.as_bytes().into()));
        }
        if let Some(label) = name.strip_prefix("host.labels.") {
            return label.parse().ok().map(Self::HostLabel);
        }
        if let Some(bits) = name.strip_prefix("remote.host/") {
            return Some(network(bits).unwrap_or(Self::Nowhere));
        }
        if let Some(fact) = name.strip_prefix("tls.") {
            return OfTls::find(fact).map(Self::Tls);
        }
        if let Some(part) = name.strip_prefix("uri") {
            return part_of(part, Which::Current);
        }
        if let Some(part) = name.strip_prefix("orig_uri") {
            return part_of(part, Which::Original);
        }
        Some(match name {
            "method" => Self::Method(Which::Current),
            "orig_method" => Self::Method(Which::Original),
            "scheme" => Self::Scheme,
            "proto" => Self::Protocol,
            "proto_name" => Self::ProtocolName,
            "host" => Self::Host,
            "hostport" => Self::HostPort,
            "port" => Self::Port,
            "local" => Self::Local(AddressPart::Both),
            "local.host" => Self::Local(AddressPart::Host),
            "local.port" => Self::Local(AddressPart::Port),
            "remote" => Self::Remote(AddressPart::Both),
            "remote.host" => Self::Remote(AddressPart::Host),
            "remote.port" => Self::Remote(AddressPart::Port),
            "duration" => Self::Duration,
            "duration_ms" => Self::DurationMs,
            "uuid" => Self::Uuid,
            "body" => Self::Body,
            "body_base64" => Self::BodyBase64,
            _ => return None,
        })
    }

    /// Appends the placeholder's text; returns false if it is unknown at this time.
    #[inline]
    pub(super) fn render(&self, cx: &mut Context, out: &mut Vec<u8>) -> bool {
        // The most frequent placeholders, inlined; they copy an existing slice.
        let text = match self {
            Self::Variable(id) => cx.variable(*id).unwrap_or_default(),
            Self::Target(Which::Current, TargetPart::Path, TargetEncoding::Plain) => cx.path(),
            Self::Host => host(cx).as_bytes(),
            _ => return self.render_other(cx, out),
        };
        out.extend_from_slice(text);
        true
    }

    /// Appends the placeholder's text and returns the type of its value.
    pub(super) fn render_value(&self, cx: &mut Context, out: &mut Vec<u8>) -> ValueKind {
        let start = out.len();
        if !self.render(cx, out) {
            return ValueKind::Null;
        }
        match self {
            Self::Variable(id) => cx.variable_kind(*id),
            Self::ClientIp(id) | Self::TrustedProxy(id) if cx.variable(*id).is_some() => cx.variable_kind(*id),
            Self::Tls(_) if cx.arrival().tls.is_none() => ValueKind::Null,
            Self::TimeUntilShutdown if cx.worker().shutdown_at().is_none() => ValueKind::Null,
            Self::Duration | Self::TimeUntilShutdown => ValueKind::Duration,
            // A port that is no number is a text in Caddy, as is the port of an address without one.
            Self::Port | Self::Local(AddressPart::Port) | Self::Remote(AddressPart::Port) => {
                let is_number = out.len() > start && out[start..].iter().all(u8::is_ascii_digit);
                if is_number { ValueKind::Scalar } else { ValueKind::Text }
            }
            Self::Tls(OfTls::Resumed | OfTls::ProtocolMutual | OfTls::EncryptedHello)
            | Self::DurationMs
            | Self::Fault(OfFault::Status)
            | Self::ShuttingDown
            | Self::TrustedProxy(_) => ValueKind::Scalar,
            _ => ValueKind::Text,
        }
    }

    /// Appends the value that a variable has although no handler has set it; returns false if it has none.
    pub(super) fn render_unset(variable: &str, cx: &mut Context, out: &mut Vec<u8>) -> bool {
        match variable {
            CLIENT_IP => client(cx.client(), out),
            TRUSTED_PROXY => write(out, format_args!("{}", cx.client().proxied)),
            _ => return false,
        }
        true
    }

    #[inline(never)]
    fn render_other(&self, cx: &mut Context, out: &mut Vec<u8>) -> bool {
        match self {
            // These need `&mut Context`: their first use generates or computes a value.
            Self::Uuid => {
                let uuid = uuid_text(cx.uuid());
                out.extend_from_slice(&uuid);
            }
            Self::ClientIp(id) => match cx.variable(*id) {
                Some(text) => out.extend_from_slice(text),
                None => return Self::render_unset(CLIENT_IP, cx, out),
            },
            Self::TrustedProxy(id) => match cx.variable(*id) {
                Some(text) => out.extend_from_slice(text),
                None => return Self::render_unset(TRUSTED_PROXY, cx, out),
            },
            Self::Fault(part) => {
                let id = cx.fault_id();
                let (Some(fault), Some(id)) = (cx.shown_fault(), id) else { return false };
                part.render(fault, id, out);
            }
            _ => self.render_fact(cx, out),
        }
        true
    }

    /// Appends a text that needs only shared access to the exchange.
    fn render_fact(&self, cx: &Context, out: &mut Vec<u8>) {
        let head = cx.head();
        let text: &[u8] = match self {
            Self::Target(which, part, form) => return target::render(cx, *which, *part, *form, out),
            Self::Field(name) => return joined(cx, name, out),
            Self::ResponseField(name) => {
                cx.response().fields().write_joined(name.as_ref(), out);
                return;
            }
            Self::Method(which) => head_of(cx, *which).method().as_str().as_bytes(),
            Self::Scheme => cx.arrival().scheme.as_str().as_bytes(),
            Self::Protocol => cx.version().as_str().as_bytes(),
            Self::ProtocolName => match cx.version() {
                Version::Http2 => b"HTTP/2",
                version => version.as_str().as_bytes(),
            },
            Self::HostPort => head.authority().unwrap_or_default().as_bytes(),
            Self::Port => cx.host_port().unwrap_or_default().as_bytes(),
            Self::HostLabel(index) => {
                let label = host(cx).rsplit('.').nth(*index).unwrap_or_default();
                return out.extend(label.bytes().map(|byte| byte.to_ascii_lowercase()));
            }
            Self::QueryValue(key) => return query_values(head.target().query().unwrap_or_default(), key, out),
            Self::Cookie(name) => cookie(head.fields(), name).unwrap_or_default(),
            Self::Tls(fact) => return cx.arrival().tls.iter().for_each(|facts| fact.render(facts, out)),
            Self::Body => cx.body_text().unwrap_or_default(),
            Self::BodyBase64 => {
                let text = BASE64_STANDARD.encode(cx.body_text().unwrap_or_default());
                return out.extend_from_slice(text.as_bytes());
            }
            _ => return self.render_number(cx, out),
        };
        out.extend_from_slice(text);
    }

    /// Appends a text that must be formatted.
    fn render_number(&self, cx: &Context, out: &mut Vec<u8>) {
        let took = || cx.worker().now().saturating_duration_since(cx.arrival().at);
        match self {
            Self::Local(end) => match &cx.arrival().ends {
                Endpoints::Ip { local, .. } => address(*local, *end, out),
                Endpoints::Unix(path) => unix_address(path, *end, out),
            },
            Self::Remote(end) => match &cx.arrival().ends {
                Endpoints::Ip { peer, .. } => address(*peer, *end, out),
                Endpoints::Unix(_) => unix_address(UNIX_PEER, *end, out),
            },
            Self::RemoteNetwork { v4, v6 } => {
                let Some(ip) = cx.arrival().ends.peer_ip() else { return out.extend_from_slice(UNIX_PEER.as_bytes()) };
                let bits = if ip.is_ipv4() { *v4 } else { *v6 };
                if let Ok(network) = ipnet::IpNet::new(ip, bits) {
                    write(out, format_args!("{}", network.trunc()));
                }
            }
            Self::Duration => go_duration(took(), out),
            Self::DurationMs => write(out, format_args!("{}", took().as_secs_f64() * 1e3)),
            Self::Now(clock) => clock.render(cx.worker().wall(), out),
            Self::ShuttingDown => write(out, format_args!("{}", cx.worker().shutdown_at().is_some())),
            Self::TimeUntilShutdown => {
                if let Some(at) = cx.worker().shutdown_at() {
                    go_duration(at.saturating_duration_since(cx.worker().now()), out);
                }
            }
            _ => {}
        }
    }
}

/// Appends formatted text. Writing to a vector cannot fail.
fn write(out: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    let _ = out.write_fmt(text);
}

fn head_of(cx: &Context, which: Which) -> &Head {
    match which {
        Which::Current => cx.head(),
        Which::Original => cx.original(),
    }
}

/// Returns the host without its port. An IPv6 literal without a port keeps its brackets, as in Caddy.
fn host(cx: &Context) -> &str {
    match cx.head().authority() {
        Some(authority) if authority.ends_with(']') => authority,
        Some(authority) => split_authority(authority).0,
        None => "",
    }
}

fn address(address: SocketAddr, end: AddressPart, out: &mut Vec<u8>) {
    let ip = address.ip().to_canonical();
    match end {
        AddressPart::Host => write(out, format_args!("{ip}")),
        AddressPart::Port => write(out, format_args!("{}", address.port())),
        AddressPart::Both => write(out, format_args!("{}", SocketAddr::new(ip, address.port()))),
    }
}

/// Appends the address of a Unix socket. As in Caddy, it is a host without a port.
fn unix_address(path: &str, end: AddressPart, out: &mut Vec<u8>) {
    if end != AddressPart::Port {
        out.extend_from_slice(path.as_bytes());
    }
}

/// Appends the client's address. As in Caddy, the peer of a Unix socket has one only if it is trusted.
fn client(client: Client, out: &mut Vec<u8>) {
    match client.ip {
        Some(ip) => write(out, format_args!("{ip}")),
        None if client.proxied => out.extend_from_slice(UNIX_PEER.as_bytes()),
        None => {}
    }
}

/// Parses `V4[,V6]`: prefix lengths of the peer's network.
fn network(bits: &str) -> Option<PlaceholderId> {
    let (v4, v6) = bits.split_once(',').unwrap_or((bits, bits));
    Some(PlaceholderId::RemoteNetwork { v4: v4.parse().ok()?, v6: v6.parse().ok()? })
}

/// Appends all values of a request field. `Host` is taken from the authority: the target may hold it in place of the
/// field.
fn joined(cx: &Context, name: &FieldName, out: &mut Vec<u8>) {
    match name.as_ref() {
        NameRef::Known(names::HOST) => out.extend_from_slice(cx.head().authority().unwrap_or_default().as_bytes()),
        name => {
            cx.head().fields().write_joined(name, out);
        }
    }
}

/// Returns the value of a cookie. The name is compared without case.
fn cookie<'f>(fields: &'f FieldMap, name: &[u8]) -> Option<&'f [u8]> {
    let mut all = fields.get_all(names::COOKIE).flat_map(cookies);
    all.find_map(|(found, value)| found.eq_ignore_ascii_case(name).then_some(value))
}

impl OfFault {
    fn render(self, fault: &Fault, id: FaultId, out: &mut Vec<u8>) {
        match self {
            Self::Status => write(out, format_args!("{}", fault.status.as_u16())),
            Self::StatusText => out.extend_from_slice(fault.status.reason().as_bytes()),
            Self::Message => write(out, format_args!("{fault}")),
            Self::Whole => {
                write(
                    out,
                    format_args!("{{id={}}}: HTTP {}", String::from_utf8_lossy(&id.text()), fault.status.as_u16()),
                );
                if !matches!(fault.reason, Reason::Status) {
                    write(out, format_args!(": {fault}"));
                }
            }
            Self::Trace => {}
            Self::Id => out.extend_from_slice(&id.text()),
        }
    }
}

#[cfg(test)]
mod tests;
