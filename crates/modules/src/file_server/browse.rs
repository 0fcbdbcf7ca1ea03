//! Listings of folders: `browse`.
//!
//! In reading order:
//! - [`list`]: what is in a folder, in which order
//! - [`page`]: the listing as a page
//! - [`plain`]: the listing as JSON and as text
//! - [`calendar`]: dates, as pages and JSON spell them
//! - [`turns`]: how few listings are made at a time
//!
//! A listing of many files takes long to make and much memory. So a worker makes one for all who ask for it within a second,
//! as [`crate::fresh`] says, and they share its octets; where a new look gives the same octets, also with those who read slowly.
//! Few are made at a time, so that nobody's file waits behind a queue of them.

mod calendar;
mod list;
mod page;
mod plain;
mod turns;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use causeway_message::{Chunk, FieldValue, NameRef, StatusCode, names, path};
use causeway_pipeline::worker::run_blocking;
use causeway_pipeline::{Build, BuildError, Context, Fault, Response, StateId, Step};
use serde::Deserialize;

use super::disk::{Look, not_seen};
use super::locate::Place;
use super::{Site, answer, conditional, failed, missing};
use crate::fresh::{Cost, Costly, Fresh, Known, Looking};
use list::{Listing, Order};
use turns::{Turn, Turns};

/// Files that one listing shows, as Caddy has it.
const FILES_MAX: usize = 10_000;
/// What a worker remembers of one file server's listings.
const REMEMBERED: Cost = Cost { octets: 16 * 1024 * 1024, open: 0 };

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Written {
    template_file: String,
    plain_time_format: String,
    reveal_symlinks: bool,
    sort: Vec<String>,
    file_limit: usize,
}

pub(super) struct Browse {
    reveal_symlinks: bool,
    order: Order,
    files_max: usize,
    made: StateId<RefCell<Fresh<Made>>>,
    turns: StateId<Rc<Turns>>,
}

impl Browse {
    pub(super) fn build(written: Written, key: &str, build: &mut Build<'_>) -> Result<Self, BuildError> {
        if !written.template_file.is_empty() {
            return Err(build.refuse(written.template_file, "no template_file; this version has its own listing only"));
        }
        if !written.plain_time_format.is_empty() {
            let expected = "no plain_time_format; this version has one form of dates only";
            return Err(build.refuse(written.plain_time_format, expected));
        }
        let mut order = Order::default();
        for (at, word) in written.sort.iter().enumerate() {
            // Caddy: first by what, then in which direction.
            let expected = match at {
                0 if !matches!(&**word, "asc" | "desc") && order.set(word) => continue,
                1 if matches!(&**word, "asc" | "desc") && order.set(word) => continue,
                0 => "one of name, namedirfirst, size, time as the first word of sort",
                1 => "asc or desc as the second word of sort",
                _ => "at most two words in sort",
            };
            return Err(build.refuse(word, expected));
        }
        let files_max = if written.file_limit == 0 { FILES_MAX } else { written.file_limit };
        Ok(Self {
            reveal_symlinks: written.reveal_symlinks,
            order,
            files_max,
            made: build.kept_state(key.to_owned(), |_| RefCell::new(Fresh::new(REMEMBERED))),
            turns: build.kept_state(key.to_owned(), |_| Turns::new()),
        })
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

    /// Under which a listing is remembered: all that it depends on.
    fn key(&self, place: &Place) -> Vec<u8> {
        let Self { format, order, limit, offset, path } = self;
        let mut key = place.key().to_vec();
        // An octet 0 is in no path.
        key.extend_from_slice(&[0, *format as u8, order.sort as u8, u8::from(order.descending)]);
        key.extend_from_slice(&limit.unwrap_or(0).to_be_bytes());
        key.extend_from_slice(&offset.to_be_bytes());
        key.extend_from_slice(path.as_bytes());
        key
    }
}

/// A listing, ready to be answered with.
struct Made {
    format: Format,
    octets: Chunk,
    modified: SystemTime,
}

impl Costly for Made {
    fn cost(&self) -> Cost {
        Cost { octets: self.octets.len(), open: 0 }
    }
}

const PAGE: FieldValue<'static> = FieldValue::from_static("text/html; charset=utf-8");
const JSON: FieldValue<'static> = FieldValue::from_static("application/json; charset=utf-8");
const TEXT: FieldValue<'static> = FieldValue::from_static("text/plain; charset=utf-8");
const VARY: FieldValue<'static> = FieldValue::from_static("Accept, Accept-Encoding");
/// The page needs nothing but its own style and icon; whatever a name might smuggle in stays without effect.
const POLICY: FieldValue<'static> = FieldValue::from_static(
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'",
);

