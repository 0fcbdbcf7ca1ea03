//! Metrics of a running server: the directive, the admin API, and Prometheus's own checker.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::client::{connect, get, send, send_body};
use crate::process::{Directory, ServerProcess, wait_until};
use crate::traces::collector::Collector;
use crate::traces::collector::otlp::{MetricData, texts};

const CADDYFILE: &str = "{
	auto_https off
	metrics {
		per_host
	}
}
http://a.localhost:0 {
	bind 127.0.0.1
	metrics /metrics
	handle /error {
		error 404
	}
	handle_errors {
		respond \"{err.status_code}\"
	}
	respond /hello hello
	reverse_proxy /dead 127.0.0.1:1
}
";

fn start(caddyfile: &str) -> (Directory, ServerProcess, u16, u16) {
    let directory = Directory::with(&[("Caddyfile", caddyfile)]);
    let mut server = directory.start(&["run"]);
    let (site, admin) = (server.port(), server.admin_port());
    (directory, server, site, admin)
}

fn scrape(admin: u16, accept: &str) -> String {
    let fields = [format!("Host: localhost:{admin}"), format!("Accept: {accept}")];
    let answer = send(admin, "GET /metrics", &fields.each_ref().map(String::as_str));
    assert_eq!(answer.status, 200);
    answer.body
}

/// Returns Prometheus's checker: in the directory of the tools for interoperation, or on the path.
fn promtool() -> Option<PathBuf> {
    let tool = std::env::var_os("INTEROP_TOOLS")
        .map_or_else(|| "promtool".into(), |directory| PathBuf::from(directory).join("promtool"));
    let answers = Command::new(&tool).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !answers.is_ok_and(|status| status.success()) {
        eprintln!("skipped: promtool is not installed (Debian package 'prometheus')");
        return None;
    }
    Some(tool)
}

/// Checks a scrape as Prometheus parses it.
fn check_with_promtool(text: &str) {
    let Some(tool) = promtool() else { return };
    let mut command = Command::new(tool);
    command.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    // 0: no finding; 3: findings of style, such as a name that is Caddy's.
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(matches!(output.status.code(), Some(0 | 3)), "{stderr}");
    let ours: Vec<_> = stderr.lines().filter(|line| line.starts_with("causeway_")).collect();
    assert!(ours.is_empty(), "findings of style: {ours:?}");
}

/// Checks the rules of OpenMetrics 1.0 that its text shows: each sample belongs to the family before it, families do
/// not repeat, counters end with `_total`, a histogram's last bucket equals its count, and the text ends with `# EOF`.
fn check_open_metrics(text: &str) {
    let body = text.strip_suffix("# EOF\n").unwrap_or_else(|| panic!("no end in {text}"));
    let (mut family, mut kind, mut seen) = (String::new(), String::new(), Vec::new());
    let mut last_bucket = String::new();
    for line in body.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, of) = rest.split_once(' ').unwrap();
            assert!(!seen.contains(&name.to_owned()), "{name} repeats");
            (family, kind) = (name.to_owned(), of.to_owned());
            seen.push(family.clone());
        } else if !line.starts_with("# HELP ") {
            let (name, value) = (line.split(['{', ' ']).next().unwrap(), line.rsplit(' ').next().unwrap());
            let suffix = name.strip_prefix(&*family).unwrap_or_else(|| panic!("{line} is not of {family}"));
            let is_right = match &*kind {
                "counter" => suffix == "_total",
                "gauge" => suffix.is_empty(),
                _ => ["_bucket", "_sum", "_count"].contains(&suffix),
            };
            assert!(is_right && value.parse::<f64>().is_ok_and(|value| value >= 0.0), "{line}");
            match suffix {
                "_bucket" => last_bucket = value.to_owned(),
                "_count" => assert_eq!(value, last_bucket, "{line}"),
                _ => {}
            }
        }
    }
    assert!(seen.len() > 20, "{seen:?}");
}

