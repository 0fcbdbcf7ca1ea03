//! Requests as services receive them, and responses as peers receive them, over a real socket. The service is an axum
//! router, except in tests about tower itself.

mod support;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{ConnectInfo as AxumConnectInfo, Request};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{any, get};
use causeway_pipeline::HeadLimits;
use causeway_testkit::http2::{self, Wire, flag, kind, literal, never_indexed};
use http_body_util::BodyExt as _;
use support::{RequestKind, TestClient, builder, client, start, until};
use tower_edge::ConnectInfo;

/// Responds with the request head as text.
async fn seen(request: Request) -> String {
    let mut text = format!("{} {} {:?}", request.method(), request.uri(), request.version());
    for (name, value) in request.headers() {
        text += &format!("\n{name}: {}", value.to_str().unwrap_or("?"));
    }
    text
}

#[test]
fn a_service_gets_the_head_as_received() {
    let running = start(Router::new().fallback(seen));
    let mut client = client(&running);
    let long = "v".repeat(9000);
    let cases = [
        ("GET / HTTP/1.1\r\nHost: a\r\n\r\n", "GET / HTTP/1.1\nhost: a"),
        (
            "GET /a%20b?c=d%26&e HTTP/1.1\r\nHost: a:1\r\nX-Own: 1\r\nx-own: 2\r\n\r\n",
            "GET /a%20b?c=d%26&e HTTP/1.1\nhost: a:1\nx-own: 1\nx-own: 2",
        ),
        (
            "PURGE /x HTTP/1.1\r\nhOST: a\r\nACCEPT:  text/plain \r\nEmpty:\r\n\r\n",
            "PURGE /x HTTP/1.1\nhost: a\naccept: text/plain\nempty: ",
        ),
        ("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", "OPTIONS * HTTP/1.1\nhost: a"),
        ("GET http://b.test:81/p?q HTTP/1.1\r\nHost: a\r\n\r\n", "GET http://b.test:81/p?q HTTP/1.1\nhost: a"),
    ];
    for (request, want) in cases {
        client.send(request);
        assert_eq!(client.answer().text(), want, "{request:?}");
    }
    // Longer than the shared buffer for heads.
    client.send(format!("GET / HTTP/1.1\r\nHost: a\r\nX-Long: {long}\r\n\r\n"));
    assert_eq!(client.answer().text(), format!("GET / HTTP/1.1\nhost: a\nx-long: {long}"));
}

// http's map holds at most 24 576 fields. With higher limits a head or trailers may exceed it.
#[test]
fn more_fields_than_a_header_map_holds() {
    async fn read(body: Body) -> StatusCode {
        if body.collect().await.is_ok() { StatusCode::OK } else { StatusCode::UNPROCESSABLE_ENTITY }
    }
    let bytes = 1 << 20;
    let limits =
        HeadLimits { head_bytes_max: bytes, trailers_bytes_max: bytes, fields_max: 60_000, ..HeadLimits::default() };
    let running = builder().head_limits(limits).start(Router::new().fallback(read)).expect("it starts");
    let mut client = client(&running);
    let many = "a:\r\n".repeat(30_000);
    client.send(format!("GET / HTTP/1.1\r\nHost: a\r\n{many}\r\n"));
    assert_eq!(client.answer().status, 400);
    client.send(format!("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n{many}\r\n"));
    assert_eq!(client.answer().status, 422);
}

