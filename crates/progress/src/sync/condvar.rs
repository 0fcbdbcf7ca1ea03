//! [`std::sync::Condvar`].

use std::panic::Location;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{LockResult, PoisonError};
use std::time::{Duration, Instant};

use super::mutex::MutexGuard;
use crate::blocked::BlockedScope;
use crate::hooks;
use crate::site::{self, SyncOp};
use crate::span::wake_if;
use crate::stamp::{Stamp, StampCell};

/// [`std::sync::Condvar`], which reports which thread woke which.
///
/// ```
/// use progress::sync::{Condvar, Mutex};
/// use progress::thread;
///
/// let (ready, told) = (Mutex::new(false), Condvar::new());
/// thread::scope(|scope| {
///     scope.spawn(|| {
///         *ready.lock().unwrap() = true;
///         told.notify_one();
///     });
///     assert!(*told.wait_while(ready.lock().unwrap(), |ready| !*ready).unwrap());
/// });
/// ```
#[derive(Debug, Default)]
pub struct Condvar {
    inner: std::sync::Condvar,
    /// The stamp of the last notification.
    stamp: StampCell,
    /// The number of waiting threads that began to wait while a profile ran.
    waiting: AtomicU32,
}

/// Whether a wait ended by its timeout: [`std::sync::WaitTimeoutResult`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitTimeoutResult(bool);

impl WaitTimeoutResult {
    /// Whether the timeout ended the wait.
    #[must_use]
    pub fn timed_out(&self) -> bool {
        self.0
    }
}

impl Condvar {
    /// Returns a condition variable without waiting threads.
    #[must_use]
    pub const fn new() -> Self {
        Self { inner: std::sync::Condvar::new(), stamp: StampCell::new(), waiting: AtomicU32::new(0) }
    }

