//! A server for the client machine: triggers a request, passes bytes in pieces, and records the events.
#![allow(dead_code, missing_docs, unreachable_pub, reason = "each test file uses a part of it")]

use std::io::IoSlice;
use std::rc::Rc;

use causeway_h1::{Client, ClientEvent, Limits};
use causeway_message::{
    BodyLength, Chunk, FieldValue, Framing, Head, Method, NameRef, OpenError, ResponseHead, StreamId, WaitsFor,
    WriteList,
};

/// Follows the message in an attack case: it must never be parsed as a response.
pub const NEXT: &str = "HTTP/1.1 299 Next\r\nContent-Length: 0\r\n\r\n";

pub fn written(out: &WriteList) -> Vec<u8> {
    let mut slices = vec![IoSlice::new(b""); 4096];
    let used = out.slices(&mut slices);
    slices[..used].iter().flat_map(|slice| slice.iter().copied()).collect()
}

pub fn request(method: &'static str, target: &str, fields: &[(&str, &'static str)]) -> Head {
    let mut head = Head::new();
    head.set_method(Method::parse(method.as_bytes()).unwrap());
    head.set_target(target).unwrap();
    for (name, value) in fields {
        head.fields_mut().append(NameRef::parse(name.as_bytes()).unwrap(), FieldValue::from_static(value));
    }
    head
}

pub struct UpstreamPeer {
    pub client: Client,
    pub head: ResponseHead,
    pub out: WriteList,
    pending: Vec<u8>,
    body: Vec<u8>,
    lines: Vec<String>,
}

impl UpstreamPeer {
    pub fn new(limits: Limits) -> Self {
        Self {
            client: Client::new(Rc::new(limits)),
            head: ResponseHead::default(),
            out: WriteList::new(),
            pending: Vec::new(),
            body: Vec::new(),
            lines: Vec::new(),
        }
    }

    /// Returns a connection with a request open.
    pub fn with_request(method: &'static str, framing: Framing) -> Self {
        let mut upstream = Self::new(Limits::default());
        upstream.start_request(method, framing).unwrap();
        upstream
    }

    pub fn start_request(&mut self, method: &'static str, framing: Framing) -> Result<StreamId, OpenError> {
        let target = if method == "CONNECT" { "a.test:443" } else { "/" };
        let fields = [("Host", "a.test"), ("Upgrade", "x")];
        self.client.open(&request(method, target, &fields), framing, &mut self.out)
    }

    pub fn feed(&mut self, bytes: &[u8]) {
        self.pending.extend_from_slice(bytes);
        loop {
            let pending = std::mem::take(&mut self.pending);
            let handled = self.client.handle_bytes(&pending, &mut self.head);
            let idle = handled.consumed == 0 && handled.event.is_none();
            if let Some(event) = handled.event {
                self.note(event, &pending);
            }
            self.pending = pending[handled.consumed..].to_vec();
            if idle {
                return;
            }
        }
    }

    pub fn eof(&mut self) {
        if let Some(event) = self.client.handle_eof() {
            self.note(event, &[]);
        }
    }

    pub fn lose(&mut self) {
        if let Some(event) = self.client.handle_loss() {
            self.note(event, &[]);
        }
    }

    pub fn time_out(&mut self) {
        if let Some(event) = self.client.handle_timeout() {
            self.note(event, &[]);
        }
    }

    pub fn send(&mut self, stream: StreamId, bytes: &[u8]) {
        let mut chunk = Chunk::from(bytes.to_vec());
        self.client.send(stream, &mut chunk, &mut self.out);
        assert!(chunk.is_empty());
    }

