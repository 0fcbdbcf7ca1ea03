//! Connections to other servers, and the calls that they carry.
//!
//! ```text
//! Place::carry ─► an idle link │ a link with room │ a new link │ the queue
//!                                      │
//!   link's task:  connect ─► drive ────┴─► idle ─► … ─► closed
//! ```
//! A place is one address as one worker sees it. A connection of it is a task, as a peer's is; the place and the task share a
//! [`Link`]. Nothing here is shared between workers.
//!
//! - `connect`: from an address to a connection
//! - `links`: which connections there are, and which take calls
//! - `drive`: the life of a connection; `outgoing`: one call on it
//! - `machine`: the protocol

mod connect;
mod drive;
mod links;
mod machine;
mod outgoing;

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::VecDeque;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use causeway_pipeline::upstream::{Calls, Carried, Upstream};
use causeway_pipeline::{CallFault, Transport, Versions};
use progress::Span;

use crate::tls::Connector;
use crate::worker::Core;
use links::{Link, Links};

/// Calls that wait for a connection at most; beyond, they are refused.
const WAITING_MAX: usize = 1024;
/// Calls that wait for one connection while it comes about, where it may carry many.
const GATHERED_MAX: usize = 100;

/// An address, its connections, and the calls that wait for one.
pub(crate) struct Place {
    core: Rc<Core>,
    address: Box<str>,
    transport: Arc<Transport>,
    links: Links,
    waiting: RefCell<VecDeque<Waiting>>,
    /// The upstream chose HTTP/2 the last time that it was asked.
    speaks_http2: Cell<bool>,
    /// How handshakes are made, once there was one.
    connector: RefCell<Option<Rc<Connector>>>,
    /// What the profiler knows it by, once it was asked something while a profile ran.
    span: OnceCell<Span>,
    this: Weak<Self>,
}

/// A call without a connection.
struct Waiting {
    call: Carried,
    /// It was sent before, on a connection that ended without looking at it.
    is_second: bool,
}

impl Place {
    pub(crate) fn new(core: Rc<Core>, address: &str, transport: &Arc<Transport>) -> Rc<Self> {
        Rc::new_cyclic(|this| Self {
            core,
            address: address.into(),
            speaks_http2: Cell::new(transport.versions == Versions::Http2),
            transport: Arc::clone(transport),
            links: Links::default(),
            waiting: RefCell::default(),
            connector: RefCell::default(),
            span: OnceCell::new(),
            this: this.clone(),
        })
    }

    /// The time that passes until it answers.
    fn span(&self) -> Span {
        *self.span.get_or_init(|| Span::named(&format!("upstream {}", self.address)))
    }

    fn place(&self, waiting: Waiting) {
        let Some(waiting) = self.links.hand_over(waiting) else { return };
        let connecting = self.links.connecting();
        let mut queue = self.waiting.borrow_mut();
        let gathers = self.speaks_http2.get() && queue.len() < connecting * GATHERED_MAX;
        if !gathers && !self.is_full() {
            drop(queue);
            return self.connect(waiting);
        }
        if queue.len() == WAITING_MAX {
            queue.retain(|waiting| !waiting.call.is_given_up());
        }
        if queue.len() < WAITING_MAX {
            queue.push_back(waiting);
        } else {
            waiting.call.fail(CallFault::Busy);
        }
    }

    /// Whether there may be no more connections.
    fn is_full(&self) -> bool {
        self.transport.connections_max.is_some_and(|max| self.links.len() >= max)
    }

    /// A connection takes no more calls for now: what gathered for it has others made, as many as it needs.
    fn relieve(&self) {
        loop {
            let connecting = self.links.connecting();
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

    fn connect(&self, first: Waiting) {
        let link = self.links.begin(first);
        let Some(this) = self.this.upgrade() else { return };
        tokio::task::spawn_local(connect::run(this, link));
    }

    /// A link is gone: what waits may have its place.
    fn closed(&self, link: &Rc<Link>) {
        self.links.remove(link);
        // What it was handed and did not begin goes elsewhere.
        loop {
            let left = link.inbox.borrow_mut().pop_front();
            let Some(left) = left else { break };
            self.place(left);
        }
        let next = self.waiting.borrow_mut().pop_front();
        if let Some(next) = next {
            self.place(next);
        }
    }

    /// No connection came about: whoever waited for this one is told, and where no other is left to wait for, all are. Else
    /// the next may try: those that there are may be busy for ever.
    fn unreachable(&self, link: &Rc<Link>, fault: &CallFault) {
        self.links.remove(link);
        let handed = std::mem::take(&mut *link.inbox.borrow_mut());
        let is_last = self.links.len() == 0;
        let waiting = if is_last { std::mem::take(&mut *self.waiting.borrow_mut()) } else { VecDeque::new() };
        for Waiting { call, .. } in handed.into_iter().chain(waiting) {
            call.fail(fault.clone());
        }
        if !self.core.is_closed() {
            self.relieve();
        }
    }
}

impl Upstream for Place {
    fn carry(&self, call: Carried) {
        self.place(Waiting { call, is_second: false });
    }

    fn calls(&self) -> &Rc<Calls> {
        self.core.calls()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // Links hold no strong reference while they are idle; they notice that nobody is left.
        self.links.wake_all();
    }
}
