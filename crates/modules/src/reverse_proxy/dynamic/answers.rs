//! The answers of DNS, shared by all workers: one lookup at a time for each question.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context as PollContext, Poll, Waker};
use std::time::{Duration, Instant};

use causeway_pipeline::Worker;
use causeway_pipeline::upstream::{FailureKind, UpstreamStatus, report_failure};
use causeway_pipeline::worker::{DnsRecord, LookupError, Question, Resolver, Sleep};

use super::WaitedFor;

/// Requests that wait for one lookup; further ones do without its answer.
const WAITING_MAX: usize = 1024;
/// How long a request waits for a lookup.
const WAIT_MAX: Duration = Duration::from_secs(15);
/// The age from which a retry does not trust an answer, so that the retries of many requests share one lookup.
const DOUBTED_FROM: Duration = Duration::from_secs(1);
/// Upstreams that have left DNS and whose state is kept, and for how long; the time is Caddy's.
const DEPARTED_MAX: usize = 1024;
const DEPARTED_KEPT: Duration = Duration::from_secs(60 * 60);

/// The answers of one handler's sources.
#[derive(Default)]
pub(super) struct Answers {
    /// The workers' sets keep an answer, so it is one for all of them.
    known: Mutex<Vec<Weak<Answer>>>,
    departed: Mutex<Vec<(Arc<UpstreamStatus>, Instant)>>,
}

/// The answer to one question.
pub(super) struct Answer {
    source: usize,
    question: Question,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The last answer; empty before the first one.
    records: Arc<[DnsRecord]>,
    answered_at: Option<Instant>,
    /// When the last lookup failed, if it did.
    failed_at: Option<Instant>,
    /// When the last lookup ended.
    looked_at: Option<Instant>,
    is_looking: bool,
    /// The requests that wait, by their tickets.
    waiting: BTreeMap<u64, Waker>,
    /// The ticket of the next request that waits.
    next_ticket: u64,
    /// The number of lookups that are over.
    rounds: u64,
}

/// The present worth of an answer.
pub(super) enum Freshness {
    /// The records may be used until then.
    Fresh(Arc<[DnsRecord]>, Instant),
    /// The lookup has failed.
    Failed,
    /// A lookup is under way.
    Wait(Looking),
}

impl Answers {
    /// Returns the answer to a source's question, a new one if no worker has it.
    pub(super) fn of(&self, source: usize, question: &Question) -> Arc<Answer> {
        let mut known = lock(&self.known);
        known.retain(|answer| answer.strong_count() > 0);
        let same = known.iter().filter_map(Weak::upgrade);
        let same = same.into_iter().find(|answer| answer.source == source && answer.question == *question);
        same.unwrap_or_else(|| {
            let answer = Arc::new(Answer { source, question: question.clone(), state: Mutex::default() });
            known.push(Arc::downgrade(&answer));
            answer
        })
    }

    /// Keeps the state of an upstream that has left DNS: if it comes back soon, its failures still count.
    pub(super) fn keep_departed(&self, status: Arc<UpstreamStatus>, now: Instant) {
        let mut departed = lock(&self.departed);
        let is_kept = |since: Instant| now.saturating_duration_since(since) < DEPARTED_KEPT;
        departed.retain(|(other, since)| is_kept(*since) && !Arc::ptr_eq(other, &status));
        if departed.len() == DEPARTED_MAX {
            departed.remove(0);
        }
        departed.push((status, now));
    }
}

impl Answer {
    /// Judges the answer, and begins a lookup if one is due. The result of a lookup that the request has waited for
    /// counts at any age.
    pub(super) fn consult(self: &Arc<Self>, terms: Terms<'_>, waited: WaitedFor, worker: &Rc<dyn Worker>) -> Freshness {
        let now = worker.now();
        let mut state = lock(&self.state);
        let has_waited = !waited.is_late && (waited.is_done || waited.is_begun && !state.is_looking);
        let may_wait = !has_waited && !waited.is_late && state.waiting.len() < WAITING_MAX;
        let is_doubted = waited.is_doubted && state.looked_at.is_some_and(|at| now >= at + DOUBTED_FROM);
        // Caddy: after a failure the last answer is used for the grace period, even if there is none yet.
        let fresh_until = match (state.failed_at, terms.grace, state.answered_at) {
            (Some(at), Some(grace), _) => Some(at + grace),
            (None, _, Some(at)) => Some(at + terms.refresh),
            _ => None,
        };
        match fresh_until {
            // A retry that cannot wait for another answer uses this one, as any other request does.
            Some(until) if has_waited || now < until && !(is_doubted && may_wait) => {
                return Freshness::Fresh(Arc::clone(&state.records), until);
            }
            _ if !may_wait => return Freshness::Failed,
            _ => {}
        }
        let ticket = state.next_ticket;
        state.next_ticket += 1;
        let looking = Looking {
            answer: Arc::clone(self),
            round: state.rounds,
            ticket,
            end: Sleep::until(Rc::clone(worker), now + WAIT_MAX),
        };
        let begins = !std::mem::replace(&mut state.is_looking, true);
        // The lookup takes the lock when it ends, which may be at once.
        drop(state);
        if begins {
            self.look_up(terms, worker);
        }
        Freshness::Wait(looking)
    }

