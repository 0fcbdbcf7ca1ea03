//! `headers`: adds, sets, deletes and replaces fields of the request and of the answer.

use std::collections::BTreeMap;

use causeway_message::{FieldMap, FieldName, StatusCode};
use causeway_pipeline::{Build, BuildError, Context, Fault, Handler, Response, Step, Template};
use serde::Deserialize;
use serde_json::Value;

use crate::glob::Affix;
use crate::rendered::{Rendered, with_field_value};

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
struct WrittenRequire {
    status_code: Vec<u16>,
    headers: BTreeMap<String, Option<Vec<String>>>,
}

struct Headers {
    request: Option<Ops>,
    response: Option<ResponseOps>,
}

struct ResponseOps {
    ops: Ops,
    require: Option<Require>,
    deferred: bool,
}

#[derive(Default)]
struct Ops {
    clear: bool,
    add: Vec<(FieldName, Vec<Template>)>,
    set: Vec<(FieldName, Template)>,
    delete: Vec<Box<[u8]>>,
    replace: Vec<(Option<FieldName>, Vec<Replacement>)>,
}

struct Replacement {
    search: Template,
    with: Template,
}

type Patterns = Vec<Box<[u8]>>;

/// What an answer must be for deferred operations to apply to it.
struct Require {
    /// Codes, and classes below 10. Empty: any.
    status: Vec<u16>,
    /// `None`: there must be no such field.
    fields: Vec<(FieldName, Option<Patterns>)>,
}

/// Makes the handler.
///
/// # Errors
/// When a name is no field name, or a replacement is by regular expression, which this version has not.
pub fn make(value: &Value, build: &mut Build<'_>) -> Result<Box<dyn Handler>, BuildError> {
    let written: Written = build.parse(value)?;
    let request = match written.request {
        Some(ops) => Some(build.at("request", |build| Ops::build(ops, build))?),
        None => None,
    };
    let response = match written.response {
        Some(written) => Some(build.at("response", |build| ResponseOps::build(written, build))?),
        None => None,
    };
    Ok(Box::new(Headers { request, response }))
}

