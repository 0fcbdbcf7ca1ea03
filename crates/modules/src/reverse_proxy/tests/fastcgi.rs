use std::collections::BTreeMap;

use causeway_message::Version;
use causeway_pipeline::context::TlsFacts;
use causeway_pipeline::{Body, BodyStream as _, Frame};
use causeway_testkit::{FakeCall, Kit, Pending, Request};
use serde_json::{Value, json};

use super::{proxy, registry};

/// Returns a proxy over FastCGI with the root `/srv/www` and `.php` as delimiter, unless `transport` has its own.
fn php(mut transport: Value) -> Kit {
    transport["protocol"] = json!("fastcgi");
    for (option, default) in [("root", json!("/srv/www")), ("split_path", json!([".php"]))] {
        if transport.get(option).is_none() {
            transport[option] = default;
        }
    }
    super::kit(json!({ "transport": transport }))
}

/// Decodes the variables (FastCGI Specification, §3.4), each of which must occur once.
#[track_caller]
fn variables(call: &FakeCall) -> BTreeMap<String, String> {
    let encoded = call.engine.parameters();
    let mut rest = &*encoded;
    let mut found = BTreeMap::new();
    fn length(rest: &mut &[u8]) -> usize {
        let (bytes, width) = if rest[0] < 128 {
            (u32::from(rest[0]), 1)
        } else {
            (u32::from_be_bytes(rest[..4].try_into().unwrap()) & 0x7fff_ffff, 4)
        };
        *rest = &rest[width..];
        bytes as usize
    }
    while !rest.is_empty() {
        let (name, value) = (length(&mut rest), length(&mut rest));
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let before = found.insert(text(&rest[..name]), text(&rest[name..name + value]));
        assert_eq!(before, None, "{} occurs twice", text(&rest[..name]));
        rest = &rest[name + value..];
    }
    found
}

/// Sends a request that the proxy forwards, if need be after a wait for the values of its variables.
#[track_caller]
fn start_call(kit: &mut Kit, request: &Request) -> (FakeCall, Pending) {
    let mut exchange = kit.send_pending(request);
    for _ in 0..5 {
        let pending = match exchange {
            Ok(answer) => panic!("it was answered: {answer:?}"),
            Err(pending) => pending,
        };
        if let Some(call) = kit.worker().take_call() {
            return (call, pending);
        }
        kit.worker().drive_spawned();
        exchange = pending.poll(kit);
    }
    panic!("no call")
}

/// Sends a request and returns its variables.
#[track_caller]
fn sent(kit: &mut Kit, request: &Request) -> BTreeMap<String, String> {
    let (call, pending) = start_call(kit, request);
    let found = variables(&call);
    pending.cancel(kit);
    found
}

#[track_caller]
fn check(kit: &mut Kit, request: &Request, want: &[(&str, &str)]) {
    let found = sent(kit, request);
    for (name, value) in want {
        // `-` represents an absent variable.
        assert_eq!(found.get(*name).map_or("-", String::as_str), *value, "{name} of {}: {found:#?}", request.target());
    }
}