// The names, types, labels and buckets of Caddy 2.11's scrape under these requests.
#[test]
fn a_scrape_has_the_series_of_caddy() {
    let (_directory, _server, site, admin) = start(CADDYFILE);
    for path in ["/hello", "/error", "/dead", "/none"] {
        send(site, &format!("GET {path}"), &["Host: a.localhost"]);
    }
    send_body(site, "POST /hello", &["Host: A.localhost"], "12345");
    send(admin, "GET /config/", &[&format!("Host: localhost:{admin}")]);
    send(admin, "GET /config/none/at/all", &[&format!("Host: localhost:{admin}")]);
    send(admin, "GET /nowhere", &[&format!("Host: localhost:{admin}")]);
    let text = scrape(admin, "text/plain");
    check_with_promtool(&text);
    for want in [
        "# TYPE caddy_http_requests_total counter",
        "# TYPE caddy_http_requests_in_flight gauge",
        "# TYPE caddy_http_request_errors_total counter",
        "# TYPE caddy_http_request_duration_seconds histogram",
        "# TYPE caddy_http_response_duration_seconds histogram",
        "# TYPE caddy_http_request_size_bytes histogram",
        "# TYPE caddy_http_response_size_bytes histogram",
        r#"caddy_http_requests_total{handler="subroute",host="a.localhost",server="srv0"} 5"#,
        r#"caddy_http_request_errors_total{handler="subroute",host="a.localhost",server="srv0"} 2"#,
        r#"caddy_http_requests_in_flight{handler="subroute",host="a.localhost",server="srv0"} 0"#,
        r#"caddy_http_request_duration_seconds_bucket{code="200",handler="subroute",host="a.localhost",method="GET",server="srv0",le="+Inf"} 2"#,
        r#"caddy_http_request_duration_seconds_bucket{code="200",handler="subroute",host="a.localhost",method="GET",server="srv0",le="2.5"} 2"#,
        r#"caddy_http_request_duration_seconds_count{code="404",handler="subroute",host="a.localhost",method="GET",server="srv0"} 1"#,
        r#"caddy_http_request_duration_seconds_count{code="502",handler="subroute",host="a.localhost",method="GET",server="srv0"} 1"#,
        r#"caddy_http_response_duration_seconds_count{code="200",handler="subroute",host="a.localhost",method="GET",server="srv0"} 1"#,
        r#"caddy_http_response_size_bytes_sum{code="200",handler="subroute",host="a.localhost",method="POST",server="srv0"} 5"#,
        r#"caddy_http_response_size_bytes_bucket{code="200",handler="subroute",host="a.localhost",method="POST",server="srv0",le="1.048576e+06"} 1"#,
        r#"caddy_admin_http_requests_total{code="200",handler="admin",method="GET",path="/config/"} 1"#,
        r#"caddy_admin_http_requests_total{code="400",handler="admin",method="GET",path="/config/"} 1"#,
        r#"caddy_admin_http_request_errors_total{handler="admin",method="GET",path="/config/"} 1"#,
        "caddy_config_last_reload_successful 1",
        r#"caddy_reverse_proxy_upstreams_healthy{upstream="127.0.0.1:1"} 1"#,
        "# TYPE process_cpu_seconds_total counter",
        "# TYPE process_resident_memory_bytes gauge",
        "causeway_live_plans 1",
    ] {
        assert!(text.lines().any(|line| line == want), "{want} in {text}");
    }
    assert!(!text.contains("/nowhere"), "{text}");
    // The size of the POST: target, method, version, field names and values, and the content.
    let size =
        "/hello".len() + "POST".len() + 8 + "A.localhost".len() + "Content-Length5".len() + "Connectionclose".len() + 5;
    let want = format!(
        r#"caddy_http_request_size_bytes_sum{{code="200",handler="subroute",host="a.localhost",method="POST",server="srv0"}} {size}"#
    );
    assert!(text.contains(&want), "{want} in {text}");

    check_open_metrics(&scrape(admin, "application/openmetrics-text;version=1.0.0"));
    // The directive shows the same metrics.
    let answer = send(site, "GET /metrics", &["Host: a.localhost", "Accept: application/openmetrics-text"]);
    check_open_metrics(&answer.body);
    assert!(answer.body.contains("caddy_admin_http_requests_total{") && answer.body.contains("causeway_connections{"));
    assert_eq!(send(admin, "POST /metrics", &[&format!("Host: localhost:{admin}")]).status, 405);
}

