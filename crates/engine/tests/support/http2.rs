//! A blocking HTTP/2 client over the `h2` crate, with any number of concurrent streams.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use futures_channel::oneshot;
use h2::client::{ResponseFuture, SendRequest};
use h2::ext::Protocol;
use h2::{Ping, PingPong, RecvStream, SendStream};
use http::{HeaderMap, Method, Request};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};

use super::{ClientResponse, PATIENCE};

/// A request's content and trailers.
#[derive(Debug, Clone, Default)]
pub(crate) struct RequestBody {
    pub(crate) pieces: Vec<Vec<u8>>,
    /// Whether the head has a Content-Length.
    pub(crate) is_sized: bool,
    pub(crate) trailers: Vec<(&'static str, &'static str)>,
}

impl RequestBody {
    pub(crate) fn sized(bytes: Vec<u8>) -> Self {
        Self { pieces: vec![bytes], is_sized: true, ..Self::default() }
    }
}

/// A connection. The `h2` crate's task makes progress only while a method waits.
pub(crate) struct Http2 {
    runtime: Runtime,
    requests: SendRequest<Bytes>,
    pings: PingPong,
    /// Receives the connection's result.
    ended: oneshot::Receiver<Result<(), h2::Error>>,
}

/// A request whose response is pending.
pub(crate) struct PendingResponse {
    pub(crate) response: ResponseFuture,
    pub(crate) content: SendStream<Bytes>,
}

impl Http2 {
    #[track_caller]
    pub(crate) fn connect(address: SocketAddr) -> Self {
        Self::connect_with(address, &h2::client::Builder::new())
    }

    #[track_caller]
    pub(crate) fn connect_with(address: SocketAddr, builder: &h2::client::Builder) -> Self {
        Self::over(builder, async {
            let stream = TcpStream::connect(address).await.expect("the server listens");
            stream.set_nodelay(true).expect("a socket");
            stream
        })
    }

    /// Connects over any byte stream.
    #[track_caller]
    pub(crate) fn over<S>(builder: &h2::client::Builder, stream: impl Future<Output = S>) -> Self
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        let (requests, pings, ended) = runtime.block_on(async {
            let stream = stream.await;
            let (requests, mut connection) = builder.handshake(stream).await.expect("the preface is sent");
            let pings = connection.ping_pong().expect("the first call returns it");
            let (end, ended) = oneshot::channel();
            tokio::spawn(async move { drop(end.send(connection.await)) });
            (requests, pings, ended)
        });
        Self { runtime, requests, pings, ended }
    }

    /// Runs a future with a bound against hanging.
    #[track_caller]
    pub(crate) fn wait<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime.block_on(async { tokio::time::timeout(PATIENCE, work).await }).expect("it does not hang")
    }

    /// Polls the connection until the server has received all that was sent before, and then for 20 ms. Without effect
    /// on a connection that has ended.
    #[track_caller]
    pub(crate) fn settle(&mut self) {
        let Self { runtime, pings, .. } = self;
        let round_trips = async {
            // The first PING may be sent before frames that were queued before it.
            for _ in 0..2 {
                let _ = pings.ping(Ping::opaque()).await;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        };
        runtime.block_on(async { tokio::time::timeout(PATIENCE, round_trips).await }).expect("it does not hang");
    }

    /// Sends a head. With `has_body` the content stays open, otherwise the head ends the stream.
    #[track_caller]
    pub(crate) fn open(&mut self, request: Request<()>, has_body: bool) -> PendingResponse {
        let mut requests = self.requests.clone();
        self.wait(async {
            requests = requests.ready().await.expect("another stream may be opened");
            let (response, content) = requests.send_request(request, !has_body).expect("a good request");
            PendingResponse { response, content }
        })
    }

    #[track_caller]
    pub(crate) fn send_request(&mut self, method: &str, target: &str, body: Option<&RequestBody>) -> PendingResponse {
        let mut request = Request::builder().method(method).uri(format!("http://test{target}"));
        if let Some(RequestBody { pieces, is_sized: true, trailers }) = body {
            request = request.header("content-length", pieces.iter().map(Vec::len).sum::<usize>());
            request = trailers.iter().fold(request, |request, (name, _)| request.header("trailer", *name));
        }
        self.open(request.body(()).expect("a good head"), body.is_some())
    }

    /// An extended CONNECT (RFC 8441).
    #[track_caller]
    pub(crate) fn connect_to(&mut self, protocol: &'static str, target: &str) -> PendingResponse {
        self.request_tunnel(protocol, target, true)
    }

    /// An extended CONNECT whose head ends the stream.
    #[track_caller]
    pub(crate) fn connect_and_end(&mut self, protocol: &'static str, target: &str) -> PendingResponse {
        self.request_tunnel(protocol, target, false)
    }

    #[track_caller]
    fn request_tunnel(&mut self, protocol: &'static str, target: &str, has_content: bool) -> PendingResponse {
        // The request is allowed only after the server's settings have enabled it.
        while !self.requests.is_extended_connect_protocol_enabled() {
            self.settle();
        }
        let request = Request::builder().method(Method::CONNECT).uri(format!("http://test{target}"));
        self.open(request.extension(Protocol::from_static(protocol)).body(()).expect("a good head"), has_content)
    }

    #[track_caller]
    pub(crate) fn get(&mut self, target: &str) -> ClientResponse {
        self.exchange("GET", target, None)
    }

    #[track_caller]
    pub(crate) fn exchange(&mut self, method: &str, target: &str, body: Option<&RequestBody>) -> ClientResponse {
        self.exchange_all(&[(method, target, body)]).remove(0)
    }

    /// Sends all requests concurrently. Returns the responses in the order of the requests.
    #[track_caller]
    pub(crate) fn exchange_all(&mut self, requests: &[(&str, &str, Option<&RequestBody>)]) -> Vec<ClientResponse> {
        let asked: Vec<_> =
            requests.iter().map(|(method, target, body)| self.send_request(method, target, *body)).collect();
        let both = asked.into_iter().zip(requests).map(|(PendingResponse { response, content }, (_, _, body))| {
            let body = body.cloned();
            async move {
                // Content and response are transferred concurrently; after the response the rest of the content is
                // dropped.
                let sending = tokio::spawn(send(content, body));
                let answer = answer(response).await.expect("an answer");
                sending.abort();
                answer
            }
        });
        let tasks: Vec<_> = self.wait(async { both.map(tokio::spawn).collect() });
        tasks.into_iter().map(|task| self.wait(task).expect("an answer")).collect()
    }

    /// Waits until the server ends the connection. Returns the connection's result.
    #[track_caller]
    pub(crate) fn end(self) -> Result<(), h2::Error> {
        let Self { runtime, requests, pings: _, ended } = self;
        drop(requests);
        let end = runtime.block_on(async { tokio::time::timeout(PATIENCE, ended).await });
        end.expect("the server closes").expect("the connection's task ends")
    }
}

