//! How hyper's upgrades work here.
//!
//! What axum's WebSockets wait for, `hyper::upgrade::OnUpgrade`, only hyper can make. So a request that asks for another protocol is
//! told again, as octets, to a connection of hyper's that lies in memory. Its service answers as ever. If that is 101 the connection in
//! memory becomes the tunnel: what the peer sends goes in at our end, and what comes out goes to the peer.
//! ```text
//! peer ◄── engine ──► [ our end ═══ in memory ═══ hyper's end ] ──► Upgraded ──► the service's task
//! ```
//! It costs two tasks and two copies of each octet, for such requests only. With any other answer the connection in memory ends, and
//! the answer goes out as all do.

use std::cell::Cell;
use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context as Task, Poll};

use causeway_message::{Chunk, Head, Method, StatusCode, names};
use causeway_pipeline::{
    BodyFault, BodyStream, Context, Fault, Frame, IncomingBody, Reason, Response, StateId, Step, Worker,
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
use crate::edge::{Desk, Servable, Told, failed, when_ready};

/// Octets that may lie in memory in each direction; more than a head has.
const PIPE_OCTETS: usize = 64 * 1024;

/// Handles a request that may become another protocol's; `None` for others.
#[inline]
pub(crate) fn enter<S: Servable>(id: StateId<Desk<S>>, told: Told, cx: &mut Context) -> Option<Step> {
    if cx.arrival().upgrade { enter_upgrade(id, told, cx) } else { None }
}

#[cold]
fn enter_upgrade<S: Servable>(id: StateId<Desk<S>>, told: Told, cx: &mut Context) -> Option<Step> {
    // CONNECT opens a tunnel without Upgrade, and content would have to be told to hyper too.
    if cx.original().method() == Method::Connect || !cx.head().fields().contains(names::UPGRADE) || has_content(cx) {
        return None;
    }
    let generation = Rc::clone(cx.generation());
    let desk = generation.state(id);
    let (ours, theirs) = tokio::io::duplex(PIPE_OCTETS);
    let (teller, answer) = oneshot::channel();
    let mut extensions = Extensions::new();
    desk.tell(told, cx, &mut extensions);
    cx.worker().spawn(Box::pin(serve(theirs, desk.clone_service(), extensions, teller)));
    let head = octets(cx.head());
    Some(cx.wait(exchange::<S>(ours, head, answer), move |cx, outcome| match outcome {
        Some(Outcome::Switched(fields, pipe)) => switch(cx, &fields, pipe),
        Some(Outcome::Answered(Ok(answer))) => {
            let generation = Rc::clone(cx.generation());
            Step::Respond(generation.state(id).answer(cx, answer))
        }
        Some(Outcome::Answered(Err(error))) => failed(error.into()),
        None => {
            let reason = Reason::Text("hyper did not take the request to upgrade".into());
            Step::Fail(Fault { status: StatusCode::INTERNAL_SERVER_ERROR, reason })
        }
    }))
}

fn has_content(cx: &Context) -> bool {
    let fields = cx.head().fields();
    fields.contains(names::TRANSFER_ENCODING) || fields.get(names::CONTENT_LENGTH).is_some_and(|length| length != b"0")
}

/// The head as a client of HTTP/1.1 would send it.
fn octets(head: &Head) -> Vec<u8> {
    let mut octets = Vec::with_capacity(head.octets() + 64);
    for part in [head.method().as_str(), " ", head.target().as_str(), " HTTP/1.1\r\n"] {
        octets.extend_from_slice(part.as_bytes());
    }
    for (name, value) in head.fields().iter() {
        for part in [name.as_str().as_bytes(), b": ", value, b"\r\n"] {
            octets.extend_from_slice(part);
        }
    }
    octets.extend_from_slice(b"\r\n");
    octets
}

type Answer<S> =
    Result<http::Response<<S as Servable>::Content>, <S as tower_service::Service<Request<EdgeBody>>>::Error>;

/// What the service said.
enum Said<S: Servable> {
    /// 101, with these fields.
    Switch(HeaderMap),
    Other(Answer<S>),
}

/// The connection in memory has served its purpose.
#[derive(Debug)]
struct Over;

impl fmt::Display for Over {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the answer went another way")
    }
}

impl std::error::Error for Over {}

