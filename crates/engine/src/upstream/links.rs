//! A pool's connections, and which of them accept calls. The choice of a connection for a call does not visit all of
//! them.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::task::Waker;
use std::time::Instant;

use causeway_pipeline::upstream::ConnectionSlot;

use super::WaitingCall;
use crate::clock;

/// State shared by a pool and one of its connections.
pub(crate) struct Link {
    /// `None` when the connection has closed, or counts for no limit.
    slot: Cell<Option<ConnectionSlot>>,
    /// The connection counts for a limit of connections.
    is_counted: Cell<bool>,
    state: Cell<LinkState>,
    /// Takes calls of the queue; `false` if the connection is for one call of its own.
    takes_queued_calls: bool,
    /// The time at which the attempt to open the connection began.
    begun: Instant,
    /// The link is in `Links::ready`; the connection may have stopped accepting calls since.
    is_listed: Cell<bool>,
    /// Calls handed over that the connection has not begun.
    pub(crate) inbox: RefCell<VecDeque<WaitingCall>>,
    /// The connection's task.
    pub(crate) task: RefCell<Option<Waker>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LinkState {
    Connecting,
    Open {
        /// Further calls that the connection accepts.
        room: usize,
        /// The connection carries no call.
        is_idle: bool,
    },
    /// The connection accepts no more calls.
    Ending,
}

impl LinkState {
    fn has_room(self) -> bool {
        matches!(self, Self::Open { room: 1.., .. })
    }

    fn is_idle(self) -> bool {
        matches!(self, Self::Open { is_idle: true, .. })
    }
}

impl Link {
    /// Returns whether its close frees a slot of the limit.
    pub(super) fn is_counted(&self) -> bool {
        self.is_counted.get()
    }

    /// Gives the slot back before the close: the connection does not count any more.
    pub(super) fn exempt(&self) {
        drop(self.slot.take());
        self.is_counted.set(false);
    }

    /// Returns the time at which the attempt to open the connection began.
    pub(super) fn begun(&self) -> Instant {
        self.begun
    }

    pub(crate) fn is_ending(&self) -> bool {
        self.state.get() == LinkState::Ending
    }

    pub(super) fn wake(&self) {
        // Without a task the connection is still being opened, and looks at its inbox when it begins.
        let task = self.task.borrow();
        if let Some(task) = &*task {
            task.wake_by_ref();
        }
    }
}

/// The connections of a pool, by their states.
#[derive(Default)]
pub(crate) struct Links {
    all: RefCell<Vec<Rc<Link>>>,
    /// The connections that accept calls, or did when last checked. A stack: the connection that became free last is
    /// used first, so that surplus ones stay idle until they are closed.
    ready: RefCell<Vec<Rc<Link>>>,
    idle: Cell<usize>,
    connecting: Cell<usize>,
}

impl Links {
    /// Returns the number of connections.
    pub(super) fn len(&self) -> usize {
        self.all.borrow().len()
    }

    /// Returns the number of idle connections.
    pub(crate) fn idle(&self) -> usize {
        self.idle.get()
    }

    /// Returns the number of connections that are being opened for the calls that wait.
    pub(super) fn connecting(&self) -> usize {
        self.connecting.get()
    }

    /// Adds a connection that is being opened: for `own`, and, if it `takes_queued_calls`, for calls that wait.
    pub(super) fn add_connecting(
        &self,
        own: Option<WaitingCall>,
        takes_queued_calls: bool,
        slot: ConnectionSlot,
    ) -> Rc<Link> {
        let link = Rc::new(Link {
            is_counted: Cell::new(slot.is_counted()),
            slot: Cell::new(Some(slot)),
            state: Cell::new(LinkState::Connecting),
            takes_queued_calls,
            begun: clock::now(),
            is_listed: Cell::new(false),
            inbox: RefCell::new(own.into_iter().collect()),
            task: RefCell::default(),
        });
        // Counted by hand here and in `set`, so that neither number needs a walk over all connections.
        self.connecting.set(self.connecting.get() + usize::from(takes_queued_calls));
        self.all.borrow_mut().push(Rc::clone(&link));
        link
    }

    /// Sets the state of a connection.
    pub(crate) fn set(&self, link: &Rc<Link>, state: LinkState) {
        let before = link.state.replace(state);
        // Most turns change nothing.
        if before == state {
            return;
        }
        // Add before subtracting: a sum is unsigned, and it includes this link if it `was`.
        let count = |sum: &Cell<usize>, was: bool, is: bool| sum.set(sum.get() + usize::from(is) - usize::from(was));
        count(&self.idle, before.is_idle(), state.is_idle());
        if link.takes_queued_calls {
            count(&self.connecting, before == LinkState::Connecting, state == LinkState::Connecting);
        }
        // The flag keeps a link from being listed twice; one that has lost its room stays listed until `hand_over`
        // meets it.
        if state.has_room() && !link.is_listed.replace(true) {
            self.ready.borrow_mut().push(Rc::clone(link));
        }
    }

