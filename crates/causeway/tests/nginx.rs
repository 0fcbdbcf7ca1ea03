//! `--adapter nginx`: the configurations in `crates/nginx/tests/shapes`, adapted, validated, and served beside nginx itself.
//!
//! In a shape `ROOT` stands for the test's folder, `UP1` and `UP2` for the ports of two upstreams. The tests replace the ports
//! 80 and 443 in `listen` by free ones, and put a shape without a block `http` into one.

use std::collections::HashMap;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use causeway_testkit::ports::free_port;

const PATIENCE: Duration = Duration::from_secs(20);

/// Files of every shape's folder.
const FILES: &[(&str, &str)] = &[
    ("www/index.html", "index\n"),
    ("www/page.html", "page\n"),
    ("www/404.html", "not here\n"),
    ("www/maintenance.html", "back soon\n"),
    ("www/assets/app.css", "body {}\n"),
    ("www/assets/app.js", "1;\n"),
    ("www/a/index.html", "a\n"),
    ("www/b/index.html", "b\n"),
    ("www/private/index.html", "private\n"),
    ("www/local/index.html", "local\n"),
    ("www/blocked/index.html", "blocked\n"),
    ("www/admin/index.html", "admin\n"),
    ("www/secret/index.html", "secret\n"),
    ("www/quiet/index.html", "quiet\n"),
    ("www/files/index.php", "<?php\n"),
    ("www/.git/config", "git\n"),
    ("www/.well-known/x", "known\n"),
    ("data/a.txt", "data a\n"),
    ("data/b/c.txt", "data c\n"),
    ("htpasswd", "ann:$2y$05$abcdefghijklmnopqrstuuR0vZ1R3Xc5mQJzq4Xv3dZ5yN5m8xW7K\nbob:$apr1$x$y\n"),
];

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

/// Fields of a response that are compared.
const FIELDS: &[&str] = &[
    "location",
    "x-outer",
    "x-always",
    "x-inner",
    "x-kind",
    "cache-control",
    "access-control-allow-origin",
    "x-up",
    "x-frame-options",
];

/// Differences that are meant: the shape or `*`, the path or `*`, nginx's status, our status, and the reason.
const MEANT: &[(&str, &str, u16, u16, &str)] = &[
    ("*", "*", 403, 404, "a folder without an index; Caddy does not tell it from a missing file"),
    ("gone", "/", 405, 404, "a server without a root has no files"),
    ("proxy_variables", "/", 405, 404, "a server without a root has no files"),
    ("map_redirect", "*", 301, 301, "a target from a variable stays relative"),
    ("laravel", "/favicon.ico", 502, 404, "an error page of a program is not carried over, and named"),
    ("laravel", "/", 405, 404, "a folder without an index; Caddy does not tell it from a missing file"),
    ("real_ip", "/api", 301, 301, "the redirect to a location's slash has no fields of 'add_header'"),
    ("auth_request", "/secret/", 500, 502, "the status for an upstream that refuses"),
    ("*", "*", 301, 308, "the redirect to a folder's slash: Caddy's status, and a relative target"),
    ("limit", "/login", 503, 429, "the status of RFC 6585 for too many requests"),
];

struct ShapeFolder(PathBuf);

impl ShapeFolder {
    fn new(name: &str) -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("nginx-{}-{name}", std::process::id()));
        for (file, text) in FILES {
            let file = path.join(file);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, text).unwrap();
        }
        Self(path)
    }

    fn causeway(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_causeway"));
        command.args(arguments).current_dir(&self.0).env("HOME", &self.0).env("CADDY_ADMIN", "localhost:0");
        command.env_remove("XDG_CONFIG_HOME").env_remove("XDG_DATA_HOME").stdin(Stdio::null());
        command
    }
}

impl Drop for ShapeFolder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.0);
        // nginx ends its workers only on a signal that it can handle.
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let _ = self.0.wait();
    }
}

fn shapes() -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../nginx/tests/shapes");
    let mut shapes: Vec<(String, String)> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.file_stem().unwrap().to_string_lossy().into_owned(), std::fs::read_to_string(path).unwrap()))
        .collect();
    shapes.sort();
    assert!(shapes.len() >= 40);
    shapes
}

/// A complete configuration of a shape.
fn complete(text: &str, folder: &ShapeFolder, ports: [u16; 2], upstream: u16) -> String {
    let at = folder.0.display().to_string();
    let text = text.replace("ROOT", &at).replace("UP1", &upstream.to_string()).replace("UP2", &upstream.to_string());
    let text = text.replace("listen 80", &format!("listen {}", ports[0]));
    let text =
        text.replace("listen 443", &format!("listen {}", ports[1])).replace("[::]:443", &format!("[::]:{}", ports[1]));
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|kind| format!("{kind}_temp_path {at}/tmp-{kind};\n"))
        .concat();
    let user = if rustix::process::getuid().is_root() { "user root;\n" } else { "" };
    let head = format!("{user}worker_processes 1;\npid {at}/nginx.pid;\nerror_log {at}/error.log;\nevents {{}}\n");
    let log = if text.contains("access_log") { String::new() } else { "access_log off;\n".to_owned() };
    match text.split_once("http {") {
        Some((_, inner)) => format!("{head}http {{\n{temporary}{log}{inner}"),
        None => format!("{head}http {{\n{temporary}{log}{text}}}\n"),
    }
}

