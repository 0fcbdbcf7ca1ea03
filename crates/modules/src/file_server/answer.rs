//! The response for a file, and redirects to a file's canonical path.

use std::rc::Rc;

use causeway_message::syntax::trim_ows;
use causeway_message::{FieldValue, Method, StatusCode, names, path};
use causeway_pipeline::{Body, BodyPart, Context, Fault, FileSlice, Response, Step};
use percent_encoding::percent_decode_str;

use super::entry::{FileContent, FileEntry, FileVariant};
use super::{FileServerPlan, generated, missing};
use crate::conditional::{self, Precondition, since_1970};
use crate::partial;
use crate::range::{self, Range, RequestedRanges};
use crate::rendered::with_field_value;

const ALLOW: FieldValue<'static> = FieldValue::from_static("GET, HEAD");
const BYTES: FieldValue<'static> = FieldValue::from_static("bytes");
const VARY: FieldValue<'static> = FieldValue::from_static("Accept-Encoding");

/// The coding of the content that is sent.
#[derive(Clone, Copy)]
enum SentCoding {
    Identity,
    /// A compressed file next to the requested one.
    Stored(FieldValue<'static>),
    /// A variant that the server made.
    Generated(FieldValue<'static>),
}

/// The content for one request.
struct ChosenVariant<'e> {
    variant: &'e FileVariant,
    coding: SentCoding,
}

/// How an earlier handler uses the content.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ContentUse {
    Sent,
    /// The handler reads it: a template, which is useless as compressed bytes or in part.
    Read,
}

impl ContentUse {
    fn of(cx: &Context, entry: &FileEntry) -> Self {
        let set = cx.response().fields().get(names::CONTENT_TYPE);
        let content_type = set.or(entry.content_type.as_deref().map(str::as_bytes)).unwrap_or_default();
        if cx.is_content_read(content_type) { Self::Read } else { Self::Sent }
    }
}

/// Chooses the content by the request's Accept-Encoding. A stored variant goes before one that the server makes. Does
/// not allocate once the variants are made.
fn choose<'e>(
    plan: &FileServerPlan,
    cx: &Context,
    entry: &'e Rc<FileEntry>,
    content_use: ContentUse,
) -> ChosenVariant<'e> {
    // DEVIATES Caddy, which gives the bytes of a compressed variant to the template.
    if content_use == ContentUse::Read {
        return ChosenVariant { variant: &entry.main, coding: SentCoding::Identity };
    }
    if let Some((coding, variant)) = plan.codings.choose(cx.head().fields(), entry) {
        return ChosenVariant { variant, coding: SentCoding::Stored(coding.field_value) };
    }
    match generated::choose(&plan.generated, cx, entry) {
        Some((coding, variant)) => ChosenVariant { variant, coding: SentCoding::Generated(coding) },
        None => ChosenVariant { variant: &entry.main, coding: SentCoding::Identity },
    }
}

/// Responds with a file: whole, in part, or without content, depending on the request's conditions and range.
pub(super) fn respond(plan: &FileServerPlan, cx: &mut Context, entry: &Rc<FileEntry>) -> Step {
    if plan.canonical {
        if let Some(step) = canonical(cx, entry.seen.is_index) {
            return step;
        }
        // DEVIATES Caddy, which sends the file: no matcher of the file's path holds for a path with a slash that a
        // rewrite has made.
        if !entry.seen.is_index && cx.path().ends_with(b"/") {
            return missing(plan);
        }
    }
    // As in Caddy, sent even without compressed variants, since a later handler may compress the response.
    cx.response_mut().append(names::VARY, VARY);
    if let Err(fault) = check_method(cx) {
        return Step::Fail(fault);
    }
    let content_use = ContentUse::of(cx, entry);
    let chosen = choose(plan, cx, entry, content_use);
    let (variant, coding) = (chosen.variant, chosen.coding);
    let is_conditional = plan.status.is_none() && cx.fault().is_none() && content_use == ContentUse::Sent;
    let known = if is_conditional { generated::known_tag(&plan.generated, cx, entry, variant) } else { None };
    set_fields(cx, entry, known.or(variant.etag.as_deref()));
    // An error route's page, or a page with a configured status, is not a representation to which a condition could
    // refer.
    let status = match &plan.status {
        Some(status) => Some(status.of(cx)),
        None => cx.fault().map(|fault| Ok(fault.status)),
    };
    match status {
        Some(Ok(status)) => return whole(cx, status, variant, coding),
        Some(Err(fault)) => return Step::Fail(fault),
        None => {}
    }
    let modified = entry.modified.as_ref().map(|(seconds, _)| *seconds);
    if let Some(response) = by_condition(cx, modified, content_use) {
        return Step::Respond(response);
    }
    let ranges = match content_use {
        ContentUse::Sent => requested_ranges(cx, variant.len, modified),
        // DEVIATES Caddy, which gives a part of the file to the template.
        ContentUse::Read => RequestedRanges::Whole,
    };
    match ranges {
        RequestedRanges::Whole => whole(cx, StatusCode::OK, variant, coding),
        RequestedRanges::Unsatisfiable => Step::Respond(partial::unsatisfiable(cx, variant.len)),
        RequestedRanges::Parts(ranges) => {
            set_coding(cx, coding);
            Step::Respond(partial::response(cx, ranges, variant.len, |range| part(variant, range)))
        }
    }
}

