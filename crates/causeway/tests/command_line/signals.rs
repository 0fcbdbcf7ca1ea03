//! The shutdown of a server, and its remains.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use causeway_testkit::ports::free_port;
use rustix::process::{Pid, Signal, kill_process};

use crate::client::{connect, get, send};
use crate::process::{Directory, ServerProcess, wait_until};

/// More bytes than socket buffers hold: such a response stays in flight until the peer reads it.
const LARGE: usize = 64 << 20;

/// Starts a server of one large file, and a connection that has requested the file but does not read it.
fn busy(directory: &Directory, flags: &[&str]) -> (ServerProcess, TcpStream) {
    directory.write("large", vec![b'x'; LARGE]);
    let server = directory.start(&[&["file-server", "--listen", "127.0.0.1:0"], flags].concat());
    let mut stream = connect(server.port());
    stream.write_all(b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    // The first byte proves that the response has begun.
    stream.read_exact(&mut [0]).unwrap();
    (server, stream)
}

#[test]
fn both_signals_complete_responses() {
    for signal in [Signal::TERM, Signal::INT] {
        let directory = Directory::new();
        let (mut server, mut stream) = busy(&directory, &[]);
        server.signal(signal);
        let begun = Instant::now();
        server.line_with("Stopping: requests have 10 s to end");
        // New connections are refused, at the latest after a moment.
        while TcpStream::connect((Ipv4Addr::LOCALHOST, server.port())).is_ok() {
            assert!(begun.elapsed() < Duration::from_secs(5), "it accepts while it stops");
            std::thread::sleep(Duration::from_millis(5));
        }
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let body = answer.windows(4).position(|window| window == b"\r\n\r\n").unwrap() + 4;
        assert_eq!(answer.len() - body, LARGE, "{signal:?}");
        assert_eq!(server.status().code(), Some(0), "{signal:?}");
    }
}

#[test]
fn a_second_signal_ends_it_at_once() {
    for signal in [Signal::TERM, Signal::INT] {
        let directory = Directory::new();
        let (mut server, stream) = busy(&directory, &["--grace", "1h", "--pidfile", "pid"]);
        assert!(directory.path("pid").exists());
        server.signal(signal);
        server.line_with("Stopping: requests have 3600 s to end");
        server.signal(signal);
        assert_eq!(server.status().code(), Some(2), "{signal:?}");
        assert!(!directory.path("pid").exists());
        drop(stream);
    }
}

/// Caddy's documentation of signals: SIGQUIT ends the process at once.
#[test]
fn quit_ends_it_at_once() {
    let directory = Directory::new();
    let (server, stream) = busy(&directory, &["--grace", "1h", "--pidfile", "pid"]);
    server.signal(Signal::QUIT);
    assert_eq!(server.status().code(), Some(2));
    assert!(!directory.path("pid").exists());
    drop(stream);
}

/// Opening a log file may block for ever, as on a file server that does not respond; here it is a pipe without a
/// reader. Meanwhile the metrics and the status are there, and a second signal ends the process.
#[test]
fn a_load_that_blocks() {
    let directory = Directory::with(&[("Caddyfile", ":0\nrespond hi\n")]);
    let made = Command::new("mkfifo").arg(directory.path("pipe")).status().unwrap();
    assert!(made.success());
    let mut server = directory.start(&["run", "--pidfile", "pid"]);
    let admin = server.admin_port();
    let host = format!("Host: localhost:{admin}");
    let caddyfile = format!(":0\nlog {{\n\toutput file {}\n}}\n", directory.path("pipe").display());
    let mut load = connect(admin);
    let head =
        format!("POST /load HTTP/1.1\r\n{host}\r\nContent-Type: text/caddyfile\r\nContent-Length: {}", caddyfile.len());
    load.write_all(format!("{head}\r\n\r\n{caddyfile}").as_bytes()).unwrap();
    // Commands are executed in their order, so a later one waits for the load.
    wait_until("the load blocks", || {
        let mut later = connect(admin);
        later.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        later.write_all(format!("GET /config/ HTTP/1.1\r\n{host}\r\n\r\n").as_bytes()).unwrap();
        later.read(&mut [0]).is_err()
    });
    for path in ["/metrics", "/causeway/status"] {
        assert_eq!(send(admin, &format!("GET {path}"), &[&host]).status, 200, "{path}");
    }
    assert_eq!(get(server.port(), "/").body, "hi");
    server.signal(Signal::TERM);
    server.signal(Signal::INT);
    assert_eq!(server.status().code(), Some(2));
    assert!(!directory.path("pid").exists());
}

/// As above, but during the start, and the pid file is that of a server that runs.
#[test]
fn a_start_that_blocks() {
    let directory = Directory::new();
    let made = Command::new("mkfifo").arg(directory.path("pipe")).status().unwrap();
    assert!(made.success());
    directory.write("Caddyfile", format!(":0\nlog {{\n\toutput file {}\n}}\n", directory.path("pipe").display()));
    directory.write("pid", "1\n");
    /// Kills the process when a test fails: it would block for ever.
    struct Killed(Child);
    impl Drop for Killed {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }
    let mut child = Killed(directory.command(&["run", "--pidfile", "pid"]).spawn().unwrap());
    let child = &mut child.0;
    let pid = Pid::from_child(child);
    // proc(5): the mask of the signals that the process handles.
    wait_until("the process handles SIGTERM", || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
        let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:\t")).unwrap();
        u64::from_str_radix(mask, 16).unwrap() & 1 << (15 - 1) != 0
    });
    // The thread that ends the process may not listen yet.
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        kill_process(pid, Signal::TERM).unwrap();
        std::thread::sleep(Duration::from_millis(20));
    };
    assert_eq!(status.code(), Some(2));
    assert_eq!(std::fs::read_to_string(directory.path("pid")).unwrap(), "1\n");
}

