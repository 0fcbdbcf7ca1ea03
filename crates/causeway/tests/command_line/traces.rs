//! The directive `tracing`: spans from a running server to a collector's double.

#[path = "../../../trace-output/tests/support/collector.rs"]
#[allow(dead_code)]
pub(crate) mod collector;

use causeway_testkit::ports::free_port;
use collector::otlp::{Span, texts};
use collector::{Collector, Reply};
use serde_json::Value;

use crate::client::{get, send, send_body};
use crate::process::{Directory, ServerProcess, wait_until};
use crate::upgrade::Successor;

const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

const CADDYFILE: &str = "{
	auto_https off
}
http://:0 {
	bind 127.0.0.1
	log {
		output file access.log
	}
	tracing {
		span \"{method} {path}\"
		span_attributes {
			fixed text
			answer {http.response.header.X-A}
		}
	}
	header X-A yes
	handle /metrics {
		metrics
	}
	handle /up {
		reverse_proxy 127.0.0.1:UPSTREAM
	}
	error /error 503
	respond \"{http.vars.trace_id} {http.vars.span_id}\"
}
";

fn start(directory: &Directory, protocol: &str, collector: u16, more: &[(&str, &str)]) -> ServerProcess {
    let mut command = directory.command(&["run", "--workers", "1"]);
    command.env("OTEL_EXPORTER_OTLP_PROTOCOL", protocol);
    command.env("OTEL_EXPORTER_OTLP_ENDPOINT", format!("http://127.0.0.1:{collector}"));
    command.env("OTEL_BSP_SCHEDULE_DELAY", "20");
    command.envs(more.iter().copied());
    ServerProcess::start(command)
}

