//! One exchange after another over a real socket: what the peer sees, and what the handlers are told of the end.

#[path = "exchanges/bodies.rs"]
mod bodies;
#[path = "exchanges/ends.rs"]
mod ends;
#[path = "exchanges/http2.rs"]
mod http2;
mod support;
#[path = "exchanges/table.rs"]
mod table;
