//! Loads on a running server: either the whole new configuration takes effect, or the old one stays unchanged.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::PermissionsExt as _;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use causeway_testkit::ports::free_port;
use serde_json::{Value, json};

use crate::client::{ReceivedResponse, connect, get, send, send_body};
use crate::process::{Directory, ServerProcess};

/// A configuration with one site that responds with `body`, on a port that the system chose at the start.
fn config(body: &str) -> Value {
    json!({ "apps": { "http": { "servers": { "s": {
        "listen": ["127.0.0.1:0"],
        "routes": [{ "handle": [{ "handler": "static_response", "body": body }] }],
    } } } } })
}

#[track_caller]
fn start() -> (Directory, ServerProcess, u16, u16) {
    let directory = Directory::with(&[("config.json", &config("old").to_string())]);
    let mut server = directory.start(&["run", "--config", "config.json", "--workers", "2"]);
    let (site, admin) = (server.port(), server.admin_port());
    (directory, server, site, admin)
}

#[track_caller]
fn load(admin: u16, kind: &str, body: &str) -> ReceivedResponse {
    let fields = [&*format!("Host: localhost:{admin}"), &format!("Content-Type: {kind}")];
    send_body(admin, "POST /load", &fields, body)
}

#[track_caller]
fn read(admin: u16, path: &str) -> Value {
    let answer = send(admin, &format!("GET {path}"), &[&format!("Host: localhost:{admin}")]);
    serde_json::from_str(&answer.body).unwrap_or_else(|_| panic!("{answer:?}"))
}

#[test]
fn json_and_caddyfile() {
    let (_directory, _server, site, admin) = start();
    let answer = load(admin, "application/json", &config("new").to_string());
    assert_eq!((answer.status, &*answer.body), (200, ""));
    assert_eq!(get(site, "/").body, "new");
    let caddyfile = "http://:0 {\n\tbind 127.0.0.1\n\trespond {$NOBODY:newest}\n}\n";
    let answer = load(admin, "text/caddyfile", caddyfile);
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert_eq!(get(site, "/").body, "newest");
    assert_eq!(read(admin, "/config/apps/http/servers/srv0/listen"), json!(["127.0.0.1:0"]));
}

/// After any failure, the sites, the API and the configuration are unchanged.
#[test]
fn a_load_that_fails_changes_nothing() {
    let (_directory, _server, site, admin) = start();
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let taken = taken.local_addr().unwrap();
    let in_use = format!("listening on {taken}: the port is in use already");
    let mut elsewhere = config("new");
    elsewhere["apps"]["http"]["servers"]["t"] = json!({ "listen": [taken.to_string()] });
    let mut admin_elsewhere = config("new");
    admin_elsewhere["admin"] = json!({ "listen": taken.to_string() });
    let mut both = config("new");
    let free = free_port();
    both["admin"] = json!({ "listen": format!("127.0.0.1:{free}") });
    both["apps"]["http"]["servers"]["t"] = json!({ "listen": [taken.to_string()] });
    // A site on the API's current address, and the API on a site's address.
    let mut on_the_api = config("new");
    on_the_api["admin"] = json!({ "listen": format!("127.0.0.1:{admin}") });
    on_the_api["apps"]["http"]["servers"]["t"] = json!({ "listen": [format!(":{admin}")] });
    let mut on_the_site = config("new");
    on_the_site["admin"] = json!({ "listen": format!("127.0.0.1:{site}") });
    let new = "loading config: loading new config: ";
    for (kind, body, want) in [
        ("application/json", String::new(), "loading config: found an empty body, expected a configuration".to_owned()),
        (
            "application/json",
            "{".into(),
            "loading config: decoding request body: EOF while parsing an object at line 1 column 1, expected JSON".into(),
        ),
        (
            "application/json",
            "{\"aps\": 1}".into(),
            format!("{new}aps: unknown field `aps`, expected one of `admin`, `logging`, `storage`, `apps`"),
        ),
        (
            "application/json",
            config("new").to_string().replace("static_response", "teapot"),
            format!(
                "{new}apps.http.servers.s.routes[0].handle[0]: handler module 'teapot' is not supported (docs/refused.md)"
            ),
        ),
        ("application/json", elsewhere.to_string(), format!("{new}{in_use}")),
        (
            "application/json",
            on_the_api.to_string(),
            format!("{new}listening on :{admin}: the admin API is on 127.0.0.1:{admin}; move one of them first"),
        ),
        (
            "application/json",
            on_the_site.to_string(),
            format!(
                "{new}listening on 127.0.0.1:{site}: the admin API is on 127.0.0.1:{site}; move one of them first"
            ),
        ),
        ("application/json", both.to_string(), format!("{new}{in_use}")),
        (
            "application/json",
            admin_elsewhere.to_string(),
            format!(
                "{new}the admin API cannot listen on {taken}: the port is in use already; choose another with \
                 the global option `admin`, with `admin off`, or with CADDY_ADMIN"
            ),
        ),
        (
            "application/json",
            "{\"admin\": {\"remote\": {}}}".into(),
            format!("{new}admin.remote: found 'no identity', expected an `admin.identity` with one of `identifiers` at least"),
        ),
        (
            "text/caddyfile",
            ":0 {\n\trespnd hi\n}\n".into(),
            "adapting config using caddyfile adapter: Caddyfile:2:2: unrecognized directive: respnd (did you mean \
             \"respond\"?); expected a directive\nCaddyfile:2: unrecognized directive: respnd"
                .into(),
        ),
        (
            "text/caddyfile",
            "{\n\tstorage consul\n}\n:0\n".into(),
            "adapting config using caddyfile adapter: Caddyfile:2:10: parsing caddyfile tokens for 'storage': module \
             'caddy.storage.consul' is not supported (docs/refused.md)".into(),
        ),
        (
            "text/caddyfile",
            "*.example.com\nrespond hi\n".into(),
            "loading config: Caddyfile:1:1: *.example.com needs the DNS challenge of a public authority; expected a DNS provider in \
             it, as `tls { dns PROVIDER TOKEN }`, or for all sites, as the option `acme_dns PROVIDER TOKEN`; or names without '*', \
             `tls internal` or `tls CERTIFICATE KEY`, or an address without TLS, such as http://*.example.com"
                .into(),
        ),
        (
            "text/caddyfile",
            ":0\nbind unixgram//run/x\nrespond hi\n".into(),
            "loading config: Caddyfile:2:6: found 'unixgram//run/x', expected unix/PATH: HTTP needs a Unix socket of streams"
                .into(),
        ),
    ] {
        let answer = load(admin, kind, &body);
        let error: Value = serde_json::from_str(&answer.body).unwrap_or_else(|_| panic!("{answer:?}"));
        assert_eq!((answer.status, &error["error"]), (400, &json!(want)), "{body}");
        assert_eq!(get(site, "/").body, "old", "{body}");
        assert_eq!(read(admin, "/config/"), config("old"), "{body}");
    }
    assert!(
        std::net::TcpStream::connect((Ipv4Addr::LOCALHOST, free)).is_err(),
        "the API listens on the address of a refused configuration"
    );
}

