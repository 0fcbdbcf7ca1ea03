//! [`std::thread::scope`].

use std::io;
use std::panic::Location;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::Result;
use std::time::Duration;

use super::{Thread, ThreadStamps, instrumented, joined};
use crate::blocked::BlockedScope;
use crate::hooks;
use crate::site::{self, SyncOp};

/// [`std::thread::Scope`], which reports the threads spawned in it.
#[derive(Debug)]
#[repr(transparent)]
pub struct Scope<'scope, 'env: 'scope>(std::thread::Scope<'scope, 'env>);

/// Threads spawned while a profile runs in scopes that have not ended, with the scope's address: at its end the scope
/// joins them.
static OPEN: Mutex<Vec<(usize, Arc<ThreadStamps>)>> = Mutex::new(Vec::new());

/// Length of `OPEN`. A scope's end sees all its own threads counted, since it has waited for the threads that spawn.
static COUNT: AtomicUsize = AtomicUsize::new(0);

fn open<T>(work: impl FnOnce(&mut Vec<(usize, Arc<ThreadStamps>)>) -> T) -> T {
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    let done = work(&mut open);
    COUNT.store(open.len(), Ordering::Relaxed);
    done
}

/// [`std::thread::scope`]: threads that may borrow from outside the scope, since all have ended when this returns.
///
/// ```
/// use progress::thread;
///
/// let mut numbers = vec![1, 2, 3];
/// let sum = thread::scope(|scope| scope.spawn(|| numbers.iter().sum::<i32>()).join().unwrap());
/// numbers.push(sum);
/// assert_eq!(numbers, [1, 2, 3, 6]);
/// ```
///
/// # Panics
/// If a thread panicked that was not joined.
#[track_caller]
pub fn scope<'env, F, T>(work: F) -> T
where
    F: for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> T,
{
    let call_site = Location::caller();
    let mut end = ScopeEnd { scope: 0, blocked_scope: None };
    let result = std::thread::scope(|inner| {
        let scope = Scope::of(inner);
        end.scope = scope.address();
        let result = work(scope);
        // From here std's scope joins the threads.
        end.blocked_scope = hooks::is_active().then(BlockedScope::begin);
        result
    });
    end.account_wait(call_site);
    result
}

/// The end of a scope. On a panic it drops the scope's entries in `OPEN` unreported.
struct ScopeEnd {
    scope: usize,
    blocked_scope: Option<BlockedScope>,
}

impl ScopeEnd {
    fn account_wait(mut self, call_site: &'static Location<'static>) {
        // All threads have ended: one wait for all of them, which the first receive accounts for.
        let mut blocked = self.blocked_scope.take().map_or(Duration::ZERO, BlockedScope::end);
        if !hooks::is_active() {
            return;
        }
        let threads: Vec<_> = open(|open| open.extract_if(.., |(scope, _)| *scope == self.scope).collect());
        for (_, stamps) in threads {
            hooks::after_receive(stamps.ended.read(), std::mem::take(&mut blocked));
        }
        hooks::at(site::span(SyncOp::Join, call_site));
    }
}

impl Drop for ScopeEnd {
    fn drop(&mut self) {
        // Usually no profile ran, and the lock is not needed.
        if COUNT.load(Ordering::Relaxed) > 0 {
            open(|open| open.retain(|(scope, _)| *scope != self.scope));
        }
    }
}

impl<'scope, 'env> Scope<'scope, 'env> {
    #[expect(unsafe_code, reason = "a call_site for another type's reference, which has to live as long")]
    fn of(inner: &'scope std::thread::Scope<'scope, 'env>) -> &'scope Self {
        // SAFETY: `Self` is std's scope and nothing else (`repr(transparent)`), and the lifetimes are the same.
        unsafe { &*std::ptr::from_ref(inner).cast::<Self>() }
    }

    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// Spawns a thread, which the scope joins at its end.
    ///
    /// # Panics
    /// If the system cannot create a thread; [`Builder::spawn_scoped`](super::Builder::spawn_scoped) returns that error
    /// instead.
    #[track_caller]
    pub fn spawn<F, T>(&'scope self, work: F) -> ScopedJoinHandle<'scope, T>
    where
        F: FnOnce() -> T + Send + 'scope,
        T: Send + 'scope,
    {
        self.spawn_built(std::thread::Builder::new(), work, Location::caller()).expect("failed to spawn thread")
    }

    pub(super) fn spawn_built<F, T>(
        &'scope self,
        builder: std::thread::Builder,
        work: F,
        call_site: &'static Location<'static>,
    ) -> io::Result<ScopedJoinHandle<'scope, T>>
    where
        F: FnOnce() -> T + Send + 'scope,
        T: Send + 'scope,
    {
        let (stamps, work) = instrumented(work, call_site);
        let inner = builder.spawn_scoped(&self.0, work)?;
        if hooks::is_active() {
            open(|open| open.push((self.address(), Arc::clone(&stamps))));
        }
        let thread = Thread { inner: inner.thread().clone(), stamps };
        Ok(ScopedJoinHandle { inner, thread, scope: self.address() })
    }
}

/// [`std::thread::ScopedJoinHandle`], which reports the join.
#[derive(Debug)]
pub struct ScopedJoinHandle<'scope, T> {
    inner: std::thread::ScopedJoinHandle<'scope, T>,
    thread: Thread,
    scope: usize,
}

impl<T> ScopedJoinHandle<'_, T> {
    /// The handle of the spawned thread.
    #[must_use]
    pub fn thread(&self) -> &Thread {
        &self.thread
    }

    /// Blocks until the thread ends, and returns its result.
    ///
    /// # Errors
    /// If the thread panicked: the payload of its panic.
    #[track_caller]
    pub fn join(self) -> Result<T> {
        let (is_finished, stamps) = (self.is_finished(), self.thread.stamps);
        let result = joined(&stamps, is_finished, Location::caller(), || self.inner.join());
        if hooks::is_active() {
            // It is joined: the scope's end need not report it.
            open(|open| open.retain(|(scope, other)| *scope != self.scope || !Arc::ptr_eq(other, &stamps)));
        }
        result
    }

    /// Whether the thread has finished its work.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.inner.is_finished()
    }
}