impl Handler for Headers {
    fn enter(&self, cx: &mut Context) -> Step {
        if let Some(ops) = &self.request {
            ops.apply(cx, Side::Request);
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
            && response.require.as_ref().is_none_or(|require| require.holds(cx, answer.status))
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

#[derive(Clone, Copy)]
enum Side {
    Request,
    Response,
}

impl Side {
    fn fields(self, cx: &mut Context) -> &mut FieldMap {
        match self {
            Self::Request => cx.head_mut().fields_mut(),
            Self::Response => cx.response_mut().fields_mut(),
        }
    }
}

impl Ops {
    fn build(written: WrittenOps, build: &mut Build<'_>) -> Result<Self, BuildError> {
        let mut ops = Self::default();
        for (name, values) in written.add {
            let values = values.iter().map(|value| build.template_of_known(value)).collect();
            ops.add.push((field_name(&name, build)?, values));
        }
        for (name, values) in written.set {
            // Caddy sends several values of one `set` as one list.
            ops.set.push((field_name(&name, build)?, build.template_of_known(&values.join(","))));
        }
        for name in written.delete {
            if name == "*" {
                ops.clear = true;
            } else if FieldName::parse(name.trim_matches('*')).is_some() {
                ops.delete.push(name.into_bytes().into());
            } else {
                return Err(build.refuse(name, "a field name, with a * at its start or end at most"));
            }
        }
        for (name, written) in written.replace {
            let mut replacements = Vec::with_capacity(written.len());
            for replacement in written {
                if !replacement.search_regexp.is_empty() {
                    return Err(build.refuse(
                        replacement.search_regexp,
                        "`search` with plain text; this version replaces no regular expressions",
                    ));
                }
                let search = build.template_of_known(&replacement.search);
                replacements.push(Replacement { search, with: build.template_of_known(&replacement.replace) });
            }
            let name = if name == "*" { None } else { Some(field_name(&name, build)?) };
            ops.replace.push((name, replacements));
        }
        Ok(ops)
    }

    /// Caddy's order: delete all, add, set, delete, replace.
    fn apply(&self, cx: &mut Context, side: Side) {
        if self.clear {
            side.fields(cx).clear();
        }
        for (name, values) in &self.add {
            for value in values {
                let value = Rendered::of(value, cx);
                with_field_value(&value, |value| side.fields(cx).append(name, value));
            }
        }
        for (name, value) in &self.set {
            let value = Rendered::of(value, cx);
            with_field_value(&value, |value| side.fields(cx).insert(name, value));
        }
        for pattern in &self.delete {
            delete(side.fields(cx), Affix::of(pattern));
        }
        for (name, replacements) in &self.replace {
            for replacement in replacements {
                let search = Rendered::of(&replacement.search, cx);
                let with = Rendered::of(&replacement.with, cx);
                replace(side.fields(cx), name.as_ref(), &search, &with);
            }
        }
    }
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
}

impl Require {
    fn build(written: WrittenRequire, build: &Build<'_>) -> Result<Self, BuildError> {
        let mut fields = Vec::with_capacity(written.headers.len());
        for (name, patterns) in written.headers {
            let patterns = patterns.map(|patterns| patterns.into_iter().map(|p| p.into_bytes().into()).collect());
            fields.push((field_name(&name, build)?, patterns));
        }
        Ok(Self { status: written.status_code, fields })
    }

    fn holds(&self, cx: &Context, status: StatusCode) -> bool {
        let code = status.as_u16();
        let fields = cx.response().fields();
        (self.status.is_empty() || self.status.iter().any(|&want| want == code || (want < 10 && want == code / 100)))
            && self.fields.iter().all(|(name, patterns)| match patterns {
                None => !fields.contains(name),
                Some(patterns) if patterns.is_empty() => fields.contains(name),
                Some(patterns) => {
                    fields.get_all(name).any(|value| patterns.iter().any(|pattern| Affix::of(pattern).matches(value)))
                }
            })
    }
}

fn field_name(name: &str, build: &Build<'_>) -> Result<FieldName, BuildError> {
    FieldName::parse(name).ok_or_else(|| build.refuse(name, "a field name"))
}

fn delete(fields: &mut FieldMap, pattern: Affix<'_>) {
    if let Affix::Exact(name) = pattern {
        if let Some(name) = causeway_message::NameRef::parse(name) {
            fields.remove(name);
        }
        return;
    }
    loop {
        let found = fields.iter().map(|(name, _)| name).find(|name| pattern.matches_any_case(name.as_str().as_bytes()));
        let Some(name) = found.and_then(|name| FieldName::parse(name.as_str())) else { return };
        fields.remove(&name);
    }
}

/// Replaces `search` in the values of a field, or of all fields. Allocates when something is to be replaced.
fn replace(fields: &mut FieldMap, name: Option<&FieldName>, search: &[u8], with: &[u8]) {
    let is_meant = |field: causeway_message::NameRef<'_>| name.is_none_or(|name| name.as_ref() == field);
    let holds = |value: &[u8]| !search.is_empty() && memchr::memmem::find(value, search).is_some();
    if !fields.iter().any(|(field, value)| is_meant(field) && holds(value)) {
        return;
    }
    let old = fields.clone();
    fields.clear();
    for (field, value) in old.iter() {
        if is_meant(field) && holds(value) {
            with_field_value(&replaced(value, search, with), |value| fields.append(field, value));
        } else {
            with_field_value(value, |value| fields.append(field, value));
        }
    }
}

fn replaced(value: &[u8], search: &[u8], with: &[u8]) -> Vec<u8> {
    let (mut out, mut from) = (Vec::with_capacity(value.len()), 0);
    for at in memchr::memmem::find_iter(value, search) {
        out.extend_from_slice(&value[from..at]);
        out.extend_from_slice(with);
        from = at + search.len();
    }
    out.extend_from_slice(&value[from..]);
    out
}

#[cfg(test)]
mod tests;
