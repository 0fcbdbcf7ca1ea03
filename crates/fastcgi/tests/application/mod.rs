//! An application for the machine: makes records, passes their bytes in pieces, and records the events.
#![allow(dead_code, missing_docs, unreachable_pub, reason = "each test file uses a part of it")]

use std::io::IoSlice;
use std::rc::Rc;

use causeway_fastcgi::{FastCgiClient, FastCgiEvent, Limits, put_parameter};
use causeway_message::{BodyLength, Chunk, Framing, Method, OpenError, ResponseHead, StreamId, WaitsFor, WriteList};

pub const ONE: StreamId = StreamId(1);

pub const BEGIN_REQUEST: u8 = 1;
pub const ABORT_REQUEST: u8 = 2;
pub const END_REQUEST: u8 = 3;
pub const PARAMS: u8 = 4;
pub const STDIN: u8 = 5;
pub const STDOUT: u8 = 6;
pub const STDERR: u8 = 7;
pub const DATA: u8 = 8;
pub const GET_VALUES_RESULT: u8 = 10;
pub const UNKNOWN_TYPE: u8 = 11;

/// Returns a record of request 1 without padding.
pub fn record(kind: u8, content: &[u8]) -> Vec<u8> {
    padded(1, kind, 1, content, 0)
}

pub fn padded(version: u8, kind: u8, id: u16, content: &[u8], padding: u8) -> Vec<u8> {
    let len = u16::try_from(content.len()).unwrap().to_be_bytes();
    let id = id.to_be_bytes();
    let mut bytes = vec![version, kind, id[0], id[1], len[0], len[1], padding, 0xff];
    bytes.extend_from_slice(content);
    bytes.resize(bytes.len() + usize::from(padding), 0xee);
    bytes
}

pub fn stdout(text: &str) -> Vec<u8> {
    record(STDOUT, text.as_bytes())
}

pub fn stderr(text: &str) -> Vec<u8> {
    record(STDERR, text.as_bytes())
}

pub fn end(application_status: u32, protocol_status: u8) -> Vec<u8> {
    let [a, b, c, d] = application_status.to_be_bytes();
    record(END_REQUEST, &[a, b, c, d, protocol_status, 0, 0, 0])
}

pub fn parameters(pairs: &[(&str, &str)]) -> Vec<u8> {
    let mut out = Vec::new();
    pairs.iter().for_each(|(name, value)| put_parameter(name.as_bytes(), value.as_bytes(), &mut out));
    out
}

/// Splits bytes into records: type and content. Checks version, request id and lengths.
#[track_caller]
pub fn records(mut bytes: &[u8]) -> Vec<(u8, Vec<u8>)> {
    let mut records = Vec::new();
    while let Some((header, rest)) = bytes.split_first_chunk::<8>() {
        let [version, kind, id1, id0, content1, content0, padding, reserved] = *header;
        assert_eq!((version, id1, id0, reserved), (1, 0, 1, 0));
        let len = usize::from(u16::from_be_bytes([content1, content0]));
        records.push((kind, rest[..len].to_vec()));
        bytes = &rest[len + usize::from(padding)..];
    }
    assert_eq!(bytes, b"");
    records
}

pub fn written(out: &WriteList) -> Vec<u8> {
    let mut slices = vec![IoSlice::new(b""); 4096];
    let used = out.slices(&mut slices);
    slices[..used].iter().flat_map(|slice| slice.iter().copied()).collect()
}

pub struct Application {
    pub client: FastCgiClient,
    pub head: ResponseHead,
    pub out: WriteList,
    pending: Vec<u8>,
    body: Vec<u8>,
    errors: Vec<u8>,
    lines: Vec<String>,
}

impl Application {
    pub fn new(limits: Limits) -> Self {
        Self {
            client: FastCgiClient::new(Rc::new(limits)),
            head: ResponseHead::default(),
            out: WriteList::new(),
            pending: Vec::new(),
            body: Vec::new(),
            errors: Vec::new(),
            lines: Vec::new(),
        }
    }

    /// Returns a connection with a request open.
    pub fn with_request(method: Method<'_>, framing: Framing) -> Self {
        let mut application = Self::new(Limits::default());
        application.start_request(method, framing).unwrap();
        application
    }

    pub fn start_request(&mut self, method: Method<'_>, framing: Framing) -> Result<StreamId, OpenError> {
        self.client.open(&parameters(&[("A", "1")]), method, framing, &mut self.out)
    }

    pub fn feed(&mut self, bytes: &[u8]) {
        self.pending.extend_from_slice(bytes);
        loop {
            let pending = std::mem::take(&mut self.pending);
            let handled = self.client.handle_bytes(&pending, &mut self.head, &mut self.out);
            let idle = handled.consumed == 0 && handled.event.is_none();
            if let Some(event) = handled.event {
                self.note(event, &pending, handled.consumed);
            }
            self.pending = pending[handled.consumed..].to_vec();
            if idle {
                return;
            }
        }
    }