/// A server that answers every request with its line and some of its fields; runs until the test's process ends.
fn upstream() -> u16 {
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

#[derive(Debug, PartialEq, Eq)]
struct Reply {
    status: u16,
    fields: Vec<(String, String)>,
    body: String,
}

fn request(port: u16, method: &str, host: &str, path: &str) -> Reply {
    request_with(port, (method, host, path), "", FIELDS)
}

/// Sends a request with further lines of fields, each with its line end, and returns the fields of these names.
fn request_with(port: u16, (method, host, path): (&str, &str, &str), lines: &str, names: &[&str]) -> Reply {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let port_text = format!(":{port}");
    write!(stream, "{method} {path} HTTP/1.1\r\nHost: {host}{port_text}\r\nConnection: close\r\n{lines}\r\n").unwrap();
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes);
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    let mut fields: Vec<(String, String)> = head
        .lines()
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().replace(&port_text, "")))
        .collect();
    let chunked = fields.iter().any(|(name, value)| name == "transfer-encoding" && value == "chunked");
    fields.retain(|(name, _)| names.contains(&name.as_str()));
    fields.sort();
    let mut body = if chunked { dechunked(body) } else { body.to_owned() };
    // nginx's own pages for errors and redirects; ours have no content.
    if body.contains("<center>nginx") || (300..400).contains(&status) {
        body.clear();
    }
    Reply { status, fields, body }
}

fn dechunked(mut body: &str) -> String {
    let mut out = String::new();
    while let Some((len, rest)) = body.split_once("\r\n") {
        let len = usize::from_str_radix(len, 16).unwrap_or(0);
        if len == 0 || rest.len() < len {
            break;
        }
        out += &rest[..len];
        body = rest[len..].trim_start_matches("\r\n");
    }
    out
}

fn start(mut command: Command, port: u16, log: &Path) -> Process {
    let file = std::fs::File::create(log).unwrap();
    let mut process = Process(command.stdout(Stdio::null()).stderr(file).spawn().unwrap());
    let begun = Instant::now();
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        let ended = process.0.try_wait().unwrap();
        let log = || std::fs::read_to_string(log).unwrap();
        assert!(ended.is_none() && begun.elapsed() < PATIENCE, "no server on port {port}: {}", log());
        std::thread::sleep(Duration::from_millis(5));
    }
    process
}

