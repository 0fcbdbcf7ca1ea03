//! The frozen plan and the interpreter that runs it.
//!
//! A plan is flat tables: route lists, routes, handlers. A request walks it with a small explicit stack (`Flow`): the
//! routes of a list in order, each matched when the chain reaches it; the handlers of a matching route in order;
//! nested lists by [`Step::Run`]. The response then passes the entered handlers in reverse order. The rules are
//! Caddy's: a `terminal` route ends the chain; of the routes of a group only the first that matches runs; a request
//! to which no handler responds gets an empty 200.
//!
//! - `plan`: the tables of a plan, and a plan on one worker
//! - `index`: finds the routes of a long list that may match
//! - `refusal`: requests that are rejected before any route
//! - `spans`: the profiler's spans of handlers and routes
//! - `traced`: handlers of a server with the option `trace`

mod index;
mod plan;
mod refusal;
mod spans;
mod traced;

use std::rc::Rc;
use std::task::{Context as PollContext, Poll};

use causeway_message::{Method, StatusCode, names};
use progress::Point;

use crate::context::Context;
use crate::handler::{Fault, Matched, Reason, Response, Step, Stop};
use crate::metrics::{self, Measurement};
use crate::outcome::Outcome;
use crate::read_body::{self, Excess};

pub(crate) use index::Index;
use plan::HandlerId;
pub(crate) use plan::{Carrier, GroupId, HandlerEntry, List, MatcherSet, Route, ServerPlan};
pub use plan::{FamilyId, Generation, Plan, RoutesId, ServerId, StateId};
pub(crate) use refusal::ROUTED_METHOD_BYTES_MAX;
pub(crate) use spans::HandlerSpans;
pub(crate) use traced::Traced;

/// Route lists that may be open inside each other. The limit is far above real configurations: it stops routes that
/// invoke themselves.
pub const NESTED_LISTS_MAX: usize = 64;
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
    /// The route lists under way, the innermost last.
    open_lists: Vec<RoutePosition>,
    /// Every handler that was entered, in order, for [`Handler::end`](crate::handler::Handler::end).
    entered: Vec<HandlerId>,
    /// Indices into `entered` of the handlers that the response still has to pass; popped from the end.
    to_leave: Vec<u16>,
    /// One bit per group, set if a route of the group ran; all clear between exchanges.
    groups: Vec<u64>,
    groups_taken: Vec<GroupId>,
    errors: Option<RoutesId>,
    /// The current chain is that of the server's error routes.
    in_error_routes: bool,
    /// No handler responded to the request or to its fault.
    is_unhandled: bool,
    /// The phase in which the pending wait was created, and the handler that created it.
    pass: Pass,
    current: HandlerId,
    /// The index into `entered` of the handler whose `leave` or `failed` runs.
    leaving: u16,
    /// The index into `entered` of the handler that waits for the response to a fault.
    waits_for_response: Option<u16>,
    /// Responses that routes may replace, the innermost last.
    replaced: Vec<ReplacedResponse>,
    /// The error routes of handlers that are not over, the innermost last.
    open_fault_routes: Vec<FaultRoutes>,
    pub(crate) measurement: Measurement,
}

/// A response that routes may replace.
struct ReplacedResponse {
    /// The index into `entered` of the handler that set it aside.
    setter: u16,
    response: Response,
}

/// Error routes that a handler runs.
struct FaultRoutes {
    /// The index into `entered` of the handler. It is also in `to_leave`.
    caller: u16,
    /// The fault that was handled before.
    before: Option<Fault>,
}

