//! The fields of an access record, with Caddy's names and order.

use std::io::Write as _;
use std::net::IpAddr;

use causeway_message::syntax::write_number;
use causeway_message::{FieldMap, NameRef, Version};
use causeway_pipeline::{Context, Outcome, TlsFacts, UNIX_PEER};

use super::Slots;
use crate::field_name::canonical;
use crate::logs::{FieldSink, Fields, LogValue};

/// Fields whose values are replaced by `REDACTED` unless `log_credentials` is on; Caddy's list.
const CREDENTIALS: [&str; 4] = ["Cookie", "Set-Cookie", "Authorization", "Proxy-Authorization"];
/// Length of the longest address as text, an IPv6 address that ends in an IPv4 address.
const ADDRESS_BYTES: usize = 45;

/// A request that is over.
pub(super) struct Record<'r> {
    pub(super) cx: &'r Context,
    pub(super) outcome: &'r Outcome,
    pub(super) slots: &'r Slots,
    pub(super) credentials: bool,
}

impl Record<'_> {
    pub(super) fn status(&self) -> u16 {
        self.outcome.status.map_or(0, causeway_message::StatusCode::as_u16)
    }

    fn headers<'h>(&self, fields: &'h FieldMap, side: Side) -> Headers<'h> {
        Headers { fields, side, credentials: self.credentials }
    }
}

impl Fields for Record<'_> {
    fn visit(&self, sink: &mut dyn FieldSink) {
        let Self { cx, outcome, slots, .. } = self;
        sink.object("request", &RequestFields(self));
        sink.value("bytes_read", LogValue::Unsigned(outcome.received));
        sink.value("user_id", LogValue::Text(cx.variable(slots.user).unwrap_or_default()));
        sink.value("duration", LogValue::Duration(outcome.took));
        sink.value("size", LogValue::Unsigned(outcome.sent));
        sink.value("status", LogValue::Unsigned(self.status().into()));
        sink.object("resp_headers", &self.headers(cx.response().fields(), Side::Response));
        let plan = cx.generation().plan();
        for (key, slot) in plan.family(slots.texts) {
            if let Some(text) = cx.variable(*slot) {
                sink.value(key, LogValue::Text(text));
            }
        }
        for (key, slot) in plan.family(slots.numbers) {
            let Some(text) = cx.variable(*slot) else { continue };
            let number = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
            sink.value(key, number.map_or(LogValue::Text(text), LogValue::Unsigned));
        }
    }
}

/// The object `request`.
struct RequestFields<'r>(&'r Record<'r>);

impl Fields for RequestFields<'_> {
    fn visit(&self, sink: &mut dyn FieldSink) {
        let cx = self.0.cx;
        let (arrival, head) = (cx.arrival(), cx.original());
        let (peer, client) = (arrival.ends.peer_ip(), cx.known_client());
        let mut text = AddressText::of_peer(peer.as_ref(), true);
        sink.value("remote_ip", LogValue::Text(text.bytes()));
        let mut digits = [0; 20];
        let port = arrival.ends.peer().map_or(&[][..], |peer| write_number(peer.port().into(), &mut digits));
        sink.value("remote_port", LogValue::Text(port));
        if client.ip != peer || peer.is_none() {
            text = AddressText::of_peer(client.ip.as_ref(), client.proxied);
        }
        sink.value("client_ip", LogValue::Text(text.bytes()));
        let version = if head.version() == Version::Http2 { "HTTP/2.0" } else { head.version().as_str() };
        for (key, value) in [
            ("proto", version),
            ("method", head.method().as_str()),
            ("host", head.authority().unwrap_or_default()),
            ("uri", head.target().as_str()),
        ] {
            sink.value(key, LogValue::Text(value.as_bytes()));
        }
        sink.object("headers", &self.0.headers(head.fields(), Side::Request));
        // As in Go, the coding of the transfer is no field of the request.
        if head.fields().get(NameRef::Other("transfer-encoding")).is_some() {
            let codings = |take: &mut dyn FnMut(&[u8])| {
                head.fields().get_all(NameRef::Other("transfer-encoding")).for_each(&mut *take);
            };
            sink.value("transfer_encoding", LogValue::Texts(&codings));
        }
        if let Some(tls) = arrival.tls.as_deref() {
            sink.object("tls", &TlsFields(tls));
        }
    }
}

