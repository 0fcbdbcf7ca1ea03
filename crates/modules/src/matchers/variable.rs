//! `vars` and `vars_regexp`: what a variable or a placeholder says. One of the named suffices.

use std::collections::BTreeMap;

use causeway_pipeline::{Build, BuildError, Context, Matched, Matcher, Template};
use serde_json::Value;

use crate::regexp::{Capturing, Written};

/// Each variable with the texts of which it must be one.
struct Vars(Box<[(Template, Box<[Template]>)]>);

struct VarsRegexp(Box<[(Template, Capturing)]>);

/// Makes `vars` from an object of lists of texts, by variable; a key in braces is a placeholder. An empty object matches all.
///
/// # Errors
/// When it is no such object.
pub fn make(value: &Value, build: &mut Build<'_>) -> Result<Box<dyn Matcher>, BuildError> {
    let written: BTreeMap<String, Vec<String>> = build.parse(value)?;
    let conditions = written.iter().map(|(key, values)| {
        let values = values.iter().map(|value| build.template(value)).collect();
        (subject(key, build), values)
    });
    Ok(Box::new(Vars(conditions.collect())))
}

/// Makes `vars_regexp` from an object of patterns, by variable.
///
/// # Errors
/// When a pattern is none.
pub fn make_regexp(value: &Value, build: &mut Build<'_>) -> Result<Box<dyn Matcher>, BuildError> {
    let written: BTreeMap<String, Written> = build.parse(value)?;
    let mut conditions = Vec::with_capacity(written.len());
    for (key, pattern) in &written {
        let pattern = build.at(key, |build| Capturing::compile(pattern, build))?;
        conditions.push((subject(key, build), pattern));
    }
    Ok(Box::new(VarsRegexp(conditions.into())))
}

/// What a key names: `{placeholder}`, else a variable, braces and all.
fn subject(key: &str, build: &mut Build<'_>) -> Template {
    let is_placeholder = key.starts_with('{') && key.ends_with('}') && key.matches('{').count() == 1;
    if is_placeholder {
        return build.template(&format!("{{{}}}", key.trim_matches(['{', '}'])));
    }
    let escaped = key.replace('{', "\\{").replace('}', "\\}");
    build.template(&format!("{{http.vars.{escaped}}}"))
}

impl Matcher for Vars {
    fn matches(&self, cx: &mut Context) -> Matched {
        Ok(self.0.is_empty()
            || self.0.iter().any(|(subject, values)| {
                cx.rendered(subject, |cx, text| values.iter().any(|value| cx.rendered(value, |_, value| text == value)))
            }))
    }
}

impl Matcher for VarsRegexp {
    fn matches(&self, cx: &mut Context) -> Matched {
        Ok(self.0.iter().any(|(subject, pattern)| cx.rendered(subject, |cx, text| pattern.matches(cx, text))))
    }
}
