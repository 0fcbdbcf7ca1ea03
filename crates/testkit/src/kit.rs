//! A plan on a fake worker, and the exchanges that run on it.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context as Task, Wake, Waker};
use std::time::Duration;

use causeway_message::StatusCode;
use causeway_pipeline::build::ServerSpec;
use causeway_pipeline::{
    Arrival, Build, BuildError, Context, Ending, Generation, Outcome, Plan, Registry, ServerId, Spare, Verdict, Worker,
    route,
};
use serde_json::Value;

use crate::answer::{Answer, Reader};
use crate::request::{BodyEnding, Request};
use crate::worker::FakeWorker;

#[derive(Default)]
struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A plan of one server on a fake worker. Storage of earlier requests serves later ones, as in the engine.
pub struct Kit {
    worker: Rc<FakeWorker>,
    vacant: Rc<Generation>,
    generation: Rc<Generation>,
    spares: Vec<Spare>,
    woken: Arc<Flag>,
    waker: Waker,
}

impl Kit {
    /// A kit of these routes.
    ///
    /// # Panics
    /// When they cannot be built.
    #[track_caller]
    pub fn new(registry: &Registry, routes: &Value) -> Self {
        Self::with_errors(registry, routes, &Value::Null)
    }

    /// A kit of these routes and error routes (`null`: none).
    ///
    /// # Panics
    /// When they cannot be built.
    #[track_caller]
    pub fn with_errors(registry: &Registry, routes: &Value, errors: &Value) -> Self {
        match Self::build(registry, routes, errors) {
            Ok(kit) => kit,
            Err(error) => panic!("{error}"),
        }
    }

    /// A kit of these routes, or what is wrong with them.
    ///
    /// # Errors
    /// Those of the build.
    pub fn build(registry: &Registry, routes: &Value, errors: &Value) -> Result<Self, BuildError> {
        Self::of(registry, &spec(routes, errors))
    }

    /// A kit of this server, or what is wrong with it.
    ///
    /// # Errors
    /// Those of the build.
    pub fn of(registry: &Registry, server: &ServerSpec<'_>) -> Result<Self, BuildError> {
        let worker = FakeWorker::new();
        let generation = generation(registry, server, &worker, None)?;
        Ok(Self::on(worker, generation))
    }

    /// A kit of a plan; requests go to its first server.
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

    /// Puts another plan in place; worker, storage and kept states stay.
    ///
    /// # Panics
    /// When it cannot be built.
    #[track_caller]
    pub fn reload(&mut self, registry: &Registry, routes: &Value, errors: &Value) {
        match generation(registry, &spec(routes, errors), &self.worker, Some(&self.generation)) {
            Ok(generation) => self.generation = generation,
            Err(error) => panic!("{error}"),
        }
    }

    /// The world.
    pub fn worker(&self) -> &Rc<FakeWorker> {
        &self.worker
    }

    /// Throws the storage of earlier requests away: the next request meets fresh storage.
    pub fn forget_storage(&mut self) {
        self.spares.clear();
    }

    /// Sends a request and reads its answer to the end. Whatever it waits for is made to happen: queued jobs run,
    /// spawned ones are driven, then the clock moves to the next deadline.
    ///
    /// # Panics
    /// When it waits for what will never come.
    #[track_caller]
    pub fn send(&mut self, request: &Request) -> Answer {
        match self.send_pending(request) {
            Ok(answer) => answer,
            Err(pending) => pending.finish(self),
        }
    }

    /// Sends a request; `Err` with the exchange when it waits.
    ///
    /// # Errors
    /// Not a failure: the exchange that waits.
    #[track_caller]
    pub fn send_pending(&mut self, request: &Request) -> Result<Answer, Pending> {
        let mut cx = self.prepare(request);
        let verdict = route::run(&mut cx);
        let pending = Pending { cx, is_head: request.is_head() };
        match verdict {
            Verdict::Waiting => Err(pending),
            verdict => Ok(pending.answer(self, verdict)),
        }
    }

