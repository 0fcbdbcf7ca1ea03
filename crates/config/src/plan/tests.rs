use causeway_pipeline::HeadLimits;
use serde_json::json;

use super::*;

fn outcome(config: &Value) -> String {
    let mut registry = Registry::default();
    // The handler of access records.
    registry.register_handler("access_log", causeway_modules::access_log::make);
    match load(config, &registry) {
        Ok(loaded) => {
            let listeners: Vec<_> = loaded.listeners.iter().map(|listener| listener.socket.to_string()).collect();
            listeners.join(" ")
        }
        Err(error) => error.to_string(),
    }
}

#[track_caller]
fn check(why: &str, server: Value, want: &str) {
    assert_eq!(outcome(&json!({ "apps": { "http": { "servers": { "s": server } } } })), want, "{why}");
}

#[test]
fn listen_addresses() {
    check("a port on every address", json!({ "listen": [":8080"] }), ":8080");
    check("a range", json!({ "listen": ["127.0.0.1:8080-8082"] }), "127.0.0.1:8080 127.0.0.1:8081 127.0.0.1:8082");
    check("IPv6 and a network", json!({ "listen": ["tcp/[::1]:80"] }), "[::1]:80");
    check("a name", json!({ "listen": ["localhost:80"] }), "127.0.0.1:80");
    let expected = "expected [tcp/]host:port or [tcp/]host:first-last";
    // Caddy's `ParseNetworkAddress` reads ports with `strconv.ParseUint`, which permits no sign.
    for bad in ["8080", ":", ":x", ":70000", ":9-8", ":+80", ":80-+81", "127.0.0.1"] {
        check(
            "no address",
            json!({ "listen": [bad] }),
            &format!("apps.http.servers.s.listen[0]: found '{bad}', {expected}"),
        );
    }
    let want = "apps.http.servers.s.listen[0]: found 'udp/:80', expected tcp, unix or fd: other networks are not supported (docs/refused.md)";
    check("not supported", json!({ "listen": ["udp/:80"] }), want);
    check("an inherited socket", json!({ "listen": ["fd/3", ":80"] }), "fd/3 :80");
    check("datagrams", json!({ "listen": ["fd/3", "fdgram/4"] }), "fd/3");
    // Caddy's `SplitNetworkAddress`: the network is in any case of letters, with blanks around it.
    check(
        "networks",
        json!({ "listen": ["TCP/:1", "tcp /:2", " Tcp4 /:3-4", "FD/5", "FdGram/6"] }),
        ":1 :2 :3 :4 fd/5",
    );
    let server = json!({ "listen": ["FDGRAM /4", ":1"], "listen_protocols": [["h3"], ["h1"]] });
    check("protocols of a datagram socket", server, ":1");
    for bad in ["fd/", "fd/x", "fd/-1", "fd/+3", "fd/70000", "fdgram/x", "fd/3:80"] {
        let expected = "fd/N or fdgram/N, where N is the number of an inherited socket, such as fd/3";
        let want = format!("apps.http.servers.s.listen[0]: found '{bad}', expected {expected}");
        check("no number", json!({ "listen": [bad] }), &want);
    }
}

// As in Caddy, whose validation finds it too; the system chooses another port for each 0.
#[test]
fn an_address_of_two_servers() {
    let servers = |a: &str, b: &str| {
        outcome(&json!({ "apps": { "http": { "servers": { "a": { "listen": [a] }, "b": { "listen": [":1", b] } } } } }))
    };
    assert_eq!(servers("127.0.0.1:0", "127.0.0.1:0"), "127.0.0.1:0 :1 127.0.0.1:0");
    for (a, b, found, owner) in [
        (":80", ":80", ":80", "a"),
        (":70-80", "tcp/:80-90", ":80", "a"),
        ("unix//run/a|0200", "unix//run/a|0222", "unix//run/a", "a"),
        ("fd/3", "fd/3", "fd/3", "a"),
        (":80", ":1", ":1", "b"),
    ] {
        let expected = format!("expected addresses that are not taken; the server '{owner}' has {found}");
        assert_eq!(servers(a, b), format!("apps.http.servers.b.listen[1]: found '{b}', {expected}"));
    }
    // One server may have an address in several spellings.
    check(
        "two spellings",
        json!({ "listen": ["localhost:80", "127.0.0.1:80", "tcp4/:81", "tcp6/:81"] }),
        "127.0.0.1:80 :81",
    );
    // RFC 4007 §11: the zone of a link-local address, by the name or the index of its interface.
    check("zones", json!({ "listen": ["[fe80::1%lo]:80", "[fe80::1%1]:80-81"] }), "[fe80::1%1]:80 [fe80::1%1]:81");
}

