//! A request that another one carried (HTTP over gRPC): for what comes behind the handler that took it out, it is the request.

use std::collections::VecDeque;

use causeway_message::{Head, names};

use super::Context;
use super::body::Held;

impl Context {
    /// Puts a request that the peer's own carried in its place, for whatever comes behind the handler that took it out: the
    /// head in exchange for an empty one, and no content. Host and version stay the connection's; what the plan says of fields
    /// holds for these too. [`original`](Self::original) is what came.
    pub fn carry(&mut self, head: &mut Head) {
        let parts = &mut *self.0;
        head.set_version(parts.original.version());
        head.fields_mut().remove(names::HOST);
        if let Some(host) = parts.original.authority() {
            head.fields_mut().push_known(names::HOST, host.as_bytes());
        }
        let plan = parts.generation.plan();
        if let Some(server) = plan.server(parts.arrival.server) {
            server.confusable.drop_from(head.fields_mut());
        }
        let peer = parts.arrival.peer.ip();
        parts.client = plan.trust(parts.arrival.server).map(|trust| trust.client(peer, head.fields()));
        parts.carried.set_method(head.method());
        parts.carried.set_target(head.target().as_str()).expect("a target that was parsed once is one");
        parts.carrier = Some(parts.flow.carrier());
        std::mem::swap(&mut parts.edited, head);
        head.clear();
        parts.is_edited = true;
        parts.body_text = None;
        parts.held_body = Some(Held::Frames(VecDeque::new()));
        self.decode_path();
    }

    /// Method and target of the request that the peer's own carried, while its answer is looked for.
    pub fn carried(&self) -> Option<&Head> {
        self.0.carrier.map(|_| &self.0.carried)
    }

    /// Whether the handler that asks took the carried request out, and has to carry the answer.
    pub fn is_carrier(&self) -> bool {
        self.0.carrier == Some(self.0.flow.carrier())
    }

    /// The carried request has its answer: what is said from here on is said of the peer's own.
    pub fn end_carry(&mut self) {
        self.0.carrier = None;
    }

    /// For a handler's `failed`: has the answer that the fault comes to, of the error routes or a plain one, pass by its `leave`.
    pub fn await_answer(&mut self) {
        self.0.flow.await_answer();
    }
}
