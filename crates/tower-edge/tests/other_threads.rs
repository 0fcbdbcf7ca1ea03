//! Request bodies that are read on another thread than their worker's.

mod support;

use std::collections::HashSet;
use std::io::Write as _;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};
use axum::routing::any;
use http_body::Body as _;
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use support::{TestClient, block_on, builder, client, start, until};

/// Content whose every piece differs.
fn content(bytes: usize) -> Bytes {
    (0..bytes as u32).map(|at| (at / 251 + at) as u8).collect()
}

/// Runs a future on another thread.
async fn elsewhere<T: Send + 'static>(future: impl Future<Output = T> + Send + 'static) -> T {
    tokio::task::spawn_blocking(|| block_on(future)).await.expect("no panic")
}

/// Reads the body on another thread, and responds with its content and trailers.
async fn read_elsewhere(request: Request) -> Response {
    match elsewhere(request.into_body().collect()).await {
        Ok(whole) => {
            let trailers = whole.trailers().cloned();
            let body = Full::new(whole.to_bytes()).with_trailers(async { trailers.map(Ok) });
            Response::new(Body::new(body))
        }
        Err(error) => (StatusCode::BAD_REQUEST, error.to_string()).into_response(),
    }
}

/// Sends content over HTTP/2, and returns the response's.
async fn post_over_http2(address: SocketAddr, content: Bytes) -> Bytes {
    let stream = TokioIo::new(tokio::net::TcpStream::connect(address).await.unwrap());
    let (mut sender, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), stream).await.unwrap();
    tokio::spawn(connection);
    let request = http::Request::post(format!("http://{address}/")).body(Full::new(content)).unwrap();
    sender.send_request(request).await.unwrap().into_body().collect().await.unwrap().to_bytes()
}

#[test]
fn content_and_trailers_reach_another_thread() {
    let running = start(Router::new().fallback(read_elsewhere));
    let mut client = client(&running);
    for bytes in [1, 100, 50_000, 3 << 20] {
        let content = content(bytes);
        client.post("/", &content);
        assert!(client.answer().body == content, "{bytes} bytes");
        let address = running.addresses()[0];
        assert!(block_on(post_over_http2(address, content.clone())) == content, "{bytes} bytes over HTTP/2");
    }
    // RFC 9110 §6.5.
    client.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX-Sum: 6\r\n\r\n");
    let answer = client.answer();
    assert_eq!((answer.text(), answer.trailers.len()), ("abc", 1));
    // RFC 9110 §10.1.1: the 100 (Continue) goes out when the other thread reads.
    client.send("POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n");
    assert_eq!(client.head().status, 100);
    client.send("hello");
    assert_eq!(client.answer().text(), "hello");
    assert_eq!(running.engine().observer().total().panics, 0);
}

#[test]
fn a_body_moves_between_threads() {
    async fn alternate(request: Request) -> Vec<u8> {
        let mut body = request.into_body();
        let mut got = Vec::new();
        for step in 0.. {
            let frame;
            (body, frame) = if step % 3 == 0 {
                let frame = body.frame().await;
                (body, frame)
            } else {
                elsewhere(async move {
                    let frame = body.frame().await;
                    (body, frame)
                })
                .await
            };
            let Some(frame) = frame else { break };
            got.extend_from_slice(frame.unwrap().data_ref().unwrap());
        }
        got
    }
    let running = start(Router::new().fallback(alternate));
    let content = content(3 << 20);
    let mut client = client(&running);
    client.post("/", &content);
    assert!(client.answer().body == content);
    assert!(block_on(post_over_http2(running.addresses()[0], content.clone())) == content);
}

#[test]
fn a_body_is_dropped_on_another_thread() {
    async fn drop_elsewhere(request: Request) -> String {
        let mut body = request.into_body();
        // Reads nothing of short bodies.
        let reads = usize::from(body.size_hint().exact().unwrap() >= 200_000);
        elsewhere(async move {
            for _ in 0..reads {
                body.frame().await.unwrap().unwrap();
            }
            body.size_hint().exact().unwrap().to_string()
        })
        .await
    }
    let running = start(Router::new().fallback(drop_elsewhere));
    let mut client = client(&running);
    for bytes in [100_000, 200_000, 100_001, 200_001] {
        // The server drains the content, and the connection stays open.
        client.post("/", &vec![0; bytes]);
        let left: usize = client.answer().text().parse().unwrap();
        assert!(if bytes < 200_000 { left == bytes } else { left < bytes }, "{left}");
    }
    assert_eq!(running.engine().observer().total().panics, 0);
}

