//! What belongs to the request: each placeholder of Caddy's HTTP list that needs no proxy, and the clock.
//!
//! - `target`: the target and what it is made of
//! - `time`: the clock and durations
//! - `tls`: what a TLS handshake agreed on

mod target;
mod time;
mod tls;

use std::io::Write as _;
use std::net::SocketAddr;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use causeway_message::{FieldMap, FieldName, Head, NameRef, Version, names};

use target::{Form, Part, part_of, query_values};
use time::Clock;
pub use time::go_duration;
use tls::OfTls;

use super::{VARIABLES, load_time};
use crate::build::Build;
use crate::context::{Context, VarId, split_authority};
use crate::handler::{Fault, Reason};

/// A name that means something.
pub(super) enum Known {
    /// The same for every request.
    Text(String),
    Place(Place),
}

/// A part of an exchange.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Place {
    Method(Which),
    Scheme,
    Protocol,
    ProtocolName,
    Host,
    HostPort,
    Port,
    /// Counted from the right, from 0.
    HostLabel(usize),
    Local(End),
    Remote(End),
    /// The peer's network of so many bits, for IPv4 and IPv6.
    RemoteNetwork {
        v4: u8,
        v6: u8,
    },
    /// A network of bits that no address has.
    Nowhere,
    Target(Which, Part, Form),
    QueryValue(Box<[u8]>),
    Field(FieldName),
    /// A field of a name that no field can have.
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
    /// What a variable of this name says, else what is known of who asks.
    ClientIp(VarId),
    TrustedProxy(VarId),
    Fault(OfFault),
    Now(Clock),
    ShuttingDown,
    TimeUntilShutdown,
}

/// Of which request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Which {
    /// As handlers left it.
    Current,
    /// As it arrived.
    Original,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Both,
    Host,
    Port,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OfFault {
    Status,
    StatusText,
    Message,
    Trace,
    Id,
}

impl Known {
    pub(super) fn find(name: &str, build: &mut Build<'_>) -> Option<Self> {
        if let Some(variable) = name.strip_prefix(VARIABLES) {
            let id = build.variable(variable);
            return Some(Self::Place(match variable {
                "client_ip" => Place::ClientIp(id),
                "trusted_proxy" => Place::TrustedProxy(id),
                _ => Place::Variable(id),
            }));
        }
        let place = match name.strip_prefix("http.") {
            Some(rest) => Place::of_exchange(rest),
            None => name.strip_prefix("time.now").and_then(Clock::find).map(Place::Now),
        };
        if matches!(place, Some(Place::Body | Place::BodyBase64)) {
            build.needs_body();
        }
        place.map(Self::Place).or_else(|| load_time::text(name, build).map(Self::Text))
    }
}

