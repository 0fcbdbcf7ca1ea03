//! `--adapter nginx`: the configurations in `crates/nginx/tests/shapes`, adapted, validated, served, and compared with
//! nginx.
//!
//! In a shape `ROOT` stands for the test's directory, `UP1` and `UP2` for the ports of two upstreams. The tests replace
//! the ports 80 and 443 in `listen` by free ones, and put a shape without a block `http` into one.

mod directories;
mod error_pages;
mod random;
mod rules;
mod support;
mod upstreams;

use std::io::{Read as _, Write as _};
use std::net::TcpListener;

use support::*;

/// Paths of the requests to every shape, with its first host.
const PATHS: &[&str] = &[
    "/",
    "/index.html",
    "/page",
    "/page.html",
    "/missing",
    "/missing/deep?x=1",
    "/a",
    "/a/",
    "/a/b/x",
    "/a/x.txt",
    "/x.txt",
    "/b/",
    "/assets/app.css",
    "/assets/app.js",
    "/assets/none.css",
    "/private/",
    "/local/",
    "/blocked/",
    "/admin/",
    "/secret/",
    "/quiet/",
    "/.git/config",
    "/.well-known/x",
    "/.htaccess",
    "/files/a.txt",
    "/files/b/c.txt",
    "/one",
    "/data/a.txt",
    "/d/a.txt",
    "/api/users?q=1",
    "/api",
    "/strip/x",
    "/plain/x?y=2",
    "/ws/x",
    "/old",
    "/old/x",
    "/older",
    "/blog/x",
    "/temp/x?q=1",
    "/in/x?q=1",
    "/ext",
    "/re/x?q=1",
    "/br/page.html",
    "/exact",
    "/exactly",
    "/stop/x.php",
    "/stop/long/x",
    "/stop/long/x.php",
    "/stop/long/x.txt",
    "/stop/x.txt",
    "/x.php",
    "/pre",
    "/prefix/x",
    "/x.JPG",
    "/user/12",
    "/gone",
    "/text",
    "/created",
    "/see",
    "/url",
    "/teapot",
    "/forbidden/",
    "/maintenance.html",
    "/robots.txt",
    "/favicon.ico",
    "/hidden/x",
    "/go/x",
    "/kind",
    "/kind?debug=1",
    "/login",
    "/%61/",
    "/a/../page.html",
    "//page.html",
];

/// Hosts of the requests to every shape, with the path `/`.
const HOSTS: &[&str] = &[
    "example.com",
    "www.example.com",
    "a.example.com",
    "b.example.com",
    "app.example.com",
    "one.example.com",
    "two.example.com",
    "three.example.com",
    "x.three.example.com",
    "other.test",
];

/// Differences that are meant: the shape or `*`, the path or `*`, nginx's status, our status, and the reason.
const INTENDED_DIFFERENCES: &[(&str, &str, u16, u16, &str)] = &[
    ("*", "*", 403, 404, "a directory without an index; Caddy does not tell it from a missing file"),
    ("gone", "/", 405, 404, "a server without a root has no files"),
    ("proxy_variables", "/", 405, 404, "a server without a root has no files"),
    ("laravel", "/favicon.ico", 502, 404, "an error page of a program is not carried over, and named"),
    ("laravel", "/", 405, 404, "a directory without an index; Caddy does not tell it from a missing file"),
    ("program_indexes", "/", 405, 404, "a directory without an index; Caddy does not tell it from a missing file"),
    ("auth_request", "/secret/", 500, 502, "the status for an upstream that refuses"),
    ("*", "*", 301, 308, "the redirect to a directory's slash: Caddy's status, and a relative target"),
    ("redirect_origin", "/", 405, 301, "other methods than GET reach the rules of an index"),
    ("map_path", "/", 405, 403, "other methods than GET meet the access rules first"),
    ("php_index", "/a/../page.html", 200, 400, "'..' beside rules that join $request_uri to a path"),
    ("limit", "/login", 503, 429, "the status of RFC 6585 for too many requests"),
];