// A map moves from a response to a later request, which must not see the response's fields.
#[test]
fn no_field_of_a_message_appears_in_a_later_one() {
    async fn fields(request: Request) -> Response {
        let own = seen(request).await;
        let number = own.len();
        let mut answer = Response::new(Body::from(own));
        for at in 0..number % 7 {
            let name = header::HeaderName::from_bytes(format!("x-answer-{at}").as_bytes()).unwrap();
            answer.headers_mut().append(name.clone(), HeaderValue::from_static("leak"));
            answer.headers_mut().append(name, HeaderValue::from_static("leak too"));
        }
        answer
    }
    let running = start(Router::new().fallback(fields));
    let mut dirty = client(&running);
    for number in 0..200_usize {
        let mut request = format!("GET /{number} HTTP/1.1\r\nHost: a\r\n");
        for at in 0..number % 11 {
            request += &format!("X-{at}: {}\r\n", "v".repeat(number % 13 * at));
        }
        request += "\r\n";
        let mut fresh = client(&running);
        fresh.send(&request);
        dirty.send(&request);
        let (mut fresh, mut dirty) = (fresh.answer(), dirty.answer());
        for answer in [&mut fresh, &mut dirty] {
            answer.fields.retain(|(name, _)| name != "Date");
            assert!(!answer.text().contains("answer"), "{}", answer.text());
        }
        assert_eq!(fresh, dirty, "request {number}");
    }
}

#[test]
fn connect_info_is_available_when_enabled() {
    async fn connect_info(AxumConnectInfo(peer): AxumConnectInfo<SocketAddr>, request: Request) -> String {
        let info = request.extensions().get::<ConnectInfo>().unwrap();
        assert_eq!((info.peer, info.tls.is_none()), (peer, true));
        format!("{peer} {}", info.local)
    }
    let router = Router::new().route("/", get(connect_info));
    let running = builder().with_connect_info().start(router.clone()).unwrap();
    let mut with = client(&running);
    let want = format!("{} {}", with.stream.local_addr().unwrap(), with.stream.peer_addr().unwrap());
    assert_eq!(with.get("/").text(), want);
    let running = start(router);
    assert_eq!(client(&running).get("/").status, 500, "axum's response to a missing extension");
}

#[test]
fn spawned_tasks_and_timers_work() {
    async fn work(request: Request) -> String {
        let body = request.into_body();
        // The task runs on the worker's thread, so it may read the body.
        let task = tokio::spawn(async move { body.collect().await.unwrap().to_bytes().len() });
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        let length = task.await.unwrap();
        let elsewhere = tokio::task::spawn_blocking(move || length * 2).await.unwrap();
        // A future that is not `Send` too.
        elsewhere.to_string()
    }
    let running = start(Router::new().route("/", any(work)));
    let mut client = client(&running);
    client.post("/", &[7; 100_000]);
    assert_eq!(client.answer().text(), "200000");
}

#[test]
fn futures_need_not_be_sent() {
    #[derive(Clone)]
    struct Local(std::cell::Cell<u32>);
    impl tower_service::Service<http::Request<tower_edge::EdgeBody>> for Local {
        type Response = http::Response<http_body_util::Full<Bytes>>;
        type Error = std::convert::Infallible;
        type Future = std::pin::Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>>>>;
        fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), Self::Error>> {
            std::task::Poll::Ready(Ok(()))
        }
        fn call(&mut self, _: http::Request<tower_edge::EdgeBody>) -> Self::Future {
            // Each worker has its own clone.
            self.0.set(self.0.get() + 1);
            let count = std::rc::Rc::new(self.0.get());
            Box::pin(async move {
                tokio::task::yield_now().await;
                Ok(http::Response::new(http_body_util::Full::new(Bytes::from(count.to_string()))))
            })
        }
    }
    let running = start(Local(std::cell::Cell::new(0)));
    let mut client = client(&running);
    assert_eq!((client.get("/").text(), client.get("/").text()), ("1", "2"));
}

