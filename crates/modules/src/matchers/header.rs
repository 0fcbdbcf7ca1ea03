//! `header`: each named field must have a value that matches one of its patterns.

use std::collections::BTreeMap;

use causeway_message::{FieldName, names};
use causeway_pipeline::{Build, BuildError, Context, Matched, Matcher, Template};
use serde_json::Value;

use crate::glob::Affix;

struct HeaderMatcher(Box<[Condition]>);

struct Condition {
    name: FieldName,
    wanted: FieldCondition,
}

enum FieldCondition {
    /// `null`: the field must be absent.
    Absent,
    /// `[]`: the field must be present.
    Present,
    /// One value must match one of these patterns.
    Patterns(Box<[Template]>),
}

/// Compiles the matcher from an object of lists of patterns, each with a `*` at the start, at the end, at both or
/// nowhere. Values may contain placeholders, names not.
///
/// # Errors
/// If a name is not a valid field name.
pub fn make(value: &Value, build: &mut Build<'_>) -> Result<Box<dyn Matcher>, BuildError> {
    let written: BTreeMap<String, Option<Vec<String>>> = build.parse(value)?;
    let mut conditions = Vec::with_capacity(written.len());
    for (name, patterns) in written {
        let Some(name) = FieldName::parse(&name) else { return Err(build.refuse(name, "a field name")) };
        let wanted = match patterns {
            None => FieldCondition::Absent,
            Some(patterns) if patterns.is_empty() => FieldCondition::Present,
            Some(patterns) => {
                FieldCondition::Patterns(patterns.iter().map(|pattern| build.template(pattern)).collect())
            }
        };
        conditions.push(Condition { name, wanted });
    }
    Ok(Box::new(HeaderMatcher(conditions.into())))
}

impl Matcher for HeaderMatcher {
    fn matches(&self, cx: &mut Context) -> Matched {
        Ok(self.0.iter().all(|condition| condition.holds(cx)))
    }
}

impl Condition {
    fn holds(&self, cx: &mut Context) -> bool {
        match &self.wanted {
            FieldCondition::Absent => values(cx, &self.name).next().is_none(),
            FieldCondition::Present => values(cx, &self.name).next().is_some(),
            FieldCondition::Patterns(patterns) => patterns.iter().any(|pattern| {
                cx.with_rendered(pattern, |cx, pattern| {
                    let pattern = Affix::of(pattern);
                    values(cx, &self.name).any(|value| pattern.matches(value))
                })
            }),
        }
    }
}

/// Returns the values of a field. Host is taken from the request's authority, which may be in the target instead of the
/// fields (RFC 9112 §3.2.2; HTTP/2's :authority). An empty authority yields no value.
pub(super) fn values<'c>(cx: &'c Context, name: &'c FieldName) -> impl Iterator<Item = &'c [u8]> {
    let is_host = *name == FieldName::from(names::HOST);
    let host = cx.head().authority().filter(|host| is_host && !host.is_empty()).map(str::as_bytes);
    let fields = (!is_host).then(|| cx.head().fields().get_all(name));
    host.into_iter().chain(fields.into_iter().flatten())
}
