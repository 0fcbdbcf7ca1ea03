//! URLs, as Go's package `net/url` reads and writes them.

use std::fmt::Write as _;
use std::net::Ipv6Addr;

use super::{fixed, text};
use crate::error::FunctionError;
use crate::format::quoted;
use crate::functions::{Builtin, CallContext, Type};
use crate::value::{Map, Value};

pub(super) static BUILTINS: &[Builtin] = &[
    fixed("urlJoin", &[Type::Map], join),
    fixed("urlParse", &[Type::String], |call, args| {
        call.charge_memory(8 * text(&args[0]).len() + 1024)?;
        let url = Url::parse(text(&args[0])).map_err(|error| format!("unable to parse url: {error}"))?;
        Ok(Value::map([
            ("scheme", url.scheme.into()),
            ("host", Value::from(&*url.host)),
            ("hostname", hostname(&url.host).into()),
            ("path", url.path.into()),
            ("query", url.query.into()),
            ("opaque", url.opaque.into()),
            ("fragment", url.fragment.into()),
            ("userinfo", url.user.map(|user| user.to_bytes()).unwrap_or_default().into()),
        ]))
    }),
];

/// A part of a URL, which has its own characters that are escaped.
#[derive(Clone, Copy, Eq, PartialEq)]
enum UrlPart {
    Fragment,
    Host,
    Path,
    User,
    Zone,
}

/// The parts of a URL. All but `opaque` and `query` are without escapes.
#[derive(Default)]
struct Url {
    scheme: Vec<u8>,
    opaque: Vec<u8>,
    user: Option<UserAndPassword>,
    host: Vec<u8>,
    path: Vec<u8>,
    query: Vec<u8>,
    fragment: Vec<u8>,
}

struct UserAndPassword {
    user: Vec<u8>,
    password: Option<Vec<u8>>,
}

fn is_kept(byte: u8, part: UrlPart) -> bool {
    if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
        return true;
    }
    match part {
        UrlPart::Host | UrlPart::Zone => b"!$&'()*+,;=:[]<>\"".contains(&byte),
        UrlPart::Path => b"$&+,/:;=@".contains(&byte),
        UrlPart::User => b"$&+,;=".contains(&byte),
        UrlPart::Fragment => b"$&+,/:;=?@!()*".contains(&byte),
    }
}

fn escape(text: &[u8], part: UrlPart) -> Vec<u8> {
    let mut out = Vec::new();
    for byte in text {
        if is_kept(*byte, part) {
            out.push(*byte);
        } else {
            out.extend_from_slice(format!("%{byte:02X}").as_bytes());
        }
    }
    out
}

fn unescape(text: &[u8], part: UrlPart) -> Result<Vec<u8>, String> {
    let mut out = Vec::new();
    let mut rest = text;
    while let Some((&byte, after)) = rest.split_first() {
        if byte != b'%' {
            let is_refused = matches!(part, UrlPart::Host | UrlPart::Zone) && byte.is_ascii() && !is_kept(byte, part);
            if is_refused {
                return Err(format!("invalid character {} in host name", quoted(&[byte])));
            }
            out.push(byte);
            rest = after;
            continue;
        }
        let error = || format!("invalid URL escape {}", quoted(&rest[..rest.len().min(3)]));
        let digit = |index: usize| after.get(index).and_then(|byte| char::from(*byte).to_digit(16)).ok_or_else(error);
        let decoded = (digit(0)? << 4 | digit(1)?) as u8;
        // RFC 6874: a host's name has escapes for other bytes than ASCII only, and `%25` before the zone of an address.
        let is_allowed = match part {
            UrlPart::Host => !decoded.is_ascii() || decoded == b'%',
            UrlPart::Zone => matches!(decoded, b'%' | b' ') || is_kept(decoded, UrlPart::Host),
            _ => true,
        };
        if !is_allowed {
            return Err(error());
        }
        out.push(decoded);
        rest = &after[2..];
    }
    Ok(out)
}

/// Cuts at the first separator.
fn cut(text: &[u8], separator: u8) -> (&[u8], Option<&[u8]>) {
    match text.iter().position(|byte| *byte == separator) {
        Some(at) => (&text[..at], Some(&text[at + 1..])),
        None => (text, None),
    }
}