// Caddy's documentation of network addresses: `unix/` before a path, with permission bits after a `|`; the default
// is 0200. The bits must let the owner write. A name in the abstract namespace begins with `@`.
#[test]
fn unix_sockets() {
    let outcome = |text: &str| {
        let server = json!({ "listen": [text] });
        match load(&json!({ "apps": { "http": { "servers": { "s": server } } } }), &Registry::default()) {
            Ok(loaded) => match &loaded.listeners[0].socket {
                causeway_pipeline::ListeningSocket::Unix(address) => format!("{address} {:o}", address.mode),
                other => panic!("{other}"),
            },
            Err(error) => {
                let text = error.to_string();
                text.split_once(", expected ").map_or(text.clone(), |(_, expected)| expected.to_owned())
            }
        }
    };
    let long = |bytes: usize| format!("unix//{}", "x".repeat(bytes - 1));
    for (text, want) in [
        ("unix//run/x", "unix//run/x 200"),
        ("UNIX//run/x|0222", "unix//run/x 222"),
        ("unix/run/x:1|660", "unix/run/x:1 660"),
        ("unix/@x", "unix/@x 200"),
        (&long(107), &format!("{} 200", long(107))),
        (&long(108), "a path of at most 107 bytes, which is the limit for Unix sockets"),
        ("unix/", "unix/PATH, such as unix//run/site.sock, or unix/@NAME"),
        ("unix/@", "unix/PATH, such as unix//run/site.sock, or unix/@NAME"),
        ("unix//run/x|", "octal permission bits after the |, such as 0660, at most 0777"),
        ("unix//run/x|+660", "octal permission bits after the |, such as 0660, at most 0777"),
        ("unix//run/x|0888", "octal permission bits after the |, such as 0660, at most 0777"),
        ("unix//run/x|02660", "octal permission bits after the |, such as 0660, at most 0777"),
        ("unix//run/x|u=w", "octal permission bits after the |, such as 0660, at most 0777"),
        ("unix//run/x|0422", "permission bits that let the owner write, such as 0622"),
        ("unixgram//run/x", "unix/PATH: HTTP needs a Unix socket of streams"),
        ("unixpacket//run/x", "unix/PATH: HTTP needs a Unix socket of streams"),
    ] {
        assert_eq!(outcome(text), want, "{text}");
    }
}

