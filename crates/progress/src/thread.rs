//! The standard library's `thread`, which tells the profiler who waits for whom, and who is there.
//!
//! ```
//! use progress::thread;
//!
//! let worker = thread::Builder::new().name("worker-1".into()).spawn(|| 6 * 7).unwrap();
//! assert_eq!(worker.join().unwrap(), 42);
//! ```
//!
//! A thread that is spawned here goes on from where its parent was, and whoever joins it goes on from where it ended; so it is with
//! [`park`] and [`Thread::unpark`]. [`sleep`] is a time that passes by itself. Threads are registered, so that the profiler samples
//! them from their first instruction.
//!
//! Where this differs from std: [`Thread`], [`JoinHandle`], [`Builder`] and [`Scope`] are types of ours, with std's methods but for
//! `Builder::spawn_unchecked`, `Thread::into_raw`, the deprecated ones and those of `std::os`. A thread that is unparked by std's
//! handle, or parks by std's [`park`](std::thread::park), is not told.
//!
//! - `scope`: threads that may borrow.

mod scope;

use std::cell::OnceCell;
use std::io;
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

pub use std::thread::{AccessError, LocalKey, Result, ThreadId, available_parallelism, panicking, yield_now};

pub use scope::{Scope, ScopedJoinHandle, scope};

use crate::account::on_each_thread;
use crate::hooks;
use crate::site::{self, Deed};
use crate::span::wake_if;
use crate::stamp::{Note, Stamp};
use crate::standstill::Standstill;

/// What is left for others about a thread.
#[derive(Debug, Default)]
struct Notes {
    /// By who unparked it last.
    unparked: Note,
    /// Whether it is parked, as far as it began to be while a profile ran.
    is_parked: AtomicBool,
    /// By itself, at its end.
    ended: Note,
}

impl Notes {
    /// Parks the thread that they are of; for how long it stood still.
    fn parked(&self, park: impl FnOnce()) -> Duration {
        self.is_parked.store(true, Relaxed);
        let standstill = Standstill::begin();
        park();
        let blocked = standstill.end();
        self.is_parked.store(false, Relaxed);
        blocked
    }
}

thread_local! {
    static HERE: OnceCell<Arc<Notes>> = const { OnceCell::new() };
}

/// [`std::thread::Thread`]: a handle to a thread.
#[derive(Clone, Debug)]
pub struct Thread {
    inner: std::thread::Thread,
    notes: Arc<Notes>,
}

impl Thread {
    /// Lets [`park`] return, or the next one if the thread is not in it.
    #[track_caller]
    pub fn unpark(&self) {
        if !hooks::is_active() {
            return self.inner.unpark();
        }
        let mut stamp = Stamp::default();
        hooks::before_send(&mut stamp);
        self.notes.unparked.leave(stamp);
        hooks::at(site::span(Deed::Unpark, Location::caller()));
        // Once for each time that it is.
        let is_parked = self.notes.is_parked.load(Relaxed) && self.notes.is_parked.swap(false, Relaxed);
        wake_if(is_parked, || self.inner.unpark());
    }

    /// Its number in this process.
    #[must_use]
    pub fn id(&self) -> ThreadId {
        self.inner.id()
    }

    /// Its name, if it has one.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.inner.name()
    }
}

/// The thread that calls.
#[must_use]
pub fn current() -> Thread {
    Thread { inner: std::thread::current(), notes: here() }
}

/// What is left for this thread. One that ends has nothing to come back to.
fn here() -> Arc<Notes> {
    HERE.try_with(|notes| Arc::clone(notes.get_or_init(Arc::default))).unwrap_or_default()
}

/// Waits until another thread calls [`Thread::unpark`]. May return without.
#[track_caller]
pub fn park() {
    if !hooks::is_active() {
        return std::thread::park();
    }
    let notes = here();
    let blocked = notes.parked(std::thread::park);
    hooks::after_receive(notes.unparked.take(), blocked);
    hooks::at(site::span(Deed::Park, Location::caller()));
}

/// [`park`]s for so long at most.
#[track_caller]
pub fn park_timeout(timeout: Duration) {
    if !hooks::is_active() {
        return std::thread::park_timeout(timeout);
    }
    let mut timer = Stamp::default();
    hooks::sleep_began(&mut timer);
    let notes = here();
    let blocked = notes.parked(|| std::thread::park_timeout(timeout));
    // std does not say what ended it.
    if blocked < timeout {
        hooks::after_receive(notes.unparked.take(), blocked);
    } else {
        hooks::sleep_ended(timer, blocked);
    }
    hooks::at(site::span(Deed::Park, Location::caller()));
}

