//! A stored response, and the rules for storing and reusing one (RFC 9111 §3 and §4).

use std::cmp::Ordering;
use std::time::{Duration, Instant, SystemTime};

use causeway_message::{Chunk, FieldMap, FieldName, FieldValue, KnownName, NameRef, StatusCode, names};

use super::directives::{ResponseDirectives, seconds};
use super::vary::{self, Vary};
use crate::conditional::{self, since_1970};

/// Estimated memory of a stored response in bytes, in addition to its fields and its content.
const STORED_BYTES: usize = 768;

/// Fields that a 304 response does not update: they describe the stored content, select it, or are not stored (RFC 9111
/// §3.2).
const OF_CONTENT: [KnownName; 9] = [
    names::ACCEPT_RANGES,
    names::CONTENT_DIGEST,
    names::CONTENT_ENCODING,
    names::CONTENT_RANGE,
    names::DIGEST,
    // The tag that the origin confirmed is the stored one; a handler may have changed its form on the way.
    names::ETAG,
    names::REPR_DIGEST,
    names::SET_COOKIE,
    // Its names are added to the stored ones: a handler that sets one on the way must not replace those of the origin.
    names::VARY,
];

/// Fields of a stored response; a 304 response that makes more of them ends the storing.
pub(super) const FIELDS_MAX: usize = 1000;

/// Statuses whose responses may be stored without explicit freshness (RFC 9110 §15.1).
const HEURISTIC: [u16; 11] = [200, 203, 204, 300, 301, 308, 404, 405, 410, 414, 501];

/// A response that may be reused.
#[derive(Debug)]
pub(super) struct StoredResponse {
    pub(super) status: StatusCode,
    /// The response's fields before and after the handlers after the cache.
    pub(super) fields: StoredFields,
    pub(super) body: Chunk,
    pub(super) vary: Vary,
    pub(super) freshness: Freshness,
    pub(super) directives: ResponseDirectives,
    /// Last-Modified, or else Date, in seconds since 1970: for conditions of requests.
    pub(super) modified: Option<u64>,
    /// Requests may get parts of the content.
    pub(super) has_ranges: bool,
}

/// The fields of a stored response. Handlers before the cache set fields on every request; those after it changed them
/// to `whole`.
#[derive(Debug)]
pub(super) struct StoredFields {
    pub(super) base: FieldMap,
    pub(super) whole: FieldMap,
}

/// How long a response is fresh (RFC 9111 §4.2).
#[derive(Debug, Clone, Copy)]
pub(super) struct Freshness {
    /// When the request was sent to the origin.
    pub(super) requested: Instant,
    /// When the response was received, and its age then.
    pub(super) received: Instant,
    pub(super) initial_age: Duration,
    /// The time from the origin's `Date` to the reception, in whole seconds; without one as `initial_age`.
    pub(super) apparent_age: Duration,
    pub(super) lifetime: Duration,
    /// The lifetime is the operator's default, not the origin's.
    pub(super) is_implied: bool,
}

impl Freshness {
    pub(super) fn age(&self, now: Instant) -> Duration {
        self.initial_age + now.saturating_duration_since(self.received)
    }

    /// Compares the times at which the origin has generated two responses. One that was read from its file is received
    /// then, and has the age of its first time.
    pub(super) fn cmp_generated(&self, other: &Self) -> Ordering {
        // As `received - initial_age`, which may be a time that the clock cannot show.
        (self.received + other.initial_age).cmp(&(other.received + self.initial_age))
    }

    /// Returns whether this stored response is newer than one that arrives after it. Of two fetches in succession the
    /// second one counts. Of two at the same time the origin's `Date` decides, which has whole seconds, and then the
    /// order in which they began to arrive.
    pub(super) fn is_newer_than(&self, arriving: &Self) -> bool {
        const DATE_PRECISION: Duration = Duration::from_secs(1);
        let (own, other) = (self.received + arriving.apparent_age, arriving.received + self.apparent_age);
        arriving.requested < self.received
            && (own >= other + DATE_PRECISION || own + DATE_PRECISION > other && self.received > arriving.received)
    }

    /// Returns how long the response has been stale; `None` while it is fresh.
    pub(super) fn staleness(&self, now: Instant) -> Option<Duration> {
        let age = self.age(now);
        // RFC 9111 §4.2: fresh while the lifetime exceeds the age.
        (age >= self.lifetime).then(|| age - self.lifetime)
    }
}

impl StoredResponse {
    /// Creates a response whose content is added once it is complete.
    pub(super) fn new(
        status: StatusCode,
        fields: StoredFields,
        vary: Vary,
        freshness: Freshness,
        directives: ResponseDirectives,
    ) -> Self {
        let modified = modified(&fields.whole);
        // Compressed content may have other bytes next time under the same validators, unless the origin offers ranges.
        let has_ranges =
            !fields.whole.contains(names::CONTENT_ENCODING) || fields.whole.has_token(names::ACCEPT_RANGES, "bytes");
        Self { status, fields, body: Chunk::default(), vary, freshness, directives, modified, has_ranges }
    }

