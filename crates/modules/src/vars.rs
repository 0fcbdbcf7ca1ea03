//! `vars`: gives variables their texts; `{http.vars.name}` reads them.

use std::collections::BTreeMap;

use causeway_pipeline::context::VarId;
use causeway_pipeline::{Build, BuildError, Context, Handler, Step, Template};
use serde_json::Value;

use crate::rendered::Weak;

struct Vars(Box<[(VarId, Template)]>);

/// Makes the handler from an object of strings, numbers and booleans.
///
/// # Errors
/// When a value is something else.
pub fn make(value: &Value, build: &mut Build<'_>) -> Result<Box<dyn Handler>, BuildError> {
    let written: BTreeMap<String, Weak> = build.parse(value)?;
    let vars = written.iter().map(|(name, Weak(text))| (build.variable(name), build.template(text)));
    Ok(Box::new(Vars(vars.collect())))
}

impl Handler for Vars {
    fn enter(&self, cx: &mut Context) -> Step {
        for (id, text) in &self.0 {
            cx.set_variable(*id, text);
        }
        Step::Next
    }
}
