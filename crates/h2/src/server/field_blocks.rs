//! Field blocks: each opens a stream, ends one with trailers, or violates a rule. Every block is decoded.

use causeway_message::{Head, StreamId, WriteList};

use super::{Server, ShutdownPhase, short_end};
use crate::connection::{FieldBlock, InputStep};
use crate::error::{ConnectionError, ErrorCode};
use crate::event::Event;
use crate::head::{HeadError, NoSink, RequestSink, RequestSummary, TrailerSink};
use crate::priority::Priority;
use crate::stream::{Local, Remote, RequestKind};

impl Server {
    #[inline]
    pub(super) fn handle_block(
        &mut self,
        block: &FieldBlock<'_>,
        head: &mut Head,
        out: &mut WriteList,
    ) -> Result<Option<Event>, ConnectionError> {
        let id = block.stream;
        if id <= self.connection.last || id & 1 == 0 {
            return self.handle_later_block(block, head, out);
        }
        if let Some(refusal) = self.refusal(id) {
            return self.refuse(block, refusal, out);
        }
        self.connection.note_opened(id);
        let mut sink = RequestSink::new(head, &self.connection.settings);
        self.connection.decode(block, &mut sink)?;
        let request = sink.finish(block.end_stream);
        // RFC 7540 §5.3.1: a stream cannot depend on itself.
        if block.self_dependent {
            return self.reset_unannounced(id, ErrorCode::Protocol, out);
        }
        match request {
            Ok(request) => {
                let event = self.open_request(id, request, block.end_stream);
                if let ShutdownPhase::Draining { left } = &mut self.shutdown {
                    // A peer that keeps sending requests without acknowledging our PING has received the GOAWAY
                    // nevertheless.
                    *left = left.saturating_sub(1);
                    if *left == 0 {
                        self.send_goaway(out);
                    }
                }
                Ok(Some(event))
            }
            Err(problem) => self.handle_problem(id, problem, block.end_stream, out),
        }
    }

    #[inline]
    fn open_request(&mut self, id: u32, request: RequestSummary, end_stream: bool) -> Event {
        let RequestSummary { body, declared, kind, priority, head_bytes } = request;
        let priority = self.priority_of(id, priority);
        let remote = if end_stream { Remote::Done } else { Remote::Open(declared) };
        self.connection.open(id, (kind, head_bytes), remote, Local::HeadPending, priority);
        Event::Head { stream: StreamId(id), body, upgrade: kind.is_connect }
    }

    // A priority received before the stream was opened overrides the one in its head (RFC 9218 §7.1).
    #[inline]
    fn priority_of(&mut self, id: u32, requested: Option<Priority>) -> Priority {
        if self.early_priorities.is_empty() {
            requested.unwrap_or_default()
        } else {
            self.early_priority(id).or(requested).unwrap_or_default()
        }
    }

    #[cold]
    fn early_priority(&mut self, id: u32) -> Option<Priority> {
        let found = self
            .early_priorities
            .iter()
            .position(|(early, _)| *early == id)
            .map(|at| self.early_priorities.swap_remove(at).1);
        // Skipped streams are closed.
        self.early_priorities.retain(|(early, _)| *early > id);
        if self.early_priorities.is_empty() {
            self.early_priorities = Vec::new();
        }
        found
    }

    // Whether a new stream is refused, and whether the peer is notified.
    #[inline]
    fn refusal(&self, id: u32) -> Option<Refusal> {
        let streams = &self.connection.streams;
        let streams_max = self.connection.settings.streams_max as usize;
        match self.shutdown {
            // RFC 9113 §6.8: streams after the last one are ignored.
            ShutdownPhase::Last(last) if id > last => Some(Refusal::Ignore),
            _ if streams.len() >= streams_max && streams.counted() >= streams_max => Some(Refusal::Reset),
            // Tested before the block is decoded, so the sum exceeds its bound by one head at most.
            _ if streams.heads_bytes() >= u64::from(self.connection.settings.open_heads_bytes_max) => {
                Some(Refusal::Reset)
            }
            _ => None,
        }
    }

    #[cold]
    fn refuse(
        &mut self,
        block: &FieldBlock<'_>,
        refusal: Refusal,
        out: &mut WriteList,
    ) -> Result<Option<Event>, ConnectionError> {
        self.connection.decode(block, &mut NoSink)?;
        self.connection.note_opened(block.stream);
        match refusal {
            Refusal::Reset => self.reset_unannounced(block.stream, ErrorCode::RefusedStream, out),
            Refusal::Ignore => {
                self.connection.budget_use.count_reset(&self.connection.settings.budgets)?;
                self.connection.ignore_from_now(block.stream);
                Ok(None)
            }
        }
    }

    // Resets a stream that was not reported to the driver.
    #[cold]
    fn reset_unannounced(
        &mut self,
        id: u32,
        code: ErrorCode,
        out: &mut WriteList,
    ) -> Result<Option<Event>, ConnectionError> {
        self.connection.reset_for(id, code, out)?;
        Ok(None)
    }

    #[cold]
    fn handle_problem(
        &mut self,
        id: u32,
        problem: HeadError,
        end_stream: bool,
        out: &mut WriteList,
    ) -> Result<Option<Event>, ConnectionError> {
        match problem {
            HeadError::Malformed => self.reset_unannounced(id, ErrorCode::Protocol, out),
            // The stream is opened so that the driver can send an error response.
            HeadError::Refused(status) => {
                let remote = if end_stream { Remote::Done } else { Remote::Open(None) };
                self.connection.open(id, (RequestKind::default(), 0), remote, Local::HeadPending, Priority::default());
                Ok(Some(Event::Fault { stream: Some(StreamId(id)), fault: status }))
            }
        }
    }

    // Handles a block on a stream that was opened before: trailers, or a violation.
    fn handle_later_block(
        &mut self,
        block: &FieldBlock<'_>,
        head: &mut Head,
        out: &mut WriteList,
    ) -> Result<Option<Event>, ConnectionError> {
        let (id, connection) = (block.stream, &mut self.connection);
        // RFC 9113 §5.1.1: a client's streams are odd.
        if id & 1 == 0 {
            return Err(ConnectionError::PROTOCOL);
        }
        let Some(stream) = connection.streams.get(id) else {
            connection.handle_late_block(block)?;
            return Ok(None);
        };
        if stream.is_closed() {
            return Err(ConnectionError::STREAM_CLOSED);
        }
        let is_open = stream.remote != Remote::Done;
        let mut sink = TrailerSink::new(head, &connection.settings);
        connection.decode(block, &mut sink)?;
        let is_good = sink.finish().is_ok();
        let code = match (is_open, block.end_stream && !block.self_dependent && is_good) {
            (true, true) => None,
            // RFC 9113 §8.1: a second block that does not end the stream is malformed.
            (true, false) => Some(ErrorCode::Protocol),
            (false, _) => Some(ErrorCode::StreamClosed),
        };
        let step = match code {
            Some(code) => connection.reset_for(id, code, out)?,
            None => connection.end_remote(id, out)?,
        };
        let stream = StreamId(id);
        Ok(match step {
            InputStep::End(_) if head.fields().is_empty() => Some(Event::End { stream }),
            InputStep::End(_) => Some(Event::Trailers { stream }),
            InputStep::ShortEnd(_) => Some(short_end(stream)),
            InputStep::Reset(..) => Some(Event::Reset { stream }),
            _ => None,
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refusal {
    Ignore,
    Reset,
}
