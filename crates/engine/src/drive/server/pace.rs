//! The limits on the transfer of an exchange's content: the time without progress, or a minimum rate.
//!
//! A rate is an average over the time in which the peer had to send or to accept bytes. The time in which the server
//! was at work, or had no room, does not count.

use std::time::{Duration, Instant};

use causeway_message::names;
use causeway_pipeline::TransferLimit;

use super::exchange::{Exchange, Inbound, PeerAction};

/// How long an exchange has waited for its peer; only of exchanges with a minimum rate.
#[derive(Debug)]
pub(super) struct Pace {
    /// The last update, and the action that the exchange has waited for since.
    at: Instant,
    awaited: Option<PeerAction>,
    body: Duration,
    write: Duration,
}

impl Exchange {
    /// The limit on the peer's action: the one that a handler has set, or the listener's.
    fn transfer_limit(&self, action: PeerAction) -> Option<TransferLimit> {
        let timeouts = &self.plan.timeouts;
        match action {
            PeerAction::SendBody => Some(self.cx.body_transfer_limit().unwrap_or(timeouts.body)),
            PeerAction::OpenWindow => Some(self.cx.write_transfer_limit().unwrap_or(timeouts.write)),
            PeerAction::MoveTunnel => None,
        }
    }

    /// The time in which the peer has to accept some bytes of the response.
    pub(super) fn write_idle(&self) -> Duration {
        self.cx.write_transfer_limit().unwrap_or(self.plan.timeouts.write).idle
    }

    /// The time for which the open direction of a half-closed tunnel may be silent.
    pub(super) fn tunnel_idle(&self) -> Duration {
        let timeouts = &self.plan.timeouts;
        let protocol = self.cx.original().fields().get(names::UPGRADE);
        // A WebSocket's server closes last (RFC 6455 §7.1.1), so its client has nothing left to send. Some proxies
        // leave their stream open, which would use up the limit of streams.
        let is_websocket = protocol.is_some_and(|protocol| protocol.eq_ignore_ascii_case(b"websocket"));
        if is_websocket && self.sending.is_done() { timeouts.linger } else { timeouts.keep_alive }
    }

    fn has_rate(&self) -> bool {
        let has = |action| self.transfer_limit(action).is_some_and(|limit| limit.bytes_per_second.is_some());
        has(PeerAction::SendBody) || has(PeerAction::OpenWindow)
    }

    /// Adds the time since the last call to the wait for the action that was awaited then. Without effect for an
    /// exchange without a minimum rate.
    pub(super) fn keep_pace(&mut self, awaited: Option<PeerAction>, now: Instant) {
        if !self.has_rate() {
            return;
        }
        let pace = self.pace.get_or_insert_with(|| {
            Box::new(Pace { at: now, awaited: None, body: Duration::ZERO, write: Duration::ZERO })
        });
        let waited = now.saturating_duration_since(pace.at);
        match pace.awaited {
            Some(PeerAction::SendBody) => pace.body += waited,
            Some(PeerAction::OpenWindow) => pace.write += waited,
            Some(PeerAction::MoveTunnel) | None => {}
        }
        (pace.at, pace.awaited) = (now, awaited);
    }

    /// Returns the deadline of the peer's action. `since` is the time of the last progress; of the content that was
    /// queued, `unwritten` bytes are still here.
    pub(super) fn deadline(&self, action: PeerAction, since: Instant, unwritten: usize) -> Instant {
        let Some(limit) = self.transfer_limit(action) else { return since + self.tunnel_idle() };
        let (waited, bytes) = match (&self.pace, action) {
            (Some(pace), PeerAction::SendBody) if self.inbound == Inbound::Open => (pace.body, self.received),
            (Some(pace), PeerAction::OpenWindow) => (pace.write, self.sending.sent().saturating_sub(unwritten as u64)),
            _ => return since + limit.idle,
        };
        match (limit.allowance(bytes), &self.pace) {
            (Some(allowance), Some(pace)) => pace.at + allowance.saturating_sub(waited),
            _ => since + limit.idle,
        }
    }
}
