//! The thread of an output: it takes the queued spans in batches, sends them, again if that is permitted, and reports
//! losses.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::time::timeout;

use crate::client::{CollectorClient, Delivery};
use crate::output::{FAILED, OutputState, REJECTED, SENT};
use crate::settings::ExportSettings;
use crate::span;

/// Waits between attempts to send a batch: the first, and the longest. OTLP requires that they grow and vary.
const BACK_OFF_MIN: Duration = Duration::from_millis(100);
const BACK_OFF_MAX: Duration = Duration::from_secs(5);
/// The longest pause that a collector can demand.
const QUIET_MAX: Duration = Duration::from_secs(300);
/// How often lost spans are reported.
const REPORT_EVERY: Duration = Duration::from_secs(1);

/// The state of the thread.
struct Exporter<'e> {
    shared: &'e OutputState,
    client: &'e CollectorClient,
    settings: &'e ExportSettings,
    /// The messages `Resource` and `InstrumentationScope`, as fields of their parents.
    resource: Vec<u8>,
    scope: Vec<u8>,
    faults: Faults,
    report_at: Instant,
    /// Whether spans wait for the collector.
    waits: bool,
    /// The end of a pause that the collector demanded, beyond the time limit of the batch before.
    quiet_until: Instant,
    /// State of the generator that varies the waits.
    random: u64,
}

/// Spans that were lost since the last report, with the last reason.
#[derive(Default)]
struct Faults {
    failed: u64,
    reason: String,
    rejected: u64,
    message: Option<String>,
}

/// Runs until the queue is closed and empty.
pub(crate) async fn run(shared: &OutputState, client: &CollectorClient, settings: &ExportSettings) {
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
    let random = std::process::id().into();
    let (faults, report_at) = (Faults::default(), Instant::now());
    let mut exporter = Exporter {
        shared,
        client,
        settings,
        resource,
        scope,
        faults,
        report_at,
        waits: false,
        quiet_until: report_at,
        random,
    };
    loop {
        // After the close no span is queued, so that this round takes all.
        let is_last = shared.queue.is_closed();
        let due = timeout(settings.delay, shared.queue.wait()).await.is_err();
        let flushes = std::mem::take(&mut *shared.flushes.lock().unwrap_or_else(PoisonError::into_inner));
        exporter.export(due || is_last || shared.queue.is_closed() || !flushes.is_empty()).await;
        exporter.report(is_last || !flushes.is_empty());
        for done in flushes {
            // The caller may have given up.
            let _ = done.send(());
        }
        if is_last {
            return;
        }
    }
}

impl Exporter<'_> {
    /// Sends the full batches that are queued, or all spans.
    async fn export(&mut self, all: bool) {
        // Spans that are queued meanwhile belong to the next round.
        let mut left = self.shared.queue.len();
        while left > 0 && (all || left >= self.settings.batch_max) {
            let mut spans = self.scope.clone();
            let count =
                self.shared.queue.take(left.min(self.settings.batch_max), |span| span::bytes(&mut spans, 2, span));
            if count == 0 {
                return;
            }
            let mut group = self.resource.clone();
            span::bytes(&mut group, 2, &spans);
            let mut request = Vec::new();
            span::bytes(&mut request, 1, &group);
            self.deliver(self.client.message(request), count as u64).await;
            self.report(false);
            left -= count;
        }
    }

    /// Sends a batch until the collector accepts or refuses it, or the time limit has passed.
    async fn deliver(&mut self, message: Bytes, count: u64) {
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
                    if std::mem::take(&mut self.waits) {
                        tracing::info!("traces to {}: sending again", self.settings.endpoint);
                    }
                    let rejected = rejected.min(count);
                    SENT.fetch_add(count - rejected, Ordering::Relaxed);
                    REJECTED.fetch_add(rejected, Ordering::Relaxed);
                    self.faults.rejected += rejected;
                    if !message.is_empty() {
                        self.faults.message = Some(message);
                    }
                    return;
                }
                Ok(Delivery::Refused(reason)) => break reason,
                Ok(Delivery::Retry { reason, after }) => (reason, after.map(|after| after.min(QUIET_MAX))),
                Err(_) => (format!("no answer within {limit:?}"), None),
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
                tracing::warn!("traces to {}: spans wait: {reason}", self.settings.endpoint);
            }
            self.report(false);
            tokio::time::sleep(wait).await;
        };
        FAILED.fetch_add(count, Ordering::Relaxed);
        self.faults.failed += count;
        self.faults.reason = reason;
    }

    /// Returns a time from half of `wait` to `wait`, so that many servers do not return to a collector at once.
    fn vary(&mut self, wait: Duration) -> Duration {
        self.random = self.random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        wait / 2 + wait.mul_f64((self.random >> 33) as f64 / (1u64 << 32) as f64)
    }

    /// Reports spans that were lost since the last report, at most once a second unless the thread ends.
    fn report(&mut self, now: bool) {
        if !now && Instant::now() < self.report_at {
            return;
        }
        let endpoint = &self.settings.endpoint;
        let dropped = self.shared.queue.take_dropped();
        let Faults { failed, reason, rejected, message } = std::mem::take(&mut self.faults);
        if dropped == 0 && failed == 0 && rejected == 0 && message.is_none() {
            return;
        }
        self.report_at = Instant::now() + REPORT_EVERY;
        if dropped > 0 {
            tracing::warn!("traces to {endpoint}: dropped {dropped} spans, because the queue was full");
        }
        if failed > 0 {
            tracing::error!("traces to {endpoint}: lost {failed} spans: {reason}");
        }
        match message {
            Some(message) => tracing::warn!("traces to {endpoint}: the collector rejected {rejected} spans: {message}"),
            None if rejected > 0 => tracing::warn!("traces to {endpoint}: the collector rejected {rejected} spans"),
            None => {}
        }
    }
}
