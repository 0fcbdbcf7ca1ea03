//! The request target (RFC 9112 §3.2, RFC 9110 §7.1).

use std::error::Error;
use std::fmt;

use crate::path::{hex, push_escape};
use crate::syntax::parse_number;

/// The four forms of a request target (RFC 9112 §3.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TargetForm {
    /// `/path?query`
    #[default]
    Origin,
    /// `http://authority/path?query`
    Absolute,
    /// `host:port`, for CONNECT
    Authority,
    /// `*`, for OPTIONS
    Asterisk,
}

/// The reason why a text is not a request target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TargetError {
    /// The text has none of the four forms, or is longer than `u32::MAX` bytes.
    Form,
    /// A byte that a URI may not hold, a '#', or a '%' in the path that is not followed by two hexadecimal digits.
    Byte,
    /// The authority is empty or not `host[:port]`.
    Authority,
}

impl fmt::Display for TargetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Form => "the target has none of the forms of RFC 9112",
            Self::Byte => "the target contains an invalid character or escape",
            Self::Authority => "the target's authority is not a host with an optional port",
        })
    }
}

impl Error for TargetError {}

/// The offsets of a target's parts in its text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Parts {
    pub(crate) form: TargetForm,
    // The authority is `authority_at..path_at`, the path `path_at..path_end`; '?' and the query follow, if any.
    authority_at: u32,
    path_at: u32,
    path_end: u32,
    // Whether the path holds percent-escapes.
    pub(crate) escaped: bool,
}

/// A parsed request target. `Copy`: it borrows the text and holds the offsets of its parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target<'a> {
    text: &'a str,
    parts: Parts,
}

impl<'a> Target<'a> {
    /// Parses a target. Does not check which form the method allows. O(n), no allocation.
    ///
    /// DEVIATES RFC 3986 §3.4: `" < > \ ^ { | }` and the back quote in a query are accepted, because clients send them
    /// unencoded, and applications sign the query as they send it. Other bytes that some clients send unencoded are an
    /// error here; [`Head`](crate::Head) percent-encodes them: in a path `" < > \ ^ { | }`, the back quote and all
    /// bytes above 0x7f, in a query the bytes above 0x7f. A fragment is always an error.
    pub fn parse(text: &'a str) -> Result<Self, TargetError> {
        Ok(Self { text, parts: Parts::of(text.as_bytes())? })
    }

    pub(crate) fn of(text: &'a str, parts: Parts) -> Self {
        Self { text, parts }
    }

    /// Whether the target is valid for CONNECT: a host and a port other than 0 (RFC 9110 §9.3.6).
    #[must_use]
    pub fn is_host_and_port(self) -> bool {
        let port = self.text.rsplit_once(':').and_then(|(_, port)| parse_number(port.as_bytes()));
        self.form() == TargetForm::Authority && port.is_some_and(|port| port != 0)
    }

    /// The form of the target.
    #[must_use]
    pub const fn form(self) -> TargetForm {
        self.parts.form
    }

    /// The whole target, as received or encoded.
    #[must_use]
    pub const fn as_str(self) -> &'a str {
        self.text
    }

    /// The path, not decoded: "/" for an absolute target without a path, "*" for the asterisk form, "" for the
    /// authority form.
    #[must_use]
    pub fn path(self) -> &'a str {
        let path = &self.text[self.parts.path_at as usize..self.parts.path_end as usize];
        if path.is_empty() && self.parts.form == TargetForm::Absolute { "/" } else { path }
    }

    /// Whether the path holds percent-escapes. If not, decoding does not change it.
    #[must_use]
    pub const fn path_is_escaped(self) -> bool {
        self.parts.escaped
    }

    /// The text after the first '?'; `None` without a '?'.
    #[must_use]
    pub fn query(self) -> Option<&'a str> {
        self.text[self.parts.path_end as usize..].strip_prefix('?')
    }

    /// Whether the target is that of a request for a whole server, if the method is OPTIONS (RFC 9112 §3.2.4): `*`, or
    /// an absolute URI without a path and a query.
    #[must_use]
    pub const fn is_of_server(self) -> bool {
        match self.parts.form {
            TargetForm::Asterisk => true,
            TargetForm::Absolute => self.parts.path_at as usize == self.text.len(),
            TargetForm::Origin | TargetForm::Authority => false,
        }
    }

    /// The scheme of an absolute target, as spelled; `None` for the other forms.
    #[must_use]
    pub fn scheme(self) -> Option<&'a str> {
        (self.parts.form == TargetForm::Absolute).then(|| &self.text[..self.parts.authority_at as usize - 3])
    }

    /// The `host[:port]` of an absolute or authority target; `None` for the other forms.
    #[must_use]
    pub fn authority(self) -> Option<&'a str> {
        self.parts.names_authority().then(|| &self.text[self.parts.authority_at as usize..self.parts.path_at as usize])
    }
}

