//! Which sockets the process listens on, and how the listeners of the next plan are arranged on them.
//!
//! Sockets belong to the process: a listener that the next plan names too keeps its own, with what the kernel holds for them.
//! - `bind`: from an address to sockets

mod bind;

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use causeway_pipeline::{ListenAddress, ListenerSpec, Plan};

pub use bind::BindError;
use bind::{Own, bind};

use crate::listener::{Change, ListenerKey};
use crate::tls::TlsPlan;

/// A listener of the process.
#[derive(Debug, Clone, Copy)]
struct Port {
    key: ListenerKey,
    address: ListenAddress,
    bound: SocketAddr,
}

/// The process's listeners.
#[derive(Default)]
pub(crate) struct Ports {
    open: Vec<Port>,
    /// No plan names these any more; until every worker has closed them they stand in the way of others.
    closing: Vec<Port>,
    keys_used: u64,
}

/// The listeners of the next plan, bound, before it takes over. Dropping this closes those that are new.
pub(crate) struct Arranged {
    specs: Arc<[(ListenerKey, ListenerSpec)]>,
    open: Vec<Port>,
    closing: Vec<Port>,
    /// New sockets, for each worker.
    sockets: Vec<Vec<(ListenerKey, TcpListener)>>,
    keys_used: u64,
}

impl Ports {
    /// Where the process listens, in the order of the listeners that it was given.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = SocketAddr> {
        self.open.iter().map(|port| port.bound)
    }

    /// Finds a socket for each listener: that which the same address has already, else a new one for each worker.
    pub(crate) fn arrange(&self, specs: Vec<ListenerSpec>, workers: usize) -> Result<Arranged, BindError> {
        let (stay, end) = self.keep(&specs);
        let mut own = Own { stay: stay.iter().flatten().map(|port| port.bound).collect(), end: Vec::new() };
        own.end.extend(end.iter().chain(&self.closing).map(|port| port.bound));
        let mut sockets: Vec<Vec<_>> = (0..workers).map(|_| Vec::new()).collect();
        let mut keys_used = self.keys_used;
        let mut open = Vec::with_capacity(specs.len());
        for (spec, kept) in specs.iter().zip(stay) {
            let address = spec.address;
            if let Some(port) = kept {
                open.push(Port { address, ..port });
                continue;
            }
            let bound = bind(address, workers, &own)?;
            let key = ListenerKey(keys_used);
            keys_used += 1;
            own.stay.push(bound.address);
            open.push(Port { key, address, bound: bound.address });
            for (of_worker, socket) in sockets.iter_mut().zip(bound.sockets) {
                of_worker.push((key, socket));
            }
        }
        let specs = open.iter().map(|port| port.key).zip(specs).collect();
        let closing = self.closing.iter().copied().chain(end).collect();
        Ok(Arranged { specs, open, closing, sockets, keys_used })
    }

    /// For each listener the port that it keeps, and the ports that nobody keeps.
    fn keep(&self, specs: &[ListenerSpec]) -> (Vec<Option<Port>>, Vec<Port>) {
        let mut left = self.open.clone();
        let mut take = |is_it: &dyn Fn(&Port) -> bool| left.iter().position(is_it).map(|at| left.remove(at));
        let mut kept: Vec<_> = specs.iter().map(|spec| take(&|port| port.address == spec.address)).collect();
        // The same socket under another name: a port that the kernel chose, a wildcard written out.
        for (kept, spec) in kept.iter_mut().zip(specs).filter(|(kept, _)| kept.is_none()) {
            *kept = take(&|port| spec.address.candidates().next() == Some(port.bound));
        }
        (kept, left)
    }

    /// The plan of this arrangement has taken over.
    pub(crate) fn adopt(&mut self, arranged: Taken) {
        let Taken { open, closing, keys_used } = arranged;
        *self = Self { open, closing, keys_used };
    }

    /// Every worker has closed the listeners that no plan names any more: which these were.
    pub(crate) fn closed(&mut self) -> Arc<[ListenerKey]> {
        self.closing.drain(..).map(|port| port.key).collect()
    }
}

/// What is left of an arrangement once the workers have their parts.
pub(crate) struct Taken {
    open: Vec<Port>,
    closing: Vec<Port>,
    keys_used: u64,
}

impl Arranged {
    /// What each worker is to do for it.
    pub(crate) fn hand_out(self, plan: &Arc<Plan>, tls: &Arc<[Option<Arc<TlsPlan>>]>) -> (Vec<Change>, Taken) {
        let Self { specs, open, closing, sockets, keys_used } = self;
        let change =
            |sockets| Change { plan: Arc::clone(plan), specs: Arc::clone(&specs), tls: Arc::clone(tls), sockets };
        (sockets.into_iter().map(change).collect(), Taken { open, closing, keys_used })
    }
}
