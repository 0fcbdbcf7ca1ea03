//! One connection in the client's role (RFC 9113), for upstreams.
//!
//! The core is the server's; only who opens streams, and what a header block means, differ.
//! - `blocks`: what a header block does
//! - `encode`: a request's head

mod blocks;
mod encode;

use std::rc::Rc;
use std::time::Instant;

use causeway_message::{Chunk, FieldMap, Framing, Head, Method, ResponseHead, StreamId, WaitsFor, WriteList};

use crate::connection::{Connection, Role, Step};
use crate::event::{ClientEvent, ClientHandled};
use crate::fault::{ErrorCode, Fault};
use crate::frame;
use crate::priority::Priority;
use crate::settings::Settings;
use crate::stream::{Kind, Local, Remote, STREAM_MAX};

const _: () = assert!(size_of::<Client>() <= 512);

/// Streams that are open at once at most. With more, those that nobody reads could fill the window that all share (`Settings::client`).
const STREAMS_MAX: usize = 4096;

/// Streams that are opened before the server has said how many it takes (RFC 9113 §6.5.2 asks for at least as many).
const STREAMS_EARLY: usize = 100;

/// What carries the requests, as `:scheme` says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// In the clear.
    Http,
    /// Over TLS.
    Https,
}

/// Why a stream was not opened. Nothing was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unopened {
    /// As many are open as the server takes: after one of them has ended there is room.
    Full,
    /// No stream will be opened on this connection any more.
    Ending,
    /// The head lacks an authority or a path, or asks for what the server does not offer (RFC 8441).
    Head,
}

/// The client's side of one HTTP/2 connection.
///
/// Driven as [`Server`](crate::Server) is. A stream stays until its response is complete and its request is
/// ([`Client::finish`], or [`Framing::Empty`]), or until it is reset.
#[derive(Debug)]
pub struct Client {
    connection: Connection,
    // The last stream that the server will answer, once it has said so.
    bound: u32,
    draining: bool,
    eof: bool,
    // The server has said its settings.
    met: bool,
}

impl Client {
    /// A connection on which nothing has happened: our preface goes out with the first octets.
    #[must_use]
    pub fn new(settings: Rc<Settings>) -> Self {
        let connection = Connection::new(settings, Role::Client);
        Self { connection, bound: STREAM_MAX, draining: false, eof: false, met: false }
    }

    /// What of the peer's the connection waits for: its settings, the rest of a frame, or nothing that the machine knows of.
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

    /// Once all output is written the connection is to be closed.
    #[must_use]
    pub fn wants_close(&self) -> bool {
        self.connection.is_over() || self.is_last() && self.connection.streams.is_empty()
    }

    /// No stream can be opened any more.
    #[must_use]
    pub fn is_last(&self) -> bool {
        let is_spent = self.connection.last > STREAM_MAX - 2;
        self.connection.is_over() || self.draining || self.eof || self.bound < STREAM_MAX || is_spent
    }

