//! The directives of Cache-Control (RFC 9111 §5.2, RFC 5861).

use causeway_message::syntax::trim_ows;
use causeway_message::{FieldMap, List, names};

/// The number of seconds that stands for "longer than can be counted" (RFC 9111 §1.2.2).
const SECONDS_MAX: u64 = 1 << 31;

/// The directives of a response that matter to a shared cache.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct ResponseDirectives {
    pub(super) no_store: bool,
    pub(super) no_cache: bool,
    pub(super) private: bool,
    pub(super) public: bool,
    pub(super) must_revalidate: bool,
    pub(super) proxy_revalidate: bool,
    pub(super) must_understand: bool,
    /// Seconds, as all numbers here.
    pub(super) max_age: Option<u64>,
    pub(super) s_maxage: Option<u64>,
    pub(super) stale_while_revalidate: Option<u64>,
    pub(super) stale_if_error: Option<u64>,
}

impl ResponseDirectives {
    /// Reads the Cache-Control fields of a response.
    pub(super) fn of(fields: &FieldMap) -> Self {
        let mut read = Self::default();
        fields.list(names::CACHE_CONTROL).for_each(|element| read.add(element));
        for value in fields.get_all(names::CACHE_CONTROL) {
            read.restrict(value);
        }
        read
    }

    /// Also reads a value whose last quoted string has no end as if the quote were none: readers differ on it, and a
    /// directive that forbids storing must not be lost.
    fn restrict(&mut self, value: &[u8]) {
        let last = List::new(value).last().unwrap_or_default();
        let (mut is_quoted, mut bytes) = (false, last.iter());
        while let Some(byte) = bytes.next() {
            match byte {
                b'"' => is_quoted = !is_quoted,
                b'\\' if is_quoted => _ = bytes.next(),
                _ => {}
            }
        }
        if !is_quoted {
            return;
        }
        let mut other = Self::default();
        last.split(|byte| *byte == b',').for_each(|element| other.add(trim_ows(element)));
        self.no_store |= other.no_store;
        self.no_cache |= other.no_cache;
        self.private |= other.private;
    }

    fn add(&mut self, element: &[u8]) {
        let (name, value) = split(element);
        let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
        if is("no-store") {
            self.no_store = true;
        } else if is("no-cache") {
            // With field names it forbids only these fields; the whole response is validated, which keeps them out as
            // well.
            self.no_cache = true;
        } else if is("private") {
            // As above: with field names the response might be stored without these.
            self.private = true;
        } else if is("public") {
            self.public = true;
        } else if is("must-revalidate") {
            self.must_revalidate = true;
        } else if is("proxy-revalidate") {
            self.proxy_revalidate = true;
        } else if is("must-understand") {
            self.must_understand = true;
        } else if is("max-age") {
            lower(&mut self.max_age, seconds(value));
        } else if is("s-maxage") {
            lower(&mut self.s_maxage, seconds(value));
        } else if is("stale-while-revalidate") {
            lower(&mut self.stale_while_revalidate, seconds(value));
        } else if is("stale-if-error") {
            lower(&mut self.stale_if_error, seconds(value));
        }
    }

    /// Returns whether the response may not be served stale (RFC 9111 §4.2.4).
    pub(super) fn forbids_stale(&self) -> bool {
        // RFC 9111 §5.2.2.10: s-maxage implies proxy-revalidate for a shared cache.
        self.no_cache || self.must_revalidate || self.proxy_revalidate || self.s_maxage.is_some()
    }

    /// Returns whether the response to a request with Authorization may be stored (RFC 9111 §3.5).
    pub(super) fn allows_authorization(&self) -> bool {
        self.public || self.must_revalidate || self.s_maxage.is_some()
    }
}

/// The directives of a request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct RequestDirectives {
    pub(super) no_store: bool,
    pub(super) no_cache: bool,
    pub(super) only_if_cached: bool,
    pub(super) max_age: Option<u64>,
    pub(super) min_fresh: Option<u64>,
    /// `Some(SECONDS_MAX)` without a number: any staleness.
    pub(super) max_stale: Option<u64>,
}

impl RequestDirectives {
    /// Reads Cache-Control, or Pragma without it (RFC 9111 §5.4).
    pub(super) fn of(fields: &FieldMap) -> Self {
        let mut read = Self::default();
        if !fields.contains(names::CACHE_CONTROL) {
            read.no_cache = fields.has_token(names::PRAGMA, "no-cache");
            return read;
        }
        for element in fields.list(names::CACHE_CONTROL) {
            let (name, value) = split(element);
            let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
            if is("no-store") {
                read.no_store = true;
            } else if is("no-cache") {
                read.no_cache = true;
            } else if is("only-if-cached") {
                read.only_if_cached = true;
            } else if is("max-age") {
                lower(&mut read.max_age, seconds(value));
            } else if is("min-fresh") {
                read.min_fresh = Some(seconds(value).max(read.min_fresh.unwrap_or(0)));
            } else if is("max-stale") {
                lower(&mut read.max_stale, if value.is_empty() { SECONDS_MAX } else { seconds(value) });
            }
        }
        read
    }
}

