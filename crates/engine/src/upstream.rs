//! Connections to upstreams, and the calls that they carry.
//!
//! ```text
//! UpstreamPool::start ─► an idle link │ a link with room │ the queue, mostly with a new link
//!                                             │                │
//!   the link's task:  connect ─► drive ───────┴────────────────┴─► idle ─► … ─► closed
//! ```
//! A pool is one address as one worker sees it. Each of its connections is a task ([`drive`](crate::drive)); the pool
//! and the task share a [`Link`]. The only state shared between workers is a limit of connections.
//!
//! - `connect`: from an address to a connection; `network_proxy`: through a proxy
//! - `single_flight`: lookups, and other work that attempts share
//! - `links`: the pool's connections, and which of them accept calls
//! - `queue`: the calls that wait, and for how long

mod connect;
#[cfg(test)]
pub(crate) mod fake_call;
mod links;
pub(crate) mod network_proxy;
mod queue;
mod single_flight;

use std::cell::{Cell, OnceCell, RefCell};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::{Duration, Instant};

use causeway_pipeline::upstream::{CallPool, ConnectionSlot, EngineCall, LimitMembership, Upstream};
use causeway_pipeline::{CallError, UpstreamTransport, Versions};
use progress::{Leased, Span};

use crate::clock;
use crate::tls::Connector;
use crate::worker::Core;
pub(crate) use connect::{Lookups, Peer};
use links::Links;
pub(crate) use links::{Link, LinkState};
use queue::CallQueue;
use single_flight::SingleFlight;

/// A connection is given to another worker only if that worker's oldest call has waited this much longer than the
/// oldest call here. Moving one costs a handshake.
const YIELD_AFTER: Duration = Duration::from_millis(50);
/// Calls that wait for one connection while it is being opened, if it can carry many.
const CALLS_PER_CONNECTING_MAX: usize = 100;

/// An address, its connections, and the calls that wait for one.
pub(crate) struct UpstreamPool {
    core: Rc<Core>,
    address: Rc<str>,
    transport: Arc<UpstreamTransport>,
    links: Links,
    /// The part in the limit of connections, if there is one.
    membership: Option<LimitMembership>,
    waiting: CallQueue,
    /// The upstream chose HTTP/2 in the last handshake.
    is_http2: Cell<bool>,
    /// The limit of streams that the upstream has set on the last HTTP/2 connection.
    streams_max: Cell<Option<usize>>,
    /// The TLS client for the upstream, from the first handshake on.
    connector: RefCell<Option<Rc<Connector>>>,
    /// The TLS client for the network proxy, likewise.
    proxy_connector: RefCell<Option<Rc<Connector>>>,
    /// The creation of the TLS clients.
    connectors: Rc<SingleFlight<TlsPeer, Result<Rc<Connector>, CallError>>>,
    /// The profiler's span, from the first call during a profile on.
    span: OnceCell<Leased<Span>>,
    this: Weak<Self>,
}

/// The other end of a TLS connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum TlsPeer {
    Upstream,
    NetworkProxy,
}

/// A call that is not on a connection yet.
pub(crate) struct WaitingCall {
    pub(crate) call: EngineCall,
    /// The request was sent before, on a connection that ended without processing it.
    pub(crate) is_retry: bool,
    /// When it was handed to the pool.
    pub(crate) queued_at: Instant,
}

impl WaitingCall {
    pub(crate) fn new(call: EngineCall, is_retry: bool) -> Self {
        Self { call, is_retry, queued_at: clock::now() }
    }
}

impl UpstreamPool {
    pub(crate) fn new(core: Rc<Core>, address: &str, transport: &Arc<UpstreamTransport>) -> Rc<Self> {
        // A Unix socket is reached directly, and must not get the proxy's credentials.
        let transport = if transport.network_proxy.is_some() && address.starts_with(connect::UNIX) {
            Arc::new(UpstreamTransport { network_proxy: None, ..UpstreamTransport::clone(transport) })
        } else {
            Arc::clone(transport)
        };
        let is_http2 = transport.versions == Versions::Http2;
        // Over HTTP/1.1 a head, or a trailer section, is parsed only when it is whole, so it must fit one block.
        if !is_http2 && transport.fastcgi.is_none() {
            core.memory.blocks.grow(transport.head_bytes_max as usize);
        }
        let membership = transport.connection_limits.as_ref().map(|limits| limits.join(address));
        // Over TLS the version is negotiated in the handshake.
        if let Some(membership) = membership.as_ref().filter(|_| is_http2) {
            membership.set_multiplexed(true);
        }
        Rc::new_cyclic(|this| Self {
            core,
            address: address.into(),
            is_http2: Cell::new(is_http2),
            transport,
            links: Links::default(),
            streams_max: Cell::default(),
            membership,
            waiting: CallQueue::default(),
            connector: RefCell::default(),
            proxy_connector: RefCell::default(),
            connectors: Rc::default(),
            span: OnceCell::new(),
            this: this.clone(),
        })
    }

