//! The standard library's `sync`, which tells the profiler who waits for whom. A program changes its imports and nothing else:
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
//! Methods, poisoning and `const` are std's. While no profile runs each operation is std's, a load and a somewhat larger
//! guard or message; while one runs, what
//! follows an operation is a kind of work of its own, named after the place (`recv src/main.rs:12`), and the time in which a lock
//! is held is a span of that name.
//!
//! Where this differs from std:
//! - A bounded channel ([`mpsc::sync_channel`]) is made of a mutex and two condition variables, since its places carry stamps
//!   back from receiver to sender; a sender that waits parks at once, where std's looks again a few times first.
//! - `WaitTimeoutResult` and `BarrierWaitResult` are types of ours, with std's methods.
//! - What std has not made stable is not there, nor is what it calls deprecated.
//! - [`Once`], [`OnceLock`], [`LazyLock`], [`Arc`] and [`atomic`] are std's own: who waits for an initialisation is not told, nor
//!   who spins on an atomic. Use [`crate::before_send`] and [`crate::after_receive`] there.
//!
//! - `watch`: what a lock of ours has beside std's; `guard`: what holds one; [`Mutex`], [`RwLock`].
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
