//! Parses a URL's scheme, host and port as Go's `net/url` does, with its error messages.

use std::net::{Ipv4Addr, Ipv6Addr};

/// The parts of an upstream's URL.
pub(super) struct Url {
    /// In lower case.
    pub(super) scheme: String,
    /// Without brackets.
    pub(super) host: String,
    pub(super) port: String,
    /// Whether it also has a path, a query or a fragment.
    pub(super) has_more: bool,
}

pub(super) fn parse(text: &str) -> Result<Url, String> {
    let (url, fragment) = text.split_once('#').unwrap_or((text, ""));
    let mut parsed = without_fragment(url).map_err(|fault| format!("parse \"{url}\": {fault}"))?;
    parsed.has_more |= !fragment.is_empty();
    Ok(parsed)
}

fn without_fragment(text: &str) -> Result<Url, String> {
    if text.bytes().any(|byte| byte.is_ascii_control()) {
        return Err("net/url: invalid control character in URL".into());
    }
    let (scheme, rest) = scheme(text)?;
    let scheme = scheme.to_ascii_lowercase();
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let Some(authority) = rest.strip_prefix("//").filter(|_| !scheme.is_empty() || !rest.starts_with("///")) else {
        if !rest.starts_with('/') && !scheme.is_empty() {
            return Ok(Url { scheme, host: String::new(), port: String::new(), has_more: !query.is_empty() });
        }
        if !rest.starts_with('/') && rest.split('/').next().is_some_and(|segment| segment.contains(':')) {
            return Err("first path segment in URL cannot contain colon".into());
        }
        return Ok(Url { scheme, host: String::new(), port: String::new(), has_more: true });
    };
    let (authority, path) = authority.find('/').map_or((authority, ""), |slash| authority.split_at(slash));
    let (user, place) = authority.rsplit_once('@').unwrap_or(("", authority));
    let place = host(&scheme, place)?;
    if !user.chars().all(|ch| ch.is_ascii_alphanumeric() || "-._:~!$&'()*+,;=%@".contains(ch)) {
        return Err("net/url: invalid userinfo".into());
    }
    unescape(&user.replace('@', ""), |_| true)?;
    let (host, port) = match place.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => (host, port),
        _ => (&*place, ""),
    };
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let has_more = !path.is_empty() || !query.is_empty();
    let (host, port) = (host.to_owned(), port.to_owned());
    Ok(Url { scheme, host, port, has_more })
}

fn scheme(text: &str) -> Result<(&str, &str), String> {
    let end = text.find(|ch: char| !(ch.is_ascii_alphanumeric() || "+-.".contains(ch)));
    match end {
        Some(0) if text.starts_with(':') => Err("missing protocol scheme".into()),
        Some(end) if text[end..].starts_with(':') && text.starts_with(|ch: char| ch.is_ascii_alphabetic()) => {
            Ok((&text[..end], &text[end + 1..]))
        }
        _ => Ok(("", text)),
    }
}

/// Host and port, with brackets kept and escapes decoded.
fn host(scheme: &str, text: &str) -> Result<String, String> {
    let check_port = |port: &str| {
        let digits = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit());
        if port.is_empty() || port.strip_prefix(':').is_some_and(digits) {
            Ok(())
        } else {
            Err(format!("invalid port {port:?} after host"))
        }
    };
    match text.rfind('[') {
        Some(0) => {
            let end = text.rfind(']').ok_or("missing ']' in host")?;
            check_port(&text[end + 1..])?;
            let literal = &text[1..end];
            let zone = literal.find("%25").unwrap_or(literal.len());
            // In a zone the percent sign must be escaped, and many other bytes may be.
            let zone_byte = |byte| byte == b'%' || byte == b' ' || host_byte(byte);
            let literal = unescape(&literal[..zone], not_ascii)? + &unescape(&literal[zone..], zone_byte)?;
            let (address, zone) = literal.split_once('%').unwrap_or((&literal, "-"));
            if literal.parse::<Ipv4Addr>().is_ok() {
                return Err("invalid IP-literal".into());
            }
            if zone.is_empty() || address.parse::<Ipv6Addr>().is_err() {
                return Err(format!("invalid host: {literal:?} is no IPv6 address"));
            }
            return Ok(format!("[{literal}]{}", &text[end + 1..]));
        }
        Some(_) => return Err("invalid IP-literal".into()),
        None => {}
    }
    let colon = match scheme {
        "http" | "https" => text.find(':'),
        _ => text.rfind(':'),
    };
    check_port(&text[colon.unwrap_or(text.len())..])?;
    unescape(text, not_ascii)
}

fn host_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_.~!$&'()*+,;=:[]<>\"".contains(&byte)
}

fn not_ascii(byte: u8) -> bool {
    !byte.is_ascii()
}

/// Decodes escapes. An error for an escape of a byte that `may_be_escaped` rejects, and for an unescaped byte that is
/// not allowed in a host.
fn unescape(text: &str, may_be_escaped: fn(u8) -> bool) -> Result<String, String> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes().enumerate();
    while let Some((at, byte)) = bytes.next() {
        if byte != b'%' {
            if byte.is_ascii() && !host_byte(byte) {
                return Err(format!("invalid character {:?} in host name", char::from(byte).to_string()));
            }
            out.push(byte);
            continue;
        }
        let digits = text.get(at + 1..at + 3).filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()));
        let escaped = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        let Some(escaped) = escaped.filter(|escaped| *escaped == b'%' || may_be_escaped(*escaped)) else {
            let found: String = text[at..].chars().take(3).collect();
            return Err(format!("invalid URL escape {found:?}"));
        };
        out.push(escaped);
        bytes.nth(1);
    }
    Ok(String::from_utf8_lossy(&out).into_owned())
}
