use std::sync::Arc;
use std::time::Duration;

use causeway_pipeline::{NetworkProxyProtocol, UpstreamTransport};
use causeway_testkit::{Kit, Request};
use serde_json::{Value, json};

use super::{kit, proxy, registry, start_call};

fn network_proxy(url: &str) -> Value {
    json!({ "transport": { "protocol": "http", "network_proxy": { "from": "url", "url": url } } })
}

#[track_caller]
fn refused(options: Value) -> String {
    let routes = json!([{ "handle": [proxy(options)] }]);
    Kit::build(&registry(), &routes, &Value::Null).err().expect("it is refused").to_string()
}

// Caddy's options that this version does not support are rejected by name, never ignored; so are unknown options.
#[test]
fn unsupported_options_are_refused_with_their_path() {
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
        (json!({ "circuit_breaker": {} }), "circuit_breaker.type: found 'none', expected internal"),
        (json!({ "circuit_breaker": { "type": "simple", "x": 1 } }), "circuit_breaker.type: found 'simple', expected"),
        (
            json!({ "circuit_breaker": { "type": "internal" } }),
            "circuit_breaker: found 'neither', expected error_ratio, latency or both",
        ),
        (json!({ "circuit_breaker": { "type": "internal", "factor": "latency" } }), "unknown field `factor`"),
        (
            json!({ "circuit_breaker": { "type": "internal", "error_ratio": 1.5 } }),
            "circuit_breaker.error_ratio: found '1.5', expected a ratio from 0.0001 to 1",
        ),
        (
            json!({ "circuit_breaker": { "type": "internal", "error_ratio": 0 } }),
            "circuit_breaker.error_ratio: found '0', expected a ratio from 0.0001 to 1",
        ),
        (
            json!({ "circuit_breaker": { "type": "internal", "error_ratio": "half" } }),
            "circuit_breaker.error_ratio: found 'half', expected a ratio from",
        ),
        (
            json!({ "circuit_breaker": { "type": "internal", "error_ratio": 1, "error_status": [50] } }),
            "circuit_breaker.error_status: found '50', expected a status such as 503, or a class such as 5",
        ),
        (
            json!({ "circuit_breaker": { "type": "internal", "latency": {} } }),
            "circuit_breaker.latency.limit: found 'none', expected a duration such as 500ms",
        ),
        (
            json!({ "circuit_breaker": { "type": "internal", "latency": { "limit": 0 } } }),
            "circuit_breaker.latency.limit: found '0', expected a duration from 1ms to 1h",
        ),
        (
            json!({ "circuit_breaker": { "type": "internal", "latency": { "limit": "1s", "quantile": 1 } } }),
            "circuit_breaker.latency.quantile: found '1', expected a quantile from 0.0001 to 0.9999",
        ),
        (
            json!({ "circuit_breaker": { "type": "internal", "error_ratio": 1, "min_requests": 0 } }),
            "circuit_breaker.min_requests: found '0', expected a number from 1 to 1000000",
        ),
        (
            json!({ "circuit_breaker": { "type": "internal", "error_ratio": 1, "window": "10ms" } }),
            "circuit_breaker.window: found '10ms', expected a duration from 1s to 1h",
        ),
        (
            json!({ "circuit_breaker": { "type": "internal", "error_ratio": 1, "trip_duration": "2h" } }),
            "circuit_breaker.trip_duration: found '2h', expected a duration from 100ms to 1h",
        ),
        (json!({ "stream_timeout": "soon" }), "stream_timeout: found 'soon'"),
        (json!({ "load_balancing": { "try_duration": "soon" } }), "load_balancing.try_duration: found 'soon'"),
        (json!({ "load_balancing": { "retry_match": [{ "no": 1 }] } }), "retry_match[0]"),
        (
            json!({ "load_balancing": { "slow_start": "25h" } }),
            "load_balancing.slow_start: found '25h', expected a duration of at most 24h",
        ),
        (
            json!({ "load_balancing": { "slow_start": "-1s" } }),
            "load_balancing.slow_start: found '-1s', expected a duration",
        ),
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
        (json!({ "transport": { "protocol": "fastcgi", "tls": {} } }), "transport.tls: unknown field `tls`"),
        (json!({ "transport": { "protocol": "fastcgi", "read_timeout": "x" } }), "transport.read_timeout: found 'x'"),
        (
            json!({ "transport": { "protocol": "http", "expect_continue_timeout": "soon" } }),
            "transport.expect_continue_timeout: found 'soon', expected a duration",
        ),
        (
            json!({ "transport": { "protocol": "http", "network_proxy": { "from": "env" } } }),
            "transport.network_proxy: found 'env', expected none or url",
        ),
        (
            network_proxy("ftp://u:secret@proxy.test"),
            "found 'ftp://…@proxy.test', expected a URL such as http://proxy.internal:3128, https://",
        ),
        (network_proxy("{env.NO_SUCH_VARIABLE}"), "transport.network_proxy: found '', expected a URL such as http://"),
        (
            json!({
                "transport": { "protocol": "http", "network_proxy": { "from": "url", "url": "http://{http.request.host}" } },
                "health_checks": { "active": { "path": "/" } },
            }),
            "transport.network_proxy: found 'a URL with placeholders', expected one that is valid without",
        ),
        (network_proxy("proxy.test:3128"), "found 'proxy.test:3128', expected a URL such as http://"),
        (network_proxy("http://:80"), "found 'http://:80', expected a URL such as"),
        (network_proxy(""), "found '', expected a URL such as"),
        (network_proxy("socks5://%ff@proxy.test"), "expected a user name and a password"),
        (
            json!({ "transport": { "protocol": "http", "forward_proxy_url": "ftp://x" } }),
            "transport.forward_proxy_url: found 'ftp://x'",
        ),
        (json!({ "transport": { "protocol": "http", "versions": ["3"] } }), "transport.versions[0]: found '3'"),
        (
            json!({ "transport": { "protocol": "http", "keep_alive": { "probe_interval": "often" } } }),
            "keep_alive.probe_interval: found 'often', expected a duration",
        ),
        (
            json!({ "transport": { "protocol": "http", "local_address": "a.test" } }),
            "transport.local_address: found 'a.test', expected an IP address of this machine, with or without a port",
        ),
        (
            json!({ "transport": { "protocol": "http", "dial_timeout": "soon" } }),
            "dial_timeout: found 'soon', expected a duration",
        ),
        (json!({ "transport": { "protocol": "http", "nonsense": 1 } }), "transport.nonsense: unknown field `nonsense`"),
        (
            json!({ "transport": { "protocol": "http", "tls": { "curves": ["x25519", "p256"] } } }),
            "tls.curves[1]: found 'p256', expected one of x25519mlkem768, x25519, secp256r1, secp384r1",
        ),
        (
            json!({ "transport": { "protocol": "http", "tls": { "renegotiation": "freely" } } }),
            "tls.renegotiation: found 'freely'",
        ),
        (
            json!({ "transport": { "protocol": "httpgrpc", "tls": { "server_name": "{http.request.host}" } } }),
            "transport.tls: found 'one of them', expected neither `except_ports` nor placeholders in `server_name`",
        ),
        (
            json!({ "transport": { "protocol": "http", "tls": { "ca": { "provider": "vault" } } } }),
            "tls.ca: ca_pool.source module 'vault' is not supported",
        ),
        (
            json!({ "transport": { "protocol": "http", "tls": { "root_ca_pool": ["MAED"], "ca": {} } } }),
            "tls.ca: found 'both', expected either it or root_ca_pool and root_ca_pem_files",
        ),
        (
            json!({ "transport": { "protocol": "http", "tls": { "root_ca_pool": ["?"] } } }),
            "tls.root_ca_pool[0]: found ",
        ),
        (
            json!({ "transport": { "protocol": "http", "tls": { "root_ca_pem_files": ["/none"] } } }),
            "found '/none: No such file",
        ),
        (
            json!({ "transport": { "protocol": "http", "tls": { "client_certificate_file": "/none" } } }),
            "client_certificate_key_file, or neither",
        ),
        (
            json!({ "transport": { "protocol": "http", "tls": { "client_certificate_automate": "{http.request.host}" } } }),
            "tls.client_certificate_automate: found '{http.request.host}', expected a host name that IDNA (UTS #46) allows",
        ),
        (
            json!({ "transport": { "protocol": "http", "tls": { "client_certificate_automate": ["a.test"] } } }),
            "transport.tls.client_certificate_automate: found a list, expected a string",
        ),
        (json!({ "upstreams": [{ "dial": "a" }] }), "upstreams[0].dial: found 'a', expected HOST:PORT"),
        (
            json!({ "upstreams": [{ "dial": "unix/" }] }),
            "upstreams[0].dial: found 'unix/', expected unix/PATH with a path",
        ),
        (json!({ "upstreams": [{ "dial": "unix+h2c//run/a" }] }), "expected unix/PATH, and `h2c` in"),
        (json!({ "trusted_proxies": ["x"] }), "trusted_proxies.[0]: found 'x'"),
        (json!({ "handle_response": [{ "status_code": "x" }] }), "handle_response[0].status_code: found 'x'"),
        (json!({ "headers": { "request": { "set": { "a b": ["c"] } } } }), "headers.request: found 'a b'"),
        (json!({ "rewrite": { "nonsense": 1 } }), "rewrite.nonsense: unknown field `nonsense`"),
        (json!({ "nonsense": 1 }), "unknown field `nonsense`"),
    ] {
        let error = refused(options.clone());
        let error = error.replace(".[", "[");
        assert!(error.contains(&want.replace(".[", "[")), "{options}: {error}");
    }
}