// RFC 9112 §8: the end of the connection delimits a response to HTTP/1.0, so a plain close would make a cut one look
// complete.
#[test]
fn a_cut_response_to_http_1_0_ends_with_a_reset() {
    let application = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = application.local_addr().unwrap().port();
    let directory = Directory::with(&[(
        "Caddyfile",
        &*format!(
            "{{\n\tgrace_period 200ms\n}}\nhttp://:0 {{\n\tbind 127.0.0.1\n\treverse_proxy 127.0.0.1:{port}\n}}\n"
        ),
    )]);
    let server = directory.start(&["run"]);
    let mut client = connect(server.port());
    client.write_all(b"GET / HTTP/1.0\r\nHost: a\r\n\r\n").unwrap();
    let (mut upstream, _) = application.accept().unwrap();
    upstream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n").unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\nhello") {
        let mut bytes = [0; 512];
        let read = client.read(&mut bytes).unwrap();
        answer.extend_from_slice(&bytes[..read]);
    }
    server.signal(Signal::TERM);
    let end = client.read(&mut [0; 16]);
    assert_eq!(end.unwrap_err().kind(), ErrorKind::ConnectionReset);
    assert_eq!(server.status().code(), Some(0));
}

#[test]
fn the_grace_period_is_bounded() {
    let directory = Directory::new();
    let (server, stream) = busy(&directory, &["--grace", "0"]);
    server.signal(Signal::TERM);
    assert_eq!(server.status().code(), Some(0));
    drop(stream);
    let directory = Directory::with(&[("Caddyfile", "{\n\tgrace_period 7s\n}\n:0\nrespond hi\n")]);
    let mut server = directory.start(&["run"]);
    server.signal(Signal::TERM);
    server.line_with("Stopping: requests have 7 s to end");
}

