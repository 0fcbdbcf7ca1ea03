//! Connections to upstreams, and the calls that they carry.
//!
//! ```text
//! UpstreamPool::carry ─► an idle link │ a link with room │ a new link │ the queue
//!                                             │
//!   the link's task:  connect ─► drive ───────┴─► idle ─► … ─► closed
//! ```
//! A pool is one address as one worker sees it. Each of its connections is a task ([`drive`](crate::drive)); the pool and the task share a
//! [`Link`]. No state is shared between workers.
//!
//! - `connect`: from an address to a connection; `network_proxy`: through a proxy
//! - `links`: the pool's connections, and which of them accept calls

mod connect;
mod links;
pub(crate) mod network_proxy;

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::VecDeque;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use causeway_pipeline::upstream::{Calls, Carried, Upstream};
use causeway_pipeline::{CallFault, Transport, Versions};
use progress::Span;

use crate::tls::Connector;
use crate::worker::Core;
use links::Links;
pub(crate) use links::{Link, LinkState};

/// Calls that may wait for a connection; further ones fail.
const WAITING_MAX: usize = 1024;
/// Calls that wait for one connection while it is being opened, if it can carry many.
const GATHERED_MAX: usize = 100;

/// An address, its connections, and the calls that wait for one.
pub(crate) struct UpstreamPool {
    core: Rc<Core>,
    address: Rc<str>,
    transport: Arc<Transport>,
    links: Links,
    waiting: RefCell<VecDeque<WaitingCall>>,
    /// The upstream chose HTTP/2 in the last handshake.
    speaks_http2: Cell<bool>,
    /// The limit of streams that the upstream has set on the last HTTP/2 connection.
    streams_max: Cell<Option<usize>>,
    /// The TLS client, from the first handshake on.
    connector: RefCell<Option<Rc<Connector>>>,
    /// The profiler's span, from the first call during a profile on.
    span: OnceCell<Span>,
    this: Weak<Self>,
}

/// A call that is not on a connection yet.
pub(crate) struct WaitingCall {
    pub(crate) call: Carried,
    /// It was sent before, on a connection that ended without processing it.
    pub(crate) is_retry: bool,
}

impl UpstreamPool {
    pub(crate) fn new(core: Rc<Core>, address: &str, transport: &Arc<Transport>) -> Rc<Self> {
        // A Unix socket is reached directly, and must not get the proxy's credentials.
        let transport = if transport.network_proxy.is_some() && address.starts_with(connect::UNIX) {
            Arc::new(Transport { network_proxy: None, ..Transport::clone(transport) })
        } else {
            Arc::clone(transport)
        };
        Rc::new_cyclic(|this| Self {
            core,
            address: address.into(),
            speaks_http2: Cell::new(transport.versions == Versions::Http2),
            transport,
            links: Links::default(),
            streams_max: Cell::default(),
            waiting: RefCell::default(),
            connector: RefCell::default(),
            span: OnceCell::new(),
            this: this.clone(),
        })
    }

    /// Returns the profiler's span for the upstream's response time.
    pub(crate) fn span(&self) -> Span {
        *self.span.get_or_init(|| Span::named(&format!("upstream {}", self.address)))
    }

    pub(crate) fn core(&self) -> &Rc<Core> {
        &self.core
    }

    pub(crate) fn address(&self) -> &Rc<str> {
        &self.address
    }