/// hyper's end: one request, and the handing over of the connection if it was upgraded.
async fn serve<S: Servable>(
    theirs: DuplexStream,
    service: S,
    extensions: Extensions,
    teller: oneshot::Sender<Said<S>>,
) {
    let once = Cell::new(Some((service, extensions, teller)));
    let service = service_fn(|request: Request<Incoming>| {
        let first = once.take();
        async {
            let (service, extensions, teller) = first.ok_or(Over)?;
            let mut request = request.map(|_| EdgeBody::empty());
            request.extensions_mut().extend(extensions);
            let answer = when_ready(service, request).await;
            match answer {
                Ok(answer) if answer.status() == http::StatusCode::SWITCHING_PROTOCOLS => {
                    let fields = answer.headers().clone();
                    // Nobody waits any more when the peer is gone: then our end is closed too.
                    let _ = teller.send(Said::Switch(fields));
                    Ok(answer.map(|_| EdgeBody::empty()))
                }
                other => {
                    let _ = teller.send(Said::Other(other));
                    Err(Over)
                }
            }
        }
    });
    let connection = http1::Builder::new().serve_connection(TokioIo::new(theirs), service).with_upgrades();
    // Its errors are told by the answer that does not come, or by the tunnel's end.
    let _ = connection.await;
}

/// What came of it, for the exchange.
enum Outcome<S: Servable> {
    Switched(HeaderMap, Pipe),
    Answered(Answer<S>),
}

/// Our end, when it carries the other protocol's octets.
struct Pipe {
    stream: DuplexStream,
    /// What came behind hyper's own head.
    first: Vec<u8>,
}

/// Tells hyper the request and waits for what the service says. Dropped with the exchange, and our end with it, so that hyper drops
/// the service's future.
async fn exchange<S: Servable>(
    mut ours: DuplexStream,
    head: Vec<u8>,
    answer: oneshot::Receiver<Said<S>>,
) -> Option<Outcome<S>> {
    ours.write_all(&head).await.ok()?;
    match answer.await.ok()? {
        Said::Other(answer) => Some(Outcome::Answered(answer)),
        Said::Switch(fields) => {
            let first = behind_head(&mut ours).await?;
            Some(Outcome::Switched(fields, Pipe { stream: ours, first }))
        }
    }
}

/// Reads hyper's own answer away; what came behind it.
async fn behind_head(ours: &mut DuplexStream) -> Option<Vec<u8>> {
    let mut read = Vec::with_capacity(1024);
    loop {
        if ours.read_buf(&mut read).await.ok()? == 0 || read.len() > PIPE_OCTETS {
            return None;
        }
        if let Some(at) = read.windows(4).position(|end| end == b"\r\n\r\n") {
            return Some(read.split_off(at + 4));
        }
    }
}

fn switch(cx: &mut Context, fields: &HeaderMap, pipe: Pipe) -> Step {
    answer::put_fields(fields, Length::Content, cx.response_mut().fields_mut());
    let Some(inbound) = cx.take_body() else {
        return Step::Fail(Fault::status(StatusCode::INTERNAL_SERVER_ERROR));
    };
    let (from_service, to_service) = tokio::io::split(pipe.stream);
    cx.worker().spawn(Box::pin(pass_on(inbound, to_service)));
    let first = (!pipe.first.is_empty()).then(|| Chunk::from(pipe.first));
    Step::Respond(Response::switch(Tunnel { stream: from_service, first, worker: Rc::clone(cx.worker()) }))
}

/// From the peer to the service, until either ends.
async fn pass_on(mut inbound: IncomingBody, mut to_service: WriteHalf<DuplexStream>) {
    while let Some(Ok(Frame::Chunk(chunk))) = poll_fn(|task| inbound.poll_frame(task)).await {
        if to_service.write_all(chunk.as_slice()).await.is_err() {
            return;
        }
    }
    // A pipe in memory that is closed already needs no telling.
    let _ = to_service.shutdown().await;
}

/// From the service to the peer.
struct Tunnel {
    stream: ReadHalf<DuplexStream>,
    first: Option<Chunk>,
    worker: Rc<dyn Worker>,
}

impl BodyStream for Tunnel {
    fn poll_frame(&mut self, task: &mut Task<'_>) -> Poll<Option<Result<Frame, BodyFault>>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Ok(Frame::Chunk(first))));
        }
        let mut block = self.worker.take_block();
        let mut buffer = ReadBuf::new(block.as_mut_slice());
        match Pin::new(&mut self.stream).poll_read(task, &mut buffer) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Err(_)) => Poll::Ready(Some(Err(BodyFault::Source))),
            Poll::Ready(Ok(())) => {
                let len = buffer.filled().len();
                Poll::Ready((len > 0).then(|| Ok(Frame::Chunk(block.freeze(0..len)))))
            }
        }
    }
}
