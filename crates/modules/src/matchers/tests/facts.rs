//! protocol, tls, remote_ip, client_ip, vars.

use std::net::SocketAddr;

use causeway_message::Version;
use causeway_testkit::{Kit, Request};
use serde_json::{Value, json};

use super::{check, refused, registry};

// Caddy, http.matchers.protocol.
#[test]
fn protocol() {
    let get = || Request::get("/");
    check(
        "protocol",
        &[
            (json!("http"), get(), true),
            (json!("https"), get(), false),
            (json!("https"), get().secure(), true),
            (json!("http"), get().secure(), false),
            (json!("grpc"), get().field("Content-Type", "application/grpc"), true),
            (json!("grpc"), get().field("Content-Type", "application/grpc+proto"), true),
            (json!("grpc"), get().field("Content-Type", "text/plain").field("Content-Type", "application/grpc"), false),
            (json!("grpc"), get(), false),
            (json!("http/1.1"), get(), true),
            (json!("http/1.0"), get(), false),
            (json!("http/1.0"), get().version(Version::Http10), true),
            (json!("http/1.1+"), get().version(Version::Http10), false),
            (json!("http/1.0+"), get(), true),
            (json!("http/2"), get().version(Version::Http2), true),
            (json!("http/2"), get(), false),
            (json!("http/2+"), get().version(Version::Http2), true),
            (json!("http/2+"), get(), false),
            (json!("http/1.1+"), get().version(Version::Http2), true),
            (json!("http/3"), get().version(Version::Http2), false),
            (json!("http/3+"), get(), false),
        ],
    );
    refused("protocol", &[(json!("http/1"), "found 'http/1', expected http, https"), (json!("HTTP"), "found 'HTTP'")]);
}

// Caddy, http.matchers.tls: over TLS in general, with a complete handshake, or before.
#[test]
fn tls() {
    let get = || Request::get("/");
    check(
        "tls",
        &[
            (json!({}), get(), false),
            (json!({}), get().secure(), true),
            (json!({ "handshake_complete": true }), get(), false),
            (json!({ "handshake_complete": true }), get().secure(), true),
            (json!({ "handshake_complete": false }), get(), false),
            (json!({ "handshake_complete": false }), get().secure(), false),
            (json!({ "handshake_complete": null }), get().secure(), true),
        ],
    );
    refused(
        "tls",
        &[
            (json!({ "early_data": true }), "early_data: unknown field"),
            (json!("early_data"), "found the string 'early_data', expected an object"),
        ],
    );
}

fn from(peer: &str) -> Request {
    Request::get("/").peer(peer.parse::<SocketAddr>().unwrap())
}

// Caddy, http.matchers.remote_ip: addresses and CIDR ranges; an IPv4 range also matches IPv4 clients of an IPv6 socket.
#[test]
fn remote_ip() {
    let ranges = |ranges: &[&str]| json!({ "ranges": ranges });
    check(
        "remote_ip",
        &[
            (ranges(&["192.0.2.1"]), from("192.0.2.1:1"), true),
            (ranges(&["192.0.2.2"]), from("192.0.2.1:1"), false),
            (ranges(&["192.0.2.0/24"]), from("192.0.2.255:1"), true),
            (ranges(&["192.0.2.0/24"]), from("192.0.3.0:1"), false),
            (ranges(&["127.0.0.1/8"]), from("127.255.0.1:1"), true),
            (ranges(&["192.0.2.0/24"]), from("[::ffff:192.0.2.9]:1"), true),
            (ranges(&["::1", "fd00::/8"]), from("[fd12::1]:1"), true),
            (ranges(&["::1", "fd00::/8"]), from("[fe80::1]:1"), false),
            (ranges(&["0.0.0.0/0"]), from("[2001:db8::1]:1"), false),
            (ranges(&["::/0"]), from("192.0.2.1:1"), false),
            (
                ranges(&["10.0.0.0/8", "10.1.0.0/16", "9.0.0.0/8", "10.255.0.0/15", "11.0.0.0/8"]),
                from("11.2.3.4:1"),
                true,
            ),
            (ranges(&["10.0.0.0/8", "10.1.0.0/16"]), from("10.200.0.1:1"), true),
            (ranges(&["10.0.0.0/8", "10.1.0.0/16"]), from("11.0.0.0:1"), false),
            (ranges(&["fe80::1%7"]), from("[fe80::1%7]:1"), true),
            (ranges(&["fe80::1%7"]), from("[fe80::1%8]:1"), false),
            (ranges(&["fe80::/10"]), from("[fe80::1%8]:1"), true),
            (ranges(&["::1%lo"]), from("[::1]:1"), false),
            (ranges(&[]), from("192.0.2.1:1"), false),
            (json!({}), from("192.0.2.1:1"), false),
        ],
    );
    refused(
        "remote_ip",
        &[
            (ranges(&["::1", "nope"]), "ranges[1]: found 'nope', expected an IP address, or a network"),
            (ranges(&["10.0.0.0/33"]), "ranges[0]: found '10.0.0.0/33', expected an IP address"),
            (ranges(&["{http.request.host}"]), "ranges[0]: found '{http.request.host}', expected a range without"),
            (ranges(&["fe80::1%nosuchinterface"]), "ranges[0]: found 'fe80::1%nosuchinterface', expected a zone"),
            (json!({ "range": [] }), "range: unknown field"),
        ],
    );
    let mut registry = registry();
    registry.set_environment(|name| (name == "OFFICE").then(|| "198.51.100.0/24".to_owned()));
    let routes = json!([{ "match": [{ "remote_ip": { "ranges": ["{env.OFFICE}"] } }], "handle": [
        { "handler": "static_response", "status_code": 201 },
    ] }]);
    let mut kit = Kit::new(&registry, &routes);
    assert_eq!([kit.send(&from("198.51.100.7:1")).status, kit.send(&from("198.51.99.7:1")).status], [201, 200]);
}