// Prometheus: counters do not go back. A refused configuration shows as such.
#[test]
fn counters_survive_a_reload() {
    let (directory, _server, site, admin) = start(CADDYFILE);
    let requests = |text: &str| {
        let lines = text.lines().filter(|line| line.starts_with("caddy_http_requests_total{"));
        lines.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum::<u64>()
    };
    let host = format!("Host: localhost:{admin}");
    let load = |text: &str| {
        send_body(admin, "POST /load", &[&host, "Content-Type: text/caddyfile", "Cache-Control: must-revalidate"], text)
            .status
    };
    let load_if_changed =
        |text: &str| send_body(admin, "POST /load", &[&host, "Content-Type: text/caddyfile"], text).status;
    // The configuration sets no admin address, so that the API stays where it is.
    let caddyfile = CADDYFILE.replace(":0 {", &format!(":{site} {{"));
    for round in 1..=3 {
        for _ in 0..10 {
            get(site, "/hello");
        }
        for _ in 0..10 {
            send(site, "GET /hello", &["Host: a.localhost"]);
        }
        assert_eq!(requests(&scrape(admin, "")), round * 10, "the site has one host, and no other is served");
        assert_eq!(load(&caddyfile.replace("hello hello", &format!("hello hello{round}"))), 200);
    }
    assert_eq!(load("{\n\tmetrics {\n\t\tnonsense\n\t}\n}"), 400);
    assert_eq!(
        load(&caddyfile.replace("127.0.0.1:1", "127.0.0.1:1 {\n\t\ttransport http {\n\t\t\tversions 3\n\t\t}\n\t}")),
        400
    );
    let text = scrape(admin, "");
    assert_eq!(requests(&text), 30);
    assert!(text.contains("caddy_config_last_reload_successful 0\n"), "{text}");
    // The bad change is taken back: the configuration is unchanged.
    assert_eq!(load_if_changed(&caddyfile.replace("hello hello", "hello hello3")), 200);
    let text = scrape(admin, "");
    assert!(text.contains("caddy_config_last_reload_successful 1\n"), "{text}");
    drop(directory);
}

// Every Host that a client can send leaves the scrape well formed, and gets no label over HTTP.
#[test]
fn hostile_hosts() {
    let caddyfile = "{\n\tauto_https off\n\tmetrics {\n\t\tper_host\n\t\tobserve_catchall_hosts\n\t}\n}\nhttp://:0 {\n\tbind 127.0.0.1\n\trespond x\n}\n";
    let (_directory, _server, site, admin) = start(caddyfile);
    for number in 0..400 {
        send(site, "GET /", &[&format!("Host: h{number}.test")]);
    }
    for host in ["\"", "a\\", "a\"} 1", "{x=\"y\"}", "%0a", "a%0Ab", "[::1]:80", "é.test", "a\u{1}b", &"x".repeat(4000)]
    {
        send(site, "GET /", &[&format!("Host: {host}")]);
    }
    let text = scrape(admin, "");
    check_with_promtool(&text);
    check_open_metrics(&scrape(admin, "application/openmetrics-text"));
    let series = text.lines().filter(|line| line.starts_with("caddy_http_requests_total{")).count();
    assert_eq!(series, 257, "256 hosts and _other");
}

/// A process that is killed when dropped.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

