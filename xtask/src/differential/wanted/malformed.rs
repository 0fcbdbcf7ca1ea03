//! The rules of HTTP that Causeway enforces and Caddy does not.

use super::super::request::Request;

/// Returns the rule that a request breaks, among those that Caddy does not enforce.
pub(super) fn malformed(request: &Request) -> Option<&'static str> {
    let host = request.values("host").next().unwrap_or_default();
    let rules = [
        ("RFC 9112 §3.2: a target has no fragment", request.target.contains('#')),
        ("RFC 9112 §3.2.4: only OPTIONS uses `*`", request.target == "*" && request.method != "OPTIONS"),
        (
            "RFC 9110 §4.2.1: a port is a valid TCP port",
            port(host).is_some_and(|port| !port.is_empty() && port.parse::<u16>().is_err()),
        ),
        ("RFC 3986 §3.2.2: brackets come in pairs", host.contains('[') != host.contains(']')),
        (
            "RFC 9110 §5.1: a field's name is a token",
            request.fields.iter().any(|line| !line.split(':').next().unwrap_or_default().bytes().all(is_token)),
        ),
        (
            "RFC 9112 §6.3: chunked is the last transfer coding",
            request.values("transfer-encoding").last().is_some_and(|coding| coding != "chunked"),
        ),
    ];
    rules.into_iter().find(|(_, broken)| *broken).map(|(rule, _)| rule)
}

fn port(host: &str) -> Option<&str> {
    host.rsplit_once(':').filter(|(_, port)| !port.contains(']')).map(|(_, port)| port)
}

/// Whether the byte is allowed in a token (RFC 9110 §5.6.2).
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broken_rules_are_named() {
        let mut request = Request::get(0, "a.test:80");
        assert_eq!(malformed(&request), None);
        for (line, rule) in [("Bad Name: 1", "RFC 9110 §5.1"), ("Transfer-Encoding: gzip", "RFC 9112 §6.3")] {
            request.fields.push(line.to_owned());
            assert!(malformed(&request).is_some_and(|broken| broken.starts_with(rule)), "{line}");
            request.fields.pop();
        }
        for (host, broken) in [
            ("a.test:", false),
            ("[::1]", false),
            ("[::1]:80", false),
            ("[::1", true),
            ("a:x", true),
            ("a:99999", true),
        ] {
            assert_eq!(malformed(&Request::get(0, host)).is_some(), broken, "{host}");
        }
        "*".clone_into(&mut request.target);
        assert!(malformed(&request).is_some());
    }
}
