//! From the answer to the call's: the message's head before the body, and how the call ended behind it.

use std::collections::VecDeque;
use std::rc::Rc;

use causeway_httpgrpc::{Code, Status, encode_response, is_error};
use causeway_message::{Chunk, FieldMap, FieldValue, Method, StatusCode, names};
use causeway_pipeline::{Body, BodyFault, Context, Part, Response, Step};

use super::collect::{Collecting, Uncollected};
use super::lend::{Held, Lease, Unary as _};
use super::{Desk, begin_head, deadline_exceeded, refuse};
use causeway_httpgrpc::RequestDecoder;

/// Octets that an error's trailers may have, counted as HTTP/2 counts them: grpc-go's clients take more, others take as much.
const ERROR_OCTETS_MAX: usize = 64 * 1024;

/// Answers the call with this answer.
pub(super) fn begin(cx: &mut Context, desk: Rc<Desk>, response: Response) -> Step {
    let Some((status, body)) = settle(cx, response) else {
        return refuse(cx, StatusCode::OK, &Status::new(Code::INTERNAL, "an answer that changes the protocol"));
    };
    let known = body.len();
    let says_error = is_error(status) && known.is_none_or(|octets| octets <= ERROR_OCTETS_MAX as u64);
    match (body, known) {
        (Body::Empty, _) if says_error => error(cx, &desk, status, &[], None),
        (Body::Chunk(chunk), _) if says_error => {
            let chunks = [chunk];
            error(cx, &desk, status, &chunks, Some(&mut chunks.iter().cloned().map(Part::Chunk).collect()))
        }
        (body, Some(octets)) if !says_error => {
            let mut parts = parts_of(body);
            message(cx, status, octets, &mut parts)
        }
        // How long it is has to be said before it, so it comes whole first.
        (body, _) => {
            let deadline = cx.take_deadline();
            let octets_max = u64::from(desk.decoders.limits().message_bytes_max);
            let collecting = Collecting::new(body, desk.decoders.lend(), octets_max, cx.worker(), deadline);
            cx.wait(collecting, move |cx, collected| match collected {
                Ok(content) => collected_whole(cx, &desk, status, content),
                Err(why) => refuse(cx, StatusCode::OK, &why_none(why)),
            })
        }
    }
}

/// The carried request has its answer: what is to be said of its content, and which of it is sent. `None` for a tunnel.
pub(super) fn settle(cx: &mut Context, response: Response) -> Option<(StatusCode, Body)> {
    let is_head = cx.carried().is_some_and(|request| request.method() == Method::Head);
    cx.end_carry();
    let Response { status, mut body } = response;
    if matches!(body, Body::Tunnel(_)) {
        return None;
    }
    // RFC 9110 §15.2: no final answer has a 1xx; over HTTP the engine sends 200 behind it.
    let status = if status.is_informational() { StatusCode::OK } else { status };
    if is_head || status.forbids_content() {
        if let Some(octets) = body.len().filter(|&octets| is_head && octets > 0)
            && !cx.response().fields().contains(names::CONTENT_LENGTH)
        {
            cx.response_mut().fields_mut().insert_number(names::CONTENT_LENGTH, octets);
        }
        body = Body::Empty;
    }
    Some((status, body))
}

pub(super) fn parts_of(body: Body) -> VecDeque<Part> {
    let part = match body {
        Body::Empty => return VecDeque::with_capacity(2),
        Body::Parts(parts) => return parts,
        Body::Chunk(chunk) => Part::Chunk(chunk),
        Body::File(slice) => Part::File(slice),
        Body::Stream(stream) | Body::Tunnel(stream) => Part::Stream(stream),
        Body::Incoming(body) => Part::Incoming(body),
    };
    let mut parts = VecDeque::with_capacity(3);
    parts.push_back(part);
    parts
}

fn collected_whole(cx: &mut Context, desk: &Desk, status: StatusCode, content: Lease<RequestDecoder>) -> Step {
    let octets = content.body().octets();
    if !is_error(status) {
        return message(cx, status, octets, &mut parts_of(Body::Stream(Box::new(Held(content)))));
    }
    let chunks: Vec<Chunk> = content.body().chunks().to_vec();
    error(cx, desk, status, &chunks, Some(&mut parts_of(Body::Stream(Box::new(Held(content))))))
}

/// Answers with a message, whose body so many octets are.
fn message(cx: &mut Context, status: StatusCode, octets: u64, parts: &mut VecDeque<Part>) -> Step {
    let head = cx.with_scratch(|cx, out| {
        encode_response(status, cx.response().fields(), octets, out).map(|()| cx.chunk(out)).ok()
    });
    let Some(head) = head else {
        let words = format!("an answer of {octets} octets, more than a message may have");
        return refuse(cx, StatusCode::OK, &Status::new(Code::RESOURCE_EXHAUSTED, words));
    };
    let mut parts = std::mem::take(parts);
    parts.push_front(Part::Chunk(head));
    parts.push_back(Part::Trailers(went_well()));
    begin_head(cx);
    Step::Respond(Response { status: StatusCode::OK, body: Body::Parts(parts) })
}

/// Answers with the call's error, as dskit has it for 5xx; what is too long for that, with a message.
fn error(
    cx: &mut Context,
    desk: &Desk,
    status: StatusCode,
    chunks: &[Chunk],
    parts: Option<&mut VecDeque<Part>>,
) -> Step {
    let mut trailers = FieldMap::new();
    let fields = cx.response().fields();
    let encoded = desk.errors.borrow_mut().encode(status, fields, chunks, ERROR_OCTETS_MAX, &mut trailers);
    if encoded.is_err() {
        let octets = chunks.iter().map(|chunk| chunk.len() as u64).sum();
        return message(cx, status, octets, parts.unwrap_or(&mut VecDeque::new()));
    }
    desk.errors.borrow_mut().give_back(ERROR_OCTETS_MAX);
    begin_head(cx);
    let fields = cx.response_mut().fields_mut();
    for (name, value) in trailers.iter() {
        if let Some(value) = FieldValue::parse(value) {
            fields.append(name, value);
        }
    }
    Step::Respond(Response::empty(StatusCode::OK))
}

/// The trailers of a call that has its answer.
pub(super) fn went_well() -> Box<FieldMap> {
    let mut trailers = FieldMap::new();
    trailers.insert(names::GRPC_STATUS, FieldValue::from_static("0"));
    Box::new(trailers)
}

fn why_none(why: Uncollected) -> Status {
    match why {
        Uncollected::TooLong(max) => {
            Status::new(Code::RESOURCE_EXHAUSTED, format!("an answer of more than {max} octets"))
        }
        Uncollected::Deadline => deadline_exceeded(),
        Uncollected::Body(BodyFault::TimedOut) => Status::new(Code::DEADLINE_EXCEEDED, "the answer stopped coming"),
        Uncollected::Body(fault) => Status::new(Code::INTERNAL, format!("the answer broke off: {fault}")),
    }
}
