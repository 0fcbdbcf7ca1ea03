//! The RFC 9113 machine, without I/O: octets in, events and octets out.
//!
//! In reading order:
//! - [`PREFACE`], [`Settings`], [`Budgets`]: what a client says first; what the peer is told and held to
//! - [`ErrorCode`], [`Fault`]: what a peer can do wrong, and what it is told
//! - [`Event`], [`Handled`]: what the machine says
//! - [`Server`]: one connection in the server's role
//! - [`Client`], [`ClientEvent`], [`ClientHandled`]: one in the client's, over the same core
//! - [`hpack`]: field blocks
//!
//! This room never sees a socket, a clock, a task or a lock; time enters as an argument.

mod budget;
mod client;
mod connection;
mod encode;
mod event;
mod fault;
mod frame;
mod head;
pub mod hpack;
mod priority;
mod server;
mod settings;
mod stream;
mod window;

pub use budget::Budgets;
pub use client::{Client, Scheme, Unopened};
pub use event::{ClientEvent, ClientHandled, Event, Handled};
pub use fault::{ErrorCode, Fault};
pub use frame::PREFACE;
pub use server::Server;
pub use settings::Settings;
