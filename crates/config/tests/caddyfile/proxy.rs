//! reverse_proxy and related directives: each option as in Caddy's documentation, and upstream addresses.

use causeway_config::caddyfile::ErrorKind;
use causeway_config::plan::{PlanError, load};
use causeway_config::selection_policies;
use causeway_pipeline::Registry;
use causeway_pipeline::build::{BuildError, Problem};
use serde_json::{Value, json};

use super::{handlers, read, routes};

/// A proxy to one upstream, with these options and members.
#[track_caller]
fn check(cases: &[(&str, Value)]) {
    for (options, want) in cases {
        let mut want = want.clone();
        want["handler"] = json!("reverse_proxy");
        want["upstreams"] = json!([{ "dial": "a:80" }]);
        assert_eq!(handlers(&format!("reverse_proxy a:80 {{\n{options}\n}}")), json!([want]), "{options}");
    }
}

/// The addresses to dial, and the transport that they imply.
#[track_caller]
fn dials(cases: &[(&str, &[&str], Value)]) {
    for (addresses, dials, transport) in cases {
        let dials: Vec<Value> = dials.iter().map(|dial| json!({ "dial": dial })).collect();
        let mut want = json!({ "handler": "reverse_proxy", "upstreams": dials });
        if !transport.is_null() {
            want["transport"] = transport.clone();
        }
        assert_eq!(handlers(&format!("reverse_proxy * {addresses}")), json!([want]), "{addresses}");
    }
}

// "Upstream addresses": a scheme implies the port and, for https and h2c, the transport. A port range stands for one
// upstream per port. A placeholder is left for the request.
#[test]
fn upstreams() {
    let tls = json!({ "protocol": "http", "tls": {} });
    let h2c = json!({ "protocol": "http", "versions": ["h2c", "2"] });
    dials(&[
        ("localhost:4000", &["localhost:4000"], Value::Null),
        ("127.0.0.1 b", &["127.0.0.1:80", "b:80"], Value::Null),
        ("::1", &["[::1]:80"], Value::Null),
        ("[::1]:81", &["[::1]:81"], Value::Null),
        (":81", &[":81"], Value::Null),
        ("http://a", &["a:80"], Value::Null),
        ("http://user:word@a:81", &["a:81"], Value::Null),
        ("https://a", &["a:443"], tls.clone()),
        ("https://a:8443", &["a:8443"], tls.clone()),
        ("h2c://a", &["a:80"], h2c.clone()),
        ("a:80 https://b", &["a:80", "b:443"], tls.clone()),
        ("unix//run/app.sock", &["unix//run/app.sock"], Value::Null),
        ("unix+h2c//run/app.sock", &["unix//run/app.sock"], h2c.clone()),
        ("fd/3", &["fd/3"], Value::Null),
        ("udp/a:53", &["udp/a:53"], Value::Null),
        ("a:8001-8003", &["a:8001", "a:8002", "a:8003"], Value::Null),
        ("https://a-b:8001-8002", &["a-b:8001", "a-b:8002"], tls),
        ("{path}", &["{http.request.uri.path}"], Value::Null),
        ("{header.X}:81", &["{http.request.header.X}:81"], Value::Null),
        ("a:{vars.port}", &["a:{http.vars.port}"], Value::Null),
        ("http://[fe80::1%25eth0]:81", &["[fe80::1%eth0]:81"], Value::Null),
        ("http://%C3%A9.test", &["é.test:80"], Value::Null),
    ]);
}

// gRPC's notations: `direct://` for a single address, `dns:///` for a name with several addresses. Both need the
// transport httpgrpc.
#[test]
fn upstreams_as_grpc_writes_them() {
    let transport = json!({ "protocol": "httpgrpc" });
    let source = |host: &str| json!({ "source": "a", "name": host, "port": "95" });
    for (to, want) in [
        ("direct://a:95 [::1]:96", json!({ "upstreams": [{ "dial": "a:95" }, { "dial": "[::1]:96" }] })),
        ("dns:///a:95", json!({ "dynamic_upstreams": source("a") })),
        (
            "dns:///a:95 dns:///b:95",
            json!({ "dynamic_upstreams": { "source": "multi", "sources": [source("a"), source("b")] } }),
        ),
    ] {
        let mut want = want;
        want["handler"] = json!("reverse_proxy");
        want["transport"] = transport.clone();
        assert_eq!(handlers(&format!("reverse_proxy {to} {{\ntransport httpgrpc\n}}")), json!([want]), "{to}");
    }
}

