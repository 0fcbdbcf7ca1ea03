//! Upstreams whose answers are the test's.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use causeway_message::{FieldMap, FieldValue, NameRef, ResponseHead, StatusCode};
use causeway_pipeline::upstream::{Calls, Carried, Upstream};
use causeway_pipeline::{Body, Frame, Transport};

/// A call that a handler made, for the test to answer. Dropping it is an upstream that closes.
pub struct FakeCall {
    /// Where it goes.
    pub address: Rc<str>,
    /// How it is to be carried.
    pub transport: std::sync::Arc<Transport>,
    /// The engine's handle.
    pub carried: Carried,
}

impl FakeCall {
    /// The request as `METHOD target`, then a line for each field.
    pub fn request_text(&self) -> String {
        let head = self.carried.request();
        let mut text = format!("{} {}", head.method().as_str(), head.target().as_str());
        for (name, value) in head.fields().iter() {
            text += &format!("\n{}: {}", name.as_str(), String::from_utf8_lossy(value));
        }
        text
    }

    /// The request's content, to read.
    pub fn take_body(&self) -> Option<Body> {
        self.carried.take_body()
    }

    /// Begins the answer: a status and fields, and the content's length where it is announced.
    pub fn answer(&self, status: u16, fields: &[(&str, &str)], length: Option<u64>) {
        self.put_head(status, fields, length, false);
    }

    /// Answers that the exchange is a tunnel.
    pub fn switch(&self, fields: &[(&str, &str)]) {
        self.put_head(101, fields, None, true);
    }

    fn put_head(&self, status: u16, fields: &[(&str, &str)], length: Option<u64>, tunnel: bool) {
        let mut head = ResponseHead::new(StatusCode::new(status).expect("a status code"));
        for (name, value) in fields {
            let value = FieldValue::parse(value.as_bytes()).expect("a field value");
            head.append(NameRef::parse(name.as_bytes()).expect("a field name"), value);
        }
        self.carried.put_head(&mut head, length, tunnel);
    }

    /// A piece of the answer's content.
    pub fn send(&self, octets: &[u8]) {
        self.carried.mailbox().push(Frame::Chunk(octets.to_vec().into()));
    }

    /// The answer's trailers, then its end.
    pub fn trail(&self, fields: FieldMap) {
        self.carried.mailbox().push(Frame::Trailers(Box::new(fields)));
        self.end();
    }

    /// The answer is complete.
    pub fn end(&self) {
        self.carried.mailbox().complete();
    }
}

type Answerer = Box<dyn FnMut(FakeCall)>;

/// Where [`super::FakeWorker`] puts the calls.
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
    pub(crate) transport: std::sync::Arc<Transport>,
    pub(crate) calls: Rc<Calls>,
    pub(crate) outbox: Rc<Outbox>,
}

impl Upstream for FakeUpstream {
    fn carry(&self, carried: Carried) {
        let call = FakeCall { address: Rc::clone(&self.address), transport: self.transport.clone(), carried };
        match &mut *self.outbox.answerer.borrow_mut() {
            Some(answer) => answer(call),
            None => self.outbox.calls.borrow_mut().push_back(call),
        }
    }

    fn calls(&self) -> &Rc<Calls> {
        &self.calls
    }
}