/// Whether the folder has a certificate for the shapes with TLS.
fn certificate(folder: &ShapeFolder) -> bool {
    let mut command = Command::new("openssl");
    command.args([
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
        "-days",
        "2",
        "-subj",
        "/CN=secure.example.com",
    ]);
    command
        .args(["-keyout", "key.pem", "-out", "cert.pem"])
        .current_dir(&folder.0)
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

fn words(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[test]
fn every_shape_is_valid_and_formatted() {
    for (name, text) in shapes() {
        let folder = ShapeFolder::new(&format!("valid-{name}"));
        if text.contains("ssl_certificate") && !certificate(&folder) {
            eprintln!("skipped: {name}: there is no openssl");
            continue;
        }
        std::fs::write(folder.0.join("nginx.conf"), complete(&text, &folder, [8080, 8443], 9001)).unwrap();
        let output = folder.causeway(&["validate", "--adapter", "nginx", "--config", "nginx.conf"]).output().unwrap();
        let caddyfile = folder
            .causeway(&["adapt", "--adapter", "nginx", "--config", "nginx.conf", "--to", "caddyfile"])
            .output()
            .unwrap();
        assert!(output.status.success(), "{name}: {}\n{}", words(&output), words(&caddyfile));
        assert!(!words(&output).contains("Warning"), "{name}: {}\n{}", words(&output), words(&caddyfile));
    }
}

/// Every line of a configuration has an effect, or is named with its place, on standard error and in the Caddyfile.
#[test]
fn a_line_without_an_equivalent_is_named_twice() {
    let folder = ShapeFolder::new("notes");
    std::fs::write(
        folder.0.join("nginx.conf"),
        "worker_processes 1;\nhttp {\n server {\n  listen 8080;\n  mirror /copy;\n }\n}\n",
    )
    .unwrap();
    let output = folder
        .causeway(&["adapt", "--adapter", "nginx", "--config", "nginx.conf", "--to", "caddyfile"])
        .output()
        .unwrap();
    let want = "nginx.conf:5: not carried over: \"mirror /copy\": requests are not copied to a second upstream\n";
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(stdout.contains(&format!("# {want}")), "{stdout}");
    assert!(stderr.contains(&format!("Note: {want}")), "{stderr}");
    assert!(stderr.contains("nginx.conf:1: not needed, as these only tune nginx itself: worker_processes"), "{stderr}");
}

/// A server without TLS and with it is two sites, since only the second has a certificate.
#[test]
fn a_server_with_both_kinds_of_addresses_is_two_sites() {
    let folder = ShapeFolder::new("both-kinds");
    if !certificate(&folder) {
        eprintln!("skipped: there is no openssl");
        return;
    }
    let listens = "listen 80;\nlisten 443 ssl;\nlisten 127.0.0.1:8443 ssl;\nlisten 8080;\nlisten [::]:443;\n";
    let certificate = "ssl_certificate cert.pem;\nssl_certificate_key key.pem;\n";
    let text = format!("http {{\nserver {{\n{listens}server_name a.test;\n{certificate}root /srv;\n}}\n}}\n");
    std::fs::write(folder.0.join("nginx.conf"), text).unwrap();
    let command = |words: &[&str]| {
        folder.causeway(words).args(["--adapter", "nginx", "--config", "nginx.conf"]).output().unwrap()
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
    let folder = ShapeFolder::new("mistakes");
    std::fs::write(folder.0.join("nginx.conf"), "http {\n server {\n").unwrap();
    let output = folder.causeway(&["adapt", "--adapter", "nginx", "--config", "nginx.conf"]).output().unwrap();
    assert_eq!(words(&output), "Error: nginx.conf:2: found no '}' for this block, expected one\n");
    std::fs::write(folder.0.join("Caddyfile"), ":80\n").unwrap();
    let output = folder.causeway(&["adapt", "--to", "caddyfile"]).output().unwrap();
    assert!(!output.status.success());
}

fn installed_nginx() -> Option<&'static str> {
    let nginx = ["/usr/sbin/nginx", "/usr/local/sbin/nginx", "/usr/bin/nginx"]
        .into_iter()
        .find(|path| Path::new(path).exists());
    if nginx.is_none() {
        eprintln!("skipped: there is no nginx (Debian: nginx-light)");
    }
    nginx
}

/// Starts nginx and Causeway with a shape, each with its upstream; returns their ports.
fn both(nginx: &str, text: &str, folder: &ShapeFolder, upstreams: [u16; 2]) -> ([u16; 2], [Process; 2]) {
    let (theirs, ours) = (free_port(), free_port());
    std::fs::write(folder.0.join("theirs.conf"), complete(text, folder, [theirs, 0], upstreams[0])).unwrap();
    std::fs::write(folder.0.join("ours.conf"), complete(text, folder, [ours, 0], upstreams[1])).unwrap();
    let mut command = Command::new(nginx);
    command.arg("-p").arg(&folder.0).arg("-c").arg(folder.0.join("theirs.conf")).args(["-g", "daemon off;"]);
    let of_nginx = start(command, theirs, &folder.0.join("theirs.log"));
    let command = folder.causeway(&["run", "--adapter", "nginx", "--config", "ours.conf"]);
    let of_causeway = start(command, ours, &folder.0.join("ours.log"));
    ([theirs, ours], [of_nginx, of_causeway])
}

/// The text of one shape.
fn shape(name: &str) -> String {
    shapes().into_iter().find(|(other, _)| other == name).unwrap().1
}

/// An upstream that counts the requests of each target. The last segment of the path decides the response: a status, or a name of
/// `KINDS`.
fn counting_upstream() -> u16 {
    const KINDS: &[(&str, &str)] = &[
        ("max-age", "Cache-Control: max-age=60\r\n"),
        ("no-store", "Cache-Control: no-store\r\n"),
        ("private", "Cache-Control: private, max-age=60\r\n"),
        ("no-cache", "Cache-Control: no-cache\r\n"),
        ("set-cookie", "Set-Cookie: a=b\r\n"),
        ("cookie-path", "Set-Cookie: a=b; Path=/app/x; Domain=app.test; HttpOnly\r\n"),
        ("cookie-other", "Set-Cookie: a=b; path=/apple; domain=myapp.test\r\n"),
        ("expires", "Expires: Thu, 01 Jan 2037 00:00:00 GMT\r\n"),
        ("expired", "Expires: Thu, 01 Jan 1990 00:00:00 GMT\r\n"),
        ("vary", "Vary: X-Kind\r\n"),
        ("vary-all", "Vary: *\r\n"),
        ("stale", "Cache-Control: max-age=1\r\n"),
        ("accel", "X-Accel-Redirect: /protected/a.txt\r\nContent-Disposition: attachment\r\nX-Inner: 1\r\n"),
        ("accel-none", "X-Accel-Redirect: /protected/none\r\nContent-Disposition: attachment\r\n"),
        ("accel-closed", "X-Accel-Redirect: /closed/x\r\n"),
    ];
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let mut counts: HashMap<String, u32> = HashMap::new();
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { continue };
            let mut head = Vec::new();
            let mut byte = [0];
            while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|n| n > 0) {
                head.push(byte[0]);
            }
            let head = String::from_utf8_lossy(&head).into_owned();
            let mut words = head.split(' ');
            let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
            let count = counts.entry(target.to_owned()).or_default();
            *count += 1;
            let path = target.split('?').next().unwrap_or_default();
            let kind = path.rsplit('/').next().unwrap_or_default();
            let status = match kind.parse::<u16>() {
                Ok(status) => status,
                Err(_) if kind == "stale" && *count > 1 => 503,
                Err(_) => 200,
            };
            if kind == "moved" {
                let host = head.lines().find_map(|line| line.strip_prefix("Host: ")).unwrap_or_default();
                let location = format!("http://{host}/inner/login?from={path}");
                let _ = write!(stream, "HTTP/1.1 302 X\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n");
                continue;
            }
            let fields = KINDS.iter().find(|(name, _)| *name == kind).map_or("", |(_, fields)| fields);
            let ip = head.lines().find_map(|line| line.strip_prefix("X-Real-IP: ")).unwrap_or_default();
            let body = format!("{method} {target} {count} {ip}\n");
            let len = body.len();
            let body = if method == "HEAD" { "" } else { &body };
            let _ = write!(
                stream,
                "HTTP/1.1 {status} X\r\n{fields}Content-Length: {len}\r\nConnection: close\r\n\r\n{body}"
            );
        }
    });
    port
}

