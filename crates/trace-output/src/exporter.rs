//! The thread of an output of spans: it takes the queued spans in batches and sends them.

use std::sync::PoisonError;

use tokio::time::timeout;

use crate::client::CollectorClient;
use crate::delivery::BatchSender;
use crate::output::{OutputState, SPANS};
use crate::settings::ExportSettings;
use crate::span;

/// Runs until the queue is closed and empty.
pub(crate) async fn run(shared: &OutputState, client: &CollectorClient, settings: &ExportSettings) {
    let mut sender = BatchSender::new(client, &settings.collector, &SPANS, Some(&shared.queue));
    loop {
        // After the close no span is queued, so that this round takes all.
        let is_last = shared.queue.is_closed();
        let due = timeout(settings.delay, shared.queue.wait()).await.is_err();
        let flushes = std::mem::take(&mut *shared.flushes.lock().unwrap_or_else(PoisonError::into_inner));
        let all = due || is_last || shared.queue.is_closed() || !flushes.is_empty();
        export(shared, &mut sender, settings.batch_max, all).await;
        sender.report(is_last || !flushes.is_empty());
        for done in flushes {
            // The caller may have given up.
            let _ = done.send(());
        }
        if is_last {
            return;
        }
    }
}

/// Sends the full batches that are queued, or all spans.
async fn export(shared: &OutputState, sender: &mut BatchSender<'_>, batch_max: usize, all: bool) {
    // Spans that are queued meanwhile belong to the next round.
    let mut left = shared.queue.len();
    while left > 0 && (all || shared.queue.has_batch()) {
        let mut spans = sender.batch();
        let count = shared.queue.take(left.min(batch_max), |span| span::bytes(&mut spans, 2, span));
        if count == 0 {
            return;
        }
        sender.send(&spans, count as u64).await;
        sender.report(false);
        left -= count;
    }
}