// A real Caddy under the same requests has the same series, and the same values except for times.
#[test]
fn caddy_has_the_same_series() {
    let built = || Path::new(env!("CARGO_TARGET_TMPDIR")).join("../tools");
    let caddy = std::env::var_os("INTEROP_TOOLS").map_or_else(built, PathBuf::from).join("caddy");
    if !caddy.is_file() {
        eprintln!("skipped: ./test differential builds caddy");
        return;
    }
    let sockets: Vec<_> = (0..2).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    let [site, admin] = [&sockets[0], &sockets[1]].map(|socket| socket.local_addr().unwrap().port());
    drop(sockets);
    let caddyfile = CADDYFILE
        .replace("\tauto_https off\n", &format!("\tauto_https off\n\tadmin 127.0.0.1:{admin}\n"))
        .replace(":0 {", &format!(":{site} {{"))
        .replace("\treverse_proxy", "\tabort /abort\n\treverse_proxy");
    let directory = Directory::with(&[("Caddyfile", &*caddyfile)]);
    let observed = || {
        for path in ["/hello", "/hello", "/error", "/dead", "/none", "/abort"] {
            let mut stream = connect(site);
            write!(stream, "GET {path} HTTP/1.1\r\nHost: a.localhost\r\nX: y\r\nConnection: close\r\n\r\n").unwrap();
            let _ = stream.read_to_end(&mut Vec::new());
        }
        for line in ["POST /hello", "PUT /error?x=y", "BREW /none"] {
            send_body(site, line, &["Host: a.localhost"], "content");
        }
        for path in ["/config/", "/config/none/at/all", "/nowhere"] {
            send(admin, &format!("GET {path}"), &[&format!("Host: 127.0.0.1:{admin}")]);
        }
        let text = send(admin, "GET /metrics", &[&format!("Host: 127.0.0.1:{admin}")]).body;
        let is_time = |line: &str| {
            line.contains("timestamp")
                || line.contains("duration_seconds_sum")
                || line.contains("duration_seconds_bucket")
        };
        let lines = text.lines().filter(|line| line.starts_with("caddy_") || line.starts_with("# TYPE caddy_"));
        let mut lines: Vec<_> = lines
            .map(|line| if is_time(line) { line.rsplit_once(' ').unwrap().0.to_owned() } else { line.to_owned() })
            .collect();
        lines.sort_unstable();
        lines
    };
    let theirs = {
        let mut command = Command::new(caddy);
        command.args(["run", "--config", "Caddyfile", "--adapter", "caddyfile"]).current_dir(directory.path(""));
        command.env("HOME", directory.path("")).stdout(Stdio::null()).stderr(Stdio::null());
        let _caddy = Killed(command.spawn().unwrap());
        let begun = Instant::now();
        while TcpStream::connect(("127.0.0.1", site)).is_err() || TcpStream::connect(("127.0.0.1", admin)).is_err() {
            assert!(begun.elapsed() < Duration::from_secs(20), "Caddy does not start");
            std::thread::sleep(Duration::from_millis(50));
        }
        observed()
    };
    let _ours = directory.start(&["run"]);
    assert_eq!(observed(), theirs);
    assert!(theirs.len() > 100, "{theirs:?}");
}

/// Returns the names of metrics in an expression of PromQL.
fn names_in(expression: &str) -> impl Iterator<Item = &str> {
    let words = expression.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
    words.filter(|word| ["caddy_", "causeway_", "process_", "promhttp_"].iter().any(|ours| word.starts_with(ours)))
}

// The dashboard and the alert rules only use metrics that a server shows.
#[test]
fn the_dashboard_and_the_alerts() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/monitoring");
    let dashboard = std::fs::read_to_string(directory.join("grafana-dashboard.json")).unwrap();
    let rules_file = directory.join("prometheus-alerts.yml");
    let rules = std::fs::read_to_string(&rules_file).unwrap();
    let dashboard: serde_json::Value = serde_json::from_str(&dashboard).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels.iter().filter_map(|panel| panel["targets"].as_array()).flatten();
    let mut used: Vec<_> = targets.flat_map(|target| names_in(target["expr"].as_str().unwrap())).collect();
    assert!(used.len() >= 25, "{used:?}");
    used.extend(names_in(&rules));

    let limit = "\trate_limit {\n\t\tredis 127.0.0.1:1\n\t\tzone z {\n\t\t\twindow 1m\n\t\t\tevents 9\n\t\t}\n\t}\n";
    let certified = &format!("https://b.localhost:0 {{\n\tbind 127.0.0.2\n\ttls internal\n{limit}}}\n");
    let options = "auto_https disable_redirects\n\tskip_install_trust";
    let caddyfile = CADDYFILE.replace("auto_https off", options) + certified;
    let (_server_directory, _server, site, admin) = start(&caddyfile);
    for path in ["/hello", "/error"] {
        send(site, &format!("GET {path}"), &["Host: a.localhost"]);
    }
    let text = scrape(admin, "text/plain");
    for name in used {
        let family =
            format!("# TYPE {} ", name.trim_end_matches("_bucket").trim_end_matches("_sum").trim_end_matches("_count"));
        assert!(text.contains(&family), "{name} is not in the scrape");
    }
    if let Some(tool) = promtool() {
        let tests = directory.join("prometheus-alerts.test.yml");
        for (command, file) in [("check", &rules_file), ("test", &tests)] {
            let output = Command::new(&tool).args([command, "rules"]).arg(file).output().unwrap();
            assert!(output.status.success(), "{output:?}");
        }
    }
}

