//! Runs exchanges of a plan on a fake worker.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context as PollContext, Wake, Waker};
use std::time::Duration;

use causeway_message::StatusCode;
use causeway_pipeline::build::ServerSpec;
use causeway_pipeline::{
    Arrival, Build, BuildError, Context, Ending, Generation, Outcome, Plan, Registry, ServerId, Spare, Verdict, Worker,
    route,
};
use serde_json::Value;

use crate::answer::{Reader, TestResponse};
use crate::request::{BodyEnding, Request};
use crate::worker::FakeWorker;

#[derive(Default)]
struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A plan of one server on a fake worker. As in the engine, requests reuse the storage of earlier ones.
pub struct Kit {
    worker: Rc<FakeWorker>,
    vacant: Rc<Generation>,
    generation: Rc<Generation>,
    spares: Vec<Spare>,
    woken: Arc<Flag>,
    waker: Waker,
}

impl Kit {
    /// Builds a kit for these routes.
    ///
    /// # Panics
    /// When the routes cannot be built.
    #[track_caller]
    pub fn new(registry: &Registry, routes: &Value) -> Self {
        Self::with_errors(registry, routes, &Value::Null)
    }

    /// Builds a kit for these routes and error routes (`null`: no error routes).
    ///
    /// # Panics
    /// When the routes cannot be built.
    #[track_caller]
    pub fn with_errors(registry: &Registry, routes: &Value, errors: &Value) -> Self {
        match Self::build(registry, routes, errors) {
            Ok(kit) => kit,
            Err(error) => panic!("{error}"),
        }
    }

    /// Builds a kit for these routes and error routes, or returns the mistake in them.
    ///
    /// # Errors
    /// Those of the build.
    pub fn build(registry: &Registry, routes: &Value, errors: &Value) -> Result<Self, BuildError> {
        Self::of(registry, &spec(routes, errors))
    }

    /// Builds a kit for this server, or returns the mistake in it.
    ///
    /// # Errors
    /// Those of the build.
    pub fn of(registry: &Registry, server: &ServerSpec<'_>) -> Result<Self, BuildError> {
        let worker = FakeWorker::new();
        let generation = generation(registry, server, &worker, None)?;
        Ok(Self::on(worker, generation))
    }

    /// Builds a kit for a plan; requests go to the plan's first server.
    pub fn of_plan(plan: Plan) -> Self {
        let worker = FakeWorker::new();
        let plan_worker: Rc<dyn Worker> = worker.clone();
        Self::on(worker, Generation::new(Arc::new(plan), &plan_worker, None))
    }

    fn on(worker: Rc<FakeWorker>, generation: Rc<Generation>) -> Self {
        let woken = Arc::new(Flag::default());
        let waker = Waker::from(Arc::clone(&woken));
        Self { worker, vacant: Generation::vacant(), generation, spares: Vec::new(), woken, waker }
    }

    /// Replaces the plan. The worker, the storage and states kept across reloads stay.
    ///
    /// # Panics
    /// When the new plan cannot be built.
    #[track_caller]
    pub fn reload(&mut self, registry: &Registry, routes: &Value, errors: &Value) {
        match generation(registry, &spec(routes, errors), &self.worker, Some(&self.generation)) {
            Ok(generation) => self.replace(generation),
            Err(error) => panic!("{error}"),
        }
    }

    /// Replaces the plan, as [`reload`](Self::reload).
    pub fn reload_plan(&mut self, plan: Plan) {
        let worker: Rc<dyn Worker> = self.worker.clone();
        self.replace(Generation::new(Arc::new(plan), &worker, Some(&self.generation)));
    }

    fn replace(&mut self, generation: Rc<Generation>) {
        self.generation.plan().set_replaced(self.worker.now());
        self.generation = generation;
    }

    /// Returns the worker, to control its clock, jobs and calls.
    pub fn worker(&self) -> &Rc<FakeWorker> {
        &self.worker
    }

    /// Drops the storage of earlier requests, so that the next request uses fresh storage.
    pub fn forget_storage(&mut self) {
        self.spares.clear();
    }

