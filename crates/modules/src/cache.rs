//! `cache`: a shared cache of responses (RFC 9111), in memory and on disk.
//!
//! In reading order:
//! - `config`: the handler's JSON
//! - `key`: the parts of a request that identify its resource; `vary`: the request fields that select one of its
//!   responses
//! - `directives`: Cache-Control; `stored`: a stored response, and the rules for storing and reusing one
//! - `store`: the stored responses, and the fetches that are under way; `disk`, `file`: their files; `tiers`: both
//! - `recording`: a body that is stored while it is sent
//! - `serving`: the response to a request from a stored one
//! - `status`: Cache-Status
//! - `control`: statistics of the caches, and removal of responses, for the admin API
//!
//! ```text
//! enter: look up ──fresh──────────────────────────────► respond
//!           │ ├────stale, may be used meanwhile────────► respond, and refresh without a client
//!           │ └────another request fetches it──► wait ─► look up again
//!           ▼
//!        later handlers (with the validators of a stale response)
//!           │
//! leave: 304 ──────► update the stored response, respond
//!        storable ─► respond and record
//!        error ────► respond with the stale one, if it may be used
//! ```

mod config;
mod control;
mod directives;
mod disk;
mod file;
mod key;
mod recording;
mod serving;
mod status;
mod store;
mod stored;
mod tiers;
mod vary;

use std::cell::Cell;
use std::future::{Future as _, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use causeway_message::{Chunk, FieldMap, FieldValue, Method, OwnedValue, StatusCode, names};
use causeway_pipeline::context::{LocalId, VarId};
use causeway_pipeline::detached::detach;
use causeway_pipeline::worker::{Work, WorkKind, offload};
use causeway_pipeline::{Body, Build, BuildError, Context, Fault, Handler, Response, Sleep, StateId, Step};
use serde_json::Value;

use crate::regexp::WorkerRegex;
pub use control::{Purge, Purged, finish, purge, usage};
use directives::{RequestDirectives, ResponseDirectives};
use disk::{FoundFile, ReadingFiles};
use key::KeyRules;
use recording::{Recording, RecordingBody};
use status::{Forwarded, Handled, ResponseUse};
use store::{
    CONTENT_WAIT_MAX, CacheKey, FAILURE_PAUSE, FetchGuard, FetchRole, FetchUnderWayId, Found, UNSTORABLE_PAUSE,
};
pub use store::{Lookup, Usage};
use stored::{
    FIELDS_MAX, FetchTimes, Freshness, Privacy, StoredFields, StoredResponse, StoringRules, age_value, assess,
    initial_age, is_cacheable_by_default, varies_by_server,
};
use tiers::Tiers;
use vary::Vary;

/// How long a request waits for the fetch of another one.
const WAIT_MAX: Duration = Duration::from_secs(5);
/// Stale responses that a worker's handler refreshes at a time; beyond it, they stay stale until a later request.
const REFRESHES_MAX: usize = 256;
/// How often a request waits: after a fetch whose response is not for it, it waits for another one, or fetches.
const WAITS_MAX: u8 = 3;

/// Compiles the handler from its JSON, and from the settings of the app `cache` for the members that it does not have.
///
/// # Errors
/// A value is not valid, or a member of the plugin for Caddy is not supported.
pub fn make(value: &Value, build: &mut Build<'_>) -> Result<Box<dyn Handler>, BuildError> {
    Ok(Box::new(Cache(Arc::new(config::read(value, build)?))))
}

/// The handler.
struct Cache(Arc<CacheRules>);

struct CacheRules {
    tiers: Tiers,
    key: KeyRules,
    storing: StoringRules,
    /// How long a stale response without `stale-if-error` is served instead of an error.
    stale: Duration,
    /// Cache-Control of responses without one.
    control: Option<OwnedValue>,
    /// The cache's name in Cache-Status.
    name: String,
    /// Paths that are not cached.
    excluded: Option<WorkerRegex>,
    coalesces: bool,
    /// Whether the Cache-Control of requests has an effect.
    honors_request_directives: bool,
    fetch: LocalId<Fetch>,
    refresh: LocalId<Refresh>,
    /// How many refreshes are under way on a worker.
    refreshes: StateId<Rc<Cell<usize>>>,
    /// The handler's number in the plan. A request may pass several caches, each with keys of its own.
    number: u32,
    /// The [`PassedRequest`] of each cache that has passed the request. All caches of a plan share the slot: with a
    /// slot each, those of the last of many sites would be above the slots that recycled storage keeps, and each
    /// request would allocate them again.
    passed: VarId,
}

/// A request that a cache has forwarded without storing its response, as the cache notes it for the response.
struct PassedRequest<'a> {
    why: Forwarded,
    /// The response may get the default Cache-Control.
    has_default: bool,
    /// The key of a request that may change its resource, or else nothing.
    changed: &'a [u8],
}

