#![doc = include_str!("../README.md")]
//!
//! # In reading order
//! - [`Limits`]: the bounds on a peer's input
//! - [`ProtocolError`]: the protocol errors of a peer, and their response status
//! - [`Event`], [`Handled`]: the results of parsing in the server's role
//! - [`Server`]: one connection in the server's role
//! - [`Client`], [`ClientEvent`], [`ClientHandled`]: one connection in the client's role, and its results
//!
//! This crate uses no socket, clock, task or lock.

mod body;
mod client;
mod encode;
mod error;
mod event;
mod framing;
mod limits;
mod parse;
mod scan;
mod server;

pub use client::{Client, ForwardProxy};
pub use error::ProtocolError;
pub use event::{ClientEvent, ClientHandled, Event, Handled};
pub use limits::Limits;
pub use parse::{Parsed, parse_head, parse_response_head};
pub use server::Server;