    /// Returns the response with the fields and the freshness that a 304 response gave it.
    pub(super) fn revalidated(
        &self,
        fields: StoredFields,
        vary: Vary,
        freshness: Freshness,
        directives: ResponseDirectives,
    ) -> Self {
        let body = self.body.clone();
        Self { body, ..Self::new(self.status, fields, vary, freshness, directives) }
    }

    /// Returns the remaining lifetime in seconds; negative for a stale response.
    pub(super) fn ttl(&self, now: Instant) -> i64 {
        let Freshness { lifetime, .. } = self.freshness;
        // Lifetimes have at most 32 bits, and ages count from the start of the process or the origin's clock.
        let seconds = |duration: Duration| i64::try_from(duration.as_secs()).unwrap_or(i64::MAX);
        seconds(lifetime).saturating_sub(seconds(self.freshness.age(now)))
    }

    /// Returns the memory that the response uses, in bytes.
    pub(super) fn bytes(&self) -> usize {
        let StoredFields { base, whole } = &self.fields;
        STORED_BYTES + base.bytes_capacity() + whole.bytes_capacity() + self.body.len() + self.vary.bytes()
    }

    pub(super) fn etag(&self) -> Option<&[u8]> {
        self.fields.whole.get(names::ETAG)
    }

    pub(super) fn last_modified(&self) -> Option<&[u8]> {
        self.fields.whole.get(names::LAST_MODIFIED)
    }

    /// Returns whether the origin can validate the response.
    pub(super) fn has_validator(&self) -> bool {
        self.etag().is_some() || self.last_modified().is_some()
    }

    /// Returns whether a 200 response to HEAD shows that this response to GET is no longer current (RFC 9111 §4.3.5).
    pub(super) fn is_outdated_by(&self, head: &FieldMap) -> bool {
        let is_same = |name: KnownName| have_same(head, &self.fields.whole, NameRef::Known(name));
        let has_other = |name: KnownName| head.contains(name) && !is_same(name);
        let has_other_length = || head.content_length().ok().flatten().is_some_and(|len| len != self.body.len() as u64);
        // Content may be compressed for GET only, and has other validators then.
        self.status == StatusCode::OK
            && is_same(names::CONTENT_ENCODING)
            && (has_other(names::ETAG) || has_other(names::LAST_MODIFIED) || has_other_length())
    }

    /// Returns whether one of the response's tags (`Surrogate-Key`, `Cache-Tag`, `Cache-Tags`) is this one.
    pub(super) fn has_tag(&self, tag: &[u8]) -> bool {
        let fields = &self.fields.whole;
        let spaced =
            fields.get_all(NameRef::Other("Surrogate-Key")).flat_map(|value| value.split(|byte| *byte == b' '));
        let listed = ["Cache-Tag", "Cache-Tags"].into_iter().flat_map(|name| fields.list(NameRef::Other(name)));
        spaced.chain(listed).any(|known| known == tag)
    }
}

/// The operator's rules for storing.
#[derive(Debug)]
pub(super) struct StoringRules {
    /// The lifetime of responses without explicit freshness.
    pub(super) ttl: Duration,
    /// Statuses that are stored as 200 is.
    pub(super) statuses: Box<[u16]>,
    pub(super) body_bytes_max: u64,
}

/// The facts about a request that decide whether its response may be shared.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Privacy {
    /// The request has credentials (Authorization).
    pub(super) is_authorized: bool,
    /// The response may be for one user: the request has credentials, a cookie, or a client certificate.
    pub(super) is_personal: bool,
    pub(super) forbids_storing: bool,
}

/// The times of one fetch from the origin.
#[derive(Clone, Copy)]
pub(super) struct FetchTimes {
    /// When the request was sent.
    pub(super) sent: Instant,
    /// When the response's head was received.
    pub(super) received: Instant,
    /// The time of day at `received`.
    pub(super) wall: SystemTime,
}

