//! `httpgrpc`: accepts HTTP requests carried in gRPC messages, as programs of the Grafana stack send them, and returns
//! the responses in the same form. The following handlers see an ordinary request.
//!
//! ```text
//! enter:  POST /httpgrpc.HTTP/Handle ─► receive: message ─► Context::carry: head, body ─► Step::Next
//! leave:  response ─► encode: message before the body, trailers after it
//! ```
//! In reading order:
//! - `lend`: a per-worker pool of decoders
//! - `receive`: receives the message of a unary call
//! - `answer`, `collect`: encode the response to a unary call
//! - `stream`: Causeway's own streaming service

mod answer;
mod collect;
pub(crate) mod lend;
mod receive;
pub(crate) mod stream;

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Instant;

use causeway_httpgrpc::{
    ACCEPTED_ENCODINGS, CONTENT_TYPE, Code, DecodeError, Encoding, ErrorEncoder, Limits, MESSAGE_BYTES_DEFAULT,
    RequestDecoder, STREAM_PATH, Status, UNARY_PATH, is_grpc, timeout,
};
use causeway_message::{FieldMap, FieldValue, Head, Method, NameRef, StatusCode, TargetForm, names};
use causeway_pipeline::{Build, BuildError, Context, Fault, Handler, Reason, Response, StateId, Step};
use serde::Deserialize;
use serde_json::Value;

use crate::origin_form::put_origin_form;
use crate::rendered::with_field_value;
use lend::Lender;

/// The tenant. dskit's clients put it into the call's metadata, and most of them also into the message.
pub(crate) const SCOPE_ORG_ID: &str = "X-Scope-OrgID";
const POST: FieldValue<'static> = FieldValue::from_static("POST");
const GRPC: FieldValue<'static> = FieldValue::from_static(CONTENT_TYPE);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HttpGrpcConfig {
    max_message_size: Option<u64>,
    #[serde(default)]
    stream: bool,
}

/// The handler's state on one worker.
struct HttpGrpcState {
    limits: Limits,
    decoders: Rc<Lender<RequestDecoder>>,
    errors: RefCell<ErrorEncoder>,
}

struct HttpGrpc {
    streams: bool,
    state: StateId<Rc<HttpGrpcState>>,
}

/// The two services, which differ in the framing of the content.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Service {
    Unary,
    Stream,
}

/// Compiles the handler from its JSON.
///
/// # Errors
/// If an option is unknown, or `max_message_size` is out of range.
pub fn make(value: &Value, build: &mut Build<'_>) -> Result<Box<dyn Handler>, BuildError> {
    let config: HttpGrpcConfig = build.parse_module(value)?;
    let limits = Limits { message_bytes_max: message_size(config.max_message_size, build)?, ..Limits::default() };
    let state = build.allocate_state(move |_| {
        Rc::new(HttpGrpcState { limits, decoders: Lender::new(limits), errors: RefCell::new(ErrorEncoder::new()) })
    });
    Ok(Box::new(HttpGrpc { streams: config.stream, state }))
}

/// Validates `max_message_size`, in bytes.
pub(crate) fn message_size(written: Option<u64>, build: &mut Build<'_>) -> Result<u32, BuildError> {
    let Some(written) = written else { return Ok(MESSAGE_BYTES_DEFAULT) };
    match u32::try_from(written) {
        Ok(size @ 1..) => Ok(size),
        _ => {
            let found = written.to_string();
            build.at("max_message_size", |build| Err(build.refuse(found, "bytes, from 1 to 4294967295")))
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
            // A carried request for this service would reach this handler again, without end.
            return match Service::of(cx.head()) {
                Some(_) => Step::Fail(Fault::from_status(StatusCode::LOOP_DETECTED)),
                None => Step::Next,
            };
        }
        if let Err((http, status)) = check(cx.original()) {
            let step = refuse(cx, http, &status);
            // RFC 9110 §15.5.6.
            if http == StatusCode::METHOD_NOT_ALLOWED {
                cx.response_mut().set(names::ALLOW, POST);
            }
            return step;
        }
        if service == Service::Stream && !self.streams {
            let status = Status::new(Code::UNIMPLEMENTED, "`stream` is not enabled for httpgrpc on this server");
            return refuse(cx, StatusCode::OK, &status);
        }
        let deadline = match cx.original().fields().get(names::GRPC_TIMEOUT).map(timeout::parse) {
            None => None,
            // A deadline beyond the clock's range is no deadline.
            Some(Some(timeout)) => cx.arrival().at.checked_add(timeout),
            Some(None) => {
                let status = Status::new(Code::INTERNAL, "grpc-timeout is not a number with a unit");
                return refuse(cx, StatusCode::BAD_REQUEST, &status);
            }
        };
        let Some(body) = cx.take_body() else {
            return Step::Fail(Fault {
                status: StatusCode::INTERNAL_SERVER_ERROR,
                reason: Reason::Text("httpgrpc: an earlier handler has taken the body".into()),
            });
        };
        let encoding = Encoding::of(cx.original().fields());
        let state = cx.generation().state(self.state);
        match service {
            Service::Unary => {
                let mut decoder = state.decoders.lend();
                decoder.begin(encoding);
                receive::begin(cx, body, decoder, deadline)
            }
            Service::Stream => {
                let limits = state.limits;
                stream::receive(cx, body, limits, encoding, deadline)
            }
        }
    }

    fn leave(&self, cx: &mut Context, response: Response) -> Step {
        if !cx.is_carrier() {
            return Step::Respond(response);
        }
        let state = Rc::clone(cx.generation().state(self.state));
        match Service::of(cx.original()) {
            Some(Service::Stream) => stream::answer(cx, response),
            _ => answer::begin(cx, state, response),
        }
    }

    // The error routes handle a fault as they do without this handler; `leave` then encodes their response.
    fn failed(&self, cx: &mut Context, fault: Fault) -> Step {
        if !cx.is_carrier() {
            return Step::Fail(fault);
        }
        // The client no longer waits, so no error route runs.
        if matches!(fault.reason, Reason::Deadline) {
            cx.end_carry(StatusCode::GATEWAY_TIMEOUT);
            return refuse(cx, StatusCode::OK, &deadline_exceeded());
        }
        cx.leave_after_fault();
        Step::Fail(fault)
    }
}