    /// The least that a request takes, for counting allocations: prepared, run, its answer dropped unread, recycled.
    ///
    /// # Panics
    /// When it waits for what will never come.
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

    /// What the engine would be told: an answer whose content was not looked at. The storage is not used again.
    ///
    /// # Panics
    /// When it waits for what will never come.
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
            peer: request.peer,
            local: ([192, 0, 2, 80], 80).into(),
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

    /// Polls an exchange; when it was not woken, makes something happen first.
    #[track_caller]
    fn poll(&self, cx: &mut Context) -> Verdict {
        let verdict = route::poll(cx, &mut Task::from_waker(&self.waker));
        if let Verdict::Waiting = verdict {
            self.make_happen();
        }
        verdict
    }

    #[track_caller]
    fn make_happen(&self) {
        let ran = self.worker.run_jobs() > 0;
        self.worker.drive_spawned();
        let woken = self.woken.0.swap(false, Ordering::Relaxed);
        if !ran && !woken && !self.worker.advance_to_next() {
            panic!("the exchange waits for what will never come");
        }
    }
}

/// An exchange that waits.
pub struct Pending {
    cx: Context,
    is_head: bool,
}

impl Pending {
    /// The exchange.
    pub fn context(&self) -> &Context {
        &self.cx
    }

    /// Polls it once; `Err` with itself when it waits on.
    ///
    /// # Errors
    /// Not a failure: the exchange that waits.
    #[track_caller]
    pub fn poll(mut self, kit: &mut Kit) -> Result<Answer, Self> {
        match route::poll(&mut self.cx, &mut Task::from_waker(&kit.waker)) {
            Verdict::Waiting => Err(self),
            verdict => Ok(self.answer(kit, verdict)),
        }
    }

    /// Whether it was woken since this was last asked.
    pub fn was_woken(&self, kit: &Kit) -> bool {
        kit.woken.0.swap(false, Ordering::Relaxed)
    }

    /// Makes happen what it waits for and reads its answer.
    ///
    /// # Panics
    /// When it waits for what will never come.
    #[track_caller]
    pub fn finish(mut self, kit: &mut Kit) -> Answer {
        loop {
            match kit.poll(&mut self.cx) {
                Verdict::Waiting => {}
                verdict => return self.answer(kit, verdict),
            }
        }
    }

    /// The peer is gone: the storage is recycled, and with that the wait dropped.
    pub fn cancel(self, kit: &mut Kit) {
        self.end(kit, None, 0, Ending::PeerGone);
    }

    #[track_caller]
    fn answer(mut self, kit: &mut Kit, verdict: Verdict) -> Answer {
        let mut answer = Answer { informs: self.cx.take_informs().collect(), ..Answer::default() };
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
            .map(|(name, value)| (name.as_str().to_owned(), String::from_utf8_lossy(value).into_owned()))
            .collect();
        answer.length = response.body.len();
        let mut reader = Reader::new(response.body);
        if !self.is_head && !is_bare(response.status) {
            let mut task = Task::from_waker(&kit.waker);
            while reader.poll(&mut answer, &mut task).is_pending() {
                kit.make_happen();
            }
        }
        drop(reader);
        let ending = if answer.broken.is_some() { Ending::BodyFailed } else { Ending::Complete };
        let sent = answer.body.len() as u64;
        self.end(kit, Some(response.status), sent, ending);
        answer
    }

    fn end(self, kit: &mut Kit, status: Option<StatusCode>, sent: u64, ending: Ending) {
        let outcome = Outcome { status, sent, received: 0, took: Duration::ZERO, ending };
        route::end(&self.cx, &outcome);
        kit.spares.push(self.cx.recycle());
    }
}

/// 101 forbids content too, but what follows it is the tunnel's.
fn is_bare(status: StatusCode) -> bool {
    status.forbids_content() && status != StatusCode::SWITCHING_PROTOCOLS
}

/// Without error routes where they are `null`.
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