/// Evaluates the request's conditions. Returns the response without content that they lead to, if any.
fn by_condition(cx: &mut Context, modified: Option<u64>, content_use: ContentUse) -> Option<Response> {
    let head = cx.head();
    let etag = cx.response().fields().get(names::ETAG);
    match conditional::evaluate(head.fields(), head.method(), etag, modified) {
        Precondition::NotModified => {
            let has_tag = etag.is_some_and(|etag| !etag.is_empty());
            let head = cx.response_mut();
            // Go, writeNotModified, for RFC 9110 §15.4.5: no fields that describe content, and with a tag the date is
            // redundant. The handler of a template needs its type to remove the file's validators.
            if content_use == ContentUse::Sent {
                for name in [names::CONTENT_TYPE, names::CONTENT_LENGTH, names::CONTENT_ENCODING] {
                    head.remove(name);
                }
            }
            if has_tag {
                head.remove(names::LAST_MODIFIED);
            }
            Some(Response::empty(StatusCode::NOT_MODIFIED))
        }
        Precondition::Failed => Some(Response::empty(StatusCode::PRECONDITION_FAILED)),
        Precondition::Perform => None,
    }
}

/// Returns the ranges of the content that the request names.
fn requested_ranges(cx: &Context, len: u64, modified: Option<u64>) -> RequestedRanges {
    let head = cx.head();
    let etag = cx.response().fields().get(names::ETAG);
    // RFC 9110 §14.2: Range is defined for GET only.
    match head.fields().get(names::RANGE) {
        Some(value)
            if head.method() == Method::Get
                && conditional::range_holds(head.fields(), etag, modified, since_1970(cx.worker().wall())) =>
        {
            range::read(trim_ows(value), len)
        }
        _ => RequestedRanges::Whole,
    }
}

/// Permits only GET and HEAD; else sets Allow and fails with 405. In an error route the method is that of the failed
/// request, so any method is permitted.
pub(super) fn check_method(cx: &mut Context) -> Result<(), Fault> {
    if matches!(cx.head().method(), Method::Get | Method::Head) || cx.fault().is_some() {
        return Ok(());
    }
    cx.response_mut().set(names::ALLOW, ALLOW);
    Err(Fault::from_status(StatusCode::METHOD_NOT_ALLOWED))
}

/// Sets Last-Modified, by which conditions are evaluated; also Content-Type and ETag, unless an earlier handler has set
/// them.
fn set_fields(cx: &mut Context, entry: &FileEntry, etag: Option<&[u8]>) {
    let response = cx.response_mut();
    if let Some(date) = entry.modified.as_ref().and_then(|(_, date)| FieldValue::parse(date.as_bytes())) {
        response.set(names::LAST_MODIFIED, date);
    }
    let fields = [(names::CONTENT_TYPE, entry.content_type.as_deref().map(str::as_bytes)), (names::ETAG, etag)];
    for (name, value) in fields {
        if let Some(value) = value.and_then(FieldValue::parse)
            && !response.fields().contains(name)
        {
            response.append(name, value);
        }
    }
}

/// Sets the fields that accompany content only.
fn set_coding(cx: &mut Context, coding: SentCoding) {
    // The ranges of a variant that the server made are those of the uncompressed file.
    if !matches!(coding, SentCoding::Generated(_)) {
        cx.response_mut().set(names::ACCEPT_RANGES, BYTES);
    }
    if let SentCoding::Stored(coding) | SentCoding::Generated(coding) = coding {
        cx.response_mut().set(names::CONTENT_ENCODING, coding);
    }
}

