//! The listening sockets of the process, and their assignment to the listeners of the next plan.
//!
//! Sockets outlive plans: a listener that is also in the next plan keeps its sockets, including the kernel's backlog.
//! - `bind`: from an address to sockets
//! - `inherit`: from an inherited socket to sockets

mod bind;
mod inherit;

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use causeway_pipeline::{ListenerSpec, ListeningSocket, Plan};

pub use bind::BindError;
use bind::{Own, bind};
use inherit::inherit;

use crate::listener::{Change, ListenerKey};
use crate::tls::TlsPlan;

/// A listener of the process.
#[derive(Debug, Clone, Copy)]
struct Port {
    key: ListenerKey,
    /// The socket as configured.
    socket: ListeningSocket,
    /// The address of its sockets.
    bound: SocketAddr,
}

/// All listeners of the process.
#[derive(Default)]
pub(crate) struct Ports {
    open: Vec<Port>,
    /// Listeners that are not in the plan any more. Their sockets occupy their addresses until every worker has closed them.
    closing: Vec<Port>,
    /// The number of keys given out; keys are not reused.
    keys_used: u64,
}

/// The bound listeners of the next plan, before it is active. Dropping this closes the new sockets.
pub(crate) struct Arranged {
    specs: Arc<[(ListenerKey, ListenerSpec)]>,
    open: Vec<Port>,
    closing: Vec<Port>,
    /// The new sockets of each worker.
    sockets: Vec<Vec<(ListenerKey, TcpListener)>>,
    keys_used: u64,
}

impl Ports {
    /// Returns the bound addresses, in the order of the plan's listeners.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = SocketAddr> {
        self.open.iter().map(|port| port.bound)
    }

    /// Assigns sockets to each listener: existing ones with an equal address, or else a new one for each worker.
    ///
    /// # Errors
    /// The first address that cannot be bound. Sockets that were already bound for this call are closed.
    pub(crate) fn arrange(&self, specs: Vec<ListenerSpec>, workers: usize) -> Result<Arranged, BindError> {
        let (stay, end) = self.keep(&specs);
        let mut own = Own { stay: stay.iter().flatten().map(|port| port.bound).collect(), end: Vec::new() };
        own.end.extend(end.iter().chain(&self.closing).map(|port| port.bound));
        let mut sockets: Vec<Vec<_>> = (0..workers).map(|_| Vec::new()).collect();
        let mut keys_used = self.keys_used;
        let mut open = Vec::with_capacity(specs.len());
        for (spec, kept) in specs.iter().zip(stay) {
            let socket = spec.socket;
            if let Some(port) = kept {
                open.push(Port { socket, ..port });
                continue;
            }
            let bound = match socket {
                ListeningSocket::Bound(address) => bind(address, workers, &own)?,
                ListeningSocket::Inherited(descriptor) => {
                    let is_twice = open.iter().any(|port: &Port| port.socket == socket);
                    inherit(descriptor, workers, is_twice)?
                }
            };
            let key = ListenerKey(keys_used);
            keys_used += 1;
            own.stay.push(bound.address);
            open.push(Port { key, socket, bound: bound.address });
            for (of_worker, socket) in sockets.iter_mut().zip(bound.sockets) {
                of_worker.push((key, socket));
            }
        }
        let specs = open.iter().map(|port| port.key).zip(specs).collect();
        let closing = self.closing.iter().copied().chain(end).collect();
        Ok(Arranged { specs, open, closing, sockets, keys_used })
    }

    /// Returns the existing port of each listener, if any, and the ports that no listener keeps.
    fn keep(&self, specs: &[ListenerSpec]) -> (Vec<Option<Port>>, Vec<Port>) {
        let mut left = self.open.clone();
        let mut take = |is_it: &dyn Fn(&Port) -> bool| left.iter().position(is_it).map(|at| left.remove(at));
        let mut kept: Vec<_> = specs.iter().map(|spec| take(&|port| port.socket == spec.socket)).collect();
        // A second pass finds sockets whose configured address is now written differently: with the port that the kernel
        // chose, or with an explicit wildcard.
        for (kept, spec) in kept.iter_mut().zip(specs).filter(|(kept, _)| kept.is_none()) {
            *kept =
                take(&|port| spec.socket.address().and_then(|address| address.candidates().next()) == Some(port.bound));
        }
        (kept, left)
    }

    /// Makes an arrangement the current one, once its plan is active.
    pub(crate) fn adopt(&mut self, arranged: RemainingPorts) {
        let RemainingPorts { open, closing, keys_used } = arranged;
        *self = Self { open, closing, keys_used };
    }

    /// Returns the keys of the closing listeners.
    pub(crate) fn closing(&self) -> Arc<[ListenerKey]> {
        self.closing.iter().map(|port| port.key).collect()
    }

    /// Forgets the closing listeners, once every worker has closed their sockets.
    pub(crate) fn closed(&mut self) {
        self.closing.clear();
    }
}

/// The part of an arrangement that remains after [`Arranged::hand_out`].
pub(crate) struct RemainingPorts {
    open: Vec<Port>,
    closing: Vec<Port>,
    keys_used: u64,
}

impl Arranged {
    /// Splits the arrangement into a change for each worker and the part that [`Ports::adopt`] takes.
    pub(crate) fn hand_out(self, plan: &Arc<Plan>, tls: &Arc<[Option<Arc<TlsPlan>>]>) -> (Vec<Change>, RemainingPorts) {
        let Self { specs, open, closing, sockets, keys_used } = self;
        let change =
            |sockets| Change { plan: Arc::clone(plan), specs: Arc::clone(&specs), tls: Arc::clone(tls), sockets };
        (sockets.into_iter().map(change).collect(), RemainingPorts { open, closing, keys_used })
    }
}
