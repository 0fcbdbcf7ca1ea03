//! `encode`: compresses responses with zstd, br or gzip.
//!
//! - `coding`: the codings with their levels
//! - `encoder`: encoders that compress piece by piece, pooled for each worker
//! - `whole`: compresses content that is in memory
//! - `stream`: a body that is compressed while it is sent

mod coding;
mod encoder;
mod stream;
mod whole;

use std::collections::BTreeMap;

use causeway_message::{Chunk, FieldMap, FieldValue, Method, StatusCode, names};
use causeway_pipeline::context::VarId;
use causeway_pipeline::worker::{Work, WorkKind, offload};
use causeway_pipeline::{Body, Build, BuildError, Context, Handler, Response, Step};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::accept_encoding;
use crate::glob::Affix;
use crate::headers::{ResponseMatcher, ResponseMatcherConfig};
use crate::rendered::with_field_value;
use crate::unsent;
pub(crate) use coding::Coding;
use encoder::EncoderLease;
use stream::EncodedBody;
pub(crate) use whole::compressed;

/// Caddy's default of `minimum_length`, in bytes.
pub(crate) const LENGTH_MIN: u64 = 512;
/// A body in memory up to this length, that of the largest cached file, is compressed as a whole, so that the response
/// has a Content-Length. A longer one is compressed while it is sent.
const WHOLE_BYTES_MAX: usize = 128 * 1024;

/// Caddy's default content types: text, and other types that are usually not compressed already.
const TYPES: [&str; 35] = [
    "application/atom+xml*",
    "application/eot*",
    "application/font*",
    "application/geo+json*",
    "application/graphql+json*",
    "application/graphql-response+json*",
    "application/javascript*",
    "application/json*",
    "application/ld+json*",
    "application/manifest+json*",
    "application/opentype*",
    "application/otf*",
    "application/rss+xml*",
    "application/truetype*",
    "application/ttf*",
    "application/vnd.api+json*",
    "application/vnd.ms-fontobject*",
    "application/wasm*",
    "application/x-httpd-cgi*",
    "application/x-javascript*",
    "application/x-opentype*",
    "application/x-otf*",
    "application/x-perl*",
    "application/x-protobuf*",
    "application/x-ttf*",
    "application/xhtml+xml*",
    "application/xml*",
    "font/ttf*",
    "font/otf*",
    "image/svg+xml*",
    "image/vnd.microsoft.icon*",
    "image/x-icon*",
    "multipart/bag*",
    "multipart/mixed*",
    "text/*",
];

/// Returns whether Caddy compresses content of this type by default.
pub(crate) fn is_compressible(content_type: &[u8]) -> bool {
    TYPES.iter().any(|pattern| Affix::of(pattern.as_bytes()).matches(content_type))
}

const VARY: FieldValue<'static> = FieldValue::from_static("Accept-Encoding");

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EncodeConfig {
    #[serde(default)]
    encodings: Map<String, Value>,
    #[serde(default)]
    prefer: Vec<String>,
    #[serde(default)]
    minimum_length: u64,
    #[serde(default, rename = "match")]
    matcher: Option<ResponseMatcherConfig>,
}

struct Encode {
    /// With a preference, higher is better.
    codings: Vec<(Coding, usize)>,
    /// The name of the coding that was chosen by the request, or nothing.
    chosen: VarId,
    /// The `If-None-Match` from which the request's entry has removed the coding's name.
    coded_tags: VarId,
    length_min: u64,
    matcher: ResponseMatcher,
}

/// Compiles the handler from its JSON.
///
/// # Errors
/// An encoding is unknown, not enabled or preferred twice; a level is out of range.
pub fn make(value: &Value, build: &mut Build<'_>) -> Result<Box<dyn Handler>, BuildError> {
    Ok(Box::new(Encode::build(value, build)?))
}