/// Caddy's documentation of `shutdown_delay`: during the delay the server works normally, and placeholders announce its
/// end.
#[test]
fn a_stop_that_is_announced() {
    let caddyfile = "{\n\tshutdown_delay 1s\n}\n:0\nrespond {http.shutting_down}\n";
    let directory = Directory::with(&[("Caddyfile", caddyfile)]);
    let mut server = directory.start(&["run"]);
    assert_eq!(get(server.port(), "/").body, "false");
    server.signal(Signal::TERM);
    server.line_with("Stopping in 1 s: requests have 10 s to end");
    // Workers see the announcement at different times. If none did, the server would be gone before the loop ends.
    while get(server.port(), "/").body != "true" {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(server.status().code(), Some(0));
}

#[test]
fn a_hangup_does_not_stop_the_server() {
    let directory = Directory::new();
    let server = directory.start(&["respond", "--listen", "127.0.0.1:0", "still here"]);
    server.signal(Signal::HUP);
    assert_eq!(get(server.port(), "/").body, "still here");
}

#[test]
fn the_pid_file_exists_while_the_server_runs() {
    let directory = Directory::with(&[("Caddyfile", ":0\nrespond hi\n")]);
    let server = directory.start(&["run", "--pidfile", "causeway.pid"]);
    let pid = std::fs::read_to_string(directory.path("causeway.pid")).unwrap();
    assert!(pid.trim_end().parse::<u32>().is_ok_and(|pid| pid > 1), "{pid:?}");
    // A second server that fails to start leaves the file alone.
    let listen = format!("127.0.0.1:{}", server.port());
    let second = directory.output(&["respond", "--listen", &listen, "--pidfile", "causeway.pid"]);
    assert_eq!(second.status.code(), Some(1));
    assert_eq!(std::fs::read_to_string(directory.path("causeway.pid")).unwrap(), pid);
    server.signal(Signal::TERM);
    assert_eq!(server.status().code(), Some(0));
    assert!(!directory.path("causeway.pid").exists());
}

#[test]
fn a_second_instance_is_refused() {
    let directory = Directory::new();
    let server = directory.start(&["respond", "--listen", "127.0.0.1:0", "first"]);
    let address = format!("127.0.0.1:{}", server.port());
    let second = directory.output(&["respond", "--listen", &address, "second"]);
    let stderr = String::from_utf8(second.stderr).unwrap();
    let want = format!(
        "Error: listening on {address}: the port is in use already; choose another with --listen, as in \
         `causeway respond --listen :8081`\n"
    );
    assert_eq!((second.status.code(), &*stderr), (Some(1), &*want));
    assert_eq!(get(server.port(), "/").body, "first");
}

/// When one of two listeners cannot be opened, the first must be closed too.
#[test]
fn a_failed_start_closes_all_listeners() {
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let (taken_port, free_port) = (taken.local_addr().unwrap().port(), free_port());
    let caddyfile =
        format!("http://127.0.0.1:{free_port}, http://127.0.0.1:{taken_port} {{\n\tbind 127.0.0.1\n\trespond hi\n}}\n");
    let directory = Directory::with(&[("Caddyfile", &caddyfile)]);
    let failed = directory.output(&["run"]);
    let want = format!("Error: Caddyfile: listening on 127.0.0.1:{taken_port}: the port is in use already\n");
    assert_eq!((failed.status.code(), &*String::from_utf8(failed.stderr).unwrap()), (Some(1), &*want));
    TcpListener::bind((Ipv4Addr::LOCALHOST, free_port)).unwrap();
}

// A stop waits for no reader of standard error, such as a collector that hangs.
#[test]
fn standard_error_is_full() {
    let port = free_port();
    let directory = Directory::with(&[(
        "Caddyfile",
        &*format!("{{\n\tadmin off\n}}\nhttp://127.0.0.1:{port} {{\n\trespond hi\n}}\n"),
    )]);
    let (mut reader, mut writer) = std::io::pipe().unwrap();
    let mut command = directory.command(&["run"]);
    let mut child = command.stdout(std::process::Stdio::null()).stderr(writer.try_clone().unwrap()).spawn().unwrap();
    drop(command);
    // The last line of the start, which waits for its reader.
    let (mut printed, mut byte) = (Vec::new(), [0]);
    while !(printed.ends_with(b"\n") && String::from_utf8_lossy(&printed).contains("Causeway serves")) {
        reader.read_exact(&mut byte).unwrap();
        printed.push(byte[0]);
    }
    // Blocks when the pipe is full, until the end of the test.
    let filler = std::thread::spawn(move || writer.write_all(&[b'x'; 1 << 20]));
    let mut before = 0;
    wait_until("the pipe is full", || {
        let now = rustix::io::ioctl_fionread(&reader).unwrap();
        now > 0 && std::mem::replace(&mut before, now) == now
    });
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    wait_until("it ends", || child.try_wait().unwrap().is_some());
    assert_eq!(child.wait().unwrap().code(), Some(0));
    drop(reader);
    assert!(filler.join().unwrap().is_err());
}
