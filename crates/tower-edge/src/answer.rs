//! Converts a service's response to the pipeline's.
//!
//! - `outgoing`: streamed response bodies

mod outgoing;

use std::error::Error;

use bytes::Buf;
use causeway_message::{Chunk, FieldLine, FieldMap, FieldValue, NameRef, StatusCode, names, syntax};
use causeway_pipeline::{Body, Frame};
use http::{HeaderMap, HeaderName, HeaderValue, header};

pub(crate) use outgoing::BodyStorage;

use crate::names::name;
use outgoing::{FirstPoll, Outgoing, poll_once};

/// An error of a service or of its response body.
pub(crate) type BoxError = Box<dyn Error + Send + Sync>;

/// Converts a status. Both types have the same range, so the fallback is not reached.
pub(crate) fn status(status: http::StatusCode) -> StatusCode {
    StatusCode::new(status.as_u16()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}

/// The source of a response's Content-Length.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Length {
    /// The length of the content.
    Content,
    /// The service's field: a response to HEAD has no content to measure.
    Service,
}

/// Copies a service's fields. Each name replaces the fields set before; Set-Cookie and Vary are added to them. Those
/// that the service's Connection field names are about a connection that the service does not have (RFC 9110 §7.6.1):
/// they are dropped, except Upgrade, which announces a protocol to the client.
pub(crate) fn put_fields(fields: &HeaderMap, length: Length, into: &mut FieldMap) {
    let mut before: Option<&HeaderName> = None;
    let has_options = fields.contains_key(header::CONNECTION);
    for (spelled, value) in fields {
        if *spelled == header::CONTENT_LENGTH && length == Length::Content {
            continue;
        }
        if has_options && *spelled != header::UPGRADE && is_option(spelled, fields) {
            continue;
        }
        let name = name(spelled);
        // The map yields all values of a name in sequence: the first one replaces, the others are added.
        let adds = before == Some(spelled) || *spelled == header::SET_COOKIE || *spelled == header::VARY;
        before = Some(spelled);
        if adds || !into.contains(name) {
            append(name, value, into);
        } else if let Some(value) = FieldValue::parse(syntax::trim_ows(value.as_bytes())) {
            into.insert(name, value);
        }
    }
}

/// Returns whether the Connection fields name this field.
#[cold]
fn is_option(name: &HeaderName, fields: &HeaderMap) -> bool {
    let options =
        fields.get_all(header::CONNECTION).iter().flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
    options.map(syntax::trim_ows).any(|option| option.eq_ignore_ascii_case(name.as_str().as_bytes()))
}

/// Appends a field. A `HeaderValue` contains valid bytes (RFC 9110 §5.5), except for possible whitespace at its ends.
fn append(name: NameRef<'_>, value: &HeaderValue, into: &mut FieldMap) {
    let is_sensitive = value.is_sensitive();
    into.push_line(FieldLine { name, value: syntax::trim_ows(value.as_bytes()), is_sensitive });
}

/// Converts a body: empty, one chunk if all of it is available at once, otherwise a stream.
pub(crate) fn body<B>(fields: &HeaderMap, body: B, places: &BodyStorage<B>) -> Body
where
    B: http_body::Body + 'static,
    B::Error: Into<BoxError>,
{
    if body.is_end_stream() {
        return Body::Empty;
    }
    let exact = body.size_hint().exact();
    // RFC 9110 §6.6.2: a Trailer field announces trailers. HTTP/1.1 can send them only without a Content-Length.
    let len = if fields.contains_key(header::TRAILER) { None } else { exact.or_else(|| declared_length(fields)) };
    let mut place = places.put(body);
    let first = match exact {
        Some(bytes) => poll_once(&mut place, bytes),
        None => FirstPoll::Nothing,
    };
    match first {
        // Known completely: the engine can send it with the head in one write.
        FirstPoll::Whole(chunk) => {
            places.keep(place);
            Body::Chunk(chunk)
        }
        FirstPoll::Trailed(chunk, trailers) => {
            Body::Stream(Box::new(Outgoing::trailed(place, chunk, trailers, places)))
        }
        // Trailers after no content.
        FirstPoll::Frame(frame @ Frame::Trailers(_)) => {
            Body::Stream(Box::new(Outgoing::new(place, Some(frame), None, places)))
        }
        FirstPoll::Frame(frame) => Body::Stream(Box::new(Outgoing::new(place, Some(frame), len, places))),
        FirstPoll::Failed(frame) => Body::Stream(Box::new(Outgoing::failed(place, frame, len, places))),
        FirstPoll::Nothing => Body::Stream(Box::new(Outgoing::new(place, None, len, places))),
    }
}

/// Returns the Content-Length that the service has set.
fn declared_length(fields: &HeaderMap) -> Option<u64> {
    syntax::parse_number(fields.get(header::CONTENT_LENGTH)?.as_bytes())
}

/// Converts a piece of content. `Bytes` are not copied here; the protocol machine copies small pieces later.
fn chunk(mut data: impl Buf) -> Chunk {
    let len = data.remaining();
    if len == 0 { Chunk::default() } else { Chunk::from_owner(data.copy_to_bytes(len)) }
}

/// Converts a trailer section, without the fields for framing and the connection, which must not be trailers (RFC
/// 9110 §6.5.1).
fn trailers(map: &HeaderMap) -> FieldMap {
    let mut fields = FieldMap::new();
    for (spelled, value) in map {
        append(name(spelled), value, &mut fields);
    }
    for name in [names::CONTENT_LENGTH, names::TRANSFER_ENCODING, names::CONNECTION, names::TRAILER] {
        fields.remove(name);
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    // RFC 9110 §7.6.1.
    #[test]
    fn fields_of_the_services_connection_are_left_out() {
        let mut map = HeaderMap::new();
        for (name, value) in [("connection", "close, X-Hop"), ("connection", "upgrade , x-two"), ("x-hop", "1")] {
            map.append(name, HeaderValue::from_static(value));
        }
        for (name, value) in [("x-two", "2"), ("upgrade", "h2c"), ("x-end", "3")] {
            map.append(name, HeaderValue::from_static(value));
        }
        let mut fields = FieldMap::new();
        put_fields(&map, Length::Content, &mut fields);
        let mut names: Vec<_> = fields.iter().map(|(name, _)| name.as_str().to_ascii_lowercase()).collect();
        names.dedup();
        assert_eq!(names, ["connection", "upgrade", "x-end"]);
    }

    // RFC 9110 §5.5; the values of one name stay together and in order.
    #[test]
    fn a_service_replaces_earlier_fields_and_adds_cookies() {
        let mut map = HeaderMap::new();
        map.append("server", HeaderValue::from_static("own"));
        map.append("x-twice", HeaderValue::from_static(" one "));
        map.append("set-cookie", HeaderValue::from_static("b=2"));
        map.append("x-twice", HeaderValue::from_static("two"));
        let mut fields = FieldMap::new();
        let before = [("Server", "Causeway"), ("X-Twice", "old"), ("X-twice", "older"), ("Set-Cookie", "a=1")];
        for (name, value) in before {
            fields.append(NameRef::parse(name.as_bytes()).unwrap(), FieldValue::parse(value.as_bytes()).unwrap());
        }
        put_fields(&map, Length::Content, &mut fields);
        let all = |name: &str| {
            let values = fields.get_all(NameRef::parse(name.as_bytes()).unwrap());
            values.map(|value| std::str::from_utf8(value).unwrap().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(all("server"), ["own"]);
        assert_eq!(all("x-twice"), ["one", "two"]);
        assert_eq!(all("set-cookie"), ["a=1", "b=2"]);
    }
}
