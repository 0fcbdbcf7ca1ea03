//! The life of a service: readiness, errors, panics, disconnects, shutdown.

mod support;

use std::cell::Cell;
use std::future::{IntoFuture as _, Ready, ready};
use std::io::{self, Write as _};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::routing::get;
use causeway_testkit::http2::{Wire, flag, kind};
use causeway_testkit::ports::free_port;
use http::{Request, Response};
use http_body_util::Full;
use support::{PATIENCE, TestClient, block_on, builder, client, start, until};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tower_edge::{EdgeBody, Server, Timeouts, TransferLimit};
use tower_service::Service;

type Answering = Pin<Box<dyn Future<Output = Result<Response<Full<Bytes>>, io::Error>>>>;

fn text(text: impl Into<Bytes>) -> Response<Full<Bytes>> {
    Response::new(Full::new(text.into()))
}

/// Allows one call at a time over all clones, as a concurrency limit does: a ready clone holds the permit.
struct OneAtATime {
    gate: Arc<Semaphore>,
    permit: Option<OwnedSemaphorePermit>,
    waiting: Option<Pin<Box<dyn Future<Output = OwnedSemaphorePermit> + Send>>>,
    running: Arc<AtomicUsize>,
}

impl OneAtATime {
    fn new() -> Self {
        Self { gate: Arc::new(Semaphore::new(1)), permit: None, waiting: None, running: Arc::default() }
    }
}

impl Clone for OneAtATime {
    fn clone(&self) -> Self {
        Self { gate: Arc::clone(&self.gate), permit: None, waiting: None, running: Arc::clone(&self.running) }
    }
}

impl Service<Request<EdgeBody>> for OneAtATime {
    type Response = Response<Full<Bytes>>;
    type Error = io::Error;
    type Future = Answering;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), io::Error>> {
        if self.permit.is_none() {
            let gate = &self.gate;
            let waiting = self.waiting.get_or_insert_with(|| {
                let gate = Arc::clone(gate);
                Box::pin(async move { gate.acquire_owned().await.expect("the semaphore is open") })
            });
            let Poll::Ready(permit) = waiting.as_mut().poll(cx) else { return Poll::Pending };
            (self.permit, self.waiting) = (Some(permit), None);
        }
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<EdgeBody>) -> Answering {
        let permit = self.permit.take().expect("called after poll_ready");
        let running = Arc::clone(&self.running);
        Box::pin(async move {
            assert_eq!(running.fetch_add(1, Ordering::Relaxed), 0, "one at a time");
            let counted = Counted(running);
            tokio::time::sleep(Duration::from_millis(2)).await;
            drop((counted, permit));
            Ok(text("done"))
        })
    }
}

#[test]
fn requests_wait_for_a_busy_service() {
    let running = builder().workers(2).start(OneAtATime::new()).unwrap();
    let mut clients: Vec<_> = (0..20).map(|_| client(&running)).collect();
    for _ in 0..3 {
        clients.iter_mut().for_each(|client| client.send_request("/"));
        for client in &mut clients {
            assert_eq!(client.answer().text(), "done");
        }
    }
    // A client that disconnects while it waits does not keep the permit.
    for _ in 0..5 {
        clients.iter_mut().for_each(|client| client.send_request("/"));
        clients.split_off(10).into_iter().for_each(TestClient::reset);
        clients.iter_mut().for_each(|client| assert_eq!(client.answer().text(), "done"));
        clients.extend((0..10).map(|_| client(&running)));
    }
    assert_eq!(running.engine().observer().total().panics, 0);
}

/// Behaves as the path demands.
#[derive(Clone, Default)]
struct Acting {
    /// The number of live futures.
    futures: Arc<AtomicUsize>,
    calls: Cell<u32>,
}

struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Service<Request<EdgeBody>> for Acting {
    type Response = Response<Full<Bytes>>;
    type Error = io::Error;
    type Future = Answering;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), io::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<EdgeBody>) -> Answering {
        self.calls.set(self.calls.get() + 1);
        assert!(request.uri().path() != "/panic-in-call", "as a test wants it");
        self.futures.fetch_add(1, Ordering::Relaxed);
        let counted = Counted(Arc::clone(&self.futures));
        let not_sent = Rc::new(self.calls.get());
        Box::pin(async move {
            let _counted = counted;
            match request.uri().path() {
                "/error" => Err(io::Error::other("out of order")),
                "/panic" => panic!("as a test wants it"),
                "/never" => std::future::pending().await,
                "/slow" => {
                    tokio::time::sleep(Duration::from_millis(300)).await;
                    Ok(text("slow"))
                }
                _ => Ok(text(not_sent.to_string())),
            }
        })
    }
}