/// Returns the next spans, until there are `count`.
#[track_caller]
fn spans(collector: &Collector, count: usize) -> Vec<Span> {
    let mut spans = Vec::new();
    while spans.len() < count {
        spans.extend(collector.receive().spans().into_iter().cloned());
    }
    assert_eq!(spans.len(), count);
    spans
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

// Caddy, `tracing`: the span's name and attributes are Caddy 2.11.9's, as its exporter `console` shows them for the
// same requests, except that a failed request has the status that its client got. The request to the upstream continues
// the trace, and the access record has the ids.
#[test]
fn spans_of_requests() {
    let (directory, port) = (Directory::new(), free_port());
    let upstream = "respond \"{http.request.header.traceparent} {http.request.header.tracestate}\"";
    directory.write("up/Caddyfile", format!("http://:{port} {{\n\tbind 127.0.0.1\n\t{upstream}\n}}\n"));
    let _upstream = directory.start(&["run", "--config", "up/Caddyfile"]);
    directory.write("Caddyfile", CADDYFILE.replace("UPSTREAM", &port.to_string()));
    for (protocol, collector) in [("http/protobuf", Collector::http(0, vec![])), ("grpc", Collector::grpc(0, vec![]))] {
        let server = start(&directory, protocol, collector.port, &[]);
        let site = server.port();
        let fields = [
            &format!("Host: localhost:{site}"),
            &format!("traceparent: {PARENT}"),
            "tracestate: a=b",
            "X-Forwarded-For: 1.2.3.4, 5.6.7.8",
            "User-Agent: test",
        ];
        let answer = send_body(site, "POST /up?x=1", &fields, "hello").body;
        let [span] = &spans(&collector, 1)[..] else { panic!("one span") };
        assert_eq!((&*span.name, &*span.trace_state), ("POST /up", "a=b"));
        assert_eq!((hex(&span.trace_id), hex(&span.parent_span_id)), (PARENT[3..35].into(), PARENT[36..52].into()));
        assert_eq!(answer, format!("00-{}-{}-01 a=b", hex(&span.trace_id), hex(&span.span_id)));
        assert!(span.end_time_unix_nano >= span.start_time_unix_nano && span.start_time_unix_nano > 1 << 60);
        assert_eq!((span.kind, span.flags, &span.status), (2, 0x301, &None));
        let got = texts(&span.attributes);
        let peer = got.iter().find(|(key, _)| *key == "network.peer.port").expect("a port").1.clone();
        let want = [
            ("server.address", "localhost"),
            ("http.request.method", "POST"),
            ("url.scheme", "http"),
            ("server.port", &site.to_string()),
            ("network.peer.address", "127.0.0.1"),
            ("network.peer.port", &peer),
            ("user_agent.original", "test"),
            ("client.address", "1.2.3.4"),
            ("url.path", "/up"),
            ("network.protocol.version", "1.1"),
            ("fixed", "text"),
            ("answer", "yes"),
            ("http.request.body.size", "5"),
            ("http.response.body.size", &answer.len().to_string()),
            ("http.response.status_code", "200"),
        ];
        assert_eq!(got, want.map(|(key, value)| (key, value.to_owned())));
        // A new trace; an unknown method; a failed request.
        let body = get(site, "/%20a").body;
        send(site, "PURGE /", &["Host: a"]);
        send(site, "GET /error", &["Host: a"]);
        let spans = spans(&collector, 3);
        assert_eq!(spans.iter().map(|span| &*span.name).collect::<Vec<_>>(), ["GET / a", "PURGE /", "GET /error"]);
        assert_eq!(body, format!("{} {}", hex(&spans[0].trace_id), hex(&spans[0].span_id)));
        assert!(spans.iter().all(|span| span.parent_span_id.is_empty() && span.flags == 0x101));
        let purge = texts(&spans[1].attributes);
        for (key, value) in [("http.request.method", "_OTHER"), ("http.request.method_original", "PURGE")] {
            assert!(purge.contains(&(key, value.into())), "{purge:?}");
        }
        assert!(texts(&spans[2].attributes).contains(&("http.response.status_code", "503".into())));
        assert_eq!(spans[2].status.as_ref().map(|status| status.code), Some(2));
        // The spans are counted once the server has read the collector's response. Each scrape has a span too.
        wait_until("the spans are counted", || {
            let scrape = get(site, "/metrics").body;
            let mut lines = scrape.lines();
            let sent = lines.find_map(|line| line.strip_prefix("causeway_trace_spans_total{result=\"sent\"} "));
            sent.is_some_and(|count| count.parse::<u64>().unwrap() >= 4)
        });
        // The end of the server sends the last span.
        drop(server);
    }
    let records = std::fs::read_to_string(directory.path("access.log")).expect("records");
    let record: Value = serde_json::from_str(records.lines().next().expect("a record")).expect("JSON");
    assert_eq!(record["traceID"], PARENT[3..35]);
    assert_eq!(record["spanID"].as_str().map(str::len), Some(16));
}

// OpenTelemetry: the keys of attributes MUST be unique. In Caddy a span has the last value set: `span_attributes`
// replaces the request's, and the response's replace `span_attributes`.
#[test]
fn attributes_have_different_keys() {
    let site = "{\n\tauto_https off\n}\nhttp://:0 {\n\tbind 127.0.0.1\n\ttracing {\n\t\tspan_attributes {\n\t\t\thttp.request.method X\n\
                \t\t\turl.path hidden\n\t\t\thttp.response.status_code 999\n\t\t}\n\t}\n\trespond ok\n}\n";
    let directory = Directory::with(&[("Caddyfile", site)]);
    let collector = Collector::http(0, vec![]);
    let server = start(&directory, "http/protobuf", collector.port, &[]);
    get(server.port(), "/secret");
    let [span] = &spans(&collector, 1)[..] else { panic!("one span") };
    let mut got = texts(&span.attributes);
    for (key, value) in [("http.request.method", "X"), ("url.path", "hidden"), ("http.response.status_code", "200")] {
        assert!(got.contains(&(key, value.into())), "{got:?}");
    }
    let count = got.len();
    got.sort_unstable();
    got.dedup_by_key(|(key, _)| *key);
    assert_eq!(got.len(), count, "{got:?}");
}

// A handler within another's request continues its trace, as in Caddy. A route that is invoked twice makes one span
// here.
#[test]
fn spans_within_spans() {
    let site = "&(traced) {\n\ttracing {\n\t\tspan inner\n\t}\n}\nhttp://:0 {\n\tbind 127.0.0.1\n\ttracing {\n\t\tspan outer\n\t}\n\
                \troute {\n\t\tinvoke traced\n\t\tinvoke traced\n\t\trespond {http.vars.span_id}\n\t}\n}\n";
    let directory = Directory::with(&[("Caddyfile", site)]);
    let collector = Collector::http(0, vec![]);
    let server = start(&directory, "http/protobuf", collector.port, &[("OTEL_BSP_SCHEDULE_DELAY", "80000000")]);
    let id = get(server.port(), "/").body;
    server.signal(rustix::process::Signal::TERM);
    assert!(server.status().success());
    let [outer, inner] = &spans(&collector, 2)[..] else { panic!("two spans") };
    assert_eq!((&*outer.name, &*inner.name, &inner.trace_id), ("outer", "inner", &outer.trace_id));
    assert_eq!((hex(&inner.span_id), outer.parent_span_id.len()), (id, 0));
}

// Spans that wait when the server ends are sent.
#[test]
fn the_last_spans() {
    let directory = Directory::with(&[("Caddyfile", &CADDYFILE.replace("UPSTREAM", "1"))]);
    let collector = Collector::http(0, vec![]);
    let server = start(&directory, "http/protobuf", collector.port, &[("OTEL_BSP_SCHEDULE_DELAY", "80000000")]);
    get(server.port(), "/");
    assert!(collector.is_quiet());
    server.signal(rustix::process::Signal::TERM);
    assert!(server.status().success());
    assert_eq!(spans(&collector, 1)[0].name, "GET /");
}

// So are those of a process whose place another one takes, also if the collector accepts them only at a later attempt.
#[test]
fn the_last_spans_before_an_upgrade() {
    let directory = Directory::with(&[("Caddyfile", &CADDYFILE.replace("UPSTREAM", "1"))]);
    let collector = Collector::http(0, vec![Reply::of(503), Reply::of(503)]);
    let mut server = start(&directory, "http/protobuf", collector.port, &[("OTEL_BSP_SCHEDULE_DELAY", "80000000")]);
    get(server.port(), "/");
    server.signal(rustix::process::Signal::USR2);
    let line = server.line_with(" serves now; ");
    let id = line.split("process ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
    let _next = Successor(id);
    assert!(server.status().success());
    for _ in 0..3 {
        assert_eq!(spans(&collector, 1)[0].name, "GET /");
    }
}

// A collector that is absent: requests go on. A reload with the same environment keeps the output and its queue.
#[test]
fn an_absent_collector_and_a_reload() {
    let directory = Directory::with(&[("Caddyfile", &CADDYFILE.replace("UPSTREAM", "1"))]);
    let port = free_port();
    let mut server = start(&directory, "http/protobuf", port, &[]);
    let (site, admin) = (server.port(), server.admin_port());
    for _ in 0..3 {
        assert_eq!(get(site, "/").status, 200);
    }
    let line = server.line_with("spans wait");
    assert!(line.contains(&format!("traces to http://127.0.0.1:{port}/v1/traces: spans wait: ")), "{line}");
    let config = send(admin, "GET /config/", &[&format!("Host: localhost:{admin}")]).body;
    let fields =
        [&*format!("Host: localhost:{admin}"), "Content-Type: application/json", "Cache-Control: must-revalidate"];
    assert_eq!(send_body(admin, "POST /load", &fields, &config).status, 200);
    assert_eq!(get(site, "/").status, 200);
    let collector = Collector::http(port, vec![]);
    spans(&collector, 4);
    server.line_with("sending again");
}

// A variable of the environment that cannot be used is an error when the configuration is loaded. Its value may be in
// the configuration, too, but no line of it is at fault.
#[test]
fn mistakes() {
    let directory = Directory::with(&[("Caddyfile", ":8080\ntracing\nrespond maybe\n")]);
    for (variable, value, want) in [
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json", "'grpc' or 'http/protobuf'"),
        ("OTEL_SDK_DISABLED", "maybe", "'true' or 'false'"),
    ] {
        let output = directory.command(&["validate"]).env(variable, value).output().expect("a process");
        let text = String::from_utf8_lossy(&output.stderr);
        let want = format!("environment variable {variable}: found '{value}', expected {want}");
        assert!(!output.status.success() && text.contains(&want), "{text}");
        assert!(!text.contains("Caddyfile:"), "{text}");
    }
}
