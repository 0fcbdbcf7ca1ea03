//! Metrics that reach a collector, or are lost and counted. The counts are those of the process, so these tests run one
//! after another.

#[path = "support/collector.rs"]
#[allow(dead_code)]
mod collector;

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, UNIX_EPOCH};

use causeway_trace_output::{
    MetricKind, MetricOutput, MetricSettings, MetricWriter, PointCounts, PreparedMetricOutput, flush_all, point_counts,
};
use collector::otlp::{MetricData, texts};
use collector::{Collector, Received, Reply};

const LIMIT: Duration = Duration::from_secs(20);

static ALONE: Mutex<()> = Mutex::new(());

fn open(variables: &[(&str, String)], collect: fn(&mut MetricWriter)) -> MetricOutput {
    let find = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.clone());
    let settings = MetricSettings::read(&find).expect("settings").expect("an exporter");
    let prepared = PreparedMetricOutput::new(settings).expect("an output");
    prepared.start(UNIX_EPOCH + Duration::from_nanos(7), collect).expect("a thread")
}

fn http(port: u16) -> Vec<(&'static str, String)> {
    vec![
        ("OTEL_EXPORTER_OTLP_ENDPOINT", format!("http://127.0.0.1:{port}")),
        ("OTEL_METRIC_EXPORT_INTERVAL", "86400000".into()),
    ]
}

fn collect(writer: &mut MetricWriter) {
    writer.begin("absent", "Without data points.", MetricKind::Sum);
    writer.begin("a_total", "Count.", MetricKind::Sum);
    writer.number([("x", "1"), ("y", "2")].into_iter(), 5.0);
    writer.number([].into_iter(), 6.0);
    writer.begin("g", "Gauge.", MetricKind::Gauge);
    writer.number([].into_iter(), -0.5);
    writer.begin("h", "Histogram.", MetricKind::Histogram);
    writer.histogram([("k", "v")].into_iter(), &[0.5, 1.0], &[1, 0, 3], 9.25);
}

/// Returns the counts of the data points that `work` sends.
fn counted(work: impl FnOnce()) -> PointCounts {
    let before = point_counts();
    work();
    let after = point_counts();
    PointCounts {
        sent: after.sent - before.sent,
        failed: after.failed - before.failed,
        rejected: after.rejected - before.rejected,
    }
}

fn check(received: &Received) {
    let group = &received.metrics.resource_metrics[0];
    let resource = group.resource.as_ref().expect("a resource");
    assert_eq!(texts(&resource.attributes)[0], ("service.name", "shop".to_owned()));
    assert_eq!(group.scope_metrics[0].scope.as_ref().map(|scope| &*scope.name), Some("causeway"));
    assert_eq!(received.metric("absent"), None);
    let metric = received.metric("a_total").expect("the sum");
    let Some(MetricData::Sum(sum)) = &metric.data else { panic!("{metric:?}") };
    assert_eq!((&*metric.description, sum.aggregation_temporality, sum.is_monotonic), ("Count.", 2, true));
    let [one, other] = &sum.data_points[..] else { panic!("{sum:?}") };
    assert_eq!((one.start_time_unix_nano, one.as_double, other.as_double), (7, 5.0, 6.0));
    assert!(one.time_unix_nano > 1_700_000_000_000_000_000, "{one:?}");
    assert_eq!(texts(&one.attributes), [("x", "1".to_owned()), ("y", "2".to_owned())]);
    let metric = received.metric("g").expect("the gauge");
    let Some(MetricData::Gauge(gauge)) = &metric.data else { panic!("{metric:?}") };
    assert_eq!((gauge.data_points[0].as_double, gauge.data_points[0].start_time_unix_nano), (-0.5, 0));
    let metric = received.metric("h").expect("the histogram");
    let Some(MetricData::Histogram(histogram)) = &metric.data else { panic!("{metric:?}") };
    let [point] = &histogram.data_points[..] else { panic!("{histogram:?}") };
    assert_eq!((histogram.aggregation_temporality, point.count, point.sum), (2, 4, 9.25));
    assert_eq!((&point.bucket_counts[..], &point.explicit_bounds[..]), (&[1, 0, 3][..], &[0.5, 1.0][..]));
    assert_eq!((point.start_time_unix_nano, texts(&point.attributes)), (7, vec![("k", "v".to_owned())]));
}

// OTLP: the messages of opentelemetry-proto's metrics.proto, by HTTP, which is Caddy's default, and by gRPC.
#[test]
fn both_protocols() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    for (is_grpc, compression) in [(false, "none"), (true, "gzip")] {
        let collector = if is_grpc { Collector::grpc(0, vec![]) } else { Collector::http(0, vec![]) };
        let mut variables = http(collector.port);
        variables.push(("OTEL_EXPORTER_OTLP_METRICS_COMPRESSION", compression.into()));
        variables.push(("OTEL_EXPORTER_OTLP_METRICS_HEADERS", "x-key=a%20b".into()));
        variables.push(("OTEL_SERVICE_NAME", "shop".into()));
        if is_grpc {
            variables.push(("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "grpc".into()));
        }
        let output = open(&variables, collect);
        assert_eq!(counted(|| flush_all(LIMIT)), PointCounts { sent: 4, ..PointCounts::default() });
        let received = collector.receive();
        let path = match is_grpc {
            false => "/v1/metrics",
            true => "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
        };
        assert_eq!((&*received.path, received.header("x-key")), (path, Some("a b")));
        check(&received);
        // The end of an output sends the last numbers.
        drop(output);
        check(&collector.receive());
    }
}

// "Periodic exporting MetricReader": an export after each interval.
#[test]
fn intervals() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let collector = Collector::http(0, vec![]);
    let mut variables = http(collector.port);
    variables[1].1 = "5".into();
    let _output = open(&variables, collect);
    for _ in 0..3 {
        assert!(collector.receive().metric("g").is_some());
    }
}

// OTLP, "Failures" and "Partial Success": the same rules as for spans.
#[test]
fn failures() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let reply = Reply { body: b"\x0a\x07\x08\x01\x12\x03too".to_vec(), ..Reply::of(200) };
    let collector = Collector::http(0, vec![Reply::of(503), reply, Reply::of(400)]);
    let output = open(&http(collector.port), collect);
    assert_eq!(counted(|| flush_all(LIMIT)), PointCounts { sent: 3, rejected: 1, failed: 0 });
    assert_eq!(counted(|| flush_all(LIMIT)), PointCounts { failed: 4, ..PointCounts::default() });
    assert_eq!(counted(|| flush_all(LIMIT)), PointCounts { sent: 4, ..PointCounts::default() });
    (0..4).for_each(|_| drop(collector.receive()));
    drop(output);
    collector.receive();
}
