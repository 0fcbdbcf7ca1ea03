#![doc = include_str!("../README.md")]
//!
//! # In reading order
//! - [`PREFACE`], [`Settings`], [`Budgets`]: the client preface, and the limits that a peer is sent and held to
//! - [`ErrorCode`], [`ConnectionError`]: the protocol errors of a peer, and their codes on the wire
//! - [`Event`], [`Handled`]: the results of parsing in the server's role
//! - [`Server`]: one connection in the server's role
//! - [`Client`], [`ClientEvent`], [`ClientHandled`]: one connection in the client's role, over the shared core
//! - [`hpack`]: field blocks
//!
//! This crate uses no socket, clock, task or lock; time enters as an argument.

mod budget;
mod client;
mod connection;
mod encode;
mod error;
mod event;
mod frame;
mod head;
pub mod hpack;
mod priority;
mod server;
mod settings;
mod stream;
mod window;

pub use budget::Budgets;
pub use client::Client;
pub use error::{ConnectionError, ErrorCode};
pub use event::{ClientEvent, ClientHandled, Event, Handled};
pub use frame::PREFACE;
pub use server::Server;
pub use settings::Settings;
