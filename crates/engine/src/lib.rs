#![doc = include_str!("../README.md")]
//!
//! # In reading order, which follows a request
//! - `server`: the engine's public interface; workers start here
//! - `sockets`: the process's listening sockets, and the listener that uses each
//! - `listener`: a worker's listeners, and their replacement on a reload
//! - `accept`: from sockets to connections, and the choice of a worker for each connection
//! - `drive`: the life of a connection, written once, generic over two traits
//!   - `transport`: plain sockets; `tls`: sockets under TLS
//!   - `machine`: the protocol
//! - `proxy_protocol`: addresses that a proxy reports at the start of a connection
//! - `input`: bytes that were read and not yet parsed
//! - `content`: the sources of content that is sent
//! - `recycle`: the one place where an exchange ends
//! - `upstream`: connections to other servers, for handlers' calls
//! - `worker`: state shared by a worker's connections: `blocks`, `timers`, `clock`, `receive_delay`; `pools`: thread
//!   pools for offloaded work
//! - `observer`: a view of the workers, for metrics
//!
//! This crate never names a handler module and never reads configuration text.

mod accept;
mod blocks;
mod clock;
mod content;
mod drive;
mod input;
mod listener;
mod machine;
mod observer;
mod pools;
mod proxy_protocol;
mod receive_delay;
mod recycle;
mod server;
mod sockets;
mod timers;
mod tls;
mod transport;
mod upstream;
mod worker;

pub use observer::{Observer, WorkerCounts, WorkerView};
pub use pools::BlockingSpec;
pub use server::{Engine, EngineSpec, StartError, WorkerLiveness, check_tls};
pub use sockets::{BindError, HandedSockets, is_absent_address};
#[cfg(fuzzing)]
pub use tls::fuzzing;
pub use tls::{
    Certificates, ClientTrust, ObtainedCertificate, SessionTickets, SoughtCertificate, TicketKeys, TlsError,
    certificate,
};