    /// Sends a request and reads its response to the end. While the exchange waits, runs queued jobs and spawned tasks,
    /// then advances the clock to the next deadline.
    ///
    /// # Panics
    /// When the exchange waits and no job, task or deadline is left.
    #[track_caller]
    pub fn send(&mut self, request: &Request) -> TestResponse {
        match self.send_pending(request) {
            Ok(answer) => answer,
            Err(pending) => pending.finish(self),
        }
    }

    /// Sends a request; `Err` with the exchange when it waits.
    ///
    /// # Errors
    /// Not a failure: the waiting exchange.
    #[track_caller]
    pub fn send_pending(&mut self, request: &Request) -> Result<TestResponse, Pending> {
        let mut cx = self.prepare(request);
        let verdict = route::run(&mut cx);
        let pending = Pending { cx, is_head: request.is_head() };
        match verdict {
            Verdict::Waiting => Err(pending),
            verdict => Ok(pending.answer(self, verdict)),
        }
    }

    /// Runs a request with the least overhead, to count allocations: prepares it, runs it, drops the response unread,
    /// and recycles the storage.
    ///
    /// # Panics
    /// When the exchange waits and no job, task or deadline is left.
    #[track_caller]
    pub fn run(&mut self, request: &Request) {
        let mut cx = self.prepare(request);
        let mut verdict = route::run(&mut cx);
        while let Verdict::Waiting = verdict {
            verdict = self.poll(&mut cx);
        }
        drop(verdict);
        self.spares.push(cx.recycle());
    }

    /// Runs a request and returns the verdict for the engine, with the content unread. The storage is not reused.
    ///
    /// # Panics
    /// When the exchange waits and no job, task or deadline is left.
    #[track_caller]
    pub fn verdict(&mut self, request: &Request) -> Verdict {
        let mut cx = self.prepare(request);
        let mut verdict = route::run(&mut cx);
        while let Verdict::Waiting = verdict {
            verdict = self.poll(&mut cx);
        }
        verdict
    }

    fn prepare(&mut self, request: &Request) -> Context {
        let mut spare = self.spares.pop().unwrap_or_else(|| {
            let worker: Rc<dyn Worker> = self.worker.clone();
            Spare::new(worker, Rc::clone(&self.vacant))
        });
        request.fill(spare.head_mut());
        let arrival = Arrival {
            ends: request.ends.clone(),
            scheme: request.scheme,
            server: ServerId::FIRST,
            at: self.worker.now(),
            upgrade: request.upgrade,
            tls: request.tls.clone(),
        };
        let cx = spare.prepare(arrival, &self.generation);
        for frame in request.frames() {
            cx.mailbox().push(frame);
        }
        match request.ending {
            BodyEnding::Complete => cx.mailbox().complete(),
            BodyEnding::Failed(fault) => cx.mailbox().fail(fault),
            BodyEnding::Open => {}
        }
        cx
    }

    /// Polls an exchange. When it still waits, runs its jobs, tasks or timers before returning.
    #[track_caller]
    fn poll(&self, cx: &mut Context) -> Verdict {
        let verdict = route::poll(cx, &mut PollContext::from_waker(&self.waker));
        if let Verdict::Waiting = verdict {
            self.make_progress();
        }
        verdict
    }

    /// Makes progress possible: runs jobs and tasks; without any, advances the clock to the next deadline.
    #[track_caller]
    fn make_progress(&self) {
        // The clock moves only when nothing else can make progress, so that timers never overtake ready work.
        let ran = self.worker.run_jobs() > 0;
        self.worker.drive_spawned();
        let woken = self.woken.0.swap(false, Ordering::Relaxed);
        if !ran && !woken && !self.worker.advance_to_next() {
            panic!("no job, task or deadline can wake the exchange");
        }
    }
}

/// A waiting exchange.
pub struct Pending {
    cx: Context,
    is_head: bool,
}

