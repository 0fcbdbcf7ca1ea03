//! One connection in the server's role (RFC 9113).

use std::rc::Rc;
use std::time::Instant;

use causeway_message::{Chunk, FieldMap, Framing, Head, ResponseHead, StatusCode, StreamId, WaitsFor, WriteList};

use crate::event::{Event, Handled};
use crate::fault::Fault;
use crate::settings::Settings;

const _: () = assert!(size_of::<Server>() <= 512);

/// The server's side of one HTTP/2 connection.
///
/// Octets go in by [`Server::handle_octets`], again and again with what was not consumed, until it answers with neither
/// octets consumed nor an event; what is not consumed must be shown again, with more behind it. A frame other than DATA is at most
/// 16 393 octets long, and is handled once it is whole.
#[derive(Debug)]
pub struct Server {
    settings: Rc<Settings>,
}

#[expect(unused_variables, clippy::unused_self, reason = "the face, before its bodies")]
impl Server {
    /// A connection on which nothing has happened: the client's preface comes first.
    #[must_use]
    pub fn new(settings: Rc<Settings>) -> Self {
        Self { settings }
    }

    /// A connection that HTTP/1.1's `Upgrade: h2c` made (RFC 7540 §3.2): the request that asked for it is stream 1 and complete;
    /// the client's preface follows. `peer_settings` is HTTP2-Settings, decoded.
    pub fn upgraded(settings: Rc<Settings>, peer_settings: &[u8]) -> Result<Self, Fault> {
        Ok(Self::new(settings))
    }

    /// What of the peer's the connection waits for. Bodies' deadlines, and those of closed windows, are the owner's.
    #[must_use]
    pub fn waits_for(&self) -> WaitsFor {
        WaitsFor::Nothing
    }

    /// Once all output is written the connection is to be closed.
    #[must_use]
    pub fn wants_close(&self) -> bool {
        false
    }

    /// No stream will be opened any more.
    #[must_use]
    pub fn is_last(&self) -> bool {
        false
    }

    /// No stream is open, and nothing of a head has come.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        false
    }

    /// Whether [`Server::send`] would take content of this stream now.
    #[must_use]
    pub fn writable(&self, stream: StreamId) -> bool {
        false
    }

    /// Whose turn it is among the streams that could send: lower first (RFC 9218).
    #[must_use]
    pub fn rank(&self, stream: StreamId) -> u64 {
        0
    }

    /// Octets that a stream may send before others have their turn.
    #[must_use]
    pub fn quantum(&self, stream: StreamId) -> usize {
        0
    }

    /// How many streams there are.
    #[must_use]
    pub fn streams(&self) -> usize {
        0
    }

    /// Octets of memory that both HPACK tables hold on to.
    #[must_use]
    pub fn table_octets(&self) -> usize {
        0
    }

    /// Looks at octets from the peer, until something has happened. The spare head is filled when an event says so, and is cleared
    /// by others.
    pub fn handle_octets(&mut self, now: Instant, input: &[u8], head: &mut Head, out: &mut WriteList) -> Handled {
        Handled { consumed: 0, event: None }
    }

    /// The peer has closed its side. To be told once [`Server::handle_octets`] consumes no more of what was read. Complete
    /// requests are still answered; where one is incomplete everything ends.
    pub fn handle_eof(&mut self) -> Option<Event> {
        None
    }

    /// What [`Server::waits_for`] names did not come in time.
    pub fn handle_timeout(&mut self, out: &mut WriteList) -> Option<Event> {
        None
    }

    /// Begins to end gracefully (RFC 9113 §6.8): requests that are on their way are still taken, until the peer has heard of it.
    pub fn drain(&mut self, out: &mut WriteList) {}

    /// The reader took octets of a body.
    pub fn release(&mut self, stream: StreamId, octets: u32, out: &mut WriteList) {}

    /// Sends 100 if the client waits for it; else nothing (RFC 9110 §10.1.1).
    pub fn send_continue(&mut self, stream: StreamId, out: &mut WriteList) {}

    /// Sends an answer before the answer: 103 and its like.
    pub fn send_informational(&mut self, stream: StreamId, status: StatusCode, fields: &FieldMap, out: &mut WriteList) {
    }

    /// Sends the final head.
    pub fn send_head(
        &mut self,
        stream: StreamId,
        head: &ResponseHead,
        framing: Framing,
        date: &[u8; 29],
        out: &mut WriteList,
    ) {
    }

    /// Sends as much of the chunk as the windows allow, and leaves the rest in it. What may not be sent at all (behind the end of a
    /// sized response, with HEAD, on a stream that is over) is taken and dropped.
    pub fn send(&mut self, stream: StreamId, chunk: &mut Chunk, out: &mut WriteList) {}

    /// Sends trailers, which end the content; [`Server::finish`] follows.
    pub fn send_trailers(&mut self, stream: StreamId, fields: &FieldMap, out: &mut WriteList) {}

    /// Ends the response. Where the head was never sent, or a sized content is short, this is a [`Server::reset`].
    pub fn finish(&mut self, stream: StreamId, out: &mut WriteList) {}

    /// Gives the exchange up. Behind a complete response the peer only learns that the rest of its request is not wanted.
    pub fn reset(&mut self, stream: StreamId, out: &mut WriteList) {}
}
