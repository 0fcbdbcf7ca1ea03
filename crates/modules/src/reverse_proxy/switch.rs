//! Protocol switches: the client's request for another protocol, and the tunnel.

use std::future::Future as _;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context as Task, Poll};
use std::time::Duration;

use causeway_message::{Method, NameRef, StatusCode, TargetForm, names};
use causeway_pipeline::upstream::Maker;
use causeway_pipeline::{BodyFault, Call, Context, Fault, Frame, Reason, Response, Sleep, Step};

use super::answer::put_fields;
use super::bad_gateway;

/// How a request requests another protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Switch {
    None,
    /// `Upgrade` (RFC 9110 §7.8).
    Upgrade,
    /// Extended CONNECT with `:protocol` (RFC 8441 §4).
    Connect,
}

impl Switch {
    /// Classifies the request.
    ///
    /// # Errors
    /// If it is a CONNECT that cannot be forwarded.
    pub(super) fn of(cx: &Context) -> Result<Self, Fault> {
        let head = cx.head();
        let protocol = head.fields().get(names::UPGRADE);
        if cx.original().method() == Method::Connect {
            let is_extended = head.target().form() != TargetForm::Authority;
            return match protocol {
                Some(protocol) if is_extended && protocol.eq_ignore_ascii_case(b"websocket") => Ok(Self::Connect),
                // RFC 9220 §3: 501 for an unknown protocol.
                Some(_) if is_extended => Err(unknown(StatusCode::NOT_IMPLEMENTED)),
                // DEVIATES Caddy: it requests a tunnel from the upstream, and then returns an ordinary response.
                _ => Err(unknown(StatusCode::METHOD_NOT_ALLOWED)),
            };
        }
        let Some(protocol) = protocol.filter(|_| cx.arrival().upgrade) else { return Ok(Self::None) };
        // RFC 9110 §7.8: a server may ignore Upgrade. It is ignored with content, after which the tunnel would begin.
        // DEVIATES Caddy: `h2c` concerns only this hop; forwarded, it would let requests bypass this server's checks.
        let has_content =
            head.fields().contains(names::TRANSFER_ENCODING) || head.fields().content_length().ok().flatten() > Some(0);
        let is_ours = head.fields().list(names::UPGRADE).any(is_h2c);
        Ok(if has_content || is_ours || protocol.is_empty() { Self::None } else { Self::Upgrade })
    }

    /// Reduces the switch for an upstream over `protocol`, which has no Upgrade (HTTP/2: RFC 9113 §8.6): Upgrade is
    /// ignored.
    ///
    /// # Errors
    /// If it is a CONNECT, which cannot be ignored.
    // DEVIATES Caddy: it responds to any such request with 502.
    pub(super) fn over(self, protocol: &str) -> Result<Self, Fault> {
        match self {
            Self::None | Self::Upgrade => Ok(Self::None),
            Self::Connect => Err(bad_gateway(format!("the upstream supports {protocol}, which has no Upgrade"))),
        }
    }
}

/// Returns whether the protocol is h2c, in any version.
fn is_h2c(protocol: &[u8]) -> bool {
    let end = protocol.iter().position(|byte| !byte.is_ascii_alphanumeric());
    protocol[..end.unwrap_or(protocol.len())].eq_ignore_ascii_case(b"h2c")
}

#[cold]
fn unknown(status: StatusCode) -> Fault {
    Fault { status, reason: Reason::Text("CONNECT is forwarded for WebSockets only".into()) }
}

/// Responds with a tunnel: from here on each side's bytes are forwarded to the peer on the opposite side.
pub(super) fn tunnel(cx: &mut Context, call: Call, switch: Switch, limit: Option<Duration>) -> Step {
    let agrees = {
        let (asked, answer) = (call.request(), call.head());
        let agreed = answer.fields().get(names::UPGRADE).unwrap_or_default();
        asked.fields().get(names::UPGRADE).is_some_and(|asked| asked.eq_ignore_ascii_case(agreed))
    };
    if !agrees {
        return Step::Fail(bad_gateway("the upstream switched to a protocol that was not requested".to_owned()));
    }
    // HTTP/2 has neither field for a tunnel (RFC 8441 §5).
    let is_kept = |name: NameRef<'_>| match name {
        NameRef::Known(names::UPGRADE) => switch == Switch::Upgrade,
        NameRef::Known(names::SEC_WEBSOCKET_ACCEPT) => switch == Switch::Upgrade,
        name => !super::request::is_of_connection(name),
    };
    if let Err(fault) = put_fields(cx, &call, is_kept) {
        return Step::Fail(fault);
    }
    if let Some(limit) = limit {
        let end = Sleep::until(Rc::clone(cx.worker()), cx.worker().now() + limit);
        call.make_body(Box::new(Limited { end }));
    }
    Step::Respond(Response::switch(call.into_body()))
}

/// The content of a tunnel that may last for a time only (`stream_timeout`). Its failure ends both directions.
struct Limited {
    end: Sleep,
}

impl Maker for Limited {
    fn poll_frame(&mut self, call: &Call, task: &mut Task<'_>) -> Poll<Option<Result<Frame, BodyFault>>> {
        match Pin::new(&mut self.end).poll(task) {
            Poll::Ready(()) => Poll::Ready(Some(Err(BodyFault::TimedOut))),
            Poll::Pending => call.poll_content(task),
        }
    }

    fn bytes_left(&self) -> Option<u64> {
        None
    }
}