// "Load balancing".
#[test]
fn load_balancing() {
    let policy = |policy: Value| json!({ "load_balancing": { "selection_policy": policy } });
    check(&[
        ("lb_policy least_conn", policy(json!({ "policy": "least_conn" }))),
        ("lb_policy random_choose 3", policy(json!({ "policy": "random_choose", "choose": 3 }))),
        (
            "lb_policy weighted_round_robin 10 1",
            policy(json!({ "policy": "weighted_round_robin", "weights": [10, 1] })),
        ),
        ("lb_policy query key", policy(json!({ "policy": "query", "key": "key" }))),
        (
            "lb_policy header X-Upstream {\nfallback cookie lb secret {\nmax_age 1h\nfallback first\n}\n}",
            policy(json!({
                "policy": "header",
                "field": "X-Upstream",
                "fallback": {
                    "policy": "cookie", "name": "lb", "secret": "secret", "max_age": 3_600_000_000_000_i64,
                    "fallback": { "policy": "first" },
                },
            })),
        ),
        (
            "lb_retries 2\nlb_try_duration 5s\nlb_try_interval 250ms",
            json!({ "load_balancing": { "retries": 2, "try_duration": 5_000_000_000_i64, "try_interval": 250_000_000 } }),
        ),
        ("lb_retries 2\nlb_retries 0", json!({ "load_balancing": {} })),
        (
            "lb_retry_match method PUT\nlb_retry_match {\npath /a /b\nmethod GET\n}\nlb_retry_match `{rp.status_code} == 502`",
            json!({ "load_balancing": { "retry_match": [
                { "method": ["PUT"] },
                { "path": ["/a", "/b"], "method": ["GET"] },
                { "expression": "{http.reverse_proxy.status_code} == 502" },
            ] } }),
        ),
    ]);
}

/// Returns the refusal of a policy by the module; `None` if the module has the policy, even if it refuses an option.
fn unknown_policy(name: &str) -> Option<BuildError> {
    let mut registry = Registry::default();
    causeway_modules::register(&mut registry);
    let balancing = json!({ "selection_policy": { "policy": name } });
    let handler = json!({ "handler": "reverse_proxy", "upstreams": [{ "dial": "a:80" }], "load_balancing": balancing });
    let server = json!({ "listen": [":80"], "routes": [{ "handle": [handler] }] });
    match load(&json!({ "apps": { "http": { "servers": { "srv0": server } } } }), &registry) {
        Err(PlanError::Build(error)) if error.path.ends_with("selection_policy.policy") => Some(error),
        Ok(_) | Err(_) => None,
    }
}

// The names stand here and in the module. `list-modules` takes them from here.
#[test]
fn each_policy_has_a_syntax_and_a_module() {
    let policies = selection_policies();
    assert!(policies.is_sorted(), "POLICIES of crates/config/src/caddyfile/proxy/balance.rs: not sorted");
    for name in policies {
        let parsed = read(&format!(":80\nreverse_proxy a:80 {{\nlb_policy {name}\n}}"));
        let is_unknown = parsed.is_err_and(|error| matches!(error.kind(), ErrorKind::Unknown { .. }));
        assert!(
            !is_unknown,
            "{name}: crates/config/src/caddyfile/proxy/balance.rs lists it, but `policy` does not parse it"
        );
        assert!(unknown_policy(name).is_none(), "{name}: no policy in crates/modules/src/reverse_proxy/policy.rs");
    }
    let Some(BuildError { problem: Problem::Value { expected, .. }, .. }) = unknown_policy("?") else {
        panic!("the module accepts the policy '?'");
    };
    let mut expected: Vec<_> = expected.split(", ").flat_map(|names| names.split(" or ")).collect();
    expected.sort_unstable();
    assert_eq!(
        expected, policies,
        "left: the names that crates/modules/src/reverse_proxy/policy.rs expects; right: POLICIES of crates/config/src/caddyfile/proxy/balance.rs"
    );
}

