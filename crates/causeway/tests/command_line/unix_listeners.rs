//! Sites on Unix sockets, with curl as the client and nginx as the proxy in front.

use std::io::{Read as _, Write as _};
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use causeway_testkit::ports;
use rustix::process::Signal;

use crate::client::get;
use crate::process::{Directory, ServerProcess};

/// A socket's path; the file is removed when dropped.
struct SocketPath(PathBuf);

impl SocketPath {
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        // Not in the test's directory, whose path may be longer than a socket's.
        let name = format!("causeway-site-{}-{}.sock", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        Self(std::env::temp_dir().join(name))
    }

    fn text(&self) -> &str {
        self.0.to_str().unwrap()
    }

    /// Starts a server with two workers for `site` on this socket, after the global options.
    fn serve(&self, directory: &Directory, options: &str, mode: &str, site: &str) -> ServerProcess {
        let caddyfile = format!("{{\n{options}\n}}\nhttp:// {{\nbind unix/{}{mode}\n{site}\n}}\n", self.text());
        directory.write("Caddyfile", caddyfile);
        directory.start(&["run", "--workers", "2"])
    }
}

impl Drop for SocketPath {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Runs curl over the socket and returns its output.
#[track_caller]
fn curl(socket: &str, arguments: &[&str]) -> String {
    let how = if socket.starts_with('@') { "--abstract-unix-socket" } else { "--unix-socket" };
    let output = Command::new("curl")
        .args(["-sS", "--max-time", "20", how, socket.trim_start_matches('@')])
        .args(arguments)
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    String::from_utf8(output.stdout).unwrap()
}

/// Sends bytes over the socket and returns everything until the end.
fn raw(path: &Path, bytes: &[u8]) -> String {
    let mut stream = UnixStream::connect(path).unwrap();
    stream.write_all(bytes).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

const FACTS: &str = "respond \"{http.request.remote}|{remote_host}|{remote_port}|{client_ip}|{http.request.local}|{http.request.local.port}\"";

// Caddy, `bind` and conventions, network addresses: `unix/` and a path, with permission bits after a `|`, 0200 by
// default. The file is removed at the end. A peer without an address is shown as `@`; the local address is the path.
#[test]
fn a_site() {
    let directory = Directory::new();
    for (mode, want) in [("", 0o200), ("|0666", 0o666)] {
        let socket = SocketPath::new();
        let server = socket.serve(&directory, "", mode, FACTS);
        let first_line = format!("Causeway serves Caddyfile on unix/{} with 2 workers", socket.text());
        assert_eq!(server.first_line, first_line);
        let file = std::fs::metadata(&socket.0).unwrap();
        assert!(file.file_type().is_socket());
        assert_eq!(file.permissions().mode() & 0o7777, want);
        for _ in 0..10 {
            assert_eq!(curl(socket.text(), &["http://localhost/"]), format!("@|@|||{}|", socket.text()));
        }
        server.signal(Signal::TERM);
        assert_eq!(server.status().code(), Some(0));
        assert!(!std::fs::exists(&socket.0).unwrap());
    }
}

// Caddy: the socket of a process that was killed is replaced. One that is in use is refused: Caddy takes it away from
// its process.
#[test]
fn an_existing_file_at_the_path() {
    let directory = Directory::new();
    let socket = SocketPath::new();
    let mut server = socket.serve(&directory, "", "", "respond one");
    let second = directory.output(&["run"]);
    assert_eq!(second.status.code(), Some(1));
    let errors = String::from_utf8(second.stderr).unwrap();
    let want = format!("listening on unix/{}: a process listens on this Unix socket already", socket.text());
    assert!(errors.contains(&want), "{errors}");
    assert_eq!(curl(socket.text(), &["http://localhost/"]), "one");
    server.signal(Signal::KILL);
    drop(server);
    assert!(std::fs::exists(&socket.0).unwrap());
    server = socket.serve(&directory, "", "", "respond two");
    assert_eq!(curl(socket.text(), &["http://localhost/"]), "two");
    drop(server);
}

// Caddy, `bind`: several addresses, of any network. In the abstract namespace `@` stands for the NUL.
#[test]
fn several_sockets_of_one_site() {
    let directory = Directory::new();
    let (one, two) = (SocketPath::new(), SocketPath::new());
    let name = format!("@causeway-site-{}", std::process::id());
    directory.write(
        "Caddyfile",
        format!(
            "http://:0 {{\nbind unix/{} 127.0.0.1 unix/{name}\nbind unix/{}|0660\nrespond {{http.request.local.host}}\n}}\n",
            one.text(),
            two.text()
        ),
    );
    let server = directory.start(&["run"]);
    assert_eq!(curl(one.text(), &["http://a.test/"]), one.text());
    assert_eq!(curl(two.text(), &["http://a.test/"]), two.text());
    assert_eq!(curl(&name, &["http://a.test/"]), name);
    assert_eq!(get(server.port(), "/").body, "127.0.0.1");
}

// RFC 9113 §3.3 and §3.2: HTTP/2 by prior knowledge in cleartext, and by ALPN over TLS; also over a Unix socket.
#[test]
fn versions_and_tls() {
    let directory = Directory::new();
    let socket = SocketPath::new();
    let server = socket.serve(&directory, "", "", "respond \"{http.request.proto} {remote_host}\"");
    assert_eq!(curl(socket.text(), &["--http2-prior-knowledge", "http://localhost/"]), "HTTP/2.0 @");
    assert_eq!(curl(socket.text(), &["http://localhost/"]), "HTTP/1.1 @");
    drop(server);
    let site = "tls internal\nrespond \"{http.request.proto} {http.request.tls.server_name} {remote_host}\"";
    let caddyfile = format!("{{\nskip_install_trust\n}}\nhttps://a.test {{\nbind unix/{}\n{site}\n}}\n", socket.text());
    directory.write("Caddyfile", caddyfile);
    let _server = directory.start(&["run"]);
    for (flag, want) in [("--http2", "HTTP/2.0 a.test @"), ("--http1.1", "HTTP/1.1 a.test @")] {
        assert_eq!(curl(socket.text(), &["-k", flag, "https://a.test/"]), want);
    }
}

// Caddy's documentation of `trusted_proxies_unix`: peers of Unix sockets are trusted proxies. Without it they are not,
// and no range of `remote_ip` contains them.
#[test]
fn the_client_behind_a_proxy() {
    let directory = Directory::new();
    for (options, want) in [
        ("", "outside "),
        ("servers {\ntrusted_proxies static 0.0.0.0/0\n}", "outside "),
        ("servers {\ntrusted_proxies_unix\n}", "inside 192.0.2.1"),
        ("servers {\ntrusted_proxies_unix\ntrusted_proxies_strict\n}", "inside 192.0.2.2"),
        ("servers {\ntrusted_proxies_unix\nclient_ip_headers X-Real-Ip\n}", "outside @"),
    ] {
        let socket = SocketPath::new();
        let site = "@all remote_ip 0.0.0.0/0 ::/0\nrespond @all no\n@client client_ip 192.0.2.0/24\n\
                    respond @client \"inside {client_ip}\"\nrespond \"outside {client_ip}\"";
        let _server = socket.serve(&directory, options, "", site);
        let got = curl(socket.text(), &["-H", "X-Forwarded-For: 192.0.2.1, 192.0.2.2", "http://localhost/"]);
        assert_eq!(got, want, "{options}");
    }
}

// Caddy, listener wrapper `proxy_protocol`: "If a connection is received via Unix socket, it's trusted."
#[test]
fn the_proxy_protocol() {
    let directory = Directory::new();
    let socket = SocketPath::new();
    let options = "servers {\nlistener_wrappers {\nproxy_protocol {\ndeny 192.0.2.0/24\n}\n}\n}";
    let _server = socket.serve(&directory, options, "", FACTS);
    let request = "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    for (header, want) in [
        ("PROXY TCP4 192.0.2.7 198.51.100.1 4321 80\r\n", "192.0.2.7:4321|192.0.2.7|4321|192.0.2.7|198.51.100.1:80|80"),
        ("PROXY UNKNOWN\r\n", &*format!("@|@|||{}|", socket.text())),
        ("", &*format!("@|@|||{}|", socket.text())),
    ] {
        let got = raw(&socket.0, format!("{header}{request}").as_bytes());
        assert!(got.ends_with(&format!("\r\n\r\n{want}")), "{header}: {got}");
    }
}

// Caddy, reverse_proxy: without a trusted peer of a Unix socket X-Forwarded-* fields are removed; with one they stay,
// and no address is added.
#[test]
fn forwarded_fields_over_a_unix_socket() {
    let directory = Directory::new();
    for (options, want) in [("", "[] [] []"), ("servers {\ntrusted_proxies_unix\n}", "[192.0.2.1] [https] [a.test]")] {
        let (socket, inner) = (SocketPath::new(), SocketPath::new());
        let fields = "[{header.X-Forwarded-For}] [{header.X-Forwarded-Proto}] [{header.X-Forwarded-Host}]";
        directory.write(
            "Caddyfile",
            format!(
                "{{\n{options}\n}}\nhttp:// {{\nbind unix/{}\nreverse_proxy unix/{}\n}}\nhttp://:1 {{\nbind unix/{}\nrespond \"{fields}\"\n}}\n",
                socket.text(),
                inner.text(),
                inner.text()
            ),
        );
        let _server = directory.start(&["run"]);
        let forwarded =
            ["-H", "X-Forwarded-For: 192.0.2.1", "-H", "X-Forwarded-Proto: https", "-H", "X-Forwarded-Host: a.test"];
        assert_eq!(curl(socket.text(), &[&forwarded[..], &["http://b.test/"]].concat()), want, "{options}");
    }
}

/// A reload keeps the socket with its connections, changes the file's mode, and removes the file of a socket that it
/// drops.
#[test]
fn a_reload() {
    let directory = Directory::new();
    let (one, two) = (SocketPath::new(), SocketPath::new());
    let mut server = one.serve(&directory, "", "", "respond first");
    let admin = format!("localhost:{}", server.admin_port());
    let mode = |path: &SocketPath| std::fs::metadata(&path.0).unwrap().permissions().mode() & 0o7777;
    let reload = |sites: &str| {
        directory.write("Caddyfile", sites);
        let output = directory.output(&["reload", "--address", &admin]);
        String::from_utf8(output.stderr).unwrap()
    };
    let mut kept = UnixStream::connect(&one.0).unwrap();
    let mut send_request = |want: &str| {
        kept.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        let mut bytes = Vec::new();
        while !bytes.ends_with(want.as_bytes()) {
            let mut byte = [0];
            kept.read_exact(&mut byte).unwrap();
            bytes.push(byte[0]);
        }
    };
    send_request("first");
    reload(&format!("http:// {{\nbind unix/{}|0666 unix/{}\nrespond second\n}}\n", one.text(), two.text()));
    send_request("second");
    assert_eq!((mode(&one), mode(&two)), (0o666, 0o200));
    assert_eq!(curl(two.text(), &["http://localhost/"]), "second");
    // A refused load changes nothing.
    let errors =
        reload(&format!("http:// {{\nbind unix/{}|0777 unix//no/such/folder\nrespond third\n}}\n", one.text()));
    assert!(errors.contains("listening on unix//no/such/folder: the directory /no/such does not exist"), "{errors}");
    assert_eq!((mode(&one), mode(&two)), (0o666, 0o200));
    send_request("second");
    reload(&format!("http:// {{\nbind unix/{}|0666\nrespond fourth\n}}\n", one.text()));
    assert!(!std::fs::exists(&two.0).unwrap());
    send_request("fourth");
    assert_eq!(curl(one.text(), &["http://localhost/"]), "fourth");
}

/// No new connection fails during reloads: a listener accepts it.
#[test]
fn reloads_lose_no_connection() {
    let directory = Directory::new();
    let socket = SocketPath::new();
    let mut server = socket.serve(&directory, "", "", "respond hello");
    let admin = format!("localhost:{}", server.admin_port());
    let done = std::sync::atomic::AtomicBool::new(false);
    let served = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    let mut served = 0;
                    while !done.load(Ordering::Relaxed) {
                        let request = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
                        assert!(raw(&socket.0, request).ends_with("hello"));
                        served += 1;
                    }
                    served
                })
            })
            .collect();
        for number in 0..5 {
            let site = format!("http:// {{\nbind unix/{}\nheader X {number}\nrespond hello\n}}\n", socket.text());
            directory.write("Caddyfile", site);
            assert!(directory.output(&["reload", "--address", &admin]).status.success());
        }
        done.store(true, Ordering::Relaxed);
        clients.into_iter().map(|client| client.join().unwrap()).sum::<u32>()
    });
    assert!(served > 0);
}

