//! [`std::sync::mpsc::Receiver`] for both kinds of channel.

use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;
use std::panic::{Location, RefUnwindSafe, UnwindSafe};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use super::bounded::{Bounded, QueuedMessage, SlotRelease, Until};
use super::{RecvError, RecvTimeoutError, StampedValue, TryRecvError, UnboundedState};
use crate::blocked::BlockedScope;
use crate::hooks;
use crate::site::{self, SyncOp};
use crate::stamp::Stamp;

/// [`std::sync::mpsc::Receiver`], which reports waits to the profiler.
pub struct Receiver<T> {
    kind: ReceiverKind<T>,
    /// Makes it `!Sync`, as std's is.
    not_sync: PhantomData<Cell<()>>,
}

pub(super) enum ReceiverKind<T> {
    Unbounded { inner: std::sync::mpsc::Receiver<StampedValue<T>>, shared: Arc<UnboundedState> },
    Bounded(Arc<Bounded<T>>),
}

impl<T> Receiver<T> {
    pub(super) fn of(kind: ReceiverKind<T>) -> Self {
        Self { kind, not_sync: PhantomData }
    }

    /// Blocks until a message arrives.
    ///
    /// # Errors
    /// If the channel is empty and all senders were dropped.
    #[inline]
    #[track_caller]
    pub fn recv(&self) -> Result<T, RecvError> {
        self.receive(Until::Forever, Location::caller()).map_err(|_| RecvError)
    }

    /// Blocks until a message arrives, for at most `timeout`.
    ///
    /// # Errors
    /// If the timeout expires, or the channel is empty and all senders were dropped.
    #[track_caller]
    pub fn recv_timeout(&self, timeout: Duration) -> Result<T, RecvTimeoutError> {
        // A timeout past the end of the clock is no bound.
        let until = Instant::now().checked_add(timeout).map_or(Until::Forever, Until::Time);
        self.receive(until, Location::caller())
    }

    /// Takes a queued message, without blocking.
    ///
    /// # Errors
    /// If the channel is empty; its variant shows whether all senders were dropped.
    #[inline]
    #[track_caller]
    pub fn try_recv(&self) -> Result<T, TryRecvError> {
        let taken = if hooks::is_active() {
            self.take_profiled(Location::caller())
        } else {
            self.kind.take(Until::Now, SlotRelease::Free).map(|taken| taken.value)
        };
        taken.map_err(|missed| match missed {
            RecvTimeoutError::Timeout => TryRecvError::Empty,
            RecvTimeoutError::Disconnected => TryRecvError::Disconnected,
        })
    }

    /// Iterates over the messages, and blocks for each, until all senders were dropped.
    pub fn iter(&self) -> Iter<'_, T> {
        Iter { receiver: self }
    }

    /// Iterates over the queued messages, without blocking.
    pub fn try_iter(&self) -> TryIter<'_, T> {
        TryIter { receiver: self }
    }

    #[inline]
    fn receive(&self, until: Until, call_site: &'static Location<'static>) -> Result<T, RecvTimeoutError> {
        if hooks::is_active() {
            return self.receive_profiled(until, call_site);
        }
        self.kind.take(until, SlotRelease::Free).map(|taken| taken.value)
    }

    /// Takes a queued message while a profile runs.
    #[cold]
    fn take_profiled(&self, call_site: &'static Location<'static>) -> Result<T, RecvTimeoutError> {
        match self.kind.take(Until::Now, SlotRelease::Keep) {
            Ok(taken) => Ok(self.took(taken, Duration::ZERO, call_site)),
            Err(RecvTimeoutError::Timeout) => Err(RecvTimeoutError::Timeout),
            Err(RecvTimeoutError::Disconnected) => Err(self.ended(Duration::ZERO, call_site)),
        }
    }

    #[cold]
    // An attempt first, so that a queued message is not reported as a wait.
    fn receive_profiled(&self, until: Until, call_site: &'static Location<'static>) -> Result<T, RecvTimeoutError> {
        match self.take_profiled(call_site) {
            Err(RecvTimeoutError::Timeout) => {}
            there => return there,
        }
        let mut timer = Stamp::default();
        if matches!(until, Until::Time(_)) {
            hooks::sleep_began(&mut timer);
        }
        self.kind.set_awaited(true);
        // From here the thread does no kind of work.
        let scope = BlockedScope::begin();
        let taken = self.kind.take(until, SlotRelease::Keep);
        let blocked = scope.end();
        self.kind.set_awaited(false);
        match taken {
            Ok(taken) => Ok(self.took(taken, blocked, call_site)),
            Err(RecvTimeoutError::Disconnected) => Err(self.ended(blocked, call_site)),
            Err(RecvTimeoutError::Timeout) => {
                hooks::sleep_ended(timer, blocked);
                hooks::at(site::span(SyncOp::Receive, call_site));
                Err(RecvTimeoutError::Timeout)
            }
        }
    }

    /// Reports a message that was taken. Frees its slot, if it has one, with a stamp: that is a message to a sender.
    fn took(&self, taken: QueuedMessage<T>, blocked: Duration, call_site: &'static Location<'static>) -> T {
        hooks::after_receive(taken.stamp, blocked);
        if let ReceiverKind::Bounded(channel) = &self.kind {
            let mut stamp = Stamp::default();
            // A freed slot is a message from the receiver to a sender, and needs a stamp of its own.
            hooks::before_send(&mut stamp);
            channel.free_slot(taken.ticket, stamp);
        }
        hooks::at(site::span(SyncOp::Receive, call_site));
        taken.value
    }

    /// Reports the channel's end, with the stamp of the last dropped sender.
    fn ended(&self, blocked: Duration, call_site: &'static Location<'static>) -> RecvTimeoutError {
        let stamp = match &self.kind {
            ReceiverKind::Unbounded { shared, .. } => shared.gone.read(),
            ReceiverKind::Bounded(channel) => channel.senders_gone(),
        };
        hooks::after_receive(stamp, blocked);
        hooks::at(site::span(SyncOp::Receive, call_site));
        RecvTimeoutError::Disconnected
    }
}

impl<T> ReceiverKind<T> {
    /// Marks the receiver of an unbounded channel as waiting, so that a sender can attribute the wakeup; a bounded
    /// channel tracks this itself.
    fn set_awaited(&self, is_awaited: bool) {
        if let Self::Unbounded { shared, .. } = self {
            shared.is_awaited.store(is_awaited, Relaxed);
        }
    }

    fn take(&self, until: Until, release: SlotRelease) -> Result<QueuedMessage<T>, RecvTimeoutError> {
        let inner = match self {
            Self::Bounded(channel) => return channel.take(until, release),
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
        Ok(QueuedMessage { stamp: message.stamp, value: message.value, ticket: 0 })
    }
}

// As in std: a panic cannot leave a channel's state inconsistent.
impl<T> UnwindSafe for Receiver<T> {}
impl<T> RefUnwindSafe for Receiver<T> {}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        if let ReceiverKind::Bounded(channel) = &self.kind {
            channel.drop_receiver();
        }
    }
}

impl<T> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver").finish_non_exhaustive()
    }
}

/// [`std::sync::mpsc::Iter`]: blocks for each message.
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

/// [`std::sync::mpsc::TryIter`]: ends at the first moment without a queued message.
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

/// [`std::sync::mpsc::IntoIter`]: owns the receiver, and blocks for each message.
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
