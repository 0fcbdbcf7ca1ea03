//! [`std::sync::mpsc::Receiver`] of either kind of channel.

use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;
use std::panic::{Location, RefUnwindSafe, UnwindSafe};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use super::bounded::{Bounded, Place, Taken, Until};
use super::{Message, RecvError, RecvTimeoutError, Shared, TryRecvError};
use crate::hooks;
use crate::site::{self, Deed};
use crate::stamp::Stamp;
use crate::standstill::Standstill;

/// [`std::sync::mpsc::Receiver`].
pub struct Receiver<T> {
    way: Way<T>,
    /// One thread at a time.
    alone: PhantomData<Cell<()>>,
}

pub(super) enum Way<T> {
    Unbounded { inner: std::sync::mpsc::Receiver<Message<T>>, shared: Arc<Shared> },
    Bounded(Arc<Bounded<T>>),
}

impl<T> Receiver<T> {
    pub(super) fn of(way: Way<T>) -> Self {
        Self { way, alone: PhantomData }
    }

    /// Waits for a message.
    ///
    /// # Errors
    /// When none is there and all senders are gone.
    #[inline]
    #[track_caller]
    pub fn recv(&self) -> Result<T, RecvError> {
        self.receive(Until::Forever, Location::caller()).map_err(|_| RecvError)
    }

    /// Waits for a message, for so long at most.
    ///
    /// # Errors
    /// When the time is over, or none is there and all senders are gone.
    #[track_caller]
    pub fn recv_timeout(&self, timeout: Duration) -> Result<T, RecvTimeoutError> {
        // A time that no clock reaches is no bound.
        let until = Instant::now().checked_add(timeout).map_or(Until::Forever, Until::Time);
        self.receive(until, Location::caller())
    }

    /// Takes a message that is there.
    ///
    /// # Errors
    /// When none is, and whether all senders are gone.
    #[inline]
    #[track_caller]
    pub fn try_recv(&self) -> Result<T, TryRecvError> {
        let taken = if hooks::is_active() {
            self.take_told(Location::caller())
        } else {
            self.way.take(Until::Now, Place::Free).map(|taken| taken.value)
        };
        taken.map_err(|missed| match missed {
            RecvTimeoutError::Timeout => TryRecvError::Empty,
            RecvTimeoutError::Disconnected => TryRecvError::Disconnected,
        })
    }

    /// The messages, as they come, until all senders are gone.
    pub fn iter(&self) -> Iter<'_, T> {
        Iter { receiver: self }
    }

    /// The messages that are there.
    pub fn try_iter(&self) -> TryIter<'_, T> {
        TryIter { receiver: self }
    }

    #[inline]
    fn receive(&self, until: Until, place: &'static Location<'static>) -> Result<T, RecvTimeoutError> {
        if hooks::is_active() {
            return self.receive_told(until, place);
        }
        self.way.take(until, Place::Free).map(|taken| taken.value)
    }

    /// What is there.
    #[cold]
    fn take_told(&self, place: &'static Location<'static>) -> Result<T, RecvTimeoutError> {
        match self.way.take(Until::Now, Place::Keep) {
            Ok(taken) => Ok(self.took(taken, Duration::ZERO, place)),
            Err(RecvTimeoutError::Timeout) => Err(RecvTimeoutError::Timeout),
            Err(RecvTimeoutError::Disconnected) => Err(self.ended(Duration::ZERO, place)),
        }
    }

    #[cold]
    fn receive_told(&self, until: Until, place: &'static Location<'static>) -> Result<T, RecvTimeoutError> {
        match self.take_told(place) {
            Err(RecvTimeoutError::Timeout) => {}
            there => return there,
        }
        let mut timer = Stamp::default();
        if matches!(until, Until::Time(_)) {
            hooks::sleep_began(&mut timer);
        }
        self.way.set_awaited(true);
        let standstill = Standstill::begin();
        let taken = self.way.take(until, Place::Keep);
        let blocked = standstill.end();
        self.way.set_awaited(false);
        match taken {
            Ok(taken) => Ok(self.took(taken, blocked, place)),
            Err(RecvTimeoutError::Disconnected) => Err(self.ended(blocked, place)),
            Err(RecvTimeoutError::Timeout) => {
                hooks::sleep_ended(timer, blocked);
                hooks::at(site::span(Deed::Receive, place));
                Err(RecvTimeoutError::Timeout)
            }
        }
    }

    /// A message was taken; its place, if it has one, becomes free, which is a message too.
    fn took(&self, taken: Taken<T>, blocked: Duration, place: &'static Location<'static>) -> T {
        hooks::after_receive(taken.stamp, blocked);
        if let Way::Bounded(channel) = &self.way {
            let mut stamp = Stamp::default();
            hooks::before_send(&mut stamp);
            channel.give_back(taken.ticket, stamp);
        }
        hooks::at(site::span(Deed::Receive, place));
        taken.value
    }

    /// The last sender has gone, and said so.
    fn ended(&self, blocked: Duration, place: &'static Location<'static>) -> RecvTimeoutError {
        let stamp = match &self.way {
            Way::Unbounded { shared, .. } => shared.gone.read(),
            Way::Bounded(channel) => channel.senders_gone(),
        };
        hooks::after_receive(stamp, blocked);
        hooks::at(site::span(Deed::Receive, place));
        RecvTimeoutError::Disconnected
    }
}

