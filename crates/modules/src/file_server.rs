//! `file_server`: files below a root, and listings of folders.
//!
//! In reading order:
//! - `locate`: from a request's path to a path of the file system, and what is hidden there
//! - `cache`: what a worker remembers: small files whole, large ones open
//! - `disk`: what is asked of the file system, on the blocking pool
//! - `answer`: from a file to an answer, and redirects to a file's proper path
//! - `conditional`, `range`: RFC 9110 §13 and §14
//! - `mime`: types by extension
//! - `browse`: listings of folders
//!
//! A file that is in the cache, and was looked at within the last second, is answered without a system call or an
//! allocation. The first request after that second waits until the file was looked at again; those that come meanwhile get
//! what was there. So nobody gets content that is older than a second and one look.
//!
//! Symbolic links are followed wherever they lead, out of the root too, as Caddy does: whoever may put links below the root
//! decides what is served. A request's path alone never leads out of it.

mod answer;
mod browse;
mod cache;
mod conditional;
mod disk;
mod locate;
mod mime;
mod range;
#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use causeway_message::StatusCode;
use causeway_pipeline::worker::run_blocking;
use causeway_pipeline::{Build, BuildError, Context, Fault, Handler, StateId, Step, Template};
use serde::Deserialize;
use serde_json::Value;

use crate::rendered::{Rendered, Status, Weak};
use browse::Browse;
use cache::{Cache, Entry, Found};
use disk::Look;
use locate::Hidden;

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
    #[serde(default)]
    precompressed: Option<Value>,
    #[serde(default)]
    precompressed_order: Vec<String>,
    #[serde(default)]
    etag_file_extensions: Vec<String>,
}

/// What is served and how; shared with jobs on the blocking pool.
struct Site {
    root: Template,
    hidden: Hidden,
    index_names: Vec<String>,
    browse: Option<Browse>,
    canonical: bool,
    status: Option<Status>,
    pass_thru: bool,
    cache: StateId<RefCell<Cache>>,
}

struct FileServer(Arc<Site>);

/// Makes the handler.
///
/// # Errors
/// When an option is unknown, or one of those that this version has not: `fs`, `precompressed`, `etag_file_extensions`,
/// `browse.template_file`, placeholders in `hide` and `index_names`.
pub fn make(value: &Value, build: &mut Build<'_>) -> Result<Box<dyn Handler>, BuildError> {
    let written: Written = build.parse(value)?;
    if !written.fs.is_empty() {
        return Err(build.refuse(written.fs, "no `fs`; this version serves the file system itself only"));
    }
    let precompressed =
        written.precompressed.as_ref().and_then(Value::as_object).is_some_and(|kinds| !kinds.is_empty());
    if precompressed || !written.precompressed_order.is_empty() {
        return Err(build.refuse("precompressed", "no precompressed files; this version does not look for them"));
    }
    if !written.etag_file_extensions.is_empty() {
        return Err(
            build.refuse("etag_file_extensions", "no files with entity tags; this version does not look for them")
        );
    }
    let index_names = written.index_names.unwrap_or_else(|| vec!["index.html".into(), "index.txt".into()]);
    for name in &index_names {
        if build.template(name).literal().is_none() {
            return Err(build.refuse(name, "a name without placeholders"));
        }
    }
    let browse = match written.browse {
        Some(written) => Some(build.at("browse", |build| Browse::build(written, build))?),
        None => None,
    };
    let root = build.template(written.root.as_deref().unwrap_or("{http.vars.root}"));
    Ok(Box::new(FileServer(Arc::new(Site {
        root,
        hidden: Hidden::build(written.hide, build)?,
        index_names,
        browse,
        canonical: written.canonical_uris.unwrap_or(true),
        status: Status::parse(written.status_code, build)?,
        pass_thru: written.pass_thru,
        // What is found depends on every option, and on nothing else: the same ones find the same cache, after a reload too.
        cache: build.kept_state(format!("file_server {value}"), |_| RefCell::new(Cache::default())),
    }))))
}

impl Handler for FileServer {
    fn enter(&self, cx: &mut Context) -> Step {
        let site = &self.0;
        let root = Rendered::of(&site.root, cx);
        let generation = Rc::clone(cx.generation());
        let cache = generation.state(site.cache);
        let mut path = cache.borrow_mut().take_scratch();
        if let Err(fault) = locate::join(&root, cx.path(), &mut path) {
            cache.borrow_mut().give_scratch(path);
            return Step::Fail(fault);
        }
        let found = cache.borrow_mut().find(&path, cx.worker().now());
        match found {
            Found::Fresh(entry) => {
                cache.borrow_mut().give_scratch(path);
                answer::give(site, cx, &entry)
            }
            Found::Stale(entry) => look(site, cx, path, Some(entry)),
            Found::Nothing => look(site, cx, path, None),
        }
    }
}

/// Looks at the file on the blocking pool, then goes on with what was found. `path` becomes the job's.
fn look(site: &Arc<Site>, cx: &mut Context, path: Vec<u8>, known: Option<Rc<Entry>>) -> Step {
    let seen = known.as_ref().map(|entry| entry.seen);
    let ours = Arc::clone(site);
    let job = run_blocking(&**cx.worker(), move || {
        let look = disk::look(&ours, &path, seen);
        (path, look)
    });
    let Ok(job) = job else {
        // What was there a moment ago is better than no answer.
        return match known {
            Some(entry) => answer::give(site, cx, &entry),
            None => Step::Fail(Fault::busy()),
        };
    };
    let site = Arc::clone(site);
    cx.wait(job, move |cx, done| {
        let Some((path, look)) = done else { return Step::Fail(Fault::status(StatusCode::INTERNAL_SERVER_ERROR)) };
        let generation = Rc::clone(cx.generation());
        let cache = generation.state(site.cache);
        let now = cx.worker().now();
        match (look, known) {
            (Look::Same, Some(entry)) => {
                cache.borrow_mut().touch(&path, now);
                answer::give(&site, cx, &entry)
            }
            (Look::File(file), _) => {
                let entry = Rc::new(Entry::from(file));
                cache.borrow_mut().put(&path, Rc::clone(&entry), now);
                answer::give(&site, cx, &entry)
            }
            (other, _) => {
                cache.borrow_mut().remove(&path);
                match other {
                    Look::Folder => browse::folder(&site, cx, path),
                    Look::Failed(fault) => Step::Fail(fault),
                    Look::Missing | Look::Same | Look::File(_) => missing(&site),
                }
            }
        }
    })
}

fn missing(site: &Site) -> Step {
    if site.pass_thru { Step::Next } else { Step::Fail(Fault::status(StatusCode::NOT_FOUND)) }
}
