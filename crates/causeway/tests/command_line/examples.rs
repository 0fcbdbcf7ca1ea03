//! Every Caddyfile under `examples/` behaves as its comment describes.

use std::path::{Path, PathBuf};

use causeway_testkit::ports::free_port;

use crate::client::{connect, get, send, send_body};
use crate::http2::{program, stdout_of};
use crate::process::{Directory, ServerProcess};

const LOCALHOST: &str = "Host: localhost";

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").canonicalize().unwrap()
}

/// Serves an example on a port that the system chooses.
#[track_caller]
fn start(directory: &Directory, example: &str, variables: &[(&str, &str)]) -> ServerProcess {
    let mut command = directory.command(&["run", "--adapter", "caddyfile", "--config"]);
    command.arg(examples().join(example)).env("PORT", "0").env("ROOT", examples().join("static-site/site"));
    command.env_remove("USER_NAME").envs(variables.iter().copied());
    ServerProcess::start(command)
}

/// Sends requests to an example and compares status and body.
#[track_caller]
fn check(example: &str, cases: &[(&str, &[&str], u16, &str)]) {
    let directory = Directory::new();
    let server = start(&directory, example, &[]);
    for (line, fields, status, body) in cases {
        let answer = send(server.port(), line, &[&[LOCALHOST], *fields].concat());
        assert_eq!((answer.status, &*answer.body), (*status, *body), "{example}: {line} {fields:?}");
    }
}

/// Fails when an example has no test below.
#[test]
fn each_example_has_a_test() {
    let mut names: Vec<_> = std::fs::read_dir(examples())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| !name.ends_with(".md"))
        .collect();
    names.sort_unstable();
    let tested = [
        "admin.caddyfile",
        "basic-auth.caddyfile",
        "errors.caddyfile",
        "headers.caddyfile",
        "hello.caddyfile",
        "https.caddyfile",
        "map.caddyfile",
        "matchers.caddyfile",
        "own-certificate.caddyfile",
        "php.caddyfile",
        "placeholders.caddyfile",
        "routes.caddyfile",
        "sites.caddyfile",
        "spa.caddyfile",
        "static-site",
    ];
    assert_eq!(names, tested);
}

#[test]
fn hello() {
    check(
        "hello.caddyfile",
        &[("GET /", &[], 200, "Hello, 127.0.0.1!\n"), ("PUT /x", &[], 200, "Hello, 127.0.0.1!\n")],
    );
}

// The scripts themselves: `interop::php`. Without php-fpm a script's text is not sent.
#[test]
fn php() {
    let site = Directory::with(&[("index.php", "<?php secret();"), ("a.txt", "a file\n")]);
    let directory = Directory::new();
    let root = site.path("").display().to_string();
    let server = start(&directory, "php.caddyfile", &[("ROOT", &root), ("FPM", "unix//nowhere/php-fpm.sock")]);
    assert_eq!(get(server.port(), "/a.txt").body, "a file\n");
    for path in ["/", "/index.php", "/some/page", "/index.php/a", "/INDEX.PHP", "/index.php%20"] {
        let answer = get(server.port(), path);
        assert_eq!((answer.status, &*answer.body), (502, ""), "{path}");
    }
}

#[test]
fn static_site() {
    check(
        "static-site/Caddyfile",
        &[
            ("GET /notes/first.txt", &[], 200, "The first note.\n"),
            ("GET /drafts/third.txt", &[], 404, ""),
            ("GET /notes", &[], 308, ""),
        ],
    );
    let directory = Directory::new();
    let server = start(&directory, "static-site/Caddyfile", &[]);
    assert!(get(server.port(), "/").body.contains("<title>Causeway</title>"), "the index file");
    let listing = get(server.port(), "/notes/");
    assert_eq!(listing.field("Content-Type").as_deref(), Some("text/html; charset=utf-8"));
    assert!(listing.body.contains("first.txt") && listing.body.contains("second.txt"), "{}", listing.body);
}