// Caddy, `admin` and conventions: the admin API may listen on a Unix socket, and its permission bits admit the clients.
// Neither Host nor Origin is needed there: "Browsers do not allow access to unix sockets". An `Origin` is checked all
// the same.
#[test]
fn the_admin_api() {
    let directory = Directory::new();
    let (socket, site) = (SocketPath::new(), SocketPath::new());
    let mut server = site.serve(&directory, &format!("admin unix/{}|0660", socket.text()), "", "respond hello");
    let line = server.line_with("The admin API is on ");
    assert_eq!(line, format!("The admin API is on unix/{}", socket.text()));
    assert_eq!(std::fs::metadata(&socket.0).unwrap().permissions().mode() & 0o7777, 0o660);
    let sockets = curl(socket.text(), &["http://any.test/config/apps/http/servers/srv0/listen"]);
    assert_eq!(sockets, format!("[\"unix/{}\"]\n", site.text()));
    let refused = curl(socket.text(), &["-H", "Origin: http://any.test", "http://any.test/config/"]);
    assert_eq!(refused, "{\"error\":\"client is not allowed to access from origin 'http://any.test'\"}\n");
    // expvar, which Caddy serves there: `cmdline` has the arguments of the process.
    let variables: serde_json::Value = serde_json::from_str(&curl(socket.text(), &["http://a/debug/vars"])).unwrap();
    assert_eq!(variables["cmdline"].as_array().unwrap()[1..], ["run", "--workers", "2"]);
    // The commands use `--address`, the configuration or CADDY_ADMIN.
    let address = format!("unix/{}", socket.text());
    let with = |arguments: &[&str], variable: &str| {
        let output = directory.command(arguments).env("CADDY_ADMIN", variable).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{arguments:?}: {errors}");
        String::from_utf8(output.stdout).unwrap()
    };
    for status in [with(&["status", "--address", &address], ""), with(&["status"], &address)] {
        assert!(status.contains("\"live_plans\":1"), "{status}");
    }
    with(&["reload"], "");
    // The API moves to TCP and back.
    let port = ports::free_port();
    let configuration = |admin: &str| {
        let site = format!("http:// {{\nbind unix/{}\nrespond hello\n}}\n", site.text());
        directory.write("Caddyfile", format!("{{\nadmin {admin}\n}}\n{site}"));
    };
    configuration(&format!("127.0.0.1:{port}"));
    with(&["reload", "--address", &address], "");
    assert!(!std::fs::exists(&socket.0).unwrap());
    configuration(&address);
    with(&["reload", "--address", &format!("127.0.0.1:{port}")], "");
    assert_eq!(std::fs::metadata(&socket.0).unwrap().permissions().mode() & 0o7777, 0o200);
    with(&["stop", "--address", &address], "");
    assert_eq!(server.status().code(), Some(0));
    assert!(!std::fs::exists(&socket.0).unwrap());
    let gone = directory.output(&["status", "--address", &address]);
    let errors = String::from_utf8(gone.stderr).unwrap();
    assert!(errors.contains(&format!("no server listens on {address}")), "{errors}");
}