/// Decides whether a response may be stored, and how long it is fresh (RFC 9111 §3, §4.2.1); `None`: it may not. `age`
/// is the [`age_value`] of the response; that of a stored one is not among its fields.
pub(super) fn assess(
    fields: &FieldMap,
    status: StatusCode,
    privacy: Privacy,
    rules: &StoringRules,
    times: FetchTimes,
    age: Duration,
) -> Option<(Freshness, ResponseDirectives)> {
    let directives = ResponseDirectives::of(fields);
    let code = status.as_u16();
    let is_known = HEURISTIC.contains(&code) || rules.statuses.contains(&code);
    // RFC 9111 §5.2.2.3: must-understand replaces no-store for a cache that implements the status code's rules.
    let no_store = directives.no_store && !(directives.must_understand && is_known);
    if privacy.forbids_storing
        || no_store
        || directives.private
        || directives.must_understand && !is_known
        || status.is_informational()
        // Partial content is no whole response, and 304 is none at all. The others depend on fields that are not in the
        // key.
        || matches!(code, 206 | 304 | 400 | 412 | 416 | 417 | 426 | 431)
        // One client's cookie is not for others: RFC 9111 §7.3 leaves the choice to the cache.
        || fields.contains(names::SET_COOKIE)
        || privacy.is_authorized && !directives.allows_authorization()
        || !vary::is_storable(fields)
    {
        return None;
    }
    let FetchTimes { sent: requested, received, wall } = times;
    let date = conditional::date(fields.get(names::DATE));
    let explicit = lifetime(fields, &directives, date.unwrap_or_else(|| since_1970(wall)));
    let lifetime = match explicit {
        Some(lifetime) => lifetime,
        None if is_known && !privacy.is_personal || directives.public => rules.ttl,
        // Only the origin's validation makes it usable.
        None if directives.no_cache => Duration::ZERO,
        None => return None,
    };
    let has_validator = fields.contains(names::ETAG) || fields.contains(names::LAST_MODIFIED);
    // As in nginx, the option `stale` alone stores nothing.
    let is_used_stale = !directives.forbids_stale()
        && (directives.stale_while_revalidate.is_some()
            || directives.stale_if_error.is_some_and(|seconds| seconds > 0));
    if (lifetime.is_zero() || directives.no_cache) && !has_validator && !is_used_stale {
        return None;
    }
    let initial_age = initial_age(fields, times, age);
    let is_implied = explicit.is_none() && !directives.public;
    let apparent_age = apparent_age(fields, wall).unwrap_or(initial_age);
    Some((Freshness { requested, received, initial_age, apparent_age, lifetime, is_implied }, directives))
}

/// Returns the age of a response when it was received (RFC 9111 §4.2.3). The arguments are those of [`assess`].
pub(super) fn initial_age(fields: &FieldMap, times: FetchTimes, age: Duration) -> Duration {
    let corrected = age + times.received.saturating_duration_since(times.sent);
    corrected.max(apparent_age(fields, times.wall).unwrap_or_default())
}

/// Returns the time from the `Date` of a response to its reception (RFC 9111 §4.2.3).
fn apparent_age(fields: &FieldMap, wall: SystemTime) -> Option<Duration> {
    let date = conditional::date(fields.get(names::DATE))?;
    Some(Duration::from_secs(since_1970(wall).saturating_sub(date)))
}

/// Returns the value of Age; zero without one, or with one that is not valid (RFC 9111 §5.1).
pub(super) fn age_value(fields: &FieldMap) -> Duration {
    Duration::from_secs(fields.get(names::AGE).map_or(0, |value| seconds(first_of(value))))
}

/// Returns the explicit lifetime (RFC 9111 §4.2.1): s-maxage, max-age, or Expires.
fn lifetime(fields: &FieldMap, directives: &ResponseDirectives, date: u64) -> Option<Duration> {
    if let Some(seconds) = directives.s_maxage.or(directives.max_age) {
        return Some(Duration::from_secs(seconds));
    }
    let expires = fields.get(names::EXPIRES)?;
    // RFC 9111 §5.3: a date that is not valid, `0` for example, is in the past. So is one of several.
    let expires = if fields.is_repeated(names::EXPIRES) { None } else { conditional::date(Some(expires)) };
    Some(Duration::from_secs(expires.map_or(0, |expires| expires.saturating_sub(date))))
}

/// Returns the first element of a field that should have one (RFC 9111 §5.1).
fn first_of(value: &[u8]) -> &[u8] {
    causeway_message::List::new(value).next().unwrap_or_default()
}

/// Returns the time of Last-Modified, or else of Date (RFC 9111 §4.3.2).
fn modified(fields: &FieldMap) -> Option<u64> {
    conditional::date(fields.get(names::LAST_MODIFIED).or(fields.get(names::DATE)))
}

/// Fields that concern one connection, or the form of one message (RFC 9111 §3.1): they are not stored.
fn is_stored(name: NameRef<'_>, nominated: &[FieldName]) -> bool {
    const DROPPED: [KnownName; 9] = [
        names::CONNECTION,
        names::KEEP_ALIVE,
        names::PROXY_CONNECTION,
        names::PROXY_AUTHENTICATE,
        names::PROXY_AUTHENTICATION_INFO,
        names::TE,
        names::TRANSFER_ENCODING,
        names::UPGRADE,
        names::CONTENT_LENGTH,
    ];
    let is_dropped = matches!(name, NameRef::Known(name) if DROPPED.contains(&name));
    !is_dropped && !nominated.iter().any(|nominated| nominated.as_ref() == name)
}

