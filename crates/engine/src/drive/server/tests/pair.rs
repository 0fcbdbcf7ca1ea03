//! A machine of two streams with a window each. A frame is its kind, its stream, a length, and that many bytes.

use std::time::Instant;

use causeway_message::{Chunk, FieldMap, Head, ResponseHead, StatusCode, StreamId, WriteList};

use crate::listener::ListenerPlan;
use crate::machine::{BodyLength, Framing, Machine, ServerEvent, ServerMachine, WaitsFor};

/// Exchanges that may wait for one write.
pub(super) const EXCHANGES_MAX: usize = 16;

fn frame(kind: u8, stream: u8, bytes: &[u8]) -> Vec<u8> {
    let len = u8::try_from(bytes.len()).expect("a short frame");
    [&[kind, stream, len], bytes].concat()
}

pub(super) fn head(stream: u8, target: &str) -> Vec<u8> {
    frame(b'H', stream, target.as_bytes())
}

pub(super) fn data(stream: u8, len: usize) -> Vec<u8> {
    frame(b'D', stream, &vec![b'd'; len])
}

pub(super) fn end(stream: u8) -> Vec<u8> {
    frame(b'E', stream, b"")
}

/// Content, after which the stream's end is an event without bytes, as in HTTP/1.
pub(super) fn last(stream: u8, len: usize) -> Vec<u8> {
    frame(b'L', stream, &vec![b'd'; len])
}

/// The peer breaks one stream's framing.
pub(super) fn fault(stream: u8) -> Vec<u8> {
    frame(b'F', stream, b"")
}

/// The stream may carry that many bytes more.
pub(super) fn window(stream: u8, bytes: u8) -> Vec<u8> {
    frame(b'W', stream, &[bytes])
}

pub(super) struct Pair {
    /// Bytes that streams 1 and 2 may still carry.
    pub(super) windows: [i64; 2],
    pub(super) log: Vec<String>,
    /// The streams side by side have windows; if not, the driver treats the machine like one of HTTP/1.
    pub(super) is_multiplexed: bool,
    /// The peer waits for a 100 (Continue) response on each stream.
    pub(super) expects_continue: bool,
    /// The stream whose end is the next event, without bytes of its own.
    ending: Option<StreamId>,
}

impl Default for Pair {
    fn default() -> Self {
        Self {
            windows: [i64::MAX / 2; 2],
            log: Vec::new(),
            is_multiplexed: true,
            expects_continue: false,
            ending: None,
        }
    }
}

impl Pair {
    fn note(&mut self, stream: StreamId, words: &str) {
        self.log.push(format!("{} {words}", stream.0));
    }

    fn window_mut(&mut self, stream: StreamId) -> &mut i64 {
        &mut self.windows[stream.0 as usize - 1]
    }
}

impl Machine for Pair {
    fn is_multiplexed(&self) -> bool {
        self.is_multiplexed
    }

    fn waits_for(&self) -> WaitsFor {
        WaitsFor::KeepAlive
    }

    fn should_close(&self) -> bool {
        false
    }

    fn is_half_closed(&self) -> bool {
        false
    }

    fn writable(&self, stream: StreamId) -> bool {
        self.windows[stream.0 as usize - 1] > 0
    }

    fn rank(&self, stream: StreamId) -> u64 {
        u64::from(stream.0)
    }

    fn quantum(&self, _: StreamId) -> usize {
        64 * 1024
    }

    fn drain(&mut self, _: &mut WriteList) {}

    fn is_last(&self) -> bool {
        false
    }

    fn release(&mut self, stream: StreamId, bytes: u32, _: &mut WriteList) {
        self.note(stream, &format!("release {bytes}"));
    }

    fn send(&mut self, stream: StreamId, chunk: &mut Chunk, out: &mut WriteList) {
        let window = self.window_mut(stream);
        let len = chunk.len().min(usize::try_from(*window).unwrap_or(0));
        *window -= len as i64;
        self.note(stream, &format!("data {len}"));
        out.put_chunk(chunk.split_to(len));
    }

    fn expect_trailers(&mut self, _: StreamId) {}

    fn send_trailers(&mut self, stream: StreamId, _: &FieldMap, _: &mut WriteList) {
        self.note(stream, "trailers");
    }

    fn finish(&mut self, stream: StreamId, out: &mut WriteList) {
        self.note(stream, "finish");
        out.put(b"finish");
    }

    fn reset(&mut self, stream: StreamId, _: &mut WriteList) {
        self.note(stream, "reset");
    }
}

impl ServerMachine for Pair {
    fn exchanges_max(&self) -> usize {
        EXCHANGES_MAX
    }

    fn handle_bytes(
        &mut self,
        _: Instant,
        bytes: &[u8],
        head: &mut Head,
        _: &mut WriteList,
    ) -> (usize, Option<ServerEvent>) {
        if let Some(stream) = self.ending.take() {
            return (0, Some(ServerEvent::End { stream }));
        }
        let &[kind, stream, len, ref rest @ ..] = bytes else { return (0, None) };
        let Some(bytes) = rest.get(..usize::from(len)) else { return (0, None) };
        let stream = StreamId(u32::from(stream));
        let event = match kind {
            b'H' => {
                head.clear();
                head.set_target(std::str::from_utf8(bytes).expect("a test's target")).expect("a test's target");
                Some(ServerEvent::Head { stream, body: BodyLength::Unknown, upgrade: false })
            }
            b'D' => Some(ServerEvent::Data { stream, range: 3..3 + bytes.len() }),
            b'L' => {
                self.ending = Some(stream);
                Some(ServerEvent::Data { stream, range: 3..3 + bytes.len() })
            }
            b'E' => Some(ServerEvent::End { stream }),
            b'F' => Some(ServerEvent::Fault { stream: Some(stream), fault: StatusCode::BAD_REQUEST }),
            b'W' => {
                *self.window_mut(stream) += i64::from(bytes[0]);
                None
            }
            other => panic!("no such frame: {other}"),
        };
        (3 + bytes.len(), event)
    }

    fn set_limits(&mut self, _: &ListenerPlan) {
        self.log.push("renewed".to_owned());
    }

    fn handle_eof(&mut self) -> Option<ServerEvent> {
        self.log.push("end".to_owned());
        None
    }

    fn handle_timeout(&mut self, _: &mut WriteList) -> Option<ServerEvent> {
        None
    }

    fn expects_continue(&self, _: StreamId) -> bool {
        self.expects_continue
    }

    fn send_continue(&mut self, _: StreamId, _: &mut WriteList) {}

    fn send_interim(&mut self, stream: StreamId, status: StatusCode, _: &FieldMap, _: &mut WriteList) {
        self.note(stream, &format!("interim {}", status.as_u16()));
    }

    fn send_head(&mut self, stream: StreamId, head: &ResponseHead, _: Framing, _: &[u8; 29], out: &mut WriteList) {
        self.note(stream, &format!("head {}", head.status().as_u16()));
        out.put(b"head");
    }

    fn refuse(&mut self, stream: StreamId, status: StatusCode, _: &[u8; 29], _: &mut WriteList) {
        self.note(stream, &format!("refuse {}", status.as_u16()));
    }
}
