//! A new target from a string with placeholders. A component that the string omits (path or query) is unchanged.

use std::borrow::Cow;

use causeway_message::path::push_escape;
use causeway_message::query;
use causeway_pipeline::{Build, Context, Fault, Template};

use super::{NewQuery, PathOutcome, escape, set_target};

pub(super) struct Uri {
    path: Option<Template>,
    /// The values of placeholders in the path are text without escapes: their `%`, `?` and `#` are escaped.
    escapes_values: bool,
    /// `None` if the string contains no `?`.
    query: Option<Box<[Component]>>,
}

/// A key or a value in the query.
struct Component {
    is_key: bool,
    text: Template,
}

impl Uri {
    pub(super) fn build(source: &str, escapes_values: bool, build: &mut Build<'_>) -> Self {
        // A fragment is never sent (RFC 3986 §4.2 and Caddy).
        let source = source.split('#').next().unwrap_or_default();
        let source = &*without_origin(source);
        let (path, query) = match source.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (source, None),
        };
        // Components are split before placeholders expand, so that a value cannot add components.
        let query = query.map(|query| {
            let mut components = Vec::new();
            each_component(query.as_bytes(), |is_key, component| {
                let text = std::str::from_utf8(component).unwrap_or_default();
                components.push(Component { is_key, text: build.template(text) });
            });
            components.into()
        });
        Self { path: (!path.is_empty()).then(|| build.template(path)), escapes_values, query }
    }

    pub(super) fn apply(&self, cx: &mut Context) -> Result<PathOutcome, Fault> {
        cx.with_scratch(|cx, path| {
            cx.with_scratch(|cx, query| {
                let mut changes_query = self.query.is_some();
                match &self.path {
                    None => path.extend_from_slice(cx.head().target().path().as_bytes()),
                    Some(template) => {
                        template.render_values(cx, path, |name, value, path| {
                            put_in_path(value, self.escapes_values || is_decoded_path(name), path);
                        });
                        let end = path.iter().position(|&byte| byte == b'#').unwrap_or(path.len());
                        path.truncate(end);
                        // A placeholder's value may contain a query; a configured query takes precedence.
                        if let Some(question) = path.iter().position(|&byte| byte == b'?') {
                            if self.query.as_ref().is_none_or(|query| query.is_empty()) {
                                rebuild(&path[question + 1..], query);
                                changes_query = true;
                            }
                            path.truncate(question);
                        }
                    }
                }
                for component in self.query.iter().flatten() {
                    put(query, component.is_key, |query| {
                        component.text.render_values(cx, query, |name, value, query| {
                            // This value is already escaped.
                            if component.is_key && name == "http.request.uri.query" {
                                query.extend_from_slice(value);
                            } else {
                                query::encode(value, query);
                            }
                        });
                    });
                }
                let query = if changes_query { NewQuery::Set(query) } else { NewQuery::Kept };
                if self.path.is_none() {
                    set_target(cx, path, query)?;
                    return Ok(PathOutcome::Unchanged);
                }
                // Decode and escape again, so that the path is spelled as Go spells it. An invalid escape counts as
                // literal text.
                escape::decode(path, 0);
                let rest = match path.first() {
                    None => PathOutcome::Empty,
                    Some(b'/') => PathOutcome::NonEmpty,
                    Some(_) => PathOutcome::Rootless,
                };
                cx.with_scratch(|cx, escaped| {
                    escape::path(path, escaped);
                    set_target(cx, escaped, query)
                })?;
                Ok(rest)
            })
        })
    }
}

/// Returns the path and the query of a URL. Caddy sends the URL to the upstream as its target in absolute form, of
/// which the upstream takes the path (RFC 9112 §3.2.2).
fn without_origin(source: &str) -> Cow<'_, str> {
    let Some(rest) = source.strip_prefix("http://").or_else(|| source.strip_prefix("https://")) else {
        return source.into();
    };
    // A placeholder at the beginning, or after a `.` or `:`, is a part of the host and its port; any other one begins
    // the path.
    let begins_path = |at: &usize| match rest.as_bytes()[*at] {
        b'/' | b'?' => true,
        b'{' => *at > 0 && !matches!(rest.as_bytes()[at - 1], b'.' | b':'),
        _ => false,
    };
    let path = (0..rest.len()).find(begins_path).map_or("", |at| &rest[at..]);
    if path.is_empty() || path.starts_with('?') { format!("/{path}").into() } else { path.into() }
}

/// Returns whether the placeholder's value is a decoded path, which is escaped without a setting too, as in Caddy.
fn is_decoded_path(name: &str) -> bool {
    matches!(name, "http.request.uri.path" | "http.matchers.file.relative" | "http.matchers.file.remainder")
}

/// Appends a placeholder's value. `escapes_delimiters` is for text without escapes: it escapes the bytes that would
/// change the target's structure.
fn put_in_path(value: &[u8], escapes_delimiters: bool, out: &mut Vec<u8>) {
    for &byte in value {
        if escapes_delimiters && b"%?#".contains(&byte) { push_escape(byte, out) } else { out.push(byte) }
    }
}

/// Appends a query from a placeholder's value, without its empty parts.
fn rebuild(query: &[u8], out: &mut Vec<u8>) {
    each_component(query, |is_key, component| {
        put(out, is_key, |out| {
            // Braces in a value must not be read as placeholders (GHSA-j8px-rmrx-76h9); escaped as Caddy does.
            for &byte in component {
                if b"{}".contains(&byte) { push_escape(byte, out) } else { out.push(byte) }
            }
        });
    });
}

/// Splits a query: keys end at `=` or `&`, values at `&`. A delimiter at the end adds no component.
fn each_component(query: &[u8], mut each: impl FnMut(bool, &[u8])) {
    let (mut rest, mut is_key) = (query, true);
    while !rest.is_empty() {
        let end = rest.iter().position(|&byte| byte == b'&' || (is_key && byte == b'='));
        each(is_key, &rest[..end.unwrap_or(rest.len())]);
        is_key = end.is_some_and(|end| rest[end] == b'&');
        rest = end.map_or(&[], |end| &rest[end + 1..]);
    }
}

/// Appends a key or a value with its delimiter. An empty key adds no `&`.
fn put(query: &mut Vec<u8>, is_key: bool, write: impl FnOnce(&mut Vec<u8>)) {
    let before = query.len();
    match is_key {
        true if before > 0 => query.push(b'&'),
        true => {}
        false => query.push(b'='),
    }
    let begun = query.len();
    write(query);
    if is_key && query.len() == begun {
        query.truncate(before);
    }
}
