//! Bodies that are compressed while they are sent.

use std::collections::VecDeque;
use std::rc::Rc;
use std::task::{Context as PollContext, Poll};
use std::time::Duration;

use causeway_message::FieldMap;
use causeway_pipeline::{BodyError, BodyStream, Frame, Worker};
use causeway_testkit::FakeWorker;

use super::*;

const CODINGS: [Coding; 3] =
    [Coding::Gzip { level: 5 }, Coding::Zstd { level: 3, checksum: true }, Coding::Brotli { level: 5 }];

/// A source that a test fills: `None` is a pause, after which it continues when it is polled again.
#[derive(Default)]
struct Script(VecDeque<Option<Result<Frame, BodyError>>>);

impl BodyStream for Script {
    fn poll_frame(&mut self, poll_cx: &mut PollContext<'_>) -> Poll<Option<Result<Frame, BodyError>>> {
        match self.0.pop_front() {
            Some(None) => {
                poll_cx.waker().wake_by_ref();
                Poll::Pending
            }
            Some(Some(frame)) => Poll::Ready(Some(frame)),
            None => Poll::Ready(None),
        }
    }
}

fn chunk(content: impl Into<Vec<u8>>) -> Option<Result<Frame, BodyError>> {
    Some(Ok(Frame::Chunk(Chunk::from(content.into()))))
}

fn stream(frames: impl IntoIterator<Item = Option<Result<Frame, BodyError>>>) -> Body {
    Body::Stream(Box::new(Script(frames.into_iter().collect())))
}

fn encoded(body: Body, coding: Coding, worker: &Rc<FakeWorker>) -> EncodedBody {
    let worker: Rc<dyn Worker> = worker.clone();
    EncodedBody::new(body, coding, EncoderLease::take(coding).expect("the budget is not used up"), &worker)
}

fn poll(body: &mut EncodedBody) -> Poll<Option<Result<Frame, BodyError>>> {
    body.poll_frame(&mut PollContext::from_waker(std::task::Waker::noop()))
}

/// Polls until the body ends; runs the jobs that it queues.
fn rest(body: &mut EncodedBody, worker: &FakeWorker) -> Result<Vec<u8>, BodyError> {
    let mut bytes = Vec::new();
    for _ in 0..10_000 {
        match poll(body) {
            Poll::Ready(None) => return Ok(bytes),
            Poll::Ready(Some(Ok(Frame::Chunk(chunk)))) => bytes.extend_from_slice(chunk.as_slice()),
            Poll::Ready(Some(Ok(Frame::Trailers(_)))) => {}
            Poll::Ready(Some(Err(error))) => return Err(error),
            Poll::Pending => drop(worker.run_jobs()),
        }
    }
    panic!("the body does not end");
}

fn plain(coding: Coding, bytes: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    match coding {
        Coding::Gzip { .. } => drop(flate2::read::MultiGzDecoder::new(bytes).read_to_end(&mut plain)),
        Coding::Zstd { .. } => drop(zstd::Decoder::new(bytes).unwrap().read_to_end(&mut plain)),
        Coding::Brotli { .. } => drop(brotli::Decompressor::new(bytes, 4096).read_to_end(&mut plain)),
    }
    plain
}

// WHATWG HTML, server-sent events: a client acts on each event when it arrives, so each one must be decodable before
// the next is there.
#[test]
fn each_event_is_flushed() {
    for coding in CODINGS {
        let worker = FakeWorker::new();
        let events = ["data: one\n\n", "data: two\n\n", "data: three\n\n"];
        let mut body =
            encoded(stream(events.iter().flat_map(|event| [chunk(*event), None, None, None])), coding, &worker);
        let (mut bytes, mut want) = (Vec::new(), String::new());
        for event in events {
            want.push_str(event);
            let Poll::Ready(Some(Ok(Frame::Chunk(piece)))) = poll(&mut body) else { panic!("{coding:?}: no output") };
            bytes.extend_from_slice(piece.as_slice());
            assert_eq!(plain(coding, &bytes), want.as_bytes(), "{coding:?}");
            assert!(poll(&mut body).is_pending(), "{coding:?}: nothing is there, and nothing is to be flushed again");
        }
        bytes.extend(rest(&mut body, &worker).unwrap());
        assert_eq!(plain(coding, &bytes), want.as_bytes(), "{coding:?}");
    }
}

// A step that would hold the worker runs on a thread of the pool, with one piece of content at a time; nothing is lost
// while it is there, and none is begun before the connection polls.
#[test]
fn long_pieces_are_compressed_by_the_pool() {
    let content = text(400_000);
    for coding in CODINGS {
        let worker = FakeWorker::new();
        worker.queue_jobs(10);
        let pieces = content.as_bytes().chunks(50_000).map(chunk);
        let mut body = encoded(stream(pieces), coding, &worker);
        assert_eq!(worker.jobs_seen(), 0);
        assert!(poll(&mut body).is_pending(), "{coding:?}");
        assert_eq!(worker.jobs_seen(), 1, "{coding:?}");
        assert!(poll(&mut body).is_pending(), "{coding:?}");
        assert_eq!(worker.jobs_seen(), 1, "{coding:?}: one at a time");
        let bytes = rest(&mut body, &worker).unwrap();
        assert!(plain(coding, &bytes) == content.as_bytes(), "{coding:?}");
        assert!(worker.work_seen().iter().all(|work| work.kind() == WorkKind::Compress));
    }
}

