//! The pipeline's own rules, seen through the test kit with modules made for it.
//!
//! - [`probe`]: a handler that does what its JSON says and leaves a trace, and a matcher
//! - [`chain`]: order, groups, matching, calls, the way back, faults, bounds
//! - [`waits`]: waiting, and what it costs
//! - [`states`]: what a worker keeps for a plan, and for the next
//! - [`matching`]: matchers that wait, long lists, named routes, bodies as texts
//! - [`placeholders`]: each of them, and what becomes of unknown ones
//! - [`tls`]: what a TLS handshake agreed on
//! - [`texts`]: the uuid, and targets that are none
//! - [`dirty`]: B after any A equals B on fresh storage

mod async_handlers;
mod chain;
mod dirty;
mod matching;
mod placeholders;
mod probe;
mod states;
mod texts;
mod tls;
mod waits;

#[global_allocator]
static COUNTING: causeway_testkit::counting::Counting = causeway_testkit::counting::Counting;
