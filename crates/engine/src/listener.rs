//! A worker's listeners: the plan for their connections, replaced as a whole on a reload.
//!
//! ```text
//!  in the old plan and the new: accepting under the old plan ──commit──► accepting under the new one
//!  only in the new plan:        prepared ──────────────────────commit──► accepting
//!  only in the old plan:        accepting ──commit──► ending ──backlog accepted──► closed ──► forgotten
//! ```
//! A plan is activated in two phases, so that it becomes active on every worker or on none: [`Listeners::prepare`] may
//! fail and has no visible effect, [`Listeners::commit`] cannot fail.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use causeway_pipeline::{Generation, ListenerSpec, Plan, Protocols, ProxyProtocol, ServerId, TcpProbes, Timeouts};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use crate::accept::{Acceptor, HandedConnection, Workers, accept, serve};
use crate::sockets::AcceptingSocket;
use crate::tls::{Certificates, TlsPlan};
use crate::worker::Core;

/// A listener's id, equal on every worker and stable across reloads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ListenerKey(pub(crate) u64);

/// The settings of a listener for new exchanges. The generation and the values that belong to it are in one struct, so
/// that no exchange mixes an old plan with a new one.
pub(crate) struct ListenerPlan {
    pub(crate) generation: Rc<Generation>,
    pub(crate) server: ServerId,
    /// TLS for new connections; `None` serves them in cleartext.
    pub(crate) tls: Option<Arc<TlsPlan>>,
    pub(crate) proxy_protocol: Option<Arc<ProxyProtocol>>,
    /// With TLS: the longest head, in bytes, of a cleartext request that is redirected to https; `None` refuses such
    /// requests.
    pub(crate) redirect_bytes_max: Option<usize>,
    pub(crate) probes: Option<TcpProbes>,
    pub(crate) timeouts: Timeouts,
    pub(crate) discard_bytes_max: u64,
    pub(crate) http: Rc<HttpConfig>,
}

/// The protocols of a listener's connections, and their limits.
pub(crate) struct HttpConfig {
    pub(crate) protocols: Protocols,
    pub(crate) http1: Rc<causeway_h1::Limits>,
    pub(crate) http2: Rc<causeway_h2::Settings>,
}

impl HttpConfig {
    fn new(spec: &ListenerSpec) -> Self {
        let (head, http2) = (&spec.head, &spec.http2);
        // One set of limits for both versions: a client must not gain by choosing one.
        let (head_bytes_max, fields_max) = (clamp(head.head_bytes_max), clamp(head.fields_max));
        let (target_bytes_max, trailers_bytes_max) = (clamp(head.target_bytes_max()), clamp(head.trailers_bytes_max));
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
            proxy_protocol: spec.proxy_protocol.clone(),
            redirect_bytes_max: spec.redirect_bytes_max,
            probes: spec.probes,
            timeouts: spec.timeouts.bounded(),
            discard_bytes_max: spec.head.discard_bytes_max,
            http: Rc::new(HttpConfig::new(spec)),
        }
    }
}

/// Converts a configured limit to the protocol machine's integer type, saturating.
fn clamp<T: TryFrom<usize> + Bounded>(limit: usize) -> T {
    // `HeadLimits::out_of_range` refuses limits above this type's range, except that of a target, which is no longer
    // than its head.
    T::try_from(limit).unwrap_or(T::MAX)
}

/// An integer type with a maximum, for [`clamp`].
trait Bounded {
    const MAX: Self;
}

impl Bounded for u16 {
    const MAX: Self = Self::MAX;
}

impl Bounded for u32 {
    const MAX: Self = Self::MAX;
}

/// A listener on one worker. Connections hold this and not the plan, so that an idle connection keeps no old plan
/// alive.
pub(crate) struct Listener {
    plan: RefCell<Rc<ListenerPlan>>,
    /// The number of times the plan was replaced.
    plan_number: Cell<u32>,
    /// The number of those times at which the rules for admitting connections changed.
    admission_epoch: Cell<u32>,
    /// The path of its Unix socket; `None` for TCP.
    unix: Option<Rc<str>>,
    is_ending: Cell<bool>,
    /// Notifies the acceptors, which otherwise wait for a connection.
    ended: Notify,
}

