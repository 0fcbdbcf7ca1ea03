//! The listening sockets of the process, and their assignment to the listeners of the next plan.
//!
//! Sockets outlive plans: a listener that is also in the next plan keeps its sockets, including the kernel's backlog.
//! - `bind`: from an address to sockets
//! - `unix`: from a Unix socket's path to sockets
//! - `open`: from a socket that is open already to sockets
//! - `handover`: from the sockets of another process of this program to sockets

mod bind;
mod handover;
mod open;
mod unix;

use std::sync::Arc;

use causeway_pipeline::{BoundAddress, ListenerSpec, ListeningSocket, Plan};
use socket2::Socket;

pub use bind::{BindError, is_absent_address};
use bind::{Own, bind};
pub use handover::HandedSockets;
use handover::claim;
use open::share;
use unix::SocketFile;

use crate::listener::{Change, ListenerKey};
use crate::tls::{Certificates, TlsPlan};

/// A listener of the process.
#[derive(Debug, Clone)]
struct BoundListener {
    key: ListenerKey,
    /// The socket as configured.
    socket: ListeningSocket,
    /// The address of its sockets.
    bound: BoundAddress,
    /// The file of a Unix socket that this process has created. Its drop removes the file.
    file: Option<SocketFile>,
}

/// One worker's socket of a listener.
pub(crate) struct AcceptingSocket {
    pub(crate) socket: Socket,
    /// The path of a Unix socket; `None` for TCP.
    pub(crate) path: Option<Arc<str>>,
}

/// All listeners of the process.
#[derive(Default)]
pub(crate) struct BoundListeners {
    open: Vec<BoundListener>,
    /// Listeners that are not in the plan any more. Their sockets occupy their addresses until every worker has closed
    /// them.
    closing: Vec<BoundListener>,
    /// The number of keys given out; keys are not reused.
    keys_used: u64,
}

/// The bound listeners of the next plan, before it is active. Dropping this closes the new sockets.
pub(crate) struct ArrangedListeners {
    specs: Arc<[(ListenerKey, ListenerSpec)]>,
    open: Vec<BoundListener>,
    closing: Vec<BoundListener>,
    /// The new sockets of each worker.
    sockets: Vec<Vec<(ListenerKey, AcceptingSocket)>>,
    keys_used: u64,
}

