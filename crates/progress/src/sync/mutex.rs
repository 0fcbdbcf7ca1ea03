//! [`std::sync::Mutex`].

use std::fmt;
use std::sync::{LockResult, TryLockResult};

use super::guard::Guard;
use super::watch::Watch;
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
pub type MutexGuard<'a, T> = Guard<'a, std::sync::MutexGuard<'a, T>>;

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
        Guard::acquire(&self.watch, Deed::Lock, || self.inner.try_lock(), || self.inner.lock())
    }

    /// Takes the lock if nobody holds it.
    ///
    /// # Errors
    /// When somebody does, or when it is poisoned; then the error has the guard.
    #[inline]
    #[track_caller]
    pub fn try_lock(&self) -> TryLockResult<MutexGuard<'_, T>> {
        Guard::attempted(&self.watch, Deed::Lock, self.inner.try_lock())
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
