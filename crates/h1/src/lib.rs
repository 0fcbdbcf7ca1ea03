//! The RFC 9112 machine, without I/O: octets in, events and octets out.
//!
//! In reading order:
//! - [`Limits`]: how much of what a peer may send
//! - [`HeadFault`], [`Scope`]: what a peer can do wrong, and what it is told
//! - [`Event`], [`Handled`]: what the machine says
//! - [`Server`]: one connection in the server's role
//! - [`Client`], [`ClientEvent`], [`ClientHandled`]: one in the client's
//!
//! This room never sees a socket, a clock, a task or a lock.

mod body;
mod client;
mod encode;
mod event;
mod fault;
mod framing;
mod limits;
mod parse;
mod scan;
mod server;

pub use client::{Client, Unopened};
pub use event::{ClientEvent, ClientHandled, Event, Handled};
pub use fault::{HeadFault, Scope};
pub use limits::Limits;
pub use parse::{Parsed, parse_head, parse_response_head};
pub use server::Server;
