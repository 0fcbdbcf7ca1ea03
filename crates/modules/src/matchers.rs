//! Conditions of routes, and one of handshakes. Matching does not allocate, except to grow a reused buffer, and if
//! `file` must access the disk.
//!
//! - [`path`]: the decoded path, by wildcards, or parts of it in escaped form; [`path_regexp`]: by regular expression
//! - [`host`]: the request's host
//! - [`method`]: the method
//! - [`header`], [`header_regexp`]: request header fields
//! - [`query`]: keys and values of the query
//! - [`protocol`]: the scheme and the HTTP version
//! - [`tls`]: whether the connection uses TLS
//! - [`ip`]: the client's address, `remote_ip` and `client_ip`
//! - [`url_pattern`]: a pattern of the URL Pattern standard
//! - [`variable`]: values of variables and placeholders, `vars` and `vars_regexp`
//! - [`mod@file`]: whether a file exists
//! - [`not`]: negates matcher sets
//! - [`expression`]: CEL, with all other matchers of requests as functions
//! - [`sni_regexp`]: the server name of a handshake, by regular expression

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
pub mod sni_regexp;
pub mod tls;
pub mod url_pattern;
pub mod variable;

use causeway_pipeline::Registry;

/// Adds all matchers under their Caddy names.
pub fn register(registry: &mut Registry) {
    registry.register_matcher("client_ip", ip::make_client);
    registry.register_matcher("expression", expression::make);
    registry.register_matcher("file", file::make);
    registry.register_matcher("header", header::make);
    registry.register_matcher("header_regexp", header_regexp::make);
    registry.register_matcher("host", host::make);
    registry.register_matcher("method", method::make);
    registry.register_matcher("not", not::make);
    registry.register_matcher("path", path::make);
    registry.register_matcher("path_regexp", path_regexp::make);
    registry.register_matcher("protocol", protocol::make);
    registry.register_matcher("query", query::make);
    registry.register_matcher("remote_ip", ip::make_remote);
    registry.register_matcher("tls", tls::make);
    registry.register_matcher("url_pattern", url_pattern::make);
    registry.register_matcher("vars", variable::make);
    registry.register_matcher("vars_regexp", variable::make_regexp);
    registry.register_server_name_matcher("sni_regexp", sni_regexp::make);
}

#[cfg(test)]
mod tests;
