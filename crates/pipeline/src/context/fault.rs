//! The faults of an exchange: the one that the error routes handle, and those that no handler dealt with.

use std::time::Instant;

use causeway_message::StatusCode;

use super::Context;
use crate::handler::{Fault, FaultId, Step};
use crate::route::RoutesId;

/// A fault that no handler dealt with.
#[derive(Debug, Clone, Copy)]
pub struct Failure<'c> {
    /// The last fault.
    pub fault: &'c Fault,
    /// Its id.
    pub id: FaultId,
    /// The fault before it, whose error routes failed.
    pub first: Option<(&'c Fault, FaultId)>,
    /// When the first fault had passed all handlers.
    pub at: Instant,
    /// Whether a handler of the error routes responded.
    pub is_handled: bool,
}

/// The fault that the error routes handle.
#[derive(Default)]
pub(super) struct FaultState {
    current: Option<Fault>,
    /// The fault whose error routes began last, if they are over. Placeholders show it further on, as in Caddy.
    handled: Option<Fault>,
    /// The id of the fault that placeholders show, once generated.
    id: Option<FaultId>,
    /// The fault of the server's routes, and that of its error routes, if no handler dealt with them.
    unhandled: [Option<UnhandledFault>; 2],
}

/// A fault that no handler dealt with.
struct UnhandledFault {
    fault: Fault,
    id: FaultId,
    at: Instant,
}

impl FaultState {
    pub(super) fn reset(&mut self) {
        let Self { current, handled, id, unhandled } = self;
        *current = None;
        *handled = None;
        *id = None;
        *unhandled = [None, None];
    }
}

impl Context {
    /// Returns the fault that the error routes handle.
    pub fn fault(&self) -> Option<&Fault> {
        self.0.fault.current.as_ref()
    }

    /// Returns the fault that placeholders show: that of the error routes which began last.
    pub(crate) fn shown_fault(&self) -> Option<&Fault> {
        self.0.fault.handled.as_ref().or(self.0.fault.current.as_ref())
    }

    /// For [`Handler::failed`](crate::Handler::failed): handles the fault by the error routes of `list`. Once they have
    /// responded or failed, [`fault`](Self::fault) is again the one from before, for the handlers before this one.
    pub fn handle_fault(&mut self, fault: Fault, list: RoutesId) -> Step {
        let before = self.0.fault.current.take();
        self.0.flow.begin_fault_routes(before);
        self.set_fault(fault);
        Step::Run(list)
    }

    /// The error routes that a handler has called are over; `before` is the fault that was handled before.
    pub(crate) fn end_fault_routes(&mut self, before: Option<Fault>) {
        let state = &mut self.0.fault;
        let over = std::mem::replace(&mut state.current, before);
        // Error routes within these ones may have begun later.
        state.handled = state.handled.take().or(over);
    }

    /// Sets the fault for all handlers from here on; a handler with error routes of its own uses
    /// [`handle_fault`](Self::handle_fault).
    pub fn set_fault(&mut self, fault: Fault) {
        let state = &mut self.0.fault;
        state.current = Some(fault);
        (state.handled, state.id) = (None, None);
    }

    /// Sets a fault that no handler dealt with: the server's first one, or that of its error routes. Returns the status
    /// for a response without error routes: that of the first one, as in Caddy.
    pub(crate) fn set_unhandled_fault(&mut self, fault: Fault) -> StatusCode {
        self.0.worker.refresh();
        let (id, at) = (FaultId(self.0.worker.random()), self.0.worker.now());
        let index = usize::from(self.flow().in_error_routes());
        self.0.fault.unhandled[index] = Some(UnhandledFault { fault: fault.clone(), id, at });
        let status = self.0.fault.unhandled[0].as_ref().map_or(fault.status, |first| first.fault.status);
        self.set_fault(fault);
        self.0.fault.id = Some(id);
        status
    }

    /// Returns the id of the fault that placeholders show, generated on first use; `None` without a fault.
    pub fn fault_id(&mut self) -> Option<FaultId> {
        self.shown_fault()?;
        let parts = &mut *self.0;
        Some(*parts.fault.id.get_or_insert_with(|| FaultId(parts.worker.random())))
    }

    /// Returns whether no handler responded and none failed, so that the response is an empty one.
    pub fn is_unhandled(&self) -> bool {
        self.flow().is_unhandled() && !self.has_failed()
    }

    /// Returns how the server dealt with the exchange's fault, for a record after its end; `None` without a fault, or
    /// if a handler dealt with it.
    pub fn failure(&self) -> Option<Failure<'_>> {
        let [first, second] = &self.0.fault.unhandled;
        let first = first.as_ref()?;
        let is_handled = self.flow().in_error_routes() && second.is_none() && !self.flow().is_unhandled();
        let last = second.as_ref().unwrap_or(first);
        let before = second.as_ref().map(|_| (&first.fault, first.id));
        Some(Failure { fault: &last.fault, id: last.id, first: before, at: first.at, is_handled })
    }

    /// Returns whether there is a fault that no handler dealt with.
    pub(crate) fn has_failed(&self) -> bool {
        self.0.fault.unhandled[0].is_some()
    }
}
