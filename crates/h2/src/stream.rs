//! One stream.
//!
//! RFC 9113 §5.1's states are two halves here, since each side ends by itself:
//! ```text
//!                    │ HEADERS
//!                    ▼
//!   remote:  Open ──END_STREAM──► Done
//!   local:   Owed ──head──► Sized │ Stream │ Tunnel ──END_STREAM──► Ended ──the owner knows──► Finished
//!
//!   open                = Open, not Ended          half-closed (remote) = Done, not Ended
//!   half-closed (local) = Open, Ended or Finished  closed               = Done, Ended; or no longer in the table
//! ```
//! A stream leaves the table when both halves are through and the owner knows, or when either side resets it.

use crate::priority::Priority;
use crate::window::{Receive, Window};

const _: () = assert!(size_of::<Stream>() <= 72);

/// The highest number that a stream may have (RFC 9113 §5.1.1).
pub(crate) const STREAM_MAX: u32 = 0x7fff_ffff;

#[derive(Clone, Debug)]
pub(crate) struct Stream {
    pub(crate) id: u32,
    pub(crate) send: Window,
    pub(crate) receive: Receive,
    /// Octets that the owner has and did not release.
    pub(crate) unread: u32,
    /// About how many DATA frames those are.
    pub(crate) pieces: u16,
    pub(crate) priority: Priority,
    /// When it last had its turn to send.
    pub(crate) turn: u32,
    pub(crate) remote: Remote,
    pub(crate) local: Local,
    pub(crate) kind: Kind,
}

/// The peer's half.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Remote {
    /// More content may come: as much as its Content-Length says is left, or anything.
    Open(Option<u64>),
    Done,
}

/// Our half.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Local {
    /// A final head is owed.
    Owed,
    /// So much of its content is left.
    Sized(u64),
    Stream,
    Tunnel,
    /// END_STREAM has gone out; what the owner still sends is dropped.
    Ended,
    Finished,
}

/// What of the request decides how it is answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Kind {
    pub(crate) is_head: bool,
    pub(crate) is_connect: bool,
    /// The peer waits for a 100 that was not sent.
    pub(crate) expects_continue: bool,
    /// In the client's role: the final head has not come.
    pub(crate) awaits_head: bool,
}

impl Stream {
    /// Nothing may come or go on it any more, as far as the peer knows.
    pub(crate) fn is_closed(&self) -> bool {
        self.remote == Remote::Done && self.is_ended()
    }

    /// Our END_STREAM has gone out.
    #[inline]
    pub(crate) fn is_ended(&self) -> bool {
        matches!(self.local, Local::Ended | Local::Finished)
    }
}

/// The open streams. A handful mostly, and asked for one after the other: the place of the last one is tried first, then the
/// next, then all.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    all: Vec<Stream>,
    hint: std::cell::Cell<u32>,
}

/// Streams that an idle connection keeps memory for, 2.3 KB: as many as a page opens at once, so that the next page allocates nothing.
const IDLE_MAX: usize = 32;

impl Streams {
    #[inline]
    pub(crate) fn find(&self, id: u32) -> Option<usize> {
        let hint = self.hint.get() as usize;
        for at in [hint, hint + 1] {
            if self.all.get(at).is_some_and(|stream| stream.id == id) {
                self.hint.set(at as u32);
                return Some(at);
            }
        }
        let at = self.all.iter().position(|stream| stream.id == id)?;
        self.hint.set(at as u32);
        Some(at)
    }

    #[inline]
    pub(crate) fn get(&self, id: u32) -> Option<&Stream> {
        self.find(id).map(|at| &self.all[at])
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, id: u32) -> Option<&mut Stream> {
        self.find(id).map(|at| &mut self.all[at])
    }

    #[inline]
    pub(crate) fn open(&mut self, stream: Stream) {
        self.hint.set(self.all.len() as u32);
        self.all.push(stream);
    }

    pub(crate) fn remove(&mut self, id: u32) -> Option<Stream> {
        let at = self.find(id)?;
        let stream = self.all.swap_remove(at);
        if self.all.is_empty() && self.all.capacity() > IDLE_MAX {
            self.all = Vec::new();
        }
        Some(stream)
    }

    pub(crate) fn clear(&mut self) {
        self.all = Vec::new();
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// How many count against a limit: all but those whose end is only known to us.
    pub(crate) fn counted(&self) -> usize {
        self.all.iter().filter(|stream| !stream.is_closed()).count()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Stream> {
        self.all.iter()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Stream> {
        self.all.iter_mut()
    }
}
