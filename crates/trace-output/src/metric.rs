//! Metrics as the messages `Metric` of opentelemetry-proto's `metrics.proto`.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::span::{FIXED64, attribute, bytes, fixed64, tag, varint_field};

/// Bytes after which a request is complete. Servers of gRPC accept messages of 4 MiB by default.
const BATCH_BYTES: usize = 2 * 1024 * 1024;
/// The value of `aggregation_temporality` for numbers since the start of the process.
const CUMULATIVE: u64 = 2;

/// The type of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricKind {
    /// A number that only grows.
    Sum,
    /// A number that may shrink.
    Gauge,
    /// Counts of observations by their size.
    Histogram,
}

/// Writes the metrics of one export.
pub struct MetricWriter {
    /// Nanoseconds since 1970.
    started_at: u64,
    now: u64,
    /// The fields `metrics` of `ScopeMetrics`, and their data points, by requests.
    batches: Vec<MetricBatch>,
    metric: OpenMetric,
}

/// A request's metrics.
#[derive(Default)]
pub(crate) struct MetricBatch {
    pub(crate) metrics: Vec<u8>,
    pub(crate) points: u64,
}

/// The metric that data points are added to.
struct OpenMetric {
    /// Its name and description.
    head: Vec<u8>,
    kind: MetricKind,
    points: Vec<u8>,
    count: u64,
}

impl MetricWriter {
    /// Numbers that only grow began at zero at `started`.
    pub(crate) fn new(started: SystemTime, now: SystemTime) -> Self {
        let nanoseconds = |time: SystemTime| {
            let time = time.duration_since(UNIX_EPOCH).unwrap_or_default();
            u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
        };
        let metric = OpenMetric { head: Vec::new(), kind: MetricKind::Gauge, points: Vec::new(), count: 0 };
        Self { started_at: nanoseconds(started), now: nanoseconds(now), batches: Vec::new(), metric }
    }

    /// Begins a metric, to which the next data points belong. One without data points is left out.
    pub fn begin(&mut self, name: &str, description: &str, kind: MetricKind) {
        self.close();
        self.metric.head.clear();
        bytes(&mut self.metric.head, 1, name.as_bytes());
        bytes(&mut self.metric.head, 2, description.as_bytes());
        self.metric.kind = kind;
    }

    /// Adds a data point of a sum or a gauge.
    pub fn number<'l>(&mut self, labels: impl Iterator<Item = (&'l str, &'l str)>, value: f64) {
        let mut point = Vec::new();
        if self.metric.kind == MetricKind::Sum {
            fixed64(&mut point, 2, self.started_at);
        }
        fixed64(&mut point, 3, self.now);
        double(&mut point, 4, value);
        labels.for_each(|(name, value)| attribute(&mut point, 7, name, value.as_bytes()));
        self.add(&point);
    }

    /// Adds a data point of a histogram. `bounds` are the upper bounds, ascending; `counts` has the observations of
    /// each bucket alone, one bucket more than `bounds`.
    pub fn histogram<'l>(
        &mut self,
        labels: impl Iterator<Item = (&'l str, &'l str)>,
        bounds: &[f64],
        counts: &[u64],
        sum: f64,
    ) {
        let mut point = Vec::new();
        fixed64(&mut point, 2, self.started_at);
        fixed64(&mut point, 3, self.now);
        fixed64(&mut point, 4, counts.iter().sum());
        double(&mut point, 5, sum);
        let counts: Vec<u8> = counts.iter().flat_map(|count| count.to_le_bytes()).collect();
        bytes(&mut point, 6, &counts);
        let bounds: Vec<u8> = bounds.iter().flat_map(|bound| bound.to_le_bytes()).collect();
        bytes(&mut point, 7, &bounds);
        labels.for_each(|(name, value)| attribute(&mut point, 9, name, value.as_bytes()));
        self.add(&point);
    }

    fn add(&mut self, point: &[u8]) {
        bytes(&mut self.metric.points, 1, point);
        self.metric.count += 1;
        let full = self.batches.last().map_or(0, |batch| batch.metrics.len());
        if full + self.metric.points.len() >= BATCH_BYTES {
            // The metric goes on in the next request.
            self.close();
            self.batches.push(MetricBatch::default());
        }
    }

    /// Moves the open metric to its request.
    fn close(&mut self) {
        let OpenMetric { head, kind, points, count } = &mut self.metric;
        if *count == 0 {
            return;
        }
        let mut data = std::mem::take(points);
        if *kind != MetricKind::Gauge {
            varint_field(&mut data, 2, CUMULATIVE);
        }
        if *kind == MetricKind::Sum {
            varint_field(&mut data, 3, 1);
        }
        let mut metric = head.clone();
        let field = match kind {
            MetricKind::Gauge => 5,
            MetricKind::Sum => 7,
            MetricKind::Histogram => 9,
        };
        bytes(&mut metric, field, &data);
        if self.batches.is_empty() {
            self.batches.push(MetricBatch::default());
        }
        if let Some(batch) = self.batches.last_mut() {
            bytes(&mut batch.metrics, 2, &metric);
            batch.points += std::mem::take(count);
        }
    }

    /// Returns the requests, none of them empty.
    pub(crate) fn finish(mut self) -> impl Iterator<Item = MetricBatch> {
        self.close();
        self.batches.into_iter().filter(|batch| batch.points > 0)
    }
}

fn double(out: &mut Vec<u8>, number: u64, value: f64) {
    tag(out, number, FIXED64);
    out.extend_from_slice(&value.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    // A metric with many data points is divided between requests, and none is lost or empty.
    #[test]
    fn requests_have_a_bounded_size() {
        let mut writer = MetricWriter::new(UNIX_EPOCH, SystemTime::now());
        let long = "x".repeat(1000);
        writer.begin("a", "", MetricKind::Sum);
        writer.begin("b", "", MetricKind::Sum);
        for _ in 0..5000 {
            writer.number([("label", &*long)].into_iter(), 1.0);
        }
        let batches: Vec<_> = writer.finish().collect();
        assert_eq!(batches.iter().map(|batch| batch.points).sum::<u64>(), 5000);
        assert_eq!(batches.len(), 3);
        assert!(batches.iter().all(|batch| batch.metrics.len() < BATCH_BYTES + 2000));
        assert_eq!(MetricWriter::new(UNIX_EPOCH, UNIX_EPOCH).finish().count(), 0);
    }
}