// Without trusted proxies the client is the peer; a variable of that name takes precedence.
#[test]
fn client_ip() {
    let ranges = json!({ "ranges": ["192.0.2.0/24"] });
    let forged = from("198.51.100.1:1").field("X-Forwarded-For", "192.0.2.1");
    check("client_ip", &[(ranges.clone(), from("192.0.2.1:1"), true), (ranges.clone(), forged.clone(), false)]);
    let routes = json!([
        { "handle": [{ "handler": "vars", "client_ip": "{http.request.header.X-Forwarded-For}" }] },
        { "match": [{ "client_ip": ranges }], "handle": [{ "handler": "static_response", "status_code": 201 }] },
    ]);
    let mut kit = Kit::new(&registry(), &routes);
    assert_eq!([kit.send(&forged).status, kit.send(&from("192.0.2.1:1")).status], [201, 200]);
    for (peer_text, want) in
        [("192.0.2.7:80", 201), ("[::ffff:192.0.2.7]:80", 201), ("192.0.3.7:80", 200), ("who", 200)]
    {
        let request = from("192.0.2.1:1").field("X-Forwarded-For", peer_text);
        assert_eq!(kit.send(&request).status, want, "{peer_text}");
    }
}

/// Evaluates `{ matcher: value }` after `vars` has set a=1, b=x y and an empty variable.
#[track_caller]
fn check_vars(matcher: &str, cases: &[(Value, &str, bool)]) {
    for (value, target, want) in cases {
        let routes = json!([
            { "handle": [{ "handler": "vars", "a": 1, "b": "x y", "empty": "" }] },
            { "match": [{ matcher: value }], "handle": [{ "handler": "static_response", "status_code": 201 }] },
        ]);
        let answer = Kit::new(&registry(), &routes).send(&Request::get(target));
        assert_eq!(answer.status == 201, *want, "{value} {target}");
    }
}

// Caddy, http.matchers.vars: one of the variables must have one of its values; placeholders in values are expanded.
#[test]
fn vars() {
    check_vars(
        "vars",
        &[
            (json!({ "a": ["1"] }), "/", true),
            (json!({ "a": ["2", "1"] }), "/", true),
            (json!({ "a": ["11"] }), "/", false),
            (json!({ "a": ["2"], "b": ["x y"] }), "/", true),
            (json!({ "empty": [""] }), "/", true),
            (json!({ "unset": [""] }), "/", true),
            (json!({ "unset": ["1"] }), "/", false),
            (json!({ "{http.vars.a}": ["1"] }), "/", true),
            (json!({ "{http.request.uri.path}": ["/p"] }), "/p", true),
            (json!({ "{http.request.uri.path}": ["/{http.request.method}"] }), "/GET", true),
            (json!({ "x{http.request.uri.path}": ["x/p"] }), "/p", false),
            (json!({ "{http.request.header.Nope}": [""] }), "/", true),
            (json!({ "{no.such.thing}": ["", "x"] }), "/", true),
            (json!({ "a": [] }), "/", false),
            (json!({}), "/", true),
        ],
    );
    check_vars(
        "vars_regexp",
        &[
            (json!({ "a": { "pattern": "^[0-9]$" } }), "/", true),
            (json!({ "a": { "pattern": "^[a-z]$" }, "b": { "pattern": "x.y" } }), "/", true),
            (json!({ "{http.request.uri.path}": { "pattern": "^/fo?o$" } }), "/foo", true),
            (json!({ "unset": { "pattern": "^$" } }), "/", true),
            (json!({ "b": { "pattern": "z" } }), "/", false),
            (json!({}), "/", false),
        ],
    );
}