// RFC 3875 §4.1, and Caddy's buildEnv: all variables of a request.
#[test]
fn the_variables_of_a_request() {
    let request = Request::get("/blog/index.php/2026/a%20b?x=1&y=%20")
        .field("Host", "a.test:8080")
        .field("User-Agent", "u")
        .field("X-Two", "1")
        .field("X-Two", "2")
        .field("Accept", "a")
        .field("accept", "b")
        .field("Cookie", "a=1")
        .field("Cookie", "b=2");
    let found = sent(&mut php(json!({})), &request);
    let software = format!("Causeway/{}", env!("CARGO_PKG_VERSION"));
    let want = [
        ("AUTH_TYPE", ""),
        ("CONTENT_LENGTH", "0"),
        ("CONTENT_TYPE", ""),
        ("DOCUMENT_ROOT", "/srv/www"),
        ("DOCUMENT_URI", "/blog/index.php"),
        ("GATEWAY_INTERFACE", "CGI/1.1"),
        ("HTTP_ACCEPT", "a, b"),
        ("HTTP_COOKIE", "a=1; b=2"),
        ("HTTP_HOST", "a.test:8080"),
        ("HTTP_USER_AGENT", "u"),
        ("HTTP_VIA", "1.1 Causeway"),
        ("HTTP_X_FORWARDED_FOR", "192.0.2.1"),
        ("HTTP_X_FORWARDED_HOST", "a.test:8080"),
        ("HTTP_X_FORWARDED_PROTO", "http"),
        ("HTTP_X_TWO", "1, 2"),
        ("PATH_INFO", "/2026/a b"),
        ("PATH_TRANSLATED", "/srv/www/2026/a b"),
        ("QUERY_STRING", "x=1&y=%20"),
        ("REMOTE_ADDR", "192.0.2.1"),
        ("REMOTE_HOST", "192.0.2.1"),
        ("REMOTE_IDENT", ""),
        ("REMOTE_PORT", "4711"),
        ("REMOTE_USER", ""),
        ("REQUEST_METHOD", "GET"),
        ("REQUEST_SCHEME", "http"),
        ("REQUEST_URI", "/blog/index.php/2026/a%20b?x=1&y=%20"),
        ("SCRIPT_FILENAME", "/srv/www/blog/index.php"),
        ("SCRIPT_NAME", "/blog/index.php"),
        ("SERVER_ADDR", "192.0.2.80"),
        ("SERVER_NAME", "a.test"),
        ("SERVER_PORT", "8080"),
        ("SERVER_PROTOCOL", "HTTP/1.1"),
        ("SERVER_SOFTWARE", &software),
    ];
    let want: BTreeMap<String, String> = want.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
    assert_eq!(found, want);
}

// Caddy, splitPos: the first delimiter ends the script, ASCII's case is ignored, other characters never match.
#[test]
fn the_script_and_the_rest_of_the_path() {
    let mut kit = php(json!({}));
    for (target, script, info) in [
        ("/a.php", "/a.php", ""),
        ("/a.php/b/c", "/a.php", "/b/c"),
        ("/a.PHP/b", "/a.PHP", "/b"),
        ("/a.txt", "/a.txt", ""),
        ("/", "/", ""),
        ("/a.php.txt.php/b", "/a.php", ".txt.php/b"),
        ("//a//b.php", "/a/b.php", ""),
        ("/x/../a.php/../b.php", "/b.php", ""),
        ("/a.php/b/", "/a.php", "/b/"),
        ("/a.php/.", "/a.php", ""),
        ("/a.php/b/..", "/a.php", ""),
        ("/%61.php", "/a.php", ""),
        ("/a%2ephp/b", "/a.php", "/b"),
        // GHSA-g966-83w7-6w38: characters whose lower case has another length.
        ("/%C8%BA%C8%BAshell.php.txt.php", "/\u{23a}\u{23a}shell.php", ".txt.php"),
        // GHSA-v4h7-cj44-8fc8: characters that equal a letter under Unicode's folding.
        ("/shell.%EF%BD%90hp", "/shell.\u{ff50}hp", ""),
        ("/shell%EF%BC%8Ephp", "/shell\u{ff0e}php", ""),
    ] {
        let translated = if info.is_empty() {
            "-".to_owned()
        } else if info.starts_with('/') {
            format!("/srv/www{info}")
        } else {
            format!("/srv/www/{info}")
        };
        let file = if script == "/" { "/srv/www".to_owned() } else { format!("/srv/www{script}") };
        let want = [
            ("SCRIPT_NAME", script),
            ("DOCUMENT_URI", script),
            ("PATH_INFO", info),
            ("PATH_TRANSLATED", &*translated),
            ("SCRIPT_FILENAME", &*file),
        ];
        check(&mut kit, &Request::get(target), &want);
    }
    // The order of the delimiters decides, not that of their places.
    check(
        &mut php(json!({ "split_path": [".x", ".PHP", ""] })),
        &Request::get("/a.php/b.x/c"),
        &[("SCRIPT_NAME", "/a.php/b.x"), ("PATH_INFO", "/c")],
    );
    // Caddy: without delimiters the whole path is path info.
    let whole = [("SCRIPT_NAME", ""), ("SCRIPT_FILENAME", "/srv/www"), ("PATH_INFO", "/a.php"), ("DOCUMENT_URI", "")];
    check(&mut php(json!({ "split_path": [] })), &Request::get("/a.php"), &whole);
}

