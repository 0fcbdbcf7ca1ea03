use serde_json::{Value, json};

use super::{proxy, registry};
use causeway_testkit::Kit;

#[track_caller]
fn refused(options: Value) -> String {
    let routes = json!([{ "handle": [proxy(options)] }]);
    Kit::build(&registry(), &routes, &Value::Null).err().expect("it is refused").to_string()
}

// Caddy's options that this version does not support are rejected by name, never ignored; so are unknown options.
#[test]
fn what_is_not_built_is_refused_with_its_place() {
    for (options, want) in [
        (json!({ "request_buffers": -2 }), "request_buffers: found '-2', expected a number of bytes, or -1"),
        (
            json!({ "response_buffers": 1, "transport": { "protocol": "httpgrpc" } }),
            "response_buffers: found '1', expected nothing: the transport httpgrpc has no buffers",
        ),
        (json!({ "response_buffers": -2 }), "response_buffers: found '-2'"),
        (json!({ "dynamic_upstreams": { "source": "dns" } }), "dynamic_upstreams.source: found 'dns', expected a, srv"),
        (json!({ "dynamic_upstreams": { "source": "a" } }), "dynamic_upstreams.name: found 'none', expected a name"),
        (
            json!({ "dynamic_upstreams": { "source": "a", "name": "a", "port": "http" } }),
            "dynamic_upstreams.port: found 'http', expected a port from 1 to 65535",
        ),
        (
            json!({ "dynamic_upstreams": { "source": "a", "name": "a", "grace_period": "1s" } }),
            "unknown field `grace_period`",
        ),
        (
            json!({ "dynamic_upstreams": { "source": "srv", "name": "a", "service": "http" } }),
            "dynamic_upstreams.proto: found 'none', expected both of service and proto",
        ),
        (
            json!({ "dynamic_upstreams": { "source": "srv", "name": "a", "dial_network": "udp" } }),
            "dynamic_upstreams.dial_network: found 'udp', expected tcp",
        ),
        (
            json!({ "dynamic_upstreams": { "source": "multi", "sources": [
                { "source": "a", "name": "a", "resolver": { "addresses": ["a b"] } },
            ] } }),
            "dynamic_upstreams.sources[0].resolver.addresses[0]: found 'a b', expected a DNS server such as",
        ),
        (json!({ "transport": { "protocol": "http", "resolver": {} } }), "transport.resolver: found 'no addresses'"),
        (
            json!({ "transport": { "protocol": "http", "proxy_protocol": "v3" } }),
            "transport.proxy_protocol: found 'v3', expected v1 or v2",
        ),
        (json!({ "circuit_breaker": {} }), "circuit_breaker"),
        (json!({ "stream_timeout": "soon" }), "stream_timeout: found 'soon'"),
        (json!({ "stream_close_delay": 1 }), "stream_close_delay"),
        (json!({ "proxy_status_name": "a" }), "proxy_status_name"),
        (json!({ "load_balancing": { "try_duration": "soon" } }), "load_balancing.try_duration: found 'soon'"),
        (json!({ "load_balancing": { "retry_match": [{ "no": 1 }] } }), "retry_match[0]"),
        (json!({ "health_checks": { "passive": { "max_fails": -1 } } }), "passive.max_fails: found '-1'"),
        (json!({ "health_checks": { "passive": { "fails": 1 } } }), "unknown field `fails`"),
        (json!({ "health_checks": { "active": { "uri": "/", "method": "A B" } } }), "active.method: found 'A B'"),
        (json!({ "health_checks": { "active": { "port": 70000 } } }), "active.port: found '70000'"),
        (json!({ "health_checks": { "active": { "uri": "/", "expect_body": "(" } } }), "active.expect_body: found '('"),
        (json!({ "health_checks": { "active": { "uri": "/", "upstream": "a" } } }), "active.upstream: found 'a'"),
        (
            json!({ "health_checks": { "active": { "uri": "/", "headers": { "X-A": ["{http.request.host}"] } } } }),
            "active.headers: found '{http.request.host}', expected no placeholder of a request",
        ),
        (
            json!({ "load_balancing": { "selection_policy": { "policy": "best" } } }),
            "selection_policy.policy: found 'best', expected random,",
        ),
        (
            json!({ "load_balancing": { "selection_policy": { "policy": "first", "choose": 2 } } }),
            "found 'choose', expected nothing",
        ),
        (
            json!({ "load_balancing": { "selection_policy": { "policy": "random_choose", "choose": 1 } } }),
            "choose: found '1', expected 2 or more",
        ),
        (
            json!({ "load_balancing": { "selection_policy": { "policy": "weighted_round_robin" } } }),
            "weights: found 'no weight above 0'",
        ),
        (
            json!({ "load_balancing": { "selection_policy": { "policy": "header", "field": "a b" } } }),
            "field: found 'a b'",
        ),
        (json!({ "load_balancing": { "selection_policy": { "policy": "query" } } }), "key: found ''"),
        (
            json!({ "load_balancing": { "selection_policy": { "policy": "cookie", "name": "a b" } } }),
            "name: found 'a b'",
        ),
        (
            json!({ "load_balancing": { "selection_policy": { "policy": "header", "field": "A", "fallback": { "policy": "x" } } } }),
            "fallback.policy",
        ),
        (json!({ "transport": { "protocol": "ajp" } }), "transport.protocol: found 'ajp', expected http, fastcgi or"),
        (
            json!({ "transport": { "protocol": "fastcgi", "split_path": [".php", ".\u{23a}hp"] } }),
            "transport.split_path.[1]: found '.\u{23a}hp', expected ASCII characters",
        ),
        (json!({ "transport": { "protocol": "fastcgi", "tls": {} } }), "transport: unknown field `tls`"),
        (json!({ "transport": { "protocol": "fastcgi", "read_timeout": "x" } }), "transport.read_timeout: found 'x'"),
        (
            json!({ "transport": { "protocol": "http", "expect_continue_timeout": 1 } }),
            "transport.expect_continue_timeout",
        ),
        (json!({ "transport": { "protocol": "http", "versions": ["3"] } }), "transport.versions[0]: found '3'"),
        (
            json!({ "transport": { "protocol": "http", "keep_alive": { "probe_interval": 1 } } }),
            "keep_alive.probe_interval",
        ),
        (
            json!({ "transport": { "protocol": "http", "dial_timeout": "soon" } }),
            "dial_timeout: found 'soon', expected a duration",
        ),
        (json!({ "transport": { "protocol": "http", "nonsense": 1 } }), "transport: unknown field `nonsense`"),
        (json!({ "transport": { "protocol": "http", "tls": { "curves": [] } } }), "tls.curves"),
        (
            json!({ "transport": { "protocol": "http", "tls": { "renegotiation": "freely" } } }),
            "tls.renegotiation: found 'freely'",
        ),
        (
            json!({ "transport": { "protocol": "http", "tls": { "server_name": "{x}" } } }),
            "tls.server_name: found '{x}'",
        ),
        (
            json!({ "transport": { "protocol": "http", "tls": { "ca": { "provider": "http" } } } }),
            "tls.ca.provider: found 'http', expected inline or file",
        ),
        (
            json!({ "transport": { "protocol": "http", "tls": { "root_ca_pool": ["?"] } } }),
            "tls.root_ca_pool.[0]: found ",
        ),
        (
            json!({ "transport": { "protocol": "http", "tls": { "root_ca_pem_files": ["/none"] } } }),
            "found '/none: No such file",
        ),
        (
            json!({ "transport": { "protocol": "http", "tls": { "client_certificate_file": "/none" } } }),
            "client_certificate_key_file, or neither",
        ),
        (json!({ "upstreams": [] }), "upstreams: found 'none', expected at least one upstream"),
        (json!({ "upstreams": [{ "dial": "a" }] }), "upstreams[0].dial: found 'a', expected HOST:PORT"),
        (
            json!({ "upstreams": [{ "dial": "unix/" }] }),
            "upstreams[0].dial: found 'unix/', expected unix/PATH with a path",
        ),
        (json!({ "upstreams": [{ "dial": "unix+h2c//run/a" }] }), "expected unix/PATH, and `h2c` in"),
        (json!({ "trusted_proxies": ["x"] }), "trusted_proxies.[0]: found 'x'"),
        (json!({ "handle_response": [{ "status_code": "x" }] }), "handle_response[0].status_code: found 'x'"),
        (json!({ "headers": { "request": { "set": { "a b": ["c"] } } } }), "headers.request: found 'a b'"),
        (json!({ "rewrite": { "nonsense": 1 } }), "rewrite: unknown field `nonsense`"),
        (json!({ "nonsense": 1 }), "unknown field `nonsense`"),
    ] {
        let error = refused(options.clone());
        let error = error.replace(".[", "[");
        assert!(error.contains(&want.replace(".[", "[")), "{options}: {error}");
    }
}

