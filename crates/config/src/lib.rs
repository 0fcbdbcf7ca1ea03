//! Caddyfile to JSON to plan: everything an operator writes, turned into what the server runs.
//!
//! - [`caddyfile`]: Caddyfile text to Caddy's own JSON structure, with exact positions for every mistake.

pub mod caddyfile;
