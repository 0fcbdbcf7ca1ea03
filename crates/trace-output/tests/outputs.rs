//! Spans that reach a collector, or are lost and counted. The counts are those of the process, so these tests run one
//! after another.

#[path = "support/collector.rs"]
#[allow(dead_code)]
mod collector;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use causeway_trace_output::span::{self, SpanStart};
use causeway_trace_output::{SpanCounts, TraceOutput, TraceSettings, flush_all, span_counts};
use collector::otlp::texts;
use collector::{Collector, Reply};

const LIMIT: Duration = Duration::from_secs(20);

static ALONE: Mutex<()> = Mutex::new(());

fn open(variables: &[(&str, String)]) -> Arc<TraceOutput> {
    let find = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.clone());
    let settings = TraceSettings::read(&find).expect("settings");
    TraceOutput::open(&settings.export.expect("an exporter")).expect("an output")
}

fn http(port: u16) -> Vec<(&'static str, String)> {
    vec![
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf".into()),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", format!("http://127.0.0.1:{port}")),
        ("OTEL_BSP_SCHEDULE_DELAY", "10".into()),
    ]
}

fn grpc(port: u16) -> Vec<(&'static str, String)> {
    let mut variables = http(port);
    variables[0].1 = "grpc".into();
    variables
}

fn send(output: &TraceOutput, id: u8) {
    output.send(|out| {
        let (trace, id) = ([id; 16], [id; 8]);
        span::begin(out, &SpanStart { trace, id, parent: None, state: b"", name: b"GET", at: 5 });
        span::text(out, "a", b"b");
        span::number(out, "n", 300);
        span::end(out, 7, false);
    });
}

/// Returns the counts of the spans that `work` sends.
fn counted(work: impl FnOnce()) -> SpanCounts {
    let before = span_counts();
    work();
    let after = span_counts();
    SpanCounts {
        sent: after.sent - before.sent,
        dropped: after.dropped - before.dropped,
        failed: after.failed - before.failed,
        rejected: after.rejected - before.rejected,
    }
}

const NONE: SpanCounts = SpanCounts { sent: 0, dropped: 0, failed: 0, rejected: 0 };

// OTLP/HTTP: a POST to /v1/traces with the type `application/x-protobuf`; OTLP/gRPC: the method `TraceService/Export`.
// Both may be compressed with gzip.
#[test]
fn both_protocols() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    for (is_grpc, compression) in [(false, "none"), (false, "gzip"), (true, "none"), (true, "gzip")] {
        let collector = if is_grpc { Collector::grpc(0, vec![]) } else { Collector::http(0, vec![]) };
        let mut variables = if is_grpc { grpc(collector.port) } else { http(collector.port) };
        variables.push(("OTEL_EXPORTER_OTLP_COMPRESSION", compression.into()));
        variables.push(("OTEL_EXPORTER_OTLP_HEADERS", "x-key=a%20b".into()));
        variables.push(("OTEL_SERVICE_NAME", "shop".into()));
        let output = open(&variables);
        let counts = counted(|| {
            send(&output, 3);
            flush_all(LIMIT);
        });
        assert_eq!(counts, SpanCounts { sent: 1, ..NONE });
        let received = collector.receive();
        let (path, kind) = match is_grpc {
            false => ("/v1/traces", "application/x-protobuf"),
            true => ("/opentelemetry.proto.collector.trace.v1.TraceService/Export", "application/grpc"),
        };
        assert_eq!((&*received.path, received.header("content-type")), (path, Some(kind)));
        assert_eq!(received.header("x-key"), Some("a b"));
        let zipped = received.header(if is_grpc { "grpc-encoding" } else { "content-encoding" });
        assert_eq!(zipped, (compression == "gzip").then_some("gzip"));
        let resource = received.message.resource_spans[0].resource.as_ref().expect("a resource");
        assert_eq!(texts(&resource.attributes)[0], ("service.name", "shop".to_owned()));
        let scope = received.message.resource_spans[0].scope_spans[0].scope.as_ref().expect("a scope");
        assert_eq!((&*scope.name, &*scope.version), ("causeway", env!("CARGO_PKG_VERSION")));
        let [span] = received.spans()[..] else { panic!("one span") };
        assert_eq!((&*span.trace_id, &*span.span_id, &*span.name), (&[3; 16][..], &[3; 8][..], "GET"));
        assert_eq!((span.start_time_unix_nano, span.end_time_unix_nano, span.kind, span.flags), (5, 7, 2, 0x101));
        assert_eq!(texts(&span.attributes), [("a", "b".to_owned()), ("n", "300".to_owned())]);
        assert!(span.parent_span_id.is_empty() && span.status.is_none());
    }
}

// Equal settings share an output and its connection; when its last user ends, the queued spans are sent.
#[test]
fn one_output_for_equal_settings() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let collector = Collector::http(0, vec![]);
    let mut variables = http(collector.port);
    variables[2].1 = "80000000".into();
    let (first, second) = (open(&variables), open(&variables));
    assert!(Arc::ptr_eq(&first, &second));
    variables.push(("OTEL_SERVICE_NAME", "other".into()));
    assert!(!Arc::ptr_eq(&first, &open(&variables)));
    send(&first, 1);
    drop((first, second));
    assert_eq!(collector.receive().spans().len(), 1);
}

