//! `httpgrpc`: requests that come in messages of gRPC, as programs of the Grafana stack send them, and answers that go back so. What comes
//! behind the handler meets an ordinary request.
//!
//! ```text
//! enter:  POST /httpgrpc.HTTP/Handle ─► receive: message ─► Context::carry: head, body ─► Step::Next
//! leave:  answer ─► encode: message before the body, trailers behind it
//! ```
//! In reading order:
//! - `lend`: decoders that a worker lends to its calls
//! - `receive`: the call's message, while it comes
//! - `answer`, `collect`: from the answer to the call's
//! - `stream`: the same for our own service, whose content streams

mod answer;
mod collect;
pub(crate) mod lend;
mod receive;
pub(crate) mod stream;

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Instant;

use causeway_httpgrpc::{
    ACCEPTED_ENCODINGS, CONTENT_TYPE, Code, DecodeFault, Encoding, ErrorEncoder, Limits, MESSAGE_BYTES_DEFAULT,
    RequestDecoder, STREAM_PATH, Status, UNARY_PATH, is_grpc, timeout,
};
use causeway_message::{FieldValue, Head, Method, StatusCode, TargetForm, names};
use causeway_pipeline::{Build, BuildError, Context, Fault, Handler, Reason, Response, StateId, Step};
use serde::Deserialize;
use serde_json::Value;

use crate::rendered::with_field_value;
use lend::Lender;

const GRPC: FieldValue<'static> = FieldValue::from_static(CONTENT_TYPE);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    max_message_size: Option<u64>,
    #[serde(default)]
    stream: bool,
}

/// What a worker has for its calls.
struct Desk {
    limits: Limits,
    decoders: Rc<Lender<RequestDecoder>>,
    errors: RefCell<ErrorEncoder>,
}

struct HttpGrpc {
    streams: bool,
    desk: StateId<Rc<Desk>>,
}

/// How the call's content is framed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Service {
    Unary,
    Stream,
}

/// Makes the handler.
///
/// # Errors
/// When an option is unknown, or a limit that no message can have.
pub fn make(value: &Value, build: &mut Build<'_>) -> Result<Box<dyn Handler>, BuildError> {
    let written: Written = build.parse(value)?;
    let limits = Limits { message_bytes_max: message_size(written.max_message_size, build)?, ..Limits::default() };
    let desk = build.state(move |_| {
        Rc::new(Desk { limits, decoders: Lender::new(limits), errors: RefCell::new(ErrorEncoder::new()) })
    });
    Ok(Box::new(HttpGrpc { streams: written.stream, desk }))
}

/// `max_message_size`, in octets.
pub(crate) fn message_size(written: Option<u64>, build: &mut Build<'_>) -> Result<u32, BuildError> {
    match written.map(u32::try_from) {
        None => Ok(MESSAGE_BYTES_DEFAULT),
        Some(Ok(size @ 1..)) => Ok(size),
        Some(_) => {
            let found = written.unwrap_or_default().to_string();
            build.at("max_message_size", |build| Err(build.refuse(found, "octets, from 1 to 4294967295")))
        }
    }
}

impl Service {
    fn of(head: &Head) -> Option<Self> {
        match head.path() {
            path if path == UNARY_PATH.as_bytes() => Some(Self::Unary),
            path if path == STREAM_PATH.as_bytes() => Some(Self::Stream),
            _ => None,
        }
    }
}

impl Handler for HttpGrpc {
    fn enter(&self, cx: &mut Context) -> Step {
        let Some(service) = Service::of(cx.original()) else { return Step::Next };
        if cx.carried().is_some() {
            // A call within a call would find this place again and again.
            return match Service::of(cx.head()) {
                Some(_) => Step::Fail(Fault::status(StatusCode::LOOP_DETECTED)),
                None => Step::Next,
            };
        }
        if let Err((http, status)) = check(cx.original()) {
            return refuse(cx, http, &status);
        }
        if service == Service::Stream && !self.streams {
            let status = Status::new(Code::UNIMPLEMENTED, "this server has its httpgrpc without `stream`");
            return refuse(cx, StatusCode::OK, &status);
        }
        let deadline = match cx.original().fields().get(names::GRPC_TIMEOUT).map(timeout::parse) {
            None => None,
            // What is further away than the clock can say is never.
            Some(Some(timeout)) => cx.arrival().at.checked_add(timeout),
            Some(None) => {
                let status = Status::new(Code::INTERNAL, "grpc-timeout is no number with a unit");
                return refuse(cx, StatusCode::BAD_REQUEST, &status);
            }
        };
        let Some(body) = cx.take_body() else {
            return Step::Fail(Fault {
                status: StatusCode::INTERNAL_SERVER_ERROR,
                reason: Reason::Text("httpgrpc: another handler took the body before".into()),
            });
        };
        let encoding = Encoding::of(cx.original().fields());
        let desk = cx.generation().state(self.desk);
        match service {
            Service::Unary => {
                let mut decoder = desk.decoders.lend();
                decoder.begin(encoding);
                receive::begin(cx, body, decoder, deadline)
            }
            Service::Stream => {
                let limits = desk.limits;
                stream::receive(cx, body, limits, encoding, deadline)
            }
        }
    }

