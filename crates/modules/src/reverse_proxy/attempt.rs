//! A call to an upstream: selects it, sends the request, waits for the response, and dispatches it; or tries again.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context as PollContext, Poll, ready};
use std::time::{Duration, Instant};

use causeway_message::{Chunk, FieldMap, StatusCode, names};
use causeway_pipeline::upstream::{CallEvent, FailureKind, report_failure};
use causeway_pipeline::worker::Sleep;
use causeway_pipeline::{Body, BodyError, BodyStream as _, Call, CallError, Context, Fault, Reason, Step, Versions};

use super::backend::{AddressPool, Backends, ChosenBackend};
use super::dynamic::{LookupWaits, Upstreams};
use super::health::{BreakerPass, CallEnd};
use super::retry::{AttemptProgress, Replay, Tries};
use super::switch::{self, Switch};
use super::wire_form::WireForm;
use super::{Local, ReverseProxyPlan, bad_gateway, buffer, incremental, request};
use crate::access_log::debug::{headers_json, request_json};

/// Most interim (1xx) responses that are forwarded for one call.
pub(super) const INTERIMS_MAX: u8 = 64;

/// The state that is needed when the response arrives.
pub(super) struct PendingCall {
    pub(super) local: Rc<Local>,
    pub(super) backend: ChosenBackend,
    pub(super) pool: Rc<AddressPool>,
    pub(super) has_content: bool,
    pub(super) began: Instant,
    interims: u8,
    /// The addresses of the upstream's name that the request was sent to.
    addresses: usize,
    tries: Tries,
    /// Holds the request's body for another attempt.
    replay: Option<Replay>,
    /// Until the circuit breaker has counted the call. A call that is cancelled is not counted.
    breaker_pass: Cell<BreakerPass>,
}

impl PendingCall {
    /// Counts the end of the call for the circuit breaker of its upstream. Further ends have no effect.
    pub(super) fn record_outcome(&self, cx: &Context, end: CallEnd) {
        let now = cx.worker().now();
        // Content that streams arrives as slowly as its client sends it, which is no delay of the upstream.
        let is_streamed = self.has_content && self.local.plan.request_buffers.is_none();
        let took = if is_streamed { Duration::ZERO } else { now.saturating_duration_since(self.began) };
        self.backend.common(&self.local.plan).record_outcome(self.breaker_pass.take(), end, took, now);
    }

    /// Counts a response for the circuit breaker and the passive health checks of its upstream.
    fn count_response(&self, cx: &Context, status: StatusCode) {
        let plan = &self.local.plan;
        // HTTP in gRPC has the status in the content.
        if !matches!(plan.wire_form, WireForm::HttpGrpc(_)) {
            self.record_outcome(cx, CallEnd::Responded(status));
        }
        if let Some(checks) = &plan.passive {
            let now = cx.worker().now();
            let took = now.saturating_duration_since(self.began);
            checks.count_response(self.backend.common(plan).status(), status, took, now);
        }
    }

    /// Counts a failure of the upstream for its circuit breaker and its passive health checks.
    fn count_failure(&self, cx: &Context) {
        self.record_outcome(cx, CallEnd::Failed);
        let plan = &self.local.plan;
        if let Some(checks) = &plan.passive {
            checks.count_failure(self.backend.common(plan).status(), cx.worker().now());
        }
    }

    /// Whether a call that ended after this time has exceeded the time limit for its head.
    fn is_late(&self, took: Duration) -> bool {
        let plan = &self.local.plan;
        // gRPC sends the time limit to the upstream, which may therefore end the call before our own timeout.
        let announced_limit = plan.transport.head_timeout.filter(|_| matches!(plan.wire_form, WireForm::HttpGrpc(_)));
        announced_limit.is_some_and(|limit| took >= limit)
    }
}

/// The request's body, for the next attempt.
enum Content {
    /// No attempt has taken it from the exchange.
    Untaken,
    /// An earlier attempt took it, and left it as it was.
    Back(Body),
    /// An earlier attempt may have read it; it was kept.
    Kept(Replay),
}

/// Selects an upstream, sends the request to it, and waits for the response.
pub(super) fn start(cx: &mut Context, local: Rc<Local>) -> Step {
    let tries = Tries::first(cx);
    local.placeholders(cx).set_before_attempt(cx, &tries);
    let Some(reader) = switch::content_reader(cx, &local.plan) else {
        return attempt(cx, local, tries, Content::Untaken, None);
    };
    cx.wait(reader, move |cx, read| match switch::after_content(cx, read) {
        Ok(tunnel) => attempt(cx, local, tries, Content::Back(tunnel), None),
        Err(fault) => Step::Fail(fault),
    })
}