    /// Returns whether the last lookup has found nothing and no other one is under way.
    pub(super) fn is_useless(&self) -> bool {
        let state = lock(&self.state);
        !state.is_looking && (state.failed_at.is_some() || state.records.is_empty())
    }

    fn look_up(self: &Arc<Self>, terms: Terms<'_>, worker: &Rc<dyn Worker>) {
        let round = Round {
            answer: Arc::clone(self),
            worker: Rc::clone(worker),
            shown: terms.shown.into(),
            refresh: terms.refresh,
        };
        let began = worker.now();
        match worker.look_up(self.question.clone(), terms.resolver.cloned()) {
            Ok(looking) => worker.spawn(Box::pin(async move {
                let found = looking.await;
                round.end(found.unwrap_or_else(|| Err(LookupError::new("the lookup panicked"))), began);
            })),
            Err(_) => round.end(Err(LookupError::new("too many lookups are queued")), began),
        }
    }
}

/// A source's terms for an answer.
#[derive(Clone, Copy)]
pub(super) struct Terms<'s> {
    pub(super) refresh: Duration,
    pub(super) grace: Option<Duration>,
    pub(super) resolver: Option<&'s Arc<Resolver>>,
    pub(super) shown: &'s str,
}

/// A lookup under way. Dropping it, when its worker ends, fails it: another worker may wait for it.
struct Round {
    answer: Arc<Answer>,
    worker: Rc<dyn Worker>,
    shown: Box<str>,
    refresh: Duration,
}

impl Round {
    fn end(self, found: Result<Vec<DnsRecord>, LookupError>, began: Instant) {
        let now = self.worker.now();
        match found {
            Ok(records) => {
                tracing::debug!(source = &*self.shown, count = records.len(), "looked upstreams up");
                let mut state = lock(&self.answer.state);
                // An unchanged answer keeps its identity, by which workers know that nothing has changed.
                if *state.records != *records {
                    state.records = records.into();
                }
                (state.answered_at, state.failed_at) = (Some(now), None);
            }
            Err(error) => {
                let took = now.saturating_duration_since(began);
                report_failure(&self.shown, FailureKind::Lookup, took, &error, now);
                let mut state = lock(&self.answer.state);
                // A retry may have begun the lookup early.
                let is_kept = state.failed_at.is_none() && state.answered_at.is_some_and(|at| now < at + self.refresh);
                if !is_kept {
                    state.failed_at = Some(now);
                }
            }
        }
        // The drop ends the round.
    }
}

impl Drop for Round {
    fn drop(&mut self) {
        let mut state = lock(&self.answer.state);
        if state.answered_at.is_none() && state.failed_at.is_none() {
            state.failed_at = Some(self.worker.now());
        }
        (state.is_looking, state.looked_at) = (false, Some(self.worker.now()));
        state.rounds += 1;
        let waiting = std::mem::take(&mut state.waiting);
        // A waker may run code that takes the lock.
        drop(state);
        waiting.into_values().for_each(Waker::wake);
    }
}

/// Waits for the end of a lookup; the output is whether it took too long.
pub(in super::super) struct Looking {
    pub(super) answer: Arc<Answer>,
    /// The lookup that is waited for.
    round: u64,
    /// Its place among the requests that wait.
    ticket: u64,
    end: Sleep,
}

impl Future for Looking {
    type Output = bool;

    fn poll(mut self: Pin<&mut Self>, poll_cx: &mut PollContext<'_>) -> Poll<bool> {
        let this = &mut *self;
        let _before = {
            let mut state = lock(&this.answer.state);
            if state.rounds > this.round {
                return Poll::Ready(false);
            }
            state.waiting.insert(this.ticket, poll_cx.waker().clone())
        };
        Pin::new(&mut this.end).poll(poll_cx).map(|()| true)
    }
}

impl Drop for Looking {
    /// Gives the place to another request: this one has its answer, or was cancelled.
    fn drop(&mut self) {
        // A waker may run code that takes the lock, so it is dropped without it.
        let _waker = lock(&self.answer.state).waiting.remove(&self.ticket);
    }
}

/// Ignores poisoning: each change is one assignment or insertion.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
