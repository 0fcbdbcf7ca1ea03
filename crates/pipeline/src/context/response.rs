//! The response so far: its fields, the interim responses before it, and an upstream's response that routes handle.

use std::rc::Rc;

use causeway_message::{FieldMap, ResponseHead, StatusCode};

use super::{Context, KEPT_BYTES_MAX};
use crate::handler::{Response, Step};
use crate::route::RoutesId;
use crate::upstream::{Call, HeldResponseHandler};

pub(super) struct ResponseState {
    pub(super) head: ResponseHead,
    /// The response's trailers, for the access record.
    trailers: Option<Box<FieldMap>>,
    /// Interim responses that the engine has not taken yet.
    interim: Vec<(StatusCode, FieldMap)>,
    /// An upstream's response that response routes handle.
    held: Option<(Call, Rc<dyn HeldResponseHandler>)>,
}

impl ResponseState {
    pub(super) fn new() -> Self {
        Self { head: ResponseHead::new(StatusCode::OK), trailers: None, interim: Vec::new(), held: None }
    }

    pub(super) fn reset(&mut self) {
        let Self { head, trailers, interim, held } = self;
        head.clear();
        head.shrink_to(KEPT_BYTES_MAX);
        *trailers = None;
        interim.clear();
        *held = None;
    }
}

impl Context {
    /// Returns the response's fields, which exist from the start of the exchange.
    #[inline]
    pub fn response(&self) -> &ResponseHead {
        &self.0.response.head
    }

    /// Returns the response's fields for changes.
    #[inline]
    pub fn response_mut(&mut self) -> &mut ResponseHead {
        &mut self.0.response.head
    }

    /// Returns the response's trailers at the end of its exchange, also those that the client's connection could not
    /// carry.
    pub fn response_trailers(&self) -> Option<&FieldMap> {
        self.0.response.trailers.as_deref()
    }

    /// Keeps the response's trailers for the record of the exchange.
    pub fn set_response_trailers(&mut self, trailers: Option<Box<FieldMap>>) {
        self.0.response.trailers = trailers;
    }

    /// Returns whether a handler that is going to process the response reads its content, if it has this Content-Type
    /// ([`Handler::reads_content`](crate::Handler::reads_content)). Costs a call for each of these handlers.
    pub fn is_content_read(&self, content_type: &[u8]) -> bool {
        self.flow().is_content_read(self.generation().plan(), content_type)
    }

    /// Queues an interim response, such as 103 (Early Hints) (RFC 9110 §15.2). `status` is 1xx, except 100, which the
    /// engine sends itself, and 101, which is [`crate::Response::switch`]. Panics for any other status.
    pub fn push_interim(&mut self, status: StatusCode, fields: FieldMap) {
        assert!(status.is_informational() && !matches!(status.as_u16(), 100 | 101));
        // The response that transports the carried one cannot contain an interim response.
        if self.0.carried.carrier.is_some() {
            return;
        }
        self.0.response.interim.push((status, fields));
    }

    /// Holds an upstream's response for the response routes. Drops, and so cancels, a call that is held already.
    pub fn hold_upstream_response(&mut self, call: Call, owner: Rc<dyn HeldResponseHandler>) {
        self.0.response.held = Some((call, owner));
    }

    /// Takes the held response, with the handler that can forward it.
    pub fn take_held_upstream_response(&mut self) -> Option<(Call, Rc<dyn HeldResponseHandler>)> {
        self.0.response.held.take()
    }

    /// For [`Handler::leave`](crate::Handler::leave): sets the response aside and runs the routes of `list`. The
    /// handler's `leave` runs again with their response, and [`take_replaced`](Self::take_replaced) then returns the
    /// one that was set aside. If no route responds, the new response is empty and has the old status. If they fail,
    /// the handler's [`failed`](crate::Handler::failed) runs, which must take the old response too.
    pub fn replace_response(&mut self, response: Response, list: RoutesId) -> Step {
        self.0.flow.replace(response);
        Step::Run(list)
    }

    /// Returns the response that the running handler set aside before; `None` if it did not.
    pub fn take_replaced(&mut self) -> Option<Response> {
        self.0.flow.take_replaced()
    }

    /// Drains the interim responses that handlers queued since the last call, in order.
    pub fn take_interims(&mut self) -> impl Iterator<Item = (StatusCode, FieldMap)> {
        self.0.response.interim.drain(..)
    }
}