impl Parts {
    pub(crate) const fn names_authority(self) -> bool {
        matches!(self.form, TargetForm::Absolute | TargetForm::Authority)
    }

    /// The path within the bytes that `self` was parsed from.
    pub(crate) fn path_of(self, bytes: &[u8]) -> &[u8] {
        let path = &bytes[self.path_at as usize..self.path_end as usize];
        if path.is_empty() && self.form == TargetForm::Absolute { b"/" } else { path }
    }

    pub(crate) fn of(text: &[u8]) -> Result<Self, TargetError> {
        let len = u32::try_from(text.len()).map_err(|_| TargetError::Form)?;
        match text {
            [b'/', ..] => {
                let (path_end, escaped) = path_end(text, 0)?;
                Ok(Self { form: TargetForm::Origin, authority_at: 0, path_at: 0, path_end, escaped })
            }
            b"*" => Ok(Self { form: TargetForm::Asterisk, authority_at: 0, path_at: 0, path_end: len, escaped: false }),
            _ => Self::of_other(text),
        }
    }

    #[cold]
    fn of_other(text: &[u8]) -> Result<Self, TargetError> {
        let len = text.len() as u32;
        if let Some(scheme) = scheme_len(text) {
            // Skip "://".
            let from = scheme + 3;
            let end = text[from..].iter().position(|byte| matches!(byte, b'/' | b'?' | b'#'));
            let end = end.map_or(text.len(), |at| from + at);
            // RFC 9110 §4.2.1: an empty host is invalid; §4.2.4: so is userinfo, which `is_host_port` rejects.
            if from == end || text[from] == b':' || !is_host_port(&text[from..end]) {
                return Err(TargetError::Authority);
            }
            let (path_end, escaped) = path_end(text, end)?;
            let (authority_at, path_at) = (from as u32, end as u32);
            Ok(Self { form: TargetForm::Absolute, authority_at, path_at, path_end, escaped })
        } else if text.contains(&b':') && !text.contains(&b'/') && is_host_port(text) && text[0] != b':' {
            Ok(Self { form: TargetForm::Authority, authority_at: 0, path_at: len, path_end: len, escaped: false })
        } else {
            Err(TargetError::Form)
        }
    }
}

// The length of the scheme (RFC 3986 §3.1: a letter, then letters, digits, '+', '-', '.'), if "://" follows it.
fn scheme_len(text: &[u8]) -> Option<usize> {
    let len = text.iter().position(|byte| !(byte.is_ascii_alphanumeric() || b"+-.".contains(byte)))?;
    (len > 0 && text[0].is_ascii_alphabetic() && text[len..].starts_with(b"://")).then_some(len)
}

const IN_PATH: u8 = 1;
const IN_QUERY: u8 = 2;
const IN_HOST: u8 = 4;

