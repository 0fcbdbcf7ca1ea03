//! One connection in the web server's role.
//!
//! Three state machines run side by side: the records, the response that their STDOUT content forms, and the request.
//! ```text
//! reading:   Header ──header──► Content ──content and padding──► Header
//! inbound:   Idle ──open──► Unanswered ──STDOUT──► Head ──empty line──► Body ──END_REQUEST, or the end after STDOUT's──► Closed
//!              │              │                     │             └──announced end, the request is complete─► Discarding ──any end──► Closed
//!              │              │                     │──empty line of a response without content─────────────► Discarding ──any end──► Closed
//!              │              └─────────────────────┴────────────┴──fault, reset, the connection's end──────► Closed
//!              └──bytes, the connection's end───────────────────────────────────────────────────────────────► Closed
//! outbound:  Idle ──open──► Sized │ Stream ──finish──► Ended
//! ```

use std::ops::Range;
use std::rc::Rc;

use causeway_message::{Chunk, Framing, Method, OpenError, ResponseHead, StreamId, WaitsFor, WriteList};

use crate::chunked::ChunkPosition;
use crate::error::FastCgiError;
use crate::limits::Limits;
use crate::parameters::pair_len;
use crate::record::{
    BODY_LEN, CONTENT_MAX, HEADER_LEN, REQUEST_ID, RecordHeader, RecordKind, StreamKind, put_begin, put_stream_header,
};
use crate::response::{self, ContentEnd, HeadSearch};

/// An event of [`FastCgiClient`].
pub type FastCgiEvent = causeway_message::ClientEvent<FastCgiError>;
/// The result of one [`FastCgiClient::handle_bytes`] call.
pub type FastCgiHandled = causeway_message::Handled<FastCgiEvent>;

const NOTHING: FastCgiHandled = FastCgiHandled { consumed: 0, event: None };
const STREAM: StreamId = StreamId(REQUEST_ID as u32);

/// `protocolStatus` of END_REQUEST (§5.5).
const REQUEST_COMPLETE: u8 = 0;
const OVERLOADED: u8 = 2;

/// Bytes of STDOUT that are discarded after a complete response, such as the content of a response to HEAD. An
/// application that writes more is aborted.
const DISCARDED_BYTES_MAX: u32 = 1024 * 1024;

#[cfg(test)]
const _: () = assert!(size_of::<FastCgiClient>() <= 120);

/// The web server's side of one connection, which carries one request.
///
/// After [`FastCgiClient::open`], pass received bytes to [`FastCgiClient::handle_bytes`] repeatedly, each time from the
/// first byte that was not consumed, until it returns neither consumed bytes nor an event.
#[derive(Debug)]
pub struct FastCgiClient {
    limits: Rc<Limits>,
    reading: Reading,
    inbound: ResponsePosition,
    outbound: Outbound,
    /// The part of a response's head that arrived in earlier records or reads.
    gathered: Vec<u8>,
    search: HeadSearch,
    /// The request's method is HEAD.
    is_head: bool,
    /// STDOUT has ended.
    stdout_ended: bool,
    draining: bool,
}

/// The position in the records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reading {
    Header,
    /// In a record, with this much of its content and its padding left.
    Content {
        kind: RecordKind,
        left: u16,
        padding: u8,
    },
}

/// The position in the response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ResponsePosition {
    /// No request was sent: any byte is unexpected.
    Idle,
    /// A request was sent, and no byte of STDOUT has arrived.
    Unanswered,
    Head,
    Body(BodyPosition),
    /// The response is complete, but the application goes on: this many bytes more of STDOUT are discarded.
    Discarding {
        left: u32,
    },
    /// No further input is parsed, and the connection ends once the pending output is written.
    Closed,
}

/// The position in the content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BodyPosition {
    /// The end of the response is the content's.
    Open,
    /// This much of the announced length is left.
    Sized {
        left: u64,
    },
    Chunked(ChunkPosition),
}