impl Encode {
    fn build(value: &Value, build: &mut Build<'_>) -> Result<Self, BuildError> {
        let written: EncodeConfig = build.parse_module(value)?;
        let mut codings = Vec::new();
        for (name, options) in &written.encodings {
            codings.push(build.at(format!("encodings.{name}"), |build| Coding::build(name, options, build))?);
        }
        for (index, name) in written.prefer.iter().enumerate() {
            build.at(format!("prefer[{index}]"), |build| {
                if written.prefer[..index].contains(name) {
                    return Err(build.refuse(name, "each encoding once"));
                }
                if !written.encodings.contains_key(name) {
                    return Err(build.refuse(name, "an encoding that `encodings` names"));
                }
                Ok(())
            })?;
        }
        let usual = ["zstd".to_owned(), "br".to_owned(), "gzip".to_owned()];
        let order = if written.prefer.is_empty() { &usual[..] } else { &written.prefer };
        let preference =
            |coding: &Coding| order.iter().rev().position(|name| name == coding.name()).map_or(0, |at| at + 1);
        let codings = codings.into_iter().map(|coding| (coding, preference(&coding))).collect();
        let types = || ResponseMatcherConfig {
            headers: BTreeMap::from([("Content-Type".to_owned(), Some(TYPES.map(str::to_owned).to_vec()))]),
            ..ResponseMatcherConfig::default()
        };
        let matcher =
            build.at("match", |build| ResponseMatcher::build(written.matcher.unwrap_or_else(types), build))?;
        let length_min = if written.minimum_length == 0 { LENGTH_MIN } else { written.minimum_length };
        // Sites with equal settings share one slot: with a slot each, those of the last of many sites would be above
        // the slots that recycled storage keeps, and each request would allocate them again.
        let chosen = build.allocate_slot(&format!("http.encode.coding {value}"));
        let coded_tags = build.allocate_slot(&format!("http.encode.tags {value}"));
        Ok(Self { codings, chosen, coded_tags, length_min, matcher })
    }

    fn choose(&self, request: &FieldMap) -> Option<Coding> {
        accept_encoding::choose(request, |name| {
            self.codings.iter().find(|(coding, _)| name.eq_ignore_ascii_case(coding.name().as_bytes())).copied()
        })
    }

    /// Returns the coding that was chosen when the request entered.
    fn chosen(&self, cx: &Context) -> Option<Coding> {
        let name = cx.variable(self.chosen)?;
        self.codings.iter().find(|(coding, _)| coding.name().as_bytes() == name).map(|(coding, _)| *coding)
    }

    /// Returns whether the 200 response in place of this 206 would be one of several, by the request's codings.
    fn varies_in_whole(&self, fields: &FieldMap) -> bool {
        // Of several parts neither the type nor the length of the whole is here.
        let is_multipart =
            fields.get(names::CONTENT_TYPE).is_some_and(|value| value.starts_with(b"multipart/byteranges"));
        let len = fields.get(names::CONTENT_RANGE).and_then(|range| {
            let (_, len) = std::str::from_utf8(range).ok()?.rsplit_once('/')?;
            len.parse::<u64>().ok()
        });
        is_multipart || len.is_none_or(|len| len > self.length_min) && self.matcher.holds(fields, StatusCode::OK)
    }

    /// Removes the coding's name from the entity tags of the request's conditions, so that the handler that made the
    /// tags recognises them.
    fn strip_suffixes(&self, cx: &mut Context, coding: Coding) {
        for name in [names::IF_NONE_MATCH, names::IF_MATCH] {
            if !cx.head().fields().contains(name) {
                continue;
            }
            cx.with_scratch(|cx, tags| {
                for value in cx.head().fields().get_all(name) {
                    tags.extend_from_slice(if tags.is_empty() { b"" } else { b", " });
                    tags.extend_from_slice(value);
                }
                cx.with_scratch(|cx, list| {
                    if name == names::IF_MATCH {
                        // The origin may have made the tag itself. DEVIATES Caddy, which leaves this field, so that a
                        // client cannot use the tag that it got.
                        list.extend_from_slice(tags);
                        list.extend_from_slice(b", ");
                    }
                    if without_suffix(tags, coding.name(), list) {
                        if name == names::IF_NONE_MATCH {
                            cx.set_variable_text(self.coded_tags, tags);
                        }
                        with_field_value(list, |value| cx.head_mut().fields_mut().insert(name, value));
                    }
                });
            });
        }
    }