#[test]
fn headers() {
    let directory = Directory::new();
    let server = start(&directory, "headers.caddyfile", &[]);
    for (path, cache) in [("/", "max-age=3600"), ("/api/x", "no-store")] {
        let answer = get(server.port(), path);
        assert_eq!((answer.status, &*answer.body), (200, "see my fields\n"));
        for (name, value) in [
            ("X-Content-Type-Options", Some("nosniff")),
            ("Referrer-Policy", Some("no-referrer")),
            ("Link", Some("</style.css>; rel=preload")),
            ("Server", None),
            ("Cache-Control", Some(cache)),
        ] {
            assert_eq!(answer.field(name).as_deref(), value, "{path}: {name}");
        }
    }
}

#[test]
fn matchers() {
    check(
        "matchers.caddyfile",
        &[
            ("GET /", &[], 200, "orders\n"),
            ("GET /", &["User-Agent: some-bot/1"], 403, "no robots\n"),
            ("POST /orders?dry=yes", &[], 200, "nothing was ordered\n"),
            ("PUT /orders/1?dry=yes", &[], 200, "nothing was ordered\n"),
            ("GET /orders?dry=yes", &[], 200, "orders\n"),
            ("POST /orders?dry=no", &[], 200, "orders\n"),
            ("GET /nope", &[], 404, "there is nothing here\n"),
        ],
    );
}

#[test]
fn sites() {
    let status_port = free_port();
    let directory = Directory::new();
    let server = start(&directory, "sites.caddyfile", &[("STATUS_PORT", &status_port.to_string())]);
    assert_eq!(server.ports.len(), 2, "{}", server.first_line);
    let port = *server.ports.iter().find(|port| **port != status_port).unwrap();
    for (host, status, body) in [
        ("blog.localhost", 200, "the blog\n"),
        ("WWW.blog.localhost:8080", 200, "the blog\n"),
        ("shop.localhost", 200, "some site called shop.localhost\n"),
        ("example.com", 404, "no site of this name\n"),
    ] {
        let answer = send(port, "GET /", &[&format!("Host: {host}")]);
        assert_eq!((answer.status, &*answer.body), (status, body), "{host}");
    }
    assert_eq!(get(status_port, "/health").body, "fine\n");
}

#[test]
fn errors() {
    check(
        "errors.caddyfile",
        &[
            ("GET /notes/first.txt", &[], 200, "The first note.\n"),
            ("GET /no-such-page", &[], 404, "/no-such-page: 404 Not Found\n"),
            ("GET /private/a", &[], 403, "/private/a: 403 Forbidden\n"),
        ],
    );
}

#[test]
fn placeholders() {
    let directory = Directory::new();
    let server = start(&directory, "placeholders.caddyfile", &[("USER_NAME", "Ada")]);
    let answer = send(server.port(), "GET /some/path?q=1", &["Host: a.example:81", "User-Agent: test"]);
    let want = "Hello from Ada\nGET /some/path?q=1 on a.example:81 by test\npath /some/path, query q=1, over http\n";
    assert_eq!(answer.body, want);
    let uuid = answer.field("X-Request-Id").unwrap();
    assert_eq!(uuid.split('-').map(str::len).collect::<Vec<_>>(), [8, 4, 4, 4, 12], "{uuid}");
    let without = start(&directory, "placeholders.caddyfile", &[]);
    assert!(get(without.port(), "/").body.starts_with("Hello from Causeway\n"));
}

#[test]
fn map() {
    let directory = Directory::new();
    let server = start(&directory, "map.caddyfile", &[]);
    for (host, path, body) in [
        ("api.localhost", "/v2/users", "interfaces: version 2\n"),
        ("red.shop.localhost", "/v1/", "shop red: version 1, which is old\n"),
        ("localhost", "/", "everybody else: no version\n"),
    ] {
        assert_eq!(send(server.port(), &format!("GET {path}"), &[&format!("Host: {host}")]).body, body, "{host}{path}");
    }
}

