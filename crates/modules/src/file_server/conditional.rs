//! Conditional requests (RFC 9110 §13).

use causeway_message::{FieldMap, List, Method, names};

use super::entry::Entry;

/// What the preconditions say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Answer as if there were none.
    Perform,
    /// 304.
    NotModified,
    /// 412.
    Failed,
}

/// Evaluates the preconditions in RFC 9110 §13.2.2's order. Allocates nothing.
pub(super) fn evaluate(fields: &FieldMap, method: Method<'_>, etag: Option<&[u8]>, entry: &Entry) -> Verdict {
    let modified = entry.modified.as_ref().map(|(seconds, _)| *seconds);
    // Step 1 and 2: If-Match, else If-Unmodified-Since. Both guard against changes, so "unknown" is a failure for the first
    // and, by §13.1.4, nothing for the second.
    if fields.contains(names::IF_MATCH) {
        if !lists(fields, names::IF_MATCH, etag, strong) {
            return Verdict::Failed;
        }
    } else if let (Some(since), Some(modified)) = (date(fields.get(names::IF_UNMODIFIED_SINCE)), modified)
        && modified > since
    {
        return Verdict::Failed;
    }
    let reads = matches!(method, Method::Get | Method::Head);
    // Step 3 and 4: If-None-Match, else, for GET and HEAD only, If-Modified-Since.
    if fields.contains(names::IF_NONE_MATCH) {
        if lists(fields, names::IF_NONE_MATCH, etag, weak) {
            return if reads { Verdict::NotModified } else { Verdict::Failed };
        }
    } else if reads
        && let (Some(since), Some(modified)) = (date(fields.get(names::IF_MODIFIED_SINCE)), modified)
        && modified <= since
    {
        return Verdict::NotModified;
    }
    Verdict::Perform
}

/// Step 5: whether If-Range lets the range be answered; without it, yes. A tag is compared strongly, a date exactly
/// (RFC 9110 §13.1.5).
pub(super) fn range_holds(fields: &FieldMap, etag: Option<&[u8]>, entry: &Entry) -> bool {
    let Some(value) = fields.get(names::IF_RANGE) else { return true };
    if value.starts_with(b"\"") || value.starts_with(b"W/") {
        return etag.is_some_and(|etag| strong(value, etag));
    }
    date(Some(value)).is_some_and(|date| entry.modified.as_ref().is_some_and(|(modified, _)| *modified == date))
}

/// Whether the list is `*` or holds the tag. There is a current representation whenever this is asked.
fn lists(
    fields: &FieldMap,
    name: causeway_message::KnownName,
    etag: Option<&[u8]>,
    same: fn(&[u8], &[u8]) -> bool,
) -> bool {
    fields
        .get_all(name)
        .any(|value| value == b"*" || etag.is_some_and(|etag| List::new(value).any(|candidate| same(candidate, etag))))
}

// RFC 9110 §8.8.3.2.
fn strong(a: &[u8], b: &[u8]) -> bool {
    a == b && a.starts_with(b"\"")
}

fn weak(a: &[u8], b: &[u8]) -> bool {
    a.strip_prefix(b"W/").unwrap_or(a) == b.strip_prefix(b"W/").unwrap_or(b)
}

/// Seconds since 1970 of a date (RFC 9110 §5.6.7); an invalid one is as none (§13.1.3, §13.1.4).
pub(super) fn date(value: Option<&[u8]>) -> Option<u64> {
    let time = httpdate::parse_http_date(std::str::from_utf8(value?).ok()?).ok()?;
    Some(time.duration_since(std::time::SystemTime::UNIX_EPOCH).ok()?.as_secs())
}
