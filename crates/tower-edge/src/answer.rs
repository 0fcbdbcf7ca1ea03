//! What a service answers, as the pipeline has it.
//!
//! - `outgoing`: content that comes piece by piece

mod outgoing;

use std::error::Error;

use bytes::Buf;
use causeway_message::{Chunk, FieldMap, FieldValue, NameRef, StatusCode, names, octets};
use causeway_pipeline::Body;
use http::{HeaderMap, HeaderName, HeaderValue, header};

pub(crate) use outgoing::Places;

use crate::names::name;
use outgoing::{First, Outgoing, look};

/// What went wrong in a service or its answer, in its own words.
pub(crate) type BoxError = Box<dyn Error + Send + Sync>;

/// `http` has the same numbers as we.
pub(crate) fn status(status: http::StatusCode) -> StatusCode {
    StatusCode::new(status.as_u16()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}

/// What the length of an answer is said to be by.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Length {
    /// The content's own.
    Content,
    /// The service: an answer to HEAD has no content that would tell.
    Service,
}

/// Copies a service's fields: each replaces what was set before it, Set-Cookie and Vary stand beside that.
pub(crate) fn put_fields(fields: &HeaderMap, length: Length, into: &mut FieldMap) {
    let mut before: Option<&HeaderName> = None;
    for (spelled, value) in fields {
        if *spelled == header::CONTENT_LENGTH && length == Length::Content {
            continue;
        }
        let name = name(spelled);
        // All values of a name come together, the first one first.
        let adds = before == Some(spelled) || *spelled == header::SET_COOKIE || *spelled == header::VARY;
        before = Some(spelled);
        if adds || !into.contains(name) {
            append(name, value, into);
        } else if let Some(value) = FieldValue::parse(octets::trim_ows(value.as_bytes())) {
            into.insert(name, value);
        }
    }
}

/// A `HeaderValue` holds what a value may (RFC 9110 §5.5), but for the white space at its ends.
fn append(name: NameRef<'_>, value: &HeaderValue, into: &mut FieldMap) {
    let value = octets::trim_ows(value.as_bytes());
    match name {
        NameRef::Known(known) => into.push_known(known, value),
        NameRef::Other(spelled) => into.push_other(spelled, value),
    }
}

/// The content: nothing, one chunk where it is all there, else a stream.
pub(crate) fn body<B>(fields: &HeaderMap, body: B, places: &Places<B>) -> Body
where
    B: http_body::Body + 'static,
    B::Error: Into<BoxError>,
{
    if body.is_end_stream() {
        return Body::Empty;
    }
    let exact = body.size_hint().exact();
    // RFC 9110 §6.6.2: who names trailers has some, and content of a known length has no place for them in HTTP/1.1.
    let len = if fields.contains_key(header::TRAILER) { None } else { exact.or_else(|| promised(fields)) };
    let mut place = places.put(body);
    let first = match exact {
        Some(_) => look(&mut place),
        None => First::Nothing,
    };
    match first {
        First::Whole(chunk) => {
            places.keep(place);
            Body::Chunk(chunk)
        }
        First::Frame(frame) => Body::Stream(Box::new(Outgoing::new(place, Some(frame), len, places))),
        First::Nothing => Body::Stream(Box::new(Outgoing::new(place, None, len, places))),
    }
}

/// A Content-Length that the service set itself.
fn promised(fields: &HeaderMap) -> Option<u64> {
    octets::parse_number(fields.get(header::CONTENT_LENGTH)?.as_bytes())
}

/// A piece of content. What is `Bytes` already is not copied here; small pieces are, later, by the machine.
fn chunk(mut data: impl Buf) -> Chunk {
    let len = data.remaining();
    if len == 0 { Chunk::default() } else { Chunk::from_owner(data.copy_to_bytes(len)) }
}

/// A trailer section (RFC 9110 §6.5.1), without the fields that a machine would have to obey.
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

    // RFC 9110 §5.5; the values of one name stay together and in order.
    #[test]
    fn a_service_replaces_what_was_set_before_and_adds_cookies() {
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