impl Url {
    fn parse(text: &[u8]) -> Result<Self, String> {
        let (rest, fragment) = cut(text, b'#');
        let mut url = Self::without_fragment(rest).map_err(|error| format!("parse {}: {error}", quoted(rest)))?;
        url.fragment = unescape(fragment.unwrap_or_default(), UrlPart::Fragment)
            .map_err(|error| format!("parse {}: {error}", quoted(text)))?;
        Ok(url)
    }

    fn without_fragment(text: &[u8]) -> Result<Self, String> {
        if text.iter().any(u8::is_ascii_control) {
            return Err("net/url: invalid control character in URL".to_owned());
        }
        let mut url = Self::default();
        if text == b"*" {
            url.path = text.to_vec();
            return Ok(url);
        }
        let (scheme, rest) = scheme(text)?;
        url.scheme = scheme.to_ascii_lowercase();
        let (mut rest, query) = cut(rest, b'?');
        url.query = query.unwrap_or_default().to_vec();
        if !rest.starts_with(b"/") {
            // RFC 3986 §3: after a scheme, a path without a root is opaque.
            if !scheme.is_empty() {
                url.opaque = rest.to_vec();
                return Ok(url);
            }
            if cut(rest, b'/').0.contains(&b':') {
                return Err("first path segment in URL cannot contain colon".to_owned());
            }
        }
        let has_authority = rest.starts_with(b"//") && (!scheme.is_empty() || !rest.starts_with(b"///"));
        if has_authority {
            let end = rest[2..].iter().position(|byte| *byte == b'/').map_or(rest.len(), |slash| slash + 2);
            url.authority(&rest[2..end])?;
            rest = &rest[end..];
        }
        url.path = unescape(rest, UrlPart::Path)?;
        Ok(url)
    }

    fn authority(&mut self, text: &[u8]) -> Result<(), String> {
        let at = text.iter().rposition(|byte| *byte == b'@');
        self.host = host(&self.scheme, &text[at.map_or(0, |at| at + 1)..])?;
        let Some(userinfo) = at.map(|at| &text[..at]) else { return Ok(()) };
        if !userinfo.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-._:~!$&'()*+,;=%@".contains(byte)) {
            return Err("net/url: invalid userinfo".to_owned());
        }
        let (user, password) = cut(userinfo, b':');
        let password = password.map(|password| unescape(password, UrlPart::User)).transpose()?;
        self.user = Some(UserAndPassword { user: unescape(user, UrlPart::User)?, password });
        Ok(())
    }

    fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        if !self.scheme.is_empty() {
            out.extend_from_slice(&self.scheme);
            out.push(b':');
        }
        if self.opaque.is_empty() {
            if !self.host.is_empty() || self.user.is_some() || !self.scheme.is_empty() && !self.path.is_empty() {
                out.extend_from_slice(b"//");
            }
            if let Some(user) = &self.user {
                out.extend_from_slice(&user.to_bytes());
                out.push(b'@');
            }
            out.extend_from_slice(&escape(&self.host, UrlPart::Host));
            let path = if self.path == b"*" { self.path.clone() } else { escape(&self.path, UrlPart::Path) };
            if !path.is_empty() && !path.starts_with(b"/") && !self.host.is_empty() {
                out.push(b'/');
            }
            // RFC 3986 §4.2: the first segment of a path alone has no colon, which would end a scheme.
            if out.is_empty() && cut(&path, b'/').0.contains(&b':') {
                out.extend_from_slice(b"./");
            }
            out.extend_from_slice(&path);
        } else {
            out.extend_from_slice(&self.opaque);
        }
        if !self.query.is_empty() {
            out.push(b'?');
            out.extend_from_slice(&self.query);
        }
        if !self.fragment.is_empty() {
            out.push(b'#');
            out.extend_from_slice(&escape(&self.fragment, UrlPart::Fragment));
        }
        out
    }
}

impl UserAndPassword {
    fn to_bytes(&self) -> Vec<u8> {
        let mut out = escape(&self.user, UrlPart::User);
        if let Some(password) = &self.password {
            out.push(b':');
            out.extend_from_slice(&escape(password, UrlPart::User));
        }
        out
    }
}

