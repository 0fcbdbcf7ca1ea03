//! `vars` and `vars_regexp`: the value of a variable or a placeholder. One of the listed keys must match.

use std::collections::BTreeMap;

use causeway_pipeline::{Build, BuildError, Context, Matched, Matcher, Template};
use serde_json::Value;

use crate::regexp::{Capturing, RegexpConfig};
use crate::rendered::is_placeholder;

/// Each subject with the accepted values.
struct Vars(Box<[(Template, Box<[Template]>)]>);

struct VarsRegexp(Box<[(Template, Capturing)]>);

/// Compiles `vars` from an object of lists of values by variable; a key in braces is a placeholder. An empty object
/// always matches.
///
/// # Errors
/// If the value has another shape.
pub fn make(value: &Value, build: &mut Build<'_>) -> Result<Box<dyn Matcher>, BuildError> {
    let written: BTreeMap<String, Vec<String>> = build.parse(value)?;
    let conditions = written.iter().map(|(key, values)| {
        let values = values.iter().map(|value| build.template(value)).collect();
        (subject(key, build), values)
    });
    Ok(Box::new(Vars(conditions.collect())))
}

/// Compiles `vars_regexp` from an object of patterns by variable.
///
/// # Errors
/// If a pattern is not valid.
pub fn make_regexp(value: &Value, build: &mut Build<'_>) -> Result<Box<dyn Matcher>, BuildError> {
    let written: BTreeMap<String, RegexpConfig> = build.parse(value)?;
    let mut conditions = Vec::with_capacity(written.len());
    for (key, pattern) in &written {
        let pattern = build.at(key, |build| Capturing::compile(pattern, build))?;
        conditions.push((subject(key, build), pattern));
    }
    Ok(Box::new(VarsRegexp(conditions.into())))
}

/// Compiles a key: `{placeholder}` as a placeholder, any other text as a variable's name, braces included.
fn subject(key: &str, build: &mut Build<'_>) -> Template {
    if is_placeholder(key) {
        return build.template(&format!("{{{}}}", key.trim_matches(['{', '}'])));
    }
    let escaped = key.replace('{', "\\{").replace('}', "\\}");
    build.template(&format!("{{http.vars.{escaped}}}"))
}

impl Matcher for Vars {
    fn matches(&self, cx: &mut Context) -> Matched {
        Ok(self.0.is_empty()
            || self.0.iter().any(|(subject, values)| {
                cx.with_rendered(subject, |cx, text| {
                    values.iter().any(|value| cx.with_rendered(value, |_, value| text == value))
                })
            }))
    }
}

impl Matcher for VarsRegexp {
    fn matches(&self, cx: &mut Context) -> Matched {
        Ok(self.0.iter().any(|(subject, pattern)| cx.with_rendered(subject, |cx, text| pattern.matches(cx, text))))
    }
}