/// Sends requests to both servers, each of which has an upstream of its own that counts, and compares the responses. Each case has the
/// method, the path, and lines of fields.
#[track_caller]
fn compare(name: &str, fields: &[&str], cases: &[(&str, &str, &str)]) {
    let folder = ShapeFolder::new(&format!("counts-{name}"));
    compare_in(&folder, name, fields, cases);
}

/// As [`compare`], in a folder of the caller's.
#[track_caller]
fn compare_in(folder: &ShapeFolder, name: &str, fields: &[&str], cases: &[(&str, &str, &str)]) {
    let Some(nginx) = installed_nginx() else { return };
    let ([theirs, ours], _servers) = both(nginx, &shape(name), folder, [counting_upstream(), counting_upstream()]);
    let mut differences = Vec::new();
    for (method, path, lines) in cases {
        if *method == "wait" {
            std::thread::sleep(Duration::from_millis(2100));
            continue;
        }
        let send = |port| request_with(port, (method, "example.com", path), lines, fields);
        let (a, b) = (send(theirs), send(ours));
        if a != b {
            differences.push(format!("{method} {path} {lines:?}\n  nginx    {a:?}\n  causeway {b:?}"));
        }
    }
    assert!(differences.is_empty(), "{name}: {} differences:\n{}", differences.len(), differences.join("\n"));
}

/// Responses are stored, answered from the store and updated as nginx does with the same `proxy_cache` lines.
#[test]
fn stored_responses_equal_those_of_nginx() {
    let kinds =
        "plain max-age no-store private no-cache set-cookie expires expired vary vary-all 404 302 301 500 410 503 203";
    let paths: Vec<String> = kinds
        .split(' ')
        .flat_map(|kind| {
            [
                format!("/{kind}"),
                format!("/{kind}"),
                format!("/api/{kind}"),
                format!("/api/{kind}?x=1"),
                format!("/private/{kind}"),
                format!("/hidden/{kind}?h"),
                format!("/hidden/{kind}?h"),
                format!("/uncached/{kind}"),
                format!("/uncached/{kind}"),
            ]
        })
        .collect();
    let mut cases: Vec<(&str, &str, &str)> = paths.iter().map(|path| ("GET", path.as_str(), "")).collect();
    cases.extend([
        ("HEAD", "/plain", ""),
        ("GET", "/v/vary", "X-Kind: a\r\n"),
        ("GET", "/v/vary", "X-Kind: b\r\n"),
        ("GET", "/v/vary", "X-Kind: a\r\n"),
        // Requests that skip the cache.
        ("GET", "/plain?fresh=1", ""),
        ("GET", "/plain?fresh=1", ""),
        ("GET", "/plain?fresh=0", ""),
        ("GET", "/plain?fresh=0", ""),
        ("GET", "/plain", "Cookie: session=1\r\n"),
        ("GET", "/plain", "Cookie: session=1\r\n"),
        ("GET", "/plain", ""),
        ("GET", "/api/max-age", "Authorization: x\r\n"),
        ("GET", "/api/max-age", "Authorization: x\r\n"),
        // The directives of requests do not count.
        ("GET", "/q/plain", "Cache-Control: no-cache\r\n"),
        ("GET", "/q/plain", "Cache-Control: no-cache\r\n"),
        ("GET", "/other/max-age", "Cookie: x=1\r\n"),
        ("GET", "/other/max-age", "Cookie: x=1\r\n"),
        // A stale response instead of 503.
        ("GET", "/stale", ""),
        ("GET", "/stale", ""),
        ("wait", "", ""),
        ("GET", "/stale", ""),
    ]);
    compare("cache", &["x-cache", "set-cookie"], &cases);
    // Hidden fields count for the cache, and added ones do not.
    let hidden = ["/hidden/max-age", "/hidden/no-store", "/hidden/plain"].map(|path| ("GET", path, ""));
    compare("cache", &["cache-control"], &[hidden, hidden].concat());
}