#[test]
fn an_upload_waits_for_its_reader() {
    let taken = Arc::new(AtomicUsize::new(0));
    let go = Arc::new(tokio::sync::Semaphore::new(0));
    let (count, gate) = (Arc::clone(&taken), Arc::clone(&go));
    let read = move |request: Request| {
        let (count, gate) = (Arc::clone(&count), Arc::clone(&gate));
        async move {
            let mut body = request.into_body();
            let hint = http_body::Body::size_hint(&body).exact();
            let _ = gate.acquire().await.unwrap();
            let mut sum = 0u64;
            while let Some(frame) = body.frame().await {
                let data = frame.unwrap().into_data().unwrap();
                count.fetch_add(data.len(), Ordering::Relaxed);
                sum += data.iter().map(|byte| u64::from(*byte)).sum::<u64>();
            }
            format!("{hint:?} {sum}")
        }
    };
    let running = start(Router::new().route("/", any(read)));
    const LENGTH: usize = 64 << 20;
    let mut reader = client(&running);
    let mut writer = reader.stream.try_clone().unwrap();
    let sent = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&sent);
    let upload = std::thread::spawn(move || {
        use std::io::Write as _;
        writer.write_all(format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {LENGTH}\r\n\r\n").as_bytes()).unwrap();
        let piece = [1; 64 << 10];
        for _ in 0..LENGTH / piece.len() {
            writer.write_all(&piece).unwrap();
            counted.fetch_add(piece.len(), Ordering::Relaxed);
        }
    });
    // Until the upload stalls: the buffers of kernel and server are bounded.
    let mut before = usize::MAX;
    until("the upload stalls", || {
        std::thread::sleep(std::time::Duration::from_millis(100));
        let now = sent.load(Ordering::Relaxed);
        std::mem::replace(&mut before, now) == now && now > 0
    });
    assert!(before < LENGTH / 2, "{before} bytes were sent to a service that does not read");
    assert_eq!(taken.load(Ordering::Relaxed), 0);
    go.add_permits(1);
    assert_eq!(reader.answer().text(), format!("Some({LENGTH}) {LENGTH}"));
    upload.join().unwrap();
}

// RFC 9110 §10.1.1: 100 (Continue) is sent when the service reads the content, not earlier.
#[test]
fn the_first_read_of_a_body_sends_continue() {
    async fn reads(body: Bytes) -> Bytes {
        body
    }
    async fn refuses() -> StatusCode {
        StatusCode::FORBIDDEN
    }
    let running = start(Router::new().route("/reads", any(reads)).route("/refuses", any(refuses)));
    let send_request = |client: &mut TestClient, path: &str| {
        client.send(format!("POST {path} HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n"));
    };
    let mut first = client(&running);
    send_request(&mut first, "/reads");
    assert_eq!(first.head().status, 100);
    first.send("hello");
    assert_eq!(first.answer().text(), "hello");
    let mut second = client(&running);
    send_request(&mut second, "/refuses");
    assert_eq!(second.head().status, 403);
}

// RFC 9110 §6.5: trailers, in both directions.
#[test]
fn trailers_in_both_directions() {
    async fn swap(request: Request) -> Response {
        let is_announced = request.uri().path() == "/announced";
        let is_empty = request.uri().path() == "/empty";
        let whole = request.into_body().collect().await.unwrap();
        let mut trailers = whole.trailers().cloned().unwrap_or_default();
        trailers.insert("x-length", HeaderValue::from(whole.to_bytes().len()));
        // Framing fields must not be trailers.
        trailers.insert(header::CONTENT_LENGTH, HeaderValue::from_static("9"));
        let content = if is_empty { &b""[..] } else { b"content" };
        let body = http_body_util::Full::new(Bytes::from_static(content)).with_trailers(async { Some(Ok(trailers)) });
        let mut answer = Response::new(Body::new(body));
        if is_announced {
            answer.headers_mut().insert(header::TRAILER, HeaderValue::from_static("x-length"));
        }
        answer
    }
    let running = start(Router::new().route("/{*rest}", any(swap)));
    for (path, content) in [("/announced", "content"), ("/at-once", "content"), ("/empty", "")] {
        let mut client = client(&running);
        client.send(format!(
            "POST {path} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX-Sum: 6\r\n\r\n"
        ));
        let answer = client.answer();
        assert_eq!(answer.text(), content, "{path}");
        let mut trailers: Vec<_> = answer.trailers.iter().map(|(name, value)| format!("{name}: {value}")).collect();
        trailers.sort();
        assert_eq!(trailers, ["x-length: 3", "x-sum: 6"]);
    }
}