/// One attempt. `before` is the fault of the attempt before, if there was one.
fn attempt(cx: &mut Context, local: Rc<Local>, tries: Tries, content: Content, before: Option<Fault>) -> Step {
    let waited = match &local.plan.dynamic {
        Some(dynamic) if tries.retries > 0 => dynamic.begin_retry(),
        _ => LookupWaits::default(),
    };
    continue_attempt(cx, local, tries, content, before, waited)
}

/// Selects an upstream for an attempt and sends the request to it. `waited`: the lookups that the attempt has waited
/// for.
fn continue_attempt(
    cx: &mut Context,
    local: Rc<Local>,
    tries: Tries,
    content: Content,
    before: Option<Fault>,
    waited: LookupWaits,
) -> Step {
    let plan = &local.plan;
    let found = match &plan.dynamic {
        None => None,
        Some(dynamic) => match dynamic.upstreams(cx, plan, waited) {
            Ok(Upstreams::Known(found)) => Some(found),
            Ok(Upstreams::Failed) => None,
            Ok(Upstreams::Wait(looking, source, waited)) => {
                return cx.wait(looking, move |cx, is_late| {
                    continue_attempt(cx, local, tries, content, before, waited.over(source, is_late))
                });
            }
            Err(fault) => return fail(cx, content, fault),
        },
    };
    let backends = match &found {
        Some(found) => Backends::Found(found),
        None => Backends::Configured(&plan.backends),
    };
    let Some((number, breaker_pass)) = select(cx, &local, backends) else {
        let fault = before.unwrap_or_else(|| {
            let now = cx.worker().now();
            let took = now.saturating_duration_since(cx.arrival().at);
            let fault = no_upstream();
            // There may be many upstreams; the first one identifies the handler in the log.
            let first = match &plan.dynamic {
                Some(dynamic) => dynamic.shown(),
                None => plan.backends.first().map_or("", |backend| &*backend.common.dial),
            };
            report_failure(first, FailureKind::Unavailable, took, &fault.reason, now);
            fault
        });
        return retry(cx, local, tries, content, fault, AttemptProgress::NoUpstream);
    };
    let chosen = backends.chosen(number);
    match chosen.pool(cx, plan) {
        Ok(pool) => {
            tracing::debug!(dial = %pool.address.name, total_upstreams = backends.len(), "selected upstream");
            send_attempt(cx, local, (chosen, breaker_pass), pool, tries, content)
        }
        Err(fault) => fail(cx, content, fault),
    }
}

/// Fails the request. Error routes may have another proxy, which needs the body that no upstream has received.
fn fail(cx: &mut Context, content: Content, fault: Fault) -> Step {
    let body = match content {
        Content::Untaken => return Step::Fail(fault),
        Content::Back(body) => body,
        Content::Kept(replay) => replay.body(),
    };
    match body {
        Body::Tunnel(tunnel) => switch::put_back(cx, *tunnel),
        Body::Incoming(body) => cx.replace_body_by(Box::new(body)),
        Body::Stream(body) => cx.replace_body_by(body),
        Body::Chunk(chunk) => cx.replace_body(chunk),
        // An upstream's request has no others.
        Body::Empty | Body::File(_) | Body::Parts(_) => {}
    }
    Step::Fail(fault)
}

/// Selects an upstream, and passes its circuit breaker.
fn select(cx: &mut Context, local: &Local, backends: Backends<'_>) -> Option<(usize, BreakerPass)> {
    // Another worker may get the only probe of an upstream between the selection and the breaker; then the upstream is
    // not available any more, so each round but the last one has fewer of them.
    for _ in 0..=backends.len() {
        let number = local.plan.balancing.select(cx, local, backends)?;
        if let Some(breaker_pass) = backends[number].admit(cx) {
            return Some((number, breaker_pass));
        }
    }
    None
}

