//! The fields of an access record, with Caddy's names and order.

use causeway_message::syntax::write_number;
use causeway_message::{FieldMap, Head, KnownName, Method, NameRef, StatusCode, Version, names};
use causeway_pipeline::{Context, Ending, Outcome, TlsFacts, UNIX_PEER};

use super::RecordSlots;
use crate::field_name::canonical;
use crate::ip_text::IpText;
use crate::log_append::{self, LoggedSpan};
use crate::logs::{EachField, FieldSink, LogKey, LogValue, key};

/// Fields whose values are replaced by `REDACTED` unless `log_credentials` is on; Caddy's list.
const CREDENTIALS: [KnownName; 4] =
    [names::COOKIE, names::SET_COOKIE, names::AUTHORIZATION, names::PROXY_AUTHORIZATION];
/// Fields that Go takes out of a request's fields: it has the host and the coding of the transfer elsewhere.
const NOT_IN_REQUEST: [KnownName; 2] = [names::HOST, names::TRANSFER_ENCODING];

/// A request that is over.
pub(super) struct Record<'r> {
    pub(super) cx: &'r Context,
    pub(super) outcome: &'r Outcome,
    pub(super) slots: &'r RecordSlots,
    pub(super) headers: &'r HeaderTable,
}

impl Record<'_> {
    /// Whether no handler responded, and none replaced the empty response.
    pub(super) fn is_unhandled(&self) -> bool {
        self.cx.is_unhandled() && self.outcome.status == Some(StatusCode::OK)
    }

    /// The status, as in Caddy: 499 if the client was gone before the response began; 0 if no handler responded, or one
    /// aborted.
    pub(super) fn status(&self) -> u16 {
        match self.outcome.status {
            Some(_) if self.is_unhandled() => 0,
            Some(status) => status.as_u16(),
            None if matches!(self.outcome.ending, Ending::Aborted | Ending::Panicked) => 0,
            None => Outcome::CLIENT_CLOSED,
        }
    }
}

impl EachField for Record<'_> {
    fn each<S: FieldSink + ?Sized>(&self, sink: &mut S) {
        let Self { cx, outcome, slots, headers: table } = self;
        sink.object(key!("request"), &RequestFields { cx, head: cx.original(), headers: table });
        sink.value(key!("bytes_read"), LogValue::Unsigned(outcome.read));
        sink.value(key!("user_id"), LogValue::Text(cx.variable(slots.user).unwrap_or_default()));
        sink.value(key!("duration"), LogValue::Duration(outcome.took));
        sink.value(key!("size"), LogValue::Unsigned(outcome.sent));
        sink.value(key!("status"), LogValue::Unsigned(self.status().into()));
        sink.object(key!("resp_headers"), &ResponseFields { cx, table });
        if let Some(uuid) = cx.known_uuid() {
            sink.value(key!("uuid"), LogValue::Plain(&uuid));
        }
        let plan = cx.generation().plan();
        for (key, slot) in plan.family(slots.fields) {
            if let Some(value) = log_append::logged(cx, *slot) {
                sink.value((&**key).into(), value);
            }
        }
        for (key, slot) in plan.family(slots.spans) {
            if let Some(span) = log_append::span(cx, *slot, outcome) {
                let value = match span {
                    LoggedSpan::NotBegun => LogValue::Null,
                    LoggedSpan::Took(span) => LogValue::Duration(span),
                };
                sink.value((&**key).into(), value);
            }
        }
        for (key, slot) in plan.family(slots.spans_ms) {
            if let Some(span) = log_append::span(cx, *slot, outcome) {
                let value = match span {
                    LoggedSpan::NotBegun => LogValue::Null,
                    LoggedSpan::Took(span) => LogValue::Float(span.as_secs_f64() * 1e3),
                };
                sink.value((&**key).into(), value);
            }
        }
    }
}