/// Reads the field blocks and the content of the next response.
#[track_caller]
fn response(wire: &mut Wire) -> (Vec<Vec<u8>>, Vec<u8>) {
    let (mut blocks, mut content) = (Vec::new(), Vec::new());
    loop {
        let frame = wire.receive().unwrap().expect("a response");
        match frame.kind {
            kind::HEADERS => blocks.push(frame.payload),
            kind::DATA => content.extend(frame.payload),
            _ => continue,
        }
        if frame.flags & flag::END_STREAM != 0 {
            return (blocks, content);
        }
    }
}

// RFC 7541 §6.2.3: a field that must not be indexed is a sensitive one of the service, in both directions.
#[test]
fn sensitive_fields() {
    async fn echo(request: Request) -> Response {
        let (head, body) = request.into_parts();
        let trailers = body.collect().await.unwrap().trailers().cloned().unwrap_or_default();
        let is_sensitive = |map: &HeaderMap, name: &str| map.get(name).is_some_and(HeaderValue::is_sensitive);
        assert!(is_sensitive(&head.headers, "x-secret") && !is_sensitive(&head.headers, "x-plain"));
        assert!(is_sensitive(&trailers, "x-last"));
        let body = http_body_util::Full::new(Bytes::from_static(b"ok")).with_trailers(async { Some(Ok(trailers)) });
        let mut answer = Response::new(Body::new(body));
        *answer.headers_mut() = head.headers;
        answer
    }
    let running = start(Router::new().fallback(echo));
    let mut wire = Wire::connect(running.addresses()[0], &[]).unwrap();
    let (mut head, mut trailers) = (http2::get("/"), Vec::new());
    literal(&mut head, b"x-plain", b"1");
    never_indexed(&mut head, b"x-secret", b"2");
    never_indexed(&mut trailers, b"x-last", b"3");
    wire.put(kind::HEADERS, flag::END_HEADERS, 1, &head);
    wire.put(kind::HEADERS, flag::END_HEADERS | flag::END_STREAM, 1, &trailers);
    wire.flush().unwrap();
    let (blocks, content) = response(&mut wire);
    assert_eq!((content, blocks.len()), (b"ok".to_vec(), 2));
    for (block, name, value) in [(&blocks[0], "x-secret", "2"), (&blocks[1], "x-last", "3")] {
        let mut want = Vec::new();
        never_indexed(&mut want, name.as_bytes(), value.as_bytes());
        assert!(block.windows(want.len()).any(|part| part == want), "{name}: {}", block.escape_ascii());
    }
}

/// A body of several chunks whose length is known, and trailers after them.
struct Trailed(Vec<http_body::Frame<Bytes>>, u64);

impl http_body::Body for Trailed {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<http_body::Frame<Bytes>, Self::Error>>> {
        std::task::Poll::Ready((!self.0.is_empty()).then(|| Ok(self.0.remove(0))))
    }

    fn size_hint(&self) -> http_body::SizeHint {
        http_body::SizeHint::with_exact(self.1)
    }
}

// RFC 9113 §8.1: trailers may follow content of a declared length. Over HTTP/1.1 only chunks can have them.
#[test]
fn trailers_after_chunks_of_a_known_length() {
    async fn trailed(request: Request) -> Response {
        let mut trailers = HeaderMap::new();
        trailers.insert("x-sum", HeaderValue::from_static("6"));
        let pieces: &[&str] = if request.uri().path() == "/one" { &["hello"] } else { &["he", "", "llo"] };
        let mut frames: Vec<_> =
            pieces.iter().map(|piece| http_body::Frame::data(Bytes::from_static(piece.as_bytes()))).collect();
        frames.push(http_body::Frame::trailers(trailers));
        Response::new(Body::new(Trailed(frames, 5)))
    }
    let running = start(Router::new().route("/{*rest}", any(trailed)));
    for path in ["/one", "/several"] {
        let mut wire = Wire::connect(running.addresses()[0], &[]).unwrap();
        wire.put_get(1, path);
        wire.flush().unwrap();
        let (blocks, content) = response(&mut wire);
        assert_eq!(content, b"hello", "{path}");
        let has_trailers = blocks.get(1).is_some_and(|block| block.windows(5).any(|part| part == b"x-sum"));
        assert!(blocks.len() == 2 && has_trailers, "{path}: {blocks:?}");
        let mut client = client(&running);
        client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
        let answer = client.answer();
        assert_eq!(answer.trailers.len(), usize::from(path == "/one"), "{path}");
        assert_eq!(answer.text(), "hello");
    }
}

