//! A blocking HTTP/2 client over the `h2` crate, with as many streams at once as a test likes.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use futures_channel::oneshot;
use h2::client::{ResponseFuture, SendRequest};
use h2::ext::Protocol;
use h2::{RecvStream, SendStream};
use http::{HeaderMap, Method, Request};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};

use super::{Answer, PATIENCE};

/// What a request carries behind its head.
#[derive(Debug, Clone, Default)]
pub(crate) struct Body {
    pub(crate) pieces: Vec<Vec<u8>>,
    /// Whether the head says how long the pieces are.
    pub(crate) is_sized: bool,
    pub(crate) trailers: Vec<(&'static str, &'static str)>,
}

impl Body {
    pub(crate) fn sized(octets: Vec<u8>) -> Self {
        Self { pieces: vec![octets], is_sized: true, ..Self::default() }
    }
}

/// A connection. What the `h2` crate does for it happens while a method waits.
pub(crate) struct Http2 {
    runtime: Runtime,
    requests: SendRequest<Bytes>,
    /// How the connection ended.
    ended: oneshot::Receiver<Result<(), h2::Error>>,
}

/// A request under way.
pub(crate) struct Asked {
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

    /// Over whatever carries octets.
    #[track_caller]
    pub(crate) fn over<S>(builder: &h2::client::Builder, stream: impl Future<Output = S>) -> Self
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        let (requests, ended) = runtime.block_on(async {
            let stream = stream.await;
            let (requests, connection) = builder.handshake(stream).await.expect("a preface goes out");
            let (end, ended) = oneshot::channel();
            tokio::spawn(async move { drop(end.send(connection.await)) });
            (requests, ended)
        });
        Self { runtime, requests, ended }
    }

    /// Runs what a test has to do, a bound against hanging around it.
    #[track_caller]
    pub(crate) fn wait<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime.block_on(async { tokio::time::timeout(PATIENCE, work).await }).expect("it does not hang")
    }

    /// Lets the connection go on until nothing more comes for the moment.
    pub(crate) fn settle(&self) {
        self.runtime.block_on(async { tokio::time::sleep(Duration::from_millis(20)).await });
    }

    /// Sends a head, and leaves the content open unless it says that there is none.
    #[track_caller]
    pub(crate) fn open(&mut self, request: Request<()>, has_body: bool) -> Asked {
        let mut requests = self.requests.clone();
        self.wait(async {
            requests = requests.ready().await.expect("another stream may be opened");
            let (response, content) = requests.send_request(request, !has_body).expect("a good request");
            Asked { response, content }
        })
    }

    #[track_caller]
    pub(crate) fn ask(&mut self, method: &str, target: &str, body: Option<&Body>) -> Asked {
        let mut request = Request::builder().method(method).uri(format!("http://test{target}"));
        if let Some(Body { pieces, is_sized: true, .. }) = body {
            request = request.header("content-length", pieces.iter().map(Vec::len).sum::<usize>());
        }
        self.open(request.body(()).expect("a good head"), body.is_some())
    }

    /// An extended CONNECT (RFC 8441).
    #[track_caller]
    pub(crate) fn connect_to(&mut self, protocol: &'static str, target: &str) -> Asked {
        // The server's settings say whether it may be asked.
        while !self.requests.is_extended_connect_protocol_enabled() {
            self.settle();
        }
        let request = Request::builder().method(Method::CONNECT).uri(format!("http://test{target}"));
        self.open(request.extension(Protocol::from_static(protocol)).body(()).expect("a good head"), true)
    }

    #[track_caller]
    pub(crate) fn get(&mut self, target: &str) -> Answer {
        self.exchange("GET", target, None)
    }

    #[track_caller]
    pub(crate) fn exchange(&mut self, method: &str, target: &str, body: Option<&Body>) -> Answer {
        self.exchange_all(&[(method, target, body)]).remove(0)
    }

    /// Asks for all at once; the answers in the order of the requests.
    #[track_caller]
    pub(crate) fn exchange_all(&mut self, requests: &[(&str, &str, Option<&Body>)]) -> Vec<Answer> {
        let asked: Vec<_> = requests.iter().map(|(method, target, body)| self.ask(method, target, *body)).collect();
        let both = asked.into_iter().zip(requests).map(|(Asked { response, content }, (_, _, body))| {
            let body = body.cloned();
            async move {
                // Content and answer go at the same time; an answer that comes first may be all that is wanted.
                let sending = tokio::spawn(send(content, body));
                let answer = answer(response).await.expect("an answer");
                sending.abort();
                answer
            }
        });
        let tasks: Vec<_> = self.wait(async { both.map(tokio::spawn).collect() });
        tasks.into_iter().map(|task| self.wait(task).expect("an answer")).collect()
    }

    /// How the connection ends, when the server ends it.
    #[track_caller]
    pub(crate) fn end(self) -> Result<(), h2::Error> {
        let Self { runtime, requests, ended } = self;
        drop(requests);
        let end = runtime.block_on(async { tokio::time::timeout(PATIENCE, ended).await });
        end.expect("the server closes").expect("the connection's task ends")
    }
}

/// Sends content as the windows allow.
pub(crate) async fn send(mut content: SendStream<Bytes>, body: Option<Body>) -> Result<(), h2::Error> {
    let Some(Body { pieces, trailers, .. }) = body else { return Ok(()) };
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
            let Some(room) = std::future::poll_fn(|task| content.poll_capacity(task)).await else { return Ok(()) };
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

/// The whole answer.
pub(crate) async fn answer(mut response: ResponseFuture) -> Result<Answer, h2::Error> {
    let mut informs = Vec::new();
    let head = loop {
        let next = std::future::poll_fn(|task| {
            if let std::task::Poll::Ready(Some(inform)) = response.poll_informational(task) {
                return std::task::Poll::Ready(Err(inform));
            }
            std::pin::Pin::new(&mut response).poll(task).map(Ok)
        });
        match next.await {
            Ok(head) => break head?,
            Err(inform) => {
                let inform = inform?;
                informs.push((inform.status().as_u16(), fields(inform.headers())));
            }
        }
    };
    let mut answer = Answer {
        version: "HTTP/2".to_owned(),
        status: head.status().as_u16(),
        fields: fields(head.headers()),
        informs,
        ..Answer::default()
    };
    let mut body = head.into_body();
    while let Some(octets) = body.data().await {
        let octets = octets?;
        let _ = body.flow_control().release_capacity(octets.len());
        answer.body.extend_from_slice(&octets);
    }
    answer.trailers = body.trailers().await?.map(|trailers| fields(&trailers)).unwrap_or_default();
    Ok(answer)
}

/// The next so many octets of a stream.
pub(crate) async fn exactly(body: &mut RecvStream, len: usize) -> Vec<u8> {
    let mut got = Vec::new();
    while got.len() < len {
        let octets = body.data().await.expect("more is to come").expect("the stream is open");
        let _ = body.flow_control().release_capacity(octets.len());
        got.extend_from_slice(&octets);
    }
    got
}

fn fields(map: &HeaderMap) -> Vec<(String, String)> {
    let text = |value: &http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    map.iter().map(|(name, value)| (name.as_str().to_owned(), text(value))).collect()
}
