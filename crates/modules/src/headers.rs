//! `headers`: adds, sets, deletes and replaces header fields of the request and of the response.
//!
//! - `operations`: the changes to the fields
//! - `response_matcher`: conditions on the response

mod operations;
mod response_matcher;

use std::collections::BTreeMap;

use causeway_message::{FieldMap, StatusCode, TargetForm, names};
use causeway_pipeline::{Build, BuildError, Call, Context, Fault, Handler, Response, Step};
use serde::Deserialize;
use serde_json::Value;

use crate::origin_form::put_origin_form;
use crate::rendered::with_field_value;
use operations::Side;
pub(crate) use operations::{Operations, remove_listed};
pub(crate) use response_matcher::{ResponseMatcher, status_matches};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HeadersConfig {
    #[serde(default)]
    request: Option<HeaderOpsConfig>,
    #[serde(default)]
    response: Option<ResponseHeaderOpsConfig>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct HeaderOpsConfig {
    add: BTreeMap<String, Vec<String>>,
    set: BTreeMap<String, Vec<String>>,
    delete: Vec<String>,
    replace: BTreeMap<String, Vec<HeaderReplacementConfig>>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct ResponseHeaderOpsConfig {
    add: BTreeMap<String, Vec<String>>,
    set: BTreeMap<String, Vec<String>>,
    delete: Vec<String>,
    replace: BTreeMap<String, Vec<HeaderReplacementConfig>>,
    require: Option<ResponseMatcherConfig>,
    deferred: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HeaderReplacementConfig {
    #[serde(default)]
    search: String,
    #[serde(default)]
    search_regexp: String,
    #[serde(default)]
    replace: String,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ResponseMatcherConfig {
    pub(crate) status_code: Vec<u16>,
    pub(crate) headers: BTreeMap<String, Option<Vec<String>>>,
}

/// The operations on the request and on the response.
pub(crate) struct Headers {
    request: Option<Operations>,
    response: Option<ResponseOps>,
}

struct ResponseOps {
    ops: Operations,
    require: Option<ResponseMatcher>,
    deferred: bool,
}

/// Compiles the handler from its JSON.
///
/// # Errors
/// If a name is not a valid field name, or a regular expression is not valid.
pub fn make(value: &Value, build: &mut Build<'_>) -> Result<Box<dyn Handler>, BuildError> {
    Ok(Box::new(Headers::of(build.parse_module(value)?, build)?))
}

impl Headers {
    /// Compiles the `headers` of a proxy, which name no module.
    pub(crate) fn build(value: &Value, build: &mut Build<'_>) -> Result<Self, BuildError> {
        Self::of(build.parse(value)?, build)
    }

    fn of(written: HeadersConfig, build: &mut Build<'_>) -> Result<Self, BuildError> {
        let request = match written.request {
            Some(ops) => Some(build.at("request", |build| Operations::build(ops, build))?),
            None => None,
        };
        let response = match written.response {
            Some(written) => Some(build.at("response", |build| ResponseOps::build(written, build))?),
            None => None,
        };
        Ok(Self { request, response })
    }

    /// Applies the request operations to the request of an upstream call.
    ///
    /// # Errors
    /// As of [`Operations::apply`].
    pub(crate) fn apply_to_call(&self, cx: &mut Context, call: &Call) -> Result<(), Fault> {
        self.request.as_ref().map_or(Ok(()), |ops| ops.apply(cx, Side::Call(call)))
    }

    /// Returns whether there are operations on the response.
    pub(crate) fn changes_answers(&self) -> bool {
        self.response.is_some()
    }

    /// Applies the response operations to the response of an upstream call if it meets their conditions.
    ///
    /// # Errors
    /// As of [`Operations::apply`].
    pub(crate) fn apply_to_answer(&self, cx: &mut Context, call: &Call, status: StatusCode) -> Result<(), Fault> {
        match &self.response {
            Some(response) if response.applies(call.head().fields(), status) => {
                response.ops.apply(cx, Side::Answer(call))
            }
            _ => Ok(()),
        }
    }
}

impl Handler for Headers {
    fn enter(&self, cx: &mut Context) -> Step {
        if let Some(ops) = &self.request
            && let Err(fault) = apply_to_request(ops, cx)
        {
            return Step::Fail(fault);
        }
        if let Some(response) = &self.response
            && !response.deferred
            && let Err(fault) = response.ops.apply(cx, Side::Response)
        {
            return Step::Fail(fault);
        }
        Step::Next
    }

    // Caddy: deferred operations apply to the response of their own chain, not to the response of an error route.
    fn leave(&self, cx: &mut Context, answer: Response) -> Step {
        if let Some(response) = &self.response
            && response.deferred
            && response.applies(cx.response().fields(), answer.status)
            && let Err(fault) = response.ops.apply(cx, Side::Response)
        {
            return Step::Fail(fault);
        }
        Step::Respond(answer)
    }
}

/// Applies the request operations. An authority in the target takes precedence over the Host field (RFC 9112 §3.2.2),
/// so it is first moved into that field: otherwise operations on Host would have no effect.
fn apply_to_request(ops: &Operations, cx: &mut Context) -> Result<(), Fault> {
    if cx.head().target().form() == TargetForm::Absolute {
        cx.with_scratch(|cx, text| {
            text.extend_from_slice(cx.head().authority().unwrap_or_default().as_bytes());
            with_field_value(text, |host| cx.head_mut().fields_mut().insert(names::HOST, host));
            text.clear();
            put_origin_form(cx.head().target(), text);
            cx.set_target(&**text)
        })?;
    }
    ops.apply(cx, Side::Request)
}

impl ResponseOps {
    fn build(written: ResponseHeaderOpsConfig, build: &mut Build<'_>) -> Result<Self, BuildError> {
        let ResponseHeaderOpsConfig { add, set, delete, replace, require, deferred } = written;
        let require = match require {
            Some(require) => Some(build.at("require", |build| ResponseMatcher::build(require, build))?),
            None => None,
        };
        let ops = Operations::build(HeaderOpsConfig { add, set, delete, replace }, build)?;
        // The conditions can be evaluated only when there is a response.
        let deferred = deferred || require.is_some();
        Ok(Self { ops, require, deferred })
    }

    fn applies(&self, fields: &FieldMap, status: StatusCode) -> bool {
        self.require.as_ref().is_none_or(|require| require.holds(fields, status))
    }
}

#[cfg(test)]
mod tests;
