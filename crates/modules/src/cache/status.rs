//! The field Cache-Status (RFC 9211).

use std::io::Write as _;

use causeway_message::syntax::is_token;
use causeway_message::{StatusCode, names};
use causeway_pipeline::Context;

use super::store::Lookup;
use crate::rendered::with_field_value;

/// Why a request was forwarded (RFC 9211 §2.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Forwarded {
    /// The cache is configured not to handle the request.
    Bypass,
    /// Responses to the request's method are not cached.
    Method,
    /// No response is stored for the request's key.
    UriMiss,
    /// The stored responses are for other request fields.
    VaryMiss,
    /// The request's own directives require forwarding.
    Request,
    /// The stored response is stale.
    Stale,
}

impl Forwarded {
    pub(super) const ALL: [Self; 6] =
        [Self::Bypass, Self::Method, Self::UriMiss, Self::VaryMiss, Self::Request, Self::Stale];

    /// Returns the result of the lookup.
    pub(super) fn lookup(self) -> Lookup {
        match self {
            Self::Bypass | Self::Method | Self::UriMiss => Lookup::UriMiss,
            Self::VaryMiss => Lookup::VaryMiss,
            Self::Request => Lookup::Request,
            Self::Stale => Lookup::Expired,
        }
    }

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Bypass => "bypass",
            Self::Method => "method",
            Self::UriMiss => "uri-miss",
            Self::VaryMiss => "vary-miss",
            Self::Request => "request",
            Self::Stale => "stale",
        }
    }
}

/// How the cache handled a request.
#[derive(Debug, Clone, Copy)]
pub(super) enum Handled {
    /// From the store; the remaining lifetime in seconds, negative for a stale response.
    Hit { ttl: i64 },
    /// Forwarded, with the status of the response to it.
    Forwarded { why: Forwarded, status: Option<StatusCode>, then: ResponseUse },
}

/// The use of the response to a forwarded request.
#[derive(Debug, Clone, Copy)]
pub(super) enum ResponseUse {
    Passed,
    Stored,
    /// The response to another request was also used for this one.
    Collapsed,
    /// A stored response was served in its place, because it was an error.
    StaleIfError,
}

/// Returns the cache's name as a token or a string of structured fields (RFC 8941 §3.3).
pub(super) fn name(written: &str) -> Option<String> {
    let is_valid =
        !written.is_empty() && written.len() <= 64 && written.bytes().all(|byte| (0x20..0x7f).contains(&byte));
    if !is_valid {
        return None;
    }
    if is_token(written.as_bytes()) && written.starts_with(|first: char| first.is_ascii_alphabetic() || first == '*') {
        return Some(written.to_owned());
    }
    let escaped =
        written.chars().flat_map(|char| (matches!(char, '"' | '\\')).then_some('\\').into_iter().chain([char]));
    Some(format!("\"{}\"", escaped.collect::<String>()))
}

/// Appends the field to the response. Does not allocate in steady state.
pub(super) fn append(cx: &mut Context, name: &str, handled: Handled) {
    cx.with_scratch(|cx, value| {
        value.extend_from_slice(name.as_bytes());
        // Writing to a vector cannot fail.
        let _ = match handled {
            Handled::Hit { ttl } => write!(value, "; hit; ttl={ttl}"),
            Handled::Forwarded { why, .. } => write!(value, "; fwd={}", why.as_str()),
        };
        if let Handled::Forwarded { status, then, .. } = handled {
            if let Some(status) = status {
                let _ = write!(value, "; fwd-status={}", status.as_u16());
            }
            value.extend_from_slice(match then {
                ResponseUse::Passed => b"",
                ResponseUse::Stored => b"; stored",
                ResponseUse::Collapsed => b"; collapsed",
                ResponseUse::StaleIfError => b"; detail=stale-if-error",
            });
        }
        with_field_value(value, |value| cx.response_mut().append(names::CACHE_STATUS, value));
    });
}

#[cfg(test)]
mod tests {
    // RFC 9211 §2: the member is a token or a string.
    #[test]
    fn names_of_caches() {
        for (written, want) in [
            ("Causeway", Some("Causeway")),
            ("a.b:8080", Some("\"a.b:8080\"")),
            ("1st", Some("\"1st\"")),
            ("my \"cache\"", Some("\"my \\\"cache\\\"\"")),
            ("", None),
            ("\u{e9}", None),
        ] {
            assert_eq!(super::name(written).as_deref(), want, "{written}");
        }
    }
}
