//! The standard library's `thread`, which reports to the profiler which threads exist and which thread waits for which.
//!
//! ```
//! use progress::thread;
//!
//! let worker = thread::Builder::new().name("worker-1".into()).spawn(|| 6 * 7).unwrap();
//! assert_eq!(worker.join().unwrap(), 42);
//! ```
//!
//! The profiler sees a happens-before edge from a parent to each thread that it spawns, from a thread's end to the
//! thread that joins it, and from [`Thread::unpark`] to [`park`]. [`sleep`] is reported as a timer. Spawned threads are
//! registered, so that the profiler samples them from their first instruction.
//!
//! Differences from std: [`Thread`], [`JoinHandle`], [`Builder`] and [`Scope`] are types of this crate, with std's
//! methods except `Builder::spawn_unchecked`, `Thread::into_raw`, the deprecated ones and those of `std::os`. An unpark
//! through std's handle and a [`park`](std::thread::park) of std's are not reported.
//!
//! - `scope`: threads that may borrow from their parent.

mod scope;

use std::cell::OnceCell;
use std::io;
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

pub use std::thread::{AccessError, LocalKey, Result, ThreadId, available_parallelism, panicking, yield_now};

pub use scope::{Scope, ScopedJoinHandle, scope};

use crate::account::register_thread;
use crate::blocked::BlockedScope;
use crate::hooks;
use crate::site::{self, SyncOp};
use crate::span::wake_if;
use crate::stamp::{Stamp, StampCell};

/// The stamps that other threads read about a thread.
#[derive(Debug, Default)]
struct ThreadStamps {
    /// The stamp of the last thread that unparked it.
    unparked: StampCell,
    /// Whether it is parked; set only while a profile runs.
    is_parked: AtomicBool,
    /// Its own stamp, left at its end.
    ended: StampCell,
}

impl ThreadStamps {
    /// Parks the calling thread, which owns these stamps. Returns for how long it was blocked.
    fn parked(&self, park: impl FnOnce()) -> Duration {
        self.is_parked.store(true, Relaxed);
        let scope = BlockedScope::begin();
        park();
        let blocked = scope.end();
        self.is_parked.store(false, Relaxed);
        blocked
    }
}

thread_local! {
    static HERE: OnceCell<Arc<ThreadStamps>> = const { OnceCell::new() };
}

/// [`std::thread::Thread`]: a handle to a thread, with its stamps.
#[derive(Clone, Debug)]
pub struct Thread {
    inner: std::thread::Thread,
    stamps: Arc<ThreadStamps>,
}

impl Thread {
    /// Makes [`park`] return, or its next call if the thread is not parked.
    #[track_caller]
    pub fn unpark(&self) {
        if !hooks::is_active() {
            return self.inner.unpark();
        }
        let mut stamp = Stamp::default();
        hooks::before_send(&mut stamp);
        self.stamps.unparked.leave(stamp);
        hooks::at(site::span(SyncOp::Unpark, Location::caller()));
        // The swap lets one caller per park pay for the wakeup.
        let is_parked = self.stamps.is_parked.load(Relaxed) && self.stamps.is_parked.swap(false, Relaxed);
        wake_if(is_parked, || self.inner.unpark());
    }

    /// The thread's id, unique in this process.
    #[must_use]
    pub fn id(&self) -> ThreadId {
        self.inner.id()
    }

    /// The thread's name, if it has one.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.inner.name()
    }
}

/// The calling thread's handle.
#[must_use]
pub fn current() -> Thread {
    Thread { inner: std::thread::current(), stamps: here() }
}

/// The stamps of the calling thread; during its exit an unused default.
fn here() -> Arc<ThreadStamps> {
    HERE.try_with(|stamps| Arc::clone(stamps.get_or_init(Arc::default))).unwrap_or_default()
}

/// Blocks until another thread calls [`Thread::unpark`]. May return spuriously.
#[track_caller]
pub fn park() {
    if !hooks::is_active() {
        return std::thread::park();
    }
    let stamps = here();
    let blocked = stamps.parked(std::thread::park);
    hooks::after_receive(stamps.unparked.take(), blocked);
    hooks::at(site::span(SyncOp::Park, Location::caller()));
}

/// [`park`]s for at most `timeout`.
#[track_caller]
pub fn park_timeout(timeout: Duration) {
    if !hooks::is_active() {
        return std::thread::park_timeout(timeout);
    }
    let mut timer = Stamp::default();
    hooks::sleep_began(&mut timer);
    let stamps = here();
    let blocked = stamps.parked(|| std::thread::park_timeout(timeout));
    // std does not report whether an unpark or the timeout ended the wait.
    if blocked < timeout {
        hooks::after_receive(stamps.unparked.take(), blocked);
    } else {
        hooks::sleep_ended(timer, blocked);
    }
    hooks::at(site::span(SyncOp::Park, Location::caller()));
}

