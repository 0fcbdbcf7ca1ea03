//! The frozen plan and the one interpreter that runs it.
//!
//! A plan is flat tables: route lists, routes, handlers. A request walks it with a small explicit stack (`Flow`):
//! a list's routes in order, each matched when the chain reaches it; a matching route's handlers in order; nested lists
//! by [`Step::Call`]. The answer walks back over the handlers that were entered. Caddy's rules: a route that says
//! `terminal` ends the chain; of the routes of one group only the first that matches runs; what nobody answers is an
//! empty 200.
//!
//! - `index`: which routes of a long list may match; `refusal`: what none is asked about
//! - `marks`: what the profiler knows it all by

mod index;
mod marks;
mod refusal;

use std::any::{Any, TypeId};
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context as Task, Poll};

use causeway_message::StatusCode;
use progress::Point;

use crate::context::{ComputedId, Context, VarId};
use crate::handler::{Fault, Handler, Matched, Matcher, Reason, Response, Step, Stop};
use crate::outcome::Outcome;
use crate::trust::{Confusable, Trust};
use crate::whole_body;
use crate::worker::Worker;

pub(crate) use index::Index;
pub(crate) use marks::Marks;

/// Route lists that may be open inside each other: far more than people nest, so that it only ends routes that invoke
/// themselves.
pub const CALLS_MAX: usize = 64;
/// Handlers that one exchange may enter: each `header` and `vars` of a site is one.
pub const ENTERED_MAX: usize = 4096;
/// Of these, how many storage has room for.
const KEPT_ENTERED_MAX: usize = 1024;
/// Words of group bits that storage keeps.
const KEPT_GROUP_WORDS_MAX: usize = 2048;

/// A route list of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RoutesId(pub(crate) u32);

/// A server of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ServerId(pub(crate) u16);

impl ServerId {
    /// The first server.
    pub const FIRST: Self = Self(0);
}

/// A handler of a plan.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct HandlerId(u32);

/// The handler that took the exchange's request out of the peer's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Carrier(HandlerId);

/// Placeholders of a plan whose names begin alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FamilyId(pub(crate) u32);

/// A group of a plan, of whose routes one runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct GroupId(pub(crate) u32);

/// All matchers of a set match.
pub(crate) type MatcherSet = Vec<Box<dyn Matcher>>;

pub(crate) struct Route {
    /// One set is enough; no set at all matches everything.
    pub(crate) matchers: Vec<MatcherSet>,
    pub(crate) handlers: Range<u32>,
    pub(crate) group: Option<GroupId>,
    pub(crate) terminal: bool,
    /// A matcher names the request's body.
    pub(crate) reads_body: bool,
}

/// A route list.
#[derive(Default)]
pub(crate) struct List {
    pub(crate) routes: Vec<Route>,
    /// Of a long list: which routes may match at all.
    pub(crate) index: Option<Index>,
}

pub(crate) struct Link {
    pub(crate) handler: Box<dyn Handler>,
    pub(crate) marks: Marks,
    /// It names the request's body.
    pub(crate) reads_body: bool,
}

/// A server's entrance to the plan.
pub(crate) struct Server {
    pub(crate) name: String,
    pub(crate) routes: RoutesId,
    pub(crate) errors: Option<RoutesId>,
    pub(crate) access_log: bool,
    pub(crate) is_progress: bool,
    pub(crate) trust: Option<Trust>,
    pub(crate) confusable: Confusable,
    pub(crate) strict_sni_host: bool,
}

/// Appends a text; false when it is not known.
type Computed = Box<dyn Fn(&mut Context, &mut Vec<u8>) -> bool + Send + Sync>;
type StateMaker = Box<dyn Fn(&Rc<dyn Worker>) -> Rc<dyn Any> + Send + Sync>;

/// What a configuration became: frozen, shared by all workers, free of names.
#[derive(Default)]
pub struct Plan {
    pub(crate) servers: Vec<Server>,
    pub(crate) lists: Vec<List>,
    pub(crate) links: Vec<Link>,
    pub(crate) groups_len: u32,
    pub(crate) states: Vec<StateMaker>,
    /// Those of the states that a plan which takes over may ask for again.
    pub(crate) kept_states: BTreeMap<(TypeId, String), usize>,
    pub(crate) computed: Vec<Computed>,
    pub(crate) families: Vec<Vec<(Box<str>, VarId)>>,
}

impl Plan {
    /// Appends a text that is worked out when it is asked for; false when it is not known.
    pub(crate) fn compute(&self, id: ComputedId, cx: &mut Context, out: &mut Vec<u8>) -> bool {
        self.computed[id.0 as usize](cx, out)
    }

    /// The placeholders of a family that the plan names: what follows the family's prefix, and the slot.
    pub fn family(&self, id: FamilyId) -> &[(Box<str>, VarId)] {
        &self.families[id.0 as usize]
    }