// Caddy's documentation of `listen_protocols`: one list for each address; null and an empty name stand for the
// protocols of the server.
#[test]
fn protocols_of_each_address() {
    let protocols = |lists: Value| {
        let server = json!({ "listen": [":1", ":2"], "protocols": ["h1", "h2c"], "listen_protocols": lists });
        let loaded = load(&json!({ "apps": { "http": { "servers": { "s": server } } } }), &Registry::default());
        let name = |protocols: Protocols| {
            let Protocols { http1, http2, http2_clear, .. } = protocols;
            [(http1, "h1"), (http2, "h2"), (http2_clear, "h2c")]
                .map(|(has, name)| if has { name } else { "-" })
                .join(" ")
        };
        match loaded {
            Ok(loaded) => Vec::from_iter(loaded.listeners.iter().map(|listener| name(listener.protocols))).join(", "),
            Err(error) => error.to_string(),
        }
    };
    let place = "apps.http.servers.s.listen_protocols";
    for (lists, want) in [
        (Value::Null, "h1 - h2c, h1 - h2c".to_owned()),
        (json!([null, ["h1"]]), "h1 - h2c, h1 - -".to_owned()),
        (json!([["h1", "h2"], ["h2", ""]]), "h1 h2 -, h1 h2 h2c".to_owned()),
        (json!([[], [""]]), "h1 - h2c, h1 - h2c".to_owned()),
        (json!([["h1"]]), format!("{place}: found '1 lists', expected one for each address of listen, which has 2")),
        (json!([null, ["h1", "spdy"]]), format!("{place}[1][1]: found 'spdy', expected h1, h2, h2c or h3")),
        (
            json!([["h3"], null]),
            format!("{place}[0]: found 'h3', expected h1, h2 or h2c too: HTTP/3 is not supported (docs/refused.md)"),
        ),
    ] {
        assert_eq!(protocols(lists.clone()), want, "{lists}");
    }
}

#[test]
fn unknown_members_are_reported_with_their_path() {
    let got = outcome(&json!({ "apps": { "http": { "servers": { "s": { "lissten": [] } } } } }));
    assert!(got.starts_with("apps.http.servers.s.lissten: unknown field `lissten`"), "{got}");
    // An app and a module of a plugin are refused with an alternative.
    for (app, end) in [
        ("events", "`pki` (docs/refused.md)"),
        (
            "layer4",
            " (docs/refused.md) (of the plugin layer4, which is not supported; here: no equivalent: this server carries HTTP only)",
        ),
    ] {
        let got = outcome(&json!({ "apps": { app: {} } }));
        assert!(got.ends_with(end), "{got}");
    }
    let routes = json!([{ "handle": [{ "handler": "webdav" }] }]);
    let got = outcome(&json!({ "apps": { "http": { "servers": { "s": { "listen": [":80"], "routes": routes } } } } }));
    assert!(
        got.ends_with("(of the plugin WebDAV, which is not supported; here: reverse_proxy to a WebDAV server)"),
        "{got}"
    );
    let route = json!([{ "handle": [{ "handler": "teapot" }] }]);
    let want = "apps.http.servers.s.routes[0].handle[0]: handler module 'teapot' is not supported (docs/refused.md)";
    check("an unknown handler", json!({ "listen": [":80"], "routes": route }), want);
    let route = json!([{ "match": [{ "moon": [] }] }]);
    let want = "apps.http.servers.s.routes[0].match[0].moon: matcher module 'moon' is not supported (docs/refused.md)";
    check("an unknown matcher", json!({ "listen": [":80"], "routes": route }), want);
    let got = outcome(&json!({ "admin": { "lissten": ":1" } }));
    assert!(got.starts_with("admin.lissten: unknown field `lissten`"), "{got}");
    assert_eq!(outcome(&Value::Null), "");
}

/// A limit that is not set keeps its default; an unknown limit is an error.
#[test]
fn limits() {
    let config = |server: Value| json!({ "apps": { "http": { "servers": { "s": server } } } });
    let server = json!({ "listen": [":80"], "max_header_bytes": 4096, "limits": { "fields_max": 7 } });
    let loaded = load(&config(server), &Registry::default()).unwrap_or_else(|error| panic!("{error}"));
    let want = HeadLimits { head_bytes_max: 4096, fields_max: 7, ..HeadLimits::default() };
    assert_eq!(loaded.listeners[0].head, want);
    let got = outcome(&config(json!({ "limits": { "moons": 1 } })));
    assert!(got.starts_with("apps.http.servers.s.limits.moons: unknown field `moons`"), "{got}");
}

