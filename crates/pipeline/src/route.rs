//! The frozen plan and the interpreter that runs it.
//!
//! A plan is flat tables: route lists, routes, handlers. A request walks it with a small explicit stack (`Flow`): the
//! routes of a list in order, each matched when the chain reaches it; the handlers of a matching route in order;
//! nested lists by [`Step::Call`]. The response then passes the entered handlers in reverse order. The rules are
//! Caddy's: a `terminal` route ends the chain; of the routes of a group only the first that matches runs; a request
//! that no handler answers gets an empty 200.
//!
//! - `plan`: the tables of a plan, and a plan on one worker
//! - `index`: finds the routes of a long list that may match
//! - `refusal`: requests that are rejected before any route
//! - `marks`: the profiler's names of handlers and routes
//! - `traced`: handlers of a server with the option `trace`

mod index;
mod marks;
mod plan;
mod refusal;
mod traced;

use std::rc::Rc;
use std::task::{Context as Task, Poll};

use causeway_message::{StatusCode, names};
use progress::Point;

use crate::context::Context;
use crate::handler::{Fault, Matched, Reason, Response, Step, Stop};
use crate::metrics::{self, Measurement};
use crate::outcome::Outcome;
use crate::read_body::{self, Excess};

pub(crate) use index::Index;
pub(crate) use marks::Marks;
use plan::HandlerId;
pub(crate) use plan::{Carrier, GroupId, HandlerEntry, List, MatcherSet, Route, ServerPlan};
pub use plan::{FamilyId, Generation, Plan, RoutesId, ServerId, StateId};
pub(crate) use traced::Traced;

/// Route lists that may be open inside each other. The limit is far above real configurations: it stops routes that
/// invoke themselves.
pub const CALLS_MAX: usize = 64;
/// Handlers that one exchange may enter. Each `header` and `vars` directive of a site is one.
pub const ENTERED_MAX: usize = 4096;
/// Entered handlers for which recycled storage keeps room.
const KEPT_ENTERED_MAX: usize = 1024;
/// 64-bit words of group bits that recycled storage keeps.
const KEPT_GROUP_WORDS_MAX: usize = 2048;

/// A position in a route list.
#[derive(Debug, Clone, Copy)]
struct RoutePosition {
    list: RoutesId,
    /// The next route to evaluate, once the current handlers are done.
    route: u32,
    /// The remaining handlers of the matching route: `next..end`.
    next: u32,
    end: u32,
    /// The matching route is terminal: the chain ends after its handlers.
    terminal: bool,
}

impl RoutePosition {
    fn start(list: RoutesId) -> Self {
        Self { list, route: 0, next: 0, end: 0, terminal: false }
    }
}

/// The position of one exchange in the plan.
#[derive(Default)]
pub(crate) struct Flow {
    calls: Vec<RoutePosition>,
    /// Every handler that was entered, in order, for [`Handler::end`](crate::handler::Handler::end).
    entered: Vec<HandlerId>,
    /// Indices into `entered` of the handlers that the response still has to pass; popped from the end.
    back: Vec<u16>,
    /// One bit per group, set if a route of the group ran; all clear between exchanges.
    groups: Vec<u64>,
    taken: Vec<GroupId>,
    errors: Option<RoutesId>,
    /// The current chain is that of the server's error routes.
    recovers: bool,
    /// No handler responded to the request or to its fault.
    is_unanswered: bool,
    /// The phase in which the pending wait was created, and the handler that created it.
    direction: Direction,
    current: HandlerId,
    /// Indices into `entered`: the handler whose `leave` or `failed` runs, and the one that waits for the response to
    /// a fault.
    left: u16,
    awaits: Option<u16>,
    /// Responses that routes may replace, the innermost last, with the index into `entered` of the handler that set each
    /// aside.
    replaced: Vec<(u16, Response)>,
    /// The handlers that have called error routes which are not over, the innermost last: the index into `entered`, which
    /// is also in `back`, and the fault that was handled before.
    handling: Vec<(u16, Option<Fault>)>,
    pub(crate) measurement: Measurement,
}

/// The phase of an exchange.
#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum Direction {
    #[default]
    In,
    /// Evaluating matchers: no handler is running.
    Match,
    Out,
}

