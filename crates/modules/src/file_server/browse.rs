//! Listings of directories: `browse`.
//!
//! In reading order:
//! - [`list`]: the sorted entries of a directory
//! - [`page`]: the listing as an HTML page
//! - [`plain`]: the listing as JSON and as text
//! - [`custom`]: the listing by a template of the operator
//! - [`permits`]: a limit on concurrent listings
//!
//! A listing of many files takes much time and memory. So a worker caches it for a second, as [`crate::fresh`]
//! describes, and all responses share its bytes, even across a revalidation that yields equal bytes. Few listings are
//! made concurrently, so that they do not fill the queue ahead of requests for single files.

mod custom;
mod list;
mod page;
mod permits;
mod plain;

use std::cell::RefCell;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use causeway_message::{Chunk, FieldValue, NameRef, StatusCode, names, path, query};
use causeway_pipeline::{Build, BuildError, Context, Fault, Response, StateId, Step};
use serde::Deserialize;

use super::disk::{DiskLookup, open_failed};
use super::locate::FilePath;
use super::{FileServerPlan, answer, failed, missing};
use crate::conditional::{self, Precondition};
use crate::fresh::{CachedValue, Cost, Costly, Fresh, RevalidationGuard};
use crate::templates::{self, TemplatesPlan};
use custom::ListingFacts;
use list::{Listing, Order};
use permits::{Acquired, ListingPermit, ListingPermits};

/// Default limit on the entries of one listing, as in Caddy.
const FILES_MAX: usize = 10_000;
/// Go's layout of the times in a text, by default.
const TIME_LONG: &str = "January 2, 2006 at 15:04:05";
/// The cache of listings of each file server on each worker.
const CACHED_COST_MAX: Cost = Cost { bytes: 16 * 1024 * 1024, open: 0 };

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub(super) struct BrowseConfig {
    template_file: String,
    plain_time_format: String,
    reveal_symlinks: bool,
    sort: Vec<String>,
    /// 0: the default; negative: no limit, as in Caddy.
    file_limit: i64,
}

pub(super) struct Browse {
    reveal_symlinks: bool,
    order: Order,
    files_max: usize,
    /// Go's layout of the times in a text.
    plain_times: Box<str>,
    template: Option<CustomPage>,
    rendered: StateId<RefCell<Fresh<RenderedListing>>>,
    permits: StateId<Rc<ListingPermits>>,
}

/// The operator's template for pages.
struct CustomPage {
    file: PathBuf,
    plan: Arc<TemplatesPlan>,
}

