//! `header_regexp`: each named field must have a value that matches its regular expression.

use std::collections::BTreeMap;

use causeway_message::FieldName;
use causeway_pipeline::{Build, BuildError, Context, Matched, Matcher};
use serde_json::Value;

use super::header::values;
use crate::regexp::{Capturing, RegexpConfig};

struct HeaderRegexp(Box<[(FieldName, Capturing)]>);

/// Compiles the matcher from an object of patterns by field name.
///
/// # Errors
/// If a name is not a valid field name, or a pattern is not valid.
pub fn make(value: &Value, build: &mut Build<'_>) -> Result<Box<dyn Matcher>, BuildError> {
    let written: BTreeMap<String, RegexpConfig> = build.parse(value)?;
    let mut conditions = Vec::with_capacity(written.len());
    for (name, pattern) in &written {
        let Some(field) = FieldName::parse(name) else { return Err(build.refuse(name, "a field name")) };
        conditions.push((field, build.at(name, |build| Capturing::compile(pattern, build))?));
    }
    Ok(Box::new(HeaderRegexp(conditions.into())))
}

impl Matcher for HeaderRegexp {
    fn matches(&self, cx: &mut Context) -> Matched {
        Ok(self.0.iter().all(|(name, pattern)| {
            let Some(number) = values(cx, name).position(|value| pattern.search(cx, value)) else { return false };
            // Filling placeholders needs the context mutably, so the value is copied first.
            cx.with_scratch(|cx, text| {
                text.extend(values(cx, name).nth(number).into_iter().flatten());
                pattern.fill(cx, text);
            });
            true
        }))
    }
}