/// The phase of an exchange in the interpreter.
#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum Pass {
    /// The handlers process the request.
    #[default]
    Request,
    /// Evaluating matchers: no handler is running.
    Match,
    /// The entered handlers process the response or a fault, the last one first.
    Response,
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
            self.open_lists.push(RoutePosition::start(server.routes));
        }
    }

    /// Clears the position of an exchange that has ended.
    pub(crate) fn reset(&mut self) {
        // `current` and `leaving` are set before a handler runs, and only a running handler reads them.
        let Self {
            open_lists,
            entered,
            to_leave,
            groups,
            groups_taken,
            errors,
            in_error_routes,
            is_unhandled,
            pass,
            current: _,
            leaving: _,
            waits_for_response,
            replaced,
            open_fault_routes,
            measurement,
        } = self;
        open_lists.clear();
        entered.clear();
        entered.shrink_to(KEPT_ENTERED_MAX);
        to_leave.clear();
        to_leave.shrink_to(KEPT_ENTERED_MAX);
        // Clear only words with set bits: the cost depends on the groups that ran, not on those of the plan.
        for group in groups_taken.drain(..) {
            groups[group.0 as usize / 64] = 0;
        }
        if groups.len() > KEPT_GROUP_WORDS_MAX {
            *groups = Vec::new();
        }
        *errors = None;
        *in_error_routes = false;
        *is_unhandled = false;
        *pass = Pass::Request;
        *waits_for_response = None;
        replaced.clear();
        open_fault_routes.clear();
        measurement.clear();
    }

    /// Whether the server's error routes ran.
    pub(crate) fn in_error_routes(&self) -> bool {
        self.in_error_routes
    }

    /// Whether the last chain ended without a response, so that the response is an empty one.
    pub(crate) fn is_unhandled(&self) -> bool {
        self.is_unhandled
    }

    /// Returns the running handler.
    pub(crate) fn carrier(&self) -> Carrier {
        Carrier(self.current)
    }

    /// Registers the running handler, if it processes a fault, to see the response to that fault.
    pub(crate) fn leave_after_fault(&mut self) {
        if self.pass == Pass::Response {
            self.waits_for_response = Some(self.leaving);
        }
    }

    /// Sets a response aside, and registers the running handler to see the one that takes its place.
    pub(crate) fn replace(&mut self, response: Response) {
        if self.pass == Pass::Response {
            self.replaced.push(ReplacedResponse { setter: self.leaving, response });
            self.to_leave.push(self.leaving);
        }
    }

    /// Records that the running handler calls error routes while the fault `before` is handled.
    pub(crate) fn begin_fault_routes(&mut self, before: Option<Fault>) {
        self.open_fault_routes.push(FaultRoutes { caller: self.leaving, before });
        self.to_leave.push(self.leaving);
    }

    /// Returns the response that the running handler set aside.
    pub(crate) fn take_replaced(&mut self) -> Option<Response> {
        self.replaced.pop_if(|replaced| replaced.setter == self.leaving).map(|replaced| replaced.response)
    }

    /// Returns whether one of the handlers that are going to process the response reads its content.
    pub(crate) fn is_content_read(&self, plan: &Plan, content_type: &[u8]) -> bool {
        let mut ahead = self.to_leave.iter().map(|at| plan.entry(self.entered[usize::from(*at)]));
        ahead.any(|entry| entry.handler.reads_content(content_type))
    }

    fn position(&mut self) -> &mut RoutePosition {
        self.open_lists.last_mut().expect("a list is open while its routes are evaluated")
    }

    fn is_group_taken(&self, group: GroupId) -> bool {
        self.groups[group.0 as usize / 64] & (1 << (group.0 % 64)) != 0
    }

    fn take_group(&mut self, group: GroupId) {
        self.groups[group.0 as usize / 64] |= 1 << (group.0 % 64);
        self.groups_taken.push(group);
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
    let head = cx.head();
    // RFC 9112 §3.2.4: an absolute URI without a path is the same request through a proxy. DEVIATES Caddy, which runs
    // the routes for it.
    if (head.target_bytes() == b"*" || head.method() == Method::Options && head.target().is_of_server())
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
pub fn poll(cx: &mut Context, poll_cx: &mut PollContext<'_>) -> Verdict {
    loop {
        let generation = Rc::clone(cx.generation());
        let polled = if cx.flow().pass == Pass::Match {
            cx.poll_step(poll_cx)
        } else {
            // The future's work belongs to the spans of the handler that waits.
            let _entered = generation.plan().entry(cx.flow().current).spans.enter();
            cx.poll_step(poll_cx)
        };
        let Poll::Ready(step) = polled else { return Verdict::Waiting };
        // The step completes the handler's `enter`; in the other phases no handler is entered.
        if cx.flow().pass == Pass::Request {
            drop_own_leave(cx, &step);
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
pub fn progress_point(cx: &Context) -> Option<Point> {
    let last = cx.flow().entered.last()?;
    Some(*cx.generation().plan().entry(*last).spans.progress)
}

/// Runs steps until the exchange responds, aborts or waits.
///
/// ```text
/// request pass: Handler::enter, in order ◄──────────── Step::Run on the way back: routes for a new response
///   │ a handler responds, or the chain ends        │ a handler fails
///   ▼                                              ▼
/// response pass: Handler::leave, in reverse ◄──► faults: Handler::failed, in reverse
///   │ no handler is left                           │ no handler is left
///   ▼                                              ▼
/// Verdict::Respond                               the server's error routes, once, in a request pass of their own;
///                                                without them, the response has the fault's status
/// ```
fn walk(cx: &mut Context, plan: &Plan, mut step: Step) -> Verdict {
    loop {
        // On the response pass there is no next handler, so `Next` is a handler's error, or that of its wait: to pass a
        // response on, `leave` returns it.
        if cx.flow().pass == Pass::Response && matches!(step, Step::Next) {
            step = Step::Fail(Fault::from_status(StatusCode::INTERNAL_SERVER_ERROR));
        }
        step = match step {
            Step::Next => match next(cx, plan) {
                Ok(Some(id)) => match enter(cx, plan, id) {
                    Ok(step) => step,
                    Err(fault) => Step::Fail(fault),
                },
                Ok(None) => {
                    let flow = cx.flow_mut();
                    flow.measurement.set_unhandled();
                    flow.is_unhandled = flow.replaced.is_empty();
                    Step::Respond(Response::empty(default_status(cx)))
                }
                Err(Stop::Fail(fault)) => Step::Fail(fault),
                Err(Stop::Wait(wait)) => Step::Wait(wait),
            },
            Step::Run(list) => {
                let flow = cx.flow_mut();
                if std::mem::take(&mut flow.pass) == Pass::Response {
                    // A handler on the response pass called routes: they produce a new response, and the rest of the
                    // request pass is dropped.
                    flow.open_lists.clear();
                    flow.is_unhandled = false;
                }
                if flow.open_lists.len() == NESTED_LISTS_MAX {
                    Step::Fail(too_deep())
                } else {
                    flow.open_lists.push(RoutePosition::start(list));
                    Step::Next
                }
            }
            Step::Respond(response) => match next_to_leave(cx, plan) {
                Some(entry) => {
                    let _entered = entry.spans.enter();
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
            Step::Fail(fault) => {
                // A matcher may have failed: the handlers and the error routes may run its route again.
                cx.forget_found();
                match next_to_leave(cx, plan) {
                    Some(entry) => {
                        let _entered = entry.spans.enter();
                        entry.handler.failed(cx, fault)
                    }
                    None => match run_error_routes(cx, fault) {
                        Ok(()) => Step::Next,
                        Err(response) => Step::Respond(response),
                    },
                }
            }
            Step::Abort => return Verdict::Abort,
            Step::Wait(_) => return Verdict::Waiting,
        };
    }
}

/// Returns the status of a chain in which no handler responded. As in Caddy: 200, within error routes the status of the
/// fault, and that of the response that the chain could have replaced.
fn default_status(cx: &Context) -> StatusCode {
    if let Some(replaced) = cx.flow().replaced.last() {
        return replaced.response.status;
    }
    match cx.fault() {
        Some(fault) if cx.flow().in_error_routes || cx.flow().open_lists.last().is_some_and(|list| list.terminal) => {
            fault.status
        }
        _ => StatusCode::OK,
    }
}

/// Returns the next handler of the chain; `None` at its end. A `Stop` does not advance the chain, so that it
/// continues from the same route or handler.
fn next(cx: &mut Context, plan: &Plan) -> Result<Option<HandlerId>, Stop> {
    loop {
        // When the innermost list is done, the chain continues in the list that called it.
        let Some(&position) = cx.flow().open_lists.last() else { return Ok(None) };
        if position.next < position.end {
            if plan.entry(HandlerId(position.next)).reads_body {
                read_body(cx, Excess::IsText)?;
            }
            cx.flow_mut().position().next += 1;
            return Ok(Some(HandlerId(position.next)));
        }
        if position.terminal {
            return Ok(None);
        }
        let list = &plan.lists[position.list.0 as usize];
        let number = match &list.index {
            Some(index) => index.next(position.route, cx),
            None => position.route,
        };
        let Some(route) = list.routes.get(number as usize) else {
            cx.flow_mut().open_lists.pop();
            continue;
        };
        // Record the route before matching, so that a matcher that waits is evaluated again.
        cx.flow_mut().position().route = number;
        // The group is checked first: the matchers of a route that cannot run may be expensive.
        let runs = !route.group.is_some_and(|group| cx.flow().is_group_taken(group)) && matches(cx, route)?;
        cx.forget_found();
        let flow = cx.flow_mut();
        let position = flow.position();
        position.route = number + 1;
        if runs {
            (position.next, position.end, position.terminal) =
                (route.handlers.start, route.handlers.end, route.terminal);
            if let Some(group) = route.group {
                flow.take_group(group);
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
    cx.flow_mut().pass = Pass::Match;
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
    cx.flow_mut().pass = Pass::Match;
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
    flow.to_leave.push(flow.entered.len() as u16);
    flow.entered.push(id);
    (flow.pass, flow.current) = (Pass::Request, id);
    let entry = plan.entry(id);
    let _entered = entry.spans.enter();
    let step = entry.handler.enter(cx);
    drop_own_leave(cx, &step);
    Ok(step)
}

/// Removes a handler that responded on the request pass from the response pass: it does not process its own response.
fn drop_own_leave(cx: &mut Context, step: &Step) {
    if !matches!(step, Step::Next | Step::Run(_) | Step::Wait(_)) {
        cx.flow_mut().to_leave.pop();
    }
}

/// Returns the entered handler that processes the response or the fault next, and removes it from the response pass.
fn next_to_leave<'p>(cx: &mut Context, plan: &'p Plan) -> Option<&'p HandlerEntry> {
    let mut at = cx.flow_mut().to_leave.pop()?;
    // The error routes that a handler has called are over; the handler itself saw the fault before them.
    while let Some(routes) = cx.flow_mut().open_fault_routes.pop_if(|routes| routes.caller == at) {
        cx.end_fault_routes(routes.before);
        at = cx.flow_mut().to_leave.pop()?;
    }
    let flow = cx.flow_mut();
    (flow.pass, flow.current, flow.leaving) = (Pass::Response, flow.entered[usize::from(at)], at);
    Some(plan.entry(flow.current))
}

/// Runs the server's error routes for a fault, at most once. Without error routes the response has the fault's
/// status. If the error routes fail, the response has the status of the first fault, as in Caddy.
fn run_error_routes(cx: &mut Context, fault: Fault) -> Result<(), Response> {
    let status = cx.set_unhandled_fault(fault);
    // That of content which is not sent any more.
    cx.response_mut().remove(names::CONTENT_LENGTH);
    let flow = cx.flow_mut();
    flow.measurement.failed(status);
    flow.is_unhandled = false;
    flow.open_lists.clear();
    flow.pass = Pass::Request;
    // `failed` ran for every handler; put the one that waits for the response back on the response pass.
    flow.to_leave.extend(flow.waits_for_response.take());
    // Taken, so that a fault in the error routes does not run them again.
    match flow.errors.take() {
        Some(list) => {
            flow.in_error_routes = true;
            flow.open_lists.push(RoutePosition::start(list));
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
