//! Caddyfile to JSON to plan: everything an operator writes, turned into what the server runs.
//!
//! - [`caddyfile`]: Caddyfile text to Caddy's own JSON structure, with exact positions for every mistake.
//! - [`plan`]: Caddy's JSON to the frozen plan and the listeners that lead into it.

pub mod caddyfile;
pub mod plan;