// Short pieces in quick succession are compressed on the worker, with a pause after each share of computation, so that
// its other connections get their turns.
#[test]
fn short_pieces_are_compressed_here_with_pauses() {
    let coding = Coding::Gzip { level: 5 };
    let worker = FakeWorker::new();
    let content = text(200_000);
    let mut body = encoded(stream(content.as_bytes().chunks(1000).map(chunk)), coding, &worker);
    let (mut bytes, mut pauses) = (Vec::new(), 0);
    loop {
        match poll(&mut body) {
            Poll::Pending => pauses += 1,
            Poll::Ready(Some(Ok(Frame::Chunk(chunk)))) => bytes.extend_from_slice(chunk.as_slice()),
            Poll::Ready(None) => break,
            Poll::Ready(other) => panic!("{other:?}"),
        }
    }
    assert!(plain(coding, &bytes) == content.as_bytes());
    assert_eq!(worker.jobs_seen(), 0);
    assert!(pauses >= content.len() / coding.inline_bytes_max() - 1, "{pauses}");
}

// A full queue delays the response, and loses none of it.
#[test]
fn a_full_queue_delays_the_body() {
    let content = text(300_000);
    for coding in CODINGS {
        let worker = FakeWorker::new();
        worker.queue_jobs(0);
        // The short piece is in the output already when the long one has to wait.
        let pieces = [chunk(&content.as_bytes()[..1000]), chunk(&content.as_bytes()[1000..])];
        let mut body = encoded(stream(pieces), coding, &worker);
        assert!(poll(&mut body).is_pending(), "{coding:?}");
        assert_eq!(worker.sleepers(), 1, "{coding:?}");
        worker.queue_jobs(10);
        assert!(poll(&mut body).is_pending(), "{coding:?}");
        worker.advance(Duration::from_millis(20));
        let bytes = rest(&mut body, &worker).unwrap();
        assert!(plain(coding, &bytes) == content.as_bytes(), "{coding:?}");
        assert_eq!(worker.sleepers(), 0, "{coding:?}");
    }
}

// A failing source makes the response fail: its end would pass the part for the whole. Trailers follow the compressed
// content.
#[test]
fn failures_and_trailers() {
    for coding in CODINGS {
        let worker = FakeWorker::new();
        let mut body = encoded(stream([chunk("x"), Some(Err(BodyError::PeerGone))]), coding, &worker);
        assert_eq!(rest(&mut body, &worker), Err(BodyError::PeerGone), "{coding:?}");
        let trailers = Some(Ok(Frame::Trailers(Box::<FieldMap>::default())));
        let mut body = encoded(stream([chunk("content"), trailers]), coding, &worker);
        let Poll::Ready(Some(Ok(Frame::Chunk(bytes)))) = poll(&mut body) else { panic!("{coding:?}: no content") };
        assert_eq!(plain(coding, bytes.as_slice()), b"content");
        assert!(matches!(poll(&mut body), Poll::Ready(Some(Ok(Frame::Trailers(_))))), "{coding:?}");
        assert!(matches!(poll(&mut body), Poll::Ready(None)), "{coding:?}");
    }
}

// The budget bounds the encoders in use, wherever they are dropped; beyond it, the response is sent without a coding.
#[test]
fn the_memory_of_encoders_is_bounded() {
    let large = Coding::Brotli { level: 11 };
    let all = || std::iter::from_fn(|| EncoderLease::take(large)).collect::<Vec<_>>();
    let most = all().len();
    assert!((4..100).contains(&most), "{most}");
    // A job that is dropped with its encoder.
    let worker = FakeWorker::new();
    worker.queue_jobs(10);
    let mut body = encoded(stream([chunk(text(500_000))]), large, &worker);
    assert!(poll(&mut body).is_pending());
    assert_eq!(all().len(), most - 1);
    drop(body);
    worker.drop_abandoned();
    assert_eq!(all().len(), most);

    let held = std::iter::from_fn(|| EncoderLease::take(Coding::Gzip { level: 5 })).collect::<Vec<_>>();
    let mut encoding = kit(both(), json!({ "body": text(WHOLE_BYTES_MAX + 1) }));
    let gzip = Request::get("/").field("Accept-Encoding", "gzip");
    let answer = encoding.send(&gzip);
    assert_eq!((answer.field("content-encoding"), answer.field("vary")), (None, Some("Accept-Encoding")));
    assert_eq!(answer.body.len(), WHOLE_BYTES_MAX + 1);
    drop(held);
    assert_eq!(encoding.send(&gzip).field("content-encoding"), Some("gzip"));
}

// A body in memory whose coding takes long is compressed by the pool, and has a Content-Length; a full queue leaves it
// as it is.
#[test]
fn long_bodies_in_memory() {
    let mut encoding = kit(both(), json!({ "body": text(60_000) }));
    let gzip = Request::get("/").field("Accept-Encoding", "gzip");
    encoding.worker().queue_jobs(1);
    let pending = encoding.send_pending(&gzip).expect_err("the pool compresses it");
    encoding.worker().run_jobs();
    let answer = pending.finish(&mut encoding);
    assert_eq!((answer.field("content-encoding"), decoded(&answer) == text(60_000).as_bytes()), (Some("gzip"), true));
    encoding.worker().queue_jobs(0);
    let answer = encoding.send(&gzip);
    assert_eq!((answer.field("content-encoding"), answer.field("vary")), (None, Some("Accept-Encoding")));
    assert_eq!(answer.body.len(), 60_000);
}
