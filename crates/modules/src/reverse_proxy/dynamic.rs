//! Dynamic upstreams: `dynamic_upstreams`, which are looked up in DNS while requests arrive.
//!
//! - `source`: compiles a source to its questions
//! - `answers`: the answers, shared by all workers: one lookup at a time for each question
//! - `sets`: a worker's upstreams, made from the answers
//!
//! ```text
//! request ─► Sets (this worker, no lock) ─ fresh ─► upstreams
//!               │ stale                                ▲
//!               ▼                                      │
//!            Answer (all workers) ─ fresh ─────────────┤
//!               │ stale                                │
//!               ▼                                      │
//!            lookup on a thread ─► wakes the requests that wait
//! ```

mod answers;
pub(super) mod resolver;
mod sets;
mod source;

use std::rc::Rc;
use std::sync::Arc;

use causeway_pipeline::{Build, BuildError, Context, Fault, Metrics, StateId};
use serde_json::Value;

pub(super) use self::answers::Looking;
use self::answers::{Answer, Answers};
use self::sets::{Current, Sets};
use self::source::Source;
use super::ReverseProxyPlan;
use super::backend::FoundBackend;

/// Most sources of one handler: a set of them fits into the bits of [`LookupWaits`].
const SOURCES_MAX: usize = 32;

/// A handler's dynamic upstreams.
pub(super) struct DynamicUpstreams {
    sources: Box<[Source]>,
    /// The sources are those of `multi`: a failure of one is no failure of all.
    is_multi: bool,
    sets: StateId<Rc<Sets>>,
    metrics: Arc<Metrics>,
}

/// The lookups that an attempt of a request has met so far: a bit for each source.
#[derive(Default)]
pub(super) struct LookupWaits {
    /// A lookup was under way when the attempt began: its result counts once it is over.
    begun: u32,
    /// The attempt has waited for a lookup: its result counts at any age.
    done: u32,
    /// The attempt has waited for too long.
    late: u32,
    /// The last answer may be the reason that the attempt before failed.
    doubted: u32,
    /// The answers whose lookups it has met. They must last until it uses them, even if their sets are displaced
    /// meanwhile.
    answers: Vec<Arc<Answer>>,
}

/// The part of [`LookupWaits`] for one source.
#[derive(Clone, Copy)]
struct WaitedFor {
    is_begun: bool,
    is_done: bool,
    is_late: bool,
    is_doubted: bool,
}

/// The dynamic upstreams for a request.
pub(super) enum Upstreams {
    Known(Rc<[Rc<FoundBackend>]>),
    /// The request has to wait for the source with this number.
    Wait(Looking, usize, LookupWaits),
    /// There is no answer: the configured upstreams are used, as in Caddy.
    Failed,
}

impl LookupWaits {
    /// Records the end of a wait for the source with this number.
    pub(super) fn over(mut self, source: usize, is_late: bool) -> Self {
        self.done |= 1 << source;
        self.late |= u32::from(is_late) << source;
        self
    }

    /// Returns the part for one source.
    fn of(&self, source: usize) -> WaitedFor {
        let has = |bits: u32| bits >> source & 1 == 1;
        WaitedFor {
            is_begun: has(self.begun),
            is_done: has(self.done),
            is_late: has(self.late),
            is_doubted: has(self.doubted),
        }
    }
}

impl DynamicUpstreams {
    /// Compiles `dynamic_upstreams`. `settings` name everything else that the upstreams depend on.
    pub(super) fn build(value: &Value, settings: &str, build: &mut Build<'_>) -> Result<Self, BuildError> {
        build.at("dynamic_upstreams", |build| {
            let mut sources = Vec::new();
            Source::build(value, &mut sources, build)?;
            if sources.len() > SOURCES_MAX {
                return Err(
                    build.refuse(format!("{} sources", sources.len()), format!("at most {SOURCES_MAX} sources"))
                );
            }
            let answers = Arc::new(Answers::default());
            let count = sources.len();
            // A reload that keeps the sources keeps the answers, the upstreams and their connections.
            let key = format!("reverse_proxy dynamic {value} {settings}");
            let sets = build.allocate_kept_state(key, move |_| Rc::new(Sets::new(count, Arc::clone(&answers))));
            let is_multi = value["source"] == "multi";
            Ok(Self { sources: sources.into(), is_multi, sets, metrics: Arc::clone(build.metrics()) })
        })
    }

    /// Returns a name of the sources, for the log.
    pub(super) fn shown(&self) -> &str {
        self.sources.first().map_or("", |source| &source.shown)
    }

    /// Returns the begin of another attempt of a request: as in Caddy, a lone `srv` is looked up again, because its
    /// answer may be the reason of the failure.
    pub(super) fn begin_retry(&self) -> LookupWaits {
        let is_doubted = matches!(&*self.sources, [source] if !self.is_multi && source.is_service());
        LookupWaits { doubted: u32::from(is_doubted), ..LookupWaits::default() }
    }

    /// Returns the upstreams for a request. Fails with 500 if they have no valid address.
    pub(super) fn upstreams(
        &self,
        cx: &mut Context,
        plan: &ReverseProxyPlan,
        mut waited: LookupWaits,
    ) -> Result<Upstreams, Fault> {
        let sets = Rc::clone(cx.generation().state(self.sets));
        let mut parts = sets.parts.take();
        parts.clear();
        let mut wait = None;
        // All lookups that are due begin now; the request waits for one after the other.
        for (number, source) in self.sources.iter().enumerate() {
            match sets.of(cx, (number, source), self, plan, waited.of(number))? {
                Current::Known(set) => parts.push(set),
                Current::Wait(looking) => {
                    waited.begun |= 1 << number;
                    waited.answers.push(Arc::clone(&looking.answer));
                    wait = wait.or(Some((looking, number)));
                }
                Current::Failed if self.is_multi => {}
                Current::Failed => return Ok(Upstreams::Failed),
            }
        }
        let upstreams = match (wait, &*parts) {
            (Some((looking, number)), _) => Upstreams::Wait(looking, number, waited),
            (None, [only]) => Upstreams::Known(Rc::clone(only)),
            (None, _) => Upstreams::Known(sets.joined(&parts)),
        };
        sets.parts.replace(parts);
        Ok(upstreams)
    }
}
