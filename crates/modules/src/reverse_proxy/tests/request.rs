use causeway_message::Version;
use causeway_pipeline::build::ServerSpec;
use causeway_pipeline::{Body, BodyStream as _, Frame, Trust};
use causeway_testkit::{Kit, Request};
use serde_json::{Value, json};

use super::{kit, proxy, registry, start_call};

/// Returns the lines of the request that the upstream receives.
#[track_caller]
fn sent(options: Value, request: &Request) -> String {
    let mut kit = kit(options);
    let (call, pending) = start_call(&mut kit, request);
    let text = call.request_text();
    pending.cancel(&mut kit);
    text
}

const FORWARDED: &str =
    "\nX-Forwarded-For: 192.0.2.1\nX-Forwarded-Proto: http\nX-Forwarded-Host: localhost\nVia: 1.1 Causeway";

// Caddy, reverseproxy.go, prepareRequest: hop-by-hop fields and those named by Connection are removed, X-Forwarded-* of
// an untrusted client are replaced, and Via is added.
#[test]
fn connection_specific_fields_are_not_forwarded() {
    for (fields, want) in [
        (&[][..], ""),
        (&[("A", "1"), ("a", "2")][..], "\nA: 1\na: 2"),
        (&[("Connection", "keep-alive"), ("Keep-Alive", "5")], ""),
        (&[("Connection", "X-A , close,, host"), ("X-A", "1"), ("X-B", "2")], "\nX-B: 2"),
        (&[("Connection", "x-a"), ("Connection", "Cookie"), ("X-A", "1"), ("Cookie", "2")], ""),
        (&[("Proxy-Connection", "x"), ("Proxy-Authorization", "x"), ("Proxy-Authenticate", "x"), ("Alt-Svc", "x")], ""),
        (&[("TE", "deflate")], ""),
        (&[("TE", "deflate, Trailers")], "\nTE: trailers"),
        // RFC 9110 §10.1.4: a sender of TE must name it in Connection.
        (&[("TE", "trailers"), ("Connection", "TE")], "\nTE: trailers"),
        (&[("Upgrade", "websocket")], ""),
        (&[("Expect", "100-continue")], ""),
        (&[("Trailer", "X-T"), ("User-Agent", "u")], "\nTrailer: X-T\nUser-Agent: u"),
        // Trailers too: only those that `Trailer` lists are sent.
        (&[("Connection", "X-T"), ("Trailer", "x-t, X-U")], "\nTrailer: X-U"),
        (&[("Connection", "X-T"), ("Trailer", "X-T")], ""),
        (&[("Connection", "X-Forwarded-For"), ("X-Forwarded-For", "1.2.3.4")], ""),
    ] {
        let request = fields.iter().fold(Request::get("/a%20b?c"), |request, (name, value)| request.field(name, value));
        let want = format!("GET /a%20b?c\nHost: localhost{want}{FORWARDED}");
        assert_eq!(sent(json!({}), &request), want, "{fields:?}");
    }
}

// RFC 9110 §7.6.2: a proxy decrements Max-Forwards of OPTIONS and TRACE, and is the final recipient of a request
// with 0. A value that is not valid, and the field with other methods, have no meaning.
#[test]
fn max_forwards() {
    for method in ["OPTIONS", "TRACE", "GET", "POST"] {
        for (values, want) in [
            (&["0"][..], None),
            (&["00"], None),
            (&["1"], Some("Max-Forwards: 0")),
            (&["10"], Some("Max-Forwards: 9")),
            (&["99999999999999999999999"], Some("Max-Forwards: 18446744073709551614")),
            (&[""], Some("Max-Forwards: ")),
            (&["-1"], Some("Max-Forwards: -1")),
            (&["0 1"], Some("Max-Forwards: 0 1")),
            (&["0", "1"], Some("Max-Forwards: 0\nMax-Forwards: 1")),
        ] {
            let request =
                values.iter().fold(Request::new(method, "/"), |request, value| request.field("Max-Forwards", value));
            let is_limited = matches!(method, "OPTIONS" | "TRACE");
            let want = match want {
                Some(want) if is_limited => want.to_owned(),
                None if is_limited => {
                    let answer = kit(json!({})).send(&request);
                    let status = if method == "OPTIONS" { 200 } else { 501 };
                    assert_eq!(
                        (answer.status, answer.text(), answer.length),
                        (status, "", Some(0)),
                        "{method} {values:?}"
                    );
                    continue;
                }
                _ => values.iter().map(|value| format!("Max-Forwards: {value}")).collect::<Vec<_>>().join("\n"),
            };
            assert_eq!(
                sent(json!({}), &request),
                format!("{method} /\nHost: localhost\n{want}{FORWARDED}"),
                "{values:?}"
            );
        }
    }
}