// The flush at the end of the process also waits for an output that was dropped, which still sends its spans.
#[test]
fn a_dropped_output() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let collector = Collector::http(0, vec![Reply::of(503), Reply::of(503)]);
    let output = open(&http(collector.port));
    let counts = counted(|| {
        send(&output, 1);
        drop(output);
        flush_all(LIMIT);
    });
    assert_eq!(counts, SpanCounts { sent: 1, ..NONE });
}

// Batches: a full one is sent at once, the rest at the end of the delay or with a flush.
#[test]
fn batches() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let collector = Collector::http(0, vec![]);
    let mut variables = http(collector.port);
    variables[2].1 = "80000000".into();
    variables.push(("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "10".into()));
    let output = open(&variables);
    (0..10).for_each(|id| send(&output, id));
    assert_eq!(collector.receive().spans().len(), 10);
    (0..5).for_each(|id| send(&output, id));
    assert!(collector.is_quiet());
    flush_all(LIMIT);
    assert_eq!(collector.receive().spans().len(), 5);
}

// OTLP, "Failures": after 503 and similar, a lost connection, or a code that permits it, the same batch is sent again;
// after any other error it is not. `Retry-After` and `RetryInfo` set the time until then.
#[test]
fn attempts() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let hang_up = || Reply { hangs_up: true, ..Reply::default() };
    let soon = || Reply { fields: vec![("Retry-After", "0".into())], ..Reply::of(429) };
    // A `Status` with a `RetryInfo` of no time.
    let mut any = vec![0x0a, 40];
    any.extend_from_slice(b"type.googleapis.com/google.rpc.RetryInfo\x12\x02\x0a\x00");
    let details = [&[0x1a, any.len() as u8], &any[..]].concat();
    let exhausted =
        Reply { fields: vec![("grpc-status-details-bin", STANDARD_NO_PAD.encode(details))], ..Reply::of(8) };
    for (collector, requests, want) in [
        (Collector::http(0, vec![Reply::of(503), soon(), hang_up()]), 4, SpanCounts { sent: 2, ..NONE }),
        (Collector::http(0, vec![Reply::of(400)]), 1, SpanCounts { failed: 2, ..NONE }),
        (Collector::http(0, vec![Reply::of(500)]), 1, SpanCounts { failed: 2, ..NONE }),
    ] {
        check_attempts(http(collector.port), &collector, requests, want);
    }
    for (collector, requests, want) in [
        (Collector::grpc(0, vec![Reply::of(14), Reply::of(4), hang_up()]), 4, SpanCounts { sent: 2, ..NONE }),
        (Collector::grpc(0, vec![exhausted]), 2, SpanCounts { sent: 2, ..NONE }),
        (Collector::grpc(0, vec![Reply::of(3)]), 1, SpanCounts { failed: 2, ..NONE }),
        (Collector::grpc(0, vec![Reply::of(8)]), 1, SpanCounts { failed: 2, ..NONE }),
    ] {
        check_attempts(grpc(collector.port), &collector, requests, want);
    }
}

#[track_caller]
fn check_attempts(
    mut variables: Vec<(&'static str, String)>,
    collector: &Collector,
    requests: usize,
    want: SpanCounts,
) {
    variables[2].1 = "80000000".into();
    let output = open(&variables);
    let counts = counted(|| {
        send(&output, 1);
        send(&output, 2);
        flush_all(LIMIT);
    });
    assert_eq!(counts, want);
    for _ in 0..requests {
        assert_eq!(collector.receive().spans().len(), 2);
    }
    assert!(collector.is_quiet() && collector.replies_left() == 0);
}

// OTLP, "Partial Success": the rejected spans are counted, and nothing is sent again.
#[test]
fn partial_success() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let body = b"\x0a\x07\x08\x01\x12\x03too".to_vec();
    let want = SpanCounts { sent: 1, rejected: 1, ..NONE };
    let collector = Collector::http(0, vec![Reply { body: body.clone(), ..Reply::of(200) }]);
    check_attempts(http(collector.port), &collector, 1, want);
    let collector = Collector::grpc(0, vec![Reply { body, ..Reply::of(0) }]);
    check_attempts(grpc(collector.port), &collector, 1, want);
}