impl Browse {
    pub(super) fn build(written: BrowseConfig, key: &str, build: &mut Build<'_>) -> Result<Self, BuildError> {
        let mut order = Order::default();
        for (at, word) in written.sort.iter().enumerate() {
            // Caddy: the first word is the sort key, the second the direction.
            let expected = match at {
                0 if order.set_key(word) => continue,
                1 if order.set_direction(word) => continue,
                0 => "one of name, namedirfirst, size, time as the first word of sort",
                1 => "asc or desc as the second word of sort",
                _ => "at most two words in sort",
            };
            return Err(build.refuse(word, expected));
        }
        let files_max = match written.file_limit {
            0 => FILES_MAX,
            limit => usize::try_from(limit).unwrap_or(usize::MAX),
        };
        Ok(Self {
            reveal_symlinks: written.reveal_symlinks,
            order,
            files_max,
            plain_times: Some(written.plain_time_format)
                .filter(|layout| !layout.is_empty())
                .unwrap_or(TIME_LONG.into())
                .into(),
            template: (!written.template_file.is_empty())
                .then(|| CustomPage { file: written.template_file.into(), plan: TemplatesPlan::of_page(build) }),
            rendered: build.allocate_kept_state(key.to_owned(), |_| RefCell::new(Fresh::new(CACHED_COST_MAX))),
            permits: build.allocate_kept_state(key.to_owned(), |_| ListingPermits::new()),
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Page,
    Json,
    Text,
}

/// The parameters of a query that a listing depends on.
const PARAMETERS: [&str; 5] = ["sort", "order", "limit", "layout", "offset"];

/// The request's parameters for a listing; owned, so that a job on the file thread pool can hold it.
struct ListingQuery {
    format: Format,
    order: Order,
    limit: Option<usize>,
    offset: usize,
    /// Caddy's word for the layout of a page, which only a template of the operator uses.
    layout: &'static str,
    /// The request's path, decoded and cleaned, with a trailing slash.
    path: String,
    /// The same as it was sent, without the slash.
    escaped: String,
}

impl ListingQuery {
    fn of(cx: &Context, browse: &Browse) -> Self {
        let mut order = browse.order;
        let (mut limit, mut offset, mut layout) = (None, 0, "");
        let (mut seen, mut text) = ([false; PARAMETERS.len()], Vec::new());
        for (name, value) in query::pairs(cx.head().target().query().unwrap_or_default().as_bytes()) {
            text.clear();
            if !query::decode(name, &mut text) {
                continue;
            }
            let Some(at) = PARAMETERS.iter().position(|name| name.as_bytes() == text) else { continue };
            text.clear();
            // As in Go, the first of several pairs with a name counts, and a pair with an invalid escape does not.
            if seen[at] || !query::decode(value, &mut text) {
                continue;
            }
            seen[at] = true;
            let word = String::from_utf8_lossy(&text);
            match PARAMETERS[at] {
                // An unknown word keeps the configured order.
                "sort" => {
                    order.set_key(&word);
                }
                "order" => {
                    order.set_direction(&word);
                }
                "limit" => limit = word.parse().ok().filter(|&limit| limit > 0),
                "layout" => {
                    layout = match &*word {
                        "" => "",
                        "grid" => "grid",
                        _ => "list",
                    };
                }
                _ => offset = word.parse().unwrap_or(0),
            }
        }
        let mut format = Format::Page;
        for value in cx.head().fields().get_all(names::ACCEPT) {
            let value = value.to_ascii_lowercase();
            let says = |kind: &str| memchr::memmem::find(&value, kind.as_bytes()).is_some();
            // As in Caddy, JSON takes precedence over text, and text over a page.
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
        clean.clear();
        path::clean(cx.head().target().path().as_bytes(), &mut clean);
        let escaped = match String::from_utf8_lossy(&clean).trim_end_matches('/') {
            "" => "/".to_owned(),
            escaped => escaped.to_owned(),
        };
        Self { format, order, limit, offset, layout, path, escaped }
    }

    /// The cache key: everything that a listing depends on.
    fn key(&self, file_path: &FilePath) -> Vec<u8> {
        let Self { format, order, limit, offset, path, .. } = self;
        let mut key = file_path.key().to_vec();
        // A zero byte cannot occur in a path, so it separates the parts.
        key.extend_from_slice(&[0, *format as u8, order.sort as u8, u8::from(order.descending)]);
        key.extend_from_slice(&limit.unwrap_or(0).to_be_bytes());
        key.extend_from_slice(&offset.to_be_bytes());
        key.extend_from_slice(path.as_bytes());
        key
    }
}

/// The bytes of a rendered listing, and the time of its last change.
type ReadListing = Result<(Vec<u8>, SystemTime), DiskLookup>;

/// A rendered listing.
struct RenderedListing {
    format: Format,
    bytes: Chunk,
    modified: SystemTime,
}

impl Costly for RenderedListing {
    fn cost(&self) -> Cost {
        Cost { bytes: self.bytes.len(), open: 0 }
    }
}

const PAGE: FieldValue<'static> = FieldValue::from_static("text/html; charset=utf-8");
const JSON: FieldValue<'static> = FieldValue::from_static("application/json; charset=utf-8");
const TEXT: FieldValue<'static> = FieldValue::from_static("text/plain; charset=utf-8");
const VARY: FieldValue<'static> = FieldValue::from_static("Accept, Accept-Encoding");
/// The page uses only its own style and icon; this policy disables anything that a file name could inject.
const POLICY: FieldValue<'static> = FieldValue::from_static(
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'",
);

/// Responds with a listing that was made within the last second; `None` if there is none.
pub(super) fn remembered(plan: &FileServerPlan, cx: &mut Context, file_path: &FilePath) -> Option<Step> {
    let browse = plan.browse.as_ref()?;
    let key = ListingQuery::of(cx, browse).key(file_path);
    let now = cx.worker().now();
    let known = cx.generation().state(browse.rendered).borrow_mut().find(&key, now);
    match known {
        CachedValue::Fresh(made) => Some(refusal(plan, cx).unwrap_or_else(|| respond(cx, &made))),
        // First look up the directory: it may have an index by now. `make` then consults this cache again.
        CachedValue::Stale(..) | CachedValue::Nothing => None,
    }
}

/// Returns the response that replaces a listing, if any: a redirect to the directory's canonical path, or 405.
fn refusal(plan: &FileServerPlan, cx: &mut Context) -> Option<Step> {
    answer::canonical_directory(plan, cx).or_else(|| answer::check_method(cx).err().map(Step::Fail))
}

/// Responds for a directory without an index: with its listing, or with 404.
pub(super) fn directory(plan: &Arc<FileServerPlan>, cx: &mut Context, file_path: FilePath) -> Step {
    let Some(browse) = &plan.browse else { return missing(plan) };
    if let Some(step) = refusal(plan, cx) {
        return step;
    }
    let generation = Rc::clone(cx.generation());
    let plan = Arc::clone(plan);
    match generation.state(browse.permits).acquire() {
        Acquired::Permit(permit) => make(&plan, cx, file_path, permit),
        Acquired::Wait(waiting) => cx.wait(waiting, move |cx, permit| match permit {
            Ok(permit) => make(&plan, cx, file_path, permit),
            Err(_) => Step::Fail(Fault::busy()),
        }),
        Acquired::Full => Step::Fail(Fault::busy()),
    }
}

/// Makes the listing, unless another request made it while this one waited for its permit.
fn make(plan: &Arc<FileServerPlan>, cx: &mut Context, file_path: FilePath, permit: ListingPermit) -> Step {
    let Some(browse) = &plan.browse else { return missing(plan) };
    let query = ListingQuery::of(cx, browse);
    if query.format == Format::Page && browse.template.is_some() {
        return by_template(plan, cx, file_path, query, permit);
    }
    let key = query.key(&file_path);
    let began = cx.worker().now();
    let known = cx.generation().state(browse.rendered).borrow_mut().find(&key, began);
    let old: Option<(Rc<RenderedListing>, RevalidationGuard)> = match known {
        CachedValue::Fresh(made) => return respond(cx, &made),
        CachedValue::Stale(made, revalidation) => Some((made, revalidation)),
        CachedValue::Nothing => None,
    };
    let format = query.format;
    let ours = Arc::clone(plan);
    let read = move || {
        let browse = ours.browse.as_ref()?;
        let listing = Listing::read(file_path.path(), &file_path.names(&ours), browse, &query);
        let made = listing.map(|listing| (render(&listing, &query, browse), listing.modified));
        Some(made.map_err(|error| open_failed(file_path.path(), &error)))
    };
    let (generation, made) = (Rc::clone(cx.generation()), browse.rendered);
    // Stored before the permit passes on: the engine may poll the next request before this one.
    let store = move |read: Option<Option<ReadListing>>| {
        let (bytes, modified) = match read.flatten()? {
            Ok(read) => read,
            Err(failed) => return Some(Err(failed)),
        };
        let mut remembered = generation.state(made).borrow_mut();
        Some(Ok(match old {
            // Keep the old bytes if they are equal: slow readers of the old listing and later requests then share one
            // buffer.
            Some((made, _)) if made.bytes.as_slice() == bytes && made.modified == modified => {
                remembered.touch(&key, began);
                made
            }
            _ => {
                let made = Rc::new(RenderedListing { format, bytes: Chunk::from(bytes), modified });
                remembered.put(&key, Rc::clone(&made), began);
                made
            }
        }))
    };
    let Ok(job) = permit.offload(&**cx.worker(), read, store) else { return Step::Fail(Fault::busy()) };
    let plan = Arc::clone(plan);
    cx.wait(job, move |cx, made| match made.ok().flatten() {
        Some(Ok(made)) => respond(cx, &made),
        Some(Err(DiskLookup::Failed(fault))) => failed(cx, fault),
        Some(Err(_)) => missing(&plan),
        None => Step::Fail(Fault::from_status(StatusCode::INTERNAL_SERVER_ERROR)),
    })
}

/// Executes the operator's template, each time anew: it may use the request.
fn by_template(
    plan: &Arc<FileServerPlan>,
    cx: &mut Context,
    file_path: FilePath,
    query: ListingQuery,
    permit: ListingPermit,
) -> Step {
    let ours = Arc::clone(plan);
    let read = move || {
        let browse = ours.browse.as_ref()?;
        let listing = Listing::read(file_path.path(), &file_path.names(&ours), browse, &query);
        let template = custom::read_template(&browse.template.as_ref()?.file);
        let read = listing.map(|listing| (ListingFacts::new(listing, query), template));
        Some(read.map_err(|error| open_failed(file_path.path(), &error)))
    };
    let Ok(job) = permit.offload(&**cx.worker(), read, Option::flatten) else { return Step::Fail(Fault::busy()) };
    let plan = Arc::clone(plan);
    cx.wait(job, move |cx, done| {
        let Some(custom) = plan.browse.as_ref().and_then(|browse| browse.template.as_ref()) else {
            return missing(&plan);
        };
        let (facts, template) = match done.ok().flatten() {
            Some(Ok(read)) => read,
            Some(Err(DiskLookup::Failed(fault))) => return failed(cx, fault),
            Some(Err(_)) => return missing(&plan),
            None => return Step::Fail(Fault::from_status(StatusCode::INTERNAL_SERVER_ERROR)),
        };
        if let Some(step) = validators(cx, facts.listing.modified) {
            return step;
        }
        cx.response_mut().set(names::CONTENT_TYPE, PAGE);
        let root = cx.with_rendered(&plan.root, |_, root| root.to_vec());
        templates::page(cx, &custom.plan, root, template, facts)
    })
}

fn render(listing: &Listing, query: &ListingQuery, browse: &Browse) -> Vec<u8> {
    let mut bytes = match query.format {
        Format::Page => page::render(listing, query),
        Format::Json => plain::json(listing),
        Format::Text => plain::text(listing, &browse.plain_times),
    };
    bytes.shrink_to_fit();
    bytes
}

/// Sets the fields that describe a listing. Returns the response without content to which the request's conditions
/// lead, if any.
fn validators(cx: &mut Context, modified: SystemTime) -> Option<Step> {
    let response = cx.response_mut();
    response.append(names::VARY, VARY);
    response.set_last_modified(modified);
    // As with files, the page of an error route is not a representation to which a condition could refer.
    if cx.fault().is_some() {
        return None;
    }
    let seconds = modified.duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs();
    let (request, etag) = (cx.head(), cx.response().fields().get(names::ETAG));
    let status = match conditional::evaluate(request.fields(), request.method(), etag, Some(seconds)) {
        Precondition::NotModified => StatusCode::NOT_MODIFIED,
        Precondition::Failed => StatusCode::PRECONDITION_FAILED,
        Precondition::Perform => return None,
    };
    Some(Step::Respond(Response::empty(status)))
}

fn respond(cx: &mut Context, made: &RenderedListing) -> Step {
    if let Some(step) = validators(cx, made.modified) {
        return step;
    }
    let response = cx.response_mut();
    let kind = match made.format {
        Format::Page => {
            response.set(names::CONTENT_SECURITY_POLICY, POLICY);
            response.set(NameRef::from(names::X_CONTENT_TYPE_OPTIONS), FieldValue::from_static("nosniff"));
            PAGE
        }
        Format::Json => JSON,
        Format::Text => TEXT,
    };
    response.set(names::CONTENT_TYPE, kind);
    Step::Respond(Response::chunk(StatusCode::OK, made.bytes.clone()))
}