// "Active health checks" and "Passive health checks".
#[test]
fn health() {
    let active = |checks: Value| json!({ "health_checks": { "active": checks } });
    let passive = |checks: Value| json!({ "health_checks": { "passive": checks } });
    check(&[
        ("health_uri /ready?full=1", active(json!({ "uri": "/ready?full=1" }))),
        ("health_upstream a:90\nhealth_method HEAD", active(json!({ "upstream": "a:90", "method": "HEAD" }))),
        ("health_port 90\nhealth_interval 10s", active(json!({ "port": 90, "interval": 10_000_000_000_i64 }))),
        ("health_passes 2\nhealth_fails 3", active(json!({ "passes": 2, "fails": 3 }))),
        ("health_status 2xx\nhealth_body ok", active(json!({ "expect_status": 2, "expect_body": "ok" }))),
        ("health_timeout 0\nhealth_follow_redirects", active(json!({ "follow_redirects": true }))),
        ("health_request_body x", active(json!({ "body": "x" }))),
        (
            "health_headers {\nHost a\nx-b 1 2\nx-b 3\nEmpty\n}",
            active(json!({ "headers": { "Host": ["a"], "x-b": ["1", "2", "3"], "Empty": [""] } })),
        ),
        ("fail_duration 30s\nmax_fails 3", passive(json!({ "fail_duration": 30_000_000_000_i64, "max_fails": 3 }))),
        ("unhealthy_status 5xx 429", passive(json!({ "unhealthy_status": [5, 429] }))),
        (
            "unhealthy_latency 2s\nunhealthy_request_count 9",
            passive(json!({ "unhealthy_latency": 2_000_000_000_i64, "unhealthy_request_count": 9 })),
        ),
    ]);
}

// Not in Caddy's Caddyfile: `circuit_breaker` becomes a module of ours in the field that Caddy's JSON has.
#[test]
fn circuit_breaker() {
    let breaker = |options: Value| json!({ "circuit_breaker": options });
    check(&[
        ("circuit_breaker {\nerror_ratio 0.5\n}", breaker(json!({ "type": "internal", "error_ratio": 0.5 }))),
        (
            "circuit_breaker {\nlatency 500ms\nerror_status 5xx 429\nerror_ratio 1\n}",
            breaker(json!({
                "type": "internal",
                "latency": { "limit": 500_000_000 },
                "error_status": [5, 429],
                "error_ratio": 1,
            })),
        ),
        (
            "circuit_breaker {\nlatency 2s 0.99\nwindow 30s\nmin_requests 50\ntrip_duration 1m\n}",
            breaker(json!({
                "type": "internal",
                "latency": { "limit": 2_000_000_000, "quantile": 0.99 },
                "window": 30_000_000_000_i64,
                "min_requests": 50,
                "trip_duration": 60_000_000_000_i64,
            })),
        ),
        ("circuit_breaker", breaker(json!({ "type": "internal" }))),
        ("lb_slow_start 30s", json!({ "load_balancing": { "slow_start": 30_000_000_000_i64 } })),
    ]);
}

// "Streaming", "Headers", "Rewrites".
#[test]
fn options_for_requests_and_responses() {
    check(&[
        ("flush_interval -1", json!({ "flush_interval": -1 })),
        (
            "request_buffers 4KiB\nresponse_buffers unlimited\nstream_buffer_size 1MB",
            json!({ "request_buffers": 4096, "response_buffers": -1, "stream_buffer_size": 1_000_000 }),
        ),
        (
            "stream_timeout 24h\nstream_close_delay 5m",
            json!({ "stream_timeout": 86_400_000_000_000_i64, "stream_close_delay": 300_000_000_000_i64 }),
        ),
        ("proxy_status_name edge\nverbose_logs", json!({ "proxy_status_name": "edge", "verbose_logs": true })),
        (
            "trusted_proxies 198.51.100.0/24\ntrusted_proxies ::1",
            json!({ "trusted_proxies": ["198.51.100.0/24", "::1"] }),
        ),
        (
            "header_up host {upstream_hostport}\nheader_up +X a\nheader_up -Cookie\nheader_up Origin a b",
            json!({ "headers": { "request": {
                "set": { "Host": ["{http.reverse_proxy.upstream.hostport}"] },
                "add": { "X": ["a"] },
                "delete": ["Cookie"],
                "replace": { "Origin": [{ "search_regexp": "a", "replace": "b" }] },
            } } }),
        ),
        ("header_down -Server", json!({ "headers": { "response": { "delete": ["Server"] } } })),
        ("method GET\nrewrite /x{uri}", json!({ "rewrite": { "method": "GET", "uri": "/x{http.request.uri}" } })),
    ]);
}