/// Makes another attempt after a pause, or fails with the fault of this one.
fn retry(
    cx: &mut Context,
    local: Rc<Local>,
    tries: Tries,
    content: Content,
    fault: Fault,
    failed: AttemptProgress,
) -> Step {
    let pause = local.plan.balancing.retries.as_ref().and_then(|retries| retries.pause(cx, &tries, failed));
    let Some(pause) = pause else { return fail(cx, content, fault) };
    if local.plan.is_verbose {
        let after = pause.as_secs_f64();
        tracing::debug!(retries = tries.retries, after, cause = %fault.reason, "retrying");
    }
    let tries = tries.next();
    local.placeholders(cx).set_before_attempt(cx, &tries);
    if pause.is_zero() {
        return attempt(cx, local, tries, content, Some(fault));
    }
    let sleep = Sleep::until(Rc::clone(cx.worker()), cx.worker().now() + pause);
    cx.wait(sleep, move |cx, ()| attempt(cx, local, tries, content, Some(fault)))
}

/// Sends the request to an address, and waits for the response.
fn send_attempt(
    cx: &mut Context,
    local: Rc<Local>,
    (chosen, breaker_pass): (ChosenBackend, BreakerPass),
    pool: Rc<AddressPool>,
    tries: Tries,
    content: Content,
) -> Step {
    let plan = &*local.plan;
    let mut requested_switch = match &content {
        Content::Back(Body::Tunnel(_)) => Switch::Upgrade,
        _ => match Switch::of(cx, plan) {
            Ok(switch) => switch,
            Err(fault) => return Step::Fail(fault),
        },
    };
    // Before the head is filled: header operations may use these placeholders.
    local.placeholders(cx).set_upstream(cx, chosen.common(plan), &pool);
    let upstream = match requested_switch {
        Switch::None => &pool.upstream,
        Switch::Upgrade => pool.switching(cx.worker()),
    };
    let call = upstream.calls().take();
    // Counted until the call is dropped, after its response was read.
    call.set_counter(chosen.load(cx, plan));
    if let Err(fault) = request::fill(cx, &call, plan, &pool, requested_switch) {
        return fail(cx, content, fault);
    }
    if !cx.is_extended_connect() && !call.request().fields().contains(names::UPGRADE) {
        // `header_up` has removed it.
        requested_switch = Switch::None;
    }
    let (mut content, replay) = match take_content(cx, plan, &call, requested_switch, content) {
        Ok(taken) => taken,
        Err(fault) => return Step::Fail(fault),
    };
    let has_content = !matches!(content, Body::Empty);
    if let Err(fault) = plan.wire_form.wrap(cx, &call, &mut content, &pool) {
        return fail(cx, replay.map_or(Content::Back(content), Content::Kept), fault);
    }
    call.send(content, &**upstream);
    let began = cx.worker().now();
    let pending = PendingCall {
        local: Rc::clone(&local),
        backend: chosen,
        pool: Rc::clone(&pool),
        has_content,
        began,
        interims: 0,
        addresses: 1,
        tries,
        replay,
        breaker_pass: Cell::new(breaker_pass),
    };
    cx.wait(NextEvent(Some((call, pending))), handle_event)
}

/// Sends a request without content to the same address once more.
pub(super) fn repeat(cx: &mut Context, pending: PendingCall) -> Step {
    let PendingCall { local, backend, pool, tries, breaker_pass, .. } = pending;
    let tries = Tries { is_repeated: true, ..tries };
    send_attempt(cx, local, (backend, breaker_pass.take()), pool, tries, Content::Back(Body::Empty))
}

