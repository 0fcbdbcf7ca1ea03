//! Conditional requests (RFC 9110 §13).

use std::time::SystemTime;

use causeway_message::syntax::trim_ows;
use causeway_message::{FieldMap, Method, names};

/// The result of the preconditions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Precondition {
    /// No precondition prevents the normal response.
    Perform,
    /// Respond with 304.
    NotModified,
    /// Respond with 412.
    Failed,
}

/// Evaluates the preconditions in the order of RFC 9110 §13.2.2, for a representation with this entity tag that was
/// last modified at this time, in seconds since 1970. Does not allocate.
pub(crate) fn evaluate(
    fields: &FieldMap,
    method: Method<'_>,
    etag: Option<&[u8]>,
    modified: Option<u64>,
) -> Precondition {
    // Steps 1 and 2: If-Match, else If-Unmodified-Since. Both guard against changes. A missing validator fails the
    // first; for the second §13.1.4 ignores the condition then.
    if fields.contains(names::IF_MATCH) {
        if !lists(fields, names::IF_MATCH, etag, strong) {
            return Precondition::Failed;
        }
    } else if let (Some(since), Some(modified)) = (date(fields.get(names::IF_UNMODIFIED_SINCE)), modified)
        && modified > since
    {
        return Precondition::Failed;
    }
    let reads = matches!(method, Method::Get | Method::Head);
    // Steps 3 and 4: If-None-Match, else, for GET and HEAD only, If-Modified-Since.
    if fields.contains(names::IF_NONE_MATCH) {
        if lists(fields, names::IF_NONE_MATCH, etag, weak) {
            return if reads { Precondition::NotModified } else { Precondition::Failed };
        }
    } else if reads
        && let (Some(since), Some(modified)) = (date(fields.get(names::IF_MODIFIED_SINCE)), modified)
        && modified <= since
    {
        return Precondition::NotModified;
    }
    Precondition::Perform
}

/// Returns whether `If-None-Match` lists this tag; `*` lists none in particular.
pub(crate) fn lists_weakly(fields: &FieldMap, etag: &[u8]) -> bool {
    fields.get_all(names::IF_NONE_MATCH).any(|value| entity_tags(value).any(|candidate| weak(candidate, etag)))
}

/// Step 5: returns whether If-Range permits a partial response; true without the field. Compares a tag strongly and a
/// date exactly (RFC 9110 §13.1.5). The representation was still the same at the time `seen`, in seconds since 1970.
pub(crate) fn range_holds(fields: &FieldMap, etag: Option<&[u8]>, modified: Option<u64>, seen: u64) -> bool {
    let Some(value) = fields.get(names::IF_RANGE) else { return true };
    if value.starts_with(b"\"") || value.starts_with(b"W/") {
        return etag.is_some_and(|etag| strong(value, etag));
    }
    // RFC 9110 §8.8.2.2: a date of the last second is weak, since the representation may change again within it.
    date(Some(value)).is_some_and(|date| modified == Some(date) && date < seen)
}

/// Returns whether the list contains the tag or is `*`, which always matches: a current representation exists here.
fn lists(
    fields: &FieldMap,
    name: causeway_message::KnownName,
    etag: Option<&[u8]>,
    same: fn(&[u8], &[u8]) -> bool,
) -> bool {
    fields.get_all(name).any(|value| {
        value == b"*" || etag.is_some_and(|etag| entity_tags(value).any(|candidate| same(candidate, etag)))
    })
}

/// Iterates over the entity tags of a list. RFC 9110 §8.8.3: a backslash in a tag has no meaning, unlike in the quoted
/// strings of other lists (§5.6.4).
fn entity_tags(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut quoted = false;
    let tags = value.split(move |&byte| {
        quoted ^= byte == b'"';
        byte == b',' && !quoted
    });
    tags.map(trim_ows).filter(|tag| !tag.is_empty())
}

// RFC 9110 §8.8.3.2: equal, and neither tag is weak.
fn strong(a: &[u8], b: &[u8]) -> bool {
    a == b && a.starts_with(b"\"")
}

