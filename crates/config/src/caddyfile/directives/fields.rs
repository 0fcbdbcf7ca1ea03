//! header and request_header: operations on fields.

use serde_json::{Map, Value, json};

use super::super::dispenser::Dispenser;
use super::super::error::{Error, ErrorKind};
use super::super::matcher::MatcherSet;
use super::super::registry::Output;
use super::super::route::Route;
use super::super::token::Token;
use super::response::response_matcher;
use super::{Handler, canonical};

/// Operations on fields.
#[derive(Default)]
pub(crate) struct Operations {
    add: Map<String, Value>,
    set: Map<String, Value>,
    delete: Vec<Value>,
    replace: Map<String, Value>,
}

/// Whether the operation waits until the response's head is written.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Deferred {
    Yes,
    No,
}

impl Operations {
    /// `+field` adds, `-field` deletes, a replacement searches, anything else sets; `>` defers.
    pub(crate) fn apply(&mut self, field: &str, value: &str, replacement: Option<&str>) -> Deferred {
        let append = |map: &mut Map<String, Value>, key: String, value: Value| {
            if let Value::Array(values) = map.entry(key).or_insert_with(|| json!([])) {
                values.push(value);
            }
        };
        if let Some(field) = field.strip_prefix('+') {
            append(&mut self.add, canonical(field), value.into());
            return Deferred::No;
        }
        if let Some(field) = field.strip_prefix('-') {
            self.delete.push(field.into());
            return Deferred::Yes;
        }
        let deferred = if field.starts_with('>') { Deferred::Yes } else { Deferred::No };
        if let Some(replacement) = replacement {
            let mut operation = Map::new();
            for (key, text) in [("search_regexp", value), ("replace", replacement)] {
                if !text.is_empty() {
                    operation.insert(key.into(), text.into());
                }
            }
            let field = field.trim_start_matches(['+', '-', '?', '>']);
            append(&mut self.replace, field.to_owned(), operation.into());
        } else {
            self.set.insert(canonical(field.strip_prefix('>').unwrap_or(field)), json!([value]));
        }
        deferred
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.add.is_empty() && self.set.is_empty() && self.delete.is_empty() && self.replace.is_empty()
    }

    pub(crate) fn json(self) -> Map<String, Value> {
        let parts = [
            ("add", Value::from(self.add)),
            ("set", Value::from(self.set)),
            ("delete", Value::from(self.delete)),
            ("replace", Value::from(self.replace)),
        ];
        let used = |value: &Value| match value {
            Value::Object(map) => !map.is_empty(),
            value => value.as_array().is_some_and(|list| !list.is_empty()),
        };
        parts.into_iter().filter(|(_, value)| used(value)).map(|(key, value)| (key.to_owned(), value)).collect()
    }
}

/// `[+|-]<field> [<value>|<find> [<replace>]]` on a line: what `header_up` and its like take.
pub(crate) fn apply(words: &[Token], line: &Dispenser<'_>, operations: &mut Operations) -> Result<(), Error> {
    let (field, value, replacement) = match words {
        [field] => (field, "", None),
        [field, value] => (field, &*value.text, None),
        [field, find, replace] => (field, &*find.text, Some(&*replace.text)),
        _ => return Err(line.count_error()),
    };
    if field.text.starts_with('?') {
        return Err(Error::at(field, ErrorKind::Word { rule: ONLY_OF_RESPONSES, found: field.text.clone() }));
    }
    operations.apply(&field.text, value, replacement);
    Ok(())
}

const ONLY_OF_RESPONSES: &str = "{}: the default header modifier ('?') can only be used on response headers; for conditional \
                                 manipulation of request headers, use matchers";

/// A `?field value`: set unless the response has the field.
struct Fallback {
    field: String,
    value: Box<str>,
    at: Token,
}

