#![doc = include_str!("../README.md")]
//!
//! # In reading order
//! - [`matchers`]: conditions of routes
//! - [`static_response`], [`error`]: responses from the configuration itself
//! - [`authentication`]: HTTP basic authentication
//! - [`rate_limit`]: at most a number of requests in a window of time
//! - [`cache`]: responses that are stored and used again
//! - [`headers`], [`rewrite`], [`request_body`]: changes to the request and the response
//! - [`timeouts`]: limits on the time of transfers
//! - [`encode`]: compressed responses
//! - [`push`]: accepted without effect
//! - [`templates`]: responses that are executed as templates
//! - [`vars`], [`map`]: values that handlers pass to later handlers
//! - [`access_log`], [`log_append`]: records of requests
//! - [`trace`]: spans of requests, for OpenTelemetry
//! - [`logs`]: the logs that these records and the server's own messages go to
//! - [`subroute`], [`invoke`]: routes within a route
//! - [`file_server`]: files and listings of directories
//! - [`intercept`]: routes for responses of later handlers
//! - [`reverse_proxy`]: requests forwarded to upstream servers
//! - [`httpgrpc`]: HTTP requests carried in gRPC messages
//! - [`metrics`], [`metric_push`]: the server's metrics as a response, and sent to a collector
//! - `fresh`, `single_flight`: a per-worker cache of file system lookups, and single-flight for concurrent lookups
//! - `clean_path`: paths without dot segments, by the rules of Caddy
//! - `clock_ring`: which value a cache above its bound evicts
//! - `accept_encoding`: the choice of a coding by the request
//! - `conditional`, `range`, `partial`: conditional requests and range requests for content that is here
//! - `unsent`: content without a length for responses to HEAD
//! - `field_name`, `human_size`, `ip_text`, `origin_form`: field names as Caddy shows them, sizes for readers,
//!   addresses as text, targets in origin form
//! - `open_file`: files whose path may lead to a pipe
//! - `glob`, `regexp`, `replace`, `rendered`: patterns to match with, replacements, and strings with placeholders
//!
//! This crate never sees a socket. No module branches on the protocol version, except the matcher `protocol`; others
//! only show it.

mod accept_encoding;
pub mod access_log;
pub mod authentication;
pub mod cache;
mod clean_path;
mod clock_ring;
mod conditional;
pub mod encode;
pub mod error;
mod field_name;
pub mod file_server;
mod fresh;
mod glob;
pub mod headers;
pub mod httpgrpc;
mod human_size;
pub mod intercept;
pub mod invoke;
mod ip_text;
pub mod log_append;
pub mod logs;
pub mod map;
pub mod matchers;
pub mod metric_push;
pub mod metrics;
mod open_file;
mod origin_form;
mod partial;
pub mod push;
mod range;
pub mod rate_limit;
mod regexp;
mod rendered;
mod replace;
pub mod request_body;
pub mod reverse_proxy;
pub mod rewrite;
mod single_flight;
pub mod static_response;
pub mod subroute;
pub mod templates;
pub mod timeouts;
pub mod trace;
mod unsent;
pub mod vars;

use causeway_pipeline::Registry;

/// Registers every handler and matcher of this crate under its Caddy name.
pub fn register(registry: &mut Registry) {
    matchers::register(registry);
    registry.register_handler("access_log", access_log::make);
    registry.register_handler("error_log", |value, build| access_log::error::make_with(value, build, None));
    registry.register_handler("authentication", authentication::make);
    registry.register_handler("cache", cache::make);
    registry.register_handler("copy_response", reverse_proxy::copy::make);
    registry.register_handler("copy_response_headers", reverse_proxy::copy::make_headers);
    registry.register_handler("encode", encode::make);
    registry.register_handler("error", error::make);
    registry.register_handler("file_server", file_server::make);
    registry.register_handler("headers", headers::make);
    registry.register_handler("httpgrpc", httpgrpc::make);
    registry.register_handler("intercept", intercept::make);
    registry.register_handler("invoke", invoke::make);
    registry.register_handler("log_append", log_append::make);
    registry.register_handler("map", map::make);
    registry.register_handler("metrics", metrics::make);
    registry.register_handler("push", push::make);
    registry.register_handler("rate_limit", rate_limit::make);
    registry.register_handler("request_body", request_body::make);
    registry.register_handler("reverse_proxy", reverse_proxy::make);
    registry.register_handler("rewrite", rewrite::make);
    registry.register_handler("static_response", static_response::make);
    registry.register_handler("subroute", subroute::make);
    registry.register_handler("templates", templates::make);
    registry.register_handler("timeouts", timeouts::make);
    registry.register_handler("tracing", trace::make);
    registry.register_handler("vars", vars::make);
}
