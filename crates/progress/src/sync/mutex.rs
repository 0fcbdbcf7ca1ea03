//! [`std::sync::Mutex`].

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::panic::Location;
use std::sync::{LockResult, PoisonError, TryLockError, TryLockResult};

use super::watch::{Held, Watch};
use crate::hooks;
use crate::site::Deed;

/// [`std::sync::Mutex`], which tells who waits for whom.
///
/// ```
/// use progress::sync::Mutex;
///
/// static HITS: Mutex<u32> = Mutex::new(0);
/// *HITS.lock().unwrap() += 1;
/// assert_eq!(*HITS.lock().unwrap(), 1);
/// ```
#[derive(Default)]
pub struct Mutex<T: ?Sized> {
    watch: Watch,
    inner: std::sync::Mutex<T>,
}

/// [`std::sync::MutexGuard`].
#[must_use = "if unused the Mutex will immediately unlock"]
pub struct MutexGuard<'a, T: ?Sized> {
    // In this order: what is about to happen is told first.
    held: Held<'a>,
    inner: std::sync::MutexGuard<'a, T>,
}

impl<T> Mutex<T> {
    /// Unlocked.
    pub const fn new(value: T) -> Self {
        Self { watch: Watch::new(), inner: std::sync::Mutex::new(value) }
    }

    /// What it protected.
    ///
    /// # Errors
    /// When it is poisoned; the error has the value.
    pub fn into_inner(self) -> LockResult<T> {
        self.inner.into_inner()
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Waits for the lock and takes it.
    ///
    /// # Errors
    /// When a thread panicked that held it; the error has the guard.
    #[inline]
    #[track_caller]
    pub fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        if hooks::is_active() {
            return self.lock_told(Location::caller());
        }
        // Made behind std's: what is made before it is moved, which costs more than the lock.
        match self.inner.lock() {
            Ok(inner) => Ok(MutexGuard { held: self.watch.untold(Deed::Lock), inner }),
            poisoned => MutexGuard::of(self.watch.untold(Deed::Lock), poisoned),
        }
    }

    #[cold]
    fn lock_told(&self, place: &'static Location<'static>) -> LockResult<MutexGuard<'_, T>> {
        let (inner, held) = self.watch.acquire(Deed::Lock, place, || self.inner.try_lock(), || self.inner.lock());
        MutexGuard::of(held, inner)
    }

    /// Takes the lock if nobody holds it.
    ///
    /// # Errors
    /// When somebody does, or when it is poisoned; then the error has the guard.
    #[inline]
    #[track_caller]
    pub fn try_lock(&self) -> TryLockResult<MutexGuard<'_, T>> {
        let inner = match self.inner.try_lock() {
            Ok(inner) => Ok(inner),
            Err(TryLockError::Poisoned(poisoned)) => Err(poisoned),
            Err(TryLockError::WouldBlock) => return Err(TryLockError::WouldBlock),
        };
        Ok(MutexGuard::of(self.watch.hold(Deed::Lock, Location::caller()), inner)?)
    }

    /// Whether a thread panicked that held it.
    pub fn is_poisoned(&self) -> bool {
        self.inner.is_poisoned()
    }

    /// As if no thread had panicked.
    pub fn clear_poison(&self) {
        self.inner.clear_poison();
    }

    /// What it protects, without a lock.
    ///
    /// # Errors
    /// When it is poisoned; the error has the reference.
    pub fn get_mut(&mut self) -> LockResult<&mut T> {
        self.inner.get_mut()
    }
}

impl<T> From<T> for Mutex<T> {
    fn from(value: T) -> Self {
        Self::new(value)
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl<'a, T: ?Sized> MutexGuard<'a, T> {
    #[inline]
    pub(super) fn of(held: Held<'a>, inner: LockResult<std::sync::MutexGuard<'a, T>>) -> LockResult<Self> {
        match inner {
            Ok(inner) => Ok(Self { held, inner }),
            Err(poisoned) => Err(PoisonError::new(Self { held, inner: poisoned.into_inner() })),
        }
    }

    /// The two parts, for a condition variable.
    pub(super) fn apart(self) -> (Held<'a>, std::sync::MutexGuard<'a, T>) {
        (self.held, self.inner)
    }
}

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: ?Sized + fmt::Display> fmt::Display for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