// `forward_auth` sends a request of its own, and an application over FastCGI is a part of this recipient.
#[test]
fn max_forwards_of_a_request_that_is_not_forwarded_as_it_is() {
    let request = Request::new("OPTIONS", "/").field("Max-Forwards", "0");
    let sent = sent(json!({ "rewrite": { "method": "GET" } }), &request);
    assert_eq!(sent, format!("GET /\nHost: localhost\nMax-Forwards: 0{FORWARDED}"));
    let mut kit = kit(json!({ "transport": { "protocol": "fastcgi" } }));
    let (_, pending) = start_call(&mut kit, &request);
    pending.cancel(&mut kit);
}

// Each name costs a search of the whole head: 30 KB of names would cost a worker milliseconds.
#[test]
fn the_fields_named_in_connection_are_bounded() {
    let naming = |count: usize| Request::get("/").field("Connection", "x,".repeat(count)).field("X", "1");
    assert_eq!(sent(json!({}), &naming(100)), format!("GET /\nHost: localhost{FORWARDED}"));
    assert_eq!(kit(json!({})).send(&naming(101)).status, 400);
}

// Caddy, addForwardedHeaders.
#[test]
fn forwarded_fields_of_a_trusted_proxy_are_kept() {
    let request = Request::get("/")
        .field("X-Forwarded-For", "1.1.1.1")
        .field("X-Forwarded-For", "2.2.2.2, 3.3.3.3")
        .field("X-Forwarded-Proto", "gopher")
        .field("X-Forwarded-Proto", "https")
        .field("X-Forwarded-Host", "a.test");
    let of =
        |text: String| -> Vec<String> { text.lines().filter(|l| l.starts_with("X-F")).map(str::to_owned).collect() };
    let trusted = [
        "X-Forwarded-For: 1.1.1.1, 2.2.2.2, 3.3.3.3, 192.0.2.1",
        "X-Forwarded-Proto: https",
        "X-Forwarded-Host: a.test",
    ];
    let strange = ["X-Forwarded-For: 192.0.2.1", "X-Forwarded-Proto: http", "X-Forwarded-Host: localhost"];
    assert_eq!(of(sent(json!({}), &request)), strange);
    assert_eq!(of(sent(json!({ "trusted_proxies": ["198.51.100.0/24"] }), &request)), strange);
    assert_eq!(of(sent(json!({ "trusted_proxies": ["198.51.100.1", "192.0.2.0/24"] }), &request)), trusted);
    assert_eq!(of(sent(json!({ "trusted_proxies": ["192.0.2.1"] }), &Request::get("/"))), strange);
    // The server's own trusted proxies.
    let routes = json!([{ "handle": [proxy(json!({}))] }]);
    let ranges = vec!["192.0.2.0/24".parse().expect("a network")];
    let trust = Trust::new(ranges, &["X-Forwarded-For"], false).expect("a field name");
    let spec = ServerSpec { trust: Some(trust), ..ServerSpec::new("srv0", &routes) };
    let mut kit = Kit::of(&registry(), &spec).expect("a server");
    let (call, pending) = start_call(&mut kit, &request);
    assert_eq!(of(call.request_text()), trusted);
    pending.cancel(&mut kit);
    // Over TLS, and from an IPv6 peer that is not trusted.
    let request = Request::get("/").secure().peer("[::ffff:192.0.2.7]:1".parse().unwrap());
    let (for_mapped, proto) = ("X-Forwarded-For: 192.0.2.7", "X-Forwarded-Proto: https");
    assert_eq!(of(sent(json!({}), &request)), [for_mapped, proto, "X-Forwarded-Host: localhost"]);
    let request = Request::get("/").peer("[2001:db8::1]:1".parse().unwrap());
    assert_eq!(of(sent(json!({}), &request))[0], "X-Forwarded-For: 2001:db8::1");
}

