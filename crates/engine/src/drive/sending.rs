//! The content that an exchange sends: a response's, or an upload's to an upstream.
//!
//! ```text
//! NotBegun ──begin──► Open ──end of the content, finish, cut──► Done
//!    └─────begin_held──► Held ──start──► Open
//! ```
//! Streams that share a connection send by turns: each time at most the stream's quantum. Between two writes of the
//! output a stream queues at most [`STREAM_BYTES_MAX`].

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::{Context as PollContext, Waker};
use std::time::Instant;

use causeway_message::{FieldMap, NameRef, StreamId, WriteList, names};
use causeway_pipeline::{Body, BodyError};

use super::OUTPUT_BYTES_MAX;
use crate::clock;
use crate::content::{Content, Pull};
use crate::machine::{Framing, Machine};
use crate::worker::Core;

/// Bytes that one stream may add to the output before the output is written.
pub(super) const STREAM_BYTES_MAX: usize = 64 * 1024;

/// The content of one message that is being sent, and its progress.
pub(crate) struct Sending {
    phase: Phase,
    /// Bytes of content that the stream took, also those beyond the announced length, which it drops.
    sent: u64,
    /// `sent` when the output was last empty.
    sent_at_flush: u64,
    /// Bytes of content that the head announced; 0 if it announced no length.
    announced: u64,
    /// The content's trailers, once the machine has them. It may have dropped some.
    trailers: Option<Box<FieldMap>>,
    /// The value of the head's `Trailer` field, if only its trailers may be sent.
    declared: Option<Box<[u8]>>,
}

enum Phase {
    /// No head is sent yet.
    NotBegun,
    /// The head is sent; the content waits for the peer's consent, as a tunnel's does.
    Held(Body),
    /// The content is being sent.
    Open(Content),
    /// Nothing more is sent.
    Done,
}

/// The result of queueing a quantum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PumpOutcome {
    /// More content may follow.
    Open,
    /// The content is complete, and the machine has its end.
    Finished,
    /// The content ended before its announced length, or its source failed. The stream was reset, so that the peer
    /// cannot mistake the part for the whole.
    Cut(BodyError),
    /// As `Cut`; the source panicked.
    Panicked,
}

/// Returns the framing of a message's content.
pub(super) fn framing_of(body: &Body) -> Framing {
    match body {
        Body::Tunnel(_) => Framing::Tunnel,
        body => match body.len() {
            Some(0) => Framing::Empty,
            Some(bytes) => Framing::Sized(bytes),
            None => Framing::Stream,
        },
    }
}

/// Returns whether a comma-separated list has this name.
pub(super) fn is_listed(list: &[u8], name: NameRef<'_>) -> bool {
    let is_name = |listed: &[u8]| listed.trim_ascii().eq_ignore_ascii_case(name.as_str().as_bytes());
    list.split(|&byte| byte == b',').any(is_name)
}

impl Sending {
    /// Before the head.
    pub(super) fn new() -> Self {
        Self { phase: Phase::NotBegun, sent: 0, sent_at_flush: 0, announced: 0, trailers: None, declared: None }
    }

    /// Sets the length that the head announces.
    pub(super) fn announce(&mut self, bytes: u64) {
        self.announced = bytes;
    }

    /// Returns whether the head announced a length.
    pub(super) fn has_length(&self) -> bool {
        self.announced > 0
    }

    /// Restricts the trailers to those that a `Trailer` field of the head lists.
    pub(super) fn declare_trailers(&mut self, fields: &FieldMap) {
        let mut declared = Vec::new();
        fields.write_joined(names::TRAILER.into(), &mut declared);
        self.declared = Some(declared.into());
    }

    /// Counts content that was sent with the head.
    pub(super) fn count(&mut self, bytes: usize) {
        self.sent += bytes as u64;
    }

    /// The head is sent, and this content follows.
    pub(super) fn begin(&mut self, content: Body) {
        self.phase = Phase::Open(content.into());
    }

    /// The head is sent; this content follows after [`start`](Self::start).
    pub(super) fn begin_held(&mut self, content: Body) {
        self.phase = Phase::Held(content);
    }

    /// Releases held content; otherwise without effect.
    pub(super) fn start(&mut self) {
        // Taken out and put back, since the content moves from one variant to another.
        self.phase = match std::mem::replace(&mut self.phase, Phase::Done) {
            Phase::Held(content) => Phase::Open(content.into()),
            phase => phase,
        };
    }

    /// Takes held content, of which nothing was read; then nothing more is sent. Otherwise without effect.
    pub(super) fn take_held(&mut self) -> Option<Body> {
        match std::mem::replace(&mut self.phase, Phase::Done) {
            Phase::Held(content) => Some(content),
            phase => {
                self.phase = phase;
                None
            }
        }
    }

    /// Sends nothing more; drops the content.
    pub(super) fn finish(&mut self) {
        self.phase = Phase::Done;
    }

    /// Records that the content's source may have woken the exchange. Returns whether the source was pending.
    pub(super) fn note_wakeup(&mut self) -> bool {
        let Phase::Open(content) = &mut self.phase else { return false };
        let was_pending = content.is_pending();
        content.note_wakeup();
        was_pending
    }

