//! The one place where an exchange ends: calls its handlers' end hooks and returns the storage to the pool.

use std::panic::{AssertUnwindSafe, catch_unwind};

use causeway_pipeline::{Ending, Outcome, route};

use crate::clock;
use crate::drive::{Exchange, ExchangeSlot};
use crate::worker::Core;

/// Ends an exchange whose response is sent, or whose peer is gone.
pub(crate) fn recycle(core: &Core, exchange: Exchange) {
    let Exchange { mut cx, wake, ending, status, received, mut sending, .. } = exchange;
    cx.set_response_trailers(sending.take_trailers());
    if cx.is_measured() {
        // Without the refresh the duration of an exchange that one turn began and ended would be 0.
        clock::refresh();
    }
    let took = clock::now().saturating_duration_since(cx.arrival().at);
    let outcome = Outcome { status, sent: sending.sent(), received, read: cx.mailbox().bytes_read(), took, ending };
    // This may run while a panic unwinds, when a second panic would abort the process.
    if catch_unwind(AssertUnwindSafe(|| route::end(&cx, &outcome))).is_err() {
        core.counters.count_panic();
        return;
    }
    // A panic may leave the context in any state, so its storage is not reused.
    if ending != Ending::Panicked {
        core.put_slot(ExchangeSlot { spare: cx.recycle(), wake });
    }
}
