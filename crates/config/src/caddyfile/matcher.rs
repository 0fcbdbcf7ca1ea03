//! Request matchers: definitions with `@name`, and the syntax of each kind.

mod kinds;

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::error::{Error, ErrorKind, Part};
use super::segment::Segment;
use super::token::{Quote, Token};

pub(crate) use kinds::{PRIVATE_RANGES, header_lines};

/// Matchers that must all match, by kind.
pub type MatcherSet = Map<String, Value>;

/// The set for a path in place of a matcher's name.
pub(crate) fn path(path: &str) -> MatcherSet {
    MatcherSet::from_iter([("path".to_owned(), Value::from(vec![path]))])
}

/// `@name kind …`, `@name { kind … }` or `@name "expression"`.
pub(crate) fn definition(segment: &Segment) -> Result<MatcherSet, Error> {
    let name = &segment.name.text[1..];
    let inner = match segment.rest() {
        // Of a quoted word and others behind it Caddy looks at the first only.
        Some(rest) if rest.name.quoted() => vec![Segment { arguments: Vec::new(), block: None, ..rest }],
        Some(rest) => vec![rest],
        // In the block of a definition, unlike in that of `not`, a quoted word is the name of a kind.
        None => segment.block.iter().flatten().cloned().map(bare).collect(),
    };
    set(&inner, name)
}

/// The set that follows a word on its line or in its block, as behind `lb_retry_match`.
pub(crate) fn nested(segment: &Segment) -> Result<MatcherSet, Error> {
    match segment.rest() {
        Some(rest) => set(&[rest], ""),
        None => set(segment.block.as_deref().unwrap_or_default(), ""),
    }
}

fn bare(mut line: Segment) -> Segment {
    line.name.quote = Quote::None;
    line
}

/// The set that lines describe. Several lines of one kind are one matcher. `name` is what regular expressions are named
/// after, empty inside `not`.
fn set(lines: &[Segment], name: &str) -> Result<MatcherSet, Error> {
    let mut by_kind: BTreeMap<Box<str>, Vec<Segment>> = BTreeMap::new();
    for line in lines {
        if line.name.quoted() {
            // A quoted word where a kind belongs is an expression.
            let expression = Token { text: "expression".into(), ..line.name.clone() };
            let arguments = Vec::from_iter(std::iter::once(&line.name).chain(&line.arguments).cloned());
            let line = Segment { name: expression, arguments, block: None, closes: line.closes.clone() };
            by_kind.entry(line.name.text.clone()).or_default().push(line);
        } else {
            by_kind.entry(line.name.text.clone()).or_default().push(line.clone());
        }
    }
    let mut set = MatcherSet::new();
    for (kind, lines) in by_kind {
        let first = &lines[0].name;
        let value = match kinds::KINDS.iter().find(|(known, _)| **known == *kind) {
            Some((_, Some(parse))) => parse(&lines, name)?,
            Some((_, None)) => return Err(Error::at(first, ErrorKind::NotBuilt(Part::Matcher, kind))),
            None => {
                let rule = "getting matcher module '{}': module not registered";
                return Err(Error::at(first, ErrorKind::Unknown { rule, name: kind, expected: kinds::NAMES }));
            }
        };
        set.insert(kind.into(), value);
    }
    Ok(set)
}
