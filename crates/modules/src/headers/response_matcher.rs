//! Conditions that a response must meet for operations to apply to it.

use causeway_message::{FieldMap, FieldName, StatusCode};
use causeway_pipeline::{Build, BuildError};

use super::ResponseMatcherConfig;
use crate::glob::Affix;

type Patterns = Vec<Box<[u8]>>;

pub(crate) struct ResponseMatcher {
    /// Status codes; a value below 10 is a class, such as 4 for 4xx. Empty matches any status.
    status: Vec<u16>,
    /// Value patterns, of which one must match. `None` requires that the field is absent, an empty list that it is
    /// present.
    fields: Vec<(FieldName, Option<Patterns>)>,
}

/// Returns whether a status is `wanted`: a code, or a class such as 2 for 2xx.
pub(crate) fn status_matches(status: StatusCode, wanted: u16) -> bool {
    let code = status.as_u16();
    wanted == code || wanted == code / 100
}

impl ResponseMatcher {
    pub(crate) fn build(written: ResponseMatcherConfig, build: &Build<'_>) -> Result<Self, BuildError> {
        let mut fields = Vec::with_capacity(written.headers.len());
        for (name, patterns) in written.headers {
            let patterns = patterns.map(|patterns| patterns.into_iter().map(|p| p.into_bytes().into()).collect());
            let Some(name) = FieldName::parse(&name) else { return Err(build.refuse(name, "a field name")) };
            fields.push((name, patterns));
        }
        Ok(Self { status: written.status_code, fields })
    }

    /// Returns whether the response meets the conditions on the status and on every field.
    pub(crate) fn holds(&self, fields: &FieldMap, status: StatusCode) -> bool {
        (self.status.is_empty() || self.status.iter().any(|&wanted| status_matches(status, wanted)))
            && self.fields.iter().all(|(name, patterns)| match patterns {
                None => !fields.contains(name),
                Some(patterns) if patterns.is_empty() => fields.contains(name),
                Some(patterns) => {
                    fields.get_all(name).any(|value| patterns.iter().any(|pattern| Affix::of(pattern).matches(value)))
                }
            })
    }
}