/// An idle connection survives a load; its next request uses the new configuration.
#[test]
fn a_connection_survives_a_load() {
    let (_directory, _server, site, admin) = start();
    let mut stream = connect(site);
    let mut send_request = |body: &str| {
        stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(format!("\r\n\r\n{body}").as_bytes()) {
            let mut bytes = [0; 512];
            let count = stream.read(&mut bytes).unwrap();
            assert!(count > 0, "closed after {:?}", String::from_utf8_lossy(&answer));
            answer.extend_from_slice(&bytes[..count]);
        }
    };
    send_request("old");
    assert_eq!(load(admin, "application/json", &config("new").to_string()).status, 200);
    send_request("new");
}

/// No request fails while one or several clients load configurations.
#[test]
fn loads_under_traffic() {
    let (_directory, _server, site, admin) = start();
    let over = AtomicBool::new(false);
    let served = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    let answer = get(site, "/");
                    assert_eq!(answer.status, 200);
                    assert!(answer.body == "old" || answer.body.starts_with("new"), "{}", answer.body);
                    served.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let loaders: Vec<_> = (0..4)
            .map(|loader| {
                scope.spawn(move || {
                    for round in 0..10 {
                        let body = config(&format!("new {loader} {round}")).to_string();
                        assert_eq!(load(admin, "application/json", &body).status, 200);
                    }
                })
            })
            .collect();
        loaders.into_iter().for_each(|loader| loader.join().unwrap());
        over.store(true, Ordering::Relaxed);
    });
    assert!(served.into_inner() > 0);
    // The API returns the configuration that is served.
    let body = read(admin, "/config/apps/http/servers/s/routes/0/handle/0/body");
    assert_eq!(json!(get(site, "/").body), body);
    assert!(body.as_str().unwrap().ends_with(" 9"), "{body}: each loader's last load came after its others");
}

