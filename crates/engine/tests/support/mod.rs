//! Shared parts of the engine's tests: handlers with one behaviour each, a server of all handlers on a port of its own,
//! and clients that check every byte.
//!
//! - `probe`: the channel between handlers and a test: events, and handlers that wait for the test
//! - `handlers`, `bodies`: one behaviour each, registered and built from JSON like any module
//! - `server`: an engine with all handlers, one route per handler, named by the path's first segment
//! - `client`: a blocking HTTP/1 client; `tls`: certificates, and this client over TLS
//! - `http2`: a blocking HTTP/2 client
//! - `forward`: a handler that forwards requests; `origin`: scripted upstreams
//! - `recorder`: a profiler that records all hooks as text; `scribe`: a profiler that allocates no memory
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

pub(crate) use client::{ClientResponse, Close, TestClient};
pub(crate) use http2::Http2;
pub(crate) use probe::{Probe, ProbeEvent};
pub(crate) use server::{Setup, TestServer};

/// The maximum time of any wait in a test: a bound against hanging, never a measurement.
pub(crate) const PATIENCE: std::time::Duration = std::time::Duration::from_secs(30);

/// Returns the byte at an offset of every test body.
pub(crate) fn byte_at(at: u64) -> u8 {
    (at % 251) as u8
}

/// Returns the first `len` bytes of a test body.
pub(crate) fn bytes(len: usize) -> Vec<u8> {
    (0..len as u64).map(byte_at).collect()
}
