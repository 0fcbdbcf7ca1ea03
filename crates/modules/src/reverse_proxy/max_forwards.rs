//! `Max-Forwards`: how many further times a request with OPTIONS or TRACE may be forwarded (RFC 9110 §7.6.2).

use causeway_message::syntax::parse_number;
use causeway_message::{Head, Method, StatusCode, names};
use causeway_pipeline::{Context, Response, Step};

/// Responds in place of the upstream to a request that may not be forwarded. `None` if it may.
pub(super) fn answer(cx: &Context) -> Option<Step> {
    if limit(cx.head())? > 0 {
        return None;
    }
    // RFC 9110 §9.3.8: TRACE would have to return the request, with fields that clients may not be able to read
    // otherwise. It is implemented for no resource.
    let status = if cx.head().method() == Method::Options { StatusCode::OK } else { StatusCode::NOT_IMPLEMENTED };
    Some(Step::Respond(Response::empty(status)))
}

/// Counts the forwarding of a request to the upstream.
pub(super) fn count(request: &mut Head) {
    if let Some(limit) = limit(request) {
        request.fields_mut().insert_number(names::MAX_FORWARDS, limit.saturating_sub(1));
    }
}

/// Returns the value of the field; `None` without a valid one, and for other methods, with which the field has no
/// meaning.
fn limit(request: &Head) -> Option<u64> {
    if !matches!(request.method(), Method::Options | Method::Trace) {
        return None;
    }
    let fields = request.fields();
    let value = fields.get(names::MAX_FORWARDS).filter(|_| !fields.is_repeated(names::MAX_FORWARDS))?;
    let is_number = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
    // A larger number becomes the largest one that this proxy supports.
    is_number.then(|| parse_number(value).unwrap_or(u64::MAX))
}
