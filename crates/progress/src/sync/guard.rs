//! The guard of a lock: std's guard, between a field that reports the release before it and one that reports it after
//! it.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::panic::Location;
use std::sync::{LockResult, PoisonError, TryLockError, TryLockResult};

use super::watch::{GivenUp, ReleaseReport, Watch};
use crate::hooks;
use crate::site::SyncOp;

/// A guard around std's guard `G`: [`MutexGuard`](super::MutexGuard), [`RwLockReadGuard`](super::RwLockReadGuard) or
/// [`RwLockWriteGuard`](super::RwLockWriteGuard).
#[must_use = "if unused the lock is released at once"]
pub struct Guard<'a, G> {
    // Fields drop in this order: `held` reports the release before std's guard performs it, `given_up` after it.
    pub(super) held: ReleaseReport<'a>,
    pub(super) inner: G,
    pub(super) given_up: GivenUp,
}

impl<'a, G> Guard<'a, G> {
    #[inline]
    pub(super) fn of(held: ReleaseReport<'a>, inner: LockResult<G>) -> LockResult<Self> {
        match inner {
            Ok(inner) => Ok(Self { held, inner, given_up: GivenUp }),
            Err(poisoned) => Err(PoisonError::new(Self { held, inner: poisoned.into_inner(), given_up: GivenUp })),
        }
    }

    /// Takes the lock, and blocks if it is taken. Reports the wait while a profile runs.
    #[inline]
    #[track_caller]
    pub(super) fn acquire(
        watch: &'a Watch,
        op: SyncOp,
        attempt: impl FnOnce() -> TryLockResult<G>,
        wait: impl FnOnce() -> LockResult<G>,
    ) -> LockResult<Self> {
        if hooks::is_active() {
            return Self::acquire_profiled(watch, op, Location::caller(), attempt, wait);
        }
        // `ReleaseReport` is built after std's guard: built before, it would be moved, which costs more than the lock
        // itself.
        match wait() {
            Ok(inner) => Ok(Self { held: watch.unreported(op), inner, given_up: GivenUp }),
            poisoned => Self::of(watch.unreported(op), poisoned),
        }
    }

    #[cold]
    fn acquire_profiled(
        watch: &'a Watch,
        op: SyncOp,
        call_site: &'static Location<'static>,
        attempt: impl FnOnce() -> TryLockResult<G>,
        wait: impl FnOnce() -> LockResult<G>,
    ) -> LockResult<Self> {
        let (inner, held) = watch.acquire(op, call_site, attempt, wait);
        Self::of(held, inner)
    }

    /// Turns the result of std's `try_lock` into a guard, or its error.
    #[inline]
    #[track_caller]
    pub(super) fn attempted(watch: &'a Watch, op: SyncOp, attempt: TryLockResult<G>) -> TryLockResult<Self> {
        let inner = match attempt {
            Ok(inner) => Ok(inner),
            // A poisoned lock is held, so it is reported like any other.
            Err(TryLockError::Poisoned(poisoned)) => Err(poisoned),
            Err(TryLockError::WouldBlock) => return Err(TryLockError::WouldBlock),
        };
        Ok(Self::of(watch.hold(op, Location::caller()), inner)?)
    }
}

impl<G: Deref> Deref for Guard<'_, G> {
    type Target = G::Target;

    #[inline]
    fn deref(&self) -> &G::Target {
        &self.inner
    }
}

impl<G: DerefMut> DerefMut for Guard<'_, G> {
    #[inline]
    fn deref_mut(&mut self) -> &mut G::Target {
        &mut self.inner
    }
}

impl<G: fmt::Debug> fmt::Debug for Guard<'_, G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl<G: fmt::Display> fmt::Display for Guard<'_, G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}
