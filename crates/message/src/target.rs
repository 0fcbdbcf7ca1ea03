//! What a request asks for (RFC 9112 §3.2, RFC 9110 §7.1).

use crate::octets::parse_number;
use crate::path::hex;

/// The four shapes of a request target (RFC 9112 §3.2).
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

/// A text that is no request target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BadTarget {
    /// None of the four forms.
    Form,
    /// An octet that a URI may not hold, or a '%' without two hexadecimal digits in the path.
    Octet,
    /// The authority is empty or no `host[:port]`.
    Authority,
}

/// Where a target's parts lie within its text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Parts {
    pub(crate) form: TargetForm,
    // The authority runs from `authority_at` to `path_at`, the path on to `path_end`; then '?' and the query, if any.
    authority_at: u32,
    path_at: u32,
    path_end: u32,
    // The path holds percent escapes.
    pub(crate) escaped: bool,
}

/// A request target, taken apart. A view: copying it copies a few words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target<'a> {
    text: &'a str,
    parts: Parts,
}

impl<'a> Target<'a> {
    /// Takes a target apart. Which method may have which form is not asked here. O(n), no allocation.
    ///
    /// DEVIATES RFC 3986 §3.3, §3.4: '|' in a path and `\ ^ { | }` and the back quote in a query pass, because browsers send them as
    /// they are. A fragment never passes.
    pub fn parse(text: &'a str) -> Result<Self, BadTarget> {
        Ok(Self { text, parts: Parts::of(text.as_bytes())? })
    }

    pub(crate) fn of(text: &'a str, parts: Parts) -> Self {
        Self { text, parts }
    }

    /// Whether this is where a tunnel of CONNECT may lead: a host and a port other than 0 (RFC 9110 §9.3.6).
    #[must_use]
    pub fn is_host_and_port(self) -> bool {
        let port = self.text.rsplit_once(':').and_then(|(_, port)| parse_number(port.as_bytes()));
        self.form() == TargetForm::Authority && port.is_some_and(|port| port != 0)
    }

    /// Its form.
    #[must_use]
    pub const fn form(self) -> TargetForm {
        self.parts.form
    }

    /// The whole of it.
    #[must_use]
    pub const fn as_str(self) -> &'a str {
        self.text
    }

    /// The path, not decoded: "/" for an absolute target without one, "*" for the asterisk, "" for an authority.
    #[must_use]
    pub fn path(self) -> &'a str {
        let path = &self.text[self.parts.path_at as usize..self.parts.path_end as usize];
        if path.is_empty() && self.parts.form == TargetForm::Absolute { "/" } else { path }
    }

    /// Whether the path holds percent escapes; if not, decoding it changes nothing.
    #[must_use]
    pub const fn path_is_escaped(self) -> bool {
        self.parts.escaped
    }

    /// What follows the first '?'; `None` without one.
    #[must_use]
    pub fn query(self) -> Option<&'a str> {
        self.text[self.parts.path_end as usize..].strip_prefix('?')
    }

    /// An absolute target's scheme, as spelled.
    #[must_use]
    pub fn scheme(self) -> Option<&'a str> {
        (self.parts.form == TargetForm::Absolute).then(|| &self.text[..self.parts.authority_at as usize - 3])
    }

    /// The `host[:port]` of an absolute target or of an authority.
    #[must_use]
    pub fn authority(self) -> Option<&'a str> {
        self.parts.names_authority().then(|| &self.text[self.parts.authority_at as usize..self.parts.path_at as usize])
    }
}

impl Parts {
    pub(crate) const fn names_authority(self) -> bool {
        matches!(self.form, TargetForm::Absolute | TargetForm::Authority)
    }

    /// The path within the octets that were taken apart.
    pub(crate) fn path_of(self, octets: &[u8]) -> &[u8] {
        let path = &octets[self.path_at as usize..self.path_end as usize];
        if path.is_empty() && self.form == TargetForm::Absolute { b"/" } else { path }
    }