/// A server that answers every request with its line and some of its fields; runs until the test's process ends.
pub(crate) fn upstream() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { continue };
            std::thread::spawn(move || {
                let mut head = Vec::new();
                let mut byte = [0];
                while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|n| n > 0) {
                    head.push(byte[0]);
                }
                let head = String::from_utf8_lossy(&head).into_owned();
                let field = |name: &str| {
                    let of = |line: &str| {
                        let (key, value) = line.split_once(':')?;
                        key.eq_ignore_ascii_case(name).then(|| value.trim().to_owned())
                    };
                    head.lines().find_map(of).unwrap_or_default()
                };
                let line = head.lines().next().unwrap_or_default();
                let line = line.rsplit_once(' ').map_or(line, |(line, _)| line);
                // Ports of the two servers differ.
                let host = field("host").split(':').next().unwrap_or_default().to_owned();
                let body = format!("{line} host={host} ip={} fixed={}\n", field("x-real-ip"), field("x-fixed"));
                let answer = format!(
                    "HTTP/1.1 200 OK\r\nX-Up: 1\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
                    body.len()
                );
                let _ = stream.write_all(answer.as_bytes());
            });
        }
    });
    port
}

#[test]
fn every_shape_is_valid_and_formatted() {
    for (name, text) in shapes() {
        let directory = ShapeDirectory::new(&format!("valid-{name}"));
        if text.contains("ssl_certificate") && !create_certificate(&directory) {
            eprintln!("skipped: {name}: there is no openssl");
            continue;
        }
        std::fs::write(directory.0.join("nginx.conf"), complete(&text, &directory, [8080, 8443], 9001)).unwrap();
        let output =
            directory.causeway(&["validate", "--adapter", "nginx", "--config", "nginx.conf"]).output().unwrap();
        let caddyfile = directory
            .causeway(&["adapt", "--adapter", "nginx", "--config", "nginx.conf", "--to", "caddyfile"])
            .output()
            .unwrap();
        assert!(output.status.success(), "{name}: {}\n{}", words(&output), words(&caddyfile));
        assert!(!words(&output).contains("Warning"), "{name}: {}\n{}", words(&output), words(&caddyfile));
    }
}

/// Every line of a configuration has an effect, or is named with its place, on standard error and in the Caddyfile.
#[test]
fn a_line_without_an_equivalent_is_reported_twice() {
    let directory = ShapeDirectory::new("notes");
    std::fs::write(
        directory.0.join("nginx.conf"),
        "worker_processes 1;\nhttp {\n server {\n  listen 8080;\n  mirror /copy;\n }\n}\n",
    )
    .unwrap();
    let output = directory
        .causeway(&["adapt", "--adapter", "nginx", "--config", "nginx.conf", "--to", "caddyfile"])
        .output()
        .unwrap();
    let want = "nginx.conf:5: not carried over: \"mirror /copy\": requests are not copied to a second upstream\n";
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(stdout.contains(&format!("# {want}")), "{stdout}");
    assert!(stderr.contains(&format!("Note: {want}")), "{stderr}");
    assert!(stderr.contains("nginx.conf:1: not needed, as these only tune nginx itself: worker_processes"), "{stderr}");
}

/// Warnings would name lines of a text that the operator has not written.
#[test]
fn lines_of_the_caddyfile_are_not_warned_of() {
    let directory = ShapeDirectory::new("warnings");
    let lines = "set_real_ip_from 10.0.0.1; location / { proxy_set_header X-Forwarded-Proto $scheme; proxy_pass http://127.0.0.1:9001; }";
    std::fs::write(directory.0.join("nginx.conf"), format!("http {{ server {{ listen 8080; {lines} }} }}")).unwrap();
    let output = directory.causeway(&["adapt", "--adapter", "nginx", "--config", "nginx.conf"]).output().unwrap();
    assert!(output.status.success() && !words(&output).contains("Warning"), "{}", words(&output));
}

