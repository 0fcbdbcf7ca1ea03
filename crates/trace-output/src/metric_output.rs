//! The export of metrics: its thread collects all numbers after each interval, and sends them.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use tokio::runtime::Runtime;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use crate::client::CollectorClient;
use crate::delivery::{BatchSender, Counts};
use crate::metric::MetricWriter;
use crate::output::{Flush, lock, start};
use crate::settings::{MetricSettings, SettingError};

static POINTS: Counts = Counts::new();

/// Data points since the process started, by outcome.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct PointCounts {
    /// Accepted by the collector.
    pub sent: u64,
    /// Not sent: the collector was absent for too long, or refused the request.
    pub failed: u64,
    /// Rejected by the collector, which accepted the rest of the request.
    pub rejected: u64,
}

/// Returns the counts of all outputs.
pub fn point_counts() -> PointCounts {
    let Counts { sent, failed, rejected } = &POINTS;
    let [sent, failed, rejected] = [sent, failed, rejected].map(|count| count.load(Ordering::Relaxed));
    PointCounts { sent, failed, rejected }
}

/// An output of metrics that is not started: its settings and certificates are valid.
pub struct PreparedMetricOutput {
    settings: MetricSettings,
    client: CollectorClient,
}

/// A running output of metrics. Dropping it ends its thread after a last export.
pub struct MetricOutput {
    settings: MetricSettings,
    state: Arc<MetricState>,
}

/// The state that the thread and the output share.
#[derive(Default)]
struct MetricState {
    flushes: Mutex<Vec<SyncSender<()>>>,
    is_closed: AtomicBool,
    wake: Notify,
}

impl PreparedMetricOutput {
    /// Prepares the output of these settings.
    ///
    /// # Errors
    /// The endpoint, a file of certificates, or a header is not valid.
    pub fn new(settings: MetricSettings) -> Result<Self, SettingError> {
        let client = CollectorClient::new(&settings.collector)?;
        Ok(Self { settings, client })
    }

    /// Returns the settings.
    pub fn settings(&self) -> &MetricSettings {
        &self.settings
    }

    /// Starts the thread. `collect` writes all metrics and runs on it; numbers that only grow began at zero at
    /// `started`.
    ///
    /// # Errors
    /// The system refuses a thread.
    pub fn start(
        self,
        started: SystemTime,
        collect: impl Fn(&mut MetricWriter) + Send + Sync + 'static,
    ) -> io::Result<MetricOutput> {
        let Self { settings, client } = self;
        let state = Arc::new(MetricState::default());
        let (shared, owned) = (Arc::clone(&state), settings.clone());
        let run = move |runtime: Runtime| {
            runtime.block_on(async {
                let collect = || {
                    let mut writer = MetricWriter::new(started, SystemTime::now());
                    collect(&mut writer);
                    writer
                };
                shared.run(&client, &owned, collect).await;
            });
        };
        let flush: Arc<dyn Flush> = Arc::clone(&state) as _;
        start("metrics", &flush, run)?;
        Ok(MetricOutput { settings, state })
    }
}

impl MetricOutput {
    /// Returns the settings.
    pub fn settings(&self) -> &MetricSettings {
        &self.settings
    }
}

impl Drop for MetricOutput {
    fn drop(&mut self) {
        self.state.is_closed.store(true, Ordering::Release);
        self.state.wake.notify_one();
    }
}

impl Flush for MetricState {
    fn flush(&self) -> Receiver<()> {
        let (done, flushed) = sync_channel(1);
        lock(&self.flushes).push(done);
        self.wake.notify_one();
        flushed
    }
}

impl MetricState {
    /// Runs until the output is closed.
    async fn run(&self, client: &CollectorClient, settings: &MetricSettings, collect: impl Fn() -> MetricWriter) {
        let mut sender = BatchSender::new(client, &settings.collector, &POINTS, None);
        let mut due = Instant::now() + settings.interval;
        loop {
            let is_due = timeout_at(due, self.wake.notified()).await.is_err();
            let is_last = self.is_closed.load(Ordering::Acquire);
            let flushes = std::mem::take(&mut *lock(&self.flushes));
            for batch in collect().finish() {
                let mut metrics = sender.batch();
                metrics.extend_from_slice(&batch.metrics);
                sender.send(&metrics, batch.points).await;
                sender.report(false);
            }
            sender.report(is_last || !flushes.is_empty());
            for done in flushes {
                // The caller may have given up.
                let _ = done.send(());
            }
            if is_last {
                return;
            }
            if is_due {
                // A slow collector leaves exports out; they do not accumulate.
                let now = Instant::now();
                while due <= now {
                    due += settings.interval;
                }
            }
        }
    }
}
