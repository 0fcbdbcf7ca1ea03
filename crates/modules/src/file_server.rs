//! `file_server`: files below a root, and listings of folders.
//!
//! In reading order:
//! - `locate`: from a request's path to a path of the file system, and what is hidden there
//! - `disk`: what is asked of the file system, on the blocking pool
//! - `entry`: what a worker remembers of a file: small ones whole, large ones open
//! - `answer`: from a file to an answer, and redirects to a file's proper path
//! - `precompressed`: which of a file's compressed versions a request takes
//! - `conditional`, `range`: RFC 9110 §13 and §14
//! - `mime`: types by extension
//! - `browse`: listings of folders
//!
//! A file that is remembered, and was looked at within the last second, is answered without a system call or an allocation; how
//! long it is believed is said in [`crate::fresh`].
//!
//! Symbolic links are followed wherever they lead, out of the root too, as Caddy does: whoever may put links below the root
//! decides what is served. A request's path alone never leads out of it.

mod answer;
mod browse;
mod conditional;
mod disk;
mod entry;
mod locate;
mod mime;
mod precompressed;
mod range;
#[cfg(test)]
pub(crate) mod tests;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use causeway_message::{FieldValue, StatusCode, names};
use causeway_pipeline::worker::run_blocking;
use causeway_pipeline::{Build, BuildError, Context, Fault, Handler, StateId, Step, Template};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::fresh::{Cost, Fresh, Known, Looking};
use crate::rendered::{Status, Weak};
use browse::Browse;
use disk::Look;
pub(crate) use disk::of_octets;
use entry::Entry;
pub(crate) use locate::push_root;
use locate::{Names, Place};
use precompressed::Codings;

/// What a worker remembers of one file server's files.
const REMEMBERED: Cost = Cost { octets: 16 * 1024 * 1024, open: 128 };

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    #[serde(default)]
    fs: String,
    root: Option<String>,
    #[serde(default)]
    hide: Vec<String>,
    index_names: Option<Vec<String>>,
    browse: Option<browse::Written>,
    canonical_uris: Option<bool>,
    status_code: Option<Weak>,
    #[serde(default)]
    pass_thru: bool,
    precompressed: Option<Map<String, Value>>,
    #[serde(default)]
    precompressed_order: Vec<String>,
    #[serde(default)]
    etag_file_extensions: Vec<String>,
}

/// What is served and how; shared with jobs on the blocking pool.
struct Site {
    root: Template,
    names: Names,
    browse: Option<Browse>,
    canonical: bool,
    status: Option<Status>,
    pass_thru: bool,
    codings: Codings,
    tag_extensions: Vec<String>,
    files: StateId<RefCell<Fresh<Entry>>>,
}

struct FileServer(Arc<Site>);

/// Makes the handler.
///
/// # Errors
/// When an option is unknown or wrong, or one of those that this version has not: another `fs` than the default one,
/// `browse.template_file`, `browse.plain_time_format`.
pub fn make(value: &Value, build: &mut Build<'_>) -> Result<Box<dyn Handler>, BuildError> {
    let written: Written = build.parse(value)?;
    refuse_fs(&written.fs, build)?;
    let browse = match written.browse {
        Some(written) => Some(build.at("browse", |build| Browse::build(written, build))?),
        None => None,
    };
    let index_names = written.index_names.unwrap_or_else(|| vec!["index.html".into(), "index.txt".into()]);
    Ok(Box::new(FileServer(Arc::new(Site {
        root: root(written.root.as_deref(), build),
        names: Names::build(&written.hide, &index_names, build),
        browse,
        canonical: written.canonical_uris.unwrap_or(true),
        status: Status::parse(written.status_code, build)?,
        pass_thru: written.pass_thru,
        codings: Codings::build(written.precompressed.unwrap_or_default(), &written.precompressed_order, build)?,
        tag_extensions: written.etag_file_extensions,
        files: build.state(|_| RefCell::new(Fresh::new(REMEMBERED))),
    }))))
}

