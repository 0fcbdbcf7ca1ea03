//! `file`: whether there is a file, and which of several (also what `try_files` turns into).
//!
//! In reading order:
//! - `candidate`: from a configured pattern to a path
//! - `choose`: which of the paths it is, by the policy
//! - `disk`: what is asked of the file system, on the blocking pool
//!
//! What a worker learns of a path, also that nothing is there, it believes for a second, as `fresh` says: in that time a
//! request neither waits nor allocates. Else one job looks at all that the request needs, and the request waits for it.
//!
//! The match sets `http.matchers.file.relative` (below the root), `.absolute`, `.type` (`file` or `directory`) and `.remainder`
//! (what `split_path` left).

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
use causeway_pipeline::context::{MatcherId, VarId};
use causeway_pipeline::{Build, BuildError, Busy, Context, Fault, Matched, Matcher, Reason, StateId, Stop, Template};
use serde::Deserialize;
use serde_json::Value;

use crate::file_server::{refuse_fs, root};
use crate::fresh::{Cost, Fresh, Known, Looking};
use crate::together::Together;
use candidate::{Candidate, Form, Pattern};
use choose::{Answer, Policy, Source, Try};
use disk::{Disk, Found};

/// What a worker remembers of paths, for all such matchers; more than 10 000 of them.
const REMEMBERED: Cost = Cost { octets: 4 * 1024 * 1024, open: 0 };

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct Written {
    fs: String,
    root: Option<String>,
    try_files: Option<Vec<String>>,
    try_policy: String,
    split_path: Vec<String>,
}

/// What is looked for.
struct Plan {
    root: Template,
    tries: Vec<Try>,
    policy: Policy,
    /// A path is cut behind the first of these that ends one of its components.
    splits: Vec<Vec<u8>>,
    seen: StateId<RefCell<Fresh<Found>>>,
    /// Looks at what nothing is known of.
    looks: StateId<Together<(Answer, Rc<[u8]>)>>,
    places: Places,
}

/// Where the match leaves what it found.
struct Places {
    relative: VarId,
    absolute: VarId,
    kind: VarId,
    remainder: VarId,
}

struct File {
    id: MatcherId,
    plan: Arc<Plan>,
}

/// Makes the matcher.
///
/// # Errors
/// When an option is unknown, the policy is none, or another file system than the default one is named.
pub fn make(value: &Value, build: &mut Build<'_>) -> Result<Box<dyn Matcher>, BuildError> {
    let written: Written = if value.is_null() { Written::default() } else { build.parse(value)? };
    refuse_fs(&written.fs, build)?;
    let policy = match &*written.try_policy {
        "" | "first_exist" => Policy::First,
        "first_exist_fallback" => Policy::FirstOrLast,
        "largest_size" => Policy::Largest,
        "smallest_size" => Policy::Smallest,
        "most_recently_modified" => Policy::Newest,
        _ => {
            let expected = "first_exist, first_exist_fallback, smallest_size, largest_size or most_recently_modified as try_policy";
            return Err(build.refuse(written.try_policy, expected));
        }
    };
    let files = written.try_files.unwrap_or_else(|| vec!["{http.request.uri.path}".into()]);
    let tries = files.iter().map(|file| match status(file) {
        Some(status) if matches!(policy, Policy::First | Policy::FirstOrLast) => Try::Status(status),
        _ => Try::File(Pattern::new(file, build)),
    });
    let tries = tries.collect();
    Ok(Box::new(File {
        id: build.matcher_id(),
        plan: Arc::new(Plan {
            root: root(written.root.as_deref(), build),
            tries,
            policy,
            splits: written.split_path.into_iter().map(String::into_bytes).collect(),
            // What is at a path depends on no option.
            seen: build.kept_state("file".to_owned(), |_| RefCell::new(Fresh::new(REMEMBERED))),
            looks: build.state(|_| Together::new()),
            places: Places {
                relative: build.slot("http.matchers.file.relative"),
                absolute: build.slot("http.matchers.file.absolute"),
                kind: build.slot("http.matchers.file.type"),
                remainder: build.slot("http.matchers.file.remainder"),
            },
        }),
    }))
}

/// `=404`: where it comes to this entry, the request fails with that status.
fn status(file: &str) -> Option<StatusCode> {
    let digits = file.strip_prefix('=')?;
    StatusCode::new(digits.parse().ok()?)
}

