//! `upgrade` and SIGUSR2: another process takes the place of a running server, with its sockets.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::client::{connect, get};
use crate::process::{Directory, wait_until};
use crate::web_sockets::{echo_upstream, echoes, is_closed_by_frame, tunnel};

/// Paths for two sockets, of the admin API and of a site; the files are removed when dropped.
struct Sockets {
    admin: PathBuf,
    site: PathBuf,
}

impl Sockets {
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!("causeway-up-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        // Not in the test's directory, whose path may be longer than a socket's.
        let path = |end: &str| std::env::temp_dir().join(format!("{name}{end}"));
        Self { admin: path(".admin"), site: path(".site") }
    }

    fn address(&self) -> String {
        format!("unix/{}", self.admin.display())
    }
}

impl Drop for Sockets {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.admin);
        let _ = std::fs::remove_file(&self.site);
    }
}

/// A process that has taken a server's place; killed when dropped.
pub(crate) struct Successor(pub(crate) u32);

impl Successor {
    /// Reads its process id from the output of `upgrade`.
    #[track_caller]
    fn of(output: &std::process::Output) -> Self {
        let (text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{errors}");
        let id = text.strip_prefix("Process ").and_then(|rest| rest.split(' ').next()?.parse().ok());
        Self(id.unwrap_or_else(|| panic!("{text}")))
    }

    /// Reads its process id from the former process's log.
    #[track_caller]
    pub(crate) fn of_line(line: &str) -> Self {
        let id = line.split("process ").nth(1).and_then(|rest| rest.split(' ').next()?.parse().ok());
        Self(id.unwrap_or_else(|| panic!("{line}")))
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(self.0.try_into().unwrap()).unwrap()
    }

    /// Returns the program's arguments.
    fn arguments(&self) -> String {
        std::fs::read_to_string(format!("/proc/{}/cmdline", self.0)).unwrap_or_default().replace('\0', " ")
    }
}

impl Drop for Successor {
    fn drop(&mut self) {
        let _ = kill_process(self.pid(), Signal::KILL);
    }
}

const CLOSE: &str = "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";

/// Writes a program that runs the server with other arguments.
fn wrapper(directory: &Directory, arguments: &str) -> String {
    let program = env!("CARGO_BIN_EXE_causeway");
    directory.write("wrapper", format!("#!/bin/sh\nexec '{program}' run {arguments}\n"));
    let path = directory.path("wrapper");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path.to_str().unwrap().to_owned()
}

/// Writes a program that runs the server with other arguments a second later, and writes its process id to the file
/// `id` at once.
fn slow_wrapper(directory: &Directory, arguments: &str) -> String {
    let path = wrapper(directory, arguments);
    let script = std::fs::read_to_string(&path).unwrap().replace("exec ", "echo $$ > id\nsleep 1\nexec ");
    directory.write("wrapper", script);
    path
}

/// Writes a program that starts and never serves, and writes its process id to the file `id`.
fn sleeper(directory: &Directory) -> String {
    directory.write("sleeper", "#!/bin/sh\necho $$ > id\nexec sleep 1000\n");
    let path = directory.path("sleeper");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path.to_str().unwrap().to_owned()
}

/// Sends a request and reads the response, whose body is `hello`. Returns whether the connection stays open.
fn send_request(stream: &mut TcpStream) -> std::io::Result<bool> {
    stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
    let mut bytes = Vec::new();
    while !bytes.ends_with(b"\r\n\r\nhello") {
        let mut some = [0; 512];
        match stream.read(&mut some)? {
            0 => return Err(ErrorKind::UnexpectedEof.into()),
            len => bytes.extend_from_slice(&some[..len]),
        }
    }
    Ok(!String::from_utf8_lossy(&bytes).contains("Connection: close"))
}

/// Under load no connection fails, whatever the number of workers of the next process: new connections, kept ones, and
/// tunnels, which last until the grace period is over.
#[test]
fn under_load() {
    let (directory, sockets) = (Directory::new(), Sockets::new());
    let upstream = echo_upstream();
    directory.write(
        "Caddyfile",
        format!(
            "{{\nadmin {}\ngrace_period 4s\n}}\nhttp://:0 {{\nbind 127.0.0.1 unix/{}\nreverse_proxy /ws 127.0.0.1:{upstream}\nrespond / hello\n}}\n",
            sockets.address(),
            sockets.site.display()
        ),
    );
    let server = directory.start(&["run", "--workers", "2", "--pidfile", "pid"]);
    let port = server.port();
    let mut tunnels: Vec<_> = (0..100).map(|_| tunnel(port)).collect();
    let done = AtomicBool::new(false);
    let (served, successors) = std::thread::scope(|scope| {
        let kept = |_| {
            scope.spawn(|| {
                let (mut stream, mut served) = (connect(port), 0);
                while !done.load(Ordering::Relaxed) {
                    if !send_request(&mut stream).unwrap() {
                        stream = connect(port);
                    }
                    served += 1;
                }
                served
            })
        };
        let fresh = |number| {
            let (done, sockets) = (&done, &sockets);
            scope.spawn(move || {
                let mut served = 0;
                while !done.load(Ordering::Relaxed) {
                    let mut text = String::new();
                    if number % 2 == 0 {
                        let mut stream = connect(port);
                        stream.write_all(CLOSE.as_bytes()).unwrap();
                        stream.read_to_string(&mut text).unwrap();
                    } else {
                        let mut stream = UnixStream::connect(&sockets.site).unwrap();
                        stream.write_all(CLOSE.as_bytes()).unwrap();
                        stream.read_to_string(&mut text).unwrap();
                    }
                    assert!(text.ends_with("hello"), "{text}");
                    served += 1;
                }
                served
            })
        };
        let clients: Vec<_> = (0..3).map(kept).chain((0..4).map(fresh)).collect();
        // As many workers, then fewer, then more.
        let mut successors = Vec::new();
        for workers in ["2", "1", "3"] {
            let binary = wrapper(&directory, &format!("--workers {workers} --pidfile pid"));
            let output = directory.output(&["upgrade", "--binary", &binary, "--address", &sockets.address()]);
            successors.push(Successor::of(&output));
            assert!(successors.last().unwrap().arguments().contains(&format!("--workers {workers} ")));
            std::thread::sleep(Duration::from_millis(200));
        }
        assert!(tunnels.iter_mut().all(echoes), "a tunnel was cut before the end of the grace period");
        done.store(true, Ordering::Relaxed);
        (clients.into_iter().map(|client| client.join().unwrap()).sum::<u32>(), successors)
    });
    println!("{served} requests");
    let last = successors.last().unwrap();
    assert_eq!(std::fs::read_to_string(directory.path("pid")).unwrap(), format!("{}\n", last.0));
    // The former process ends, its tunnels with it, and leaves the files to the last one.
    assert_eq!(server.status().code(), Some(0));
    assert!(tunnels.iter_mut().all(is_closed_by_frame));
    assert!(directory.path("pid").exists() && sockets.admin.exists() && sockets.site.exists());
    let mut text = String::new();
    let mut stream = UnixStream::connect(&sockets.site).unwrap();
    stream.write_all(CLOSE.as_bytes()).unwrap();
    stream.read_to_string(&mut text).unwrap();
    assert!(text.ends_with("hello"), "{text}");
    assert!(directory.output(&["stop", "--address", &sockets.address()]).status.success());
    while sockets.admin.exists() || directory.path("pid").exists() {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(!sockets.site.exists());
}

/// A program that does not serve leaves the server as it was; the command and the log have the reason.
#[test]
fn a_program_that_does_not_serve() {
    let (directory, sockets) = (Directory::new(), Sockets::new());
    directory.write(
        "Caddyfile",
        format!("{{\nadmin {}\n}}\nhttp://:0 {{\nbind 127.0.0.1\nrespond hello\n}}\n", sockets.address()),
    );
    let mut server = directory.start(&["run", "--workers", "1", "--pidfile", "pid"]);
    let missing = directory.path("missing");
    let missing = missing.to_str().unwrap();
    let unknown_flag = wrapper(&directory, "--no-such-flag");
    for (binary, want) in [
        ("/bin/true", "/bin/true: the new process ended before it served (exit status: 0)".to_owned()),
        (missing, format!("{missing}: starting the new process: No such file or directory (os error 2)")),
        (&unknown_flag, format!("{unknown_flag}: the new process ended before it served (exit status: 1)")),
    ] {
        let output = directory.output(&["upgrade", "--binary", binary, "--address", &sockets.address()]);
        let errors = String::from_utf8(output.stderr).unwrap();
        let place = sockets.address();
        assert_eq!(errors, format!("Error: the server on {place} continues to serve: {want} (HTTP 500)\n"));
        server.line_with(&format!("the upgrade failed; this process continues to serve: {want}"));
        assert_eq!(get(server.port(), "/").body, "hello");
        assert_eq!(std::fs::read_to_string(directory.path("pid")).unwrap(), format!("{}\n", server.pid()));
    }
    // A program that begins to serve, but cannot: the reason is its own. The environment lacks the file that
    // `--envfile` names.
    let failing = wrapper(&directory, "--envfile missing");
    let output = directory.output(&["upgrade", "--binary", &failing, "--address", &sockets.address()]);
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(errors.contains("the new process does not serve: ") && errors.contains("missing"), "{errors}");
    assert_eq!(get(server.port(), "/").body, "hello");
    assert!(sockets.admin.exists());
}

/// SIGTERM during an upgrade stops the server, and no other process remains. Until then the server answers, and so does
/// its API.
#[test]
fn a_stop_during_an_upgrade() {
    let (directory, sockets) = (Directory::new(), Sockets::new());
    directory.write(
        "Caddyfile",
        format!("{{\nadmin {}\n}}\nhttp://:0 {{\nbind 127.0.0.1\nrespond hello\n}}\n", sockets.address()),
    );
    let mut server = directory.start(&["run"]);
    let sleeper = sleeper(&directory);
    let output = std::thread::scope(|scope| {
        let upgrade = || directory.output(&["upgrade", "--binary", &sleeper, "--address", &sockets.address()]);
        let upgrade = scope.spawn(upgrade);
        while !std::fs::read_to_string(directory.path("id")).is_ok_and(|id| id.ends_with('\n')) {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(directory.output(&["status", "--address", &sockets.address()]).status.success());
        assert_eq!(get(server.port(), "/").body, "hello");
        server.signal(Signal::TERM);
        upgrade.join().unwrap()
    });
    server.line_with("ending the upgrade: the server was stopped meanwhile");
    assert_eq!(server.status().code(), Some(0));
    let errors = String::from_utf8(output.stderr).unwrap();
    let want = format!("Error: the server on {}: the server was stopped meanwhile (HTTP 409)\n", sockets.address());
    assert_eq!(errors, want);
    let id = std::fs::read_to_string(directory.path("id")).unwrap();
    assert!(!std::fs::exists(format!("/proc/{}", id.trim())).unwrap());
}

/// A signal that ends the server at once during an upgrade ends the other process too, which would serve otherwise.
#[test]
fn a_forced_end_during_an_upgrade() {
    for signals in [&[Signal::QUIT][..], &[Signal::TERM, Signal::INT]] {
        let (directory, sockets) = (Directory::new(), Sockets::new());
        directory.write(
            "Caddyfile",
            format!("{{\nadmin {}\n}}\nhttp://:0 {{\nbind 127.0.0.1\nrespond hello\n}}\n", sockets.address()),
        );
        let server = directory.start(&["run"]);
        let sleeper = sleeper(&directory);
        let next = std::thread::scope(|scope| {
            scope.spawn(|| directory.output(&["upgrade", "--binary", &sleeper, "--address", &sockets.address()]));
            let id = || std::fs::read_to_string(directory.path("id")).ok()?.strip_suffix('\n')?.parse().ok();
            wait_until("the other process has started", || id().is_some());
            signals.iter().for_each(|signal| server.signal(*signal));
            Successor(id().unwrap())
        });
        // Only the first signal is sure to come before the server has ended in good order.
        let status = server.status().code();
        assert!(status == Some(2) || signals.len() > 1, "{status:?}");
        // An ended process has no arguments, also as long as no process has waited for it.
        wait_until("the other process has ended", || next.arguments().is_empty());
    }
}

/// Another program, such as the system without memory, may kill the launcher: the new process takes over nevertheless,
/// and a stop of the server ends it nevertheless.
#[test]
fn a_launcher_that_is_killed() {
    for is_stopped in [false, true] {
        let (directory, sockets) = (Directory::new(), Sockets::new());
        directory.write(
            "Caddyfile",
            format!("{{\nadmin {}\n}}\nhttp://:0 {{\nbind 127.0.0.1\nrespond hello\n}}\n", sockets.address()),
        );
        let server = directory.start(&["run"]);
        let binary = if is_stopped { sleeper(&directory) } else { slow_wrapper(&directory, "") };
        let (output, next) = std::thread::scope(|scope| {
            let upgrade =
                scope.spawn(|| directory.output(&["upgrade", "--binary", &binary, "--address", &sockets.address()]));
            let id = || std::fs::read_to_string(directory.path("id")).ok()?.strip_suffix('\n')?.parse().ok();
            wait_until("the other process has started", || id().is_some());
            let next = Successor(id().unwrap());
            let status = std::fs::read_to_string(format!("/proc/{}/status", next.0)).unwrap();
            let launcher = status.lines().find_map(|line| line.strip_prefix("PPid:")?.trim().parse().ok()).unwrap();
            kill_process(Pid::from_raw(launcher).unwrap(), Signal::KILL).unwrap();
            if is_stopped {
                server.signal(Signal::TERM);
            }
            (upgrade.join().unwrap(), next)
        });
        if is_stopped {
            assert_eq!(server.status().code(), Some(0));
            // An ended process has no arguments, also as long as no process has waited for it.
            assert_eq!(next.arguments(), "");
        } else {
            let served = Successor::of(&output);
            assert_eq!(served.0, next.0);
            assert_eq!(get(server.port(), "/").body, "hello");
        }
    }
}

/// The deepest configuration of a Caddyfile can be handed over, and kept for `--resume`.
#[test]
fn a_deep_configuration() {
    let (open, close) = ("handle {\n".repeat(31), "}\n".repeat(31));
    let caddyfile = format!("http://:0 {{\nbind 127.0.0.1\n{open}respond hello\n{close}}}\n");
    let directory = Directory::with(&[("Caddyfile", &*caddyfile)]);
    let mut server = directory.start(&["run"]);
    let port = server.port();
    server.signal(Signal::USR2);
    let line = server.line_with(" serves now; ");
    let next = Successor::of_line(&line);
    assert_eq!(server.status().code(), Some(0));
    assert_eq!(get(port, "/").body, "hello");
    drop(next);
    let server = directory.start(&["run", "--resume"]);
    assert_eq!(get(server.port(), "/").body, "hello");
}

/// A reload that waits for an upgrade is sent to the new process as soon as that serves, not when the old one ends. The
/// file of the process id is the other one's then.
#[test]
fn a_configuration_change_during_an_upgrade() {
    let (directory, sockets) = (Directory::new(), Sockets::new());
    directory.write(
        "Caddyfile",
        format!(
            "{{\nadmin {}\ngrace_period 60s\n}}\nhttp://:0 {{\nbind 127.0.0.1\nrespond hello\n}}\n",
            sockets.address()
        ),
    );
    let server = directory.start(&["run", "--pidfile", "pid"]);
    // The former process waits for the next request of this connection.
    let mut kept = connect(server.port());
    assert!(send_request(&mut kept).unwrap());
    let slow = slow_wrapper(&directory, "--pidfile pid");
    std::thread::scope(|scope| {
        let upgrade = scope.spawn(|| {
            let output = directory.output(&["upgrade", "--binary", &slow, "--address", &sockets.address()]);
            (output, std::fs::read_to_string(directory.path("pid")).unwrap())
        });
        while !std::fs::read_to_string(directory.path("id")).is_ok_and(|id| id.ends_with('\n')) {
            std::thread::sleep(Duration::from_millis(5));
        }
        let changed = std::fs::read_to_string(directory.path("Caddyfile")).unwrap().replace("hello", "changed");
        directory.write("Caddyfile", changed);
        let reload = directory.output(&["reload", "--force", "--address", &sockets.address()]);
        assert!(reload.status.success(), "{}", String::from_utf8_lossy(&reload.stderr));
        assert_eq!(get(server.port(), "/").body, "changed");
        let (output, id) = upgrade.join().unwrap();
        assert_eq!(id, format!("{}\n", Successor::of(&output).0));
    });
    assert!(!send_request(&mut kept).unwrap(), "the former process answers the last request");
}

/// SIGUSR1 is for the server. During an upgrade the process that serves afterwards loads the file, which is the former
/// one if the upgrade fails; a former process that drains passes the signal on.
#[test]
fn a_reload_signal_during_an_upgrade() {
    for arguments in ["", "--no-such-flag"] {
        let (directory, sockets) = (Directory::new(), Sockets::new());
        let write = |body: &str| {
            let options = format!("admin {}\ngrace_period 60s", sockets.address());
            directory
                .write("Caddyfile", format!("{{\n{options}\n}}\nhttp://:0 {{\nbind 127.0.0.1\nrespond {body}\n}}\n"));
        };
        write("hello");
        let server = directory.start(&["run"]);
        let port = server.port();
        // The former process waits for the next request of this connection.
        let mut kept = connect(port);
        assert!(send_request(&mut kept).unwrap());
        let slow = slow_wrapper(&directory, arguments);
        let output = std::thread::scope(|scope| {
            let upgrade =
                scope.spawn(|| directory.output(&["upgrade", "--binary", &slow, "--address", &sockets.address()]));
            wait_until("the other process has started", || directory.path("id").exists());
            write("changed");
            server.signal(Signal::USR1);
            upgrade.join().unwrap()
        });
        wait_until("the file is loaded", || get(port, "/").body == "changed");
        if arguments.is_empty() {
            let _next = Successor::of(&output);
            write("again");
            server.signal(Signal::USR1);
            wait_until("the next process has loaded the file", || get(port, "/").body == "again");
        }
    }
}

/// An upgrade that waits for another one is sent to the new process as soon as that serves, which hands over in its
/// turn.
#[test]
fn an_upgrade_during_an_upgrade() {
    let (directory, sockets) = (Directory::new(), Sockets::new());
    directory.write(
        "Caddyfile",
        format!("{{\nadmin {}\n}}\nhttp://:0 {{\nbind 127.0.0.1\nrespond hello\n}}\n", sockets.address()),
    );
    let server = directory.start(&["run"]);
    let slow = slow_wrapper(&directory, "");
    let (first, second) = std::thread::scope(|scope| {
        let first = scope.spawn(|| directory.output(&["upgrade", "--binary", &slow, "--address", &sockets.address()]));
        while !std::fs::read_to_string(directory.path("id")).is_ok_and(|id| id.ends_with('\n')) {
            std::thread::sleep(Duration::from_millis(5));
        }
        let second = Successor::of(&directory.output(&["upgrade", "--address", &sockets.address()]));
        (Successor::of(&first.join().unwrap()), second)
    });
    assert_ne!(first.0, second.0);
    assert_eq!(get(server.port(), "/").body, "hello");
}

/// The running configuration counts, also if the API has loaded it, and if the file has a mistake meanwhile.
#[test]
fn the_running_configuration() {
    let directory = Directory::with(&[("Caddyfile", "http://:0 {\nbind 127.0.0.1\nrespond first\n}\n")]);
    let mut server = directory.start(&["run"]);
    let admin = server.admin_port();
    let config = format!(
        r#"{{"apps":{{"http":{{"servers":{{"s":{{"@id":"it","listen":["127.0.0.1:{}"],"routes":[{{"handle":[{{"handler":"static_response","body":"hello"}}]}}]}}}}}}}}}}"#,
        server.port()
    );
    let loaded = crate::client::send_body(
        admin,
        "POST /load",
        &[&format!("Host: localhost:{admin}"), "Content-Type: application/json"],
        &config,
    );
    assert_eq!(loaded.status, 200, "{}", loaded.body);
    directory.write("Caddyfile", "{{{");
    // Over TCP the server's own program only: any user of the machine may connect to a port.
    let address = format!("localhost:{admin}");
    let refused = directory.output(&["upgrade", "--binary", "/bin/true", "--address", &address]);
    let errors = String::from_utf8(refused.stderr).unwrap();
    assert!(errors.contains("binary: expected a request over a Unix socket"), "{errors}");
    let next = Successor::of(&directory.output(&["upgrade", "--address", &address]));
    // The admin API is on the port that the system has chosen for the former process.
    assert_eq!(get(server.port(), "/").body, "hello");
    let at_id = crate::client::send(admin, "GET /id/it/listen", &[&format!("Host: localhost:{admin}")]);
    assert_eq!(at_id.body, format!("[\"127.0.0.1:{}\"]\n", server.port()));
    let port = server.port();
    assert_eq!(server.status().code(), Some(0));
    assert_eq!(get(port, "/").body, "hello");
    drop(next);
}

/// SIGUSR2, and a server that follows its file: the next process follows it too.
#[test]
fn a_signal() {
    let directory = Directory::with(&[("Caddyfile", "http://:0 {\nbind 127.0.0.1\nrespond first\n}\n")]);
    let mut server = directory.start(&["run", "--pidfile", "pid"]);
    let port = server.port();
    server.signal(Signal::USR2);
    let line = server.line_with(" serves now; requests of this process have 10 s to end");
    let next = Successor::of_line(&line);
    directory.write("Caddyfile", format!("http://:{port} {{\nbind 127.0.0.1\nrespond second\n}}\n"));
    kill_process(next.pid(), Signal::USR1).unwrap();
    server.line_with("SIGUSR1: reloading Caddyfile");
    while get(port, "/").body != "second" {
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A log collector that has stopped reading standard error does not keep the next process from serving, nor from its
/// end.
#[test]
fn standard_error_is_full() {
    let (directory, sockets) = (Directory::new(), Sockets::new());
    directory.write(
        "Caddyfile",
        format!("{{\nadmin {}\n}}\nhttp://:0 {{\nbind 127.0.0.1\nrespond hi\n}}\n", sockets.address()),
    );
    let mut server = directory.start(&["run", "--pidfile", "pid"]);
    server.line_with("The admin API is on ");
    server.stop_reading();
    let next = Successor::of(&directory.output(&["upgrade", "--address", &sockets.address()]));
    let status = directory.output(&["status", "--address", &sockets.address()]);
    assert!(status.status.success(), "{}", String::from_utf8_lossy(&status.stderr));
    assert_eq!(get(server.port(), "/").body, "hi");
    kill_process(next.pid(), Signal::TERM).unwrap();
    wait_until("the next process ends", || !directory.path("pid").exists());
}

/// The commands that generate their configuration can be upgraded too, with the body that `respond` read from its
/// standard input.
#[test]
fn a_generated_configuration() {
    let directory = Directory::new();
    let mut server = directory.start(&["respond", "--listen", "127.0.0.1:0", "--status", "201"]);
    let port = server.port();
    server.signal(Signal::USR2);
    let line = server.line_with(" serves now; ");
    let _next = Successor::of_line(&line);
    assert_eq!(server.status().code(), Some(0));
    assert_eq!(get(port, "/").status, 201);
}