/// Returns the request's body, and its copy for another attempt.
fn take_content(
    cx: &mut Context,
    plan: &ReverseProxyPlan,
    call: &Call,
    switch: Switch,
    content: Content,
) -> Result<(Body, Option<Replay>), Fault> {
    let untouched = match content {
        Content::Back(Body::Tunnel(tunnel)) if switch == Switch::None => {
            let content = if tunnel.content.is_empty() { Body::Empty } else { Body::Chunk(tunnel.content) };
            return Ok((content, None));
        }
        Content::Back(body) => return Ok((body, None)),
        Content::Kept(replay) => return Ok((replay.body(), Some(replay))),
        // A later proxy may need the body, or the bytes of a tunnel after it.
        Content::Untaken if switch == Switch::None && (plan.drops_body || cx.is_body_empty()) => {
            return Ok((Body::Empty, None));
        }
        Content::Untaken => cx.take_body(),
    };
    Ok(match (switch, untouched) {
        // A handler has removed the request for an upgrade. The stream's bytes belong to the tunnel, and may never end.
        (Switch::None, _) if cx.is_extended_connect() => (Body::Empty, None),
        (Switch::None, Some(body)) if !body.is_empty() => {
            // HTTP in gRPC puts the head into the content, so an attempt's content is of no use to the next one.
            // Over HTTP/2 the upstream can state that it has not processed a request of which it has part of the
            // content.
            let may_be_unprocessed = match plan.transport.versions {
                Versions::Http1 => false,
                Versions::Http2 => true,
                Versions::Negotiated => plan.transport.tls.is_some(),
            };
            if plan.wire_form.sends_own_content()
                && plan
                    .balancing
                    .retries
                    .as_ref()
                    .is_some_and(|retries| may_be_unprocessed || retries.keeps_body(cx, call))
            {
                let replay = Replay::new(body, plan.request_buffers.unwrap_or_default());
                (replay.body(), Some(replay))
            } else {
                (Body::Incoming(body), None)
            }
        }
        // Forwarded without it, the request would mean another one.
        (Switch::None, None) if plan.wire_form.sends_declared_length() && cx.head().fields().declares_content() => {
            return Err(bad_gateway("another handler has taken the request's content".to_owned()));
        }
        (Switch::None, _) => (Body::Empty, None),
        // The content of the tunnel, in case the upstream switches. It is the client's, also if a handler has replaced
        // the content that the request does not have.
        (Switch::Upgrade, Some(_)) => (Body::tunnel(Chunk::default(), cx.tunnel_reader()), None),
        (Switch::Upgrade, None) => return Err(Fault::from_status(StatusCode::INTERNAL_SERVER_ERROR)),
    })
}

/// Waits for the next head of a call. Dropping it cancels the call.
struct NextEvent(Option<(Call, PendingCall)>);

impl Future for NextEvent {
    type Output = (Call, PendingCall, Result<CallEvent, CallError>);

    fn poll(mut self: Pin<&mut Self>, poll_cx: &mut PollContext<'_>) -> Poll<Self::Output> {
        let (call, _) = self.0.as_ref().expect("not polled after its end");
        let answer = ready!(call.poll_event(poll_cx));
        let (call, pending) = self.0.take().expect("it was there");
        Poll::Ready((call, pending, answer))
    }
}

fn handle_event(cx: &mut Context, (call, pending, answer): (Call, PendingCall, Result<CallEvent, CallError>)) -> Step {
    match answer {
        Ok(CallEvent::Interim(status, fields)) => forward_interim(cx, call, pending, status, *fields),
        // 101 and a tunnel must come together: either one alone is a protocol error of the upstream.
        Ok(CallEvent::Head { tunnel }) if tunnel == (call.head().status() == StatusCode::SWITCHING_PROTOCOLS) => {
            take_response(cx, call, pending, tunnel)
        }
        Ok(CallEvent::Head { .. }) => {
            pending.record_outcome(cx, CallEnd::Failed);
            let fault = bad_gateway("the upstream switched protocols although none was requested".to_owned());
            refused(cx, &pending.pool, pending.began, fault)
        }
        Err(error) => end_failed(cx, call, pending, error),
    }
}

/// Forwards an interim response, and waits for the next head.
fn forward_interim(
    cx: &mut Context,
    call: Call,
    mut pending: PendingCall,
    status: StatusCode,
    fields: FieldMap,
) -> Step {
    if pending.interims == INTERIMS_MAX {
        pending.count_failure(cx);
        let message = "the upstream sent too many interim responses";
        return refused(cx, &pending.pool, pending.began, bad_gateway(message.to_owned()));
    }
    pending.interims += 1;
    push_interim(cx, status, fields);
    cx.wait(NextEvent(Some((call, pending))), handle_event)
}

