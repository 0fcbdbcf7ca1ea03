//! Protocol upgrades through hyper.
//!
//! Only hyper can create `hyper::upgrade::OnUpgrade`, which axum's WebSockets need. So a request with an Upgrade is
//! sent, as HTTP/1.1 bytes, over an in-memory connection to a hyper server that calls the service. If the service
//! responds with 101, the in-memory connection becomes the tunnel: the peer's bytes are written to our end, and the
//! bytes read from it are sent to the peer.
//! ```text
//! peer ◄── engine ──► [ our end ═══ in memory ═══ hyper's end ] ──► Upgraded ──► the service's task
//! ```
//! For such requests this costs two tasks, and two copies of each byte. Any other response ends the in-memory
//! connection, and is sent as usual.

use std::any::Any;
use std::cell::Cell;
use std::fmt;
use std::future::{Future as _, pending, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context as PollContext, Poll};
use std::time::Duration;

use causeway_message::{Chunk, Head, Method, StatusCode, names};
use causeway_pipeline::{
    BodyError, BodyStream, Context, Fault, Frame, IncomingBody, Reason, ReportedWait, Response, Sleep, StateId, Step,
    Worker,
};
use http::{Extensions, HeaderMap, Request};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead as _, AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, ReadBuf, ReadHalf, WriteHalf};
use tokio::sync::oneshot;

use crate::answer::{self, Length};
use crate::body::EdgeBody;
use crate::edge::{ConnectionFacts, EdgeState, Servable, failed, when_ready};

/// The number of fields that hyper accepts by default, without an allocation for them.
const HYPER_FIELDS_MAX: usize = 100;

/// Bytes buffered in each direction; more than a request head has.
const PIPE_BYTES: usize = 64 * 1024;

/// Handles a request that may switch protocols; `None` for other requests.
#[inline]
pub(crate) fn enter<S: Servable>(id: StateId<EdgeState<S>>, facts: ConnectionFacts, cx: &mut Context) -> Option<Step> {
    if cx.arrival().upgrade { enter_upgrade(id, facts, cx) } else { None }
}

#[cold]
fn enter_upgrade<S: Servable>(id: StateId<EdgeState<S>>, facts: ConnectionFacts, cx: &mut Context) -> Option<Step> {
    // CONNECT opens a tunnel without Upgrade. A request with content would need a copy of the content for hyper.
    if cx.original().method() == Method::Connect || !cx.head().fields().contains(names::UPGRADE) || has_content(cx) {
        return None;
    }
    let generation = Rc::clone(cx.generation());
    let state = generation.state(id);
    let (ours, theirs) = tokio::io::duplex(PIPE_BYTES);
    let (sender, answer) = oneshot::channel();
    let mut extensions = Extensions::new();
    state.insert_facts(facts, cx, &mut extensions);
    let fields = cx.head().fields().len();
    cx.worker().spawn(Box::pin(serve(theirs, fields, state.clone_service(), extensions, sender)));
    let head = bytes(cx.head());
    Some(cx.wait(ReportedWait::new(exchange::<S>(ours, head, answer)), move |cx, outcome| match outcome {
        Some(UpgradeOutcome::Switched(fields, pipe)) => switch(cx, &fields, pipe),
        Some(UpgradeOutcome::Answered(Ok(answer))) => {
            let generation = Rc::clone(cx.generation());
            Step::Respond(generation.state(id).answer(cx, answer))
        }
        Some(UpgradeOutcome::Answered(Err(error))) => failed(error.into()),
        // In the exchange, where the engine handles it as a panic of any handler.
        Some(UpgradeOutcome::Panicked(panic)) => resume_unwind(panic),
        None => {
            let reason = Reason::Text("hyper did not accept the upgrade request".into());
            Step::Fail(Fault { status: StatusCode::INTERNAL_SERVER_ERROR, reason })
        }
    }))
}

fn has_content(cx: &Context) -> bool {
    let fields = cx.head().fields();
    fields.contains(names::TRANSFER_ENCODING) || fields.get(names::CONTENT_LENGTH).is_some_and(|length| length != b"0")
}

/// Serialises the head as an HTTP/1.1 request.
fn bytes(head: &Head) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(head.bytes() + 64);
    for part in [head.method().as_str(), " ", head.target().as_str(), " HTTP/1.1\r\n"] {
        bytes.extend_from_slice(part.as_bytes());
    }
    for (name, value) in head.fields().iter() {
        for part in [name.as_str().as_bytes(), b": ", value, b"\r\n"] {
            bytes.extend_from_slice(part);
        }
    }
    bytes.extend_from_slice(b"\r\n");
    bytes
}

