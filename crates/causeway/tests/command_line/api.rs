//! The admin API, call by call. Expected statuses, and messages where they are Caddy's own, are those of Caddy 2.11.

use std::os::unix::fs::PermissionsExt as _;

use serde_json::{Value, json};

use crate::client::{ReceivedResponse, get, send, send_body};
use crate::process::{Directory, ServerProcess};

const CONFIG: &str = r#"{"apps": {"http": {"servers": {"a": {"@id": "srv", "listen": ["127.0.0.1:0"],
    "routes": [{"@id": "r0", "handle": [{"handler": "static_response", "body": "one"}]}]}}}}}"#;
const JSON: &str = "Content-Type: application/json";
const LISTEN: &str = "/config/apps/http/servers/a/listen";
const ROUTES: &str = "/config/apps/http/servers/a/routes";

/// Starts a server with the configuration above. Returns the port of its site and of its API.
#[track_caller]
fn start() -> (Directory, ServerProcess, u16, u16) {
    let directory = Directory::with(&[("config.json", CONFIG)]);
    let mut server = directory.start(&["run", "--config", "config.json"]);
    let (site, admin) = (server.port(), server.admin_port());
    (directory, server, site, admin)
}

/// Sends one request and returns the response. A body is JSON unless a field sets another type.
#[track_caller]
fn call(admin: u16, line: &str, fields: &[&str], body: &str) -> ReceivedResponse {
    let host = format!("Host: localhost:{admin}");
    let mut all = vec![];
    if !fields.iter().any(|field| field.starts_with("Host:")) {
        all.push(&*host);
    }
    if !body.is_empty() && !fields.iter().any(|field| field.starts_with("Content-Type:")) {
        all.push(JSON);
    }
    all.extend(fields.iter().filter(|field| !field.ends_with(": ")));
    if body.is_empty() { send(admin, line, &all) } else { send_body(admin, line, &all, body) }
}

/// Sends one request and compares the status and the body: JSON, an error's message, or empty.
#[track_caller]
fn check(admin: u16, line: &str, fields: &[&str], body: &str, status: u16, want: Value) {
    let answer = call(admin, line, fields, body);
    let got = match serde_json::from_str::<Value>(&answer.body) {
        Ok(value) => {
            assert_eq!(answer.field("Content-Type").as_deref(), Some("application/json"), "{line}");
            assert!(answer.body.ends_with('\n'), "{line}");
            value.get("error").cloned().unwrap_or(value)
        }
        Err(_) => json!(answer.body),
    };
    assert_eq!((answer.status, got), (status, want), "{line} {fields:?} {body}");
}

