use std::convert::Infallible;
use std::future::{Pending as Never, pending};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Wake, Waker};
use std::thread;

use causeway_message::NameRef;
use causeway_pipeline::{BodyStream, Context, Handler, Registry, Step};
use causeway_testkit::{Kit, Pending, Request as Ask};
use http::{Request, Response};
use http_body::Body as _;
use serde_json::json;

use super::*;

type Kept = Arc<Mutex<Option<EdgeBody>>>;

/// Keeps the body of its request, and never responds.
#[derive(Clone, Default)]
struct Keeping(Kept);

impl tower_service::Service<Request<EdgeBody>> for Keeping {
    type Response = Response<EdgeBody>;
    type Error = Infallible;
    type Future = Never<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut PollContext<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<EdgeBody>) -> Self::Future {
        *self.0.lock().unwrap() = Some(request.into_body());
        pending()
    }
}

/// Replaces the body of a request to "/panicking" by a stream that panics.
struct Panicking;

impl Handler for Panicking {
    fn enter(&self, cx: &mut Context) -> Step {
        if cx.head().target().as_str() == "/panicking" {
            cx.replace_body_by(Box::new(Self));
        }
        Step::Next
    }
}

impl BodyStream for Panicking {
    fn poll_frame(&mut self, _: &mut PollContext<'_>) -> Poll<Option<Result<Frame, BodyError>>> {
        panic!("as a test wants it")
    }
}

/// Counts its wakes.
#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// The worker of the test's thread.
struct Worker {
    kit: Kit,
    kept: Kept,
    wakes: Arc<Wakes>,
}

type Polled = Poll<Option<Result<http_body::Frame<Bytes>, EdgeBodyError>>>;

impl Worker {
    fn new() -> Self {
        let service = Keeping::default();
        let kept = Arc::clone(&service.0);
        let mut registry = Registry::default();
        registry.register_handler("panicking", |_, _| Ok(Box::new(Panicking)));
        crate::register(&mut registry, "app", service);
        let kit = Kit::new(&registry, &json!([{ "handle": [{ "handler": "panicking" }, { "handler": "app" }] }]));
        Self { kit, kept, wakes: Arc::default() }
    }

    /// Begins an exchange, and returns its body.
    fn begin(&mut self, request: &Ask) -> (Pending, EdgeBody) {
        let Err(exchange) = self.kit.send_pending(request) else { panic!("a response") };
        let body = self.kept.lock().unwrap().take().expect("a body");
        (exchange, body)
    }

    fn open(&mut self) -> (Pending, EdgeBody) {
        self.begin(&Ask::new("POST", "/").body_open())
    }

    fn poll_here(&self, body: &mut EdgeBody) -> Polled {
        body.poll(&mut PollContext::from_waker(&Waker::from(Arc::clone(&self.wakes))))
    }

    fn poll_elsewhere(&self, body: &mut EdgeBody) -> Polled {
        let waker = Waker::from(Arc::clone(&self.wakes));
        thread::scope(|scope| scope.spawn(|| body.poll(&mut PollContext::from_waker(&waker))).join().expect("no panic"))
    }

    /// Runs the body task.
    fn run(&self) {
        self.kit.worker().drive_spawned();
    }

    /// Returns the number of wakes since the last call.
    fn wakes(&self) -> usize {
        self.wakes.0.swap(0, Ordering::Relaxed)
    }
}

fn push(exchange: &Pending, bytes: impl Into<Vec<u8>>) {
    exchange.context().mailbox().push(Frame::Chunk(bytes.into().into()));
}

