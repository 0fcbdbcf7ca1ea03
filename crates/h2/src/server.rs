//! One connection in the server's role (RFC 9113).
//!
//! ```text
//! shutdown:  Open ──drain──► Draining ──PING acknowledged, timeout, too many requests──► Last ──no stream──► should_close
//!          └────────── a fault, a timeout, or the peer is gone ──► the input ends (`InputState::Over`)
//! ```
//! - `field_blocks`: handles field blocks

mod field_blocks;

use std::rc::Rc;
use std::time::Instant;

use causeway_message::{
    Chunk, FieldMap, Framing, Head, Method, ResponseHead, StatusCode, StreamId, WaitsFor, WriteList, names,
};

use crate::connection::{Connection, InputStep, Role};
use crate::encode::{self, EndStream, HeadersFrame, Length};
use crate::error::{ConnectionError, ErrorCode};
use crate::event::{Event, Handled};
use crate::frame;
use crate::priority::Priority;
use crate::settings::Settings;
use crate::stream::{Local, Remote, RequestKind, STREAM_MAX};

#[cfg(test)]
const _: () = assert!(size_of::<Server>() <= 512);

/// The payload of the PING that follows the first GOAWAY.
const DRAIN_PING: [u8; 8] = *b"goaway 1";

/// The server's side of one HTTP/2 connection.
///
/// Call [`Server::handle_bytes`] repeatedly with the unconsumed bytes, until it returns neither consumed bytes nor an
/// event. Unconsumed bytes must be passed again, followed by the newly received ones. A frame other than DATA is at
/// most 16 393 bytes long, and is handled when it is complete.
///
/// A stream exists until its request is complete and [`Server::finish`] was called, or until either side resets it
/// ([`Event::Reset`], [`Server::reset`]). Calls for a stream that no longer exists have no effect.
#[derive(Debug)]
pub struct Server {
    connection: Connection,
    shutdown: ShutdownPhase,
    // The peer has closed its sending side.
    eof: bool,
    // The priorities of streams that are not open yet; usually empty.
    early_priorities: Vec<(u32, Priority)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ShutdownPhase {
    Open,
    /// The first GOAWAY was sent, without a last stream.
    Draining {
        /// Number of further requests that may have been in flight; initially the peer's stream limit.
        left: u32,
    },
    /// The last stream was sent in a GOAWAY.
    Last(u32),
}

impl Server {
    /// A new connection, which expects the client preface.
    #[must_use]
    pub fn new(settings: Rc<Settings>) -> Self {
        Self {
            connection: Connection::new(settings, Role::Server),
            shutdown: ShutdownPhase::Open,
            eof: false,
            early_priorities: Vec::new(),
        }
    }

    /// Makes the connection of an HTTP/1.1 `Upgrade: h2c` (RFC 7540 §3.2). The upgrading request is stream 1 and
    /// complete, and is not reported as an event; the client preface follows. `peer_settings` is the decoded
    /// HTTP2-Settings field; `request` is the request's head. Fails if the settings are invalid.
    pub fn upgraded(settings: Rc<Settings>, peer_settings: &[u8], request: &Head) -> Result<Self, ConnectionError> {
        let mut server = Self::new(settings);
        server.connection.apply(peer_settings)?;
        server.connection.note_opened(1);
        let kind = RequestKind { is_head: request.method() == Method::Head, ..RequestKind::default() };
        server.connection.open(1, (kind, 0), Remote::Done, Local::HeadPending, Priority::default());
        Ok(server)
    }

    /// The input that the connection waits for. The driver itself bounds the time for bodies and for closed windows.
    #[must_use]
    pub fn waits_for(&self) -> WaitsFor {
        let connection = &self.connection;
        if connection.is_over() || self.should_close() {
            WaitsFor::Nothing
        } else if connection.is_amid_frame() {
            WaitsFor::Head
        } else if !connection.streams.is_empty() {
            WaitsFor::Nothing
        } else if let ShutdownPhase::Draining { .. } = self.shutdown {
            WaitsFor::Acknowledgement
        } else {
            WaitsFor::KeepAlive
        }
    }

    /// Whether the driver should close the connection once all output is written.
    #[must_use]
    pub fn should_close(&self) -> bool {
        // In `Draining` the connection stays open: requests may still be in flight.
        let is_ending = self.eof || matches!(self.shutdown, ShutdownPhase::Last(_));
        self.connection.is_over() || is_ending && self.connection.streams.is_empty()
    }

