//! handle, route, handle_errors and invoke, which contain or call routes; and bind.

use std::net::SocketAddr;

use serde_json::{Value, json};

use super::super::dispenser::Dispenser;
use super::super::error::Error;
use super::super::matcher::MatcherSet;
use super::super::quantity::integer;
use super::super::registry::DirectiveOutput;
use super::super::route::{Route, subroute_handler};

/// Parses `handle [<matcher>] { … }`.
pub(super) fn handle(d: &mut Dispenser<'_>) -> Result<Value, Error> {
    d.expect_no_argument()?;
    Ok(subroute_handler(&d.routes()?))
}

/// Parses `route [<matcher>] { … }`.
pub(super) fn route(d: &mut Dispenser<'_>) -> Result<Value, Error> {
    d.expect_no_argument()?;
    Ok(subroute_handler(&d.routes_as_written()?))
}

/// Parses `handle_errors [<status>|<class>…] { … }`. A class is written `4xx`.
pub(super) fn handle_errors(d: &mut Dispenser<'_>) -> Result<Vec<DirectiveOutput>, Error> {
    let mut conditions = Vec::new();
    let mut codes = Vec::new();
    while let Some(status) = d.argument() {
        let class = status.text.strip_suffix("xx");
        if status.text.len() != 3 || integer(class.unwrap_or(&status.text)).is_none() {
            return Err(d.word("bad status value '{}'"));
        }
        match class {
            Some(class) => conditions
                .push(format!("{{http.error.status_code}} >= {class}00 && {{http.error.status_code}} <= {class}99")),
            None => codes.push(&*status.text),
        }
    }
    if !codes.is_empty() {
        conditions.push(format!("{{http.error.status_code}} in [{}]", codes.join(", ")));
    }
    let condition = conditions.join(" || ");
    let matcher =
        (!condition.is_empty()).then(|| MatcherSet::from_iter([("expression".to_owned(), Value::from(condition))]));
    let routes = d.routes()?;
    Ok(vec![DirectiveOutput::ErrorRoutes(vec![Route::new(matcher, subroute_handler(&routes))])])
}

/// Parses `invoke [<matcher>] <named route>`.
pub(super) fn invoke(d: &mut Dispenser<'_>) -> Result<Value, Error> {
    let name = d.require()?;
    d.expect_no_argument()?;
    d.expect_no_braces()?;
    d.record_invocation(name);
    Ok(json!({ "handler": "invoke", "name": &*name.text }))
}

/// Parses `bind <addresses…> { protocols h1|h2|h2c|h3… }`.
pub(super) fn bind(d: &mut Dispenser<'_>) -> Result<Vec<DirectiveOutput>, Error> {
    let words = d.rest();
    for word in words.iter().filter(|word| word.text.parse::<SocketAddr>().is_ok()) {
        let message = format!("the port of '{}' has no effect: that of the site's address counts", word.text);
        d.warn(word, message);
    }
    let addresses = words.iter().map(|token| token.text.to_string()).collect();
    let protocols = protocols(d)?;
    Ok(vec![DirectiveOutput::Bind { addresses, protocols }])
}

/// Parses the block of `bind` and of the global option `default_bind`.
pub(crate) fn protocols(d: &Dispenser<'_>) -> Result<Vec<String>, Error> {
    let mut protocols = Vec::new();
    for mut line in d.lines() {
        if &*line.name().text != "protocols" {
            return Err(line.unknown("unknown subdirective: {}", &["protocols"]));
        }
        if line.argument().is_none() {
            return Err(line.rule("protocols requires one or more arguments"));
        }
        protocols = line.arguments().iter().map(|token| token.text.to_string()).collect();
    }
    Ok(protocols)
}
