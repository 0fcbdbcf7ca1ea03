//! What a request's fields mean for its connection: where the content ends, whether another request may follow.

use causeway_message::{BodyLength, FieldMap, Head, Method, Target, TargetForm, Version, is_host_port, names, octets};

use crate::fault::HeadFault;

/// What the machine keeps of a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Facts {
    pub(super) body: BodyLength,
    pub(super) expects_continue: bool,
    pub(super) upgrade: bool,
    pub(super) keep: bool,
}

pub(super) fn examine(head: &Head) -> Result<Facts, HeadFault> {
    let fields = head.fields();
    let is_10 = head.version() == Version::Http10;
    check_target(head.method(), head.target())?;
    check_host(fields, is_10)?;
    let body = body_length(fields, is_10)?;
    let expects_continue = expects_continue(fields, is_10)? && !matches!(body, BodyLength::None | BodyLength::Sized(0));
    let (mut close, mut keep_alive, mut upgrade) = (false, false, false);
    if let Some(first) = fields.get(names::CONNECTION) {
        // RFC 9110 §7.6.1: options are compared in any case.
        if first.eq_ignore_ascii_case(b"keep-alive") && !fields.is_repeated(names::CONNECTION) {
            keep_alive = true;
        } else {
            for option in fields.list(names::CONNECTION) {
                close |= option.eq_ignore_ascii_case(b"close");
                keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
                upgrade |= option.eq_ignore_ascii_case(b"upgrade");
            }
        }
    }
    // RFC 9110 §7.8: Upgrade counts where Connection names it, and never in HTTP/1.0.
    let upgrade = !is_10 && upgrade && fields.contains(names::UPGRADE) || head.method() == Method::Connect;
    // RFC 9112 §9.3.
    let keep = !close && (!is_10 || keep_alive);
    Ok(Facts { body, expects_continue, upgrade, keep })
}

// RFC 9112 §3.2.3, §3.2.4: which method goes with which form; RFC 9110 §9.3.6: CONNECT needs a port.
#[inline]
fn check_target(method: Method<'_>, target: Target<'_>) -> Result<(), HeadFault> {
    let ok = match target.form() {
        TargetForm::Origin | TargetForm::Absolute => method != Method::Connect,
        TargetForm::Authority => method == Method::Connect && target.is_host_and_port(),
        TargetForm::Asterisk => method == Method::Options,
    };
    if ok { Ok(()) } else { Err(HeadFault::Target) }
}

// RFC 9112 §3.2: exactly one in HTTP/1.1, whatever the target says; never two, never one that is no host.
#[inline]
fn check_host(fields: &FieldMap, is_10: bool) -> Result<(), HeadFault> {
    match fields.get(names::HOST) {
        Some(_) if fields.is_repeated(names::HOST) => Err(HeadFault::HostCount),
        Some(value) if is_host_port(value) => Ok(()),
        Some(_) => Err(HeadFault::HostValue),
        None if is_10 => Ok(()),
        None => Err(HeadFault::HostCount),
    }
}

// RFC 9112 §6.1, §6.3. Whatever two parsers could read in two ways is refused.
#[inline]
fn body_length(fields: &FieldMap, is_10: bool) -> Result<BodyLength, HeadFault> {
    if let Some(coding) = fields.get(names::TRANSFER_ENCODING) {
        if fields.contains(names::CONTENT_LENGTH) {
            return Err(HeadFault::LengthAndCoding);
        }
        if is_10 {
            return Err(HeadFault::TransferEncoding);
        }
        if fields.is_repeated(names::TRANSFER_ENCODING) || !coding.eq_ignore_ascii_case(b"chunked") {
            return Err(coding_fault(fields));
        }
        return Ok(BodyLength::Unknown);
    }
    match fields.content_length() {
        Ok(Some(octets)) => Ok(BodyLength::Sized(octets)),
        Ok(None) => Ok(BodyLength::None),
        Err(_) => Err(HeadFault::ContentLength),
    }
}

// RFC 9112 §6.1: a coding that is not known is 501; chunked twice, not last, or misspelt is 400.
#[cold]
fn coding_fault(fields: &FieldMap) -> HeadFault {
    let is_foreign = |element: &[u8]| {
        let name = octets::trim_ows(element.split(|&octet| octet == b';').next().unwrap_or_default());
        octets::is_token(name) && !name.eq_ignore_ascii_case(b"chunked") && !name.eq_ignore_ascii_case(b"identity")
    };
    let foreign = fields.list(names::TRANSFER_ENCODING).any(is_foreign);
    if foreign { HeadFault::TransferCoding } else { HeadFault::TransferEncoding }
}

// RFC 9110 §10.1.1: 100-continue is the one expectation there is; HTTP/1.0 has none.
#[inline]
fn expects_continue(fields: &FieldMap, is_10: bool) -> Result<bool, HeadFault> {
    if is_10 || !fields.contains(names::EXPECT) {
        return Ok(false);
    }
    let mut found = false;
    for element in fields.list(names::EXPECT) {
        if !element.eq_ignore_ascii_case(b"100-continue") {
            return Err(HeadFault::Expectation);
        }
        found = true;
    }
    Ok(found)
}
