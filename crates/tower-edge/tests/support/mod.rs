//! Shared by the tests: a service on its own port, and the engine's blocking client.
#![allow(dead_code, unused_imports, reason = "each test file uses its part")]

#[path = "../../../engine/tests/support/client.rs"]
pub(crate) mod client;
pub(crate) mod example;

use std::future::Future;
use std::time::{Duration, Instant};

use axum::Router;
use tower_edge::{Builder, Running, Servable, Server};

pub(crate) use client::{ClientResponse, Close, RequestKind, TestClient};

/// The longest wait of a test: a bound against hanging, not a measurement.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Returns a builder with one worker and a free port.
pub(crate) fn builder() -> Builder {
    Server::builder().listen("127.0.0.1:0").workers(1)
}

#[track_caller]
pub(crate) fn start(service: impl Servable + Send) -> Running {
    builder().start(service).unwrap_or_else(|error| panic!("{error}"))
}

#[track_caller]
pub(crate) fn client(running: &Running) -> TestClient {
    TestClient::connect(running.addresses()[0])
}

/// Waits until the condition holds.
#[track_caller]
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < end, "{what}: not within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Runs a future on a new runtime.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async { tokio::time::timeout(PATIENCE, future).await.expect("within patience") })
}
