//! `rewrite`: changes the request's method and target, for what comes behind.
//!
//! - `escape`: how paths and queries are escaped, as Go does it
//! - `uri`: a new target from a string with placeholders
//! - `path`: parts of the path taken off or replaced
//! - `query`: the query as a list of keys and values
//!
//! A target begins with a slash here whatever a rewrite says.
//! DEVIATES Caddy: there `rewrite x` makes a path without one, which no matcher of paths finds.

mod escape;
mod path;
mod query;
mod uri;

use causeway_message::{Method, TargetForm};
use causeway_pipeline::{Build, BuildError, Context, Fault, Handler, Step, Template};
use serde::Deserialize;
use serde_json::Value;

pub(crate) use escape::push_escape;

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct Written {
    method: String,
    uri: String,
    strip_path_prefix: String,
    strip_path_suffix: String,
    uri_substring: Vec<path::WrittenSubstring>,
    path_regexp: Vec<path::WrittenRegexp>,
    query: Option<query::Written>,
}

pub(crate) struct Rewrite {
    method: Option<Template>,
    uri: Option<uri::Uri>,
    /// In the order in which they are done.
    paths: Box<[path::Change]>,
    query: Option<query::Operations>,
}

/// Makes the handler.
///
/// # Errors
/// When a field is unknown or a regular expression is none.
pub fn make(value: &Value, build: &mut Build<'_>) -> Result<Box<dyn Handler>, BuildError> {
    Ok(Box::new(Rewrite::build(value, build)?))
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
    pub(crate) fn build(value: &Value, build: &mut Build<'_>) -> Result<Self, BuildError> {
        let written: Written = build.parse(value)?;
        let mut paths = Vec::new();
        if !written.strip_path_prefix.is_empty() {
            paths.push(path::Change::Prefix(build.template(&written.strip_path_prefix)));
        }
        if !written.strip_path_suffix.is_empty() {
            paths.push(path::Change::Suffix(build.template(&written.strip_path_suffix)));
        }
        for substring in written.uri_substring.iter().filter(|substring| !substring.find.is_empty()) {
            paths.push(path::Change::substring(substring, build));
        }
        for (index, regexp) in written.path_regexp.iter().enumerate() {
            paths.push(build.at(format!("path_regexp[{index}]"), |build| path::Change::regexp(regexp, build))?);
        }
        let query = match written.query {
            Some(written) => Some(build.at("query", |build| query::Operations::build(&written, build))?),
            None => None,
        };
        Ok(Self {
            method: (!written.method.is_empty()).then(|| build.template(&written.method)),
            uri: (!written.uri.is_empty()).then(|| uri::Uri::build(&written.uri, build)),
            paths: paths.into(),
            query,
        })
    }

    /// In Caddy's order.
    pub(crate) fn apply(&self, cx: &mut Context) -> Result<(), Fault> {
        if let Some(method) = &self.method {
            set_method(cx, method);
        }
        if let Some(uri) = &self.uri {
            uri.apply(cx)?;
        }
        for change in &self.paths {
            change.apply(cx)?;
        }
        match &self.query {
            Some(operations) => operations.apply(cx),
            None => Ok(()),
        }
    }
}

/// What is no token is no method: the old one stays.
fn set_method(cx: &mut Context, method: &Template) {
    cx.with_scratch(|cx, text| {
        method.render(cx, text);
        text.make_ascii_uppercase();
        if let Some(method) = Method::parse(text) {
            cx.head_mut().set_method(method);
        }
    });
}

/// The query that a target gets.
#[derive(Clone, Copy)]
enum NewQuery<'q> {
    Kept,
    Set(&'q [u8]),
}

/// Puts an escaped path and a query into the target; an authority in it stays.
fn set_target(cx: &mut Context, path: &[u8], query: NewQuery<'_>) -> Result<(), Fault> {
    cx.with_scratch(|cx, text| {
        let target = cx.head().target();
        if let (Some(scheme), Some(authority)) = (target.scheme(), target.authority()) {
            text.extend_from_slice(scheme.as_bytes());
            text.extend_from_slice(b"://");
            text.extend_from_slice(authority.as_bytes());
        }
        if !path.starts_with(b"/") {
            text.push(b'/');
        }
        text.extend_from_slice(path);
        let query = match query {
            NewQuery::Kept => target.query().unwrap_or_default().as_bytes(),
            NewQuery::Set(query) => query,
        };
        if !query.is_empty() {
            text.push(b'?');
            escape::raw_query(query, text);
        }
        cx.set_target(&**text)
    })
}

/// Whether the target has a path that can be changed: `*` and a lone authority have none.
fn has_path(cx: &Context) -> bool {
    matches!(cx.head().target().form(), TargetForm::Origin | TargetForm::Absolute)
}

#[cfg(test)]
mod tests;