/// Answers one FastCGI request on each connection, with the head and content that `answer` makes of the parameters.
fn program(listener: &UnixListener, mut answer: impl FnMut(&dyn Fn(&str) -> String) -> String) {
    for stream in listener.incoming() {
        let Ok(mut stream) = stream else { continue };
        let mut parameters = Vec::new();
        // The head of a record: the version, the kind, two bytes of the request's number, two of the length, and the padding. The
        // last record has the kind 5 (content) and no length.
        let mut head = [0; 8];
        while stream.read_exact(&mut head).is_ok() {
            let len = usize::from(u16::from_be_bytes([head[4], head[5]]));
            let mut content = vec![0; len + usize::from(head[6])];
            stream.read_exact(&mut content).unwrap();
            match head[1] {
                4 => parameters.extend_from_slice(&content[..len]),
                5 if len == 0 => break,
                _ => {}
            }
        }
        let named = fastcgi_parameters(&parameters);
        let text = answer(&|name| named.get(name).cloned().unwrap_or_default());
        let [high, low] = u16::try_from(text.len()).unwrap().to_be_bytes();
        let _ = stream.write_all(&[1, 6, 0, 1, high, low, 0, 0]);
        let _ = stream.write_all(text.as_bytes());
        let _ = stream.write_all(&[1, 6, 0, 1, 0, 0, 0, 0, 1, 3, 0, 1, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    }
}

/// The content has the method, `REQUEST_URI`, and the number of the requests for this URI that the server with this `SERVER_PORT` has
/// sent.
fn counting_program(listener: &UnixListener) {
    let mut counts: HashMap<(String, String), u32> = HashMap::new();
    program(listener, |of| {
        let uri = of("REQUEST_URI");
        let count = counts.entry((uri.clone(), of("SERVER_PORT"))).or_default();
        *count += 1;
        let fields = if uri.contains("cookie") { "Set-Cookie: a=b\r\n" } else { "" };
        let status = if uri.contains("missing") { 404 } else { 200 };
        format!("Status: {status} X\r\n{fields}Content-Type: text/html\r\n\r\n{} {uri} {count}\n", of("REQUEST_METHOD"))
    });
}

/// Reads pairs of names and values, each with its length in one byte, or in four if the first bit is set.
fn fastcgi_parameters(mut bytes: &[u8]) -> HashMap<String, String> {
    fn len(bytes: &mut &[u8]) -> usize {
        let size = if bytes[0] < 0x80 { 1 } else { 4 };
        let (len, rest) = bytes.split_at(size);
        *bytes = rest;
        len.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte)) & 0x7fff_ffff
    }
    let mut found = HashMap::new();
    while !bytes.is_empty() {
        let (name_len, value_len) = (len(&mut bytes), len(&mut bytes));
        let (name, rest) = bytes.split_at(name_len);
        let (value, rest) = rest.split_at(value_len);
        bytes = rest;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        found.insert(text(name), text(value));
    }
    found
}

/// All pages of such an application come from one file after a rewrite, and are stored by the client's URI.
#[test]
fn stored_pages_of_a_program_equal_those_of_nginx() {
    let folder = ShapeFolder::new("program");
    std::fs::write(folder.0.join("www/index.php"), "").unwrap();
    let listener = UnixListener::bind(folder.0.join("php.sock")).unwrap();
    std::thread::spawn(move || counting_program(&listener));
    let paths = "/one /two /one?x=1 /missing /cookie / /index.php /two/";
    let mut cases: Vec<_> = paths.split_ascii_whitespace().flat_map(|path| [("GET", path, ""); 2]).collect();
    cases.extend([
        ("GET", "/one?preview=1", ""),
        ("GET", "/one?preview=1", ""),
        ("GET", "/two", "Cookie: logged_in=1\r\n"),
        ("GET", "/two", ""),
        ("POST", "/two", "Content-Length: 0\r\n"),
    ]);
    compare_in(&folder, "php_cache", &["set-cookie"], &cases);
    let states = ["/three", "/three"].map(|path| ("GET", path, ""));
    compare_in(&folder, "php_cache", &["x-cache"], &states);
}

/// nginx's documentation of `fastcgi_split_path_info`, `fastcgi_index` and `fastcgi_param`.
#[test]
fn scripts_equal_those_of_nginx() {
    let folder = ShapeFolder::new("scripts");
    for file in ["www/index.php", "www/checked/a.php", "www/sub/index.php", "data/index.php", "data/b/x.php"] {
        let file = folder.0.join(file);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, "source").unwrap();
    }
    let listener = UnixListener::bind(folder.0.join("php.sock")).unwrap();
    std::thread::spawn(move || {
        program(&listener, |of| {
            let names = ["SCRIPT_FILENAME", "SCRIPT_NAME", "PATH_INFO", "REQUEST_URI", "HTTPS"].map(of);
            format!("Content-Type: text/html\r\n\r\n{}\n", names.join(" "))
        });
    });
    let paths = "/ /x/y?z=1 /index.php /index.php/a/b?c=1 /login.php /login.php/x /checked/a.php /checked/a.php/i /checked/b.php \
                 /checked/b.php/i /front/ /front/x?y /folder/ /folder/x.php /tool/ /tool/index.php /tool/b/x.php /tool/a.txt /closed/ \
                 /closed/index.php /closed/a.txt /sub/ /page.html";
    let cases: Vec<_> = paths.split_ascii_whitespace().map(|path| ("GET", path, "")).collect();
    compare_in(&folder, "php_scripts", &[], &cases);
}

/// A lifetime of the configuration is not for requests with a cookie: unlike nginx, and named.
#[test]
fn a_stored_response_without_a_lifetime_is_not_for_requests_with_a_cookie() {
    let folder = ShapeFolder::new("personal");
    let port = free_port();
    std::fs::write(folder.0.join("ours.conf"), complete(&shape("cache"), &folder, [port, 0], counting_upstream()))
        .unwrap();
    let command = folder.causeway(&["run", "--adapter", "nginx", "--config", "ours.conf"]);
    let log = folder.0.join("ours.log");
    let _causeway = start(command, port, &log);
    let bodies = ["", "Cookie: x=1\r\n", ""]
        .map(|lines| request_with(port, ("GET", "example.com", "/plain"), lines, &[]).body.replace("GET /plain", ""));
    assert_eq!(bodies, [" 1 \n", " 2 \n", " 1 \n"]);
    let log = std::fs::read_to_string(log).unwrap();
    assert!(log.contains("a lifetime of the configuration is not for requests with a cookie"), "{log}");
}

