//! The key of the responses to a request: the parts of the request that identify the resource.

use std::sync::atomic::{AtomicU64, Ordering};

use causeway_message::{FieldName, KnownName, NameRef, Scheme, names};
use causeway_pipeline::{Build, BuildError, Context, Template};
use serde::Deserialize;

/// The members of `key`, as those of the plugin.
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub(super) struct KeyConfig {
    disable_host: bool,
    disable_query: bool,
    disable_scheme: bool,
    disable_method: bool,
    disable_body: bool,
    hash: bool,
    hide: bool,
    #[serde(rename = "headers")]
    fields: Vec<String>,
    template: String,
}

/// How keys are made.
#[derive(Debug)]
pub(super) struct KeyRules {
    uri: UriRules,
    /// Request fields that are part of the key.
    fields: Box<[FieldName]>,
    /// The end of each key: the responses of one handler are not those of another, which may admit other clients.
    handler: Box<str>,
    /// The keys mean the same in another process.
    is_lasting: bool,
}

#[derive(Debug)]
enum UriRules {
    Parts { scheme: bool, host: bool, query: bool },
    Template(Template),
}

/// Fields of proxies, besides `X-Forwarded-…`, from which some applications make the URIs in their responses, or choose
/// the response. They are part of each key: a client's value must not reach other clients, and the clients of one proxy
/// share responses.
const FORWARDING: [&str; 6] =
    ["Front-End-Https", "X-Host", "X-HTTP-Host-Override", "X-Original-Host", "X-Script-Name", "X-Url-Scheme"];

fn is_forwarding(name: NameRef<'_>) -> bool {
    const PREFIX: &str = "X-Forwarded-";
    // Addresses are as many as there are clients.
    const ADDRESSES: [&str; 2] = ["For", "By"];
    let is_one_of = |names: &[&str], name: &str| names.iter().any(|field| name.eq_ignore_ascii_case(field));
    let name = name.as_str();
    match name.split_at_checked(PREFIX.len()) {
        Some((prefix, rest)) if prefix.eq_ignore_ascii_case(PREFIX) => !is_one_of(&ADDRESSES, rest),
        _ => is_one_of(&FORWARDING, name),
    }
}

/// Finds the delimiters of Forwarded, which are none within a quoted string (RFC 9110 §5.6.4).
#[derive(Default)]
struct Delimiters {
    is_quoted: bool,
    is_escaped: bool,
}

impl Delimiters {
    /// Takes the next byte, and returns whether it is a delimiter.
    fn take_delimiter(&mut self, byte: u8) -> bool {
        if std::mem::take(&mut self.is_escaped) {
            return false;
        }
        match byte {
            b'"' => self.is_quoted = !self.is_quoted,
            b'\\' => self.is_escaped = self.is_quoted,
            b',' | b';' => return !self.is_quoted,
            _ => {}
        }
        false
    }
}

/// Returns whether a pair of Forwarded names an address and nothing else. One with other bytes than those of a node
/// (RFC 7239 §6) is not among them: some applications find another pair in `for="a;host=b"`, and in `for=ahost=b`.
fn is_address(pair: &[u8]) -> bool {
    let Some(at) = pair.iter().position(|byte| *byte == b'=') else { return false };
    let (name, node) = (&pair[..at], &pair[at + 1..]);
    let node = node.strip_prefix(b"\"").and_then(|node| node.strip_suffix(b"\"")).unwrap_or(node);
    let is_node = node.iter().all(|byte| byte.is_ascii_alphanumeric() || b"._-:[]".contains(byte));
    is_node && (name.eq_ignore_ascii_case(b"for") || name.eq_ignore_ascii_case(b"by"))
}

/// Returns the pairs of Forwarded (RFC 7239 §4) that count as the fields above do: not those of addresses. A value
/// whose last quoted string has no end is one pair, because readers differ on it.
fn forwarded_pairs(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut delimiters = Delimiters::default();
    value.iter().for_each(|byte| _ = delimiters.take_delimiter(*byte));
    let is_open = std::mem::take(&mut delimiters).is_quoted;
    let pairs = value.split(move |byte| !is_open && delimiters.take_delimiter(*byte)).map(<[u8]>::trim_ascii);
    pairs.filter(move |pair| !pair.is_empty() && (is_open || !is_address(pair)))
}

