//! From a file to an answer, and redirects to a file's proper path.

use std::collections::VecDeque;

use causeway_message::octets::trim_ows;
use causeway_message::{Chunk, FieldValue, Method, StatusCode, names, path};
use causeway_pipeline::{Body, Context, Fault, FileSlice, Part, Response, Step};

use super::Site;
use super::conditional::{self, Verdict};
use super::entry::{Content, Entry, Version};
use super::precompressed::Coding;
use super::range::{self, Asked, Range};
use crate::rendered::with_field_value;

const ALLOW: FieldValue<'static> = FieldValue::from_static("GET, HEAD");
const BYTES: FieldValue<'static> = FieldValue::from_static("bytes");
const VARY: FieldValue<'static> = FieldValue::from_static("Accept-Encoding");

/// Answers with a file, whole, in part, or not at all, as the request has it. Nothing is asked of the file system.
pub(super) fn give(site: &Site, cx: &mut Context, entry: &Entry) -> Step {
    if site.canonical
        && let Some(step) = canonical(cx, entry.seen.is_index)
    {
        return step;
    }
    // Caddy: also where there is one version only, since the answer may be compressed on its way.
    cx.response_mut().append(names::VARY, VARY);
    if let Err(fault) = check_method(cx) {
        return Step::Fail(fault);
    }
    let side = site.codings.choose(cx.head().fields(), entry);
    let version = side.map_or(&entry.main, |(_, version)| version);
    let coding = side.map(|(coding, _)| coding);
    set_fields(cx, entry, version);
    // An error route's page, or a page with a status of its own, is no representation that a condition could speak of.
    let status = match &site.status {
        Some(status) => Some(status.of(cx)),
        None => cx.fault().map(|fault| Ok(fault.status)),
    };
    match status {
        Some(Ok(status)) => return whole(cx, status, version, coding),
        Some(Err(fault)) => return Step::Fail(fault),
        None => {}
    }
    let head = cx.head();
    let etag = cx.response().fields().get(names::ETAG);
    match conditional::evaluate(head.fields(), head.method(), etag, entry) {
        Verdict::NotModified => {
            // RFC 9110 §15.4.5: a date is of use only where there is no tag.
            if etag.is_some() {
                cx.response_mut().remove(names::LAST_MODIFIED);
            }
            return Step::Respond(Response::empty(StatusCode::NOT_MODIFIED));
        }
        Verdict::Failed => return Step::Respond(Response::empty(StatusCode::PRECONDITION_FAILED)),
        Verdict::Perform => {}
    }
    // RFC 9110 §14.2: a range has a meaning with GET only.
    let asked = match head.fields().get(names::RANGE) {
        Some(value) if head.method() == Method::Get && conditional::range_holds(head.fields(), etag, entry) => {
            range::read(trim_ows(value), version.len)
        }
        _ => Asked::Whole,
    };
    match asked {
        Asked::Whole => whole(cx, StatusCode::OK, version, coding),
        Asked::One(range) => {
            set_coding(cx, coding);
            one(cx, version, range)
        }
        Asked::Several(ranges) => {
            set_coding(cx, coding);
            several(cx, version, &ranges)
        }
        Asked::Unsatisfiable => {
            content_range(cx, None, version.len);
            // They speak of content that is not sent.
            for name in [names::CONTENT_TYPE, names::ETAG, names::LAST_MODIFIED] {
                cx.response_mut().remove(name);
            }
            Step::Respond(Response::empty(StatusCode::RANGE_NOT_SATISFIABLE))
        }
    }
}

/// Only GET and HEAD read files. In an error route the method is that of the request which failed, so it is not asked.
pub(super) fn check_method(cx: &mut Context) -> Result<(), Fault> {
    if matches!(cx.head().method(), Method::Get | Method::Head) || cx.fault().is_some() {
        return Ok(());
    }
    cx.response_mut().set(names::ALLOW, ALLOW);
    Err(Fault::status(StatusCode::METHOD_NOT_ALLOWED))
}

/// What is set by an earlier handler stays.
fn set_fields(cx: &mut Context, entry: &Entry, version: &Version) {
    let response = cx.response_mut();
    let fields = [
        (names::CONTENT_TYPE, entry.content_type.as_deref().map(str::as_bytes)),
        (names::ETAG, version.etag.as_deref()),
        (names::LAST_MODIFIED, entry.modified.as_ref().map(|(_, date)| date.as_bytes())),
    ];
    for (name, value) in fields {
        if let Some(value) = value.and_then(FieldValue::parse)
            && !response.fields().contains(name)
        {
            response.append(name, value);
        }
    }
}

/// What is said with content only.
fn set_coding(cx: &mut Context, coding: Option<&Coding>) {
    cx.response_mut().set(names::ACCEPT_RANGES, BYTES);
    if let Some(coding) = coding {
        cx.response_mut().set(names::CONTENT_ENCODING, coding.field_value);
    }
}

