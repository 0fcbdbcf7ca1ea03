//! A peer for the machine: builds frames, passes them in pieces, and records the events and the frames received.
#![allow(dead_code, missing_docs, unreachable_pub, reason = "each test file uses a part of it")]

use std::io::IoSlice;
use std::rc::Rc;
use std::time::{Duration, Instant};

use causeway_h2::hpack::{Decoder, Field, Name, Sink};
use causeway_h2::{Event, Server, Settings};
use causeway_message::{
    BodyLength, Chunk, FieldMap, FieldValue, Framing, Head, ResponseHead, StatusCode, StreamId, WaitsFor, WriteList,
};

pub const DATE: &[u8; 29] = b"Sun, 06 Nov 1994 08:49:37 GMT";
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

pub const END_STREAM: u8 = 0x1;
pub const ACK: u8 = 0x1;
pub const END_HEADERS: u8 = 0x4;
pub const PADDED: u8 = 0x8;
pub const PRIORITY: u8 = 0x20;

pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let len = (payload.len() as u32).to_be_bytes();
    let mut frame = vec![len[1], len[2], len[3], kind, flags];
    frame.extend_from_slice(&stream.to_be_bytes());
    frame.extend_from_slice(payload);
    frame
}

pub fn data(stream: u32, flags: u8, content: &[u8]) -> Vec<u8> {
    frame(0x0, flags, stream, content)
}

/// Encodes fields as plain literals without indexing, so that any bytes can be sent.
pub fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        for text in [name, value] {
            put_length(text.len(), &mut block);
            block.extend_from_slice(text.as_bytes());
        }
    }
    block
}

fn put_length(len: usize, block: &mut Vec<u8>) {
    if len < 127 {
        return block.push(len as u8);
    }
    block.push(127);
    let mut rest = len - 127;
    while rest >= 128 {
        block.push(rest as u8 & 127 | 128);
        rest >>= 7;
    }
    block.push(rest as u8);
}

/// Encodes a whole field block, in one frame if it fits.
pub fn headers(stream: u32, flags: u8, fields: &[(&str, &str)]) -> Vec<u8> {
    let block = block(fields);
    let (first, rest) = block.split_at(block.len().min(16_384));
    let end = |rest: &[u8]| if rest.is_empty() { END_HEADERS } else { 0 };
    let mut frames = frame(0x1, flags | end(rest), stream, first);
    let mut rest = rest;
    while !rest.is_empty() {
        let (next, later) = rest.split_at(rest.len().min(16_384));
        rest = later;
        frames.extend_from_slice(&continuation(stream, end(rest), next));
    }
    frames
}

pub const GET_FIELDS: &[(&str, &str)] =
    &[(":method", "GET"), (":scheme", "https"), (":authority", "a.test"), (":path", "/")];
pub const POST_FIELDS: &[(&str, &str)] =
    &[(":method", "POST"), (":scheme", "https"), (":authority", "a.test"), (":path", "/up")];

pub fn get(stream: u32) -> Vec<u8> {
    headers(stream, END_STREAM, GET_FIELDS)
}

/// A request with content to follow.
pub fn post(stream: u32) -> Vec<u8> {
    headers(stream, 0, POST_FIELDS)
}

pub fn with<'a>(fields: &[(&'a str, &'a str)], more: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    [fields, more].concat()
}

pub fn settings(entries: &[(u16, u32)]) -> Vec<u8> {
    let payload: Vec<u8> =
        entries.iter().flat_map(|(id, value)| [&id.to_be_bytes()[..], &value.to_be_bytes()].concat()).collect();
    frame(0x4, 0, 0, &payload)
}

pub fn settings_ack() -> Vec<u8> {
    frame(0x4, ACK, 0, &[])
}

pub fn window_update(stream: u32, by: u32) -> Vec<u8> {
    frame(0x8, 0, stream, &by.to_be_bytes())
}

pub fn rst_stream(stream: u32, code: u32) -> Vec<u8> {
    frame(0x3, 0, stream, &code.to_be_bytes())
}

pub fn ping(flags: u8, payload: &[u8; 8]) -> Vec<u8> {
    frame(0x6, flags, 0, payload)
}

pub fn goaway(last: u32, code: u32) -> Vec<u8> {
    frame(0x7, 0, 0, &[last.to_be_bytes(), code.to_be_bytes()].concat())
}

