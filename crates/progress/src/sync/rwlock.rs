//! [`std::sync::RwLock`].

use std::fmt;
use std::sync::{LockResult, TryLockResult};

use super::guard::Guard;
use super::watch::Watch;
use crate::site::SyncOp;

/// [`std::sync::RwLock`], which reports waits to the profiler.
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

/// [`std::sync::RwLockReadGuard`], which reports the release.
pub type RwLockReadGuard<'a, T> = Guard<'a, std::sync::RwLockReadGuard<'a, T>>;

/// [`std::sync::RwLockWriteGuard`], which reports the release.
pub type RwLockWriteGuard<'a, T> = Guard<'a, std::sync::RwLockWriteGuard<'a, T>>;

impl<T> RwLock<T> {
    /// Returns an unlocked lock.
    pub const fn new(value: T) -> Self {
        Self { watch: Watch::new(), inner: std::sync::RwLock::new(value) }
    }

    /// Consumes the lock, and returns its value.
    ///
    /// # Errors
    /// If the lock is poisoned; the error holds the value.
    pub fn into_inner(self) -> LockResult<T> {
        self.inner.into_inner()
    }
}

impl<T: ?Sized> RwLock<T> {
    /// Blocks until no writer holds the lock, and takes it for reading.
    ///
    /// # Errors
    /// If a writer panicked while it held the lock; the error holds the guard.
    #[inline]
    #[track_caller]
    pub fn read(&self) -> LockResult<RwLockReadGuard<'_, T>> {
        Guard::acquire(&self.watch, SyncOp::Read, || self.inner.try_read(), || self.inner.read())
    }

    /// Takes the lock for reading if no writer holds it.
    ///
    /// # Errors
    /// If a writer holds the lock, or it is poisoned; a poison error holds the guard.
    #[inline]
    #[track_caller]
    pub fn try_read(&self) -> TryLockResult<RwLockReadGuard<'_, T>> {
        Guard::attempted(&self.watch, SyncOp::Read, self.inner.try_read())
    }

    /// Blocks until no reader or writer holds the lock, and takes it for writing.
    ///
    /// # Errors
    /// If a writer panicked while it held the lock; the error holds the guard.
    #[inline]
    #[track_caller]
    pub fn write(&self) -> LockResult<RwLockWriteGuard<'_, T>> {
        Guard::acquire(&self.watch, SyncOp::Write, || self.inner.try_write(), || self.inner.write())
    }

    /// Takes the lock for writing if no reader or writer holds it.
    ///
    /// # Errors
    /// If another thread holds the lock, or it is poisoned; a poison error holds the guard.
    #[inline]
    #[track_caller]
    pub fn try_write(&self) -> TryLockResult<RwLockWriteGuard<'_, T>> {
        Guard::attempted(&self.watch, SyncOp::Write, self.inner.try_write())
    }

    /// Whether a writer panicked while it held the lock.
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
    /// If the lock is poisoned; the error holds the reference.
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
    /// Turns the write lock into a read lock, without letting another writer in between.
    pub fn downgrade(this: Self) -> RwLockReadGuard<'a, T> {
        let held = this.held.share();
        Guard { held, inner: std::sync::RwLockWriteGuard::downgrade(this.inner), given_up: this.given_up }
    }
}
