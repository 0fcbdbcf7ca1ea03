//! A worker's listeners: what their connections meet, replaced as a whole when a plan takes over.
//!
//! ```text
//!  named before and now:  accepting under the old plan ──commit──► accepting under the new one
//!  named now:             prepared ──────────────────────commit──► accepting
//!  named before:          accepting ──commit──► ending ──what the kernel held was accepted──► closed ──► forgotten
//! ```
//! A plan takes over in two steps, so that it does on every worker or on none: [`Listeners::prepare`] may fail and changes
//! nothing, [`Listeners::commit`] cannot fail.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;

use causeway_pipeline::{Generation, ListenerSpec, Plan, Protocols, ServerId, Timeouts};
use tokio::net::TcpStream;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;

use crate::accept::{Adopted, Peers, accept, carry};
use crate::tls::TlsPlan;
use crate::worker::Core;

/// A listener, by the same number on every worker and from one plan to the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ListenerKey(pub(crate) u64);

/// A listener as it runs: what an exchange meets that starts now. The generation and what is only meant for it are one
/// thing, so that no exchange has one of an old plan and the other of the new.
pub(crate) struct ListenerPlan {
    pub(crate) generation: Rc<Generation>,
    pub(crate) server: ServerId,
    /// How connections are protected that begin now.
    pub(crate) tls: Option<Arc<TlsPlan>>,
    pub(crate) timeouts: Timeouts,
    pub(crate) discard_octets_max: u64,
    pub(crate) offer: Rc<Offer>,
}

/// What a listener's connections may speak, and within which limits.
pub(crate) struct Offer {
    pub(crate) protocols: Protocols,
    pub(crate) http1: Rc<causeway_h1::Limits>,
    pub(crate) http2: Rc<causeway_h2::Settings>,
}

impl Offer {
    fn new(spec: &ListenerSpec) -> Self {
        let (head, http2) = (&spec.head, &spec.http2);
        let (head_bytes_max, fields_max) = (clamp(head.head_bytes_max), clamp(head.fields_max));
        let (target_bytes_max, trailers_bytes_max) = (clamp(head.target_bytes_max), clamp(head.trailers_bytes_max));
        let limits = causeway_h1::Limits {
            head_bytes_max,
            fields_max,
            target_bytes_max,
            chunk_extension_line_bytes_max: clamp(head.chunk_extension_line_bytes_max),
            chunk_extension_bytes_max: clamp(head.chunk_extension_bytes_max),
            trailers_bytes_max,
            ..causeway_h1::Limits::default()
        };
        let settings = causeway_h2::Settings {
            streams_max: http2.streams_max,
            stream_window: http2.stream_window_bytes,
            connection_window: http2.connection_window_bytes,
            header_table_bytes: http2.header_table_bytes,
            encoder_table_bytes: http2.encoder_table_bytes,
            head_bytes_max,
            fields_max,
            target_bytes_max,
            trailers_bytes_max,
            ..causeway_h2::Settings::default()
        };
        Self { protocols: spec.protocols, http1: Rc::new(limits), http2: Rc::new(settings) }
    }
}

impl ListenerPlan {
    pub(crate) fn new(spec: &ListenerSpec, tls: Option<Arc<TlsPlan>>, generation: &Rc<Generation>) -> Self {
        Self {
            generation: Rc::clone(generation),
            server: spec.server,
            tls,
            timeouts: spec.timeouts,
            discard_octets_max: spec.head.discard_bytes_max,
            offer: Rc::new(Offer::new(spec)),
        }
    }
}

/// A limit beyond what the machine can count is as good as none.
fn clamp<T: TryFrom<usize> + Bounded>(limit: usize) -> T {
    T::try_from(limit).unwrap_or(T::MAX)
}

trait Bounded {
    const MAX: Self;
}

impl Bounded for u16 {
    const MAX: Self = Self::MAX;
}

impl Bounded for u32 {
    const MAX: Self = Self::MAX;
}

/// A listener on one worker. Its connections hold this, never the plan, so that an idle one keeps no old plan alive.
pub(crate) struct Listener {
    plan: RefCell<Rc<ListenerPlan>>,
    /// How often the plan was replaced.
    renewals: Cell<u32>,
    /// How often that changed who is let in.
    admissions: Cell<u32>,
    ending: Cell<bool>,
    /// Tells the acceptor, which waits for the kernel meanwhile.
    ends: Notify,
}