    /// Whether no further stream will be opened.
    #[must_use]
    pub fn is_last(&self) -> bool {
        self.connection.is_over() || self.eof || matches!(self.shutdown, ShutdownPhase::Last(_))
    }

    /// Whether no stream is open and no byte of a frame is pending.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.connection.streams.is_empty() && self.connection.is_between_frames()
    }

    /// Whether [`Server::send`] accepts content of this stream now: both windows are open, or the content is dropped
    /// because END_STREAM was sent (as for HEAD).
    #[inline]
    #[must_use]
    pub fn writable(&self, stream: StreamId) -> bool {
        self.connection.writable(stream.0)
    }

    /// The sort key of a stream among those that can send; the lowest sends first (RFC 9218). Within an urgency,
    /// incremental streams and the group of all others take turns; in that group the lowest id is first.
    #[inline]
    #[must_use]
    pub fn rank(&self, stream: StreamId) -> u64 {
        self.connection.rank(stream.0)
    }

    /// Number of bytes that a stream may send before it yields to others: 16 KiB if it is incremental, else 64 KiB.
    #[inline]
    #[must_use]
    pub fn quantum(&self, stream: StreamId) -> usize {
        self.connection.quantum(stream.0)
    }

    /// Whether the client waits for a 100 response before it sends the content (RFC 9110 §10.1.1).
    #[must_use]
    pub fn expects_continue(&self, stream: StreamId) -> bool {
        self.connection.streams.get(stream.0).is_some_and(|stream| stream.kind.expects_continue)
    }

    /// Number of streams in the table.
    #[must_use]
    pub fn streams(&self) -> usize {
        self.connection.streams.len()
    }

    /// Bytes of memory that both HPACK tables have allocated.
    #[must_use]
    pub fn table_bytes(&self) -> usize {
        self.connection.decoder.table_bytes() + self.connection.encoder.table_bytes()
    }

    /// Parses bytes from the peer, up to the first event. Fills `head` for [`Event::Head`] and [`Event::Trailers`];
    /// otherwise `head` may be cleared. Writes acknowledgements and resets to `out` directly. `out` is the list of
    /// earlier output or, once that was written whole, a new or cleared one. O(bytes); no allocation once the head's
    /// memory and the tables have grown.
    pub fn handle_bytes(&mut self, now: Instant, input: &[u8], head: &mut Head, out: &mut WriteList) -> Handled {
        self.connection.begin_input(now, out);
        self.connection.send_preface_once(out);
        let mut at = 0;
        loop {
            let event = match self.connection.next(input, &mut at, out) {
                Ok(InputStep::Wait) => return Handled { consumed: at, event: None },
                Ok(InputStep::Done | InputStep::GoAway { .. }) => None,
                Ok(InputStep::Block(block)) => match self.handle_block(&block, head, out) {
                    Ok(event) => event,
                    Err(fault) => return self.fail(fault, input, out),
                },
                Ok(InputStep::Data { stream, range }) => Some(Event::Data { stream: StreamId(stream), range }),
                Ok(InputStep::End(stream)) => Some(Event::End { stream: StreamId(stream) }),
                Ok(InputStep::ShortEnd(stream)) => Some(short_end(StreamId(stream))),
                Ok(InputStep::Reset(stream, _)) => Some(Event::Reset { stream: StreamId(stream) }),
                Ok(InputStep::Pong(payload)) => {
                    // The acknowledgement shows that the peer has received the first GOAWAY.
                    if payload == DRAIN_PING && matches!(self.shutdown, ShutdownPhase::Draining { .. }) {
                        self.send_goaway(out);
                    }
                    None
                }
                Ok(InputStep::IdleStreamPriority(stream, priority)) => {
                    self.store_early_priority(stream, priority);
                    None
                }
                Err(fault) => return self.fail(fault, input, out),
            };
            if event.is_some() {
                return Handled { consumed: at, event };
            }
        }
    }

    /// Handles the peer's end of stream. Call it once [`Server::handle_bytes`] consumes no more of the received
    /// bytes. Complete requests are still answered; if one is incomplete, the connection ends.
    pub fn handle_eof(&mut self) -> Option<Event> {
        if self.connection.is_over() {
            return None;
        }
        self.eof = true;
        // A peer that sent all its requests may still read the responses.
        let is_whole = self.connection.streams.iter().all(|stream| stream.remote == Remote::Done);
        if is_whole && self.connection.is_between_frames() {
            return None;
        }
        let was_open = !self.connection.streams.is_empty();
        self.connection.end();
        was_open.then_some(Event::Broken)
    }

