//! How few listings a worker makes at a time; whoever comes more waits here, not in the queue of the blocking pool, where looks
//! at single files would wait behind.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use futures_channel::oneshot::{Receiver, Sender, channel};

/// Listings that a worker makes at a time for one file server.
const TURNS: usize = 2;
/// Requests that wait for a turn; more are answered with 503.
const WAITING_MAX: usize = 512;

pub(super) struct Turns {
    free: Cell<usize>,
    waiting: RefCell<VecDeque<Sender<Turn>>>,
}

/// The right to make a listing; dropped, it goes to the next who waits.
pub(super) struct Turn(Rc<Turns>);

impl Turns {
    pub(super) fn new() -> Rc<Self> {
        Rc::new(Self { free: Cell::new(TURNS), waiting: RefCell::default() })
    }

    /// A turn, or what is to be waited for until there is one; `Err(None)` when too many wait.
    pub(super) fn take(self: &Rc<Self>) -> Result<Turn, Option<Receiver<Turn>>> {
        if self.free.get() > 0 {
            self.free.set(self.free.get() - 1);
            return Ok(Turn(Rc::clone(self)));
        }
        let mut waiting = self.waiting.borrow_mut();
        waiting.retain(|sender| !sender.is_canceled());
        if waiting.len() == WAITING_MAX {
            return Err(None);
        }
        let (sender, receiver) = channel();
        waiting.push_back(sender);
        Err(Some(receiver))
    }

    fn next(&self) -> Option<Sender<Turn>> {
        let mut waiting = self.waiting.borrow_mut();
        std::iter::from_fn(|| waiting.pop_front()).find(|sender| !sender.is_canceled())
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        match self.0.next() {
            // Its receiver is there: who waits and who drops are on one thread.
            Some(sender) => drop(sender.send(Turn(Rc::clone(&self.0)))),
            None => self.0.free.set(self.0.free.get() + 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn got(receiver: &mut Receiver<Turn>) -> Option<Turn> {
        receiver.try_recv().expect("its sender is there")
    }

    #[test]
    fn a_turn_goes_to_the_next_who_still_waits() {
        let turns = Turns::new();
        let held = [turns.take().ok(), turns.take().ok()];
        assert!(held.iter().all(Option::is_some));
        let mut waiting: Vec<_> =
            std::iter::repeat_with(|| turns.take().err().flatten()).take(4).map(|receiver| receiver.unwrap()).collect();
        // The first two are gone, one of them with its turn already sent.
        let gone = waiting.remove(0);
        drop(waiting.remove(0));
        let [first, second] = held;
        drop(first);
        drop(gone);
        let third = got(&mut waiting[0]).expect("both before it are gone");
        assert!(got(&mut waiting[1]).is_none());
        drop((second, third));
        let fourth = got(&mut waiting[1]).expect("it is the only one");
        assert_eq!(turns.free.get(), TURNS - 1);
        drop(fourth);
        assert_eq!(turns.free.get(), TURNS);
    }

    #[test]
    fn so_many_may_wait() {
        let turns = Turns::new();
        let _held = [turns.take(), turns.take()];
        let mut waiting: Vec<_> = (0..WAITING_MAX).map(|_| turns.take().err().flatten()).collect();
        assert!(waiting.iter().all(Option::is_some));
        assert!(matches!(turns.take(), Err(None)));
        // One that went away makes room.
        waiting.pop();
        assert!(matches!(turns.take(), Err(Some(_))));
    }
}