    /// Gives a call to a connection that has room; returns the call if there is none.
    pub(super) fn hand_over(&self, waiting: WaitingCall) -> Option<WaitingCall> {
        let link = loop {
            let mut ready = self.ready.borrow_mut();
            let Some(link) = ready.last() else { return Some(waiting) };
            if link.state.get().has_room() {
                break Rc::clone(link);
            }
            // Lazily removed: taking it out of the middle when its room ended would cost a search for each call.
            link.is_listed.set(false);
            ready.pop();
        };
        if let LinkState::Open { room, .. } = link.state.get() {
            // At once, not when the connection's task runs: further calls of this turn must see the room that is left.
            self.set(&link, LinkState::Open { room: room - 1, is_idle: false });
        }
        link.inbox.borrow_mut().push_back(waiting);
        link.wake();
        None
    }

    /// Gives a call to the newest connection that is being opened for the calls that wait, unless it was already given
    /// `calls_max`. Returns the call if there is none.
    pub(super) fn hand_to_new(&self, waiting: WaitingCall, calls_max: usize) -> Option<WaitingCall> {
        let all = self.all.borrow();
        let is_free = |link: &&Rc<Link>| {
            link.takes_queued_calls
                && link.state.get() == LinkState::Connecting
                && link.inbox.borrow().len() < calls_max
        };
        let Some(link) = all.iter().rfind(is_free) else { return Some(waiting) };
        link.inbox.borrow_mut().push_back(waiting);
        None
    }

    /// Returns whether there is a connection that accepts calls, or will when it is open or has room.
    pub(super) fn has_usable(&self) -> bool {
        self.all.borrow().iter().any(|link| link.state.get() != LinkState::Ending)
    }

    /// Wakes the task of an idle connection, if there is one, so that it sees that another worker claims its slot.
    pub(super) fn wake_idle(&self) {
        if let Some(link) = self.ready.borrow().iter().find(|link| link.is_counted() && link.state.get().is_idle()) {
            link.wake();
        }
    }

    /// Removes a closed connection, and gives its slot back.
    pub(super) fn remove(&self, link: &Rc<Link>) {
        self.set(link, LinkState::Ending);
        drop(link.slot.take());
        // A walk over all links, once in a connection's life.
        let is_other = |known: &Rc<Link>| !Rc::ptr_eq(known, link);
        self.all.borrow_mut().retain(is_other);
        self.ready.borrow_mut().retain(is_other);
    }

    /// Wakes the tasks of all connections.
    pub(super) fn wake_all(&self) {
        for link in self.all.borrow().iter() {
            link.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use causeway_pipeline::Call;

    use super::super::fake_call;
    use super::*;

    fn waiting() -> (Call, WaitingCall) {
        let (call, carried) = fake_call::sent();
        (call, WaitingCall::new(carried, false))
    }

    const IDLE: LinkState = LinkState::Open { room: 1, is_idle: true };

    #[test]
    fn the_most_recently_idle_connection_is_used_next() {
        let links = Links::default();
        let calls: Vec<_> = (0..4).map(|_| waiting()).collect();
        let (_held, mut calls): (Vec<_>, Vec<_>) = calls.into_iter().unzip();
        let mut next = || calls.pop().unwrap();
        let (one, other) = (
            links.add_connecting(None, true, ConnectionSlot::unlimited()),
            links.add_connecting(Some(next()), false, ConnectionSlot::unlimited()),
        );
        assert_eq!((links.len(), links.connecting(), links.idle()), (2, 1, 0));
        links.set(&one, IDLE);
        links.set(&other, IDLE);
        assert_eq!((links.connecting(), links.idle()), (0, 2));
        assert!(links.hand_over(next()).is_none());
        assert_eq!((one.inbox.borrow().len(), other.inbox.borrow().len(), links.idle()), (0, 2, 1));
        links.remove(&one);
        assert_eq!((links.len(), links.idle()), (1, 0));
        assert!(links.hand_over(next()).is_some(), "the other has no room");
    }

    // Only one that calls of the queue count on: the others are for the calls with which they were begun.
    #[test]
    fn the_newest_connection_in_progress_takes_a_call() {
        let links = Links::default();
        let (_held, mut calls): (Vec<_>, Vec<_>) = (0..5).map(|_| waiting()).unzip();
        let mut next = || calls.pop().unwrap();
        assert!(links.hand_to_new(next(), 1).is_some(), "there is none");
        let open = links.add_connecting(None, true, ConnectionSlot::unlimited());
        links.set(&open, IDLE);
        let gathering = [(); 2].map(|()| links.add_connecting(None, true, ConnectionSlot::unlimited()));
        links.add_connecting(None, false, ConnectionSlot::unlimited());
        for want in [[0, 1], [1, 1]] {
            assert!(links.hand_to_new(next(), 1).is_none());
            assert_eq!(gathering.each_ref().map(|link| link.inbox.borrow().len()), want);
        }
        assert!(links.hand_to_new(next(), 1).is_some(), "both are full");
    }

    #[test]
    fn a_connection_with_free_streams_stays_available() {
        let links = Links::default();
        let (_held, mut calls): (Vec<_>, Vec<_>) = (0..4).map(|_| waiting()).unzip();
        let link = links.add_connecting(None, true, ConnectionSlot::unlimited());
        links.set(&link, LinkState::Open { room: 3, is_idle: false });
        for room in [2, 1, 0] {
            assert!(links.hand_over(calls.pop().unwrap()).is_none());
            assert_eq!(link.state.get(), LinkState::Open { room, is_idle: false });
        }
        assert!(links.hand_over(calls.pop().unwrap()).is_some());
        links.set(&link, IDLE);
        assert_eq!(links.idle(), 1);
    }
}