impl Listener {
    pub(crate) fn new(plan: ListenerPlan) -> Rc<Self> {
        Rc::new(Self {
            plan: RefCell::new(Rc::new(plan)),
            renewals: Cell::new(0),
            admissions: Cell::new(0),
            ending: Cell::new(false),
            ends: Notify::new(),
        })
    }

    /// What an exchange meets that starts now.
    pub(crate) fn plan(&self) -> Rc<ListenerPlan> {
        Rc::clone(&self.plan.borrow())
    }

    /// A number that another plan changes.
    pub(crate) fn renewals(&self) -> u32 {
        self.renewals.get()
    }

    /// A number that a plan changes under which connections made before have no standing: it protects the listener where that was in
    /// the clear, or asks other clients for certificates.
    pub(crate) fn admissions(&self) -> u32 {
        self.admissions.get()
    }

    /// Puts another plan in place.
    pub(crate) fn renew(&self, plan: ListenerPlan) {
        let admits_as_before = match (&self.plan.borrow().tls, &plan.tls) {
            (None, None) => true,
            (Some(old), Some(new)) => old.admits_as(new),
            _ => false,
        };
        if !admits_as_before {
            self.admissions.set(self.admissions.get().wrapping_add(1));
        }
        // What the old one held last is dropped only when the new one stands.
        let _old = self.plan.replace(Rc::new(plan));
        self.renewals.set(self.renewals.get().wrapping_add(1));
    }

    /// Whether its connections are to end gracefully, because the worker drains or no plan names the listener any more.
    pub(crate) fn is_ending(&self) -> bool {
        self.ending.get()
    }

    /// The same for a connection on which no exchange begins any more: it holds no plan.
    pub(crate) fn without_plan(&self, vacant: &Rc<Generation>) -> Rc<Self> {
        let plan = self.plan();
        let last = Self::new(ListenerPlan {
            generation: Rc::clone(vacant),
            server: plan.server,
            tls: None,
            timeouts: plan.timeouts,
            discard_octets_max: plan.discard_octets_max,
            offer: Rc::clone(&plan.offer),
        });
        last.renewals.set(self.renewals.get());
        last.admissions.set(self.admissions.get());
        last.ending.set(self.ending.get());
        last
    }

    /// Waits until it ends; for the acceptor only.
    pub(crate) async fn ends(&self) {
        while !self.ending.get() {
            self.ends.notified().await;
        }
    }

    fn end(&self) {
        self.ending.set(true);
        self.ends.notify_one();
    }
}

/// What a worker is to make of the next plan.
pub(crate) struct Change {
    pub(crate) plan: Arc<Plan>,
    /// Every listener that it has.
    pub(crate) specs: Arc<[(ListenerKey, ListenerSpec)]>,
    /// How each of them protects its connections.
    pub(crate) tls: Arc<[Option<Arc<TlsPlan>>]>,
    /// This worker's sockets of those that are new.
    pub(crate) sockets: Vec<(ListenerKey, std::net::TcpListener)>,
}

/// The next plan on this worker, complete but for the switch.
struct Prepared {
    generation: Rc<Generation>,
    plans: BTreeMap<ListenerKey, ListenerPlan>,
    sockets: BTreeMap<ListenerKey, tokio::net::TcpListener>,
    block_octets: usize,
}

struct Open {
    listener: Rc<Listener>,
    accepting: JoinHandle<()>,
}

/// See the module.
pub(crate) struct Listeners {
    core: Rc<Core>,
    peers: Peers,
    generation: Rc<Generation>,
    prepared: Option<Prepared>,
    open: BTreeMap<ListenerKey, Open>,
    /// Other workers may still hand over connections of these.
    ended: BTreeMap<ListenerKey, Rc<Listener>>,
    /// Acceptors that end by themselves, with the last connection that the kernel holds for them.
    closing: Vec<JoinHandle<()>>,
}

impl Listeners {
    pub(crate) fn new(core: Rc<Core>, peers: Peers) -> Self {
        Self {
            core,
            peers,
            generation: Generation::vacant(),
            prepared: None,
            open: BTreeMap::new(),
            ended: BTreeMap::new(),
            closing: Vec::new(),
        }
    }

