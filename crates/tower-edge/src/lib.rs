#![doc = include_str!("../../../docs/tower.md")]
//!
//! # In reading order
//! - [`Server`]: a service on ports of its own
//! - [`Edge`], [`handler`], [`register`]: a service as a handler among others
//! - `request`: a head as `http` has it; [`EdgeBody`]: its content; [`ConnectInfo`]: where it came from
//! - `answer`: what a service answers, as the pipeline has it
//! - `upgrade`: how hyper's upgrades work here
//! - `names`: field names of one vocabulary as those of the other
//!
//! This is the only room that names the types of `http`.

mod answer;
mod body;
mod edge;
mod facts;
mod names;
mod request;
mod server;
#[cfg_attr(not(feature = "upgrade"), path = "upgrade/never.rs")]
mod upgrade;

pub use body::{BodyError, EdgeBody};
pub use edge::{Edge, Servable, handler, register};
pub use facts::{ConnectInfo, Tls};
pub use server::{Builder, Running, ServeError, Server, Serving};