/// Only the file system of the machine is there; Caddy calls it `default`.
pub(crate) fn refuse_fs(fs: &str, build: &Build<'_>) -> Result<(), BuildError> {
    match fs {
        "" | "default" => Ok(()),
        _ => Err(build.refuse(fs, "no `fs`; this version serves the file system itself only")),
    }
}

/// A root as written, else the variable that the `root` directive sets.
pub(crate) fn root(written: Option<&str>, build: &mut Build<'_>) -> Template {
    build.template(written.filter(|root| !root.is_empty()).unwrap_or("{http.vars.root}"))
}

impl Handler for FileServer {
    fn enter(&self, cx: &mut Context) -> Step {
        let site = &self.0;
        cx.with_scratch(|cx, key| {
            let path_len = match locate::key(site, cx, key) {
                Ok(len) => len,
                Err(fault) => return Step::Fail(fault),
            };
            let now = cx.worker().now();
            let known = cx.generation().state(site.files).borrow_mut().find(key, now);
            match known {
                Known::Fresh(entry) => answer::give(site, cx, &entry),
                Known::Stale(entry, looking) => look(site, cx, Place::new(key, path_len), Some((entry, looking)), now),
                Known::Nothing => {
                    let place = Place::new(key, path_len);
                    match browse::remembered(site, cx, &place) {
                        Some(step) => step,
                        None => look(site, cx, place, None, now),
                    }
                }
            }
        })
    }
}

/// Looks at the file on the blocking pool, then goes on with what was found. The place becomes the job's.
fn look(site: &Arc<Site>, cx: &mut Context, place: Place, known: Option<(Rc<Entry>, Looking)>, began: Instant) -> Step {
    let seen = known.as_ref().map(|(entry, _)| Arc::clone(&entry.seen));
    let ours = Arc::clone(site);
    let job = run_blocking(&**cx.worker(), move || {
        let look = disk::look(&ours, &place, seen.as_deref());
        (place, look)
    });
    let Ok(job) = job else {
        // What was there a moment ago is better than no answer.
        return match known {
            Some((entry, _)) => answer::give(site, cx, &entry),
            None => Step::Fail(Fault::busy()),
        };
    };
    let site = Arc::clone(site);
    cx.wait(job, move |cx, done| {
        let Some((place, look)) = done else { return Step::Fail(Fault::status(StatusCode::INTERNAL_SERVER_ERROR)) };
        let generation = Rc::clone(cx.generation());
        let files = generation.state(site.files);
        match (look, &known) {
            (Look::Same, Some((entry, _))) => {
                files.borrow_mut().touch(place.key(), began);
                answer::give(&site, cx, entry)
            }
            (Look::File(file), _) => {
                let entry = Rc::new(Entry::from(file));
                files.borrow_mut().put(place.key(), Rc::clone(&entry), began);
                answer::give(&site, cx, &entry)
            }
            (other, _) => {
                files.borrow_mut().remove(place.key());
                match other {
                    Look::Folder => browse::folder(&site, cx, place),
                    Look::Failed(fault) => failed(cx, fault),
                    Look::Missing | Look::Same | Look::File(_) => missing(&site),
                }
            }
        }
    })
}

fn missing(site: &Site) -> Step {
    if site.pass_thru { Step::Next } else { Step::Fail(Fault::status(StatusCode::NOT_FOUND)) }
}

/// Caddy: who meets a server without descriptors is told to wait some seconds, not all of them the same.
fn failed(cx: &mut Context, fault: Fault) -> Step {
    if fault.status == StatusCode::SERVICE_UNAVAILABLE {
        let seconds = ["2", "3", "4"][(cx.worker().random() % 3) as usize];
        cx.response_mut().set(names::RETRY_AFTER, FieldValue::from_static(seconds));
    }
    Step::Fail(fault)
}
