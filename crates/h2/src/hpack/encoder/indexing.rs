//! The decision which fields to insert into the table: static properties of names, and statistics of the connection.

use causeway_message::{KnownName, names};

use super::super::{NameKind, statics};

/// Number of consecutive misses of a name whose values are still inserted.
const TRIES: u8 = 6;
/// Number of values of such a name that are then not inserted, until one is tried again.
const PAUSE: u8 = 32;
/// Number of fields with unregistered names that are remembered, to detect a repetition.
const SEEN_MAX: usize = 16;
/// RFC 7541 §7.1.3: a short cookie could be guessed byte by byte, so it is never indexed.
const COOKIE_LEN_MIN: usize = 20;

#[cfg(test)]
const _: () = assert!(size_of::<IndexingStats>() <= 1024);

/// How a literal field is represented (RFC 7541 §6.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Indexing {
    /// The field may be inserted into the table: values of this name repeat.
    Incremental,
    /// The field is not inserted: values differ from message to message.
    Without,
    /// No hop may insert it: values are secrets (§7.1.3).
    Never,
}

/// The static properties of a name.
#[derive(Clone, Copy)]
pub(super) struct NameProperties {
    /// Its first index in the static table; 0 if it is not in there.
    pub(super) index: u8,
    // Number of static entries with this name and a value, from `index` on.
    with_value: u8,
    indexing: Indexing,
    secret_below: u8,
}

impl NameProperties {
    #[inline]
    pub(super) fn indexing(&self, value_len: usize) -> Indexing {
        // The length is a part of the rule, so one name can be a secret in one message and indexed in another.
        if value_len < usize::from(self.secret_below) { Indexing::Never } else { self.indexing }
    }

    /// Returns the index of the static entry with this value.
    #[inline]
    pub(super) fn static_index(&self, value: &[u8]) -> Option<u32> {
        if self.with_value == 0 {
            return None;
        }
        let first = usize::from(self.index);
        // Entries with one name are adjacent in the static table, those with values first: at most seven comparisons.
        let entries = &statics::ENTRIES[first - 1..][..usize::from(self.with_value)];
        entries.iter().position(|(_, theirs)| *theirs == value).map(|place| (first + place) as u32)
    }
}

pub(super) static PROPERTIES: [NameProperties; NameKind::COUNT] = properties();

const NEVER: [KnownName; 3] = [names::AUTHORIZATION, names::PROXY_AUTHORIZATION, names::SET_COOKIE];

const WITHOUT: [KnownName; 37] = [
    names::AGE,
    names::AUTHENTICATION_INFO,
    names::CF_RAY,
    names::CLIENT_CERT,
    names::CLIENT_CERT_CHAIN,
    names::CONTENT_DIGEST,
    names::CONTENT_DISPOSITION,
    names::CONTENT_LENGTH,
    names::CONTENT_LOCATION,
    names::CONTENT_RANGE,
    names::CORRELATION_CONTEXT,
    names::DESTINATION,
    names::DIGEST,
    names::ETAG,
    names::GRPC_MESSAGE,
    names::IDEMPOTENCY_KEY,
    names::IF,
    names::IF_MATCH,
    names::IF_MODIFIED_SINCE,
    names::IF_NONE_MATCH,
    names::IF_RANGE,
    names::IF_UNMODIFIED_SINCE,
    names::LAST_EVENT_ID,
    names::LAST_MODIFIED,
    names::LOCATION,
    names::LOCK_TOKEN,
    names::PROXY_AUTHENTICATION_INFO,
    names::RANGE,
    names::REPR_DIGEST,
    names::RETRY_AFTER,
    names::SEC_WEBSOCKET_ACCEPT,
    names::SEC_WEBSOCKET_KEY,
    names::SERVER_TIMING,
    names::TRACE_ID,
    names::TRACEPARENT,
    names::TRACESTATE,
    names::X_REQUEST_ID,
];

