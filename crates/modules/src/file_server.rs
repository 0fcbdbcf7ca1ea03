//! `file_server`: serves files below a root, and listings of directories.
//!
//! In reading order:
//! - `locate`: maps a request's path to a path of the file system; decides which files are hidden
//! - `disk`: file system access, on the file thread pool
//! - `entry`: a cached file: small files as bytes in memory, large ones as an open descriptor
//! - `answer`: the response for a file, and redirects to a file's canonical path
//! - `precompressed`: selects one of a file's compressed variants by the request's Accept-Encoding
//! - `generated`: variants that the server makes itself
//! - `mime`: media types by file extension
//! - `browse`: listings of directories
//!
//! A cached file that was looked up within the last second is served without an allocation, and from memory also
//! without a system call. `fresh` describes how long cached values are used.
//!
//! As in Caddy, symbolic links are followed, also out of the root: write access below the root determines the files
//! that are served. The request's path alone never leads out of the root.

mod answer;
mod browse;
mod disk;
mod entry;
mod generated;
mod locate;
mod mime;
mod precompressed;
#[cfg(test)]
pub(crate) mod tests;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use causeway_message::{FieldValue, StatusCode, names};
use causeway_pipeline::context::VarId;
use causeway_pipeline::worker::{Work, WorkKind, offload};
use causeway_pipeline::{Build, BuildError, Context, Fault, Generation, Handler, StateId, Step, Template, Worker};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::fresh::{self, CachedValue, Cost, Fresh, RevalidationGuard};
use crate::rendered::{StatusTemplate, WeakString};
use crate::rewrite::STRIPPED;
use crate::single_flight::{ReadTime, SingleFlight};
use browse::Browse;
use disk::DiskLookup;
pub(crate) use disk::of_bytes;
use entry::FileEntry;
use generated::GeneratedCodings;
use locate::{FilePath, Names};
pub(crate) use locate::{absolute, push_root};
use precompressed::SidecarCodings;

/// The cache of each file server on each worker: memory and open descriptors.
const CACHED_COST_MAX: Cost = Cost { bytes: 32 * 1024 * 1024, open: 128 };

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileServerConfig {
    #[serde(default)]
    fs: String,
    root: Option<String>,
    #[serde(default)]
    hide: Vec<String>,
    index_names: Option<Vec<String>>,
    browse: Option<browse::BrowseConfig>,
    canonical_uris: Option<bool>,
    status_code: Option<WeakString>,
    #[serde(default)]
    pass_thru: bool,
    precompressed: Option<Map<String, Value>>,
    #[serde(default)]
    precompressed_order: Vec<String>,
    #[serde(default)]
    precompress: Vec<String>,
    #[serde(default)]
    etag_file_extensions: Vec<String>,
}

/// The compiled configuration of one file server; shared with jobs on the file thread pool.
struct FileServerPlan {
    root: Template,
    names: Names,
    browse: Option<Browse>,
    canonical: bool,
    status: Option<StatusTemplate>,
    pass_thru: bool,
    codings: SidecarCodings,
    generated: GeneratedCodings,
    tag_extensions: Vec<String>,
    files: StateId<Rc<RefCell<Fresh<FileEntry>>>>,
    /// Lookups in progress for paths that are not cached.
    lookups: StateId<SingleFlight<LookupOutcome>>,
    /// Set after a rewrite that left nothing of the path.
    stripped: VarId,
}

struct FileServer(Arc<FileServerPlan>);

/// Compiles the handler from its JSON.
///
/// # Errors
/// If an option is unknown, invalid or not supported by this version, as an `fs` other than the default.
pub fn make(value: &Value, build: &mut Build<'_>) -> Result<Box<dyn Handler>, BuildError> {
    let written: FileServerConfig = build.parse_module(value)?;
    refuse_fs(&written.fs, build)?;
    let index_names = written.index_names.unwrap_or_else(|| vec!["index.html".into(), "index.txt".into()]);
    let names = Names::build(&written.hide, &index_names, build);
    // The result of a lookup depends on every option and on the environment variables they name, and on no other input.
    // So equal keys share one cache, also across a reload.
    let key = format!("file_server {value} {names:?}");
    let browse = match written.browse {
        Some(written) => Some(build.at("browse", |build| Browse::build(written, &key, build))?),
        None => None,
    };
    Ok(Box::new(FileServer(Arc::new(FileServerPlan {
        root: root(written.root.as_deref(), build),
        names,
        browse,
        canonical: written.canonical_uris.unwrap_or(true),
        status: StatusTemplate::parse(written.status_code, build)?,
        pass_thru: written.pass_thru,
        codings: SidecarCodings::build(written.precompressed.unwrap_or_default(), &written.precompressed_order, build)?,
        generated: GeneratedCodings::build(&written.precompress, build)?,
        tag_extensions: written.etag_file_extensions,
        files: build.allocate_kept_state(key.clone(), |_| Rc::new(RefCell::new(Fresh::new(CACHED_COST_MAX)))),
        lookups: build.allocate_kept_state(key, |_| SingleFlight::new()),
        stripped: build.allocate_slot(STRIPPED),
    }))))
}

