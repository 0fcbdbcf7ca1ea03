//! The syntax of each kind of matcher: a function from its lines to its JSON.

use serde_json::{Map, Value, json};

use super::super::directives::canonical;
use super::super::error::{Error, ErrorKind};
use super::super::segment::Segment;
use super::super::token::Token;

type Parse = fn(&[Segment], &str) -> Result<Value, Error>;

/// All of Caddy's kinds.
pub(super) const KINDS: &[(&str, Parse)] = &[
    ("client_ip", ranges),
    ("expression", expression),
    ("file", file),
    ("header", header),
    ("header_regexp", header_regexp),
    ("host", words),
    ("method", words),
    ("not", not),
    ("path", words),
    ("path_regexp", path_regexp),
    ("protocol", protocol),
    ("query", query),
    ("remote_ip", ranges),
    ("tls", tls),
    ("url_pattern", url_pattern),
    ("vars", vars),
    ("vars_regexp", vars_regexp),
];

/// The names above, for the error about an unknown kind.
pub(super) const NAMES: &[&str] = &{
    let mut names = [""; KINDS.len()];
    let mut index = 0;
    while index < names.len() {
        names[index] = KINDS[index].0;
        index += 1;
    }
    names
};

/// The expansion of `private_ranges`.
pub(crate) const PRIVATE_RANGES: [&str; 6] =
    ["192.168.0.0/16", "172.16.0.0/12", "10.0.0.0/8", "127.0.0.1/8", "fd00::/8", "::1"];

fn fail<T>(token: &Token, rule: &'static str) -> Result<T, Error> {
    Err(Error::at(token, ErrorKind::Word { rule, found: token.text.clone() }))
}

fn last(line: &Segment) -> &Token {
    line.arguments.last().unwrap_or(&line.name)
}

fn count<T>(line: &Segment) -> Result<T, Error> {
    let last = last(line);
    Err(Error::at(last, ErrorKind::ArgumentCount(last.text.clone())))
}

fn no_block(line: &Segment) -> Result<(), Error> {
    match line.block.iter().flatten().next() {
        Some(_) => fail(&line.name, "malformed {} matcher: blocks are not supported"),
        None => Ok(()),
    }
}

/// Splits off a further matcher of this kind, which starts with the kind's name on the same line. Returns its
/// arguments, or `None` at the end of the line.
///
/// DEVIATES: Caddy accepts any word in place of the kind's name.
fn further<'a>(line: &Segment, arguments: &'a [Token]) -> Result<Option<&'a [Token]>, Error> {
    let Some((next, rest)) = arguments.split_first() else { return Ok(None) };
    if next.text == line.name.text {
        return Ok(Some(rest));
    }
    fail(next, "unexpected '{}' in a matcher; expected the line to end before it")
}

/// A list of words. As in Caddy, an empty list becomes null.
fn words(lines: &[Segment], _name: &str) -> Result<Value, Error> {
    let mut words = Vec::new();
    for line in lines {
        no_block(line)?;
        words.extend(line.arguments.iter().map(|token| Value::from(&*token.text)));
    }
    Ok(if words.is_empty() { Value::Null } else { words.into() })
}

fn push(map: &mut Map<String, Value>, key: &str, value: Value) {
    match map.get_mut(key) {
        Some(Value::Array(values)) => values.push(value),
        _ => {
            map.insert(key.to_owned(), Value::Array(vec![value]));
        }
    }
}

fn header(lines: &[Segment], _name: &str) -> Result<Value, Error> {
    let mut fields = Map::new();
    for line in lines {
        header_lines(line, &mut fields)?;
    }
    Ok(fields.into())
}

/// Parses a `header` line: `Field value` or `!Field`. Response matchers use this syntax too.
pub(crate) fn header_lines(line: &Segment, fields: &mut Map<String, Value>) -> Result<(), Error> {
    let mut name = &line.name;
    let mut arguments = line.arguments.as_slice();
    loop {
        let Some((field, rest)) = arguments.split_first() else {
            return fail(name, "malformed header matcher: expected field; expected one after {}");
        };
        match (field.text.strip_prefix('!'), rest.split_first()) {
            (Some(""), _) => {
                return fail(field, "malformed header matcher: must have field name following {} character");
            }
            (Some(_), Some((value, _))) => {
                let rule =
                    "malformed header matcher: null matching headers cannot have a field value; expected none, got {}";
                return fail(value, rule);
            }
            (Some(absent), None) => {
                fields.insert(absent.to_owned(), Value::Null);
                arguments = rest;
            }
            (None, None) => {
                let rule = "malformed header matcher: expected both field and value; expected a value after {}";
                return fail(field, rule);
            }
            (None, Some((value, rest))) => {
                push(fields, &canonical(&field.text), (*value.text).into());
                arguments = rest;
            }
        }
        let Some(rest) = further(line, arguments)? else { return no_block(line) };
        (name, arguments) = (&arguments[0], rest);
    }
}

