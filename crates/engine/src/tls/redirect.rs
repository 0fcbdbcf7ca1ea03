//! Redirects a request in cleartext that arrives at a listener with TLS (Caddy's listener wrapper `http_redirect`).

/// Returns whether the head is incomplete and may still become complete within `max` bytes.
pub(super) fn is_cut(bytes: &[u8], max: usize) -> bool {
    end(bytes).is_none() && bytes.len() < max
}

/// Returns whether the head is longer than `max` bytes.
pub(super) fn is_too_long(bytes: &[u8], max: usize) -> bool {
    match end(bytes) {
        Some(end) => end > max,
        None => bytes.len() >= max,
    }
}

/// Returns the response to a complete head of at most `max` bytes; `None` if its host or target is not valid.
pub(super) fn answer(bytes: &[u8], max: usize) -> Option<Vec<u8>> {
    let head = std::str::from_utf8(&bytes[..end(bytes).filter(|&end| end <= max)?]).ok()?;
    let mut lines = head.split("\r\n");
    let mut words = lines.next()?.split(' ');
    let (target, version) = (words.nth(1)?, words.next()?);
    if !version.starts_with("HTTP/1.") || words.next().is_some() {
        return None;
    }
    let mut hosts = lines.filter_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("host").then(|| value.trim_matches([' ', '\t']))
    });
    // RFC 9112 §3.2: a request has one host.
    let host = hosts.next().filter(|host| is_host(host))?;
    let is_path = target.starts_with('/') && target.bytes().all(|byte| byte.is_ascii_graphic());
    if hosts.next().is_some() || !is_path {
        return None;
    }
    let fields = "Content-Length: 0\r\nConnection: close";
    Some(format!("HTTP/1.1 308 Permanent Redirect\r\nLocation: https://{host}{target}\r\n{fields}\r\n\r\n").into())
}

/// The index after the head's last line break.
fn end(bytes: &[u8]) -> Option<usize> {
    bytes.windows(4).position(|four| four == b"\r\n\r\n").map(|at| at + 4)
}

/// Whether the text is a host with or without a port, and nothing else: it becomes the authority of a URI.
fn is_host(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._~[]:".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    // Caddy, http_redirect: the same host and target, with the scheme https.
    #[test]
    fn responses() {
        for (head, want) in [
            ("GET /a?b HTTP/1.1\r\nA: b\r\nhost: a.test:8443\r\n\r\nrest", Some("https://a.test:8443/a?b")),
            ("HEAD / HTTP/1.0\r\nHost: [::1]\r\n\r\n", Some("https://[::1]/")),
            ("GET / HTTP/1.1\r\n\r\n", None),
            ("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", None),
            ("GET / HTTP/1.1\r\nHost: a@b\r\n\r\n", None),
            ("GET / HTTP/1.1\r\nHost: a\rb\r\n\r\n", None),
            ("GET /\u{e4} HTTP/1.1\r\nHost: a\r\n\r\n", None),
            ("GET / b HTTP/1.1\r\nHost: a\r\n\r\n", None),
            ("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", None),
            ("GET /\r\nHost: a\r\n\r\n", None),
        ] {
            let whole = head.find("\r\n\r\n").unwrap() + 4;
            for end in 0..whole {
                assert!(is_cut(&head.as_bytes()[..end], 1000), "{head} cut at {end}");
            }
            assert!(!is_cut(&head.as_bytes()[..whole], 1000) && !is_cut(&head.as_bytes()[..10], 10));
            assert!(
                !is_too_long(&head.as_bytes()[..whole], whole) && is_too_long(&head.as_bytes()[..whole], whole - 1)
            );
            assert!(is_too_long(&head.as_bytes()[..10], 10));
            let answer = answer(head.as_bytes(), 1000);
            let location = answer.as_deref().map(|bytes| {
                let text = std::str::from_utf8(bytes).unwrap();
                assert!(text.ends_with("\r\n\r\n"));
                text.split("Location: ").nth(1).unwrap().split("\r\n").next().unwrap()
            });
            assert_eq!(location, want, "{head}");
            assert_eq!(super::answer(head.as_bytes(), 10), None, "longer than the limit");
        }
    }
}
