//! The delivery of batches to a collector: attempts, pauses, counts and the report of losses. Spans and metrics share
//! it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::time::timeout;

use crate::client::{CollectorClient, Delivery};
use crate::queue::SpanQueue;
use crate::settings::{CollectorSettings, Signal};
use crate::span;

/// Waits between attempts to send a batch: the first, and the longest. OTLP requires that they grow and vary.
const BACK_OFF_MIN: Duration = Duration::from_millis(100);
const BACK_OFF_MAX: Duration = Duration::from_secs(5);
/// The longest pause that a collector can demand.
const QUIET_MAX: Duration = Duration::from_secs(300);
/// How often losses are reported.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// Spans or data points of this process by their end.
pub(crate) struct Counts {
    pub(crate) sent: AtomicU64,
    pub(crate) failed: AtomicU64,
    pub(crate) rejected: AtomicU64,
}

impl Counts {
    pub(crate) const fn new() -> Self {
        Self { sent: AtomicU64::new(0), failed: AtomicU64::new(0), rejected: AtomicU64::new(0) }
    }
}

/// Sends the batches of one output.
pub(crate) struct BatchSender<'e> {
    client: &'e CollectorClient,
    settings: &'e CollectorSettings,
    counts: &'static Counts,
    /// The queue of the items, if there is one.
    queue: Option<&'e SpanQueue>,
    /// The messages `Resource` and `InstrumentationScope`, as fields of their parents.
    resource: Vec<u8>,
    scope: Vec<u8>,
    faults: Faults,
    report_at: Instant,
    /// Whether items wait for the collector.
    waits: bool,
    /// Whether a loss was reported since the collector last accepted a batch.
    has_lost: bool,
    /// The end of a pause that the collector demanded, beyond the time limit of the batch before.
    quiet_until: Instant,
    /// State of the generator that varies the waits.
    random: u64,
}

/// Items that were lost since the last report, with the last reason.
#[derive(Default)]
struct Faults {
    failed: u64,
    reason: String,
    rejected: u64,
    message: Option<String>,
}

impl<'e> BatchSender<'e> {
    pub(crate) fn new(
        client: &'e CollectorClient,
        settings: &'e CollectorSettings,
        counts: &'static Counts,
        queue: Option<&'e SpanQueue>,
    ) -> Self {
        let (mut resource, mut scope) = (Vec::new(), Vec::new());
        let mut attributes = Vec::new();
        for (key, value) in &settings.resource {
            span::attribute(&mut attributes, 1, key, value.as_bytes());
        }
        span::bytes(&mut resource, 1, &attributes);
        let mut name = Vec::new();
        span::bytes(&mut name, 1, b"causeway");
        span::bytes(&mut name, 2, env!("CARGO_PKG_VERSION").as_bytes());
        span::bytes(&mut scope, 1, &name);
        let now = Instant::now();
        Self {
            client,
            settings,
            counts,
            queue,
            resource,
            scope,
            faults: Faults::default(),
            report_at: now,
            waits: false,
            has_lost: false,
            quiet_until: now,
            random: std::process::id().into(),
        }
    }

    /// Returns the start of a batch, to which items are appended as the field 2.
    pub(crate) fn batch(&self) -> Vec<u8> {
        self.scope.clone()
    }

    /// Sends a batch of `count` items until the collector accepts or refuses it, or the time limit has passed.
    pub(crate) async fn send(&mut self, batch: &[u8], count: u64) {
        // The requests for spans and for metrics have the same outer fields.
        let mut group = self.resource.clone();
        span::bytes(&mut group, 2, batch);
        let mut request = Vec::new();
        span::bytes(&mut request, 1, &group);
        self.deliver(self.client.message(request), count).await;
    }