/// Rejects any file system except the machine's own, which Caddy calls `default`.
pub(crate) fn refuse_fs(fs: &str, build: &Build<'_>) -> Result<(), BuildError> {
    match fs {
        "" | "default" => Ok(()),
        _ => Err(build.refuse(fs, "no `fs`; this version serves the file system itself only (docs/refused.md)")),
    }
}

/// The configured root, or by default the variable that the `root` directive sets.
pub(crate) fn root(written: Option<&str>, build: &mut Build<'_>) -> Template {
    build.template_of_directory(written.filter(|root| !root.is_empty()).unwrap_or("{http.vars.root}"))
}

impl Handler for FileServer {
    fn enter(&self, cx: &mut Context) -> Step {
        let plan = &self.0;
        cx.with_scratch(|cx, key| {
            let path_len = match locate::key(plan, cx, key) {
                Ok(len) => len,
                Err(fault) => return Step::Fail(fault),
            };
            let now = cx.worker().now();
            let known = cx.generation().state(plan.files).borrow_mut().find(key, now);
            match known {
                // Only an entry with an open descriptor can have changed; entries in memory stay valid for their
                // second.
                CachedValue::Fresh(entry) if entry.has_changed() => {
                    revalidate(plan, cx, FilePath::new(key, path_len), entry, None)
                }
                CachedValue::Fresh(entry) => answer::respond(plan, cx, &entry),
                CachedValue::Stale(entry, revalidation) => {
                    revalidate(plan, cx, FilePath::new(key, path_len), entry, Some(revalidation))
                }
                CachedValue::Nothing => {
                    let file_path = FilePath::new(key, path_len);
                    match browse::remembered(plan, cx, &file_path) {
                        Some(step) => step,
                        None => look_up(plan, cx, file_path, Attempt::First),
                    }
                }
            }
        })
    }
}

/// The result of a lookup.
#[derive(Clone)]
enum LookupOutcome {
    File(Rc<FileEntry>),
    /// A directory without an index.
    Directory,
    Missing,
    Failed(Fault),
}

/// The lookups of one request.
enum Attempt {
    First,
    /// After a lookup with this outcome, which may have read the file system before the request arrived.
    Second(LookupOutcome),
}

/// Looks up a path that is not cached, on the file thread pool. Concurrent requests for it share one lookup.
fn look_up(plan: &Arc<FileServerPlan>, cx: &mut Context, file_path: FilePath, attempt: Attempt) -> Step {
    let (ours, theirs, there) = (Arc::clone(plan), Arc::clone(plan), file_path.clone());
    let job = move || (disk::read_file(&ours, &there, None), there);
    let (generation, worker, began) = (Rc::clone(cx.generation()), Rc::clone(cx.worker()), cx.worker().now());
    let outcome = SingleFlight::join(cx, plan.lookups, file_path.key(), job, move |done| match done {
        Some((look, there)) => store_lookup(&theirs, (&generation, &worker), &there, look, None, began),
        None => LookupOutcome::Failed(Fault::from_status(StatusCode::INTERNAL_SERVER_ERROR)),
    });
    let (outcome, time) = match (outcome, &attempt) {
        (Ok(joined), _) => joined,
        (Err(_), Attempt::First) => return Step::Fail(Fault::busy()),
        // With a full queue an outcome that may be older than the request is better than a 503.
        (Err(_), Attempt::Second(outcome)) => return act(plan, cx, file_path, outcome.clone()),
    };
    let plan = Arc::clone(plan);
    // A lookup that this request joins on its second attempt began after the first, and so after the request.
    let may_be_older = time == ReadTime::MaybeBeforeCall && matches!(attempt, Attempt::First);
    cx.wait(outcome, move |cx, outcome| match outcome {
        // This request may have joined a lookup that read the file before the latest change.
        Ok(LookupOutcome::File(entry)) if entry.has_changed() => revalidate(&plan, cx, file_path, entry, None),
        // A file that appears must be served at once.
        Ok(outcome @ (LookupOutcome::Missing | LookupOutcome::Directory)) if may_be_older => {
            look_up(&plan, cx, file_path, Attempt::Second(outcome))
        }
        Ok(outcome) => act(&plan, cx, file_path, outcome),
        Err(_) => Step::Fail(Fault::from_status(StatusCode::INTERNAL_SERVER_ERROR)),
    })
}