impl BoundListeners {
    /// Returns the bound addresses, in the order of the plan's listeners.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = BoundAddress> {
        self.open.iter().map(|listener| listener.bound.clone())
    }

    /// Assigns sockets to each listener: existing ones with an equal address, or else those in `handed`, which are
    /// removed from it, or else a new one for each worker.
    ///
    /// # Errors
    /// The first address that cannot be bound. Sockets that were already bound for this call are closed.
    pub(crate) fn arrange(
        &self,
        specs: Vec<ListenerSpec>,
        workers: usize,
        handed: &mut Vec<HandedSockets>,
    ) -> Result<ArrangedListeners, BindError> {
        let (stay, end) = self.match_existing(&specs);
        let mut own = Own {
            stay: stay.iter().flatten().filter_map(|listener| listener.bound.socket_addr()).collect(),
            end: Vec::new(),
        };
        own.end.extend(end.iter().chain(&self.closing).filter_map(|listener| listener.bound.socket_addr()));
        let mut sockets: Vec<Vec<_>> = (0..workers).map(|_| Vec::new()).collect();
        let mut keys_used = self.keys_used;
        let mut open = Vec::with_capacity(specs.len());
        for (spec, kept) in specs.iter().zip(stay) {
            let socket = spec.socket.clone();
            if let Some(listener) = kept {
                open.push(BoundListener { socket, ..listener });
                continue;
            }
            let is_twice = || open.iter().any(|listener: &BoundListener| is_same(&listener.socket, &socket));
            let claimed = claim(&socket, handed);
            let bound = match &socket {
                ListeningSocket::Descriptor(descriptor) => share(*descriptor, claimed, workers, is_twice())?,
                _ if let Some(sockets) = claimed => handover::adopt(&socket, sockets, workers)?,
                ListeningSocket::Bound(address) => bind(*address, workers, &own)?,
                ListeningSocket::Unix(address) => unix::bind(address, workers, is_twice())?,
            };
            let key = ListenerKey(keys_used);
            keys_used += 1;
            own.stay.extend(bound.address.socket_addr());
            let path = match &bound.address {
                BoundAddress::Ip(_) => None,
                BoundAddress::Unix(path) => Some(Arc::clone(path)),
            };
            open.push(BoundListener { key, socket, bound: bound.address, file: bound.file });
            // More sockets than workers come from a process with more workers.
            for (number, socket) in bound.sockets.into_iter().enumerate() {
                sockets[number % workers].push((key, AcceptingSocket { socket, path: path.clone() }));
            }
        }
        let specs = open.iter().map(|listener| listener.key).zip(specs).collect();
        let closing = self.closing.iter().cloned().chain(end).collect();
        Ok(ArrangedListeners { specs, open, closing, sockets, keys_used })
    }

    /// Returns the existing listener of each spec, if any, and those that no spec keeps.
    fn match_existing(&self, specs: &[ListenerSpec]) -> (Vec<Option<BoundListener>>, Vec<BoundListener>) {
        let mut left = self.open.clone();
        let mut take =
            |matches: &dyn Fn(&BoundListener) -> bool| left.iter().position(matches).map(|at| left.remove(at));
        let mut kept: Vec<_> =
            specs.iter().map(|spec| take(&|listener| is_same(&listener.socket, &spec.socket))).collect();
        // A second pass finds sockets whose configured address is now written differently: with the port that the
        // kernel chose, or with an explicit wildcard.
        for (kept, spec) in kept.iter_mut().zip(specs).filter(|(kept, _)| kept.is_none()) {
            *kept = take(&|listener| {
                let first = spec.socket.address().and_then(|address| address.candidates().next());
                first.is_some() && first == listener.bound.socket_addr()
            });
        }
        (kept, left)
    }

    /// Makes an arrangement the current one, once its plan is active.
    pub(crate) fn adopt(&mut self, arranged: RemainingListeners) {
        let RemainingListeners { open, closing, keys_used } = arranged;
        for listener in &open {
            // Another listener of the plan may have had this file with other permission bits.
            let before = self.open.iter().find(|before| before.key == listener.key);
            if let (ListeningSocket::Unix(address), Some(before)) = (&listener.socket, before)
                && before.socket != listener.socket
                && let Err(error) = unix::set_mode(address)
            {
                tracing::warn!(path = %address.path, %error, "cannot change the permission bits of a Unix socket's file");
            }
        }
        *self = Self { open, closing, keys_used };
    }

    /// Returns the keys of the closing listeners.
    pub(crate) fn closing(&self) -> Arc<[ListenerKey]> {
        self.closing.iter().map(|listener| listener.key).collect()
    }

    /// Returns the configured sockets of the listeners, with their keys, in the order of the plan.
    pub(crate) fn configured(&self) -> impl Iterator<Item = (ListenerKey, &ListeningSocket)> {
        self.open.iter().map(|listener| (listener.key, &listener.socket))
    }

    /// Makes the files of Unix sockets this process's, after it has received them from another one.
    pub(crate) fn take_over_files(&mut self) {
        for listener in self.open.iter_mut().filter(|listener| listener.file.is_none()) {
            if let ListeningSocket::Unix(address) = &listener.socket {
                listener.file = SocketFile::of(address);
            }
        }
    }

    /// Leaves the files of Unix sockets to the process that listens on them from now on.
    pub(crate) fn release_files(&mut self) {
        for listener in self.open.iter_mut().chain(&mut self.closing) {
            if let Some(file) = listener.file.take() {
                file.disown();
            }
        }
    }

    /// Removes the files of Unix sockets: no client shall connect to a server that ends.
    pub(crate) fn remove_files(&mut self) {
        for listener in self.open.iter_mut().chain(&mut self.closing) {
            listener.file = None;
        }
    }

    /// Forgets the closing listeners, once every worker has closed their sockets.
    pub(crate) fn closed(&mut self) {
        self.closing.clear();
    }
}

/// Returns whether both configure one socket. The permission bits of a Unix socket's file can change.
fn is_same(one: &ListeningSocket, other: &ListeningSocket) -> bool {
    match (one, other) {
        (ListeningSocket::Unix(one), ListeningSocket::Unix(other)) => one.path == other.path,
        _ => one == other,
    }
}

/// The part of an arrangement that remains after [`ArrangedListeners::hand_out`].
pub(crate) struct RemainingListeners {
    open: Vec<BoundListener>,
    closing: Vec<BoundListener>,
    keys_used: u64,
}

impl ArrangedListeners {
    /// Splits the arrangement into a change for each worker and the part that [`BoundListeners::adopt`] takes.
    pub(crate) fn hand_out(
        self,
        plan: &Arc<Plan>,
        tls: &Arc<[Option<Arc<TlsPlan>>]>,
        certificates: Option<&Arc<dyn Certificates>>,
    ) -> (Vec<Change>, RemainingListeners) {
        let Self { specs, open, closing, sockets, keys_used } = self;
        let change = |sockets| Change {
            plan: Arc::clone(plan),
            specs: Arc::clone(&specs),
            tls: Arc::clone(tls),
            certificates: certificates.cloned(),
            sockets,
        };
        (sockets.into_iter().map(change).collect(), RemainingListeners { open, closing, keys_used })
    }
}