/// Validates the call (gRPC over HTTP/2, "Requests"); the statuses are grpc-go's.
fn check(head: &Head) -> Result<(), (StatusCode, Status)> {
    if head.method() != Method::Post {
        let message = format!("the method is {}, expected POST", head.method().as_str());
        return Err((StatusCode::METHOD_NOT_ALLOWED, Status::new(Code::INTERNAL, message)));
    }
    let media_type = head.fields().get(names::CONTENT_TYPE).unwrap_or_default();
    if !is_grpc(media_type) {
        let message =
            format!("the content-type is \"{}\", expected {CONTENT_TYPE}", String::from_utf8_lossy(media_type));
        return Err((StatusCode::UNSUPPORTED_MEDIA_TYPE, Status::new(Code::INVALID_ARGUMENT, message)));
    }
    Ok(())
}

/// Replaces the call with the request in it.
///
/// # Errors
/// The error response, if the request is not permitted.
fn take_over(cx: &mut Context, head: &mut Head, deadline: Option<Instant>) -> Result<(), Step> {
    if Service::of(head).is_some() {
        let status = Status::new(Code::INVALID_ARGUMENT, "a nested httpgrpc call");
        return Err(refuse(cx, StatusCode::OK, &status));
    }
    // The authority of the connection selects the site, so a carried authority is removed.
    if head.target().form() == TargetForm::Absolute {
        let set = cx.with_scratch(|_, text| {
            put_origin_form(head.target(), text);
            head.set_target(&**text)
        });
        if set.is_err() {
            return Err(refuse_fault(cx, DecodeError::Target));
        }
    }
    if let Some(at) = deadline {
        cx.set_deadline(at);
    }
    take_metadata(cx, head);
    cx.carry(head);
    Ok(())
}

/// Copies fields of the call that concern the request in it.
fn take_metadata(cx: &Context, head: &mut Head) {
    let (call, carried) = (cx.head().fields(), head.fields_mut());
    // `tracing` has made the span of this call, which is the parent of all that the request causes. The message has at
    // most the sender's.
    let parent = call.get(names::TRACEPARENT);
    if parent.is_some() && parent != cx.original().fields().get(names::TRACEPARENT) {
        for name in [names::TRACEPARENT, names::TRACESTATE] {
            carried.remove(name);
            copy(call, name.into(), carried);
        }
    }
    if !carried.contains(NameRef::Other(SCOPE_ORG_ID)) {
        copy(call, NameRef::Other(SCOPE_ORG_ID), carried);
    }
}

fn copy(from: &FieldMap, name: NameRef<'_>, to: &mut FieldMap) {
    for value in from.get_all(name) {
        with_field_value(value, |value| to.append(name, value));
    }
}

/// Ends the call with a status and without a message.
fn refuse(cx: &mut Context, http: StatusCode, status: &Status) -> Step {
    begin_head(cx);
    cx.with_scratch(|cx, scratch| status.put(cx.response_mut().fields_mut(), scratch));
    Step::Respond(Response::empty(http))
}

/// Ends the call for a decoding error.
fn refuse_fault(cx: &mut Context, error: DecodeError) -> Step {
    let step = refuse(cx, StatusCode::OK, &error.status());
    if error == DecodeError::UnknownEncoding {
        with_field_value(ACCEPTED_ENCODINGS.as_bytes(), |accepted| {
            cx.response_mut().set(names::GRPC_ACCEPT_ENCODING, accepted);
        });
    }
    step
}

/// Starts the call's own head: the fields so far belong to the carried response.
fn begin_head(cx: &mut Context) {
    let fields = cx.response_mut().fields_mut();
    fields.clear();
    fields.insert(names::CONTENT_TYPE, GRPC);
}

fn deadline_exceeded() -> Status {
    Status::new(Code::DEADLINE_EXCEEDED, "the call's deadline passed")
}

#[cfg(test)]
pub(crate) mod tests;
