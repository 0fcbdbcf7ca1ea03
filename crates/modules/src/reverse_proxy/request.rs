//! Builds the upstream request from the client's.

use causeway_message::{
    FieldMap, FieldValue, Head, KnownName, Method, NameRef, StatusCode, TargetForm, Version, names,
};
use causeway_pipeline::{Call, Context, Fault, Reason};

use super::backend::AddressPool;
use super::switch::Switch;
use super::wire_form::WireForm;
use super::{Local, ReverseProxyPlan, forwarded, max_forwards};
use crate::headers::remove_listed;
use crate::origin_form::put_origin_form;
use crate::rendered::with_field_value;
use crate::rewrite::Rewrite;

/// Hop-by-hop fields, and those that Caddy treats so (RFC 9110 §7.6.1). `TE` and `Upgrade` are handled separately.
const OF_CONNECTION: [KnownName; 7] = [
    names::ALT_SVC,
    names::CONNECTION,
    names::PROXY_CONNECTION,
    names::KEEP_ALIVE,
    names::PROXY_AUTHENTICATE,
    names::PROXY_AUTHORIZATION,
    names::TRANSFER_ENCODING,
];

/// Most fields that `Connection` of a request or response may name. Each costs a search of the whole head, and
/// legitimate heads name few.
pub(super) const NAMED_MAX: usize = 100;
/// Bytes of memory that a handler keeps on each worker for the heads that its load balancing policy reads.
const PREPARED_BYTES_KEPT: usize = 16 * 1024;

const TRAILERS: FieldValue<'static> = FieldValue::from_static("trailers");
const UPGRADE: FieldValue<'static> = FieldValue::from_static("Upgrade");

/// Fills the head of the upstream request.
pub(super) fn fill(
    cx: &mut Context,
    call: &Call,
    plan: &ReverseProxyPlan,
    pool: &AddressPool,
    switch: Switch,
) -> Result<(), Fault> {
    prepare(cx, &mut call.request_mut(), plan, switch)?;
    // As in Caddy since 2.11, the Host for an upstream over TLS is the upstream's own name.
    if plan.transport.tls.is_some() {
        name_upstream(call, pool);
    }
    if let Some(headers) = &plan.headers {
        headers.apply_to_call(cx, call)?;
    }
    // As in Caddy, a request without a host gets the upstream's name.
    let is_nameless = call.request().fields().get(names::HOST).is_none_or(<[u8]>::is_empty);
    if is_nameless && plan.wire_form.requires_host() {
        name_upstream(call, pool);
    }
    Ok(())
}

/// Fills the part of the upstream request's head that does not depend on the upstream.
fn prepare(cx: &mut Context, request: &mut Head, plan: &ReverseProxyPlan, switch: Switch) -> Result<(), Fault> {
    copy(cx, request, plan.rewrite.as_ref())?;
    make_origin_form(cx, request)?;
    strip(cx, request, plan, switch)?;
    if plan.limits_forwards {
        max_forwards::count(request);
    }
    forwarded::set(cx, request, &plan.trusted);
    request.fields_mut().append(names::VIA, via(cx.version()));
    Ok(())
}

/// Calls `work` with a context whose request is the one for the upstream, before `header_up`: as in Caddy, load
/// balancing policies read this one. If it cannot be made, its sending fails with the fault, and `work` gets the
/// client's.
pub(super) fn with_prepared<T>(cx: &mut Context, local: &Local, work: impl FnOnce(&mut Context) -> T) -> T {
    let mut request = local.prepared.take();
    let result = match prepare(cx, &mut request, &local.plan, Switch::None) {
        Ok(()) => cx.with_head(&mut request, work),
        Err(_) => work(cx),
    };
    request.clear();
    request.shrink_to(PREPARED_BYTES_KEPT);
    local.prepared.replace(request);
    result
}

/// Calls `work` with a context whose request is the call's, as it is sent.
pub(super) fn with_sent<T>(cx: &mut Context, call: &Call, work: impl FnOnce(&mut Context) -> T) -> T {
    let mut request = std::mem::take(&mut *call.request_mut());
    let result = cx.with_head(&mut request, work);
    *call.request_mut() = request;
    result
}

/// Returns the `Via` value for a message received with this version (RFC 9110 §7.6.3).
pub(super) fn via(version: Version) -> FieldValue<'static> {
    match version {
        Version::Http10 => FieldValue::from_static("1.0 Causeway"),
        Version::Http11 => FieldValue::from_static("1.1 Causeway"),
        Version::Http2 => FieldValue::from_static("2.0 Causeway"),
    }
}

/// Copies the client's request. The rewrite changes the copy only.
fn copy(cx: &mut Context, request: &mut Head, rewrite: Option<&Rewrite>) -> Result<(), Fault> {
    let Some(rewrite) = rewrite else {
        request.copy_from(cx.head());
        return Ok(());
    };
    cx.with_scratch(|cx, method| {
        cx.with_scratch(|cx, target| {
            method.extend_from_slice(cx.head().method().as_str().as_bytes());
            target.extend_from_slice(cx.head().target().as_str().as_bytes());
            // `Rewrite` works on the context, so apply it there, copy the result, and restore the client's method and
            // target.
            let rewritten = rewrite.apply_for_call(cx);
            request.copy_from(cx.head());
            if let Some(method) = Method::parse(method) {
                cx.head_mut().set_method(method);
            }
            cx.set_target(&**target)?;
            rewritten
        })
    })
}

