//! One connection in the server's role (RFC 9113).
//!
//! ```text
//! life:  Open ──drain──► Draining ──the PING's answer, too late, too many──► Last ──no stream──► wants to be closed
//!          └────────── a fault, a peer that is silent or gone ──► Over
//! ```
//! - `blocks`: what a header block does

mod blocks;

use std::rc::Rc;
use std::time::Instant;

use causeway_message::{
    Chunk, FieldMap, Framing, Head, Method, ResponseHead, StatusCode, StreamId, WaitsFor, WriteList,
};

use crate::connection::{Connection, Role, Step};
use crate::encode::{self, End, HeadersFrame, Length};
use crate::event::{Event, Handled};
use crate::fault::{ErrorCode, Fault};
use crate::frame;
use crate::priority::Priority;
use crate::settings::Settings;
use crate::stream::{Kind, Local, Remote, STREAM_MAX};

const _: () = assert!(size_of::<Server>() <= 512);

/// What the PING behind the first GOAWAY carries.
const DRAIN_PING: [u8; 8] = *b"goaway 1";

/// The server's side of one HTTP/2 connection.
///
/// Octets go in by [`Server::handle_octets`], again and again with what was not consumed, until it answers with neither
/// octets consumed nor an event; what is not consumed must be shown again, with more behind it. A frame other than DATA is at most
/// 16 393 octets long, and is handled once it is whole.
///
/// A stream stays until its request is complete and [`Server::finish`] was called, or until either side resets it
/// ([`Event::Reset`], [`Server::reset`]). What is said of a stream that is gone is ignored.
#[derive(Debug)]
pub struct Server {
    connection: Connection,
    life: Life,
    // The peer has closed its side.
    eof: bool,
    // What was said of streams that are not open yet; none mostly.
    early: Vec<(u32, Priority)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    Open,
    /// It was said that there is an end, not yet which request is the last.
    Draining {
        /// How many more requests may have been on their way: as many as the peer may have open.
        left: u32,
    },
    /// The last stream is said.
    Last(u32),
}

impl Server {
    /// A connection on which nothing has happened: the client's preface comes first.
    #[must_use]
    pub fn new(settings: Rc<Settings>) -> Self {
        Self { connection: Connection::new(settings, Role::Server), life: Life::Open, eof: false, early: Vec::new() }
    }

    /// A connection that HTTP/1.1's `Upgrade: h2c` made (RFC 7540 §3.2): the request that asked for it is stream 1, complete, and is
    /// announced by nobody; the client's preface follows. `peer_settings` is HTTP2-Settings, decoded; `request` the request's head.
    pub fn upgraded(settings: Rc<Settings>, peer_settings: &[u8], request: &Head) -> Result<Self, Fault> {
        let mut server = Self::new(settings);
        server.connection.apply(peer_settings)?;
        server.connection.note_opened(1);
        let kind = Kind { is_head: request.method() == Method::Head, ..Kind::default() };
        server.connection.open(1, kind, Remote::Done, Local::Owed, Priority::default());
        Ok(server)
    }

    /// What of the peer's the connection waits for. Bodies' deadlines, and those of closed windows, are the owner's.
    #[must_use]
    pub fn waits_for(&self) -> WaitsFor {
        let connection = &self.connection;
        if connection.is_over() || self.wants_close() {
            WaitsFor::Nothing
        } else if connection.is_amid_frame() {
            WaitsFor::Head
        } else if !connection.streams.is_empty() {
            WaitsFor::Nothing
        } else if let Life::Draining { .. } = self.life {
            WaitsFor::Acknowledgement
        } else {
            WaitsFor::KeepAlive
        }
    }

    /// Once all output is written the connection is to be closed.
    #[must_use]
    pub fn wants_close(&self) -> bool {
        let is_ending = self.eof || matches!(self.life, Life::Last(_));
        self.connection.is_over() || is_ending && self.connection.streams.is_empty()
    }

    /// No stream will be opened any more.
    #[must_use]
    pub fn is_last(&self) -> bool {
        self.connection.is_over() || self.eof || matches!(self.life, Life::Last(_))
    }