type ServiceResult<S> =
    Result<http::Response<<S as Servable>::Content>, <S as tower_service::Service<Request<EdgeBody>>>::Error>;

/// The service's response.
enum ServiceResponse<S: Servable> {
    /// A 101, with these fields.
    Switch(HeaderMap),
    Other(ServiceResult<S>),
    /// None: the service panicked, with this payload.
    Panic(Box<dyn Any + Send>),
}

/// Ends the in-memory connection when it is no longer needed.
#[derive(Debug)]
struct Over;

impl fmt::Display for Over {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the response is not sent through hyper")
    }
}

impl std::error::Error for Over {}

/// Serves hyper's end: one request of this many fields, then the upgraded connection if there is one.
async fn serve<S: Servable>(
    theirs: DuplexStream,
    fields: usize,
    service: S,
    extensions: Extensions,
    sender: oneshot::Sender<ServiceResponse<S>>,
) {
    let once = Cell::new(Some((service, extensions, sender)));
    let service = service_fn(|request: Request<Incoming>| {
        // The connection carries one request; a second one fails.
        let first = once.take();
        async {
            let (service, extensions, sender) = first.ok_or(Over)?;
            let mut request = request.map(|_| EdgeBody::empty());
            request.extensions_mut().extend(extensions);
            let mut answer = pin!(when_ready(service, request));
            let polled = poll_fn(|poll_cx| match catch_unwind(AssertUnwindSafe(|| answer.as_mut().poll(poll_cx))) {
                Ok(poll) => poll.map(Ok),
                Err(panic) => Poll::Ready(Err(panic)),
            });
            let answer = match polled.await {
                Ok(answer) => answer,
                Err(panic) => {
                    let _ = sender.send(ServiceResponse::Panic(panic));
                    return Err(Over);
                }
            };
            match answer {
                Ok(answer) if answer.status() == http::StatusCode::SWITCHING_PROTOCOLS => {
                    // Copied for the exchange: hyper consumes the response to create the tunnel.
                    let fields = answer.headers().clone();
                    // The exchange may have ended, because the peer disconnected; our end is then closed too.
                    let _ = sender.send(ServiceResponse::Switch(fields));
                    Ok(answer.map(|_| EdgeBody::empty()))
                }
                other => {
                    let _ = sender.send(ServiceResponse::Other(other));
                    Err(Over)
                }
            }
        }
    });
    let mut hyper = http1::Builder::new();
    if fields > HYPER_FIELDS_MAX {
        hyper.max_headers(fields);
    }
    let connection = hyper.serve_connection(TokioIo::new(theirs), service).with_upgrades();
    // The exchange sees a failure as a missing response, or as the end of the tunnel.
    let _ = connection.await;
}

/// The result of the in-memory exchange.
enum UpgradeOutcome<S: Servable> {
    Switched(HeaderMap, Pipe),
    Answered(ServiceResult<S>),
    Panicked(Box<dyn Any + Send>),
}

/// Our end of the tunnel.
struct Pipe {
    stream: DuplexStream,
    /// Bytes of the new protocol that were read together with hyper's response head.
    first: Vec<u8>,
}

/// Sends hyper the request and waits for the service's response. Dropping this future closes our end, so hyper drops
/// the service's future.
async fn exchange<S: Servable>(
    mut ours: DuplexStream,
    head: Vec<u8>,
    answer: oneshot::Receiver<ServiceResponse<S>>,
) -> Option<UpgradeOutcome<S>> {
    ours.write_all(&head).await.ok()?;
    match answer.await.ok()? {
        ServiceResponse::Other(answer) => Some(UpgradeOutcome::Answered(answer)),
        ServiceResponse::Panic(panic) => Some(UpgradeOutcome::Panicked(panic)),
        ServiceResponse::Switch(fields) => {
            let first = read_past_head(&mut ours).await?;
            Some(UpgradeOutcome::Switched(fields, Pipe { stream: ours, first }))
        }
    }
}

/// Reads and discards hyper's response head; returns the bytes after it.
async fn read_past_head(ours: &mut DuplexStream) -> Option<Vec<u8>> {
    let mut read = Vec::with_capacity(1024);
    loop {
        if ours.read_buf(&mut read).await.ok()? == 0 || read.len() > PIPE_BYTES {
            return None;
        }
        if let Some(at) = read.windows(4).position(|end| end == b"\r\n\r\n") {
            return Some(read.split_off(at + 4));
        }
    }
}