impl StoredFields {
    /// Copies the fields of a response that will be stored. A response without Date gets one (RFC 9110 §6.6.1).
    pub(super) fn of(base: FieldMap, response: &FieldMap, wall: SystemTime) -> Self {
        let mut whole = response.clone();
        let nominated: Vec<_> = response
            .list(names::CONNECTION)
            .filter_map(|name| FieldName::parse(std::str::from_utf8(name).ok()?))
            .collect();
        whole.retain(|name, _| is_stored(name, &nominated));
        // The age is computed on each use.
        whole.remove(names::AGE);
        if !whole.contains(names::DATE) {
            let date = httpdate::fmt_http_date(wall);
            if let Some(date) = FieldValue::parse(date.as_bytes()) {
                whole.append(names::DATE, date);
            }
        }
        Self { base, whole }
    }

    /// Returns these fields, updated by those of a 304 response (RFC 9111 §3.2), of which handlers before the cache had
    /// set `base`.
    pub(super) fn updated(&self, base: &FieldMap, new: &FieldMap, wall: SystemTime) -> Self {
        let Self { whole: update, .. } = Self::of(FieldMap::new(), new, wall);
        let is_update = |name: NameRef<'_>| {
            let is_of_content = match name {
                NameRef::Known(name) => OF_CONTENT.contains(&name),
                NameRef::Other(name) => name.eq_ignore_ascii_case("Content-MD5"),
            };
            !is_of_content && !have_same(base, &update, name)
        };
        // A new map: one that is edited keeps the bytes of old values. Its bound must not cost the new directives.
        let mut whole = FieldMap::new();
        let kept = self.whole.lines().filter(|line| !(update.contains(line.name) && is_update(line.name)));
        let updates = update.lines().filter(|line| is_update(line.name));
        updates.chain(kept).take(FIELDS_MAX + 1).for_each(|line| whole.push_line(line));
        // RFC 9110 §12.5.3: each client accepts content without a coding. `encode` adds this name to every 304, also to
        // that of a type that it does not compress.
        let is_coded = self.whole.contains(names::CONTENT_ENCODING);
        let is_new = |name: &&[u8]| {
            let is_known = self.whole.list(names::VARY).any(|known| known.eq_ignore_ascii_case(name));
            !is_known && (is_coded || !name.eq_ignore_ascii_case(b"accept-encoding"))
        };
        let vary = update.list(names::VARY).filter(is_new).collect::<Vec<_>>().join(&b", "[..]);
        if !vary.is_empty()
            && let Some(vary) = FieldValue::parse(&vary)
        {
            whole.append(names::VARY, vary);
        }
        Self { base: self.base.clone(), whole }
    }

    /// Sets the fields of a response that is served from the cache. `fields` are those that the handlers before the
    /// cache have set. Does not allocate in steady state.
    pub(super) fn apply(&self, fields: &mut FieldMap) {
        if fields.is_identical(&self.base) {
            fields.copy_from(&self.whole);
            return;
        }
        // The handlers before the cache set other values this time: only the changes of those after it apply.
        for (name, _) in self.base.iter().filter(|(name, _)| !self.whole.contains(*name)) {
            fields.remove(name);
        }
        let changed = || self.whole.lines().filter(|line| !have_same(&self.base, &self.whole, line.name));
        for line in changed() {
            fields.remove(line.name);
        }
        changed().for_each(|line| fields.push_line(line));
    }
}

/// Returns whether responses with this status may be stored without explicit freshness.
pub(super) fn is_cacheable_by_default(status: StatusCode) -> bool {
    HEURISTIC.contains(&status.as_u16())
}

/// Returns whether Vary names a field whose value the origin got from this server and not from the client: the client's
/// fields then do not select the response.
pub(super) fn varies_by_server(response: &FieldMap, client: &FieldMap, forwarded: &FieldMap) -> bool {
    // The proxy sets these from the connection.
    const OF_CONNECTION: [&[u8]; 4] = [b"x-forwarded-for", b"x-real-ip", b"forwarded", b"via"];
    response.list(names::VARY).any(|name| {
        let parsed = NameRef::parse(name);
        OF_CONNECTION.iter().any(|known| name.eq_ignore_ascii_case(known))
            || parsed.is_some_and(|name| forwarded.contains(name) && !have_same(client, forwarded, name))
    })
}

/// Returns whether both have the same values of this name.
fn have_same(one: &FieldMap, other: &FieldMap, name: NameRef<'_>) -> bool {
    one.get_all(name).eq(other.get_all(name))
}