// Caddy, http.reverse_proxy.transport.http: the effect of each option on a call.
#[test]
fn transports() {
    use causeway_pipeline::Versions;
    use causeway_testkit::Request;
    use std::time::Duration;
    let carried = |transport: Value| {
        let mut kit = super::kit(json!({ "transport": transport, "flush_interval": -1 }));
        let (call, pending) = super::ask(&mut kit, &Request::get("/"));
        pending.cancel(&mut kit);
        call.transport
    };
    let plain = carried(json!({ "protocol": "http" }));
    assert_eq!(
        (plain.versions, plain.connect_timeout, plain.head_timeout),
        (Versions::Negotiated, Duration::from_secs(3), None)
    );
    assert_eq!((plain.idle_timeout, plain.idle_max, plain.connections_max), (Duration::from_secs(120), 32, None));
    assert!(plain.tls.is_none());
    let all = carried(json!({
        "dial_timeout": 1_000_000_000, "response_header_timeout": "2s", "read_timeout": "3s", "write_timeout": "4s",
        "keep_alive": { "idle_timeout": "5s", "max_idle_conns_per_host": 7, "max_idle_conns": 6 },
        "max_conns_per_host": 8, "max_response_header_size": 9000, "versions": ["1.1"], "compression": false,
        "tls": { "server_name": "a.test", "insecure_skip_verify": true, "handshake_timeout": "1s", "root_ca_pool": ["AQID"] },
    }));
    assert_eq!((all.connect_timeout, all.head_timeout), (Duration::from_secs(2), Some(Duration::from_secs(2))));
    assert_eq!((all.read_timeout, all.write_timeout), (Some(Duration::from_secs(3)), Some(Duration::from_secs(4))));
    assert_eq!((all.idle_timeout, all.idle_max, all.connections_max), (Duration::from_secs(5), 6, Some(8)));
    assert_eq!((all.head_bytes_max, all.versions), (9000, Versions::Http1));
    let tls = all.tls.as_ref().expect("it has TLS");
    assert_eq!((tls.server_name.as_deref(), tls.insecure), (Some("a.test"), true));
    assert!(matches!(&tls.roots, causeway_pipeline::Roots::These(roots) if *roots == [[1, 2, 3]]));
    assert_eq!(carried(json!({ "keep_alive": { "enabled": false } })).idle_timeout, Duration::ZERO);
    let fastcgi = carried(json!({
        "protocol": "fastcgi", "root": "/srv", "dial_timeout": "1s", "read_timeout": "2s", "write_timeout": "3s",
        "capture_stderr": true,
    }));
    assert_eq!(fastcgi.fastcgi, Some(causeway_pipeline::FastCgi { captures_stderr: true }));
    assert_eq!((fastcgi.connect_timeout, fastcgi.idle_timeout), (Duration::from_secs(1), Duration::ZERO));
    assert_eq!(
        (fastcgi.head_timeout, fastcgi.read_timeout),
        (Some(Duration::from_secs(2)), Some(Duration::from_secs(2)))
    );
    assert_eq!(fastcgi.write_timeout, Some(Duration::from_secs(3)));
    for (versions, in_clear, over_tls) in [
        (json!(["h2c"]), Versions::Http2, Versions::Negotiated),
        (json!(["h2c", "2"]), Versions::Http2, Versions::Negotiated),
        (json!(["2"]), Versions::Negotiated, Versions::Negotiated),
        (json!(["1.1"]), Versions::Http1, Versions::Http1),
    ] {
        assert_eq!(carried(json!({ "versions": versions })).versions, in_clear, "{versions}");
        assert_eq!(carried(json!({ "versions": versions, "tls": {} })).versions, over_tls, "{versions}");
    }
}
