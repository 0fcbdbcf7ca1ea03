//! The core that both roles share: frames in, flow control, streams, settings, frames out.
//!
//! [`Connection::next`] performs one step of the input. The roles interpret field blocks and open streams.
//! ```text
//! inbound:  Preface ─► Settings ─► Frame ◄──────────────┬──────────────┐
//!           (server)   (the first)   ├─DATA──────► Data ┴─END_STREAM─► End
//!                                    ├─no END_HEADERS──► Block ──CONTINUATION, END_HEADERS──► Frame
//!                                    └─ignored─────────► Skip ──► Frame          any fault ──► Over
//! ```
//! - `control`: frames about the connection
//! - `content`: received DATA
//! - `output`: sent content, and the ends of streams

mod content;
mod control;
mod output;

use std::collections::VecDeque;
use std::ops::Range;
use std::rc::Rc;
use std::time::Instant;

use causeway_message::WriteList;

use crate::budget::BudgetUse;
use crate::encode::HeadCache;
use crate::error::{ConnectionError, ErrorCode};
use crate::frame::{self, FrameHeader, HEADER_LEN, PAYLOAD_MAX, PREFACE, flag, kind};
use crate::head::NoSink;
use crate::hpack::{Decoder, Encoder, Sink, TABLE_BYTES_MAX};
use crate::priority::{Priority, Rotation};
use crate::settings::{PeerSettings, Settings};
use crate::stream::{Local, Remote, RequestKind, Stream, Streams};
use crate::window::{ReceiveWindow, WINDOW_DEFAULT, Window};

/// Upper bound on the number of a client's streams that we reset most recently and whose late frames are still ignored.
const RESETS_KEPT_MAX: u32 = 8192;

#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) settings: Rc<Settings>,
    pub(crate) peer: PeerSettings,
    pub(crate) streams: Streams,
    pub(crate) decoder: Decoder,
    pub(crate) encoder: Encoder,
    pub(crate) head_cache: HeadCache,
    pub(crate) budget_use: BudgetUse,
    pub(crate) rotation: Rotation,
    role: Role,
    inbound: InputState,
    send: Window,
    receive: ReceiveWindow,
    /// The highest stream that either side opened.
    pub(crate) last: u32,
    // The last range of skipped streams: closed, and never used.
    gap: (u32, u32),
    // Streams of a client that we reset, the most recent ones.
    resets: VecDeque<u32>,
    // Whether our SETTINGS were sent, and whether the peer has acknowledged them.
    is_preface_sent: bool,
    acknowledged: bool,
    // Whether a frame is incomplete that is not DATA, or whose kind or padding is not yet received.
    partial: bool,
}

/// The role decides which bytes are sent and expected first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Server,
    Client,
}

#[derive(Debug)]
enum InputState {
    Preface,
    Settings,
    Frame,
    Data {
        stream: u32,
        left: u32,
        padding: u8,
        ends: bool,
    },
    /// Bytes left of a frame that is ignored.
    Skip(u32),
    Block(Box<PartialBlock>),
    Over,
}

/// A field block that is continued by further frames.
#[derive(Debug)]
struct PartialBlock {
    stream: u32,
    end_stream: bool,
    self_dependent: bool,
    continuations: u32,
    bytes: Vec<u8>,
}

/// A complete field block.
pub(crate) struct FieldBlock<'a> {
    pub(crate) stream: u32,
    pub(crate) end_stream: bool,
    /// The block's priority makes the stream depend on itself.
    pub(crate) self_dependent: bool,
    pub(crate) bytes: BlockBytes<'a>,
}

pub(crate) enum BlockBytes<'a> {
    Read(&'a [u8]),
    Joined(Vec<u8>),
}

impl BlockBytes<'_> {
    pub(crate) fn as_slice(&self) -> &[u8] {
        match self {
            Self::Read(bytes) => bytes,
            Self::Joined(bytes) => bytes,
        }
    }
}

/// The result of one step of the input.
pub(crate) enum InputStep<'a> {
    /// More bytes are needed.
    Wait,
    /// The step is complete and has no result for the caller.
    Done,
    Block(FieldBlock<'a>),
    Data {
        stream: u32,
        range: Range<usize>,
    },
    End(u32),
    /// The request's content has ended before its declared length, after the response has begun.
    ShortEnd(u32),
    /// The stream is over and removed from the table.
    Reset(u32, ErrorCode),
    /// The peer acknowledged a PING of ours.
    Pong([u8; 8]),
    /// The priority of a stream that is not open yet.
    IdleStreamPriority(u32, Priority),
    GoAway {
        last: u32,
        code: ErrorCode,
    },
}