pub fn priority(stream: u32, on: u32) -> Vec<u8> {
    frame(0x2, 0, stream, &[&on.to_be_bytes()[..], &[15]].concat())
}

pub fn priority_update(stream: u32, value: &str) -> Vec<u8> {
    frame(0x10, 0, 0, &[&stream.to_be_bytes()[..], value.as_bytes()].concat())
}

pub fn continuation(stream: u32, flags: u8, fragment: &[u8]) -> Vec<u8> {
    frame(0x9, flags, stream, fragment)
}

const CODES: [&str; 14] = [
    "NO_ERROR",
    "PROTOCOL_ERROR",
    "INTERNAL_ERROR",
    "FLOW_CONTROL_ERROR",
    "SETTINGS_TIMEOUT",
    "STREAM_CLOSED",
    "FRAME_SIZE_ERROR",
    "REFUSED_STREAM",
    "CANCEL",
    "COMPRESSION_ERROR",
    "CONNECT_ERROR",
    "ENHANCE_YOUR_CALM",
    "INADEQUATE_SECURITY",
    "HTTP_1_1_REQUIRED",
];

pub struct Printer(pub String);

impl Sink for Printer {
    fn field(&mut self, field: Field<'_>) {
        let name = match field.name {
            Name::Status => ":status",
            Name::Method => ":method",
            Name::Scheme => ":scheme",
            Name::Authority => ":authority",
            Name::Path => ":path",
            Name::Protocol => ":protocol",
            Name::Known(name) => name.lower(),
            Name::Other(name) => name,
            Name::OtherPseudo | Name::Invalid => "?",
        };
        self.0.push_str(&format!(" {name}={}", String::from_utf8_lossy(field.value)));
    }
}

pub fn written(out: &WriteList) -> Vec<u8> {
    let mut slices = vec![IoSlice::new(b""); 1024];
    let used = out.slices(&mut slices);
    slices[..used].iter().flat_map(|slice| slice.iter().copied()).collect()
}

/// Prints the frames of a machine, one per line.
pub fn print_frames(bytes: &[u8], decoder: &mut Decoder, lines: &mut Vec<String>) {
    let mut rest = bytes;
    let mut joined: Option<(String, Vec<u8>)> = None;
    while !rest.is_empty() {
        let len = u32::from_be_bytes([0, rest[0], rest[1], rest[2]]) as usize;
        let (kind, flags) = (rest[3], rest[4]);
        let stream = u32::from_be_bytes([rest[5], rest[6], rest[7], rest[8]]);
        let payload = &rest[9..9 + len];
        rest = &rest[9 + len..];
        let number = |at: usize| u32::from_be_bytes(payload[at..at + 4].try_into().unwrap());
        let end = if flags & END_STREAM != 0 { " END" } else { "" };
        let line = match kind {
            0x0 if len <= 40 => format!("> {stream} DATA {}{end}", String::from_utf8_lossy(payload)),
            0x0 => format!("> {stream} DATA [{len}]{end}"),
            0x1 => {
                joined = Some((format!("> {stream} HEADERS{end}"), payload.to_vec()));
                if flags & END_HEADERS == 0 {
                    continue;
                }
                let (line, block) = joined.take().unwrap();
                print_block(line, &block, decoder)
            }
            0x9 => {
                let (mut line, mut block) = joined.take().expect("a block that is continued");
                block.extend_from_slice(payload);
                line.push('…');
                if flags & END_HEADERS == 0 {
                    joined = Some((line, block));
                    continue;
                }
                print_block(line, &block, decoder)
            }
            0x3 => format!("> {stream} RST_STREAM {}", CODES[number(0) as usize]),
            0x4 if flags & ACK != 0 => "> SETTINGS ACK".to_owned(),
            0x4 => {
                let entries: String = payload
                    .chunks(6)
                    .map(|e| {
                        format!(
                            " {}={}",
                            u16::from_be_bytes([e[0], e[1]]),
                            u32::from_be_bytes([e[2], e[3], e[4], e[5]])
                        )
                    })
                    .collect();
                format!("> SETTINGS{entries}")
            }
            0x6 if flags & ACK != 0 => format!("> PING ACK {}", String::from_utf8_lossy(payload)),
            0x6 => format!("> PING {}", String::from_utf8_lossy(payload)),
            0x7 => format!("> GOAWAY {} {}", number(0), CODES[number(4) as usize]),
            0x8 => format!("> {stream} WINDOW_UPDATE {}", number(0)),
            _ => panic!("a frame of kind {kind}"),
        };
        lines.push(line);
    }
}

