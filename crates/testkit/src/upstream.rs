//! Upstreams whose responses the test supplies.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use causeway_message::{FieldMap, FieldValue, NameRef, ResponseHead, StatusCode};
use causeway_pipeline::upstream::{CallPool, EngineCall, Upstream};
use causeway_pipeline::{Body, Frame, UpstreamTransport};

/// A handler's call to an upstream, for the test to answer. Dropping it acts like an upstream that closes the
/// connection.
pub struct FakeCall {
    /// The upstream's address.
    pub address: Rc<str>,
    /// The transport that the handler chose.
    pub transport: std::sync::Arc<UpstreamTransport>,
    /// The engine's end of the call.
    pub engine: EngineCall,
}

impl FakeCall {
    /// Formats the request as `METHOD target`, followed by a line for each field.
    pub fn request_text(&self) -> String {
        let head = self.engine.request();
        let mut text = format!("{} {}", head.method().as_str(), head.target().as_str());
        for (name, value) in head.fields().iter() {
            text += &format!("\n{}: {}", name.as_str(), String::from_utf8_lossy(value));
        }
        text
    }

    /// Takes the request's content, to read it.
    pub fn take_body(&self) -> Option<Body> {
        self.engine.take_body()
    }

    /// Starts the response with a status and fields, and with the content's length if it is declared.
    pub fn answer(&self, status: u16, fields: &[(&str, &str)], length: Option<u64>) {
        self.put_head(status, fields, length, false);
    }

    /// Responds with 101, which turns the exchange into a tunnel.
    pub fn switch(&self, fields: &[(&str, &str)]) {
        self.put_head(101, fields, None, true);
    }

    fn put_head(&self, status: u16, fields: &[(&str, &str)], length: Option<u64>, tunnel: bool) {
        let mut head = ResponseHead::new(StatusCode::new(status).expect("a status code"));
        for (name, value) in fields {
            let value = FieldValue::parse(value.as_bytes()).expect("a field value");
            head.append(NameRef::parse(name.as_bytes()).expect("a field name"), value);
        }
        self.engine.put_head(&mut head, length, tunnel);
    }

    /// Sends a piece of the response's content.
    pub fn send(&self, bytes: &[u8]) {
        self.engine.mailbox().push(Frame::Chunk(bytes.to_vec().into()));
    }

    /// Sends the response's trailers and ends it.
    pub fn trail(&self, fields: FieldMap) {
        self.engine.mailbox().push(Frame::Trailers(Box::new(fields)));
        self.end();
    }

    /// Ends the response.
    pub fn end(&self) {
        self.engine.mailbox().complete();
    }
}

type Answerer = Box<dyn FnMut(FakeCall)>;

/// Queues the calls of a [`super::FakeWorker`], or passes them to its answerer.
#[derive(Default)]
pub(crate) struct Outbox {
    calls: RefCell<VecDeque<FakeCall>>,
    answerer: RefCell<Option<Answerer>>,
}

impl Outbox {
    pub(crate) fn take(&self) -> Option<FakeCall> {
        self.calls.borrow_mut().pop_front()
    }

    pub(crate) fn answer_with(&self, answerer: Answerer) {
        *self.answerer.borrow_mut() = Some(answerer);
    }
}

pub(crate) struct FakeUpstream {
    pub(crate) address: Rc<str>,
    pub(crate) transport: std::sync::Arc<UpstreamTransport>,
    pub(crate) calls: Rc<CallPool>,
    pub(crate) outbox: Rc<Outbox>,
}

impl Upstream for FakeUpstream {
    fn start(&self, engine: EngineCall) {
        let call = FakeCall { address: Rc::clone(&self.address), transport: self.transport.clone(), engine };
        match &mut *self.outbox.answerer.borrow_mut() {
            Some(answer) => answer(call),
            None => self.outbox.calls.borrow_mut().push_back(call),
        }
    }

    fn calls(&self) -> &Rc<CallPool> {
        &self.calls
    }
}