    /// Releases the lock, waits for a notification, and takes the lock again. May wake spuriously.
    ///
    /// # Errors
    /// If the mutex is poisoned; the error holds the guard.
    #[inline]
    #[track_caller]
    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> LockResult<MutexGuard<'a, T>> {
        if hooks::is_active() {
            return self.wait_profiled(guard, Location::caller(), None, |inner| (self.inner.wait(inner), false)).0;
        }
        let MutexGuard { held, inner, .. } = guard;
        MutexGuard::of(held, self.inner.wait(inner))
    }

    /// [`wait`](Self::wait)s while `condition` returns true.
    ///
    /// # Errors
    /// If the mutex is poisoned; the error holds the guard.
    #[track_caller]
    pub fn wait_while<'a, T, F>(&self, mut guard: MutexGuard<'a, T>, mut condition: F) -> LockResult<MutexGuard<'a, T>>
    where
        F: FnMut(&mut T) -> bool,
    {
        while condition(&mut *guard) {
            guard = self.wait(guard)?;
        }
        Ok(guard)
    }

    /// [`wait`](Self::wait)s for at most `timeout`.
    ///
    /// # Errors
    /// If the mutex is poisoned; the error holds the guard.
    #[track_caller]
    pub fn wait_timeout<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        timeout: Duration,
    ) -> LockResult<(MutexGuard<'a, T>, WaitTimeoutResult)> {
        let wait = |inner| apart(self.inner.wait_timeout(inner, timeout));
        let (guard, timed_out) = if hooks::is_active() {
            let mut timer = Stamp::default();
            // A pause here holds the caller's lock, as one before a release does. A thread that it delays takes over
            // the delay with the lock, and does not pause for it again.
            hooks::sleep_began(&mut timer);
            self.wait_profiled(guard, Location::caller(), Some(timer), wait)
        } else {
            let MutexGuard { held, inner, .. } = guard;
            let (inner, timed_out) = wait(inner);
            (MutexGuard::of(held, inner), timed_out)
        };
        together(guard, timed_out)
    }

    /// [`wait`](Self::wait)s while `condition` returns true, for at most `timeout`; the result is whether it still held
    /// then.
    ///
    /// # Errors
    /// If the mutex is poisoned; the error holds the guard.
    #[track_caller]
    pub fn wait_timeout_while<'a, T, F>(
        &self,
        mut guard: MutexGuard<'a, T>,
        timeout: Duration,
        mut condition: F,
    ) -> LockResult<(MutexGuard<'a, T>, WaitTimeoutResult)>
    where
        F: FnMut(&mut T) -> bool,
    {
        let began = Instant::now();
        while condition(&mut *guard) {
            // The condition was checked last, so a late change still counts.
            let Some(left) = timeout.checked_sub(began.elapsed()) else {
                return Ok((guard, WaitTimeoutResult(true)));
            };
            guard = self.wait_timeout(guard, left)?.0;
        }
        Ok((guard, WaitTimeoutResult(false)))
    }

    /// Wakes one waiting thread, if there is one.
    #[inline]
    #[track_caller]
    pub fn notify_one(&self) {
        wake_if(self.stamp_notify(Location::caller()), || self.inner.notify_one());
    }

    /// Wakes all waiting threads.
    #[inline]
    #[track_caller]
    pub fn notify_all(&self) {
        wake_if(self.stamp_notify(Location::caller()), || self.inner.notify_all());
    }

    /// Reports a notification. Returns whether a thread is known to wait.
    #[inline]
    fn stamp_notify(&self, call_site: &'static Location<'static>) -> bool {
        if !hooks::is_active() {
            return false;
        }
        // A notification without a waiting thread is lost, so it needs no stamp.
        let is_awaited = self.waiting.load(Relaxed) > 0;
        if is_awaited {
            let mut stamp = Stamp::default();
            hooks::before_send(&mut stamp);
            self.stamp.leave(stamp);
        }
        hooks::at(site::span(SyncOp::Notify, call_site));
        is_awaited
    }

    /// `wait` while a profile runs. Also returns whether `timer` ended it.
    #[cold]
    fn wait_profiled<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        call_site: &'static Location<'static>,
        timer: Option<Stamp>,
        wait: impl FnOnce(Inner<'a, T>) -> (LockResult<Inner<'a, T>>, bool),
    ) -> (LockResult<MutexGuard<'a, T>>, bool) {
        let MutexGuard { held, inner, .. } = guard;
        held.release();
        // Counted while the lock is still held: the next holder, which may change the state, sees the waiting thread.
        self.waiting.fetch_add(1, Relaxed);
        let scope = BlockedScope::begin();
        let (inner, timed_out) = wait(inner);
        let blocked = scope.end();
        self.waiting.fetch_sub(1, Relaxed);
        // A notification is a message from the notifier; a timeout is a timer.
        match timer {
            Some(timer) if timed_out => hooks::sleep_ended(timer, blocked),
            _ => hooks::after_receive(self.stamp.read(), blocked),
        }
        // The time to take the lock again is part of `blocked`.
        held.acquired(Duration::ZERO);
        hooks::at(site::span(SyncOp::Wait, call_site));
        (MutexGuard::of(held, inner), timed_out)
    }
}

type Inner<'a, T> = std::sync::MutexGuard<'a, T>;

fn apart<G>(waited: LockResult<(G, std::sync::WaitTimeoutResult)>) -> (LockResult<G>, bool) {
    match waited {
        Ok((guard, result)) => (Ok(guard), result.timed_out()),
        Err(poisoned) => {
            let (guard, result) = poisoned.into_inner();
            (Err(PoisonError::new(guard)), result.timed_out())
        }
    }
}

fn together<G>(guard: LockResult<G>, timed_out: bool) -> LockResult<(G, WaitTimeoutResult)> {
    let result = WaitTimeoutResult(timed_out);
    match guard {
        Ok(guard) => Ok((guard, result)),
        Err(poisoned) => Err(PoisonError::new((poisoned.into_inner(), result))),
    }
}
