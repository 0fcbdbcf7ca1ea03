//! Encodes the response to a unary call: the message's head before the body, and the call's status in trailers after
//! it.

use std::collections::VecDeque;
use std::rc::Rc;

use causeway_httpgrpc::{Code, Status, encode_response, is_error};
use causeway_message::{Chunk, FieldMap, FieldValue, Method, StatusCode, names};
use causeway_pipeline::{Body, BodyError, BodyPart, Context, Response, Step};

use super::collect::{CollectError, Collecting};
use super::lend::{DecoderLease, LeasedContent, PooledDecoder as _};
use super::{HttpGrpcState, begin_head, deadline_exceeded, refuse};
use causeway_httpgrpc::RequestDecoder;

/// Most bytes of an error's trailers, counted as HTTP/2 does. grpc-go's clients accept more, other clients about this
/// much.
const ERROR_BYTES_MAX: usize = 64 * 1024;

/// Encodes the response to the call.
pub(super) fn begin(cx: &mut Context, state: Rc<HttpGrpcState>, response: Response) -> Step {
    let Some((status, body)) = finish_carried(cx, response) else {
        return refuse(cx, StatusCode::OK, &Status::new(Code::INTERNAL, "the response switches protocols"));
    };
    let known = body.len();
    let says_error = is_error(status) && known.is_none_or(|bytes| bytes <= ERROR_BYTES_MAX as u64);
    match (body, known) {
        (Body::Empty, _) if says_error => error(cx, &state, status, &[], None),
        (Body::Chunk(chunk), _) if says_error => {
            let chunks = [chunk];
            error(cx, &state, status, &chunks, Some(&mut chunks.iter().cloned().map(BodyPart::Chunk).collect()))
        }
        (body, Some(bytes)) if !says_error => {
            let mut parts = parts_of(body);
            message(cx, status, bytes, &mut parts)
        }
        // The length must be sent before the content, so the content is collected first.
        (body, _) => {
            let deadline = cx.take_deadline();
            let bytes_max = u64::from(state.decoders.limits().message_bytes_max);
            let collecting = Collecting::new(body, state.decoders.lend(), bytes_max, cx.worker(), deadline);
            cx.wait(collecting, move |cx, collected| match collected {
                Ok(content) => collected_whole(cx, &state, status, content),
                Err(why) => refuse(cx, StatusCode::OK, &why_none(why)),
            })
        }
    }
}

/// Ends the carried request. Returns the status and the content to send, with Content-Length set for HEAD. `None` for a
/// tunnel.
pub(super) fn finish_carried(cx: &mut Context, response: Response) -> Option<(StatusCode, Body)> {
    let is_head = cx.carried().is_some_and(|request| request.method() == Method::Head);
    let Response { status, mut body } = response;
    // RFC 9110 §15.2: a final response cannot have a 1xx status; over HTTP the engine sends 200 instead.
    let status = if status.is_informational() { StatusCode::OK } else { status };
    if matches!(body, Body::Tunnel(_)) {
        cx.end_carry(StatusCode::INTERNAL_SERVER_ERROR);
        return None;
    }
    cx.end_carry(status);
    if is_head || status.forbids_content() {
        // HEAD reports the length that GET would have.
        if let Some(bytes) = body.len().filter(|&bytes| is_head && bytes > 0) {
            cx.response_mut().fields_mut().insert_number(names::CONTENT_LENGTH, bytes);
        }
        body = Body::Empty;
    }
    Some((status, body))
}

pub(super) fn parts_of(body: Body) -> VecDeque<BodyPart> {
    let part = match body {
        Body::Empty => return VecDeque::with_capacity(2),
        Body::Parts(parts) => return parts,
        Body::Chunk(chunk) => BodyPart::Chunk(chunk),
        Body::File(slice) => BodyPart::File(slice),
        Body::Stream(stream) => BodyPart::Stream(stream),
        Body::Tunnel(tunnel) => BodyPart::Stream(tunnel.stream),
        Body::Incoming(body) => BodyPart::Incoming(body),
    };
    let mut parts = VecDeque::with_capacity(3);
    parts.push_back(part);
    parts
}

fn collected_whole(
    cx: &mut Context,
    state: &HttpGrpcState,
    status: StatusCode,
    content: DecoderLease<RequestDecoder>,
) -> Step {
    let bytes = content.body().bytes();
    if !is_error(status) {
        return message(cx, status, bytes, &mut parts_of(Body::Stream(Box::new(LeasedContent(content)))));
    }
    // References to the blocks, not copies: the fallback to a message needs the content again.
    let chunks: Vec<Chunk> = content.body().chunks().to_vec();
    error(cx, state, status, &chunks, Some(&mut parts_of(Body::Stream(Box::new(LeasedContent(content))))))
}

/// Responds with a message whose body has length `bytes`.
fn message(cx: &mut Context, status: StatusCode, bytes: u64, parts: &mut VecDeque<BodyPart>) -> Step {
    let head = cx.with_scratch(|cx, out| {
        encode_response(status, cx.response().fields(), bytes, out).map(|()| cx.chunk(out)).ok()
    });
    let Some(head) = head else {
        let message = format!("a response of {bytes} bytes exceeds the size limit of a message");
        return refuse(cx, StatusCode::OK, &Status::new(Code::RESOURCE_EXHAUSTED, message));
    };
    let mut parts = std::mem::take(parts);
    parts.push_front(BodyPart::Chunk(head));
    parts.push_back(BodyPart::Trailers(went_well()));
    begin_head(cx);
    Step::Respond(Response { status: StatusCode::OK, body: Body::Parts(parts) })
}

/// Responds with an error that contains the response, as dskit does for 5xx. If that is too long, responds with a
/// message.
fn error(
    cx: &mut Context,
    state: &HttpGrpcState,
    status: StatusCode,
    chunks: &[Chunk],
    parts: Option<&mut VecDeque<BodyPart>>,
) -> Step {
    let mut trailers = FieldMap::new();
    let fields = cx.response().fields();
    let encoded = state.errors.borrow_mut().encode(status, fields, chunks, ERROR_BYTES_MAX, &mut trailers);
    if encoded.is_err() {
        let bytes = chunks.iter().map(|chunk| chunk.len() as u64).sum();
        return message(cx, status, bytes, parts.unwrap_or(&mut VecDeque::new()));
    }
    state.errors.borrow_mut().release_memory(ERROR_BYTES_MAX);
    begin_head(cx);
    let fields = cx.response_mut().fields_mut();
    for (name, value) in trailers.iter() {
        if let Some(value) = FieldValue::parse(value) {
            fields.append(name, value);
        }
    }
    Step::Respond(Response::empty(StatusCode::OK))
}

/// Returns the trailers of a successful call.
pub(super) fn went_well() -> Box<FieldMap> {
    let mut trailers = FieldMap::new();
    trailers.insert(names::GRPC_STATUS, FieldValue::from_static("0"));
    Box::new(trailers)
}

fn why_none(why: CollectError) -> Status {
    match why {
        CollectError::TooLong(max) => {
            Status::new(Code::RESOURCE_EXHAUSTED, format!("the response exceeds {max} bytes"))
        }
        CollectError::Deadline => deadline_exceeded(),
        CollectError::Body(BodyError::TimedOut) => Status::new(Code::DEADLINE_EXCEEDED, "the response stalled"),
        CollectError::Body(error) => Status::new(Code::INTERNAL, format!("the response ended early: {error}")),
    }
}
