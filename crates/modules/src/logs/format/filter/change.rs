//! New texts for the texts of a field: hashes, masked addresses, queries, cookies, matches of regular expressions.

use std::cell::Cell;
use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::Range;

use causeway_message::query;
use causeway_pipeline::{Build, BuildError};
use crossbeam_queue::ArrayQueue;
use data_encoding::HEXLOWER;
use serde::Deserialize;
use sha2::{Digest as _, Sha256};

use super::super::super::entry::TextList;
use crate::regexp::CompiledRegex;
use crate::replace::WorkerReplacer;

/// Caddy's bounds on `multi_regexp`.
pub(super) const OPERATIONS_MAX: usize = 50;
const PATTERN_BYTES_MAX: usize = 1000;
/// The longest text that regular expressions change; the rest is cut off, as in Caddy.
const TEXT_BYTES_MAX: usize = 1_000_000;
/// Searchers of an expression that are kept: as many as threads that log at once.
const SEARCHES_KEPT: usize = 64;
/// Capacity that a buffer may keep after an unusually long text.
const BYTES_KEPT: usize = 64 * 1024;

/// A change of a text.
pub(super) enum TextChange {
    /// The first four bytes of the SHA-256 hash, in hexadecimal digits.
    Hash,
    /// Sets the last bits of addresses to 0.
    IpMask {
        v4: Option<u8>,
        v6: Option<u8>,
    },
    Query(Box<[Action]>),
    Regexp(Box<[Operation]>),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ActionConfig {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default, alias = "parameter")]
    name: String,
    #[serde(default)]
    value: String,
}

/// A change of the query parameters or cookies of a name.
pub(super) struct Action {
    name: Box<str>,
    kind: ActionKind,
}

enum ActionKind {
    Replace(Box<str>),
    Hash,
    Delete,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OperationConfig {
    #[serde(default)]
    pub(super) regexp: String,
    #[serde(default)]
    pub(super) value: String,
}

/// A regular expression, and the text for its matches.
pub(super) struct Operation {
    expression: CompiledRegex,
    value: Box<[u8]>,
    /// Threads that log at once must not share a searcher's memory.
    searches: ArrayQueue<WorkerReplacer>,
}

/// A thread's buffers.
#[derive(Default)]
pub(super) struct Scratch {
    /// The new text.
    pub(super) text: Vec<u8>,
    /// The text before the last operation.
    before: Vec<u8>,
    /// Decoded names and values of a query.
    decoded: Vec<u8>,
    pairs: Vec<Pair>,
}

/// A parameter of a query, as ranges of the decoded text.
struct Pair {
    name: Range<usize>,
    value: Range<usize>,
}

thread_local! {
    static SCRATCH: Cell<Scratch> = const {
        Cell::new(Scratch { text: Vec::new(), before: Vec::new(), decoded: Vec::new(), pairs: Vec::new() })
    };
}

impl Scratch {
    /// Takes the thread's buffers, empty. A filter within a filter gets new ones.
    pub(super) fn take() -> Self {
        SCRATCH.take()
    }

