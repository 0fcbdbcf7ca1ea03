//! Checks a request's fields in combination: where the content ends, and whether another request may follow.

use causeway_message::{BodyLength, FieldMap, Head, Method, Target, TargetForm, Version, is_host_port, names};

use crate::error::ProtocolError;
use crate::framing::{ConnectionOptions, body_length};

/// The properties of a head that the machine keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RequestProperties {
    pub(super) body: BodyLength,
    pub(super) expects_continue: bool,
    /// The head has an expectation, no content, and Upgrade.
    pub(super) continue_before_switch: bool,
    pub(super) upgrade: bool,
    pub(super) is_persistent: bool,
}

pub(super) fn examine(head: &Head) -> Result<RequestProperties, ProtocolError> {
    let fields = head.fields();
    let is_http_1_0 = head.version() == Version::Http10;
    check_target(head.method(), head.target())?;
    check_host(fields, is_http_1_0)?;
    let body = body_length(fields, is_http_1_0)?;
    let is_expecting = expects_continue(fields, is_http_1_0)?;
    let has_content = !matches!(body, BodyLength::None | BodyLength::Sized(0));
    let options = ConnectionOptions::of(fields);
    // RFC 9110 §7.8: Upgrade counts only if Connection lists it, and never in HTTP/1.0.
    let upgrade =
        !is_http_1_0 && options.upgrade && fields.contains(names::UPGRADE) || head.method() == Method::Connect;
    let is_persistent = options.is_persistent(is_http_1_0);
    Ok(RequestProperties {
        body,
        expects_continue: is_expecting && has_content,
        continue_before_switch: is_expecting && !has_content && upgrade,
        upgrade,
        is_persistent,
    })
}

// RFC 9112 §3.2.3, §3.2.4: the target forms of each method; RFC 9110 §9.3.6: CONNECT needs a port.
#[inline]
fn check_target(method: Method<'_>, target: Target<'_>) -> Result<(), ProtocolError> {
    let ok = match target.form() {
        TargetForm::Origin | TargetForm::Absolute => method != Method::Connect,
        TargetForm::Authority => method == Method::Connect && target.is_host_and_port(),
        TargetForm::Asterisk => method == Method::Options,
    };
    if ok { Ok(()) } else { Err(ProtocolError::Target) }
}

// RFC 9112 §3.2: HTTP/1.1 needs exactly one Host, even with an absolute target; more than one or an invalid one is an
// error.
#[inline]
fn check_host(fields: &FieldMap, is_http_1_0: bool) -> Result<(), ProtocolError> {
    match fields.get(names::HOST) {
        Some(_) if fields.is_repeated(names::HOST) => Err(ProtocolError::HostCount),
        Some(value) if is_host_port(value) => Ok(()),
        Some(_) => Err(ProtocolError::HostValue),
        None if is_http_1_0 => Ok(()),
        None => Err(ProtocolError::HostCount),
    }
}

// RFC 9110 §10.1.1: 100-continue is the only defined expectation; HTTP/1.0 has no expectations.
#[inline]
fn expects_continue(fields: &FieldMap, is_http_1_0: bool) -> Result<bool, ProtocolError> {
    if is_http_1_0 || !fields.contains(names::EXPECT) {
        return Ok(false);
    }
    let mut found = false;
    for element in fields.list(names::EXPECT) {
        if !element.eq_ignore_ascii_case(b"100-continue") {
            return Err(ProtocolError::Expectation);
        }
        found = true;
    }
    Ok(found)
}