    pub(crate) fn transport(&self) -> &Arc<Transport> {
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

    pub(crate) fn has_waiting(&self) -> bool {
        !self.waiting.borrow().is_empty()
    }

    /// Takes the call that has waited longest.
    pub(crate) fn next_waiting(&self) -> Option<WaitingCall> {
        self.waiting.borrow_mut().pop_front()
    }

    /// Hands the call to a connection, opens one for it, or queues it.
    pub(crate) fn place(&self, waiting: WaitingCall) {
        // The connections that became idle with the one that ended may have ended too, for example when the upstream's host was restarted.
        if waiting.is_retry && !self.speaks_http2.get() && !self.is_full() {
            return self.connect(waiting);
        }
        // An open connection first: a new one costs a round trip, with TLS two or more.
        let Some(waiting) = self.links.hand_over(waiting) else { return };
        let connecting = self.links.connecting();
        let mut queue = self.waiting.borrow_mut();
        // An HTTP/2 connection that is being opened will take many calls, so a burst does not open one for each.
        let gathers = self.speaks_http2.get() && queue.len() < connecting * GATHERED_MAX;
        if !gathers && !self.is_full() {
            drop(queue);
            return self.connect(waiting);
        }
        // Calls whose client has gone make room before a live one is refused. Rare, since the queue must be full.
        if queue.len() == WAITING_MAX {
            queue.retain(|waiting| !waiting.call.is_given_up());
        }
        if queue.len() < WAITING_MAX {
            queue.push_back(waiting);
        } else {
            waiting.call.fail(CallFault::Busy);
        }
    }

    /// Returns whether the limit of connections is reached.
    fn is_full(&self) -> bool {
        self.transport.connections_max.is_some_and(|max| self.links.len() >= max)
    }

    /// Opens further connections for queued calls, after a connection turned out to accept no more of them.
    pub(crate) fn open_more(&self) {
        loop {
            let connecting = self.links.connecting();
            // As in `place`: connections that are being opened will take this many of the waiting calls.
            let gathered = if self.speaks_http2.get() { connecting * GATHERED_MAX } else { 0 };
            if self.waiting.borrow().len() <= gathered || self.is_full() {
                return;
            }
            let next = self.waiting.borrow_mut().pop_front();
            let Some(next) = next else { return };
            if !next.call.is_given_up() {
                self.connect(next);
            }
        }
    }

    fn connect(&self, first: WaitingCall) {
        let link = self.links.begin(first);
        // The task holds the pool while it connects, so the pool outlives the attempt.
        let Some(this) = self.this.upgrade() else { return };
        tokio::task::spawn_local(connect::run(this, link));
    }

    /// A connection has closed: its place is free for waiting calls.
    pub(crate) fn closed(&self, link: &Rc<Link>) {
        self.links.remove(link);
        // Calls that it was handed and did not begin go to other connections.
        loop {
            // The borrow ends before `place`, which may push to an inbox.
            let left = link.inbox.borrow_mut().pop_front();
            let Some(left) = left else { break };
            self.place(left);
        }
        let next = self.waiting.borrow_mut().pop_front();
        if let Some(next) = next {
            self.place(next);
        }
    }

    /// A connection could not be opened: fails the calls handed to it, and all waiting calls if there is no other connection. Otherwise opens
    /// another one for them, because the present ones may stay busy.
    fn unreachable(&self, link: &Rc<Link>, fault: &CallFault) {
        self.links.remove(link);
        let handed = std::mem::take(&mut *link.inbox.borrow_mut());
        // While another connection works, the address is reachable after all, and the waiting calls keep their chance.
        let is_last = self.links.len() == 0;
        let waiting = if is_last { std::mem::take(&mut *self.waiting.borrow_mut()) } else { VecDeque::new() };
        for WaitingCall { call, .. } in handed.into_iter().chain(waiting) {
            call.fail(fault.clone());
        }
        if !self.core.lifecycle.is_closed() {
            self.open_more();
        }
    }
}

impl Upstream for UpstreamPool {
    fn carry(&self, call: Carried) {
        self.place(WaitingCall { call, is_retry: false });
    }

    fn calls(&self) -> &Rc<Calls> {
        self.core.memory.calls()
    }
}

impl Drop for UpstreamPool {
    fn drop(&mut self) {
        // Idle connections hold no strong reference to the pool; each closes when it sees that the pool is gone.
        self.links.wake_all();
    }
}