    /// Empties the buffers and keeps them for the next text.
    pub(super) fn put_back(mut self) {
        for buffer in [&mut self.text, &mut self.before, &mut self.decoded] {
            buffer.clear();
            buffer.shrink_to(BYTES_KEPT);
        }
        self.pairs.clear();
        SCRATCH.set(self);
    }
}

impl ActionConfig {
    pub(super) fn read(self, build: &Build<'_>) -> Result<Action, BuildError> {
        let kind = match &*self.kind {
            "replace" => ActionKind::Replace(self.value.into()),
            "hash" => ActionKind::Hash,
            "delete" => ActionKind::Delete,
            other => return Err(build.refuse(other, "an action: replace, hash or delete")),
        };
        Ok(Action { name: self.name.into(), kind })
    }
}

impl Operation {
    pub(super) fn read(written: &OperationConfig, build: &Build<'_>) -> Result<Self, BuildError> {
        if written.regexp.len() > PATTERN_BYTES_MAX {
            return Err(build.refuse(&*written.regexp, format!("a pattern of at most {PATTERN_BYTES_MAX} bytes")));
        }
        let expression = CompiledRegex::build(&written.regexp, build)?;
        Ok(Self { expression, value: written.value.as_bytes().into(), searches: ArrayQueue::new(SEARCHES_KEPT) })
    }
}

impl TextChange {
    /// Appends the changed text to `scratch.text`, which must be empty.
    pub(super) fn apply(&self, text: &[u8], scratch: &mut Scratch) {
        match self {
            Self::Hash => scratch.text.extend_from_slice(&hash(text)),
            Self::IpMask { v4, v6 } => mask_addresses(text, *v4, *v6, &mut scratch.text),
            Self::Query(actions) => change_query(actions, text, scratch),
            Self::Regexp(operations) => {
                scratch.text.extend_from_slice(&text[..text.len().min(TEXT_BYTES_MAX)]);
                for Operation { expression, value, searches } in operations {
                    let Scratch { text, before, .. } = &mut *scratch;
                    std::mem::swap(text, before);
                    text.clear();
                    let search = searches.pop().unwrap_or_else(|| WorkerReplacer::new(expression.clone()));
                    if !search.replace(before, value, text) {
                        std::mem::swap(text, before);
                    }
                    text.truncate(TEXT_BYTES_MAX);
                    // Beyond the bound the searcher is dropped.
                    let _ = searches.push(search);
                }
            }
        }
    }
}

fn hash(text: &[u8]) -> [u8; 8] {
    let mut digits = [0; 8];
    HEXLOWER.encode_mut(&Sha256::digest(text)[..4], &mut digits);
    digits
}

// Caddy's `ip_mask`: a list of addresses, each with or without a port; other words stay.
fn mask_addresses(text: &[u8], v4: Option<u8>, v6: Option<u8>, out: &mut Vec<u8>) {
    for (index, word) in text.split(|byte| *byte == b',').enumerate() {
        if index > 0 {
            out.extend_from_slice(b", ");
        }
        let word = word.trim_ascii();
        let parsed = std::str::from_utf8(word).ok().and_then(|word| {
            let alone = word.parse().ok().map(|ip| (ip, None));
            alone.or_else(|| {
                let (host, port) = word.rsplit_once(':')?;
                let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
                Some((host.parse().ok()?, Some(port).filter(|port| !port.is_empty())))
            })
        });
        let Some((ip, port)) = parsed else {
            out.extend_from_slice(word);
            continue;
        };
        let masked = match IpAddr::to_canonical(&ip) {
            IpAddr::V4(ip) => v4.map(|bits| {
                let mask = u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0);
                IpAddr::V4(Ipv4Addr::from_bits(ip.to_bits() & mask))
            }),
            IpAddr::V6(ip) => v6.map(|bits| {
                let mask = u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0);
                IpAddr::V6(Ipv6Addr::from_bits(ip.to_bits() & mask))
            }),
        };
        // Writing to a vector cannot fail.
        let _ = match (masked, port) {
            // Caddy's text for an address of a kind without a mask; the address itself must not be logged.
            (None, _) => write!(out, "<nil>"),
            (Some(IpAddr::V6(ip)), Some(port)) => write!(out, "[{ip}]:{port}"),
            (Some(ip), Some(port)) => write!(out, "{ip}:{port}"),
            (Some(ip), None) => write!(out, "{ip}"),
        };
    }
}

/// The value of a parameter or cookie after some actions.
enum Changed<'c> {
    Text(&'c [u8]),
    Hash([u8; 8]),
    Deleted,
}

impl<'c> Changed<'c> {
    fn by(self, action: &'c Action) -> Self {
        match (&action.kind, self) {
            (_, Self::Deleted) | (ActionKind::Delete, _) => Self::Deleted,
            (ActionKind::Replace(text), _) => Self::Text(text.as_bytes()),
            (ActionKind::Hash, Self::Text(text)) => Self::Hash(hash(text)),
            (ActionKind::Hash, Self::Hash(digits)) => Self::Hash(hash(&digits)),
        }
    }

    fn text(&self) -> Option<&[u8]> {
        match self {
            Self::Text(text) => Some(text),
            Self::Hash(digits) => Some(digits),
            Self::Deleted => None,
        }
    }
}