#[test]
fn errors_of_an_upstream_equal_those_of_nginx() {
    let paths = "404 500 503 410 plain cookie-path cookie-other";
    let paths: Vec<String> = paths.split(' ').flat_map(|kind| [format!("/{kind}"), format!("/raw/{kind}")]).collect();
    let mut cases: Vec<(&str, &str, &str)> = paths.iter().map(|path| ("GET", path.as_str(), "")).collect();
    cases.extend([("POST", "/404", ""), ("GET", "/404.html", "")]);
    compare("intercept", &["set-cookie"], &cases);
}

/// nginx's documentation of `auth_request`: 2xx lets a request through, and 401 and 403 refuse it with the location's error page.
#[test]
fn requests_that_an_upstream_refuses_equal_those_of_nginx() {
    let paths = ["/x?y=1", "/login/x?y=1", "/away/x", "/forbidden/x", "/auth/plain", "/inner/403"];
    let of = |path| [("GET", path, ""), ("POST", path, "Content-Length: 0\r\n")];
    let cases: Vec<_> = paths.into_iter().flat_map(of).collect();
    compare("auth_pages", &["location"], &cases);
    let folder = ShapeFolder::new("auth-refused");
    let Some(nginx) = installed_nginx() else { return };
    let (ports, _servers) = both(nginx, &shape("auth_pages"), &folder, [counting_upstream(), counting_upstream()]);
    // Without a page the upstream's own answer is the response; nginx's has a text of its own.
    assert_eq!(ports.map(|port| request(port, "GET", "example.com", "/refused/x").status), [401, 401]);
}

/// nginx's documentation of `X-Accel-Redirect`: a location with `internal` answers, with some fields of the upstream.
#[test]
fn files_that_an_upstream_permits_equal_those_of_nginx() {
    let paths =
        ["/x", "/accel", "/accel?x=1", "/accel-none", "/accel-closed", "/raw/accel", "/protected/a.txt", "/closed/x"];
    let mut cases: Vec<_> = paths.into_iter().map(|path| ("GET", path, "")).collect();
    cases.extend([
        ("HEAD", "/accel", ""),
        ("POST", "/accel", "Content-Length: 0\r\n"),
        ("GET", "/accel", "Range: bytes=1-2\r\n"),
        ("GET", "/404.html", ""),
    ]);
    compare("accel", &["content-disposition", "x-inner", "content-range"], &cases);
}

/// nginx's documentation of `valid_referers`.
#[test]
fn referers_that_are_refused_equal_those_of_nginx() {
    let referers = "http://example.com https://EXAMPLE.com/x http://example.com:8080/ http://example.com.evil.test/ \
                    http://evil.test/example.com http://a.partner.test/ http://partner.test/ http://shop.test/ http://shop \
                    http://friend.test/gallery/1 http://friend.test/other http://friend.test:80/gallery/ http://www.search.test/ \
                    example.com nonsense ftp://x http:// https://evil.test";
    let fields: Vec<_> = referers.split_ascii_whitespace().map(|referer| format!("Referer: {referer}\r\n")).collect();
    let lines = || fields.iter().map(String::as_str).chain([""]);
    let paths = ["/assets/app.css", "/a/", "/b/"];
    let cases: Vec<_> = paths.into_iter().flat_map(|path| lines().map(move |line| ("GET", path, line))).collect();
    compare("referers", &[], &cases);
}

/// Location of an upstream that names the upstream's own address gets the server's; nginx's documentation of `proxy_redirect`.
#[test]
fn redirects_of_an_upstream_equal_those_of_nginx() {
    let paths = ["/moved", "/app/moved", "/app/x", "/host/moved", "/mapped/moved", "/off/x"];
    let cases: Vec<_> = paths.iter().map(|path| ("GET", *path, "X-Real-IP: 192.0.2.7\r\n")).collect();
    compare("proxy_redirect", &["location"], &cases);
}

/// Fields whose value is empty are not sent, other methods are refused before a `return`, and rules after one with a flag do not apply.
#[test]
fn rules_and_fields_equal_those_of_nginx() {
    let origin = "Origin: https://www.example.com\r\n";
    let cases = [
        ("GET", "/page.html", ""),
        ("GET", "/page.html?kind=", ""),
        ("GET", "/page.html?kind=a", origin),
        ("GET", "/page.html", "Origin: https://example.com\r\n"),
        ("GET", "/page.html", "Origin: https://other.test\r\n"),
        ("POST", "/missing", origin),
        ("GET", "/go/x/y", ""),
        ("GET", "/text", ""),
        ("POST", "/text", ""),
        ("HEAD", "/old", ""),
        ("DELETE", "/old", ""),
    ];
    compare("named_rewrite", &["access-control-allow-origin", "x-kind", "location"], &cases);
    let paths =
        ["/kind", "/kind?debug=1", "/page.html", "/user/1", "/go/x", "/strip/x", "/files/a.txt", "/files/b/c.txt"];
    compare("rewrite_if", &[], &paths.map(|path| ("GET", path, "")));
}