// RFC 9110 §9.3.2, §15.3.5, §15.4.5, §8.6.
#[test]
fn responses_without_content() {
    async fn status(request: Request) -> Response {
        let code: u16 = request.uri().path()[1..].parse().unwrap();
        let mut answer = Response::new(Body::from("some content"));
        *answer.status_mut() = StatusCode::from_u16(code).unwrap();
        answer.headers_mut().insert(header::ETAG, HeaderValue::from_static("\"x\""));
        answer
    }
    let running = start(Router::new().fallback(status).route("/get", get(async || "thirteen octs")));
    let mut client = client(&running);
    for code in [204, 304] {
        let answer = client.get(&format!("/{code}"));
        assert_eq!((answer.status, answer.body.len(), answer.field("Content-Length")), (code, 0, None));
        assert_eq!(answer.field("ETag"), Some("\"x\""));
    }
    for (path, length) in [("/200", "12"), ("/get", "13")] {
        client.send(format!("HEAD {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
        let answer = client.answer_to(RequestKind::HeadOnly);
        assert_eq!((answer.status, answer.field("Content-Length")), (200, Some(length)), "{path}");
    }
    assert_eq!(client.get("/200").text(), "some content", "the connection stays open");
}

/// Creates a body of unknown length from these pieces.
fn pieces(pieces: &'static [&'static str]) -> Body {
    let (mut sender, body) = http_body_util::channel::Channel::<Bytes>::new(1);
    tokio::spawn(async move {
        for piece in pieces {
            if sender.send_data(Bytes::from_static(piece.as_bytes())).await.is_err() {
                return;
            }
        }
    });
    Body::new(body)
}

// RFC 9112 §6.3, §8: the content has the announced length, or the response is truncated in a way that the peer can
// detect.
#[test]
fn a_wrong_length_is_not_sent() {
    async fn wrong_length(request: Request) -> Response {
        let (body, length) = match request.uri().path() {
            "/known-shorter" => (Body::from("12345"), 10),
            "/known-longer" => (Body::from("12345"), 3),
            "/shorter" => (pieces(&["12", "345"]), 10),
            "/longer" => (pieces(&["12", "345"]), 3),
            _ => (pieces(&["12", "345"]), 5),
        };
        let mut answer = Response::new(body);
        answer.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from(length));
        answer
    }
    let running = start(Router::new().fallback(wrong_length));
    for path in ["/known-shorter", "/known-longer", "/true"] {
        let mut client = client(&running);
        let answer = client.get(path);
        assert_eq!((answer.text(), answer.field("Content-Length")), ("12345", Some("5")), "{path}");
        assert_eq!(client.get("/true").text(), "12345", "the connection stays open");
    }
    for (path, most) in [("/shorter", "12345"), ("/longer", "123")] {
        let mut client = client(&running);
        client.send_request(path);
        let head = client.head();
        let (body, close) = client.rest();
        assert_eq!(head.status, 200);
        let announced: usize = head.field("Content-Length").unwrap().parse().unwrap();
        assert!(most.as_bytes().starts_with(&body) && body.len() < announced, "{path}: {body:?}");
        assert_eq!(
            close,
            support::Close::End,
            "{path}: the missing content is the sign, and a reset could overtake the content"
        );
    }
}