impl KeyRules {
    pub(super) fn build(written: KeyConfig, more: &[String], build: &mut Build<'_>) -> Result<Self, BuildError> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let KeyConfig { disable_host, disable_query, disable_scheme, fields, template, .. } = written;
        for (key, is_on, reason) in [
            ("disable_method", written.disable_method, "a stored response serves GET and HEAD"),
            ("disable_body", written.disable_body, "requests with content are not cached"),
            ("hash", written.hash, "keys are always hashed"),
            ("hide", written.hide, "keys are not shown"),
        ] {
            if is_on {
                build.warn_unused(key, reason);
            }
        }
        let parse =
            |name: &String| FieldName::parse(name).ok_or_else(|| build.refuse(name, "the name of a request field"));
        let fields = fields.iter().chain(more).map(parse).collect::<Result<_, _>>()?;
        let has_host = template.is_empty() && !disable_host;
        // The place in the configuration; without the host in the key also a number of its own, since another site may
        // be at the place later.
        let mut handler = build.location();
        if !has_host {
            handler = format!("{handler} {}", NUMBER.fetch_add(1, Ordering::Relaxed));
        }
        let uri = if template.is_empty() {
            UriRules::Parts { scheme: !disable_scheme, host: !disable_host, query: !disable_query }
        } else {
            UriRules::Template(build.template(&template))
        };
        Ok(Self { uri, fields, handler: handler.into(), is_lasting: has_host })
    }

    /// Returns whether the keys mean the same in another process.
    pub(super) fn is_lasting(&self) -> bool {
        self.is_lasting
    }

    /// Returns whether this request field is part of the key.
    pub(super) fn has_field(&self, name: KnownName) -> bool {
        self.fields.iter().any(|field| field.as_ref() == NameRef::Known(name))
    }

    /// Writes the key of the current request. Does not allocate in steady state.
    pub(super) fn write(&self, cx: &mut Context, out: &mut Vec<u8>) {
        let mut rendered = None;
        match &self.uri {
            UriRules::Template(template) => {
                let start = out.len();
                template.render(cx, out);
                rendered = Some(out.len() - start);
            }
            UriRules::Parts { .. } => {
                let target = cx.head().target();
                let uri = KeyUri {
                    prefix: removed_prefix(cx).as_bytes(),
                    path: target.path().as_bytes(),
                    query: target.query().map(str::as_bytes),
                };
                self.parts(cx, uri, out);
            }
        }
        for name in &self.fields {
            // No field value and no URI contains a line end, so that no text can be two keys; nor can one that the
            // operator's template makes, whose length is the end of the key.
            out.push(b'\n');
            cx.head().fields().write_joined(name.as_ref(), out);
        }
        self.end(cx, out);
        if let Some(rendered) = rendered {
            // A placeholder may decode a line end of the URI, whose text would otherwise be taken for the parts above.
            out.push(b'\n');
            out.extend_from_slice(&rendered.to_le_bytes());
        }
    }

    /// Writes the key of another URI on the same host, as `path?query`, with the request fields of `key`, which is that
    /// of the request: later handlers may have changed its fields since. Returns false if keys are not made of URIs.
    pub(super) fn write_other(&self, cx: &Context, key: &[u8], path_and_query: &[u8], out: &mut Vec<u8>) -> bool {
        if !matches!(self.uri, UriRules::Parts { .. }) {
            return false;
        }
        let end = memchr::memchr(b'#', path_and_query).unwrap_or(path_and_query.len());
        let uri = &path_and_query[..end];
        let (path, query) = match memchr::memchr(b'?', uri) {
            Some(at) => (&uri[..at], Some(&uri[at + 1..])),
            None => (uri, None),
        };
        // No URI contains a line end.
        let (of_uri, rest) = key.split_at(memchr::memchr(b'\n', key).unwrap_or(key.len()));
        // The handlers before the cache would remove the prefix of the other URI too.
        let prefix = memchr::memchr(b'\0', of_uri).map_or(&b""[..], |at| &of_uri[at + 1..]);
        let uri = match path.strip_prefix(prefix).filter(|path| path.starts_with(b"/")) {
            Some(path) => KeyUri { prefix, path, query },
            None => KeyUri { prefix: b"", path, query },
        };
        self.parts(cx, uri, out);
        out.extend_from_slice(rest);
        true
    }

