//! Calls without an upstream, for the tests of queues and connections.

use std::cell::RefCell;
use std::rc::Rc;

use causeway_pipeline::upstream::{CallPool, EngineCall, Upstream};
use causeway_pipeline::{Body, Call};

/// Keeps the call that is sent.
struct Sent(Rc<CallPool>, RefCell<Option<EngineCall>>);

impl Upstream for Sent {
    fn start(&self, call: EngineCall) {
        self.1.replace(Some(call));
    }

    fn calls(&self) -> &Rc<CallPool> {
        &self.0
    }
}

/// Returns a call without content that was sent: the proxy's end of it and the engine's.
pub(crate) fn sent() -> (Call, EngineCall) {
    let upstream = Sent(CallPool::new(), RefCell::default());
    let call = upstream.calls().take();
    call.send(Body::Empty, &upstream);
    let carried = upstream.1.take().expect("it was sent");
    (call, carried)
}