#[test]
fn basic_auth() {
    let (right, wrong) = ("Authorization: Basic YWRhOmNhdXNld2F5", "Authorization: Basic YWRhOndyb25n");
    check(
        "basic-auth.caddyfile",
        &[
            ("GET /", &[], 200, "everybody may read this\n"),
            ("GET /private/", &[], 401, ""),
            ("GET /private/", &[wrong], 401, ""),
            ("GET /private/", &[right], 200, "hello, ada\n"),
        ],
    );
}

#[test]
fn https() {
    let Some(curl) = program("curl") else { return };
    let directory = Directory::new();
    let http_port = free_port();
    let server = start(&directory, "https.caddyfile", &[("HTTP_PORT", &http_port.to_string())]);
    let port = server.ports.iter().find(|port| **port != http_port).unwrap();
    let root = directory.path(".local/share/causeway/pki/authorities/local/root.crt");
    let url = format!("https://localhost:{port}");
    for (version, body) in [("--http2", "HTTP/2.0 for localhost\n"), ("--http1.1", "HTTP/1.1 for localhost\n")] {
        assert_eq!(stdout_of(&curl, &["-sS", version, "--cacert", root.to_str().unwrap(), &url]), body);
    }
    assert_eq!(get(http_port, "/").status, 308);
}

#[test]
fn own_certificate() {
    let (Some(curl), Some(openssl)) = (program("curl"), program("openssl")) else { return };
    let directory = Directory::new();
    let [certificate, key] = ["cert.pem", "key.pem"].map(|name| directory.path(name).to_str().unwrap().to_owned());
    let make = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=site.localhost \
                -addext subjectAltName=DNS:site.localhost";
    let files = ["-keyout", &key, "-out", &certificate];
    stdout_of(&openssl, &make.split(' ').chain(files).collect::<Vec<_>>());
    let server = start(&directory, "own-certificate.caddyfile", &[("CERTIFICATE", &certificate), ("KEY", &key)]);
    let at = format!("site.localhost:{}", server.port());
    let (place, url) = (format!("{at}:127.0.0.1"), format!("https://{at}"));
    let arguments = ["-sS", "--resolve", &place, "--cacert", &certificate, &url];
    assert_eq!(stdout_of(&curl, &arguments), "the certificate is yours\n");
}

#[test]
fn spa() {
    let page = std::fs::read_to_string(examples().join("static-site/site/index.html")).unwrap();
    check(
        "spa.caddyfile",
        &[
            ("GET /some/view", &[], 200, &page),
            ("GET /notes/first.txt", &[], 200, "The first note.\n"),
            ("GET /assets/none.js", &[], 404, ""),
        ],
    );
}

#[test]
fn admin() {
    let directory = Directory::new();
    let mut server = start(&directory, "admin.caddyfile", &[("ADMIN_PORT", "0")]);
    let admin = server.admin_port();
    assert_eq!(get(server.port(), "/").body, "before\n");
    let line = "PATCH /config/apps/http/servers/srv0/routes/0/handle/0/body";
    let fields = [format!("Host: localhost:{admin}"), "Content-Type: application/json".to_owned()];
    let answer = send_body(admin, line, &fields.each_ref().map(String::as_str), "\"after\\n\"");
    assert_eq!((answer.status, &*answer.body), (200, ""));
    assert_eq!(get(server.port(), "/").body, "after\n");
}

#[test]
fn routes() {
    check(
        "routes.caddyfile",
        &[
            ("GET /api/users", &[], 200, "API: /users\n"),
            ("GET /start", &[], 200, "API: /start\n"),
            ("GET /v1/a?b=c", &[], 200, "version 1: /a?b=c\n"),
            ("GET /other", &[], 200, "everything else: /other\n"),
        ],
    );
    let directory = Directory::new();
    let server = start(&directory, "routes.caddyfile", &[]);
    let moved = get(server.port(), "/old/page");
    assert_eq!((moved.status, moved.field("Location").as_deref()), (301, Some("/new/")));
    let mut stream = connect(server.port());
    std::io::Write::write_all(&mut stream, b"GET /hang-up HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    // Closed or reset, without any byte of a response.
    let mut bytes = Vec::new();
    let _ = std::io::Read::read_to_end(&mut stream, &mut bytes);
    assert_eq!(bytes, b"");
}