// "Intercepting responses": handlers without a matcher come last, regardless of the written order.
#[test]
fn routes_for_responses() {
    check(&[
        (
            "replace_status 200\n@gone status 404 410\n@text {\nstatus 2xx\nheader Content-Type text/*\n}\n\
             handle_response @gone {\ncopy_response_headers {\ninclude Age\n}\ncopy_response 200\n}\nreplace_status @text {rp.status_code}",
            json!({ "handle_response": [
                {
                    "match": { "status_code": [2], "headers": { "Content-Type": ["text/*"] } },
                    "status_code": "{http.reverse_proxy.status_code}",
                },
                { "match": { "status_code": [404, 410] }, "routes": [{ "handle": [
                    { "handler": "copy_response_headers", "include": ["Age"] },
                    { "handler": "copy_response", "status_code": 200 },
                ] }] },
                { "status_code": 200 },
            ] }),
        ),
        (
            "handle_response {\n@png path *.png\nrespond @png nothing\n}",
            json!({ "handle_response": [{ "routes": [
                { "match": [{ "path": ["*.png"] }], "handle": [{ "handler": "static_response", "body": "nothing" }] },
            ] }] }),
        ),
        ("@any {\n}\nhandle_response @any {\n}", json!({ "handle_response": [{ "match": {} }] })),
    ]);
    assert_eq!(
        handlers(
            "intercept {\n@error status 5xx {\nheader X *\n}\nreplace_status @error 503\nhandle_response {\nrespond ok\n}\n}"
        ),
        json!([{ "handler": "intercept", "handle_response": [
            { "match": { "status_code": [5], "headers": { "X": ["*"] } }, "status_code": 503 },
            { "routes": [{ "handle": [{ "handler": "static_response", "body": "ok" }] }] },
        ] }])
    );
}

// "Dynamic upstreams".
#[test]
fn dynamic_upstreams() {
    for (source, want) in [
        ("a app.test 9000", json!({ "source": "a", "name": "app.test", "port": "9000" })),
        (
            "a {\nname app.test\nrefresh 1m\nresolvers 192.0.2.1 192.0.2.2\nversions ipv4\n}",
            json!({
                "source": "a",
                "name": "app.test",
                "refresh": 60_000_000_000_i64,
                "resolver": { "addresses": ["192.0.2.1", "192.0.2.2"] },
                "versions": { "ipv4": true },
            }),
        ),
        (
            "srv _api._tcp.test {\ndial_timeout 1s\ndial_fallback_delay -1s\ngrace_period 2s\n}",
            json!({
                "source": "srv",
                "name": "_api._tcp.test",
                "dial_timeout": 1_000_000_000,
                "dial_fallback_delay": -1_000_000_000,
                "grace_period": 2_000_000_000_i64,
            }),
        ),
        (
            "multi {\nsrv {\nservice api\nproto tcp\n}\na b 80\n}",
            json!({ "source": "multi", "sources": [
                { "source": "srv", "service": "api", "proto": "tcp" },
                { "source": "a", "name": "b", "port": "80" },
            ] }),
        ),
    ] {
        let want = json!([{ "handler": "reverse_proxy", "dynamic_upstreams": want }]);
        assert_eq!(handlers(&format!("reverse_proxy {{\ndynamic {source}\n}}")), want, "{source}");
    }
}