impl<'a> PassedRequest<'a> {
    /// Appends the entry of a handler.
    fn write(&self, number: u32, entries: &mut Vec<u8>) {
        entries.extend_from_slice(&number.to_le_bytes());
        entries.extend_from_slice(&[self.why as u8, u8::from(self.has_default)]);
        let len = u32::try_from(self.changed.len()).expect("a key is far below 4 GiB");
        entries.extend_from_slice(&len.to_le_bytes());
        entries.extend_from_slice(self.changed);
    }

    /// Returns the last entry of a handler.
    fn find(number: u32, mut entries: &'a [u8]) -> Option<Self> {
        let mut found = None;
        while let Some((&[a, b, c, d, why, has_default, e, f, g, h], rest)) =
            entries.split_first_chunk::<PASSED_HEADER_LEN>()
        {
            let (changed, rest) = rest.split_at_checked(u32::from_le_bytes([e, f, g, h]) as usize)?;
            if u32::from_le_bytes([a, b, c, d]) == number {
                let why = *Forwarded::ALL.get(usize::from(why))?;
                found = Some(Self { why, has_default: has_default != 0, changed });
            }
            entries = rest;
        }
        found
    }
}

/// A request whose response may be stored.
struct Fetch {
    key: Box<[u8]>,
    /// Of the store: responses that are removed from now on must not come back with this one.
    epoch: u64,
    /// The request's fields when it reached the cache.
    request: FieldMap,
    /// The response's fields that earlier handlers have set.
    base: FieldMap,
    privacy: Privacy,
    sent: Instant,
    why: Forwarded,
    stale: Option<Arc<StoredResponse>>,
    purpose: FetchPurpose,
    guard: Option<FetchGuard>,
    /// Counts a refresh until its response is there.
    _refresh: Option<RefreshCount>,
}

