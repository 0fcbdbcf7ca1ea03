#![doc = include_str!("../GUIDE.md")]
//!
//! # In reading order
//! - [`Server`]: serves a service on its own ports
//! - [`Edge`], [`handler`], [`register`]: a service as one handler of a plan
//! - `request`: converts a request head to the types of `http`; [`EdgeBody`]: its body; [`ConnectInfo`]: its
//!   connection
//! - `answer`: converts a service's response to the pipeline's
//! - `upgrade`: protocol upgrades through hyper
//! - `names`: converts field names in both directions
//!
//! No other crate on the path of a request uses the types of `http`.

mod answer;
mod body;
mod edge;
mod facts;
mod names;
mod request;
mod server;
#[cfg_attr(not(feature = "upgrade"), path = "upgrade/never.rs")]
mod upgrade;

pub use body::{EdgeBody, EdgeBodyError};
pub use causeway_engine::certificate::CertifiedKey;
pub use causeway_engine::{
    BindError, Certificates, Engine, Observer, ObtainedCertificate, SessionTickets, SoughtCertificate, StartError,
    TicketKeys, TlsError, WorkerCounts, WorkerLiveness, WorkerView,
};
pub use causeway_pipeline::{
    BodyError, ClientAuthentication, ClientAuthenticationMode, HeadLimits, Http2, Protocols, ProxyPolicy,
    ProxyProtocol, ServerNameMatcher, Timeouts, TlsMatchers, TlsPolicy, TlsVersion, TransferLimit,
};
pub use edge::{Edge, Servable, handler, handler_with, register};
pub use facts::{ConnectInfo, Tls};
/// The networks of [`ProxyProtocol`].
pub use ipnet::IpNet;
pub use server::{Builder, Running, ServeError, Server, Serving, certified_key};
