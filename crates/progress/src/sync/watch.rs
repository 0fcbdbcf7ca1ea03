//! What a lock of ours has beside std's: the stamp that goes from holder to holder, and how many wait.

use std::cell::Cell;
use std::num::NonZeroU32;
use std::panic::Location;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{LockResult, TryLockError, TryLockResult};
use std::time::Duration;

use crate::hooks;
use crate::site::{self, Deed};
use crate::span::{Entered, Span};
use crate::stamp::{Lock, Sharing};
use crate::standstill::Standstill;

/// Kept beside the lock.
#[derive(Debug, Default)]
pub(super) struct Watch {
    lock: Lock,
    /// Threads that wait for the lock, as far as they came while a profile ran.
    waiting: AtomicU32,
}

impl Watch {
    pub(super) const fn new() -> Self {
        Self { lock: Lock::new(), waiting: AtomicU32::new(0) }
    }

    /// Takes the lock while a profile runs: `attempt` first, so that who gets it at once is not taken for one who waited.
    ///
    /// The span of the holder is entered before the lock is asked for: what it costs to say so is then no longer hold. While
    /// the thread waits it is in no kind of work at all.
    pub(super) fn acquire<G>(
        &self,
        deed: Deed,
        place: &'static Location<'static>,
        attempt: impl FnOnce() -> TryLockResult<G>,
        wait: impl FnOnce() -> LockResult<G>,
    ) -> (LockResult<G>, Held<'_>) {
        hooks::before_lock();
        let span = site::span(deed, place);
        hooks::at(span);
        let span = span.enter();
        let (guard, blocked) = match attempt() {
            Ok(guard) => (Ok(guard), Duration::ZERO),
            Err(TryLockError::Poisoned(guard)) => (Err(guard), Duration::ZERO),
            Err(TryLockError::WouldBlock) => {
                let _one = Waiting::begin(&self.waiting);
                let standstill = Standstill::begin();
                let guard = wait();
                (guard, standstill.end())
            }
        };
        let held = Held { watch: self, sharing: sharing(deed), span };
        held.acquired(blocked);
        (guard, held)
    }

    /// What is held of a lock that was taken without waiting; told if a profile runs.
    #[inline]
    pub(super) fn hold(&self, deed: Deed, place: &'static Location<'static>) -> Held<'_> {
        if !hooks::is_active() {
            return self.untold(deed);
        }
        let span = site::span(deed, place);
        hooks::at(span);
        let held = Held { watch: self, sharing: sharing(deed), span: span.enter() };
        held.acquired(Duration::ZERO);
        held
    }

    /// What is held of a lock that was taken while no profile ran.
    #[inline]
    pub(super) fn untold(&self, deed: Deed) -> Held<'_> {
        Held { watch: self, sharing: sharing(deed), span: Entered::nothing() }
    }
}

#[inline]
fn sharing(deed: Deed) -> Sharing {
    if deed == Deed::Read { Sharing::Shared } else { Sharing::Exclusive }
}

/// One more that waits, while it lives.
struct Waiting<'a>(&'a AtomicU32);

impl<'a> Waiting<'a> {
    fn begin(waiting: &'a AtomicU32) -> Self {
        waiting.fetch_add(1, Relaxed);
        Self(waiting)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// Part of a guard that stands before std's, so that it goes first: it tells that the lock is about to be given up.
#[derive(Debug)]
pub(super) struct Held<'a> {
    watch: &'a Watch,
    sharing: Sharing,
    span: Entered,
}

impl Held<'_> {
    pub(super) fn acquired(&self, blocked: Duration) {
        hooks::lock_acquired(&self.watch.lock, self.sharing, blocked);
    }

    /// The lock is about to be given up; whether it is known that somebody waits for it.
    #[inline]
    pub(super) fn release(&self) -> bool {
        if !hooks::is_active() {
            return false;
        }
        let contended = self.watch.waiting.load(Relaxed) > 0;
        hooks::before_unlock(&self.watch.lock, self.sharing, contended);
        contended
    }

    /// From here on the lock is held together with other readers.
    #[inline]
    pub(super) fn share(mut self) -> Self {
        self.release();
        self.sharing = Sharing::Shared;
        self.acquired(Duration::ZERO);
        self
    }
}

impl Drop for Held<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.release() {
            drop(std::mem::replace(&mut self.span, Entered::nothing()));
            WAKING.set(hooks::entered(Span::WAKE));
        }
        // Then the span ends, if it has not, then std's guard gives up the lock.
    }
}

thread_local! {
    /// The span of the wake that giving up a lock comes to, while std's guard does so.
    static WAKING: Cell<Option<NonZeroU32>> = const { Cell::new(None) };
}

/// Part of a guard that stands behind std's: the lock was given up, and whoever waits was woken.
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