fn whole(cx: &mut Context, status: StatusCode, variant: &FileVariant, coding: SentCoding) -> Step {
    set_coding(cx, coding);
    // The engine derives the length on the wire from the body; the field is for placeholders, the access log, and HEAD
    // of an empty file.
    cx.response_mut().fields_mut().insert_number(names::CONTENT_LENGTH, variant.len);
    let body = match &variant.content {
        FileContent::Small(chunk) => Body::Chunk(chunk.clone()),
        FileContent::Large(slice) => Body::File(slice.clone()),
    };
    Step::Respond(Response { status, body })
}

fn part(variant: &FileVariant, range: &Range) -> BodyPart {
    match &variant.content {
        // Small content is at most `SMALL_MAX` bytes, so the casts cannot truncate.
        FileContent::Small(chunk) => BodyPart::Chunk(chunk.slice(range.start as usize..range.end as usize)),
        FileContent::Large(slice) => {
            BodyPart::File(FileSlice { at: range.start, len: range.end - range.start, ..slice.clone() })
        }
    }
}

/// Caddy's `canonical_uris`: returns a redirect if a directory's path lacks the trailing slash or a file's path has
/// one. Only if the last segment is still the client's: a rewrite of it was intended.
fn canonical(cx: &mut Context, is_directory: bool) -> Option<Step> {
    let asked = cx.original().target().path();
    let is_same = has_same_file_name(asked, cx.head().target().path());
    if is_same { redirect(cx, is_directory) } else { None }
}

/// The redirect that a listing needs even without `canonical_uris`, so that its relative links resolve inside the
/// directory. Also applies if a rewrite has left nothing of the path, but not to a rewrite to `/`.
///
/// DEVIATES Caddy 2.11.9: there a removed prefix or suffix leaves `/`, so that the listing of `handle_path /old*` for
/// `/old` is sent without the redirect, and its links lead out of `/old/`.
pub(super) fn canonical_directory(plan: &FileServerPlan, cx: &mut Context) -> Option<Step> {
    let is_stripped = cx.head().target().path() == "/" && cx.variable(plan.stripped).is_some();
    if is_stripped { redirect(cx, true) } else { canonical(cx, true) }
}

/// Redirects to the client's path with a trailing slash (for a directory) or without (for a file). `None` if it already
/// matches.
fn redirect(cx: &mut Context, is_directory: bool) -> Option<Step> {
    let asked = cx.original().target().path();
    // Files and matchers belong to the decoded path: `/a.php%2f` is the file `/a.php` with a slash, for which no
    // matcher of `*.php` holds.
    let without_slash = without_last_slashes(asked);
    if (without_slash.len() < asked.len()) == is_directory || asked == "/" {
        return None;
    }
    // As in Caddy, empty segments and dot segments are removed. A Location that begins with two slashes would also name
    // another host (RFC 3986 §4.2).
    let mut to = Vec::with_capacity(asked.len() + 1);
    path::clean(without_slash.as_bytes(), &mut to);
    // A dot segment at the end leaves a slash.
    if to.len() > 1 && to.ends_with(b"/") {
        to.pop();
    }
    if is_directory && !to.ends_with(b"/") {
        to.push(b'/');
    }
    if let Some(query) = cx.head().target().query() {
        to.push(b'?');
        to.extend_from_slice(query.as_bytes());
    }
    with_field_value(&to, |to| cx.response_mut().set_redirect(StatusCode::PERMANENT_REDIRECT, to));
    Some(Step::Respond(Response::empty(StatusCode::PERMANENT_REDIRECT)))
}

/// A slash, and its encoded forms.
const SLASHES: [&str; 3] = ["/", "%2f", "%2F"];

/// Removes slashes at the end, encoded ones too.
fn without_last_slashes(path: &str) -> &str {
    let mut rest = path;
    while let Some(shorter) = SLASHES.iter().find_map(|slash| rest.strip_suffix(slash)) {
        rest = shorter;
    }
    rest
}

/// Returns the part after the last slash, apart from slashes at the end.
fn file_name(path: &str) -> &str {
    let path = without_last_slashes(path);
    let after_last = SLASHES.iter().filter_map(|slash| Some(path.rfind(slash)? + slash.len())).max();
    &path[after_last.unwrap_or(0)..]
}

/// Compares the last segments of the decoded paths: a rewrite writes them without the client's encoding, and
/// `handle_path /a/*` strips the prefix of `/a%2fb` too.
fn has_same_file_name(asked: &str, path: &str) -> bool {
    let (asked, path) = (file_name(asked), file_name(path));
    // Most paths are not rewritten.
    asked == path || percent_decode_str(asked).eq(percent_decode_str(path))
}
