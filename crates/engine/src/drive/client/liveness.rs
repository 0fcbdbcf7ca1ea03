//! PINGs (RFC 9113 §6.7) that detect an upstream which disappeared without closing the connection. TCP alone would take
//! minutes.

use std::task::Context as PollContext;
use std::time::Instant;

use causeway_message::WriteList;

use super::ClientConnection;
use crate::clock;
use crate::machine::Machine as _;
use crate::transport::Transport;

/// The last sign of an upstream's life.
#[derive(Clone, Copy)]
pub(super) struct Liveness {
    /// The time of the last bytes, or of the first call on an idle connection.
    seen: Instant,
    /// The time of a PING since then.
    pinged: Option<Instant>,
    /// A call was opened since then.
    is_unanswered: bool,
}

impl Liveness {
    pub(super) fn now() -> Self {
        Self { seen: clock::now(), pinged: None, is_unanswered: false }
    }

    /// A call is opened. Its time begins now, unless an earlier call had no answer either: short calls that their
    /// clients give up one after the other must not hide a dead upstream.
    pub(super) fn open_call(&mut self, is_first: bool) {
        if is_first && !self.is_unanswered {
            *self = Self::now();
        }
        self.is_unanswered = true;
    }
}

impl<T: Transport> ClientConnection<T> {
    /// Sends PING if it is time, for a connection with open calls. Returns the time of the next PING, or after one the
    /// time at which the connection counts as dead. `None` without PINGs.
    pub(super) fn check_liveness(
        &mut self,
        now: Instant,
        poll_cx: &mut PollContext<'_>,
        out: &mut WriteList,
    ) -> Option<Instant> {
        let interval =
            self.origin.spec.ping_interval.filter(|_| self.machine.is_multiplexed() && !self.calls.is_empty())?;
        // An upstream that sends anything at all, on any stream, gets no PING.
        let next_ping = self.liveness.seen + interval;
        if self.liveness.pinged.is_none() && now >= next_ping {
            self.machine.ping(out);
            // The turn's own flush is over. If the kernel accepts no output, the time limit runs all the same.
            self.flush(poll_cx, out);
            self.liveness.pinged = Some(now);
        }
        Some(self.liveness.pinged.map_or(next_ping, |pinged| pinged + self.origin.spec.ping_timeout))
    }
}
