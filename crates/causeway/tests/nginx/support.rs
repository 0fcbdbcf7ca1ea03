//! Directories, servers and requests of these tests.

use std::collections::HashMap;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use causeway_testkit::ports::free_port;

pub(crate) const TIMEOUT: Duration = Duration::from_secs(20);

/// Files of every shape's directory.
pub(crate) const FILES: &[(&str, &str)] = &[
    ("www/index.html", "index\n"),
    ("www/page.html", "page\n"),
    ("www/404.html", "not here\n"),
    ("www/maintenance.html", "back soon\n"),
    ("www/assets/app.css", "body {}\n"),
    ("www/assets/app.js", "1;\n"),
    ("www/a/index.html", "a\n"),
    ("www/store/c/index.html", "store c\n"),
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

/// Fields of a response that are compared.
pub(crate) const FIELDS: &[&str] = &[
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

pub(crate) struct ShapeDirectory(pub(crate) PathBuf);

impl ShapeDirectory {
    pub(crate) fn new(name: &str) -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("nginx-{}-{name}", std::process::id()));
        for (file, text) in FILES {
            let file = path.join(file);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, text).unwrap();
        }
        Self(path)
    }

    pub(crate) fn causeway(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_causeway"));
        command.args(arguments).current_dir(&self.0).env("HOME", &self.0).env("CADDY_ADMIN", "localhost:0");
        command.env_remove("XDG_CONFIG_HOME").env_remove("XDG_DATA_HOME").stdin(Stdio::null());
        command
    }
}

impl Drop for ShapeDirectory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub(crate) struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.0);
        // nginx ends its workers only on a signal that it can handle.
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let _ = self.0.wait();
    }
}

pub(crate) fn shapes() -> Vec<(String, String)> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../nginx/tests/shapes");
    let mut shapes: Vec<(String, String)> = std::fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.file_stem().unwrap().to_string_lossy().into_owned(), std::fs::read_to_string(path).unwrap()))
        .collect();
    shapes.sort();
    assert!(shapes.len() >= 40);
    shapes
}

/// A complete configuration of a shape.
pub(crate) fn complete(text: &str, directory: &ShapeDirectory, ports: [u16; 2], upstream: u16) -> String {
    let at = directory.0.display().to_string();
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

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    fields: Vec<(String, String)>,
    pub(crate) body: String,
}

pub(crate) fn request(port: u16, method: &str, host: &str, path: &str) -> Reply {
    request_with(port, (method, host, path), "", FIELDS)
}

