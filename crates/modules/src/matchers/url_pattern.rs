//! `url_pattern`: a pattern of the URL Pattern standard (urlpattern.spec.whatwg.org), as browsers and frameworks have.
//!
//! The crate `urlpattern` reads the pattern at load, into one regular expression for each component of a URL. A
//! request is compared by these expressions, so no URL is built for it.

use std::ops::Range;

use causeway_message::path::push_escape;
use causeway_pipeline::{Build, BuildError, Context, Matched, Matcher, Scheme};
use serde::Deserialize;
use serde_json::Value;
use url::Url;
use urlpattern::quirks::{UrlPattern, UrlPatternComponent, parse_pattern};
use urlpattern::regexp::RegExp;
use urlpattern::{Error, RegexSyntax, UrlPatternInit, UrlPatternOptions};

use crate::clean_path::{Slashes, clean_as_caddy};
use crate::regexp::{Capturing, CompiledRegex};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct UrlPatternConfig {
    #[serde(default)]
    pattern: String,
    /// The URL that a relative pattern is relative to. Without it such a pattern is one for all schemes and hosts.
    #[serde(default)]
    base_url: String,
    #[serde(default)]
    ignore_case: bool,
}

struct UrlPatternMatcher {
    /// The components that can refuse a request or fill a placeholder.
    components: Box<[(Component, Capturing)]>,
    slashes: Slashes,
}

/// A component of a URL, in the order of comparison: those that most requests differ in come first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Component {
    Pathname,
    Search,
    Hostname,
    Port,
    Protocol,
    // No request has the following ones: their text is empty.
    Username,
    Password,
    Hash,
}

impl Component {
    const ALL: [Self; 8] = [
        Self::Pathname,
        Self::Search,
        Self::Hostname,
        Self::Port,
        Self::Protocol,
        Self::Username,
        Self::Password,
        Self::Hash,
    ];

    /// The component's name in placeholders.
    fn name(self) -> &'static str {
        match self {
            Self::Pathname => "pathname",
            Self::Search => "search",
            Self::Hostname => "hostname",
            Self::Port => "port",
            Self::Protocol => "protocol",
            Self::Username => "username",
            Self::Password => "password",
            Self::Hash => "hash",
        }
    }

    fn of(self, pattern: &UrlPattern) -> &UrlPatternComponent {
        match self {
            Self::Pathname => &pattern.pathname,
            Self::Search => &pattern.search,
            Self::Hostname => &pattern.hostname,
            Self::Port => &pattern.port,
            Self::Protocol => &pattern.protocol,
            Self::Username => &pattern.username,
            Self::Password => &pattern.password,
            Self::Hash => &pattern.hash,
        }
    }

    fn is_of_requests(self) -> bool {
        !matches!(self, Self::Username | Self::Password | Self::Hash)
    }

    /// Appends the component of the request's URL, in the canonical form of the URL standard.
    fn append(self, cx: &mut Context, slashes: Slashes, out: &mut Vec<u8>) {
        match self {
            Self::Pathname => cx.with_scratch(|cx, path| {
                // Cleaned as for `path_regexp`, so that no alternative spelling of a path bypasses the pattern.
                clean_as_caddy(cx.path(), slashes, path);
                escape(path, PATH, out);
            }),
            Self::Search => escape(cx.head().target().query().unwrap_or_default().as_bytes(), QUERY, out),
            Self::Hostname => {
                let host = cx.host();
                let is_ipv6 = host.contains(':');
                out.extend(is_ipv6.then_some(b'['));
                out.extend(host.bytes().map(|byte| byte.to_ascii_lowercase()));
                out.extend(is_ipv6.then_some(b']'));
            }
            Self::Port => {
                // The URL standard: the scheme's default port is left out.
                let default = match cx.arrival().scheme {
                    Scheme::Http => "80",
                    Scheme::Https => "443",
                };
                let port = cx.host_port().filter(|port| *port != default);
                out.extend_from_slice(port.unwrap_or_default().as_bytes());
            }
            Self::Protocol => out.extend_from_slice(match cx.arrival().scheme {
                Scheme::Http => b"http",
                Scheme::Https => b"https",
            }),
            Self::Username | Self::Password | Self::Hash => {}
        }
    }
}

/// The printable bytes of the URL standard's path percent-encode set. A decoded path has `%` and `\` escaped too, which
/// a URL would read as an escape and a slash.
const PATH: &[u8] = b"\"#%<>?\\`{}";
/// The bytes of the special-query percent-encode set.
const QUERY: &[u8] = b"\"#'<>";

/// Appends a text with these bytes, and those that are not printable ASCII, percent-encoded.
fn escape(text: &[u8], set: &[u8], out: &mut Vec<u8>) {
    for &byte in text {
        if byte.is_ascii_graphic() && !set.contains(&byte) { out.push(byte) } else { push_escape(byte, out) }
    }
}