// Caddy, headers.request: header operations apply last, and see the selected upstream; the client's request is
// unchanged.
#[test]
fn operations_and_rewrites_apply_to_the_copy() {
    let options = json!({
        "headers": { "request": {
            "set": { "Host": ["{http.reverse_proxy.upstream.hostport}"], "X-R": ["{http.request.uri} {http.request.method}"] },
            "delete": ["X-Forwarded-*"], "add": { "Via": ["x"] },
        } },
        "rewrite": { "method": "GET", "uri": "/new{http.request.uri.path}?of={http.request.method}" },
    });
    // A placeholder in the new target still refers to the client's request.
    let want = "GET /new/old?of=POST\nHost: 10.0.0.1:80\nVia: 1.1 Causeway\nVia: x\nX-R: /old POST";
    let mut kit = kit(options);
    let (call, pending) = start_call(&mut kit, &Request::new("POST", "/old").content("abc"));
    assert_eq!(call.request_text(), want);
    // Caddy: a configured method without content leaves the body for other handlers.
    assert!(matches!(call.take_body(), Some(Body::Empty)));
    let cx = pending.context();
    assert_eq!((cx.head().method().as_str(), cx.head().target().as_str()), ("POST", "/old"));
    pending.cancel(&mut kit);
}

// Caddy 2.11, HTTPTransport.RequestHeaderOps: over TLS, Host is the upstream's own name unless set otherwise.
#[test]
fn the_requested_host() {
    let host = |options: Value, request: &Request| -> String {
        sent(options, request).lines().find(|line| line.starts_with("Host: ")).unwrap_or_default().to_owned()
    };
    let set = json!({ "request": { "set": { "Host": ["b.test"] } } });
    let absolute = Request::get("http://c.test/x?y");
    let get = Request::get("/");
    assert_eq!(host(json!({}), &get), "Host: localhost");
    assert_eq!(host(json!({ "transport": { "tls": {} } }), &get), "Host: 10.0.0.1:80");
    assert_eq!(host(json!({ "transport": { "tls": {} }, "headers": set }), &get), "Host: b.test");
    assert_eq!(host(json!({ "headers": set }), &absolute), "Host: b.test");
    assert_eq!(sent(json!({}), &absolute).lines().next(), Some("GET /x?y"));
    assert_eq!(host(json!({}), &absolute), "Host: c.test");
    assert_eq!(host(json!({}), &Request::get("/").without("Host").version(Version::Http10)), "Host: 10.0.0.1:80");
    assert!(sent(json!({}), &Request::get("/").version(Version::Http10)).contains("Via: 1.0 Causeway"));
    assert!(sent(json!({}), &Request::get("/").version(Version::Http2)).contains("Via: 2.0 Causeway"));
}

// The body is forwarded as it arrives, trailers included; an absent body stays absent.
#[test]
fn content_is_forwarded() {
    let mut kit = kit(json!({}));
    let (call, pending) = start_call(&mut kit, &Request::get("/"));
    assert!(matches!(call.take_body(), Some(Body::Empty)));
    pending.cancel(&mut kit);
    let request = Request::new("POST", "/").content("abc").trailer("X-T", "1");
    let (call, pending) = start_call(&mut kit, &request);
    let Some(Body::Incoming(mut body)) = call.take_body() else { panic!("a body") };
    let mut task = std::task::Context::from_waker(std::task::Waker::noop());
    let mut next = || match body.poll_frame(&mut task) {
        std::task::Poll::Ready(frame) => frame,
        std::task::Poll::Pending => panic!("it is there"),
    };
    assert!(matches!(next(), Some(Ok(Frame::Chunk(chunk))) if chunk.as_slice() == b"abc"));
    assert!(matches!(next(), Some(Ok(Frame::Trailers(fields))) if fields.len() == 1));
    assert!(next().is_none());
    pending.cancel(&mut kit);
    // The engine sends 100 (Continue) only when the body is read, not before.
    let (call, pending) = start_call(&mut kit, &Request::new("PUT", "/").body_open());
    assert!(!pending.context().mailbox().has_reader_waited());
    let Some(Body::Incoming(mut body)) = call.take_body() else { panic!("a body") };
    assert!(body.poll_frame(&mut task).is_pending());
    assert!(pending.context().mailbox().has_reader_waited());
    pending.cancel(&mut kit);
}