/// Sleeps for so long at least.
#[track_caller]
pub fn sleep(duration: Duration) {
    if !hooks::is_active() {
        return std::thread::sleep(duration);
    }
    let mut timer = Stamp::default();
    hooks::sleep_began(&mut timer);
    let standstill = Standstill::begin();
    std::thread::sleep(duration);
    let blocked = standstill.end();
    hooks::sleep_ended(timer, blocked);
    hooks::at(site::span(Deed::Sleep, Location::caller()));
}

/// Spawns a thread.
///
/// # Panics
/// When the system has no more of them; [`Builder::spawn`] says so instead.
#[track_caller]
pub fn spawn<F, T>(work: F) -> JoinHandle<T>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    Builder::new().spawn(work).expect("failed to spawn thread")
}

/// [`std::thread::Builder`]: what a thread shall be like.
#[derive(Debug)]
#[must_use = "must eventually spawn the thread"]
pub struct Builder(std::thread::Builder);

impl Builder {
    /// Without a name, and with the usual stack.
    #[expect(clippy::new_without_default, reason = "std's has none")]
    pub fn new() -> Self {
        Self(std::thread::Builder::new())
    }

    /// With that name. Threads whose names differ in a number behind them are one kind to the profiler.
    pub fn name(self, name: String) -> Self {
        Self(self.0.name(name))
    }

    /// With so many octets of stack.
    pub fn stack_size(self, size: usize) -> Self {
        Self(self.0.stack_size(size))
    }

    /// Spawns it.
    ///
    /// # Errors
    /// When the system does not.
    #[track_caller]
    pub fn spawn<F, T>(self, work: F) -> io::Result<JoinHandle<T>>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        let (notes, work) = told(work, Location::caller());
        let inner = self.0.spawn(work)?;
        let thread = Thread { inner: inner.thread().clone(), notes };
        Ok(JoinHandle { inner, thread })
    }

    /// Spawns it in a [`scope`].
    ///
    /// # Errors
    /// When the system does not.
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

/// What a new thread does: the `work`, and what is told at its begin and its end. The parent tells its part at once.
fn told<F, T>(work: F, place: &'static Location<'static>) -> (Arc<Notes>, impl FnOnce() -> T)
where
    F: FnOnce() -> T,
{
    /// Also when the work panics.
    struct End(Arc<Notes>);
    impl Drop for End {
        fn drop(&mut self) {
            let mut stamp = Stamp::default();
            hooks::before_send(&mut stamp);
            self.0.ended.leave(stamp);
        }
    }

    let notes = Arc::<Notes>::default();
    let theirs = Arc::clone(&notes);
    let mut stamp = Stamp::default();
    if hooks::is_active() {
        hooks::before_send(&mut stamp);
        hooks::at(site::span(Deed::Spawn, place));
    }
    let work = move || {
        on_each_thread();
        hooks::after_receive(stamp, Duration::ZERO);
        let _end = End(Arc::clone(&theirs));
        HERE.with(|here| drop(here.set(theirs)));
        work()
    };
    (notes, work)
}

/// [`std::thread::JoinHandle`].
#[derive(Debug)]
pub struct JoinHandle<T> {
    inner: std::thread::JoinHandle<T>,
    thread: Thread,
}

impl<T> JoinHandle<T> {
    /// The thread.
    #[must_use]
    pub fn thread(&self) -> &Thread {
        &self.thread
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// When it panicked: what it panicked with.
    #[track_caller]
    pub fn join(self) -> Result<T> {
        let is_finished = self.is_finished();
        joined(&self.thread.notes, is_finished, Location::caller(), || self.inner.join())
    }

    /// Whether it is through with its work.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.inner.is_finished()
    }
}

fn joined<T>(
    notes: &Notes,
    is_finished: bool,
    place: &'static Location<'static>,
    join: impl FnOnce() -> Result<T>,
) -> Result<T> {
    if !hooks::is_active() {
        return join();
    }
    let standstill = Standstill::begin();
    let result = join();
    let blocked = standstill.end();
    // The system's part of the end is not what anybody waited for.
    hooks::after_receive(notes.ended.read(), if is_finished { Duration::ZERO } else { blocked });
    hooks::at(site::span(Deed::Join, place));
    result
}
