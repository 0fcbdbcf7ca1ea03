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
//! long it is believed is said in `fresh`.
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
use causeway_pipeline::{Build, BuildError, Context, Fault, Generation, Handler, StateId, Step, Template};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::fresh::{Cost, Fresh, Known, Looking};
use crate::rendered::{Status, Weak};
use crate::together::Together;
use browse::Browse;
use disk::Look;
pub(crate) use disk::of_octets;
use entry::Entry;
pub(crate) use locate::push_root;
use locate::{Names, Place};
use precompressed::Codings;

/// What a worker remembers of one file server's files.
const REMEMBERED: Cost = Cost { octets: 32 * 1024 * 1024, open: 128 };

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
    /// Looks at what nothing is known of.
    looks: StateId<Together<Outcome>>,
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
    let index_names = written.index_names.unwrap_or_else(|| vec!["index.html".into(), "index.txt".into()]);
    let names = Names::build(&written.hide, &index_names, build);
    // What is found depends on every option, on what the environment said in them, and on nothing else: the same ones find the
    // same states, after a reload too.
    let key = format!("file_server {value} {names:?}");
    let browse = match written.browse {
        Some(written) => Some(build.at("browse", |build| Browse::build(written, &key, build))?),
        None => None,
    };
    Ok(Box::new(FileServer(Arc::new(Site {
        root: root(written.root.as_deref(), build),
        names,
        browse,
        canonical: written.canonical_uris.unwrap_or(true),
        status: Status::parse(written.status_code, build)?,
        pass_thru: written.pass_thru,
        codings: Codings::build(written.precompressed.unwrap_or_default(), &written.precompressed_order, build)?,
        tag_extensions: written.etag_file_extensions,
        files: build.kept_state(key.clone(), |_| RefCell::new(Fresh::new(REMEMBERED))),
        looks: build.kept_state(key, |_| Together::new()),
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
                Known::Stale(entry, looking) => look_again(site, cx, Place::new(key, path_len), entry, looking),
                Known::Nothing => {
                    let place = Place::new(key, path_len);
                    match browse::remembered(site, cx, &place) {
                        Some(step) => step,
                        None => look(site, cx, place),
                    }
                }
            }
        })
    }
}

/// What a look came to.
#[derive(Clone)]
enum Outcome {
    File(Rc<Entry>),
    /// A folder without an index.
    Folder,
    Missing,
    Failed(Fault),
}

/// Looks at a place of which nothing is known, on the blocking pool; who comes meanwhile waits for the same look.
fn look(site: &Arc<Site>, cx: &mut Context, place: Place) -> Step {
    let (ours, theirs, there) = (Arc::clone(site), Arc::clone(site), place.clone());
    let job = move || (disk::look(&ours, &there, None), there);
    let (generation, began) = (Rc::clone(cx.generation()), cx.worker().now());
    let outcome = Together::look(cx, site.looks, place.key(), job, move |done| match done {
        Some((look, there)) => learn(&theirs, &generation, &there, look, None, began),
        None => Outcome::Failed(Fault::status(StatusCode::INTERNAL_SERVER_ERROR)),
    });
    let Ok(outcome) = outcome else { return Step::Fail(Fault::busy()) };
    let site = Arc::clone(site);
    cx.wait(outcome, move |cx, outcome| match outcome {
        Ok(outcome) => act(&site, cx, place, outcome),
        Err(_) => Step::Fail(Fault::status(StatusCode::INTERNAL_SERVER_ERROR)),
    })
}

/// Looks again at a file that is remembered.
fn look_again(site: &Arc<Site>, cx: &mut Context, place: Place, entry: Rc<Entry>, looking: Looking) -> Step {
    let began = cx.worker().now();
    let (ours, seen) = (Arc::clone(site), Arc::clone(&entry.seen));
    let job = run_blocking(&**cx.worker(), move || (disk::look(&ours, &place, Some(&seen)), place));
    // What was there a moment ago is better than no answer.
    let Ok(job) = job else { return answer::give(site, cx, &entry) };
    let site = Arc::clone(site);
    cx.wait(job, move |cx, done| {
        let Some((look, place)) = done else { return Step::Fail(Fault::status(StatusCode::INTERNAL_SERVER_ERROR)) };
        let outcome = learn(&site, cx.generation(), &place, look, Some(entry), began);
        drop(looking);
        act(&site, cx, place, outcome)
    })
}

/// Remembers what a look found that began at `began`.
fn learn(
    site: &Site,
    generation: &Generation,
    place: &Place,
    look: Look,
    known: Option<Rc<Entry>>,
    began: Instant,
) -> Outcome {
    let mut files = generation.state(site.files).borrow_mut();
    let outcome = match (look, known) {
        (Look::Same, Some(entry)) => {
            files.touch(place.key(), began);
            return Outcome::File(entry);
        }
        (Look::File(file), _) => {
            let entry = Rc::new(Entry::from(file));
            files.put(place.key(), Rc::clone(&entry), began);
            return Outcome::File(entry);
        }
        (Look::Folder, _) => Outcome::Folder,
        (Look::Failed(fault), _) => Outcome::Failed(fault),
        (Look::Missing | Look::Same, _) => Outcome::Missing,
    };
    files.remove(place.key());
    outcome
}

fn act(site: &Arc<Site>, cx: &mut Context, place: Place, outcome: Outcome) -> Step {
    match outcome {
        Outcome::File(entry) => answer::give(site, cx, &entry),
        Outcome::Folder => browse::folder(site, cx, place),
        Outcome::Missing => missing(site),
        Outcome::Failed(fault) => failed(cx, fault),
    }
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