// Caddy, fillDialInfo: the names of a Unix socket; DialInfo's port is 0.
#[test]
fn unix_sockets() {
    let shown = "{http.reverse_proxy.upstream.address} {http.reverse_proxy.upstream.hostport} \
                 {http.reverse_proxy.upstream.host} {http.reverse_proxy.upstream.port}";
    let headers = json!({ "request": { "set": { "X-Up": [shown] }, "delete": ["X-Forwarded-*", "Via"] } });
    for (dial, address) in [
        ("unix//run/app.sock", "unix//run/app.sock"),
        ("unix/@app", "unix/@app"),
        ("unix//run/{http.request.host}.sock", "unix//run/localhost.sock"),
    ] {
        let mut kit = kit(json!({ "upstreams": [{ "dial": dial }], "headers": headers }));
        let (call, pending) = start_call(&mut kit, &Request::get("/a"));
        let path = address.strip_prefix("unix/").unwrap();
        // The client's Host is forwarded.
        let want = format!("GET /a\nHost: localhost\nX-Up: {address} {path} {path} 0");
        assert_eq!((&*call.address, call.request_text()), (address, want));
        pending.cancel(&mut kit);
    }
    // Without a Host of its own, and over TLS: a path is no name.
    let mut kit = kit(json!({ "upstreams": [{ "dial": "unix//run/app.sock" }], "transport": { "tls": {} } }));
    let (call, pending) = start_call(&mut kit, &Request::get("/").field("Host", "a.test"));
    assert!(call.request_text().starts_with("GET /\nHost: localhost\n"), "{}", call.request_text());
    pending.cancel(&mut kit);
}

// Caddy, upstreams: addresses may contain placeholders, expanded for each request.
#[test]
fn addresses_with_placeholders() {
    let mut kit = kit(json!({ "upstreams": [{ "dial": "{http.request.header.To}:{http.request.uri.query.port}" }] }));
    for _ in 0..2 {
        for (to, port, want) in [("a.test", "81", "a.test:81"), ("[::1]", "82", "[::1]:82")] {
            let (call, pending) = start_call(&mut kit, &Request::get(&format!("/?port={port}")).field("To", to));
            assert_eq!(&*call.address, want);
            pending.cancel(&mut kit);
        }
    }
    // Caddy: 500.
    assert_eq!(kit.send(&Request::get("/")).status, 500);
}

// Caddy: the requests of one client share connections, those of two clients never do: a connection has one header.
#[test]
fn the_proxy_protocol_separates_clients() {
    use causeway_pipeline::ProxyProtocolVersion;
    let mut kit = kit(json!({ "transport": { "protocol": "http", "proxy_protocol": "v2" } }));
    let of = |kit: &mut Kit, peer: &str| {
        let (call, pending) = start_call(kit, &Request::get("/").peer(peer.parse().unwrap()));
        pending.cancel(kit);
        call.transport.clone()
    };
    let [one, again, other] = ["192.0.2.1:1", "192.0.2.1:2", "192.0.2.2:1"].map(|peer| of(&mut kit, peer));
    assert!(std::sync::Arc::ptr_eq(&one, &again) && !std::sync::Arc::ptr_eq(&one, &other));
    let header = other.proxy_header.expect("a header");
    assert_eq!((header.version, header.source), (ProxyProtocolVersion::Two, "192.0.2.2".parse().ok()));
    // Any number of clients needs bounded memory.
    for number in 0..3000_u32 {
        of(&mut kit, &format!("[2001:db8::{number:x}]:1"));
    }
}