    fn leave(&self, cx: &mut Context, response: Response) -> Step {
        if !cx.is_carrier() {
            return Step::Respond(response);
        }
        let desk = Rc::clone(cx.generation().state(self.desk));
        match Service::of(cx.original()) {
            Some(Service::Stream) => stream::answer(cx, response),
            _ => answer::begin(cx, desk, response),
        }
    }

    // The server's error routes make of a fault what they make of it without this handler.
    fn failed(&self, cx: &mut Context, fault: Fault) -> Step {
        if !cx.is_carrier() {
            return Step::Fail(fault);
        }
        if matches!(fault.reason, Reason::Deadline) {
            cx.end_carry();
            return refuse(cx, StatusCode::OK, &deadline_exceeded());
        }
        cx.await_answer();
        Step::Fail(fault)
    }
}

/// gRPC over HTTP/2, "Requests"; the statuses are grpc-go's.
fn check(head: &Head) -> Result<(), (StatusCode, Status)> {
    if head.method() != Method::Post {
        let words = format!("the method is {}, expected POST", head.method().as_str());
        return Err((StatusCode::METHOD_NOT_ALLOWED, Status::new(Code::INTERNAL, words)));
    }
    let media_type = head.fields().get(names::CONTENT_TYPE).unwrap_or_default();
    if !is_grpc(media_type) {
        let words = format!("the content-type is \"{}\", expected {CONTENT_TYPE}", String::from_utf8_lossy(media_type));
        return Err((StatusCode::UNSUPPORTED_MEDIA_TYPE, Status::new(Code::INVALID_ARGUMENT, words)));
    }
    Ok(())
}

/// Puts the request in the place of the call, if it may stand there.
///
/// # Errors
/// The answer, if it may not.
fn take_over(cx: &mut Context, head: &mut Head, deadline: Option<Instant>) -> Result<(), Step> {
    if Service::of(head).is_some() {
        let status = Status::new(Code::INVALID_ARGUMENT, "a call of httpgrpc within one");
        return Err(refuse(cx, StatusCode::OK, &status));
    }
    // Which site is asked, the connection says.
    if head.target().form() == TargetForm::Absolute {
        let set = cx.with_scratch(|_, text| {
            let target = head.target();
            text.extend_from_slice(target.path().as_bytes());
            if let Some(query) = target.query() {
                text.push(b'?');
                text.extend_from_slice(query.as_bytes());
            }
            head.set_target(&**text)
        });
        if set.is_err() {
            return Err(refuse_fault(cx, DecodeFault::Target));
        }
    }
    if let Some(at) = deadline {
        cx.set_deadline(at);
    }
    cx.carry(head);
    Ok(())
}

/// Ends the call without a message.
fn refuse(cx: &mut Context, http: StatusCode, status: &Status) -> Step {
    begin_head(cx);
    cx.with_scratch(|cx, scratch| status.put(cx.response_mut().fields_mut(), scratch));
    Step::Respond(Response::empty(http))
}

fn refuse_fault(cx: &mut Context, fault: DecodeFault) -> Step {
    let step = refuse(cx, StatusCode::OK, &fault.status());
    if fault == DecodeFault::UnknownEncoding {
        with_field_value(ACCEPTED_ENCODINGS.as_bytes(), |accepted| {
            cx.response_mut().set(names::GRPC_ACCEPT_ENCODING, accepted);
        });
    }
    step
}

/// The fields so far are the answer's that is carried: the call has its own.
fn begin_head(cx: &mut Context) {
    let fields = cx.response_mut().fields_mut();
    fields.clear();
    fields.insert(names::CONTENT_TYPE, GRPC);
}

fn deadline_exceeded() -> Status {
    Status::new(Code::DEADLINE_EXCEEDED, "the call's deadline passed")
}

#[cfg(test)]
mod tests;
