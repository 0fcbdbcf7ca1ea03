//! The waker of an exchange, and the pooled storage that it belongs to.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Wake, Waker};

use atomic_waker::AtomicWaker;
use causeway_pipeline::{Generation, Spare, Worker};

/// The storage of an exchange and its waker: allocated once and used by one exchange after another.
pub(crate) struct ExchangeSlot {
    pub(crate) spare: Spare,
    pub(crate) wake: ExchangeWake,
}

impl ExchangeSlot {
    pub(crate) fn new(worker: Rc<dyn Worker>, vacant: Rc<Generation>) -> Self {
        Self { spare: Spare::new(worker, vacant), wake: ExchangeWake::default() }
    }
}

/// A waker for an exchange's waits and bodies. A wakeup marks the exchange as ready and wakes the connection's task.
pub(crate) struct ExchangeWake {
    flag: Arc<ReadyFlag>,
    waker: Waker,
}

#[derive(Default)]
struct ReadyFlag {
    ready: AtomicBool,
    task: AtomicWaker,
}

impl Wake for ReadyFlag {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.ready.store(true, Ordering::Release);
        self.task.wake();
    }
}

impl Default for ExchangeWake {
    fn default() -> Self {
        let flag = Arc::new(ReadyFlag::default());
        Self { waker: Waker::from(Arc::clone(&flag)), flag }
    }
}

impl ExchangeWake {
    /// Marks the exchange as ready without waking the task; the connection's next turn sees it.
    pub(crate) fn set_ready(&self) {
        self.flag.ready.store(true, Ordering::Release);
    }

    /// Registers `task` for the next wakeup. A wakeup has two steps: it sets the flag, then wakes the registered task,
    /// which uses the registration up. A poll that runs between the steps serves the flag, but the second step then
    /// uses its registration up. So every poll registers again, before [`take_ready`](Self::take_ready).
    pub(crate) fn register(&self, task: &Waker) {
        self.flag.task.register(task);
    }

    /// Performs the second step of a wakeup alone.
    #[cfg(test)]
    pub(crate) fn wake_task(&self) {
        self.flag.task.wake();
    }

    pub(crate) fn waker(&self) -> &Waker {
        &self.waker
    }

    /// Returns whether there was a wakeup since the last call. A late wakeup by an earlier exchange of the slot costs
    /// one poll.
    pub(crate) fn take_ready(&self) -> bool {
        self.flag.ready.load(Ordering::Relaxed) && self.flag.ready.swap(false, Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_wake_marks_the_slot_and_wakes_the_registered_task() {
        let wake = ExchangeWake::default();
        wake.waker.wake_by_ref();
        assert!(wake.take_ready() && !wake.take_ready(), "marked once, though no task is registered");
        let (one, two) = (Arc::new(Count::default()), Arc::new(Count::default()));
        let count = |task: &Arc<Count>| task.0.load(Ordering::Relaxed);
        wake.register(&Waker::from(Arc::clone(&one)));
        wake.waker.wake_by_ref();
        assert!(wake.take_ready());
        assert_eq!(count(&one), 1);
        wake.waker.wake_by_ref();
        assert_eq!(count(&one), 1, "a wakeup uses the registration up");
        assert!(wake.take_ready(), "and marks the exchange all the same");
        wake.register(&Waker::from(Arc::clone(&two)));
        wake.waker.wake_by_ref();
        assert_eq!((count(&one), count(&two)), (1, 1), "the wake follows the task registered last");
    }
}