    /// Returns the profiler's span for the upstream's response time.
    pub(crate) fn span(&self) -> Span {
        **self.span.get_or_init(|| Span::lease(&format!("upstream {}", self.address)))
    }

    pub(crate) fn core(&self) -> &Rc<Core> {
        &self.core
    }

    pub(crate) fn address(&self) -> &Rc<str> {
        &self.address
    }

    pub(crate) fn transport(&self) -> &Arc<UpstreamTransport> {
        &self.transport
    }

    pub(crate) fn links(&self) -> &Links {
        &self.links
    }

    pub(crate) fn streams_max(&self) -> Option<usize> {
        self.streams_max.get()
    }

    pub(crate) fn set_streams_max(&self, max: usize) {
        self.streams_max.set(Some(max));
    }

    /// Sets which version the upstream has chosen in the handshake of a connection.
    fn set_http2(&self, link: &Link, is_http2: bool) {
        self.is_http2.set(is_http2);
        if let Some(membership) = self.multiplexed_membership() {
            membership.set_multiplexed(is_http2);
            if is_http2 && self.links.len() == 1 {
                link.exempt();
            }
        }
    }

    /// Returns the part in the limit, unless the transport excludes HTTP/2, as that of requests to switch protocols
    /// does.
    fn multiplexed_membership(&self) -> Option<&LimitMembership> {
        self.membership.as_ref().filter(|_| self.transport.versions != Versions::Http1)
    }

    /// Returns whether a connection that has room is to take another call from the queue.
    pub(crate) fn has_waiting(&self, link: &Link, is_multiplexed: bool) -> bool {
        // A connection with further calls would not become idle, so its place would not be free for another worker.
        !self.waiting.is_empty() && (is_multiplexed || !self.must_yield(link))
    }

    /// Takes the call that has waited longest.
    pub(crate) fn next_waiting(&self) -> Option<WaitingCall> {
        self.waiting.pop()
    }

    /// Returns whether an idle connection must close, because a call on another worker has waited longer for one than
    /// all calls here.
    pub(crate) fn must_yield(&self, link: &Link) -> bool {
        if !link.is_counted() {
            return false;
        }
        let Some(claimed) = self.membership.as_ref().and_then(LimitMembership::claimed_since) else { return false };
        self.waiting.oldest_queued_at().is_none_or(|own| claimed + YIELD_AFTER < own)
    }

    /// Hands the call to a connection, or queues it; opens a connection if the queue lacks one.
    pub(crate) fn dispatch(&self, waiting: WaitingCall) {
        // Over HTTP/1.1 a retry opens a new connection: idle ones of the same age may be dead too, for example after
        // the host restarted.
        if waiting.is_retry
            && !self.is_http2.get()
            && let Some(slot) = self.take_connection_slot()
        {
            return self.connect(Some(waiting), slot);
        }
        // An open connection first: a new one costs a round trip, with TLS two or more.
        let Some(waiting) = self.links.hand_over(waiting) else { return };
        if let Some(waiting) = self.wait_for_new(waiting) {
            self.enqueue(waiting);
        }
    }

    /// As [`dispatch`](Self::dispatch), for a call whose HTTP/2 connection was lost. The other connections may be lost
    /// too, which shows only when they are used, so a new one takes the call if the limit permits it.
    pub(crate) fn place_after_loss(&self, waiting: WaitingCall) {
        if let Some(waiting) = self.wait_for_new(waiting) {
            self.dispatch(waiting);
        }
    }

    /// Queues the call, and opens a connection unless those that are being opened will take the call. Returns it if the
    /// limit is reached.
    fn wait_for_new(&self, waiting: WaitingCall) -> Option<WaitingCall> {
        if waiting.is_retry && self.is_http2.get() {
            // Bind the call to a new connection. From the queue, the connection that did not process it, or another
            // lost one, could take it.
            let calls_max =
                self.streams_max.get().map_or(CALLS_PER_CONNECTING_MAX, |max| max.min(CALLS_PER_CONNECTING_MAX));
            let waiting = self.links.hand_to_new(waiting, calls_max)?;
            let Some(slot) = self.take_connection_slot() else { return Some(waiting) };
            self.connect(Some(waiting), slot);
            return None;
        }
        if self.waiting.len() >= self.calls_covered() {
            let Some(slot) = self.take_connection_slot() else { return Some(waiting) };
            self.connect(None, slot);
        }
        self.enqueue(waiting);
        None
    }

    /// Queues the call, for the first connection that has room: a new one, or one whose call ends before that is open.
    fn enqueue(&self, waiting: WaitingCall) {
        if let Err(refused) = self.waiting.push(waiting, self.links.connecting()) {
            refused.call.fail(CallError::Busy);
        }
        self.start_queue_task();
    }

    /// Hands the call that has waited longest to a new connection that has none of its own, so that it carries one
    /// before its place goes to another worker.
    fn hand_first(&self, link: &Link) {
        let has_own_call = !link.inbox.borrow().is_empty();
        if !has_own_call {
            let first = self.waiting.pop_live();
            link.inbox.borrow_mut().extend(first);
        }
    }

