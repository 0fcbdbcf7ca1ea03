//! The traits over protocol machines: [`Machine`] for either role, and [`ServerMachine`].
//!
//! A machine performs no I/O: it turns bytes into events and commands into bytes, and reports the event that it waits
//! for. The drivers are written once over these traits; HTTP/1.1 is a machine with one open stream.
//!
//! - `server`: a server's machine, either HTTP/1.1 or HTTP/2 as the peer's first bytes or ALPN decide
//! - `client`: a client's machine: HTTP/1.1, HTTP/2 or FastCGI

mod client;
mod server;

use std::time::Instant;

use causeway_message::{Chunk, FieldMap, Head, ResponseHead, StatusCode, StreamId, WriteList};

use crate::listener::ListenerPlan;

pub(crate) use causeway_message::{BodyLength, Framing, WaitsFor};
pub(crate) use client::{ClientEvent, ClientMachine};
pub(crate) use server::HttpServerMachine;

/// An event of a server's machine; a fault is the status of the error response.
pub(crate) type ServerEvent = causeway_message::ServerEvent<StatusCode>;

/// The part of a protocol machine that does not depend on its role.
pub(crate) trait Machine: Unpin {
    /// Returns whether the connection carries several streams, each with a window. If not, the driver stops giving it
    /// bytes while a body's mailbox is full, and a stream's end may be the connection's.
    fn is_multiplexed(&self) -> bool;
    /// Returns the peer's next action, for deadlines.
    fn waits_for(&self) -> WaitsFor;
    /// Returns whether the connection is to be closed once all output is written.
    fn should_close(&self) -> bool;
    /// Returns whether, on a connection that became a tunnel, our direction has ended and the peer's has not. The
    /// driver then shuts down its sending side after the output is written, and goes on reading. Always false with
    /// several streams.
    fn is_half_closed(&self) -> bool;
    /// Returns whether no exchange can begin any more; for a server, meaningful only after [`drain`](Self::drain).
    fn is_last(&self) -> bool;
    /// Returns whether a stream accepts output now.
    fn writable(&self, stream: StreamId) -> bool;
    /// Returns a stream's rank among the streams that have content. The lowest rank sends first.
    fn rank(&self, stream: StreamId) -> u64;
    /// Returns how many bytes a stream may queue before another stream is chosen.
    fn quantum(&self, stream: StreamId) -> usize;

    /// Begins a graceful close: no new exchange.
    fn drain(&mut self, out: &mut WriteList);
    /// Returns `bytes` bytes of received content to the stream's window, after a reader took them.
    fn release(&mut self, stream: StreamId, bytes: u32, out: &mut WriteList);
    /// Queues content: removes the part from `chunk` that the stream accepts now.
    fn send(&mut self, stream: StreamId, chunk: &mut Chunk, out: &mut WriteList);
    /// Trailers may follow content of announced length, if the version allows it.
    fn expect_trailers(&mut self, stream: StreamId);
    /// Queues the trailer section.
    fn send_trailers(&mut self, stream: StreamId, fields: &FieldMap, out: &mut WriteList);
    /// The message is complete.
    fn finish(&mut self, stream: StreamId, out: &mut WriteList);
    /// Aborts an exchange.
    fn reset(&mut self, stream: StreamId, out: &mut WriteList);
}

/// A server's protocol machine.
pub(crate) trait ServerMachine: Machine {
    /// Returns how many exchanges may be open or wait for one write. Further requests are parsed after that write.
    fn exchanges_max(&self) -> usize;

    /// Parses bytes. Returns how many were consumed, and an event. To be called again with the rest until neither
    /// comes.
    fn handle_bytes(
        &mut self,
        now: Instant,
        bytes: &[u8],
        head: &mut Head,
        out: &mut WriteList,
    ) -> (usize, Option<ServerEvent>);
    /// Applies another plan's limits, from the next head on. Called while no exchange is open and no byte of a head has
    /// arrived.
    fn set_limits(&mut self, plan: &ListenerPlan);
    /// The peer ended its sending side.
    fn handle_eof(&mut self) -> Option<ServerEvent>;
    /// The action that [`waits_for`](Machine::waits_for) names did not come in time.
    fn handle_timeout(&mut self, out: &mut WriteList) -> Option<ServerEvent>;

    /// Returns whether the peer waits for a 100 (Continue) response before it sends the body.
    fn expects_continue(&self, stream: StreamId) -> bool;
    /// A handler reads the body: queues a 100 (Continue) response if the peer waits for one.
    fn send_continue(&mut self, stream: StreamId, out: &mut WriteList);
    /// Queues an interim response.
    fn send_interim(&mut self, stream: StreamId, status: StatusCode, fields: &FieldMap, out: &mut WriteList);
    /// Queues the response's head.
    fn send_head(
        &mut self,
        stream: StreamId,
        head: &ResponseHead,
        framing: Framing,
        date: &[u8; 29],
        out: &mut WriteList,
    );
    /// Responds with a status and no content instead of the handlers, and abandons the exchange.
    fn refuse(&mut self, stream: StreamId, status: StatusCode, date: &[u8; 29], out: &mut WriteList);
}
