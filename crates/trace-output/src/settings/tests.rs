use super::*;

fn read(variables: &[(&str, &str)]) -> Result<TraceSettings, SettingError> {
    TraceSettings::read(&|name| {
        variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
    })
}

fn export(variables: &[(&str, &str)]) -> ExportSettings {
    read(variables).expect("settings").export.expect("an exporter")
}

// OTLP exporter, "Endpoint URLs for OTLP/HTTP": the general endpoint is a directory, the endpoint for traces is used as
// it is and has precedence. "Specify Protocol": the default is http/protobuf, as in Caddy 2.11.9 (autoexport).
#[test]
fn endpoints() {
    let (general, special) = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT");
    let (http, insecure) = (("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"), ("OTEL_EXPORTER_OTLP_INSECURE", "true"));
    let grpc = ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc");
    for (variables, want) in [
        (&[][..], "http://localhost:4318/v1/traces"),
        (&[http], "http://localhost:4318/v1/traces"),
        (&[grpc], "http://localhost:4317"),
        (&[http, (general, "http://c:1")], "http://c:1/v1/traces"),
        (&[http, (general, "http://c:1/a/")], "http://c:1/a/v1/traces"),
        (&[http, (general, "http://c:1/a"), (special, "https://d:2")], "https://d:2/"),
        (&[http, (special, "http://d:2/own")], "http://d:2/own"),
        (&[grpc, (general, "http://c:1/")], "http://c:1"),
        (&[grpc, (general, "c:1")], "https://c:1"),
        (&[grpc, (general, "c:1"), insecure], "http://c:1"),
    ] {
        assert_eq!(export(variables).collector.endpoint, want, "{variables:?}");
    }
}

// "Environment Variable Specification": defaults, and an empty value is none.
#[test]
fn defaults() {
    let settings = export(&[("OTEL_BSP_MAX_QUEUE_SIZE", ""), ("OTEL_SERVICE_NAME", " ")]);
    assert_eq!((settings.queue_max, settings.batch_max), (2048, 512));
    let CollectorSettings { export_timeout, timeout, gzip, resource, .. } = &settings.collector;
    assert_eq!((settings.delay, *export_timeout), (Duration::from_secs(5), Duration::from_secs(30)));
    assert_eq!((*timeout, *gzip), (Duration::from_secs(10), false));
    assert_eq!(resource[0], ("service.name".into(), "unknown_service:causeway".into()));
    let all = read(&[]).expect("settings");
    assert_eq!(all.sampler, Sampler { follows_parent: true, below: 1 << 63 });
    assert!(all.propagates && all.is_enabled);
}

// OTEL_SERVICE_NAME has precedence over service.name in OTEL_RESOURCE_ATTRIBUTES; values are percent-encoded.
#[test]
fn resources_and_headers() {
    let ExportSettings { collector: settings, .. } = export(&[
        ("OTEL_SERVICE_NAME", "shop"),
        ("OTEL_RESOURCE_ATTRIBUTES", "service.name=other, deployment.environment=a%20b,"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "x-a=1,authorization=Basic%20eA=="),
    ]);
    let find =
        |key: &str| settings.resource.iter().filter(|(known, _)| known == key).map(|(_, v)| &**v).collect::<Vec<_>>();
    assert_eq!((find("service.name"), find("deployment.environment")), (vec!["shop"], vec!["a b"]));
    assert_eq!(settings.headers, [("x-a".into(), "1".into()), ("authorization".into(), "Basic eA==".to_owned())]);
}

#[test]
fn switched_off() {
    let off = read(&[("OTEL_SDK_DISABLED", "True"), ("OTEL_EXPORTER_OTLP_PROTOCOL", "x")]).expect("settings");
    assert!(!off.is_enabled && off.export.is_none());
    assert!(read(&[("OTEL_TRACES_EXPORTER", "none")]).expect("settings").export.is_none());
    assert!(!read(&[("OTEL_PROPAGATORS", "baggage")]).expect("settings").propagates);
}

// Every value that cannot be used is refused with its variable, and no value of a header is shown.
#[test]
fn mistakes() {
    for (variable, value, want) in [
        ("OTEL_SDK_DISABLED", "1", "found '1', expected 'true' or 'false'"),
        ("OTEL_TRACES_EXPORTER", "console", "found 'console', expected 'otlp' or 'none'"),
        ("OTEL_PROPAGATORS", "tracecontext,b3", "found 'b3', expected 'tracecontext', 'baggage' or 'none'"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json", "found 'http/json', expected 'grpc' or 'http/protobuf'"),
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "zstd", "found 'zstd', expected 'gzip' or 'none'"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "a=1,secret", "found 'entry 2', expected 'key=value'"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "10s", "found '10s', expected a number of milliseconds from 1 to 86400000"),
        (
            "OTEL_EXPORTER_OTLP_ENDPOINT",
            "unix:///s",
            "found 'unix:///s', expected a URL with the scheme 'http' or 'https'",
        ),
        (
            "OTEL_EXPORTER_OTLP_ENDPOINT",
            "http://u:secret@h",
            "found 'h', expected a URL of scheme, host, port and path",
        ),
        ("OTEL_BSP_MAX_QUEUE_SIZE", "0", "found '0', expected a number from 1 to 65536"),
        ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "2049", "found '2049', expected a number from 1 to OTEL_BSP_MAX_QUEUE_SIZE"),
        (
            "OTEL_TRACES_SAMPLER",
            "jaeger_remote",
            "found 'jaeger_remote', expected 'always_on', 'always_off' or 'traceidratio', each also with 'parentbased_' before it",
        ),
        ("OTEL_EXPORTER_OTLP_CLIENT_KEY", "k", "found 'k', expected OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE beside it"),
        (
            "OTEL_EXPORTER_OTLP_TRACES_CLIENT_KEY",
            "k",
            "found 'k', expected OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE beside it",
        ),
    ] {
        let error = read(&[(variable, value)]).expect_err(variable);
        assert_eq!(error.to_string(), format!("{variable}: {want}"));
    }
    let variables = [("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"), ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://h/v1/traces")];
    let want = "found 'http://h/v1/traces', expected a URL without a path, because the protocol is 'grpc'";
    let error = read(&variables).expect_err("gRPC has no path");
    assert_eq!(error.to_string(), format!("OTEL_EXPORTER_OTLP_ENDPOINT: {want}"));
    let ratio = |arg| read(&[("OTEL_TRACES_SAMPLER", "traceidratio"), ("OTEL_TRACES_SAMPLER_ARG", arg)]);
    for arg in ["x", "-1", "1.5", "NaN"] {
        assert_eq!(ratio(arg).expect_err(arg).variable, "OTEL_TRACES_SAMPLER_ARG");
    }
}