fn switch(cx: &mut Context, fields: &HeaderMap, pipe: Pipe) -> Step {
    answer::put_fields(fields, Length::Content, cx.response_mut().fields_mut());
    if cx.take_body().is_none() {
        return Step::Fail(Fault::from_status(StatusCode::INTERNAL_SERVER_ERROR));
    }
    // The client's bytes, also if a handler has replaced the content that the request does not have.
    let inbound = cx.tunnel_reader();
    let (from_service, to_service) = tokio::io::split(pipe.stream);
    let (sender, end) = oneshot::channel();
    cx.worker().spawn(Box::pin(forward(inbound, to_service, end, Rc::clone(cx.worker()))));
    // Sent before the stream is read, so that the order of bytes is kept.
    let first = (!pipe.first.is_empty()).then(|| Chunk::from(pipe.first));
    let worker = Rc::clone(cx.worker());
    Step::Respond(Response::switch(Tunnel { stream: from_service, first, end: Some(sender), worker }))
}

/// The end of the bytes from the service. If the [`Tunnel`] is dropped before it, the sender is dropped unused.
struct ServiceEnd;

/// The time that a service has to read the bytes of a peer that is gone.
const LAST_BYTES_TIME: Duration = Duration::from_secs(5);

/// Copies bytes from the peer to the service, until either ends. If the tunnel is dropped before the service's end, the
/// peer is gone: the service can read the peer's last bytes for a time, and then our end of the pipe is closed, also if
/// a service that does not read has left it full. Otherwise the service would never see that the peer is gone.
async fn forward(
    inbound: IncomingBody,
    to_service: WriteHalf<DuplexStream>,
    end: oneshot::Receiver<ServiceEnd>,
    worker: Rc<dyn Worker>,
) {
    let mut copying = pin!(copy(inbound, to_service));
    let mut dropped = pin!(async {
        if let Ok(ServiceEnd) = end.await {
            // The other direction is still open.
            pending::<()>().await;
        }
    });
    let mut until = None;
    poll_fn(|poll_cx| {
        if copying.as_mut().poll(poll_cx).is_ready() {
            return Poll::Ready(());
        }
        if until.is_none() && dropped.as_mut().poll(poll_cx).is_ready() {
            until = Some(Sleep::until(Rc::clone(&worker), worker.now() + LAST_BYTES_TIME));
        }
        if Sleep::is_over(&mut until, poll_cx) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

/// Copies bytes until they end. The service sees a failure of the peer's bytes as their end too: an in-memory pipe has
/// no other ending, so the protocol of the tunnel must mark its own end, as WebSocket does.
async fn copy(mut inbound: IncomingBody, mut to_service: WriteHalf<DuplexStream>) {
    while let Some(Ok(Frame::Chunk(chunk))) = poll_fn(|poll_cx| inbound.poll_frame(poll_cx)).await {
        if to_service.write_all(chunk.as_slice()).await.is_err() {
            return;
        }
    }
    // Fails only if the service has closed the pipe already.
    let _ = to_service.shutdown().await;
}

/// The bytes from the service to the peer.
struct Tunnel {
    stream: ReadHalf<DuplexStream>,
    first: Option<Chunk>,
    /// Until the end of the stream.
    end: Option<oneshot::Sender<ServiceEnd>>,
    worker: Rc<dyn Worker>,
}

impl BodyStream for Tunnel {
    fn poll_frame(&mut self, poll_cx: &mut PollContext<'_>) -> Poll<Option<Result<Frame, BodyError>>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Ok(Frame::Chunk(first))));
        }
        let mut block = self.worker.take_block();
        let mut buffer = ReadBuf::new(block.as_mut_slice());
        match Pin::new(&mut self.stream).poll_read(poll_cx, &mut buffer) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Err(_)) => Poll::Ready(Some(Err(BodyError::Source))),
            Poll::Ready(Ok(())) => {
                let len = buffer.filled().len();
                // An empty read is the end of the stream.
                if len == 0
                    && let Some(end) = self.end.take()
                {
                    // Fails only if the peer's direction is over too.
                    let _ = end.send(ServiceEnd);
                }
                Poll::Ready((len > 0).then(|| Ok(Frame::Chunk(block.freeze(0..len)))))
            }
        }
    }
}
