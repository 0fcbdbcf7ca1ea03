//! Finds the differences between two responses, or between two adapted configurations.

use std::collections::BTreeSet;

use serde_json::Value;

use super::exchange::{NormalizedResponse, ResponseEnd};
use super::origin::ECHO;

/// The part of an outcome that differs, in order of significance: a response with another status also differs in many
/// other parts, and only the most significant one is reported.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ResponseAspect {
    /// Only one server accepts the Caddyfile.
    Accepted,
    /// The Caddyfile's JSON.
    Adapted,
    Status,
    End,
    /// A line of the request that the origin received: a field's name in lower case, `line` or `content`.
    Forwarded(String),
    Body,
    /// A field of the response, by its name in lower case.
    Field(String),
    Interim,
    Kept,
    Reason,
    Version,
}

/// A difference: the part, with its value on each side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Difference {
    pub(crate) part: ResponseAspect,
    pub(crate) caddy: String,
    pub(crate) causeway: String,
}

impl Difference {
    pub(crate) fn new(part: ResponseAspect, caddy: impl Into<String>, causeway: impl Into<String>) -> Self {
        Self { part, caddy: caddy.into(), causeway: causeway.into() }
    }

    /// Returns the class of the difference. A run reports a few differences per class and counts the rest.
    pub(crate) fn class(&self) -> String {
        match &self.part {
            ResponseAspect::Status => format!("status: Caddy {}, Causeway {}", self.caddy, self.causeway),
            ResponseAspect::End => format!("end: Caddy {}, Causeway {}", self.caddy, self.causeway),
            ResponseAspect::Field(name) => format!("field {name}"),
            ResponseAspect::Forwarded(name) => format!("forwarded request: {name}"),
            part => format!("{part:?}").to_lowercase(),
        }
    }
}

/// Returns all differences between two responses.
pub(crate) fn answers(caddy: &NormalizedResponse, causeway: &NormalizedResponse) -> Vec<Difference> {
    let mut differences = Vec::new();
    let mut check = |part, one: String, other: String| {
        if one != other {
            differences.push(Difference::new(part, one, other));
        }
    };
    check(ResponseAspect::End, format!("{:?}", caddy.end), format!("{:?}", causeway.end));
    check(ResponseAspect::Interim, format!("{:?}", caddy.interim), format!("{:?}", causeway.interim));
    check(ResponseAspect::Version, caddy.version.clone(), causeway.version.clone());
    check(ResponseAspect::Status, caddy.status.to_string(), causeway.status.to_string());
    check(ResponseAspect::Reason, caddy.reason.clone(), causeway.reason.clone());
    let names: BTreeSet<&str> =
        [caddy, causeway].iter().flat_map(|answer| answer.fields.iter().map(|field| &*field.0)).collect();
    for name in names {
        let values = |answer: &NormalizedResponse| {
            answer.values(name).map(|value| format!("{value:?}")).collect::<Vec<_>>().join(", ")
        };
        check(ResponseAspect::Field(name.to_owned()), values(caddy), values(causeway));
    }
    // Whether the connection is kept is only comparable after complete responses.
    if caddy.end == ResponseEnd::Complete && causeway.end == ResponseEnd::Complete {
        check(ResponseAspect::Kept, caddy.kept.to_string(), causeway.kept.to_string());
    }
    let (one, other) = (String::from_utf8_lossy(&caddy.body), String::from_utf8_lossy(&causeway.body));
    if let (Some(one), Some(other)) = (one.strip_prefix(ECHO), other.strip_prefix(ECHO)) {
        forwarded(one, other, &mut differences);
        // The response's length follows from the request that it repeats, whose parts are already compared.
        differences.retain(|difference| {
            difference.part != ResponseAspect::Field("content-length".to_owned())
                || difference.caddy.is_empty() != difference.causeway.is_empty()
        });
    } else if caddy.body != causeway.body {
        differences.push(Difference::new(ResponseAspect::Body, one, other));
    }
    differences
}

