//! `request_buffers` and `response_buffers`: bodies are read into memory before they are forwarded.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context as PollContext, Poll, ready};

use causeway_message::{Chunk, Method};
use causeway_pipeline::upstream::BodyTransform;
use causeway_pipeline::{BodyError, Build, BuildError, Call, Context, Fault, Frame, ReadBody, ReadEnd, Step};

use super::Local;
use super::attempt::PendingCall;
use super::switch::Switch;

/// Bytes of a body that are kept in memory with the setting -1 (`unlimited`). A longer one is forwarded as it arrives,
/// after as many bytes.
// DEVIATES Caddy: it has no bound.
const UNLIMITED_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Reads one of the two options: bytes, or -1; `None` for 0.
pub(super) fn read_option(key: &str, written: i64, build: &mut Build<'_>) -> Result<Option<usize>, BuildError> {
    match usize::try_from(written) {
        Ok(0) => Ok(None),
        Ok(bytes) => Ok(Some(bytes)),
        Err(_) if written == -1 => Ok(Some(UNLIMITED_BYTES_MAX)),
        Err(_) => build.at(key, |build| Err(build.refuse(written.to_string(), "a number of bytes, or -1"))),
    }
}

/// Reads the request's body, and then continues with `then`. `None` if there is nothing to read.
pub(super) fn request(cx: &mut Context, local: &Rc<Local>, then: fn(&mut Context, Rc<Local>) -> Step) -> Option<Step> {
    let bytes_max = local.plan.request_buffers?;
    // The content of a tunnel has no end.
    let is_tunnel = !matches!(Switch::of(cx, &local.plan), Ok(Switch::None));
    if is_tunnel || local.plan.drops_body || cx.body_len() == Some(0) {
        return None;
    }
    let (body, local) = (cx.take_body()?, Rc::clone(local));
    Some(cx.wait(ReadBody::new(body, bytes_max), move |cx, read| match read.end {
        ReadEnd::Broken(fault) => Step::Fail(Fault::from_body_error(fault)),
        ReadEnd::Whole | ReadEnd::Longer(..) => {
            cx.put_body_back(read);
            then(cx, local)
        }
    }))
}

/// Returns whether the response's content is to be read first.
pub(super) fn is_for_answer(cx: &Context, call: &Call) -> bool {
    let is_without_content =
        cx.head().method() == Method::Head || matches!(call.head().status().as_u16(), 101 | 204 | 304);
    !is_without_content && call.content_len() != Some(0)
}

/// Reads the content of a call's response.
pub(super) struct AnswerReader {
    pending: Option<(Call, PendingCall)>,
    bytes: Vec<u8>,
    bytes_max: usize,
}

impl AnswerReader {
    pub(super) fn new(call: Call, pending: PendingCall, bytes_max: usize) -> Self {
        Self { pending: Some((call, pending)), bytes: Vec::new(), bytes_max }
    }
}

impl Future for AnswerReader {
    type Output = (Call, PendingCall, Result<(), BodyError>);

    fn poll(mut self: Pin<&mut Self>, poll_cx: &mut PollContext<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let mut frames = VecDeque::new();
        let (mut fault, mut is_whole) = (Ok(()), false);
        loop {
            let (call, _) = this.pending.as_ref().expect("not polled after its end");
            match ready!(call.poll_content(poll_cx)) {
                None => is_whole = true,
                Some(Err(broken)) => fault = Err(broken),
                Some(Ok(Frame::Chunk(chunk))) if this.bytes.len() + chunk.len() <= this.bytes_max => {
                    // A copy, as for requests: the chunks would pin their blocks.
                    this.bytes.extend_from_slice(chunk.as_slice());
                    continue;
                }
                // Trailers are the last frame.
                Some(Ok(frame)) => frames.push_back(frame),
            }
            break;
        }
        if !this.bytes.is_empty() {
            frames.push_front(Frame::Chunk(Chunk::from(std::mem::take(&mut this.bytes))));
        }
        let (call, pending) = this.pending.take().expect("it was there");
        let rest = if is_whole { Some(0) } else { call.content_len() };
        call.transform_body(Box::new(Buffered { frames, rest, is_whole }));
        Poll::Ready((call, pending, fault))
    }
}

/// A response's content whose beginning was read before.
struct Buffered {
    frames: VecDeque<Frame>,
    /// Bytes of content after `frames`, if known.
    rest: Option<u64>,
    is_whole: bool,
}

impl BodyTransform for Buffered {
    fn poll_frame(&mut self, call: &Call, poll_cx: &mut PollContext<'_>) -> Poll<Option<Result<Frame, BodyError>>> {
        if let Some(frame) = self.frames.pop_front() {
            return Poll::Ready(Some(Ok(frame)));
        }
        if self.is_whole {
            return Poll::Ready(None);
        }
        let frame = ready!(call.poll_content(poll_cx));
        match &frame {
            Some(Ok(Frame::Chunk(chunk))) => {
                self.rest = self.rest.map(|rest| rest.saturating_sub(chunk.len() as u64));
            }
            None => (self.is_whole, self.rest) = (true, Some(0)),
            Some(_) => {}
        }
        Poll::Ready(frame)
    }

    fn bytes_left(&self) -> Option<u64> {
        self.frames.iter().try_fold(self.rest?, |sum, frame| match frame {
            Frame::Chunk(chunk) => Some(sum + chunk.len() as u64),
            // A response with a length has no trailers.
            Frame::Trailers(_) => None,
        })
    }

    fn is_over(&self) -> bool {
        self.is_whole && self.frames.is_empty()
    }
}
