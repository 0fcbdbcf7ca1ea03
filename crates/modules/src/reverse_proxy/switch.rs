//! Protocol switches: the client's request for another protocol, and the tunnel.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context as PollContext, Poll, ready};
use std::time::Duration;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use causeway_message::{Chunk, FieldMap, Method, NameRef, StatusCode, names};
use causeway_pipeline::upstream::BodyTransform;
use causeway_pipeline::{
    Body, BodyEnder, BodyError, BodyRead, Call, Context, Fault, Frame, Generation, ReadBody, ReadEnd, Reason, Response,
    ShutdownPhase, Sleep, Step, Tunnel, Versions, Worker,
};
use sha1::{Digest as _, Sha1};

use super::answer::put_fields;
use super::wire_form::WireForm;
use super::{ReverseProxyPlan, bad_gateway};

/// How a request requests another protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Switch {
    None,
    /// `Upgrade` (RFC 9110 §7.8).
    Upgrade,
}

/// Most bytes of content of a request with Upgrade: they are held until the upstream has responded. With longer
/// content, or content of unknown length, Upgrade is ignored.
// DEVIATES Caddy: it forwards such a request.
const CONTENT_BYTES_MAX: u64 = 64 * 1024;

impl Switch {
    /// Classifies a request whose body no attempt has taken.
    ///
    /// # Errors
    /// If it is a CONNECT, except one for a WebSocket, whose head is that of an Upgrade
    /// ([`Context::is_extended_connect`]).
    pub(super) fn of(cx: &Context, plan: &ReverseProxyPlan) -> Result<Self, Fault> {
        let head = cx.head();
        let protocol = head.fields().get(names::UPGRADE);
        if cx.original().method() == Method::Connect {
            // RFC 9220 §3: 501 for an unknown protocol.
            // DEVIATES Caddy: it requests a tunnel from the upstream, and then returns an ordinary response.
            return Err(unknown());
        }
        // A handler may have removed the field that requests it.
        let is_requested = cx.arrival().upgrade && head.fields().has_token(names::CONNECTION, "upgrade");
        let Some(protocol) = protocol.filter(|_| is_requested) else { return Ok(Self::None) };
        // DEVIATES Caddy: `h2c` concerns only this hop; forwarded, it would let requests bypass this server's checks.
        let is_ours = head.fields().list(names::UPGRADE).any(is_h2c);
        // RFC 9110 §7.8: a proxy may ignore Upgrade.
        let is_carried = match &plan.wire_form {
            // RFC 9113 §8.6: HTTP/2 has no Upgrade.
            // DEVIATES Caddy: it responds to any such request with 502.
            WireForm::Http => plan.transport.versions != Versions::Http2 && has_known_content(cx, plan),
            WireForm::FastCgi(_) => false,
            WireForm::HttpGrpc(_) => !head.fields().declares_content(),
        };
        Ok(if is_ours || protocol.is_empty() || !is_carried { Self::None } else { Self::Upgrade })
    }
}

/// Returns whether the content of a request with Upgrade, if there is any, can be sent before the tunnel.
fn has_known_content(cx: &Context, plan: &ReverseProxyPlan) -> bool {
    let fields = cx.head().fields();
    let is_short = || matches!(fields.content_length(), Ok(Some(..=CONTENT_BYTES_MAX)));
    // RFC 9113 §8.5: a CONNECT of HTTP/2 has no content.
    let may_have_content = !plan.drops_body && !cx.is_extended_connect();
    !fields.declares_content() || may_have_content && is_short() && cx.has_content_before_tunnel()
}

/// Returns the reader of a request's content that precedes a tunnel, if the request has both.
pub(super) fn content_reader(cx: &mut Context, plan: &ReverseProxyPlan) -> Option<ReadBody> {
    let is_both = cx.arrival().upgrade
        && cx.head().fields().declares_content()
        && matches!(Switch::of(cx, plan), Ok(Switch::Upgrade));
    let body = is_both.then(|| cx.take_body())??;
    Some(ReadBody::new(body, CONTENT_BYTES_MAX as usize))
}

/// Returns the client's side of a tunnel, after the content that [`content_reader`] has read.
pub(super) fn after_content(cx: &Context, read: BodyRead) -> Result<Body, Fault> {
    match read.end {
        ReadEnd::Whole => Ok(Body::tunnel(Chunk::from(read.bytes), cx.tunnel_reader())),
        // A handler has replaced the body by a longer one.
        ReadEnd::Longer(..) => Err(Fault::from_body_error(BodyError::TooLarge)),
        ReadEnd::Broken(fault) => Err(Fault::from_body_error(fault)),
    }
}