/// The plugins caddy-cloudflare-ip and caddy-combine-ip-ranges: servers share equal fetches.
#[test]
fn networks_that_are_fetched() {
    let hourly = json!({ "source": "cloudflare" });
    let often = json!({ "source": "cloudflare", "interval": "1m", "timeout": 15_000_000_000_u64 });
    let config = json!({ "apps": { "http": { "servers": {
        "a": { "trusted_proxies": hourly },
        "b": { "trusted_proxies": { "source": "combine", "parts": [hourly, often, { "source": "static" }, often] } },
    } } } });
    let registry = Registry::default();
    let fetches = load(&config, &registry).unwrap_or_else(|error| panic!("{error}")).range_fetches;
    let [first, second] = &fetches[..] else { panic!("{fetches:?}") };
    let seconds = Duration::from_secs;
    assert_eq!((first.interval, first.timeout), (seconds(3600), None));
    assert_eq!((second.interval, second.timeout), (seconds(60), Some(seconds(15))));
    assert_eq!(first.ranges.urls(), ["https://www.cloudflare.com/ips-v4", "https://www.cloudflare.com/ips-v6"]);
    // A later plan has the list as well, as long as this one has it.
    let later = load(&config, &registry).unwrap_or_else(|error| panic!("{error}")).range_fetches;
    assert_eq!(later, fetches);
    let elsewhere = load(&config, &Registry::default()).unwrap_or_else(|error| panic!("{error}")).range_fetches;
    assert_ne!(elsewhere, fetches);
}