impl Matcher for File {
    fn matches(&self, cx: &mut Context) -> Matched {
        if let Some(matched) = cx.recall(self.id) {
            return Ok(matched);
        }
        let now = cx.worker().now();
        cx.with_scratch(|cx, text| {
            cx.with_scratch(|cx, other| {
                let mut source = Remembered { plan: &self.plan, cx, now, looking: Vec::new() };
                let answer = choose::choose(&self.plan, &mut source, text, other);
                let looking = source.looking;
                if answer != Answer::Unknown && looking.is_empty() {
                    return Ok(settle(&self.plan, cx, answer, text)?);
                }
                match self.look(cx, now, looking) {
                    Ok(stop) => Err(stop),
                    // What was there a moment ago is better than no answer.
                    Err(Busy) => Ok(settle(&self.plan, cx, answer, text)?),
                }
            })
        })
    }
}

impl File {
    /// Looks at the file system, on the blocking pool, and waits for that; who asks for the same meanwhile waits for the same look.
    #[cold]
    fn look(&self, cx: &mut Context, began: Instant, looking: Vec<Looking>) -> Result<Stop, Busy> {
        let mut disk = Disk::of(&self.plan, cx);
        let key = disk.key();
        let ours = Arc::clone(&self.plan);
        let job = move || {
            let (mut text, mut other) = (Vec::new(), Vec::new());
            let answer = choose::choose(&ours, &mut disk, &mut text, &mut other);
            (answer, text, disk.seen)
        };
        let (generation, seen) = (Rc::clone(cx.generation()), self.plan.seen);
        let outcome = Together::look(cx, self.plan.looks, &key, job, move |done| {
            let _looking = looking;
            let Some((answer, text, found)) = done else {
                return (Answer::Failed(StatusCode::INTERNAL_SERVER_ERROR), Rc::default());
            };
            let mut remembered = generation.state(seen).borrow_mut();
            for (key, found) in found {
                remembered.put(&key, Rc::new(found), began);
            }
            (answer, text.into())
        });
        let plan = Arc::clone(&self.plan);
        Ok(cx.wait_to_match(self.id, outcome?, move |cx, outcome| match outcome {
            Ok((answer, text)) => settle(&plan, cx, answer, &text),
            Err(_) => Err(Fault::status(StatusCode::INTERNAL_SERVER_ERROR)),
        }))
    }
}

/// Leaves what was chosen for the placeholders.
fn settle(plan: &Plan, cx: &mut Context, answer: Answer, text: &[u8]) -> Result<bool, Fault> {
    match answer {
        Answer::Chosen(candidate, is_folder) => {
            cx.set_variable_text(plan.places.relative, candidate.relative(text));
            cx.set_variable_text(plan.places.absolute, candidate.path(text));
            cx.set_variable_text(plan.places.remainder, candidate.remainder(text));
            cx.set_variable_text(plan.places.kind, if is_folder { b"directory" } else { b"file" });
            Ok(true)
        }
        Answer::None => Ok(false),
        Answer::Failed(status) => Err(failed(status)),
        // Nothing is known, and there was no room to look.
        Answer::Unknown => Err(Fault::busy()),
    }
}

/// Caddy: the message of such a failure is its number.
fn failed(status: StatusCode) -> Fault {
    Fault { status, reason: Reason::Text(status.as_u16().to_string().into()) }
}

/// What this worker remembers, for the patterns as this request renders them.
struct Remembered<'m> {
    plan: &'m Plan,
    cx: &'m mut Context,
    now: Instant,
    /// What is stale, and looked at again by this request.
    looking: Vec<Looking>,
}

impl Source for Remembered<'_> {
    fn candidate(&mut self, pattern: &Pattern, _number: usize, form: Form, text: &mut Vec<u8>) -> Option<Candidate> {
        candidate::put(self.plan, pattern, form, self.cx, text)
    }

    fn find(&mut self, candidate: Candidate, text: &[u8], look: &mut dyn FnMut(&Found)) -> bool {
        let known = self.cx.with_scratch(|cx, key| {
            candidate.key(text, key);
            cx.generation().state(self.plan.seen).borrow_mut().find(key, self.now)
        });
        match known {
            Known::Fresh(found) => look(&found),
            Known::Stale(found, looking) => {
                self.looking.push(looking);
                look(&found);
            }
            Known::Nothing => return false,
        }
        true
    }
}
