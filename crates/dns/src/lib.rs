#![doc = include_str!("../README.md")]
//!
//! # In reading order
//! - [`query`]: one message to one server, and its response
//! - [`system`]: the settings and the hosts of the system
//! - [`Resolver`]: a stub resolver: which servers to query for which names, and the meaning of their answers
//! - `order`: in which order clients use addresses and services

mod order;
pub mod query;
mod resolver;
pub mod system;

pub use resolver::{DnsServer, Families, LookupError, Resolver, Service};
