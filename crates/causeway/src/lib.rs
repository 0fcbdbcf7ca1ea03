//! The assembled Causeway server: the built-in modules, the Caddyfile directives that compile to them, and the server
//! that runs a configuration.
//!
//! - [`Server::builder`]: embeds a server in another program
//! - [`document`]: the text of a configuration, and the positions of mistakes in it
//! - [`server`]: the running server, and how its configuration is replaced
//! - `admin`: the HTTP API that reads and replaces the configuration

mod acme_server;
mod admin;
mod challenge;
pub mod document;
pub mod server;

pub use causeway_config::caddyfile;
pub use causeway_message as message;
pub use causeway_pipeline as pipeline;
pub use server::Server;

use caddyfile::Directives;
use pipeline::Registry;

/// Returns a registry with all built-in modules.
pub fn registry() -> Registry {
    let mut registry = Registry::default();
    causeway_modules::register(&mut registry);
    challenge::register(&mut registry);
    acme_server::register(&mut registry);
    registry
}

/// Returns Caddy's directives except those whose modules `registry` lacks. The Caddyfile reader then reports a missing
/// directive with its line; without this, the plan could only report a module name.
pub fn directives(registry: &Registry) -> Directives {
    Directives::of(registry)
}
