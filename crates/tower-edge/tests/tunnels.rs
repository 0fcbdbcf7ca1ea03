//! Tunnels of upgraded requests, on a fake worker: which bytes they have, and how they end.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::task::{Context as PollContext, Poll, Waker};
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::http::{StatusCode, header};
use axum::routing::any;
use causeway_message::Chunk;
use causeway_pipeline::{Body, Context, Handler, Registry, Response, Step, Verdict, Worker as _};
use causeway_testkit::{Kit, Request as Ask};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// The service's end, after its response.
type Upgraded = Arc<Mutex<Option<OnUpgrade>>>;

/// Replaces the request's body, as `request_body` does with `set`.
struct Replace;

impl Handler for Replace {
    fn enter(&self, cx: &mut Context) -> Step {
        cx.replace_body(Chunk::from(b"replaced".to_vec()));
        Step::Next
    }
}

/// Returns a kit of these handlers, among them a service that switches protocols.
fn kit(handlers: &Value) -> (Kit, Upgraded) {
    let upgraded = Upgraded::default();
    let place = Arc::clone(&upgraded);
    let switch = move |mut request: Request| {
        *place.lock().unwrap() = Some(hyper::upgrade::on(&mut request));
        async { (StatusCode::SWITCHING_PROTOCOLS, [(header::UPGRADE, "x"), (header::CONNECTION, "upgrade")]) }
    };
    let mut registry = Registry::default();
    registry.register_handler("replace", |_, _| Ok(Box::new(Replace)));
    tower_edge::register(&mut registry, "app", Router::new().route("/", any(switch)));
    (Kit::new(&registry, &json!([{ "handle": handlers }])), upgraded)
}

/// Sends a request that is followed by these bytes of the other protocol; returns the response with its tunnel.
#[track_caller]
fn switched(kit: &mut Kit, bytes: &[u8]) -> Response {
    let request = Ask::get("/").upgrade("x").field("Connection", "Upgrade").content(bytes);
    let Verdict::Respond(response) = kit.verdict(&request) else { panic!("no response") };
    assert!(response.status.as_u16() == 101 && matches!(response.body, Body::Tunnel(_)), "{response:?}");
    response
}

/// Runs the spawned tasks as far as they come; returns how many remain.
fn drive(kit: &Kit) -> usize {
    (0..1000).fold(0, |_, _| kit.worker().drive_spawned())
}

/// The task that a service has on each worker.
const BODY_TASKS: usize = 1;

/// More than the pipe between peer and service has room for.
static MUCH: [u8; 200 * 1024] = [b'x'; 200 * 1024];

// `request_body` with `set` replaces content, and a WebSocket's request has none (RFC 6455 §4.1): as in Caddy, the
// tunnel has the client's bytes.
#[test]
fn a_replaced_body_is_none_of_the_tunnel() {
    let (mut kit, upgraded) = kit(&json!([{ "handler": "replace" }, { "handler": "app" }]));
    let _response = switched(&mut kit, b"to the service");
    let got = Rc::new(RefCell::new(Vec::new()));
    let read = Rc::clone(&got);
    kit.worker().spawn(Box::pin(async move {
        let upgrade = upgraded.lock().unwrap().take().unwrap();
        let mut stream = TokioIo::new(upgrade.await.unwrap());
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).await.unwrap();
        read.replace(bytes);
    }));
    drive(&kit);
    assert_eq!(*got.borrow(), b"to the service");
}

/// A service that reads only when it may.
#[derive(Clone, Default)]
struct LateReader {
    may_read: Rc<Cell<bool>>,
    /// The number of bytes that it has read, at their end.
    bytes: Rc<Cell<usize>>,
}

/// Whether the service ends its direction at the start.
#[derive(PartialEq, Eq)]
enum EndsFirst {
    No,
    Yes,
}

impl LateReader {
    /// Starts the service, and runs it as far as it comes.
    fn start(kit: &Kit, upgraded: Upgraded, ends_first: EndsFirst) -> Self {
        let late = Self::default();
        let reader = late.clone();
        kit.worker().spawn(Box::pin(async move {
            let upgrade = upgraded.lock().unwrap().take().unwrap();
            let mut stream = TokioIo::new(upgrade.await.unwrap());
            if ends_first == EndsFirst::Yes {
                stream.shutdown().await.unwrap();
            }
            poll_fn(|_| if reader.may_read.get() { Poll::Ready(()) } else { Poll::Pending }).await;
            let mut bytes = Vec::new();
            stream.read_to_end(&mut bytes).await.unwrap();
            reader.bytes.set(bytes.len());
        }));
        drive(kit);
        late
    }
}

// A peer that is gone ends the service's sending, also if the service reads nothing: its task and the buffers would
// stay for ever.
#[test]
fn a_dropped_tunnel_ends_a_service_that_does_not_read() {
    let (mut kit, upgraded) = kit(&json!([{ "handler": "app" }]));
    let response = switched(&mut kit, &MUCH);
    kit.worker().spawn(Box::pin(async move {
        let upgrade = upgraded.lock().unwrap().take().unwrap();
        let mut stream = TokioIo::new(upgrade.await.unwrap());
        while stream.write_all(&[b'y'; 4096]).await.is_ok() {}
    }));
    // The service's task, and the one that passes bytes on: both pipes are full.
    assert_eq!(drive(&kit), BODY_TASKS + 2);
    drop(response);
    assert_eq!(drive(&kit), BODY_TASKS + 2, "the service can still read the last bytes");
    kit.worker().advance(Duration::from_secs(5));
    assert_eq!(drive(&kit), BODY_TASKS);
}

// As from a socket: a service gets the bytes that the peer sent before it was gone.
#[test]
fn the_last_bytes_of_a_peer_that_is_gone() {
    let (mut kit, upgraded) = kit(&json!([{ "handler": "app" }]));
    let response = switched(&mut kit, &MUCH);
    let late = LateReader::start(&kit, upgraded, EndsFirst::No);
    drop(response);
    drive(&kit);
    late.may_read.set(true);
    assert_eq!((drive(&kit), late.bytes.get()), (BODY_TASKS, MUCH.len()));
}

// RFC 9293 §3.6: a service that has ended its direction still receives the peer's bytes.
#[test]
fn a_service_may_end_its_direction_first() {
    let (mut kit, upgraded) = kit(&json!([{ "handler": "app" }]));
    let response = switched(&mut kit, &MUCH);
    let late = LateReader::start(&kit, upgraded, EndsFirst::Yes);
    let Body::Tunnel(mut tunnel) = response.body else { panic!("no tunnel") };
    assert!(matches!(tunnel.stream.poll_frame(&mut PollContext::from_waker(Waker::noop())), Poll::Ready(None)));
    drop(tunnel);
    late.may_read.set(true);
    assert_eq!((drive(&kit), late.bytes.get()), (BODY_TASKS, MUCH.len()));
}