// "Transports": one without options is omitted.
#[test]
fn transports() {
    let http = |mut members: Value| {
        members["protocol"] = json!("http");
        json!({ "transport": members })
    };
    let nanoseconds = 3_000_000_000_i64;
    check(&[
        ("transport http", json!({})),
        ("transport http {\ndial_timeout 0\n}", json!({})),
        (
            "transport http {\nread_buffer 8KiB\nwrite_buffer 16KiB\nmax_response_header 1MB\nmax_conns_per_host 4\nqueue_timeout 5s\n}",
            http(json!({
                "read_buffer_size": 8192,
                "write_buffer_size": 16384,
                "max_response_header_size": 1_000_000,
                "max_conns_per_host": 4,
                "queue_timeout": 5_000_000_000u64,
            })),
        ),
        (
            "transport http {\ndial_timeout 3s\ndial_fallback_delay 3s\nresponse_header_timeout 3s\nexpect_continue_timeout 3s\n\
             read_timeout 3s\nwrite_timeout 3s\n}",
            http(json!({
                "dial_timeout": nanoseconds,
                "dial_fallback_delay": nanoseconds,
                "response_header_timeout": nanoseconds,
                "expect_continue_timeout": nanoseconds,
                "read_timeout": nanoseconds,
                "write_timeout": nanoseconds,
            })),
        ),
        (
            "transport http {\nversions 1.1 2\ncompression off\nproxy_protocol v2\nlocal_address 192.0.2.1\nresolvers 192.0.2.53\n}",
            http(json!({
                "versions": ["1.1", "2"],
                "compression": false,
                "proxy_protocol": "v2",
                "local_address": "192.0.2.1",
                "resolver": { "addresses": ["192.0.2.53"] },
            })),
        ),
        ("transport http {\nkeepalive off\n}", http(json!({ "keep_alive": { "enabled": false } }))),
        (
            "transport http {\nkeepalive 3s\nkeepalive_interval 3s\nkeepalive_ping_interval 3s\nkeepalive_ping_timeout 3s\n\
             keepalive_idle_conns 5\nkeepalive_idle_conns_per_host 2\n}",
            http(json!({ "keep_alive": {
                "idle_timeout": nanoseconds,
                "probe_interval": nanoseconds,
                "ping_interval": nanoseconds,
                "ping_timeout": nanoseconds,
                "max_idle_conns": 5,
                "max_idle_conns_per_host": 2,
            } })),
        ),
        ("transport http {\nnetwork_proxy none\n}", http(json!({ "network_proxy": { "from": "none" } }))),
        (
            "transport http {\nforward_proxy_url http://p:1\n}",
            http(json!({ "network_proxy": { "from": "url", "url": "http://p:1" } })),
        ),
        ("transport http {\ntls\n}", http(json!({ "tls": {} }))),
        (
            "transport http {\ntls_client_auth c.pem k.pem\ntls_insecure_skip_verify\ntls_timeout 3s\ntls_server_name b\n\
             tls_renegotiation once\ntls_except_ports 80\ntls_curves x25519\ntls_trust_pool file ca.pem\n}",
            http(json!({ "tls": {
                "client_certificate_file": "c.pem",
                "client_certificate_key_file": "k.pem",
                "insecure_skip_verify": true,
                "handshake_timeout": nanoseconds,
                "server_name": "b",
                "renegotiation": "once",
                "except_ports": ["80"],
                "curves": ["x25519"],
                "ca": { "provider": "file", "pem_files": ["ca.pem"] },
            } })),
        ),
        (
            "transport http {\ntls_client_auth a.test\n}",
            http(json!({ "tls": { "client_certificate_automate": "a.test" } })),
        ),
        (
            "transport http {\ntls_trusted_ca_certs a.pem b.pem\n}",
            http(json!({ "tls": { "root_ca_pem_files": ["a.pem", "b.pem"] } })),
        ),
        (
            "transport fastcgi {\nroot /srv\nsplit .php\nenv A b\nresolve_root_symlink\nread_timeout 3s\nmax_response_header 64KiB\ncapture_stderr\n}",
            json!({ "transport": {
                "protocol": "fastcgi",
                "root": "/srv",
                "split_path": [".php"],
                "env": { "A": "b" },
                "resolve_root_symlink": true,
                "read_timeout": nanoseconds,
                "max_response_header_size": 65536,
                "capture_stderr": true,
            } }),
        ),
        (
            "transport httpgrpc {\nmax_message_size 16MiB\ntimeout 3s\nforward_host\nstream on\ntls_server_name b\n\
             keepalive_ping_interval 3s\nkeepalive_ping_timeout 3s\n}",
            json!({ "transport": {
                "protocol": "httpgrpc",
                "max_message_size": 16_777_216,
                "timeout": nanoseconds,
                "forward_host": true,
                "stream": true,
                "tls": { "server_name": "b" },
                "keep_alive": { "ping_interval": nanoseconds, "ping_timeout": nanoseconds },
            } }),
        ),
    ]);
}

