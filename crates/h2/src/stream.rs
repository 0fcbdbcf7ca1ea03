//! One stream.
//!
//! The states of RFC 9113 §5.1 are two halves here, since each direction ends on its own:
//! ```text
//!                    │ HEADERS
//!                    ▼
//!   remote:  Open ──END_STREAM──► Done
//!   local:   HeadPending ──head──► Sized │ Stream │ Tunnel ──END_STREAM──► Ended ──finish──► Finished
//!
//!   open                = Open, not Ended          half-closed (remote) = Done, not Ended
//!   half-closed (local) = Open, Ended or Finished  closed               = Done, Ended; or no longer in the table
//! ```
//! A stream leaves the table when its remote half is `Done` and its local half `Finished`, or when either side resets
//! it.

use crate::priority::Priority;
use crate::window::{ReceiveWindow, Window};

#[cfg(test)]
const _: () = assert!(size_of::<Stream>() <= 72);

/// The highest stream identifier (RFC 9113 §5.1.1).
pub(crate) const STREAM_MAX: u32 = 0x7fff_ffff;

#[derive(Clone, Debug)]
pub(crate) struct Stream {
    pub(crate) id: u32,
    pub(crate) send: Window,
    pub(crate) receive: ReceiveWindow,
    /// Bytes passed to the driver and not released yet.
    pub(crate) unread: u32,
    pub(crate) priority: Priority,
    /// The turn in which the stream last sent content.
    pub(crate) turn: u32,
    pub(crate) remote: Remote,
    pub(crate) local: Local,
    pub(crate) kind: RequestKind,
    /// Size of the decoded request head; 0 in the client's role.
    pub(crate) head_bytes: u32,
}

/// The peer's half of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Remote {
    /// More content may follow: the rest of the declared Content-Length, or any length.
    Open(Option<u64>),
    Done,
}

/// Our half of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Local {
    /// The final head has not been sent.
    HeadPending,
    /// Declared content, of which `left` bytes are to be sent. `ends`: the last of them carries END_STREAM; otherwise
    /// trailers may follow.
    Sized {
        left: u64,
        ends: bool,
    },
    Stream,
    Tunnel,
    /// END_STREAM has been sent; further content from the driver is dropped.
    Ended,
    Finished,
}

/// The properties of a request that decide how its response is framed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RequestKind {
    pub(crate) is_head: bool,
    pub(crate) is_connect: bool,
    /// The peer waits for a 100 that has not been sent.
    pub(crate) expects_continue: bool,
    /// In the client's role: the final head has not been received.
    pub(crate) awaits_head: bool,
}

impl Stream {
    /// Whether no further frame may be sent or received on it, from the peer's view.
    pub(crate) fn is_closed(&self) -> bool {
        self.remote == Remote::Done && self.is_ended()
    }

    /// Whether our END_STREAM has been sent.
    #[inline]
    pub(crate) fn is_ended(&self) -> bool {
        matches!(self.local, Local::Ended | Local::Finished)
    }
}

/// The open streams. Usually a few, looked up one after another: the index of the last hit is tried first, then the
/// next one, then a linear scan.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    all: Vec<Stream>,
    hint: std::cell::Cell<u32>,
    /// The sum of their heads' sizes.
    heads_bytes: u64,
}

/// An idle connection keeps memory for this many streams, 2.3 KB: about one page's requests, so that the next page
/// allocates no memory.
const SPARE_STREAMS_MAX: usize = 32;

impl Streams {
    #[inline]
    pub(crate) fn find(&self, id: u32) -> Option<usize> {
        let hint = self.hint.get() as usize;
        // A driver usually visits the streams in table order.
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
        // The new stream is usually looked up next.
        self.hint.set(self.all.len() as u32);
        self.heads_bytes += u64::from(stream.head_bytes);
        self.all.push(stream);
    }

    pub(crate) fn remove(&mut self, id: u32) -> Option<Stream> {
        let at = self.find(id)?;
        // The order of the table has no meaning; see `Rotation` for the order of sending.
        let stream = self.all.swap_remove(at);
        self.heads_bytes -= u64::from(stream.head_bytes);
        if self.all.is_empty() && self.all.capacity() > SPARE_STREAMS_MAX {
            self.all = Vec::new();
        }
        Some(stream)
    }

    pub(crate) fn clear(&mut self) {
        self.all = Vec::new();
        self.heads_bytes = 0;
    }

    /// The sum of the decoded heads' sizes in bytes.
    pub(crate) fn heads_bytes(&self) -> u64 {
        self.heads_bytes
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Number of streams that count against the limit: all except those that are closed from the peer's view.
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
