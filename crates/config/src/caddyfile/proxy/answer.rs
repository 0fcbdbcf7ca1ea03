//! Handling of upstream responses: `replace_status` and `handle_response`, their matchers, and the directives inside
//! them. `intercept` handles the responses of other handlers in this way.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::super::directives::{response_matcher, texts};
use super::super::dispenser::Dispenser;
use super::super::error::{Error, ErrorKind};
use super::super::members::Members;
use super::super::quantity::{integer, weak};
use super::super::route;
use super::super::segment::Segment;
use super::super::token::Token;
use super::UNKNOWN;

/// Response handlers while the options are being parsed.
#[derive(Default)]
pub(super) struct Answers {
    matchers: BTreeMap<Box<str>, Map<String, Value>>,
    /// `handle_response` blocks, parsed once all matchers are known.
    later: Vec<Segment>,
    handlers: Vec<Value>,
}

impl Answers {
    /// Adds the handler of a shortcut.
    pub(super) fn add(&mut self, handler: Value) {
        self.handlers.push(handler);
    }

    /// Parses the line if it is one of these options.
    pub(super) fn option(&mut self, line: &mut Dispenser<'_>) -> Result<bool, Error> {
        let name = line.name();
        match &*name.text {
            matcher if matcher.starts_with('@') => {
                if self.matchers.contains_key(matcher) {
                    let rule = "matcher is defined more than once: {}; expected another name";
                    return Err(Error::at(name, ErrorKind::Word { rule, found: matcher.into() }));
                }
                let read = response_matcher(line)?;
                self.matchers.insert(matcher.into(), read);
            }
            "handle_response" => {
                self.later.push(line.take_segment());
            }
            "replace_status" => {
                let handler = self.replace_status(line)?;
                self.handlers.push(handler);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Parses `replace_status [<matcher>] <status>`.
    fn replace_status(&self, line: &mut Dispenser<'_>) -> Result<Value, Error> {
        let (matcher, status) = match line.rest() {
            [status] => (None, status),
            [matcher, status] => (Some(self.matcher(matcher)?), status),
            _ => {
                let rule = "must have one or two arguments: an optional response matcher, and a status code";
                return Err(line.rule(rule));
            }
        };
        line.expect_empty_block("cannot define routes for 'replace_status', use 'handle_response' instead.")?;
        let mut handler = Map::new();
        if let Some(matcher) = matcher {
            handler.insert("match".into(), matcher);
        }
        if !status.text.is_empty() {
            handler.insert("status_code".into(), weak(&status.text));
        }
        Ok(handler.into())
    }

    fn matcher(&self, name: &Token) -> Result<Value, Error> {
        let Some(bare) = name.text.strip_prefix('@') else {
            return Err(Error::at(name, ErrorKind::Rule("must use a named response matcher, starting with '@'")));
        };
        let Some(matcher) = self.matchers.get(&name.text) else {
            let rule = "no named response matcher defined with name '{}'";
            return Err(Error::at(name, ErrorKind::Word { rule, found: bare.into() }));
        };
        Ok(matcher.clone().into())
    }

    /// Parses the routes of `handle_response [<matcher>] { … }`.
    pub(super) fn routes(&mut self, d: &Dispenser<'_>) -> Result<(), Error> {
        for segment in std::mem::take(&mut self.later) {
            let mut line = d.over(&segment);
            let mut handler = Map::new();
            match line.rest() {
                [] => {}
                [matcher] => drop(handler.insert("match".into(), self.matcher(matcher)?)),
                several => {
                    let found = several.iter().map(|token| &*token.text).collect::<Vec<_>>().join(" ");
                    let rule = "too many arguments for 'handle_response': only a single response matcher name is \
                                allowed, but got: [{}]";
                    return Err(line.error(ErrorKind::Word { rule, found: found.into() }));
                }
            }
            let routes = line.routes()?;
            if !routes.is_empty() {
                handler.insert("routes".into(), route::json(&routes));
            }
            self.handlers.push(handler.into());
        }
        Ok(())
    }

    /// The JSON. Handlers with a matcher come first.
    pub(super) fn json(self) -> Vec<Value> {
        let (mut some, others): (Vec<_>, Vec<_>) =
            self.handlers.into_iter().partition(|handler| handler.get("match").is_some());
        some.extend(others);
        some
    }
}

/// Parses `intercept [<matcher>] { … }`.
pub(crate) fn intercept(d: &mut Dispenser<'_>) -> Result<Value, Error> {
    let mut answers = Answers::default();
    d.expect_no_argument()?;
    for mut line in d.lines() {
        if !answers.option(&mut line)? {
            return Err(line.unknown(UNKNOWN, &["@name", "handle_response", "replace_status"]));
        }
    }
    answers.routes(d)?;
    let mut handler = Map::from_iter([("handler".to_owned(), Value::from("intercept"))]);
    handler.list("handle_response", answers.json());
    Ok(handler.into())
}

/// Parses `copy_response [<matcher>] [<status>] { status <status> }`.
pub(crate) fn copy_response(d: &mut Dispenser<'_>) -> Result<Value, Error> {
    let mut handler = Map::from_iter([("handler".to_owned(), Value::from("copy_response"))]);
    let words = d.remaining();
    if let [status] = words
        && integer(&status.text).is_some_and(|status| status > 0)
    {
        d.rest();
        handler.insert("status_code".into(), weak(&status.text));
        return Ok(handler.into());
    }
    d.expect_no_argument()?;
    for mut line in d.lines() {
        if &*line.name().text != "status" {
            return Err(line.unknown("unrecognized subdirective '{}'", &["status"]));
        }
        let status = line.require()?;
        handler.shift_remove("status_code");
        if !status.text.is_empty() {
            handler.insert("status_code".into(), weak(&status.text));
        }
    }
    Ok(handler.into())
}

/// Parses `copy_response_headers [<matcher>] { include <fields…>; exclude <fields…> }`.
pub(crate) fn copy_response_headers(d: &mut Dispenser<'_>) -> Result<Value, Error> {
    if !d.remaining().is_empty() {
        d.rest();
        return Err(d.count_error());
    }
    let mut handler = Map::from_iter([("handler".to_owned(), Value::from("copy_response_headers"))]);
    for mut line in d.lines() {
        let key = &*line.name().text;
        if !matches!(key, "include" | "exclude") {
            return Err(line.unknown("unrecognized subdirective '{}'", &["exclude", "include"]));
        }
        handler.extend_list(key, texts(line.rest()));
        if handler.contains_key("include") && handler.contains_key("exclude") {
            let sentence = format!("found '{key}' beside its opposite, expected `include` or `exclude`, not both");
            return Err(Error::at(line.name(), ErrorKind::Custom(sentence.into())));
        }
    }
    Ok(handler.into())
}
