//! `copy_response` and `copy_response_headers`: copy the upstream's response, inside `handle_response` routes.

use causeway_message::{FieldName, NameRef, StatusCode};
use causeway_pipeline::{Build, BuildError, Context, Fault, Handler, Reason, Step};
use serde::Deserialize;
use serde_json::Value;

use super::answer::put_copied;
use crate::rendered::{StatusTemplate, WeakString};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CopyResponseConfig {
    status_code: Option<WeakString>,
}

struct CopyResponse(Option<StatusTemplate>);

/// Compiles `copy_response`, which forwards the upstream's response, optionally with another status.
///
/// # Errors
/// If the status code is not valid.
pub fn make(value: &Value, build: &mut Build<'_>) -> Result<Box<dyn Handler>, BuildError> {
    let written: CopyResponseConfig = build.parse_module(value)?;
    Ok(Box::new(CopyResponse(StatusTemplate::parse(written.status_code, build)?)))
}

impl Handler for CopyResponse {
    fn enter(&self, cx: &mut Context) -> Step {
        let status = match self.0.as_ref().map(|status| status.of(cx)).transpose() {
            Ok(status) => status,
            Err(fault) => return Step::Fail(fault),
        };
        match cx.take_held_upstream_response() {
            Some((call, owner)) => owner.finish(cx, call, status),
            None => Step::Fail(misplaced("copy_response")),
        }
    }
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct CopyFieldsConfig {
    include: Vec<String>,
    exclude: Vec<String>,
}

struct CopyFields {
    /// Empty means all fields.
    include: Box<[FieldName]>,
    exclude: Box<[FieldName]>,
}

/// Compiles `copy_response_headers`, which copies the upstream's fields to the response of a later handler.
///
/// # Errors
/// If a name is not valid, or both lists are given.
pub fn make_headers(value: &Value, build: &mut Build<'_>) -> Result<Box<dyn Handler>, BuildError> {
    let CopyFieldsConfig { include, exclude } = build.parse_module(value)?;
    if !include.is_empty() && !exclude.is_empty() {
        return Err(build.refuse("both lists", "`include` or `exclude`, not both"));
    }
    let mut names = |key: &str, written: Vec<String>| {
        build.at(key, |build| {
            let name = |name: String| FieldName::parse(&name).ok_or_else(|| build.refuse(name, "a field name"));
            written.into_iter().map(name).collect::<Result<Box<[_]>, _>>()
        })
    };
    Ok(Box::new(CopyFields { include: names("include", include)?, exclude: names("exclude", exclude)? }))
}

impl Handler for CopyFields {
    fn enter(&self, cx: &mut Context) -> Step {
        let is_in = |list: &[FieldName], name: NameRef<'_>| list.iter().any(|known| known.as_ref() == name);
        let wants =
            |name: NameRef<'_>| (self.include.is_empty() || is_in(&self.include, name)) && !is_in(&self.exclude, name);
        match cx.take_held_upstream_response() {
            None => Step::Fail(misplaced("copy_response_headers")),
            Some((call, owner)) => {
                let put = put_copied(cx, &call, wants);
                // Later handlers may still copy the response.
                cx.hold_upstream_response(call, owner);
                put.map_or_else(Step::Fail, |()| Step::Next)
            }
        }
    }
}

#[cold]
fn misplaced(name: &str) -> Fault {
    let message = format!("cannot use '{name}' outside of reverse_proxy's handle_response routes");
    Fault { status: StatusCode::INTERNAL_SERVER_ERROR, reason: Reason::Text(message.into()) }
}