/// The head of the response has arrived: counts it, then makes another attempt or responds with it.
fn take_response(cx: &mut Context, call: Call, pending: PendingCall, tunnel: bool) -> Step {
    let (local, pool, began) = (Rc::clone(&pending.local), Rc::clone(&pending.pool), pending.began);
    let plan = &local.plan;
    tracing::debug!(
        upstream = %pool.address.name,
        duration = cx.worker().now().saturating_duration_since(began).as_secs_f64(),
        request.json = %request_json(cx, &call.request()),
        headers.json = %headers_json(call.head().fields()),
        status = call.head().status().as_u16(),
        "upstream roundtrip"
    );
    pending.count_response(cx, call.head().status());
    if !tunnel && let Some(retries) = plan.balancing.retries.as_ref().filter(|retries| retries.judges_responses()) {
        local.placeholders(cx).set_response(cx, &call, began);
        if retries.rejects(cx, &call)
            // Without the request's content there is no other attempt: the client gets this response.
            && let Some(content) = content_left(&call, &pending)
        {
            let fault = rejected(&pool, call.head().status());
            drop(call);
            return retry(cx, pending.local, pending.tries, content, fault, AttemptProgress::Rejected);
        }
    }
    if let Some(bytes_max) = plan.response_buffers.filter(|_| buffer::is_for_answer(cx, &call)) {
        if incremental::is_marked(call.head().fields()) {
            let fault = incremental::refuse(cx, plan, Some(call.head().fields()));
            return Step::Fail(fault);
        }
        return cx.wait(buffer::AnswerReader::new(call, pending, bytes_max), buffered);
    }
    unwrap(cx, &local, call, pending, &pool, began)
}

/// The call has no response: counts the failure, then makes another attempt or fails the request.
fn end_failed(cx: &mut Context, call: Call, mut pending: PendingCall, error: CallError) -> Step {
    let has_other_address = pending.pool.upstream.report_failure(&call, &error, pending.addresses);
    let took = cx.worker().now().saturating_duration_since(pending.began);
    tracing::debug!(
        upstream = %pending.pool.address.name,
        duration = took.as_secs_f64(),
        request.json = %request_json(cx, &call.request()),
        %error,
        "upstream roundtrip"
    );
    let is_late = pending.is_late(took);
    let Some(kind) = error.kind(false) else { return Step::Fail(failed(&pending.pool, error, is_late)) };
    report_failure(&pending.pool.address.name, kind, took, &error, cx.worker().now());
    if has_other_address && let Some(body) = call.take_unsent_body() {
        let next = send_elsewhere(cx, call, body, &pending);
        pending.addresses += 1;
        // The time until the failure is no latency of the other address.
        pending.began = cx.worker().now();
        return cx.wait(NextEvent(Some((next, pending))), handle_event);
    }
    // The engine sends a request without content again, but every call of this wire form has a message. Its connection
    // now has the upstream's limit of streams.
    if matches!(pending.local.plan.wire_form, WireForm::HttpGrpc(_))
        && matches!(error, CallError::Unprocessed | CallError::Reset("REFUSED_STREAM"))
        && !pending.has_content
        && !pending.tries.is_repeated
    {
        drop(call);
        return repeat(cx, pending);
    }
    // These are no failures of the upstream. The first three are limits of this server. The last one is normal when an
    // upstream ends a connection in good order.
    if !matches!(error, CallError::Busy | CallError::QueueTimedOut | CallError::NoDescriptors | CallError::Unprocessed)
    {
        pending.count_failure(cx);
    }
    // A probe that was not counted leaves its pool, also to the next attempt below.
    drop(pending.breaker_pass.take());
    let content = content_left(&call, &pending);
    let attempted = match AttemptProgress::of(&error) {
        AttemptProgress::Sent if content.is_some() && may_repeat(cx, &call, &pending) => AttemptProgress::Repeatable,
        attempted => attempted,
    };
    // Before the next attempt: the call counts until it is dropped.
    drop(call);
    let fault = failed(&pending.pool, error, is_late);
    match content {
        Some(content) => retry(cx, pending.local, pending.tries, content, fault, attempted),
        None => Step::Fail(fault),
    }
}

/// Sends the request of a call that reached no server to another address of the upstream's name. For the upstream as a
/// whole it is no failure.
#[cold]
fn send_elsewhere(cx: &Context, call: Call, body: Body, pending: &PendingCall) -> Call {
    let upstream = &pending.pool.upstream;
    // The engine may still have its handle to the failed call.
    let next = upstream.calls().take();
    std::mem::swap(&mut *next.request_mut(), &mut *call.request_mut());
    drop(call);
    next.set_counter(pending.backend.load(cx, &pending.local.plan));
    next.send(body, &**upstream);
    next
}