/// A body that promises four bytes, has these frames, and panics if it is polled after its end or its failure.
struct Fused(Vec<Option<Result<&'static str, io::Error>>>);

impl http_body::Body for Fused {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<io::Result<http_body::Frame<Bytes>>>> {
        let next = self.0.remove(0);
        Poll::Ready(next.map(|frame| frame.map(|text| http_body::Frame::data(Bytes::from_static(text.as_bytes())))))
    }

    fn size_hint(&self) -> http_body::SizeHint {
        http_body::SizeHint::with_exact(4)
    }
}

// http-body, Body::poll_frame: after `None`, or an error, the body is not polled again.
#[test]
fn an_ended_body_is_not_polled() {
    let bodies = |number: usize| {
        let failed = || Some(Err(io::Error::other("it fails")));
        Fused(match number {
            0 => vec![Some(Ok("four")), None],
            1 => vec![None],
            2 => vec![failed()],
            3 => vec![Some(Ok("four")), failed()],
            4 => vec![Some(Ok("two")), None],
            5 => vec![Some(Ok("two")), failed()],
            _ => vec![Some(Ok("four")), Some(Ok("more")), None],
        })
    };
    let respond = move |axum::extract::Path(number): axum::extract::Path<usize>| async move {
        Response::new(Body::new(bodies(number)))
    };
    let running = start(Router::new().route("/{number}", get(respond)));
    assert_eq!(client(&running).get("/0").text(), "four");
    for number in 1..7 {
        let mut client = client(&running);
        client.send_request(&format!("/{number}"));
        let (bytes, close) = client.rest();
        // RFC 9112 §8: fewer bytes than the announced four show that the response is not complete. The third fails
        // after them, and the last has more.
        let most = if matches!(number, 3 | 6) { 4 } else { 3 };
        let text = String::from_utf8_lossy(&bytes);
        let content = text.split_once("\r\n\r\n").map(|(_, content)| content.len());
        assert!(content <= Some(most) && close == support::Close::End, "{number}: {text}");
    }
    assert_eq!(running.engine().observer().total().panics, 0);
}

#[test]
fn errors_and_panics_are_500_and_affect_one_request() {
    let service = Acting::default();
    let running = start(service.clone());
    let mut client = client(&running);
    assert_eq!(client.get("/error").status, 500);
    assert_eq!(client.get("/").text(), "2", "the connection and the service continue");
    assert_eq!(client.get("/panic").status, 500);
    let mut client = support::client(&running);
    assert_eq!(client.get("/panic-in-call").status, 500);
    let mut client = support::client(&running);
    assert_eq!(client.get("/").text(), "1", "a service that panicked is replaced");
    assert_eq!(running.engine().observer().total().panics, 2);
    until("every future is dropped", || service.futures.load(Ordering::Relaxed) == 0);
}

#[test]
fn the_future_is_dropped_when_its_peer_disconnects() {
    let service = Acting::default();
    let running = start(service.clone());
    let mut client = client(&running);
    client.send_request("/never");
    until("the future exists", || service.futures.load(Ordering::Relaxed) == 1);
    client.reset();
    until("the future is dropped", || service.futures.load(Ordering::Relaxed) == 0);

    // RFC 9113 §5.4.2: one reset stream; the other streams continue.
    let mut wire = Wire::connect(running.addresses()[0], &[]).unwrap();
    wire.put_get(1, "/never");
    wire.put_get(3, "/never");
    wire.flush().unwrap();
    until("both futures exist", || service.futures.load(Ordering::Relaxed) == 2);
    wire.put(kind::RST_STREAM, flag::NONE, 1, &8_u32.to_be_bytes());
    wire.flush().unwrap();
    until("one is dropped", || service.futures.load(Ordering::Relaxed) == 1);
}

#[test]
fn a_shutdown_completes_requests_in_progress() {
    let service = Acting::default();
    let running = start(service.clone());
    let address = running.addresses()[0];
    let mut client = client(&running);
    client.send_request("/slow");
    until("the request is in progress", || service.futures.load(Ordering::Relaxed) == 1);
    let end = std::thread::spawn(move || block_on(running.shutdown()));
    until("connections are refused", || std::net::TcpStream::connect(address).is_err());
    assert_eq!(client.answer().text(), "slow");
    end.join().unwrap();
}

#[test]
fn requests_beyond_the_grace_period_are_aborted() {
    let service = Acting::default();
    let running = builder().grace(Duration::from_millis(50)).start(service.clone()).unwrap();
    let mut client = client(&running);
    client.send_request("/never");
    until("the request is in progress", || service.futures.load(Ordering::Relaxed) == 1);
    block_on(running.shutdown());
    client.closed();
    assert_eq!(service.futures.load(Ordering::Relaxed), 0);
}

// RFC 9110 §15.2.2: a 101 is a response to a request with `Upgrade`.
#[test]
fn a_101_without_an_upgrade_is_a_500() {
    let answer = || Response::builder().status(101).body(Body::from("content")).unwrap();
    let running = start(Router::new().route("/", get(async move || answer())));
    let response = client(&running).get("/");
    assert_eq!((response.status, response.text()), (500, ""));
}

// tokio, `Runtime`: dropping a runtime waits for running `spawn_blocking`s, without a limit.
#[test]
fn an_end_does_not_wait_for_blocking_work() {
    for is_graceful in [false, true] {
        let (started, has_ended) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (release, released) = std::sync::mpsc::channel::<()>();
        let work = Arc::new(Mutex::new((released, Arc::clone(&has_ended))));
        let service = {
            let started = Arc::clone(&started);
            Router::new().route(
                "/",
                get(async move || {
                    let _ = tokio::task::spawn_blocking(move || {
                        started.store(1, Ordering::Relaxed);
                        let (released, has_ended) = &*work.lock().unwrap();
                        let _ = released.recv_timeout(PATIENCE);
                        has_ended.store(1, Ordering::Relaxed);
                    })
                    .await;
                }),
            )
        };
        let running = builder().grace(Duration::from_millis(10)).start(service).unwrap();
        let mut client = client(&running);
        client.send_request("/");
        until("the work has begun", || started.load(Ordering::Relaxed) == 1);
        if is_graceful {
            block_on(running.shutdown());
        } else {
            drop(running);
        }
        client.closed();
        assert_eq!(has_ended.load(Ordering::Relaxed), 0, "the end waited for the work");
        drop(release);
        until("the work has ended", || has_ended.load(Ordering::Relaxed) == 1);
    }
}

#[test]
fn serving_ends_with_its_signal() {
    let (shut_down, signal) = tokio::sync::oneshot::channel::<()>();
    let port = free_port();
    let serving = Server::builder()
        .listen(format!("127.0.0.1:{port}"))
        .workers(2)
        .serve(Router::new().route("/", get(async || "hello")))
        .with_graceful_shutdown(async { drop(signal.await) });
    let served = std::thread::spawn(|| block_on(async { tokio::spawn(serving.into_future()).await.unwrap() }));
    until("it listens", || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
    let mut client = TestClient::connect(([127, 0, 0, 1], port).into());
    assert_eq!(client.get("/").text(), "hello");
    shut_down.send(()).unwrap();
    served.join().unwrap().unwrap();
    assert!(std::net::TcpStream::connect(("127.0.0.1", port)).is_err());
}

/// Longer than a tick of the timer wheel.
const SHORT: Duration = Duration::from_millis(300);

/// Responds to "/echo" with the request's body; after three times [`SHORT`] to "/read" with the content that it reads
/// then, to "/pieces" with pieces that need longer than the limit on bodies.
async fn late(request: axum::extract::Request) -> Body {
    if request.uri().path() == "/echo" {
        return request.into_body();
    }
    tokio::time::sleep(SHORT * 3).await;
    match request.uri().path() {
        "/read" => match axum::body::to_bytes(request.into_body(), 100).await {
            Ok(content) => content.into(),
            Err(_) => "failed".into(),
        },
        "/pieces" => Body::from_stream(futures_util::stream::unfold(0, async |number| {
            tokio::time::sleep(SHORT * 2).await;
            (number < 2).then(|| (Ok::<_, io::Error>(number.to_string()), number + 1))
        })),
        _ => "late".into(),
    }
}

fn with_body_limit(idle: Duration) -> tower_edge::Running {
    let body = TransferLimit { idle, bytes_per_second: None };
    let limits = Timeouts { body, ..Timeouts::default() };
    builder().timeouts(limits).start(Router::new().route("/{*rest}", axum::routing::any(late))).unwrap()
}

// The late body is of no use to a service that does not read it; its response is sent, and is the last one.
#[test]
fn a_body_that_stalls_does_not_cost_a_late_response() {
    let running = with_body_limit(SHORT);
    for expectation in ["", "Expect: 100-continue\r\n"] {
        let mut client = client(&running);
        client.send(format!("POST /unread HTTP/1.1\r\nHost: a\r\n{expectation}Content-Length: 3\r\n\r\n"));
        let answer = client.answer();
        assert_eq!((answer.text(), answer.closes()), ("late", true), "{expectation}");
        client.closed();
    }
}

#[test]
fn a_body_that_stalls_does_not_cut_a_slow_response() {
    let running = with_body_limit(SHORT);
    let mut client = client(&running);
    client.send("POST /pieces HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n");
    assert_eq!(client.answer().text(), "01");
}

// The bytes of a body that come after it has failed have no reader, and are not kept.
#[test]
fn bytes_after_a_late_body_take_no_memory() {
    let running = with_body_limit(SHORT);
    let mut client = client(&running);
    client.send("POST /unread HTTP/1.1\r\nHost: a\r\nContent-Length: 10000000000\r\n\r\n");
    std::thread::sleep(SHORT * 2);
    let piece = vec![b'a'; 1 << 20];
    client.stream.set_write_timeout(Some(SHORT)).unwrap();
    while client.stream.write_all(&piece).is_ok() {
        let blocks = running.engine().observer().total().blocks_allocated;
        assert!(blocks < 100, "{blocks} blocks");
    }
}

// After the response has begun there is no 100, so a client that is silent is late.
#[test]
fn a_silent_client_that_is_not_asked_to_continue() {
    let running = with_body_limit(SHORT);
    let mut client = client(&running);
    client.send("POST /echo HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nTransfer-Encoding: chunked\r\n\r\n");
    assert_eq!(client.head().status, 200);
    client.closed();
}

// RFC 9110 §10.1.1: the client waits for the 100 (Continue), so it is not late.
#[test]
fn the_body_limit_begins_with_the_100() {
    let running = with_body_limit(SHORT);
    let mut client = client(&running);
    client.send("POST /read HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n");
    assert_eq!(client.head().status, 100);
    client.send("abc");
    assert_eq!(client.answer().text(), "abc");
}

// `Duration::MAX` is no limit.
#[test]
fn limits_without_end() {
    let transfer = TransferLimit { idle: Duration::MAX, bytes_per_second: None };
    let limits = Timeouts {
        head: Duration::MAX,
        body: transfer,
        write: transfer,
        keep_alive: Duration::MAX,
        linger: Duration::MAX,
    };
    let running = builder().timeouts(limits).start(Router::new().fallback(async |body: Bytes| body)).unwrap();
    let mut client = client(&running);
    for part in ["POST / HTTP/1.1\r\n", "Host: a\r\nContent-Length: 4\r\n\r\n", "ab", "cd"] {
        client.send(part);
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(client.answer().text(), "abcd");
    assert_eq!(client.get("/").status, 200);
}

/// Responds with the number of its worker and of the worker's requests so far. Neither `Send` nor `Sync`.
#[derive(Clone)]
struct Local {
    worker: usize,
    requests: Rc<Cell<usize>>,
}

impl Local {
    fn new(worker: usize) -> Self {
        let requests = Rc::new(Cell::new(0));
        let at_work = Rc::clone(&requests);
        // The worker's runtime is there already.
        tokio::task::spawn_local(async move { at_work.update(|requests| requests + 100) });
        Self { worker, requests }
    }
}

impl Service<Request<EdgeBody>> for Local {
    type Response = Response<Full<Bytes>>;
    type Error = io::Error;
    type Future = Ready<io::Result<Self::Response>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<EdgeBody>) -> Self::Future {
        self.requests.update(|requests| requests + 1);
        ready(Ok(text(format!("{} {}", self.worker, self.requests.get()))))
    }
}

// Of two connections, the second goes to the worker without one; so each worker has one of them.
#[test]
fn a_service_of_each_worker() {
    let running = Server::builder().listen("127.0.0.1:0").workers(2).start_with(Local::new).unwrap();
    let mut clients = [client(&running), client(&running)];
    let mut answers = Vec::new();
    for client in &mut clients {
        for _ in 0..2 {
            answers.push(client.get("/").text().to_owned());
        }
        // A clone, with the worker's state.
        client.send("GET / HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: any\r\n\r\n");
        answers.push(client.answer().text().to_owned());
    }
    answers.sort();
    assert_eq!(answers, ["0 101", "0 102", "0 103", "1 101", "1 102", "1 103"]);
}

#[test]
fn a_service_that_cannot_be_made() {
    let make = |worker| -> Local { panic!("no service for worker {worker}") };
    let error = builder().start_with(make).unwrap_err();
    assert_eq!(error.to_string(), "preparing the workers: a module panicked while it created its state");
}

// The future of a server is `Send`, although its service is not.
#[test]
fn a_server_on_another_thread() {
    let future = builder().serve_with(Local::new).with_graceful_shutdown(ready(())).into_future();
    std::thread::spawn(|| block_on(future)).join().unwrap().unwrap();
}
