//! Names in certificates: coverage by wildcards, and which authorities can issue for a name (Caddy's rules). URLs of
//! HTTP.

use std::net::IpAddr;

/// Whether a pattern covers a name, ignoring case. Each `*` stands for one label, and only leftmost labels can be `*`.
pub(crate) fn covers(pattern: &str, name: &str) -> bool {
    let name = host(name);
    if same(pattern, name) {
        return true;
    }
    // Each label up to the last `*` must be a `*`, and the name must have a label there that is not empty.
    let Some(last) = pattern.split('.').enumerate().filter(|(_, label)| *label == "*").map(|(index, _)| index).last()
    else {
        return false;
    };
    pattern.matches('.').count() == name.matches('.').count()
        && pattern
            .split('.')
            .zip(name.split('.'))
            .enumerate()
            .all(|(index, (own, label))| if index <= last && !label.is_empty() { own == "*" } else { same(own, label) })
}

/// Whether the name equals `pattern`, or does after `*` replaces one or more of its first labels. As
/// certmagic's `MatchWildcard`, with which Caddy selects policies and certificates, and unlike [`covers`], it compares
/// labels exactly and accepts no port.
pub(crate) fn matches_wildcard(pattern: &str, name: &str) -> bool {
    if name == pattern {
        return true;
    }
    let stars = pattern.split('.').take_while(|label| *label == "*").count();
    let (mut name, mut pattern) = (name.split('.'), pattern.split('.'));
    for _ in 0..stars {
        pattern.next();
        // A star needs a label that is present and not empty.
        if name.next().is_none_or(str::is_empty) {
            return false;
        }
    }
    stars > 0 && name.eq(pattern)
}

/// Case-insensitive equality, beyond ASCII too.
fn same(own: &str, other: &str) -> bool {
    own.eq_ignore_ascii_case(other)
        || (!(own.is_ascii() && other.is_ascii()) && own.to_lowercase() == other.to_lowercase())
}

/// The host of `host:port`, without brackets.
fn host(text: &str) -> &str {
    let bracketed = text.strip_prefix('[').and_then(|text| text.split_once(']'));
    match (bracketed, text.split_once(':')) {
        (Some((host, rest)), _) if rest.is_empty() || rest.starts_with(':') => host,
        (None, Some((host, port))) if !port.contains(':') => host,
        _ => text,
    }
}

/// Whether any certificate can be issued for this name.
pub(crate) fn qualifies(name: &str) -> bool {
    !name.trim().is_empty()
        && !name.starts_with('.')
        && !name.ends_with('.')
        && (!name.contains('*') || name.starts_with("*.") || name == "*")
        && !name.contains(|ch| "()[]{}<> \t\n\"\\!@#$%^&|;'+=".contains(ch))
}

/// Whether a public authority may issue for this name. It may contain one `*`, as the first of at least three labels.
pub(crate) fn is_public(name: &str) -> bool {
    let wildcards = name.matches('*').count();
    let narrow = wildcards == 1 && name.matches('.').count() > 1 && name.starts_with("*.");
    qualifies(name) && !is_internal(name) && (wildcards == 0 || narrow)
}

/// Whether this is a name or an IP address of the local machine or of a private network.
pub(crate) fn is_internal(name: &str) -> bool {
    let name = host(name).to_lowercase();
    let name = name.strip_suffix('.').unwrap_or(&name);
    name == "localhost"
        || [".localhost", ".local", ".internal", ".home.arpa"].iter().any(|suffix| name.ends_with(suffix))
        || name.parse().is_ok_and(is_internal_address)
}

fn is_internal_address(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => {
            address.is_loopback()
                || address.is_private()
                || address.is_link_local()
                || matches!(address.octets(), [0, 0, ..])
        }
        IpAddr::V6(address) => {
            let first = address.segments()[0];
            // ::/7, fc00::/7, fe80::/10
            first & 0xfe00 == 0 || first & 0xfe00 == 0xfc00 || first & 0xffc0 == 0xfe80
        }
    }
}

