//! `headers`: adds, sets, deletes and replaces fields of the request and of the answer.
//!
//! - `operations`: what is done to the fields
//! - `require`: what an answer must be for it

mod operations;
mod require;

use std::collections::BTreeMap;

use causeway_message::{FieldMap, StatusCode, TargetForm, names};
use causeway_pipeline::{Build, BuildError, Call, Context, Fault, Handler, Response, Step};
use serde::Deserialize;
use serde_json::Value;

use crate::rendered::with_field_value;
pub(crate) use operations::Ops;
use operations::Side;
pub(crate) use require::Require;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    #[serde(default)]
    request: Option<WrittenOps>,
    #[serde(default)]
    response: Option<WrittenResponseOps>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct WrittenOps {
    add: BTreeMap<String, Vec<String>>,
    set: BTreeMap<String, Vec<String>>,
    delete: Vec<String>,
    replace: BTreeMap<String, Vec<WrittenReplacement>>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct WrittenResponseOps {
    add: BTreeMap<String, Vec<String>>,
    set: BTreeMap<String, Vec<String>>,
    delete: Vec<String>,
    replace: BTreeMap<String, Vec<WrittenReplacement>>,
    require: Option<WrittenRequire>,
    deferred: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenReplacement {
    #[serde(default)]
    search: String,
    #[serde(default)]
    search_regexp: String,
    #[serde(default)]
    replace: String,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct WrittenRequire {
    status_code: Vec<u16>,
    headers: BTreeMap<String, Option<Vec<String>>>,
}

/// Operations on fields, both ways.
pub(crate) struct Headers {
    request: Option<Ops>,
    response: Option<ResponseOps>,
}

struct ResponseOps {
    ops: Ops,
    require: Option<Require>,
    deferred: bool,
}

/// Makes the handler.
///
/// # Errors
/// When a name is no field name, or a regular expression is none.
pub fn make(value: &Value, build: &mut Build<'_>) -> Result<Box<dyn Handler>, BuildError> {
    Ok(Box::new(Headers::build(value, build)?))
}

impl Headers {
    pub(crate) fn build(value: &Value, build: &mut Build<'_>) -> Result<Self, BuildError> {
        let written: Written = build.parse(value)?;
        let request = match written.request {
            Some(ops) => Some(build.at("request", |build| Ops::build(ops, build))?),
            None => None,
        };
        let response = match written.response {
            Some(written) => Some(build.at("response", |build| ResponseOps::build(written, build))?),
            None => None,
        };
        Ok(Self { request, response })
    }

    /// Does to a call's request what is to be done to requests.
    pub(crate) fn apply_to_call(&self, cx: &mut Context, call: &Call) {
        if let Some(ops) = &self.request {
            ops.apply(cx, Side::Call(call));
        }
    }

    /// Whether there is anything to be done to answers.
    pub(crate) fn changes_answers(&self) -> bool {
        self.response.is_some()
    }

    /// Does to a call's answer what is to be done to answers, where it is as it must be for that.
    pub(crate) fn apply_to_answer(&self, cx: &mut Context, call: &Call, status: StatusCode) {
        if let Some(response) = &self.response
            && response.applies(call.head().fields(), status)
        {
            response.ops.apply(cx, Side::Answer(call));
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
        {
            response.ops.apply(cx, Side::Response);
        }
        Step::Next
    }

    fn leave(&self, cx: &mut Context, answer: Response) -> Step {
        if let Some(response) = &self.response
            && response.deferred
            && response.applies(cx.response().fields(), answer.status)
        {
            response.ops.apply(cx, Side::Response);
        }
        Step::Respond(answer)
    }

    // Caddy: a deferred operation belongs to the answer of its own chain; what the error routes answer is not touched.
    fn failed(&self, _cx: &mut Context, fault: Fault) -> Step {
        Step::Fail(fault)
    }
}

/// An authority in the target goes before the Host field (RFC 9112 §3.2.2): it becomes the field first, so that operations on
/// the host have an effect.
fn apply_to_request(ops: &Ops, cx: &mut Context) -> Result<(), Fault> {
    if cx.head().target().form() == TargetForm::Absolute {
        cx.with_scratch(|cx, text| {
            text.extend_from_slice(cx.head().authority().unwrap_or_default().as_bytes());
            with_field_value(text, |host| cx.head_mut().fields_mut().insert(names::HOST, host));
            text.clear();
            let target = cx.head().target();
            text.extend_from_slice(target.path().as_bytes());
            if let Some(query) = target.query() {
                text.push(b'?');
                text.extend_from_slice(query.as_bytes());
            }
            cx.set_target(&**text)
        })?;
    }
    ops.apply(cx, Side::Request);
    Ok(())
}

impl ResponseOps {
    fn build(written: WrittenResponseOps, build: &mut Build<'_>) -> Result<Self, BuildError> {
        let WrittenResponseOps { add, set, delete, replace, require, deferred } = written;
        let require = match require {
            Some(require) => Some(build.at("require", |build| Require::build(require, build))?),
            None => None,
        };
        let ops = Ops::build(WrittenOps { add, set, delete, replace }, build)?;
        // What an answer must be is known only once there is one.
        let deferred = deferred || require.is_some();
        Ok(Self { ops, require, deferred })
    }

    fn applies(&self, fields: &FieldMap, status: StatusCode) -> bool {
        self.require.as_ref().is_none_or(|require| require.holds(fields, status))
    }
}

#[cfg(test)]
mod tests;
