//! `rewrite`: changes the request's method and target for the following handlers.
//!
//! - `escape`: escaping of paths and queries, as in Go
//! - `uri`: a new target from a string with placeholders
//! - `path`: removes or replaces parts of the path
//! - `query`: edits the query as a list of keys and values
//!
//! The new target always begins with a slash.
//! DEVIATES Caddy: there `rewrite x` makes a path without a slash. Here `ROOTLESS` keeps that path for `path` patterns
//! without a slash.

pub(crate) mod escape;
mod path;
mod query;
mod uri;

use causeway_message::{Method, TargetForm};
use causeway_pipeline::context::VarId;
use causeway_pipeline::{Build, BuildError, Context, Fault, Handler, Step, Template};
use serde::Deserialize;
use serde_json::Value;

use crate::access_log::debug::request_json;

/// A placeholder that is set while nothing is left of the path after a change: the target then has `/` in its place.
pub(crate) const STRIPPED: &str = "http.rewrite.stripped";

/// A placeholder with the path, not decoded, that a rewrite wrote without its first slash: `/x` after `rewrite x`. It
/// is outdated once the request's path differs.
pub(crate) const ROOTLESS: &str = "http.rewrite.rootless";

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct RewriteConfig {
    method: String,
    uri: String,
    /// Not in Caddy: escapes the values of placeholders in the path of `uri`.
    escape_values: bool,
    strip_path_prefix: String,
    strip_path_suffix: String,
    uri_substring: Vec<path::SubstringConfig>,
    path_regexp: Vec<path::PathRegexpConfig>,
    query: Option<query::QueryConfig>,
}

pub(crate) struct Rewrite {
    method: Option<Template>,
    uri: Option<uri::Uri>,
    /// In the order of their application.
    paths: Box<[path::Change]>,
    query: Option<query::Operations>,
    stripped: VarId,
    rootless: VarId,
}

/// The path after some changes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PathOutcome {
    Unchanged,
    NonEmpty,
    /// The target has `/` in place of an empty path.
    Empty,
    /// The target has a `/` before the new path.
    Rootless,
}

/// Compiles the handler from its JSON.
///
/// # Errors
/// If an option is unknown or a regular expression is not valid.
pub fn make(value: &Value, build: &mut Build<'_>) -> Result<Box<dyn Handler>, BuildError> {
    Ok(Box::new(Rewrite::of(build.parse_module(value)?, build)?))
}

impl Handler for Rewrite {
    fn enter(&self, cx: &mut Context) -> Step {
        let before = tracing::enabled!(tracing::Level::DEBUG).then(|| cx.head().target().as_str().to_owned());
        if let Err(fault) = self.apply(cx) {
            return Step::Fail(fault);
        }
        if let Some(before) = before.filter(|before| *before != cx.head().target().as_str()) {
            let (method, uri) = (cx.head().method().as_str(), cx.head().target().as_str());
            tracing::debug!(before, request.json = %request_json(cx, cx.head()), method, uri, "rewrote request");
        }
        Step::Next
    }
}

impl Rewrite {
    /// Compiles the `rewrite` of a proxy, which names no module.
    pub(crate) fn build(value: &Value, build: &mut Build<'_>) -> Result<Self, BuildError> {
        Self::of(build.parse(value)?, build)
    }

    fn of(written: RewriteConfig, build: &mut Build<'_>) -> Result<Self, BuildError> {
        let mut paths = Vec::new();
        if !written.strip_path_prefix.is_empty() {
            paths.push(path::Change::Prefix(build.template(&written.strip_path_prefix)));
        }
        if !written.strip_path_suffix.is_empty() {
            paths.push(path::Change::Suffix(build.template(&written.strip_path_suffix)));
        }
        // As in Caddy, an empty `find` has no effect.
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
            uri: (!written.uri.is_empty()).then(|| uri::Uri::build(&written.uri, written.escape_values, build)),
            paths: paths.into(),
            query,
            stripped: build.allocate_slot(STRIPPED),
            rootless: build.allocate_slot(ROOTLESS),
        })
    }

    /// Applies the changes in Caddy's order: the method first.
    fn apply(&self, cx: &mut Context) -> Result<(), Fault> {
        self.apply_to_method(cx);
        match self.apply_to_target(cx)? {
            PathOutcome::Unchanged => {}
            PathOutcome::NonEmpty => {
                cx.unset_variable(self.stripped);
                // The other changes do not add the slash.
                if self.uri.is_some() {
                    cx.unset_variable(self.rootless);
                }
            }
            PathOutcome::Empty => cx.set_variable_text(self.stripped, b"true"),
            PathOutcome::Rootless => cx.with_scratch(|cx, path| {
                path.extend_from_slice(cx.head().path());
                cx.set_variable_text(self.rootless, path);
                cx.unset_variable(self.stripped);
            }),
        }
        Ok(())
    }

    /// Applies the changes to a request that a proxy sends. `{method}` in the target is still the client's method, as
    /// in Caddy, which rewrites a copy of the request: `forward_auth` with `uri /auth/{method}` passes the method to be
    /// authorized. The client's path is restored afterwards, so its mark stays as it is.
    pub(crate) fn apply_for_call(&self, cx: &mut Context) -> Result<(), Fault> {
        self.apply_to_target(cx)?;
        self.apply_to_method(cx);
        Ok(())
    }

    fn apply_to_method(&self, cx: &mut Context) {
        if let Some(method) = &self.method {
            set_method(cx, method);
        }
    }

    fn apply_to_target(&self, cx: &mut Context) -> Result<PathOutcome, Fault> {
        let mut rest = match &self.uri {
            Some(uri) => uri.apply(cx)?,
            None => PathOutcome::Unchanged,
        };
        for change in &self.paths {
            match change.apply(cx)? {
                // The `/` of an empty path is no path either.
                PathOutcome::NonEmpty if cx.head().target().path() == "/" => {}
                PathOutcome::NonEmpty if rest == PathOutcome::Rootless => {}
                PathOutcome::Unchanged => {}
                left => rest = left,
            }
        }
        if let Some(operations) = &self.query {
            operations.apply(cx)?;
        }
        Ok(rest)
    }
}

/// Sets the method, in upper case. Keeps the old one if the expanded text is not a token.
fn set_method(cx: &mut Context, method: &Template) {
    cx.with_scratch(|cx, text| {
        method.render(cx, text);
        text.make_ascii_uppercase();
        if let Some(method) = Method::parse(text) {
            cx.head_mut().set_method(method);
        }
    });
}

/// The query of the new target.
#[derive(Clone, Copy)]
enum NewQuery<'q> {
    Kept,
    Set(&'q [u8]),
}

/// Sets the target to an escaped path and a query. Keeps its authority. Also keeps a `?` with an empty query, which
/// Caddy's rewrites do not remove either.
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
        if !query.is_empty() || target.query() == Some("") {
            text.push(b'?');
            escape::raw_query(query, text);
        }
        cx.set_target(&**text)
    })
}

/// Returns whether the target has a path: the asterisk form and the authority form have none.
fn has_path(cx: &Context) -> bool {
    matches!(cx.head().target().form(), TargetForm::Origin | TargetForm::Absolute)
}

#[cfg(test)]
mod tests;
