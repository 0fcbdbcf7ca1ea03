//! HTTP/2: many streams, each with a window.

use std::time::Instant;

use causeway_h2 as h2;
use causeway_message::{Chunk, FieldMap, Head, ResponseHead, StatusCode, StreamId, WriteList};

use super::{Event, Framing, Machine, WaitsFor, bare};
use crate::listener::ListenerPlan;

/// Exchanges whose streams are closed, and which only wait to be written, beside those that are open.
const CLOSED_MAX: usize = 128;

impl Machine for h2::Server {
    fn is_multiplexed(&self) -> bool {
        true
    }

    fn exchanges_max(&self) -> usize {
        self.streams() + CLOSED_MAX
    }

    fn waits_for(&self) -> WaitsFor {
        self.waits_for()
    }

    fn wants_close(&self) -> bool {
        self.wants_close()
    }

    fn writable(&self, stream: StreamId) -> bool {
        self.writable(stream)
    }

    fn rank(&self, stream: StreamId) -> u64 {
        self.rank(stream)
    }

    fn quantum(&self, stream: StreamId) -> usize {
        self.quantum(stream)
    }

    #[inline]
    fn handle_octets(
        &mut self,
        now: Instant,
        octets: &[u8],
        head: &mut Head,
        out: &mut WriteList,
    ) -> (usize, Option<Event>) {
        let handled = self.handle_octets(now, octets, head, out);
        (handled.consumed, handled.event.map(event))
    }

    fn renew(&mut self, _plan: &ListenerPlan) {
        // What the peer was told at the start holds for the connection.
    }

    fn handle_eof(&mut self) -> Option<Event> {
        self.handle_eof().map(event)
    }

    fn handle_timeout(&mut self, out: &mut WriteList) -> Option<Event> {
        self.handle_timeout(out).map(event)
    }

    fn drain(&mut self, out: &mut WriteList) {
        self.drain(out);
    }

    fn is_last(&self) -> bool {
        self.is_last()
    }

    fn release(&mut self, stream: StreamId, octets: u32, out: &mut WriteList) {
        self.release(stream, octets, out);
    }

    fn send_continue(&mut self, stream: StreamId, out: &mut WriteList) {
        self.send_continue(stream, out);
    }

    fn send_informational(&mut self, stream: StreamId, status: StatusCode, fields: &FieldMap, out: &mut WriteList) {
        self.send_informational(stream, status, fields, out);
    }

    #[inline]
    fn send_head(
        &mut self,
        stream: StreamId,
        head: &ResponseHead,
        framing: Framing,
        date: &[u8; 29],
        out: &mut WriteList,
    ) {
        self.send_head(stream, head, framing, date, out);
    }

    #[inline]
    fn send(&mut self, stream: StreamId, chunk: &mut Chunk, out: &mut WriteList) {
        self.send(stream, chunk, out);
    }

    fn send_trailers(&mut self, stream: StreamId, fields: &FieldMap, out: &mut WriteList) {
        self.send_trailers(stream, fields, out);
    }

    #[inline]
    fn finish(&mut self, stream: StreamId, out: &mut WriteList) {
        self.finish(stream, out);
    }

    fn refuse(&mut self, stream: StreamId, status: StatusCode, date: &[u8; 29], out: &mut WriteList) {
        // Nothing where the head is out already; then the stream just ends.
        self.send_head(stream, &bare(status), Framing::Empty, date, out);
        self.reset(stream, out);
    }

    fn reset(&mut self, stream: StreamId, out: &mut WriteList) {
        self.reset(stream, out);
    }
}

fn event(event: h2::Event) -> Event {
    match event {
        h2::Event::Head { stream, body, upgrade } => Event::Head { stream, body, upgrade },
        h2::Event::Data { stream, range } => Event::Data { stream, range },
        h2::Event::Trailers { stream } => Event::Trailers { stream },
        h2::Event::End { stream } => Event::End { stream },
        h2::Event::Reset { stream } => Event::Reset { stream },
        h2::Event::Fault { stream, status } => Event::Fault { stream: Some(stream), status },
        h2::Event::Broken => Event::Broken,
    }
}
