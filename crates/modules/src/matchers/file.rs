//! `file`: whether a file exists, and which of several candidates does (`try_files` compiles to this matcher).
//!
//! In reading order:
//! - `candidate`: expands a configured pattern to a path
//! - `choose`: selects a candidate by the policy
//! - `disk`: file system access, on the file thread pool
//!
//! Each worker caches the result for a path, including its absence, for a second, as `fresh` describes. With cached
//! results a request neither waits nor allocates. Otherwise one job lookups up every path that the request needs, and
//! the request waits.
//!
//! A match sets `http.matchers.file.relative` (the path below the root), `.absolute`, `.type` (`file` or `directory`)
//! and `.remainder` (the part after `split_path`).

mod candidate;
mod choose;
mod disk;
#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use causeway_message::StatusCode;
use causeway_pipeline::context::{LocalId, MatcherId, VarId};
use causeway_pipeline::{Build, BuildError, Busy, Context, Fault, Matched, Matcher, Reason, StateId, Stop, Template};
use serde::Deserialize;
use serde_json::Value;

use crate::file_server::{refuse_fs, root};
use crate::fresh::{CachedValue, Cost, Fresh, RevalidationGuard};
use crate::single_flight::SingleFlight;
use candidate::{Candidate, CandidateForm, FilePattern};
use choose::{CandidateSource, Choice, Try, TryPolicy};
use disk::{Disk, FileLookup};

/// The cache shared by all `file` matchers of a worker: room for more than 10 000 paths.
const CACHED_COST_MAX: Cost = Cost { bytes: 4 * 1024 * 1024, open: 0 };

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct FileMatcherConfig {
    fs: String,
    root: Option<String>,
    try_files: Option<Vec<String>>,
    try_policy: String,
    split_path: Vec<String>,
    /// Not in Caddy's JSON: the entries of `try_files` are values of an expression, so that a slash at the end of a
    /// placeholder's value has the meaning of one in the text.
    of_values: bool,
}

/// The compiled configuration.
struct FileMatcherPlan {
    root: Template,
    tries: Vec<Try>,
    policy: TryPolicy,
    /// Delimiters: a path is split after the first of these that ends one of its components.
    splits: Vec<Vec<u8>>,
    seen: StateId<RefCell<Fresh<FileLookup>>>,
    /// Lookups in progress for paths that are not cached.
    lookups: StateId<SingleFlight<(Choice, Rc<[u8]>)>>,
    variables: FileMatchVars,
}

/// The placeholders that a match sets.
struct FileMatchVars {
    relative: VarId,
    absolute: VarId,
    kind: VarId,
    remainder: VarId,
}

struct File {
    id: MatcherId,
    /// The choice that this request waited for, with its text, for the evaluations after that.
    found: LocalId<(Choice, Rc<[u8]>)>,
    plan: Arc<FileMatcherPlan>,
}

/// Compiles the matcher from its JSON.
///
/// # Errors
/// If an option or the policy is unknown, or `fs` names a file system other than the default.
pub fn make(value: &Value, build: &mut Build<'_>) -> Result<Box<dyn Matcher>, BuildError> {
    let written: FileMatcherConfig = if value.is_null() { FileMatcherConfig::default() } else { build.parse(value)? };
    refuse_fs(&written.fs, build)?;
    let policy = match &*written.try_policy {
        "" | "first_exist" => TryPolicy::First,
        "first_exist_fallback" => TryPolicy::FirstOrLast,
        "largest_size" => TryPolicy::Largest,
        "smallest_size" => TryPolicy::Smallest,
        "most_recently_modified" => TryPolicy::Newest,
        _ => {
            let expected = "first_exist, first_exist_fallback, smallest_size, largest_size or most_recently_modified as try_policy";
            return Err(build.refuse(written.try_policy, expected));
        }
    };
    let files = written.try_files.unwrap_or_else(|| vec!["{http.request.uri.path}".into()]);
    let tries = files.iter().map(|file| match status(file) {
        Some(status) if matches!(policy, TryPolicy::First | TryPolicy::FirstOrLast) => Try::Status(status),
        _ => Try::File(FilePattern::new(file, written.of_values, build)),
    });
    let tries = tries.collect();
    Ok(Box::new(File {
        id: build.allocate_matcher_id(),
        found: build.allocate_local(),
        plan: Arc::new(FileMatcherPlan {
            root: root(written.root.as_deref(), build),
            tries,
            policy,
            splits: written.split_path.into_iter().map(String::into_bytes).collect(),
            // The result for a path depends on no option, so all matchers share one cache.
            seen: build.allocate_kept_state("file".to_owned(), |_| RefCell::new(Fresh::new(CACHED_COST_MAX))),
            lookups: build.allocate_state(|_| SingleFlight::new()),
            variables: FileMatchVars {
                relative: build.allocate_slot("http.matchers.file.relative"),
                absolute: build.allocate_slot("http.matchers.file.absolute"),
                kind: build.allocate_slot("http.matchers.file.type"),
                remainder: build.allocate_slot("http.matchers.file.remainder"),
            },
        }),
    }))
}

/// Parses `=404`: if the choice reaches this entry, the request fails with that status.
fn status(file: &str) -> Option<StatusCode> {
    let digits = file.strip_prefix('=')?;
    StatusCode::new(digits.parse().ok()?)
}

