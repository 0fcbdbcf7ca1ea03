//! [`std::sync::RwLock`].

use std::fmt;
use std::sync::{LockResult, TryLockResult};

use super::guard::Guard;
use super::watch::Watch;
use crate::site::Deed;

/// [`std::sync::RwLock`], which tells who waits for whom.
///
/// ```
/// use progress::sync::RwLock;
///
/// let names = RwLock::new(vec!["a"]);
/// names.write().unwrap().push("b");
/// assert_eq!(names.read().unwrap().len(), 2);
/// ```
#[derive(Default)]
pub struct RwLock<T: ?Sized> {
    watch: Watch,
    inner: std::sync::RwLock<T>,
}

/// [`std::sync::RwLockReadGuard`].
pub type RwLockReadGuard<'a, T> = Guard<'a, std::sync::RwLockReadGuard<'a, T>>;

/// [`std::sync::RwLockWriteGuard`].
pub type RwLockWriteGuard<'a, T> = Guard<'a, std::sync::RwLockWriteGuard<'a, T>>;

impl<T> RwLock<T> {
    /// Unlocked.
    pub const fn new(value: T) -> Self {
        Self { watch: Watch::new(), inner: std::sync::RwLock::new(value) }
    }

    /// What it protected.
    ///
    /// # Errors
    /// When it is poisoned; the error has the value.
    pub fn into_inner(self) -> LockResult<T> {
        self.inner.into_inner()
    }
}

impl<T: ?Sized> RwLock<T> {
    /// Waits until nobody writes, and reads.
    ///
    /// # Errors
    /// When a thread panicked that wrote; the error has the guard.
    #[inline]
    #[track_caller]
    pub fn read(&self) -> LockResult<RwLockReadGuard<'_, T>> {
        Guard::acquire(&self.watch, Deed::Read, || self.inner.try_read(), || self.inner.read())
    }

    /// Reads if nobody writes.
    ///
    /// # Errors
    /// When somebody does, or when it is poisoned; then the error has the guard.
    #[inline]
    #[track_caller]
    pub fn try_read(&self) -> TryLockResult<RwLockReadGuard<'_, T>> {
        Guard::attempted(&self.watch, Deed::Read, self.inner.try_read())
    }

    /// Waits until nobody reads or writes, and writes.
    ///
    /// # Errors
    /// When a thread panicked that wrote; the error has the guard.
    #[inline]
    #[track_caller]
    pub fn write(&self) -> LockResult<RwLockWriteGuard<'_, T>> {
        Guard::acquire(&self.watch, Deed::Write, || self.inner.try_write(), || self.inner.write())
    }

    /// Writes if nobody reads or writes.
    ///
    /// # Errors
    /// When somebody does, or when it is poisoned; then the error has the guard.
    #[inline]
    #[track_caller]
    pub fn try_write(&self) -> TryLockResult<RwLockWriteGuard<'_, T>> {
        Guard::attempted(&self.watch, Deed::Write, self.inner.try_write())
    }

    /// Whether a thread panicked that wrote.
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

impl<T> From<T> for RwLock<T> {
    fn from(value: T) -> Self {
        Self::new(value)
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for RwLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl<'a, T: ?Sized> RwLockWriteGuard<'a, T> {
    /// Goes on reading, without letting another writer in between.
    pub fn downgrade(this: Self) -> RwLockReadGuard<'a, T> {
        let held = this.held.share();
        Guard { held, inner: std::sync::RwLockWriteGuard::downgrade(this.inner), given_up: this.given_up }
    }
}