    /// Appends the coding's name to the entity tag of a 304 if the client has that tag.
    ///
    /// DEVIATES Caddy, which sends the tag without it: RFC 9110 §15.4.5 requires that of the 200.
    fn restore_suffix(&self, cx: &mut Context) {
        let (Some(tags), Some(coding)) = (cx.variable(self.coded_tags), self.chosen(cx)) else { return };
        let etag = cx.response().fields().get(names::ETAG).and_then(|etag| with_suffix(etag, coding.name()));
        if let Some(etag) = etag.filter(|etag| memchr::memmem::find(tags, etag).is_some())
            && let Some(etag) = FieldValue::parse(&etag)
        {
            cx.response_mut().set(names::ETAG, etag);
        }
    }

    /// Returns whether a body may be compressed: long enough, and of a kind that has one representation.
    fn is_eligible(&self, body: &Body, cx: &Context) -> bool {
        match body {
            // A response of an upstream to HEAD: its Content-Length is that of GET, and without one the content is
            // unknown.
            body if body.len() == Some(0) && cx.original().method() == Method::Head => {
                cx.response().fields().content_length().ok().flatten().is_some_and(|len| len > self.length_min)
            }
            Body::Empty | Body::Parts(_) | Body::Tunnel(_) => false,
            // DEVIATES Caddy, which compresses a body of unknown length only if the first piece is long enough. The
            // first piece is not there yet, and its length has no relation to the whole.
            body => body.len().is_none_or(|len| len > self.length_min),
        }
    }
}

impl Handler for Encode {
    fn enter(&self, cx: &mut Context) -> Step {
        let coding = self.choose(cx.head().fields());
        // As in Caddy, later changes of the request have no influence.
        match coding {
            Some(coding) => {
                cx.set_variable_text(self.chosen, coding.name().as_bytes());
                self.strip_suffixes(cx, coding);
            }
            // An earlier pass through an equal handler may have chosen one.
            None => cx.unset_variable(self.chosen),
        }
        Step::Next
    }

    fn leave(&self, cx: &mut Context, response: Response) -> Step {
        let Response { status, body } = response;
        let response = |body| Step::Respond(Response { status, body });
        let fields = cx.response().fields();
        if status == StatusCode::NOT_MODIFIED {
            // RFC 9110 §15.4.5: the fields that the 200 response would have.
            vary(cx);
            self.restore_suffix(cx);
            return response(body);
        }
        // A template of an earlier handler is executed first.
        let is_excluded = status.is_informational()
            || cx.original().method() == Method::Connect
            || fields.get(names::CONTENT_ENCODING).is_some_and(|coding| !coding.is_empty())
            || fields.has_token(names::CACHE_CONTROL, "no-transform")
            || cx.is_content_read(fields.get(names::CONTENT_TYPE).unwrap_or_default());
        if status == StatusCode::PARTIAL_CONTENT {
            // DEVIATES Caddy, which omits Vary: RFC 9110 §15.3.7 requires that of the 200. The part itself cannot be
            // compressed: its ranges are those of the uncompressed bytes.
            if !is_excluded && self.varies_in_whole(fields) {
                vary(cx);
            }
            return response(body);
        }
        if is_excluded || !self.is_eligible(&body, cx) || !self.matcher.holds(fields, status) {
            return response(body);
        }
        // Also without a coding, so that a shared cache gives this response to no client that accepts one.
        vary(cx);
        let Some(coding) = self.chosen(cx) else { return response(body) };
        match body {
            // RFC 9110 §9.3.2: fields that depend on the content may be absent. GET may be too short for a coding.
            body if body.len().is_none() && cx.original().method() == Method::Head => response(body),
            // The content of a response to HEAD is never sent. Its head is that of GET, except for the length.
            _ if cx.original().method() == Method::Head => {
                mark(cx, coding);
                response(unsent::content())
            }
            Body::Chunk(content) if content.len() <= WHOLE_BYTES_MAX => whole_body(cx, status, content, coding),
            body => {
                let Some(lease) = EncoderLease::take(coding) else { return response(body) };
                mark(cx, coding);
                response(EncodedBody::new(body, coding, lease, cx.worker()).into())
            }
        }
    }
}

