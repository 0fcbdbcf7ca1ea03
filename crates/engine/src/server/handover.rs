//! Passes the listening sockets to another process.
//!
//! ```text
//!   this process:  duplicate_sockets ──► (the other process is ready) ──► release_socket_files ──► drain
//!   the other one: start_with ──► accepts too ──► take_over_socket_files
//! ```
//! The files change hands in either order. Until `release_socket_files`, this process may also go on as if nothing had
//! happened.

use std::collections::BTreeMap;
use std::io;

use causeway_pipeline::ListeningSocket;
use tokio::sync::mpsc;

use super::{Command, Engine};
use crate::listener::ListenerKey;
use crate::sockets::HandedSockets;

impl Engine {
    /// Duplicates the sockets of all listeners, except inherited ones: a child process inherits these anyway.
    ///
    /// # Errors
    /// If the process is out of descriptors, or a worker has ended.
    pub async fn duplicate_sockets(&self) -> io::Result<Vec<HandedSockets>> {
        let (report, mut reports) = mpsc::channel(self.commands.len());
        self.broadcast(|| Command::DuplicateSockets(report.clone()));
        drop(report);
        let mut by_key = BTreeMap::<ListenerKey, Vec<_>>::new();
        // An error leaves no trace: the descriptors that were duplicated are closed again.
        for _ in &self.commands {
            let sockets = reports.recv().await.unwrap_or_else(|| Err(io::Error::other("a worker has ended")))?;
            for (key, descriptor) in sockets {
                by_key.entry(key).or_default().push(descriptor);
            }
        }
        // A child process has the inherited ones under their numbers.
        let lent = self.sockets.configured().filter(|(_, socket)| !matches!(socket, ListeningSocket::Descriptor(_)));
        Ok(lent
            .map(|(key, socket)| HandedSockets {
                name: socket.to_string(),
                descriptors: by_key.remove(&key).unwrap_or_default(),
            })
            .collect())
    }

    /// Makes the files of Unix sockets those of this process, which has received the sockets from another one.
    pub fn take_over_socket_files(&mut self) {
        self.sockets.take_over_files();
    }

    /// Leaves the files of Unix sockets to the process that has received the sockets.
    pub fn release_socket_files(&mut self) {
        self.sockets.release_files();
    }
}