// Caddy's API documentation, `GET /config/[path]`.
#[test]
fn reading() {
    let (_directory, _server, _, admin) = start();
    let listen = json!(["127.0.0.1:0"]);
    for (path, status, want) in [
        ("/config/", 200, serde_json::from_str(CONFIG).unwrap()),
        (LISTEN, 200, listen.clone()),
        (&format!("{LISTEN}/"), 200, listen.clone()),
        (&format!("{LISTEN}/0"), 200, json!("127.0.0.1:0")),
        ("/config/nope", 200, json!(null)),
        (
            &format!("{LISTEN}/00"),
            400,
            json!(format!("[{LISTEN}/00] invalid array index '00': non-canonical array index")),
        ),
        (&format!("{LISTEN}/7"), 400, json!(format!("[{LISTEN}/7] array index out of bounds: 7"))),
        ("/config/nope/deeper", 400, json!("invalid traversal path at: config/nope/deeper")),
        ("/id/srv/listen", 200, listen.clone()),
        ("/id/srv/listen/", 200, listen),
        ("/id/", 400, json!("request path is missing object ID")),
        ("/id/nope", 404, json!("unknown object ID 'nope'")),
        (
            "/nope",
            404,
            json!(
                "no endpoint at /nope; the endpoints are /config/, /id/, /load, /adapt, /stop, /pki/ca/, /metrics, /reverse_proxy/upstreams, /causal, /causeway/status, /causeway/certificates, /causeway/upgrade, /causeway/cache, /debug/vars and /debug/pprof/profile"
            ),
        ),
        ("/load", 405, json!("method not allowed")),
        ("/adapt", 405, json!("method not allowed")),
        ("/stop", 405, json!("method not allowed")),
    ] {
        check(admin, &format!("GET {path}"), &[], "", status, want);
    }
    // The JSON is on one line, with its keys sorted.
    let answer = call(admin, "GET /id/r0", &[], "");
    assert_eq!(answer.body, "{\"@id\":\"r0\",\"handle\":[{\"body\":\"one\",\"handler\":\"static_response\"}]}\n");
    for (path, want) in [("/config", "/config/"), ("/config//apps?x", "/config/apps?x"), ("/id", "/id/")] {
        let answer = call(admin, &format!("GET {path}"), &[], "");
        assert_eq!((answer.status, answer.field("Location").as_deref()), (307, Some(want)), "{path}");
    }
    check(admin, "OPTIONS /config/", &[], "", 405, json!("method OPTIONS not allowed"));
    // Caddy's `handleConfigID` looks up the object first.
    check(admin, "OPTIONS /id/", &[], "", 400, json!("request path is missing object ID"));
    check(admin, "OPTIONS /id/nope", &[], "", 404, json!("unknown object ID 'nope'"));
    check(admin, "OPTIONS /id/srv", &[], "", 405, json!("method OPTIONS not allowed"));
    let text = "Content-Type: text/plain";
    check(admin, "PATCH /id/nope", &[text], "1", 404, json!("unknown object ID 'nope'"));
    let words = "unacceptable content-type: text/plain; 'application/json' required";
    check(admin, "PATCH /id/srv", &[text], "1", 400, json!(words));
    check(admin, "GET /causeway/status", &[], "", 200, json!({ "connections": 0, "live_plans": 1, "panics": 0 }));
    check(admin, "GET /reverse_proxy/upstreams", &[], "", 200, json!([]));
    check(admin, "POST /reverse_proxy/upstreams", &[], "", 405, json!("method not allowed"));
    check(admin, "POST /causeway/status", &[], "", 405, json!("method not allowed"));
    check(admin, "TRACE /config/", &[], "", 405, json!("method TRACE not allowed"));
    check(admin, "HEAD /config/", &[], "", 405, json!(""));
    // RFC 9110 §15.5.6: a 405 lists the methods.
    for (line, want) in [
        ("GET /load", "POST"),
        ("OPTIONS /config/", "GET, POST, PUT, PATCH, DELETE"),
        ("POST /metrics", "GET, HEAD"),
        ("POST /pki/ca/local", "GET"),
        ("POST /causeway/cache", "GET, DELETE"),
        ("POST /causal", "GET"),
        ("GET /causal/stop", "POST"),
    ] {
        let answer = call(admin, line, &[], "");
        assert_eq!((answer.status, answer.field("Allow").as_deref()), (405, Some(want)), "{line}");
    }
}

// Every path that the message of a 404 names is an endpoint, and lists its methods.
#[test]
fn endpoints() {
    let (_directory, _server, _, admin) = start();
    let message = call(admin, "GET /nope", &[], "").body;
    let (_, names) = message.split_once("the endpoints are ").unwrap();
    let names: Vec<_> = names.split([' ', ',', '"']).filter(|word| word.starts_with('/')).collect();
    assert_eq!(names.len(), 15, "{message}");
    for name in names {
        // Below one that ends in a slash; `srv` is an `@id`.
        let path = if name.ends_with('/') { format!("{name}srv") } else { name.to_owned() };
        let answer = call(admin, &format!("TRACE {path}"), &[], "");
        assert!(answer.status == 405 && answer.field("Allow").is_some(), "{path}: {}", answer.status);
    }
}