impl Place {
    /// What a name stands for, without its `http.`.
    fn of_exchange(name: &str) -> Option<Self> {
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
            "local" => Self::Local(End::Both),
            "local.host" => Self::Local(End::Host),
            "local.port" => Self::Local(End::Port),
            "remote" => Self::Remote(End::Both),
            "remote.host" => Self::Remote(End::Host),
            "remote.port" => Self::Remote(End::Port),
            "duration" => Self::Duration,
            "duration_ms" => Self::DurationMs,
            "uuid" => Self::Uuid,
            "body" => Self::Body,
            "body_base64" => Self::BodyBase64,
            _ => return None,
        })
    }

    /// Appends its text; false when it is not known now.
    #[inline]
    pub(super) fn render(&self, cx: &mut Context, out: &mut Vec<u8>) -> bool {
        // Those that configurations name most are written where they lie.
        let text = match self {
            Self::Variable(id) => cx.variable(*id).unwrap_or_default(),
            Self::Target(Which::Current, Part::Path, Form::Plain) => cx.path(),
            Self::Host => host(cx).as_bytes(),
            _ => return self.render_other(cx, out),
        };
        out.extend_from_slice(text);
        true
    }

    #[inline(never)]
    fn render_other(&self, cx: &mut Context, out: &mut Vec<u8>) -> bool {
        match self {
            // These may draw or work out something on first use.
            Self::Uuid => {
                let uuid = uuid_text(cx.uuid());
                out.extend_from_slice(&uuid);
            }
            Self::ClientIp(id) => match cx.variable(*id) {
                Some(text) => out.extend_from_slice(text),
                None => write(out, format_args!("{}", cx.client().ip)),
            },
            Self::TrustedProxy(id) => match cx.variable(*id) {
                Some(text) => out.extend_from_slice(text),
                None => write(out, format_args!("{}", cx.client().proxied)),
            },
            Self::Fault(part) => {
                let id = cx.fault_id();
                let (Some(fault), Some(id)) = (cx.fault(), id) else { return false };
                part.render(fault, id, out);
            }
            _ => self.render_fact(cx, out),
        }
        true
    }

    /// Appends what can be said without changing the exchange.
    fn render_fact(&self, cx: &Context, out: &mut Vec<u8>) {
        let head = cx.head();
        let text: &[u8] = match self {
            Self::Target(which, part, form) => return target::render(cx, *which, *part, *form, out),
            Self::Field(name) => return joined(cx, name, out),
            Self::ResponseField(name) => return join(cx.response().fields(), name.as_ref(), out),
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
                let label = cx.host().rsplit('.').nth(*index).unwrap_or_default();
                return out.extend(label.bytes().map(|octet| octet.to_ascii_lowercase()));
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

    /// Appends what has to be formatted.
    fn render_number(&self, cx: &Context, out: &mut Vec<u8>) {
        let took = || cx.worker().now().saturating_duration_since(cx.arrival().at);
        match self {
            Self::Local(end) => address(cx.arrival().local, *end, out),
            Self::Remote(end) => address(cx.arrival().peer, *end, out),
            Self::RemoteNetwork { v4, v6 } => {
                let ip = cx.arrival().peer.ip().to_canonical();
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

/// Writing to a vector does not fail.
fn write(out: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    let _ = out.write_fmt(text);
}

fn head_of(cx: &Context, which: Which) -> &Head {
    match which {
        Which::Current => cx.head(),
        Which::Original => cx.original(),
    }
}

/// The host without its port. An IPv6 literal keeps its brackets where no port follows, as in Caddy.
fn host(cx: &Context) -> &str {
    match cx.head().authority() {
        Some(authority) if authority.ends_with(']') => authority,
        Some(authority) => split_authority(authority).0,
        None => "",
    }
}

fn address(address: SocketAddr, end: End, out: &mut Vec<u8>) {
    let ip = address.ip().to_canonical();
    match end {
        End::Host => write(out, format_args!("{ip}")),
        End::Port => write(out, format_args!("{}", address.port())),
        End::Both => write(out, format_args!("{}", SocketAddr::new(ip, address.port()))),
    }
}

/// `V4[,V6]`: bits of the peer's network.
fn network(bits: &str) -> Option<Place> {
    let (v4, v6) = bits.split_once(',').unwrap_or((bits, bits));
    Some(Place::RemoteNetwork { v4: v4.parse().ok()?, v6: v6.parse().ok()? })
}

/// All values of a request's field; the host may stand in the target and not among the fields.
fn joined(cx: &Context, name: &FieldName, out: &mut Vec<u8>) {
    match name.as_ref() {
        NameRef::Known(names::HOST) => out.extend_from_slice(cx.head().authority().unwrap_or_default().as_bytes()),
        name => join(cx.head().fields(), name, out),
    }
}

fn join(fields: &FieldMap, name: NameRef<'_>, out: &mut Vec<u8>) {
    if let NameRef::Known(known) = name
        && !fields.is_repeated(known)
    {
        return out.extend_from_slice(fields.get(known).unwrap_or_default());
    }
    let mut values = fields.get_all(name);
    out.extend_from_slice(values.next().unwrap_or_default());
    values.for_each(|value| {
        out.push(b',');
        out.extend_from_slice(value);
    });
}

/// The value of a cookie, its name in any case (RFC 6265 §5.4), quotes around it taken off.
fn cookie<'f>(fields: &'f FieldMap, name: &[u8]) -> Option<&'f [u8]> {
    let pairs = fields.get_all(names::COOKIE).flat_map(|line| line.split(|&octet| octet == b';'));
    pairs.map(<[u8]>::trim_ascii).find_map(|pair| {
        let at = pair.iter().position(|&octet| octet == b'=')?;
        let value = &pair[at + 1..];
        let inner = value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\"")).unwrap_or(value);
        pair[..at].eq_ignore_ascii_case(name).then_some(inner)
    })
}

impl OfFault {
    fn render(self, fault: &Fault, id: u64, out: &mut Vec<u8>) {
        match self {
            Self::Status => write(out, format_args!("{}", fault.status.as_u16())),
            Self::StatusText => out.extend_from_slice(fault.status.reason().as_bytes()),
            // Caddy: the status text where nobody said more.
            Self::Message => match fault.reason {
                Reason::Status => out.extend_from_slice(fault.status.reason().as_bytes()),
                ref reason => write(out, format_args!("{reason}")),
            },
            Self::Trace => {}
            Self::Id => {
                // Nine characters of 32, as Caddy's; none that are taken for one another.
                const LETTERS: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";
                out.extend((0..9).map(|at| LETTERS[(id >> (at * 5)) as usize & 31]));
            }
        }
    }
}

/// 8-4-4-4-12 hexadecimal digits (RFC 9562 §4).
fn uuid_text(uuid: u128) -> [u8; 36] {
    let mut text = [b'-'; 36];
    let mut shift = 128;
    for (at, octet) in text.iter_mut().enumerate() {
        if !matches!(at, 8 | 13 | 18 | 23) {
            shift -= 4;
            *octet = b"0123456789abcdef"[(uuid >> shift) as usize & 15];
        }
    }
    text
}

#[cfg(test)]
mod tests;
