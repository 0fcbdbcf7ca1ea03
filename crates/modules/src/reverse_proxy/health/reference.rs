//! Request targets from URI references (RFC 3986): `health_uri`, and the `Location` of a redirect.

use causeway_message::path::{hex, remove_dot_segments};

use crate::rewrite::escape;

/// The parts of a reference, without its fragment (RFC 3986 §3).
struct Reference<'r> {
    scheme: Option<&'r str>,
    authority: Option<&'r str>,
    path: &'r str,
    query: Option<&'r str>,
}

impl<'r> Reference<'r> {
    fn parse(text: &'r str) -> Self {
        let text = text.split('#').next().unwrap_or_default();
        // Only at the beginning: a path or a query may contain a whole URI.
        let scheme = text.split_once(':').filter(|(scheme, _)| is_scheme(scheme));
        let rest = scheme.map_or(text, |(_, rest)| rest);
        let (rest, query) = match rest.split_once('?') {
            Some((rest, query)) => (rest, Some(query)),
            None => (rest, None),
        };
        let (authority, path) = match rest.strip_prefix("//") {
            Some(rest) => {
                let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
                (Some(authority), path)
            }
            None => (None, rest),
        };
        Self { scheme: scheme.map(|(scheme, _)| scheme), authority, path, query }
    }
}

fn is_scheme(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_alphabetic())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
}

/// Returns the target of `health_uri`, the path and the query of a reference, escaped where that is needed. `None` for
/// a control character, and for a `%` in the path without two hexadecimal digits, which Caddy refuses too.
pub(super) fn target(uri: &str) -> Option<Box<str>> {
    let Reference { scheme, path, query, .. } = Reference::parse(uri);
    // As in Go, the text after the scheme of `localhost:80/x` is no path.
    let path = if scheme.is_some() && !path.starts_with('/') { "" } else { path };
    // DEVIATES Caddy: it decodes the path and escapes it anew, so that a `%2F` becomes another separator.
    joined(path, query)
}

/// Returns the target for a path, the option before Caddy had `uri`: it has no query, so each byte of it is the path's.
pub(super) fn path_target(path: &str) -> Box<str> {
    let mut target = Vec::with_capacity(path.len() + 1);
    target.extend((!path.starts_with('/')).then_some(b'/'));
    escape::path(path.as_bytes(), &mut target);
    String::from_utf8(target).expect("ASCII").into()
}

/// The destination of a redirect.
pub(super) struct Destination {
    /// `None` is the host of the request before.
    pub(super) host: Option<Box<str>>,
    pub(super) target: Box<str>,
}

/// Resolves a redirect's `Location` against the target of the request (RFC 3986 §5.2.2). `None` if it is no reference
/// to HTTP.
pub(super) fn resolve(base: &str, location: &str) -> Option<Destination> {
    let Reference { scheme, authority, path, query } = Reference::parse(location);
    if let Some(scheme) = scheme
        && (authority.is_none() || !["http", "https"].iter().any(|known| scheme.eq_ignore_ascii_case(known)))
    {
        return None;
    }
    let (base_path, base_query) = match base.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (base, None),
    };
    let target = match (authority, path) {
        (Some(_), path) => joined(&without_dots(path), query),
        (None, "") => joined(base_path, query.or(base_query)),
        (None, path) if path.starts_with('/') => joined(&without_dots(path), query),
        (None, path) => {
            let directory = base_path.rfind('/').map_or("/", |at| &base_path[..=at]);
            joined(&without_dots(&format!("{directory}{path}")), query)
        }
    };
    let host = authority.map(|authority| authority.rsplit('@').next().unwrap_or_default());
    match host {
        Some("") => None,
        host => Some(Destination { host: host.map(Box::from), target: target? }),
    }
}

/// Removes the segments `.` and `..` (RFC 3986 §5.2.4).
fn without_dots(path: &str) -> String {
    let mut kept = Vec::with_capacity(path.len());
    remove_dot_segments(path.as_bytes(), &mut kept);
    String::from_utf8(kept).expect("whole segments of a text")
}