// POST appends to an array or sets, PUT inserts or creates, PATCH replaces, DELETE removes.
#[test]
fn changing() {
    let (_directory, _server, site, admin) = start();
    let route = |body: &str| json!({ "handle": [{ "handler": "static_response", "body": body }] });
    let bodies = |want: &[&str]| {
        let answer = call(admin, &format!("GET {ROUTES}"), &[], "");
        let routes: Value = serde_json::from_str(&answer.body).unwrap();
        let got: Vec<_> = routes.as_array().unwrap().iter().map(|route| &route["handle"][0]["body"]).collect();
        assert_eq!(got, want);
        assert_eq!(get(site, "/").body, want[0]);
    };
    let two = route("two").to_string();
    check(admin, &format!("POST {ROUTES}"), &[], &two, 200, json!(""));
    bodies(&["one", "two"]);
    check(admin, &format!("POST {ROUTES}/..."), &[], &format!("[{two}, {two}]"), 200, json!(""));
    bodies(&["one", "two", "two", "two"]);
    check(admin, &format!("PUT {ROUTES}/0"), &[], &route("zero").to_string(), 200, json!(""));
    bodies(&["zero", "one", "two", "two", "two"]);
    check(admin, &format!("PATCH {ROUTES}/0"), &[], &route("nil").to_string(), 200, json!(""));
    bodies(&["nil", "one", "two", "two", "two"]);
    check(admin, &format!("DELETE {ROUTES}/0"), &[], "", 200, json!(""));
    bodies(&["one", "two", "two", "two"]);
    // The `@id` moved with its object.
    check(admin, "PATCH /id/r0/handle/0/body", &[], "\"uno\"", 200, json!(""));
    bodies(&["uno", "two", "two", "two"]);
    check(admin, "PUT /config/storage/module", &[], "\"file_system\"", 200, json!(""));
    check(admin, "GET /config/storage", &[], "", 200, json!({ "module": "file_system" }));
    check(admin, "DELETE /config/storage", &[], "", 200, json!(""));
    check(admin, "GET /config/storage", &[], "", 200, json!(null));
}

/// A refused change leaves the configuration as it was.
#[test]
fn changes_that_are_refused() {
    let (_directory, _server, site, admin) = start();
    let before = call(admin, "GET /config/", &[], "").body;
    for (line, body, status, want) in [
        (format!("POST {ROUTES}/..."), "1", 500, "final element is not an array".to_owned()),
        (
            "PUT /config/apps/http/servers/a".into(),
            "{}",
            409,
            "[/config/apps/http/servers/a] key already exists: a".into(),
        ),
        ("PUT /config/".into(), "{}", 409, "[/config/] key already exists: config".into()),
        ("PATCH /config/apps/c".into(), "{}", 404, "[/config/apps/c] key does not exist: c".into()),
        ("DELETE /config/apps/c".into(), "", 404, "[/config/apps/c] key does not exist: c".into()),
        (format!("DELETE {LISTEN}/9"), "", 500, format!("[{LISTEN}/9] array index out of bounds: 9")),
        (format!("DELETE {LISTEN}/x"), "", 500, format!("[{LISTEN}/x] invalid array index 'x': expected a number")),
        ("POST /config/a/b/c".into(), "1", 500, "invalid traversal path at: config/a/b".into()),
        ("PATCH /id/none".into(), "{bad", 404, "unknown object ID 'none'".into()),
        (
            format!("POST {LISTEN}"),
            "{bad",
            500,
            "decoding request body: key must be a string at line 1 column 2, expected JSON".into(),
        ),
        (
            "PUT /config/apps/http/servers/b/listen/x".into(),
            "{}",
            500,
            "loading new config: apps.http.servers.b.listen: found an object, expected a list".into(),
        ),
        (
            "PATCH /id/r0/handle/0/handler".into(),
            "\"nope\"",
            500,
            "loading new config: apps.http.servers.a.routes[0].handle[0]: handler module 'nope' is not supported (docs/refused.md)"
                .into(),
        ),
        (
            format!("POST {ROUTES}"),
            "{\"@id\": \"r0\"}",
            400,
            format!("indexing config: duplicate ID 'r0' found at {ROUTES}/0 and {ROUTES}/1"),
        ),
        (
            format!("POST {ROUTES}"),
            "{\"@id\": [1]}",
            400,
            format!("indexing config: {ROUTES}/1: @id field must be a string or number"),
        ),
    ] {
        check(admin, &line, &[], body, status, json!(want));
    }
    let form = "Content-Type: application/x-www-form-urlencoded";
    let words = "unacceptable content-type: application/x-www-form-urlencoded; 'application/json' required";
    check(admin, &format!("POST {ROUTES}"), &[form], "{}", 400, json!(words));
    assert_eq!(call(admin, "GET /config/", &[], "").body, before);
    assert_eq!(get(site, "/").body, "one");
    check(admin, "GET /id/r0/handle/0/body", &[], "", 200, json!("one"));
}

