#![doc = include_str!("../README.md")]
//!
//! # In reading order
//! - [`Limits`]: the bounds on an application's output
//! - [`FastCgiError`]: the protocol errors of an application
//! - [`put_parameter`], [`put_lengths`]: encode the parameters of a request
//! - [`FastCgiClient`], [`FastCgiEvent`], [`FastCgiHandled`]: one connection in the web server's role, and its results
//!
//! This crate uses no socket, clock, task or lock.

mod chunked;
mod client;
mod error;
mod limits;
mod parameters;
mod record;
mod response;

pub use client::{FastCgiClient, FastCgiEvent, FastCgiHandled};
pub use error::FastCgiError;
pub use limits::Limits;
pub use parameters::{put_lengths, put_parameter};
