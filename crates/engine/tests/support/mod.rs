//! What the engine's tests share: handlers that do one thing each, a server of them on a port of its own, a client that
//! sees every octet.
//!
//! - `probe`: what handlers tell the test, and what the test lets go on
//! - `handlers`, `bodies`: one behaviour each, registered and built from JSON like any module
//! - `server`: an engine with all of them, one route per handler, named by the path's first segment
//! - `client`: a blocking HTTP/1 client; `tls`: certificates, and the same client over TLS
//! - `http2`: a blocking HTTP/2 client
//! - `forward`: a handler that sends requests on; `origin`: where to
//! - `recorder`: a profiler that writes down what it hears; `scribe`: one that allocates nothing
#![allow(dead_code, unused_imports, reason = "each test file uses its part")]

pub(crate) mod bodies;
pub(crate) mod client;
pub(crate) mod forward;
pub(crate) mod handlers;
pub(crate) mod http2;
pub(crate) mod origin;
pub(crate) mod probe;
pub(crate) mod recorder;
pub(crate) mod scribe;
pub(crate) mod server;
pub(crate) mod tls;

pub(crate) use client::{Answer, Client, Close};
pub(crate) use http2::Http2;
pub(crate) use probe::{Probe, Seen};
pub(crate) use server::{Server, Setup};

/// The longest that any test waits for anything: a bound against hanging, never a measure.
pub(crate) const PATIENCE: std::time::Duration = std::time::Duration::from_secs(30);

/// The octet at a place of every test body.
pub(crate) fn octet_at(at: u64) -> u8 {
    (at % 251) as u8
}

/// The first octets of a test body.
pub(crate) fn octets(len: usize) -> Vec<u8> {
    (0..len as u64).map(octet_at).collect()
}