fn print_block(line: String, block: &[u8], decoder: &mut Decoder) -> String {
    let mut printer = Printer(line);
    decoder.decode(block, &mut printer).expect("a block of the machine's");
    printer.0
}

/// The client for one server machine.
pub struct Peer {
    pub server: Server,
    pub head: Head,
    pub out: WriteList,
    pub decoder: Decoder,
    pub start: Instant,
    pub now: Instant,
    /// Events (`<`) and received frames (`>`), in order.
    pub lines: Vec<String>,
    pending: Vec<u8>,
    content: Vec<u8>,
    /// Whether content is released as soon as it is received.
    pub reads: bool,
}

impl Peer {
    pub fn new(settings: Settings) -> Self {
        Self::of(Server::new(Rc::new(settings)))
    }

    pub fn of(server: Server) -> Self {
        let start = Instant::now();
        Self {
            server,
            head: Head::new(),
            out: WriteList::new(),
            decoder: Decoder::new(4096),
            start,
            now: start,
            lines: Vec::new(),
            pending: Vec::new(),
            content: Vec::new(),
            reads: true,
        }
    }

    /// Returns a connection on which both sides have sent and acknowledged their settings.
    pub fn connected(settings: Settings) -> Self {
        let mut peer = Self::new(settings);
        peer.feed(&[PREFACE, &self::settings(&[]), &settings_ack()].concat());
        peer.take();
        peer
    }

    pub fn after(&mut self, milliseconds: u64) {
        self.now += Duration::from_millis(milliseconds);
    }