impl Listener {
    pub(crate) fn new(plan: ListenerPlan, unix: Option<Rc<str>>) -> Rc<Self> {
        Rc::new(Self {
            unix,
            plan: RefCell::new(Rc::new(plan)),
            plan_number: Cell::new(0),
            admission_epoch: Cell::new(0),
            is_ending: Cell::new(false),
            ended: Notify::new(),
        })
    }

    /// Returns the path of its Unix socket; `None` for TCP.
    pub(crate) fn unix(&self) -> Option<&Rc<str>> {
        self.unix.as_ref()
    }

    /// Returns the plan for an exchange that starts now.
    pub(crate) fn plan(&self) -> Rc<ListenerPlan> {
        Rc::clone(&self.plan.borrow())
    }

    /// Returns a number that changes with each new plan.
    pub(crate) fn plan_number(&self) -> u32 {
        self.plan_number.get()
    }

    /// Returns a number that changes with each plan under which older connections must end: it turns TLS on or off,
    /// changes client authentication, or no longer serves a version of HTTP.
    pub(crate) fn admission_epoch(&self) -> u32 {
        self.admission_epoch.get()
    }

    /// Replaces the plan, and counts whether the admission rules changed.
    pub(crate) fn replace_plan(&self, plan: ListenerPlan) {
        let admits_as_before = {
            let old = self.plan.borrow();
            let keeps_versions = old.http.protocols.are_subset_of(plan.http.protocols);
            // A connection whose version of HTTP is not served any more must end, like one that TLS or its policy would
            // refuse.
            keeps_versions
                && match (&old.tls, &plan.tls) {
                    (None, None) => true,
                    (Some(old), Some(new)) => old.admits_as(new),
                    _ => false,
                }
        };
        if !admits_as_before {
            // Wrapping: a connection compares for equality only, and 2^32 reloads outlast it.
            self.admission_epoch.set(self.admission_epoch.get().wrapping_add(1));
        }
        // The old plan drops at the end, when the new one is already in place: its drop may run module code.
        let _old = self.plan.replace(Rc::new(plan));
        self.plan_number.set(self.plan_number.get().wrapping_add(1));
    }

    /// Returns whether connections must end gracefully, because the worker drains or the current plan lacks this
    /// listener.
    pub(crate) fn is_ending(&self) -> bool {
        self.is_ending.get()
    }

    /// Returns a copy without a generation, for a connection on which no further exchange begins, so that it keeps no
    /// plan alive.
    pub(crate) fn without_plan(&self, vacant: &Rc<Generation>) -> Rc<Self> {
        let plan = self.plan();
        let last = ListenerPlan {
            generation: Rc::clone(vacant),
            server: plan.server,
            proxy_protocol: None,
            redirect_bytes_max: None,
            probes: None,
            tls: None,
            timeouts: plan.timeouts,
            discard_bytes_max: plan.discard_bytes_max,
            http: Rc::clone(&plan.http),
        };
        let last = Self::new(last, self.unix.clone());
        // The counters stay equal; otherwise `is_outdated` would be true for the connection.
        last.plan_number.set(self.plan_number.get());
        last.admission_epoch.set(self.admission_epoch.get());
        last.is_ending.set(self.is_ending.get());
        last
    }

    /// Waits until the listener ends.
    pub(crate) async fn until_end(&self) {
        // The flag is set before the notification, so a wake-up without it is spurious. No other task runs between the
        // look at the flag and the call.
        while !self.is_ending.get() {
            self.ended.notified().await;
        }
    }

    /// Begins the end: the acceptor empties the backlog, and connections end gracefully.
    fn end(&self) {
        self.is_ending.set(true);
        self.ended.notify_waiters();
    }
}

/// The next plan, as one worker receives it.
pub(crate) struct Change {
    pub(crate) plan: Arc<Plan>,
    /// All listeners of the plan.
    pub(crate) specs: Arc<[(ListenerKey, ListenerSpec)]>,
    /// The TLS plan of each of them, in the order of `specs`.
    pub(crate) tls: Arc<[Option<Arc<TlsPlan>>]>,
    /// For connections to upstreams.
    pub(crate) certificates: Option<Arc<dyn Certificates>>,
    /// This worker's sockets of the new listeners.
    pub(crate) sockets: Vec<(ListenerKey, AcceptingSocket)>,
}

