//! [`std::sync::mpsc`]: channels that report which thread waits for which.
//!
//! A message carries its sender's stamp. A free slot of a bounded channel carries the receiver's stamp back to the
//! sender that takes it: so the profiler sees that a sender on a full channel waits for the receiver.
//!
//! ```
//! use progress::{sync::mpsc, thread};
//!
//! let (sender, receiver) = mpsc::sync_channel(1);
//! let producer = thread::spawn(move || (0..3).try_for_each(|number| sender.send(number)));
//! assert_eq!(receiver.iter().sum::<i32>(), 3);
//! producer.join().unwrap().unwrap();
//! ```
//!
//! - `bounded`: a channel with a fixed number of slots.
//! - `receiver`: the receiving end of both kinds of channel.

mod bounded;
mod receiver;

use std::fmt;
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
pub use std::sync::mpsc::{RecvError, RecvTimeoutError, SendError, TryRecvError, TrySendError};

use bounded::Bounded;
use receiver::ReceiverKind;
pub use receiver::{IntoIter, Iter, Receiver, TryIter};

use crate::hooks;
use crate::site::{self, SyncOp};
use crate::span::wake_if;
use crate::stamp::{Stamp, StampCell};

/// A value, and its sender's stamp.
struct StampedValue<T> {
    stamp: Stamp,
    value: T,
}

/// An unbounded channel: [`std::sync::mpsc::channel`].
#[must_use]
pub fn channel<T>() -> (Sender<T>, Receiver<T>) {
    let (inner, receiver) = std::sync::mpsc::channel();
    let shared = Arc::<UnboundedState>::default();
    (Sender { inner, shared: Arc::clone(&shared) }, Receiver::of(ReceiverKind::Unbounded { inner: receiver, shared }))
}

/// A channel of `bound` slots; with 0, a sender blocks until its message is taken: [`std::sync::mpsc::sync_channel`].
#[must_use]
pub fn sync_channel<T>(bound: usize) -> (SyncSender<T>, Receiver<T>) {
    let channel = Arc::new(Bounded::new(bound));
    (SyncSender { channel: Arc::clone(&channel) }, Receiver::of(ReceiverKind::Bounded(channel)))
}

/// [`std::sync::mpsc::Sender`], whose messages are stamped.
pub struct Sender<T> {
    inner: std::sync::mpsc::Sender<StampedValue<T>>,
    shared: Arc<UnboundedState>,
}

/// State of an unbounded channel beside std's.
#[derive(Debug, Default)]
struct UnboundedState {
    /// The stamp of the sender that was dropped last: the channel's end is an event that the receiver waits for.
    gone: StampCell,
    /// Whether the receiver waits; set only while a profile runs.
    is_awaited: AtomicBool,
}

impl<T> Sender<T> {
    /// Sends without blocking.
    ///
    /// # Errors
    /// If the receiver was dropped; the error holds the value.
    #[inline]
    #[track_caller]
    pub fn send(&self, value: T) -> Result<(), SendError<T>> {
        let mut stamp = Stamp::default();
        let mut is_awaited = false;
        if hooks::is_active() {
            hooks::before_send(&mut stamp);
            hooks::at(site::span(SyncOp::Send, Location::caller()));
            // The swap lets one sender per wait pay for the wakeup.
            is_awaited = self.shared.is_awaited.load(Relaxed) && self.shared.is_awaited.swap(false, Relaxed);
        }
        // While no profile runs the stamp is the default one, which carries no value.
        let message = StampedValue { stamp, value };
        wake_if(is_awaited, || self.inner.send(message)).map_err(|SendError(message)| SendError(message.value))
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), shared: Arc::clone(&self.shared) }
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        if hooks::is_active() {
            let mut stamp = Stamp::default();
            hooks::before_send(&mut stamp);
            self.shared.gone.leave(stamp);
        }
    }
}

impl<T> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender").finish_non_exhaustive()
    }
}

/// [`std::sync::mpsc::SyncSender`], whose messages are stamped.
pub struct SyncSender<T> {
    channel: Arc<Bounded<T>>,
}

impl<T> SyncSender<T> {
    /// Sends the value, and blocks until a slot is free; with a bound of 0, until the message is taken.
    ///
    /// # Errors
    /// If the receiver was dropped; the error holds the value.
    #[track_caller]
    pub fn send(&self, value: T) -> Result<(), SendError<T>> {
        self.channel.send(value, Location::caller())
    }

    /// Sends the value if a slot is free; with a bound of 0, if the receiver waits.
    ///
    /// # Errors
    /// If there is no free slot, or the receiver was dropped; the error holds the value.
    #[track_caller]
    pub fn try_send(&self, value: T) -> Result<(), TrySendError<T>> {
        self.channel.try_send(value, Location::caller())
    }
}

impl<T> Clone for SyncSender<T> {
    fn clone(&self) -> Self {
        self.channel.add_sender();
        Self { channel: Arc::clone(&self.channel) }
    }
}

impl<T> Drop for SyncSender<T> {
    fn drop(&mut self) {
        self.channel.remove_sender();
    }
}

impl<T> fmt::Debug for SyncSender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SyncSender").finish_non_exhaustive()
    }
}