#[test]
fn an_address_of_the_admin_api_and_a_site() {
    let directory = Directory::new();
    let socket = SocketPath::new();
    let place = format!("unix/{}", socket.text());
    directory.write("Caddyfile", format!("{{\nadmin {place}|0660\n}}\nhttp:// {{\nbind {place}\nrespond hello\n}}\n"));
    let errors = String::from_utf8(directory.output(&["run"]).stderr).unwrap();
    assert!(
        errors.contains(&format!("listening on {place}: the admin API is on {place}; move one of them first")),
        "{errors}"
    );
}

// nginx, ngx_http_upstream_module: `server unix:/path`. nginx terminates the clients' connections and reports their
// addresses.
#[test]
fn behind_nginx() {
    if Command::new("nginx").arg("-v").stderr(Stdio::null()).status().is_err() {
        eprintln!("skipped: nginx is not installed");
        return;
    }
    let directory = Directory::new();
    let socket = SocketPath::new();
    let _server = socket.serve(
        &directory,
        "servers {\ntrusted_proxies_unix\n}",
        "|0666",
        "respond \"{client_ip} {remote_host}\"",
    );
    let port = ports::free_port();
    let here = directory.path("");
    let configuration = format!(
        "daemon off; master_process off; pid {here}/nginx.pid; error_log stderr;\nevents {{}}\nhttp {{\naccess_log off;\n\
         client_body_temp_path {here}/a; proxy_temp_path {here}/b; fastcgi_temp_path {here}/c; uwsgi_temp_path {here}/d; scgi_temp_path {here}/e;\n\
         upstream causeway {{ server unix:{}; keepalive 2; }}\nserver {{ listen 127.0.0.1:{port};\nlocation / {{\n\
         proxy_pass http://causeway; proxy_http_version 1.1; proxy_set_header Connection \"\";\n\
         proxy_set_header X-Forwarded-For $remote_addr; }} }} }}\n",
        socket.text(),
        here = here.display(),
    );
    directory.write("nginx.conf", configuration);
    let mut nginx = Command::new("nginx");
    nginx.arg("-c").arg(directory.path("nginx.conf")).arg("-p").arg(&here).stderr(Stdio::null());
    let mut nginx = nginx.spawn().unwrap();
    while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(nginx.try_wait().unwrap().is_none(), "nginx has ended");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let bodies = [(); 5].map(|()| get(port, "/").body);
    nginx.kill().unwrap();
    nginx.wait().unwrap();
    assert_eq!(bodies, ["127.0.0.1 @"; 5]);
}