// Caddy, RoundTrip and buildEnv: PHP must not run another file than the one that the matchers have checked.
#[test]
fn paths_that_are_refused() {
    let mut kit = php(json!({}));
    for target in [
        "/upload.jpg%00.php",
        "/a.php%00",
        "/admin.php%2f..%2f..%2fother.php",
        "/a.php/%2e%2e/b.php%2f",
        "/other.php/..%2fadmin.php",
    ] {
        let wants_400 = target.contains("%00") || target.contains("%2f..");
        match kit.send_pending(&Request::get(target)) {
            Ok(answer) => assert_eq!(answer.status, 400, "{target}"),
            Err(pending) => {
                drop(kit.worker().take_call());
                pending.cancel(&mut kit);
                assert!(!wants_400, "{target} was sent");
            }
        }
    }
}

// Caddy, buildEnv: the authority, the scheme, the port; Apache's names for TLS.
#[test]
fn the_host_and_tls() {
    let mut kit = php(json!({}));
    for (host, name, port) in [
        ("a.test", "a.test", "80"),
        ("a.test:81", "a.test", "81"),
        ("a.test:", "a.test", "80"),
        ("[::1]:82", "::1", "82"),
        ("[::1]", "[::1]", "80"),
    ] {
        let want =
            [("SERVER_NAME", name), ("SERVER_PORT", port), ("HTTP_HOST", host), ("HTTPS", "-"), ("SSL_PROTOCOL", "-")];
        check(&mut kit, &Request::get("/").field("Host", host), &want);
    }
    // RFC 3875 §4.1.14: the name of the server to which the client directs the request, which is never the
    // application's own.
    let nameless = [("SERVER_NAME", ""), ("SERVER_PORT", "80"), ("HTTP_HOST", "")];
    check(&mut kit, &Request::get("/").without("Host").version(Version::Http10), &nameless);
    let facts = TlsFacts { version: "tls1.3", cipher_suite: "TLS_AES_128_GCM_SHA256", ..TlsFacts::default() };
    let want = [
        ("HTTPS", "on"),
        ("REQUEST_SCHEME", "https"),
        ("SERVER_PORT", "443"),
        ("SSL_PROTOCOL", "TLSv1.3"),
        ("SSL_CIPHER", "TLS_AES_128_GCM_SHA256"),
        ("SERVER_PROTOCOL", "HTTP/2.0"),
        ("REMOTE_ADDR", "2001:db8::1"),
        ("REMOTE_PORT", "7"),
    ];
    let request = Request::get("/").tls(facts).version(Version::Http2).peer("[2001:db8::1]:7".parse().unwrap());
    check(&mut kit, &request, &want);
    // The peer of a Unix socket.
    let unix = [("REMOTE_ADDR", "@"), ("REMOTE_HOST", "@"), ("REMOTE_PORT", ""), ("SERVER_ADDR", "-")];
    check(&mut kit, &Request::get("/").over_unix("/run/x.sock"), &unix);
    check(
        &mut kit,
        &Request::get("http://b.test:83/a.php?x"),
        &[("HTTP_HOST", "b.test:83"), ("SERVER_PORT", "83"), ("REQUEST_URI", "/a.php?x"), ("SCRIPT_NAME", "/a.php")],
    );
}

// httpoxy.org; GHSA-f59h-q822-g45g: a client's name with `_` must not become another field's variable.
#[test]
fn fields_that_are_not_passed_as_variables() {
    let request = Request::get("/").field("pRoXy", "http://evil.test").field("Remote_User", "root").field("X.Y", "1");
    check(&mut php(json!({})), &request, &[("HTTP_PROXY", "-"), ("HTTP_REMOTE_USER", "-"), ("HTTP_X.Y", "-")]);
    // A client must not replace a field of the operator.
    let headers = json!({ "request": { "set": { "Remote_User": ["alice"] } } });
    let transport = json!({ "protocol": "fastcgi", "root": "/srv" });
    let mut kit = super::kit(json!({ "transport": transport, "headers": headers }));
    check(&mut kit, &Request::get("/").field("Remote-User", "root"), &[("HTTP_REMOTE_USER", "alice")]);
}