/// nginx's documentation of `try_files` and `rewrite`: they choose another location after the rules of the first have applied.
#[test]
fn rules_before_another_location_equal_those_of_nginx() {
    let deny = "X-Deny: 1\r\n";
    let long = format!("Content-Length: 200\r\n\r\n{}", "x".repeat(198));
    let cases = [
        ("GET", "/page.html", ""),
        ("GET", "/page.html", deny),
        ("GET", "/none", ""),
        ("GET", "/none", deny),
        ("GET", "/none?limited=a", ""),
        ("GET", "/none?limited=a", ""),
        ("GET", "/page.html?limited=b", ""),
        ("GET", "/none?limited=b", ""),
        ("POST", "/none", "Content-Length: 0\r\n"),
        ("POST", "/none", &long),
        ("GET", "/closed/x", ""),
        ("GET", "/old/page.html", ""),
        ("GET", "/old/none?a=b", ""),
        ("GET", "/old/page.html?stop=1", ""),
        ("GET", "/old/page.html", deny),
        ("GET", "/private/index.html", ""),
        ("GET", "/private/x", ""),
        ("GET", "/own/x", ""),
        ("GET", "/locked/x", ""),
    ];
    compare("rules_before", &[], &cases);
}

/// nginx's documentation of `break` and of the flags of `rewrite`: no rule after them applies.
#[test]
fn rules_after_a_flag_equal_those_of_nginx() {
    let paths = "/ /page.html?a=1 /page.html?a=1&b=1 /page.html?b=1 /r /r?b=1 /one/ /one/x?q=1 /two/page.txt /two/page.txt?c=1 \
                 /two/x?c=1 /three/ /three/?c=1";
    let mut cases: Vec<_> = paths.split_ascii_whitespace().map(|path| ("GET", path, "")).collect();
    cases.extend(["/three/", "/three/?c=1", "/one/"].map(|path| ("POST", path, "Content-Length: 0\r\n")));
    compare("rules_end", &["location"], &cases);
}

/// nginx's documentation of `location`: the path is compared without encoding, dot segments and double slashes.
#[test]
fn paths_in_conditions_equal_those_of_nginx() {
    let paths = "/mapped/x //mapped/x /./mapped/x /x/../mapped/x /exact/mapped //Exact/Mapped /admin //admin /./admin /x/../admin \
                 /%61dmin /equal //equal /EQUAL /upper //upper /page.html /a/page /.env /.well-known/x /.well-known/.env /.w \
                 /.well-known2 /names/abc //names/abc /names/ /names/1 /folder/ /folder /folder//x /folder/one/ /folder/one /a/b";
    let cases: Vec<_> = paths.split_ascii_whitespace().map(|path| ("GET", path, "")).collect();
    compare("paths_as_sent", &[], &cases);
    let Some(nginx) = installed_nginx() else { return };
    let folder = ShapeFolder::new("dot-segments");
    let (ports, _servers) = both(nginx, &shape("paths_as_sent"), &folder, [1, 1]);
    for path in ["/folder/.", "/folder/x/..", "/folder/%2e", "/folder/one/.", "/folder/one/x/.."] {
        let [theirs, ours] = ports.map(|port| request(port, "GET", "example.com", path).status);
        assert!(theirs >= 400 && ours == 400, "{path}: {theirs} {ours}");
    }
}

/// nginx's documentation of `location`, and its order for locations within others.
#[test]
fn locations_within_others_equal_those_of_nginx() {
    let paths = "/in/ /in/one/ /in/x.txt /in/up /in/up/ /in /p/ /p/x /p/q/t /p/q/x /p/t /p/r/t /p/r/ /p/r/s/ /p/r/s/t /p/r/s/x \
                 /e/ /e/a.txt /e/f/a.txt /e/f/x /e/x /a.txt /x /f/a.txt";
    let cases: Vec<_> = paths.split_ascii_whitespace().map(|path| ("GET", path, "")).collect();
    compare("nested_order", &["location"], &cases);
}

/// nginx's documentation of `map`: texts are compared ignoring case, and before expressions.
#[test]
fn texts_of_a_map_equal_those_of_nginx() {
    let kinds = ["abc", "ABC", "Abc", "abcd", "default", "~b", "b", "12", "123", "Two Words", "x two words", ""];
    let fields = kinds.map(|kind| format!("X-Kind: {kind}\r\n"));
    let mut cases: Vec<_> = fields.iter().map(|field| ("GET", "/", field.as_str())).collect();
    cases.extend([("GET", "/", ""), ("GET", "/?a='", ""), ("GET", "/?a=b", "")]);
    compare("map_texts", &[], &cases);
    let Some(nginx) = installed_nginx() else { return };
    let folder = ShapeFolder::new("hosts-of-conditions");
    let (ports, _servers) = both(nginx, &shape("map_texts"), &folder, [1, 1]);
    for host in ["Example.Com", "other.example.com", "OTHER.example.com", "Third.x", "third", "FOUR.x", "five"] {
        let [theirs, ours] = ports.map(|port| request(port, "GET", host, "/"));
        assert_eq!(theirs, ours, "{host}: nginx, then causeway");
    }
}

/// The counting upstream's response has the field X-Real-IP of the request. `auth_request_set` and `$remote_user` are empty without a
/// subrequest and a password.
#[test]
fn fields_of_clients_equal_those_of_nginx() {
    let lines = ["", "X-Real-IP: 192.0.2.1\r\n", "X-User: ann\r\nX-Real-IP: 192.0.2.1\r\n"];
    let paths = ["/free/x", "/user/x", "/x", "/auth/plain"];
    let cases: Vec<_> = paths.iter().flat_map(|path| lines.map(|line| ("GET", *path, line))).collect();
    compare("fields_up", &[], &cases);
}