/// Puts the request's body back that no upstream has taken over, for handlers that take it later.
pub(super) fn put_back(cx: &mut Context, tunnel: Tunnel) {
    match tunnel.content.is_empty() {
        true => cx.replace_body_by(tunnel.stream),
        false => cx.replace_body(tunnel.content),
    }
}

/// Returns whether the protocol is h2c, in any version.
fn is_h2c(protocol: &[u8]) -> bool {
    let end = protocol.iter().position(|byte| !byte.is_ascii_alphanumeric());
    protocol[..end.unwrap_or(protocol.len())].eq_ignore_ascii_case(b"h2c")
}

#[cold]
fn unknown() -> Fault {
    Fault {
        status: StatusCode::NOT_IMPLEMENTED,
        reason: Reason::Text("CONNECT is forwarded for WebSockets only".into()),
    }
}

/// Responds with a tunnel: from here on each side's bytes are forwarded to the peer on the opposite side.
pub(super) fn tunnel(cx: &mut Context, call: Call, plan: &ReverseProxyPlan) -> Step {
    let (was_requested, is_web_socket) = {
        let (request, response) = (call.request(), call.head());
        // RFC 9110 §7.8: the upstream chooses from the list.
        let is_offered = |protocol: &[u8]| {
            request.fields().list(names::UPGRADE).any(|offered| offered.eq_ignore_ascii_case(protocol))
        };
        let mut selected = response.fields().list(names::UPGRADE).peekable();
        let was_requested = selected.peek().is_some() && selected.all(is_offered);
        (was_requested, response.fields().has_token(names::UPGRADE, "websocket"))
    };
    if !was_requested {
        return Step::Fail(bad_gateway("the upstream switched to a protocol that was not requested".to_owned()));
    }
    // An HTTP/1.1 client checks the handshake itself.
    if cx.is_extended_connect() && !accepts_key(call.request().fields(), call.head().fields()) {
        let words = "the upstream's WebSocket handshake is invalid: its Connection or Sec-WebSocket-Accept";
        return Step::Fail(bad_gateway(words.to_owned()));
    }
    // As for other responses.
    cx.response_mut().remove(names::SERVER);
    let is_kept = |name: NameRef<'_>| name == NameRef::Known(names::UPGRADE) || !super::request::is_of_connection(name);
    if let Err(fault) = put_fields(cx, &call, is_kept) {
        return Step::Fail(fault);
    }
    let (timeout, delay) = (plan.stream_timeout, plan.stream_close_delay);
    if is_web_socket || timeout.is_some() || delay.is_some() {
        let (worker, now) = (cx.worker(), cx.worker().now());
        let sleep = |pause: Duration| Sleep::until(Rc::clone(worker), now + pause);
        let replacement = delay.map(|delay| Replacement {
            generation: Rc::clone(cx.generation()),
            delay,
            next: sleep(LOOK_INTERVAL),
        });
        call.transform_body(Box::new(Limited {
            worker: Rc::clone(worker),
            end: timeout.map(sleep),
            replacement,
            shutdown: is_web_socket.then(|| Box::pin(until_closed(worker, delay)) as _),
            close: if is_web_socket { CloseFrame::Unsent(cx.tunnel_ender()) } else { CloseFrame::None },
        }));
    }
    Step::Respond(Response::switch(call.into_body()))
}

/// Returns whether the answer accepts the WebSocket key of the request (RFC 6455 §4.1). Over HTTP/2 the client has no
/// key (RFC 8441 §5), so only this server can check it.
fn accepts_key(request: &FieldMap, answer: &FieldMap) -> bool {
    let key = request.get(names::SEC_WEBSOCKET_KEY).unwrap_or_default();
    let digest = Sha1::new().chain_update(key).chain_update("258EAFA5-E914-47DA-95CA-C5AB0DC85B11").finalize();
    let mut accept = [0; 28];
    let is_encoded = BASE64_STANDARD.encode_slice(digest, &mut accept) == Ok(accept.len());
    is_encoded
        && answer.has_token(names::CONNECTION, "upgrade")
        && answer.get(names::SEC_WEBSOCKET_ACCEPT) == Some(&accept)
}