// Caddy, prepareRequest: hop-by-hop fields are no variables, but those of a request for another protocol are.
#[test]
fn the_requested_protocol() {
    let mut kit = php(json!({}));
    let (connection, upgrade) = ("HTTP_CONNECTION", "HTTP_UPGRADE");
    for protocol in ["websocket", "WebSocket"] {
        check(&mut kit, &Request::get("/").upgrade(protocol), &[(connection, "Upgrade"), (upgrade, "websocket")]);
    }
    for request in [
        Request::get("/"),
        Request::get("/").field("Upgrade", "websocket"),
        Request::get("/").field("Connection", "upgrade"),
        Request::get("/").field("Connection", "close").field("Upgrade", "websocket"),
        // Caddy, upgradeType: an empty protocol is none.
        Request::get("/").upgrade(""),
    ] {
        check(&mut kit, &request, &[(connection, "-"), (upgrade, "-")]);
    }
    let mut kit = php(json!({ "env": { "HTTP_CONNECTION": "own" } }));
    check(&mut kit, &Request::get("/").upgrade("websocket"), &[(connection, "own"), (upgrade, "websocket")]);
}

// Caddy, ServeHTTP: `header_up` is applied after the fields of a request for another protocol are restored.
#[test]
fn operations_on_the_requested_protocol() {
    let plain = Request::get("/");
    let switch = Request::get("/").upgrade("websocket");
    let both = json!({ "set": { "Connection": ["upgrade"], "Upgrade": ["h"] } });
    for (operations, request, connection, upgrade) in [
        (&both, &plain, "upgrade", "h"),
        (&both, &switch, "upgrade", "h"),
        (&json!({ "set": { "Upgrade": ["own"] } }), &plain, "-", "own"),
        (&json!({ "set": { "Upgrade": ["own"] } }), &switch, "Upgrade", "own"),
        (&json!({ "set": { "Connection": ["own"] } }), &switch, "own", "websocket"),
        (&json!({ "add": { "Connection": ["own"] } }), &switch, "Upgrade, own", "websocket"),
        (&json!({ "delete": ["Connection"] }), &switch, "-", "websocket"),
        (&json!({ "delete": ["Upgrade"] }), &switch, "Upgrade", "-"),
    ] {
        let headers = json!({ "request": operations });
        let mut kit = super::kit(json!({ "transport": { "protocol": "fastcgi", "root": "/srv" }, "headers": headers }));
        check(&mut kit, request, &[("HTTP_CONNECTION", connection), ("HTTP_UPGRADE", upgrade)]);
    }
}

// Caddy, buildEnv: `env` is applied last, so it replaces the request's variables, except for those that delimit its
// content.
#[test]
fn variables_of_the_configuration() {
    let env = json!({
        "APP_ENV": "test", "WHO": "{http.request.method} {unknown}", "HTTP_X_OWN": "own", "HTTP_HOST": "fixed",
        "SERVER_NAME": "named", "PATH_INFO": "", "CONTENT_LENGTH": "99", "REQUEST_METHOD": "PUT", "CONTENT_TYPE": "x",
    });
    let request = Request::get("/a.php/b").field("X-Own", "theirs").field("x-own", "again");
    check(
        &mut php(json!({ "env": env })),
        &request,
        &[
            ("APP_ENV", "test"),
            ("WHO", "GET "),
            ("HTTP_X_OWN", "own"),
            ("HTTP_HOST", "fixed"),
            ("SERVER_NAME", "named"),
            ("PATH_INFO", ""),
            ("PATH_TRANSLATED", "/srv/www/b"),
            ("CONTENT_LENGTH", "0"),
            ("REQUEST_METHOD", "GET"),
            ("CONTENT_TYPE", ""),
        ],
    );
}