    pub(crate) fn of(text: &[u8]) -> Result<Self, BadTarget> {
        let len = u32::try_from(text.len()).map_err(|_| BadTarget::Form)?;
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
    fn of_other(text: &[u8]) -> Result<Self, BadTarget> {
        let len = text.len() as u32;
        if let Some(scheme) = scheme_len(text) {
            let from = scheme + 3;
            let end = text[from..].iter().position(|octet| matches!(octet, b'/' | b'?' | b'#'));
            let end = end.map_or(text.len(), |at| from + at);
            // RFC 9110 §4.2.1: an empty host is invalid; §4.2.4: so is userinfo, which `is_host_port` does not know.
            if from == end || text[from] == b':' || !is_host_port(&text[from..end]) {
                return Err(BadTarget::Authority);
            }
            let (path_end, escaped) = path_end(text, end)?;
            let (authority_at, path_at) = (from as u32, end as u32);
            Ok(Self { form: TargetForm::Absolute, authority_at, path_at, path_end, escaped })
        } else if text.contains(&b':') && !text.contains(&b'/') && is_host_port(text) && text[0] != b':' {
            Ok(Self { form: TargetForm::Authority, authority_at: 0, path_at: len, path_end: len, escaped: false })
        } else {
            Err(BadTarget::Form)
        }
    }
}

// RFC 3986 §3.1: a letter, then letters, digits, '+', '-', '.'; here always followed by "://".
fn scheme_len(text: &[u8]) -> Option<usize> {
    let len = text.iter().position(|octet| !(octet.is_ascii_alphanumeric() || b"+-.".contains(octet)))?;
    (len > 0 && text[0].is_ascii_alphabetic() && text[len..].starts_with(b"://")).then_some(len)
}

const IN_PATH: u8 = 1;
const IN_QUERY: u8 = 2;
const IN_HOST: u8 = 4;

// RFC 3986 appendix A.
static ALLOWED: [u8; 256] = {
    let mut table = [0; 256];
    let mut octet = 0;
    while octet < 128 {
        let o = octet as u8;
        let unreserved = o.is_ascii_alphanumeric() || matches!(o, b'-' | b'.' | b'_' | b'~');
        let sub_delim = matches!(o, b'!' | b'$' | b'&' | b'\'' | b'(' | b')' | b'*' | b'+' | b',' | b';' | b'=');
        if unreserved || sub_delim {
            table[octet] = IN_PATH | IN_QUERY | IN_HOST;
        } else if matches!(o, b':' | b'@' | b'/' | b'[' | b']' | b'|') {
            table[octet] = IN_PATH | IN_QUERY;
        } else if matches!(o, b'?' | b'\\' | b'^' | b'`' | b'{' | b'}' | b'%') {
            table[octet] = IN_QUERY;
        }
        octet += 1;
    }
    table
};

/// Checks path and query; answers where the path ends.
fn path_end(text: &[u8], from: usize) -> Result<(u32, bool), BadTarget> {
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
                let ok = query.iter().all(|&octet| ALLOWED[usize::from(octet)] & IN_QUERY != 0);
                return if ok { Ok((at as u32, escaped)) } else { Err(BadTarget::Octet) };
            }
            _ => return Err(BadTarget::Octet),
        }
    }
}

/// Whether this is a host as RFC 3986 §3.2.2 has it: a registered name, an IPv4 address or a bracketed IPv6 address.
/// May be empty. O(n).
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
            [octet, ..] if ALLOWED[usize::from(octet)] & IN_HOST != 0 => at += 1,
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
    let address_ok = |octet: u8| octet == b':' || ALLOWED[usize::from(octet)] & IN_HOST != 0;
    !version.is_empty()
        && version.bytes().all(|digit| digit.is_ascii_hexdigit())
        && !address.is_empty()
        && address.bytes().all(address_ok)
}

/// Whether this is `host[:port]`, as a Host field has it (RFC 9110 §7.2): the host may be empty, the port is empty or at most
/// 65535. O(n).
#[must_use]
pub fn is_host_port(text: &[u8]) -> bool {
    // The common case in one pass: a name or an IPv4 address without escapes.
    let name = text.iter().take_while(|&&octet| ALLOWED[usize::from(octet)] & IN_HOST != 0).count();
    match &text[name..] {
        [] => return true,
        [b':', port @ ..] => return is_port(port),
        _ => {}
    }
    let after_bracket =
        if text.first() == Some(&b'[') { text.iter().position(|&octet| octet == b']') } else { Some(0) };
    let Some(from) = after_bracket else { return false };
    let host_end = text[from..].iter().position(|&octet| octet == b':').map_or(text.len(), |at| from + at);
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

    type Wanted<'a> = (TargetForm, &'a str, Option<&'a str>, Option<&'a str>, Option<&'a str>);

    #[track_caller]
    fn check(cases: &[(&str, Result<Wanted<'_>, BadTarget>)]) {
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
            ("/%41:@!$&'()*+,;=|[]~", Ok((Origin, "/%41:@!$&'()*+,;=|[]~", None, None, None))),
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

    // RFC 9110 §9.3.6: CONNECT's target has a port, and it is not 0.
    #[test]
    fn where_a_tunnel_leads() {
        for (text, want) in
            [("a.test:443", true), ("[::1]:1", true), ("a.test:0", false), ("/:443", false), ("http://a:1", false)]
        {
            assert_eq!(Target::parse(text).unwrap().is_host_and_port(), want, "{text}");
        }
    }

    #[test]
    fn rfc9112_3_2_refused() {
        use BadTarget::*;
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
            ("/a#b", Octet),
            ("/a?b#c", Octet),
            ("/a b", Octet),
            ("/a\u{7f}", Octet),
            ("/ü", Octet),
            ("/?ü", Octet),
            ("/a\\b", Octet),
            ("/{x}", Octet),
            ("/<x>", Octet),
            ("/?\"", Octet),
            ("/%u002e", Octet),
            ("/%4", Octet),
        ] {
            assert_eq!(Target::parse(text), Err(want), "{text:?}");
        }
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
            // A comma is a sub-delim: RFC 3986 lets a registered name have it.
            let comma = bad == "a,b";
            assert_eq!(is_host_port(bad.as_bytes()), comma, "{bad:?}");
        }
    }
}
