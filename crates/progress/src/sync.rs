//! The standard library's `sync`, which reports to the profiler which thread waits for which. Only the imports change:
//!
//! ```
//! use progress::sync::{Arc, Condvar, Mutex};
//! use progress::thread;
//!
//! let shared = Arc::new((Mutex::new(Vec::new()), Condvar::new()));
//! let consumer = thread::spawn({
//!     let shared = Arc::clone(&shared);
//!     move || {
//!         let (queue, filled) = &*shared;
//!         let mut queue = filled.wait_while(queue.lock().unwrap(), |queue| queue.is_empty()).unwrap();
//!         queue.pop()
//!     }
//! });
//! let (queue, filled) = &*shared;
//! queue.lock().unwrap().push(7);
//! filled.notify_one();
//! assert_eq!(consumer.join().unwrap(), Some(7));
//! ```
//!
//! Methods, poisoning and `const` constructors are std's. While no profile runs, each operation costs std's and one
//! load, and guards and messages are a few words larger. While one runs, the work after an operation is a kind of work
//! of its own, named after the source location (`recv src/main.rs:12`), and the time for which a lock is held is a span
//! of that name.
//!
//! Differences from std:
//! - A bounded channel ([`mpsc::sync_channel`]) is a mutex with two condition variables, since its free slots carry
//!   stamps from the receiver back to the senders. A sender that must wait parks at once; std's spins briefly first.
//! - `WaitTimeoutResult` and `BarrierWaitResult` are types of this crate, with std's methods.
//! - Items that are unstable or deprecated in std are missing.
//! - [`Once`], [`OnceLock`], [`LazyLock`], [`Arc`] and [`atomic`] are std's own: waits for an initialisation, and
//!   spinning on an atomic, are not reported. Use [`crate::before_send`] and [`crate::after_receive`] there.
//!
//! - `watch`: the profiling state beside each of std's locks; `guard`: the guard; [`Mutex`], [`RwLock`].
//! - [`Condvar`], [`Barrier`], [`mpsc`].

mod barrier;
mod condvar;
mod guard;
pub mod mpsc;
mod mutex;
mod rwlock;
mod watch;

pub use std::sync::{
    Arc, LazyLock, LockResult, Once, OnceLock, OnceState, PoisonError, TryLockError, TryLockResult, Weak, atomic,
};

pub use barrier::{Barrier, BarrierWaitResult};
pub use condvar::{Condvar, WaitTimeoutResult};
pub use guard::Guard;
pub use mutex::{Mutex, MutexGuard};
pub use rwlock::{RwLock, RwLockReadGuard, RwLockWriteGuard};