// As in Caddy, a word that an option leaves over is an option of its own. There is a warning.
#[test]
fn options_on_one_line() {
    check(&[(
        "lb_retries 3 health_uri /x",
        json!({
            "load_balancing": { "retries": 3 },
            "health_checks": { "active": { "uri": "/x" } },
        }),
    )]);
    let adapted = read(":80 {\n\treverse_proxy a {\n\t\tlb_retries 3 verbose_logs\n\t}\n}\n").unwrap();
    let [warning] = adapted.warnings.as_slice() else { panic!("{:?}", adapted.warnings) };
    assert_eq!(warning.at.to_string(), "Caddyfile:3:16");
    assert_eq!(warning.message, "'verbose_logs' is read as an option of its own");
}

// forward_auth: a 2xx response lets the request continue, with fields that only the response can have set.
#[test]
fn forward_auth() {
    let want = json!([{ "match": [{ "path": ["/private/*"] }], "handle": [{
        "handler": "reverse_proxy",
        "upstreams": [{ "dial": "auth:9091" }],
        "rewrite": { "method": "GET", "uri": "/check" },
        "headers": { "request": { "set": {
            "X-Forwarded-Method": ["{http.request.method}"],
            "X-Forwarded-Uri": ["{http.request.uri}"],
            "X-Own": ["1"],
        } } },
        "handle_response": [{ "match": { "status_code": [2] }, "routes": [
            { "handle": [{ "handler": "vars" }] },
            { "handle": [{ "handler": "headers", "request": { "delete": ["X-Mail"] } }] },
            {
                "match": [{ "not": [{ "vars": { "{http.reverse_proxy.header.Mail}": [""] } }] }],
                "handle": [{ "handler": "headers", "request": { "set": { "X-Mail": ["{http.reverse_proxy.header.Mail}"] } } }],
            },
            { "handle": [{ "handler": "headers", "request": { "delete": ["Remote-User"] } }] },
            {
                "match": [{ "not": [{ "vars": { "{http.reverse_proxy.header.Remote-User}": [""] } }] }],
                "handle": [{
                    "handler": "headers",
                    "request": { "set": { "Remote-User": ["{http.reverse_proxy.header.Remote-User}"] } },
                }],
            },
        ] }],
    }] }]);
    for fields in ["copy_headers remote-user Mail>X-Mail", "copy_headers {\nMail>x-mail\nremote-user\n}"] {
        let body = format!("forward_auth /private/* auth:9091 {{\nuri /check\nheader_up X-Own 1\n{fields}\n}}");
        assert_eq!(routes(&body), want, "{fields}");
    }
}

