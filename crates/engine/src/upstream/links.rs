//! A place's connections, and which of them take calls. Nothing here looks at all of them while calls come and go.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::task::Waker;

use super::Waiting;

/// What a place and one of its connections share.
pub(super) struct Link {
    state: Cell<LinkState>,
    /// It stands among those that take calls, though it may not by now.
    is_listed: Cell<bool>,
    /// Calls that are handed over.
    pub(super) inbox: RefCell<VecDeque<Waiting>>,
    pub(super) task: RefCell<Option<Waker>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LinkState {
    Connecting,
    /// It takes so many more calls.
    Open {
        room: usize,
        is_idle: bool,
    },
    /// It takes no more calls.
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
    pub(super) fn wake(&self) {
        let task = self.task.borrow();
        if let Some(task) = &*task {
            task.wake_by_ref();
        }
    }
}

/// See the module.
#[derive(Default)]
pub(super) struct Links {
    all: RefCell<Vec<Rc<Link>>>,
    /// Those that take calls, or did when somebody last looked. The last that became free is the warmest, and the others may rest until
    /// they are closed.
    ready: RefCell<Vec<Rc<Link>>>,
    idle: Cell<usize>,
    connecting: Cell<usize>,
}

impl Links {
    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.all.borrow().len()
    }

    /// Those that carry nothing.
    pub(super) fn idle(&self) -> usize {
        self.idle.get()
    }

    /// Those that are still to come about.
    pub(super) fn connecting(&self) -> usize {
        self.connecting.get()
    }

    /// A link that is to come about, for this call first.
    pub(super) fn begin(&self, first: Waiting) -> Rc<Link> {
        let link = Rc::new(Link {
            state: Cell::new(LinkState::Connecting),
            is_listed: Cell::new(false),
            inbox: RefCell::new(VecDeque::from([first])),
            task: RefCell::default(),
        });
        self.connecting.set(self.connecting.get() + 1);
        self.all.borrow_mut().push(Rc::clone(&link));
        link
    }

    /// What a link takes from now on.
    pub(super) fn set(&self, link: &Rc<Link>, state: LinkState) {
        let before = link.state.replace(state);
        if before == state {
            return;
        }
        let count = |sum: &Cell<usize>, was: bool, is: bool| sum.set(sum.get() + usize::from(is) - usize::from(was));
        count(&self.idle, before.is_idle(), state.is_idle());
        count(&self.connecting, before == LinkState::Connecting, state == LinkState::Connecting);
        if state.has_room() && !link.is_listed.replace(true) {
            self.ready.borrow_mut().push(Rc::clone(link));
        }
    }

    /// Gives a call to a link that has room; answers with the call where none has.
    pub(super) fn hand_over(&self, waiting: Waiting) -> Option<Waiting> {
        let link = loop {
            let mut ready = self.ready.borrow_mut();
            let Some(link) = ready.last() else { return Some(waiting) };
            if link.state.get().has_room() {
                break Rc::clone(link);
            }
            link.is_listed.set(false);
            ready.pop();
        };
        if let LinkState::Open { room, .. } = link.state.get() {
            self.set(&link, LinkState::Open { room: room - 1, is_idle: false });
        }
        link.inbox.borrow_mut().push_back(waiting);
        link.wake();
        None
    }

    /// A link is gone.
    pub(super) fn remove(&self, link: &Rc<Link>) {
        self.set(link, LinkState::Ending);
        let is_other = |known: &Rc<Link>| !Rc::ptr_eq(known, link);
        self.all.borrow_mut().retain(is_other);
        self.ready.borrow_mut().retain(is_other);
    }

    /// Whoever belongs to them looks at itself.
    pub(super) fn wake_all(&self) {
        for link in self.all.borrow().iter() {
            link.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use causeway_pipeline::upstream::{Calls, Carried, Upstream};
    use causeway_pipeline::{Body, Call};

    use super::*;

    struct Queue(Rc<Calls>, RefCell<Vec<Carried>>);

    impl Upstream for Queue {
        fn carry(&self, call: Carried) {
            self.1.borrow_mut().push(call);
        }

        fn calls(&self) -> &Rc<Calls> {
            &self.0
        }
    }

    fn waiting() -> (Call, Waiting) {
        let queue = Queue(Calls::new(), RefCell::default());
        let call = queue.calls().take();
        call.send(Body::Empty, &queue);
        let carried = queue.1.borrow_mut().pop().unwrap();
        (call, Waiting { call: carried, is_second: false })
    }

    const IDLE: LinkState = LinkState::Open { room: 1, is_idle: true };

    #[test]
    fn the_last_that_became_free_is_the_next() {
        let links = Links::default();
        let calls: Vec<_> = (0..4).map(|_| waiting()).collect();
        let (_held, mut calls): (Vec<_>, Vec<_>) = calls.into_iter().unzip();
        let mut next = || calls.pop().unwrap();
        let (one, other) = (links.begin(next()), links.begin(next()));
        assert_eq!((links.len(), links.connecting(), links.idle()), (2, 2, 0));
        links.set(&one, IDLE);
        links.set(&other, IDLE);
        assert_eq!((links.connecting(), links.idle()), (0, 2));
        assert!(links.hand_over(next()).is_none());
        assert_eq!((one.inbox.borrow().len(), other.inbox.borrow().len(), links.idle()), (1, 2, 1));
        links.remove(&one);
        assert_eq!((links.len(), links.idle()), (1, 0));
        assert!(links.hand_over(next()).is_some(), "the other has no room");
    }

    #[test]
    fn one_with_room_for_many_stays() {
        let links = Links::default();
        let (_held, mut calls): (Vec<_>, Vec<_>) = (0..5).map(|_| waiting()).unzip();
        let link = links.begin(calls.pop().unwrap());
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
