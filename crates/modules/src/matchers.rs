//! Conditions of routes. None of them allocates while it matches.
//!
//! - [`path`]: the decoded path, with wildcards, or parts of it in escaped space
//! - [`host`]: the host that the request names
//! - [`method`]: the method
//! - [`header`]: request fields
//! - [`query`]: keys and values of the query
//! - [`file`]: whether there is a file
//! - [`not`]: none of these sets

pub mod file;
pub mod header;
pub mod host;
pub mod method;
pub mod not;
pub mod path;
pub mod query;

use causeway_pipeline::Registry;

/// Adds the matchers.
pub fn register(registry: &mut Registry) {
    registry.matcher("file", file::make);
    registry.matcher("header", header::make);
    registry.matcher("host", host::make);
    registry.matcher("method", method::make);
    registry.matcher("not", not::make);
    registry.matcher("path", path::make);
    registry.matcher("query", query::make);
}

#[cfg(test)]
mod tests;