/// Compares two requests, as repeated by the origin.
fn forwarded(caddy: &str, causeway: &str, differences: &mut Vec<Difference>) {
    let split = |text: &str| -> Vec<(String, String)> {
        let (head, content) = text.split_once("\n\n").unwrap_or((text, ""));
        let mut lines = head.lines();
        let mut parts = vec![
            ("line".to_owned(), lines.next().unwrap_or_default().to_owned()),
            ("content".to_owned(), content.to_owned()),
        ];
        parts.extend(
            lines
                .map(|line| line.split_once(": ").unwrap_or((line.trim_end_matches(':'), "")))
                .map(|(name, value)| (name.to_owned(), value.to_owned())),
        );
        parts
    };
    let (caddy, causeway) = (split(caddy), split(causeway));
    let names: BTreeSet<&String> = caddy.iter().chain(&causeway).map(|(name, _)| name).collect();
    for name in names {
        let values = |parts: &[(String, String)]| {
            parts
                .iter()
                .filter(|part| part.0 == *name)
                .map(|part| format!("{:?}", part.1))
                .collect::<Vec<_>>()
                .join(", ")
        };
        let (one, other) = (values(&caddy), values(&causeway));
        if one != other {
            differences.push(Difference::new(ResponseAspect::Forwarded(name.clone()), one, other));
        }
    }
}

/// Returns the first difference between two JSON values. The order of members is irrelevant.
pub(crate) fn json(caddy: &Value, causeway: &Value) -> Option<Difference> {
    fn seek(path: &str, one: &Value, other: &Value) -> Option<Difference> {
        match (one, other) {
            (Value::Object(one), Value::Object(other)) => {
                let names: BTreeSet<&String> = one.keys().chain(other.keys()).collect();
                names.into_iter().find_map(|name| {
                    let at = |object: &serde_json::Map<String, Value>| object.get(name).cloned().unwrap_or(Value::Null);
                    seek(&format!("{path}/{name}"), &at(one), &at(other))
                })
            }
            (Value::Array(one), Value::Array(other)) if one.len() == other.len() => one
                .iter()
                .zip(other)
                .enumerate()
                .find_map(|(index, (one, other))| seek(&format!("{path}/{index}"), one, other)),
            _ if one == other => None,
            _ => Some(Difference::new(ResponseAspect::Adapted, format!("{path}: {one}"), format!("{path}: {other}"))),
        }
    }
    seek("", caddy, causeway)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn answer(body: &str) -> NormalizedResponse {
        NormalizedResponse {
            end: ResponseEnd::Complete,
            interim: vec![],
            version: "HTTP/1.1".to_owned(),
            status: 200,
            reason: "OK".to_owned(),
            fields: vec![("a".to_owned(), "1".to_owned()), ("a".to_owned(), "2".to_owned())],
            body: body.as_bytes().to_vec(),
            kept: true,
        }
    }

    #[track_caller]
    fn check(change: impl FnOnce(&mut NormalizedResponse), parts: &[ResponseAspect]) {
        let one = answer("text");
        let mut other = one.clone();
        change(&mut other);
        let got: Vec<ResponseAspect> = answers(&one, &other).into_iter().map(|difference| difference.part).collect();
        assert_eq!(got, parts);
    }

    #[test]
    fn each_part_of_an_answer_is_compared() {
        check(|_| {}, &[]);
        check(|answer| answer.status = 201, &[ResponseAspect::Status]);
        check(|answer| answer.reason.clear(), &[ResponseAspect::Reason]);
        check(|answer| answer.version.clear(), &[ResponseAspect::Version]);
        check(|answer| answer.interim.push(100), &[ResponseAspect::Interim]);
        check(|answer| answer.kept = false, &[ResponseAspect::Kept]);
        check(|answer| answer.body.clear(), &[ResponseAspect::Body]);
        check(|answer| answer.fields.swap(0, 1), &[ResponseAspect::Field("a".to_owned())]);
        check(|answer| answer.fields.truncate(1), &[ResponseAspect::Field("a".to_owned())]);
        check(|answer| answer.end = ResponseEnd::Cut, &[ResponseAspect::End]);
    }

    #[test]
    fn forwarded_requests_are_compared_by_field() {
        let one = answer("#origin\nGET / HTTP/1.1\nhost: a\nx: 1\n\nbody");
        let other = answer("#origin\nGET / HTTP/1.1\nhost: b\n\nBODY");
        let got: Vec<ResponseAspect> = answers(&one, &other).into_iter().map(|difference| difference.part).collect();
        assert_eq!(got, ["content", "host", "x"].map(|name| ResponseAspect::Forwarded(name.to_owned())));
    }

    #[test]
    fn the_order_of_members_does_not_count_and_that_of_elements_does() {
        assert_eq!(json(&json!({"a": 1, "b": [1, 2]}), &json!({"b": [1, 2], "a": 1})), None);
        let found = json(&json!({"b": [1, 2]}), &json!({"b": [2, 1]})).unwrap();
        assert_eq!((&*found.caddy, &*found.causeway), ("/b/0: 1", "/b/0: 2"));
        assert_eq!(json(&json!({"b": 1}), &json!({})).unwrap().causeway, "/b: null");
    }
}
