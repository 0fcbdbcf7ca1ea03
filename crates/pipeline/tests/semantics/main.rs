//! The rules of the pipeline, tested with the test kit and with modules made for it.
//!
//! - [`probe`]: a handler that follows its JSON and leaves a trace, and matchers
//! - [`chain`]: order, groups, matching, calls, the response pass, faults, bounds
//! - [`waits`]: waits, and their cost
//! - [`states`]: per-worker states, and those that outlive a plan
//! - [`matching`]: matchers that wait, long lists, named routes, bodies as texts
//! - [`placeholders`]: every placeholder, and unknown ones
//! - [`tls`]: the result of a TLS handshake
//! - [`texts`]: UUIDs, and invalid targets
//! - [`async_handlers`]: handlers that are `async` functions
//! - [`dirty`]: an exchange on recycled storage equals one on fresh storage

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
static COUNTING: causeway_testkit::counting::CountingAllocator = causeway_testkit::counting::CountingAllocator;
