//! Listings of folders: `browse`.
//!
//! In reading order:
//! - [`list`]: what is in a folder, in which order
//! - [`page`]: the listing as a page
//! - [`plain`]: the listing as JSON and as text
//! - [`calendar`]: dates, as pages and JSON spell them

mod calendar;
mod list;
mod page;
mod plain;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use causeway_message::{Chunk, FieldValue, NameRef, StatusCode, names, path};
use causeway_pipeline::worker::run_blocking;
use causeway_pipeline::{Build, BuildError, Context, Fault, Response, Step};
use serde::Deserialize;

use super::{Site, answer, conditional, missing};
use list::{Listing, Order};

/// Files that one listing shows, as Caddy has it.
const FILES_MAX: usize = 10_000;

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Written {
    template_file: String,
    reveal_symlinks: bool,
    sort: Vec<String>,
    file_limit: usize,
}

pub(super) struct Browse {
    reveal_symlinks: bool,
    order: Order,
    files_max: usize,
}

impl Browse {
    pub(super) fn build(written: Written, build: &Build<'_>) -> Result<Self, BuildError> {
        if !written.template_file.is_empty() {
            return Err(build.refuse(written.template_file, "no template_file; this version has its own listing only"));
        }
        let mut order = Order::default();
        for word in &written.sort {
            if !order.set(word) {
                return Err(build.refuse(word, "one of name, namedirfirst, size, time, asc, desc"));
            }
        }
        let files_max = if written.file_limit == 0 { FILES_MAX } else { written.file_limit };
        Ok(Self { reveal_symlinks: written.reveal_symlinks, order, files_max })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Page,
    Json,
    Text,
}

/// What a listing was asked for; owned, for the blocking pool.
struct Asked {
    format: Format,
    order: Order,
    limit: Option<usize>,
    offset: usize,
    /// The path that was asked for, decoded and cleaned, with its slash at the end.
    path: String,
}

impl Asked {
    fn of(cx: &Context, browse: &Browse) -> Self {
        let mut order = browse.order;
        let (mut limit, mut offset) = (None, 0);
        for pair in cx.head().target().query().unwrap_or_default().split('&') {
            match pair.split_once('=') {
                // What is no order leaves the configured one.
                Some(("sort" | "order", word)) => {
                    order.set(word);
                }
                Some(("limit", number)) => limit = number.parse().ok().filter(|&limit| limit > 0),
                Some(("offset", number)) => offset = number.parse().unwrap_or(0),
                _ => {}
            }
        }
        let mut format = Format::Page;
        for value in cx.head().fields().get_all(names::ACCEPT) {
            let value = value.to_ascii_lowercase();
            let says = |kind: &str| memchr::memmem::find(&value, kind.as_bytes()).is_some();
            // Caddy: JSON before text before a page.
            if says("application/json") {
                format = Format::Json;
            } else if says("text/plain") && !says("text/html") && format == Format::Page {
                format = Format::Text;
            }
        }
        let mut clean = Vec::with_capacity(cx.path().len() + 1);
        path::clean(cx.path(), &mut clean);
        let mut path = String::from_utf8_lossy(&clean).into_owned();
        if !path.ends_with('/') {
            path.push('/');
        }
        Self { format, order, limit, offset, path }
    }
}

struct Rendered {
    octets: Vec<u8>,
    modified: SystemTime,
}

const PAGE: FieldValue<'static> = FieldValue::from_static("text/html; charset=utf-8");
const JSON: FieldValue<'static> = FieldValue::from_static("application/json; charset=utf-8");
const TEXT: FieldValue<'static> = FieldValue::from_static("text/plain; charset=utf-8");
const VARY: FieldValue<'static> = FieldValue::from_static("Accept, Accept-Encoding");
/// The page needs nothing but its own style and icon; whatever a name might smuggle in stays without effect.
const POLICY: FieldValue<'static> = FieldValue::from_static(
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'",
);

/// Answers for a folder that has no index: its listing, or 404.
pub(super) fn folder(site: &Arc<Site>, cx: &mut Context, folder: Vec<u8>) -> Step {
    let Some(browse) = &site.browse else { return missing(site) };
    if let Some(step) = answer::canonical_folder(cx) {
        return step;
    }
    if let Err(fault) = answer::check_method(cx) {
        return Step::Fail(fault);
    }
    let asked = Asked::of(cx, browse);
    let format = asked.format;
    let ours = Arc::clone(site);
    let job = run_blocking(&**cx.worker(), move || {
        let browse = ours.browse.as_ref()?;
        Some(Listing::read(&folder, &ours.hidden, browse, &asked).map(|listing| render(&listing, &asked)))
    });
    let Ok(job) = job else { return Step::Fail(Fault::busy()) };
    let site = Arc::clone(site);
    cx.wait(job, move |cx, done| match done.flatten() {
        Some(Ok(rendered)) => give(cx, format, rendered),
        Some(Err(error)) => {
            let fault = Fault::io(&error);
            if fault.status == StatusCode::NOT_FOUND { missing(&site) } else { Step::Fail(fault) }
        }
        None => Step::Fail(Fault::status(StatusCode::INTERNAL_SERVER_ERROR)),
    })
}

fn render(listing: &Listing, asked: &Asked) -> Rendered {
    let octets = match asked.format {
        Format::Page => page::render(listing, asked),
        Format::Json => plain::json(listing),
        Format::Text => plain::text(listing),
    };
    Rendered { octets, modified: listing.modified }
}

fn give(cx: &mut Context, format: Format, rendered: Rendered) -> Step {
    let seconds = rendered.modified.duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs();
    let since = conditional::date(cx.head().fields().get(names::IF_MODIFIED_SINCE));
    let response = cx.response_mut();
    response.append(names::VARY, VARY);
    response.last_modified(rendered.modified);
    if since.is_some_and(|since| seconds <= since) {
        return Step::Respond(Response::empty(StatusCode::NOT_MODIFIED));
    }
    let kind = match format {
        Format::Page => {
            response.set(names::CONTENT_SECURITY_POLICY, POLICY);
            response.set(NameRef::from(names::X_CONTENT_TYPE_OPTIONS), FieldValue::from_static("nosniff"));
            PAGE
        }
        Format::Json => JSON,
        Format::Text => TEXT,
    };
    response.set(names::CONTENT_TYPE, kind);
    Step::Respond(Response::chunk(StatusCode::OK, Chunk::from(rendered.octets)))
}