/// The response to the request that moves the API is still sent; then the old address is closed.
#[test]
fn the_api_moves() {
    let (_directory, mut server, site, admin) = start();
    let port = free_port();
    let mut moved = config("moved");
    moved["admin"] = json!({ "listen": format!("127.0.0.1:{port}") });
    assert_eq!(load(admin, "application/json", &moved.to_string()).status, 200);
    server.line_with(&format!("the admin API is on http://127.0.0.1:{port} now"));
    assert_eq!(get(site, "/").body, "moved");
    assert_eq!(read(port, "/config/"), moved);
    let begun = Instant::now();
    while std::net::TcpStream::connect((Ipv4Addr::LOCALHOST, admin)).is_ok() {
        assert!(begun.elapsed() < Duration::from_secs(5), "the old place is still open");
        std::thread::sleep(Duration::from_millis(5));
    }
    // With the API off, no further change is possible.
    moved["admin"] = json!({ "disabled": true });
    assert_eq!(load(port, "application/json", &moved.to_string()).status, 200);
    server.line_with("the admin API is off now");
    assert_eq!(get(site, "/").body, "moved");
}

/// The API moves on one port to an address that covers the old one, and back.
#[test]
fn the_api_moves_on_its_port() {
    let (_directory, mut server, _, admin) = start();
    let port = free_port();
    for (asked, place) in
        [(admin, format!("127.0.0.1:{port}")), (port, format!(":{port}")), (port, format!("127.0.0.1:{port}"))]
    {
        let mut moved = config("moved");
        moved["admin"] = json!({ "listen": place });
        let answer = load(asked, "application/json", &moved.to_string());
        assert_eq!(answer.status, 200, "{place}: {}", answer.body);
        server.line_with(&format!(":{port} now"));
        assert_eq!(read(port, "/config/admin/listen"), json!(place));
    }
}

/// The permission bits of the API's Unix socket change with the configuration. The socket stays open.
#[test]
fn the_permissions_of_the_api() {
    // Not in the test's directory, whose path may be longer than a socket's.
    let socket = std::env::temp_dir().join(format!("causeway-api-bits-{}", std::process::id()));
    let _ = std::fs::remove_file(&socket);
    let directory = Directory::new();
    let mut server = None;
    for mode in ["0600", "0660", "0200"] {
        let caddyfile =
            format!("{{\n\tadmin \"unix/{}|{mode}\"\n}}\nhttp://:0 {{\n\trespond {mode}\n}}\n", socket.display());
        directory.write("Caddyfile", caddyfile);
        match server {
            None => server = Some(directory.start(&["run"])),
            Some(_) => {
                let reload = directory.output(&["reload"]);
                assert!(reload.status.success(), "{mode}: {}", String::from_utf8_lossy(&reload.stderr));
            }
        }
        let bits = std::fs::metadata(&socket).unwrap().permissions().mode() & 0o777;
        assert_eq!(format!("{bits:04o}"), mode);
    }
}

/// A removed site's listener is closed, an added site's is open.
#[test]
fn sites_are_added_and_removed() {
    let (_directory, _server, site, admin) = start();
    let port = free_port();
    let moved = config("moved").to_string().replace("127.0.0.1:0", &format!("127.0.0.1:{port}"));
    assert_eq!(load(admin, "application/json", &moved).status, 200);
    assert_eq!(get(port, "/").body, "moved");
    let begun = Instant::now();
    while std::net::TcpStream::connect((Ipv4Addr::LOCALHOST, site)).is_ok() {
        assert!(begun.elapsed() < Duration::from_secs(5), "the old site is still open");
        std::thread::sleep(Duration::from_millis(5));
    }
    let answer = send(admin, "DELETE /config/", &[&format!("Host: localhost:{admin}")]);
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert_eq!(read(admin, "/config/"), Value::Null);
    assert!(std::net::TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err());
}

/// An unchanged configuration is not loaded again, unless the request forces it.
#[test]
fn an_unchanged_configuration() {
    let (_directory, mut server, _, admin) = start();
    let host = format!("Host: localhost:{admin}");
    let json = "Content-Type: application/json";
    // The order of an object's members is irrelevant.
    let same = config("old").to_string().replace("\"body\":\"old\",", "");
    let same = same.replace("\"handler\":", "\"body\":\"old\",\"handler\":");
    assert_eq!(send_body(admin, "POST /load", &[&host, json], &same).status, 200);
    server.line_with("the configuration is unchanged");
    let again = [&*host, json, "Cache-Control: must-revalidate"];
    assert_eq!(send_body(admin, "POST /load", &again, &same).status, 200);
    // The line of the first request, and then those of the second.
    let next = server.next_line();
    assert!(next.contains("admin API: POST /load from 127.0.0.1:"), "{next}");
    assert!(server.next_line().contains("serving another configuration"));
}

