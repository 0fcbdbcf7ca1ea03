//! Built-in handlers and matchers, under the names and with the JSON that Caddy gives them.
//!
//! In reading order:
//! - [`matchers`]: conditions of routes
//! - [`static_response`], [`error`]: answers from the configuration itself
//! - [`headers`], [`rewrite`], [`vars`]: changes to the request, the answer and what handlers leave for each other
//! - [`subroute`]: routes within a route
//! - [`file_server`]: files and listings of folders
//! - `fresh`, `together`: what a worker remembers of the file system, and one look for all who ask at once
//! - `glob`, `regexp`, `rendered`: patterns and strings that they share
//!
//! This room never sees a socket, and only the matcher `protocol`, which is about it, asks for the protocol version.

pub mod error;
pub mod file_server;
mod fresh;
mod glob;
pub mod headers;
pub mod matchers;
mod regexp;
mod rendered;
pub mod rewrite;
pub mod static_response;
pub mod subroute;
mod together;
pub mod vars;

use causeway_pipeline::Registry;

/// Adds every module of this crate.
pub fn register(registry: &mut Registry) {
    matchers::register(registry);
    registry.handler("error", error::make);
    registry.handler("file_server", file_server::make);
    registry.handler("headers", headers::make);
    registry.handler("rewrite", rewrite::make);
    registry.handler("static_response", static_response::make);
    registry.handler("subroute", subroute::make);
    registry.handler("vars", vars::make);
}