/// A server without TLS and with it is two sites, since only the second has a certificate.
#[test]
fn a_server_with_and_without_tls_is_two_sites() {
    let directory = ShapeDirectory::new("both-kinds");
    if !create_certificate(&directory) {
        eprintln!("skipped: there is no openssl");
        return;
    }
    let listens = "listen 80;\nlisten 443 ssl;\nlisten 127.0.0.1:8443 ssl;\nlisten 8080;\nlisten [::]:443;\n";
    let certificate = "ssl_certificate cert.pem;\nssl_certificate_key key.pem;\n";
    let text = format!("http {{\nserver {{\n{listens}server_name a.test;\n{certificate}root /srv;\n}}\n}}\n");
    std::fs::write(directory.0.join("nginx.conf"), text).unwrap();
    let command = |words: &[&str]| {
        directory.causeway(words).args(["--adapter", "nginx", "--config", "nginx.conf"]).output().unwrap()
    };
    let validated = command(&["validate"]);
    assert!(validated.status.success(), "{}", words(&validated));
    let caddyfile = words(&command(&["adapt", "--to", "caddyfile"]));
    let of = |head: &str| caddyfile.split_once(head).and_then(|(_, rest)| rest.split_once("\n}")).map(|(body, _)| body);
    let (plain, secure) = (of("\nhttp://a.test, "), of("\nhttps://a.test, "));
    assert!(plain.is_some_and(|body| !body.contains("tls ") && body.contains("root * /srv")), "{caddyfile}");
    assert!(secure.is_some_and(|body| body.contains("tls cert.pem key.pem")), "{caddyfile}");
    assert!(caddyfile.contains("a site cannot be without TLS on port 443"), "{caddyfile}");
}

#[test]
fn mistakes_name_their_line() {
    let directory = ShapeDirectory::new("mistakes");
    std::fs::write(directory.0.join("nginx.conf"), "http {\n server {\n").unwrap();
    let output = directory.causeway(&["adapt", "--adapter", "nginx", "--config", "nginx.conf"]).output().unwrap();
    assert_eq!(words(&output), "Error: nginx.conf:2: found no '}' for this block, expected one\n");
    std::fs::write(directory.0.join("Caddyfile"), ":80\n").unwrap();
    let output = directory.causeway(&["adapt", "--to", "caddyfile"]).output().unwrap();
    assert!(!output.status.success());
}

/// The adapted configuration answers as nginx does.
#[test]
fn responses_equal_those_of_nginx() {
    let Some(nginx) = installed_nginx() else { return };
    let up = upstream();
    let (mut equal, mut sent, mut differences) = (0, 0, Vec::new());
    let shapes = shapes();
    for (name, text) in
        shapes.iter().filter(|(_, text)| !text.contains("ssl_certificate") && !text.contains("grpc_pass"))
    {
        let directory = ShapeDirectory::new(name);
        let ([theirs, ours], _servers) = both(nginx, text, &directory, [up, up]);
        let host =
            text.split("server_name ").nth(1).and_then(|rest| rest.split([' ', ';']).next()).unwrap_or("example.com");
        let host = if matches!(host, "_") { "example.com" } else { host }.replace('*', "any");
        let mut requests: Vec<(&str, &str, &str)> = PATHS.iter().map(|path| ("GET", host.as_str(), *path)).collect();
        requests.extend(HOSTS.iter().map(|host| ("GET", *host, "/")));
        requests.extend([("HEAD", host.as_str(), "/"), ("OPTIONS", host.as_str(), "/"), ("POST", host.as_str(), "/")]);
        let before = differences.len();
        for (method, host, path) in requests {
            sent += 1;
            let (a, b) = (request(theirs, method, host, path), request(ours, method, host, path));
            let meant = INTENDED_DIFFERENCES.iter().any(|(shape, at, their_status, our_status, _)| {
                (*shape == "*" || shape == name)
                    && (*at == "*" || *at == path)
                    && (a.status, b.status) == (*their_status, *our_status)
            });
            if a != b && !meant {
                differences.push(format!("{name}: {method} {host} {path}\n  nginx    {a:?}\n  causeway {b:?}"));
            }
        }
        equal += usize::from(differences.len() == before);
    }
    eprintln!("{equal} of {} shapes are equal, in {sent} requests", shapes.len());
    assert!(differences.is_empty(), "{} differences:\n{}", differences.len(), differences.join("\n"));
}