impl Pending {
    /// Returns the exchange's context.
    pub fn context(&self) -> &Context {
        &self.cx
    }

    /// Polls the exchange once; `Err` with itself when it still waits.
    ///
    /// # Errors
    /// Not a failure: the waiting exchange.
    #[track_caller]
    pub fn poll(mut self, kit: &mut Kit) -> Result<TestResponse, Self> {
        match route::poll(&mut self.cx, &mut PollContext::from_waker(&kit.waker)) {
            Verdict::Waiting => Err(self),
            verdict => Ok(self.answer(kit, verdict)),
        }
    }

    /// Returns whether the exchange was woken since the last call, and resets it.
    pub fn take_woken(&self, kit: &Kit) -> bool {
        kit.woken.0.swap(false, Ordering::Relaxed)
    }

    /// Runs jobs, tasks and timers until the response is complete, and returns it.
    ///
    /// # Panics
    /// When the exchange waits and no job, task or deadline is left.
    #[track_caller]
    pub fn finish(mut self, kit: &mut Kit) -> TestResponse {
        loop {
            match kit.poll(&mut self.cx) {
                Verdict::Waiting => {}
                verdict => return self.answer(kit, verdict),
            }
        }
    }

    /// Ends the exchange as for a disconnected peer. Recycling its storage drops the wait.
    pub fn cancel(self, kit: &mut Kit) {
        self.end(kit, None, 0, Ending::PeerGone);
    }

    #[track_caller]
    fn answer(mut self, kit: &mut Kit, verdict: Verdict) -> TestResponse {
        let mut answer = TestResponse { interims: self.cx.take_interims().collect(), ..TestResponse::default() };
        let Verdict::Respond(response) = verdict else {
            answer.aborted = true;
            self.end(kit, None, 0, Ending::Aborted);
            return answer;
        };
        answer.recorded = self.cx.is_recorded();
        self.cx.response_mut().set_status(response.status);
        answer.status = response.status.as_u16();
        answer.fields = self
            .cx
            .response()
            .sendable()
            .map(|line| (line.name.as_str().to_owned(), String::from_utf8_lossy(line.value).into_owned()))
            .collect();
        // Before the body is read, as an engine computes Content-Length.
        answer.length = response.body.len();
        let mut reader = Reader::new(response.body);
        if !self.is_head && !is_bare(response.status) {
            let mut poll_cx = PollContext::from_waker(&kit.waker);
            while reader.poll(&mut answer, &mut poll_cx).is_pending() {
                kit.make_progress();
            }
        }
        drop(reader);
        let ending = if answer.broken.is_some() { Ending::BodyFailed } else { Ending::Complete };
        let sent = answer.body.len() as u64;
        self.end(kit, Some(response.status), sent, ending);
        answer
    }

    fn end(self, kit: &mut Kit, status: Option<StatusCode>, sent: u64, ending: Ending) {
        let read = self.cx.mailbox().bytes_read();
        let outcome = Outcome { status, sent, received: read, read, took: Duration::ZERO, ending };
        route::end(&self.cx, &outcome);
        kit.spares.push(self.cx.recycle());
    }
}

/// Whether a response has no content. A 101 has none either, but the tunnel's bytes follow it.
fn is_bare(status: StatusCode) -> bool {
    status.forbids_content() && status != StatusCode::SWITCHING_PROTOCOLS
}

/// Describes a server; `errors` may be null for no error routes.
fn spec<'v>(routes: &'v Value, errors: &'v Value) -> ServerSpec<'v> {
    let errors = (!errors.is_null()).then_some(errors);
    ServerSpec { errors, ..ServerSpec::new("srv0", routes) }
}

fn generation(
    registry: &Registry,
    server: &ServerSpec<'_>,
    worker: &Rc<FakeWorker>,
    before: Option<&Generation>,
) -> Result<Rc<Generation>, BuildError> {
    let mut build = Build::new(registry);
    build.server(server)?;
    let worker: Rc<dyn Worker> = worker.clone();
    Ok(Generation::new(Arc::new(build.finish()), &worker, before))
}