/// Caddy's fields of a server: implemented ones are read, all others rejected by name.
#[test]
fn fields_of_a_server() {
    let place = "apps.http.servers.s";
    for (server, want) in [
        (json!({ "protocols": ["h1", "h2", "h3"], "strict_sni_host": true, "allow_0rtt": false }), String::new()),
        (json!({ "enable_full_duplex": true, "logs": {}, "trusted_proxies_unix": false }), String::new()),
        (
            json!({ "trusted_proxies": { "source": "static", "ranges": ["10.0.0.0/8", "::1"] }, "trusted_proxies_strict": 1,
                    "client_ip_headers": ["X-Real-Ip"] }),
            String::new(),
        ),
        (
            json!({ "trusted_proxies": { "source": "static", "ranges": ["10.0.0.0/33"] } }),
            format!(
                "{place}.trusted_proxies.ranges[0]: found '10.0.0.0/33', expected an IP address, or a network such as \
                 10.0.0.0/8"
            ),
        ),
        (
            json!({ "trusted_proxies": { "source": "static" }, "client_ip_headers": ["X Y"] }),
            format!("{place}.client_ip_headers: found 'X Y', expected a field name"),
        ),
        (
            json!({ "trusted_proxies": { "source": "cloud" } }),
            format!(
                "{place}.trusted_proxies.source: found 'cloud', expected static, cloudflare or combine: no other source is \
                 supported (docs/refused.md)"
            ),
        ),
        (
            json!({ "trusted_proxies": [] }),
            format!(
                "{place}.trusted_proxies.source: found '', expected static, cloudflare or combine: no other source is \
                 supported (docs/refused.md)"
            ),
        ),
        (
            json!({ "trusted_proxies": { "source": "combine", "parts": [
                { "source": "cloudflare" }, { "source": "combine", "parts": [{ "source": "static", "ranges": ["x"] }] },
            ] } }),
            format!(
                "{place}.trusted_proxies.parts[1].parts[0].ranges[0]: found 'x', expected an IP address, or a network such as \
                 10.0.0.0/8"
            ),
        ),
        (
            json!({ "trusted_proxies": { "source": "cloudflare", "timeout": "soon" } }),
            format!("{place}.trusted_proxies.timeout: found 'soon', expected a duration such as 90s, 1m30s or 250ms"),
        ),
        (
            json!({ "trusted_proxies": { "source": "cloudflare", "urls": [] } }),
            format!("{place}.trusted_proxies.urls: found '[]', expected at least one URL"),
        ),
        (
            json!({ "trusted_proxies": { "source": "cloudflare", "urls": ["http://a.test/"] } }),
            format!(
                "{place}.trusted_proxies.urls[0]: found 'http://a.test/', expected a URL with the scheme https, such as \
                 https://mirror.example/ips"
            ),
        ),
        (
            json!({ "protocols": ["h1", "spdy"] }),
            format!("{place}.protocols[1]: found 'spdy', expected h1, h2, h2c or h3"),
        ),
        (
            json!({ "http2": { "streams_max": 4096, "stream_window_bytes": 1, "header_table_bytes": 65535 } }),
            String::new(),
        ),
        (
            json!({ "http2": { "encoder_table_bytes": 65536 } }),
            format!("{place}.http2.encoder_table_bytes: found '65536', expected a number from 0 to 65535"),
        ),
        (
            json!({ "http2": { "stream_window_bytes": 0 } }),
            format!("{place}.http2.stream_window_bytes: found '0', expected a number from 1 to 2147483647"),
        ),
        (
            json!({ "http2": { "streams_max": 0 } }),
            format!("{place}.http2.streams_max: found '0', expected a number from 1 to 4096"),
        ),
        (json!({ "max_header_bytes": 0 }), String::new()),
        (json!({ "max_header_bytes": 67_108_864, "limits": { "chunk_extension_bytes_max": 65534 } }), String::new()),
        (
            json!({ "max_header_bytes": 67_108_865 }),
            format!("{place}.max_header_bytes: found '67108865', expected a number from 1 to 67108864"),
        ),
        (
            json!({ "limits": { "head_bytes_max": 0 } }),
            format!("{place}.limits.head_bytes_max: found '0', expected a number from 1 to 67108864"),
        ),
        (
            json!({ "max_header_bytes": 9000, "limits": { "fields_max": 65535 } }),
            format!("{place}.limits.fields_max: found '65535', expected a number from 1 to 60000"),
        ),
        (
            json!({ "limits": { "chunk_extension_bytes_max": 65535 } }),
            format!("{place}.limits.chunk_extension_bytes_max: found '65535', expected a number from 0 to 65534"),
        ),
        (
            json!({ "http2": { "connection_window_bytes": 1 } }),
            format!("{place}.http2.connection_window_bytes: found '1', expected a number from 65535 to 2147483647"),
        ),
        (
            json!({ "listener_wrappers": [{ "wrapper": "tls" }] }),
            format!(
                "{place}.listener_wrappers[0].wrapper: found 'tls', expected another wrapper before it: TLS is first by default"
            ),
        ),
        (
            json!({ "listener_wrappers": [{ "wrapper": "http_redirect" }, { "wrapper": "tls", "max": 1 }] }),
            format!("{place}.listener_wrappers[1].max: unknown field `max`, expected `wrapper`"),
        ),
        // The access log's route comes before the server's own ones.
        (
            json!({ "logs": {}, "routes": { "handle": [] } }),
            format!("{place}.routes: found 'an object', expected a list of routes"),
        ),
        (
            json!({ "listener_wrappers": [{ "wrapper": "http_redirect" }, { "wrapper": "tls" }, { "wrapper": "proxy_protocol" }] }),
            format!("{place}.listener_wrappers[2].wrapper: found 'proxy_protocol', expected it before `tls`"),
        ),
        (
            json!({ "listener_wrappers": [{ "wrapper": "proxy_protocol", "allow": ["10.0.0.0/8", "a"] }] }),
            format!("{place}.listener_wrappers[0].allow[1]: found 'a', expected a network such as 10.0.0.0/8"),
        ),
        (
            json!({ "listener_wrappers": [{ "wrapper": "proxy_protocol", "fallback_policy": "MAYBE" }] }),
            format!(
                "{place}.listener_wrappers[0].fallback_policy: found 'MAYBE', expected IGNORE, USE, REJECT, REQUIRE or SKIP"
            ),
        ),
        (
            json!({ "listener_wrappers": [{ "wrapper": "proxy_protocol" }], "tls_connection_policies": [{}] }),
            format!("{place}.listener_wrappers: found 'no `tls`', expected `tls` at the end: the server uses TLS"),
        ),
        (
            json!({ "expected_underscore_headers": ["plain"] }),
            format!(
                "{place}: found 'plain', expected a field name in ASCII with the `_` or `.` it is listed for, and a `*` at \
                 its end at most"
            ),
        ),
        (
            json!({ "named_routes": { "a": { "handle": [{ "handler": "none" }] } } }),
            format!("{place}.named_routes.a.handle[0]: handler module 'none' is not supported (docs/refused.md)"),
        ),
    ] {
        check("a field", server, &want);
    }
    for host in ["a.test:8080", "[::1]:80"] {
        let want = format!("{place}.logs.logger_names: found '{host}', expected a host without a port");
        check("a logger's host", json!({ "logs": { "logger_names": { host: ["a"] } } }), &want);
    }
    let acme = json!([{ "handle": [{ "handler": "acme_server", "ca": "typo" }] }]);
    let got = outcome(&json!({ "apps": { "http": { "servers": { "s": { "listen": [":80"], "routes": acme } } } } }));
    assert!(
        got.ends_with(
            "acme_server.ca: found 'typo', expected local, or the id of an authority that apps.pki configures"
        ),
        "{got}"
    );
    let config = json!({ "apps": { "http": { "servers": { "s": {
        "listen": [":80"], "read_timeout": "9s", "read_idle_timeout": "7s", "write_idle_timeout": "8s" } } } } });
    let loaded = load(&config, &Registry::default()).unwrap_or_else(|error| panic!("{error}"));
    let timeouts = loaded.listeners[0].timeouts;
    assert_eq!((timeouts.body.idle.as_secs(), timeouts.write.idle.as_secs()), (7, 8));
}