    /// No stream is open.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.connection.streams.is_empty()
    }

    /// How many streams may be opened now.
    #[must_use]
    pub fn room(&self) -> usize {
        let max = match (self.connection.peer.streams_max as usize).min(STREAMS_MAX) {
            _ if self.is_last() => 0,
            max if self.met => max,
            max => max.min(STREAMS_EARLY),
        };
        max.saturating_sub(self.connection.streams.counted())
    }

    /// As [`Server::writable`](crate::Server::writable).
    #[inline]
    #[must_use]
    pub fn writable(&self, stream: StreamId) -> bool {
        self.connection.writable(stream.0)
    }

    /// As [`Server::rank`](crate::Server::rank); all requests are equal.
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

    /// How many streams there are.
    #[must_use]
    pub fn streams(&self) -> usize {
        self.connection.streams.len()
    }

    /// Octets of memory that both HPACK tables hold on to.
    #[must_use]
    pub fn table_octets(&self) -> usize {
        self.connection.decoder.table_octets() + self.connection.encoder.table_octets()
    }

    /// Opens a stream with a request's head. The authority is the target's or Host's; Content-Length and the fields of HTTP/1's
    /// connections are the machine's and are left out, but for `TE: trailers`. A CONNECT with a path names its protocol in
    /// Upgrade (RFC 8441) and is a [`Framing::Tunnel`].
    pub fn open(
        &mut self,
        head: &Head,
        scheme: Scheme,
        framing: Framing,
        out: &mut WriteList,
    ) -> Result<StreamId, Unopened> {
        if self.is_last() {
            return Err(Unopened::Ending);
        }
        if self.room() == 0 {
            return Err(Unopened::Full);
        }
        self.connection.begin(out);
        let id = if self.connection.last == 0 { 1 } else { self.connection.last + 2 };
        let Connection { encoder, peer, .. } = &mut self.connection;
        encode::request_head(id, head, scheme, framing, peer, encoder, out).ok_or(Unopened::Head)?;
        let is_connect = head.method() == Method::Connect;
        let kind =
            Kind { is_head: head.method() == Method::Head, is_connect, expects_continue: false, awaits_head: true };
        let local = match framing {
            Framing::Empty => Local::Finished,
            Framing::Sized(0) => Local::Ended,
            Framing::Sized(octets) => Local::Sized(octets),
            Framing::Stream => Local::Stream,
            Framing::Tunnel => Local::Tunnel,
        };
        self.connection.note_opened(id);
        self.connection.open(id, kind, Remote::Open(None), local, Priority::default());
        Ok(StreamId(id))
    }

    /// Looks at octets from the peer, until something has happened, as
    /// [`Server::handle_octets`](crate::Server::handle_octets) does. The spare head is filled with a response's status and fields, or with
    /// trailers.
    pub fn handle_octets(
        &mut self,
        now: Instant,
        input: &[u8],
        head: &mut ResponseHead,
        out: &mut WriteList,
    ) -> ClientHandled {
        self.connection.arrive(now, out);
        self.connection.begin(out);
        let mut at = 0;
        loop {
            if let Some(event) = self.next_unprocessed(out) {
                return ClientHandled { consumed: at, event: Some(event) };
            }
            let event = match self.connection.next(input, &mut at, out) {
                Ok(Step::Wait) => return ClientHandled { consumed: at, event: None },
                // RFC 9218 §7.1: only a client says what it wants first.
                Ok(Step::Early(..)) => return self.fail(Fault::PROTOCOL, input, out),
                Ok(Step::Done | Step::Pong(_)) => None,
                Ok(Step::Block(block)) => match self.handle_block(&block, head, out) {
                    Ok(event) => event,
                    Err(fault) => return self.fail(fault, input, out),
                },
                Ok(Step::Data { stream, range }) => Some(ClientEvent::Data { stream: StreamId(stream), range }),
                Ok(Step::End(stream)) => Some(ClientEvent::End { stream: StreamId(stream) }),
                Ok(Step::Reset(stream, code)) => Some(reset(stream, code)),
                Ok(Step::GoAway { last, code }) => {
                    // RFC 9113 §6.8: it may be lowered, never raised.
                    self.bound = self.bound.min(last);
                    Some(ClientEvent::GoAway { code })
                }
                Err(fault) => return self.fail(fault, input, out),
            };
            self.met |= self.connection.is_met();
            if event.is_some() {
                return ClientHandled { consumed: at, event };
            }
        }
    }

    /// The peer has closed its side: nothing more comes, so nothing open can end well.
    pub fn handle_eof(&mut self) -> Option<ClientEvent> {
        if self.connection.is_over() {
            return None;
        }
        self.eof = true;
        let was_open = !self.connection.streams.is_empty();
        self.connection.end();
        was_open.then_some(ClientEvent::Broken)
    }

    /// What [`Client::waits_for`] names did not come in time.
    pub fn handle_timeout(&mut self, out: &mut WriteList) -> Option<ClientEvent> {
        match self.waits_for() {
            WaitsFor::Head => self.fail(Fault(ErrorCode::EnhanceYourCalm), &[], out).event,
            WaitsFor::KeepAlive => {
                self.drain(out);
                None
            }
            _ => None,
        }
    }

    /// Opens no more streams; the connection wants to be closed once those that are open have ended.
    pub fn drain(&mut self, out: &mut WriteList) {
        if !self.draining && !self.connection.is_over() {
            self.draining = true;
            self.connection.begin(out);
            frame::put_goaway(0, ErrorCode::NoError, out);
        }
    }

    /// As [`Server::release`](crate::Server::release).
    pub fn release(&mut self, stream: StreamId, octets: u32, out: &mut WriteList) {
        self.connection.release(stream.0, octets, out);
    }

    /// As [`Server::send`](crate::Server::send).
    #[inline]
    pub fn send(&mut self, stream: StreamId, chunk: &mut Chunk, out: &mut WriteList) {
        self.connection.send(stream.0, chunk, out);
    }

    /// As [`Server::send_trailers`](crate::Server::send_trailers).
    pub fn send_trailers(&mut self, stream: StreamId, fields: &FieldMap, out: &mut WriteList) {
        self.connection.send_trailers(stream.0, fields, out);
    }

    /// The request is complete. A sized content that is short is a [`Client::reset`].
    pub fn finish(&mut self, stream: StreamId, out: &mut WriteList) {
        self.connection.finish(stream.0, out);
    }

    /// Gives the exchange up: the server is told that nobody waits for it. Nothing on the wire where both sides are through.
    pub fn reset(&mut self, stream: StreamId, out: &mut WriteList) {
        self.connection.reset_with(stream.0, ErrorCode::Cancel, out);
    }

    // RFC 9113 §6.8: streams beyond the last one that the server takes were not looked at.
    #[inline]
    fn next_unprocessed(&mut self, out: &mut WriteList) -> Option<ClientEvent> {
        if self.bound >= self.connection.last {
            return None;
        }
        let id = self.connection.streams.iter().map(|stream| stream.id).find(|id| *id > self.bound)?;
        self.connection.ignore_from_now(id);
        self.connection.forget(id, out);
        Some(ClientEvent::Unprocessed { stream: StreamId(id) })
    }

    #[cold]
    fn fail(&mut self, fault: Fault, input: &[u8], out: &mut WriteList) -> ClientHandled {
        self.connection.begin(out);
        // The server opens no streams.
        self.connection.fail(fault, 0, out);
        ClientHandled { consumed: input.len(), event: Some(ClientEvent::Broken) }
    }
}

#[cold]
fn reset(stream: u32, code: ErrorCode) -> ClientEvent {
    let stream = StreamId(stream);
    match code {
        // RFC 9113 §8.7: nothing was done for it.
        ErrorCode::RefusedStream => ClientEvent::Unprocessed { stream },
        code => ClientEvent::Reset { stream, code },
    }
}
