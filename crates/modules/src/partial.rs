//! Responses to range requests (RFC 9110 §15.3.7, §15.5.17).

use std::collections::VecDeque;

use causeway_message::{Chunk, NameRef, StatusCode, names};
use causeway_pipeline::{Body, BodyPart, Context, Response};

use crate::range::{Range, Ranges};
use crate::rendered::with_field_value;

/// Makes the 206 response with these ranges of content of `len` bytes; `part` makes the content of one range. The
/// fields of the whole content are set already.
pub(crate) fn response(cx: &mut Context, ranges: Ranges, len: u64, part: impl Fn(&Range) -> BodyPart) -> Response {
    remove_digests(cx);
    match ranges {
        Ranges::One(range) => one(cx, range, len, part),
        Ranges::Several(ranges) => several(cx, &ranges, len, part),
    }
}

/// Makes the 416 response for content of `len` bytes.
pub(crate) fn unsatisfiable(cx: &mut Context, len: u64) -> Response {
    remove_digests(cx);
    content_range(cx, None, len);
    // These fields are about content that is not sent.
    for name in [names::CACHE_CONTROL, names::CONTENT_ENCODING, names::CONTENT_TYPE, names::ETAG, names::LAST_MODIFIED]
    {
        cx.response_mut().remove(name);
    }
    Response::empty(StatusCode::RANGE_NOT_SATISFIABLE)
}

/// Removes the digests of the whole content: they would be of the content that is sent (RFC 9530 §2, RFC 2616 §14.15).
/// Those of the representation (Repr-Digest, Digest) stay.
fn remove_digests(cx: &mut Context) {
    for name in [NameRef::Known(names::CONTENT_DIGEST), NameRef::Other("Content-MD5")] {
        cx.response_mut().remove(name);
    }
}

fn one(cx: &mut Context, range: Range, len: u64, part: impl Fn(&Range) -> BodyPart) -> Response {
    content_range(cx, Some(&range), len);
    cx.response_mut().fields_mut().insert_number(names::CONTENT_LENGTH, range.end - range.start);
    Response { status: StatusCode::PARTIAL_CONTENT, body: part(&range).into() }
}

// RFC 9110 §14.6: each part has its own type and range; the response itself has only the multipart type.
fn several(cx: &mut Context, ranges: &[Range], len: u64, part: impl Fn(&Range) -> BodyPart) -> Response {
    let worker = cx.worker();
    // 128 random bits: the content cannot contain the boundary by accident.
    let boundary = format!("{:016x}{:016x}", worker.random(), worker.random());
    let kind = cx.response().fields().get(names::CONTENT_TYPE).map(<[u8]>::to_vec);
    let mut parts = VecDeque::with_capacity(2 * ranges.len() + 1);
    let mut line_end = "";
    for range in ranges {
        let mut head = format!("{line_end}--{boundary}\r\n").into_bytes();
        if let Some(kind) = &kind {
            head.extend_from_slice(b"Content-Type: ");
            head.extend_from_slice(kind);
            head.extend_from_slice(b"\r\n");
        }
        head.extend_from_slice(b"Content-Range: ");
        push_range(Some(range), len, &mut head);
        head.extend_from_slice(b"\r\n\r\n");
        // The content is referenced, not copied.
        parts.push_back(BodyPart::Chunk(Chunk::from(head)));
        parts.push_back(part(range));
        line_end = "\r\n";
    }
    parts.push_back(BodyPart::Chunk(Chunk::from(format!("\r\n--{boundary}--\r\n").into_bytes())));
    let body = Body::Parts(parts);
    if let Some(len) = body.len() {
        cx.response_mut().fields_mut().insert_number(names::CONTENT_LENGTH, len);
    }
    let kind = format!("multipart/byteranges; boundary={boundary}");
    with_field_value(kind.as_bytes(), |kind| cx.response_mut().set(names::CONTENT_TYPE, kind));
    Response { status: StatusCode::PARTIAL_CONTENT, body }
}

/// Sets Content-Range without allocating.
fn content_range(cx: &mut Context, range: Option<&Range>, len: u64) {
    let mut value = [0; 72];
    let mut rest = &mut value[..];
    push_range(range, len, &mut rest);
    let used = 72 - rest.len();
    with_field_value(&value[..used], |value| cx.response_mut().set(names::CONTENT_RANGE, value));
}

/// Writes `bytes 0-4/10`, or `bytes */10` if no range is satisfiable (RFC 9110 §14.4).
fn push_range(range: Option<&Range>, len: u64, out: &mut impl std::io::Write) {
    let written = match range {
        Some(range) => write!(out, "bytes {}-{}/{len}", range.start, range.end - 1),
        None => write!(out, "bytes */{len}"),
    };
    written.expect("three numbers of at most 20 digits fit");
}