    /// Makes everything that the next plan needs here. When it fails, nothing is left of it.
    pub(crate) fn prepare(&mut self, change: Change) -> io::Result<()> {
        self.abandon();
        let Change { plan, specs, tls, sockets } = change;
        let listen = |(key, socket)| Ok((key, tokio::net::TcpListener::from_std(socket)?));
        let sockets = sockets.into_iter().map(listen).collect::<io::Result<_>>()?;
        let worker = self.core.worker();
        // A module's mistake fails the load, not the worker with all its connections.
        let made = catch_unwind(AssertUnwindSafe(|| Generation::new(plan, &worker, Some(&self.generation))));
        let generation = made.map_err(|_| io::Error::other("a module panicked while its state was made"))?;
        let whole = |(_, spec): &(_, ListenerSpec)| spec.head.head_bytes_max.max(spec.head.trailers_bytes_max);
        let block_octets = specs.iter().map(whole).max().unwrap_or(0);
        let plans = specs
            .iter()
            .zip(&*tls)
            .map(|((key, spec), tls)| (*key, ListenerPlan::new(spec, tls.clone(), &generation)))
            .collect();
        self.prepared = Some(Prepared { generation, plans, sockets, block_octets });
        Ok(())
    }

    /// The next plan does not take over after all; its sockets close.
    pub(crate) fn abandon(&mut self) {
        self.prepared = None;
    }

    /// The plan that was prepared takes over: exchanges that start from now on are its. Nothing where it has already.
    pub(crate) fn commit(&mut self) {
        let Some(Prepared { generation, plans, sockets, block_octets }) = self.prepared.take() else { return };
        self.core.blocks.grow(block_octets);
        self.generation = generation;
        let open = self.open.len();
        self.end(|key| !plans.contains_key(key));
        let mut is_news = self.open.len() < open;
        let mut sockets = sockets;
        for (key, plan) in plans {
            if let Some(open) = self.open.get(&key) {
                let admissions = open.listener.admissions();
                is_news |= open.listener.plan.borrow().timeouts != plan.timeouts;
                open.listener.renew(plan);
                is_news |= open.listener.admissions() != admissions;
            } else if let Some(socket) = sockets.remove(&key) {
                let listener = Listener::new(plan);
                let acceptor = accept(Rc::clone(&self.core), key, Rc::clone(&listener), socket, self.peers.clone());
                self.open.insert(key, Open { listener, accepting: tokio::task::spawn_local(acceptor) });
            }
        }
        if is_news {
            // Idle connections end, or wait for another deadline.
            self.core.wheel.borrow().wake_all();
        }
    }

    /// Drops `done` when the sockets of all listeners that ended are closed.
    pub(crate) fn when_closed(&mut self, done: mpsc::Sender<()>) {
        let closing = std::mem::take(&mut self.closing);
        self.closing.push(tokio::task::spawn_local(async move {
            join(closing).await;
            drop(done);
        }));
    }

    /// No worker hands over connections of these any more.
    pub(crate) fn forget(&mut self, keys: &[ListenerKey]) {
        self.ended.retain(|key, _| !keys.contains(key));
    }

    /// Takes a connection that another worker accepted.
    pub(crate) fn adopt(&mut self, adopted: Adopted) {
        let Adopted { stream, peer, listener: key, stamp } = adopted;
        progress::after_receive(stamp, std::time::Duration::ZERO);
        if self.prepared.as_ref().is_some_and(|prepared| prepared.sockets.contains_key(&key)) {
            // That worker has switched already, so the word to do so is under way to this one.
            self.commit();
        }
        let open = self.open.get(&key).map(|open| &open.listener);
        let listener = open.or_else(|| self.ended.get(&key)).expect("a listener is forgotten when all have closed it");
        match TcpStream::from_std(stream) {
            Ok(stream) => carry(&self.core, listener, stream, peer),
            Err(_) => self.core.connection_ended(),
        }
    }

    /// Stops accepting and tells every connection to end gracefully; returns when what the kernel held was accepted.
    pub(crate) async fn drain(&mut self) {
        self.abandon();
        self.end(|_| true);
        self.core.drain();
        join(std::mem::take(&mut self.closing)).await;
    }

    fn end(&mut self, is_it: impl Fn(&ListenerKey) -> bool) {
        for (key, open) in self.open.extract_if(.., |key, _| is_it(key)) {
            open.listener.end();
            self.closing.push(open.accepting);
            self.ended.insert(key, open.listener);
        }
    }
}

async fn join(tasks: Vec<JoinHandle<()>>) {
    for task in tasks {
        // One that panicked was reported, and is as over as the others.
        let _ = task.await;
    }
}

#[cfg(test)]
mod tests;
