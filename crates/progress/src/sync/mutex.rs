//! [`std::sync::Mutex`].

use std::fmt;
use std::sync::{LockResult, TryLockResult};

use super::guard::Guard;
use super::watch::Watch;
use crate::site::SyncOp;

/// [`std::sync::Mutex`], which reports waits to the profiler.
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

/// [`std::sync::MutexGuard`], which reports the release.
pub type MutexGuard<'a, T> = Guard<'a, std::sync::MutexGuard<'a, T>>;

impl<T> Mutex<T> {
    /// Returns an unlocked mutex.
    pub const fn new(value: T) -> Self {
        Self { watch: Watch::new(), inner: std::sync::Mutex::new(value) }
    }

    /// Consumes the mutex, and returns its value.
    ///
    /// # Errors
    /// If the mutex is poisoned; the error holds the value.
    pub fn into_inner(self) -> LockResult<T> {
        self.inner.into_inner()
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Blocks until the lock is free, and takes it.
    ///
    /// # Errors
    /// If a thread panicked while it held the lock; the error holds the guard.
    #[inline]
    #[track_caller]
    pub fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        Guard::acquire(&self.watch, SyncOp::Lock, || self.inner.try_lock(), || self.inner.lock())
    }

    /// Takes the lock if it is free.
    ///
    /// # Errors
    /// If another thread holds the lock, or it is poisoned; a poison error holds the guard.
    #[inline]
    #[track_caller]
    pub fn try_lock(&self) -> TryLockResult<MutexGuard<'_, T>> {
        Guard::attempted(&self.watch, SyncOp::Lock, self.inner.try_lock())
    }

    /// Whether a thread panicked while it held the lock.
    pub fn is_poisoned(&self) -> bool {
        self.inner.is_poisoned()
    }

    /// Clears the poison.
    pub fn clear_poison(&self) {
        self.inner.clear_poison();
    }

    /// The value; needs no lock, since the borrow is exclusive.
    ///
    /// # Errors
    /// If the mutex is poisoned; the error holds the reference.
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
