//! A call under way: sent, waited for, and what comes of it.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context as Task, Poll, ready};
use std::time::Instant;

use causeway_message::{FieldMap, StatusCode};
use causeway_pipeline::upstream::Answer;
use causeway_pipeline::{Body, BodyStream as _, Call, CallFault, Context, Fault, Reason, Step, Versions};

use super::backend::Place;
use super::switch::Switch;
use super::{Local, bad_gateway, request};

/// Answers before the answer that are passed on at most.
pub(super) const INTERIMS_MAX: u8 = 64;

/// What is to be known when the answer comes.
pub(super) struct Asked {
    pub(super) local: Rc<Local>,
    /// Which of the plan's servers it is.
    pub(super) backend: usize,
    pub(super) place: Rc<Place>,
    pub(super) switch: Switch,
    pub(super) has_content: bool,
    pub(super) began: Instant,
    interims: u8,
}

/// Sends the exchange's request to a place, and waits for the answer.
///
/// # Errors
/// When nothing can be sent.
pub(super) fn begin(cx: &mut Context, local: Rc<Local>, number: usize, place: Rc<Place>) -> Result<Step, Fault> {
    let plan = &*local.plan;
    let backend = &plan.backends[number];
    let mut switch = Switch::of(cx)?;
    if plan.carriage.is_http() && plan.transport.versions == Versions::Http2 {
        switch = switch.over_http2()?;
    }
    local.named(cx).chosen(cx, backend, &place);
    let upstream = match switch {
        Switch::None => &place.upstream,
        Switch::Upgrade | Switch::Connect => place.switching(cx.worker(), &plan.transport),
    };
    let call = upstream.calls().take();
    call.count(backend.load(cx));
    request::fill(cx, &call, plan, &place, switch)?;
    let content = match (switch, plan.drops_body) {
        (Switch::None, true) => Body::Empty,
        (Switch::None, false) => match cx.take_body() {
            Some(body) if !body.is_empty() => Body::Incoming(body),
            _ => Body::Empty,
        },
        // What goes through the tunnel, if there comes to be one.
        (Switch::Upgrade | Switch::Connect, _) => match cx.take_body() {
            Some(body) => Body::Tunnel(Box::new(body)),
            None => return Err(Fault::status(StatusCode::INTERNAL_SERVER_ERROR)),
        },
    };
    let has_content = !matches!(content, Body::Empty);
    let content = plan.carriage.wrap(cx, &call, content, &place)?;
    call.send(content, &**upstream);
    let began = cx.worker().now();
    let asked = Asked { local, backend: number, place: Rc::clone(&place), switch, has_content, began, interims: 0 };
    Ok(cx.wait(Answering(Some((call, asked))), answered))
}

/// Waits for what comes next of a call. Dropping it gives the call up.
struct Answering(Option<(Call, Asked)>);

impl Future for Answering {
    type Output = (Call, Asked, Result<Answer, CallFault>);

    fn poll(mut self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<Self::Output> {
        let (call, _) = self.0.as_ref().expect("not polled behind its end");
        let answer = ready!(call.poll_answer(task));
        let (call, asked) = self.0.take().expect("it was there");
        Poll::Ready((call, asked, answer))
    }
}

fn answered(cx: &mut Context, (call, mut asked, answer): (Call, Asked, Result<Answer, CallFault>)) -> Step {
    match answer {
        Ok(Answer::Interim(status, fields)) => {
            if asked.interims == INTERIMS_MAX {
                return Step::Fail(bad_gateway("the upstream sent too many answers before its answer".to_owned()));
            }
            asked.interims += 1;
            inform(cx, status, *fields);
            cx.wait(Answering(Some((call, asked))), answered)
        }
        Ok(Answer::Head { tunnel }) if tunnel == (call.head().status() == StatusCode::SWITCHING_PROTOCOLS) => {
            let carriage = asked.local.plan.carriage;
            carriage.unwrap(cx, call, asked)
        }
        Ok(Answer::Head { .. }) => {
            Step::Fail(bad_gateway("the upstream switched protocols without being asked".to_owned()))
        }
        Err(fault) => {
            asked.place.upstream.heed(&fault);
            let plan = &asked.local.plan;
            // By gRPC an upstream is told the limit, and may be the first to break off.
            let told = plan.transport.head_timeout.filter(|_| !plan.carriage.is_http());
            let took = cx.worker().now().saturating_duration_since(asked.began);
            let is_late = told.is_some_and(|limit| took >= limit);
            Step::Fail(failed(&asked.place, fault, is_late))
        }
    }
}

/// RFC 9110 §15.2: a proxy passes 1xx on, but for what it asked for itself.
fn inform(cx: &mut Context, status: StatusCode, mut fields: FieldMap) {
    if matches!(status.as_u16(), 100 | 101) {
        return;
    }
    super::answer::strip(&mut fields);
    cx.inform(status, fields);
}

/// Caddy, statusError: 502 for what goes wrong with an upstream, 504 where that takes too long, and a fault of the request's own
/// body keeps its status.
#[cold]
fn failed(place: &Place, fault: CallFault, is_late: bool) -> Fault {
    let status = match &fault {
        CallFault::RequestBody(fault) => return Fault::body(*fault),
        CallFault::HeadTimedOut => StatusCode::GATEWAY_TIMEOUT,
        CallFault::Closed if is_late => StatusCode::GATEWAY_TIMEOUT,
        CallFault::Busy => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::BAD_GATEWAY,
    };
    Fault { status, reason: Reason::Text(format!("upstream {}: {fault}", place.address.authority).into()) }
}