// Caddy: the root may have placeholders, is made absolute, and is the site's by default.
#[test]
fn roots() {
    let here = std::env::current_dir().unwrap().display().to_string();
    for (root, want) in [
        ("/srv//www/", "/srv/www".to_owned()),
        ("/", "/".to_owned()),
        ("www", format!("{here}/www")),
        (".", here.clone()),
        ("/srv/{http.request.host}", "/srv/localhost".to_owned()),
        ("/srv/{http.request.header.None}", "/srv".to_owned()),
        ("{http.request.header.Root}/../b", "/b".to_owned()),
    ] {
        let file = format!("{}/a.php", want.trim_end_matches('/'));
        let request = Request::get("/a.php").field("Root", "/a");
        check(&mut php(json!({ "root": root })), &request, &[("DOCUMENT_ROOT", &want), ("SCRIPT_FILENAME", &file)]);
    }
    let transport = json!({ "protocol": "fastcgi", "split_path": [".php"] });
    let of_site =
        json!([{ "handle": [{ "handler": "vars", "root": "/site" }, proxy(json!({ "transport": transport }))] }]);
    check(&mut Kit::new(&registry(), &of_site), &Request::get("/a.php"), &[("DOCUMENT_ROOT", "/site")]);
    let no_root = json!([{ "handle": [proxy(json!({ "transport": transport }))] }]);
    check(&mut Kit::new(&registry(), &no_root), &Request::get("/a.php"), &[("DOCUMENT_ROOT", &here)]);
}

// Caddy, resolve_root_symlink: the real directory, so that a deployment by a new link is another root for opcache.
#[test]
fn symbolic_links_of_the_root() {
    let directory = std::env::temp_dir().join(format!("causeway-root-{}", std::process::id()));
    std::fs::create_dir_all(directory.join("release-1")).unwrap();
    let link = directory.join("current");
    std::os::unix::fs::symlink("release-1", &link).unwrap();
    let real = directory.join("release-1").canonicalize().unwrap().display().to_string();
    let root = link.display().to_string();
    let mut kit = php(json!({ "root": root, "resolve_root_symlink": true }));
    for _ in 0..2 {
        check(&mut kit, &Request::get("/a.php"), &[("DOCUMENT_ROOT", &real)]);
    }
    assert_eq!(kit.worker().jobs_seen(), 1, "the second request uses what the first has found");
    check(&mut php(json!({ "root": root })), &Request::get("/a.php"), &[("DOCUMENT_ROOT", &root)]);
    let mut kit = php(json!({ "root": format!("{root}/none"), "resolve_root_symlink": true }));
    assert_eq!(kit.send(&Request::get("/a.php")).status, 502);
    std::fs::remove_dir_all(&directory).unwrap();
}

// The file matcher divides the path before `rewrite` replaces it (caddyserver/caddy#3718).
#[test]
fn the_remainder_of_the_file_matcher() {
    let transport = json!({ "protocol": "fastcgi", "root": "/srv" });
    let vars = json!({ "handler": "map", "source": "x", "destinations": ["{http.matchers.file.remainder}"], "defaults": ["/rest"] });
    let user =
        json!({ "handler": "map", "source": "x", "destinations": ["{http.auth.user.id}"], "defaults": ["alice"] });
    let mut transport_with_split = transport;
    transport_with_split["split_path"] = json!([".php"]);
    let routes = json!([{ "handle": [vars, user, proxy(json!({ "transport": transport_with_split }))] }]);
    let want = [("PATH_INFO", "/rest"), ("PATH_TRANSLATED", "/srv/rest"), ("REMOTE_USER", "alice")];
    check(&mut Kit::new(&registry(), &routes), &Request::get("/a.php"), &want);
}