    fn end(&self, cx: &mut Context, out: &mut Vec<u8>) {
        let fields = cx.head().fields();
        let before = out.len();
        for pair in fields.get_all(names::FORWARDED).flat_map(forwarded_pairs) {
            out.extend_from_slice(b"\nforwarded:");
            out.extend_from_slice(pair);
        }
        for (name, value) in fields.iter().filter(|(name, _)| is_forwarding(*name)) {
            out.push(b'\n');
            out.extend(name.as_str().bytes().map(|byte| byte.to_ascii_lowercase()));
            out.push(b':');
            out.extend_from_slice(value);
        }
        if out.len() > before && cx.client().proxied {
            // The proxy replaces the fields of other peers, so equal ones lead to other responses.
            out.extend_from_slice(b"\nproxied");
        }
        // No field value contains a zero byte.
        out.extend_from_slice(b"\n\0");
        out.extend_from_slice(self.handler.as_bytes());
    }

    fn parts(&self, cx: &Context, KeyUri { prefix, path, query }: KeyUri<'_>, out: &mut Vec<u8>) {
        let UriRules::Parts { scheme, host, query: has_query } = self.uri else { return };
        if scheme {
            out.extend_from_slice(if cx.arrival().scheme == Scheme::Https { b"https:" } else { b"http:" });
        }
        if host {
            out.extend_from_slice(b"//");
            // RFC 9110 §4.2.3: a host is case-insensitive.
            out.extend(cx.head().authority().unwrap_or_default().bytes().map(|byte| byte.to_ascii_lowercase()));
        }
        out.extend_from_slice(prefix);
        // RFC 9110 §4.2.3: an empty path is `/`.
        out.extend_from_slice(if path.is_empty() { b"/" } else { path });
        if let Some(query) = query.filter(|_| has_query) {
            out.push(b'?');
            out.extend_from_slice(query);
        }
        if !prefix.is_empty() {
            // Handlers may remove it from some requests only, and no URI contains a zero byte.
            out.push(b'\0');
            out.extend_from_slice(prefix);
        }
    }
}

/// The path and query of a key.
struct KeyUri<'k> {
    /// The start of the request's path that handlers before the cache have removed.
    prefix: &'k [u8],
    /// The rest, as the handlers after the cache see it.
    path: &'k [u8],
    query: Option<&'k [u8]>,
}

/// Returns the start of the request's path that handlers before the cache have removed, as `handle_path` does. Empty
/// after other changes: a rewrite may let several URIs share one response.
fn removed_prefix(cx: &Context) -> &str {
    let path = cx.head().target().path();
    let prefix = cx.original().target().path().strip_suffix(path);
    prefix.filter(|_| path.starts_with('/')).unwrap_or_default()
}

/// Returns the URI of a key, or the text that the operator's template made of the request.
pub(super) fn uri(key: &[u8]) -> &[u8] {
    &key[..memchr::memchr2(b'\n', b'\0', key).unwrap_or(key.len())]
}

/// Returns a URI, or the start of one, with its scheme and host in lower case (RFC 9110 §4.2.3), as they are in a key.
pub(super) fn with_lower_host(uri: &str) -> String {
    let scheme = uri.find("//").filter(|at| *at == 0 || uri[..*at].ends_with(':') && !uri[..*at].contains(['/', '?']));
    let host = scheme.map_or(0, |at| at + 2);
    let end = if scheme.is_some() { uri[host..].find(['/', '?']).map_or(uri.len(), |len| host + len) } else { 0 };
    uri[..end].to_ascii_lowercase() + &uri[end..]
}

/// Returns the path and query of a URI reference in Location or Content-Location if it has the request's origin (RFC
/// 9111 §4.4). Only absolute paths and absolute URIs are understood.
pub(super) fn of_same_origin<'v>(cx: &Context, value: &'v [u8]) -> Option<&'v [u8]> {
    if value.starts_with(b"/") {
        return (!value.starts_with(b"//")).then_some(value);
    }
    let scheme: &[u8] = if cx.arrival().scheme == Scheme::Https { b"https://" } else { b"http://" };
    let rest = value.split_at_checked(scheme.len()).filter(|(start, _)| start.eq_ignore_ascii_case(scheme))?.1;
    let authority = cx.head().authority().unwrap_or_default().as_bytes();
    let path = rest.split_at_checked(authority.len()).filter(|(start, _)| start.eq_ignore_ascii_case(authority))?.1;
    path.starts_with(b"/").then_some(path)
}