const fn properties() -> [NameProperties; NameKind::COUNT] {
    let mut properties =
        [NameProperties { index: 0, with_value: 0, indexing: Indexing::Incremental, secret_below: 0 }; NameKind::COUNT];
    // `while` and not `for`, because this runs in a constant.
    let mut at = statics::ENTRIES.len();
    while at > 0 {
        let (kind, value) = statics::ENTRIES[at - 1];
        let of_name = &mut properties[kind.number()];
        // The loop runs backwards, so that the lowest index of a name remains.
        of_name.index = at as u8;
        if !value.is_empty() {
            of_name.with_value += 1;
        }
        at -= 1;
    }
    let mut at = 0;
    while at < NEVER.len() {
        properties[NEVER[at].index()].indexing = Indexing::Never;
        at += 1;
    }
    let mut at = 0;
    while at < WITHOUT.len() {
        properties[WITHOUT[at].index()].indexing = Indexing::Without;
        at += 1;
    }
    // A path rarely repeats within the life of a table entry; `/` and `/index.html` are in the static table.
    properties[NameKind::Path.number()].indexing = Indexing::Without;
    properties[names::COOKIE.index()].secret_below = COOKIE_LEN_MIN as u8;
    properties
}

/// The statistics of a connection.
#[derive(Debug)]
pub(super) struct IndexingStats {
    pub(super) named: [NameStats; NameKind::COUNT],
    others: [FieldStats; SEEN_MAX],
}

/// The statistics of one name that has a number.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct NameStats {
    /// The number of the entry that was inserted last under this name; it may have been evicted.
    pub(super) newest: u16,
    /// Number of values since the last hit that were not in the table.
    pub(super) missed: u8,
}

/// The statistics of one field with an unregistered name.
#[derive(Clone, Copy, Debug)]
pub(super) struct FieldStats {
    pub(super) fingerprint: u32,
    /// The number of its entry, if it was inserted.
    pub(super) number: Option<u16>,
}

impl Default for IndexingStats {
    fn default() -> Self {
        Self {
            named: [NameStats::default(); NameKind::COUNT],
            others: [FieldStats { fingerprint: 0, number: None }; SEEN_MAX],
        }
    }
}

impl IndexingStats {
    pub(super) fn other_mut(&mut self, fingerprint: u32) -> &mut FieldStats {
        &mut self.others[(fingerprint >> 24) as usize % SEEN_MAX]
    }
}

impl NameStats {
    /// Whether a value that is not in the table should be inserted. A name whose values do not repeat is paused for a
    /// while, because each insertion would evict a field that repeats.
    pub(super) fn inserts(&mut self) -> bool {
        let tries = self.missed < TRIES;
        self.missed = if self.missed < TRIES + PAUSE { self.missed + 1 } else { TRIES };
        tries || self.missed == TRIES
    }
}

/// A hash of a field. Two fields with equal fingerprints usually differ at most in the middle of the name or value, or
/// in the name's case.
pub(super) fn fingerprint(name: &[u8], value: &[u8]) -> u32 {
    const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut hash = (name.len() as u64) << 32 | value.len() as u64;
    // Setting the case bits makes the hash independent of the name's case.
    for (bytes, unseen) in [(name, 0x2020_2020_2020_2020), (value, 0)] {
        let (first, last) = match bytes.first_chunk::<8>().zip(bytes.last_chunk::<8>()) {
            Some((first, last)) => (u64::from_le_bytes(*first), u64::from_le_bytes(*last)),
            None => (bytes.iter().fold(0, |word, &byte| word << 8 | u64::from(byte)), 0),
        };
        hash = (hash ^ (first | unseen)).wrapping_mul(SPREAD).rotate_left(29);
        hash = (hash ^ (last | unseen)).wrapping_mul(SPREAD).rotate_left(29);
    }
    // The rotation has moved the product's best mixed bits, the highest, into the low half.
    hash as u32
}
