//! `header`: for each named field one of the values must match one of the patterns.

use std::collections::BTreeMap;

use causeway_message::{FieldName, names};
use causeway_pipeline::{Build, BuildError, Context, Matched, Matcher, Template};
use serde_json::Value;

use crate::glob::Affix;

struct HeaderMatcher(Box<[Condition]>);

struct Condition {
    name: FieldName,
    wanted: Wanted,
}

enum Wanted {
    /// `null`: there must be no such field.
    Absent,
    /// `[]`: there must be one.
    Present,
    /// One value must match one of these.
    Patterns(Box<[Template]>),
}

/// Makes the matcher from an object of lists of patterns, with a `*` at the start, the end or both.
///
/// # Errors
/// When a name is no field name; placeholders are for values only.
pub fn make(value: &Value, build: &mut Build<'_>) -> Result<Box<dyn Matcher>, BuildError> {
    let written: BTreeMap<String, Option<Vec<String>>> = build.parse(value)?;
    let mut conditions = Vec::with_capacity(written.len());
    for (name, patterns) in written {
        let Some(name) = FieldName::parse(&name) else { return Err(build.refuse(name, "a field name")) };
        let wanted = match patterns {
            None => Wanted::Absent,
            Some(patterns) if patterns.is_empty() => Wanted::Present,
            Some(patterns) => Wanted::Patterns(patterns.iter().map(|pattern| build.template(pattern)).collect()),
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
            Wanted::Absent => values(cx, &self.name).next().is_none(),
            Wanted::Present => values(cx, &self.name).next().is_some(),
            Wanted::Patterns(patterns) => patterns.iter().any(|pattern| {
                cx.rendered(pattern, |cx, pattern| {
                    let pattern = Affix::of(pattern);
                    values(cx, &self.name).any(|value| pattern.matches(value))
                })
            }),
        }
    }
}

/// The values of a field. The host may stand in the target and not among the fields (RFC 9112 §3.2.2; HTTP/2's
/// :authority); an empty one is none.
pub(super) fn values<'c>(cx: &'c Context, name: &'c FieldName) -> impl Iterator<Item = &'c [u8]> {
    let is_host = *name == FieldName::from(names::HOST);
    let host = cx.head().authority().filter(|host| is_host && !host.is_empty()).map(str::as_bytes);
    let fields = (!is_host).then(|| cx.head().fields().get_all(name));
    host.into_iter().chain(fields.into_iter().flatten())
}
