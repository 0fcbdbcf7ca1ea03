//! What both roles share: frames in, windows, streams, settings, frames out.
//!
//! [`Connection::next`] makes one step of the input; what a header block means, and who may open streams, the roles say.
//! ```text
//! inbound:  Preface ─► Settings ─► Frame ◄──────────────┬──────────────┐
//!           (server)   (the first)   ├─DATA──────► Data ┴─END_STREAM─► End
//!                                    ├─no END_HEADERS──► Block ──CONTINUATION, END_HEADERS──► Frame
//!                                    └─means nothing───► Skip ──► Frame          any fault ──► Over
//! ```
//! - `control`: frames that are about the connection
//! - `content`: DATA in
//! - `output`: content out, and the ends of streams

mod content;
mod control;
mod output;

use std::ops::Range;
use std::rc::Rc;
use std::time::Instant;

use causeway_message::WriteList;

use crate::budget::Meter;
use crate::encode::Repeat;
use crate::fault::{ErrorCode, Fault};
use crate::frame::{self, Frame, HEADER_LEN, PAYLOAD_MAX, PREFACE, flag, kind};
use crate::head::NoSink;
use crate::hpack::{Decoder, Encoder, Sink, TABLE_BYTES_MAX};
use crate::priority::{Priority, Turns};
use crate::settings::{Peer, Settings};
use crate::stream::{Kind, Local, Remote, Stream, Streams};
use crate::window::{Receive, WINDOW_DEFAULT, Window};

/// Streams that we reset, at most, whose late frames are still ignored. A peer can have as many resets under way as its budget
/// allows at once.
const RESETS_KEPT: usize = 256;

#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) settings: Rc<Settings>,
    pub(crate) peer: Peer,
    pub(crate) streams: Streams,
    pub(crate) decoder: Decoder,
    pub(crate) encoder: Encoder,
    pub(crate) repeat: Repeat,
    pub(crate) meter: Meter,
    pub(crate) turns: Turns,
    role: Role,
    inbound: Inbound,
    send: Window,
    receive: Receive,
    /// The highest stream that was opened, by either side.
    pub(crate) last: u32,
    // The streams that were passed over last: closed, and never used.
    gap: (u32, u32),
    // Streams that we reset, the latest ones.
    resets: Vec<u32>,
    // Our settings have gone out; the peer has acknowledged them.
    begun: bool,
    acknowledged: bool,
    // A frame was begun.
    partial: bool,
}

/// Who began: it decides what is said and expected first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Server,
    Client,
}

#[derive(Debug)]
enum Inbound {
    Preface,
    Settings,
    Frame,
    Data {
        stream: u32,
        left: u32,
        padding: u8,
        ends: bool,
    },
    /// Octets of a frame that means nothing.
    Skip(u32),
    Block(Box<Joined>),
    Over,
}

/// A header block that more frames continue.
#[derive(Debug)]
struct Joined {
    stream: u32,
    end_stream: bool,
    self_dependent: bool,
    continuations: u8,
    octets: Vec<u8>,
}

/// A whole header block.
pub(crate) struct Block<'a> {
    pub(crate) stream: u32,
    pub(crate) end_stream: bool,
    /// Its priority makes the stream depend on itself.
    pub(crate) self_dependent: bool,
    pub(crate) octets: Octets<'a>,
}

pub(crate) enum Octets<'a> {
    Read(&'a [u8]),
    Joined(Vec<u8>),
}

impl Octets<'_> {
    pub(crate) fn as_slice(&self) -> &[u8] {
        match self {
            Self::Read(octets) => octets,
            Self::Joined(octets) => octets,
        }
    }
}

/// What a step of the input came to.
pub(crate) enum Step<'a> {
    /// More octets are needed.
    Wait,
    /// Something was done that concerns nobody else.
    Done,
    Block(Block<'a>),
    Data {
        stream: u32,
        range: Range<usize>,
    },
    End(u32),
    /// The stream is over and out of the table.
    Reset(u32, ErrorCode),
    /// The peer has seen this PING of ours.
    Pong([u8; 8]),
    /// What the peer wants of a stream that is not open yet.
    Early(u32, Priority),
    GoAway {
        last: u32,
        code: ErrorCode,
    },
}