#[test]
fn an_upload_waits_for_another_thread() {
    const LENGTH: usize = 64 << 20;
    let go = Arc::new(tokio::sync::Semaphore::new(0));
    let gate = Arc::clone(&go);
    let read = move |request: Request| {
        let gate = Arc::clone(&gate);
        elsewhere(async move {
            let mut body = request.into_body();
            let mut count = body.frame().await.unwrap().unwrap().into_data().unwrap().len();
            let _ = gate.acquire().await.unwrap();
            while let Some(frame) = body.frame().await {
                count += frame.unwrap().into_data().unwrap().len();
            }
            count.to_string()
        })
    };
    let running = start(Router::new().fallback(read));
    let mut reader = client(&running);
    let mut writer = reader.stream.try_clone().unwrap();
    let sent = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&sent);
    let upload = thread::spawn(move || {
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
        thread::sleep(Duration::from_millis(100));
        let now = sent.load(Ordering::Relaxed);
        std::mem::replace(&mut before, now) == now && now > 0
    });
    assert!(before < LENGTH / 2, "{before} bytes were sent to a thread that does not read");
    go.add_permits(1);
    assert_eq!(reader.answer().text(), LENGTH.to_string());
    upload.join().unwrap();
}

// The server does not own the thread, so only an error of the body can end its wait.
#[test]
fn a_read_ends_with_its_peer_and_with_its_server() {
    let errors = Arc::new(Mutex::new(Vec::new()));
    let list = Arc::clone(&errors);
    let read = move |request: Request| {
        let errors = Arc::clone(&list);
        async move {
            thread::spawn(move || {
                let read = block_on(request.into_body().collect());
                errors.lock().unwrap().push(read.map(drop).unwrap_err().to_string());
            });
            std::future::pending::<()>().await;
        }
    };
    let running = builder().grace(Duration::from_millis(50)).start(Router::new().fallback(read)).unwrap();
    let begin = || {
        let mut client = client(&running);
        client.send("POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n");
        assert_eq!(client.head().status, 100);
        client
    };
    begin().reset();
    until("the first read ends", || errors.lock().unwrap().len() == 1);
    let _client = begin();
    block_on(running.shutdown());
    until("the second read ends", || errors.lock().unwrap().len() == 2);
    let errors = errors.lock().unwrap();
    assert!(errors[0].ends_with("the peer disconnected"), "{errors:?}");
    assert!(errors[1].starts_with("reading the request body: "), "{errors:?}");
}

/// Threads that have run a handler.
type Threads = Arc<Mutex<HashSet<thread::ThreadId>>>;

// axum's example `reverse-proxy`: the task of a pooled connection runs on the worker that opened it, and sends the
// requests of all.
#[test]
fn a_proxy_with_a_connection_pool_for_all_workers() {
    #[derive(Clone)]
    struct Proxy {
        client: Client<HttpConnector, Body>,
        upstream: SocketAddr,
        threads: Threads,
    }
    async fn pass(State(proxy): State<Proxy>, mut request: Request) -> Response {
        proxy.threads.lock().unwrap().insert(thread::current().id());
        let path = request.uri().path();
        *request.uri_mut() = Uri::try_from(format!("http://{}{path}", proxy.upstream)).unwrap();
        match proxy.client.request(request).await {
            Ok(answer) => answer.into_response(),
            Err(error) => (StatusCode::BAD_REQUEST, format!("{error:?}")).into_response(),
        }
    }
    let upstream = start(Router::new().fallback(any(async |content: Bytes| content)));
    let threads = Threads::default();
    let proxy = Proxy {
        client: Client::builder(TokioExecutor::new()).build(HttpConnector::new()),
        upstream: upstream.addresses()[0],
        threads: Arc::clone(&threads),
    };
    let running = builder().workers(2).start(Router::new().fallback(pass).with_state(proxy)).unwrap();
    let mut clients: Vec<TestClient> = Vec::new();
    until("both workers have a connection", || {
        let mut client = client(&running);
        client.post("/", b"first");
        assert_eq!(client.answer().text(), "first");
        clients.push(client);
        threads.lock().unwrap().len() == 2
    });
    // One request at a time: each of them reuses a connection, whichever worker has opened it.
    for round in 0..20 {
        for client in &mut clients {
            let content = content(round * 3000);
            client.post("/", &content);
            let answer = client.answer();
            assert!(answer.status == 200 && answer.body == content, "{round}: {} {}", answer.status, answer.text());
        }
    }
    assert_eq!(running.engine().observer().total().panics, 0);
}