/// Waits until a shutdown ends a WebSocket: at once, so that it does not delay the end of the process, or after
/// `stream_close_delay`. Other tunnels have no way to tell their client, and so last until the grace period is over.
fn until_closed(worker: &Rc<dyn Worker>, delay: Option<Duration>) -> impl Future<Output = ()> + use<> {
    let worker = Rc::clone(worker);
    async move {
        worker.until_shutdown(ShutdownPhase::Stopping).await;
        let Some(delay) = delay else { return };
        let mut delay = Sleep::until(Rc::clone(&worker), worker.now() + delay);
        let mut over = worker.until_shutdown(ShutdownPhase::GraceOver);
        poll_fn(|poll_cx| match (Pin::new(&mut delay).poll(poll_cx), over.as_mut().poll(poll_cx)) {
            (Poll::Pending, Poll::Pending) => Poll::Pending,
            _ => Poll::Ready(()),
        })
        .await;
    }
}

/// How often a tunnel with `stream_close_delay` looks whether its plan was replaced.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// A WebSocket's frame with the status 1001, Going Away (RFC 6455 §5.5.1, §7.4.1).
const GOING_AWAY: &[u8] = &[0x88, 2, 0x03, 0xe9];

/// The same to an upstream: a client masks its frames (RFC 6455 §5.3). Its key, 0, need not be unpredictable, because
/// the frame has no content of an application (§10.3).
const GOING_AWAY_MASKED: &[u8] = &[0x88, 0x82, 0, 0, 0, 0, 0x03, 0xe9];

/// How a limited tunnel ends.
enum CloseFrame {
    /// The tunnel fails, which ends both directions.
    None,
    /// By [`GOING_AWAY`] to both sides, and the end of the client's direction. The upstream then closes the WebSocket.
    Unsent(BodyEnder),
    Sent,
}

/// The time from the close frame until the upstream has closed.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// The content of a tunnel that does not last as long as its peers want.
struct Limited {
    worker: Rc<dyn Worker>,
    /// `stream_timeout`; after the close frame the end of [`CLOSE_TIMEOUT`].
    end: Option<Sleep>,
    /// `stream_close_delay`.
    replacement: Option<Replacement>,
    /// Becomes ready when the server's shutdown closes the WebSocket; `None` for other tunnels.
    shutdown: Option<Pin<Box<dyn Future<Output = ()>>>>,
    close: CloseFrame,
}

/// The time after which a tunnel is closed once its plan was replaced.
struct Replacement {
    generation: Rc<Generation>,
    delay: Duration,
    next: Sleep,
}

impl Replacement {
    /// Becomes ready when the tunnel is to be closed.
    fn poll(&mut self, worker: &Rc<dyn Worker>, poll_cx: &mut PollContext<'_>) -> Poll<()> {
        loop {
            ready!(Pin::new(&mut self.next).poll(poll_cx));
            let now = worker.now();
            let next = match self.generation.plan().replaced_at() {
                Some(at) if at + self.delay <= now => return Poll::Ready(()),
                Some(at) => at + self.delay,
                None => now + LOOK_INTERVAL,
            };
            self.next = Sleep::until(Rc::clone(worker), next);
        }
    }
}

impl BodyTransform for Limited {
    fn poll_frame(&mut self, call: &Call, poll_cx: &mut PollContext<'_>) -> Poll<Option<Result<Frame, BodyError>>> {
        if let CloseFrame::Sent = self.close {
            // After a close frame there is no further one for the client (RFC 6455 §5.5.1).
            while !Sleep::is_over(&mut self.end, poll_cx)
                && let Some(Ok(_)) = ready!(call.poll_content(poll_cx))
            {}
            return Poll::Ready(None);
        }
        let worker = &self.worker;
        let is_over = Sleep::is_over(&mut self.end, poll_cx)
            || self.replacement.as_mut().is_some_and(|replacement| replacement.poll(worker, poll_cx).is_ready())
            || self.shutdown.as_mut().is_some_and(|shutdown| shutdown.as_mut().poll(poll_cx).is_ready());
        if is_over && let CloseFrame::Unsent(outbound) = &self.close {
            // As in Caddy, the frame may come within a longer one of which only a part has arrived: the peer then takes
            // it for content of that one, and gets no close frame.
            outbound.end_with(Chunk::from_static(GOING_AWAY_MASKED));
            self.close = CloseFrame::Sent;
            self.end = Some(Sleep::until(Rc::clone(worker), worker.now() + CLOSE_TIMEOUT));
            return Poll::Ready(Some(Ok(Frame::Chunk(Chunk::from_static(GOING_AWAY)))));
        }
        if is_over {
            return Poll::Ready(Some(Err(BodyError::TimedOut)));
        }
        call.poll_content(poll_cx)
    }

    fn bytes_left(&self) -> Option<u64> {
        None
    }
}
