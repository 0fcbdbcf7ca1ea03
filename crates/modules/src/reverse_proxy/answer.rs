//! Builds the client's response from the upstream's.

use std::rc::Rc;

use causeway_message::{FieldMap, FieldName, NameRef, StatusCode, names};
use causeway_pipeline::{Body, BodyStream as _, Call, Context, Fault, HeldResponseHandler, Response, Step};

use super::attempt::PendingCall;
use super::health::CallEnd;
use super::request::{self, NAMED_MAX};
use super::switch::{put_back, tunnel};
use super::{Local, bad_gateway};

/// Most fields of a response: a field map holds at most 65 535.
const FIELDS_MAX: usize = 60_000;

/// Dispatches a response whose head has been received: to a tunnel, to `handle_response` routes, or to the client.
pub(super) fn decide(cx: &mut Context, call: Call, pending: PendingCall) -> Step {
    let mut status = call.head().status();
    pending.record_outcome(cx, CallEnd::Responded(status));
    let PendingCall { local, began, .. } = pending;
    local.placeholders(cx).set_response(cx, &call, began);
    // The client's side of the tunnel: routes may have another proxy, such as the one after `forward_auth`. If the
    // upstream has switched, it has that side.
    if status != StatusCode::SWITCHING_PROTOCOLS
        && let Some(Body::Tunnel(tunnel)) = call.take_unsent_body()
    {
        put_back(cx, *tunnel);
    }
    // As in Caddy, also for a 101.
    let routes = local.plan.response_routes.iter().find(|routes| routes.are_for(call.head().fields(), status));
    if let Some(routes) = routes {
        match routes.status(cx) {
            Some(Ok(other)) => status = other,
            Some(Err(fault)) => return Step::Fail(fault),
            None => {
                let list = routes.list();
                cx.hold_upstream_response(call, local);
                return Step::Run(list);
            }
        }
    }
    forward(cx, &local, call, status)
}

impl HeldResponseHandler for Local {
    fn finish(self: Rc<Self>, cx: &mut Context, call: Call, status: Option<StatusCode>) -> Step {
        let status = status.unwrap_or_else(|| call.head().status());
        forward(cx, &self, call, status)
    }
}

/// Responds with the upstream's response, which may begin a tunnel.
fn forward(cx: &mut Context, local: &Local, call: Call, status: StatusCode) -> Step {
    let is_switch = call.head().status() == StatusCode::SWITCHING_PROTOCOLS;
    if is_switch && status == StatusCode::SWITCHING_PROTOCOLS {
        return tunnel(cx, call, &local.plan);
    }

    // Caddy: the upstream's Server field is kept; this server is named in Via.
    cx.response_mut().remove(names::SERVER);
    let changes = local.plan.headers.as_ref().filter(|headers| headers.changes_answers());
    let put = match changes {
        None => put_fields(cx, &call, |name| is_kept(name, status)),
        Some(headers) => {
            let stripped = strip(call.head_mut().fields_mut(), status);
            stripped
                .and_then(|()| headers.apply_to_answer(cx, &call, status))
                .and_then(|()| put_fields(cx, &call, |_| true))
        }
    };
    if let Err(fault) = put {
        return Step::Fail(fault);
    }
    // DEVIATES Caddy: it prepends its name to those of earlier proxies (RFC 9110 §7.6.3: each proxy appends).
    cx.response_mut().append(names::VIA, request::via(call.version()));
    if is_switch {
        // Another status replaces it, so the upstream's side of the tunnel, which is no content, ends with the call.
        return Step::Respond(Response { status, body: Body::Empty });
    }
    let body = call.into_body();
    let body = if body.is_empty() { Body::Empty } else { Body::Incoming(body) };
    Step::Respond(Response { status, body })
}

/// Returns whether a field of the upstream's response reaches the client.
// DEVIATES Caddy: RFC 9110 §15.5.22: a 426 has Upgrade, with the protocols that the origin requires.
fn is_kept(name: NameRef<'_>, status: StatusCode) -> bool {
    !request::is_of_connection(name) || name == NameRef::Known(names::UPGRADE) && status == StatusCode::UPGRADE_REQUIRED
}

/// Appends the response's fields for which `keep` returns true, except those that its `Connection` names.
pub(super) fn put_fields(cx: &mut Context, call: &Call, keep: impl Fn(NameRef<'_>) -> bool) -> Result<(), Fault> {
    let head = call.head();
    let theirs = head.fields();
    let named = ConnectionOptions::of(theirs)?;
    let ours = cx.response_mut().fields_mut();
    // The appends below panic when the map is full, so the total is checked first.
    if theirs.len() + ours.len() > FIELDS_MAX {
        return Err(bad_gateway("the upstream's response has too many fields".to_owned()));
    }
    theirs.lines().filter(|line| keep(line.name) && !named.holds(line.name)).for_each(|line| ours.push_line(line));
    Ok(())
}

/// Like [`put_fields`], without the fields that belong to the upstream's connection.
pub(super) fn put_copied(cx: &mut Context, call: &Call, wants: impl Fn(NameRef<'_>) -> bool) -> Result<(), Fault> {
    put_fields(cx, call, |name| !request::is_of_connection(name) && wants(name))
}

/// Removes the fields that belong to the upstream's connection.
pub(super) fn strip(fields: &mut FieldMap, status: StatusCode) -> Result<(), Fault> {
    let named = ConnectionOptions::of(fields)?;
    fields.retain(|name, _| is_kept(name, status) && !named.holds(name));
    Ok(())
}

/// The fields that `Connection` names; none if it contains only `keep-alive` and `close`.
struct ConnectionOptions(Vec<FieldName>);

impl ConnectionOptions {
    /// Copies the names. An upstream that names more of them than [`NAMED_MAX`] is at fault: each field of its response
    /// is compared with each name.
    fn of(fields: &FieldMap) -> Result<Self, Fault> {
        let is_usual =
            |option: &[u8]| option.eq_ignore_ascii_case(b"keep-alive") || option.eq_ignore_ascii_case(b"close");
        if !fields.contains(names::CONNECTION) || fields.list(names::CONNECTION).all(is_usual) {
            return Ok(Self(Vec::new()));
        }
        if fields.list(names::CONNECTION).nth(NAMED_MAX).is_some() {
            let source = "in Connection of the upstream's response";
            return Err(bad_gateway(format!(
                "found more than {NAMED_MAX} names {source}, expected at most {NAMED_MAX}"
            )));
        }
        let options = fields.list(names::CONNECTION);
        let options = options.filter_map(|name| FieldName::parse(std::str::from_utf8(name).ok()?));
        // Upgrade is kept for the response that opens a tunnel; other responses filter it separately.
        Ok(Self(options.filter(|name| name.as_ref() != NameRef::Known(names::UPGRADE)).collect()))
    }

    fn holds(&self, name: NameRef<'_>) -> bool {
        self.0.iter().any(|named| named.as_ref() == name)
    }
}
