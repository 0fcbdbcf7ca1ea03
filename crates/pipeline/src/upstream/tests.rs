use causeway_message::{Chunk, FieldValue, names};

use super::*;
use crate::body::{BodyStream as _, Frame};

struct Queue(Rc<CallPool>, RefCell<Vec<EngineCall>>);

impl Upstream for Queue {
    fn start(&self, call: EngineCall) {
        self.1.borrow_mut().push(call);
    }

    fn calls(&self) -> &Rc<CallPool> {
        &self.0
    }
}

fn queue() -> Queue {
    Queue(CallPool::new(), RefCell::default())
}

fn poll_cx() -> PollContext<'static> {
    PollContext::from_waker(Waker::noop())
}

fn head(status: StatusCode) -> ResponseHead {
    let mut head = ResponseHead::new(status);
    head.set(names::ETAG, FieldValue::from_static("\"a\""));
    head
}

#[test]
fn the_parts_of_a_response_arrive_in_order() {
    let queue = queue();
    let call = queue.calls().take();
    call.request_mut().set_target("/a").unwrap();
    call.send(Body::Empty, &queue);
    assert!(call.poll_event(&mut poll_cx()).is_pending());
    let engine = queue.1.borrow_mut().pop().unwrap();
    assert_eq!(engine.request().target().as_str(), "/a");
    engine.put_interim(StatusCode::new(103).unwrap(), FieldMap::default());
    engine.put_head(&mut head(StatusCode::NOT_FOUND), Some(3), false);
    assert!(
        matches!(call.poll_event(&mut poll_cx()), Poll::Ready(Ok(CallEvent::Interim(status, _))) if status.as_u16() == 103)
    );
    assert!(matches!(call.poll_event(&mut poll_cx()), Poll::Ready(Ok(CallEvent::Head { tunnel: false }))));
    assert_eq!(call.head().status(), StatusCode::NOT_FOUND);
    let mut body = call.into_body();
    assert_eq!(body.len(), Some(3));
    engine.mailbox().push(Frame::Chunk(Chunk::from_static(b"abc")));
    engine.mailbox().complete();
    drop(engine);
    assert!(
        matches!(body.poll_frame(&mut poll_cx()), Poll::Ready(Some(Ok(Frame::Chunk(chunk)))) if chunk.as_slice() == b"abc")
    );
    assert!(matches!(body.poll_frame(&mut poll_cx()), Poll::Ready(None)));
    assert_eq!(queue.calls().pooled_len(), 0);
    drop(body);
    assert_eq!(queue.calls().pooled_len(), 1);
}

// Dropping the engine's handle before the end of the response is a fault of the call, or a truncated body.
#[test]
fn a_call_fails_when_the_engine_drops_it() {
    let queue = queue();
    let call = queue.calls().take();
    call.send(Body::Empty, &queue);
    queue.1.borrow_mut().clear();
    assert!(matches!(call.poll_event(&mut poll_cx()), Poll::Ready(Err(CallError::Closed))));

    let call = queue.calls().take();
    call.send(Body::Empty, &queue);
    let engine = queue.1.borrow_mut().pop().unwrap();
    engine.put_head(&mut head(StatusCode::OK), None, false);
    drop(engine);
    let mut body = call.into_body();
    assert!(matches!(body.poll_frame(&mut poll_cx()), Poll::Ready(Some(Err(BodyError::PeerGone)))));
}

#[test]
fn a_dropped_call_is_cancelled() {
    let queue = queue();
    let call = queue.calls().take();
    call.send(Body::Chunk(Chunk::from_static(b"x")), &queue);
    let engine = queue.1.borrow_mut().pop().unwrap();
    assert!(!engine.is_given_up());
    drop(call);
    assert!(engine.is_given_up());
    assert_eq!(queue.calls().pooled_len(), 0, "the engine still holds it");
    drop(engine);
    assert_eq!(queue.calls().pooled_len(), 1);
}

/// Transforms any response body to an empty one.
struct Nothing;

impl BodyTransform for Nothing {
    fn poll_frame(&mut self, _: &Call, _: &mut PollContext<'_>) -> Poll<Option<Result<Frame, BodyError>>> {
        Poll::Ready(None)
    }