// Caddy's API documentation, "Concurrent config changes": the ETag holds a path and a hash; If-Match with another hash
// gets 412.
#[test]
fn etag_and_if_match() {
    let (_directory, _server, _, admin) = start();
    let tag = |path: &str| call(admin, &format!("GET {path}"), &[], "").field("ETag").unwrap();
    let etag = tag("/config/apps");
    let (path, hash) = etag.trim_matches('"').split_once(' ').unwrap();
    assert_eq!((path, hash.len()), ("/config/apps", 16), "{etag}");
    assert_eq!(tag("/id/r0").split(' ').next(), Some(&*format!("\"{ROUTES}/0")));
    let body = "PATCH /id/r0/handle/0/body";
    for (if_match, status, want) in [
        ("bad", 400, "malformed If-Match header; expect quoted string"),
        ("\"bad\"", 400, "malformed If-Match header; expect format \"<path> <hash>\""),
        ("\"/config/ abc\"", 412, "If-Match header did not match current config hash"),
        ("\"/config/a/b/c abc\"", 500, "invalid traversal path at: config/a/b"),
    ] {
        for value in ["\"two\"", "{bad"] {
            check(admin, body, &[&format!("If-Match: {if_match}")], value, status, json!(want));
        }
    }
    check(admin, body, &[&format!("If-Match: {etag}")], "\"two\"", 200, json!(""));
    // The change altered the hash. The new tag matches, and so does the tag of a path that did not change.
    let listen = tag(LISTEN);
    let words = "If-Match header did not match current config hash";
    check(admin, body, &[&format!("If-Match: {etag}")], "\"three\"", 412, json!(words));
    check(admin, body, &[&format!("If-Match: {}", tag("/config/apps"))], "\"three\"", 200, json!(""));
    check(admin, body, &[&format!("If-Match: {listen}")], "\"four\"", 200, json!(""));
    check(admin, "GET /id/r0/handle/0/body", &[], "", 200, json!("four"));
}