// A collector that is absent: sending never waits, the queue is bounded, and dropped spans are counted. When the
// collector starts, the queued spans are sent.
#[test]
fn an_absent_collector() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let port = causeway_testkit::ports::free_port();
    let mut variables = http(port);
    variables[2].1 = "80000000".into();
    variables.push(("OTEL_BSP_MAX_QUEUE_SIZE", "8".into()));
    let output = open(&variables);
    let counts = counted(|| (0..100).for_each(|id| send(&output, id)));
    // The thread may have taken one batch of eight.
    assert!((84..=92).contains(&counts.dropped), "{counts:?}");
    let collector = Collector::http(port, vec![]);
    let counts = counted(|| flush_all(LIMIT));
    let mut received = 0;
    while !collector.is_quiet() {
        received += 1;
    }
    assert!(received > 0 && counts.failed == 0 && counts.sent > 0, "{counts:?}");
    // The limit of a flush holds even without a collector.
    let mut variables = http(causeway_testkit::ports::free_port());
    variables[2].1 = "80000000".into();
    variables.push(("OTEL_BSP_EXPORT_TIMEOUT", "500".into()));
    let output = open(&variables);
    send(&output, 1);
    let begin = Instant::now();
    flush_all(Duration::from_millis(50));
    assert!(begin.elapsed() < LIMIT);
    // Its end, so that the counts of the next test are its own.
    flush_all(LIMIT);
}

// The limit of all attempts: then the batch is lost, and counted.
#[test]
fn the_end_of_retries() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut variables = http(causeway_testkit::ports::free_port());
    variables.push(("OTEL_BSP_EXPORT_TIMEOUT", "200".into()));
    let output = open(&variables);
    let counts = counted(|| {
        send(&output, 1);
        flush_all(LIMIT);
    });
    assert_eq!(counts, SpanCounts { failed: 1, ..NONE });
}

// OTLP, "Failures": an exponential backoff, also if the collector demands no pause.
#[test]
fn retries_without_a_pause() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let now = || Reply { fields: vec![("Retry-After", "0".into())], ..Reply::of(503) };
    let collector = Collector::http(0, (0..1000).map(|_| now()).collect());
    let mut variables = http(collector.port);
    variables.push(("OTEL_BSP_EXPORT_TIMEOUT", "500".into()));
    let output = open(&variables);
    let counts = counted(|| {
        send(&output, 1);
        flush_all(LIMIT);
    });
    assert_eq!(counts, SpanCounts { failed: 1, ..NONE });
    // Pauses of 50 ms at least, each twice as long as the one before.
    assert!(collector.replies_left() > 990, "{}", collector.replies_left());
}

// OTLP, "OTLP/HTTP Throttling": a pause that is longer than the limit of a batch also applies to the next batches.
#[test]
fn a_long_pause() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let later = Reply { fields: vec![("Retry-After", u64::MAX.to_string())], ..Reply::of(503) };
    let collector = Collector::http(0, vec![later]);
    let mut variables = http(collector.port);
    variables.push(("OTEL_BSP_EXPORT_TIMEOUT", "100".into()));
    let output = open(&variables);
    let counts = counted(|| {
        for id in [1, 2] {
            send(&output, id);
            flush_all(LIMIT);
        }
    });
    assert_eq!(counts, SpanCounts { failed: 2, ..NONE });
    assert_eq!(collector.receive().spans().len(), 1);
    assert!(collector.is_quiet());
}

// A file of certificates that cannot be used is an error with the variable that names it when the output is opened.
#[test]
fn certificates() {
    for variable in ["OTEL_EXPORTER_OTLP_CERTIFICATE", "OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE"] {
        let mut variables = http(1);
        variables.push((variable, "/nonexistent.pem".into()));
        let find = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.clone());
        let settings = TraceSettings::read(&find).expect("settings").export.expect("an exporter");
        let error = TraceOutput::open(&settings).err().expect("no file").to_string();
        assert_eq!(error, format!("{variable}: found '/nonexistent.pem', expected a PEM file with certificates"));
    }
}

// A connection whose peer vanished without a word: the next attempt uses another one. (OTLP, "Failures": the client
// should try again.)
#[test]
fn a_collector_that_vanished() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let mut variables = grpc(listener.local_addr().expect("an address").port());
    variables.push(("OTEL_EXPORTER_OTLP_TIMEOUT", "200".into()));
    variables.push(("OTEL_BSP_EXPORT_TIMEOUT", "3000".into()));
    let output = open(&variables);
    send(&output, 1);
    // They accept the connection and never answer.
    let first = listener.accept().expect("a connection");
    let second = listener.accept().expect("another connection");
    drop((first, second, listener));
    // The span is lost before another test counts.
    flush_all(LIMIT);
}

// A collector refuses messages of more than 4 MiB by default (gRPC), and with them the spans of all clients in it.
#[test]
fn long_spans_are_sent_in_several_batches() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let collector = Collector::http(0, vec![]);
    let mut variables = http(collector.port);
    variables[2].1 = "60000".into();
    let output = open(&variables);
    let text = vec![b'x'; 100_000];
    for id in 0..100 {
        output.send(|out| {
            let (trace, id) = ([1; 16], [id + 1; 8]);
            span::begin(out, &SpanStart { trace, id, parent: None, state: b"", name: b"GET", at: 5 });
            span::text(out, "a", &text);
            span::end(out, 7, false);
        });
    }
    flush_all(LIMIT);
    let mut left = 100;
    while left > 0 {
        let spans = collector.receive().spans().len();
        assert!(spans <= 22, "{spans} spans of 100 kB");
        left -= spans;
    }
}
