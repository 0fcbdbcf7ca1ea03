//! A connection's transport over TLS after the handshake.
//!
//! Writing: content is sealed straight from the write list's slices into a buffer borrowed from the worker, and sent
//! with one call. When the kernel accepts only a part, the connection keeps the buffer until the rest is sent. The last
//! content byte counts as written only when the kernel has accepted the last sealed byte. So a connection buffers at
//! most [`SEALED_BYTES`](super::SEALED_BYTES), and no exchange ends before its response is sent.
//!
//! Reading: when the driver's block has room for a whole record, records are read into it and opened in place. An
//! incomplete record moves to a block of its own ([`RecordBuffer`]).

use std::cell::Cell;
use std::io::{self, IoSlice};
use std::rc::Rc;
use std::task::{Context as PollContext, Poll, ready};
use std::time::Duration;

use progress::stage;
use tokio::net::TcpStream;

use super::alert;
use super::record::{ALERT_BYTES, Exhausted, RECORD_BYTES_MAX, RecordError};
use super::record_buffer::RecordBuffer;
use super::records::{ReceiveEnd, Records};
use crate::transport::{Presence, Received, Transport, write_all};
use crate::worker::Core;

/// Maximum number of socket reads in one poll that yield no content; then the task yields.
const READS_MAX: usize = 8;
/// Time limit for sending the last record after the transport was dropped.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// A TLS connection's transport over another one: a socket, or TLS to a network proxy. The state above it is boxed to
/// keep the connection's state small.
pub(crate) struct TlsStream<T: Transport = TcpStream> {
    /// The socket, or the transport in its place. `Some` until the drop, which may move it to a task that sends the
    /// last record.
    lower: Option<T>,
    state: Box<TlsState>,
}

/// The state above the transport below.
struct TlsState {
    core: Rc<Core>,
    records: Records,
    inbound: RecordBuffer,
    /// The kernel's timestamp of the last received bytes ([`Received::at`]).
    arrived: u64,
    unsent: Option<Unsent>,
    /// A cell, because [`Transport::reset_on_close`] takes `&self`.
    ending: Cell<Ending>,
}

/// The state of our sending side's end.
///
/// ```text
///  Open ── shutdown ──► Waiting ── close_notify sent ──► Over
///    └── reset, alert, or shutdown with content unsent ───┘
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    /// Content may be sent.
    Open,
    /// The close_notify is sealed but not sent, because the socket's send buffer is full.
    Waiting,
    /// The connection sends no further record: the close_notify or a fatal alert is sent, or the close is a reset.
    Over,
}

/// Sealed bytes, `start..end` of `bytes`, that the kernel has not accepted yet.
struct Unsent {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
    /// Content bytes in them that `poll_write` has not yet reported as written.
    content: usize,
}

impl From<RecordError> for io::Error {
    fn from(_: RecordError) -> Self {
        io::ErrorKind::InvalidData.into()
    }
}

impl From<Exhausted> for io::Error {
    fn from(_: Exhausted) -> Self {
        io::ErrorKind::WriteZero.into()
    }
}

impl<T: Transport> TlsStream<T> {
    /// Creates the transport after a handshake; `inbound` holds bytes that were received after it.
    pub(super) fn new(core: Rc<Core>, lower: T, records: Records, inbound: RecordBuffer) -> Self {
        let ending = Cell::new(Ending::Open);
        let state = Box::new(TlsState { core, records, inbound, arrived: 0, unsent: None, ending });
        Self { lower: Some(lower), state }
    }

    fn parts(&mut self) -> (&mut T, &mut TlsState) {
        (self.lower.as_mut().expect("`Some` until the drop"), &mut self.state)
    }

