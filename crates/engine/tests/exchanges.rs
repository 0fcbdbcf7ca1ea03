//! Sequences of exchanges over a real socket: the bytes that the peer sees, and the outcomes that the handlers get.

#[path = "exchanges/bodies.rs"]
mod bodies;
#[path = "exchanges/ends.rs"]
mod ends;
#[path = "exchanges/http2.rs"]
mod http2;
mod support;
#[path = "exchanges/table.rs"]
mod table;