impl Connection {
    pub(crate) fn new(settings: Rc<Settings>, role: Role) -> Self {
        Self {
            peer: Peer::default(),
            streams: Streams::default(),
            decoder: Decoder::new(settings.decoder_table_bytes()),
            encoder: Encoder::new(settings.encoder_table_bytes.min(TABLE_BYTES_MAX)),
            repeat: Repeat::default(),
            meter: Meter::new(&settings.budgets),
            turns: Turns::default(),
            inbound: if role == Role::Server { Inbound::Preface } else { Inbound::Settings },
            role,
            send: Window::new(WINDOW_DEFAULT),
            receive: Receive::new(settings.connection_window.max(WINDOW_DEFAULT)),
            last: 0,
            gap: (0, 0),
            resets: Vec::new(),
            begun: false,
            acknowledged: false,
            partial: false,
            settings,
        }
    }

    /// Says what comes first, once.
    #[inline]
    pub(crate) fn begin(&mut self, out: &mut WriteList) {
        if !self.begun {
            self.say_first(out);
        }
    }

    #[cold]
    fn say_first(&mut self, out: &mut WriteList) {
        self.begun = true;
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

    /// Octets are about to be looked at.
    #[inline]
    pub(crate) fn arrive(&mut self, now: Instant, out: &WriteList) {
        self.meter.begin(now, out.is_empty());
    }

    /// One step of the input from `at` on; `at` moves behind what is done with.
    #[inline]
    pub(crate) fn next<'a>(&mut self, input: &'a [u8], at: &mut usize, out: &mut WriteList) -> Result<Step<'a>, Fault> {
        match self.inbound {
            Inbound::Frame => self.next_frame(input, at, out),
            Inbound::Data { .. } => self.next_data(input, at, out),
            Inbound::Skip(left) => Ok(self.skip(left, input, at)),
            Inbound::Over => {
                *at = input.len();
                Ok(Step::Wait)
            }
            Inbound::Preface | Inbound::Settings | Inbound::Block(_) => self.next_rare(input, at, out),
        }
    }

    #[cold]
    fn next_rare<'a>(&mut self, input: &'a [u8], at: &mut usize, out: &mut WriteList) -> Result<Step<'a>, Fault> {
        let rest = &input[*at..];
        match &self.inbound {
            Inbound::Preface => {
                let len = rest.len().min(PREFACE.len());
                if rest[..len] != PREFACE[..len] {
                    return Err(Fault::PROTOCOL);
                }
                if len < PREFACE.len() {
                    return Ok(Step::Wait);
                }
                *at += len;
                self.inbound = Inbound::Settings;
                Ok(Step::Done)
            }
            Inbound::Settings => {
                // RFC 9113 §3.4: the first frame is SETTINGS, and no acknowledgement.
                match Frame::read(rest) {
                    Some(frame) if frame.kind != kind::SETTINGS || frame.has(flag::ACK) => Err(Fault::PROTOCOL),
                    Some(frame) if frame.len > PAYLOAD_MAX => Err(Fault::FRAME_SIZE),
                    Some(frame) if rest.len() >= HEADER_LEN + frame.len => {
                        self.inbound = Inbound::Frame;
                        self.next_frame(input, at, out)
                    }
                    _ => Ok(Step::Wait),
                }
            }
            _ => self.next_continuation(input, at),
        }
    }

    #[inline]
    fn next_frame<'a>(&mut self, input: &'a [u8], at: &mut usize, out: &mut WriteList) -> Result<Step<'a>, Fault> {
        let rest = &input[*at..];
        let Some(frame) = Frame::read(rest) else {
            if !input.is_empty() {
                self.partial = !rest.is_empty();
            }
            return Ok(Step::Wait);
        };
        if frame.len > PAYLOAD_MAX {
            return Err(Fault::FRAME_SIZE);
        }
        if frame.kind == kind::DATA {
            self.partial = true;
            return self.begin_data(frame, rest, at, out);
        }
        let Some(payload) = rest[HEADER_LEN..].get(..frame.len) else {
            self.partial = true;
            if frame.kind > kind::CONTINUATION && frame.kind != kind::PRIORITY_UPDATE {
                return self.begin_unknown(frame, at);
            }
            return Ok(Step::Wait);
        };
        self.partial = false;
        *at += HEADER_LEN + frame.len;
        if frame.kind == kind::HEADERS {
            self.handle_headers(frame, payload)
        } else {
            self.control(frame, payload, out)
        }
    }

    // RFC 9113 §5.5: a frame of a kind that nobody knows is thrown away.
    fn begin_unknown(&mut self, frame: Frame, at: &mut usize) -> Result<Step<'static>, Fault> {
        self.meter.control(&self.settings.budgets)?;
        *at += HEADER_LEN;
        self.inbound = Inbound::Skip(frame.len as u32);
        Ok(Step::Done)
    }

    fn skip(&mut self, left: u32, input: &[u8], at: &mut usize) -> Step<'static> {
        let len = (left as usize).min(input.len() - *at);
        *at += len;
        let left = left - len as u32;
        if left == 0 {
            self.inbound = Inbound::Frame;
            return Step::Done;
        }
        self.inbound = Inbound::Skip(left);
        Step::Wait
    }

    // RFC 9113 §6.2.
    #[inline]
    fn handle_headers<'a>(&mut self, frame: Frame, payload: &'a [u8]) -> Result<Step<'a>, Fault> {
        if frame.stream == 0 {
            return Err(Fault::PROTOCOL);
        }
        let mut fragment = payload;
        if frame.has(flag::PADDED) {
            fragment = unpadded(payload)?;
        }
        let mut self_dependent = false;
        if frame.has(flag::PRIORITY) {
            let (priority, rest) = fragment.split_first_chunk::<5>().ok_or(Fault::FRAME_SIZE)?;
            self_dependent = depends_on(priority) == frame.stream;
            fragment = rest;
        }
        self.meter.head_came(&self.settings.budgets);
        let end_stream = frame.has(flag::END_STREAM);
        if frame.has(flag::END_HEADERS) {
            let octets = Octets::Read(fragment);
            return Ok(Step::Block(Block { stream: frame.stream, end_stream, self_dependent, octets }));
        }
        self.partial = true;
        let octets = fragment.to_vec();
        let joined = Joined { stream: frame.stream, end_stream, self_dependent, continuations: 0, octets };
        self.inbound = Inbound::Block(Box::new(joined));
        Ok(Step::Done)
    }

    // RFC 9113 §6.10. Nothing may come between the frames of a block.
    fn next_continuation(&mut self, input: &[u8], at: &mut usize) -> Result<Step<'static>, Fault> {
        let Inbound::Block(joined) = &mut self.inbound else { return Ok(Step::Wait) };
        let rest = &input[*at..];
        let Some(frame) = Frame::read(rest) else { return Ok(Step::Wait) };
        if frame.kind != kind::CONTINUATION || frame.stream != joined.stream {
            return Err(Fault::PROTOCOL);
        }
        if frame.len > PAYLOAD_MAX {
            return Err(Fault::FRAME_SIZE);
        }
        let Some(fragment) = rest[HEADER_LEN..].get(..frame.len) else { return Ok(Step::Wait) };
        joined.continuations += 1;
        // One frame more than what is taken, so that a head that is a little too long gets its answer.
        let too_long = joined.octets.len() + fragment.len() > self.settings.head_bytes_max as usize + PAYLOAD_MAX;
        if joined.continuations > self.settings.budgets.continuations || too_long {
            return Err(Fault::CALM);
        }
        *at += HEADER_LEN + frame.len;
        joined.octets.extend_from_slice(fragment);
        if !frame.has(flag::END_HEADERS) {
            return Ok(Step::Done);
        }
        let Joined { stream, end_stream, self_dependent, ref mut octets, .. } = **joined;
        let octets = Octets::Joined(std::mem::take(octets));
        self.inbound = Inbound::Frame;
        self.partial = false;
        Ok(Step::Block(Block { stream, end_stream, self_dependent, octets }))
    }

    /// Whether nothing was ever said on a stream (RFC 9113 §5.1.1). Nobody pushes, so even ones stay idle for ever.
    pub(crate) fn is_untouched(&self, stream: u32) -> bool {
        stream & 1 == 0 || stream > self.last
    }

    /// Puts a stream into the table, with the windows that hold now.
    #[inline]
    pub(crate) fn open(&mut self, id: u32, kind: Kind, remote: Remote, local: Local, priority: Priority) {
        self.streams.open(Stream {
            id,
            send: Window::new(self.peer.initial_window),
            receive: Receive::new(self.settings.stream_window),
            unread: 0,
            pieces: 0,
            priority,
            turn: self.turns.last(),
            remote,
            local,
            kind,
        });
    }

    /// Decodes a header block. That of a stream which is not wanted is decoded too, because the table depends on all of them
    /// (RFC 9113 §4.3).
    #[inline]
    pub(crate) fn decode(&mut self, block: &Block<'_>, sink: &mut impl Sink) -> Result<(), Fault> {
        self.decoder.decode(block.octets.as_slice(), sink).map_err(|_| Fault::COMPRESSION)
    }

    /// Notes that a stream was opened, or refused: those that it passes over are closed.
    #[inline]
    pub(crate) fn note_opened(&mut self, stream: u32) {
        if stream > self.last + 2 {
            self.gap = (self.last + 1, stream - 1);
        }
        self.last = stream;
    }

    /// Frames on this stream, which was never opened here, are ignored.
    #[cold]
    pub(crate) fn ignore_from_now(&mut self, stream: u32) {
        if self.resets.len() == RESETS_KEPT {
            self.resets.remove(0);
        }
        self.resets.push(stream);
    }

    /// A header block on a stream that is closed: it may have been on its way when the stream ended, and the decoder sees it all the
    /// same.
    #[cold]
    pub(crate) fn handle_late_block(&mut self, block: &Block<'_>) -> Result<(), Fault> {
        self.decode(block, &mut NoSink)?;
        self.check_closed(block.stream)?;
        self.meter.control(&self.settings.budgets)
    }

    /// What a frame on a stream that is closed says about the peer: it may not have heard that we reset it.
    #[cold]
    pub(crate) fn check_closed(&self, stream: u32) -> Result<(), Fault> {
        if self.resets.contains(&stream) {
            return Ok(());
        }
        // RFC 9113 §5.1.1: a stream that was passed over may not be opened any more; §5.1: one that has ended takes nothing.
        let passed_over = (self.gap.0..=self.gap.1).contains(&stream);
        Err(if passed_over { Fault::PROTOCOL } else { Fault::STREAM_CLOSED })
    }

    /// Ends the connection: what is open is forgotten, the peer is told why.
    #[cold]
    pub(crate) fn fail(&mut self, fault: Fault, last: u32, out: &mut WriteList) {
        self.end();
        frame::put_goaway(last, fault.0, out);
    }

    pub(crate) fn end(&mut self) {
        self.inbound = Inbound::Over;
        self.partial = false;
        self.streams.clear();
        self.resets = Vec::new();
    }

    pub(crate) fn is_over(&self) -> bool {
        matches!(self.inbound, Inbound::Over)
    }

    /// The peer has said its settings.
    pub(crate) fn is_met(&self) -> bool {
        !matches!(self.inbound, Inbound::Preface | Inbound::Settings)
    }

    /// Something other than content was begun and is not whole.
    pub(crate) fn is_amid_frame(&self) -> bool {
        match self.inbound {
            Inbound::Preface | Inbound::Settings | Inbound::Block(_) => true,
            Inbound::Frame => self.partial,
            Inbound::Data { .. } | Inbound::Skip(_) | Inbound::Over => false,
        }
    }

    /// Nothing of a frame has come.
    pub(crate) fn is_between_frames(&self) -> bool {
        matches!(self.inbound, Inbound::Frame) && !self.partial
    }
}

// RFC 9113 §6.1, §6.2: padding that is as long as what is left is a fault.
fn unpadded(payload: &[u8]) -> Result<&[u8], Fault> {
    let (&padding, rest) = payload.split_first().ok_or(Fault::FRAME_SIZE)?;
    rest.len().checked_sub(usize::from(padding)).map(|len| &rest[..len]).ok_or(Fault::PROTOCOL)
}

fn depends_on(priority: &[u8; 5]) -> u32 {
    frame::number([priority[0], priority[1], priority[2], priority[3]])
}
