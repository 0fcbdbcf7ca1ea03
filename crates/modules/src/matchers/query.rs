//! `query`: each named key must have one of its listed values.

use std::collections::BTreeMap;

use causeway_pipeline::{Build, BuildError, Context, Matched, Matcher, Template};
use serde_json::Value;

use causeway_message::path::hex;
use causeway_message::query::pairs;

/// Each key with the accepted values.
struct QueryMatcher(Box<[(Template, Box<[Template]>)]>);

/// Compiles the matcher from an object of lists of values; `*` accepts any value. An empty object matches a request
/// without a query. Keys and values are compared decoded. A query with an invalid escape or a `;` never matches.
///
/// # Errors
/// If the value has another shape.
pub fn make(value: &Value, build: &mut Build<'_>) -> Result<Box<dyn Matcher>, BuildError> {
    let written: BTreeMap<String, Vec<String>> = build.parse(value)?;
    let conditions = written
        .iter()
        .map(|(key, values)| (build.template(key), values.iter().map(|value| build.template(value)).collect()));
    Ok(Box::new(QueryMatcher(conditions.collect())))
}

impl Matcher for QueryMatcher {
    fn matches(&self, cx: &mut Context) -> Matched {
        let query = cx.head().target().query().unwrap_or_default().as_bytes();
        if self.0.is_empty() {
            // As in Go, pairs that cannot be decoded do not count.
            return Ok(!pairs(query).any(|(key, value)| is_decodable(key) && is_decodable(value)));
        }
        if !is_decodable(query) {
            return Ok(false);
        }
        Ok(self.0.iter().all(|(key, values)| {
            cx.with_rendered(key, |cx, key| {
                values.iter().any(|value| {
                    cx.with_rendered(value, |cx, value| {
                        let query = cx.head().target().query().unwrap_or_default().as_bytes();
                        pairs(query).any(|(k, v)| decodes_to(k, key) && (value == b"*" || decodes_to(v, value)))
                    })
                })
            })
        }))
    }
}

fn is_decodable(query: &[u8]) -> bool {
    let mut rest = query;
    while let Some(at) = rest.iter().position(|byte| matches!(byte, b'%' | b';')) {
        match rest[at..] {
            [b'%', high, low, ..] if hex(high).is_some() && hex(low).is_some() => rest = &rest[at + 3..],
            _ => return false,
        }
    }
    true
}

/// Compares while decoding, so it does not allocate: `+` is a space, `%xy` a byte.
fn decodes_to(raw: &[u8], text: &[u8]) -> bool {
    let (mut raw, mut text) = (raw, text.iter());
    loop {
        let byte = match *raw {
            [] => return text.next().is_none(),
            [b'+', ref rest @ ..] => {
                raw = rest;
                b' '
            }
            [b'%', high, low, ref rest @ ..] => {
                let (Some(high), Some(low)) = (hex(high), hex(low)) else { return false };
                raw = rest;
                high << 4 | low
            }
            [byte, ref rest @ ..] => {
                raw = rest;
                byte
            }
        };
        if text.next() != Some(&byte) {
            return false;
        }
    }
}