    pub fn eof(&mut self) {
        if let Some(event) = self.client.handle_eof() {
            self.note(event, &[], 0);
        }
    }

    pub fn send(&mut self, bytes: &[u8]) {
        let mut chunk = Chunk::from(bytes.to_vec());
        self.client.send(ONE, &mut chunk, &mut self.out);
        assert!(chunk.is_empty());
    }

    pub fn sent(&mut self) -> Vec<(u8, Vec<u8>)> {
        let records = records(&written(&self.out));
        self.out.clear();
        records
    }

    fn note(&mut self, event: FastCgiEvent, input: &[u8], consumed: usize) {
        let line = match event {
            FastCgiEvent::Head { stream: ONE, body } => {
                let fields = self.head.fields().iter();
                let own = fields.filter(|(name, _)| name.as_str().starts_with("X-"));
                let own: String =
                    own.map(|(name, value)| format!(" {}={}", name.as_str(), value.escape_ascii())).collect();
                let length = match body {
                    BodyLength::None => String::new(),
                    BodyLength::Sized(bytes) => format!(" +{bytes}"),
                    BodyLength::Unknown => " +?".to_owned(),
                };
                format!("{}{own}{length}", self.head.status().as_u16())
            }
            FastCgiEvent::Data { stream: ONE, range } => {
                assert!(!range.is_empty() && range.end <= consumed);
                return self.body.extend_from_slice(&input[range]);
            }
            FastCgiEvent::Diagnostics { stream: ONE, range } => {
                assert!(!range.is_empty() && range.end <= consumed);
                return self.errors.extend_from_slice(&input[range]);
            }
            FastCgiEvent::End { stream: ONE } => "end".to_owned(),
            FastCgiEvent::Unprocessed { stream: ONE, .. } => "unprocessed".to_owned(),
            FastCgiEvent::Broken { fault: Some(fault) } => format!("{fault:?}"),
            other => panic!("{other:?}"),
        };
        self.flush();
        self.lines.push(line);
    }

    fn flush(&mut self) {
        if !self.body.is_empty() {
            self.lines.push(format!("[{}]", self.body.escape_ascii()));
        }
        self.body.clear();
    }

    /// Returns the events since the last call, the text of STDERR and the state, joined by "; ".
    pub fn take(&mut self) -> String {
        self.flush();
        if !self.errors.is_empty() {
            self.lines.push(format!("log [{}]", self.errors.escape_ascii()));
            self.errors.clear();
        }
        let client = &self.client;
        assert!(!client.should_close() || client.is_last() && !client.writable(ONE));
        let state = match (client.should_close(), client.room(), client.waits_for()) {
            (true, ..) => "close",
            (_, 1, WaitsFor::KeepAlive) => "room",
            (_, 0, WaitsFor::Head) => "head",
            (_, 0, WaitsFor::Body) => "body",
            (_, 0, WaitsFor::Nothing) => "nothing",
            other => panic!("{other:?}"),
        };
        self.lines.push(state.to_owned());
        std::mem::take(&mut self.lines).join("; ")
    }
}

/// The state of the connection after the bytes of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    Waits,
    Closes,
}

fn run<'a>(method: Method<'_>, pieces: impl IntoIterator<Item = &'a [u8]>, limits: Limits, then: Then) -> String {
    let mut application = Application::new(limits);
    application.start_request(method, Framing::Empty).unwrap();
    pieces.into_iter().for_each(|piece| application.feed(piece));
    if then == Then::Closes {
        application.eof();
    }
    application.take()
}

/// Checks the events of one input: whole, split at every point, and byte by byte.
#[track_caller]
pub fn check_bytes(why: &str, method: Method<'_>, input: &[u8], want: &str, limits: Limits, then: Then) {
    assert_eq!(run(method, [input], limits, then), want, "{why}");
    let step = if input.len() > 2000 { 97 } else { 1 };
    for at in (0..=input.len()).step_by(step) {
        let split = run(method, [&input[..at], &input[at..]], limits, then);
        assert_eq!(split, want, "{why}, split at {at}");
    }
    if step == 1 {
        assert_eq!(run(method, input.chunks(1), limits, then), want, "{why}, byte by byte");
    }
}

/// Checks cases of a reason, the records of an answer to GET, and the expected events.
#[track_caller]
pub fn check(then: Then, cases: &[(&str, &[Vec<u8>], &str)]) {
    for (why, records, want) in cases {
        check_bytes(why, Method::Get, &records.concat(), want, Limits::default(), then);
    }
}