/// The next plan on this worker, complete, but not active yet.
struct PreparedPlan {
    generation: Rc<Generation>,
    plans: BTreeMap<ListenerKey, ListenerPlan>,
    certificates: Option<Arc<dyn Certificates>>,
    sockets: BTreeMap<ListenerKey, Vec<Rc<Acceptor>>>,
    block_bytes: usize,
}

/// An accepting listener and its acceptors' tasks.
struct OpenListener {
    listener: Rc<Listener>,
    /// Its sockets: one, or more that a process with more workers has handed over. Each acceptor has a reference too,
    /// and the last one closes the socket.
    sockets: Vec<Rc<Acceptor>>,
    accepting: Vec<JoinHandle<()>>,
}

/// All listeners of one worker.
pub(crate) struct Listeners {
    core: Rc<Core>,
    workers: Workers,
    generation: Rc<Generation>,
    prepared: Option<PreparedPlan>,
    open: BTreeMap<ListenerKey, OpenListener>,
    /// Listeners that have ended here, of which another worker may still hand over connections.
    ended: BTreeMap<ListenerKey, Rc<Listener>>,
    /// Acceptors of ended listeners; each ends when its backlog is empty.
    closing: Vec<JoinHandle<()>>,
}

impl Listeners {
    pub(crate) fn new(core: Rc<Core>, workers: Workers) -> Self {
        Self {
            core,
            workers,
            generation: Generation::vacant(),
            prepared: None,
            open: BTreeMap::new(),
            ended: BTreeMap::new(),
            closing: Vec::new(),
        }
    }

    /// Creates all state of the next plan on this worker, in place of an earlier prepared one.
    ///
    /// # Errors
    /// A socket cannot be registered, or a module panicked. All state of the plan is dropped then.
    pub(crate) fn prepare(&mut self, change: Change) -> io::Result<()> {
        // An earlier reload may have been dropped between its phases.
        self.abandon();
        let Change { plan, specs, tls, certificates, sockets: bound } = change;
        let mut sockets = BTreeMap::<_, Vec<_>>::new();
        for (key, socket) in bound {
            sockets.entry(key).or_default().push(Rc::new(Acceptor::new(socket)?));
        }
        let worker = self.core.worker();
        // A module's panic fails the reload, not the worker with all its connections.
        let made = catch_unwind(AssertUnwindSafe(|| Generation::new(plan, &worker, Some(&self.generation))));
        let generation = made.map_err(|_| io::Error::other("a module panicked while it created its state"))?;
        // A head, or a trailer section, is parsed only when it is whole, so it must fit one block.
        let whole = |(_, spec): &(_, ListenerSpec)| spec.head.head_bytes_max.max(spec.head.trailers_bytes_max);
        let block_bytes = specs.iter().map(whole).max().unwrap_or(0);
        let plans = specs
            .iter()
            .zip(&*tls)
            .map(|((key, spec), tls)| (*key, ListenerPlan::new(spec, tls.clone(), &generation)))
            .collect();
        self.prepared = Some(PreparedPlan { generation, plans, certificates, sockets, block_bytes });
        Ok(())
    }

    /// Drops the prepared plan and closes its sockets.
    pub(crate) fn abandon(&mut self) {
        self.prepared = None;
    }

