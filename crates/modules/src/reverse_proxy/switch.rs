//! Other protocols: what a request asks for, and the tunnel that comes of it.

use causeway_message::{Method, NameRef, StatusCode, TargetForm, names};
use causeway_pipeline::{Call, Context, Fault, Reason, Response, Step};

use super::answer::put_fields;
use super::bad_gateway;

/// Which way a request asks for another protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Switch {
    None,
    /// `Upgrade` (RFC 9110 §7.8).
    Upgrade,
    /// CONNECT that names a protocol (RFC 8441 §4).
    Connect,
}

impl Switch {
    /// # Errors
    /// A CONNECT that nothing can be made of.
    pub(super) fn of(cx: &Context) -> Result<Self, Fault> {
        let head = cx.head();
        let protocol = head.fields().get(names::UPGRADE);
        if cx.original().method() == Method::Connect {
            let is_extended = head.target().form() != TargetForm::Authority;
            return match protocol {
                Some(protocol) if is_extended && protocol.eq_ignore_ascii_case(b"websocket") => Ok(Self::Connect),
                // RFC 9220 §3: what a server knows no way for.
                Some(_) if is_extended => Err(unknown(StatusCode::NOT_IMPLEMENTED)),
                // DEVIATES Caddy: it asks the upstream for a tunnel, and then makes an ordinary answer of that.
                _ => Err(unknown(StatusCode::METHOD_NOT_ALLOWED)),
            };
        }
        let Some(protocol) = protocol.filter(|_| cx.arrival().upgrade) else { return Ok(Self::None) };
        // RFC 9110 §7.8: a server may ignore Upgrade. With content it is, since the tunnel would begin behind that.
        // DEVIATES Caddy: `h2c` is between us and our peer; passed on, it would let requests by whatever guards this one.
        let has_content =
            head.fields().contains(names::TRANSFER_ENCODING) || head.fields().content_length().ok().flatten() > Some(0);
        let is_ours = head.fields().list(names::UPGRADE).any(is_h2c);
        Ok(if has_content || is_ours || protocol.is_empty() { Self::None } else { Self::Upgrade })
    }

    /// What is left of it where the upstream speaks only HTTP/2, which has no Upgrade (RFC 9113 §8.6): that is ignored.
    ///
    /// # Errors
    /// A CONNECT, which cannot be ignored.
    // DEVIATES Caddy: it answers any such request with 502.
    pub(super) fn over_http2(self) -> Result<Self, Fault> {
        match self {
            Self::None | Self::Upgrade => Ok(Self::None),
            Self::Connect => Err(bad_gateway("the upstream speaks only HTTP/2, where nothing is upgraded".to_owned())),
        }
    }
}

/// Whether it is that protocol, of whatever version it says.
fn is_h2c(protocol: &[u8]) -> bool {
    let end = protocol.iter().position(|octet| !octet.is_ascii_alphanumeric());
    protocol[..end.unwrap_or(protocol.len())].eq_ignore_ascii_case(b"h2c")
}

#[cold]
fn unknown(status: StatusCode) -> Fault {
    Fault { status, reason: Reason::Text("CONNECT is passed on for WebSockets only".into()) }
}

/// The upstream switched: what each side sends from here on goes to the other.
pub(super) fn tunnel(cx: &mut Context, call: Call, switch: Switch) -> Step {
    let agrees = {
        let (asked, answer) = (call.request(), call.head());
        let agreed = answer.fields().get(names::UPGRADE).unwrap_or_default();
        asked.fields().get(names::UPGRADE).is_some_and(|asked| asked.eq_ignore_ascii_case(agreed))
    };
    if !agrees {
        return Step::Fail(bad_gateway("the upstream switched to a protocol that was not asked for".to_owned()));
    }
    let is_kept = |name: NameRef<'_>| match name {
        NameRef::Known(names::UPGRADE) => switch == Switch::Upgrade,
        NameRef::Known(names::SEC_WEBSOCKET_ACCEPT) => switch == Switch::Upgrade,
        name => !super::request::is_of_connection(name),
    };
    if let Err(fault) = put_fields(cx, &call, is_kept) {
        return Step::Fail(fault);
    }
    Step::Respond(Response::switch(call.into_body()))
}
