//! Built-in handlers and matchers, under the names and with the JSON that Caddy gives them.
//!
//! In reading order:
//! - [`matchers`]: conditions of routes
//! - [`static_response`], [`error`]: answers from the configuration itself
//! - [`authentication`]: who may go on
//! - [`headers`], [`rewrite`], [`request_body`]: changes to the request and the answer
//! - [`vars`], [`map`]: what handlers leave for each other
//! - [`subroute`], [`invoke`]: routes within a route
//! - [`file_server`]: files and listings of folders
//! - [`reverse_proxy`]: requests passed on to other servers
//! - [`httpgrpc`]: requests that come in messages of gRPC
//! - `fresh`, `together`: what a worker remembers of the file system, and one look for all who ask at once
//! - `glob`, `pattern`, `regexp`, `rendered`, `duration`: patterns and strings that they share
//!
//! This room never sees a socket, and only the matcher `protocol`, which is about it, asks for the protocol version.

pub mod authentication;
mod duration;
pub mod error;
pub mod file_server;
mod fresh;
mod glob;
pub mod headers;
pub mod httpgrpc;
pub mod invoke;
pub mod map;
pub mod matchers;
mod pattern;
mod regexp;
mod rendered;
pub mod request_body;
pub mod reverse_proxy;
pub mod rewrite;
pub mod static_response;
pub mod subroute;
mod together;
pub mod vars;

use causeway_pipeline::Registry;

/// Adds every module of this crate.
pub fn register(registry: &mut Registry) {
    matchers::register(registry);
    registry.handler("authentication", authentication::make);
    registry.handler("copy_response", reverse_proxy::copy::make);
    registry.handler("copy_response_headers", reverse_proxy::copy::make_headers);
    registry.handler("error", error::make);
    registry.handler("file_server", file_server::make);
    registry.handler("headers", headers::make);
    registry.handler("httpgrpc", httpgrpc::make);
    registry.handler("invoke", invoke::make);
    registry.handler("map", map::make);
    registry.handler("request_body", request_body::make);
    registry.handler("reverse_proxy", reverse_proxy::make);
    registry.handler("rewrite", rewrite::make);
    registry.handler("static_response", static_response::make);
    registry.handler("subroute", subroute::make);
    registry.handler("vars", vars::make);
}