/// Compresses content in memory: here, if that takes little time, else on a thread of the pool. Without a free place in
/// its queue the response stays as it is.
fn whole_body(cx: &mut Context, status: StatusCode, content: Chunk, coding: Coding) -> Step {
    if content.len() > coding.inline_bytes_max() {
        let input = content.clone();
        let job = move || compressed(coding, input.as_slice());
        return match offload(&**cx.worker(), Work::of(WorkKind::Compress), job) {
            Err(_) => Step::Respond(Response { status, body: Body::Chunk(content) }),
            Ok(job) => cx.wait(job, move |cx, coded| {
                // The job may have panicked.
                let coded = coded.flatten().map(Chunk::from);
                whole_response(cx, status, content, coding, coded)
            }),
        };
    }
    let mut block = cx.worker().take_block();
    let coded = if whole::bytes_max(coding, content.len()) <= block.capacity() {
        let written = whole::compress_into(coding, content.as_slice(), block.as_mut_slice());
        written.map(|written| block.freeze(0..written))
    } else {
        compressed(coding, content.as_slice()).map(Chunk::from)
    };
    whole_response(cx, status, content, coding, coded)
}

fn whole_response(cx: &mut Context, status: StatusCode, content: Chunk, coding: Coding, coded: Option<Chunk>) -> Step {
    if coded.is_some() {
        mark(cx, coding);
    }
    Step::Respond(Response { status, body: Body::Chunk(coded.unwrap_or(content)) })
}

/// Sets the fields of a response that is compressed.
fn mark(cx: &mut Context, coding: Coding) {
    let etag = cx.response().fields().get(names::ETAG).and_then(|etag| with_suffix(etag, coding.name()));
    let head = cx.response_mut();
    head.remove(names::CONTENT_LENGTH);
    head.remove(names::ACCEPT_RANGES);
    head.set(names::CONTENT_ENCODING, coding.field_value());
    if let Some(etag) = etag
        && let Some(etag) = FieldValue::parse(&etag)
    {
        head.set(names::ETAG, etag);
    }
}

/// Adds `Vary: Accept-Encoding` unless it is there.
fn vary(cx: &mut Context) {
    if !cx.response().fields().has_token(names::VARY, "Accept-Encoding") {
        cx.response_mut().append(names::VARY, VARY);
    }
}

/// Returns a strong entity tag with the coding's name appended (RFC 9110 §8.8.3.3: each coding is another
/// representation). Weak tags stay.
pub(crate) fn with_suffix(etag: &[u8], coding: &str) -> Option<Vec<u8>> {
    let open = etag.strip_suffix(b"\"").filter(|open| !open.starts_with(b"W/") && !open.is_empty())?;
    Some([open, b"-", coding.as_bytes(), b"\""].concat())
}

/// Writes a list of entity tags without the coding's name; returns whether a tag had it.
fn without_suffix(tags: &[u8], coding: &str, out: &mut Vec<u8>) -> bool {
    let mut is_found = false;
    let mut rest = tags;
    while let Some(at) = memchr::memchr(b'"', rest) {
        let open = rest[..at].strip_suffix(coding.as_bytes()).and_then(|open| open.strip_suffix(b"-"));
        is_found |= open.is_some();
        out.extend_from_slice(open.unwrap_or(&rest[..at]));
        out.push(b'"');
        rest = &rest[at + 1..];
    }
    out.extend_from_slice(rest);
    is_found
}

#[cfg(test)]
mod tests;