/// Returns the scheme, which may be empty, and the rest.
fn scheme(text: &[u8]) -> Result<(&[u8], &[u8]), String> {
    let is_scheme = |byte: &u8| byte.is_ascii_alphanumeric() || b"+-.".contains(byte);
    let end = text.iter().position(|byte| !is_scheme(byte)).unwrap_or(text.len());
    if text.get(end) != Some(&b':') {
        return Ok((b"", text));
    }
    match text.first() {
        Some(b':') => Err("missing protocol scheme".to_owned()),
        Some(first) if first.is_ascii_alphabetic() => Ok((&text[..end], &text[end + 1..])),
        _ => Ok((b"", text)),
    }
}

fn is_port(text: &[u8]) -> bool {
    text.is_empty() || text[0] == b':' && text[1..].iter().all(u8::is_ascii_digit)
}

fn host(scheme: &[u8], text: &[u8]) -> Result<Vec<u8>, String> {
    let last = |wanted: u8| text.iter().rposition(|byte| *byte == wanted);
    match last(b'[') {
        Some(0) => return address(text, last(b']').ok_or("missing ']' in host")?),
        Some(_) => return Err("invalid IP-literal".to_owned()),
        None => {}
    }
    if let Some(first) = text.iter().position(|byte| *byte == b':') {
        // Only http has no more than one colon: URLs of databases have several hosts.
        let is_strict = matches!(scheme, b"http" | b"https");
        let port = &text[if is_strict { first } else { last(b':').unwrap_or(first) }..];
        if !is_port(port) {
            return Err(format!("invalid port {} after host", quoted(port)));
        }
    }
    unescape(text, UrlPart::Host)
}

/// Reads an IPv6 address in brackets, which end at `close`, with a zone.
fn address(text: &[u8], close: usize) -> Result<Vec<u8>, String> {
    let (inside, port) = (&text[1..close], &text[close + 1..]);
    if !is_port(port) {
        return Err(format!("invalid port {} after host", quoted(port)));
    }
    let zone = bstr::ByteSlice::find(inside, b"%25").unwrap_or(inside.len());
    let mut name = unescape(&inside[..zone], UrlPart::Host)?;
    name.extend(unescape(&inside[zone..], UrlPart::Zone)?);
    let (number, zone) = cut(&name, b'%');
    let is_address = std::str::from_utf8(number).is_ok_and(|number| number.parse::<Ipv6Addr>().is_ok());
    if !is_address || zone.is_some_and(<[u8]>::is_empty) {
        let mut error = String::from("invalid host: ParseAddr(");
        let _ = write!(error, "{}): not an IPv6 address", quoted(&name));
        return Err(error);
    }
    Ok([b"[", &*name, b"]", port].concat())
}

/// Returns the host without its port, and an address without brackets.
fn hostname(host: &[u8]) -> &[u8] {
    let port = host.iter().rposition(|byte| *byte == b':').filter(|colon| is_port(&host[*colon..]));
    let name = &host[..port.unwrap_or(host.len())];
    name.strip_prefix(b"[").and_then(|name| name.strip_suffix(b"]")).unwrap_or(name)
}

fn join(call: &mut CallContext<'_>, args: &[Value]) -> Result<Value, FunctionError> {
    let Value::Map(map) = args[0].resolved() else { return Ok("".into()) };
    let part = |key: &str| part(&map, key);
    let bytes: usize = map.entries().values().map(|value| text(value).len()).sum();
    call.charge_memory(8 * bytes + 256)?;
    let userinfo = part("userinfo")?;
    let mut url = Url {
        scheme: part("scheme")?,
        opaque: part("opaque")?,
        user: None,
        host: part("host")?,
        path: part("path")?,
        query: part("query")?,
        fragment: part("fragment")?,
    };
    if !userinfo.is_empty() {
        let parsed = Url::parse(&[b"proto://", &*userinfo, b"@host"].concat());
        url.user = parsed.map_err(|error| format!("unable to parse userinfo in dict: {error}"))?.user;
    }
    Ok(url.to_bytes().into())
}

fn part(map: &Map, key: &str) -> Result<Vec<u8>, FunctionError> {
    match map.value(key.as_bytes()) {
        None => Ok(Vec::new()),
        Some(Value::String(text)) => Ok(text.to_vec()),
        Some(other) => {
            let kind = other.kind_name();
            Err(format!("unable to parse {key} key, must be of type string, but {kind} found").into())
        }
    }
}