    /// Sends a fatal alert if the socket accepts it at once, and returns the fault as an error. While other sealed
    /// bytes are unsent, the alert cannot follow them without waiting, so it is omitted.
    #[cold]
    fn refuse(&mut self, fault: RecordError) -> io::Error {
        let (lower, state) = self.parts();
        if state.ending.replace(Ending::Over) == Ending::Open && state.unsent.is_none() {
            let mut record = [0; ALERT_BYTES];
            if let Ok(len) = state.records.seal_alert(alert::FATAL, fault.0, &mut record) {
                let _ = lower.try_write(&record[..len]);
            }
        }
        fault.into()
    }
}

impl TlsState {
    /// Fills `room` with kept content, then with content of complete records in `inbound`. Returns the number of bytes.
    fn take_content(&mut self, room: &mut [u8]) -> usize {
        let mut filled = self.inbound.take_plain(room);
        if self.inbound.sealed().is_empty() {
            return filled;
        }
        let _span = stage::TLS.enter();
        // One record at a time: a record's content stays in `inbound` until it is taken, so the next record stays
        // sealed while `room` is full.
        while filled < room.len()
            && let Some(len) = self.records.whole(self.inbound.sealed())
        {
            match self.records.open(&mut self.inbound.sealed_mut()[..len]) {
                Some(content) => {
                    self.inbound.opened(len, content);
                    filled += self.inbound.take_plain(&mut room[filled..]);
                }
                None => self.inbound.consume(len),
            }
        }
        filled
    }

    /// Opens the complete records in `bytes` in place and moves their content to the front. Returns the content's
    /// length. An incomplete record at the end moves to `inbound`.
    fn open_in_place(&mut self, bytes: &mut [u8]) -> usize {
        let _span = stage::TLS.enter();
        let (mut at, mut filled) = (0, 0);
        while let Some(len) = self.records.whole(&bytes[at..]) {
            if let Some(content) = self.records.open(&mut bytes[at..at + len]) {
                // Content is shorter than its record, so it never overwrites bytes that are still sealed.
                bytes.copy_within(at + content.start..at + content.end, filled);
                filled += content.len();
            }
            at += len;
        }
        if self.records.end().is_none() && at < bytes.len() {
            self.inbound.keep_sealed(&bytes[at..], &self.core.memory.blocks);
        }
        filled
    }