fn weak(a: &[u8], b: &[u8]) -> bool {
    a.strip_prefix(b"W/").unwrap_or(a) == b.strip_prefix(b"W/").unwrap_or(b)
}

/// Parses a date (RFC 9110 §5.6.7) to seconds since 1970. `None` for an invalid date, which the conditions ignore
/// (§13.1.3, §13.1.4).
pub(crate) fn date(value: Option<&[u8]>) -> Option<u64> {
    let text = std::str::from_utf8(value?).ok()?;
    let time = httpdate::parse_http_date(text).ok().or_else(|| date_of_any_weekday(text))?;
    Some(time.duration_since(SystemTime::UNIX_EPOCH).ok()?.as_secs())
}

/// Parses a date whose weekday is that of another date. As in Go, the name of the day must only be one; httpdate
/// compares it with the date.
#[cold]
fn date_of_any_weekday(text: &str) -> Option<SystemTime> {
    // The longest date is `Wednesday, 01-Jan-90 00:00:00 GMT`.
    const BYTES_MAX: usize = 33;
    const SHORT: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];
    const LONG: [&str; 7] = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];
    if text.len() > BYTES_MAX {
        return None;
    }
    let (day, rest) = text.split_at(text.find(|letter: char| !letter.is_ascii_alphabetic())?);
    let names = [SHORT, LONG].into_iter().find(|names| names.contains(&day))?;
    names.iter().find_map(|name| httpdate::parse_http_date(&format!("{name}{rest}")).ok())
}

/// Returns the seconds since 1970; 0 for an earlier time.
pub(crate) fn since_1970(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    // RFC 9110 §5.6.7: recipients are encouraged to be robust. Go's http.ParseTime accepts the name of any day.
    #[test]
    fn dates_with_any_weekday() {
        for (text, want) in [
            ("Mon, 01 Jan 1990 00:00:00 GMT", Some(631_152_000)),
            ("Fri, 01 Jan 1990 00:00:00 GMT", Some(631_152_000)),
            ("Friday, 01-Jan-90 00:00:00 GMT", Some(631_152_000)),
            ("Fri Jan  1 00:00:00 1990", Some(631_152_000)),
            ("Tuesday, 01-Jan-90 00:00:00 GMT", Some(631_152_000)),
            ("Wednesday, 01-Jan-90 00:00:00 GMT", Some(631_152_000)),
            ("Fry, 01 Jan 1990 00:00:00 GMT", None),
            ("Friday, 01 Jan 1990 00:00:00 GMT", None),
            ("01 Jan 1990 00:00:00 GMT", None),
            ("Fri", None),
            ("", None),
        ] {
            assert_eq!(date(Some(text.as_bytes())), want, "{text}");
        }
    }

    // RFC 9110 §8.8.3: a tag may contain commas and backslashes; §5.6.1.2: empty elements are skipped.
    #[test]
    fn entity_tags_are_split_at_commas_between_them() {
        for (list, want) in [
            ("", &[][..]),
            (" , ,", &[]),
            (r#""a",W/"b" ,	"c""#, &[r#""a""#, r#"W/"b""#, r#""c""#]),
            (r#""a,b", "c""#, &[r#""a,b""#, r#""c""#]),
            (r#""a\", "b""#, &[r#""a\""#, r#""b""#]),
            (r#"a\",b",c"#, &[r#"a\",b""#, "c"]),
            (r#""a,b"#, &[r#""a,b"#]),
        ] {
            let got: Vec<_> = entity_tags(list.as_bytes()).map(|tag| std::str::from_utf8(tag).unwrap()).collect();
            assert_eq!(got, want, "{list}");
        }
        let mut fields = FieldMap::new();
        let list = causeway_message::FieldValue::parse(br#""a\", "b""#).unwrap();
        fields.insert(causeway_message::NameRef::from(names::IF_NONE_MATCH), list);
        for tag in [r#""a\""#, r#""b""#] {
            let outcome = evaluate(&fields, Method::Get, Some(tag.as_bytes()), None);
            assert_eq!(outcome, Precondition::NotModified, "{tag}");
        }
    }
}