// Go, net/url: parameters are decoded, sorted by name and encoded again; those that cannot be decoded are left out.
fn change_query(actions: &[Action], target: &[u8], scratch: &mut Scratch) {
    let Scratch { text: out, decoded, pairs, .. } = scratch;
    decoded.clear();
    pairs.clear();
    let (target, fragment) = match memchr::memchr(b'#', target) {
        // A request's target has no fragment: a `#` in its query is part of the query.
        Some(at) if !target.starts_with(b"/") => target.split_at(at),
        _ => (target, &[][..]),
    };
    let Some(at) = memchr::memchr(b'?', target) else {
        out.extend_from_slice(target);
        out.extend_from_slice(fragment);
        return;
    };
    out.extend_from_slice(&target[..at]);
    let raw = &target[at + 1..];
    for (name, value) in query::pairs(raw) {
        let start = decoded.len();
        let is_valid = query::decode(name, decoded);
        let middle = decoded.len();
        if is_valid && query::decode(value, decoded) {
            pairs.push(Pair { name: start..middle, value: middle..decoded.len() });
        }
    }
    // Equal names keep their order: their values lie in it.
    pairs.sort_unstable_by(|one, two| {
        decoded[one.name.clone()].cmp(&decoded[two.name.clone()]).then(one.name.start.cmp(&two.name.start))
    });
    let mut is_first = true;
    for pair in &*pairs {
        let name = &decoded[pair.name.clone()];
        let of_name = actions.iter().filter(|action| action.name.as_bytes() == name);
        let changed = of_name.fold(Changed::Text(&decoded[pair.value.clone()]), Changed::by);
        let Some(value) = changed.text() else { continue };
        out.push(if std::mem::replace(&mut is_first, false) { b'?' } else { b'&' });
        query::encode(name, out);
        out.push(b'=');
        query::encode(value, out);
    }
    if raw.is_empty() {
        out.push(b'?');
    }
    out.extend_from_slice(fragment);
}

/// Returns the first action for a cookie applied to its value.
fn cookie<'c>(actions: &'c [Action], name: &[u8], value: &'c [u8]) -> Changed<'c> {
    let action = actions.iter().find(|action| action.name.as_bytes() == name);
    action.map_or(Changed::Text(value), |action| Changed::Text(value).by(action))
}

/// Splits a cookie at its `=`.
fn split(pair: &[u8]) -> (&[u8], &[u8]) {
    let end = memchr::memchr(b'=', pair).unwrap_or(pair.len());
    (pair[..end].trim_ascii(), pair.get(end + 1..).unwrap_or_default().trim_ascii())
}

/// Returns the value without its quotes, and the quote.
fn unquote(value: &[u8]) -> (&[u8], &[u8]) {
    match value {
        [b'"', inner @ .., b'"'] => (inner, b"\""),
        value => (value, b""),
    }
}

/// Appends all cookies of the fields `Cookie` as one field.
pub(super) fn cookies(actions: &[Action], fields: &dyn TextList, out: &mut Vec<u8>) {
    fields.each(&mut |field| {
        for pair in field.split(|byte| *byte == b';').map(<[u8]>::trim_ascii).filter(|pair| !pair.is_empty()) {
            let (name, value) = split(pair);
            let (value, quote) = unquote(value);
            let changed = cookie(actions, name, value);
            let Some(value) = changed.text() else { continue };
            if !out.is_empty() {
                out.extend_from_slice(b"; ");
            }
            out.extend_from_slice(name);
            out.push(b'=');
            [quote, value, quote].iter().for_each(|part| out.extend_from_slice(part));
        }
    });
}

/// Appends a field `Set-Cookie`; no text if its cookie is deleted. Its attributes stay.
pub(super) fn set_cookie(actions: &[Action], field: &[u8], out: &mut Vec<u8>) {
    let end = memchr::memchr(b';', field).unwrap_or(field.len());
    let (name, value) = split(&field[..end]);
    let (value, quote) = unquote(value);
    let changed = cookie(actions, name, value);
    let Some(value) = changed.text() else { return };
    out.extend_from_slice(name);
    // A field without a value stays as it is, as in Caddy.
    if !value.is_empty() || field[..end].contains(&b'=') {
        out.push(b'=');
    }
    [quote, value, quote].iter().for_each(|part| out.extend_from_slice(part));
    out.extend_from_slice(&field[end..]);
}
