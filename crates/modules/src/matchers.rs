//! Conditions of routes. None of them allocates while it matches.
//!
//! - [`path`]: the decoded path, with wildcards, or parts of it in escaped space; [`path_regexp`]: with a regular expression
//! - [`host`]: the host that the request names
//! - [`method`]: the method
//! - [`header`], [`header_regexp`]: request fields
//! - [`query`]: keys and values of the query
//! - [`protocol`]: how the request was carried
//! - [`tls`]: whether it came over TLS
//! - [`ip`]: from where it comes, `remote_ip` and `client_ip`
//! - [`variable`]: what variables and placeholders say, `vars` and `vars_regexp`
//! - [`mod@file`]: whether there is a file
//! - [`not`]: none of these sets
//! - [`expression`]: CEL, with all the others as functions

pub mod expression;
pub mod file;
pub mod header;
pub mod header_regexp;
pub mod host;
pub mod ip;
pub mod method;
pub mod not;
pub mod path;
pub mod path_regexp;
pub mod protocol;
pub mod query;
pub mod tls;
pub mod variable;

use causeway_pipeline::Registry;

/// Adds the matchers.
pub fn register(registry: &mut Registry) {
    registry.matcher("client_ip", ip::make_client);
    registry.matcher("expression", expression::make);
    registry.matcher("file", file::make);
    registry.matcher("header", header::make);
    registry.matcher("header_regexp", header_regexp::make);
    registry.matcher("host", host::make);
    registry.matcher("method", method::make);
    registry.matcher("not", not::make);
    registry.matcher("path", path::make);
    registry.matcher("path_regexp", path_regexp::make);
    registry.matcher("protocol", protocol::make);
    registry.matcher("query", query::make);
    registry.matcher("remote_ip", ip::make_remote);
    registry.matcher("tls", tls::make);
    registry.matcher("vars", variable::make);
    registry.matcher("vars_regexp", variable::make_regexp);
}

#[cfg(test)]
mod tests;