#[track_caller]
fn data(polled: Polled) -> Bytes {
    match polled {
        Poll::Ready(Some(Ok(frame))) => frame.into_data().expect("data"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn another_thread_reads_the_whole_body() {
    let mut worker = Worker::new();
    let (exchange, mut body) = worker.open();
    // RFC 9110 §10.1.1: the 100 (Continue) is sent when the other thread reads, not earlier.
    worker.run();
    assert!(!exchange.context().mailbox().has_reader_waited());
    assert!(worker.poll_elsewhere(&mut body).is_pending());
    worker.run();
    assert!(exchange.context().mailbox().has_reader_waited());
    assert_eq!(worker.wakes(), 0);

    let large = vec![7; 3 * COPIED_BELOW];
    push(&exchange, "small");
    push(&exchange, large.clone());
    worker.run();
    assert_eq!(worker.wakes(), 1, "the reader waits for one frame");
    assert_eq!(data(worker.poll_elsewhere(&mut body)), "small");
    assert_eq!(data(worker.poll_elsewhere(&mut body)), large);
    assert!(worker.poll_elsewhere(&mut body).is_pending());

    let mut fields = FieldMap::new();
    let name = NameRef::parse(b"X-Sum").expect("a name");
    fields.append(name, causeway_message::FieldValue::parse(b"6").expect("a value"));
    exchange.context().mailbox().push(Frame::Trailers(Box::new(fields)));
    exchange.context().mailbox().complete();
    worker.run();
    assert!(worker.wakes() == 1 && !body.is_end_stream());
    let Poll::Ready(Some(Ok(frame))) = worker.poll_elsewhere(&mut body) else { panic!("no frame") };
    assert_eq!(frame.into_trailers().expect("trailers")["x-sum"], "6");
    assert!(body.is_end_stream() && matches!(worker.poll_elsewhere(&mut body), Poll::Ready(None)));
    worker.run();
    assert!(exchange.context().mailbox().is_abandoned(), "the body is released with its last frame");
}

#[test]
fn the_rest_of_the_length_is_counted_when_frames_are_taken() {
    let mut worker = Worker::new();
    let (_exchange, mut body) = worker.begin(&Ask::new("POST", "/").content("abcde").content("fg"));
    assert!(worker.poll_elsewhere(&mut body).is_pending());
    worker.run();
    assert_eq!(body.size_hint().exact(), Some(7), "read ahead, and not taken");
    assert_eq!(data(worker.poll_elsewhere(&mut body)), "abcde");
    assert_eq!(body.size_hint().exact(), Some(2));
    assert_eq!(data(worker.poll_here(&mut body)), "fg");
    assert_eq!((body.size_hint().exact(), body.is_end_stream()), (Some(0), true));
}

// http-body, Body::poll_frame: frames have an order. Some threads take frames that others have waited for.
#[test]
fn a_body_that_moves_between_threads_keeps_its_order() {
    for pattern in 0..1_u32 << 8 {
        let mut worker = Worker::new();
        let (exchange, mut body) = worker.open();
        let (mut sent, mut taken) = (0, 0);
        let mut step = 0;
        while taken < 20 {
            let is_here = pattern >> (step % 8) & 1 == 1;
            step += 1;
            let polled = if is_here { worker.poll_here(&mut body) } else { worker.poll_elsewhere(&mut body) };
            if polled.is_ready() {
                assert_eq!(data(polled), [taken].as_slice(), "{pattern:b}");
                taken += 1;
                continue;
            }
            // One frame arrives for a reader that waits, or several.
            for _ in 0..step % 4 {
                push(&exchange, [sent]);
                sent += 1;
            }
            worker.run();
            assert!(taken == sent || worker.wakes() > 0, "{pattern:b}: the reader is woken");
        }
    }
}

#[test]
fn few_frames_are_read_ahead() {
    let mut worker = Worker::new();
    let (exchange, mut body) = worker.open();
    (0..16).for_each(|_| push(&exchange, "1"));
    let read = || exchange.context().mailbox().bytes_read();
    let run = || (0..5).for_each(|_| worker.run());
    run();
    assert_eq!(read(), 0, "no thread has asked for a frame");
    assert!(worker.poll_elsewhere(&mut body).is_pending());
    run();
    assert_eq!(read(), 4);
    data(worker.poll_elsewhere(&mut body));
    run();
    assert_eq!(read(), 4, "most of them are there still");
    data(worker.poll_elsewhere(&mut body));
    run();
    assert_eq!(read(), 6);
}

#[test]
fn errors_reach_another_thread_after_the_frames() {
    let mut worker = Worker::new();
    let (exchange, mut body) = worker.open();
    push(&exchange, "1");
    exchange.context().mailbox().fail(BodyError::PeerGone);
    assert!(worker.poll_elsewhere(&mut body).is_pending());
    worker.run();
    assert_eq!(data(worker.poll_elsewhere(&mut body)), "1");
    let gone = EdgeBodyError::Body(BodyError::PeerGone);
    assert!(matches!(worker.poll_elsewhere(&mut body), Poll::Ready(Some(Err(error))) if error == gone));
    assert!(body.is_end_stream());
    // A program finds the reason without reading the text.
    let source = std::error::Error::source(&gone).and_then(|source| source.downcast_ref());
    assert_eq!(source, Some(&BodyError::PeerGone));
    assert!(std::error::Error::source(&EdgeBodyError::WorkerEnded).is_none());
}

#[test]
fn a_body_dropped_on_another_thread_is_released() {
    let mut worker = Worker::new();
    let (exchange, mut body) = worker.open();
    assert!(worker.poll_elsewhere(&mut body).is_pending());
    worker.run();
    push(&exchange, "1");
    // Dropped after the wake of the body task, and before its next run.
    thread::scope(|scope| drop(scope.spawn(|| drop(body))));
    worker.run();
    assert!(exchange.context().mailbox().is_abandoned());
    assert_eq!(worker.wakes(), 0);

    // Another body gets its key: a late wake of the first transfer does not read it.
    let (other, mut body) = worker.open();
    push(&other, "2");
    exchange.context().mailbox().fail(BodyError::PeerGone);
    worker.run();
    assert_eq!(other.context().mailbox().bytes_read(), 0);
    assert_eq!(data(worker.poll_here(&mut body)), "2");
}

// A wait on another thread ends with the worker. Frames that were read before are delivered.
#[test]
fn the_end_of_the_worker_ends_a_read() {
    let mut worker = Worker::new();
    let (exchange, mut reading) = worker.open();
    let (second, mut queued) = worker.open();
    let (third, mut fresh) = worker.open();
    push(&exchange, "1");
    push(&exchange, "2");
    assert!(worker.poll_elsewhere(&mut reading).is_pending());
    worker.run();
    assert_eq!(data(worker.poll_elsewhere(&mut reading)), "1");
    assert!(worker.poll_elsewhere(&mut queued).is_pending());
    worker.wakes();
    for exchange in [exchange, second, third] {
        exchange.cancel(&mut worker.kit);
    }
    worker.kit = Kit::new(&Registry::default(), &json!([]));
    assert_eq!(worker.wakes(), 2);
    assert_eq!(data(worker.poll_elsewhere(&mut reading)), "2");
    assert!(worker.poll_elsewhere(&mut fresh).is_pending() && worker.wakes() == 1);
    for body in [&mut reading, &mut queued, &mut fresh] {
        let polled = worker.poll_elsewhere(body);
        assert!(matches!(polled, Poll::Ready(Some(Err(EdgeBodyError::WorkerEnded)))), "{polled:?}");
    }
}

#[test]
fn a_panic_of_a_stream_fails_its_own_read() {
    let mut worker = Worker::new();
    let (_exchange, mut body) = worker.begin(&Ask::new("POST", "/panicking").content("1"));
    let (other, mut sound) = worker.open();
    push(&other, "2");
    assert!(worker.poll_elsewhere(&mut body).is_pending() && worker.poll_elsewhere(&mut sound).is_pending());
    worker.run();
    let failed = EdgeBodyError::Body(BodyError::Source);
    assert!(matches!(worker.poll_elsewhere(&mut body), Poll::Ready(Some(Err(error))) if error == failed));
    assert_eq!(data(worker.poll_elsewhere(&mut sound)), "2");
}
