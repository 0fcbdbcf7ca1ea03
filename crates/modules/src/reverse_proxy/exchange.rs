//! A call to an upstream: sends the request, waits for the response, and dispatches it.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context as Task, Poll, ready};
use std::time::Instant;

use causeway_message::{FieldMap, StatusCode};
use causeway_pipeline::upstream::{CallEvent, FailureKind, report_failure};
use causeway_pipeline::{Body, BodyStream as _, Call, CallFault, Context, Fault, Reason, Step, Versions};

use super::backend::AddressPool;
use super::switch::Switch;
use super::{Local, bad_gateway, request};

/// Most interim (1xx) responses that are forwarded for one call.
pub(super) const INTERIMS_MAX: u8 = 64;

/// The state that is needed when the response arrives.
pub(super) struct PendingCall {
    pub(super) local: Rc<Local>,
    /// Index in the plan's upstreams.
    pub(super) backend: usize,
    pub(super) place: Rc<AddressPool>,
    pub(super) switch: Switch,
    pub(super) has_content: bool,
    pub(super) began: Instant,
    interims: u8,
}

/// Sends the request to an address, and waits for the response.
///
/// # Errors
/// If the request cannot be forwarded.
pub(super) fn begin(cx: &mut Context, local: Rc<Local>, number: usize, place: Rc<AddressPool>) -> Result<Step, Fault> {
    let plan = &*local.plan;
    let backend = &plan.backends[number];
    let mut switch = Switch::of(cx)?;
    if plan.carriage.is_http() && plan.transport.versions == Versions::Http2 {
        switch = switch.over_http2()?;
    }
    // Before the head is filled: header operations may use these placeholders.
    local.named(cx).chosen(cx, backend, &place);
    let upstream = match switch {
        Switch::None => &place.upstream,
        Switch::Upgrade | Switch::Connect => place.switching(cx.worker(), &plan.transport),
    };
    let call = upstream.calls().take();
    // Counted until the call is dropped, after its response was read.
    call.count(backend.load(cx));
    request::fill(cx, &call, plan, &place, switch)?;
    let content = match (switch, plan.drops_body) {
        (Switch::None, true) => Body::Empty,
        (Switch::None, false) => match cx.take_body() {
            Some(body) if !body.is_empty() => Body::Incoming(body),
            _ => Body::Empty,
        },
        // The content of the tunnel, in case the upstream switches.
        (Switch::Upgrade | Switch::Connect, _) => match cx.take_body() {
            Some(body) => Body::Tunnel(Box::new(body)),
            None => return Err(Fault::status(StatusCode::INTERNAL_SERVER_ERROR)),
        },
    };
    let has_content = !matches!(content, Body::Empty);
    let content = plan.carriage.wrap(cx, &call, content, &place)?;
    call.send(content, &**upstream);
    let began = cx.worker().now();
    let asked =
        PendingCall { local, backend: number, place: Rc::clone(&place), switch, has_content, began, interims: 0 };
    Ok(cx.wait(Answering(Some((call, asked))), answered))
}

/// Waits for the next head of a call. Dropping it cancels the call.
struct Answering(Option<(Call, PendingCall)>);

impl Future for Answering {
    type Output = (Call, PendingCall, Result<CallEvent, CallFault>);

    fn poll(mut self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<Self::Output> {
        let (call, _) = self.0.as_ref().expect("not polled after its end");
        let answer = ready!(call.poll_answer(task));
        let (call, asked) = self.0.take().expect("it was there");
        Poll::Ready((call, asked, answer))
    }
}

fn answered(cx: &mut Context, (call, mut asked, answer): (Call, PendingCall, Result<CallEvent, CallFault>)) -> Step {
    match answer {
        Ok(CallEvent::Interim(status, fields)) => {
            if asked.interims == INTERIMS_MAX {
                let words = "the upstream sent too many interim responses";
                return refused(cx, &asked.place, asked.began, bad_gateway(words.to_owned()));
            }
            asked.interims += 1;
            inform(cx, status, *fields);
            cx.wait(Answering(Some((call, asked))), answered)
        }
        // 101 and a tunnel must come together: either one alone is a protocol error of the upstream.
        Ok(CallEvent::Head { tunnel }) if tunnel == (call.head().status() == StatusCode::SWITCHING_PROTOCOLS) => {
            let carriage = asked.local.plan.carriage;
            let (place, began) = (Rc::clone(&asked.place), asked.began);
            match carriage.unwrap(cx, call, asked) {
                Step::Fail(fault) => refused(cx, &place, began, fault),
                step => step,
            }
        }
        Ok(CallEvent::Head { .. }) => {
            let fault = bad_gateway("the upstream switched protocols although none was requested".to_owned());
            refused(cx, &asked.place, asked.began, fault)
        }
        Err(fault) => {
            asked.place.upstream.report_failure(&fault);
            let plan = &asked.local.plan;
            // gRPC sends the time limit to the upstream, which may therefore end the call before our own timeout.
            let told = plan.transport.head_timeout.filter(|_| !plan.carriage.is_http());
            let took = cx.worker().now().saturating_duration_since(asked.began);
            let is_late = told.is_some_and(|limit| took >= limit);
            if let Some(kind) = fault.kind(false) {
                report_failure(&asked.place.address.authority, kind, took, &fault, cx.worker().now());
            }
            Step::Fail(failed(&asked.place, fault, is_late))
        }
    }
}

/// The upstream responded, but its response is not usable.
#[cold]
fn refused(cx: &Context, place: &AddressPool, began: Instant, fault: Fault) -> Step {
    if matches!(fault.status, StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT) {
        let now = cx.worker().now();
        let took = now.saturating_duration_since(began);
        report_failure(&place.address.authority, FailureKind::Unusable, took, &fault.reason, now);
    }
    Step::Fail(fault)
}

/// RFC 9110 §15.2: a proxy forwards 1xx responses, except those that it caused itself.
fn inform(cx: &mut Context, status: StatusCode, mut fields: FieldMap) {
    if matches!(status.as_u16(), 100 | 101) {
        return;
    }
    super::answer::strip(&mut fields);
    cx.inform(status, fields);
}

/// As Caddy's statusError: 502 for a failed call, 504 for a timeout; a fault of the client's own body keeps its status.
#[cold]
fn failed(place: &AddressPool, fault: CallFault, is_late: bool) -> Fault {
    let status = match &fault {
        CallFault::RequestBody(fault) => return Fault::body(*fault),
        CallFault::HeadTimedOut => StatusCode::GATEWAY_TIMEOUT,
        CallFault::Closed if is_late => StatusCode::GATEWAY_TIMEOUT,
        CallFault::Busy => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::BAD_GATEWAY,
    };
    Fault { status, reason: Reason::Text(format!("upstream {}: {fault}", place.address.authority).into()) }
}