// Caddy, `metrics { otlp }`: all metrics are sent to the collector that the environment names, by OTLP over HTTP. A
// configuration without it ends that.
#[test]
fn pushed_to_a_collector() {
    let collector = Collector::http(0, vec![]);
    let pushing = CADDYFILE.replace("per_host", "per_host\n\t\totlp");
    let directory = Directory::with(&[("Caddyfile", &pushing)]);
    let mut command = directory.command(&["run"]);
    command.env("OTEL_EXPORTER_OTLP_ENDPOINT", format!("http://127.0.0.1:{}", collector.port));
    command.env("OTEL_METRIC_EXPORT_INTERVAL", "50");
    let mut server = ServerProcess::start(command);
    let (site, admin) = (server.port(), server.admin_port());
    for _ in 0..3 {
        send(site, "GET /hello", &["Host: a.localhost"]);
    }
    let (total, received) = loop {
        let received = collector.receive();
        let metric = received.metric("caddy_http_requests_total");
        let Some(MetricData::Sum(sum)) = metric.and_then(|metric| metric.data.clone()) else { continue };
        if sum.data_points[0].as_double >= 3.0 {
            break (sum, received);
        }
    };
    assert_eq!(received.path, "/v1/metrics");
    let [point] = &total.data_points[..] else { panic!("{total:?}") };
    let labels = [("handler", "subroute"), ("host", "a.localhost"), ("server", "srv0")];
    assert_eq!(texts(&point.attributes), labels.map(|(name, value)| (name, value.to_owned())));
    assert!(0 < point.start_time_unix_nano && point.start_time_unix_nano < point.time_unix_nano, "{point:?}");
    let metric = received.metric("caddy_http_request_duration_seconds").expect("the histogram");
    let Some(MetricData::Histogram(histogram)) = &metric.data else { panic!("{metric:?}") };
    let point = &histogram.data_points[0];
    assert_eq!((point.count, point.bucket_counts.len(), point.explicit_bounds.len()), (3, 12, 11));
    assert_eq!((point.bucket_counts.iter().sum::<u64>(), point.explicit_bounds[0]), (3, 0.005));
    for name in ["causeway_connections", "process_start_time_seconds", "caddy_config_last_reload_successful"] {
        assert!(received.metric(name).is_some(), "{name}");
    }
    // Pushes are no scrapes.
    let text = scrape(admin, "");
    assert!(text.contains("promhttp_metric_handler_requests_total{code=\"200\"} 1\n"), "{text}");
    // The points are counted once the server has read the collector's response.
    let counted = "causeway_metric_points_total{result=\"failed\"} 0\n";
    wait_until("the points are counted", || scrape(admin, "").contains(counted));
    let fields = [&*format!("Host: localhost:{admin}"), "Content-Type: text/caddyfile"];
    assert_eq!(send_body(admin, "POST /load", &fields, &CADDYFILE.replace(":0", &format!(":{site}"))).status, 200);
    drop(server);
    let output = directory.command(&["validate"]).env("OTEL_METRICS_EXPORTER", "console").output().expect("a process");
    let text = String::from_utf8_lossy(&output.stderr);
    let want = "environment variable OTEL_METRICS_EXPORTER: found 'console', expected 'otlp' or 'none'";
    assert!(!output.status.success() && text.contains(want), "{text}");
}