// Caddy, client.go: HEAD and OPTIONS are sent without content, and content without a type is a form.
#[test]
fn content() {
    let mut kit = php(json!({}));
    let mut content = |request: &Request| {
        let (call, pending) = start_call(&mut kit, request);
        let found = variables(&call);
        let mut text = Vec::new();
        if let Some(Body::Incoming(mut body)) = call.take_body() {
            let mut task = std::task::Context::from_waker(std::task::Waker::noop());
            while let std::task::Poll::Ready(Some(frame)) = body.poll_frame(&mut task) {
                let Ok(Frame::Chunk(chunk)) = frame else { panic!("{frame:?}") };
                text.extend_from_slice(chunk.as_slice());
            }
        }
        pending.cancel(&mut kit);
        (found["CONTENT_LENGTH"].clone(), found["CONTENT_TYPE"].clone(), String::from_utf8(text).unwrap())
    };
    let form = "application/x-www-form-urlencoded".to_owned();
    let of = |length: &str, kind: &str, text: &str| (length.to_owned(), kind.to_owned(), text.to_owned());
    assert_eq!(content(&Request::get("/")), of("0", "", ""));
    assert_eq!(content(&Request::get("/").content("abc")), of("3", "", "abc"));
    assert_eq!(content(&Request::new("POST", "/").content("abc")), of("3", &form, "abc"));
    assert_eq!(
        content(&Request::new("POST", "/").content("abc").field("Content-Type", "text/x")),
        of("3", "text/x", "abc")
    );
    assert_eq!(content(&Request::new("OPTIONS", "/").content("abc")), of("0", "", ""));
    assert_eq!(content(&Request::new("HEAD", "/")), of("0", "", ""));
    // Of unknown length, because of the trailer.
    assert_eq!(
        content(&Request::new("PUT", "/").content("abc").content("de").trailer("X-T", "1")),
        of("5", &form, "abcde")
    );
    let most = "x".repeat(64 * 1024);
    assert_eq!(content(&Request::new("PUT", "/").content(&*most).trailer("X-T", "1")).0, "65536");
    let request = Request::new("PUT", "/").content(&*most).content("x").trailer("X-T", "1");
    assert_eq!(kit.send(&request).status, 411);
    // The client is awaited; then it is gone.
    let open = Request::new("PUT", "/").content("abc").body_open();
    let Err(pending) = kit.send_pending(&open) else { panic!("it waits for the content") };
    assert!(kit.worker().take_call().is_none());
    pending.cancel(&mut kit);
}

// RFC 3875 §4.1.2: the length is that of the content that the program gets. A page that is a program is run for a
// request whose content the first application has got.
#[test]
fn a_program_after_another_handler_has_taken_the_content() {
    let first = proxy(json!({ "handle_response": [{ "routes": [{ "handle": [
        proxy(json!({ "transport": { "protocol": "fastcgi", "root": "/srv", "split_path": [".php"] } })),
    ] }] }] }));
    let mut kit = Kit::new(&registry(), &json!([{ "handle": [first] }]));
    let Err(pending) = kit.send_pending(&Request::new("POST", "/page.php").content("abc")) else {
        panic!("the first application is called")
    };
    let call = kit.worker().take_call().expect("a call");
    drop(call.take_body());
    call.answer(500, &[], Some(0));
    let Err(pending) = pending.poll(&mut kit) else { panic!("the program is called") };
    let call = kit.worker().take_call().expect("a second call");
    let found = variables(&call);
    assert_eq!((&*found["CONTENT_LENGTH"], &*found["REQUEST_METHOD"]), ("0", "POST"));
    assert!(matches!(call.take_body(), None | Some(Body::Empty)));
    pending.cancel(&mut kit);
}

// Caddy, `fastcgi.client.Request`: unlike that of HTTP, the text of a status lacks the number.
#[test]
fn text_of_a_status() {
    let seen = json!({ "response": { "set": { "X-Seen": ["{http.reverse_proxy.status_code}|{http.reverse_proxy.status_text}"] } } });
    let mut kit = super::kit(json!({ "transport": { "protocol": "fastcgi" }, "headers": seen }));
    let (call, pending) = start_call(&mut kit, &Request::get("/a.php"));
    call.answer(404, &[], Some(0));
    call.end();
    assert_eq!(pending.finish(&mut kit).field("X-Seen"), Some("404|Not Found"));
}

// A request after any other equals one on fresh storage.
#[test]
fn no_state_of_an_earlier_request_remains() {
    let mut kit = php(json!({ "env": { "A": "{http.request.header.A}" } }));
    let plain = sent(&mut kit, &Request::get("/a.php"));
    let large = Request::new("POST", "/b.php/c?d").content("x").field("A", "b").field("X-Large", "y".repeat(20_000));
    assert_ne!(sent(&mut kit, &large), plain);
    assert_eq!(sent(&mut kit, &Request::get("/a.php")), plain);
}