/// Splits `name=value` and removes the quotes of the value; without a value it is empty.
fn split(element: &[u8]) -> (&[u8], &[u8]) {
    let Some(equals) = memchr::memchr(b'=', element) else { return (element, b"") };
    let (name, value) = (&element[..equals], &element[equals + 1..]);
    (name, value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\"")).unwrap_or(value))
}

/// Reads a number of seconds. A number that is not valid is 0: the response then counts as stale (RFC 9111 §4.2.1).
pub(super) fn seconds(value: &[u8]) -> u64 {
    if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
        return 0;
    }
    causeway_message::syntax::parse_number(value).unwrap_or(SECONDS_MAX).min(SECONDS_MAX)
}

/// Of a directive that is given twice, the lower number holds: RFC 9111 §4.2.1 permits the first one, or to count the
/// response as stale.
fn lower(known: &mut Option<u64>, seconds: u64) {
    *known = Some(known.map_or(seconds, |known| known.min(seconds)));
}

#[cfg(test)]
mod tests {
    use causeway_message::FieldValue;

    use super::*;

    fn of(value: &str) -> ResponseDirectives {
        let mut fields = FieldMap::new();
        fields.append(names::CACHE_CONTROL, FieldValue::parse(value.as_bytes()).unwrap());
        ResponseDirectives::of(&fields)
    }

    // RFC 9111 §5.2: names are case-insensitive, values are tokens or quoted strings, unknown directives are ignored.
    #[test]
    fn directives_of_responses() {
        let none = ResponseDirectives::default();
        for (value, want) in [
            ("", none),
            ("x, y=1, no-transform", none),
            ("Max-Age=10", ResponseDirectives { max_age: Some(10), ..none }),
            ("max-age=\"10\"", ResponseDirectives { max_age: Some(10), ..none }),
            ("max-age=10, max-age=5", ResponseDirectives { max_age: Some(5), ..none }),
            ("max-age=99999999999999999999999", ResponseDirectives { max_age: Some(SECONDS_MAX), ..none }),
            ("max-age=-1", ResponseDirectives { max_age: Some(0), ..none }),
            ("max-age=1.5", ResponseDirectives { max_age: Some(0), ..none }),
            ("max-age=", ResponseDirectives { max_age: Some(0), ..none }),
            ("max-age", ResponseDirectives { max_age: Some(0), ..none }),
            ("max-age =10", none),
            ("private=\"set-cookie, x\"", ResponseDirectives { private: true, ..none }),
            ("x=\"no-store, private\"", none),
            ("max-age=60, x=\"a, no-store", ResponseDirectives { max_age: Some(60), no_store: true, ..none }),
            ("x=\"a\\\", private , public", ResponseDirectives { private: true, ..none }),
            ("x=\"a, no-cache=\"set-cookie\"", ResponseDirectives { no_cache: true, ..none }),
            ("x=\"a\\\", no-store\"", none),
            ("no-cache=a", ResponseDirectives { no_cache: true, ..none }),
            (
                "public, must-revalidate, proxy-revalidate,must-understand , no-store",
                ResponseDirectives {
                    public: true,
                    must_revalidate: true,
                    proxy_revalidate: true,
                    must_understand: true,
                    no_store: true,
                    ..none
                },
            ),
            (
                "s-maxage=1, stale-while-revalidate=2, stale-if-error=3",
                ResponseDirectives {
                    s_maxage: Some(1),
                    stale_while_revalidate: Some(2),
                    stale_if_error: Some(3),
                    ..none
                },
            ),
        ] {
            assert_eq!(of(value), want, "{value}");
        }
    }

    #[test]
    fn directives_of_requests() {
        let none = RequestDirectives::default();
        for (control, pragma, want) in [
            (None, None, none),
            (None, Some("no-cache"), RequestDirectives { no_cache: true, ..none }),
            (Some("max-age=1"), Some("no-cache"), RequestDirectives { max_age: Some(1), ..none }),
            (
                Some("no-store, only-if-cached"),
                None,
                RequestDirectives { no_store: true, only_if_cached: true, ..none },
            ),
            (Some("max-stale"), None, RequestDirectives { max_stale: Some(SECONDS_MAX), ..none }),
            (Some("max-stale=4, max-stale"), None, RequestDirectives { max_stale: Some(4), ..none }),
            (Some("min-fresh=4, min-fresh=5"), None, RequestDirectives { min_fresh: Some(5), ..none }),
        ] {
            let mut fields = FieldMap::new();
            for (name, value) in [(names::CACHE_CONTROL, control), (names::PRAGMA, pragma)] {
                if let Some(value) = value {
                    fields.append(name, FieldValue::parse(value.as_bytes()).unwrap());
                }
            }
            assert_eq!(RequestDirectives::of(&fields), want, "{control:?} {pragma:?}");
        }
    }
}