/// Sends content within the flow-control windows.
pub(crate) async fn send(mut content: SendStream<Bytes>, body: Option<RequestBody>) -> Result<(), h2::Error> {
    let Some(RequestBody { pieces, trailers, .. }) = body else { return Ok(()) };
    let last = pieces.len();
    for (at, piece) in pieces.into_iter().enumerate() {
        let ends = trailers.is_empty() && at + 1 == last;
        let mut piece = Bytes::from(piece);
        loop {
            content.reserve_capacity(piece.len());
            if piece.is_empty() {
                content.send_data(piece, ends)?;
                break;
            }
            let Some(room) = std::future::poll_fn(|cx| content.poll_capacity(cx)).await else { return Ok(()) };
            let now = piece.split_to(room?.min(piece.len()));
            let is_last = piece.is_empty();
            content.send_data(now, ends && is_last)?;
            if is_last {
                break;
            }
        }
    }
    if !trailers.is_empty() {
        let mut map = HeaderMap::new();
        for (name, value) in trailers {
            map.append(name, value.parse().expect("a good value"));
        }
        content.send_trailers(map)?;
    }
    Ok(())
}

/// Reads the complete response, with its interim responses.
pub(crate) async fn answer(mut response: ResponseFuture) -> Result<ClientResponse, h2::Error> {
    let mut interims = Vec::new();
    let head = loop {
        let next = std::future::poll_fn(|cx| {
            if let std::task::Poll::Ready(Some(interim)) = response.poll_informational(cx) {
                return std::task::Poll::Ready(Err(interim));
            }
            std::pin::Pin::new(&mut response).poll(cx).map(Ok)
        });
        match next.await {
            Ok(head) => break head?,
            Err(interim) => {
                let interim = interim?;
                interims.push((interim.status().as_u16(), fields(interim.headers())));
            }
        }
    };
    let mut answer = ClientResponse {
        version: "HTTP/2".to_owned(),
        status: head.status().as_u16(),
        fields: fields(head.headers()),
        interims,
        ..ClientResponse::default()
    };
    let mut body = head.into_body();
    while let Some(bytes) = body.data().await {
        let bytes = bytes?;
        let _ = body.flow_control().release_capacity(bytes.len());
        answer.body.extend_from_slice(&bytes);
    }
    answer.trailers = body.trailers().await?.map(|trailers| fields(&trailers)).unwrap_or_default();
    Ok(answer)
}

/// Reads at least `len` bytes of a stream, in whole frames.
pub(crate) async fn exactly(body: &mut RecvStream, len: usize) -> Vec<u8> {
    let mut got = Vec::new();
    while got.len() < len {
        let bytes = body.data().await.expect("the stream continues").expect("the stream is open");
        let _ = body.flow_control().release_capacity(bytes.len());
        got.extend_from_slice(&bytes);
    }
    got
}

fn fields(map: &HeaderMap) -> Vec<(String, String)> {
    let text = |value: &http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    map.iter().map(|(name, value)| (name.as_str().to_owned(), text(value))).collect()
}
