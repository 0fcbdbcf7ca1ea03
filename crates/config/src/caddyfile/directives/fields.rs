//! header and request_header: operations on fields.

use serde_json::{Map, Value, json};

use super::super::dispenser::Dispenser;
use super::super::error::{Error, ErrorKind};
use super::super::matcher::MatcherSet;
use super::super::registry::DirectiveOutput;
use super::super::route::Route;
use super::super::token::Token;
use super::response::response_matcher;
use super::{Handler, canonical};

/// Operations on the fields of one message, by kind.
#[derive(Default)]
pub(crate) struct Operations {
    add: Map<String, Value>,
    set: Map<String, Value>,
    delete: Vec<Value>,
    replace: Map<String, Value>,
}

/// Whether the operation runs only when the response head is written.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Deferred {
    Yes,
    No,
}

impl Operations {
    /// Adds an operation: `+field` adds, `-field` deletes, a replacement searches and replaces, any other sets. `>`
    /// defers.
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

/// Parses the words `[+|-]<field> [<value>|<find> [<replace>]]`, as in `header_up`, into an operation.
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
    refuse_surplus(line, &field.text, &words[1..])?;
    operations.apply(&field.text, value, replacement);
    Ok(())
}

/// Rejects a replacement for a field that is added or is a default, and warns of a value for a field that is deleted.
///
/// DEVIATES: Caddy ignores these words.
fn refuse_surplus(line: &Dispenser<'_>, field: &str, words: &[Token]) -> Result<(), Error> {
    let Some(sign) = field.chars().next().filter(|sign| "+?-".contains(*sign)) else { return Ok(()) };
    let taken = if sign == '-' { 0 } else { 1 };
    match words.iter().skip(taken).find(|word| !word.text.is_empty()) {
        Some(word) if sign == '-' => {
            line.warn(word, format!("'{}' has no effect: {field} deletes the field, whatever its value", word.text));
            Ok(())
        }
        Some(word) => {
            let rule = "unexpected '{}' after this field; expected at most one value after + and ?";
            Err(Error::at(word, ErrorKind::Word { rule, found: word.text.clone() }))
        }
        None => Ok(()),
    }
}

const ONLY_OF_RESPONSES: &str = "{}: the default header modifier ('?') can only be used on response headers; for conditional \
                                 manipulation of request headers, use matchers";

/// `?field value`: sets the field if the response lacks it.
struct Fallback {
    field: String,
    value: Box<str>,
    at: Token,
}

/// Parses `header [<matcher>] [[+|-|?|>]<field> [<value>|<find>] [<replace>]] { … ; defer; match { … } }`.
pub(super) fn header(d: &mut Dispenser<'_>) -> Result<Vec<DirectiveOutput>, Error> {
    let matcher = d.matcher()?;
    let mut operations = Operations::default();
    let mut fallbacks: Vec<Fallback> = Vec::new();
    let mut deferred = Deferred::No;
    // Reads the value and the replacement after the field, and adds the operation.
    let mut apply = |field: &str, at: &Token, line: &mut Dispenser<'_>| {
        let words = line.remaining();
        refuse_surplus(line, field, &words[..words.len().min(2)])?;
        let mut next = || line.argument().map(|token| &*token.text);
        let (value, replacement) = (next().unwrap_or(""), next());
        if let Some(field) = field.strip_prefix('?') {
            fallbacks.push(Fallback { field: field.to_owned(), value: value.into(), at: at.clone() });
            return Ok(Deferred::No);
        }
        Ok(operations.apply(field, value, replacement))
    };
    let mut inline = false;
    if let Some(field) = d.argument() {
        inline = true;
        deferred = apply(&field.text, field, d)?;
        d.expect_no_argument()?;
    }
    let mut require = None;
    for mut line in d.lines() {
        let name = line.name();
        match &*name.text {
            "match" => require = Some(response_matcher(&mut line)?),
            "defer" => deferred = Deferred::Yes,
            _ if inline => {
                let rule = "cannot specify headers in both arguments and block";
                return Err(Error::at(name, ErrorKind::Rule(rule)));
            }
            field => {
                if apply(field.strip_suffix(':').unwrap_or(field), name, &mut line)? == Deferred::Yes {
                    deferred = Deferred::Yes;
                }
            }
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

impl Fallback {
    /// The operation applies if the response lacks the field and meets `require`.
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

fn headers_route(matcher: &Option<MatcherSet>, side: &str, operations: Map<String, Value>) -> DirectiveOutput {
    let mut handler = Handler::new("headers");
    handler.set(side, operations);
    DirectiveOutput::Route(Route::new(matcher.clone(), handler.json()))
}

/// Parses `request_header [<matcher>] [+|-]<field> [<value>|<find>] [<replace>]`.
pub(super) fn request_header(d: &mut Dispenser<'_>) -> Result<Vec<DirectiveOutput>, Error> {
    let matcher = d.matcher()?;
    let field = d.require()?;
    if field.text.starts_with('?') {
        return Err(d.word(ONLY_OF_RESPONSES));
    }
    refuse_surplus(d, &field.text, d.remaining())?;
    let value = d.argument().map_or("", |token| &*token.text);
    let replacement = d.argument().map(|token| &*token.text);
    d.expect_no_argument()?;
    let mut operations = Operations::default();
    operations.apply(field.text.strip_suffix(':').unwrap_or(&field.text), value, replacement);
    Ok(vec![headers_route(&matcher, "request", operations.json())])
}
