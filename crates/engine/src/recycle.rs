//! The one place where an exchange ends: its handlers and the access log are told, its storage goes back to the pool.

use std::panic::{AssertUnwindSafe, catch_unwind};

use causeway_pipeline::{Ending, Outcome, route};

use crate::clock;
use crate::exchange::{Exchange, Resting};
use crate::worker::{Core, count_panic};

/// Ends an exchange whose response is on the wire, or whose peer is gone.
pub(crate) fn recycle(core: &Core, exchange: Exchange) {
    let Exchange { cx, wake, ending, status, received, sent, .. } = exchange;
    let took = clock::now().saturating_duration_since(cx.arrival().at);
    let outcome = Outcome { status, sent, received, took, ending };
    // This may run while a panic unwinds, where a second one would end the process.
    if catch_unwind(AssertUnwindSafe(|| route::end(&cx, &outcome))).is_err() {
        count_panic(&core.load);
        return;
    }
    if cx.is_recorded() {
        core.access.record(&cx, &outcome);
    }
    // What unwound may be in any state: its storage is dropped with it.
    if ending != Ending::Panicked {
        core.put_resting(Resting { spare: cx.recycle(), wake });
    }
}