/// `header [<matcher>] [[+|-|?|>]<field> [<value>|<find>] [<replace>]] { … ; defer; match { … } }`
pub(super) fn header(d: &mut Dispenser<'_>) -> Result<Vec<Output>, Error> {
    let matcher = d.matcher()?;
    let mut operations = Operations::default();
    let mut fallbacks: Vec<Fallback> = Vec::new();
    let mut deferred = Deferred::No;
    // Takes a value and a replacement behind the field; what is left over is for the caller.
    let mut apply = |field: &str, at: &Token, rest: &mut &[Token]| {
        let mut next = || split_first_off(rest).map(|token| &*token.text);
        let (value, replacement) = (next().unwrap_or(""), next());
        if let Some(field) = field.strip_prefix('?') {
            fallbacks.push(Fallback { field: field.to_owned(), value: value.into(), at: at.clone() });
            return Deferred::No;
        }
        operations.apply(field, value, replacement)
    };
    let mut inline = false;
    let mut lines = d.lines();
    if let Some(field) = d.argument() {
        inline = true;
        let mut rest = d.rest();
        deferred = apply(&field.text, field, &mut rest);
        if let Some(surplus) = rest.first() {
            // Caddy looks for the block right behind the third word.
            d.warn(surplus, format!("'{}' and what follows, a block too, has no effect here", surplus.text));
            lines.by_ref().for_each(drop);
        }
    }
    let mut require = None;
    for line in lines {
        if &*line.name().text == "match" {
            require = Some(response_matcher(&line)?);
            continue;
        }
        let (mut name, mut rest) = (line.name(), line.remaining());
        loop {
            if &*name.text == "defer" {
                deferred = Deferred::Yes;
            } else if inline {
                let rule = "cannot specify headers in both arguments and block";
                return Err(Error::at(name, ErrorKind::Rule(rule)));
            } else if apply(name.text.strip_suffix(':').unwrap_or(&name.text), name, &mut rest) == Deferred::Yes {
                deferred = Deferred::Yes;
            }
            // A word left over is a field of its own, as if a line began with it.
            let Some(next) = split_first_off(&mut rest) else { break };
            d.warn(next, format!("'{}' is read as a field of its own", next.text));
            name = next;
        }
    }
    let mut routes = Vec::new();
    if !operations.is_empty() || deferred == Deferred::Yes || require.is_some() {
        let mut response = operations.json();
        if let Some(require) = &require {
            response.insert("require".into(), require.clone().into());
        }
        if deferred == Deferred::Yes {
            response.insert("deferred".into(), true.into());
        }
        routes.push(headers_route(&matcher, "response", response));
    }
    for fallback in fallbacks {
        routes.push(headers_route(&matcher, "response", fallback.json(require.as_ref())?));
    }
    Ok(routes)
}

fn split_first_off<'a>(tokens: &mut &'a [Token]) -> Option<&'a Token> {
    let (first, rest) = tokens.split_first()?;
    *tokens = rest;
    Some(first)
}

impl Fallback {
    /// The response must lack the field, and meet `require` besides.
    fn json(self, require: Option<&Map<String, Value>>) -> Result<Map<String, Value>, Error> {
        let own = canonical(&self.field);
        let mut headers = Map::from_iter([(self.field, Value::Null)]);
        let mut condition = Map::new();
        if let Some(status) = require.and_then(|require| require.get("status_code")) {
            condition.insert("status_code".into(), status.clone());
        }
        let required = require.and_then(|require| require.get("headers")?.as_object());
        for (field, values) in required.into_iter().flatten() {
            if canonical(field) != own {
                headers.insert(field.clone(), values.clone());
            } else if !values.is_null() {
                let rule = "cannot match on response header {} and also set a default for it";
                return Err(Error::at(&self.at, ErrorKind::Word { rule, found: own.into() }));
            }
        }
        condition.insert("headers".into(), headers.into());
        let mut response = Map::from_iter([("set".to_owned(), json!({ own: [&*self.value] }))]);
        response.insert("require".into(), condition.into());
        Ok(response)
    }
}

fn headers_route(matcher: &Option<MatcherSet>, side: &str, operations: Map<String, Value>) -> Output {
    let mut handler = Handler::new("headers");
    handler.set(side, operations);
    Output::Route(Route::new(matcher.clone(), handler.json()))
}

/// `request_header [<matcher>] [+|-]<field> [<value>|<find>] [<replace>]`
pub(super) fn request_header(d: &mut Dispenser<'_>) -> Result<Vec<Output>, Error> {
    let matcher = d.matcher()?;
    let field = d.require()?;
    if field.text.starts_with('?') {
        return Err(d.word(ONLY_OF_RESPONSES));
    }
    let value = d.argument().map_or("", |token| &*token.text);
    let replacement = d.argument().map(|token| &*token.text);
    d.end()?;
    let mut operations = Operations::default();
    operations.apply(field.text.strip_suffix(':').unwrap_or(&field.text), value, replacement);
    Ok(vec![headers_route(&matcher, "request", operations.json())])
}
