//! What is refused before any route.

use causeway_message::{StatusCode, Version};

use crate::context::Context;
use crate::handler::{Fault, Reason};

/// Octets of a method; the longest registered one has 17.
const METHOD_OCTETS_MAX: usize = 32;

/// What Caddy refuses before any route: methods that no one has, a host that is there and empty, hosts that a `root` of
/// `/srv/{host}` would climb by, and where its server is strict, hosts that the connection was not opened for.
pub(super) fn refusal(cx: &Context) -> Option<Fault> {
    let authority = cx.head().authority();
    // RFC 9110 §4.2.1: a target without a host is invalid.
    if authority == Some("") && cx.version() == Version::Http11 {
        return Some(bad_host("the Host field is empty"));
    }
    let begins_so = authority.is_some_and(|authority| authority.starts_with('.'));
    if begins_so && cx.host().bytes().all(|octet| octet == b'.') {
        return Some(bad_host("invalid host"));
    }
    let is_long = cx.head().method().as_str().len() > METHOD_OCTETS_MAX;
    if is_long {
        return Some(Fault::status(StatusCode::METHOD_NOT_ALLOWED));
    }
    let tls = cx.arrival().tls.as_deref()?;
    let is_strict = cx.generation().plan().server(cx.arrival().server)?.strict_sni_host;
    let server_name = tls.server_name.as_deref().unwrap_or_default();
    (is_strict && !cx.host().eq_ignore_ascii_case(server_name)).then(|| misdirected(server_name, cx.host()))
}

/// RFC 9110 §15.5.20: the client may ask again on a connection of its own.
#[cold]
fn misdirected(server_name: &str, host: &str) -> Fault {
    let words = format!("strict host matching: TLS ServerName ({server_name}) and HTTP Host ({host}) values differ");
    Fault { status: StatusCode::MISDIRECTED_REQUEST, reason: Reason::Text(words.into()) }
}

#[cold]
fn bad_host(words: &'static str) -> Fault {
    Fault { status: StatusCode::BAD_REQUEST, reason: Reason::Text(words.into()) }
}