impl Matcher for File {
    fn matches(&self, cx: &mut Context) -> Matched {
        // This is the second call for this request, after a wait.
        if let Some(matched) = cx.recall(self.id) {
            // Another matcher of the route may have set the placeholders since.
            if matched && let Some((answer, text)) = cx.take_local(self.found) {
                apply_choice(&self.plan, cx, answer, &text)?;
                cx.set_local(self.found, (answer, text));
            }
            return Ok(matched);
        }
        let now = cx.worker().now();
        cx.with_scratch(|cx, text| {
            cx.with_scratch(|cx, other| {
                // First try with cached results only.
                let mut source = Remembered { plan: &self.plan, cx, now, looking: Vec::new() };
                let answer = choose::choose(&self.plan, &mut source, text, other);
                let looking = source.looking;
                if answer != Choice::Unknown && looking.is_empty() {
                    return Ok(apply_choice(&self.plan, cx, answer, text)?);
                }
                match self.look_up(cx, now, looking) {
                    Ok(stop) => Err(stop),
                    // The queue is full: an expired result is better than a 503.
                    Err(Busy) => Ok(apply_choice(&self.plan, cx, answer, text)?),
                }
            })
        })
    }
}

impl File {
    /// Looks up the candidates on the file thread pool and waits for the result. Concurrent requests with equal
    /// candidates share one lookup.
    #[cold]
    fn look_up(&self, cx: &mut Context, began: Instant, looking: Vec<RevalidationGuard>) -> Result<Stop, Busy> {
        // The job repeats the whole choice: which path is needed depends on the results before it.
        let mut disk = Disk::of(&self.plan, cx);
        let key = disk.key();
        let ours = Arc::clone(&self.plan);
        let job = move || {
            let (mut text, mut other) = (Vec::new(), Vec::new());
            let answer = choose::choose(&ours, &mut disk, &mut text, &mut other);
            (answer, text, disk.seen)
        };
        let (generation, seen) = (Rc::clone(cx.generation()), self.plan.seen);
        let outcome = SingleFlight::join(cx, self.plan.lookups, &key, job, move |done| {
            // Moved here, so that other requests use the expired values until the new ones are stored.
            let _looking = looking;
            let Some((answer, text, found)) = done else {
                return (Choice::Failed(StatusCode::INTERNAL_SERVER_ERROR), Rc::default());
            };
            let mut remembered = generation.state(seen).borrow_mut();
            for (key, found) in found {
                remembered.put(&key, Rc::new(found), began);
            }
            (answer, text.into())
        });
        let (plan, found) = (Arc::clone(&self.plan), self.found);
        let (outcome, _) = outcome?;
        Ok(cx.wait_to_match(self.id, outcome, move |cx, outcome| match outcome {
            Ok((answer, text)) => {
                let matched = apply_choice(&plan, cx, answer, &text)?;
                if matched {
                    cx.set_local(found, (answer, text));
                }
                Ok(matched)
            }
            Err(_) => Err(Fault::from_status(StatusCode::INTERNAL_SERVER_ERROR)),
        }))
    }
}

/// Applies the result: sets the placeholders, or fails.
fn apply_choice(plan: &FileMatcherPlan, cx: &mut Context, answer: Choice, text: &[u8]) -> Result<bool, Fault> {
    match answer {
        Choice::Chosen(candidate, is_directory) => {
            cx.set_variable_text(plan.variables.relative, candidate.relative(text));
            cx.set_variable_text(plan.variables.absolute, candidate.path(text));
            cx.set_variable_text(plan.variables.remainder, candidate.remainder(text));
            cx.set_variable_text(plan.variables.kind, if is_directory { b"directory" } else { b"file" });
            Ok(true)
        }
        Choice::None => Ok(false),
        Choice::Failed(status) => Err(failed(status)),
        // The results are not cached, and the queue had no room for the lookup.
        Choice::Unknown => Err(Fault::busy()),
    }
}

/// Caddy: the error message of such a failure is the status code.
fn failed(status: StatusCode) -> Fault {
    Fault { status, reason: Reason::Text(status.as_u16().to_string().into()) }
}

/// The worker's cache as a source of results, with the patterns expanded for one request.
struct Remembered<'m> {
    plan: &'m FileMatcherPlan,
    cx: &'m mut Context,
    now: Instant,
    /// The expired results that this request must revalidate.
    looking: Vec<RevalidationGuard>,
}

impl CandidateSource for Remembered<'_> {
    fn candidate(
        &mut self,
        pattern: &FilePattern,
        _number: usize,
        form: CandidateForm,
        text: &mut Vec<u8>,
    ) -> Option<Candidate> {
        candidate::put(self.plan, pattern, form, self.cx, text)
    }

    fn find(&mut self, candidate: Candidate, text: &[u8], look: &mut dyn FnMut(&FileLookup)) -> bool {
        let known = self.cx.with_scratch(|cx, key| {
            candidate.key(text, key);
            cx.generation().state(self.plan.seen).borrow_mut().find(key, self.now)
        });
        match known {
            CachedValue::Fresh(found) => look(&found),
            CachedValue::Stale(found, looking) => {
                self.looking.push(looking);
                look(&found);
            }
            CachedValue::Nothing => return false,
        }
        true
    }
}