/// Answers with a listing that was made within the last second; `None` where there is none.
pub(super) fn remembered(site: &Site, cx: &mut Context, place: &Place) -> Option<Step> {
    let browse = site.browse.as_ref()?;
    let key = Asked::of(cx, browse).key(place);
    let now = cx.worker().now();
    let known = cx.generation().state(browse.made).borrow_mut().find(&key, now);
    match known {
        Known::Fresh(made) => Some(refusal(cx).unwrap_or_else(|| give(cx, &made))),
        // Whether it is still a folder without an index is asked first, and then again whether this is fresh.
        Known::Stale(..) | Known::Nothing => None,
    }
}

/// What is answered instead of a listing: the way to the folder's proper path, or 405.
fn refusal(cx: &mut Context) -> Option<Step> {
    answer::canonical_folder(cx).or_else(|| answer::check_method(cx).err().map(Step::Fail))
}

/// Answers for a folder that has no index: its listing, or 404.
pub(super) fn folder(site: &Arc<Site>, cx: &mut Context, place: Place) -> Step {
    let Some(browse) = &site.browse else { return missing(site) };
    if let Some(step) = refusal(cx) {
        return step;
    }
    let generation = Rc::clone(cx.generation());
    let site = Arc::clone(site);
    match generation.state(browse.turns).take() {
        Ok(turn) => make(&site, cx, place, turn),
        Err(Some(waiting)) => cx.wait(waiting, move |cx, turn| match turn {
            Ok(turn) => make(&site, cx, place, turn),
            Err(_) => Step::Fail(Fault::busy()),
        }),
        Err(None) => Step::Fail(Fault::busy()),
    }
}

/// Makes the listing, unless another one did meanwhile.
fn make(site: &Arc<Site>, cx: &mut Context, place: Place, turn: Turn) -> Step {
    let Some(browse) = &site.browse else { return missing(site) };
    let asked = Asked::of(cx, browse);
    let key = asked.key(&place);
    let began = cx.worker().now();
    let known = cx.generation().state(browse.made).borrow_mut().find(&key, began);
    let old: Option<(Rc<Made>, Looking)> = match known {
        Known::Fresh(made) => return give(cx, &made),
        Known::Stale(made, looking) => Some((made, looking)),
        Known::Nothing => None,
    };
    let format = asked.format;
    let ours = Arc::clone(site);
    let job = run_blocking(&**cx.worker(), move || {
        let browse = ours.browse.as_ref()?;
        let listing = Listing::read(place.path(), &place.names(&ours), browse, &asked);
        Some(listing.map(|listing| (render(&listing, &asked), listing.modified)))
    });
    let Ok(job) = job else { return Step::Fail(Fault::busy()) };
    let site = Arc::clone(site);
    cx.wait(job, move |cx, done| {
        drop(turn);
        let Some(browse) = &site.browse else { return missing(&site) };
        let (octets, modified) = match done.flatten() {
            Some(Ok(made)) => made,
            Some(Err(error)) => {
                return match not_seen(&error) {
                    Look::Failed(fault) => failed(cx, fault),
                    _ => missing(&site),
                };
            }
            None => return Step::Fail(Fault::status(StatusCode::INTERNAL_SERVER_ERROR)),
        };
        let generation = Rc::clone(cx.generation());
        let mut remembered = generation.state(browse.made).borrow_mut();
        let made = match old {
            // Slow readers of the old one and those to come hold the same octets.
            Some((made, _)) if made.octets.as_slice() == octets && made.modified == modified => {
                remembered.touch(&key, began);
                made
            }
            _ => {
                let made = Rc::new(Made { format, octets: Chunk::from(octets), modified });
                remembered.put(&key, Rc::clone(&made), began);
                made
            }
        };
        drop(remembered);
        give(cx, &made)
    })
}

fn render(listing: &Listing, asked: &Asked) -> Vec<u8> {
    let mut octets = match asked.format {
        Format::Page => page::render(listing, asked),
        Format::Json => plain::json(listing),
        Format::Text => plain::text(listing),
    };
    octets.shrink_to_fit();
    octets
}

fn give(cx: &mut Context, made: &Made) -> Step {
    let seconds = made.modified.duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs();
    let since = conditional::date(cx.head().fields().get(names::IF_MODIFIED_SINCE));
    let response = cx.response_mut();
    response.append(names::VARY, VARY);
    response.last_modified(made.modified);
    if since.is_some_and(|since| seconds <= since) {
        return Step::Respond(Response::empty(StatusCode::NOT_MODIFIED));
    }
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
    Step::Respond(Response::chunk(StatusCode::OK, made.octets.clone()))
}