    /// Returns the number of waiting calls that connections in progress will take. An HTTP/2 connection takes many
    /// calls, so a burst does not open one for each.
    fn calls_covered(&self) -> usize {
        self.links.connecting() * if self.is_http2.get() { CALLS_PER_CONNECTING_MAX } else { 1 }
    }

    /// Takes the right to open a connection; `None` if the limit is reached.
    fn take_connection_slot(&self) -> Option<ConnectionSlot> {
        let Some(membership) = &self.membership else { return Some(ConnectionSlot::unlimited()) };
        // No worker can use another's HTTP/2 connection, and a busy one never becomes idle. So the first one of each
        // worker does not count.
        let is_first =
            self.multiplexed_membership().is_some_and(LimitMembership::is_multiplexed) && !self.links.has_usable();
        if is_first { Some(ConnectionSlot::unlimited()) } else { membership.take() }
    }

    /// Opens further connections for queued calls, after a connection turned out to accept no more of them.
    pub(crate) fn open_more(&self) {
        let had_waiting = !self.waiting.is_empty();
        // No connection for a call that was given up. Only at the front, because this is called in every turn of a busy
        // connection.
        self.waiting.skip_given_up();
        while self.waiting.len() > self.calls_covered()
            && let Some(slot) = self.take_connection_slot()
        {
            self.connect(None, slot);
        }
        if had_waiting {
            // They may have waited for a connection that did not come about, without a claim of their own.
            self.waiting.wake();
        }
    }

    /// Opens a connection for the calls that wait, or for `own`.
    fn connect(&self, own: Option<WaitingCall>, slot: ConnectionSlot) {
        let takes_queued_calls = own.is_none() || self.is_http2.get();
        let link = self.links.add_connecting(own, takes_queued_calls, slot);
        // Other workers may claim the connection.
        self.start_queue_task();
        // The task holds the pool while it connects, so the pool outlives the attempt.
        let Some(this) = self.this.upgrade() else { return };
        tokio::task::spawn_local(connect::run(this, link));
    }

    /// Starts the task of the queue, if there is a limit of connections.
    fn start_queue_task(&self) {
        if self.membership.is_some() && self.waiting.claim_task_start() {
            tokio::task::spawn_local(queue::run_queue(Rc::clone(&self.core), Weak::clone(&self.this)));
        }
    }

    /// A connection has closed: its place is free for waiting calls.
    pub(crate) fn closed(&self, link: &Rc<Link>) {
        self.links.remove(link);
        // Calls that it was handed and did not begin go to other connections.
        loop {
            // The borrow ends before `dispatch`, which may push to an inbox.
            let left = link.inbox.borrow_mut().pop_front();
            let Some(left) = left else { break };
            self.dispatch(left);
        }
        // With a limit, another worker may have got the slot; then the queue's task claims the next one. If a further
        // worker waits, the task closes the next idle connection.
        self.open_more();
        self.waiting.wake();
    }

    /// A connection could not be opened: fails the calls that waited for this attempt, and all waiting calls if there
    /// is no other connection. Otherwise opens another one for the rest, because the present ones may stay busy.
    ///
    /// Over HTTP/1.1 one waiting call fails: the attempt's own, or else the oldest. Over HTTP/2 up to
    /// [`CALLS_PER_CONNECTING_MAX`] fail, except those that other attempts cover. A call queued after this attempt
    /// began never fails with it.
    fn connect_failed(&self, link: &Rc<Link>, error: &CallError) {
        self.links.remove(link);
        let mut failed = std::mem::take(&mut *link.inbox.borrow_mut());
        let (covered, failed_max) =
            if self.is_http2.get() { (self.calls_covered(), CALLS_PER_CONNECTING_MAX) } else { (0, 1) };
        while failed.len() < failed_max
            && self.waiting.len() > covered
            && let Some(first) = self.waiting.pop_since(link.begun())
        {
            failed.push_back(first);
        }
        // While another connection works, the address is reachable after all, and the waiting calls keep their chance.
        let is_last = self.links.len() == 0;
        for WaitingCall { call, .. } in failed {
            call.fail(error.clone());
        }
        while is_last && let Some(WaitingCall { call, .. }) = self.waiting.pop() {
            call.fail(error.clone());
        }
        if !self.core.lifecycle.is_closed() {
            self.open_more();
        }
    }
}

impl Upstream for UpstreamPool {
    fn start(&self, call: EngineCall) {
        self.dispatch(WaitingCall::new(call, false));
    }

    fn calls(&self) -> &Rc<CallPool> {
        self.core.memory.calls()
    }
}

impl Drop for UpstreamPool {
    fn drop(&mut self) {
        // Idle connections and the queue's task hold no strong reference to the pool; each ends when it sees that the
        // pool is gone.
        self.links.wake_all();
        self.waiting.wake();
    }
}