/// Sleeps for at least `duration`.
#[track_caller]
pub fn sleep(duration: Duration) {
    if !hooks::is_active() {
        return std::thread::sleep(duration);
    }
    let mut timer = Stamp::default();
    hooks::sleep_began(&mut timer);
    let scope = BlockedScope::begin();
    std::thread::sleep(duration);
    let blocked = scope.end();
    hooks::sleep_ended(timer, blocked);
    hooks::at(site::span(SyncOp::Sleep, Location::caller()));
}

/// Spawns a thread.
///
/// # Panics
/// If the system cannot create a thread; [`Builder::spawn`] returns that error instead.
#[track_caller]
pub fn spawn<F, T>(work: F) -> JoinHandle<T>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    Builder::new().spawn(work).expect("failed to spawn thread")
}

/// [`std::thread::Builder`]: the properties of a thread to be spawned.
#[derive(Debug)]
#[must_use = "must eventually spawn the thread"]
pub struct Builder(std::thread::Builder);

impl Builder {
    /// Without a name, and with std's default stack size.
    #[expect(clippy::new_without_default, reason = "std's has none")]
    pub fn new() -> Self {
        Self(std::thread::Builder::new())
    }

    /// Sets the name. The profiler treats threads whose names differ only in a trailing number as one kind.
    pub fn name(self, name: String) -> Self {
        Self(self.0.name(name))
    }

    /// Sets the size of the stack, in bytes.
    pub fn stack_size(self, size: usize) -> Self {
        Self(self.0.stack_size(size))
    }

    /// Spawns the thread.
    ///
    /// # Errors
    /// If the system cannot create a thread.
    #[track_caller]
    pub fn spawn<F, T>(self, work: F) -> io::Result<JoinHandle<T>>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        let (stamps, work) = instrumented(work, Location::caller());
        let inner = self.0.spawn(work)?;
        let thread = Thread { inner: inner.thread().clone(), stamps };
        Ok(JoinHandle { inner, thread })
    }

    /// Spawns the thread in a [`scope`].
    ///
    /// # Errors
    /// If the system cannot create a thread.
    #[track_caller]
    pub fn spawn_scoped<'scope, 'env, F, T>(
        self,
        scope: &'scope Scope<'scope, 'env>,
        work: F,
    ) -> io::Result<ScopedJoinHandle<'scope, T>>
    where
        F: FnOnce() -> T + Send + 'scope,
        T: Send + 'scope,
    {
        scope.spawn_built(self.0, work, Location::caller())
    }
}

/// Wraps `work` so that it reports its begin and its end. The parent's side of the spawn is reported at once.
fn instrumented<F, T>(work: F, call_site: &'static Location<'static>) -> (Arc<ThreadStamps>, impl FnOnce() -> T)
where
    F: FnOnce() -> T,
{
    /// Leaves the stamp of the thread's end, also if the work panics.
    struct EndStamp(Arc<ThreadStamps>);
    impl Drop for EndStamp {
        fn drop(&mut self) {
            let mut stamp = Stamp::default();
            hooks::before_send(&mut stamp);
            self.0.ended.leave(stamp);
        }
    }

    let stamps = Arc::<ThreadStamps>::default();
    let theirs = Arc::clone(&stamps);
    let mut stamp = Stamp::default();
    if hooks::is_active() {
        hooks::before_send(&mut stamp);
        hooks::at(site::span(SyncOp::Spawn, call_site));
    }
    let work = move || {
        register_thread();
        hooks::after_receive(stamp, Duration::ZERO);
        let _end = EndStamp(Arc::clone(&theirs));
        // `current` and `park` on the new thread must find the stamps that its parent's handle refers to.
        HERE.with(|here| drop(here.set(theirs)));
        work()
    };
    (stamps, work)
}

/// [`std::thread::JoinHandle`], which reports the join.
#[derive(Debug)]
pub struct JoinHandle<T> {
    inner: std::thread::JoinHandle<T>,
    thread: Thread,
}

impl<T> JoinHandle<T> {
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
        // Read before the join: afterwards every thread is finished.
        let is_finished = self.is_finished();
        joined(&self.thread.stamps, is_finished, Location::caller(), || self.inner.join())
    }

    /// Whether the thread has finished its work.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.inner.is_finished()
    }
}

fn joined<T>(
    stamps: &ThreadStamps,
    is_finished: bool,
    call_site: &'static Location<'static>,
    join: impl FnOnce() -> Result<T>,
) -> Result<T> {
    if !hooks::is_active() {
        return join();
    }
    let scope = BlockedScope::begin();
    let result = join();
    let blocked = scope.end();
    // If the work was finished before, the join waited only for the system's part of the exit.
    hooks::after_receive(stamps.ended.read(), if is_finished { Duration::ZERO } else { blocked });
    hooks::at(site::span(SyncOp::Join, call_site));
    result
}