// Caddy, http.servers: zero is the default, and a negative value no limit; that on the whole request leaves the one on
// idle time.
#[test]
fn no_timeout() {
    let timeouts = |server: Value| {
        let mut server = server;
        server["listen"] = json!([":80"]);
        let config = json!({ "apps": { "http": { "servers": { "s": server } } } });
        load(&config, &Registry::default()).unwrap_or_else(|error| panic!("{error}")).listeners[0].timeouts
    };
    let default_timeouts = timeouts(json!({}));
    let each = |value: &Value| {
        let names = ["read_header_timeout", "idle_timeout", "read_timeout", "write_timeout"];
        let names = names.into_iter().chain(["read_idle_timeout", "write_idle_timeout"]);
        Value::Object(names.map(|name| (name.to_owned(), value.clone())).collect())
    };
    assert_eq!(timeouts(each(&json!(0))), default_timeouts);
    let none = timeouts(each(&json!("-1s")));
    for limit in [none.head, none.keep_alive, none.body.idle, none.write.idle] {
        assert_eq!(limit.as_secs() / (365 * 24 * 3600), 100, "years");
    }
    assert_eq!(timeouts(json!({ "read_timeout": -1, "write_timeout": "-1s" })), default_timeouts);
}

#[test]
fn durations() {
    let servers = json!({ "s": { "listen": [":80"], "idle_timeout": "5s", "read_header_timeout": 2_000_000_000u64 } });
    let config = json!({ "apps": { "http": { "grace_period": "3s", "servers": servers } } });
    let loaded = load(&config, &Registry::default()).unwrap_or_else(|error| panic!("{error}"));
    let timeouts = loaded.listeners[0].timeouts;
    assert_eq!((timeouts.keep_alive.as_secs(), timeouts.head.as_secs(), loaded.grace.as_secs()), (5, 2, 3));
    for (bad, shown) in [(json!("-1s"), "-1s"), (json!(-5), "-5"), (json!("10"), "10")] {
        let config = json!({ "apps": { "http": { "grace_period": bad, "servers": {} } } });
        let want = format!("apps.http.grace_period: found '{shown}', expected a duration such as 90s, 1m30s or 250ms");
        assert_eq!(outcome(&config), want);
    }
}