pub(crate) fn is_address(name: &str) -> bool {
    name.parse::<IpAddr>().is_ok()
}

/// Whether Tailscale's daemon supplies the certificate for this name.
pub(crate) fn is_tailscale(name: &str) -> bool {
    name.to_lowercase().ends_with(".ts.net")
}

/// The expected text for a URL without a scheme of HTTP.
pub(crate) const HTTP_URL: &str = "a URL that begins with http:// or https://";

/// Returns the part of a URL after `http://` or `https://`; `None` for any other URL.
pub(crate) fn strip_http_scheme(url: &str) -> Option<&str> {
    url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"))
}

#[cfg(test)]
mod tests {
    use super::*;

    // RFC 6125 §6.4.3, extended: a wildcard can stand for several labels, leftmost first, one `*` each.
    #[test]
    fn names_covered_by_patterns() {
        for (pattern, name, want) in [
            ("a.test", "A.test", true),
            ("*.test", "a.test", true),
            ("*.test", "b.a.test", false),
            ("*.*.test", "b.a.test", true),
            ("*.a.*", "b.a.test", false),
            ("b.*.test", "b.a.test", false),
            ("*", "localhost", true),
            ("*", "a.test", false),
            ("*.test", ".test", false),
            ("::1", "[::1]", true),
            ("*.test", "*.test", true),
        ] {
            assert_eq!(covers(pattern, name), want, "{pattern} {name}");
        }
    }

    // certmagic's `MatchWildcard`.
    #[test]
    fn wildcards_match_labels() {
        for (name, pattern, want) in [
            ("a.b", "a.b", true),
            ("a.b", "*.b", true),
            ("a.b", "*.*", true),
            ("a.b.c", "*.b.c", true),
            ("a.b.c", "*.*.c", true),
            ("a.b.c", "*.c", false),
            ("b.c", "*.b.c", false),
            (".b", "*.b", false),
            ("a.b", "a.*", false),
            ("a", "*", true),
        ] {
            assert_eq!(matches_wildcard(pattern, name), want, "{name} {pattern}");
        }
    }

    // Caddy's documentation, "Hostname requirements" of automatic HTTPS, and the certmagic rules that implement it.
    #[test]
    fn kinds_of_authorities_for_names() {
        for (name, certifiable, internal, public) in [
            ("a.test", true, false, true),
            ("*.a.test", true, false, true),
            ("*.test", true, false, false),
            ("*.*.a.test", true, false, false),
            ("*", true, false, false),
            ("a.*.test", false, false, false),
            ("{env.HOST}", false, false, false),
            (".a.test", false, false, false),
            ("a.test.", false, false, false),
            ("a b", false, false, false),
            ("", false, false, false),
            (" ", false, false, false),
            ("LOCALHOST", true, true, false),
            ("a.localhost", true, true, false),
            ("a.home.arpa", true, true, false),
            ("printer.local", true, true, false),
            ("db.internal", true, true, false),
            ("a.internal.test", true, false, true),
            ("10.1.2.3", true, true, false),
            ("127.0.0.1", true, true, false),
            ("169.254.0.1", true, true, false),
            ("192.168.1.1", true, true, false),
            ("172.16.0.1", true, true, false),
            ("172.32.0.1", true, false, true),
            ("0.0.1.1", true, true, false),
            ("0.1.1.1", true, false, true),
            ("192.0.2.1", true, false, true),
            ("::ffff:10.1.2.3", true, true, false),
            ("1ff::1", true, true, false),
            ("200::1", true, false, true),
            ("::1", true, true, false),
            ("fd00::1", true, true, false),
            ("febf::1", true, true, false),
            ("2001:db8::1", true, false, true),
        ] {
            assert_eq!(
                (qualifies(name), is_internal(name), is_public(name)),
                (certifiable, internal, public),
                "{name}"
            );
        }
    }
}