    /// Handles the expiry of the deadline for [`Server::waits_for`]. An incomplete frame ends the connection with an
    /// error. Without a next request, or without an acknowledgement of our PING, the last stream is announced with
    /// NO_ERROR.
    pub fn handle_timeout(&mut self, out: &mut WriteList) -> Option<Event> {
        match self.waits_for() {
            WaitsFor::Head => {
                self.connection.send_preface_once(out);
                self.fail(ConnectionError(ErrorCode::EnhanceYourCalm), &[], out).event
            }
            WaitsFor::KeepAlive | WaitsFor::Acknowledgement => {
                self.send_goaway(out);
                None
            }
            WaitsFor::Body | WaitsFor::Nothing => None,
        }
    }

    /// Begins a graceful shutdown (RFC 9113 §6.8): requests in flight are still accepted, until the peer has received
    /// the first GOAWAY.
    pub fn drain(&mut self, out: &mut WriteList) {
        if self.shutdown == ShutdownPhase::Open && !self.connection.is_over() {
            self.connection.send_preface_once(out);
            self.shutdown = ShutdownPhase::Draining { left: self.connection.settings.streams_max };
            frame::put_goaway(STREAM_MAX, ErrorCode::NoError, out);
            frame::put_ping(0, DRAIN_PING, out);
        }
    }

    /// Releases bytes of a body that its reader has consumed. They are announced to the peer in steps of a quarter
    /// of the window, at most 128 KiB. Bytes that are unread when the stream ends are released automatically.
    pub fn release(&mut self, stream: StreamId, bytes: u32, out: &mut WriteList) {
        self.connection.release(stream.0, bytes, out);
    }

    /// Sends a 100 response if the client waits for it (RFC 9110 §10.1.1); otherwise does nothing.
    pub fn send_continue(&mut self, stream: StreamId, out: &mut WriteList) {
        if self.expects_continue(stream) {
            self.send_interim(stream, StatusCode::CONTINUE, &FieldMap::new(), out);
        }
    }

    /// Sends an interim response, such as 103. Does nothing after the final head, and for 101, which HTTP/2 does not
    /// have (RFC 9113 §8.6).
    pub fn send_interim(&mut self, stream: StreamId, status: StatusCode, fields: &FieldMap, out: &mut WriteList) {
        self.connection.send_preface_once(out);
        let Connection { streams, encoder, peer, .. } = &mut self.connection;
        let Some(stream) = streams.get_mut(stream.0) else { return };
        if stream.local != Local::HeadPending || !status.is_informational() || status == StatusCode::SWITCHING_PROTOCOLS
        {
            return;
        }
        stream.kind.expects_continue &= status != StatusCode::CONTINUE;
        let frame = HeadersFrame::begin(stream.id, out);
        encode::interim(status, fields, encoder, out);
        frame.end(EndStream::Open, peer.frame_max, out);
    }

    /// Sends the final head. The machine writes Content-Length and drops the fields of HTTP/1 connections, except the
    /// Content-Length of a response to HEAD with [`Framing::Empty`]. With [`Framing::Tunnel`] a 101 is sent as 200
    /// (RFC 8441 §5). Does nothing unless the final head is pending. Copies each field once.
    pub fn send_head(
        &mut self,
        stream: StreamId,
        head: &ResponseHead,
        framing: Framing,
        date: &[u8; 29],
        out: &mut WriteList,
    ) {
        // Stream 1 of an upgraded connection may be answered before any byte is received.
        self.connection.send_preface_once(out);
        let Connection { streams, encoder, head_cache, peer, .. } = &mut self.connection;
        let Some(entry) = streams.get_mut(stream.0) else { return };
        if entry.local != Local::HeadPending {
            return;
        }
        let status = head.status();
        if status.is_informational() && framing != Framing::Tunnel {
            return self.send_interim(stream, status, head.fields(), out);
        }
        let is_head = entry.kind.is_head;
        // RFC 9110 §8.6: no length with 204 and a tunnel; RFC 9113 §8.5: nor with a successful CONNECT.
        let (length, local) = match framing {
            Framing::Tunnel => (Length::Omitted, Local::Tunnel),
            _ if status.forbids_content() => (Length::Omitted, Local::Ended),
            Framing::Empty if is_head => (Length::AsSet, Local::Ended),
            _ if entry.kind.is_connect && matches!(status.as_u16(), 200..300) => (Length::Omitted, Local::Ended),
            Framing::Empty | Framing::Sized(0) => (Length::Bytes(0), Local::Ended),
            Framing::Sized(bytes) => (Length::Bytes(bytes), Local::Sized { left: bytes, ends: true }),
            Framing::Stream => (Length::Omitted, Local::Stream),
        };
        // A response to HEAD ends with its head, but keeps the declared length.
        entry.local = if is_head && local != Local::Tunnel { Local::Ended } else { local };
        entry.kind.expects_continue = false;
        let end = if entry.local == Local::Ended { EndStream::Stream } else { EndStream::Open };
        let frame = HeadersFrame::begin(stream.0, out);
        let switches = framing == Framing::Tunnel && status.is_informational();
        encode::response_head(
            head,
            if switches { StatusCode::OK } else { status },
            length,
            date,
            encoder,
            head_cache,
            out,
        );
        frame.end(end, peer.frame_max, out);
        // HTTP/2 has no such field: a handler that closes the connection shuts it down gracefully, as in Go.
        if head.fields().has_token(names::CONNECTION, "close") {
            self.drain(out);
        }
    }