/// Moves an authority in the target to `Host` (RFC 9112 §3.2.2), so that header operations on Host have an effect.
fn make_origin_form(cx: &mut Context, request: &mut Head) -> Result<(), Fault> {
    if request.target().form() != TargetForm::Absolute {
        return Ok(());
    }
    cx.with_scratch(|_, text| {
        text.extend_from_slice(request.authority().unwrap_or_default().as_bytes());
        with_field_value(text, |host| request.fields_mut().insert(names::HOST, host));
        text.clear();
        put_origin_form(request.target(), text);
        request.set_target(&**text).map_err(|_| Fault {
            status: StatusCode::BAD_REQUEST,
            reason: Reason::Text("the target cannot be converted to origin form".into()),
        })
    })
}

/// Removes the fields that belong to the client's connection, except the requested protocol of a switch.
fn strip(cx: &mut Context, request: &mut Head, plan: &ReverseProxyPlan, switch: Switch) -> Result<(), Fault> {
    let fields = request.fields_mut();
    cx.with_scratch(|_, text| {
        // As in Caddy, an application over FastCGI cannot switch, but may read the request for it.
        let is_shown = matches!(plan.wire_form, WireForm::FastCgi(_))
            && fields.get(names::UPGRADE).is_some_and(|protocol| !protocol.is_empty())
            && fields.has_token(names::CONNECTION, "upgrade");
        let keeps = switch != Switch::None || is_shown;
        if keeps {
            // Read it before `remove_named` removes it, since Connection names it.
            text.extend_from_slice(fields.get(names::UPGRADE).unwrap_or_default());
            text.make_ascii_lowercase();
        }
        remove_named(fields)?;
        for name in OF_CONNECTION {
            fields.remove(name);
        }
        // RFC 9110 §10.1.1: the engine sends 100 (Continue) when the upstream reads the body, so the upstream must not
        // send another.
        fields.remove(names::EXPECT);
        if fields.contains(names::TE) {
            // `trailers` matters end to end: the origin may be a gRPC server.
            match fields.has_token(names::TE, "trailers") {
                true => fields.insert(names::TE, TRAILERS),
                false => drop(fields.remove(names::TE)),
            }
        }
        if keeps {
            with_field_value(text, |protocol| fields.insert(names::UPGRADE, protocol));
        } else {
            fields.remove(names::UPGRADE);
        }
        if is_shown {
            // Before `header_up`, which may change it. For HTTP, the encoder writes the field.
            fields.insert(names::CONNECTION, UPGRADE);
        }
        Ok(())
    })
}

/// Removes the fields that `Connection` names (RFC 9110 §7.6.1).
// DEVIATES Caddy: it also removes `TE: trailers` here, because a client has to name TE in Connection; its upstreams
// then send no trailers.
fn remove_named(fields: &mut FieldMap) -> Result<(), Fault> {
    let is_usual = |value: &[u8]| value.eq_ignore_ascii_case(b"keep-alive") || value.eq_ignore_ascii_case(b"close");
    match fields.get(names::CONNECTION) {
        None => return Ok(()),
        Some(value) if is_usual(value) && !fields.is_repeated(names::CONNECTION) => return Ok(()),
        Some(_) => {}
    }
    // Rare, so an allocation is acceptable.
    let named: Vec<u8> =
        fields.get_all(names::CONNECTION).flat_map(|value| value.iter().copied().chain(*b",")).collect();
    let elements = || named.split(|&byte| byte == b',').map(<[u8]>::trim_ascii).filter(|name| !name.is_empty());
    if elements().nth(NAMED_MAX).is_some() {
        let message = format!("found more than {NAMED_MAX} names in Connection, expected at most {NAMED_MAX}");
        return Err(Fault { status: StatusCode::BAD_REQUEST, reason: Reason::Text(message.into()) });
    }
    for name in elements() {
        match NameRef::parse(name) {
            // Host must not be removable by a client; TE was handled above.
            Some(NameRef::Known(names::HOST | names::TE)) | None => {}
            Some(name) => {
                fields.remove(name);
            }
        }
    }
    // The trailers of these names, too: only those that are listed are sent.
    remove_listed(fields, |listed| elements().any(|name| name.eq_ignore_ascii_case(listed)));
    Ok(())
}

fn name_upstream(call: &Call, pool: &AddressPool) {
    let name = pool.address.host_value().as_bytes();
    with_field_value(name, |host| call.request_mut().fields_mut().insert(names::HOST, host));
}

/// Returns whether a response field belongs to the upstream's connection.
pub(super) fn is_of_connection(name: NameRef<'_>) -> bool {
    matches!(name, NameRef::Known(name) if OF_CONNECTION.contains(&name) || name == names::TE || name == names::UPGRADE)
}
