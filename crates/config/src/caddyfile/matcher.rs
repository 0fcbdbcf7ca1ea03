//! Request matchers: `@name` definitions, and the syntax of each kind of matcher (`kinds`).

mod kinds;

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::error::{Error, ErrorKind};
use super::segment::Segment;
use super::token::{Quote, Token};

pub(crate) use kinds::{PRIVATE_RANGES, header_lines};

/// Matchers by kind. All must match.
pub type MatcherSet = Map<String, Value>;

/// The set for a path given in place of a matcher's name.
pub(crate) fn path(path: &str) -> MatcherSet {
    MatcherSet::from_iter([("path".to_owned(), Value::from(vec![path]))])
}

/// `@name kind …`, `@name { kind … }` or `@name "expression"`.
pub(crate) fn definition(segment: &Segment) -> Result<MatcherSet, Error> {
    let name = &segment.name.text[1..];
    let inner = match segment.rest() {
        // DEVIATES: if words follow a quoted expression, Caddy ignores them. Here they are an error.
        Some(rest) if rest.name.quoted() && !rest.arguments.is_empty() => {
            let surplus = &rest.arguments[0];
            let rule = "unexpected '{}' after a quoted expression; expected the line to end before it";
            return Err(Error::at(surplus, ErrorKind::Word { rule, found: surplus.text.clone() }));
        }
        Some(rest) => vec![rest],
        // In the block of a definition, unlike in that of `not`, a quoted word is the name of a kind.
        None => segment.block.iter().flatten().cloned().map(bare).collect(),
    };
    set(&inner, name)
}

/// Parses the set after a word, on its line or in its block, as for `lb_retry_match`.
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

/// Parses lines into a set. Several lines of one kind form one matcher. `name` becomes the name of regular expressions;
/// it is empty inside `not`.
fn set(lines: &[Segment], name: &str) -> Result<MatcherSet, Error> {
    let mut by_kind: BTreeMap<Box<str>, Vec<Segment>> = BTreeMap::new();
    for line in lines {
        let mut rest = Some(line.clone());
        while let Some(mut line) = rest.take() {
            // A quoted word in the position of a kind is an expression. The words after it are another matcher, as in
            // Caddy, and have the block.
            if line.name.quoted() {
                rest = line.rest();
                let name = Token { text: "expression".into(), ..line.name.clone() };
                line.arguments = vec![std::mem::replace(&mut line.name, name)];
                if rest.is_some() {
                    line.block = None;
                }
            }
            by_kind.entry(line.name.text.clone()).or_default().push(line);
        }
    }
    let mut set = MatcherSet::new();
    for (kind, lines) in by_kind {
        let first = &lines[0].name;
        let value = match kinds::KINDS.iter().find(|(known, _)| **known == *kind) {
            Some((_, parse)) => parse(&lines, name)?,
            None => {
                let rule = "getting matcher module '{}': module not registered";
                return Err(Error::at(first, ErrorKind::Unknown { rule, name: kind, expected: kinds::NAMES }));
            }
        };
        set.insert(kind.into(), value);
    }
    Ok(set)
}