impl Connection {
    pub(crate) fn new(settings: Rc<Settings>, role: Role) -> Self {
        Self {
            peer: PeerSettings::default(),
            streams: Streams::default(),
            decoder: Decoder::new(settings.decoder_table_bytes()),
            encoder: Encoder::new(settings.encoder_table_bytes.min(TABLE_BYTES_MAX)),
            head_cache: HeadCache::default(),
            budget_use: BudgetUse::new(&settings.budgets),
            rotation: Rotation::default(),
            inbound: if role == Role::Server { InputState::Preface } else { InputState::Settings },
            role,
            send: Window::new(WINDOW_DEFAULT),
            receive: ReceiveWindow::new(settings.connection_window.max(WINDOW_DEFAULT)),
            last: 0,
            gap: (0, 0),
            resets: VecDeque::new(),
            is_preface_sent: false,
            acknowledged: false,
            partial: false,
            settings,
        }
    }

    /// Sends the preface and SETTINGS before any other frame, once.
    #[inline]
    pub(crate) fn send_preface_once(&mut self, out: &mut WriteList) {
        if !self.is_preface_sent {
            self.send_preface(out);
        }
    }

    #[cold]
    fn send_preface(&mut self, out: &mut WriteList) {
        self.is_preface_sent = true;
        if self.role == Role::Client {
            out.put(PREFACE);
        }
        let (entries, count) = self.settings.entries(self.role);
        frame::put_settings(&entries[..count], out);
        let more = self.settings.connection_window.saturating_sub(WINDOW_DEFAULT);
        if more > 0 {
            frame::put_window_update(0, more, out);
        }
    }

    /// Prepares for received bytes.
    #[inline]
    pub(crate) fn begin_input(&mut self, now: Instant, out: &WriteList) {
        self.budget_use.begin(now, out);
    }