// Caddy: without upstreams each request gets 503. Automation empties the list and fills it again.
#[test]
fn no_upstreams() {
    for policy in ["random", "round_robin", "least_conn", "first", "ip_hash", "random_choose", "cookie"] {
        let balancing = json!({ "selection_policy": { "policy": policy } });
        let mut kit = kit(json!({ "upstreams": [], "load_balancing": balancing }));
        assert_eq!(kit.send(&Request::get("/")).status, 503, "{policy}");
    }
}

// Caddy, http.reverse_proxy.transport.http: the effect of each option on a call.
#[test]
fn transports() {
    use causeway_pipeline::Versions;
    use causeway_pipeline::upstream::OwnCertificate;
    let carried = |transport: Value| {
        let mut kit = kit(json!({ "transport": transport, "flush_interval": -1 }));
        let (call, pending) = start_call(&mut kit, &Request::get("/"));
        pending.cancel(&mut kit);
        call.transport
    };
    let plain = carried(json!({ "protocol": "http" }));
    assert_eq!(
        (plain.versions, plain.connect_timeout, plain.head_timeout),
        (Versions::Negotiated, Duration::from_secs(3), None)
    );
    assert_eq!((plain.idle_timeout, plain.idle_max, plain.queue_timeout), (Duration::from_secs(120), 32, None));
    assert!(plain.connection_limits.is_none());
    assert!(plain.tls.is_none());
    let managed = |name: &str| {
        let tls = json!({ "client_certificate_automate": name });
        carried(json!({ "protocol": "http", "tls": tls })).tls.as_ref().unwrap().certificate.clone()
    };
    for (name, want) in [("", None), ("Bücher.Test", Some("xn--bcher-kva.test"))] {
        assert_eq!(managed(name), want.map(|name| OwnCertificate::Managed(name.to_owned())));
    }
    let all = carried(json!({
        "dial_timeout": 1_000_000_000, "response_header_timeout": "2s", "read_timeout": "3s", "write_timeout": "4s",
        "keep_alive": { "idle_timeout": "5s", "max_idle_conns_per_host": 7, "max_idle_conns": 6 },
        "max_conns_per_host": 8, "queue_timeout": "6s", "max_response_header_size": 9000, "versions": ["1.1"], "compression": false,
        "tls": { "server_name": "a.test", "insecure_skip_verify": true, "handshake_timeout": "1s", "root_ca_pool": ["MAED"] },
    }));
    assert_eq!((all.connect_timeout, all.head_timeout), (Duration::from_secs(2), Some(Duration::from_secs(2))));
    // `read_timeout` bounds the wait for the head too.
    let head_timeout = |written: Value| carried(written).head_timeout;
    let (second, seconds) = (Some(Duration::from_secs(1)), Some(Duration::from_secs(2)));
    assert_eq!(head_timeout(json!({ "read_timeout": "1s" })), second);
    assert_eq!(head_timeout(json!({ "read_timeout": "1s", "response_header_timeout": "2s" })), second);
    assert_eq!(head_timeout(json!({ "read_timeout": "3s", "response_header_timeout": "2s" })), seconds);
    assert_eq!((all.read_timeout, all.write_timeout), (Some(Duration::from_secs(3)), Some(Duration::from_secs(4))));
    assert_eq!((all.idle_timeout, all.idle_max), (Duration::from_secs(5), 6));
    assert_eq!(all.connection_limits.as_ref().map(|limits| limits.max()), Some(8));
    assert_eq!(all.queue_timeout, Some(Duration::from_secs(6)));
    assert_eq!((all.head_bytes_max, all.versions), (9000, Versions::Http1));
    let tls = all.tls.as_ref().expect("it has TLS");
    assert_eq!((tls.server_name.as_deref(), tls.insecure), (Some("a.test"), true));
    assert!(matches!(&tls.roots, causeway_pipeline::Roots::These(roots) if *roots == [[0x30, 1, 3]]));
    assert_eq!(carried(json!({ "keep_alive": { "enabled": false } })).idle_timeout, Duration::ZERO);
    for (url, protocol, address, credentials) in [
        ("http://proxy.test", NetworkProxyProtocol::Http, "proxy.test:80", None),
        ("https://proxy.test", NetworkProxyProtocol::Http, "proxy.test:443", None),
        ("https://a:b%3a@proxy.test:8443", NetworkProxyProtocol::Http, "proxy.test:8443", Some(("a", "b:"))),
        ("http://a:b%3a@[::1]:3128/", NetworkProxyProtocol::Http, "[::1]:3128", Some(("a", "b:"))),
        ("socks5://proxy.test", NetworkProxyProtocol::Socks5, "proxy.test:1080", None),
        ("socks5h://a@proxy.test:9", NetworkProxyProtocol::Socks5, "proxy.test:9", Some(("a", ""))),
    ] {
        let carried = carried(network_proxy(url)["transport"].clone());
        let found = carried.network_proxy.as_deref().expect("it has a network proxy");
        let credentials = credentials.map(|(user, password): (&str, &str)| (user.to_owned(), password.to_owned()));
        assert_eq!((found.protocol, &*found.address, &found.credentials), (protocol, address, &credentials), "{url}");
        assert_eq!(found.tls.is_some(), url.starts_with("https"), "{url}");
        assert!(!format!("{found:?}").contains("b:"), "{found:?}");
    }
    assert!(carried(json!({ "protocol": "http", "network_proxy": { "from": "none" } })).network_proxy.is_none());
    let former = carried(json!({ "protocol": "http", "forward_proxy_url": "http://proxy.test:3128" }));
    assert_eq!(former.network_proxy.as_ref().map(|proxy| &*proxy.address), Some("proxy.test:3128"));
    let fastcgi = carried(json!({
        "protocol": "fastcgi", "root": "/srv", "dial_timeout": "1s", "read_timeout": "2s", "write_timeout": "3s",
        "capture_stderr": true, "max_response_header_size": 9000,
    }));
    assert_eq!(fastcgi.head_bytes_max, 9000);
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

// Caddy: `local_address`, `dial_fallback_delay` and `keepalive_interval` (a negative one is off), `tls_curves`.
#[test]
fn options_of_connections() {
    let transport = |options: Value| {
        let mut options = options;
        options["protocol"] = "http".into();
        let mut kit = kit(json!({ "transport": options }));
        let (call, pending) = start_call(&mut kit, &Request::get("/"));
        pending.cancel(&mut kit);
        call.transport.clone()
    };
    let default = transport(json!({}));
    let [delay, interval] = [Duration::from_millis(300), Duration::from_secs(30)];
    assert_eq!(
        (default.fallback_delay, default.probe_interval, default.local_address),
        (Some(delay), Some(interval), None)
    );
    let off = transport(json!({ "dial_fallback_delay": -1, "keep_alive": { "probe_interval": "-1s" } }));
    assert_eq!((off.fallback_delay, off.probe_interval), (None, None));
    let set = transport(json!({ "dial_fallback_delay": "1s", "keep_alive": { "probe_interval": "5s" } }));
    assert_eq!((set.fallback_delay, set.probe_interval), (Some(Duration::from_secs(1)), Some(Duration::from_secs(5))));
    for (text, want) in [
        ("192.0.2.1", "192.0.2.1:0"),
        ("tcp/192.0.2.1:80", "192.0.2.1:80"),
        ("2001:db8::1", "[2001:db8::1]:0"),
        ("[2001:db8::1]:80", "[2001:db8::1]:80"),
    ] {
        let read = transport(json!({ "local_address": text }));
        assert_eq!(read.local_address, want.parse().ok(), "{text}");
    }
    // Not in Caddy: without PINGs by default, as there.
    let pings = transport(json!({ "keep_alive": { "ping_interval": "30s", "ping_timeout": "5s" } }));
    let both = |transport: &UpstreamTransport| (transport.ping_interval, transport.ping_timeout.as_secs());
    assert_eq!((both(&default), both(&pings)), ((None, 15), (Some(Duration::from_secs(30)), 5)));
    let tls = transport(json!({ "tls": { "curves": ["x25519"] } })).tls.clone().expect("TLS");
    assert_eq!(tls.groups, ["x25519"]);
}

// Caddy, `tls_except_ports`: upstreams at these ports are reached in cleartext.
#[test]
fn ports_without_tls() {
    let upstreams = json!([{ "dial": "a:80" }, { "dial": "a:443" }]);
    let transport = json!({ "protocol": "http", "tls": { "except_ports": ["80"] } });
    let policy = json!({ "selection_policy": { "policy": "round_robin" } });
    let mut kit = kit(json!({ "upstreams": upstreams, "transport": transport, "load_balancing": policy }));
    for (address, is_secure) in [("a:443", true), ("a:80", false)] {
        let (call, pending) = start_call(&mut kit, &Request::get("/"));
        assert_eq!((&*call.address, call.transport.tls.is_some()), (address, is_secure));
        pending.cancel(&mut kit);
    }
}

// Caddy, `tls_server_name` with placeholders: requests with different names share no connection, and an empty name is
// the address's own.
#[test]
fn a_server_name_for_each_request() {
    let tls = json!({ "server_name": "{http.request.header.X-SNI}" });
    let mut kit = kit(json!({ "transport": { "protocol": "http", "tls": tls } }));
    let of = |kit: &mut Kit, name: &str| {
        let (call, pending) = start_call(kit, &Request::get("/").field("X-SNI", name));
        pending.cancel(kit);
        call.transport.clone()
    };
    let [one, again, other, none] = ["a.test", "a.test", "b.test", ""].map(|name| of(&mut kit, name));
    assert!(Arc::ptr_eq(&one, &again) && !Arc::ptr_eq(&one, &other));
    let name = |transport: &Arc<UpstreamTransport>| transport.tls.as_ref().expect("TLS").server_name.clone();
    assert_eq!((name(&one).as_deref(), name(&other).as_deref(), name(&none)), (Some("a.test"), Some("b.test"), None));
    // A client chooses the names, so any number of them needs bounded memory.
    for number in 0..3000 {
        of(&mut kit, &format!("{number}.test"));
    }
}

// Caddy, `network_proxy url` with placeholders: those of the environment at load, those of a request with each one.
// Requests with different proxies share no connection. TLS to the proxy has the transport's settings, except for the
// name.
#[test]
fn a_network_proxy_for_each_request() {
    let transport = json!({
        "protocol": "http",
        "network_proxy": { "from": "url", "url": "{http.request.header.X-Scheme}://{http.request.header.X-Proxy}" },
        "tls": { "server_name": "up.test", "insecure_skip_verify": true },
    });
    let mut kit = kit(json!({ "transport": &transport }));
    let of = |kit: &mut Kit, scheme: &str, host: &str| {
        let request = Request::get("/").field("X-Scheme", scheme).field("X-Proxy", host);
        let (call, pending) = start_call(kit, &request);
        pending.cancel(kit);
        call.transport.clone()
    };
    let proxies = [("https", "a.test"), ("https", "a.test"), ("http", "b.test:3128"), ("socks5", "u:p@b.test")];
    let [one, again, other, socks] = proxies.map(|(scheme, host)| of(&mut kit, scheme, host));
    assert!(Arc::ptr_eq(&one, &again) && !Arc::ptr_eq(&one, &other));
    let proxy = |transport: &Arc<UpstreamTransport>| transport.network_proxy.clone().expect("a network proxy");
    let tls = proxy(&one).tls.clone().expect("TLS to the proxy");
    assert_eq!((&*proxy(&one).address, tls.server_name.as_deref(), tls.insecure), ("a.test:443", None, true));
    assert_eq!((&*proxy(&other).address, proxy(&other).tls.is_none()), ("b.test:3128", true));
    assert_eq!(proxy(&socks).credentials, Some(("u".to_owned(), "p".to_owned())));
    for (scheme, host) in [("", ""), ("http", ""), ("ftp", "u:secret@a.test")] {
        let answer = kit.send(&Request::get("/").field("X-Scheme", scheme).field("X-Proxy", host));
        assert_eq!(answer.status, 502, "{scheme} {host}");
    }
    // A Unix socket is reached directly, also if the URL of the request is not valid.
    let mut socket = super::kit(json!({ "transport": transport, "upstreams": [{ "dial": "unix//tmp/a.sock" }] }));
    assert!(of(&mut socket, "", "").network_proxy.is_none());
    // A client chooses them, so any number of them needs bounded memory.
    for number in 0..3000 {
        of(&mut kit, "http", &format!("{number}.test"));
    }
}

// CertMagic writes Ed25519 keys under this label, and Go reads any that ends in PRIVATE KEY. RFC 7468 §3: the end of a
// section takes a line.
#[test]
fn client_certificates_from_pem_files() {
    let directory = std::env::temp_dir().join(format!("causeway-proxy-pem-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let file = |name: &str, text: &str| {
        let path = directory.join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let certificate = "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----";
    // The example of RFC 8410 §10.3.
    let key = "-----BEGIN ED25519 PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEINTuctv5E1hK1bbY8fdp+K06/nwoy/HU++CXqI9EdVhC\n\
               -----END ED25519 PRIVATE KEY-----\n";
    let (chain, key_file) = (file("a.pem", certificate), file("ed.key", key));
    let joined = file("joined.pem", &format!("{certificate}{key}"));
    let options = |certificate: &str, key: &str| json!({ "transport": { "protocol": "http", "tls": { "client_certificate_file": certificate, "client_certificate_key_file": key } } });
    let routes = json!([{ "handle": [proxy(options(&chain, &key_file))] }]);
    assert_eq!(Kit::build(&registry(), &routes, &Value::Null).err().map(|error| error.to_string()), None);
    let text = format!("found '{joined}:3: text after `-----END CERTIFICATE-----`', expected it on a line of its own");
    for (certificate, key, at) in
        [(&joined, &key_file, "client_certificate_file: "), (&chain, &joined, "client_certificate_key_file: ")]
    {
        let error = refused(options(certificate, key));
        assert!(error.ends_with(&format!("{at}{text}")), "{error}");
    }
    std::fs::remove_dir_all(&directory).unwrap();
}
