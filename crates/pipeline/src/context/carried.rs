//! A carried request: a request in the body of the peer's request (HTTP over gRPC). To handlers after the one that
//! unpacked it, it is the request.

use std::collections::VecDeque;

use causeway_message::{Head, StatusCode, names};

use super::body::ReplacedBody;
use super::{Context, KEPT_BYTES_MAX};
use crate::route::Carrier;

#[derive(Default)]
pub(super) struct CarriedState {
    /// Method and target of the carried request; valid if there is a carrier.
    pub(super) head: Head,
    /// The handler that unpacked the carried request.
    pub(super) carrier: Option<Carrier>,
    /// The status of the response to the carried request, once it is complete.
    pub(super) status: Option<StatusCode>,
}

impl CarriedState {
    pub(super) fn reset(&mut self) {
        let Self { head, carrier, status } = self;
        head.clear();
        head.shrink_to(KEPT_BYTES_MAX);
        *carrier = None;
        *status = None;
    }
}

impl Context {
    /// Replaces the peer's request by the request that it carries, for the handlers after this one. Takes the
    /// contents of `head` and leaves it empty. The new request has no body yet. Host and version stay the
    /// connection's. The plan's rules for fields (trust, confusable names) apply to the carried fields too.
    /// [`original`](Self::original) still returns the peer's request.
    pub fn carry(&mut self, head: &mut Head) {
        let parts = &mut *self.0;
        head.set_version(parts.request.original.version());
        // The route was chosen by the connection's host; a carried `Host` must not change it.
        head.fields_mut().remove(names::HOST);
        if let Some(host) = parts.request.original.authority() {
            head.fields_mut().push_known(names::HOST, host.as_bytes());
        }
        let plan = parts.generation.plan();
        if let Some(server) = plan.server(parts.request.arrival.server) {
            server.confusable.drop_from(head.fields_mut());
        }
        let peer = parts.request.arrival.ends.peer_ip();
        parts.request.client = plan.trust(parts.request.arrival.server).map(|trust| trust.client(peer, head.fields()));
        parts.carried.head.set_method(head.method());
        parts.carried.head.set_target(head.target().as_str()).expect("a target that was parsed once is one");
        parts.carried.carrier = Some(parts.flow.carrier());
        // Swap in place of a copy: the caller gets the old storage for its next request.
        std::mem::swap(&mut parts.request.edited, head);
        head.clear();
        parts.request.is_edited = true;
        parts.body.text = None;
        parts.body.replaced = Some(ReplacedBody::Frames(VecDeque::new()));
        parts.request.decode_path();
    }

    /// Returns method and target of the carried request, until [`end_carry`](Self::end_carry).
    pub fn carried(&self) -> Option<&Head> {
        self.0.carried.carrier.map(|_| &self.0.carried.head)
    }

    /// Returns whether the running handler unpacked the carried request, and so has to pack its response.
    pub fn is_carrier(&self) -> bool {
        self.0.carried.carrier == Some(self.0.flow.carrier())
    }

    /// Ends the carried request: its response has `status` and is complete, and from here on the response is that to
    /// the peer's own request.
    pub fn end_carry(&mut self, status: StatusCode) {
        self.0.carried.carrier = None;
        self.0.carried.status = Some(status);
    }

    /// Returns the status of an exchange for metrics and traces: that of the response to the carried request, which
    /// shows failures that the peer's own response does not, or `sent`.
    pub fn effective_status(&self, sent: Option<StatusCode>) -> Option<StatusCode> {
        sent.map(|sent| self.0.carried.status.unwrap_or(sent))
    }

    /// For [`Handler::failed`](crate::Handler::failed): calls the handler's `leave` with the response to the fault,
    /// which the error routes or the default produce.
    pub fn leave_after_fault(&mut self) {
        self.0.flow.leave_after_fault();
    }
}
