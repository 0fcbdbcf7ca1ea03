//! Runs handlers and matchers without a server: takes a JSON array of routes and a request, and returns a response.
//!
//! Exchanges take the engine's path: a head is filled by ranges, [`causeway_pipeline::Spare::prepare`] creates the
//! context, [`causeway_pipeline::route`] runs it, and the storage is recycled for the next request. Only the
//! [`Worker`](causeway_pipeline::Worker) is fake.
//!
//! In reading order:
//! - [`Request`]: a client's request
//! - [`Kit`], [`Pending`]: a plan on a fake worker, and a waiting exchange
//! - [`TestResponse`]: the response that a client receives
//! - [`FakeWorker`]: a worker with a manual clock, a job pool under the test's control, and repeatable random numbers
//! - [`FakeCall`]: a call to an upstream, which the test answers
//! - [`http2`]: a client on a raw socket for running servers, which can break the protocol's rules
//! - [`counting`]: an allocator that counts, to assert that code does not allocate
//! - [`random`]: repeatable random numbers
//! - [`ports`]: ports for servers that a test starts later

mod answer;
pub mod counting;
pub mod http2;
mod kit;
pub mod ports;
pub mod random;
mod request;
mod upstream;
mod worker;

pub use answer::TestResponse;
pub use kit::{Kit, Pending};
pub use request::Request;
pub use upstream::FakeCall;
pub use worker::FakeWorker;