/// The object `resp_headers`. As in Caddy it has the trailers too: under their names if the head's `Trailer` announced
/// them and the head has no such field, otherwise after the prefix `Trailer:`.
struct ResponseFields<'r> {
    cx: &'r Context,
    table: &'r HeaderTable,
}

impl EachField for ResponseFields<'_> {
    fn each<S: FieldSink + ?Sized>(&self, sink: &mut S) {
        let fields = self.cx.response().fields();
        Headers { fields, left_out: &[], table: self.table }.each(sink);
        let Some(trailers) = self.cx.response_trailers() else { return };
        let headers = Headers { fields: trailers, left_out: &[], table: self.table };
        for (index, (field, _)) in trailers.iter().enumerate() {
            if headers.has_before(index, field) {
                continue;
            }
            let values = |take: &mut dyn FnMut(&[u8])| trailers.get_all(field).for_each(&mut *take);
            let is_secret = matches!(field, NameRef::Known(known) if self.table.0[known.index()].is_secret);
            let value = if is_secret { LogValue::OneText(b"REDACTED") } else { LogValue::Texts(&values) };
            let is_announced = fields.has_token(names::TRAILER, field.as_str());
            canonical(field.as_str(), |name| match is_announced && fields.get(field).is_none() {
                true => sink.value(name.into(), value),
                false => sink.value((&*format!("Trailer:{name}")).into(), value),
            });
        }
    }
}

/// The object `request`.
pub(super) struct RequestFields<'r> {
    pub(super) cx: &'r Context,
    /// The client's request, or one that was made of it.
    pub(super) head: &'r Head,
    pub(super) headers: &'r HeaderTable,
}

impl EachField for RequestFields<'_> {
    fn each<S: FieldSink + ?Sized>(&self, sink: &mut S) {
        let Self { cx, head, headers } = self;
        let arrival = cx.arrival();
        let (peer, client) = (arrival.ends.peer_ip(), cx.known_client());
        let peer_text = peer.map(IpText::of);
        let remote_ip = peer_text.as_ref().map_or(UNIX_PEER.as_bytes(), IpText::as_bytes);
        sink.value(key!("remote_ip"), LogValue::Plain(remote_ip));
        let mut digits = [0; 20];
        let port = arrival.ends.peer().map_or(&[][..], |peer| write_number(peer.port().into(), &mut digits));
        sink.value(key!("remote_port"), LogValue::Plain(port));
        let client_text = if client.ip == peer { peer_text } else { client.ip.map(IpText::of) };
        // Without an address it is the peer of a Unix socket, which has a text only if a trusted proxy sent the
        // request.
        let without_ip = if client.proxied { UNIX_PEER } else { "" };
        let client_ip = client_text.as_ref().map_or(without_ip.as_bytes(), IpText::as_bytes);
        sink.value(key!("client_ip"), LogValue::Plain(client_ip));
        let version = if head.version() == Version::Http2 { "HTTP/2.0" } else { head.version().as_str() };
        sink.value(key!("proto"), LogValue::Plain(version.as_bytes()));
        let method = match head.method() {
            Method::Other(name) => LogValue::Text(name.as_bytes()),
            method => LogValue::Plain(method.as_str().as_bytes()),
        };
        sink.value(key!("method"), method);
        sink.value(key!("host"), LogValue::Text(head.authority_bytes().unwrap_or_default()));
        sink.value(key!("uri"), LogValue::Text(head.target_bytes()));
        let headers = Headers { fields: head.fields(), left_out: &NOT_IN_REQUEST, table: headers };
        sink.object(key!("headers"), &headers);
        // As in Go, the coding of the transfer is no field of the request.
        if head.fields().contains(names::TRANSFER_ENCODING) {
            let codings = |take: &mut dyn FnMut(&[u8])| {
                head.fields().get_all(names::TRANSFER_ENCODING).for_each(&mut *take);
            };
            sink.value(key!("transfer_encoding"), LogValue::Texts(&codings));
        }
        if let Some(tls) = arrival.tls.as_deref() {
            sink.object(key!("tls"), &TlsFields(tls));
        }
    }
}