    /// Passes bytes in and records the results in `lines`.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.pending.extend_from_slice(bytes);
        loop {
            let pending = std::mem::take(&mut self.pending);
            let handled = self.server.handle_bytes(self.now, &pending, &mut self.head, &mut self.out);
            let idle = handled.consumed == 0 && handled.event.is_none();
            if let Some(event) = handled.event {
                self.drain_output();
                self.note(event, &pending);
            }
            self.pending = pending[handled.consumed..].to_vec();
            if idle {
                break;
            }
        }
        self.drain_output();
    }

    pub fn note(&mut self, event: Event, input: &[u8]) {
        let line = match event {
            Event::Head { stream, body, upgrade } => {
                let fields: String = self
                    .head
                    .fields()
                    .iter()
                    .map(|(name, value)| {
                        format!(" {}={}", name.as_str().to_ascii_lowercase(), String::from_utf8_lossy(value))
                    })
                    .collect();
                let body = match body {
                    BodyLength::None => String::new(),
                    BodyLength::Sized(bytes) => format!(" +{bytes}"),
                    BodyLength::Unknown => " +?".to_owned(),
                };
                let upgrade = if upgrade { " upgrade" } else { "" };
                let (method, target) = (self.head.method().as_str(), self.head.target().as_str());
                format!("< {} {method} {target}{fields}{body}{upgrade}", stream.0)
            }
            Event::Data { stream, range } => {
                assert!(!range.is_empty() && range.end <= input.len());
                let text = String::from_utf8_lossy(&input[range.clone()]).into_owned();
                if self.reads {
                    self.server.release(stream, range.len() as u32, &mut self.out);
                }
                // Adjacent pieces of one stream are joined to one line, however they were cut.
                let start = format!("< {} data ", stream.0);
                match self.lines.last_mut() {
                    Some(last) if last.starts_with(&start) => {
                        last.push_str(&text);
                        return;
                    }
                    _ => start + &text,
                }
            }
            Event::Trailers { stream } => {
                let fields: String = self
                    .head
                    .fields()
                    .iter()
                    .map(|(name, value)| {
                        format!(" {}={}", name.as_str().to_ascii_lowercase(), String::from_utf8_lossy(value))
                    })
                    .collect();
                format!("< {} trailers{fields}", stream.0)
            }
            Event::End { stream } => format!("< {} end", stream.0),
            Event::Reset { stream } => format!("< {} reset", stream.0),
            Event::Fault { stream, fault } => format!("< {} fault {}", stream.unwrap().0, fault.as_u16()),
            Event::Broken => "< broken".to_owned(),
        };
        self.lines.push(line);
    }

    /// Reads the machine's output.
    pub fn drain_output(&mut self) {
        let bytes = written(&self.out);
        self.out.advance(bytes.len());
        print_frames(&bytes, &mut self.decoder, &mut self.lines);
    }

    /// Returns the lines since the last call.
    pub fn take(&mut self) -> String {
        self.drain_output();
        std::mem::take(&mut self.lines).join("\n")
    }

    /// Sends a whole response.
    pub fn answer(&mut self, stream: u32, status: u16, content: &'static str) {
        let (id, head) = (StreamId(stream), ResponseHead::new(StatusCode::new(status).unwrap()));
        let framing = if content.is_empty() { Framing::Empty } else { Framing::Sized(content.len() as u64) };
        self.server.send_head(id, &head, framing, DATE, &mut self.out);
        let mut chunk = Chunk::from_static(content.as_bytes());
        self.server.send(id, &mut chunk, &mut self.out);
        self.server.finish(id, &mut self.out);
        self.drain_output();
    }

    pub fn send_head(&mut self, stream: u32, fields: &[(&str, &str)], status: u16, framing: Framing) {
        let mut head = ResponseHead::new(StatusCode::new(status).unwrap());
        for (name, value) in fields {
            let name = causeway_message::NameRef::parse(name.as_bytes()).unwrap();
            head.append(name, FieldValue::parse(value.as_bytes()).unwrap());
        }
        self.server.send_head(StreamId(stream), &head, framing, DATE, &mut self.out);
        self.drain_output();
    }

    /// Sends content and returns the number of bytes left.
    pub fn send(&mut self, stream: u32, content: &[u8]) -> usize {
        let mut chunk = Chunk::from(content.to_vec());
        self.server.send(StreamId(stream), &mut chunk, &mut self.out);
        self.drain_output();
        chunk.len()
    }

    pub fn send_trailers(&mut self, stream: u32, fields: &[(&str, &str)]) {
        let mut map = FieldMap::new();
        for (name, value) in fields {
            let name = causeway_message::NameRef::parse(name.as_bytes()).unwrap();
            map.append(name, FieldValue::parse(value.as_bytes()).unwrap());
        }
        self.server.send_trailers(StreamId(stream), &map, &mut self.out);
        self.drain_output();
    }

    pub fn finish(&mut self, stream: u32) {
        self.server.finish(StreamId(stream), &mut self.out);
        self.drain_output();
    }

    pub fn reset(&mut self, stream: u32) {
        self.server.reset(StreamId(stream), &mut self.out);
        self.drain_output();
    }

    pub fn release(&mut self, stream: u32, bytes: u32) {
        self.server.release(StreamId(stream), bytes, &mut self.out);
        self.drain_output();
    }

    /// The machine's state in one word.
    pub fn state(&self) -> &'static str {
        match (self.server.should_close(), self.server.waits_for()) {
            (true, _) => "close",
            (_, WaitsFor::KeepAlive) => "keep-alive",
            (_, WaitsFor::Head) => "head",
            (_, WaitsFor::Body) => "body",
            (_, WaitsFor::Acknowledgement) => "acknowledgement",
            (_, WaitsFor::Nothing) => "nothing",
        }
    }
}

/// Checks the events and output for frames on a connection with agreed settings; passed whole and byte by byte.
#[track_caller]
pub fn check_with(own: &Settings, cases: &[(&str, Vec<u8>, &str)]) {
    for (why, bytes, want) in cases {
        let want: Vec<&str> = want.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        // Byte by byte would take long for large inputs.
        let small = if bytes.len() < 4096 { 1 } else { 997 };
        for step in [bytes.len().max(1), small] {
            let mut peer = Peer::connected(own.clone());
            bytes.chunks(step).for_each(|piece| peer.feed(piece));
            let got = peer.take();
            assert_eq!(got.lines().collect::<Vec<_>>(), want, "{why}, {step} at a time");
        }
    }
}

#[track_caller]
pub fn check(cases: &[(&str, Vec<u8>, &str)]) {
    check_with(&Settings::default(), cases);
}
