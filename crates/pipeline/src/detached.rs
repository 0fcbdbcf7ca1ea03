//! Exchanges without a client: a request that the server repeats for itself.
//!
//! The repeated request takes the server's routes from their start, as the client's request did. Its response is read to
//! its end and dropped; handlers on the way may keep it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use causeway_message::Head;

use crate::body::{BodyReader, Frame};
use crate::context::{Arrival, Context, Spare};
use crate::outcome::{Ending, Outcome};
use crate::route::{self, Generation, Verdict};
use crate::worker::Sleep;

/// The most time that a repeated request may take.
const TIME_MAX: Duration = Duration::from_secs(60);

impl Context {
    /// Prepares the request that arrived for another run, with the changes of `edit` and without content. `None` for a
    /// request that was carried in another one. [`detach`] runs it.
    pub fn repeat(&self, edit: impl FnOnce(&mut Head)) -> Option<Self> {
        if self.carried().is_some() {
            return None;
        }
        let mut spare = Spare::new(Rc::clone(self.worker()), Generation::vacant());
        spare.head_mut().copy_from(self.original());
        edit(spare.head_mut());
        let arrival = Arrival { at: self.worker().now(), upgrade: false, ..self.arrival().clone() };
        let mut cx = spare.prepare(arrival, self.generation());
        // The client's request has the access record.
        cx.set_recorded(false);
        cx.mailbox().complete();
        Some(cx)
    }
}

/// Runs an exchange without a client, as a task of its worker.
pub fn detach(cx: Context) {
    let worker = Rc::clone(cx.worker());
    worker.spawn(Box::pin(run(cx)));
}

async fn run(mut cx: Context) {
    let worker = Rc::clone(cx.worker());
    let mut end = Some(Sleep::until(Rc::clone(&worker), worker.now() + TIME_MAX));
    let mut phase = DetachedPhase::New;
    let mut outcome = Outcome { status: None, sent: 0, received: 0, took: Duration::ZERO, ending: Ending::Complete };
    std::future::poll_fn(|task| {
        if Sleep::is_over(&mut end, task) {
            outcome.ending = Ending::TimedOut;
            return Poll::Ready(());
        }
        // A panic may leave the context in any state: it is dropped below and not used again.
        let step = AssertUnwindSafe(|| {
            loop {
                let verdict = match &mut phase {
                    DetachedPhase::New => route::run(&mut cx),
                    DetachedPhase::Waiting => route::poll(&mut cx, task),
                    DetachedPhase::Reading(body) => match body.poll_frame(&worker, task) {
                        Poll::Pending => return Poll::Pending,
                        Poll::Ready(None) => return Poll::Ready(Ending::Complete),
                        Poll::Ready(Some(Err(_))) => return Poll::Ready(Ending::BodyFailed),
                        Poll::Ready(Some(Ok(Frame::Chunk(chunk)))) => {
                            outcome.sent += chunk.len() as u64;
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
        match catch_unwind(step) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(ending)) => {
                outcome.ending = ending;
                Poll::Ready(())
            }
            Err(_) => {
                tracing::error!("a handler panicked; its exchange ends");
                outcome.ending = Ending::Panicked;
                Poll::Ready(())
            }
        }
    })
    .await;
    cx.cancel_wait();
    outcome.took = worker.now().saturating_duration_since(cx.arrival().at);
    // As above.
    drop(catch_unwind(AssertUnwindSafe(|| route::end(&cx, &outcome))));
}

enum DetachedPhase {
    New,
    Waiting,
    Reading(BodyReader),
}