    fn bytes_left(&self) -> Option<u64> {
        Some(0)
    }
}

// The transformed body replaces the original one: frames, length and end.
#[test]
fn a_replaced_body_is_read() {
    let queue = queue();
    let call = queue.calls().take();
    call.send(Body::Empty, &queue);
    let engine = queue.1.borrow_mut().pop().unwrap();
    engine.put_head(&mut head(StatusCode::OK), Some(3), false);
    engine.mailbox().push(Frame::Chunk(Chunk::from_static(b"abc")));
    let polled = call.poll_content(&mut poll_cx());
    assert!(matches!(polled, Poll::Ready(Some(Ok(Frame::Chunk(chunk)))) if chunk.as_slice() == b"abc"));
    call.transform_body(Box::new(Nothing));
    let mut body = call.into_body();
    assert!(body.is_over() && body.len() == Some(0));
    assert!(matches!(body.poll_frame(&mut poll_cx()), Poll::Ready(None)));
}

// A dirty test: a call on a used record equals one on a fresh record.
#[test]
fn a_reused_record_is_cleared() {
    let queue = queue();
    let call = queue.calls().take();
    call.request_mut().set_target("/old").unwrap();
    call.request_mut().fields_mut().append(names::HOST, FieldValue::from_static("old"));
    call.send(Body::Chunk(Chunk::from_static(b"old")), &queue);
    let engine = queue.1.borrow_mut().pop().unwrap();
    engine.put_interim(StatusCode::new(103).unwrap(), FieldMap::default());
    engine.put_head(&mut head(StatusCode::NOT_FOUND), Some(9), true);
    engine.set_remote(([127, 0, 0, 1], 1).into());
    engine.mailbox().push(Frame::Chunk(Chunk::from_static(b"old")));
    engine.mailbox().fail(BodyError::Malformed);
    call.transform_body(Box::new(Nothing));
    drop((call, engine));
    assert_eq!(queue.calls().pooled_len(), 1);

    let call = queue.calls().take();
    assert_eq!(queue.calls().pooled_len(), 0);
    assert_eq!((call.request().target().as_str(), call.request().fields().len()), ("", 0));
    assert_eq!((call.head().fields().len(), call.remote()), (0, None));
    assert!(call.poll_event(&mut poll_cx()).is_pending());
    call.send(Body::Empty, &queue);
    let engine = queue.1.borrow_mut().pop().unwrap();
    assert!(!engine.is_given_up() && !engine.is_headed());
    assert!(matches!(engine.take_body(), Some(Body::Empty)));
    let mut body = call.into_body();
    assert_eq!(body.len(), None);
    assert!(body.poll_frame(&mut poll_cx()).is_pending());
}

struct CallCount(Cell<i32>);

impl RunningCallCounter for CallCount {
    fn begin(&self) {
        self.0.set(self.0.get() + 1);
    }

    fn end(&self) {
        self.0.set(self.0.get() - 1);
    }
}

#[test]
fn a_call_counts_until_its_response_is_dropped() {
    let queue = queue();
    let (count, other) = (Rc::new(CallCount(Cell::new(0))), Rc::new(CallCount(Cell::new(0))));
    let call = queue.calls().take();
    call.set_counter(count.clone());
    call.send(Body::Empty, &queue);
    let engine = queue.1.borrow_mut().pop().unwrap();
    engine.set_version(Version::Http2);
    assert_eq!(call.version(), Version::Http2);
    engine.put_head(&mut head(StatusCode::OK), Some(0), false);
    engine.mailbox().complete();
    call.set_counter(other.clone());
    assert_eq!((count.0.get(), other.0.get()), (0, 1), "the second tally replaces the first");
    drop(engine);
    let body = call.into_body();
    assert_eq!(other.0.get(), 1);
    drop(body);
    assert_eq!(other.0.get(), 0);
    let call = queue.calls().take();
    assert_eq!(call.version(), Version::Http11);
    drop(call);
    assert_eq!((count.0.get(), other.0.get()), (0, 0), "a pooled record has no tally");
}
