//! `rewrite`: changes the request's method and target, for what comes behind.

use causeway_message::Method;
use causeway_pipeline::{Build, BuildError, Context, Fault, Handler, Step, Template};
use serde::Deserialize;
use serde_json::Value;

use crate::glob::hex;
use crate::rendered::Rendered;

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct Written {
    method: String,
    uri: String,
    strip_path_prefix: String,
    strip_path_suffix: String,
}

struct Rewrite {
    method: Option<Template>,
    uri: Option<Template>,
    prefix: Option<Template>,
    suffix: Option<Template>,
}

/// Makes the handler. Of Caddy's options `uri_substring`, `path_regexp` and `query` are not in this version: they are
/// refused as unknown.
///
/// # Errors
/// When a field is unknown.
pub fn make(value: &Value, build: &mut Build<'_>) -> Result<Box<dyn Handler>, BuildError> {
    let written: Written = build.parse(value)?;
    let mut template = |text: &str| (!text.is_empty()).then(|| build.template(text));
    Ok(Box::new(Rewrite {
        method: template(&written.method),
        uri: template(&written.uri),
        prefix: template(&written.strip_path_prefix),
        suffix: template(&written.strip_path_suffix),
    }))
}

impl Handler for Rewrite {
    fn enter(&self, cx: &mut Context) -> Step {
        match self.apply(cx) {
            Ok(()) => Step::Next,
            Err(fault) => Step::Fail(fault),
        }
    }
}

impl Rewrite {
    fn apply(&self, cx: &mut Context) -> Result<(), Fault> {
        if let Some(method) = &self.method {
            let method = Rendered::of(method, cx).to_ascii_uppercase();
            if let Some(method) = Method::parse(&method) {
                cx.head_mut().set_method(method);
            }
        }
        if let Some(uri) = &self.uri {
            let uri = rewritten(&Rendered::of(uri, cx), cx);
            set(cx, &uri)?;
        }
        if let Some(prefix) = &self.prefix {
            let prefix = Rendered::of(prefix, cx);
            let path = cx.head().target().path().as_bytes();
            let slash: &[u8] = if prefix.starts_with(b"/") { b"" } else { b"/" };
            if let Some(len) = spelled(path, &[slash, &*prefix].concat()) {
                let rest = path[len..].to_vec();
                set_path(cx, &rest)?;
            }
        }
        if let Some(suffix) = &self.suffix {
            let suffix = Rendered::of(suffix, cx);
            let path = cx.head().target().path().as_bytes();
            if let Some(rest) = path.strip_suffix(&*suffix) {
                let rest = rest.to_vec();
                set_path(cx, &rest)?;
            }
        }
        Ok(())
    }
}

/// Octets of the raw path that spell the prefix, escapes decoded unless the prefix has them itself, in any case (Caddy's
/// documentation of `strip_path_prefix`).
fn spelled(path: &[u8], prefix: &[u8]) -> Option<usize> {
    let (mut at, mut p) = (0, 0);
    while p < prefix.len() {
        let escape = match path[at..] {
            [b'%', high, low, ..] => hex(high).zip(hex(low)).map(|(high, low)| high << 4 | low),
            _ => None,
        };
        match escape {
            Some(octet) if prefix[p] != b'%' => {
                if !octet.eq_ignore_ascii_case(&prefix[p]) {
                    return None;
                }
                at += 3;
            }
            _ => {
                if !path.get(at)?.eq_ignore_ascii_case(&prefix[p]) {
                    return None;
                }
                at += 1;
            }
        }
        p += 1;
    }
    Some(at)
}

/// The target that `uri` makes of the present one: a part that it does not name (path or query) stays. A `?` at its end
/// takes the query away.
fn rewritten(uri: &[u8], cx: &Context) -> Vec<u8> {
    let uri = uri.split(|&octet| octet == b'#').next().unwrap_or_default();
    let question = uri.iter().position(|&octet| octet == b'?');
    let path = &uri[..question.unwrap_or(uri.len())];
    let target = cx.head().target();
    let mut out = Vec::with_capacity(uri.len() + 16);
    if path.is_empty() {
        out.extend_from_slice(target.path().as_bytes());
    } else {
        if !path.starts_with(b"/") {
            out.push(b'/');
        }
        escape(path, &mut out);
    }
    let query = match question {
        Some(at) => Some(&uri[at + 1..]).filter(|query| !query.is_empty()),
        None => target.query().map(str::as_bytes),
    };
    if let Some(query) = query {
        out.push(b'?');
        escape(query, &mut out);
    }
    out
}

/// What a placeholder brought along and a target may not hold is escaped; what is an escape already stays.
fn escape(text: &[u8], out: &mut Vec<u8>) {
    for (at, &octet) in text.iter().enumerate() {
        let is_escape =
            octet == b'%' && matches!(text[at..], [_, high, low, ..] if hex(high).is_some() && hex(low).is_some());
        if is_escape || octet.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@/[]|?".contains(&octet) {
            out.push(octet);
        } else {
            push_escape(octet, out);
        }
    }
}

/// Puts `%XY` behind `out`.
pub(crate) fn push_escape(octet: u8, out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    out.extend_from_slice(&[b'%', DIGITS[usize::from(octet >> 4)], DIGITS[usize::from(octet & 15)]]);
}

fn set_path(cx: &mut Context, path: &[u8]) -> Result<(), Fault> {
    let mut target = Vec::with_capacity(path.len() + 1);
    if !path.starts_with(b"/") {
        target.push(b'/');
    }
    target.extend_from_slice(path);
    if let Some(query) = cx.head().target().query() {
        target.push(b'?');
        target.extend_from_slice(query.as_bytes());
    }
    set(cx, &target)
}

fn set(cx: &mut Context, target: &[u8]) -> Result<(), Fault> {
    cx.set_target(std::str::from_utf8(target).unwrap_or_default())
}
