//! The table of directives ([`DIRECTIVES`]), and their syntax functions.
//!
//! - `answer`: directives that respond: respond, error, abort, redir, metrics; `encode`: encode, push
//! - `cache`, `rate_limit`: those of plugins for Caddy
//! - `fields`: header, request_header; `response`: the response matchers that `header` and other directives accept
//! - `file_server`: file_server, try_files
//! - `guard`: basic_auth, request_body
//! - `httpgrpc`: httpgrpc, which is not one of Caddy's
//! - `templates`: templates, tracing, timeouts
//! - `target`: rewrite, uri, method, handle_path
//! - `variables`: root, fs, vars, map, log_append, log_level, log_name, log_skip
//! - `tls`: certificates and TLS settings
//! - `routing`: handle, route, handle_errors, invoke, bind

mod answer;
mod cache;
mod encode;
mod fields;
mod file_server;
mod guard;
mod httpgrpc;
mod rate_limit;
mod response;
mod routing;
mod target;
mod templates;
pub(super) mod tls;
mod variables;

pub(crate) use cache::members as cache_members;
pub(crate) use fields::{Operations as FieldOperations, apply};
pub(crate) use httpgrpc::message_option;
pub(crate) use response::{response_matcher, status};
pub(crate) use routing::protocols;

use serde_json::{Map, Value};

use super::dispenser::Dispenser;
use super::error::Error;
use super::log;
use super::pki;
use super::proxy;
use super::registry::{DirectiveOutput, Syntax};
use super::token::Token;

/// The sentence for a word that is no duration, in directives of plugins.
const DURATION: &str = "'{}' is no duration; expected one such as 30s or 1m";

/// A directive of [`Directives::standard`](super::Directives::standard).
pub(super) struct Directive {
    pub(super) name: &'static str,
    pub(super) syntax: Syntax,
    pub(super) is_ordered: bool,
    pub(super) needs: Needs,
}

/// The condition under which a server can run a directive's JSON; without it, the directive can only be adapted.
#[derive(Clone, Copy)]
pub(super) enum Needs {
    Nothing,
    /// This module is registered.
    Module(&'static str),
}

/// A directive that adds one handler.
const fn handler(name: &'static str, read: fn(&mut Dispenser<'_>) -> Result<Value, Error>) -> Directive {
    Directive { name, syntax: Syntax::Handler(read), is_ordered: true, needs: Needs::Nothing }
}

/// A directive with any outputs.
const fn custom(name: &'static str, read: fn(&mut Dispenser<'_>) -> Result<Vec<DirectiveOutput>, Error>) -> Directive {
    Directive { name, syntax: Syntax::Custom(read), is_ordered: true, needs: Needs::Nothing }
}

impl Directive {
    const fn needs(self, module: &'static str) -> Self {
        Self { needs: Needs::Module(module), ..self }
    }

    const fn unordered(self) -> Self {
        Self { is_ordered: false, ..self }
    }
}