/// The registered header fields as a record shows them, by their index.
pub(super) struct HeaderTable(Box<[HeaderSpec]>);

struct HeaderSpec {
    /// The name in Go's canonical form, as a [`LogKey`] takes it.
    json: Box<str>,
    /// Whether `REDACTED` stands for the values.
    is_secret: bool,
}

impl HeaderTable {
    /// Creates the table. `credentials`: whether values of [`CREDENTIALS`] are shown.
    pub(super) fn new(credentials: bool) -> Self {
        let spec = |name: KnownName| {
            let mut json = String::new();
            canonical(name.as_str(), |name| json = LogKey::json_of(name));
            HeaderSpec { json: json.into(), is_secret: !credentials && CREDENTIALS.contains(&name) }
        };
        Self(KnownName::all().map(spec).collect())
    }
}

/// The header fields of a message: a list of values for each name, which is in Go's canonical form.
pub(super) struct Headers<'h> {
    pub(super) fields: &'h FieldMap,
    pub(super) left_out: &'h [KnownName],
    pub(super) table: &'h HeaderTable,
}

impl EachField for Headers<'_> {
    fn each<S: FieldSink + ?Sized>(&self, sink: &mut S) {
        for (index, (field, value)) in self.fields.iter().enumerate() {
            let values = |take: &mut dyn FnMut(&[u8])| self.fields.get_all(field).for_each(&mut *take);
            match field {
                NameRef::Known(known) => {
                    let is_repeated = self.fields.is_repeated(known);
                    if self.left_out.contains(&known) || is_repeated && self.has_before(index, field) {
                        continue;
                    }
                    let HeaderSpec { json, is_secret } = &self.table.0[known.index()];
                    let value = match (is_secret, is_repeated) {
                        (true, _) => LogValue::OneText(b"REDACTED"),
                        (false, false) => LogValue::OneText(value),
                        (false, true) => LogValue::Texts(&values),
                    };
                    sink.value(LogKey::prepared(json), value);
                }
                NameRef::Other(name) => {
                    if !self.has_before(index, field) {
                        canonical(name, |name| sink.value(name.into(), LogValue::Texts(&values)));
                    }
                }
            }
        }
    }
}

impl Headers<'_> {
    /// All values of a name are one member, at its first place: returns whether it has one before `index`.
    fn has_before(&self, index: usize, field: NameRef<'_>) -> bool {
        let is_equal = |other: NameRef<'_>| match (other, field) {
            (NameRef::Known(one), NameRef::Known(two)) => one == two,
            (NameRef::Other(one), NameRef::Other(two)) => one.eq_ignore_ascii_case(two),
            _ => false,
        };
        self.fields.iter().take(index).any(|(other, _)| is_equal(other))
    }
}

/// The object `tls` of a request.
struct TlsFields<'t>(&'t TlsFacts);

impl EachField for TlsFields<'_> {
    fn each<S: FieldSink + ?Sized>(&self, sink: &mut S) {
        let tls = self.0;
        sink.value(key!("resumed"), LogValue::Bool(tls.resumed));
        sink.value(key!("version"), LogValue::Unsigned(tls.version_number().into()));
        sink.value(key!("cipher_suite"), LogValue::Unsigned(tls.cipher_suite_number().into()));
        sink.value(key!("proto"), LogValue::Text(tls.protocol.as_bytes()));
        sink.value(key!("server_name"), LogValue::Text(tls.server_name.as_deref().unwrap_or_default().as_bytes()));
        // Encrypted Client Hello is not supported.
        sink.value(key!("ech"), LogValue::Bool(false));
        if let Some(client) = &tls.client_certificate {
            sink.value(key!("client_common_name"), LogValue::Text(client.common_name().as_bytes()));
            sink.value(key!("client_serial"), LogValue::Plain(client.serial().as_bytes()));
        }
    }
}