/// Returns a target with the path and the query, escaped where that is needed.
fn joined(path: &str, query: Option<&str>) -> Option<Box<str>> {
    let has_control = |text: &str| text.bytes().any(|byte| byte.is_ascii_control());
    let is_escape = |rest: &str| matches!(rest.as_bytes(), [a, b, ..] if hex(*a).is_some() && hex(*b).is_some());
    if has_control(path) || query.is_some_and(has_control) || !path.split('%').skip(1).all(is_escape) {
        return None;
    }
    let mut target = Vec::with_capacity(path.len() + query.map_or(0, |query| query.len() + 1) + 1);
    target.extend((!path.starts_with('/')).then_some(b'/'));
    escape::escape_invalid_in_path(path.as_bytes(), &mut target);
    if let Some(query) = query {
        target.push(b'?');
        escape::raw_query(query.as_bytes(), &mut target);
    }
    Some(String::from_utf8(target).expect("ASCII").into())
}

#[cfg(test)]
mod tests {
    use super::{path_target, resolve, target};

    // Caddy's `path`: `?` and `%` are bytes of it.
    #[test]
    fn a_path_has_no_query() {
        for (path, want) in
            [("/up", "/up"), ("", "/"), ("up", "/up"), ("/x?st=404%2F", "/x%3Fst=404%252F"), ("/ä b", "/%C3%A4%20b")]
        {
            assert_eq!(&*path_target(path), want, "{path}");
        }
    }

    // Caddy takes the path and the query of `health_uri`, and ignores a scheme and a host. Go's url.Parse: a scheme is
    // at the beginning. Bytes that need it are escaped, and a path that is escaped stays as it is written; Caddy sends
    // `/a%2Fb%20c'(1)` as `/a/b%20c%27%281%29`.
    #[test]
    fn targets() {
        for (uri, want) in [
            ("/health", Some("/health")),
            ("/health?deep=1#part", Some("/health?deep=1")),
            ("health", Some("/health")),
            ("", Some("/")),
            ("http://a.example/health", Some("/health")),
            ("HTTP://a.example:80", Some("/")),
            ("http://a.example?x", Some("/?x")),
            ("//a.example/health", Some("/health")),
            ("localhost:8080/health", Some("/")),
            ("/probe?target=http://db:80/ping", Some("/probe?target=http://db:80/ping")),
            ("/to/http://db:80/ping", Some("/to/http://db:80/ping")),
            ("probe?target=http://db:80/ping", Some("/probe?target=http://db:80/ping")),
            ("/prüfung a", Some("/pr%C3%BCfung%20a")),
            ("/a%2Fb%20c'(1)", Some("/a%2Fb%20c'(1)")),
            ("/?q=ü b%", Some("/?q=%C3%BC%20b%")),
            ("/100%", None),
            ("/a\tb", None),
        ] {
            assert_eq!(target(uri).as_deref(), want, "{uri}");
        }
    }

    // RFC 3986 §5.4: references, against the request's target `/b/c/d;p?q` at the host `a`.
    #[test]
    fn references() {
        let same = |target: &'static str| Some((None, target));
        let other = |target: &'static str| Some((Some("g"), target));
        for (location, want) in [
            ("g", same("/b/c/g")),
            ("./g", same("/b/c/g")),
            ("g/", same("/b/c/g/")),
            ("/g", same("/g")),
            ("//g", other("/")),
            ("//g/h?y", other("/h?y")),
            ("?y", same("/b/c/d;p?y")),
            ("g?y", same("/b/c/g?y")),
            ("#s", same("/b/c/d;p?q")),
            ("", same("/b/c/d;p?q")),
            (".", same("/b/c/")),
            ("..", same("/b/")),
            ("../g", same("/b/g")),
            ("../../../g", same("/g")),
            ("/./g/../h", same("/h")),
            ("g;x=1/../y", same("/b/c/y")),
            ("g?y/../x", same("/b/c/g?y/../x")),
            ("http://g", other("/")),
            ("https://user@g/a/../b", other("/b")),
            ("/up?from=http://g/h", same("/up?from=http://g/h")),
            ("up?from=http://g/h", same("/b/c/up?from=http://g/h")),
            ("/ü b", same("/%C3%BC%20b")),
            ("mailto:g", None),
            ("http:g", None),
            ("ftp://g/h", None),
            ("http:///h", None),
        ] {
            let found = resolve("/b/c/d;p?q", location);
            assert_eq!(found.as_ref().map(|found| (found.host.as_deref(), &*found.target)), want, "{location}");
        }
    }
}
