//! HTTP/1.1: one open stream, and behind a fault nothing.

use std::rc::Rc;
use std::time::Instant;

use causeway_h1 as h1;
use causeway_message::{Chunk, FieldMap, Head, ResponseHead, StatusCode, StreamId, WriteList};

use super::{Event, Framing, Machine, WaitsFor, bare};
use crate::listener::ListenerPlan;

/// Pipelined requests that may wait for one write.
const PIPELINED_MAX: usize = 64;

impl Machine for h1::Server {
    // HTTP/1.1 bounds nothing: back-pressure is not reading.
    fn is_multiplexed(&self) -> bool {
        false
    }

    fn exchanges_max(&self) -> usize {
        PIPELINED_MAX
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

    fn rank(&self, _stream: StreamId) -> u64 {
        0
    }

    fn quantum(&self, _stream: StreamId) -> usize {
        usize::MAX
    }

    #[inline]
    fn handle_octets(
        &mut self,
        _now: Instant,
        octets: &[u8],
        head: &mut Head,
        out: &mut WriteList,
    ) -> (usize, Option<Event>) {
        let handled = self.handle_octets(octets, head, out);
        (handled.consumed, handled.event.map(event))
    }

    fn renew(&mut self, plan: &ListenerPlan) {
        // Between requests a machine is as good as a new one.
        *self = Self::new(Rc::clone(&plan.offer.http1));
    }

    fn handle_eof(&mut self) -> Option<Event> {
        self.handle_eof().map(event)
    }

    fn handle_timeout(&mut self, _out: &mut WriteList) -> Option<Event> {
        self.handle_timeout().map(event)
    }

    fn drain(&mut self, _out: &mut WriteList) {
        self.drain();
    }

    fn is_last(&self) -> bool {
        !self.is_idle()
    }

    fn release(&mut self, stream: StreamId, octets: u32, _out: &mut WriteList) {
        self.release(stream, octets);
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
        self.send(stream, std::mem::take(chunk), out);
    }

    fn send_trailers(&mut self, stream: StreamId, fields: &FieldMap, out: &mut WriteList) {
        self.send_trailers(stream, fields, out);
    }

    #[inline]
    fn finish(&mut self, stream: StreamId, out: &mut WriteList) {
        self.finish(stream, out);
    }

    fn refuse(&mut self, stream: StreamId, status: StatusCode, date: &[u8; 29], out: &mut WriteList) {
        self.drain();
        self.send_head(stream, &bare(status), Framing::Empty, date, out);
        self.finish(stream, out);
        self.reset(stream);
    }

    fn reset(&mut self, stream: StreamId, _out: &mut WriteList) {
        self.reset(stream);
    }
}

fn event(event: h1::Event) -> Event {
    match event {
        h1::Event::Head { stream, body, upgrade, .. } => Event::Head { stream, body, upgrade },
        h1::Event::Data { stream, range } => Event::Data { stream, range },
        h1::Event::Trailers { stream } => Event::Trailers { stream },
        h1::Event::End { stream } => Event::End { stream },
        h1::Event::Fault { stream, fault } => Event::Fault { stream, status: fault.status() },
    }
}