#[test]
fn large_content_and_slow_content() {
    const LENGTH: usize = 5 << 20;
    async fn slowly() -> Body {
        let (mut sender, body) = http_body_util::channel::Channel::<Bytes>::new(1);
        tokio::spawn(async move {
            for at in 0..10u8 {
                tokio::time::sleep(std::time::Duration::from_millis(1)).await;
                sender.send_data(Bytes::from(vec![at; 10_000])).await.unwrap();
            }
        });
        Body::new(body)
    }
    let router = Router::new().route("/whole", get(async || vec![b'x'; LENGTH])).route("/slowly", get(slowly));
    let running = start(router);
    let mut client = client(&running);
    let whole = client.get("/whole");
    assert_eq!((whole.body.len(), whole.field("Content-Length")), (LENGTH, Some(&*LENGTH.to_string())));
    let slowly = client.get("/slowly");
    assert_eq!(slowly.field("Transfer-Encoding"), Some("chunked"));
    assert!(slowly.body.chunks(10_000).enumerate().all(|(at, piece)| piece == vec![at as u8; 10_000]));
    assert_eq!(slowly.body.len(), 100_000);
}

#[test]
fn a_response_before_the_content_is_read() {
    let running = start(Router::new().fallback(async || (StatusCode::PAYLOAD_TOO_LARGE, "too much")));
    let mut client = client(&running);
    // Within the limit for discarded content, the connection stays open.
    client.post("/", &[0; 100_000]);
    assert_eq!(client.answer().status, 413);
    client.post("/", &[0; 10]);
    assert_eq!(client.answer().text(), "too much");
}

#[test]
fn the_fields_of_a_handler_are_sent() {
    async fn fields() -> Response {
        let mut fields = HeaderMap::new();
        for (name, value) in
            [("server", "own"), ("connection", "close"), ("x-own", "1"), ("x-own", "2"), ("date", "then")]
        {
            fields.append(name, HeaderValue::from_static(value));
        }
        (StatusCode::IM_A_TEAPOT, fields, "tea").into_response()
    }
    let running = start(Router::new().fallback(fields));
    let mut client = client(&running);
    let answer = client.get("/");
    assert_eq!((answer.status, answer.text()), (418, "tea"));
    let all = |wanted: &str| answer.fields.iter().filter(|(name, _)| name.eq_ignore_ascii_case(wanted)).count();
    assert_eq!((answer.field("Server"), answer.field("Date")), (Some("own"), Some("then")));
    assert_eq!((all("server"), all("x-own"), all("date")), (1, 2, 1));
    // RFC 9112 §9.6: the server obeys the service's Connection field.
    assert_eq!((answer.closes(), all("connection")), (true, 1));
    client.closed();
}

// Pipelined requests are handled in the order of their arrival.
#[test]
fn responses_to_pipelined_requests_are_in_order() {
    async fn path(request: Request) -> String {
        if request.uri().path() == "/slow" {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        request.uri().path().to_owned()
    }
    let running = start(Router::new().fallback(path));
    let mut client = client(&running);
    let order = Mutex::new(Vec::new());
    let request = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n");
    client.send(["/slow", "/a", "/b"].map(request).concat());
    for _ in 0..3 {
        order.lock().unwrap().push(client.answer().text().to_owned());
    }
    assert_eq!(*order.lock().unwrap(), ["/slow", "/a", "/b"]);
}

// A service compares names exactly, and gRPC's metadata may have these characters.
#[test]
fn names_with_underscores_and_dots() {
    async fn list(request: Request) -> String {
        let names = request.headers().keys().map(http::HeaderName::as_str);
        names.filter(|name| name.contains(['_', '.'])).collect::<Vec<_>>().join(" ")
    }
    let running = start(Router::new().route("/", any(list)));
    let mut client = client(&running);
    client.send("GET / HTTP/1.1\r\nHost: a\r\nX_U: 1\r\nX.D: 2\r\n\r\n");
    assert_eq!(client.answer().text(), "x_u x.d");
}