/// Returns whether the call's request may be sent again although the upstream may have acted on it, and the limits
/// leave an attempt.
fn may_repeat(cx: &mut Context, call: &Call, pending: &PendingCall) -> bool {
    let plan = &pending.local.plan;
    let Some(retries) = &plan.balancing.retries else { return false };
    // First, since the rest may evaluate many matchers.
    if !retries.has_attempt_left(cx, &pending.tries) {
        return false;
    }
    // HTTP in gRPC has put the head of its message into the call. It switches no protocols.
    if !plan.wire_form.sends_own_content() && request::fill(cx, call, plan, &pending.pool, Switch::None).is_err() {
        return false;
    }
    let placeholders = pending.local.placeholders(cx);
    placeholders.set_transport_error(cx);
    let allowed = retries.allows(cx, call);
    placeholders.unset_transport_error(cx);
    allowed
}

/// The response's content has been read for `response_buffers`.
fn buffered(cx: &mut Context, (call, pending, read): (Call, PendingCall, Result<(), BodyError>)) -> Step {
    let (local, pool, began) = (Rc::clone(&pending.local), Rc::clone(&pending.pool), pending.began);
    match read {
        Ok(()) => unwrap(cx, &local, call, pending, &pool, began),
        // The client has nothing of the response yet, so it gets an error instead of a part. The engine has logged it.
        Err(error) => Step::Fail(bad_gateway(format!("upstream {}: its response: {error}", pool.address.name))),
    }
}

fn unwrap(
    cx: &mut Context,
    local: &Local,
    call: Call,
    pending: PendingCall,
    pool: &AddressPool,
    began: Instant,
) -> Step {
    match local.plan.wire_form.unwrap(cx, call, pending) {
        Step::Fail(fault) => refused(cx, pool, began, fault),
        step => step,
    }
}

/// Returns the body for another attempt; `None` if it is lost.
fn content_left(call: &Call, pending: &PendingCall) -> Option<Content> {
    // No frame of it was read, so it is whole.
    let unsent = call.take_unsent_body();
    match (&pending.replay, unsent) {
        (Some(replay), _) => replay.is_whole().then(|| Content::Kept(replay.clone())),
        // In another wire form it contains this attempt's head.
        (None, Some(body)) if pending.local.plan.wire_form.sends_own_content() => Some(Content::Back(body)),
        (None, _) => (!pending.has_content).then_some(Content::Back(Body::Empty)),
    }
}

/// The upstream responded, but its response is not usable.
#[cold]
fn refused(cx: &Context, pool: &AddressPool, began: Instant, fault: Fault) -> Step {
    if matches!(fault.status, StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT) {
        let now = cx.worker().now();
        let took = now.saturating_duration_since(began);
        report_failure(&pool.address.name, FailureKind::Unusable, took, &fault.reason, now);
    }
    Step::Fail(fault)
}

/// RFC 9110 §15.2: a proxy forwards 1xx responses, except those that it caused itself.
fn push_interim(cx: &mut Context, status: StatusCode, mut fields: FieldMap) {
    if matches!(status.as_u16(), 100 | 101) {
        return;
    }
    // One that names too many fields of its connection is dropped: the client can do without.
    if super::answer::strip(&mut fields, status).is_ok() {
        cx.push_interim(status, fields);
    }
}

#[cold]
fn no_upstream() -> Fault {
    Fault { status: StatusCode::SERVICE_UNAVAILABLE, reason: Reason::Text("no upstreams available".into()) }
}

/// The fault of the last attempt if `lb_retry_match` rejects its response: as in Caddy, with the response's status.
#[cold]
fn rejected(pool: &AddressPool, status: StatusCode) -> Fault {
    let message =
        format!("upstream {}: lb_retry_match rejects its response, status {}", pool.address.name, status.as_u16());
    Fault { status, reason: Reason::Text(message.into()) }
}

/// As Caddy's statusError: 502 for a failed call, 504 for a timeout; a fault of the client's own body keeps its status.
#[cold]
fn failed(pool: &AddressPool, error: CallError, is_late: bool) -> Fault {
    let status = match &error {
        CallError::RequestBody(error) => return Fault::from_body_error(*error),
        CallError::HeadTimedOut => StatusCode::GATEWAY_TIMEOUT,
        CallError::Closed | CallError::Reset(_) if is_late => StatusCode::GATEWAY_TIMEOUT,
        CallError::Busy | CallError::QueueTimedOut | CallError::NoDescriptors | CallError::Overloaded => {
            StatusCode::SERVICE_UNAVAILABLE
        }
        _ => StatusCode::BAD_GATEWAY,
    };
    Fault { status, reason: Reason::Text(format!("upstream {}: {error}", pool.address.name).into()) }
}
