//! `vars`: gives variables their texts; `{http.vars.name}` reads them.

use std::collections::BTreeMap;

use causeway_pipeline::context::VarId;
use causeway_pipeline::{Build, BuildError, Context, Handler, Step, Template};
use serde_json::Value;

use crate::rendered::Weak;

struct Vars {
    texts: Box<[(VarId, Template)]>,
    /// What `log_skip` says of the access record.
    recorded: Option<bool>,
}

/// Placeholders that are no variables and may be set like one.
const USER: &str = "http.auth.user.id";

/// Makes the handler from an object of strings, numbers and booleans.
///
/// # Errors
/// When a value is something else, or a name has a placeholder that is not known at load.
pub fn make(value: &Value, build: &mut Build<'_>) -> Result<Box<dyn Handler>, BuildError> {
    let written: BTreeMap<String, Value> = build.parse(value)?;
    let (mut texts, mut recorded) = (Vec::with_capacity(written.len()), None);
    for (name, value) in written {
        let name = match build.template(&name).literal() {
            Some(name) => name.to_owned(),
            None => return Err(build.refuse(name, "a name that is the same for every request")),
        };
        // Caddy looks for a boolean, not for a text that says so.
        if name == "log_skip" {
            recorded = Some(value != Value::Bool(true));
        }
        let Weak(text) = build.at(&name, |build| build.parse(&value))?;
        let text = build.template(&text);
        if name == USER {
            texts.push((build.slot(USER), text.clone()));
        }
        texts.push((build.variable(&name), text));
    }
    Ok(Box::new(Vars { texts: texts.into(), recorded }))
}

impl Handler for Vars {
    fn enter(&self, cx: &mut Context) -> Step {
        for (id, text) in &self.texts {
            cx.set_variable(*id, text);
        }
        if let Some(recorded) = self.recorded {
            cx.set_recorded(recorded);
        }
        Step::Next
    }
}
