//! What holds a lock of ours: std's guard, between what tells that the lock is about to be given up and what tells that it was.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::panic::Location;
use std::sync::{LockResult, PoisonError, TryLockError, TryLockResult};

use super::watch::{GivenUp, Held, Watch};
use crate::hooks;
use crate::site::Deed;

/// A guard around std's guard `G`: [`MutexGuard`](super::MutexGuard), [`RwLockReadGuard`](super::RwLockReadGuard) or
/// [`RwLockWriteGuard`](super::RwLockWriteGuard).
#[must_use = "if unused the lock is given up at once"]
pub struct Guard<'a, G> {
    // In this order: what is about to happen is told first, what has happened last.
    pub(super) held: Held<'a>,
    pub(super) inner: G,
    pub(super) given_up: GivenUp,
}

impl<'a, G> Guard<'a, G> {
    #[inline]
    pub(super) fn of(held: Held<'a>, inner: LockResult<G>) -> LockResult<Self> {
        match inner {
            Ok(inner) => Ok(Self { held, inner, given_up: GivenUp }),
            Err(poisoned) => Err(PoisonError::new(Self { held, inner: poisoned.into_inner(), given_up: GivenUp })),
        }
    }

    /// Waits for the lock and takes it.
    #[inline]
    #[track_caller]
    pub(super) fn acquire(
        watch: &'a Watch,
        deed: Deed,
        attempt: impl FnOnce() -> TryLockResult<G>,
        wait: impl FnOnce() -> LockResult<G>,
    ) -> LockResult<Self> {
        if hooks::is_active() {
            return Self::acquire_told(watch, deed, Location::caller(), attempt, wait);
        }
        // Made behind std's: what is made before it is moved, which costs more than the lock.
        match wait() {
            Ok(inner) => Ok(Self { held: watch.untold(deed), inner, given_up: GivenUp }),
            poisoned => Self::of(watch.untold(deed), poisoned),
        }
    }

    #[cold]
    fn acquire_told(
        watch: &'a Watch,
        deed: Deed,
        place: &'static Location<'static>,
        attempt: impl FnOnce() -> TryLockResult<G>,
        wait: impl FnOnce() -> LockResult<G>,
    ) -> LockResult<Self> {
        let (inner, held) = watch.acquire(deed, place, attempt, wait);
        Self::of(held, inner)
    }

    /// What came of an attempt to take the lock.
    #[inline]
    #[track_caller]
    pub(super) fn attempted(watch: &'a Watch, deed: Deed, attempt: TryLockResult<G>) -> TryLockResult<Self> {
        let inner = match attempt {
            Ok(inner) => Ok(inner),
            Err(TryLockError::Poisoned(poisoned)) => Err(poisoned),
            Err(TryLockError::WouldBlock) => return Err(TryLockError::WouldBlock),
        };
        Ok(Self::of(watch.hold(deed, Location::caller()), inner)?)
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
