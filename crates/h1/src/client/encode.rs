//! Encoding of a request's head (RFC 9112 §3, §5).

use causeway_message::{Framing, Head, KnownName, Method, NameRef, Target, TargetForm, WriteList, names};

use super::ForwardProxy;
use crate::encode::{is_ours, put_length};

/// Upper bound in bytes of a request line and the machine's own fields, without the target and the authority.
const OWN_BYTES_MAX: usize = 192;

/// Writes the head, for a forward proxy in absolute form. `before_tunnel`: the bytes of content that precede a tunnel.
/// `is_last`: the connection serves no further request. Returns `None`, with no byte written, if the head is not valid
/// for this framing.
pub(super) fn request_head(
    head: &Head,
    (framing, before_tunnel): (Framing, usize),
    proxy: Option<&ForwardProxy>,
    is_last: bool,
    out: &mut WriteList,
) -> Option<()> {
    let (method, target, fields) = (head.method(), head.target(), head.fields());
    let is_connect = method == Method::Connect;
    // A tunnel by CONNECT has its destination in the target.
    let proxy = proxy.filter(|_| !is_connect);
    let authority = match proxy {
        Some(proxy) => &proxy.authority,
        None => head.sendable_authority()?,
    };
    check_target(method, target)?;
    // RFC 9110 §9.3.6: CONNECT has no content; §7.8: a switch needs the name of the new protocol.
    let goes = match framing {
        Framing::Tunnel if is_connect => before_tunnel == 0,
        Framing::Tunnel => fields.contains(names::UPGRADE),
        Framing::Empty | Framing::Sized(_) | Framing::Stream => !is_connect,
    };
    if !goes || !head.names_are_tokens() {
        return None;
    }

    let own = OWN_BYTES_MAX + target.as_str().len() + 2 * authority.len();
    out.reserve(own + fields.bytes() + fields.len() * 48);
    put_request_line(method, target, proxy, out);
    // RFC 9110 §7.2: Host is sent first.
    out.put(b"Host: ");
    out.put(authority.as_bytes());
    out.put(b"\r\n");
    if let Some(authorization) = proxy.and_then(|proxy| proxy.authorization.as_deref()) {
        out.reserve(authorization.len() + 32);
        out.put_field(NameRef::Known(names::PROXY_AUTHORIZATION), authorization.as_bytes());
    }
    let keeps_upgrade = framing == Framing::Tunnel && !is_connect;
    for (name, value) in fields.iter() {
        if !matches!(name, NameRef::Known(known) if is_left_out(known, keeps_upgrade)) {
            out.put_field(name, value);
        }
    }
    match framing {
        Framing::Sized(bytes) => put_length(bytes, out),
        Framing::Tunnel if before_tunnel > 0 => put_length(before_tunnel as u64, out),
        // RFC 9110 §8.6: a method that usually has content declares that there is none.
        Framing::Empty | Framing::Tunnel if matches!(method, Method::Post | Method::Put | Method::Patch) => {
            put_length(0, out);
        }
        Framing::Stream => out.put(b"Transfer-Encoding: chunked\r\n"),
        Framing::Empty | Framing::Tunnel => {}
    }
    put_connection(keeps_upgrade, is_last, fields.has_token(names::TE, "trailers"), out);
    Some(())
}

#[inline]
fn put_request_line(method: Method<'_>, target: Target<'_>, proxy: Option<&ForwardProxy>, out: &mut WriteList) {
    let is_of_server = method == Method::Options && target.is_of_server();
    out.put(method.as_str().as_bytes());
    out.put_byte(b' ');
    if let Some(proxy) = proxy {
        out.put(b"http://");
        out.put(proxy.authority.as_bytes());
        // RFC 9112 §3.2.4: for a whole server the path is absent.
        if !is_of_server {
            put_target(target, out);
        }
    } else if is_of_server {
        out.put_byte(b'*');
    } else {
        put_target(target, out);
    }
    out.put(b" HTTP/1.1\r\n");
}

/// Writes the fields that concern only this connection, and the end of the head. RFC 9110 §7.8, §10.1.4: Upgrade and TE
/// are sent only if Connection lists them. A tunnel ends with its connection without `close`.
#[inline]
fn put_connection(keeps_upgrade: bool, is_last: bool, has_te: bool, out: &mut WriteList) {
    if has_te {
        out.put(b"TE: trailers\r\n");
    }
    out.put(match (keeps_upgrade, is_last, has_te) {
        (false, false, false) => b"\r\n",
        (false, false, true) => b"Connection: TE\r\n\r\n",
        (false, true, false) => b"Connection: close\r\n\r\n",
        (false, true, true) => b"Connection: close, TE\r\n\r\n",
        (true, _, false) => b"Connection: Upgrade\r\n\r\n",
        (true, _, true) => b"Connection: Upgrade, TE\r\n\r\n",
    });
}

// RFC 9112 §3.2: the target forms of each method.
#[inline]
fn check_target(method: Method<'_>, target: Target<'_>) -> Option<()> {
    let ok = match target.form() {
        TargetForm::Origin | TargetForm::Absolute => method != Method::Connect && !target.as_str().is_empty(),
        TargetForm::Authority => method == Method::Connect && target.is_host_and_port(),
        TargetForm::Asterisk => method == Method::Options,
    };
    ok.then_some(())
}

fn put_target(target: Target<'_>, out: &mut WriteList) {
    if target.form() != TargetForm::Absolute {
        return out.put(target.as_str().as_bytes());
    }
    out.put(target.path().as_bytes());
    if let Some(query) = target.query() {
        out.put_byte(b'?');
        out.put(query.as_bytes());
    }
}

// Fields that the machine writes itself (Host, framing, Connection, TE), and hop-by-hop fields of another connection
// (RFC 9110 §7.6.1).
#[inline]
fn is_left_out(name: KnownName, keeps_upgrade: bool) -> bool {
    is_ours(name)
        || name == names::HOST
        || name == names::TE
        || name == names::EXPECT
        || name == names::HTTP2_SETTINGS
        || name == names::UPGRADE && !keeps_upgrade
}
