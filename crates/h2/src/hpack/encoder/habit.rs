//! Which fields are worth a place in the table: what is known of a name beforehand, and what the connection has shown since.

use causeway_message::{KnownName, names};

use super::super::{Kind, statics};

/// Values of a name that may be put into the table in vain, one after the other.
const TRIES: u8 = 6;
/// Values of such a name until one is tried again.
const PAUSE: u8 = 32;
/// Fields with names that are not registered, that are remembered for whether they come again.
const SEEN_MAX: usize = 16;
/// RFC 7541 §7.1.3 names short cookies: they can be guessed octet by octet.
const COOKIE_LEN_MIN: usize = 20;

const _: () = assert!(size_of::<Memory>() <= 1024);

/// How the values of a name behave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Habit {
    /// They may come again.
    Repeats,
    /// They differ from message to message.
    Changes,
    /// They are secrets (RFC 7541 §7.1.3).
    Secret,
}

/// What is known of a name beforehand.
#[derive(Clone, Copy)]
pub(super) struct Traits {
    /// Its first index in the static table; 0 when it is not there.
    pub(super) index: u8,
    // Entries of the static table with this name and a value, from `index` on.
    whole: u8,
    habit: Habit,
    secret_below: u8,
}

impl Traits {
    #[inline]
    pub(super) fn habit(&self, value_len: usize) -> Habit {
        if value_len < usize::from(self.secret_below) { Habit::Secret } else { self.habit }
    }

    /// The index of the static entry with this value.
    #[inline]
    pub(super) fn whole(&self, value: &[u8]) -> Option<u32> {
        if self.whole == 0 {
            return None;
        }
        let first = usize::from(self.index);
        let entries = &statics::ENTRIES[first - 1..][..usize::from(self.whole)];
        entries.iter().position(|(_, theirs)| *theirs == value).map(|place| (first + place) as u32)
    }
}

pub(super) static TRAITS: [Traits; Kind::COUNT] = traits();

const SECRET: [KnownName; 3] = [names::AUTHORIZATION, names::PROXY_AUTHORIZATION, names::SET_COOKIE];

const CHANGES: [KnownName; 37] = [
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

const fn traits() -> [Traits; Kind::COUNT] {
    let mut traits = [Traits { index: 0, whole: 0, habit: Habit::Repeats, secret_below: 0 }; Kind::COUNT];
    let mut at = statics::ENTRIES.len();
    while at > 0 {
        let (kind, value) = statics::ENTRIES[at - 1];
        let traits = &mut traits[kind.number()];
        traits.index = at as u8;
        if !value.is_empty() {
            traits.whole += 1;
        }
        at -= 1;
    }
    let mut at = 0;
    while at < SECRET.len() {
        traits[SECRET[at].index()].habit = Habit::Secret;
        at += 1;
    }
    let mut at = 0;
    while at < CHANGES.len() {
        traits[CHANGES[at].index()].habit = Habit::Changes;
        at += 1;
    }
    traits[Kind::Path.number()].habit = Habit::Changes;
    traits[names::COOKIE.index()].secret_below = COOKIE_LEN_MIN as u8;
    traits
}

/// What a connection has shown.
#[derive(Debug)]
pub(super) struct Memory {
    pub(super) named: [Slot; Kind::COUNT],
    others: [Seen; SEEN_MAX],
}

/// Of one name that has a number.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Slot {
    /// The number of the entry that was put in last under this name, if it still is one.
    pub(super) newest: u16,
    /// Values that were not in the table since one was.
    pub(super) missed: u8,
}

/// A field whose name is not registered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    pub(super) mark: u32,
    /// The number of its entry, if it was put in.
    pub(super) number: Option<u16>,
}

impl Default for Memory {
    fn default() -> Self {
        Self { named: [Slot::default(); Kind::COUNT], others: [Seen { mark: 0, number: None }; SEEN_MAX] }
    }
}

impl Memory {
    pub(super) fn other_mut(&mut self, mark: u32) -> &mut Seen {
        &mut self.others[(mark >> 24) as usize % SEEN_MAX]
    }
}

impl Slot {
    /// Whether a value that is not in the table shall be put there. A name whose values do not come again is given up for a
    /// while: each would drive out a field that does.
    pub(super) fn inserts(&mut self) -> bool {
        let tries = self.missed < TRIES;
        self.missed = if self.missed < TRIES + PAUSE { self.missed + 1 } else { TRIES };
        tries || self.missed == TRIES
    }
}

/// Tells fields apart, mostly: two with the same mark differ only between the ends of name or value, or in the name's case.
pub(super) fn mark(name: &[u8], value: &[u8]) -> u32 {
    const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut mark = (name.len() as u64) << 32 | value.len() as u64;
    // The bit of a letter's case is not looked at in a name.
    for (octets, unseen) in [(name, 0x2020_2020_2020_2020), (value, 0)] {
        let (first, last) = match octets.first_chunk::<8>().zip(octets.last_chunk::<8>()) {
            Some((first, last)) => (u64::from_le_bytes(*first), u64::from_le_bytes(*last)),
            None => (octets.iter().fold(0, |word, &octet| word << 8 | u64::from(octet)), 0),
        };
        mark = (mark ^ (first | unseen)).wrapping_mul(SPREAD).rotate_left(29);
        mark = (mark ^ (last | unseen)).wrapping_mul(SPREAD).rotate_left(29);
    }
    // The best mixed bits, the product's highest, were turned to here.
    mark as u32
}