impl Flow {
    pub(crate) fn begin(&mut self, plan: &Plan, server: ServerId) {
        let words = plan.groups_len.div_ceil(64) as usize;
        // All bits are clear here, so only the length has to fit the plan.
        if self.groups.len() < words {
            self.groups.resize(words, 0);
        }
        if let Some(server) = plan.server(server) {
            self.errors = server.errors;
            self.calls.push(RoutePosition::start(server.routes));
        }
    }

    /// Clears the position of an exchange that has ended.
    pub(crate) fn reset(&mut self) {
        // `current` and `left` are set before a handler runs, and only a running handler reads them.
        let Self {
            calls,
            entered,
            back,
            groups,
            taken,
            errors,
            recovers,
            is_unanswered,
            direction,
            current: _,
            left: _,
            awaits,
            replaced,
            handling,
            measurement,
        } = self;
        calls.clear();
        entered.clear();
        entered.shrink_to(KEPT_ENTERED_MAX);
        back.clear();
        back.shrink_to(KEPT_ENTERED_MAX);
        // Clear only words with set bits: the cost depends on the groups that ran, not on those of the plan.
        for group in taken.drain(..) {
            groups[group.0 as usize / 64] = 0;
        }
        if groups.len() > KEPT_GROUP_WORDS_MAX {
            *groups = Vec::new();
        }
        *errors = None;
        *recovers = false;
        *is_unanswered = false;
        *direction = Direction::In;
        *awaits = None;
        replaced.clear();
        handling.clear();
        measurement.clear();
    }

    /// Whether the server's error routes ran.
    pub(crate) fn recovers(&self) -> bool {
        self.recovers
    }

    /// Whether the last chain ended without a response, so that the response is an empty one.
    pub(crate) fn is_unanswered(&self) -> bool {
        self.is_unanswered
    }

    /// Returns the running handler.
    pub(crate) fn carrier(&self) -> Carrier {
        Carrier(self.current)
    }

    /// Registers the running handler, if it processes a fault, to see the response to that fault.
    pub(crate) fn await_answer(&mut self) {
        if self.direction == Direction::Out {
            self.awaits = Some(self.left);
        }
    }

    /// Sets a response aside, and registers the running handler to see the one that takes its place.
    pub(crate) fn replace(&mut self, response: Response) {
        if self.direction == Direction::Out {
            self.replaced.push((self.left, response));
            self.back.push(self.left);
        }
    }

    /// Records that the running handler calls error routes while the fault `before` is handled.
    pub(crate) fn begin_handling(&mut self, before: Option<Fault>) {
        self.handling.push((self.left, before));
        self.back.push(self.left);
    }

    /// Returns the response that the running handler set aside.
    pub(crate) fn take_replaced(&mut self) -> Option<Response> {
        self.replaced.pop_if(|(owner, _)| *owner == self.left).map(|(_, response)| response)
    }

    /// Returns whether one of the handlers that are going to process the response reads its content.
    pub(crate) fn is_content_read(&self, plan: &Plan, content_type: &[u8]) -> bool {
        let mut ahead = self.back.iter().map(|at| plan.entry(self.entered[usize::from(*at)]));
        ahead.any(|entry| entry.handler.reads_content(content_type))
    }

