//! Cookies: those to set (RFC 6265 §4.1, RFC 6265bis for SameSite), and those of a request.

use crate::syntax::{is_token, write_number};

/// The cross-site requests to which a browser adds the cookie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SameSite {
    /// No cross-site request
    Strict,
    /// Top-level navigations only
    Lax,
    /// All cross-site requests; the cookie must be `Secure`
    None,
}

/// A cookie to set, with its attributes.
///
/// ```
/// use causeway_message::{Cookie, ResponseHead, SameSite, StatusCode, names};
/// let mut head = ResponseHead::new(StatusCode::OK);
/// let cookie = Cookie::new("id", "7").unwrap().path("/").unwrap().max_age(60).http_only().same_site(SameSite::Lax);
/// head.set_cookie(&cookie);
/// assert_eq!(head.fields().get(names::SET_COOKIE), Some(&b"id=7; Path=/; Max-Age=60; HttpOnly; SameSite=Lax"[..]));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Cookie<'a> {
    name: &'a str,
    value: &'a str,
    path: Option<&'a str>,
    domain: Option<&'a str>,
    max_age: Option<u64>,
    secure: bool,
    http_only: bool,
    same_site: Option<SameSite>,
}

impl<'a> Cookie<'a> {
    /// A session cookie. `None` when the name is not a token or the value holds a byte that a cookie may not (RFC
    /// 6265 §4.1.1: no control byte, white space, quote, comma, semicolon or backslash).
    #[must_use]
    pub fn new(name: &'a str, value: &'a str) -> Option<Self> {
        let allowed = |o: u8| matches!(o, 0x21 | 0x23..=0x2b | 0x2d..=0x3a | 0x3c..=0x5b | 0x5d..=0x7e);
        (is_token(name.as_bytes()) && value.bytes().all(allowed)).then_some(Self {
            name,
            value,
            path: None,
            domain: None,
            max_age: None,
            secure: false,
            http_only: false,
            same_site: None,
        })
    }

    /// Limits the cookie to this path and the paths below it. `None` when `path` holds a byte outside 0x20..=0x7e or
    /// a semicolon, or ends with a space.
    #[must_use]
    pub fn path(self, path: &'a str) -> Option<Self> {
        is_attribute(path).then_some(Self { path: Some(path), ..self })
    }

    /// Extends the cookie to this domain and its subdomains. `None` when `domain` holds a byte outside 0x20..=0x7e or
    /// a semicolon, or ends with a space.
    #[must_use]
    pub fn domain(self, domain: &'a str) -> Option<Self> {
        is_attribute(domain).then_some(Self { domain: Some(domain), ..self })
    }

    /// Sets the lifetime in seconds; 0 deletes the cookie.
    #[must_use]
    pub fn max_age(self, seconds: u64) -> Self {
        Self { max_age: Some(seconds), ..self }
    }

    /// Restricts the cookie to TLS connections.
    #[must_use]
    pub fn secure(self) -> Self {
        Self { secure: true, ..self }
    }

    /// Hides the cookie from scripts.
    #[must_use]
    pub fn http_only(self) -> Self {
        Self { http_only: true, ..self }
    }

    /// Limits the cross-site requests to which the browser adds the cookie.
    #[must_use]
    pub fn same_site(self, same_site: SameSite) -> Self {
        Self { same_site: Some(same_site), ..self }
    }

    /// Appends the Set-Cookie value to `out`.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        let mut put = |parts: &[&str]| parts.iter().for_each(|part| out.extend_from_slice(part.as_bytes()));
        put(&[self.name, "=", self.value]);
        if let Some(path) = self.path {
            put(&["; Path=", path]);
        }
        if let Some(domain) = self.domain {
            put(&["; Domain=", domain]);
        }
        if let Some(seconds) = self.max_age {
            let mut digits = [0; 20];
            put(&["; Max-Age=", std::str::from_utf8(write_number(seconds, &mut digits)).unwrap_or("0")]);
        }
        if self.secure {
            put(&["; Secure"]);
        }
        if self.http_only {
            put(&["; HttpOnly"]);
        }
        match self.same_site {
            None => {}
            Some(SameSite::Strict) => put(&["; SameSite=Strict"]),
            Some(SameSite::Lax) => put(&["; SameSite=Lax"]),
            Some(SameSite::None) => put(&["; SameSite=None"]),
        }
    }
}

// RFC 6265 §4.1.1: av-byte is a visible byte or space, not a semicolon. No space at the end, which a field value may
// not have.
fn is_attribute(text: &str) -> bool {
    text.bytes().all(|byte| matches!(byte, b' '..=b'~') && byte != b';') && !text.ends_with(' ')
}

/// Returns the name and the value of each cookie of a `Cookie` field's value (RFC 6265 §5.4), the value without quotes.
/// As in Go, a pair without `=` has an empty value, and a pair is no cookie if its name is not a token or its value has
/// a byte that RFC 6265 §4.1.1 excludes; a space and a comma are allowed. O(n).
pub fn cookies(field: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    field.split(|&byte| byte == b';').map(<[u8]>::trim_ascii).filter_map(|pair| {
        let end = pair.iter().position(|&byte| byte == b'=').unwrap_or(pair.len());
        let (name, value) = (pair[..end].trim_ascii(), pair.get(end + 1..).unwrap_or_default());
        let value = value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\"")).unwrap_or(value);
        let is_allowed = |byte: &u8| matches!(byte, b' '..=b'~') && !b"\"\\".contains(byte);
        (is_token(name) && value.iter().all(is_allowed)).then_some((name, value))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    // Go, net/http: readCookies.
    #[test]
    fn cookies_of_a_request() {
        for (field, want) in [
            (&b""[..], &[][..]),
            (b"a=1; b=\"2\";c=;;d", &[(&b"a"[..], &b"1"[..]), (b"b", b"2"), (b"c", b""), (b"d", b"")]),
            (b"a = 1 2,3;a=x=y", &[(b"a", b" 1 2,3"), (b"a", b"x=y")]),
            (b"a=\"; b=1\"2; c=\\; d=\xc3\xa9; e=\x7f; f g=1; =x; h=ok", &[(b"h", b"ok")]),
        ] {
            let got: Vec<_> = cookies(field).collect();
            assert_eq!(got, want, "{}", field.escape_ascii());
        }
    }

    #[test]
    fn rfc6265_4_1_1_bytes() {
        assert!(Cookie::new("a", "").is_some());
        for (name, value) in
            [("", "x"), ("a b", "x"), ("a", "x;y"), ("a", "x y"), ("a", "x\r\n"), ("a", "\"x\""), ("a", "ü")]
        {
            assert!(Cookie::new(name, value).is_none(), "{name:?} {value:?}");
        }
        let cookie = Cookie::new("a", "x").unwrap();
        assert!(cookie.path("/; Domain=evil").is_none() && cookie.domain("a\r\nX: y").is_none());
        let mut out = Vec::new();
        cookie.domain("a.test").unwrap().secure().same_site(SameSite::None).write(&mut out);
        assert_eq!(out, b"a=x; Domain=a.test; Secure; SameSite=None");
    }
}