    /// Activates the prepared plan for all exchanges that start from now on. No effect when it is active already.
    pub(crate) fn commit(&mut self) {
        let Some(prepared) = self.prepared.take() else { return };
        let PreparedPlan { generation, plans, certificates, mut sockets, block_bytes } = prepared;
        // Before the first exchange under the plan, whose heads must fit into one block.
        self.core.memory.blocks.grow(block_bytes);
        // Pools of both plans keep their upstreams, so they look up their certificates at each handshake.
        self.core.replace_certificates(certificates);
        let before = std::mem::replace(&mut self.generation, generation);
        before.plan().set_replaced(Instant::now());
        let open = self.open.len();
        // First the ends, so that no listener of the old plan accepts under the new one.
        self.end(|key| !plans.contains_key(key));
        let mut must_poll_idle = self.open.len() < open;
        for (key, plan) in plans {
            if let Some(open) = self.open.get(&key) {
                // A listener of both plans keeps its acceptor and its connections.
                let epoch = open.listener.admission_epoch();
                must_poll_idle |= open.listener.plan.borrow().timeouts != plan.timeouts;
                open.listener.replace_plan(plan);
                must_poll_idle |= open.listener.admission_epoch() != epoch;
            } else if let Some(sockets) = sockets.remove(&key) {
                let listener = Listener::new(plan, sockets.first().and_then(|socket| socket.unix().cloned()));
                let acceptor = |socket: &Rc<Acceptor>| {
                    let (core, listener, socket) = (Rc::clone(&self.core), Rc::clone(&listener), Rc::clone(socket));
                    tokio::task::spawn_local(accept(core, key, listener, socket, self.workers.clone()))
                };
                let accepting = sockets.iter().map(acceptor).collect();
                self.open.insert(key, OpenListener { listener, sockets, accepting });
            }
        }
        if must_poll_idle {
            // Idle connections must end or adopt new timeouts, so each is polled.
            self.core.timers.wake_all();
        }
    }

    /// Duplicates the sockets of all open listeners.
    ///
    /// # Errors
    /// If the process is out of descriptors.
    pub(crate) fn duplicate_sockets(&self) -> io::Result<Vec<(ListenerKey, OwnedFd)>> {
        let sockets = self.open.iter().flat_map(|(key, open)| open.sockets.iter().map(|socket| (*key, socket)));
        sockets.map(|(key, socket)| Ok((key, socket.as_fd().try_clone_to_owned()?))).collect()
    }

    /// Drops `done` when the sockets of all ended listeners are closed.
    pub(crate) fn when_closed<T: 'static>(&mut self, done: T) {
        // The waiting task goes back on the list, so that a later reload or drain waits for these acceptors, too.
        let closing = std::mem::take(&mut self.closing);
        self.closing.push(tokio::task::spawn_local(async move {
            join(closing).await;
            drop(done);
        }));
    }

    /// Removes ended listeners of which no worker hands over connections any more.
    pub(crate) fn forget(&mut self, keys: &[ListenerKey]) {
        self.ended.retain(|key, _| !keys.contains(key));
    }

    /// Takes a connection that another worker accepted.
    pub(crate) fn adopt(&mut self, adopted: HandedConnection) {
        let HandedConnection { stream, peer, listener: key, stamp } = adopted;
        progress::after_receive(stamp, Duration::ZERO);
        if self.prepared.as_ref().is_some_and(|prepared| prepared.sockets.contains_key(&key)) {
            // That worker has activated the plan already, so this worker's `Commit` is on its way.
            self.commit();
        }
        let open = self.open.get(&key).map(|open| &open.listener);
        let listener = open.or_else(|| self.ended.get(&key)).expect("a listener is forgotten when all have closed it");
        match TcpStream::from_std(stream) {
            Ok(stream) => serve(&self.core, listener, stream, peer),
            Err(_) => self.core.lifecycle.connection_ended(),
        }
    }

    /// Stops accepting and makes every connection end gracefully; idle ones of HTTP/1 after `idle_grace`. Returns when
    /// all backlogs are empty.
    pub(crate) async fn drain(&mut self, idle_grace: Duration) {
        self.abandon();
        self.core.lifecycle.set_idle_grace(idle_grace);
        self.end(|_| true);
        self.core.drain();
        join(std::mem::take(&mut self.closing)).await;
    }

    /// Ends the open listeners that match `matches`.
    fn end(&mut self, matches: impl Fn(&ListenerKey) -> bool) {
        for (key, open) in self.open.extract_if(.., |key, _| matches(key)) {
            open.listener.end();
            self.closing.extend(open.accepting);
            self.ended.insert(key, open.listener);
        }
    }
}

/// Waits for all tasks to end.
async fn join(tasks: Vec<JoinHandle<()>>) {
    for task in tasks {
        // The panic hook has already reported a task that panicked.
        let _ = task.await;
    }
}

#[cfg(test)]
mod tests;