    fn place(&mut self) -> &mut RoutePosition {
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

/// The engine's next action for an exchange.
#[derive(Debug)]
pub enum Verdict {
    /// Send this response, with the context's response fields.
    Respond(Response),
    /// Close the connection (HTTP/2: reset the stream) without a response.
    Abort,
    /// Poll again when woken.
    Waiting,
}

/// Runs an exchange from its start until it responds, aborts or waits.
pub fn run(cx: &mut Context) -> Verdict {
    let generation = Rc::clone(cx.generation());
    if cx.head().target_bytes() == b"*"
        && generation.plan().server(cx.arrival().server).is_some_and(|server| server.answers_asterisk)
    {
        return Verdict::Respond(Response::empty(StatusCode::OK));
    }
    let first = match refusal::refusal(cx) {
        None => Step::Next,
        Some(fault) => reject(cx, generation.plan(), fault),
    };
    walk(cx, generation.plan(), first)
}

/// Rejects a request before all routes. As in Caddy, it has an access record.
#[cold]
fn reject(cx: &mut Context, plan: &Plan, fault: Fault) -> Step {
    match plan.server(cx.arrival().server).and_then(|server| server.sees_rejected) {
        Some(id) => enter(cx, plan, id).map_or_else(Step::Fail, |_| Step::Fail(fault)),
        None => Step::Fail(fault),
    }
}

/// Continues a waiting exchange. It also polls each new wait that the handlers start, so that after
/// [`Verdict::Waiting`] the task's waker is registered with the pending future.
pub fn poll(cx: &mut Context, task: &mut Task<'_>) -> Verdict {
    loop {
        let generation = Rc::clone(cx.generation());
        let polled = if cx.flow().direction == Direction::Match {
            cx.poll_step(task)
        } else {
            // The future's work belongs to the spans of the handler that waits.
            let _within = generation.plan().entry(cx.flow().current).marks.enter();
            cx.poll_step(task)
        };
        let Poll::Ready(step) = polled else { return Verdict::Waiting };
        // The step completes the handler's `enter`; in `Match` and `Out` no handler is entered.
        if cx.flow().direction == Direction::In {
            settle(cx, &step);
        }
        match walk(cx, generation.plan(), step) {
            Verdict::Waiting => {}
            verdict => return verdict,
        }
    }
}

/// Counts the exchange, then calls [`Handler::end`](crate::handler::Handler::end) of every handler that was entered.
pub fn end(cx: &Context, outcome: &Outcome) {
    if cx.is_measured() {
        metrics::end(cx, outcome);
    }
    let plan = cx.generation().plan();
    if cx.has_failed()
        && let Some(log) = plan.server(cx.arrival().server).and_then(|server| server.error_log.as_ref())
    {
        log.end(cx, outcome);
    }
    for id in &cx.flow().entered {
        plan.entry(*id).handler.end(cx, outcome);
    }
}

/// Returns the progress point of the last route whose handler was entered; `None` if there was no handler.
pub fn answered(cx: &Context) -> Option<Point> {
    let last = cx.flow().entered.last()?;
    Some(*cx.generation().plan().entry(*last).marks.answered)
}

fn walk(cx: &mut Context, plan: &Plan, mut step: Step) -> Verdict {
    loop {
        step = match step {
            Step::Next => match next(cx, plan) {
                Ok(Some(id)) => match enter(cx, plan, id) {
                    Ok(step) => step,
                    Err(fault) => Step::Fail(fault),
                },
                Ok(None) => {
                    let flow = cx.flow_mut();
                    flow.measurement.unanswered();
                    flow.is_unanswered = flow.replaced.is_empty();
                    Step::Respond(Response::empty(unanswered(cx)))
                }
                Err(Stop::Fail(fault)) => Step::Fail(fault),
                Err(Stop::Wait(wait)) => Step::Wait(wait),
            },
            Step::Call(list) => {
                let flow = cx.flow_mut();
                if std::mem::take(&mut flow.direction) == Direction::Out {
                    // A handler on the response pass called routes: they produce a new response, and the rest of the
                    // request pass is dropped.
                    flow.calls.clear();
                    flow.is_unanswered = false;
                }
                if flow.calls.len() == CALLS_MAX {
                    Step::Fail(too_deep())
                } else {
                    flow.calls.push(RoutePosition::start(list));
                    Step::Next
                }
            }
            Step::Respond(response) => match back(cx, plan) {
                Some(entry) => {
                    let _within = entry.marks.enter();
                    entry.handler.leave(cx, response)
                }
                None => {
                    if cx.is_measured() {
                        let now = cx.worker().now();
                        cx.flow_mut().measurement.responded(now);
                    }
                    return Verdict::Respond(response);
                }
            },
            Step::Fail(fault) => match back(cx, plan) {
                Some(entry) => {
                    let _within = entry.marks.enter();
                    entry.handler.failed(cx, fault)
                }
                None => match recover(cx, fault) {
                    Ok(()) => Step::Next,
                    Err(response) => Step::Respond(response),
                },
            },
            Step::Abort => return Verdict::Abort,
            Step::Wait(_) => return Verdict::Waiting,
        };
        // On the response pass there is no next handler, so `Next` is a handler's error: to pass a response on,
        // `leave` returns it.
        if cx.flow().direction == Direction::Out && matches!(step, Step::Next) {
            step = Step::Fail(Fault::status(StatusCode::INTERNAL_SERVER_ERROR));
        }
    }
}

/// Returns the status of a chain that no handler answered. As in Caddy: 200, within error routes the status of the
/// fault, and that of the response that the chain could have replaced.
fn unanswered(cx: &Context) -> StatusCode {
    if let Some((_, response)) = cx.flow().replaced.last() {
        return response.status;
    }
    match cx.fault() {
        Some(fault) if cx.flow().recovers || cx.flow().calls.last().is_some_and(|place| place.terminal) => fault.status,
        _ => StatusCode::OK,
    }
}

/// Returns the next handler of the chain; `None` at its end. A `Stop` does not advance the chain, so that it
/// continues from the same route or handler.
fn next(cx: &mut Context, plan: &Plan) -> Result<Option<HandlerId>, Stop> {
    loop {
        // When the innermost list is done, the chain continues in the list that called it.
        let Some(&place) = cx.flow().calls.last() else { return Ok(None) };
        if place.next < place.end {
            if plan.entry(HandlerId(place.next)).reads_body {
                read_body(cx, Excess::IsText)?;
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
        // Record the route before matching, so that a matcher that waits is evaluated again.
        cx.flow_mut().place().route = number;
        // The group is checked first: the matchers of a route that cannot run may be expensive.
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
            if let Some(series) = route.series {
                metrics::take(cx, series);
            }
        }
    }
}

fn matches(cx: &mut Context, route: &Route) -> Matched {
    if route.matchers.is_empty() {
        return Ok(true);
    }
    if route.reads_body {
        read_body(cx, Excess::Fails)?;
    }
    // From here to the next handler only a matcher can wait.
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

fn read_body(cx: &mut Context, excess: Excess) -> Result<(), Stop> {
    cx.flow_mut().direction = Direction::Match;
    match read_body::read(cx, excess) {
        Some(wait) => Err(Stop::Wait(wait)),
        None => Ok(()),
    }
}

fn enter(cx: &mut Context, plan: &Plan, id: HandlerId) -> Result<Step, Fault> {
    let flow = cx.flow_mut();
    if flow.entered.len() == ENTERED_MAX {
        return Err(too_deep());
    }
    // ENTERED_MAX fits into 16 bits.
    flow.back.push(flow.entered.len() as u16);
    flow.entered.push(id);
    (flow.direction, flow.current) = (Direction::In, id);
    let entry = plan.entry(id);
    let _within = entry.marks.enter();
    let step = entry.handler.enter(cx);
    settle(cx, &step);
    Ok(step)
}

/// Removes a handler that responded on the request pass from the response pass: it does not process its own response.
fn settle(cx: &mut Context, step: &Step) {
    if !matches!(step, Step::Next | Step::Call(_) | Step::Wait(_)) {
        cx.flow_mut().back.pop();
    }
}

fn back<'p>(cx: &mut Context, plan: &'p Plan) -> Option<&'p HandlerEntry> {
    let mut at = cx.flow_mut().back.pop()?;
    // The error routes that a handler has called are over; the handler itself saw the fault before them.
    while let Some((_, before)) = cx.flow_mut().handling.pop_if(|(caller, _)| *caller == at) {
        cx.end_handling(before);
        at = cx.flow_mut().back.pop()?;
    }
    let flow = cx.flow_mut();
    (flow.direction, flow.current, flow.left) = (Direction::Out, flow.entered[usize::from(at)], at);
    Some(plan.entry(flow.current))
}

/// Runs the server's error routes for a fault, at most once. Without error routes the response has the fault's
/// status. If the error routes fail, the response has the status of the first fault, as in Caddy.
fn recover(cx: &mut Context, fault: Fault) -> Result<(), Response> {
    let status = cx.set_reached_fault(fault);
    // That of content which is not sent any more.
    cx.response_mut().remove(names::CONTENT_LENGTH);
    let flow = cx.flow_mut();
    flow.measurement.failed(status);
    flow.is_unanswered = false;
    flow.calls.clear();
    flow.direction = Direction::In;
    // `failed` ran for every handler; put the one that waits for the response back on the response pass.
    flow.back.extend(flow.awaits.take());
    // Taken, so that a fault in the error routes does not run them again.
    match flow.errors.take() {
        Some(list) => {
            flow.recovers = true;
            flow.calls.push(RoutePosition::start(list));
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