    pub fn note(&mut self, event: ClientEvent, input: &[u8]) {
        let fields = self.head.fields().iter().map(|(n, v)| (n.as_str().to_ascii_lowercase(), v));
        let own = fields.filter(|(name, _)| name.starts_with("x-"));
        let own: String = own.map(|(name, value)| format!(" {name}={}", String::from_utf8_lossy(value))).collect();
        let status = self.head.status().as_u16();
        let body = String::from_utf8_lossy(&self.body).into_owned();
        let body = if body.is_empty() { body } else { format!("[{body}] ") };
        match event {
            ClientEvent::Interim { .. } => self.lines.push(format!("interim {status}{own}")),
            ClientEvent::Head { stream, body } => {
                let mark = match body {
                    BodyLength::None => String::new(),
                    BodyLength::Sized(bytes) => format!(" +{bytes}"),
                    BodyLength::Unknown if self.client.is_tunnel(stream) => " tunnel".to_owned(),
                    BodyLength::Unknown => " +?".to_owned(),
                };
                self.lines.push(format!("{status}{own}{mark}"));
            }
            ClientEvent::Data { range, .. } => {
                assert!(!range.is_empty());
                self.body.extend_from_slice(&input[range]);
                return;
            }
            ClientEvent::Trailers { .. } => self.lines.push(format!("{body}trailers{own}")),
            ClientEvent::End { .. } => self.lines.push(format!("{body}end")),
            ClientEvent::Unprocessed { .. } => self.lines.push("unprocessed".to_owned()),
            ClientEvent::Reset { .. } | ClientEvent::GoAway { .. } | ClientEvent::Diagnostics { .. } => {
                panic!("HTTP/1.1 has no such event")
            }
            ClientEvent::Broken { fault } => self.lines.push(format!("{body}{:?}", fault.unwrap())),
        }
        self.body.clear();
    }

    /// Returns the events since the last call and the final state, joined by "; ".
    pub fn take(&mut self) -> String {
        if !self.body.is_empty() {
            self.lines.push(format!("[{}]", String::from_utf8_lossy(&self.body)));
            self.body.clear();
        }
        let client = &self.client;
        assert!(client.room() == 0 || client.is_idle() && !client.is_last() && !client.should_close());
        assert!(!client.should_close() || client.is_last());
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

    pub fn written(&mut self) -> String {
        let text = String::from_utf8(written(&self.out)).unwrap();
        self.out.clear();
        text
    }
}

/// The state of the transport after the bytes of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    Waits,
    Closes,
}

/// The request that is sent before the bytes of a case arrive.
#[derive(Clone, Copy, Debug)]
pub struct SentRequest(pub &'static str, pub Framing);

pub const GET: SentRequest = SentRequest("GET", Framing::Empty);

fn run<'a>(asking: SentRequest, pieces: impl IntoIterator<Item = &'a [u8]>, limits: Limits, then: Then) -> String {
    let mut upstream = UpstreamPeer::new(limits);
    upstream.start_request(asking.0, asking.1).unwrap();
    pieces.into_iter().for_each(|piece| upstream.feed(piece));
    if then == Then::Closes {
        upstream.eof();
    }
    upstream.take()
}

/// Checks one case (reason, bytes, expected events): the input whole, split at every point, and byte by byte.
#[track_caller]
pub fn check_bytes(why: &str, asking: SentRequest, input: &[u8], want: &str, limits: Limits, then: Then) {
    let text = String::from_utf8_lossy(input);
    assert_eq!(run(asking, [input], limits, then), want, "{why}: {text:?}");
    // Every split point if the input is short; every 97th byte of a long input.
    let step = if input.len() > 2000 { 97 } else { 1 };
    for at in (0..=input.len()).step_by(step) {
        let split = run(asking, [&input[..at], &input[at..]], limits, then);
        assert_eq!(split, want, "{why}, split at {at}: {text:?}");
    }
    if step == 1 {
        assert_eq!(run(asking, input.chunks(1), limits, then), want, "{why}, byte by byte: {text:?}");
    }
}

#[track_caller]
pub fn check_after_request(asking: SentRequest, then: Then, cases: &[(&str, &str, &str)]) {
    for (why, input, want) in cases {
        check_bytes(why, asking, input.as_bytes(), want, Limits::default(), then);
    }
}

#[track_caller]
pub fn check(cases: &[(&str, &str, &str)]) {
    check_after_request(GET, Then::Waits, cases);
}