/// Sends a request with further lines of fields, each with its line end, and returns the fields of these names.
pub(crate) fn request_with(port: u16, (method, host, path): (&str, &str, &str), lines: &str, names: &[&str]) -> Reply {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
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

pub(crate) fn dechunked(mut body: &str) -> String {
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

pub(crate) fn start(mut command: Command, port: u16, log: &Path) -> Process {
    let file = std::fs::File::create(log).unwrap();
    let mut process = Process(command.stdout(Stdio::null()).stderr(file).spawn().unwrap());
    let begun = Instant::now();
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        let ended = process.0.try_wait().unwrap();
        let log = || std::fs::read_to_string(log).unwrap();
        assert!(ended.is_none() && begun.elapsed() < TIMEOUT, "no server on port {port}: {}", log());
        std::thread::sleep(Duration::from_millis(5));
    }
    process
}

/// Creates a certificate for the shapes with TLS. Returns whether openssl could write one.
pub(crate) fn create_certificate(directory: &ShapeDirectory) -> bool {
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
        .current_dir(&directory.0)
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

pub(crate) fn words(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

pub(crate) fn installed_nginx() -> Option<&'static str> {
    let nginx = ["/usr/sbin/nginx", "/usr/local/sbin/nginx", "/usr/bin/nginx"]
        .into_iter()
        .find(|path| Path::new(path).exists());
    if nginx.is_none() {
        eprintln!("skipped: there is no nginx (Debian: nginx-light)");
    }
    nginx
}

/// Starts nginx and Causeway with a shape, each with its upstream; returns their ports.
pub(crate) fn both(
    nginx: &str,
    text: &str,
    directory: &ShapeDirectory,
    upstreams: [u16; 2],
) -> ([u16; 2], [Process; 2]) {
    let (theirs, ours) = (free_port(), free_port());
    std::fs::write(directory.0.join("theirs.conf"), complete(text, directory, [theirs, 0], upstreams[0])).unwrap();
    std::fs::write(directory.0.join("ours.conf"), complete(text, directory, [ours, 0], upstreams[1])).unwrap();
    let mut command = Command::new(nginx);
    command.arg("-p").arg(&directory.0).arg("-c").arg(directory.0.join("theirs.conf")).args(["-g", "daemon off;"]);
    let of_nginx = start(command, theirs, &directory.0.join("theirs.log"));
    let command = directory.causeway(&["run", "--adapter", "nginx", "--config", "ours.conf"]);
    let of_causeway = start(command, ours, &directory.0.join("ours.log"));
    ([theirs, ours], [of_nginx, of_causeway])
}

/// The text of one shape.
pub(crate) fn shape(name: &str) -> String {
    shapes().into_iter().find(|(other, _)| other == name).unwrap().1
}

/// An upstream that counts the requests of each target. The last segment of the path decides the response: a status, or
/// a name of `KINDS`.
pub(crate) fn counting_upstream() -> u16 {
    const KINDS: &[(&str, &str)] = &[
        ("401", "WWW-Authenticate: Basic realm=x\r\nSet-Cookie: a=b\r\n"),
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
        ("accel-cached", "X-Accel-Redirect: /protected/a.txt\r\nCache-Control: no-cache\r\n"),
        ("software", "Server: Up/1.0\r\n"),
        // A field of the translation, which counts only if that sets it itself.
        ("marked", "Causeway-Accel: yes\r\n"),
        ("accel-none", "X-Accel-Redirect: /protected/none\r\nContent-Disposition: attachment\r\n"),
        ("accel-closed", "X-Accel-Redirect: /closed/x\r\n"),
        (
            "accel-typed",
            "X-Accel-Redirect: /protected/typed\r\nContent-Type: text/x-first\r\nSet-Cookie: a=b\r\nContent-Disposition: attachment\r\n\
             Cache-Control: max-age=60\r\nExpires: Thu, 01 Jan 2037 00:00:00 GMT\r\nAccept-Ranges: bytes\r\n",
        ),
        ("accel-untyped", "X-Accel-Redirect: /protected/untyped\r\nContent-Type: text/x-first\r\n"),
        ("accel-query", "X-Accel-Redirect: /protected/typed?y=2\r\nContent-Type: text/x-first\r\n"),
        ("typed", "Content-Type: text/x-second\r\n"),
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
            // A close before the content is read is a reset, which drops a response that is still in the kernel.
            let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: ")?.parse().ok());
            let _ = stream.read_exact(&mut vec![0; length.unwrap_or_default()]);
            let mut words = head.split(' ');
            let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
            let count = counts.entry(target.to_owned()).or_default();
            *count += 1;
            let path = target.split('?').next().unwrap_or_default();
            let kind = path.rsplit('/').next().unwrap_or_default();
            let status = match kind.parse::<u16>() {
                Ok(status) => status,
                Err(_) if kind == "stale" && *count > 1 => 503,
                Err(_) if kind == "silent-401" => 401,
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

/// Sends requests to both servers, each of which has an upstream of its own that counts, and compares the responses.
/// Each case has the method, the path, and lines of fields.
#[track_caller]
pub(crate) fn compare(name: &str, fields: &[&str], cases: &[(&str, &str, &str)]) {
    let directory = ShapeDirectory::new(&format!("counts-{name}"));
    compare_in(&directory, name, fields, cases);
}

/// As [`compare`], in a directory of the caller's.
#[track_caller]
pub(crate) fn compare_in(directory: &ShapeDirectory, name: &str, fields: &[&str], cases: &[(&str, &str, &str)]) {
    let Some(nginx) = installed_nginx() else { return };
    let ([theirs, ours], _servers) = both(nginx, &shape(name), directory, [counting_upstream(), counting_upstream()]);
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