/// All directives, in the default order of their handlers: Caddy's order, with ours added. Each row has the name, the
/// syntax function, and the module that a server needs for it.
pub(super) const DIRECTIVES: &[Directive] = &[
    handler("tracing", templates::tracing).needs("http.handlers.tracing"),
    // Ours. It replaces the request with an inner one, on which all other directives must then work.
    handler("httpgrpc", httpgrpc::httpgrpc).needs("http.handlers.httpgrpc"),
    // Variables, which later directives may use.
    handler("map", variables::map).needs("http.handlers.map"),
    handler("vars", variables::vars).needs("http.handlers.vars"),
    handler("fs", variables::fs).needs("http.handlers.vars"),
    custom("root", variables::root).needs("http.handlers.vars"),
    handler("log_append", variables::log_append).needs("http.handlers.log_append"),
    handler("skip_log", variables::log_skip).needs("http.handlers.vars"),
    handler("log_skip", variables::log_skip).needs("http.handlers.vars"),
    handler("log_name", variables::log_name).needs("http.handlers.access_log"),
    handler("log_level", variables::log_level).needs("http.handlers.access_log"),
    // Response fields, before any directive responds.
    custom("header", fields::header).needs("http.handlers.headers"),
    handler("copy_response_headers", proxy::copy_response_headers).needs("http.handlers.copy_response_headers"),
    handler("request_body", guard::request_body).needs("http.handlers.request_body"),
    handler("timeouts", templates::timeouts).needs("http.handlers.timeouts"),
    handler("redir", answer::redir).needs("http.handlers.static_response"),
    // Of a plugin for Caddy, which registers this place.
    handler("cache", cache::cache).needs("http.handlers.cache"),
    // The request target.
    handler("method", target::method).needs("http.handlers.rewrite"),
    custom("rewrite", target::rewrite).needs("http.handlers.rewrite"),
    handler("uri", target::uri).needs("http.handlers.rewrite"),
    custom("try_files", file_server::try_files).needs("http.matchers.file"),
    // Handlers that wrap others.
    // Of a plugin for Caddy, whose documentation asks for this place.
    handler("rate_limit", rate_limit::rate_limit).needs("http.handlers.rate_limit"),
    handler("basicauth", guard::basic_auth).needs("http.handlers.authentication"),
    handler("basic_auth", guard::basic_auth).needs("http.handlers.authentication"),
    custom("forward_auth", proxy::forward_auth).needs("http.handlers.reverse_proxy"),
    custom("request_header", fields::request_header).needs("http.handlers.headers"),
    handler("encode", encode::encode).needs("http.handlers.encode"),
    handler("push", encode::push).needs("http.handlers.push"),
    handler("intercept", proxy::intercept).needs("http.handlers.intercept"),
    handler("templates", templates::templates).needs("http.handlers.templates"),
    // Directives that contain or invoke routes.
    handler("invoke", routing::invoke).needs("http.handlers.invoke"),
    handler("handle", routing::handle).needs("http.handlers.subroute"),
    custom("handle_path", target::handle_path).needs("http.handlers.rewrite"),
    handler("route", routing::route).needs("http.handlers.subroute"),
    // Handlers that respond.
    handler("abort", answer::abort).needs("http.handlers.static_response"),
    handler("error", answer::error).needs("http.handlers.error"),
    handler("copy_response", proxy::copy_response).needs("http.handlers.copy_response"),
    handler("respond", answer::respond).needs("http.handlers.static_response"),
    handler("metrics", answer::metrics).needs("http.handlers.metrics"),
    handler("reverse_proxy", proxy::reverse_proxy).needs("http.handlers.reverse_proxy"),
    custom("php_fastcgi", proxy::php_fastcgi).needs("http.handlers.reverse_proxy"),
    handler("file_server", file_server::file_server).needs("http.handlers.file_server"),
    custom("acme_server", pki::acme_server).needs("http.handlers.acme_server"),
    // These configure the site instead of adding a handler.
    custom("bind", routing::bind).unordered(),
    custom("handle_errors", routing::handle_errors).unordered(),
    custom("log", log::directive).needs("http.handlers.access_log").unordered(),
    custom("tls", tls::tls).unordered(),
];

/// A handler's JSON object. Starts with the handler's name; members that are not set are omitted.
struct Handler(Map<String, Value>);

impl Handler {
    fn new(name: &str) -> Self {
        Self(Map::from_iter([("handler".to_owned(), Value::from(name))]))
    }

    fn set(&mut self, key: &str, value: impl Into<Value>) -> &mut Self {
        self.0.insert(key.to_owned(), value.into());
        self
    }

    /// Sets a text, unless it is empty.
    fn text(&mut self, key: &str, text: &str) -> &mut Self {
        if !text.is_empty() {
            self.set(key, text);
        }
        self
    }

    /// Sets or replaces a value; `None` removes it.
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

/// A field name in Go's canonical form, with a capital after each hyphen. Names with characters that no field name has
/// are returned unchanged.
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