/// Compiles the matcher from a pattern. Its groups fill `{http.url_pattern.COMPONENT.GROUP}`.
///
/// # Errors
/// If the pattern or the base URL is not valid.
pub fn make(value: &Value, build: &mut Build<'_>) -> Result<Box<dyn Matcher>, BuildError> {
    let written: UrlPatternConfig = build.parse(value)?;
    let base = build.at("base_url", |build| {
        let text = Some(&*written.base_url).filter(|text| !text.is_empty());
        let refuse = |error| build.refuse(&*written.base_url, format!("an absolute URL: {error}"));
        text.map(Url::parse).transpose().map_err(refuse)
    })?;
    build.at("pattern", |build| compile(&written, base, build))
}

fn compile(
    written: &UrlPatternConfig,
    base: Option<Url>,
    build: &mut Build<'_>,
) -> Result<Box<dyn Matcher>, BuildError> {
    let refuse = |build: &Build<'_>, error: Error| {
        let reason = describe(&error);
        build.refuse(&*written.pattern, format!("a URL pattern: {reason}"))
    };
    let init = read(&written.pattern, base).map_err(|error| refuse(build, error))?;
    let options = UrlPatternOptions { regex_syntax: RegexSyntax::Rust, ignore_case: written.ignore_case };
    let pattern = parse_pattern::<GoRegexp>(init, options).map_err(|error| refuse(build, error))?;
    if !["http", "https"].iter().any(|scheme| is_match(&pattern.protocol, scheme)) {
        return Err(build.refuse(&*written.pattern, "a URL pattern whose scheme is http or https"));
    }
    let mut components = Vec::with_capacity(Component::ALL.len());
    for component in Component::ALL {
        let part = component.of(&pattern);
        if !component.is_of_requests() && part.pattern_string == "*" {
            continue;
        }
        let names = part.group_name_list.iter();
        let placeholders = names.map(|group| format!("http.url_pattern.{}.{group}", component.name()));
        components.push((component, Capturing::with_placeholders(&part.regexp_string, placeholders, build)?));
    }
    let slashes = Slashes::asked_by(pattern.pathname.pattern_string.as_bytes());
    Ok(Box::new(UrlPatternMatcher { components: components.into(), slashes }))
}

fn is_match(component: &UrlPatternComponent, text: &str) -> bool {
    CompiledRegex::read(&component.regexp_string).is_ok_and(|expression| expression.regex.is_match(text.as_bytes()))
}

/// Reads a pattern as the standard's constructor does. Beyond it, and as in Caddy, a relative pattern needs no base
/// URL: it leaves scheme, host and port open.
fn read(pattern: &str, base: Option<Url>) -> Result<UrlPatternInit, Error> {
    let has_base = base.is_some();
    match UrlPatternInit::parse_constructor_string::<GoRegexp>(pattern, base) {
        Err(Error::BaseUrlRequired) if !has_base => {
            let any = Url::parse("http://any.invalid").expect("a URL");
            let init = UrlPatternInit::parse_constructor_string::<GoRegexp>(pattern, Some(any))?;
            // Any other path would be relative to that of the base URL.
            let is_rooted = |path: &String| path.starts_with(['/', '*', '(', '{']);
            if init.hostname.is_some() || !init.pathname.as_ref().is_some_and(is_rooted) {
                return Err(Error::BaseUrlRequired);
            }
            Ok(UrlPatternInit { base_url: None, ..init })
        }
        read => read,
    }
}

fn describe(error: &Error) -> String {
    match error {
        Error::BaseUrlRequired => "a path from '/', or an absolute URL; other patterns need base_url".to_owned(),
        error => error.to_string(),
    }
}

/// An expression of a pattern, which may have parts in Go's syntax.
struct GoRegexp {
    pattern: String,
    compiled: CompiledRegex,
}

impl RegExp for GoRegexp {
    fn syntax() -> RegexSyntax {
        RegexSyntax::Rust
    }

    fn parse(pattern: &str, flags: &str, _force_eval: bool) -> Result<Self, ()> {
        let pattern = if flags.contains('i') { format!("(?i){pattern}") } else { pattern.to_owned() };
        let compiled = CompiledRegex::read(&pattern).map_err(drop)?;
        Ok(Self { pattern, compiled })
    }

    fn matches<'a>(&self, text: &'a str) -> Option<Vec<Option<&'a str>>> {
        let groups = self.compiled.regex.captures(text.as_bytes())?;
        Some(groups.iter().skip(1).map(|group| group.and_then(|group| text.get(group.range()))).collect())
    }

    fn pattern_string(&self) -> &str {
        &self.pattern
    }
}

impl Matcher for UrlPatternMatcher {
    fn matches(&self, cx: &mut Context) -> Matched {
        Ok(cx.with_scratch(|cx, text| {
            let mut ranges: [Range<usize>; Component::ALL.len()] = Default::default();
            // The placeholders are filled only once all components match.
            for ((component, capturing), range) in self.components.iter().zip(&mut ranges) {
                let start = text.len();
                component.append(cx, self.slashes, text);
                *range = start..text.len();
                if !capturing.search(cx, &text[range.clone()]) {
                    return false;
                }
            }
            for ((_, capturing), range) in self.components.iter().zip(ranges) {
                capturing.fill(cx, &text[range]);
            }
            true
        }))
    }
}
