//! Runs handlers and matchers without a server: a routes array in, a request in, an answer out.
//!
//! Everything goes the way the engine goes: a head is filled by ranges, [`causeway_pipeline::Spare::prepare`] makes the
//! context, [`causeway_pipeline::route`] runs it, and the storage is recycled for the next request. Only the world is fake.
//!
//! In reading order:
//! - [`Request`]: what a client sends
//! - [`Kit`], [`Pending`]: a plan on a fake worker, and an exchange that waits
//! - [`Answer`]: what a client gets
//! - [`FakeWorker`]: a clock that stands still, a pool that runs when told to, random numbers that repeat
//! - [`FakeCall`]: a call to an upstream, for the test to answer
//! - [`http2`]: a client on a raw socket, for servers that run; it keeps no rule that it does not want to keep
//! - [`counting`]: an allocator that counts, for "allocates nothing"
//! - [`random`]: random numbers that repeat

mod answer;
pub mod counting;
pub mod http2;
mod kit;
pub mod random;
mod request;
mod upstream;
mod worker;

pub use answer::Answer;
pub use kit::{Kit, Pending};
pub use request::Request;
pub use upstream::FakeCall;
pub use worker::FakeWorker;