// php_fastcgi: directories with an index file are redirected to their slash, existing files are found, and those ending
// in .php are run.
#[test]
fn php_fastcgi() {
    let redirect = json!({
        "match": [{ "file": { "try_files": ["{http.request.uri.path}/index.php"] }, "not": [{ "path": ["*/"] }] }],
        "handle": [{
            "handler": "static_response",
            "status_code": 308,
            "headers": { "Location": ["./{http.request.orig_uri.path.file_escaped}/{http.request.orig_uri.prefixed_query}"] },
        }],
    });
    let find = |file: Value| {
        json!({
            "match": [{ "file": file }],
            "handle": [{ "handler": "rewrite", "uri": "{http.matchers.file.relative}" }],
        })
    };
    let run = |transport: Value| {
        json!({
            "match": [{ "path": ["*.php"] }],
            "handle": [{ "handler": "reverse_proxy", "upstreams": [{ "dial": "unix//php.sock" }], "transport": transport }],
        })
    };
    let plain = json!({ "protocol": "fastcgi", "split_path": [".php"] });
    let files = ["{http.request.uri.path}", "{http.request.uri.path}/index.php", "index.php"];
    let usual = find(json!({ "try_files": files, "try_policy": "first_exist_fallback", "split_path": [".php"] }));
    assert_eq!(routes("php_fastcgi unix//php.sock"), json!([redirect, usual, run(plain.clone())]));
    assert_eq!(routes("php_fastcgi unix//php.sock {\nindex off\n}"), json!([run(plain.clone())]));
    assert_eq!(
        routes("php_fastcgi /app/* unix//php.sock {\nroot /srv\nenv A b\ntry_files {path} =404\n}"),
        json!([{ "match": [{ "path": ["/app/*"] }], "handle": [{ "handler": "subroute", "routes": [
            find(json!({ "try_files": ["{http.request.uri.path}", "=404"], "split_path": [".php"] })),
            run(json!({ "protocol": "fastcgi", "split_path": [".php"], "root": "/srv", "env": { "A": "b" } })),
        ] }] }])
    );
}

// httpgrpc is not Caddy's. It precedes all directives that look at the request, because it replaces the request.
#[test]
fn httpgrpc() {
    assert_eq!(
        handlers("respond hello\nredir * /x\nhttpgrpc {\nmax_message_size 4MiB\nstream off\n}\nvars a b"),
        json!([
            { "handler": "httpgrpc", "max_message_size": 4_194_304, "stream": false },
            { "handler": "vars", "a": "b" },
            { "handler": "static_response", "status_code": 302, "headers": { "Location": ["/x"] } },
            { "handler": "static_response", "body": "hello" },
        ])
    );
    assert_eq!(handlers("httpgrpc"), json!([{ "handler": "httpgrpc" }]));
}