    /// Performs one step of the input from `at` on and moves `at` past the processed bytes.
    #[inline]
    pub(crate) fn next<'a>(
        &mut self,
        input: &'a [u8],
        at: &mut usize,
        out: &mut WriteList,
    ) -> Result<InputStep<'a>, ConnectionError> {
        match self.inbound {
            InputState::Frame => self.next_frame(input, at, out),
            InputState::Data { .. } => self.next_data(input, at, out),
            InputState::Skip(left) => Ok(self.skip(left, input, at)),
            InputState::Over => {
                *at = input.len();
                Ok(InputStep::Wait)
            }
            InputState::Preface | InputState::Settings | InputState::Block(_) => self.next_rare(input, at, out),
        }
    }

    #[cold]
    fn next_rare<'a>(
        &mut self,
        input: &'a [u8],
        at: &mut usize,
        out: &mut WriteList,
    ) -> Result<InputStep<'a>, ConnectionError> {
        let rest = &input[*at..];
        match &self.inbound {
            InputState::Preface => {
                let len = rest.len().min(PREFACE.len());
                if rest[..len] != PREFACE[..len] {
                    return Err(ConnectionError::PROTOCOL);
                }
                if len < PREFACE.len() {
                    return Ok(InputStep::Wait);
                }
                *at += len;
                self.inbound = InputState::Settings;
                Ok(InputStep::Done)
            }
            InputState::Settings => {
                // RFC 9113 §3.4: the first frame is SETTINGS without ACK.
                match FrameHeader::read(rest) {
                    Some(frame) if frame.kind != kind::SETTINGS || frame.has(flag::ACK) => {
                        Err(ConnectionError::PROTOCOL)
                    }
                    Some(frame) if frame.len > PAYLOAD_MAX => Err(ConnectionError::FRAME_SIZE),
                    Some(frame) if rest.len() >= HEADER_LEN + frame.len => {
                        self.inbound = InputState::Frame;
                        self.next_frame(input, at, out)
                    }
                    _ => Ok(InputStep::Wait),
                }
            }
            _ => self.next_continuation(input, at),
        }
    }

    #[inline]
    fn next_frame<'a>(
        &mut self,
        input: &'a [u8],
        at: &mut usize,
        out: &mut WriteList,
    ) -> Result<InputStep<'a>, ConnectionError> {
        let rest = &input[*at..];
        let Some(frame) = FrameHeader::read(rest) else {
            // An empty input does not show whether a frame has begun.
            if !input.is_empty() {
                self.partial = !rest.is_empty();
            }
            return Ok(InputStep::Wait);
        };
        if frame.len > PAYLOAD_MAX {
            return Err(ConnectionError::FRAME_SIZE);
        }
        if frame.kind == kind::DATA {
            self.partial = true;
            return self.begin_data(frame, rest, at, out);
        }
        // Skip an unknown frame as it arrives, without buffering it.
        let Some(payload) = rest[HEADER_LEN..].get(..frame.len) else {
            self.partial = true;
            if frame.kind > kind::CONTINUATION && frame.kind != kind::PRIORITY_UPDATE {
                return self.begin_unknown(frame, at);
            }
            return Ok(InputStep::Wait);
        };
        self.partial = false;
        *at += HEADER_LEN + frame.len;
        if frame.kind == kind::HEADERS {
            self.handle_headers(frame, payload)
        } else {
            self.handle_control_frame(frame, payload, out)
        }
    }

    // RFC 9113 §5.5: a frame of an unknown type is discarded.
    fn begin_unknown(&mut self, frame: FrameHeader, at: &mut usize) -> Result<InputStep<'static>, ConnectionError> {
        self.budget_use.count_control(&self.settings.budgets)?;
        *at += HEADER_LEN;
        self.inbound = InputState::Skip(frame.len as u32);
        Ok(InputStep::Done)
    }

    fn skip(&mut self, left: u32, input: &[u8], at: &mut usize) -> InputStep<'static> {
        let len = (left as usize).min(input.len() - *at);
        *at += len;
        let left = left - len as u32;
        if left == 0 {
            self.inbound = InputState::Frame;
            return InputStep::Done;
        }
        self.inbound = InputState::Skip(left);
        InputStep::Wait
    }

    // RFC 9113 §6.2.
    #[inline]
    fn handle_headers<'a>(&mut self, frame: FrameHeader, payload: &'a [u8]) -> Result<InputStep<'a>, ConnectionError> {
        if frame.stream == 0 {
            return Err(ConnectionError::PROTOCOL);
        }
        let mut fragment = payload;
        if frame.has(flag::PADDED) {
            fragment = unpadded(payload)?;
        }
        let mut self_dependent = false;
        if frame.has(flag::PRIORITY) {
            let (priority, rest) = fragment.split_first_chunk::<5>().ok_or(ConnectionError::FRAME_SIZE)?;
            self_dependent = depends_on(priority) == frame.stream;
            fragment = rest;
        }
        let end_stream = frame.has(flag::END_STREAM);
        if frame.has(flag::END_HEADERS) {
            let bytes = BlockBytes::Read(fragment);
            return Ok(InputStep::Block(FieldBlock { stream: frame.stream, end_stream, self_dependent, bytes }));
        }
        // Only a block in several frames is copied.
        self.partial = true;
        let bytes = fragment.to_vec();
        let joined = PartialBlock { stream: frame.stream, end_stream, self_dependent, continuations: 0, bytes };
        self.inbound = InputState::Block(Box::new(joined));
        Ok(InputStep::Done)
    }

    // RFC 9113 §6.10: no other frame is allowed between the frames of a block.
    fn next_continuation(&mut self, input: &[u8], at: &mut usize) -> Result<InputStep<'static>, ConnectionError> {
        let InputState::Block(joined) = &mut self.inbound else { return Ok(InputStep::Wait) };
        let rest = &input[*at..];
        let Some(frame) = FrameHeader::read(rest) else { return Ok(InputStep::Wait) };
        if frame.kind != kind::CONTINUATION || frame.stream != joined.stream {
            return Err(ConnectionError::PROTOCOL);
        }
        if frame.len > PAYLOAD_MAX {
            return Err(ConnectionError::FRAME_SIZE);
        }
        let Some(fragment) = rest[HEADER_LEN..].get(..frame.len) else { return Ok(InputStep::Wait) };
        joined.continuations += 1;
        let too_long = joined.bytes.len() + fragment.len() > self.settings.block_bytes_max();
        if joined.continuations > self.settings.continuations_max() || too_long {
            return Err(ConnectionError::CALM);
        }
        *at += HEADER_LEN + frame.len;
        joined.bytes.extend_from_slice(fragment);
        if !frame.has(flag::END_HEADERS) {
            return Ok(InputStep::Done);
        }
        let PartialBlock { stream, end_stream, self_dependent, ref mut bytes, .. } = **joined;
        let bytes = BlockBytes::Joined(std::mem::take(bytes));
        self.inbound = InputState::Frame;
        self.partial = false;
        Ok(InputStep::Block(FieldBlock { stream, end_stream, self_dependent, bytes }))
    }

    /// Whether no frame was ever sent on a stream (RFC 9113 §5.1.1). Neither side pushes, so even streams are always
    /// idle.
    pub(crate) fn is_idle_stream(&self, stream: u32) -> bool {
        stream & 1 == 0 || stream > self.last
    }

    /// Adds a stream to the table, with the current initial windows.
    #[inline]
    pub(crate) fn open(
        &mut self,
        id: u32,
        (kind, head_bytes): (RequestKind, u32),
        remote: Remote,
        local: Local,
        priority: Priority,
    ) {
        self.budget_use.stream_opened(&self.settings.budgets);
        self.streams.open(Stream {
            id,
            send: Window::new(self.peer.initial_window),
            receive: ReceiveWindow::new(self.settings.stream_window),
            unread: 0,
            priority,
            turn: self.rotation.last(),
            remote,
            local,
            kind,
            head_bytes,
        });
    }

    /// Decodes a field block. The blocks of rejected streams are decoded too, because the table depends on all of
    /// them (RFC 9113 §4.3).
    #[inline]
    pub(crate) fn decode(&mut self, block: &FieldBlock<'_>, sink: &mut impl Sink) -> Result<(), ConnectionError> {
        self.decoder.decode(block.bytes.as_slice(), sink).map_err(|_| ConnectionError::COMPRESSION)
    }

    /// Records that a stream was opened or refused. The streams that it skips are closed.
    #[inline]
    pub(crate) fn note_opened(&mut self, stream: u32) {
        if stream > self.last + 2 {
            // Only the last gap is kept: frames on skipped streams are rare, and only the error code depends on it.
            self.gap = (self.last + 1, stream - 1);
        }
        self.last = stream;
    }

    /// Ignores further frames on this stream. Also used for streams that were never opened here.
    #[cold]
    pub(crate) fn ignore_from_now(&mut self, stream: u32) {
        if self.role == Role::Client {
            return;
        }
        // All open streams may be reset at once, and as many more as the peer's budget allows.
        let kept = self.settings.streams_max.saturating_add(self.settings.budgets.resets).clamp(1, RESETS_KEPT_MAX);
        if self.resets.len() >= kept as usize {
            // Forget the oldest reset; a late frame on it is then an error.
            self.resets.pop_front();
        }
        self.resets.push_back(stream);
    }

    /// Handles a field block on a closed stream. It may have been in flight when the stream ended; it is decoded in
    /// any case.
    #[cold]
    pub(crate) fn handle_late_block(&mut self, block: &FieldBlock<'_>) -> Result<(), ConnectionError> {
        self.decode(block, &mut NoSink)?;
        self.check_closed(block.stream)?;
        match self.role {
            Role::Server => self.budget_use.count_control(&self.settings.budgets),
            // The response of each stream that the client has cancelled may be in flight.
            Role::Client => Ok(()),
        }
    }

    /// Returns the fault of a frame on a closed stream; `Ok` if the peer may not have received our reset yet.
    #[cold]
    pub(crate) fn check_closed(&self, stream: u32) -> Result<(), ConnectionError> {
        // RFC 9113 §5.1: frames may be in flight to a stream that we reset. A client may have cancelled any number of
        // its own streams, so it remembers none of them and ignores late frames on all.
        if self.role == Role::Client || self.resets.contains(&stream) {
            return Ok(());
        }
        // RFC 9113 §5.1.1: a skipped stream may not be opened any more; §5.1: an ended stream accepts no frames.
        let passed_over = (self.gap.0..=self.gap.1).contains(&stream);
        Err(if passed_over { ConnectionError::PROTOCOL } else { ConnectionError::STREAM_CLOSED })
    }

    /// Ends the connection: clears all streams and sends GOAWAY.
    #[cold]
    pub(crate) fn fail(&mut self, fault: ConnectionError, last: u32, out: &mut WriteList) {
        self.end();
        frame::put_goaway(last, fault.0, out);
    }

    pub(crate) fn end(&mut self) {
        self.inbound = InputState::Over;
        self.partial = false;
        self.streams.clear();
        self.resets = VecDeque::new();
    }

    pub(crate) fn is_over(&self) -> bool {
        matches!(self.inbound, InputState::Over)
    }

    /// Whether the peer's SETTINGS have been received.
    pub(crate) fn has_peer_settings(&self) -> bool {
        !matches!(self.inbound, InputState::Preface | InputState::Settings)
    }

    /// Whether a frame other than DATA is incomplete.
    pub(crate) fn is_amid_frame(&self) -> bool {
        match self.inbound {
            InputState::Preface | InputState::Settings | InputState::Block(_) => true,
            InputState::Frame | InputState::Skip(_) => self.partial,
            InputState::Data { .. } | InputState::Over => false,
        }
    }

    /// Whether no byte of a frame has been received.
    pub(crate) fn is_between_frames(&self) -> bool {
        matches!(self.inbound, InputState::Frame) && !self.partial
    }
}

// RFC 9113 §6.1, §6.2: padding that exceeds the rest of the payload is an error.
fn unpadded(payload: &[u8]) -> Result<&[u8], ConnectionError> {
    let (&padding, rest) = payload.split_first().ok_or(ConnectionError::FRAME_SIZE)?;
    rest.len().checked_sub(usize::from(padding)).map(|len| &rest[..len]).ok_or(ConnectionError::PROTOCOL)
}

fn depends_on(priority: &[u8; 5]) -> u32 {
    frame::number([priority[0], priority[1], priority[2], priority[3]])
}