// For each byte, the parts of a URI that may hold it unencoded (RFC 3986 appendix A, and the deviations of
// `Target::parse`).
static ALLOWED: [u8; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 128 {
        let o = byte as u8;
        let unreserved = o.is_ascii_alphanumeric() || matches!(o, b'-' | b'.' | b'_' | b'~');
        let sub_delim = matches!(o, b'!' | b'$' | b'&' | b'\'' | b'(' | b')' | b'*' | b'+' | b',' | b';' | b'=');
        if unreserved || sub_delim {
            table[byte] = IN_PATH | IN_QUERY | IN_HOST;
        } else if matches!(o, b':' | b'@' | b'/' | b'[' | b']') {
            table[byte] = IN_PATH | IN_QUERY;
        } else if matches!(o, b'?' | b'\\' | b'^' | b'`' | b'{' | b'}' | b'%' | b'"' | b'<' | b'>' | b'|') {
            table[byte] = IN_QUERY;
        }
        byte += 1;
    }
    table
};

/// Appends a target to `out` and percent-encodes, after the authority, the bytes that a URI may not hold but that
/// some clients send unencoded: printable ones except '#', and those above 0x7f. Any other forbidden byte, and a '%'
/// that begins no escape, is copied unchanged, so that parsing the result fails.
pub(crate) fn encode(text: &[u8], out: &mut Vec<u8>) {
    // The authority ends at the start of the path or query.
    let from = scheme_len(text).map_or(0, |scheme| {
        let authority = scheme + 3;
        text[authority..].iter().position(|byte| matches!(byte, b'/' | b'?')).map_or(text.len(), |at| authority + at)
    });
    let mut part = IN_PATH;
    out.extend_from_slice(&text[..from]);
    for &byte in &text[from..] {
        if byte == b'?' {
            part = IN_QUERY;
        }
        let is_raw = ALLOWED[usize::from(byte)] & part == 0 && (byte > 0x7f || byte.is_ascii_graphic());
        if is_raw && !matches!(byte, b'#' | b'%') {
            push_escape(byte, out);
        } else {
            out.push(byte);
        }
    }
}

/// Checks the path and the query. Returns the end of the path and whether the path has escapes.
fn path_end(text: &[u8], from: usize) -> Result<(u32, bool), TargetError> {
    let mut at = from;
    let mut escaped = false;
    loop {
        while at < text.len() && ALLOWED[usize::from(text[at])] & IN_PATH != 0 {
            at += 1;
        }
        match text[at..] {
            [] => return Ok((at as u32, escaped)),
            [b'%', high, low, ..] if hex(high).is_some() && hex(low).is_some() => {
                at += 3;
                escaped = true;
            }
            [b'?', ref query @ ..] => {
                let ok = query.iter().all(|&byte| ALLOWED[usize::from(byte)] & IN_QUERY != 0);
                return if ok { Ok((at as u32, escaped)) } else { Err(TargetError::Byte) };
            }
            _ => return Err(TargetError::Byte),
        }
    }
}

/// Whether `host` is a host of RFC 3986 §3.2.2: a registered name, an IPv4 address or a bracketed IPv6 address. May
/// be empty. O(n).
#[must_use]
pub fn is_host(host: &[u8]) -> bool {
    if let [b'[', inner @ .., b']'] = host {
        return std::str::from_utf8(inner)
            .is_ok_and(|inner| inner.parse::<std::net::Ipv6Addr>().is_ok() || is_future(inner));
    }
    let mut at = 0;
    while at < host.len() {
        match host[at..] {
            [b'%', high, low, ..] if hex(high).is_some() && hex(low).is_some() => at += 3,
            [byte, ..] if ALLOWED[usize::from(byte)] & IN_HOST != 0 => at += 1,
            _ => return false,
        }
    }
    true
}

// IPvFuture = "v" 1*HEXDIG "." 1*( unreserved / sub-delims / ":" )
fn is_future(inner: &str) -> bool {
    let Some((version, address)) = inner.strip_prefix(['v', 'V']).and_then(|rest| rest.split_once('.')) else {
        return false;
    };
    let address_ok = |byte: u8| byte == b':' || ALLOWED[usize::from(byte)] & IN_HOST != 0;
    !version.is_empty()
        && version.bytes().all(|digit| digit.is_ascii_hexdigit())
        && !address.is_empty()
        && address.bytes().all(address_ok)
}

