//! One connection in the client's role (RFC 9113), for upstreams.
//!
//! It shares the core with the server; only opening streams and handling field blocks differ.
//! - `field_blocks`: handles field blocks
//! - `encode`: writes a request's head

mod encode;
mod field_blocks;

use std::rc::Rc;
use std::time::Instant;

use causeway_message::{
    Chunk, FieldMap, Framing, Head, Method, OpenError, ResponseHead, Scheme, StreamId, WaitsFor, WriteList,
};

use crate::connection::{Connection, InputStep, Role};
use crate::error::{ConnectionError, ErrorCode};
use crate::event::{ClientEvent, ClientHandled};
use crate::frame;
use crate::priority::Priority;
use crate::settings::Settings;
use crate::stream::{Local, Remote, RequestKind, STREAM_MAX, Stream};

#[cfg(test)]
const _: () = assert!(size_of::<Client>() <= 512);

/// Number of streams that may be opened before the server's SETTINGS arrive. RFC 9113 §6.5.2 recommends at least this
/// limit.
const STREAMS_EARLY: usize = 100;

const LIVENESS_PING: [u8; 8] = *b"liveness";

/// The client's side of one HTTP/2 connection.
///
/// It is driven as [`Server`](crate::Server) is. A stream exists until its response and its request are complete
/// ([`Client::finish`], or [`Framing::Empty`]), or until it is reset.
#[derive(Debug)]
pub struct Client {
    connection: Connection,
    // The last stream that the server will answer, from its GOAWAY. A server that begins to shut down sends the largest
    // number first.
    last_processed: Option<u32>,
    draining: bool,
    eof: bool,
    // Whether the server's SETTINGS have been received.
    has_settings: bool,
    // Number of streams that may be opened before.
    early_streams_max: usize,
}

impl Client {
    /// A new connection; the preface is sent with the first frame.
    #[must_use]
    pub fn new(settings: Rc<Settings>) -> Self {
        let connection = Connection::new(settings, Role::Client);
        Self {
            connection,
            last_processed: None,
            draining: false,
            eof: false,
            has_settings: false,
            early_streams_max: STREAMS_EARLY,
        }
    }

    /// The input that the connection waits for: the server's SETTINGS, the rest of a frame, or, without open streams,
    /// only the end. The driver itself bounds the time until a response begins.
    #[must_use]
    pub fn waits_for(&self) -> WaitsFor {
        if self.connection.is_over() {
            WaitsFor::Nothing
        } else if self.connection.is_amid_frame() {
            WaitsFor::Head
        } else if self.connection.streams.is_empty() {
            WaitsFor::KeepAlive
        } else {
            WaitsFor::Nothing
        }
    }

    /// Whether the driver should close the connection once all output is written.
    #[must_use]
    pub fn should_close(&self) -> bool {
        self.connection.is_over() || self.is_last() && self.connection.streams.is_empty()
    }

    /// Whether no further stream can be opened.
    #[must_use]
    pub fn is_last(&self) -> bool {
        let is_spent = self.connection.last > STREAM_MAX - 2;
        self.connection.is_over() || self.draining || self.eof || self.last_processed.is_some() || is_spent
    }