    async fn deliver(&mut self, message: Bytes, count: u64) {
        let (signal, items) = self.names();
        let end = Instant::now() + self.settings.export_timeout;
        let mut back_off = BACK_OFF_MIN;
        tokio::time::sleep_until(self.quiet_until.min(end).into()).await;
        let reason = loop {
            if self.quiet_until > Instant::now() {
                break "the collector demanded a longer pause".into();
            }
            let left = end.saturating_duration_since(Instant::now());
            let limit = self.settings.timeout.min(left);
            let delivery = timeout(limit, self.client.send(message.clone())).await;
            let (reason, after) = match delivery {
                Ok(Delivery::Done { rejected, message }) => {
                    if std::mem::take(&mut self.waits) | std::mem::take(&mut self.has_lost) {
                        tracing::info!("{signal} to {}: sending again", self.settings.endpoint);
                    }
                    let rejected = rejected.min(count);
                    self.counts.sent.fetch_add(count - rejected, Ordering::Relaxed);
                    self.counts.rejected.fetch_add(rejected, Ordering::Relaxed);
                    self.faults.rejected += rejected;
                    if !message.is_empty() {
                        self.faults.message = Some(message);
                    }
                    return;
                }
                Ok(Delivery::Refused(reason)) => break reason,
                Ok(Delivery::Retry { reason, after }) => (reason, after.map(|after| after.min(QUIET_MAX))),
                Err(_) => {
                    self.client.reconnect();
                    (format!("no answer within {limit:?}"), None)
                }
            };
            // A collector may demand a pause, but not that there is none.
            let own = self.vary(back_off);
            let wait = after.map_or(own, |after| after.max(own));
            back_off = (back_off * 2).min(BACK_OFF_MAX);
            if Instant::now() + wait >= end {
                self.quiet_until = Instant::now() + after.unwrap_or_default();
                break reason;
            }
            if !std::mem::replace(&mut self.waits, true) {
                tracing::warn!("{signal} to {}: {items} wait: {reason}", self.settings.endpoint);
            }
            self.report(false);
            tokio::time::sleep(wait).await;
        };
        self.counts.failed.fetch_add(count, Ordering::Relaxed);
        self.faults.failed += count;
        self.faults.reason = reason;
    }

    /// Returns a time from half of `wait` to `wait`, so that many servers do not return to a collector at once.
    fn vary(&mut self, wait: Duration) -> Duration {
        self.random = self.random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        wait / 2 + wait.mul_f64((self.random >> 33) as f64 / (1u64 << 32) as f64)
    }

    /// Reports items that were lost since the last report, at most once a second unless it must be `now`.
    pub(crate) fn report(&mut self, now: bool) {
        if !now && Instant::now() < self.report_at {
            return;
        }
        let dropped = self.queue.map_or(0, SpanQueue::take_dropped);
        let (signal, items) = self.names();
        let endpoint = &self.settings.endpoint;
        let Faults { mut failed, reason, rejected, message } = std::mem::take(&mut self.faults);
        // The next export of metrics has all numbers again, so that one line for an absent collector is enough.
        if self.settings.signal == Signal::Metrics && failed > 0 && std::mem::replace(&mut self.has_lost, true) {
            failed = 0;
        }
        if dropped == 0 && failed == 0 && rejected == 0 && message.is_none() {
            return;
        }
        self.report_at = Instant::now() + REPORT_INTERVAL;
        if dropped > 0 {
            tracing::warn!("{signal} to {endpoint}: dropped {dropped} {items}, because the queue was full");
        }
        if failed > 0 {
            tracing::error!("{signal} to {endpoint}: lost {failed} {items}: {reason}");
        }
        if let Some(objection) = objection(rejected, items, message.as_deref()) {
            tracing::warn!("{signal} to {endpoint}: the collector {objection}");
        }
    }

    /// The words for the signal and its items in messages.
    fn names(&self) -> (&'static str, &'static str) {
        match self.settings.signal {
            Signal::Traces => ("traces", "spans"),
            Signal::Metrics => ("metrics", "data points"),
        }
    }
}

/// Returns the warning of a collector about batches that it has accepted, without the subject of the sentence.
fn objection(rejected: u64, items: &str, message: Option<&str>) -> Option<String> {
    match message {
        // OTLP, "Partial Success": a message without rejected items is a warning.
        Some(message) if rejected == 0 => Some(format!("warns: {message}")),
        Some(message) => Some(format!("rejected {rejected} {items}: {message}")),
        None if rejected > 0 => Some(format!("rejected {rejected} {items}")),
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // OTLP, "Partial Success": `rejected_spans` is 0 with a message if the collector accepts all and only warns.
    #[test]
    fn objections_of_collectors() {
        for (rejected, message, want) in [
            (0, None, None),
            (0, Some("old schema"), Some("warns: old schema")),
            (2, None, Some("rejected 2 spans")),
            (2, Some("too long"), Some("rejected 2 spans: too long")),
        ] {
            assert_eq!(objection(rejected, "spans", message).as_deref(), want);
        }
    }
}