/// The message that a field belongs to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Request,
    Response,
}

/// Header fields: a list of values for each name, which is in Go's canonical form.
struct Headers<'h> {
    fields: &'h FieldMap,
    side: Side,
    credentials: bool,
}

impl Fields for Headers<'_> {
    fn visit(&self, sink: &mut dyn FieldSink) {
        let is_left_out = |name: &str| {
            self.side == Side::Request
                && (name.eq_ignore_ascii_case("host") || name.eq_ignore_ascii_case("transfer-encoding"))
        };
        for (index, (field, _)) in self.fields.iter().enumerate() {
            let name = field.as_str();
            // All values of a name are one member, at its first place.
            let is_repeat = self.fields.iter().take(index).any(|(other, _)| other.as_str().eq_ignore_ascii_case(name));
            if is_repeat || is_left_out(name) {
                continue;
            }
            let is_secret = !self.credentials && CREDENTIALS.iter().any(|secret| secret.eq_ignore_ascii_case(name));
            let values = |take: &mut dyn FnMut(&[u8])| {
                if is_secret {
                    take(b"REDACTED");
                } else {
                    self.fields.get_all(field).for_each(&mut *take);
                }
            };
            canonical(name, |name| sink.value(name, LogValue::Texts(&values)));
        }
    }
}

/// The object `tls` of a request.
struct TlsFields<'t>(&'t TlsFacts);

impl Fields for TlsFields<'_> {
    fn visit(&self, sink: &mut dyn FieldSink) {
        let tls = self.0;
        sink.value("resumed", LogValue::Bool(tls.resumed));
        sink.value("version", LogValue::Unsigned(tls_version(tls.version)));
        sink.value("cipher_suite", LogValue::Unsigned(suite_number(tls.cipher_suite)));
        sink.value("proto", LogValue::Text(tls.protocol.as_bytes()));
        sink.value("server_name", LogValue::Text(tls.server_name.as_deref().unwrap_or_default().as_bytes()));
        // Encrypted Client Hello is not built.
        sink.value("ech", LogValue::Bool(false));
    }
}

/// An address as text, on the stack.
struct AddressText {
    text: [u8; ADDRESS_BYTES],
    len: usize,
}

impl AddressText {
    /// Without an address it is the peer of a Unix socket, which has a text only if `is_shown`.
    fn of_peer(address: Option<&IpAddr>, is_shown: bool) -> Self {
        let Some(address) = address else {
            let mut text = [0; ADDRESS_BYTES];
            text[..UNIX_PEER.len()].copy_from_slice(UNIX_PEER.as_bytes());
            return Self { text, len: if is_shown { UNIX_PEER.len() } else { 0 } };
        };
        Self::of(address)
    }

    fn of(address: &IpAddr) -> Self {
        let mut text = [0; ADDRESS_BYTES];
        let mut rest = &mut text[..];
        // The longest address fits.
        let _ = match address {
            // `std::fmt` takes several times as long for it.
            IpAddr::V4(address) => address.octets().iter().enumerate().try_for_each(|(index, octet)| {
                rest.write_all(if index > 0 { b"." } else { b"" })?;
                rest.write_all(write_number((*octet).into(), &mut [0; 20]))
            }),
            IpAddr::V6(address) => write!(rest, "{address}"),
        };
        let left = rest.len();
        Self { text, len: ADDRESS_BYTES - left }
    }

    fn bytes(&self) -> &[u8] {
        &self.text[..self.len]
    }
}

/// The version's number in the protocol (RFC 8446 §4.2.1).
fn tls_version(name: &str) -> u64 {
    if name == "tls1.2" { 0x0303 } else { 0x0304 }
}

/// The registered number of a cipher suite; 0 for one that this version does not negotiate.
fn suite_number(name: &str) -> u64 {
    match name {
        "TLS_AES_128_GCM_SHA256" => 0x1301,
        "TLS_AES_256_GCM_SHA384" => 0x1302,
        "TLS_CHACHA20_POLY1305_SHA256" => 0x1303,
        "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256" => 0xc02b,
        "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384" => 0xc02c,
        "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256" => 0xc02f,
        "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384" => 0xc030,
        "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256" => 0xcca8,
        "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256" => 0xcca9,
        _ => 0,
    }
}