    /// A server's name in the configuration.
    pub fn server_name(&self, server: ServerId) -> &str {
        &self.servers[usize::from(server.0)].name
    }

    pub(crate) fn server(&self, server: ServerId) -> Option<&Server> {
        self.servers.get(usize::from(server.0))
    }

    pub(crate) fn trust(&self, server: ServerId) -> Option<&Trust> {
        self.server(server)?.trust.as_ref()
    }

    /// Whether requests to this server leave an access record.
    pub fn access_log(&self, server: ServerId) -> bool {
        self.server(server).is_some_and(|server| server.access_log)
    }

    /// Whether answers of this server are what the program is there for; those of none are.
    pub fn is_progress(&self, server: ServerId) -> bool {
        self.server(server).is_none_or(|server| server.is_progress)
    }

    fn link(&self, id: HandlerId) -> &Link {
        &self.links[id.0 as usize]
    }
}

/// A worker's state of type `T`, allotted at build.
pub struct StateId<T> {
    index: u32,
    kind: std::marker::PhantomData<fn() -> T>,
}

impl<T> Clone for StateId<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for StateId<T> {}

impl<T> StateId<T> {
    pub(crate) fn new(index: usize) -> Self {
        Self { index: u32::try_from(index).expect("fewer states than handlers"), kind: std::marker::PhantomData }
    }
}

/// A plan on one worker, with that worker's states. Exchanges hold it from their start to their end, so it is freed when
/// the last of them is over.
pub struct Generation {
    // Before the plan, as fields are dropped in order: while a state is left, its plan counts as live.
    states: Vec<Rc<dyn Any>>,
    plan: Arc<Plan>,
}

impl Generation {
    /// Puts the plan on a worker: the states that the generation before it has for it are taken over, the others are made.
    pub fn new(plan: Arc<Plan>, worker: &Rc<dyn Worker>, before: Option<&Self>) -> Rc<Self> {
        let mut kept = vec![None; plan.states.len()];
        if let Some(before) = before {
            for (key, index) in &plan.kept_states {
                kept[*index] = before.plan.kept_states.get(key).map(|index| Rc::clone(&before.states[*index]));
            }
        }
        let states = plan.states.iter().zip(kept).map(|(make, kept)| kept.unwrap_or_else(|| make(worker))).collect();
        Rc::new(Self { states, plan })
    }

    /// A generation without servers, for storage that rests.
    pub fn vacant() -> Rc<Self> {
        Rc::new(Self { states: Vec::new(), plan: Arc::default() })
    }

    /// The plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// This worker's state.
    ///
    /// # Panics
    /// When the id comes from another plan's build.
    pub fn state<T: 'static>(&self, id: StateId<T>) -> &T {
        self.states[id.index as usize].downcast_ref().expect("a state id belongs to the plan that allotted it")
    }
}

/// Where in a list the chain stands.
#[derive(Debug, Clone, Copy)]
struct Place {
    list: RoutesId,
    /// The route to consider when the handlers are through.
    route: u32,
    /// The handlers of the matching route that are still to come.
    next: u32,
    end: u32,
    /// The route was terminal: behind its handlers nothing comes.
    terminal: bool,
}

impl Place {
    fn start(list: RoutesId) -> Self {
        Self { list, route: 0, next: 0, end: 0, terminal: false }
    }
}

/// An exchange's way through the plan so far.
#[derive(Default)]
pub(crate) struct Flow {
    calls: Vec<Place>,
    /// Every handler that was entered, for [`Handler::end`].
    entered: Vec<HandlerId>,
    /// Those of `entered` that the answer has still to pass, by index; popped from the end.
    back: Vec<u16>,
    /// A bit for each group of which a route ran; all clear between exchanges.
    groups: Vec<u64>,
    taken: Vec<GroupId>,
    errors: Option<RoutesId>,
    /// The chain is that of the server's error routes.
    recovers: bool,
    /// Which call a pending wait was made in, and whose.
    direction: Direction,
    current: HandlerId,
    /// Of `entered`, who has its turn on the way back, and who wants to see what a fault comes to.
    left: u16,
    awaits: Option<u16>,
}

#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum Direction {
    #[default]
    In,
    /// In a matcher: no handler is concerned.
    Match,
    Out,
}

impl Flow {
    pub(crate) fn begin(&mut self, plan: &Plan, server: ServerId) {
        let words = plan.groups_len.div_ceil(64) as usize;
        if self.groups.len() < words {
            self.groups.resize(words, 0);
        }
        if let Some(server) = plan.server(server) {
            self.errors = server.errors;
            self.calls.push(Place::start(server.routes));
        }
    }