/// Revalidates a cached file, either because it has expired (other requests get the old value until `revalidation` is
/// dropped) or because it has changed.
fn revalidate(
    plan: &Arc<FileServerPlan>,
    cx: &mut Context,
    file_path: FilePath,
    entry: Rc<FileEntry>,
    revalidation: Option<RevalidationGuard>,
) -> Step {
    let began = cx.worker().now();
    let (ours, seen) = (Arc::clone(plan), Arc::clone(&entry.seen));
    let job = offload(&**cx.worker(), Work::of(WorkKind::File), move || {
        (disk::read_file(&ours, &file_path, Some(&seen)), file_path)
    });
    let Ok(job) = job else {
        // With a full queue an expired value is better than a 503, as long as the open file is unchanged.
        let is_whole = revalidation.is_some() && !entry.has_changed();
        return if is_whole { answer::respond(plan, cx, &entry) } else { Step::Fail(Fault::busy()) };
    };
    let plan = Arc::clone(plan);
    cx.wait(job, move |cx, done| {
        let Some((look, file_path)) = done else {
            return Step::Fail(Fault::from_status(StatusCode::INTERNAL_SERVER_ERROR));
        };
        let outcome = store_lookup(&plan, (cx.generation(), cx.worker()), &file_path, look, Some(entry), began);
        // The cache is up to date: from here on other requests need not be served the old value.
        drop(revalidation);
        act(&plan, cx, file_path, outcome)
    })
}

/// Stores the result of a lookup that started at `began`.
fn store_lookup(
    plan: &FileServerPlan,
    (generation, worker): (&Generation, &Rc<dyn Worker>),
    file_path: &FilePath,
    look: DiskLookup,
    known: Option<Rc<FileEntry>>,
    began: Instant,
) -> LookupOutcome {
    let cache = generation.state(plan.files);
    let mut files = cache.borrow_mut();
    let outcome = match (look, known) {
        (DiskLookup::Unchanged, Some(entry)) => {
            files.touch(file_path.key(), began);
            return LookupOutcome::File(entry);
        }
        (DiskLookup::File(file), _) => {
            let entry = Rc::new(FileEntry::new(file, &plan.generated));
            files.put(file_path.key(), Rc::clone(&entry), began);
            drop(files);
            fresh::close_idle_files(cache, worker);
            return LookupOutcome::File(entry);
        }
        (DiskLookup::Directory, _) => LookupOutcome::Directory,
        (DiskLookup::Failed(fault), _) => LookupOutcome::Failed(fault),
        (DiskLookup::Missing | DiskLookup::Unchanged, _) => LookupOutcome::Missing,
    };
    // Absence and failures are not cached: a file that appears must be served at once.
    files.remove(file_path.key());
    outcome
}

fn act(plan: &Arc<FileServerPlan>, cx: &mut Context, file_path: FilePath, outcome: LookupOutcome) -> Step {
    match outcome {
        LookupOutcome::File(entry) => answer::respond(plan, cx, &entry),
        LookupOutcome::Directory => browse::directory(plan, cx, file_path),
        LookupOutcome::Missing => missing(plan),
        LookupOutcome::Failed(fault) => failed(cx, fault),
    }
}

fn missing(plan: &FileServerPlan) -> Step {
    if plan.pass_thru { Step::Next } else { Step::Fail(Fault::from_status(StatusCode::NOT_FOUND)) }
}

/// As in Caddy, a 503 (for example: out of file descriptors) makes the client retry after 2 to 4 seconds, at random
/// so that the retries spread out.
fn failed(cx: &mut Context, fault: Fault) -> Step {
    if fault.status == StatusCode::SERVICE_UNAVAILABLE {
        let seconds = ["2", "3", "4"][(cx.worker().random() % 3) as usize];
        cx.response_mut().set(names::RETRY_AFTER, FieldValue::from_static(seconds));
    }
    Step::Fail(fault)
}