    /// Sends as many bytes of the chunk as the windows allow, and leaves the rest in it. Drops bytes that may not be
    /// sent at all: beyond the end of a sized response, with HEAD, on a stream that is over. Up to 1 KiB is copied;
    /// more is sent by reference.
    #[inline]
    pub fn send(&mut self, stream: StreamId, chunk: &mut Chunk, out: &mut WriteList) {
        self.connection.send(stream.0, chunk, out);
    }

    /// Lets trailers follow sized content. Otherwise its last byte ends the stream, which saves a frame.
    pub fn expect_trailers(&mut self, stream: StreamId) {
        self.connection.expect_trailers(stream.0);
    }

    /// Sends trailers, which end the content; [`Server::finish`] follows. Drops them unless the framing is
    /// [`Framing::Stream`] or they are [expected](Server::expect_trailers), and drops fields that are not allowed in
    /// trailers (RFC 9110 §6.5.1).
    pub fn send_trailers(&mut self, stream: StreamId, fields: &FieldMap, out: &mut WriteList) {
        self.connection.send_trailers(stream.0, fields, out);
    }

    /// Ends the response. If the head was not sent, or sized content is too short, this is a [`Server::reset`].
    #[inline]
    pub fn finish(&mut self, stream: StreamId, out: &mut WriteList) {
        self.connection.finish(stream.0, out);
    }

    /// Aborts the exchange. After a complete response the reset code is NO_ERROR, since only the rest of the request
    /// is not needed (RFC 9113 §8.1); otherwise it is INTERNAL_ERROR. Sends no frame if both halves are complete.
    pub fn reset(&mut self, stream: StreamId, out: &mut WriteList) {
        self.connection.send_preface_once(out);
        self.connection.reset(stream.0, out);
    }

    // RFC 9113 §6.8: announces the last stream that is served; frames on later streams are ignored.
    #[cold]
    fn send_goaway(&mut self, out: &mut WriteList) {
        self.shutdown = ShutdownPhase::Last(self.connection.last);
        frame::put_goaway(self.connection.last, ErrorCode::NoError, out);
    }

    #[cold]
    fn fail(&mut self, fault: ConnectionError, input: &[u8], out: &mut WriteList) -> Handled {
        // RFC 9113 §6.8: a later GOAWAY must not raise the last stream.
        let last = if let ShutdownPhase::Last(last) = self.shutdown { last } else { self.connection.last };
        self.connection.fail(fault, last, out);
        Handled { consumed: input.len(), event: Some(Event::Broken) }
    }

    #[cold]
    fn store_early_priority(&mut self, stream: u32, priority: Priority) {
        let max = usize::from(self.connection.settings.budgets.early_priorities);
        self.early_priorities.retain(|(id, _)| *id != stream);
        if self.early_priorities.len() >= max {
            // Drop the oldest entries to make room for one.
            self.early_priorities.drain(..self.early_priorities.len() + 1 - max.max(1));
        }
        if max > 0 {
            self.early_priorities.push((stream, priority));
        }
    }
}

/// The fault of a request's content that has ended before its declared length.
#[cold]
fn short_end(stream: StreamId) -> Event {
    Event::Fault { stream: Some(stream), fault: StatusCode::BAD_REQUEST }
}
