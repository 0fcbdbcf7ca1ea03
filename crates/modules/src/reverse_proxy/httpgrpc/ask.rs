//! Encodes a request to a gRPC call: the message's head before the content, and the call's own fields.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use causeway_httpgrpc::stream::encode_request_head;
use causeway_httpgrpc::{
    ACCEPTED_ENCODINGS, CONTENT_TYPE, METADATA_METHOD, METADATA_URL, STREAM_PATH, UNARY_PATH, encode_request, timeout,
};
use causeway_message::{Chunk, FieldValue, Head, Method, NameRef, StatusCode, names};
use causeway_pipeline::{Body, BodyError, BodyPart, BodyStream, Call, Context, Fault, Reason};

use super::super::backend::AddressPool;
use super::HttpGrpcOptions;
use super::gather::Gathering;
use crate::httpgrpc::SCOPE_ORG_ID;
use crate::httpgrpc::stream::FramedContent;
use crate::rendered::with_field_value;

/// Fields that dskit's servers read from the call's metadata, not from the message: the tenant, and the trace. And
/// whether a field is a list: of the others the first value counts, as for Go's `Header.Get`.
const METADATA: [(NameRef<'static>, bool); 4] = [
    (NameRef::Other(SCOPE_ORG_ID), false),
    (NameRef::Known(names::TRACEPARENT), false),
    (NameRef::Known(names::TRACESTATE), true),
    (NameRef::Other("baggage"), true),
];
const USER_AGENT: FieldValue<'static> = FieldValue::from_static("grpc-causeway");

/// Converts a request to a gRPC call, and returns the content to send.
pub(in super::super) fn wrap(
    cx: &mut Context,
    call: &Call,
    content: &mut Body,
    pool: &AddressPool,
    options: HttpGrpcOptions,
) -> Result<(), Fault> {
    let known = match &content {
        Body::Tunnel(_) => return Err(no_tunnel()),
        content => content.len(),
    };
    let fits = known.is_some_and(|bytes| bytes <= u64::from(options.message_bytes_max));
    let now = cx.worker().now();
    // The response to a request without content may be long, and a request without content can be sent again.
    let is_none = known == Some(0);
    if (is_none || !fits) && options.streams && pool.may_stream(now) {
        return stream(cx, call, content, pool, options);
    }
    if !fits && known.is_some() {
        return Err(Fault::from_body_error(BodyError::TooLarge));
    }
    // The message has its own length.
    call.request_mut().fields_mut().remove(names::CONTENT_LENGTH);
    let Some(bytes) = known else {
        // Of unknown length: the call starts now, and its message is sent when the content is complete.
        let head = std::mem::take(&mut *call.request_mut());
        call.request_mut().copy_from(&head);
        fill(cx, call, pool, options, UNARY_PATH, now)?;
        let decoder = cx.generation().state(options.decoders).lend();
        let gathering = Gathering::new(std::mem::take(content), head, decoder, cx.worker());
        *content = Body::Stream(Box::new(gathering));
        return Ok(());
    };
    let head = encoded(cx, call, |head, out, _| encode_request(head, bytes, out))?;
    fill(cx, call, pool, options, UNARY_PATH, now)?;
    *content = match std::mem::take(content) {
        Body::Incoming(content) => Body::Parts(VecDeque::from([BodyPart::Chunk(head), BodyPart::Incoming(content)])),
        Body::Empty => Body::Chunk(head),
        // The exchange passes only incoming or empty content.
        other => return Err(unspeakable(&other)),
    };
    Ok(())
}

fn stream(
    cx: &mut Context,
    call: &Call,
    content: &mut Body,
    pool: &AddressPool,
    options: HttpGrpcOptions,
) -> Result<(), Fault> {
    let head = encoded(cx, call, |head, out, scratch| encode_request_head(head, scratch, out))?;
    let now = cx.worker().now();
    fill(cx, call, pool, options, STREAM_PATH, now)?;
    let framed: Option<Box<dyn BodyStream>> = match std::mem::take(content) {
        Body::Incoming(content) => Some(Box::new(content)),
        Body::Stream(content) => Some(content),
        Body::Empty => None,
        other => return Err(unspeakable(&other)),
    };
    let framed = framed.map(|content| BodyPart::Stream(Box::new(FramedContent::new(content))));
    *content = Body::Parts([BodyPart::Chunk(head)].into_iter().chain(framed).collect());
    Ok(())
}

#[cold]
fn unspeakable(content: &Body) -> Fault {
    let message = format!("found {content:?} to send over httpgrpc, expected a request body or none");
    Fault { status: StatusCode::INTERNAL_SERVER_ERROR, reason: Reason::Text(message.into()) }
}

fn encoded<E>(
    cx: &mut Context,
    call: &Call,
    encode: impl FnOnce(&Head, &mut Vec<u8>, &mut Vec<u8>) -> Result<(), E>,
) -> Result<Chunk, Fault> {
    cx.with_scratch(|cx, out| {
        cx.with_scratch(|cx, scratch| match encode(&call.request(), out, scratch) {
            Ok(()) => Ok(cx.chunk(out)),
            Err(_) => Err(Fault::from_body_error(BodyError::TooLarge)),
        })
    })
}

/// Replaces the request's head by the call's own (gRPC over HTTP/2, "Requests").
fn fill(
    cx: &mut Context,
    call: &Call,
    pool: &AddressPool,
    options: HttpGrpcOptions,
    path: &str,
    now: Instant,
) -> Result<(), Fault> {
    let limit = time_left(cx, options, now)?;
    cx.with_scratch(|cx, saved| {
        let mut request = call.request_mut();
        // Saved before the head is cleared: they become the call's metadata.
        let mut ends = [0; 2 + METADATA.len()];
        saved.extend_from_slice(request.method().as_str().as_bytes());
        ends[0] = saved.len();
        saved.extend_from_slice(request.target().as_str().as_bytes());
        ends[1] = saved.len();
        for ((name, is_list), end) in METADATA.into_iter().zip(&mut ends[2..]) {
            let fields = request.fields();
            if is_list {
                fields.write_joined(name, saved);
            } else {
                saved.extend_from_slice(fields.get(name).unwrap_or_default());
            }
            *end = saved.len();
        }
        request.clear();
        request.set_method(Method::Post);
        request.set_target(path).expect("the services' paths are targets");
        let fields = request.fields_mut();
        let host = cx.head().authority().filter(|host| options.forward_host && !host.is_empty());
        let host = host.unwrap_or_else(|| pool.address.host_value());
        with_field_value(host.as_bytes(), |host| fields.insert(names::HOST, host));
        fields.insert(names::CONTENT_TYPE, FieldValue::from_static(CONTENT_TYPE));
        fields.insert(names::TE, FieldValue::from_static("trailers"));
        fields.insert(names::USER_AGENT, USER_AGENT);
        fields.insert(names::GRPC_ACCEPT_ENCODING, FieldValue::from_static(ACCEPTED_ENCODINGS));
        if let Some(limit) = limit {
            let mut text = [0; 9];
            with_field_value(timeout::print(limit, &mut text), |limit| {
                fields.insert(names::GRPC_TIMEOUT, limit);
            });
        }
        let line = [NameRef::Other(METADATA_METHOD), NameRef::Other(METADATA_URL)];
        let mut begin = 0;
        for (name, end) in line.into_iter().chain(METADATA.map(|(name, _)| name)).zip(ends) {
            if end > begin {
                with_field_value(&saved[begin..end], |value| fields.insert(name, value));
            }
            begin = end;
        }
    });
    Ok(())
}

/// Returns the time limit for the upstream: the configured one, or the client's remaining time if that is shorter.
fn time_left(cx: &Context, options: HttpGrpcOptions, now: Instant) -> Result<Option<Duration>, Fault> {
    let Some(deadline) = cx.deadline() else { return Ok(options.timeout) };
    let left = deadline.saturating_duration_since(now);
    if left.is_zero() {
        return Err(Fault::deadline());
    }
    Ok(Some(options.timeout.map_or(left, |timeout| timeout.min(left))))
}

#[cold]
fn no_tunnel() -> Fault {
    let message = "a gRPC message cannot carry another protocol";
    Fault { status: StatusCode::NOT_IMPLEMENTED, reason: Reason::Text(message.into()) }
}