fn query(lines: &[Segment], _name: &str) -> Result<Value, Error> {
    let mut pairs = Map::new();
    for line in lines {
        for token in line.arguments.iter().filter(|token| !token.text.is_empty()) {
            let Some((key, value)) = token.text.split_once('=') else {
                return fail(token, "malformed query matcher token: {}; must be in param=val format");
            };
            push(&mut pairs, key, value.into());
        }
        no_block(line)?;
    }
    Ok(pairs.into())
}

fn regexp(name: &str, pattern: &Token) -> Value {
    let mut regexp = Map::new();
    if !name.is_empty() {
        regexp.insert("name".into(), name.into());
    }
    regexp.insert("pattern".into(), (*pattern.text).into());
    regexp.into()
}

fn path_regexp(lines: &[Segment], name: &str) -> Result<Value, Error> {
    if let Some(second) = lines.get(1) {
        let rule = "regular expression can only be used once per named matcher; expected no second {}";
        return fail(&second.name, rule);
    }
    let line = &lines[0];
    no_block(line)?;
    match line.arguments.as_slice() {
        [pattern] => Ok(regexp(name, pattern)),
        [own, pattern] => Ok(regexp(if own.text.is_empty() { name } else { &own.text }, pattern)),
        _ => count(line),
    }
}

/// `url_pattern PATTERN`, with the options `base_url URL` and `ignore_case` in a block.
fn url_pattern(lines: &[Segment], _name: &str) -> Result<Value, Error> {
    // DEVIATES: in Caddy the last one replaces the others.
    if let Some(second) = lines.get(1) {
        return fail(&second.name, "expected no second {} in a named matcher");
    }
    let line = &lines[0];
    let [pattern] = line.arguments.as_slice() else {
        return fail(last(line), "expected exactly one URL pattern; found '{}'");
    };
    let mut matcher = Map::from_iter([("pattern".to_owned(), Value::from(&*pattern.text))]);
    for option in line.block.iter().flatten() {
        no_block(option)?;
        let value = match (&*option.name.text, option.arguments.as_slice()) {
            ("base_url", [url]) => Value::from(&*url.text),
            ("ignore_case", []) => Value::from(true),
            ("base_url" | "ignore_case", _) => return count(option),
            _ => {
                let (rule, name) = ("unrecognized url_pattern option '{}'", option.name.text.clone());
                let expected = &["base_url", "ignore_case"];
                return Err(Error::at(&option.name, ErrorKind::Unknown { rule, name, expected }));
            }
        };
        matcher.insert(option.name.text.to_string(), value);
    }
    Ok(matcher.into())
}

/// Parses lines of `[name] field pattern`. `once` is the error for a repeated field; `None` allows repetition.
fn named_regexps(lines: &[Segment], name: &str, once: Option<&'static str>) -> Result<Value, Error> {
    let mut fields = Map::new();
    for line in lines {
        let mut arguments = line.arguments.as_slice();
        loop {
            let (own, field, pattern, rest) = match arguments {
                [field, pattern] => (name, field, pattern, &[][..]),
                [own, field, pattern, rest @ ..] => {
                    (if own.text.is_empty() { name } else { &*own.text }, field, pattern, rest)
                }
                _ => return count(line),
            };
            if let (Some(rule), true) = (once, fields.contains_key(&*field.text)) {
                return fail(field, rule);
            }
            fields.insert(field.text.to_string(), regexp(own, pattern));
            let Some(rest) = further(line, rest)? else { break };
            arguments = rest;
        }
        no_block(line)?;
    }
    Ok(fields.into())
}

fn header_regexp(lines: &[Segment], name: &str) -> Result<Value, Error> {
    let once = "header_regexp matcher can only be used once per named matcher, per header field: {}";
    named_regexps(lines, name, Some(once))
}

fn vars_regexp(lines: &[Segment], name: &str) -> Result<Value, Error> {
    named_regexps(lines, name, None)
}

fn vars(lines: &[Segment], _name: &str) -> Result<Value, Error> {
    let mut variables = Map::new();
    for line in lines {
        let Some((key, values)) = line.arguments.split_first() else {
            return fail(&line.name, "malformed {} matcher: expected field name");
        };
        if values.is_empty() {
            let rule = "malformed vars matcher: expected at least one value to match against; expected one after {}";
            return fail(key, rule);
        }
        values.iter().for_each(|value| push(&mut variables, &key.text, (*value.text).into()));
        no_block(line)?;
    }
    Ok(variables.into())
}