/// Whether `text` is `host[:port]`, the value of a Host field (RFC 9110 §7.2). The host may be empty; the port may be
/// empty and is at most 65535. O(n).
#[must_use]
pub fn is_host_port(text: &[u8]) -> bool {
    // Fast path: a name or an IPv4 address without escapes needs one pass.
    let name = text.iter().take_while(|&&byte| ALLOWED[usize::from(byte)] & IN_HOST != 0).count();
    match &text[name..] {
        [] => return true,
        [b':', port @ ..] => return is_port(port),
        _ => {}
    }
    // The colons inside a bracketed IPv6 address do not begin the port.
    let after_bracket = if text.first() == Some(&b'[') { text.iter().position(|&byte| byte == b']') } else { Some(0) };
    let Some(from) = after_bracket else { return false };
    let host_end = text[from..].iter().position(|&byte| byte == b':').map_or(text.len(), |at| from + at);
    let (host, port) = text.split_at(host_end);
    let port = port.get(1..).unwrap_or_default();
    is_host(host) && is_port(port)
}

fn is_port(port: &[u8]) -> bool {
    port.is_empty() || parse_number(port).is_some_and(|port| port <= 65535)
}

#[cfg(test)]
mod tests {
    use super::*;

    type ExpectedTarget<'a> = (TargetForm, &'a str, Option<&'a str>, Option<&'a str>, Option<&'a str>);