// Errors: the text found, its position, and the text expected.
#[test]
fn mistakes() {
    let refused = |options: &str, want: &str| {
        let source = format!(":80 {{\n\treverse_proxy a:80 {{\n\t\t{options}\n\t}}\n}}\n");
        let error = read(&source).map(|adapted| adapted.json).expect_err(&source).to_string();
        let want = want.replacen(": ", ": parsing caddyfile tokens for 'reverse_proxy': ", 1);
        assert_eq!(error, format!("Caddyfile:{want}"), "{options}");
    };
    for (options, want) in [
        ("to", "3:3: wrong argument count or unexpected line ending after 'to'"),
        (
            "to ws://b",
            "3:6: parsing upstream 'ws://b': the scheme ws:// is only supported in browsers; use http:// instead",
        ),
        ("to ftp://b", "3:6: parsing upstream 'ftp://b': unsupported URL scheme ftp://"),
        (
            "to http://b/x",
            "3:6: parsing upstream 'http://b/x': for now, URLs for proxy upstreams only support scheme, host, and port components",
        ),
        (
            "to http://{host}",
            "3:6: parsing upstream 'http://{http.request.host}': due to parsing difficulties, placeholders are not allowed \
             when an upstream address contains a scheme",
        ),
        (
            "to http://b https://c",
            "3:15: parsing upstream 'https://c': for now, all proxy upstreams must use the same scheme (transport protocol); \
             expecting 'http://' but got 'https://'",
        ),
        ("to b:5-2", "3:6: parsing upstream 'b:5-2': end port must not be less than start port"),
        (
            "to b:70000",
            "3:6: parsing upstream 'b:70000': invalid start port: strconv.ParseUint: parsing \"70000\": value out of range",
        ),
        (
            "to http://b:x",
            "3:6: parsing upstream 'http://b:x': parsing upstream URL: parse \"http://b:x\": invalid port \":x\" after host",
        ),
        (
            "to direct://b:95",
            "3:6: parsing upstream 'direct://b:95': its scheme needs the transport httpgrpc; expected `transport httpgrpc`",
        ),
        (
            "to dns:///b\ntransport httpgrpc",
            "3:6: parsing upstream 'dns:///b': found no host with a port; expected dns:///host:port",
        ),
        (
            "to dns:///b:95\ntransport httpgrpc",
            "2:16: dns:/// upstreams cannot be combined with others; expected only dns:///",
        ),
        ("health_uri /x {\n}", "3:17: unexpected block after '/x'; expected the line to end there"),
        ("health_port 90 x", "3:18: unrecognized subdirective x; expected OPTIONS"),
        ("max_fails many", "3:13: invalid maximum fail count 'many'; expected an integer"),
        ("fail_duration 3", "3:17: bad duration value '3'; expected one such as 30s"),
        ("request_buffers big", "3:19: invalid byte size 'big'; expected one such as 16KiB or 1MB, or unlimited"),
        (
            "lb_policy fastest",
            "3:13: getting module named 'http.reverse_proxy.selection_policies.fastest': module not registered; expected \
             client_ip_hash, cookie, first, header, ip_hash, least_conn, query, random, random_choose, round_robin, uri_hash, \
             weighted_round_robin",
        ),
        (
            "dynamic b",
            "3:11: getting module named 'http.reverse_proxy.upstreams.b': module not registered; expected a, multi, srv",
        ),
        (
            "transport quic",
            "3:13: getting module named 'http.reverse_proxy.transport.quic': module not registered; expected fastcgi, http, \
             httpgrpc",
        ),
        ("circuit_breaker on {\n}", "3:19: wrong argument count or unexpected line ending after 'on'"),
        ("circuit_breaker {\nerror_ratio half\n}", "4:13: bad ratio 'half'; expected a number such as 0.5"),
        ("circuit_breaker {\nlatency fast\n}", "4:9: bad latency 'fast'; expected a duration such as 500ms"),
        ("circuit_breaker {\nlatency 1s p95\n}", "4:12: bad quantile 'p95'; expected a number such as 0.95"),
        (
            "circuit_breaker {\nerror_status all\n}",
            "4:14: bad status value 'all'; expected a number or a class such as 2xx",
        ),
        ("circuit_breaker {\nmin_requests 1.5\n}", "4:14: bad number of requests '1.5'; expected an integer"),
        ("circuit_breaker {\nwindow 10\n}", "4:8: bad duration value '10'; expected one such as 10s"),
        ("circuit_breaker {\nwindow 10s 5s\n}", "4:12: wrong argument count or unexpected line ending after '5s'"),
        ("circuit_breaker {\nwindow 10s\nwindow 5s\n}", "5:1: this option of circuit_breaker is already specified"),
        (
            "circuit_breaker {\ntype internal\n}",
            "4:1: unrecognized option 'type'; expected error_ratio, error_status, latency, min_requests, trip_duration, window",
        ),
        ("circuit_breaker {\n}\ncircuit_breaker {\n}", "5:1: circuit_breaker already specified"),
        ("lb_slow_start soon", "3:17: bad duration value 'soon'; expected one such as 30s"),
        ("replace_status @a 200", "3:18: no named response matcher defined with name 'a'"),
        ("@a status 200\n@a status 300", "4:1: matcher is defined more than once: @a; expected another name"),
        ("transport httpgrpc {\nstream maybe\n}", "4:8: invalid value 'maybe' of stream; expected on or off"),
        ("transport httpgrpc {\nmax_message_size 0\n}", "4:18: invalid message size '0'; expected more than 0"),
        (
            "header_up ?A b",
            "3:13: ?A: the default header modifier ('?') can only be used on response headers; for conditional manipulation \
             of request headers, use matchers",
        ),
    ] {
        refused(options, &want.replace("OPTIONS", OPTIONS));
    }
}

const OPTIONS: &str = "circuit_breaker, dynamic, fail_duration, flush_interval, handle_response, header_down, header_up, health_body, \
    health_fails, health_follow_redirects, health_headers, health_interval, health_method, health_passes, health_port, \
    health_request_body, health_status, health_timeout, health_upstream, health_uri, lb_policy, lb_retries, lb_retry_match, \
    lb_slow_start, lb_try_duration, lb_try_interval, max_fails, method, proxy_status_name, replace_status, request_buffers, \
    response_buffers, rewrite, stream_buffer_size, stream_close_delay, stream_timeout, to, transport, trusted_proxies, \
    unhealthy_latency, unhealthy_request_count, unhealthy_status, verbose_logs";