impl BodyPosition {
    /// Whether all of the content has arrived that the head or the content itself announced.
    fn is_complete(self) -> bool {
        matches!(self, Self::Sized { left: 0 } | Self::Chunked(ChunkPosition::Done))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outbound {
    Idle,
    Sized(u64),
    Stream,
    /// The request is complete, or is not sent any more.
    Ended,
}

impl FastCgiClient {
    /// A new connection.
    #[must_use]
    pub fn new(limits: Rc<Limits>) -> Self {
        Self {
            limits,
            reading: Reading::Header,
            inbound: ResponsePosition::Idle,
            outbound: Outbound::Idle,
            gathered: Vec::new(),
            search: HeadSearch::default(),
            is_head: false,
            stdout_ended: false,
            draining: false,
        }
    }

    /// The input that the connection waits for. The driver itself bounds the time until a response begins.
    #[must_use]
    pub fn waits_for(&self) -> WaitsFor {
        match self.inbound {
            ResponsePosition::Idle if !self.should_close() => WaitsFor::KeepAlive,
            ResponsePosition::Head => WaitsFor::Head,
            ResponsePosition::Body(_) => WaitsFor::Body,
            ResponsePosition::Idle
            | ResponsePosition::Unanswered
            | ResponsePosition::Discarding { .. }
            | ResponsePosition::Closed => WaitsFor::Nothing,
        }
    }

    /// Whether the driver should close the connection once all output is written.
    #[must_use]
    pub fn should_close(&self) -> bool {
        self.inbound == ResponsePosition::Closed || self.draining && self.is_idle()
    }

    /// Whether no further request can be sent. True from the first request on: a connection carries one.
    #[must_use]
    pub fn is_last(&self) -> bool {
        self.draining || self.inbound != ResponsePosition::Idle
    }

    /// Whether no exchange is open.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        matches!(self.inbound, ResponsePosition::Idle | ResponsePosition::Closed)
    }

    /// The number of requests that may be sent now, 0 or 1.
    #[must_use]
    pub fn room(&self) -> usize {
        usize::from(!self.is_last())
    }

    /// Whether this exchange accepts content: it is open, and its request is not complete.
    #[must_use]
    pub fn writable(&self, stream: StreamId) -> bool {
        stream == STREAM && matches!(self.outbound, Outbound::Sized(_) | Outbound::Stream)
    }

    /// Sends the begin of a request: its parameters, as [`put_parameter`](crate::put_parameter) encodes them, and for
    /// [`Framing::Empty`] its end. `method` only decides how the response is parsed. The request's content must have
    /// the length that the parameter CONTENT_LENGTH announces.
    ///
    /// # Errors
    /// [`OpenError::Head`] if a parameter is longer than a record, or not whole; or for [`Framing::Tunnel`], which
    /// FastCGI does not have.
    pub fn open(
        &mut self,
        parameters: &[u8],
        method: Method<'_>,
        framing: Framing,
        out: &mut WriteList,
    ) -> Result<StreamId, OpenError> {
        if self.is_last() {
            return Err(OpenError::Ending);
        }
        if framing == Framing::Tunnel || !are_sendable(parameters) {
            return Err(OpenError::Head);
        }
        put_begin(out);
        put_parameters(parameters, out);
        put_stream_header(StreamKind::Params, 0, out);
        self.is_head = method == Method::Head;
        self.inbound = ResponsePosition::Unanswered;
        self.outbound = match framing {
            Framing::Sized(bytes) => Outbound::Sized(bytes),
            Framing::Stream => Outbound::Stream,
            Framing::Empty | Framing::Tunnel => {
                put_stream_header(StreamKind::Stdin, 0, out);
                Outbound::Ended
            }
        };
        Ok(STREAM)
    }

    /// Parses bytes from the application. Fills `head` for [`FastCgiEvent::Head`]. O(n) over all calls; allocates only
    /// for a head that does not arrive in one piece. The bytes of a record's header are consumed together.
    ///
    /// A response without content is complete with its head, and one whose content has an announced end with
    /// [`FastCgiEvent::End`]. The application may go on after either, until the connection [is
    /// idle](FastCgiClient::is_idle): then another [`FastCgiEvent::End`] follows.
    pub fn handle_bytes(&mut self, input: &[u8], head: &mut ResponseHead, _out: &mut WriteList) -> FastCgiHandled {
        let mut consumed = 0;
        loop {
            let rest = &input[consumed..];
            if self.inbound == ResponsePosition::Closed {
                return FastCgiHandled { consumed: input.len(), event: None };
            }
            if self.is_answered() {
                self.inbound = ResponsePosition::Discarding { left: DISCARDED_BYTES_MAX };
                return FastCgiHandled { consumed, event: Some(FastCgiEvent::End { stream: STREAM }) };
            }
            let step = match self.reading {
                Reading::Header => self.handle_header(rest),
                Reading::Content { kind, left: left @ 1.., padding } => {
                    let len = usize::from(left).min(rest.len());
                    let step = if len == 0 { NOTHING } else { self.handle_content(kind, &rest[..len], head) };
                    // At most `left`, so it fits.
                    self.advance(kind, left - step.consumed as u16, padding);
                    step
                }
                Reading::Content { kind, left: 0, padding } => {
                    let skipped = usize::from(padding).min(rest.len());
                    self.advance(kind, 0, padding - skipped as u8);
                    FastCgiHandled { consumed: skipped, event: None }
                }
            };
            if let Some(event) = step.event {
                let event = shifted(event, consumed);
                return FastCgiHandled { consumed: consumed + step.consumed, event: Some(event) };
            }
            if step.consumed == 0 {
                return FastCgiHandled { consumed, event: None };
            }
            consumed += step.consumed;
        }
    }

    /// Handles the end of the connection, orderly or not: records delimit a response, so the kind of end makes no
    /// difference. Call it once [`FastCgiClient::handle_bytes`] consumes no more of the received bytes.
    pub fn handle_eof(&mut self) -> Option<FastCgiEvent> {
        match self.inbound {
            ResponsePosition::Idle | ResponsePosition::Closed => {
                self.close();
                None
            }
            ResponsePosition::Unanswered => {
                self.close();
                Some(FastCgiEvent::Unprocessed { stream: STREAM, fault: None })
            }
            // §5.5: an application sends END_REQUEST, but without it the content is complete all the same if its own
            // end, or all of its announced bytes, have arrived.
            ResponsePosition::Body(position) if position.is_complete() => Some(self.end()),
            ResponsePosition::Body(BodyPosition::Open) if self.stdout_ended => Some(self.end()),
            ResponsePosition::Discarding { .. } => Some(self.end()),
            ResponsePosition::Head | ResponsePosition::Body(_) => self.fail(FastCgiError::Truncated).event,
        }
    }

    /// Accepts no request any more; the connection has to be closed once the open exchange has ended.
    pub fn drain(&mut self) {
        self.draining = true;
    }

    /// Sends content, by reference if it is large. Takes all of `chunk`; drops bytes beyond the end of a sized
    /// content, and bytes that the application no longer reads.
    pub fn send(&mut self, stream: StreamId, chunk: &mut Chunk, out: &mut WriteList) {
        let mut chunk = std::mem::take(chunk);
        if stream != STREAM {
            return;
        }
        match &mut self.outbound {
            Outbound::Sized(left) => {
                let len = usize::try_from(*left).unwrap_or(usize::MAX).min(chunk.len());
                *left -= len as u64;
                put_content(chunk.split_to(len), out);
            }
            Outbound::Stream => put_content(chunk, out),
            Outbound::Idle | Outbound::Ended => {}
        }
    }

    /// Completes the request. If sized content is too short, this is a [`FastCgiClient::reset`].
    pub fn finish(&mut self, stream: StreamId, out: &mut WriteList) {
        if stream != STREAM {
            return;
        }
        match self.outbound {
            Outbound::Idle | Outbound::Ended => {}
            Outbound::Sized(1..) => self.reset(stream),
            Outbound::Sized(0) | Outbound::Stream => {
                put_stream_header(StreamKind::Stdin, 0, out);
                self.outbound = Outbound::Ended;
            }
        }
    }

    /// Aborts the exchange: no more bytes are sent or parsed, and the connection has to be closed, which the
    /// application takes for FCGI_ABORT_REQUEST (§5.4). Does nothing if the exchange is over.
    pub fn reset(&mut self, stream: StreamId) {
        if stream == STREAM && !self.is_idle() {
            self.close();
        }
    }

    fn handle_header(&mut self, input: &[u8]) -> FastCgiHandled {
        let Some(header) = input.first_chunk::<HEADER_LEN>() else { return NOTHING };
        if self.inbound == ResponsePosition::Idle {
            return self.fail(FastCgiError::RequestId);
        }
        let RecordHeader { kind, content_len, padding_len } = match RecordHeader::parse(header) {
            Ok(header) => header,
            Err(fault) => return self.fail(fault),
        };
        if kind == RecordKind::EndRequest {
            // Eight bytes, awaited together with the header.
            let Some(body) = input[HEADER_LEN..].first_chunk::<BODY_LEN>() else { return NOTHING };
            return self.handle_end_request(*body);
        }
        // §3.3: a record without content ends its stream.
        self.stdout_ended |= kind == RecordKind::Stdout && content_len == 0;
        self.advance(kind, content_len, padding_len);
        FastCgiHandled { consumed: HEADER_LEN, event: None }
    }

    /// Whether the application has nothing to receive or to respond any more, although it has not ended. Before the
    /// request is complete, the application may still read it.
    fn is_answered(&self) -> bool {
        matches!(self.inbound, ResponsePosition::Body(position) if position.is_complete())
            && self.outbound == Outbound::Ended
    }

    /// Sets the position in a record; at its end, the next header follows.
    fn advance(&mut self, kind: RecordKind, left: u16, padding: u8) {
        self.reading =
            if left == 0 && padding == 0 { Reading::Header } else { Reading::Content { kind, left, padding } };
    }

    /// Handles a part of a record's content, not empty. The range of an event is relative to `input`.
    fn handle_content(&mut self, kind: RecordKind, input: &[u8], head: &mut ResponseHead) -> FastCgiHandled {
        let consumed = input.len();
        match kind {
            RecordKind::Stderr => {
                let event = FastCgiEvent::Diagnostics { stream: STREAM, range: 0..consumed };
                FastCgiHandled { consumed, event: Some(event) }
            }
            RecordKind::Stdout => self.handle_stdout(input, head),
            RecordKind::EndRequest | RecordKind::Skipped => FastCgiHandled { consumed, event: None },
        }
    }

    fn handle_stdout(&mut self, input: &[u8], head: &mut ResponseHead) -> FastCgiHandled {
        let consumed = input.len();
        match &mut self.inbound {
            // Also after STDOUT's end: the bound is on all that the application makes us read.
            ResponsePosition::Discarding { left } => {
                match left.checked_sub(u32::try_from(consumed).unwrap_or(u32::MAX)) {
                    Some(rest) => {
                        *left = rest;
                        FastCgiHandled { consumed, event: None }
                    }
                    None => FastCgiHandled { consumed, event: Some(self.end()) },
                }
            }
            _ if self.stdout_ended => FastCgiHandled { consumed, event: None },
            ResponsePosition::Unanswered | ResponsePosition::Head => self.handle_head(input, head),
            // RFC 9110 §8.6: the content ends at its announced length. The surplus is dropped with the connection.
            ResponsePosition::Body(BodyPosition::Sized { left: 0 }) => {
                let event = Some(self.end());
                FastCgiHandled { consumed, event }
            }
            ResponsePosition::Body(BodyPosition::Sized { left }) => {
                let len = consumed.min(usize::try_from(*left).unwrap_or(usize::MAX));
                *left -= len as u64;
                data(len, 0..len)
            }
            ResponsePosition::Body(BodyPosition::Open) => data(consumed, 0..consumed),
            ResponsePosition::Body(BodyPosition::Chunked(position)) => match position.handle(input) {
                Ok((consumed, range)) => data(consumed, range),
                Err(fault) => self.fail(fault),
            },
            ResponsePosition::Idle | ResponsePosition::Closed => FastCgiHandled { consumed, event: None },
        }
    }

    fn handle_head(&mut self, input: &[u8], head: &mut ResponseHead) -> FastCgiHandled {
        self.inbound = ResponsePosition::Head;
        let before = self.gathered.len();
        if before > 0 {
            self.gathered.extend_from_slice(input);
        }
        let bytes = if before > 0 { &*self.gathered } else { input };
        let Some(end) = self.search.end(bytes) else {
            if bytes.len() >= self.limits.head_bytes_max as usize {
                return self.fail(FastCgiError::HeadTooLong);
            }
            if before == 0 {
                self.gathered.extend_from_slice(input);
            }
            return FastCgiHandled { consumed: input.len(), event: None };
        };
        match response::parse(&bytes[..end], self.is_head, &self.limits, head) {
            Ok(end_of_content) => {
                self.inbound = match end_of_content {
                    // RFC 3875 §6: the script may work on after its response, so its output is read to its end.
                    ContentEnd::Absent => ResponsePosition::Discarding { left: DISCARDED_BYTES_MAX },
                    ContentEnd::Sized(left) => ResponsePosition::Body(BodyPosition::Sized { left }),
                    ContentEnd::Open => ResponsePosition::Body(BodyPosition::Open),
                    ContentEnd::Chunked => ResponsePosition::Body(BodyPosition::Chunked(ChunkPosition::START)),
                };
                self.gathered = Vec::new();
                let event = FastCgiEvent::Head { stream: STREAM, body: end_of_content.length() };
                FastCgiHandled { consumed: end - before, event: Some(event) }
            }
            Err(fault) => self.fail(fault),
        }
    }

    /// The request is over for the application. Its exit status, `appStatus`, is independent of the response.
    fn handle_end_request(&mut self, [_, _, _, _, protocol_status, ..]: [u8; BODY_LEN]) -> FastCgiHandled {
        match (protocol_status, self.inbound) {
            (_, ResponsePosition::Discarding { .. }) => {
                FastCgiHandled { consumed: HEADER_LEN + BODY_LEN, event: Some(self.end()) }
            }
            (OVERLOADED, _) => self.fail(FastCgiError::Overloaded),
            (REQUEST_COMPLETE, ResponsePosition::Body(position))
                if position == BodyPosition::Open || position.is_complete() =>
            {
                FastCgiHandled { consumed: HEADER_LEN + BODY_LEN, event: Some(self.end()) }
            }
            (REQUEST_COMPLETE, _) => self.fail(FastCgiError::Truncated),
            _ => self.fail(FastCgiError::Refused),
        }
    }

    fn end(&mut self) -> FastCgiEvent {
        self.close();
        FastCgiEvent::End { stream: STREAM }
    }

    fn close(&mut self) {
        self.inbound = ResponsePosition::Closed;
        // Content that is still sent is dropped: the application has no use for it.
        self.outbound = Outbound::Ended;
        self.gathered = Vec::new();
    }

    #[cold]
    fn fail(&mut self, fault: FastCgiError) -> FastCgiHandled {
        if let ResponsePosition::Discarding { .. } = self.inbound {
            // The client has the response, and nothing of it can be wrong any more.
            return FastCgiHandled { consumed: 0, event: Some(self.end()) };
        }
        self.close();
        FastCgiHandled { consumed: 0, event: Some(FastCgiEvent::Broken { fault: Some(fault) }) }
    }
}

/// The result for a part of the content; an empty range is no event.
fn data(consumed: usize, range: Range<usize>) -> FastCgiHandled {
    let event = if range.is_empty() { None } else { Some(FastCgiEvent::Data { stream: STREAM, range }) };
    FastCgiHandled { consumed, event }
}

/// Moves the range of an event.
fn shifted(event: FastCgiEvent, by: usize) -> FastCgiEvent {
    match event {
        FastCgiEvent::Data { stream, range } => FastCgiEvent::Data { stream, range: range.start + by..range.end + by },
        FastCgiEvent::Diagnostics { stream, range } => {
            FastCgiEvent::Diagnostics { stream, range: range.start + by..range.end + by }
        }
        event => event,
    }
}

/// Whether each parameter is whole and fits into a record: php-fpm reads parameters record by record, although §3.4
/// allows one to continue in the next record.
fn are_sendable(mut parameters: &[u8]) -> bool {
    while !parameters.is_empty() {
        match pair_len(parameters) {
            Some(len) if len <= CONTENT_MAX => parameters = &parameters[len..],
            _ => return false,
        }
    }
    true
}

/// Appends the parameters as records that hold whole parameters. `are_sendable` has accepted them.
fn put_parameters(mut parameters: &[u8], out: &mut WriteList) {
    while !parameters.is_empty() {
        let mut len = if parameters.len() <= CONTENT_MAX { parameters.len() } else { 0 };
        while let Some(pair) = pair_len(&parameters[len..])
            && len + pair <= CONTENT_MAX
        {
            len += pair;
        }
        put_stream_header(StreamKind::Params, len, out);
        out.put(&parameters[..len]);
        parameters = &parameters[len..];
    }
}

fn put_content(mut chunk: Chunk, out: &mut WriteList) {
    while !chunk.is_empty() {
        let part = chunk.split_to(chunk.len().min(CONTENT_MAX));
        put_stream_header(StreamKind::Stdin, part.len(), out);
        out.put_chunk(part);
    }
}
