//! `vars`: sets variables, which `{http.vars.name}` reads.

use std::collections::BTreeMap;

use causeway_pipeline::context::{ValueKind, VarId};
use causeway_pipeline::{Build, BuildError, Context, Handler, Step, Template};
use serde_json::Value;

use crate::file_server::refuse_fs;
use crate::rendered::WeakString;

struct Vars {
    texts: Box<[(VarId, Template, ValueKind)]>,
    /// Set by `log_skip`: whether the request appears in the access log.
    recorded: Option<bool>,
}

/// A placeholder outside of `http.vars` that this handler may also set: the user for access records.
pub(crate) const USER: &str = "http.auth.user.id";
/// The variable of `log_name`: a list of the names of loggers. As in Caddy, a text selects none.
const NAMES: &str = "access_logger_names";
/// The slot of the names, as one text with separators. It has no placeholder's name, so that no other handler sets it.
pub(crate) const SELECTED_LOGGERS: &str = "the names of log_name";
pub(crate) const NAMES_SEPARATOR: u8 = b'\n';
/// The variable of `fs`: the file system for file servers and `file` matchers.
const FILE_SYSTEM: &str = "fs";
/// The variable of `log_level`.
pub(crate) const LEVEL: &str = "log_level";

/// Compiles the handler from an object of strings, numbers and booleans.
///
/// # Errors
/// If a value has another type, or a name contains a placeholder that is unknown at load.
pub fn make(value: &Value, build: &mut Build<'_>) -> Result<Box<dyn Handler>, BuildError> {
    let written: BTreeMap<String, Value> = build.parse_module(value)?;
    let (mut texts, mut recorded) = (Vec::with_capacity(written.len()), None);
    for (name, value) in written {
        let name = match build.template(&name).literal() {
            Some(name) => name.to_owned(),
            None => return Err(build.refuse(name, "a name that is the same for every request")),
        };
        // As in Caddy, only the boolean `true` skips the log, not the string "true".
        if name == "log_skip" {
            recorded = Some(value != Value::Bool(true));
        }
        let kind = if value.is_number() || value.is_boolean() { ValueKind::Scalar } else { ValueKind::Text };
        if name == NAMES && value.is_array() {
            let names: Vec<String> = build.at(&name, |build| build.parse(&value))?;
            // As in Caddy, placeholders in them are not expanded: a client must not choose the log of its request.
            let text = Template::of_text(&names.join(&*char::from(NAMES_SEPARATOR).to_string()));
            texts.push((build.allocate_slot(SELECTED_LOGGERS), text.clone(), kind));
            texts.push((build.allocate_variable(&name), text, kind));
            continue;
        }
        let text = if name == NAMES && value.is_null() {
            // `log_name` without names.
            continue;
        } else if let Some(number) = value.as_f64() {
            // As Caddy prints a number of JSON: as a float, and never with an exponent.
            number.to_string()
        } else {
            build.at(&name, |build| build.parse::<WeakString>(&value))?.0
        };
        if name == FILE_SYSTEM {
            build.at(&name, |build| refuse_fs(&text, build))?;
        }
        let text = build.template(&text);
        if name == USER {
            texts.push((build.allocate_slot(USER), text.clone(), kind));
        }
        texts.push((build.allocate_variable(&name), text, kind));
    }
    Ok(Box::new(Vars { texts: texts.into(), recorded }))
}

impl Handler for Vars {
    fn enter(&self, cx: &mut Context) -> Step {
        for (id, template, kind) in &self.texts {
            cx.with_rendered(template, |cx, text| cx.set_variable_value(*id, text, *kind));
        }
        if let Some(recorded) = self.recorded {
            cx.set_recorded(recorded);
        }
        Step::Next
    }
}

#[cfg(test)]
mod tests {
    use causeway_pipeline::Registry;
    use causeway_testkit::{Kit, Request};
    use serde_json::json;

    // As Caddy prints them.
    #[test]
    fn numbers() {
        let vars =
            json!({ "handler": "vars", "a": 12_345_678_901_234_567_890_u64, "b": 1e21, "c": 1e-7, "d": 5, "e": -1.5 });
        let body = "{http.vars.a} {http.vars.b} {http.vars.c} {http.vars.d} {http.vars.e}";
        let routes = json!([{ "handle": [vars, { "handler": "static_response", "body": body }] }]);
        let mut registry = Registry::default();
        crate::register(&mut registry);
        let mut kit = Kit::new(&registry, &routes);
        let want = "12345678901234567000 1000000000000000000000 0.0000001 5 -1.5";
        assert_eq!(kit.send(&Request::get("/")).text(), want);
    }
}
