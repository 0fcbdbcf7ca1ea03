//! The Caddyfile adapter through its public interface: text in, Caddy's JSON or an error out.

#[path = "caddyfile/any_input.rs"]
mod any_input;
#[path = "caddyfile/directives.rs"]
mod directives;
#[path = "caddyfile/errors.rs"]
mod errors;
#[path = "caddyfile/format.rs"]
mod format;
#[path = "caddyfile/language.rs"]
mod language;
#[path = "caddyfile/log.rs"]
mod log;
#[path = "caddyfile/matchers.rs"]
mod matchers;
#[path = "caddyfile/options.rs"]
mod options;
#[path = "caddyfile/pki.rs"]
mod pki;
#[path = "caddyfile/proxy.rs"]
mod proxy;
#[path = "caddyfile/sites.rs"]
mod sites;
#[path = "caddyfile/stray.rs"]
mod stray;
#[path = "caddyfile/tls.rs"]
mod tls;
#[path = "caddyfile/tls_mistakes.rs"]
mod tls_mistakes;

use causeway_config::caddyfile::{Adapted, Directives, Error, adapt};
use serde_json::Value;

fn environment(name: &str) -> Option<String> {
    match name {
        "HOST" => Some("a.test".to_owned()),
        "TWO_WORDS" => Some("one two".to_owned()),
        "TWO_LINES" => Some("one\nrespond two".to_owned()),
        "EMPTY" => Some(String::new()),
        _ => None,
    }
}

fn read(source: &str) -> Result<Adapted, Error> {
    adapt(source, "Caddyfile", &Directives::standard(), &environment)
}

#[track_caller]
fn json(source: &str) -> Value {
    let json = read(source).unwrap_or_else(|error| panic!("{source}\n{error}")).json;
    stray::check(source, "Caddyfile");
    json
}

#[track_caller]
fn server(source: &str) -> Value {
    json(source)["apps"]["http"]["servers"]["srv0"].clone()
}

/// The routes of a site for every host on port 80.
#[track_caller]
fn routes(body: &str) -> Value {
    server(&format!(":80 {{\n{body}\n}}\n"))["routes"].clone()
}

/// The handlers of the only route of such a site. The route must match every request.
#[track_caller]
fn handlers(body: &str) -> Value {
    let routes = routes(body);
    let [route] = routes.as_array().unwrap().as_slice() else { panic!("not one route: {routes}") };
    assert_eq!(route.as_object().unwrap().len(), 1, "{route}");
    route["handle"].clone()
}