    pub(crate) fn clear(&mut self) {
        self.calls.clear();
        self.entered.clear();
        self.entered.shrink_to(KEPT_ENTERED_MAX);
        self.back.clear();
        self.back.shrink_to(KEPT_ENTERED_MAX);
        for group in self.taken.drain(..) {
            self.groups[group.0 as usize / 64] = 0;
        }
        if self.groups.len() > KEPT_GROUP_WORDS_MAX {
            self.groups = Vec::new();
        }
        self.errors = None;
        self.awaits = None;
        self.recovers = false;
        self.direction = Direction::In;
    }

    /// The handler that has its turn.
    pub(crate) fn carrier(&self) -> Carrier {
        Carrier(self.current)
    }

    /// The handler that has its turn on the way back sees the answer that the fault comes to.
    pub(crate) fn await_answer(&mut self) {
        if self.direction == Direction::Out {
            self.awaits = Some(self.left);
        }
    }

    fn place(&mut self) -> &mut Place {
        self.calls.last_mut().expect("a list is open while its routes are looked at")
    }

    fn was_taken(&self, group: GroupId) -> bool {
        self.groups[group.0 as usize / 64] & (1 << (group.0 % 64)) != 0
    }

    fn take(&mut self, group: GroupId) {
        self.groups[group.0 as usize / 64] |= 1 << (group.0 % 64);
        self.taken.push(group);
    }
}

/// What the engine does next with an exchange.
#[derive(Debug)]
pub enum Verdict {
    /// Send this answer, with the context's response fields.
    Respond(Response),
    /// Close without an answer.
    Abort,
    /// Poll again when woken.
    Waiting,
}

/// Runs an exchange from its start until it answers, aborts or waits.
pub fn run(cx: &mut Context) -> Verdict {
    let generation = Rc::clone(cx.generation());
    let first = refusal::refusal(cx).map_or(Step::Next, Step::Fail);
    walk(cx, generation.plan(), first)
}

/// Drives an exchange that waits. What is waited for after that is polled too: [`Verdict::Waiting`] from here means that
/// whoever has to wake the exchange knows it.
pub fn poll(cx: &mut Context, task: &mut Task<'_>) -> Verdict {
    loop {
        let generation = Rc::clone(cx.generation());
        let polled = if cx.flow().direction == Direction::Match {
            cx.poll_step(task)
        } else {
            let _within = generation.plan().link(cx.flow().current).marks.enter();
            cx.poll_step(task)
        };
        let Poll::Ready(step) = polled else { return Verdict::Waiting };
        if cx.flow().direction == Direction::In {
            settle(cx, &step);
        }
        match walk(cx, generation.plan(), step) {
            Verdict::Waiting => {}
            verdict => return verdict,
        }
    }
}

/// Tells every handler that was entered that the exchange is over.
pub fn end(cx: &Context, outcome: &Outcome) {
    let plan = cx.generation().plan();
    for id in &cx.flow().entered {
        plan.link(*id).handler.end(cx, outcome);
    }
}

/// The progress point of the route whose handler had the last word on the way in; `None` where there was no handler.
pub fn answered(cx: &Context) -> Option<Point> {
    let last = cx.flow().entered.last()?;
    Some(cx.generation().plan().link(*last).marks.answered)
}

fn walk(cx: &mut Context, plan: &Plan, mut step: Step) -> Verdict {
    loop {
        step = match step {
            Step::Next => match next(cx, plan) {
                Ok(Some(id)) => match enter(cx, plan, id) {
                    Ok(step) => step,
                    Err(fault) => Step::Fail(fault),
                },
                Ok(None) => Step::Respond(Response::empty(unanswered(cx))),
                Err(Stop::Fail(fault)) => Step::Fail(fault),
                Err(Stop::Wait(wait)) => Step::Wait(wait),
            },
            Step::Call(list) => {
                let flow = cx.flow_mut();
                if std::mem::take(&mut flow.direction) == Direction::Out {
                    // Routes called on the way back find the answer; what was left of the way in is over.
                    flow.calls.clear();
                }
                if flow.calls.len() == CALLS_MAX {
                    Step::Fail(too_deep())
                } else {
                    flow.calls.push(Place::start(list));
                    Step::Next
                }
            }
            Step::Respond(response) => match back(cx, plan) {
                Some(link) => {
                    let _within = link.marks.enter();
                    link.handler.leave(cx, response)
                }
                None => return Verdict::Respond(response),
            },
            Step::Fail(fault) => match back(cx, plan) {
                Some(link) => {
                    let _within = link.marks.enter();
                    link.handler.failed(cx, fault)
                }
                None => match recover(cx, fault) {
                    Ok(()) => Step::Next,
                    Err(response) => Step::Respond(response),
                },
            },
            Step::Abort => return Verdict::Abort,
            Step::Wait(_) => return Verdict::Waiting,
        };
        // A handler on the way back has nothing behind it: `Next` there means "as it is", which only `leave` can say.
        if cx.flow().direction == Direction::Out && matches!(step, Step::Next) {
            step = Step::Fail(Fault::status(StatusCode::INTERNAL_SERVER_ERROR));
        }
    }
}