impl Fetch {
    /// Returns whether a response with this status shows that the stored one is no longer current, although it does not
    /// replace it (RFC 9111 §4.3.3). One to a personal request may be for that client alone.
    fn outdates_stale(&self, status: StatusCode) -> bool {
        let is_of_resource = match status.as_u16() {
            // These depend on the request at hand.
            206 | 304 | 400 | 401 | 406 | 407 | 408 | 412 | 416 | 417 | 421 | 425 | 426 | 428 | 429 | 431 => false,
            // An application without HEAD.
            405 => self.purpose != FetchPurpose::Compare,
            code => (200..500).contains(&code),
        };
        self.stale.is_some() && !self.privacy.is_personal && is_of_resource
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum FetchPurpose {
    /// The response will be stored.
    Store,
    /// As `Store`, and the request has the validators of the stale response.
    Validate,
    /// The request is HEAD: its response only shows whether the stale one is current.
    Compare,
}

/// A request without a client, for a fresh response in place of a stale one.
struct Refresh {
    stale: Arc<StoredResponse>,
    guard: FetchGuard,
    count: RefreshCount,
}

struct RefreshCount(Rc<Cell<usize>>);

impl Drop for RefreshCount {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

/// The waits of a request before the cache responds to it or forwards it.
#[derive(Clone, Copy, Default)]
struct RequestWaits {
    /// How often it waited for the fetch of another request.
    fetches: u8,
    /// It waited for a response of the origin, and not only for one from a file.
    is_collapsed: bool,
    /// The files of its key were read.
    is_read: bool,
    /// They have responses to other requests only.
    has_others: bool,
}

/// How a stored response can be used for a request.
enum StoredUse {
    Now,
    /// The response is stale, and used while it is refreshed (RFC 5861 §3).
    WhileRefreshing,
    /// The origin must validate the response first.
    Validated(Forwarded),
    /// The response is for other requests.
    No,
}

/// The length of a [`PassedRequest`] without its key: the handler's number, the index of the reason in
/// [`Forwarded::ALL`], whether the default applies, and the length of the key.
const PASSED_HEADER_LEN: usize = 4 + 1 + 1 + 4;

/// Fields with which some applications respond as to another method or URI. Its response must not be stored for this
/// one.
const OVERRIDES: [&str; 5] =
    ["X-HTTP-Method-Override", "X-HTTP-Method", "X-Method-Override", "X-Original-URL", "X-Rewrite-URL"];

impl CacheRules {
    /// Returns why the cache does not handle the request.
    fn bypass(&self, cx: &Context) -> Option<Forwarded> {
        let (head, fields) = (cx.head(), cx.head().fields());
        if !matches!(head.method(), Method::Get | Method::Head) {
            return Some(Forwarded::Method);
        }
        // A proxy removes the fields that Connection names (RFC 9110 §7.6.1). The origin would not see them, and the
        // key and `Vary` would be about them.
        let usual = ["close", "keep-alive", "te", "upgrade"];
        let names_fields = |option: &[u8]| !usual.iter().any(|usual| option.eq_ignore_ascii_case(usual.as_bytes()));
        let is_excluded = cx.arrival().upgrade
            || fields.list(names::CONNECTION).any(names_fields)
            || fields.unregistered().any(|name| OVERRIDES.iter().any(|field| name.eq_ignore_ascii_case(field)))
            || cx.body_len() != Some(0)
            // RFC 9111 §4.3.2: these conditions are for the origin.
            || fields.contains(names::IF_MATCH)
            || fields.contains(names::IF_UNMODIFIED_SINCE)
            || self.excluded.as_ref().is_some_and(|excluded| excluded.is_match(cx, cx.path()));
        is_excluded.then_some(Forwarded::Bypass)
    }

    fn privacy(&self, cx: &Context, directives: &RequestDirectives) -> Privacy {
        let request = cx.head().fields();
        let has = |name| request.contains(name) && !self.key.has_field(name);
        let is_authorized = has(names::AUTHORIZATION);
        let has_certificate = cx.arrival().tls.as_ref().is_some_and(|tls| tls.client_certificate.is_some());
        let is_personal = is_authorized || has_certificate || has(names::COOKIE);
        Privacy { is_authorized, is_personal, forbids_storing: directives.no_store }
    }

    /// Responds from the store, or forwards the request.
    fn begin(self: &Arc<Self>, cx: &mut Context, waits: RequestWaits) -> Step {
        cx.with_scratch(|cx, key| {
            self.key.write(cx, key);
            self.look_up(cx, self.tiers.store.key(key), waits)
        })
    }

    fn look_up(self: &Arc<Self>, cx: &mut Context, key: CacheKey<'_>, waits: RequestWaits) -> Step {
        let now = cx.worker().now();
        let request = cx.head().fields();
        let directives =
            if self.honors_request_directives { RequestDirectives::of(request) } else { RequestDirectives::default() };
        let privacy = self.privacy(cx, &directives);
        let found = cx.with_scratch(|cx, scratch| self.tiers.store.find(key, cx.head().fields(), scratch));
        if matches!(found, Found::Nothing | Found::Other)
            && let Some(step) = self.read_files(cx, key, waits, now)
        {
            return step;
        }
        let (why, stale) = match found {
            Found::Nothing if !waits.has_others => (Forwarded::UriMiss, None),
            Found::Nothing | Found::Other => (Forwarded::VaryMiss, None),
            Found::Match(stored) => match self.usable(&stored, &directives, privacy, now) {
                StoredUse::No => (Forwarded::UriMiss, None),
                StoredUse::Validated(why) => (why, Some(stored)),
                usable @ (StoredUse::Now | StoredUse::WhileRefreshing) => {
                    if matches!(usable, StoredUse::WhileRefreshing) && !privacy.forbids_storing {
                        self.refresh(cx, key, &stored, now);
                    }
                    let ttl = stored.ttl(now);
                    self.tiers.store.count(key, if ttl > 0 { Lookup::Hit } else { Lookup::Stale });
                    let handled = if waits.is_collapsed {
                        Handled::Forwarded { why: Forwarded::UriMiss, status: None, then: ResponseUse::Collapsed }
                    } else {
                        Handled::Hit { ttl }
                    };
                    return Step::Respond(self.serve(cx, &stored, None, handled));
                }
            },
        };
        // Counted here, where the request no longer waits: earlier it would be counted again.
        let count = || self.tiers.store.count(key, why.lookup());
        if directives.only_if_cached {
            count();
            // RFC 9111 §5.2.1.7.
            return Step::Fail(Fault::from_status(StatusCode::GATEWAY_TIMEOUT));
        }
        // A stored response to GET also serves HEAD, but not the reverse.
        let is_head = cx.head().method() == Method::Head;
        if is_head && stale.is_none() {
            count();
            return self.pass(cx, PassedRequest { why, has_default: !privacy.is_authorized, changed: b"" });
        }
        // Such a response may be partial, a 304 or for one user, so other requests do not wait for it.
        let request = cx.head().fields();
        let is_conditional =
            stale.is_none() && (request.contains(names::IF_NONE_MATCH) || request.contains(names::IF_MODIFIED_SINCE));
        // Nor do they wait for a response that each request must validate: that would only serialize the validations.
        let is_always_validated =
            stale.as_ref().is_some_and(|stale| stale.directives.no_cache || stale.freshness.lifetime.is_zero());
        let is_shared = self.coalesces
            && !is_head
            && !is_always_validated
            && !request.contains(names::RANGE)
            && !is_conditional
            && !privacy.forbids_storing
            && !privacy.is_personal;
        let mut guard = None;
        if is_shared && waits.fetches < WAITS_MAX {
            match self.join_fetch(cx, key, now) {
                FetchRole::Leader(held) => guard = Some(held),
                FetchRole::Follower(fetched, id) => {
                    return self.wait(cx, (fetched, id), RequestWaits { is_collapsed: true, ..waits });
                }
                FetchRole::Independent => {}
            }
        }
        count();
        self.forward(cx, key, why, stale, privacy, (guard, None))
    }

    /// Reads the response from the files of a key into memory, if there are any, then looks the response up again.
    /// Other requests of the key wait for it.
    fn read_files(
        self: &Arc<Self>,
        cx: &mut Context,
        key: CacheKey<'_>,
        waits: RequestWaits,
        now: Instant,
    ) -> Option<Step> {
        let disk = self.tiers.disk.as_ref().filter(|_| !waits.is_read)?;
        // Before the look at the index, so that a removal from here on keeps the files out of memory.
        let epoch = self.tiers.store.epoch(key);
        let files = disk.files(key.text())?;
        let guard = match self.join_fetch(cx, key, now) {
            FetchRole::Leader(guard) => Some(guard),
            FetchRole::Follower(fetched, id) if waits.fetches < WAITS_MAX => {
                return Some(self.wait(cx, (fetched, id), waits));
            }
            FetchRole::Follower(..) => return None,
            // The response to another request of the key was not storable.
            FetchRole::Independent => None,
        };
        let (rules, disk, request) = (Arc::clone(self), Arc::clone(disk), cx.head().fields().clone());
        let reading = ReadingFiles { now, wall: cx.worker().wall(), receiving: self.tiers.store.receive() };
        let key: Arc<[u8]> = key.text().into();
        let of_job = Arc::clone(&key);
        let read = move || disk.find(&files, &of_job, &request, reading);
        // Without a free place in the pool's queue the request goes to the origin.
        let job = offload(&**cx.worker(), Work::of(WorkKind::File), read).ok()?;
        Some(cx.wait(job, move |cx, found| {
            let store = &rules.tiers.store;
            let has_others = matches!(found, Some(FoundFile::Other));
            if let Some(FoundFile::Match(stored, receiving)) = found {
                store.put_read(store.key(&key), stored, epoch);
                drop(receiving);
            }
            drop(guard);
            rules.begin(cx, RequestWaits { is_read: true, has_others, ..waits })
        }))
    }

    /// Fetches a fresh response without a client, unless a fetch is under way.
    #[cold]
    fn refresh(self: &Arc<Self>, cx: &mut Context, key: CacheKey<'_>, stale: &Arc<StoredResponse>, now: Instant) {
        let refreshes = Rc::clone(cx.generation().state(self.refreshes));
        if refreshes.get() == REFRESHES_MAX {
            return;
        }
        let guard = cx.with_scratch(|cx, scratch| self.tiers.store.try_fetch(key, cx.head().fields(), scratch, now));
        let Some(guard) = guard else { return };
        let repeated = cx.repeat(|head| {
            head.set_method(Method::Get);
            // The stale response has served the client's conditions and directives.
            for name in
                [names::IF_NONE_MATCH, names::IF_MODIFIED_SINCE, names::RANGE, names::IF_RANGE, names::CACHE_CONTROL]
            {
                head.fields_mut().remove(name);
            }
        });
        let Some(mut repeated) = repeated else { return };
        refreshes.set(refreshes.get() + 1);
        let refresh = Refresh { stale: Arc::clone(stale), guard, count: RefreshCount(refreshes) };
        repeated.set_local(self.refresh, refresh);
        detach(repeated);
    }

    /// Adds the request to the fetch under way for such requests, or begins one.
    fn join_fetch(&self, cx: &mut Context, key: CacheKey<'_>, now: Instant) -> FetchRole {
        cx.with_scratch(|cx, scratch| self.tiers.store.join_fetch(key, cx.head().fields(), scratch, now))
    }

    /// Waits until another request's fetch has ended, then looks the response up again.
    fn wait(
        self: &Arc<Self>,
        cx: &mut Context,
        (mut fetched, id): (futures_channel::oneshot::Receiver<()>, FetchUnderWayId),
        waits: RequestWaits,
    ) -> Step {
        let (rules, store) = (Arc::clone(self), Arc::clone(&self.tiers.store));
        let worker = Rc::clone(cx.worker());
        let until = worker.now() + WAIT_MAX;
        // The state of the fetch is read repeatedly: the head of its response may arrive late.
        let mut look = Some(Sleep::until(Rc::clone(&worker), worker.now() + CONTENT_WAIT_MAX));
        let done = poll_fn(move |poll_cx| {
            // An error: the fetch was given up.
            if Pin::new(&mut fetched).poll(poll_cx).is_ready() {
                return Poll::Ready(true);
            }
            while Sleep::is_over(&mut look, poll_cx) {
                let now = worker.now();
                if now >= until || store.is_slow(id, now) {
                    return Poll::Ready(false);
                }
                look = Some(Sleep::until(Rc::clone(&worker), until.min(now + CONTENT_WAIT_MAX / 2)));
            }
            Poll::Pending
        });
        cx.wait(done, move |cx, has_ended| {
            // After a fetch that takes too long the request goes to the origin, as those after it.
            let fetches = if has_ended { waits.fetches + 1 } else { WAITS_MAX };
            if !has_ended {
                rules.tiers.store.mark_slow(id);
            }
            rules.begin(cx, RequestWaits { fetches, ..waits })
        })
    }

    /// Lets later handlers respond, and does not store the response.
    fn pass(&self, cx: &mut Context, passed: PassedRequest<'_>) -> Step {
        cx.with_scratch(|cx, entries| {
            entries.extend_from_slice(cx.variable(self.passed).unwrap_or_default());
            passed.write(self.number, entries);
            cx.set_variable_text(self.passed, entries);
        });
        Step::Next
    }

    /// Returns the note of this handler about the request, if it has passed it.
    fn passed<'c>(&self, cx: &'c Context) -> Option<PassedRequest<'c>> {
        cx.variable(self.passed).and_then(|entries| PassedRequest::find(self.number, entries))
    }

    /// Lets later handlers respond, and keeps the facts on which the use of their response depends.
    fn forward(
        &self,
        cx: &mut Context,
        key: CacheKey<'_>,
        why: Forwarded,
        stale: Option<Arc<StoredResponse>>,
        privacy: Privacy,
        (guard, refresh): (Option<FetchGuard>, Option<RefreshCount>),
    ) -> Step {
        let request = cx.head().fields().clone();
        let purpose = match &stale {
            Some(_) if cx.head().method() == Method::Head => FetchPurpose::Compare,
            Some(stale) if stale.has_validator() => FetchPurpose::Validate,
            _ => FetchPurpose::Store,
        };
        if let (FetchPurpose::Validate, Some(stale)) = (purpose, &stale) {
            let fields = cx.head_mut().fields_mut();
            // The stored response is whole: from it, the cache serves the client's own conditions and ranges.
            for name in [names::IF_NONE_MATCH, names::IF_MODIFIED_SINCE, names::RANGE, names::IF_RANGE] {
                fields.remove(name);
            }
            // RFC 9111 §4.3.1.
            for (name, value) in
                [(names::IF_NONE_MATCH, stale.etag()), (names::IF_MODIFIED_SINCE, stale.last_modified())]
            {
                if let Some(value) = value.and_then(FieldValue::parse) {
                    fields.insert(name, value);
                }
            }
        }
        let (base, sent) = (cx.response().fields().clone(), cx.worker().now());
        let epoch = self.tiers.store.epoch(key);
        let fetch = Fetch {
            key: key.text().into(),
            epoch,
            request,
            base,
            privacy,
            sent,
            why,
            stale,
            purpose,
            guard,
            _refresh: refresh,
        };
        cx.set_local(self.fetch, fetch);
        Step::Next
    }

    /// Decides whether a stored response can be used for a request (RFC 9111 §4).
    fn usable(
        &self,
        stored: &StoredResponse,
        request: &RequestDirectives,
        privacy: Privacy,
        now: Instant,
    ) -> StoredUse {
        let directives = &stored.directives;
        let is_for_others = privacy.is_authorized && !directives.allows_authorization()
            || privacy.is_personal && stored.freshness.is_implied;
        if is_for_others {
            return StoredUse::No;
        }
        let age = stored.freshness.age(now);
        let seconds = Duration::from_secs;
        let lifetime_left = stored.freshness.lifetime.saturating_sub(age);
        if request.no_cache
            || request.max_age.is_some_and(|max| max == 0 || age > seconds(max))
            || request.min_fresh.is_some_and(|min| lifetime_left < seconds(min))
        {
            return StoredUse::Validated(Forwarded::Request);
        }
        if directives.no_cache {
            return StoredUse::Validated(Forwarded::Stale);
        }
        match stored.freshness.staleness(now) {
            None => StoredUse::Now,
            Some(staleness) => {
                let within = |most: Option<u64>| most.is_some_and(|most| staleness <= seconds(most));
                match directives.forbids_stale() {
                    false if within(request.max_stale) => StoredUse::Now,
                    false if within(directives.stale_while_revalidate) => StoredUse::WhileRefreshing,
                    _ => StoredUse::Validated(Forwarded::Stale),
                }
            }
        }
    }

    /// Returns whether a stale response may be served instead of an error (RFC 5861 §4, RFC 9111 §4.2.4).
    fn may_replace_error(&self, stale: &StoredResponse, now: Instant) -> bool {
        let directives = &stale.directives;
        let most = directives.stale_if_error.map_or(self.stale, Duration::from_secs);
        !directives.forbids_stale() && stale.freshness.staleness(now).unwrap_or_default() < most
    }

    /// Uses the response to a forwarded request.
    fn handle_fetched(&self, cx: &mut Context, mut fetch: Fetch, response: Response) -> Response {
        let (now, status) = (cx.worker().now(), response.status);
        let Fetch { why, .. } = fetch;
        let outdates = fetch.outdates_stale(status);
        if let Some(stale) = fetch.stale.take() {
            if status == StatusCode::NOT_MODIFIED && fetch.purpose == FetchPurpose::Validate {
                let (stored, then) = self.apply_validation(cx, &fetch, &stale, now);
                // The origin sets them for this client: they are not stored, and not lost either.
                let cookies: Vec<_> = {
                    let fields = cx.response().fields();
                    let is_new = |cookie: &&[u8]| !fetch.base.get_all(names::SET_COOKIE).any(|old| old == *cookie);
                    let new = fields.get_all(names::SET_COOKIE).filter(is_new);
                    new.filter_map(|cookie| FieldValue::parse(cookie).map(OwnedValue::from)).collect()
                };
                cx.response_mut().copy_from(&fetch.base);
                let handled = Handled::Forwarded { why, status: Some(status), then };
                let response = self.serve(cx, &stored, Some(&fetch.request), handled);
                for cookie in cookies {
                    cx.response_mut().append(names::SET_COOKIE, cookie.as_ref());
                }
                return response;
            }
            if is_outage(status) && self.may_replace_error(&stale, now) {
                self.pause_coalescing(&fetch, now + FAILURE_PAUSE);
                cx.response_mut().copy_from(&fetch.base);
                let handled = Handled::Forwarded { why, status: Some(status), then: ResponseUse::StaleIfError };
                return self.serve(cx, &stale, Some(&fetch.request), handled);
            }
            if fetch.purpose == FetchPurpose::Compare {
                let is_outdated = match status {
                    StatusCode::OK => stale.is_outdated_by(cx.response().fields()),
                    _ => outdates,
                };
                if !fetch.privacy.is_authorized {
                    self.add_default(cx, status);
                }
                if is_outdated {
                    self.tiers.remove(self.tiers.store.key(&fetch.key));
                }
                let handled = Handled::Forwarded { why, status: Some(status), then: ResponseUse::Passed };
                status::append(cx, &self.name, handled);
                return response;
            }
        }
        if !fetch.privacy.is_authorized {
            self.add_default(cx, status);
        }
        let (body, then) = match self.record(cx, fetch, status, &response.body, outdates) {
            None => (response.body, ResponseUse::Passed),
            Some(recording) => (record_body(cx, response.body, recording), ResponseUse::Stored),
        };
        status::append(cx, &self.name, Handled::Forwarded { why, status: Some(status), then });
        Response { status, body }
    }

    /// Sets the default Cache-Control of a response without one. RFC 9111 §3.5: it admits no error, and the caller none
    /// to credentials. RFC 9110 §9.3.2: a response to HEAD has the same fields as one to GET.
    fn add_default(&self, cx: &mut Context, status: StatusCode) {
        if let Some(control) = &self.control
            && is_cacheable_by_default(status)
            && !cx.response().fields().contains(names::CACHE_CONTROL)
        {
            cx.response_mut().set_cache_control(control.as_ref());
        }
    }

    /// Returns the response as the origin's 304 has updated it, and stores it unless the update forbids that (RFC 9111
    /// §4.3.4).
    fn apply_validation(
        &self,
        cx: &Context,
        fetch: &Fetch,
        stale: &StoredResponse,
        now: Instant,
    ) -> (Arc<StoredResponse>, ResponseUse) {
        let wall = cx.worker().wall();
        let fields = stale.fields.updated(&fetch.base, cx.response().fields(), wall);
        let times = FetchTimes { sent: fetch.sent, received: now, wall };
        // RFC 9111 §4.2.3, §4.3.4: the age of the validation is that of the 304, which may come from a cache too.
        let age = age_value(cx.response().fields());
        let key = self.tiers.store.key(&fetch.key);
        let can_be_stored = fields.whole.len() <= FIELDS_MAX
            && !varies_by_server(cx.response().fields(), &fetch.request, cx.head().fields());
        let may_store =
            |privacy| assess(&fields.whole, stale.status, privacy, &self.storing, times, age).filter(|_| can_be_stored);
        let vary = Vary::of(&fields.whole, &fetch.request);
        if let Some((freshness, directives)) = may_store(fetch.privacy) {
            let stored = Arc::new(stale.revalidated(fields, vary, freshness, directives));
            self.tiers.put(key, &fetch.request, &stored, fetch.epoch, &**cx.worker());
            return (stored, ResponseUse::Stored);
        }
        // Not even as the response to another request, so the old one must not be used either.
        if may_store(Privacy::default()).is_none() {
            self.tiers.remove(key);
        }
        let initial_age = initial_age(&fields.whole, times, age);
        let (freshness, directives) =
            (Freshness { received: now, initial_age, ..stale.freshness }, ResponseDirectives::of(&fields.whole));
        (Arc::new(stale.revalidated(fields, vary, freshness, directives)), ResponseUse::Passed)
    }

    /// Begins to store a response, if it is storable. If not, it `outdates` the stored one.
    fn record(&self, cx: &Context, fetch: Fetch, status: StatusCode, body: &Body, outdates: bool) -> Option<Recording> {
        let (now, wall) = (cx.worker().now(), cx.worker().wall());
        let fields = cx.response().fields();
        let times = FetchTimes { sent: fetch.sent, received: now, wall };
        let age = age_value(fields);
        let can_be_stored = !matches!(body, Body::Tunnel(_))
            && body.len().is_none_or(|len| len <= self.storing.body_bytes_max)
            && !varies_by_server(fields, &fetch.request, cx.head().fields())
            // An error for a range is none for the whole.
            && (status == StatusCode::OK || !fetch.request.contains(names::RANGE));
        let assessed = assess(fields, status, fetch.privacy, &self.storing, times, age).filter(|_| can_be_stored);
        let Some((freshness, directives)) = assessed else {
            let anyone = Privacy::default();
            if !can_be_stored || assess(fields, status, anyone, &self.storing, times, age).is_none() {
                self.pause_coalescing(&fetch, now + UNSTORABLE_PAUSE);
                if outdates {
                    self.tiers.remove(self.tiers.store.key(&fetch.key));
                }
            }
            return None;
        };
        let vary = Vary::of(fields, &fetch.request);
        let fields = StoredFields::of(fetch.base, fields, wall);
        let stored = StoredResponse::new(status, fields, vary, freshness, directives);
        if let Some(guard) = &fetch.guard {
            guard.mark_headed(now);
        }
        Some(Recording {
            tiers: self.tiers.clone(),
            key: fetch.key,
            epoch: fetch.epoch,
            request: fetch.request,
            stored,
            body_bytes_max: self.storing.body_bytes_max,
            outdates,
            guard: fetch.guard,
        })
    }

    /// Records that a fetch for which other requests may wait has stored no response.
    fn pause_coalescing(&self, fetch: &Fetch, until: Instant) {
        if fetch.guard.is_some() {
            self.tiers.store.pause_coalescing(self.tiers.store.key(&fetch.key), until);
        }
    }

    /// Drops the stored responses that a successful request with an unsafe method may have changed (RFC 9111 §4.4).
    ///
    /// DEVIATES RFC 9111 §4.4: of keys with request fields, or from a template, only those of the same values. The
    /// store and its files have no index by URI.
    fn invalidate(&self, cx: &mut Context) {
        cx.with_scratch(|cx, key| {
            let Some(PassedRequest { changed, .. }) = self.passed(cx) else { return };
            self.tiers.remove(self.tiers.store.key(changed));
            for name in [names::LOCATION, names::CONTENT_LOCATION] {
                let value = cx.response().fields().get(name);
                if let Some(other) = value.and_then(|value| key::of_same_origin(cx, value)) {
                    key.clear();
                    if self.key.write_other(cx, changed, other, key) {
                        self.tiers.remove(self.tiers.store.key(key));
                    }
                }
            }
        });
    }
}

/// Returns the body that is sent, after or while it is recorded.
fn record_body(cx: &Context, body: Body, recording: Recording) -> Body {
    match body {
        Body::Empty => {
            recording.finish(Chunk::default(), &**cx.worker());
            Body::Empty
        }
        Body::Chunk(chunk) => {
            // A copy: the chunk may be a part of a larger block.
            recording.finish(Chunk::from(chunk.as_slice().to_vec()), &**cx.worker());
            Body::Chunk(chunk)
        }
        body => Body::Stream(Box::new(RecordingBody::new(body, recording, cx.worker()))),
    }
}

/// Returns whether the status is an error for which a stale response may stand in (RFC 5861 §4).
fn is_outage(status: StatusCode) -> bool {
    matches!(status.as_u16(), 500 | 502 | 503 | 504)
}

impl Handler for Cache {
    fn enter(&self, cx: &mut Context) -> Step {
        let Self(rules) = self;
        // Error routes respond to a failed request; their response does not represent its resource.
        if cx.fault().is_some() {
            return Step::Next;
        }
        if let Some(Refresh { stale, guard, count }) = cx.take_local(rules.refresh) {
            let privacy = rules.privacy(cx, &RequestDirectives::default());
            return cx.with_scratch(|cx, key| {
                rules.key.write(cx, key);
                rules.forward(
                    cx,
                    rules.tiers.store.key(key),
                    Forwarded::Stale,
                    Some(stale),
                    privacy,
                    (Some(guard), Some(count)),
                )
            });
        }
        match rules.bypass(cx) {
            None => rules.begin(cx, RequestWaits::default()),
            Some(why) => {
                if why != Forwarded::Method || cx.head().method().is_safe() {
                    return rules.pass(cx, PassedRequest { why, has_default: false, changed: b"" });
                }
                cx.with_scratch(|cx, key| {
                    rules.key.write(cx, key);
                    rules.pass(cx, PassedRequest { why, has_default: false, changed: key })
                })
            }
        }
    }

