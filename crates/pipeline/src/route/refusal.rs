//! Requests that are rejected before any route.

use std::net::IpAddr;

use causeway_message::{StatusCode, Version};

use crate::context::Context;
use crate::handler::{Fault, Reason};

/// Bytes of a method that routes get; the longest registered one has 17 (`UPDATEREDIRECTREF`).
// DEVIATES Caddy: a longer one is 501, as for the protocol machine. Its 405 has no Allow (RFC 9110 §15.5.6).
pub(crate) const ROUTED_METHOD_BYTES_MAX: usize = 32;

/// Rejects the requests that Caddy rejects before any route: over-long methods, an empty Host field, hosts of dots
/// only (which could traverse directories in a `root` of `/srv/{host}`), and on a strict server a host that differs
/// from the TLS server name.
pub(super) fn refusal(cx: &Context) -> Option<Fault> {
    let authority = cx.head().authority();
    // RFC 9110 §4.2.1: a target without a host is invalid.
    if authority == Some("") && cx.version() == Version::Http11 {
        return Some(bad_host("the Host field is empty"));
    }
    let begins_so = authority.is_some_and(|authority| authority.starts_with('.'));
    // The cheap test of the first byte keeps this scan off the common path.
    if begins_so && cx.host().bytes().all(|byte| byte == b'.') {
        return Some(bad_host("invalid host"));
    }
    let is_long = cx.head().method().as_str().len() > ROUTED_METHOD_BYTES_MAX;
    if is_long {
        return Some(Fault { status: StatusCode::NOT_IMPLEMENTED, reason: Reason::MethodTooLong });
    }
    let tls = cx.arrival().tls.as_deref()?;
    let is_strict = cx.generation().plan().server(cx.arrival().server)?.strict_sni_host;
    let server_name = tls.server_name.as_deref().unwrap_or_default();
    (is_strict && !is_same_host(cx.host(), server_name)).then(|| misdirected(server_name, cx.host()))
}

/// Compares hosts. IPv6 has several texts for one address (RFC 4291 §2.2).
fn is_same_host(host: &str, server_name: &str) -> bool {
    let address = |text: &str| text.parse::<IpAddr>().ok();
    host.eq_ignore_ascii_case(server_name) || address(host).is_some_and(|host| address(server_name) == Some(host))
}

/// RFC 9110 §15.5.20: the client may retry on a new connection.
#[cold]
fn misdirected(server_name: &str, host: &str) -> Fault {
    let message = format!("strict host matching: TLS ServerName ({server_name}) and HTTP Host ({host}) values differ");
    Fault { status: StatusCode::MISDIRECTED_REQUEST, reason: Reason::Text(message.into()) }
}

#[cold]
fn bad_host(message: &'static str) -> Fault {
    Fault { status: StatusCode::BAD_REQUEST, reason: Reason::Text(message.into()) }
}