/// A configuration's `debug` level applies once it is loaded.
#[test]
fn the_level_changes_with_the_configuration() {
    let (_directory, mut server, _, admin) = start();
    let mut loud = config("loud");
    loud["logging"] = json!({ "logs": { "default": { "level": "DEBUG" } } });
    assert_eq!(load(admin, "application/json", &loud.to_string()).status, 200);
    read(admin, "/config/admin");
    let line = server.line_with("admin API: GET /config/admin from 127.0.0.1:");
    assert!(line.contains(r#""level":"debug""#), "{line}");
}

// An absent root is nearly always a mistake. The client of the admin API may be a script, so the warning is also
// logged.
#[test]
fn a_root_that_cannot_be_read() {
    let (_directory, mut server, _, admin) = start();
    let found =
        "found the root 'nowhere', expected a directory that can be read: No such file or directory (os error 2)";
    let answer = load(admin, "text/caddyfile", "http://:0 {\n\tbind 127.0.0.1\n\troot nowhere\n\tfile_server\n}\n");
    assert_eq!(answer.status, 200, "{}", answer.body);
    let want = json!({ "warnings": [{ "file": "Caddyfile", "line": 3, "message": found }] });
    assert_eq!(serde_json::from_str::<Value>(&answer.body).unwrap(), want);
    let line = server.line_with(&format!("Caddyfile:3:7: {found}"));
    assert!(line.contains(r#""level":"warn""#), "{line}");

    let mut json = config("new");
    json["apps"]["http"]["servers"]["s"]["routes"][0]["match"] = json!([{ "file": { "root": "nowhere" } }]);
    assert_eq!(load(admin, "application/json", &json.to_string()).status, 200);
    let line = server.line_with("the loaded JSON:1:");
    assert!(line.contains(found), "{line}");
}

/// A server that is stopping loads no configuration.
#[test]
fn a_load_during_shutdown() {
    let mut announced = config("old");
    announced["apps"]["http"]["shutdown_delay"] = json!("2s");
    let directory = Directory::with(&[("config.json", &announced.to_string())]);
    let mut server = directory.start(&["run", "--config", "config.json"]);
    let admin = server.admin_port();
    server.signal(rustix::process::Signal::TERM);
    server.line_with("Stopping in 2 s");
    let answer = load(admin, "application/json", &config("new").to_string());
    let error: Value = serde_json::from_str(&answer.body).unwrap();
    let words = "loading config: loading new config: the server is stopping, or another process has taken its place";
    assert_eq!((answer.status, &error["error"]), (503, &json!(words)));
    assert_eq!(get(server.port(), "/").body, "old");
}

#[test]
fn a_body_beyond_the_limit() {
    let (_directory, _server, site, admin) = start();
    let head = format!(
        "POST /load HTTP/1.1\r\nHost: localhost:{admin}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        65 << 20
    );
    let mut stream = connect(admin);
    stream.write_all(head.as_bytes()).unwrap();
    let block = vec![b' '; 1 << 20];
    // The server responds and closes while the client is still sending.
    for _ in 0..65 {
        if stream.write_all(&block).is_err() {
            break;
        }
    }
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 413");
    assert_eq!(get(site, "/").body, "old");
}

// A list is not an object, although serde can read it as an object's fields in order: `[]` would serve no site.
#[test]
fn a_list_is_not_a_configuration() {
    let (_directory, _server, site, admin) = start();
    for (config, place) in
        [("[]", "."), ("[null, null]", "."), (r#"{"apps": {"http": []}}"#, "apps.http"), (r#"{"admin": []}"#, "admin")]
    {
        let answer = load(admin, "application/json", config);
        assert_eq!(answer.status, 400, "{config}");
        let want = format!("{place}: found a list, expected an object");
        assert!(answer.body.contains(&want), "{config}: {}", answer.body);
        assert_eq!(get(site, "/").body, "old");
    }
}

// After many loads under traffic only one plan is left, and the numbers of descriptors and threads have not grown.
#[test]
fn loads_leave_no_resources() {
    let (_directory, server, site, admin) = start();
    let status = |admin| read(admin, "/causeway/status");
    let held = |pid: u32, what: &str| std::fs::read_dir(format!("/proc/{pid}/{what}")).unwrap().count();
    let pid = server.pid();
    let mut settled = None;
    for round in 0..60 {
        let body = format!("round {round}");
        assert_eq!(load(admin, "application/json", &config(&body).to_string()).status, 200);
        assert_eq!(get(site, "/").body, body);
        if round == 20 {
            settled = Some((held(pid, "fd"), held(pid, "task")));
        }
    }
    let end = Instant::now() + Duration::from_secs(10);
    while status(admin)["live_plans"] != 1 || status(admin)["connections"] != 0 {
        assert!(Instant::now() < end, "{}", status(admin));
        std::thread::sleep(Duration::from_millis(20));
    }
    let (files, threads) = settled.unwrap();
    // The requesting connection may or may not be counted; threads of the blocking pools start and end.
    assert!(held(pid, "fd") <= files + 4, "{} descriptors, {files} before", held(pid, "fd"));
    assert!(held(pid, "task") <= threads + 4, "{} threads, {threads} before", held(pid, "task"));
    assert_eq!(status(admin)["panics"], 0);
}
