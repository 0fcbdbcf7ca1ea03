//! The RFC 9112 machine, without I/O: octets in, events and octets out.
//!
//! In reading order:
//! - [`Limits`]: how much of what a peer may send
//! - [`HeadFault`], [`Scope`]: what a peer can do wrong, and what it is told
//! - [`Event`], [`Handled`]: what the machine says
//! - [`Server`]: one connection in the server's role
//!
//! This room never sees a socket, a clock, a task or a lock.

mod body;
mod encode;
mod event;
mod fault;
mod limits;
mod parse;
mod scan;
mod server;

pub use event::{Event, Handled};
pub use fault::{HeadFault, Scope};
pub use limits::Limits;
pub use parse::{Parsed, parse_head};
pub use server::Server;
