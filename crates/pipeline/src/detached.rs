//! Exchanges without a client: a request that the server repeats for itself.
//!
//! The repeated request takes the server's routes from their start, as the client's request did. Its response is read
//! to its end; handlers on the way may keep it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use causeway_message::{Chunk, Head, StatusCode, names};

use crate::body::{BodyReader, Frame};
use crate::context::{Arrival, Context, Spare};
use crate::outcome::{Ending, Outcome};
use crate::route::{self, Generation, Verdict};
use crate::worker::Sleep;

/// How long a repeated request may take.
const EXCHANGE_TIMEOUT: Duration = Duration::from_secs(60);
/// Frames of content that are read before other tasks of the worker have their turn. A file in the page cache never
/// makes its reader wait.
const FRAMES_PER_POLL: usize = 8;

impl Context {
    /// Prepares the request that arrived for another run, with the changes of `edit` and without content. `None` for a
    /// request that was carried in another one. [`detach`] runs it.
    pub fn repeat(&self, edit: impl FnOnce(&mut Head)) -> Option<Self> {
        if self.carried().is_some() {
            return None;
        }
        let mut spare = Spare::new(Rc::clone(self.worker()), Generation::vacant());
        spare.head_mut().copy_from(self.original());
        let head = spare.head_mut();
        for name in [names::CONTENT_LENGTH, names::TRANSFER_ENCODING, names::EXPECT] {
            head.fields_mut().remove(name);
        }
        edit(head);
        let arrival = Arrival { at: self.worker().now(), upgrade: false, ..self.arrival().clone() };
        let mut cx = spare.prepare(arrival, self.generation());
        // The client's request has the access record.
        cx.set_recorded(false);
        cx.mailbox().complete();
        Some(cx)
    }
}

/// Runs an exchange without a client, as a task of its worker. Its response is dropped.
pub fn detach(cx: Context) {
    let worker = Rc::clone(cx.worker());
    worker.spawn(Box::pin(async move {
        run(cx, |_| true).await;
    }));
}

/// Runs an exchange without a client and returns the status and the content of its response.
///
/// # Errors
/// How the exchange ended, if that was not with a whole response of at most `bytes_max` bytes.
pub async fn fetch(cx: Context, bytes_max: usize) -> Result<(StatusCode, Vec<u8>), Ending> {
    let mut content = Vec::new();
    let outcome = run(cx, |chunk| {
        let fits = content.len() + chunk.len() <= bytes_max;
        if fits {
            content.extend_from_slice(chunk.as_slice());
        }
        fits
    })
    .await;
    match (outcome.ending, outcome.status) {
        (Ending::Complete, Some(status)) => Ok((status, content)),
        (Ending::Complete, None) => Err(Ending::Aborted),
        (ending, _) => Err(ending),
    }
}

/// An exchange without a client. Dropping it calls the end hooks of its handlers, also if its response is not complete.
struct Detached {
    cx: Context,
    outcome: Outcome,
}

impl Drop for Detached {
    fn drop(&mut self) {
        let Self { cx, outcome } = self;
        cx.cancel_wait();
        outcome.took = cx.worker().now().saturating_duration_since(cx.arrival().at);
        // This may run while a panic unwinds, when a second panic would abort the process.
        drop(catch_unwind(AssertUnwindSafe(|| route::end(cx, outcome))));
    }
}

/// Runs an exchange; `sink` gets the content of its response, and returns whether it takes more.
async fn run(cx: Context, mut sink: impl FnMut(Chunk) -> bool) -> Outcome {
    let worker = Rc::clone(cx.worker());
    let mut end = Some(Sleep::until(Rc::clone(&worker), worker.now() + EXCHANGE_TIMEOUT));
    // The outcome of an exchange that is dropped before its end.
    let outcome =
        Outcome { status: None, sent: 0, received: 0, read: 0, took: Duration::ZERO, ending: Ending::PeerGone };
    let mut detached = Detached { cx, outcome };
    let mut phase = DetachedPhase::New;
    std::future::poll_fn(|poll_cx| {
        let Detached { cx, outcome } = &mut detached;
        if Sleep::is_over(&mut end, poll_cx) {
            outcome.ending = Ending::TimedOut;
            return Poll::Ready(());
        }
        // A panic may leave the context in any state: only its end follows.
        let step = AssertUnwindSafe(|| {
            let mut frames = 0;
            loop {
                let verdict = match &mut phase {
                    DetachedPhase::New => route::run(cx),
                    DetachedPhase::Waiting => route::poll(cx, poll_cx),
                    DetachedPhase::Reading(_) if frames == FRAMES_PER_POLL => {
                        poll_cx.waker().wake_by_ref();
                        return Poll::Pending;
                    }
                    DetachedPhase::Reading(body) => match body.poll_frame(&worker, poll_cx) {
                        Poll::Pending => return Poll::Pending,
                        Poll::Ready(None) => return Poll::Ready(Ending::Complete),
                        Poll::Ready(Some(Err(_))) => return Poll::Ready(Ending::BodyFailed),
                        Poll::Ready(Some(Ok(Frame::Chunk(chunk)))) => {
                            outcome.sent += chunk.len() as u64;
                            if !sink(chunk) {
                                return Poll::Ready(Ending::BodyFailed);
                            }
                            frames += 1;
                            continue;
                        }
                        Poll::Ready(Some(Ok(Frame::Trailers(_)))) => continue,
                    },
                };
                match verdict {
                    // A new wait is polled at once, so that it registers the task.
                    Verdict::Waiting if matches!(phase, DetachedPhase::New) => phase = DetachedPhase::Waiting,
                    Verdict::Waiting => return Poll::Pending,
                    Verdict::Abort => return Poll::Ready(Ending::Aborted),
                    Verdict::Respond(response) => {
                        outcome.status = Some(response.status);
                        phase = DetachedPhase::Reading(BodyReader::from(response.body));
                    }
                }
            }
        });
        let ending = match catch_unwind(step) {
            Ok(Poll::Pending) => return Poll::Pending,
            Ok(Poll::Ready(ending)) => ending,
            Err(_) => {
                tracing::error!("a handler panicked; its exchange ends");
                Ending::Panicked
            }
        };
        outcome.ending = ending;
        Poll::Ready(())
    })
    .await;
    detached.outcome
}

enum DetachedPhase {
    New,
    Waiting,
    Reading(BodyReader),
}