    /// The output was written: the stream may add to it again.
    pub(super) fn renew_share(&mut self) {
        self.sent_at_flush = self.sent;
    }

    pub(super) fn has_begun(&self) -> bool {
        !matches!(self.phase, Phase::NotBegun)
    }

    pub(super) fn is_open(&self) -> bool {
        matches!(self.phase, Phase::Open(_))
    }

    pub(super) fn is_done(&self) -> bool {
        matches!(self.phase, Phase::Done)
    }

    /// Bytes of content that were sent: the stream drops those beyond the announced length.
    pub(crate) fn sent(&self) -> u64 {
        if self.has_length() { self.sent.min(self.announced) } else { self.sent }
    }

    /// Takes the content's trailers, for the record of the exchange.
    pub(crate) fn take_trailers(&mut self) -> Option<Box<FieldMap>> {
        self.trailers.take()
    }

    /// Returns whether content is there, or may be: a source that was not pulled yet counts.
    pub(super) fn has_content(&self) -> bool {
        matches!(&self.phase, Phase::Open(content) if !content.is_pending())
    }

    /// Returns whether the content's source has nothing now, and will wake the exchange when it has.
    pub(super) fn awaits_source(&self) -> bool {
        matches!(&self.phase, Phase::Open(content) if content.is_pending())
    }

    /// Returns whether there is content that the stream accepts, so that only room in the output is missing.
    pub(super) fn has_sendable(&self, stream: StreamId, machine: &impl Machine) -> bool {
        self.has_content() && machine.writable(stream)
    }

    /// As [`has_sendable`](Self::has_sendable), and the stream has not used up its share of the output.
    pub(super) fn is_within_share(&self, stream: StreamId, machine: &impl Machine) -> bool {
        self.sent - self.sent_at_flush < STREAM_BYTES_MAX as u64 && self.has_sendable(stream, machine)
    }

    /// Queues content until the stream or the output is full, its quantum is used up, or the source has no more.
    /// `last_progress` is set when content or its end was queued; `waker` wakes the exchange when a pending source has
    /// more.
    pub(super) fn pump(
        &mut self,
        stream: StreamId,
        machine: &mut impl Machine,
        core: &Core,
        waker: &Waker,
        last_progress: &mut Instant,
        out: &mut WriteList,
    ) -> PumpOutcome {
        let Phase::Open(content) = &mut self.phase else { return PumpOutcome::Open };
        // HTTP/1.1 has one stream and an unlimited quantum, hence the saturation.
        let quantum_end = self.sent.saturating_add(machine.quantum(stream) as u64);
        let end = quantum_end.min(self.sent_at_flush + STREAM_BYTES_MAX as u64);
        // Three bounds: the peer's window, the memory of this connection, and the share of this stream.
        while machine.writable(stream) && out.len() < OUTPUT_BYTES_MAX && self.sent < end {
            let mut source = PollContext::from_waker(waker);
            // A panic may leave the source in any state. It is dropped with its exchange and never pulled again.
            let pull = catch_unwind(AssertUnwindSafe(|| content.pull(core, &mut source)));
            match pull {
                Ok(Pull::Chunk(mut chunk)) => {
                    // Where streams share the connection, a long piece must not take more than the quantum.
                    let quantum_left = if machine.is_multiplexed() { (end - self.sent) as usize } else { usize::MAX };
                    let mut part = chunk.slice(0..chunk.len().min(quantum_left));
                    let len = part.len();
                    if self.announced > 0 && self.sent + len as u64 >= self.announced && !content.is_over() {
                        machine.expect_trailers(stream);
                    }
                    // The machine takes as much as the window allows; the rest stays in the content.
                    machine.send(stream, &mut part, out);
                    chunk.advance(len - part.len());
                    self.sent += (len - part.len()) as u64;
                    *last_progress = clock::now();
                    content.put_back(chunk);
                }
                Ok(Pull::Trailers(mut fields)) => {
                    if let Some(declared) = &self.declared {
                        fields.retain(|name, _| is_listed(declared, name));
                    }
                    machine.send_trailers(stream, &fields, out);
                    self.trailers = Some(fields);
                }
                Ok(Pull::Pending) => return PumpOutcome::Open,
                // Content beyond the announced length was cut by the machine, so it does not matter here; missing
                // content does.
                Ok(Pull::End) if self.sent >= self.announced => {
                    machine.finish(stream, out);
                    *last_progress = clock::now();
                    self.phase = Phase::Done;
                    return PumpOutcome::Finished;
                }
                Ok(Pull::End) => return self.cut(PumpOutcome::Cut(BodyError::Source), stream, machine, out),
                Ok(Pull::Failed(error)) => return self.cut(PumpOutcome::Cut(error), stream, machine, out),
                Err(_) => {
                    core.counters.count_panic();
                    return self.cut(PumpOutcome::Panicked, stream, machine, out);
                }
            }
        }
        PumpOutcome::Open
    }

    #[cold]
    fn cut(
        &mut self,
        outcome: PumpOutcome,
        stream: StreamId,
        machine: &mut impl Machine,
        out: &mut WriteList,
    ) -> PumpOutcome {
        machine.reset(stream, out);
        self.phase = Phase::Done;
        outcome
    }
}