    /// Seals content from the front of `slices` into a buffer borrowed from the worker.
    fn seal(&mut self, slices: &[IoSlice<'_>]) -> Result<Unsent, Exhausted> {
        let _span = stage::TLS.enter();
        let mut bytes = self.core.memory.take_sealed();
        let (content, end) = self.records.seal(slices, &mut bytes)?;
        Ok(Unsent { bytes, start: 0, end, content })
    }

    /// Sends a pending no_renegotiation warning now, unless content is unsent; then a later call sends it.
    #[cold]
    fn poll_warn(&mut self, lower: &mut impl Transport, poll_cx: &mut PollContext<'_>) -> Poll<io::Result<()>> {
        if self.records.must_warn() && self.unsent.is_none() && self.ending.get() == Ending::Open {
            let mut bytes = self.core.memory.take_sealed();
            let end = self.records.seal_warning(&mut bytes)?;
            self.unsent = Some(Unsent { bytes, start: 0, end, content: 0 });
        }
        if self.is_warning_unsent() {
            ready!(self.poll_send(lower, poll_cx))?;
        }
        Poll::Ready(Ok(()))
    }

    /// Returns whether the unsent bytes are a warning, not content.
    fn is_warning_unsent(&self) -> bool {
        self.ending.get() == Ending::Open && self.unsent.as_ref().is_some_and(|unsent| unsent.content == 0)
    }

    /// Sends sealed bytes. `Ready` holds the number of content bytes that now count as written.
    fn poll_send(&mut self, lower: &mut impl Transport, poll_cx: &mut PollContext<'_>) -> Poll<io::Result<usize>> {
        while let Some(unsent) = &mut self.unsent {
            let slice = IoSlice::new(&unsent.bytes[unsent.start..unsent.end]);
            let sent = ready!(lower.poll_write(poll_cx, &[slice]))?;
            unsent.start += sent;
            if unsent.start == unsent.end {
                let content = unsent.content;
                if let Some(unsent) = self.unsent.take() {
                    self.core.memory.put_sealed(unsent.bytes);
                }
                return Poll::Ready(Ok(content));
            }
            // Partial progress is reported, so that the write timeout does not end a slow peer that still reads. The
            // last content byte is held back until all is sent: the driver ends the exchange when it is written.
            let reported = sent.min(unsent.content.saturating_sub(1));
            if reported > 0 {
                unsent.content -= reported;
                return Poll::Ready(Ok(reported));
            }
        }
        Poll::Ready(Ok(0))
    }

    /// Sends the close_notify, then shuts down the socket's sending side.
    fn poll_close(&mut self, lower: &mut impl Transport, poll_cx: &mut PollContext<'_>) -> Poll<io::Result<()>> {
        if self.is_warning_unsent() {
            ready!(self.poll_send(lower, poll_cx))?;
        }
        if self.ending.get() == Ending::Open {
            if self.unsent.is_some() {
                // Unsent content is about to be dropped. Without close_notify the peer detects the truncation.
                self.ending.set(Ending::Over);
                return Poll::Ready(Ok(()));
            }
            let mut bytes = self.core.memory.take_sealed();
            let end = self.records.seal_alert(alert::WARNING, alert::CLOSE_NOTIFY, &mut bytes)?;
            self.unsent = Some(Unsent { bytes, start: 0, end, content: 0 });
            self.ending.set(Ending::Waiting);
        }
        while self.ending.get() == Ending::Waiting {
            ready!(self.poll_send(lower, poll_cx))?;
            if self.unsent.is_none() {
                self.ending.set(Ending::Over);
                ready!(lower.poll_shutdown(poll_cx))?;
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl<T: Transport> Transport for TlsStream<T> {
    fn poll_read(&mut self, poll_cx: &mut PollContext<'_>, room: &mut [u8]) -> Poll<io::Result<Received>> {
        for _ in 0..READS_MAX {
            let (lower, state) = self.parts();
            if state.ending.get() == Ending::Waiting {
                // During shutdown the driver only polls reads, so the read path drives the pending close_notify.
                let _ = state.poll_close(lower, poll_cx)?;
            }
            let filled = state.take_content(room);
            if state.records.must_warn() || state.is_warning_unsent() {
                let _ = state.poll_warn(lower, poll_cx)?;
            }
            if filled > 0 {
                return Poll::Ready(Ok(Received { bytes: filled, at: state.arrived }));
            }
            match state.records.end() {
                // TCP's end without close_notify counts as the peer's end too: complete requests are still answered,
                // and `is_cut` lets the driver detect a truncated message.
                Some(ReceiveEnd::CloseNotify | ReceiveEnd::Cut) => return Poll::Ready(Ok(Received::default())),
                Some(ReceiveEnd::PeerAborted(description)) => {
                    // The peer has aborted and would not read an alert.
                    state.ending.set(Ending::Over);
                    let reason = rustls::Error::AlertReceived(description.into());
                    return Poll::Ready(Err(io::Error::new(io::ErrorKind::ConnectionAborted, reason)));
                }
                Some(ReceiveEnd::Fault(fault)) => return Poll::Ready(Err(self.refuse(fault))),
                None => {}
            }
            // The fast path reads straight into the driver's room. It needs room for a whole record, and an empty
            // `inbound`, since bytes of an earlier record must precede the new ones.
            let filled = if state.inbound.is_empty() && room.len() >= RECORD_BYTES_MAX {
                state.inbound.release_block();
                let received = ready!(lower.poll_read(poll_cx, room))?;
                state.arrived = received.at;
                if received.bytes == 0 {
                    state.records.handle_eof();
                }
                state.open_in_place(&mut room[..received.bytes])
            } else {
                match state.inbound.poll_fill(lower, &state.core.memory.blocks, poll_cx)? {
                    Poll::Ready(Received { bytes: 0, .. }) => state.records.handle_eof(),
                    Poll::Ready(received) => state.arrived = received.at,
                    Poll::Pending => {
                        state.inbound.release_block();
                        return Poll::Pending;
                    }
                }
                0
            };
            if filled > 0 {
                return Poll::Ready(Ok(Received { bytes: filled, at: state.arrived }));
            }
        }
        // Only records without content, or parts of one record: yields, so that one connection cannot occupy the
        // worker.
        poll_cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn set_timestamps(&self, on: bool) {
        if let Some(lower) = &self.lower {
            lower.set_timestamps(on);
        }
    }

    fn poll_write(&mut self, poll_cx: &mut PollContext<'_>, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let (lower, state) = self.parts();
        if state.is_warning_unsent() {
            ready!(state.poll_send(lower, poll_cx))?;
        }
        if state.unsent.is_none() {
            // Seals only when the socket is writable; otherwise each waiting connection would hold a buffer of sealed
            // bytes.
            ready!(lower.poll_write_ready(poll_cx))?;
            state.unsent = Some(state.seal(slices)?);
        }
        let reported = ready!(state.poll_send(lower, poll_cx))?;
        if state.records.must_warn() {
            let _ = state.poll_warn(lower, poll_cx)?;
        }
        Poll::Ready(Ok(reported))
    }

    fn poll_write_ready(&mut self, poll_cx: &mut PollContext<'_>) -> Poll<io::Result<()>> {
        let (lower, state) = self.parts();
        if state.is_warning_unsent() {
            ready!(state.poll_send(lower, poll_cx))?;
        }
        lower.poll_write_ready(poll_cx)
    }

    fn poll_shutdown(&mut self, poll_cx: &mut PollContext<'_>) -> Poll<io::Result<()>> {
        let (lower, state) = self.parts();
        state.poll_close(lower, poll_cx)
    }

    fn is_cut(&self) -> bool {
        self.state.records.end() == Some(ReceiveEnd::Cut)
    }

    fn presence(&self) -> Presence {
        self.lower.as_ref().expect("`Some` until the drop").presence()
    }

    fn reset_on_close(&self) {
        self.state.ending.set(Ending::Over);
        if let Some(lower) = &self.lower {
            lower.reset_on_close();
        }
    }

    fn raise_unsent_limit(&self) {
        if let Some(lower) = &self.lower {
            lower.raise_unsent_limit();
        }
    }
}

impl<T: Transport> Drop for TlsStream<T> {
    /// Sends close_notify even when the connection was dropped without a shutdown: without it a peer may treat a
    /// complete response as truncated.
    fn drop(&mut self) {
        let (Some(mut lower), state) = (self.lower.take(), &mut *self.state) else { return };
        let mut record = [0; ALERT_BYTES];
        // With content unsent there is no close_notify, as in `poll_close`; a partly sent close_notify is completed.
        let left = match (state.ending.get(), &state.unsent) {
            (Ending::Open, None) => {
                let Ok(len) = state.records.seal_alert(alert::WARNING, alert::CLOSE_NOTIFY, &mut record) else {
                    return;
                };
                &record[..len]
            }
            (Ending::Waiting, Some(unsent)) => &unsent.bytes[unsent.start..unsent.end],
            _ => return,
        };
        match lower.try_write(left) {
            Ok(sent) if sent == left.len() => {}
            Ok(sent) => send_late(&state.core, lower, left[sent..].to_vec()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => send_late(&state.core, lower, left.to_vec()),
            Err(_) => {}
        }
    }
}

/// Spawns a task that sends the last record of a dropped connection when the socket's send buffer has room. Does
/// nothing when the worker is ending.
#[cold]
fn send_late(core: &Core, mut lower: impl Transport, record: Vec<u8>) {
    if core.lifecycle.is_closed() {
        return;
    }
    tokio::task::spawn_local(async move {
        // Best effort: after the timeout the socket closes without the record.
        let _ = tokio::time::timeout(CLOSE_TIMEOUT, write_all(&mut lower, &record)).await;
    });
}