/// Caddy: a request that nothing handles gets an empty 200, a fault that the error routes leave alone its own status.
fn unanswered(cx: &Context) -> StatusCode {
    match cx.fault() {
        Some(fault) if cx.flow().recovers || cx.flow().calls.last().is_some_and(|place| place.terminal) => fault.status,
        _ => StatusCode::OK,
    }
}

/// The handler that the chain comes to next; `None` at its end. A stop leaves the chain where it stood, so that it goes on
/// from there.
fn next(cx: &mut Context, plan: &Plan) -> Result<Option<HandlerId>, Stop> {
    loop {
        let Some(&place) = cx.flow().calls.last() else { return Ok(None) };
        if place.next < place.end {
            if plan.link(HandlerId(place.next)).reads_body {
                read_body(cx)?;
            }
            cx.flow_mut().place().next += 1;
            return Ok(Some(HandlerId(place.next)));
        }
        if place.terminal {
            return Ok(None);
        }
        let list = &plan.lists[place.list.0 as usize];
        let number = match &list.index {
            Some(index) => index.next(place.route, cx),
            None => place.route,
        };
        let Some(route) = list.routes.get(number as usize) else {
            cx.flow_mut().calls.pop();
            continue;
        };
        // Where the chain comes back to if a matcher stops it.
        cx.flow_mut().place().route = number;
        let runs = !route.group.is_some_and(|group| cx.flow().was_taken(group)) && matches(cx, route)?;
        cx.forget_found();
        let flow = cx.flow_mut();
        let place = flow.place();
        place.route = number + 1;
        if runs {
            (place.next, place.end, place.terminal) = (route.handlers.start, route.handlers.end, route.terminal);
            if let Some(group) = route.group {
                flow.take(group);
            }
        }
    }
}

fn matches(cx: &mut Context, route: &Route) -> Matched {
    if route.matchers.is_empty() {
        return Ok(true);
    }
    if route.reads_body {
        read_body(cx)?;
    }
    // Only a matcher can wait from here to the next handler.
    cx.flow_mut().direction = Direction::Match;
    'sets: for set in &route.matchers {
        for matcher in set {
            if !matcher.matches(cx)? {
                continue 'sets;
            }
        }
        return Ok(true);
    }
    Ok(false)
}

fn read_body(cx: &mut Context) -> Result<(), Stop> {
    cx.flow_mut().direction = Direction::Match;
    match whole_body::read(cx) {
        Some(wait) => Err(Stop::Wait(wait)),
        None => Ok(()),
    }
}

fn enter(cx: &mut Context, plan: &Plan, id: HandlerId) -> Result<Step, Fault> {
    let flow = cx.flow_mut();
    if flow.entered.len() == ENTERED_MAX {
        return Err(too_deep());
    }
    flow.back.push(flow.entered.len() as u16);
    flow.entered.push(id);
    (flow.direction, flow.current) = (Direction::In, id);
    let link = plan.link(id);
    let _within = link.marks.enter();
    let step = link.handler.enter(cx);
    settle(cx, &step);
    Ok(step)
}

/// A handler that answers on the way in does not see its own answer come back.
fn settle(cx: &mut Context, step: &Step) {
    if !matches!(step, Step::Next | Step::Call(_) | Step::Wait(_)) {
        cx.flow_mut().back.pop();
    }
}

fn back<'p>(cx: &mut Context, plan: &'p Plan) -> Option<&'p Link> {
    let flow = cx.flow_mut();
    let at = flow.back.pop()?;
    (flow.direction, flow.current, flow.left) = (Direction::Out, flow.entered[usize::from(at)], at);
    Some(plan.link(flow.current))
}

/// Leads a fault into the server's error routes, once. Without such routes it gets its own status; where they fail
/// themselves, the fault that they were to handle keeps its status, as in Caddy.
fn recover(cx: &mut Context, fault: Fault) -> Result<(), Response> {
    let first = cx.fault().map(|fault| fault.status).filter(|_| cx.flow().recovers);
    let status = first.unwrap_or(fault.status);
    cx.set_fault(fault);
    let flow = cx.flow_mut();
    flow.calls.clear();
    flow.direction = Direction::In;
    flow.back.extend(flow.awaits.take());
    match flow.errors.take() {
        Some(list) => {
            flow.recovers = true;
            flow.calls.push(Place::start(list));
            cx.restore_target();
            Ok(())
        }
        None => Err(Response::empty(status)),
    }
}

#[cold]
fn too_deep() -> Fault {
    Fault { status: StatusCode::INTERNAL_SERVER_ERROR, reason: Reason::TooDeep }
}