fn protocol(lines: &[Segment], _name: &str) -> Result<Value, Error> {
    let mut protocol = Value::Null;
    for line in lines {
        if line.arguments.len().is_multiple_of(2) {
            return fail(last(line), "expected exactly one protocol; expected it after '{}'");
        }
        let mut arguments = line.arguments.as_slice();
        while let Some((word, rest)) = arguments.split_first() {
            protocol = (*word.text).into();
            arguments = further(line, rest)?.unwrap_or_default();
        }
        no_block(line)?;
    }
    Ok(protocol)
}

fn ranges(lines: &[Segment], _name: &str) -> Result<Value, Error> {
    let mut ranges: Vec<Value> = Vec::new();
    for line in lines {
        for token in &line.arguments {
            match &*token.text {
                "forwarded" if &*line.name.text == "remote_ip" => {
                    return fail(token, "the '{}' option is no longer supported; use the 'client_ip' matcher instead");
                }
                "private_ranges" => ranges.extend(PRIVATE_RANGES.map(Value::from)),
                range => ranges.push(range.into()),
            }
        }
        no_block(line)?;
    }
    Ok(if ranges.is_empty() { json!({}) } else { json!({ "ranges": ranges }) })
}

/// One quoted expression, or several words joined with their quotes. Only the single word takes the matcher's name.
fn expression(lines: &[Segment], name: &str) -> Result<Value, Error> {
    if let Some(second) = lines.get(1) {
        return fail(&second.name, "repeated {} matchers are not supported, combine them into one expression with &&");
    }
    no_block(&lines[0])?;
    match lines[0].arguments.as_slice() {
        [] => count(&lines[0]),
        [only] if name.is_empty() => Ok((*only.text).into()),
        [only] => Ok(json!({ "expr": *only.text, "name": name })),
        several => Ok(several.iter().map(Token::raw).collect::<Vec<_>>().join(" ").into()),
    }
}

fn tls(lines: &[Segment], _name: &str) -> Result<Value, Error> {
    let mut matcher = Map::new();
    for line in lines {
        match line.arguments.as_slice() {
            [] => {}
            [option] if &*option.text == "early_data" => {
                matcher.insert("handshake_complete".into(), false.into());
            }
            [option, ..] if &*option.text != "early_data" => {
                return fail(option, "unrecognized option '{}'; expected early_data");
            }
            _ => return count(line),
        }
        no_block(line)?;
    }
    Ok(matcher.into())
}

fn file(lines: &[Segment], _name: &str) -> Result<Value, Error> {
    let mut matcher = Map::new();
    let mut tries: Vec<Value> = Vec::new();
    let texts = |tokens: &[Token]| Vec::from_iter(tokens.iter().map(|token| Value::from(&*token.text)));
    for line in lines {
        tries.extend(texts(&line.arguments));
        for option in line.block.iter().flatten() {
            no_block(option)?;
            let name = &*option.name.text;
            let unknown = |token: &Token| {
                let rule = "unrecognized subdirective: {}";
                let expected = &["root", "split_path", "try_files", "try_policy"];
                Err(Error::at(token, ErrorKind::Unknown { rule, name: token.text.clone(), expected }))
            };
            match (name, option.arguments.as_slice()) {
                ("root" | "try_policy", [value]) => {
                    matcher.insert(name.to_owned(), (*value.text).into());
                }
                // Caddy reads a second word as another option, which is unknown.
                ("root" | "try_policy", [_, surplus, ..]) => return unknown(surplus),
                ("split_path", [_, ..]) => {
                    matcher.insert("split_path".into(), texts(&option.arguments).into());
                }
                ("try_files", arguments) if !arguments.is_empty() || !tries.is_empty() => {
                    tries.extend(texts(arguments));
                }
                ("root" | "try_policy" | "split_path" | "try_files", _) => return count(option),
                _ => return unknown(&option.name),
            }
        }
    }
    if !tries.is_empty() {
        matcher.insert("try_files".into(), tries.into());
    }
    Ok(matcher.into())
}

/// Longest run of `not not …`. Bounds the recursion, so that no line can exhaust the stack.
const NOTS_MAX: usize = 4;

/// Each line is one set that must not match: `not kind …` or `not { kind … }`.
fn not(lines: &[Segment], _name: &str) -> Result<Value, Error> {
    let mut sets = Vec::new();
    for line in lines {
        if line.arguments.iter().take_while(|token| &*token.text == "not").count() >= NOTS_MAX {
            return fail(&line.name, "more than four '{}' in a row");
        }
        let inner = match line.rest() {
            Some(rest) => vec![rest],
            None => line.block.clone().unwrap_or_default(),
        };
        sets.push(Value::Object(super::set(&inner, "")?));
    }
    Ok(sets.into())
}
