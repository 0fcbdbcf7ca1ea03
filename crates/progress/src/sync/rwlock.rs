//! [`std::sync::RwLock`].

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::panic::Location;
use std::sync::{LockResult, PoisonError, TryLockError, TryLockResult};

use super::watch::{Held, Watch};
use crate::hooks;
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
#[must_use = "if unused the RwLock will immediately unlock"]
pub struct RwLockReadGuard<'a, T: ?Sized> {
    // In this order: what is about to happen is told first.
    _held: Held<'a>,
    inner: std::sync::RwLockReadGuard<'a, T>,
}

/// [`std::sync::RwLockWriteGuard`].
#[must_use = "if unused the RwLock will immediately unlock"]
pub struct RwLockWriteGuard<'a, T: ?Sized> {
    held: Held<'a>,
    inner: std::sync::RwLockWriteGuard<'a, T>,
}

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
        if hooks::is_active() {
            return self.read_told(Location::caller());
        }
        match self.inner.read() {
            Ok(inner) => Ok(RwLockReadGuard { _held: self.watch.untold(Deed::Read), inner }),
            poisoned => RwLockReadGuard::of(self.watch.untold(Deed::Read), poisoned),
        }
    }

    #[cold]
    fn read_told(&self, place: &'static Location<'static>) -> LockResult<RwLockReadGuard<'_, T>> {
        let (inner, held) = self.watch.acquire(Deed::Read, place, || self.inner.try_read(), || self.inner.read());
        RwLockReadGuard::of(held, inner)
    }

    /// Reads if nobody writes.
    ///
    /// # Errors
    /// When somebody does, or when it is poisoned; then the error has the guard.
    #[inline]
    #[track_caller]
    pub fn try_read(&self) -> TryLockResult<RwLockReadGuard<'_, T>> {
        let inner = match self.inner.try_read() {
            Ok(inner) => Ok(inner),
            Err(TryLockError::Poisoned(poisoned)) => Err(poisoned),
            Err(TryLockError::WouldBlock) => return Err(TryLockError::WouldBlock),
        };
        Ok(RwLockReadGuard::of(self.watch.hold(Deed::Read, Location::caller()), inner)?)
    }

    /// Waits until nobody reads or writes, and writes.
    ///
    /// # Errors
    /// When a thread panicked that wrote; the error has the guard.
    #[inline]
    #[track_caller]
    pub fn write(&self) -> LockResult<RwLockWriteGuard<'_, T>> {
        if hooks::is_active() {
            return self.write_told(Location::caller());
        }
        match self.inner.write() {
            Ok(inner) => Ok(RwLockWriteGuard { held: self.watch.untold(Deed::Write), inner }),
            poisoned => RwLockWriteGuard::of(self.watch.untold(Deed::Write), poisoned),
        }
    }

    #[cold]
    fn write_told(&self, place: &'static Location<'static>) -> LockResult<RwLockWriteGuard<'_, T>> {
        let (inner, held) = self.watch.acquire(Deed::Write, place, || self.inner.try_write(), || self.inner.write());
        RwLockWriteGuard::of(held, inner)
    }

    /// Writes if nobody reads or writes.
    ///
    /// # Errors
    /// When somebody does, or when it is poisoned; then the error has the guard.
    #[inline]
    #[track_caller]
    pub fn try_write(&self) -> TryLockResult<RwLockWriteGuard<'_, T>> {
        let inner = match self.inner.try_write() {
            Ok(inner) => Ok(inner),
            Err(TryLockError::Poisoned(poisoned)) => Err(poisoned),
            Err(TryLockError::WouldBlock) => return Err(TryLockError::WouldBlock),
        };
        Ok(RwLockWriteGuard::of(self.watch.hold(Deed::Write, Location::caller()), inner)?)
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

impl<'a, T: ?Sized> RwLockReadGuard<'a, T> {
    #[inline]
    fn of(held: Held<'a>, inner: LockResult<std::sync::RwLockReadGuard<'a, T>>) -> LockResult<Self> {
        match inner {
            Ok(inner) => Ok(Self { _held: held, inner }),
            Err(poisoned) => Err(PoisonError::new(Self { _held: held, inner: poisoned.into_inner() })),
        }
    }
}

impl<'a, T: ?Sized> RwLockWriteGuard<'a, T> {
    #[inline]
    fn of(held: Held<'a>, inner: LockResult<std::sync::RwLockWriteGuard<'a, T>>) -> LockResult<Self> {
        match inner {
            Ok(inner) => Ok(Self { held, inner }),
            Err(poisoned) => Err(PoisonError::new(Self { held, inner: poisoned.into_inner() })),
        }
    }

    /// Goes on reading, without letting another writer in between.
    pub fn downgrade(this: Self) -> RwLockReadGuard<'a, T> {
        let held = this.held.share();
        RwLockReadGuard { _held: held, inner: std::sync::RwLockWriteGuard::downgrade(this.inner) }
    }
}

impl<T: ?Sized> Deref for RwLockReadGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T: ?Sized> Deref for RwLockWriteGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T: ?Sized> DerefMut for RwLockWriteGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for RwLockReadGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: ?Sized + fmt::Display> fmt::Display for RwLockReadGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for RwLockWriteGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: ?Sized + fmt::Display> fmt::Display for RwLockWriteGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
