//! Progress points, spans and synchronisation hooks: what a program tells the causal profiler about itself.
//!
//! A profiler is a [`Policy`] that is installed once in a process, and [`Attention`] says how much it hears. While that is nothing a
//! hook is one load and one branch; nothing is counted, stamped or slowed.
//!
//! What a program says, most useful first:
//! - [`progress!`]: one unit of what the program is there for was done; [`begin!`] and [`end!`] around it say how long it took.
//! - [`span!`]: a stretch of work by name, which the profiler can measure and speed up virtually.
//! - [`sync`] and [`thread`]: the standard library's, which tell the profiler who waits for whom. A program that uses these
//!   instead of `std`'s gets right results without another word.
//! - The free functions: the same for those who have primitives of their own, an event loop, or a world outside.
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
//! Who has a primitive of his own says who goes on because of whom: the sender stamps the message before it leaves, and the
//! receiver hands the stamp in when it has the message, with the time for which it stood still.
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
//! - `account`: what is kept for each thread; `log`: what a thread writes down for the profiler.
//! - `span`, `point`, `stamp`: what is measured, what is counted, and what travels with a message.
//! - `open`: where a thread is; `site`: places where threads meet, as spans; `standstill`: a thread that waits.
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
    Attention, Policy, after_block, after_receive, answered, arrived, at, attend, before_block, before_lock,
    before_send, before_unlock, called, hold, install, is_active, is_heard, lock_acquired, sleep_began, sleep_ended,
    worker_began, written,
};
pub use log::{ENTRIES_MAX, Entry, Log};
pub use open::{Step, retell, steps};
pub use point::{Point, Visit, points};
pub use span::{Entered, Span, spans, stage};
pub use stamp::{Lock, Sharing, Stamp};