// "Sampling": the ratio's decision is a function of the trace id, a higher ratio samples all that a lower one samples,
// and only the `parentbased_` samplers follow the sender. The function is that of OpenTelemetry's Go library.
#[test]
fn samplers() {
    let sampler =
        |name, arg| read(&[("OTEL_TRACES_SAMPLER", name), ("OTEL_TRACES_SAMPLER_ARG", arg)]).expect("settings").sampler;
    let id = |last: u64| {
        let mut id = [0xff; 16];
        id[8..].copy_from_slice(&last.to_be_bytes());
        id
    };
    let half = sampler("traceidratio", "0.5");
    assert!(half.samples(&id((1 << 63) - 1), Some(false)) && !half.samples(&id(1 << 63), Some(true)));
    let all = sampler("traceidratio", "1");
    assert!(all.samples(&id(u64::MAX), None) && all.samples(&id(0), None));
    assert!(!sampler("traceidratio", "0").samples(&id(0), None));
    assert!(!sampler("always_off", "").samples(&id(0), Some(true)));
    assert!(sampler("always_on", "").samples(&id(u64::MAX), Some(false)));
    for (name, root) in [("parentbased_always_on", true), ("parentbased_always_off", false)] {
        let sampler = sampler(name, "");
        assert_eq!([Some(true), Some(false), None].map(|parent| sampler.samples(&id(9), parent)), [true, false, root]);
    }
    let mut random = causeway_testkit::random::Random::new(7);
    let (tenth, fifth) = (sampler("parentbased_traceidratio", "0.1"), sampler("traceidratio", "0.2"));
    let mut count = 0;
    for _ in 0..10_000 {
        let id = id(random.below(u64::MAX));
        assert!(!tenth.samples(&id, None) || fifth.samples(&id, None));
        count += u32::from(tenth.samples(&id, None));
    }
    assert!((800..1200).contains(&count), "{count} of 10000");
}

// Caddy, `metrics { otlp }` (autoexport): OTLP by HTTP is the default; variables of metrics have precedence over those
// of all signals, and those of traces have no effect.
#[test]
fn metrics() {
    let read = |variables: &[(&str, &str)]| {
        MetricSettings::read(&|name| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        })
    };
    let settings = |variables: &[(&str, &str)]| read(variables).expect("settings").expect("an exporter");
    let (general, special) = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT");
    let grpc = ("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "grpc");
    for (variables, want) in [
        (&[][..], "http://localhost:4318/v1/metrics"),
        (&[(general, "http://c:1/a/")], "http://c:1/a/v1/metrics"),
        (&[(general, "http://c:1"), (special, "https://d:2")], "https://d:2/"),
        (&[("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://t:1")], "http://localhost:4318/v1/metrics"),
        (&[grpc], "http://localhost:4317"),
        (&[grpc, (special, "d:2"), ("OTEL_EXPORTER_OTLP_METRICS_INSECURE", "true")], "http://d:2"),
        (&[("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"), (general, "http://c:1")], "http://c:1"),
    ] {
        assert_eq!(settings(variables).collector.endpoint, want, "{variables:?}");
    }
    let defaults = settings(&[]);
    let times = (defaults.interval, defaults.collector.export_timeout, defaults.collector.timeout);
    assert_eq!(times, (Duration::from_secs(60), Duration::from_secs(30), Duration::from_secs(10)));
    let chosen = settings(&[
        ("OTEL_METRIC_EXPORT_INTERVAL", "1500"),
        ("OTEL_METRIC_EXPORT_TIMEOUT", "200"),
        ("OTEL_EXPORTER_OTLP_METRICS_TIMEOUT", "300"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "400"),
    ]);
    let times = (chosen.interval, chosen.collector.export_timeout, chosen.collector.timeout);
    assert_eq!(times, (Duration::from_millis(1500), Duration::from_millis(200), Duration::from_millis(300)));
    for off in [("OTEL_METRICS_EXPORTER", "none"), ("OTEL_SDK_DISABLED", "true")] {
        assert_eq!(read(&[off]), Ok(None));
    }
    for (variable, value, want) in [
        ("OTEL_METRICS_EXPORTER", "prometheus", "found 'prometheus', expected 'otlp' or 'none'"),
        ("OTEL_METRIC_EXPORT_INTERVAL", "0", "found '0', expected a number of milliseconds from 1 to 86400000"),
        ("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "http/json", "found 'http/json', expected 'grpc' or 'http/protobuf'"),
    ] {
        assert_eq!(read(&[(variable, value)]).map_err(|error| error.to_string()), Err(format!("{variable}: {want}")));
    }
}