impl<T> Way<T> {
    /// Says whether the receiver waits, so that a sender knows that it wakes it; a bounded channel knows.
    fn set_awaited(&self, is_awaited: bool) {
        if let Self::Unbounded { shared, .. } = self {
            shared.is_awaited.store(is_awaited, Relaxed);
        }
    }

    fn take(&self, until: Until, place: Place) -> Result<Taken<T>, RecvTimeoutError> {
        let inner = match self {
            Self::Bounded(channel) => return channel.take(until, place),
            Self::Unbounded { inner, .. } => inner,
        };
        let message = match until {
            Until::Now => inner.try_recv().map_err(|missed| match missed {
                TryRecvError::Empty => RecvTimeoutError::Timeout,
                TryRecvError::Disconnected => RecvTimeoutError::Disconnected,
            }),
            Until::Time(time) => inner.recv_timeout(time.saturating_duration_since(Instant::now())),
            Until::Forever => inner.recv().map_err(|RecvError| RecvTimeoutError::Disconnected),
        }?;
        Ok(Taken { stamp: message.stamp, value: message.value, ticket: 0 })
    }
}

// As std's: what a panic may leave half done is in no channel.
impl<T> UnwindSafe for Receiver<T> {}
impl<T> RefUnwindSafe for Receiver<T> {}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        if let Way::Bounded(channel) = &self.way {
            channel.receiver_went();
        }
    }
}

impl<T> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver").finish_non_exhaustive()
    }
}

/// [`std::sync::mpsc::Iter`].
#[derive(Debug)]
pub struct Iter<'a, T> {
    receiver: &'a Receiver<T>,
}

impl<T> Iterator for Iter<'_, T> {
    type Item = T;

    #[track_caller]
    fn next(&mut self) -> Option<T> {
        self.receiver.recv().ok()
    }
}

/// [`std::sync::mpsc::TryIter`].
#[derive(Debug)]
pub struct TryIter<'a, T> {
    receiver: &'a Receiver<T>,
}

impl<T> Iterator for TryIter<'_, T> {
    type Item = T;

    #[track_caller]
    fn next(&mut self) -> Option<T> {
        self.receiver.try_recv().ok()
    }
}

/// [`std::sync::mpsc::IntoIter`].
#[derive(Debug)]
pub struct IntoIter<T> {
    receiver: Receiver<T>,
}

impl<T> Iterator for IntoIter<T> {
    type Item = T;

    #[track_caller]
    fn next(&mut self) -> Option<T> {
        self.receiver.recv().ok()
    }
}

impl<'a, T> IntoIterator for &'a Receiver<T> {
    type Item = T;
    type IntoIter = Iter<'a, T>;

    fn into_iter(self) -> Iter<'a, T> {
        self.iter()
    }
}

impl<T> IntoIterator for Receiver<T> {
    type Item = T;
    type IntoIter = IntoIter<T>;

    fn into_iter(self) -> IntoIter<T> {
        IntoIter { receiver: self }
    }
}
