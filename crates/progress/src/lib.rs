//! Progress points, spans and synchronisation hooks: the instrumentation through which a program reports to the causal
//! profiler.
//!
//! A profiler is a [`Policy`] that is installed once in a process; [`Attention`] sets how much is reported to it. At
//! [`Attention::Nothing`] a hook costs one load and one branch; it counts, stamps and delays nothing.
//!
//! The instruments, most useful first:
//! - [`progress!`]: counts one unit of the program's progress; [`begin!`] and [`end!`] around a unit measure its
//!   latency.
//! - [`span!`]: a named section of work, which the profiler can measure and speed up virtually.
//! - [`sync`] and [`thread`]: drop-in replacements for the standard library's modules, which report each happens-before
//!   edge between threads. A program that uses them instead of `std`'s needs no other synchronisation hooks.
//! - The free functions: the same hooks for custom primitives, event loops and external peers.
//!
//! ```
//!
//! fn serve() {
//!     {
//!         let _parsing = progress::span!("parse");
//!         // …
//!     }
//!     progress::progress!("request");
//! }
//! # serve();
//! ```
//!
//! A custom primitive reports which event made a thread continue: the sender stamps the message before it sends it; the
//! receiver passes the stamp to [`after_receive`], with the time for which it was blocked.
//!
//! ```
//! use progress::{Stamp, after_receive, before_send};
//! use std::time::{Duration, Instant};
//!
//! struct Letter(Stamp, String);
//!
//! fn send(text: String, put: impl Fn(Letter)) {
//!     let mut stamp = Stamp::default();
//!     before_send(&mut stamp);
//!     put(Letter(stamp, text));
//! }
//!
//! fn receive(try_take: impl Fn() -> Option<Letter>, wait: impl Fn() -> Letter) -> String {
//!     let (letter, blocked) = match try_take() {
//!         Some(letter) => (letter, Duration::ZERO),
//!         None => {
//!             let began = Instant::now();
//!             (wait(), began.elapsed())
//!         }
//!     };
//!     after_receive(letter.0, blocked);
//!     letter.1
//! }
//! # let box_ = std::cell::RefCell::new(None);
//! # send("x".into(), |letter| *box_.borrow_mut() = Some(letter));
//! # assert_eq!(receive(|| box_.take(), || unreachable!()), "x");
//! ```
//!
//! - `account`: the state of each thread; `log`: the entries that a thread writes for the profiler.
//! - `span`, `point`, `stamp`: measured sections, progress counters, and the value that a message carries.
//! - `span_stack`: the open spans and synchronisation sites of a thread; `site`: synchronisation sites as spans;
//!   `blocked`: a blocked thread; `task_wait`: a task's wait without hooks.
//! - `hooks`: the policy and the functions that reach it.
//! - [`sync`], [`thread`]: std's modules, with hooks.

mod account;
mod blocked;
mod hooks;
mod log;
mod point;
mod site;
mod span;
mod span_stack;
mod stamp;
pub mod sync;
mod task_wait;
pub mod thread;

pub use account::{Account, accounts, current, register_thread};
pub use hooks::{
    Attention, Policy, after_block, after_queue, after_receive, answered, arrived, at, before_block, before_lock,
    before_send, before_unlock, before_write, called, hold, install, is_active, is_policy_called, lock_acquired,
    set_attention, sleep_began, sleep_ended, worker_began,
};
pub use log::{ENTRIES_MAX, Entry, Log};
pub use point::{Point, Visit, point_names};
pub use span::{Entered, Leased, NamePin, Span, span_names, stage};
pub use span_stack::{ContextStep, recompute_kinds, steps};
pub use stamp::{Lock, Sharing, Stamp};
pub use task_wait::TaskWait;
