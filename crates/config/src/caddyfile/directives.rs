//! The syntax of every directive that is built.
//!
//! - `answer`: directives that answer: respond, error, abort, redir, metrics; `encode`: encode, push;
//! - `fields`: header, request_header; `response`: the matchers of responses that `header` and others have;
//! - `file_server`: file_server, try_files;
//! - `guard`: basic_auth, request_body;
//! - `httpgrpc`: httpgrpc, which Caddy has not;
//! - `target`: rewrite, uri, method, handle_path;
//! - `variables`: root, fs, vars, map, log_append, log_level, log_name, log_skip;
//! - `tls`: certificates and handshakes;
//! - `routing`: handle, route, handle_errors, invoke, bind.

mod answer;
mod encode;
mod fields;
mod file_server;
mod guard;
mod httpgrpc;
mod response;
mod routing;
mod target;
mod tls;
mod variables;

pub(crate) use fields::{Operations as FieldOperations, apply};
pub(crate) use httpgrpc::message_option;
pub(crate) use response::{response_matcher, status};
pub(crate) use routing::protocols;

use serde_json::{Map, Value};

use super::log;
use super::pki;
use super::proxy;
use super::registry::Syntax;
use super::token::Token;

/// What [`Directives::standard`](super::Directives::standard) gives a syntax to.
pub(crate) const BUILT: &[(&str, Syntax)] = &[
    ("abort", Syntax::Handler(answer::abort)),
    ("acme_server", Syntax::Custom(pki::acme_server)),
    ("basic_auth", Syntax::Handler(guard::basic_auth)),
    ("basicauth", Syntax::Handler(guard::basic_auth)),
    ("bind", Syntax::Custom(routing::bind)),
    ("copy_response", Syntax::Handler(proxy::copy_response)),
    ("copy_response_headers", Syntax::Handler(proxy::copy_response_headers)),
    ("encode", Syntax::Handler(encode::encode)),
    ("error", Syntax::Handler(answer::error)),
    ("file_server", Syntax::Handler(file_server::file_server)),
    ("forward_auth", Syntax::Custom(proxy::forward_auth)),
    ("fs", Syntax::Handler(variables::fs)),
    ("handle", Syntax::Handler(routing::handle)),
    ("handle_errors", Syntax::Custom(routing::handle_errors)),
    ("handle_path", Syntax::Custom(target::handle_path)),
    ("header", Syntax::Custom(fields::header)),
    ("httpgrpc", Syntax::Handler(httpgrpc::httpgrpc)),
    ("intercept", Syntax::Handler(proxy::intercept)),
    ("invoke", Syntax::Handler(routing::invoke)),
    ("log", Syntax::Custom(log::directive)),
    ("log_append", Syntax::Handler(variables::log_append)),
    ("log_level", Syntax::Handler(variables::log_level)),
    ("log_name", Syntax::Handler(variables::log_name)),
    ("log_skip", Syntax::Handler(variables::log_skip)),
    ("map", Syntax::Handler(variables::map)),
    ("method", Syntax::Handler(target::method)),
    ("metrics", Syntax::Handler(answer::metrics)),
    ("php_fastcgi", Syntax::Custom(proxy::php_fastcgi)),
    ("push", Syntax::Handler(encode::push)),
    ("redir", Syntax::Handler(answer::redir)),
    ("request_body", Syntax::Handler(guard::request_body)),
    ("request_header", Syntax::Custom(fields::request_header)),
    ("respond", Syntax::Handler(answer::respond)),
    ("reverse_proxy", Syntax::Handler(proxy::reverse_proxy)),
    ("rewrite", Syntax::Custom(target::rewrite)),
    ("root", Syntax::Custom(variables::root)),
    ("route", Syntax::Handler(routing::route)),
    ("skip_log", Syntax::Handler(variables::log_skip)),
    ("tls", Syntax::Custom(tls::tls)),
    ("try_files", Syntax::Custom(file_server::try_files)),
    ("uri", Syntax::Handler(target::uri)),
    ("vars", Syntax::Handler(variables::vars)),
];

/// An object that starts with the handler's name and leaves out what is not set.
struct Handler(Map<String, Value>);

impl Handler {
    fn new(name: &str) -> Self {
        Self(Map::from_iter([("handler".to_owned(), Value::from(name))]))
    }

    fn set(&mut self, key: &str, value: impl Into<Value>) -> &mut Self {
        self.0.insert(key.to_owned(), value.into());
        self
    }

    /// Sets a text unless it is empty.
    fn text(&mut self, key: &str, text: &str) -> &mut Self {
        if !text.is_empty() {
            self.set(key, text);
        }
        self
    }

    /// Sets a value in place of an earlier one, or takes that out.
    fn replace(&mut self, key: &str, value: Option<impl Into<Value>>) {
        match value {
            Some(value) => drop(self.0.insert(key.to_owned(), value.into())),
            None => drop(self.0.shift_remove(key)),
        }
    }

    fn json(self) -> Value {
        self.0.into()
    }
}

pub(crate) fn texts(tokens: &[Token]) -> Vec<Value> {
    tokens.iter().map(|token| Value::from(&*token.text)).collect()
}

/// A field name as Go writes it: capitals after hyphens. Names with other characters than a field's stay as they are.
pub(crate) fn canonical(name: &str) -> String {
    let field = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if !name.bytes().all(field) {
        return name.to_owned();
    }
    let mut upper = true;
    name.chars()
        .map(|ch| {
            let out = if upper { ch.to_ascii_uppercase() } else { ch.to_ascii_lowercase() };
            upper = ch == '-';
            out
        })
        .collect()
}