    #[track_caller]
    fn check(cases: &[(&str, Result<ExpectedTarget<'_>, TargetError>)]) {
        for (text, want) in cases {
            let got = Target::parse(text).map(|t| (t.form(), t.path(), t.query(), t.scheme(), t.authority()));
            assert_eq!(got, *want, "{text:?}");
        }
    }

    #[test]
    fn rfc9112_3_2_forms() {
        use TargetForm::*;
        check(&[
            ("/", Ok((Origin, "/", None, None, None))),
            ("/a/b?c=d?e/f", Ok((Origin, "/a/b", Some("c=d?e/f"), None, None))),
            ("/?", Ok((Origin, "/", Some(""), None, None))),
            ("//x/y", Ok((Origin, "//x/y", None, None, None))),
            ("/%41:@!$&'()*+,;=[]~", Ok((Origin, "/%41:@!$&'()*+,;=[]~", None, None, None))),
            ("/?q={\\^`|}%zz", Ok((Origin, "/", Some("q={\\^`|}%zz"), None, None))),
            ("*", Ok((Asterisk, "*", None, None, None))),
            ("http://a.test", Ok((Absolute, "/", None, Some("http"), Some("a.test")))),
            ("http://a.test?x=1", Ok((Absolute, "/", Some("x=1"), Some("http"), Some("a.test")))),
            ("HTTPS://a:8/b?c", Ok((Absolute, "/b", Some("c"), Some("HTTPS"), Some("a:8")))),
            ("http://[::1]:80/", Ok((Absolute, "/", None, Some("http"), Some("[::1]:80")))),
            ("a.test:443", Ok((Authority, "", None, None, Some("a.test:443")))),
            ("[::1]:443", Ok((Authority, "", None, None, Some("[::1]:443")))),
        ]);
    }

    // RFC 9110 §9.3.6: the target of CONNECT has a port other than 0.
    #[test]
    fn destinations_of_tunnels() {
        for (text, want) in
            [("a.test:443", true), ("[::1]:1", true), ("a.test:0", false), ("/:443", false), ("http://a:1", false)]
        {
            assert_eq!(Target::parse(text).unwrap().is_host_and_port(), want, "{text}");
        }
    }

    #[test]
    fn rfc9112_3_2_refused() {
        use TargetError::*;
        for (text, want) in [
            ("", Form),
            ("a", Form),
            ("../a", Form),
            ("**", Form),
            ("a/b:1", Form),
            (":80", Form),
            ("http:/a", Form),
            ("1http://a/", Form),
            ("http://", Authority),
            ("http:///p", Authority),
            ("http://:80/p", Authority),
            ("http://u@a/", Authority),
            ("http://a:b/", Authority),
            ("http://a:65536/", Authority),
            ("http://[::1/", Authority),
            ("/a#b", Byte),
            ("/a?b#c", Byte),
            ("/a b", Byte),
            ("/a\u{7f}", Byte),
            ("/ü", Byte),
            ("/?ü", Byte),
            ("/a\\b", Byte),
            ("/{x}", Byte),
            ("/<x>", Byte),
            ("/%u002e", Byte),
            ("/%4", Byte),
        ] {
            assert_eq!(Target::parse(text), Err(want), "{text:?}");
        }
    }

    // RFC 3986 §2.1: a byte that a part may not hold is percent-encoded. Other servers accept such targets too.
    #[test]
    fn raw_bytes_are_encoded() {
        for (raw, want) in [
            ("/é", Ok("/%C3%A9")),
            ("/{x}", Ok("/%7Bx%7D")),
            ("/a\"b<c>d\\e^f`g|h", Ok("/a%22b%3Cc%3Ed%5Ce%5Ef%60g%7Ch")),
            ("/?q=\"x\"&<é>{\\^`|}%zz", Ok("/?q=\"x\"&<%C3%A9>{\\^`|}%zz")),
            ("/é?é?/{", Ok("/%C3%A9?%C3%A9?/{")),
            ("/%41{", Ok("/%41%7B")),
            ("http://a.test/é", Ok("http://a.test/%C3%A9")),
            ("http://a.test?é", Ok("http://a.test?%C3%A9")),
            ("http://é/", Err(TargetError::Authority)),
            ("é:80", Err(TargetError::Form)),
            ("é", Err(TargetError::Form)),
            ("/é#b", Err(TargetError::Byte)),
            ("/é?#", Err(TargetError::Byte)),
            ("/é b", Err(TargetError::Byte)),
            ("/é\u{7f}", Err(TargetError::Byte)),
            ("/é%4", Err(TargetError::Byte)),
        ] {
            let mut head = crate::Head::new();
            head.set_target("/before").unwrap();
            let set = head.set_target(raw);
            assert_eq!(set.map(|()| head.target().as_str()), want, "{raw:?}");
            if set.is_err() {
                assert_eq!(head.target().as_str(), "/before", "{raw:?}");
            }
        }
        let mut head = crate::Head::new();
        head.set_target(b"/\xff\x80").unwrap();
        assert_eq!(head.target().as_str(), "/%FF%80");
    }

    #[test]
    fn rfc9110_7_2_host_values() {
        for good in [
            "",
            "localhost",
            "a.test:8080",
            "foo-bar_baz.test",
            "a:",
            "127.0.0.1:1",
            "[::1]",
            "[::1]:80",
            "a%41",
            "[v1.x]",
        ] {
            assert!(is_host_port(good.as_bytes()), "{good:?}");
        }
        for bad in [
            "a/x", "a b", "[::1", "::1", "a:b", "a:-1", "a:65536", "a@b", "a\\x", "a,b", "[::g]", "[]", "a%4", "ü",
            "a\0", "a:80:80", "[::1]x",
        ] {
            // A comma is a sub-delim, which RFC 3986 allows in a registered name.
            let comma = bad == "a,b";
            assert_eq!(is_host_port(bad.as_bytes()), comma, "{bad:?}");
        }
    }

    // RFC 9112 §3.2.4: without a path and a query.
    #[test]
    fn targets_of_a_server() {
        for (target, want) in [
            ("*", true),
            ("http://a.test", true),
            ("http://a.test:81", true),
            ("http://a.test/", false),
            ("http://a.test?q", false),
            ("/", false),
            ("a.test:81", false),
        ] {
            assert_eq!(Target::parse(target).unwrap().is_of_server(), want, "{target}");
        }
    }
}