fn whole(cx: &mut Context, status: StatusCode, version: &Version, coding: Option<&Coding>) -> Step {
    set_coding(cx, coding);
    let body = match &version.content {
        Content::Small(chunk) => Body::Chunk(chunk.clone()),
        Content::Large(slice) => Body::File(slice.clone()),
    };
    Step::Respond(Response { status, body })
}

fn part(version: &Version, range: &Range) -> Part {
    match &version.content {
        // A small content's places fit in any machine's words.
        Content::Small(chunk) => Part::Chunk(chunk.slice(range.start as usize..range.end as usize)),
        Content::Large(slice) => {
            Part::File(FileSlice { at: range.start, len: range.end - range.start, ..slice.clone() })
        }
    }
}

fn one(cx: &mut Context, version: &Version, range: Range) -> Step {
    content_range(cx, Some(&range), version.len);
    let body = part(version, &range).into();
    Step::Respond(Response { status: StatusCode::PARTIAL_CONTENT, body })
}

// RFC 9110 §14.6: each part says its type and range; none of them is said of the whole.
fn several(cx: &mut Context, version: &Version, ranges: &[Range]) -> Step {
    let worker = cx.worker();
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
        push_range(Some(range), version.len, &mut head);
        head.extend_from_slice(b"\r\n\r\n");
        parts.push_back(Part::Chunk(Chunk::from(head)));
        parts.push_back(part(version, range));
        line_end = "\r\n";
    }
    parts.push_back(Part::Chunk(Chunk::from(format!("\r\n--{boundary}--\r\n").into_bytes())));
    let kind = format!("multipart/byteranges; boundary={boundary}");
    with_field_value(kind.as_bytes(), |kind| cx.response_mut().set(names::CONTENT_TYPE, kind));
    Step::Respond(Response { status: StatusCode::PARTIAL_CONTENT, body: Body::Parts(parts) })
}

fn content_range(cx: &mut Context, range: Option<&Range>, len: u64) {
    let mut value = [0; 72];
    let mut rest = &mut value[..];
    push_range(range, len, &mut rest);
    let used = 72 - rest.len();
    with_field_value(&value[..used], |value| cx.response_mut().set(names::CONTENT_RANGE, value));
}

/// `bytes 0-4/10`, or `bytes */10` when no range can be had (RFC 9110 §14.4).
fn push_range(range: Option<&Range>, len: u64, out: &mut impl std::io::Write) {
    let written = match range {
        Some(range) => write!(out, "bytes {}-{}/{len}", range.start, range.end - 1),
        None => write!(out, "bytes */{len}"),
    };
    written.expect("three numbers of at most 20 digits fit");
}

/// Caddy's `canonical_uris`: a folder's path ends with a slash, a file's does not. Only where the last segment is still the
/// one that was asked for: who rewrote it meant it so.
fn canonical(cx: &mut Context, is_folder: bool) -> Option<Step> {
    let asked = cx.original().target().path();
    if last_segment(asked) == last_segment(cx.head().target().path()) { redirect(cx, is_folder) } else { None }
}

/// The redirect that a listing needs, `canonical_uris` or not, so that its relative links lead into the folder. Also where
/// everything was stripped off the path, as `handle_path` does.
pub(super) fn canonical_folder(cx: &mut Context) -> Option<Step> {
    if cx.head().target().path() == "/" { redirect(cx, true) } else { canonical(cx, true) }
}

/// Leads to the path that was asked for with a slash at its end, or without one; `None` where it is so already.
fn redirect(cx: &mut Context, is_folder: bool) -> Option<Step> {
    let asked = cx.original().target().path();
    if asked.ends_with('/') == is_folder || asked == "/" {
        return None;
    }
    // Caddy: without empty and dot segments; a path that begins with two slashes would be another site's address, too
    // (RFC 3986 §4.2).
    let mut to = Vec::with_capacity(asked.len() + 1);
    path::clean(asked.as_bytes(), &mut to);
    match is_folder {
        true if !to.ends_with(b"/") => to.push(b'/'),
        false if to.len() > 1 && to.ends_with(b"/") => drop(to.pop()),
        _ => {}
    }
    if let Some(query) = cx.head().target().query() {
        to.push(b'?');
        to.extend_from_slice(query.as_bytes());
    }
    with_field_value(&to, |to| cx.response_mut().redirect(StatusCode::PERMANENT_REDIRECT, to));
    Some(Step::Respond(Response::empty(StatusCode::PERMANENT_REDIRECT)))
}

fn last_segment(path: &str) -> &str {
    path.trim_end_matches('/').rsplit('/').next().unwrap_or_default()
}