    /// No stream is open, and nothing of a head has come.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.connection.streams.is_empty() && self.connection.is_between_frames()
    }

    /// Whether [`Server::send`] would take content of this stream now: both windows are open, or what is sent is dropped anyway
    /// because END_STREAM has gone out (an answer to HEAD).
    #[inline]
    #[must_use]
    pub fn writable(&self, stream: StreamId) -> bool {
        self.connection.writable(stream.0)
    }

    /// Whose turn it is among the streams that could send: lower first (RFC 9218). Within an urgency incremental streams and the
    /// group of all others take turns, and in that group the lowest id goes first.
    #[inline]
    #[must_use]
    pub fn rank(&self, stream: StreamId) -> u64 {
        self.connection.rank(stream.0)
    }

    /// Octets that a stream may send before others have their turn: 16 KiB if it is incremental, 64 KiB otherwise.
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

    /// Looks at octets from the peer, until something has happened. The spare head is filled when an event says so, and may be
    /// cleared otherwise. Answers to what is the connection's own business are in `out` at once; an empty `out` says that all
    /// earlier ones were taken. O(octets); no allocation once the head's memory and the tables have grown.
    pub fn handle_octets(&mut self, now: Instant, input: &[u8], head: &mut Head, out: &mut WriteList) -> Handled {
        self.connection.arrive(now, out);
        self.connection.begin(out);
        let mut at = 0;
        loop {
            let event = match self.connection.next(input, &mut at, out) {
                Ok(Step::Wait) => return Handled { consumed: at, event: None },
                Ok(Step::Done | Step::GoAway { .. }) => None,
                Ok(Step::Block(block)) => match self.handle_block(&block, head, out) {
                    Ok(event) => event,
                    Err(fault) => return self.fail(fault, input, out),
                },
                Ok(Step::Data { stream, range }) => Some(Event::Data { stream: StreamId(stream), range }),
                Ok(Step::End(stream)) => Some(Event::End { stream: StreamId(stream) }),
                Ok(Step::Reset(stream, _)) => Some(Event::Reset { stream: StreamId(stream) }),
                Ok(Step::Pong(payload)) => {
                    if payload == DRAIN_PING && matches!(self.life, Life::Draining { .. }) {
                        self.say_last(out);
                    }
                    None
                }
                Ok(Step::Early(stream, priority)) => {
                    self.keep_early(stream, priority);
                    None
                }
                Err(fault) => return self.fail(fault, input, out),
            };
            if event.is_some() {
                return Handled { consumed: at, event };
            }
        }
    }

    /// The peer has closed its side. To be told once [`Server::handle_octets`] consumes no more of what was read. Complete
    /// requests are still answered; where one is incomplete everything ends.
    pub fn handle_eof(&mut self) -> Option<Event> {
        if self.connection.is_over() {
            return None;
        }
        self.eof = true;
        let is_whole = self.connection.streams.iter().all(|stream| stream.remote == Remote::Done);
        if is_whole && self.connection.is_between_frames() {
            return None;
        }
        let was_open = !self.connection.streams.is_empty();
        self.connection.end();
        was_open.then_some(Event::Broken)
    }

    /// What [`Server::waits_for`] names did not come in time: a head's rest ends the connection, the next request's absence ends it
    /// without blame, and without an answer to our PING the last stream is said all the same.
    pub fn handle_timeout(&mut self, out: &mut WriteList) -> Option<Event> {
        match self.waits_for() {
            WaitsFor::Head => {
                self.connection.begin(out);
                self.fail(Fault(ErrorCode::EnhanceYourCalm), &[], out).event
            }
            WaitsFor::KeepAlive | WaitsFor::Acknowledgement => {
                self.say_last(out);
                None
            }
            WaitsFor::Body | WaitsFor::Nothing => None,
        }
    }

    /// Begins to end gracefully (RFC 9113 §6.8): requests that are on their way are still taken, until the peer has heard of it.
    pub fn drain(&mut self, out: &mut WriteList) {
        if self.life == Life::Open && !self.connection.is_over() {
            self.connection.begin(out);
            self.life = Life::Draining { left: self.connection.settings.streams_max };
            frame::put_goaway(STREAM_MAX, ErrorCode::NoError, out);
            frame::put_ping(0, DRAIN_PING, out);
        }
    }

    /// The reader took octets of a body. They go back to the peer by halves of a window, so that announcing them costs little.
    /// What a stream's reader did not take when the stream is over goes back by itself.
    pub fn release(&mut self, stream: StreamId, octets: u32, out: &mut WriteList) {
        self.connection.release(stream.0, octets, out);
    }

    /// Sends 100 if the client waits for it; else nothing (RFC 9110 §10.1.1).
    pub fn send_continue(&mut self, stream: StreamId, out: &mut WriteList) {
        if self.connection.streams.get(stream.0).is_some_and(|stream| stream.kind.expects_continue) {
            self.send_informational(stream, StatusCode::CONTINUE, &FieldMap::new(), out);
        }
    }

    /// Sends an answer before the answer: 103 and its like. Nothing behind the final head, and no 101: HTTP/2 has none
    /// (RFC 9113 §8.6).
    pub fn send_informational(&mut self, stream: StreamId, status: StatusCode, fields: &FieldMap, out: &mut WriteList) {
        self.connection.begin(out);
        let Connection { streams, encoder, peer, .. } = &mut self.connection;
        let Some(stream) = streams.get_mut(stream.0) else { return };
        if stream.local != Local::Owed || !status.is_informational() || status == StatusCode::SWITCHING_PROTOCOLS {
            return;
        }
        stream.kind.expects_continue &= status != StatusCode::CONTINUE;
        let frame = HeadersFrame::begin(stream.id, out);
        encode::informational(status, fields, encoder, out);
        frame.end(End::Open, peer.frame_max, out);
    }

    /// Sends the final head. Content-Length and the fields of HTTP/1's connections are the machine's: what the head has of them is
    /// left out, but for the Content-Length of an answer to HEAD with [`Framing::Empty`]. With [`Framing::Tunnel`] a 101 is sent as 200
    /// (RFC 8441 §5). Ignored where no head is owed. One copy of each field.
    pub fn send_head(
        &mut self,
        stream: StreamId,
        head: &ResponseHead,
        framing: Framing,
        date: &[u8; 29],
        out: &mut WriteList,
    ) {
        // Stream 1 of an upgraded connection may be answered before anything else has come.
        self.connection.begin(out);
        let Connection { streams, encoder, repeat, peer, .. } = &mut self.connection;
        let Some(entry) = streams.get_mut(stream.0) else { return };
        if entry.local != Local::Owed {
            return;
        }
        let status = head.status();
        if status.is_informational() && framing != Framing::Tunnel {
            return self.send_informational(stream, status, head.fields(), out);
        }
        let is_head = entry.kind.is_head;
        // RFC 9110 §8.6: no length with 204 and a tunnel; RFC 9113 §8.5: a CONNECT that succeeded has none either.
        let (length, local) = match framing {
            Framing::Tunnel => (Length::Silent, Local::Tunnel),
            _ if status.forbids_content() => (Length::Silent, Local::Ended),
            Framing::Empty if is_head => (Length::AsSet, Local::Ended),
            _ if entry.kind.is_connect && matches!(status.as_u16(), 200..300) => (Length::Silent, Local::Ended),
            Framing::Empty | Framing::Sized(0) => (Length::Octets(0), Local::Ended),
            Framing::Sized(octets) => (Length::Octets(octets), Local::Sized(octets)),
            Framing::Stream => (Length::Silent, Local::Stream),
        };
        entry.local = if is_head && local != Local::Tunnel { Local::Ended } else { local };
        entry.kind.expects_continue = false;
        let end = if entry.local == Local::Ended { End::Stream } else { End::Open };
        let frame = HeadersFrame::begin(stream.0, out);
        let switches = framing == Framing::Tunnel && status.is_informational();
        encode::response_head(head, if switches { StatusCode::OK } else { status }, length, date, encoder, repeat, out);
        frame.end(end, peer.frame_max, out);
    }

    /// Sends as much of the chunk as the windows allow, and leaves the rest in it. What may not be sent at all (behind the end of a
    /// sized response, with HEAD, on a stream that is over) is taken and dropped. Up to 1 KiB is copied, more goes by reference.
    #[inline]
    pub fn send(&mut self, stream: StreamId, chunk: &mut Chunk, out: &mut WriteList) {
        self.connection.send(stream.0, chunk, out);
    }

    /// Sends trailers, which end the content; [`Server::finish`] follows. Only a [`Framing::Stream`] can have them, elsewhere they are
    /// left out (RFC 9110 §6.5.1).
    pub fn send_trailers(&mut self, stream: StreamId, fields: &FieldMap, out: &mut WriteList) {
        self.connection.send_trailers(stream.0, fields, out);
    }

    /// Ends the response. Where the head was never sent, or a sized content is short, this is a [`Server::reset`].
    #[inline]
    pub fn finish(&mut self, stream: StreamId, out: &mut WriteList) {
        self.connection.finish(stream.0, out);
    }

    /// Gives the exchange up. Behind a complete response the peer only learns that the rest of its request is not wanted
    /// (RFC 9113 §8.1), else that we failed. Nothing on the wire where both sides are through.
    pub fn reset(&mut self, stream: StreamId, out: &mut WriteList) {
        self.connection.begin(out);
        self.connection.reset(stream.0, out);
    }

    // RFC 9113 §6.8: the last stream that is served; frames on later ones are ignored.
    #[cold]
    fn say_last(&mut self, out: &mut WriteList) {
        self.life = Life::Last(self.connection.last);
        frame::put_goaway(self.connection.last, ErrorCode::NoError, out);
    }

    #[cold]
    fn fail(&mut self, fault: Fault, input: &[u8], out: &mut WriteList) -> Handled {
        // RFC 9113 §6.8: the last stream that was said before is not raised.
        let last = if let Life::Last(last) = self.life { last } else { self.connection.last };
        self.connection.fail(fault, last, out);
        Handled { consumed: input.len(), event: Some(Event::Broken) }
    }

    #[cold]
    fn keep_early(&mut self, stream: u32, priority: Priority) {
        let max = usize::from(self.connection.settings.budgets.early_priorities);
        self.early.retain(|(id, _)| *id != stream);
        if self.early.len() >= max {
            self.early.drain(..self.early.len() + 1 - max.max(1));
        }
        if max > 0 {
            self.early.push((stream, priority));
        }
    }
}