    /// Whether no stream is open.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.connection.streams.is_empty()
    }

    /// Opens at most `streams` streams before the server's SETTINGS arrive, in place of 100: the limit that it has set
    /// on an earlier connection.
    #[must_use]
    pub fn with_early_streams(mut self, streams: usize) -> Self {
        // One shows whether the limit is still 0.
        self.early_streams_max = streams.clamp(1, STREAMS_EARLY);
        self
    }

    /// Number of streams that the server allows at once; `None` before its SETTINGS.
    #[must_use]
    pub fn streams_max(&self) -> Option<usize> {
        self.has_settings.then_some(self.connection.peer.streams_max as usize)
    }

    /// Number of streams that may be opened now: at most as many as the server allows, and as many as fit the
    /// connection's window.
    #[must_use]
    pub fn room(&self) -> usize {
        // With more, the unread content of some streams could keep the others from receiving any.
        let max = self.connection.settings.streams_in_window();
        let max = match max.min(self.connection.peer.streams_max as usize) {
            _ if self.is_last() => 0,
            max if self.has_settings => max,
            // A guess, or the limit of an earlier connection.
            max => max.min(self.early_streams_max),
        };
        max.saturating_sub(self.connection.streams.counted())
    }

    /// As [`Server::writable`](crate::Server::writable).
    #[inline]
    #[must_use]
    pub fn writable(&self, stream: StreamId) -> bool {
        self.connection.writable(stream.0)
    }

    /// As [`Server::rank`](crate::Server::rank); all requests have the default priority.
    #[inline]
    #[must_use]
    pub fn rank(&self, stream: StreamId) -> u64 {
        self.connection.rank(stream.0)
    }

    /// As [`Server::quantum`](crate::Server::quantum).
    #[inline]
    #[must_use]
    pub fn quantum(&self, stream: StreamId) -> usize {
        self.connection.quantum(stream.0)
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

    /// Opens a stream with a request's head. The authority is the target's or Host's. The machine writes
    /// Content-Length and drops the fields of HTTP/1 connections, except `TE: trailers`. A CONNECT with a path takes
    /// its protocol from Upgrade (RFC 8441) and needs [`Framing::Tunnel`].
    pub fn open(
        &mut self,
        head: &Head,
        scheme: Scheme,
        framing: Framing,
        out: &mut WriteList,
    ) -> Result<StreamId, OpenError> {
        if self.is_last() {
            return Err(OpenError::Ending);
        }
        if self.room() == 0 {
            return Err(OpenError::Full);
        }
        self.connection.send_preface_once(out);
        // A client's streams are odd.
        let id = if self.connection.last == 0 { 1 } else { self.connection.last + 2 };
        let Connection { encoder, peer, .. } = &mut self.connection;
        encode::request_head(id, head, scheme, framing, peer, encoder, out).ok_or(OpenError::Head)?;
        let is_connect = head.method() == Method::Connect;
        let kind = RequestKind {
            is_head: head.method() == Method::Head,
            is_connect,
            expects_continue: false,
            awaits_head: true,
        };
        let local = match framing {
            Framing::Empty => Local::Finished,
            Framing::Sized(0) => Local::Ended,
            Framing::Sized(bytes) => Local::Sized { left: bytes, ends: true },
            Framing::Stream => Local::Stream,
            Framing::Tunnel => Local::Tunnel,
        };
        self.connection.note_opened(id);
        self.connection.open(id, (kind, 0), Remote::Open(None), local, Priority::default());
        Ok(StreamId(id))
    }

    /// Parses bytes from the peer, up to the first event, as [`Server::handle_bytes`](crate::Server::handle_bytes).
    /// Fills `head` with a response's status and fields, or with trailers.
    pub fn handle_bytes(
        &mut self,
        now: Instant,
        input: &[u8],
        head: &mut ResponseHead,
        out: &mut WriteList,
    ) -> ClientHandled {
        self.connection.begin_input(now, out);
        self.connection.send_preface_once(out);
        let mut at = 0;
        loop {
            // One event per call: a GOAWAY may leave several streams unprocessed.
            if let Some(event) = self.next_unprocessed(out) {
                return ClientHandled { consumed: at, event: Some(event) };
            }
            let event = match self.connection.next(input, &mut at, out) {
                Ok(InputStep::Wait) => return ClientHandled { consumed: at, event: None },
                // RFC 9218 §7.1: only a client may send PRIORITY_UPDATE.
                Ok(InputStep::IdleStreamPriority(..)) => return self.fail(ConnectionError::PROTOCOL, input, out),
                // `ShortEnd` is an event of the server's role.
                Ok(InputStep::Done | InputStep::Pong(_) | InputStep::ShortEnd(_)) => None,
                Ok(InputStep::Block(block)) => match self.handle_block(&block, head, out) {
                    Ok(event) => event,
                    Err(fault) => return self.fail(fault, input, out),
                },
                Ok(InputStep::Data { stream, range }) => Some(ClientEvent::Data { stream: StreamId(stream), range }),
                Ok(InputStep::End(stream)) => Some(ClientEvent::End { stream: StreamId(stream) }),
                Ok(InputStep::Reset(stream, code)) => Some(reset(stream, code)),
                Ok(InputStep::GoAway { last, code }) => {
                    // RFC 9113 §6.8: a later GOAWAY may lower the last stream, but not raise it.
                    self.last_processed = Some(self.last_processed.map_or(last, |earlier| earlier.min(last)));
                    Some(ClientEvent::GoAway { fault: code })
                }
                Err(fault) => return self.fail(fault, input, out),
            };
            self.has_settings |= self.connection.has_peer_settings();
            if event.is_some() {
                return ClientHandled { consumed: at, event };
            }
        }
    }

    /// Handles the peer's end of stream: no further byte can arrive, so every open exchange fails.
    pub fn handle_eof(&mut self) -> Option<ClientEvent> {
        if self.connection.is_over() {
            return None;
        }
        self.eof = true;
        let was_open = !self.connection.streams.is_empty();
        self.connection.end();
        was_open.then_some(ClientEvent::Broken { fault: None })
    }

    /// Sends PING, which the server has to acknowledge (RFC 9113 §6.7). The acknowledgement is no event: any byte of
    /// the server shows that the connection works.
    pub fn ping(&mut self, out: &mut WriteList) {
        if !self.connection.is_over() {
            self.connection.send_preface_once(out);
            // Always the same payload, since no acknowledgement is matched with its PING.
            frame::put_ping(0, LIVENESS_PING, out);
        }
    }

    /// Opens no further streams; the connection has to be closed once the open ones have ended.
    pub fn drain(&mut self, out: &mut WriteList) {
        if !self.draining && !self.connection.is_over() {
            self.draining = true;
            self.connection.send_preface_once(out);
            // 0, since the server opened no stream.
            frame::put_goaway(0, ErrorCode::NoError, out);
        }
    }

    /// As [`Server::release`](crate::Server::release).
    pub fn release(&mut self, stream: StreamId, bytes: u32, out: &mut WriteList) {
        self.connection.release(stream.0, bytes, out);
    }

    /// As [`Server::send`](crate::Server::send).
    #[inline]
    pub fn send(&mut self, stream: StreamId, chunk: &mut Chunk, out: &mut WriteList) {
        self.connection.send(stream.0, chunk, out);
    }

    /// As [`Server::expect_trailers`](crate::Server::expect_trailers).
    pub fn expect_trailers(&mut self, stream: StreamId) {
        self.connection.expect_trailers(stream.0);
    }

    /// As [`Server::send_trailers`](crate::Server::send_trailers).
    pub fn send_trailers(&mut self, stream: StreamId, fields: &FieldMap, out: &mut WriteList) {
        self.connection.send_trailers(stream.0, fields, out);
    }

    /// Completes the request. If sized content is too short, this is a [`Client::reset`].
    pub fn finish(&mut self, stream: StreamId, out: &mut WriteList) {
        self.connection.finish(stream.0, out);
    }

    /// Aborts the exchange with CANCEL. After a complete response this is no error: the rest of the request is just not
    /// sent, with NO_ERROR. Sends no frame if both halves are complete.
    pub fn reset(&mut self, stream: StreamId, out: &mut WriteList) {
        // The two halves of a tunnel are independent, so its other half is aborted in any case.
        let is_answered = |stream: &Stream| stream.remote == Remote::Done && stream.local != Local::Tunnel;
        let was_answered = self.connection.streams.get(stream.0).is_some_and(is_answered);
        let code = if was_answered { ErrorCode::NoError } else { ErrorCode::Cancel };
        self.connection.reset_with(stream.0, code, out);
    }

    // RFC 9113 §6.8: the server has not processed the streams after its last one.
    #[inline]
    fn next_unprocessed(&mut self, out: &mut WriteList) -> Option<ClientEvent> {
        let last = self.last_processed.filter(|last| *last < self.connection.last)?;
        let id = self.connection.streams.iter().map(|stream| stream.id).find(|id| *id > last)?;
        self.connection.forget(id, out);
        Some(ClientEvent::Unprocessed { stream: StreamId(id), fault: None })
    }

    #[cold]
    fn fail(&mut self, fault: ConnectionError, input: &[u8], out: &mut WriteList) -> ClientHandled {
        self.connection.send_preface_once(out);
        // The last stream of the server is 0, since it opens none.
        self.connection.fail(fault, 0, out);
        ClientHandled { consumed: input.len(), event: Some(ClientEvent::Broken { fault: Some(fault.0) }) }
    }
}

#[cold]
fn reset(stream: u32, code: ErrorCode) -> ClientEvent {
    let stream = StreamId(stream);
    match code {
        // RFC 9113 §8.7: the server has not processed the request.
        ErrorCode::RefusedStream => ClientEvent::Unprocessed { stream, fault: Some(code) },
        fault => ClientEvent::Reset { stream, fault },
    }
}