/// nginx's documentation of `listen`: each address and port has servers and a default server of its own.
#[test]
fn addresses_of_servers_equal_those_of_nginx() {
    let Some(nginx) = installed_nginx() else { return };
    let folder = ShapeFolder::new("addresses");
    let text = |ports: [u16; 2]| {
        let [a, b] = ports;
        format!(
            "server {{ listen 127.0.0.1:{a}; listen 127.0.0.2:{b}; listen 127.0.0.3:{a}; server_name one.test; return 200 one; }}
             server {{ listen 127.0.0.2:{a}; server_name two.test; return 200 two; }}
             server {{ listen 127.0.0.2:{a}; listen 127.0.0.3:{a} default_server; server_name three.test; return 200 three; }}
             server {{ listen {b}; server_name one.test; return 200 four; }}"
        )
    };
    let ports = [[free_port(), free_port()], [free_port(), free_port()]];
    for (name, ports) in ["theirs", "ours"].into_iter().zip(ports) {
        let complete = complete(&text(ports), &folder, [0, 0], 1);
        std::fs::write(folder.0.join(format!("{name}.conf")), complete).unwrap();
    }
    let mut command = Command::new(nginx);
    command.arg("-p").arg(&folder.0).arg("-c").arg(folder.0.join("theirs.conf")).args(["-g", "daemon off;"]);
    let _nginx = start(command, ports[0][0], &folder.0.join("theirs.log"));
    let command = folder.causeway(&["run", "--adapter", "nginx", "--config", "ours.conf"]);
    let _causeway = start(command, ports[1][0], &folder.0.join("ours.log"));
    let answer = |ip: &str, port: u16, host: &str| {
        let Ok(mut stream) = TcpStream::connect((ip, port)) else { return "no listener".to_owned() };
        write!(stream, "GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text.rsplit("\r\n").next().unwrap_or_default().to_owned()
    };
    for ip in ["127.0.0.1", "127.0.0.2", "127.0.0.3", "127.0.0.4"] {
        for port in [0, 1] {
            for host in ["one.test", "two.test", "three.test", "other.test"] {
                let [theirs, ours] = ports.map(|ports| answer(ip, ports[port], host));
                assert_eq!(theirs, ours, "{ip}, port {port}, {host}: nginx, then causeway");
            }
        }
    }
}

/// Addresses and URIs with variables reach the same upstream with the same target.
#[test]
fn targets_with_variables_equal_those_of_nginx() {
    let paths = "/const/x?y=1 /const/ /group/x?y=1 /map/x?to=two /map/x?q=1 /uri/x?y=1 /uri/x /request/x?y=1 /request/%41 \
                 /args/x?y=1 /args/x /re/a/b /plain/0200?to=two /plain/0200";
    let cases: Vec<_> = paths.split_ascii_whitespace().map(|path| ("GET", path, "")).collect();
    compare("proxy_variables", &[], &cases);
}

#[test]
fn addresses_of_clients_equal_those_of_nginx() {
    let chains = [
        "",
        "X-Forwarded-For: 192.0.2.7\r\n",
        "X-Forwarded-For: 192.0.2.7, 10.1.1.1\r\n",
        "X-Forwarded-For: 192.0.2.7, 198.51.100.1\r\n",
        "X-Forwarded-For: 198.51.100.1, 192.0.2.7\r\n",
        "X-Forwarded-For: nonsense\r\n",
    ];
    let paths = ["/", "/kind", "/admin/index.html", "/api/plain"];
    let cases: Vec<_> = chains.iter().flat_map(|chain| paths.map(|path| ("GET", path, *chain))).collect();
    compare("real_ip", FIELDS, &cases);
    let networks = [("GET", "/kind", ""), ("GET", "/", ""), ("GET", "/", ""), ("GET", "/admin/", "")];
    compare("geo", FIELDS, &networks);
}

/// Names with a wildcard at the end and expressions are found in nginx's order, with their groups.
#[test]
fn hosts_of_patterns_equal_those_of_nginx() {
    let Some(nginx) = installed_nginx() else { return };
    let folder = ShapeFolder::new("hosts");
    let ([theirs, ours], _servers) = both(nginx, &shape("host_patterns"), &folder, [1, 1]);
    let hosts = "main.test a.example.com b.example.com private.example.com www.example.com www.example.org www.other.test \
                 two.example.com two.x three.example.com x.three.example.com x.y.three.example.com three.zone x..example.com ...example.com \
                 none.test www.";
    for host in hosts.split_ascii_whitespace() {
        for path in ["/", "/kind", "/user/12", "/index.html", "/missing", "/a.txt"] {
            let (a, b) = (request(theirs, "GET", host, path), request(ours, "GET", host, path));
            assert_eq!(a, b, "{host} {path}: nginx, then causeway");
        }
    }
}

/// The adapted configuration answers as nginx does.
#[test]
fn answers_equal_those_of_nginx() {
    let Some(nginx) = installed_nginx() else { return };
    let up = upstream();
    let (mut equal, mut sent, mut differences) = (0, 0, Vec::new());
    let shapes = shapes();
    for (name, text) in
        shapes.iter().filter(|(_, text)| !text.contains("ssl_certificate") && !text.contains("grpc_pass"))
    {
        let folder = ShapeFolder::new(name);
        let ([theirs, ours], _servers) = both(nginx, text, &folder, [up, up]);
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
            let meant = MEANT.iter().any(|(shape, at, their_status, our_status, _)| {
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
