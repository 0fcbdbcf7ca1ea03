//! What carries connections: accept, read, drive the protocol machine, run the pipeline, write, drain.
//!
//! In reading order, which is the way of a request:
//! - `server`: the engine as its owner sees it; workers start here
//! - `ports`: the process's sockets, and which listener has which
//! - `listener`: a worker's listeners, and how the next plan takes over
//! - `accept`: from sockets to connections, and which worker a connection goes to
//! - `drive`: the life of a connection, written once over two seams
//!   - `transport`: what carries its octets; `tls`: the same, sealed
//!   - `machine`: the protocol
//! - `input`: octets read and not used yet
//! - `exchange`: one request and its answer; `content`: where the answer's content comes from
//! - `recycle`: the one place where an exchange ends; `access`: the records it leaves
//! - `upstream`: connections to other servers, for handlers' calls
//! - `worker`: what the connections of a worker share: `blocks`, `timers`, `clock`, `hold`; `blocking` for the process
//!
//! This room never names a module or configuration text.

mod accept;
mod access;
mod blocking;
mod blocks;
mod clock;
mod content;
mod drive;
mod exchange;
mod hold;
mod input;
mod listener;
mod machine;
mod ports;
mod recycle;
mod server;
mod timers;
mod tls;
mod transport;
mod upstream;
mod worker;

pub use blocking::BlockingSpec;
pub use ports::BindError;
pub use server::{Engine, EngineSpec, Pools, StartError};
pub use tls::{Certificates, TlsError, certificate};