// admin.go: Host must be trusted, and so must Origin if there is one; no-cors, `null` and WebSocket are refused.
#[test]
fn refused_hosts_and_origins() {
    let (_directory, mut server, _, admin) = start();
    let ours = format!("Origin: http://localhost:{admin}");
    let line = format!("GET {LISTEN}");
    for (fields, status, want) in [
        (&["Host: evil.example"][..], 403, json!("host not allowed: evil.example")),
        (&["Host: localhost"], 403, json!("host not allowed: localhost")),
        (&["Host: localhost:1"], 403, json!("host not allowed: localhost:1")),
        (&[&format!("Host: 127.0.0.1:{admin}")], 200, json!(["127.0.0.1:0"])),
        (&[&format!("Host: [::1]:{admin}")], 200, json!(["127.0.0.1:0"])),
        (&[&format!("Host: LOCALHOST:{admin}")], 200, json!(["127.0.0.1:0"])),
        (
            &["Origin: http://evil.example"],
            403,
            json!("client is not allowed to access from origin 'http://evil.example'"),
        ),
        (&["Origin: null"], 400, json!("Buggy browser is sending null Origin header.")),
        (&[&ours], 200, json!(["127.0.0.1:0"])),
        (&["Sec-Fetch-Mode: cors"], 403, json!("client is not allowed to access from origin ''")),
        (&["Sec-Fetch-Mode: cors", &format!("Referer: http://localhost:{admin}/x?y")], 200, json!(["127.0.0.1:0"])),
        (&["Sec-Fetch-Mode: no-cors"], 400, json!("Disabling same-origin restrictions is not allowed.")),
        (&["Upgrade: websocket", "Connection: upgrade"], 400, json!("WebSocket connections aren't allowed.")),
        (
            &[&format!("Origin: http://localhost:{admin}@evil.example")],
            403,
            json!("required Origin header is missing or invalid"),
        ),
    ] {
        check(admin, &line, fields, "", status, want);
    }
    let answer = call(admin, &line, &[&ours], "");
    assert_eq!(answer.field("Access-Control-Allow-Origin"), Some(format!("http://localhost:{admin}")));
    let preflight = call(admin, "OPTIONS /load", &[&ours], "");
    assert_eq!(
        preflight.field("Access-Control-Allow-Methods").as_deref(),
        Some("OPTIONS, GET, POST, PUT, PATCH, DELETE")
    );
    // The log names a refused client, and a line break in its path cannot forge another line.
    let line = server.line_with("admin API: GET /config/apps/http/servers/a/listen from 127.0.0.1:");
    assert!(line.contains(r#""level":"warn""#) && line.contains(r#""logger":"admin.api""#), "{line}");
    check(admin, "DELETE /id/a%0aCauseway%20serves", &[], "", 404, json!("unknown object ID 'a\nCauseway serves'"));
    let line = server.line_with("DELETE /id/a");
    assert!(line.contains(r"unknown object ID 'a\\nCauseway serves'"), "{line}");
}

// Caddy's documentation of `admin.origins` and `admin.enforce_origin`.
#[test]
fn configured_origins() {
    let (_directory, _server, _, admin) = start();
    let rules = r#"{"listen": "localhost:0", "enforce_origin": true, "origins": ["http://a.example", "b.example:1"]}"#;
    check(admin, "PUT /config/admin", &[], rules, 200, json!(""));
    for (host, origin, status) in [
        ("a.example", "http://a.example", 200),
        ("a.example", "https://a.example", 403),
        ("b.example:1", "https://b.example:1", 200),
        ("b.example", "http://b.example:1", 403),
        ("localhost", "http://a.example", 403),
    ] {
        let answer = call(admin, "GET /config/apps", &[&format!("Host: {host}"), &format!("Origin: {origin}")], "");
        assert_eq!(answer.status, status, "{host} {origin}");
    }
    let words = "client is not allowed to access from origin ''";
    check(admin, "GET /config/apps", &["Host: a.example"], "", 403, json!(words));
}

// Caddy's API documentation, `POST /adapt`: the response is `{"warnings": […], "result": …}`, and no configuration is
// loaded.
#[test]
fn adapting() {
    let (_directory, _server, site, admin) = start();
    let caddyfile = "Content-Type: text/caddyfile";
    let adapted = call(admin, "POST /adapt", &[caddyfile], ":8080\nfs other\n");
    assert_eq!(adapted.status, 200, "{}", adapted.body);
    let adapted: Value = serde_json::from_str(&adapted.body).unwrap();
    assert_eq!(adapted["result"]["apps"]["http"]["servers"]["srv0"]["listen"], json!([":8080"]));
    check(admin, "POST /adapt", &[JSON], "{\"a\": 1}", 200, json!({ "result": { "a": 1 } }));
    for (kind, body, want) in [
        (
            "text/caddyfile",
            ":8080 {\n\trespnd hi\n}\n",
            "adapting config using caddyfile adapter: Caddyfile:2:2: unrecognized directive: respnd (did you mean \
             \"respond\"?); expected a directive\nCaddyfile:2: unrecognized directive: respnd",
        ),
        ("text/nginx", "x", "unrecognized config adapter 'nginx'"),
        ("nginx", "x", "malformed Content-Type"),
        (
            "application/json",
            "{",
            "decoding request body: EOF while parsing an object at line 1 column 1, expected JSON",
        ),
    ] {
        check(admin, "POST /adapt", &[&format!("Content-Type: {kind}")], body, 400, json!(want));
    }
    assert_eq!(get(site, "/").body, "one");
}

/// A Caddyfile's warnings are part of the response, for `/adapt` and `/load`.
#[test]
fn warnings() {
    let (directory, _server, _, admin) = start();
    let caddyfile = "Content-Type: text/caddyfile; charset=utf-8";
    // An import without a matching file is accepted with a warning.
    let none = directory.path("none/*").display().to_string();
    let body = format!("{{\n\tadmin localhost:0\n}}\nimport {none}\nhttp://127.0.0.1:0 {{\n\trespond two\n}}\n");
    for path in ["/adapt", "/load"] {
        let answer = call(admin, &format!("POST {path}"), &[caddyfile], &body);
        let value: Value = serde_json::from_str(&answer.body).unwrap_or_else(|_| panic!("{path}: {}", answer.body));
        assert_eq!(answer.status, 200, "{path}: {value}");
        let warnings = value["warnings"].as_array().unwrap();
        let warned = warnings.iter().find(|warning| warning["line"] == 4).unwrap_or_else(|| panic!("{warnings:?}"));
        assert_eq!(warned["file"], "Caddyfile");
        assert!(warned["message"].as_str().unwrap().contains("none"), "{warned}");
    }
}

/// The last loaded configuration is saved for `--resume`, readable by its owner only.
#[test]
fn the_configuration_is_kept() {
    let (directory, _server, _, admin) = start();
    let path = directory.path(".config/causeway/autosave.json");
    let kept = || serde_json::from_slice::<Value>(&std::fs::read(&path).unwrap()).unwrap();
    assert_eq!(kept(), serde_json::from_str::<Value>(CONFIG).unwrap());
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    check(admin, "PATCH /id/r0/handle/0/body", &[], "\"two\"", 200, json!(""));
    assert_eq!(kept()["apps"]["http"]["servers"]["a"]["routes"][0]["handle"][0]["body"], "two");
    check(admin, "PUT /config/admin", &[], r#"{"config": {"persist": false}}"#, 200, json!(""));
    check(admin, "PATCH /id/r0/handle/0/body", &[], "\"three\"", 200, json!(""));
    assert_eq!(kept()["apps"]["http"]["servers"]["a"]["routes"][0]["handle"][0]["body"], "two");
    let files = std::fs::read_dir(path.parent().unwrap()).unwrap().count();
    assert_eq!(files, 1, "a temporary file is left beside it");
}

#[test]
fn commands_without_a_configuration_have_no_api() {
    let directory = Directory::new();
    for arguments in [
        &["respond", "--listen", "127.0.0.1:0", "hi"][..],
        &["file-server", "--listen", "127.0.0.1:0"],
        &["run", "--listen", "127.0.0.1:0"],
    ] {
        let mut command = directory.command(arguments);
        // An address that no process on this machine can bind.
        command.env("CADDY_ADMIN", "192.0.2.1:1");
        drop(ServerProcess::start(command));
    }
    assert!(!directory.path(".config").exists());
}
