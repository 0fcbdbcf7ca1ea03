//! Causeway joined together: which modules a configuration may name, which directives turn into them, and the server that runs
//! them.
//!
//! - [`Server::builder`]: a server in another program
//! - [`document`]: a configuration's text, and where its mistakes are
//! - [`server`]: the running server, and how its configuration is replaced
//! - `admin`: the API that does so over HTTP

mod admin;
pub mod document;
pub mod server;

pub use causeway_config::caddyfile;
pub use causeway_message as message;
pub use causeway_pipeline as pipeline;
pub use server::Server;

use caddyfile::Directives;
use pipeline::Registry;

/// Directives whose syntax is known, with the module that they turn into; `None` where what they say to a module is not
/// understood by it.
const NEEDS: &[(&str, Option<&str>)] = &[
    ("acme_server", Some("http.handlers.acme_server")),
    ("basic_auth", Some("http.handlers.authentication")),
    ("basicauth", Some("http.handlers.authentication")),
    ("copy_response", Some("http.handlers.copy_response")),
    ("copy_response_headers", Some("http.handlers.copy_response_headers")),
    ("encode", Some("http.handlers.encode")),
    ("forward_auth", Some("http.handlers.reverse_proxy")),
    // A variable that file_server would have to look at; only the file system itself is served.
    ("fs", None),
    ("handle_path", Some("http.handlers.rewrite")),
    ("httpgrpc", Some("http.handlers.httpgrpc")),
    ("intercept", Some("http.handlers.intercept")),
    ("invoke", Some("http.handlers.invoke")),
    ("log", None),
    ("log_append", Some("http.handlers.log_append")),
    // Variables that choose an access log and its level; there is one log, with one level.
    ("log_level", None),
    ("log_name", None),
    ("map", Some("http.handlers.map")),
    ("metrics", Some("http.handlers.metrics")),
    ("method", Some("http.handlers.rewrite")),
    // Its transport would be one that reverse_proxy has not.
    ("php_fastcgi", None),
    ("push", Some("http.handlers.push")),
    ("request_body", Some("http.handlers.request_body")),
    ("request_header", Some("http.handlers.headers")),
    ("reverse_proxy", Some("http.handlers.reverse_proxy")),
    ("rewrite", Some("http.handlers.rewrite")),
    ("try_files", Some("http.matchers.file")),
    ("uri", Some("http.handlers.rewrite")),
];

/// All built-in modules.
pub fn registry() -> Registry {
    let mut registry = Registry::default();
    causeway_modules::register(&mut registry);
    registry
}

/// Caddy's directives, less those whose modules the registry does not hold: the Caddyfile reader then names the directive
/// and its line, where the plan could only name a module.
pub fn directives(registry: &Registry) -> Directives {
    let mut directives = Directives::standard();
    let modules = registry.modules();
    for (directive, needed) in NEEDS {
        if !needed.is_some_and(|needed| modules.iter().any(|module| module == needed)) {
            directives.withhold(directive);
        }
    }
    directives
}
