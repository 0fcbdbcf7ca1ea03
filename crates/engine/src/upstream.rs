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
//! - `drive`: the life of a connection; `outgoing`: one call on it
//! - `machine`: the protocol

mod connect;
mod drive;
mod machine;
mod outgoing;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::Waker;

use causeway_pipeline::upstream::{Calls, Carried, Upstream};
use causeway_pipeline::{CallFault, Transport, Versions};

use crate::tls::Connector;
use crate::worker::Core;

/// Calls that wait for a connection at most; beyond, they are refused.
const WAITING_MAX: usize = 1024;
/// Calls that wait for one connection while it comes about, where it may carry many.
const GATHERED_MAX: usize = 100;

/// An address, its connections, and the calls that wait for one.
pub(crate) struct Place {
    core: Rc<Core>,
    address: Box<str>,
    transport: Arc<Transport>,
    links: RefCell<Vec<Rc<Link>>>,
    waiting: RefCell<VecDeque<Waiting>>,
    /// The upstream chose HTTP/2 the last time that it was asked.
    speaks_http2: Cell<bool>,
    /// How handshakes are made, once there was one.
    connector: RefCell<Option<Rc<Connector>>>,
    this: Weak<Self>,
}

/// A call without a connection.
struct Waiting {
    call: Carried,
    /// It was sent before, on a connection that ended without looking at it.
    is_second: bool,
}

/// What a place and one of its connections share.
struct Link {
    state: Cell<LinkState>,
    /// Calls that are handed over.
    inbox: RefCell<VecDeque<Waiting>>,
    task: RefCell<Option<Waker>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LinkState {
    Connecting,
    /// It takes so many more calls.
    Open {
        room: usize,
        is_idle: bool,
    },
    /// It takes no more calls.
    Ending,
}

impl Place {
    pub(crate) fn new(core: Rc<Core>, address: &str, transport: &Arc<Transport>) -> Rc<Self> {
        Rc::new_cyclic(|this| Self {
            core,
            address: address.into(),
            speaks_http2: Cell::new(transport.versions == Versions::Http2),
            transport: Arc::clone(transport),
            links: RefCell::default(),
            waiting: RefCell::default(),
            connector: RefCell::default(),
            this: this.clone(),
        })
    }

    fn place(&self, waiting: Waiting) {
        // The last that became free is the warmest, and the others may rest until they are closed.
        let mut open = None;
        let mut connecting = 0;
        {
            let links = self.links.borrow();
            for link in links.iter().rev() {
                match link.state.get() {
                    LinkState::Open { room: 1.., .. } => {
                        open = Some(Rc::clone(link));
                        break;
                    }
                    LinkState::Connecting => connecting += 1,
                    LinkState::Open { .. } | LinkState::Ending => {}
                }
            }
        }
        if let Some(link) = open {
            return link.hand_over(waiting);
        }
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
        self.transport.connections_max.is_some_and(|max| self.links.borrow().len() >= max)
    }

    /// A connection takes no more calls for now: what gathered for it has others made, as many as it needs.
    fn relieve(&self) {
        loop {
            let connecting =
                self.links.borrow().iter().filter(|link| link.state.get() == LinkState::Connecting).count();
            let gathered = if self.speaks_http2.get() { connecting * GATHERED_MAX } else { 0 };
            if self.waiting.borrow().len() <= gathered || self.is_full() {
                return;
            }
            let next = self.waiting.borrow_mut().pop_front();
            let Some(next) = next else { return };
            self.connect(next);
        }
    }

    fn connect(&self, first: Waiting) {
        let link = Rc::new(Link {
            state: Cell::new(LinkState::Connecting),
            inbox: RefCell::new(VecDeque::from([first])),
            task: RefCell::default(),
        });
        self.links.borrow_mut().push(Rc::clone(&link));
        let Some(this) = self.this.upgrade() else { return };
        tokio::task::spawn_local(connect::run(this, link));
    }

    /// A link is gone: what waits may have its place.
    fn closed(&self, link: &Rc<Link>) {
        link.state.set(LinkState::Ending);
        self.links.borrow_mut().retain(|known| !Rc::ptr_eq(known, link));
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

    /// No connection came about: whoever waited for this one is told, and where others only waited with it, they too.
    fn unreachable(&self, link: &Rc<Link>, fault: &CallFault) {
        link.state.set(LinkState::Ending);
        self.links.borrow_mut().retain(|known| !Rc::ptr_eq(known, link));
        let handed = std::mem::take(&mut *link.inbox.borrow_mut());
        let is_last = self.links.borrow().is_empty();
        let waiting = if is_last { std::mem::take(&mut *self.waiting.borrow_mut()) } else { VecDeque::new() };
        for Waiting { call, .. } in handed.into_iter().chain(waiting) {
            call.fail(fault.clone());
        }
    }

    /// Links that carry nothing.
    fn idle(&self) -> usize {
        let is_idle = |link: &&Rc<Link>| matches!(link.state.get(), LinkState::Open { is_idle: true, .. });
        self.links.borrow().iter().filter(is_idle).count()
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
        for link in self.links.borrow().iter() {
            link.wake();
        }
    }
}

impl Link {
    fn hand_over(&self, waiting: Waiting) {
        if let LinkState::Open { room, .. } = self.state.get() {
            self.state.set(LinkState::Open { room: room.saturating_sub(1), is_idle: false });
        }
        self.inbox.borrow_mut().push_back(waiting);
        self.wake();
    }

    fn wake(&self) {
        let task = self.task.borrow();
        if let Some(task) = &*task {
            task.wake_by_ref();
        }
    }
}
