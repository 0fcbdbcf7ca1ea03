//! The profiling state of a lock: the stamp that goes from holder to holder, and the number of waiting threads.

use std::cell::Cell;
use std::num::NonZeroU32;
use std::panic::Location;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{LockResult, TryLockError, TryLockResult};
use std::time::Duration;

use crate::blocked::BlockedScope;
use crate::hooks;
use crate::site::{self, SyncOp};
use crate::span::{Entered, Span};
use crate::stamp::{Lock, Sharing};

/// Stored beside std's lock.
#[derive(Debug, Default)]
pub(super) struct Watch {
    lock: Lock,
    /// The number of waiting threads that began to wait while a profile ran.
    waiting: AtomicU32,
}

impl Watch {
    pub(super) const fn new() -> Self {
        Self { lock: Lock::new(), waiting: AtomicU32::new(0) }
    }

    /// Takes the lock while a profile runs. It calls `attempt` first, so that an uncontended lock is not reported as a
    /// wait.
    ///
    /// The holder's span is opened before the lock is requested, so that the hook's cost does not lengthen the time for
    /// which the lock is held. During the wait the thread does no kind of work.
    pub(super) fn acquire<G>(
        &self,
        op: SyncOp,
        call_site: &'static Location<'static>,
        attempt: impl FnOnce() -> TryLockResult<G>,
        wait: impl FnOnce() -> LockResult<G>,
    ) -> (LockResult<G>, ReleaseReport<'_>) {
        hooks::before_lock();
        let span = site::span(op, call_site);
        hooks::at(span);
        let span = span.enter();
        let (guard, blocked) = match attempt() {
            Ok(guard) => (Ok(guard), Duration::ZERO),
            Err(TryLockError::Poisoned(guard)) => (Err(guard), Duration::ZERO),
            Err(TryLockError::WouldBlock) => {
                // The count tells the holder that its release wakes a thread.
                let _one = WaiterCount::begin(&self.waiting);
                let scope = BlockedScope::begin();
                let guard = wait();
                (guard, scope.end())
            }
        };
        let held = ReleaseReport { watch: self, sharing: sharing(op), span };
        held.acquired(blocked);
        (guard, held)
    }

    /// Reports a lock that was taken without waiting, if a profile runs.
    #[inline]
    pub(super) fn hold(&self, op: SyncOp, call_site: &'static Location<'static>) -> ReleaseReport<'_> {
        if !hooks::is_active() {
            return self.unreported(op);
        }
        let span = site::span(op, call_site);
        hooks::at(span);
        let held = ReleaseReport { watch: self, sharing: sharing(op), span: span.enter() };
        held.acquired(Duration::ZERO);
        held
    }

    /// The state of a lock that was taken while no profile ran: not reported.
    #[inline]
    pub(super) fn unreported(&self, op: SyncOp) -> ReleaseReport<'_> {
        ReleaseReport { watch: self, sharing: sharing(op), span: Entered::nothing() }
    }
}

#[inline]
fn sharing(op: SyncOp) -> Sharing {
    if op == SyncOp::Read { Sharing::Shared } else { Sharing::Exclusive }
}

/// Counts one waiting thread while it lives.
struct WaiterCount<'a>(&'a AtomicU32);

impl<'a> WaiterCount<'a> {
    fn begin(waiting: &'a AtomicU32) -> Self {
        waiting.fetch_add(1, Relaxed);
        Self(waiting)
    }
}

impl Drop for WaiterCount<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// First field of a guard, dropped before std's guard: it reports that the lock is about to be released.
#[derive(Debug)]
pub(super) struct ReleaseReport<'a> {
    watch: &'a Watch,
    sharing: Sharing,
    span: Entered,
}

impl ReleaseReport<'_> {
    pub(super) fn acquired(&self, blocked: Duration) {
        hooks::lock_acquired(&self.watch.lock, self.sharing, blocked);
    }

    /// Reports that the lock is about to be released. Returns whether a thread is known to wait for it.
    #[inline]
    pub(super) fn release(&self) -> bool {
        if !hooks::is_active() {
            return false;
        }
        let contended = self.watch.waiting.load(Relaxed) > 0;
        hooks::before_unlock(&self.watch.lock, self.sharing, contended);
        contended
    }

    /// Turns an exclusive hold into a shared one.
    #[inline]
    pub(super) fn share(mut self) -> Self {
        // To the profiler a downgrade is a release and an acquisition without a wait.
        self.release();
        self.sharing = Sharing::Shared;
        self.acquired(Duration::ZERO);
        self
    }
}

impl Drop for ReleaseReport<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.release() {
            // The holder's span ends before the wakeup, whose cost is not part of the critical section.
            drop(std::mem::replace(&mut self.span, Entered::nothing()));
            WAKING.set(hooks::entered(Span::WAKE));
        }
        // Then the span ends, if it has not yet, and std's guard releases the lock.
    }
}

thread_local! {
    /// The open [`Span::WAKE`], from the release of a contended lock until std's guard has woken the next holder.
    static WAKING: Cell<Option<NonZeroU32>> = const { Cell::new(None) };
}

/// Last field of a guard, dropped after std's guard: the lock was released, and a waiting thread was woken.
#[derive(Debug)]
pub(super) struct GivenUp;

impl Drop for GivenUp {
    #[inline]
    fn drop(&mut self) {
        if let Some(waking) = WAKING.get() {
            WAKING.set(None);
            hooks::left(waking);
        }
    }
}
