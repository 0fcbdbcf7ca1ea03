//! The handover of a running server to another process: an upgrade of the program.
//!
//! ```text
//!   this server:      serves ──lend──► waits ──ready──► leaves: accepts no more, drains ──► ends
//!                                        └───failed──► serves on
//!   the other server: starts ──────────► serves with the same sockets and configuration ──►
//! ```

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use causeway_engine::HandedSockets;
use serde_json::Value;

use super::source::ConfigFile;

/// The listening sockets of a server, for another process.
#[derive(Debug, Default)]
pub struct Handover {
    /// The sockets of the sites.
    pub sites: Vec<HandedSockets>,
    /// The socket of the admin API.
    pub admin: Vec<HandedSockets>,
}

/// All that another process needs to take a server's place.
#[derive(Debug)]
pub struct UpgradeOffer {
    /// The running configuration, as Caddy's JSON.
    pub config: Value,
    /// The file that the server follows.
    pub follows: Option<ConfigFile>,
    /// The listening sockets.
    pub sockets: Handover,
    /// The program to run; `None` is this server's own.
    pub binary: Option<PathBuf>,
    /// Becomes true when this server is stopped meanwhile: the other process must not take its place then.
    pub is_withdrawn: Arc<AtomicBool>,
}

/// Starts another process and waits until it serves. Returns its process id, or the reason why it does not serve.
pub type SuccessorStart =
    Box<dyn Fn(UpgradeOffer) -> Pin<Box<dyn Future<Output = Result<u32, String>> + Send>> + Send + Sync>;

/// The reason for which a server did not hand over. It continues to serve, unless it is stopping or has been replaced.
#[derive(Debug)]
#[non_exhaustive]
pub enum UpgradeError {
    /// The server is part of another program, which starts no process.
    Embedded,
    /// The sockets cannot be duplicated.
    Sockets(io::Error),
    /// The other process does not serve.
    Successor(String),
    /// A command to stop the server has ended the other process.
    Withdrawn,
    /// The server is stopping, or another process has taken its place.
    Stopping,
}

impl fmt::Display for UpgradeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Embedded => f.write_str("this server is part of another program, which starts no new process"),
            Self::Sockets(error) => write!(f, "duplicating the listening sockets: {error}"),
            Self::Successor(words) => f.write_str(words),
            Self::Withdrawn => f.write_str("the server was stopped meanwhile"),
            Self::Stopping => f.write_str("the server is stopping, or another process has taken its place"),
        }
    }
}

impl std::error::Error for UpgradeError {}
