//! Progress points, spans and synchronisation hooks: what a program tells the causal profiler about itself.
//!
//! A profiler is a [`Policy`] that is installed once in a process and switched on and off while it runs. While it is off a hook is
//! one load and one branch; nothing is counted, stamped or slowed.
//!
//! What a program says, most useful first:
//! - [`progress!`]: one unit of what the program is there for was done; [`begin!`] and [`end!`] around it say how long it took.
//! - [`span!`]: a stretch of work by name, which the profiler can measure and speed up virtually.
//! - [`sync`] and [`thread`]: the standard library's, which tell the profiler who waits for whom. A program that uses these
//!   instead of `std`'s gets right results without another word.
//! - The free functions: the same for those who have primitives of their own, an event loop, or a world outside.
//!
//! ```
//! use causeway_progress as progress;
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
//! - `account`: what is kept for each thread; `log`: what a thread writes down for the profiler.
//! - `span`, `point`, `stamp`: what is measured, what is counted, and what travels with a message.
//! - `open`: which spans a thread is in; `site`: places where threads meet, as spans; `standstill`: a thread that waits.
//! - `hooks`: the policy and the functions that reach it.
//! - [`sync`], [`thread`]: std's, with hooks.

mod account;
mod hooks;
mod log;
mod open;
mod point;
mod site;
mod span;
mod stamp;
mod standstill;
pub mod sync;
pub mod thread;

pub use account::{Account, accounts, current, on_each_thread};
pub use hooks::{
    Policy, activate, after_block, after_receive, answered, arrived, at, before_block, before_lock, before_send,
    before_unlock, called, hold, install, is_active, lock_acquired, sleep_began, sleep_ended, worker_began, written,
};
pub use log::{ENTRIES_MAX, Entry, Log};
pub use point::{Point, Visit, points};
pub use span::{Entered, Span, spans, stage};
pub use stamp::{Lock, Sharing, Stamp};