    fn leave(&self, cx: &mut Context, response: Response) -> Step {
        let Self(rules) = self;
        if let Some(fetch) = cx.take_local(rules.fetch) {
            return Step::Respond(rules.handle_fetched(cx, fetch, response));
        }
        if let Some(PassedRequest { why, has_default, changed }) = rules.passed(cx) {
            if !changed.is_empty() && matches!(response.status.as_u16(), 200..400) {
                rules.invalidate(cx);
            }
            if has_default {
                rules.add_default(cx, response.status);
            }
            let handled = Handled::Forwarded { why, status: Some(response.status), then: ResponseUse::Passed };
            status::append(cx, &rules.name, handled);
        }
        Step::Respond(response)
    }

    fn failed(&self, cx: &mut Context, fault: Fault) -> Step {
        let Self(rules) = self;
        let Some(fetch) = cx.take_local(rules.fetch) else { return Step::Fail(fault) };
        let now = cx.worker().now();
        // A fault below 500 is mostly one of this client, such as a rate limit: it shows nothing about other requests.
        if is_outage(fault.status) {
            rules.pause_coalescing(&fetch, now + FAILURE_PAUSE);
        }
        let is_of_resource = matches!(fault.status, StatusCode::NOT_FOUND | StatusCode::GONE);
        if is_of_resource && fetch.outdates_stale(fault.status) {
            rules.tiers.remove(rules.tiers.store.key(&fetch.key));
        }
        match fetch.stale {
            Some(stale) if is_outage(fault.status) && rules.may_replace_error(&stale, now) => {
                cx.response_mut().copy_from(&fetch.base);
                let then = ResponseUse::StaleIfError;
                let handled = Handled::Forwarded { why: fetch.why, status: Some(fault.status), then };
                Step::Respond(rules.serve(cx, &stale, Some(&fetch.request), handled))
            }
            _ => Step::Fail(fault),
        }
    }
}

#[cfg(test)]
mod tests;
