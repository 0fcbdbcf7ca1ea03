//! Configuration: Caddyfile text to Caddy's JSON, and that JSON to the plan that the server runs.
//!
//! - [`caddyfile`]: adapts a Caddyfile to Caddy's JSON structure. Every error has its file, line and column.
//! - `dns`: the DNS providers, for both
//! - [`json`]: parses that JSON
//! - [`plan`]: compiles Caddy's JSON to the frozen [`Plan`](causeway_pipeline::Plan), its listeners, and the
//!   certificates they need.

pub mod caddyfile;
mod dns;
pub mod json;
mod names;
pub mod plan;

/// Returns the names of the DNS providers that can answer a public authority's challenge, sorted.
pub fn dns_providers() -> &'static [&'static str] {
    dns::NAMES
}

/// Returns the names of the load-balancing policies, sorted.
pub fn selection_policies() -> &'static [&'static str] {
    caddyfile::POLICIES
}
