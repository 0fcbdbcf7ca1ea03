//! [`std::sync::mpsc`]: channels that tell who waits for whom.
//!
//! A message carries its sender's stamp. In a bounded channel the places are messages too, from the receiver to the senders: a
//! sender that finds the channel full waits for the receiver, and the profiler knows it.
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
//! - `bounded`: a channel that has so many places.
//! - `receiver`: the end that both kinds of channel share.

mod bounded;
mod receiver;

use std::fmt;
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
pub use std::sync::mpsc::{RecvError, RecvTimeoutError, SendError, TryRecvError, TrySendError};

use bounded::Bounded;
use receiver::Way;
pub use receiver::{IntoIter, Iter, Receiver, TryIter};

use crate::hooks;
use crate::site::{self, Deed};
use crate::span::wake_if;
use crate::stamp::{Note, Stamp};

/// What is sent, and by whom.
struct Message<T> {
    stamp: Stamp,
    value: T,
}

/// A channel that takes whatever is sent: [`std::sync::mpsc::channel`].
#[must_use]
pub fn channel<T>() -> (Sender<T>, Receiver<T>) {
    let (inner, receiver) = std::sync::mpsc::channel();
    let shared = Arc::<Shared>::default();
    (Sender { inner, shared: Arc::clone(&shared) }, Receiver::of(Way::Unbounded { inner: receiver, shared }))
}

/// A channel with so many places; without any, a sender waits until its message is taken: [`std::sync::mpsc::sync_channel`].
#[must_use]
pub fn sync_channel<T>(bound: usize) -> (SyncSender<T>, Receiver<T>) {
    let channel = Arc::new(Bounded::new(bound));
    (SyncSender { channel: Arc::clone(&channel) }, Receiver::of(Way::Bounded(channel)))
}

/// [`std::sync::mpsc::Sender`].
pub struct Sender<T> {
    inner: std::sync::mpsc::Sender<Message<T>>,
    shared: Arc<Shared>,
}

/// What both ends of an unbounded channel have besides std's.
#[derive(Debug, Default)]
struct Shared {
    /// What the last sender said when it went: the end of the channel is a message too.
    gone: Note,
    /// Whether the receiver waits, as far as it began to while a profile ran.
    is_awaited: AtomicBool,
}

impl<T> Sender<T> {
    /// Sends without waiting.
    ///
    /// # Errors
    /// When the receiver is gone; the error has the value.
    #[inline]
    #[track_caller]
    pub fn send(&self, value: T) -> Result<(), SendError<T>> {
        let mut stamp = Stamp::default();
        let mut is_awaited = false;
        if hooks::is_active() {
            hooks::before_send(&mut stamp);
            hooks::at(site::span(Deed::Send, Location::caller()));
            // Once for each time that it waits.
            is_awaited = self.shared.is_awaited.load(Relaxed) && self.shared.is_awaited.swap(false, Relaxed);
        }
        let message = Message { stamp, value };
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

/// [`std::sync::mpsc::SyncSender`].
pub struct SyncSender<T> {
    channel: Arc<Bounded<T>>,
}

impl<T> SyncSender<T> {
    /// Sends, and waits for a place; in a channel without places, until the message is taken.
    ///
    /// # Errors
    /// When the receiver is gone; the error has the value.
    #[track_caller]
    pub fn send(&self, value: T) -> Result<(), SendError<T>> {
        self.channel.send(value, Location::caller())
    }

    /// Sends if there is a place; in a channel without places, if the receiver waits.
    ///
    /// # Errors
    /// When there is none, or the receiver is gone; the error has the value.
    #[track_caller]
    pub fn try_send(&self, value: T) -> Result<(), TrySendError<T>> {
        self.channel.try_send(value, Location::caller())
    }
}

impl<T> Clone for SyncSender<T> {
    fn clone(&self) -> Self {
        self.channel.sender_came();
        Self { channel: Arc::clone(&self.channel) }
    }
}

impl<T> Drop for SyncSender<T> {
    fn drop(&mut self) {
        self.channel.sender_went();
    }
}

impl<T> fmt::Debug for SyncSender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SyncSender").finish_non_exhaustive()
    }
}
