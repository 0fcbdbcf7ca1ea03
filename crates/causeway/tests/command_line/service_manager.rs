//! Inherited sockets, and messages to the service manager. The tests play the part of systemd.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;

use crate::client::{get, send_body};
use crate::process::{Directory, ServerProcess};

/// Returns `causeway run` with this socket as file descriptor 3.
fn with_descriptor_3(directory: &Directory, socket: impl Into<OwnedFd>) -> Command {
    let run = directory.command(&[]);
    let mut command = Command::new("sh");
    command.args(["-c", r#"exec "$0" run --workers 2 "$@" 3<&0 </dev/null"#]).arg(run.get_program());
    for (name, value) in run.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.current_dir(run.get_current_dir().unwrap()).stdin(Stdio::from(socket.into()));
    command
}

fn listener() -> TcpListener {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap()
}

// Caddy, `bind`: `fd/` and the number of an inherited socket. sd_listen_fds(3): the first is number 3.
#[test]
fn an_inherited_socket() {
    let directory = Directory::with(&[("Caddyfile", "http:// {\n\tbind fd/3\n\trespond {remote_host}\n}\n")]);
    let listener = listener();
    let port = listener.local_addr().unwrap().port();
    let server = ServerProcess::start(with_descriptor_3(&directory, listener.try_clone().unwrap()));
    assert_eq!(server.first_line, format!("Causeway serves Caddyfile on http://127.0.0.1:{port} with 2 workers"));
    for _ in 0..20 {
        assert_eq!(get(port, "/").body, "127.0.0.1");
    }
    // The socket outlives the server, so a client that connects meanwhile waits for the next one.
    server.signal(Signal::TERM);
    assert_eq!(server.status().code(), Some(0));
    let _early = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
    let _next = ServerProcess::start(with_descriptor_3(&directory, listener));
    assert_eq!(get(port, "/").body, "127.0.0.1");
}

// systemd.socket(5): `ListenStream=` may be the path of a Unix socket. The file is the service manager's, so it stays.
#[test]
fn an_inherited_unix_socket() {
    let directory = Directory::with(&[(
        "Caddyfile",
        "http:// {\n\tbind fd/3\n\trespond \"{http.request.local} {remote_host}\"\n}\n",
    )]);
    let path = std::env::temp_dir().join(format!("causeway-fd-{}.sock", std::process::id()));
    let listener = UnixListener::bind(&path).unwrap();
    let server = ServerProcess::start(with_descriptor_3(&directory, listener));
    let place = path.to_str().unwrap();
    assert_eq!(server.first_line, format!("Causeway serves Caddyfile on unix/{place} with 2 workers"));
    let mut stream = UnixStream::connect(&path).unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    assert!(text.ends_with(&format!("\r\n\r\n{place} @")), "{text}");
    server.signal(Signal::TERM);
    assert_eq!(server.status().code(), Some(0));
    std::fs::remove_file(&path).unwrap();
}

// Caddy replaces the placeholders of the process in a listener's address.
#[test]
fn a_number_from_the_environment() {
    let caddyfile = "http:// {\n\tbind fd/{env.HTTP_FD} {\n\t\tprotocols h1\n\t}\n\trespond hello\n}\n";
    let directory = Directory::with(&[("Caddyfile", caddyfile)]);
    let listener = listener();
    let port = listener.local_addr().unwrap().port();
    let mut command = with_descriptor_3(&directory, listener);
    command.env("HTTP_FD", "3");
    let _server = ServerProcess::start(command);
    assert_eq!(get(port, "/").body, "hello");
}

/// A reload keeps the socket, and may give it up and take it again.
#[test]
fn a_reload_keeps_an_inherited_socket() {
    let site = |body: &str| format!("http:// {{\n\tbind fd/3\n\trespond {body}\n}}\n");
    let directory = Directory::with(&[("Caddyfile", &site("first"))]);
    let listener = listener();
    let port = listener.local_addr().unwrap().port();
    let mut server = ServerProcess::start(with_descriptor_3(&directory, listener));
    let admin = format!("localhost:{}", server.admin_port());
    let reload = |caddyfile: &str| {
        directory.write("Caddyfile", caddyfile);
        let output = directory.output(&["reload", "--address", &admin]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    assert_eq!(get(port, "/").body, "first");
    reload(&site("second"));
    assert_eq!(get(port, "/").body, "second");
    reload("http://localhost:0 {\n\tbind 127.0.0.1\n\trespond elsewhere\n}\n");
    reload(&site("third"));
    assert_eq!(get(port, "/").body, "third");
}

// Only HTTP/3 uses datagrams, and this version does not have it: the log has a warning, and the other sockets are
// served.
#[test]
fn a_datagram_socket_for_http3() {
    let caddyfile = "http:// {\n\tbind fd/3 {\n\t\tprotocols h1 h2\n\t}\n\tbind fdgram/4 {\n\t\tprotocols h3\n\t}\n\trespond hello\n}\n";
    let directory = Directory::with(&[("Caddyfile", caddyfile)]);
    let listener = listener();
    let port = listener.local_addr().unwrap().port();
    let mut server = ServerProcess::spawn(with_descriptor_3(&directory, listener));
    server.line_with("not listening on fdgram/4: only HTTP/3 uses datagrams, and it is not supported");
    server.line_with("Causeway serves Caddyfile");
    assert_eq!(get(port, "/").body, "hello");
}

#[test]
fn invalid_inherited_sockets() {
    let failed = |directory: &Directory, command: Command| {
        let mut server = ServerProcess::spawn(command);
        let line = server.line_with("Error: ");
        assert_eq!(server.status().code(), Some(1), "{directory:p}");
        line
    };
    let directory = Directory::with(&[("Caddyfile", "http:// {\n\tbind fd/3\n\trespond hello\n}\n")]);
    let udp = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let file = std::fs::File::open("/dev/null").unwrap();
    let sockets: [(OwnedFd, &str); 2] = [(udp.into(), "a datagram socket"), (file.into(), "no socket")];
    for (socket, found) in sockets {
        let want =
            format!("Error: Caddyfile: listening on fd/3: found {found}, expected a TCP or Unix socket that listens");
        assert_eq!(failed(&directory, with_descriptor_3(&directory, socket)), want);
    }
    directory.write("Caddyfile", "http:// {\n\tbind fd/900\n\trespond hello\n}\n");
    let want = "Error: Caddyfile: listening on fd/900: the process has inherited no such file descriptor; a service manager \
                numbers its sockets from 3 on";
    assert_eq!(failed(&directory, directory.command(&["run"])), want);
    for (written, want) in [
        (
            "fd/x",
            "Error: Caddyfile:2:7: found 'fd/x', expected fd/N or fdgram/N, where N is the number of an inherited socket, such as fd/3",
        ),
        (
            "fd/-1",
            "Error: Caddyfile:2:7: found 'fd/-1', expected fd/N or fdgram/N, where N is the number of an inherited socket, such as fd/3",
        ),
    ] {
        directory.write("Caddyfile", format!("http:// {{\n\tbind {written}\n\trespond hello\n}}\n"));
        assert_eq!(failed(&directory, directory.command(&["run"])), want);
    }
    // Two servers cannot share one socket.
    let twice = r#"{"apps":{"http":{"servers":{"a":{"listen":["fd/3"]},"b":{"listen":["fd/3"]}}}}}"#;
    directory.write("Caddyfile", "");
    directory.write("twice.json", twice);
    let mut command = with_descriptor_3(&directory, listener());
    command.args(["--config", "twice.json"]);
    let want = "Error: twice.json: apps.http.servers.b.listen[0]: found 'fd/3', expected addresses that are not taken; the server 'a' \
                has fd/3";
    assert_eq!(failed(&directory, command), want);
}

/// The part of the service manager that receives messages.
struct Manager(UnixDatagram, std::path::PathBuf);

impl Manager {
    fn new(name: &str) -> Self {
        // Not in the test's directory, whose path may be longer than a socket's.
        let path = std::env::temp_dir().join(format!("causeway-notify-{}-{name}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        Self(socket, path)
    }

    /// Returns the next message, without the time.
    #[track_caller]
    fn next(&self) -> Vec<String> {
        let mut bytes = [0; 4096];
        let len = self.0.recv(&mut bytes).expect("a message");
        let text = std::str::from_utf8(&bytes[..len]).unwrap();
        text.lines()
            .map(|line| match line.split_once('=') {
                Some(("MONOTONIC_USEC", time)) if time.parse::<u64>().is_ok() => "MONOTONIC_USEC=N".to_owned(),
                _ => line.to_owned(),
            })
            .collect()
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.1);
    }
}

// sd_notify(3): READY=1, RELOADING=1 with MONOTONIC_USEC and READY=1 after it, STOPPING=1, STATUS=.
#[test]
fn messages_about_the_state_of_a_server() {
    let manager = Manager::new("life");
    let directory = Directory::with(&[("Caddyfile", ":0\nrespond hi\n")]);
    let mut command = directory.command(&["run"]);
    command.env("NOTIFY_SOCKET", &manager.1);
    let mut server = ServerProcess::start(command);
    let serving = format!("STATUS=Serving http://localhost:{}", server.port());
    assert_eq!(manager.next(), ["READY=1", &serving]);
    let admin = format!("localhost:{}", server.admin_port());
    let reloading = ["RELOADING=1", "MONOTONIC_USEC=N", "STATUS=Loading a configuration"];
    directory.write("Caddyfile", ":0\nrespond again\n");
    assert!(directory.output(&["reload", "--address", &admin]).status.success());
    assert_eq!(manager.next(), reloading);
    assert_eq!(manager.next(), ["READY=1", &serving]);
    // A configuration that is refused: the old one stays in effect.
    directory.write("Caddyfile", "http:// {\n\tbind fd/900\n}\n");
    assert!(!directory.output(&["reload", "--address", &admin]).status.success());
    assert_eq!(manager.next(), reloading);
    let refused = manager.next();
    assert_eq!(refused[0], "READY=1");
    assert!(refused[1].starts_with("STATUS=The last configuration was refused: listening on fd/900: "), "{refused:?}");
    server.signal(Signal::TERM);
    assert_eq!(manager.next(), ["STOPPING=1", "STATUS=Stopping"]);
    assert_eq!(server.status().code(), Some(0));
}

// sd_notify(3): EXTEND_TIMEOUT_USEC= requests the time that the unit's `TimeoutStopSec=20s` does not give.
#[test]
fn a_request_for_the_time_of_a_long_stop() {
    for (name, options, want) in [
        ("usual", "grace_period 10s", None),
        ("grace", "grace_period 60s", Some("EXTEND_TIMEOUT_USEC=70000000")),
        ("delay", "shutdown_delay 25s", Some("EXTEND_TIMEOUT_USEC=45000000")),
        ("both", "grace_period 90m\nshutdown_delay 5s", Some("EXTEND_TIMEOUT_USEC=5415000000")),
    ] {
        let manager = Manager::new(name);
        let directory =
            Directory::with(&[("Caddyfile", &*format!("{{\n{options}\n}}\nhttp://:0 {{\nbind 127.0.0.1\n}}\n"))]);
        let mut command = directory.command(&["run"]);
        command.env("NOTIFY_SOCKET", &manager.1);
        let server = ServerProcess::start(command);
        assert_eq!(manager.next()[0], "READY=1");
        server.signal(Signal::TERM);
        let stopping = manager.next();
        assert_eq!(stopping[..2], ["STOPPING=1", "STATUS=Stopping"]);
        assert_eq!(stopping.get(2).map(String::as_str), want, "{options}");
        server.signal(Signal::KILL);
    }
}

// sd_notify(3): MAINPID= names another main process. With `NotifyAccess=main` only the present one may send it, and
// only the next one may send READY=1 after it. The former process must not report its end as the service's.
#[test]
fn messages_about_another_main_process() {
    let manager = Manager::new("upgrade");
    let directory = Directory::with(&[("Caddyfile", "http://:0 {\nbind 127.0.0.1\nrespond hi\n}\n")]);
    let mut command = directory.command(&["run"]);
    command.env("NOTIFY_SOCKET", &manager.1);
    let mut server = ServerProcess::start(command);
    let port = server.port();
    assert_eq!(manager.next()[0], "READY=1");
    server.signal(Signal::USR2);
    let message = manager.next();
    let id = message[0].strip_prefix("MAINPID=").unwrap();
    // systemd looks at this message whether the process is its child; it waits for no other one's end. Process 1 plays
    // systemd here, or a subreaper above the test does.
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap();
    let parent = status.lines().find_map(|line| line.strip_prefix("PPid:")).unwrap().trim();
    let parent_program = std::fs::read_to_string(format!("/proc/{parent}/cmdline")).unwrap();
    assert_ne!(parent, server.pid().to_string());
    assert!(!parent_program.contains("launch-successor"), "{parent_program}");
    server.line_with(&format!("process {id} serves now"));
    assert_eq!(manager.next(), ["READY=1", &format!("STATUS=Serving http://127.0.0.1:{port}")]);
    assert_eq!(server.status().code(), Some(0));
    rustix::process::kill_process(rustix::process::Pid::from_raw(id.parse().unwrap()).unwrap(), Signal::TERM).unwrap();
    assert_eq!(manager.next(), ["STOPPING=1", "STATUS=Stopping"]);
}

/// The next process inherits an inherited socket under the same number.
#[test]
fn an_upgrade_with_an_inherited_socket() {
    let directory = Directory::with(&[("Caddyfile", "http:// {\n\tbind fd/3\n\trespond hello\n}\n")]);
    let listener = listener();
    let port = listener.local_addr().unwrap().port();
    let mut server = ServerProcess::start(with_descriptor_3(&directory, listener));
    server.signal(Signal::USR2);
    let line = server.line_with(" serves now; ");
    let id = line.split("process ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
    assert_eq!(server.status().code(), Some(0));
    assert_eq!(get(port, "/").body, "hello");
    rustix::process::kill_process(rustix::process::Pid::from_raw(id).unwrap(), Signal::TERM).unwrap();
}

// sd_watchdog_enabled(3): WATCHDOG=1 at half of WATCHDOG_USEC, if WATCHDOG_PID is unset or the process's own.
#[test]
fn watchdog_messages() {
    let manager = Manager::new("watchdog");
    let directory = Directory::new();
    let start = |pid: Option<&str>, limit: &str| {
        let mut command = directory.command(&["respond", "--listen", "127.0.0.1:0"]);
        command.env("NOTIFY_SOCKET", &manager.1).env("WATCHDOG_USEC", limit);
        if let Some(pid) = pid {
            command.env("WATCHDOG_PID", pid);
        }
        let server = ServerProcess::start(command);
        // A sign of life of the last server may come late, after its STOPPING=1.
        while manager.next()[0] != "READY=1" {}
        server
    };
    let server = start(None, "50000");
    for _ in 0..3 {
        assert_eq!(manager.next(), ["WATCHDOG=1"]);
    }
    server.signal(Signal::TERM);
    while manager.next()[0] != "STOPPING=1" {}
    assert_eq!(server.status().code(), Some(0));
    // The watchdog of another process, and none.
    for (pid, limit) in [(Some("1"), "1000"), (None, "0"), (None, "x")] {
        // A message of the last server may have come late.
        let server = start(pid, limit);
        get(server.port(), "/");
        server.signal(Signal::TERM);
        assert_eq!(manager.next()[0], "STOPPING=1", "{limit}");
    }
}

/// A service manager that reads no messages delays neither loads nor the end.
#[test]
fn a_service_manager_that_has_stopped() {
    let manager = Manager::new("stopped");
    // unix(7): the queue of a datagram socket is bounded.
    let room = std::fs::read_to_string("/proc/sys/net/unix/max_dgram_qlen").unwrap().trim().parse::<usize>().unwrap();
    let directory = Directory::with(&[("Caddyfile", ":0\nrespond hi\n")]);
    let mut command = directory.command(&["run"]);
    command.env("NOTIFY_SOCKET", &manager.1);
    let mut server = ServerProcess::start(command);
    let admin = server.admin_port();
    let fields = [&*format!("Host: localhost:{admin}"), "Content-Type: application/json"];
    // Each load sends two messages, one of them after the room is used up.
    for load in 0..=room.div_ceil(2) {
        let config =
            format!(r#"{{"admin":{{"listen":"localhost:0"}},"apps":{{"http":{{"grace_period":{}}}}}}}"#, load + 1);
        assert_eq!(send_body(admin, "POST /load", &fields, &config).status, 200, "{load}");
    }
    server.line_with("cannot notify the service manager at NOTIFY_SOCKET");
    server.signal(Signal::TERM);
    assert_eq!(server.status().code(), Some(0));
}

/// A service manager that cannot be reached does not keep the server from serving.
#[test]
fn no_service_manager() {
    let directory = Directory::new();
    let mut command = directory.command(&["respond", "--listen", "127.0.0.1:0", "served"]);
    command.env("NOTIFY_SOCKET", directory.path("nothing"));
    let mut server = ServerProcess::start(command);
    server.line_with("cannot notify the service manager at NOTIFY_SOCKET");
    assert_eq!(get(server.port(), "/").body, "served");
}
