//! A server that follows its file with `--watch` and SIGUSR1, and one that resumes its last configuration with
//! `--resume`.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::json;

use crate::client::{get, send, send_body};
use crate::process::{Directory, ServerProcess};
use crate::upgrade::Successor;

const TIMEOUT: Duration = Duration::from_secs(20);

fn caddyfile(body: &str) -> String {
    format!("http://:0 {{\n\tbind 127.0.0.1\n\trespond \"{body}\"\n}}\n")
}

#[track_caller]
fn until_served(site: u16, body: &str) {
    let begun = Instant::now();
    loop {
        let answer = get(site, "/").body;
        if answer == body {
            return;
        }
        assert!(begun.elapsed() < TIMEOUT, "it still serves {answer}, not {body}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A valid edit takes effect soon. A mistake is reported once, and the current configuration stays until it is
/// corrected.
#[test]
fn watch() {
    let directory = Directory::with(&[("Caddyfile", &caddyfile("one"))]);
    let mut server = directory.start(&["run", "--watch"]);
    let site = server.port();
    directory.write("Caddyfile", caddyfile("two"));
    until_served(site, "two");
    server.line_with("Caddyfile changed");
    directory.write("Caddyfile", ":0\nrespnd hi\n");
    let line = server.line_with(r#""level":"error""#);
    assert!(line.contains("Caddyfile:2:1: unrecognized directive: respnd"), "{line}");
    assert!(line.contains("; keeping the current configuration"), "{line}");
    assert_eq!(get(site, "/").body, "two");
    // The file can be adapted but not served: the address is not one of this machine.
    directory.write("Caddyfile", "http://:0\nbind 192.0.2.1\nrespond hi\n");
    let line = server.line_with(r#""level":"error""#);
    assert!(line.contains("Caddyfile: listening on 192.0.2.1:0: this machine has no such address"), "{line}");
    directory.write("Caddyfile", caddyfile("three"));
    until_served(site, "three");
    // Imported files are watched too.
    directory.write("part", "respond four\n");
    directory.write("Caddyfile", "http://:0 {\n\tbind 127.0.0.1\n\timport part\n}\n");
    until_served(site, "four");
    directory.write("part", "respond five\n");
    until_served(site, "five");
}

// Caddy, cmd/main.go, watchConfigFile: a change of the file is loaded also after the API has loaded another
// configuration, which stays until then. So does a process that has taken the server's place.
#[test]
fn a_watch_after_a_load_by_the_api() {
    for is_upgraded in [false, true] {
        let directory = Directory::with(&[("Caddyfile", &caddyfile("one"))]);
        let mut server = directory.start(&["run", "--watch"]);
        let (site, admin) = (server.port(), server.admin_port());
        let body = "PATCH /config/apps/http/servers/srv0/routes/0/handle/0/body";
        let fields = [&*format!("Host: localhost:{admin}"), "Content-Type: application/json"];
        assert_eq!(send_body(admin, body, &fields, "\"of the API\"").status, 200);
        let _next = is_upgraded.then(|| {
            server.signal(Signal::USR2);
            Successor::of_line(&server.line_with(" serves now; "))
        });
        // At least one check.
        std::thread::sleep(Duration::from_millis(1500));
        assert_eq!(get(site, "/").body, "of the API");
        directory.write("Caddyfile", caddyfile("two"));
        until_served(site, "two");
    }
}

#[test]
fn watching_needs_a_file() {
    let directory = Directory::new();
    for (arguments, want) in [
        (&["run", "--watch"][..], "Error: --watch: found the welcome site, expected a configuration in a file\n"),
        (
            &["run", "--watch", "--config", "-"],
            "Error: --watch: found standard input, expected a configuration in a file\n",
        ),
        (
            &["run", "--watch", "--config", "/dev/stdin"],
            "Error: --watch: found /dev/stdin, expected a configuration in a file\n",
        ),
    ] {
        // Standard input is read only then.
        let reads = arguments.contains(&"--config");
        let output = if reads { directory.output_of(arguments, "{}") } else { directory.output(arguments) };
        assert_eq!((output.status.code(), &*String::from_utf8_lossy(&output.stderr)), (Some(1), want));
    }
}

/// SIGUSR1 reloads the file, as long as the configuration was read from it.
#[test]
fn sigusr1() {
    let directory = Directory::with(&[("Caddyfile", &caddyfile("one"))]);
    let mut server = directory.start(&["run"]);
    let (site, admin) = (server.port(), server.admin_port());
    directory.write("Caddyfile", caddyfile("two"));
    server.signal(Signal::USR1);
    server.line_with("SIGUSR1: reloading Caddyfile");
    until_served(site, "two");
    directory.write("Caddyfile", "nonsense {\n");
    server.signal(Signal::USR1);
    server.line_with("keeping the current configuration");
    // After `reload` with this file the server still follows it; after any other change through the API it does not.
    directory.write("Caddyfile", caddyfile("three"));
    let address = format!("localhost:{admin}");
    let output = directory.output(&["reload", "--address", &address]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    until_served(site, "three");
    directory.write("Caddyfile", caddyfile("four"));
    server.signal(Signal::USR1);
    until_served(site, "four");
    let host = format!("Host: {address}");
    let answer = send_body(admin, "PUT /config/storage", &[&host, "Content-Type: application/json"], "null");
    assert_eq!(answer.status, 200, "{}", answer.body);
    server.signal(Signal::USR1);
    server.line_with("SIGUSR1 is ignored: the configuration was not read from a file, or the API has replaced it");
    assert_eq!(get(site, "/").body, "four");
    // `reload` makes the configuration the file's again.
    directory.write("Caddyfile", caddyfile("five"));
    assert!(directory.output(&["reload", "--address", &address]).status.success());
    until_served(site, "five");
    directory.write("Caddyfile", caddyfile("six"));
    server.signal(Signal::USR1);
    until_served(site, "six");
}

/// A server ends although a reload waits for a pipe without a writer.
#[test]
fn stop_during_a_reload_that_waits() {
    let directory = Directory::with(&[
        ("Caddyfile", "http://:0 {\n\tbind 127.0.0.1\n\timport part\n}\n"),
        ("part", "respond one\n"),
    ]);
    let mut server = directory.start(&["run"]);
    std::fs::remove_file(directory.path("part")).unwrap();
    let made = std::process::Command::new("mkfifo").arg(directory.path("part")).status().unwrap();
    assert!(made.success());
    server.signal(Signal::USR1);
    server.line_with("SIGUSR1: reloading Caddyfile");
    server.signal(Signal::TERM);
    assert_eq!(server.status().code(), Some(0));
}

/// A log collector that has stopped reading standard error delays neither a reload nor the end. The warnings are
/// entries of the log.
#[test]
fn a_reload_while_standard_error_is_full() {
    // Not formatted, so the load has a warning.
    let caddyfile = |body: &str| {
        format!(
            "{{\n\tlog {{\n\t\toutput file log\n\t}}\n}}\nhttp://:0 {{\n  bind 127.0.0.1\n\trespond \"{body}\"\n}}\n"
        )
    };
    let directory = Directory::with(&[("Caddyfile", &caddyfile("one"))]);
    let mut server = directory.start(&["run"]);
    let (site, admin) = (server.port(), server.admin_port());
    server.stop_reading();
    directory.write("Caddyfile", caddyfile("two"));
    server.signal(Signal::USR1);
    until_served(site, "two");
    let log = std::fs::read_to_string(directory.path("log")).unwrap();
    assert!(log.lines().any(|line| line.contains(r#""level":"warn""#) && line.contains("not formatted")), "{log}");
    directory.write("Caddyfile", caddyfile("three"));
    let output = directory.output(&["reload", "--address", &format!("localhost:{admin}")]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    until_served(site, "three");
    server.signal(Signal::TERM);
    assert_eq!(server.status().code(), Some(0));
}

#[test]
fn sigusr1_without_a_file() {
    let directory = Directory::new();
    let mut server = directory.start(&["respond", "--listen", "127.0.0.1:0", "hi"]);
    server.signal(Signal::USR1);
    server.line_with("SIGUSR1 is ignored");
    assert_eq!(get(server.port(), "/").body, "hi");
}

/// A restart serves the configuration that the API loaded last; --config is ignored.
#[test]
fn resume() {
    let directory = Directory::with(&[("Caddyfile", &caddyfile("of the file"))]);
    let mut server = ServerProcess::spawn(directory.command(&["run", "--resume"]));
    server.line_with(".config/causeway/autosave.json yet");
    server.line_with("Causeway serves Caddyfile on ");
    let admin = server.admin_port();
    let body = "PATCH /config/apps/http/servers/srv0/routes/0/handle/0/body";
    let fields = [&*format!("Host: localhost:{admin}"), "Content-Type: application/json"];
    assert_eq!(send_body(admin, body, &fields, "\"of the API\"").status, 200);
    server.signal(Signal::TERM);
    assert_eq!(server.status().code(), Some(0));
    let server = directory.start(&["run", "--resume"]);
    assert!(server.first_line.contains("autosave.json on "), "{}", server.first_line);
    assert_eq!(get(server.port(), "/").body, "of the API");
    drop(server);
    let mut server = ServerProcess::spawn(directory.command(&["run", "--resume", "--config", "Caddyfile"]));
    server.line_with("Warning: --config is ignored: --resume loads ");
    server.line_with("autosave.json on ");
    drop(server);
    let mut server = ServerProcess::spawn(directory.command(&["run", "--resume", "--watch"]));
    server.line_with("Warning: --watch is ignored: --resume loads ");
    server.line_with("autosave.json on ");
    drop(server);
    // Without --resume the file is served, and saved.
    let server = directory.start(&["run"]);
    assert_eq!(get(server.port(), "/").body, "of the file");
    let kept = std::fs::read_to_string(directory.path(".config/causeway/autosave.json")).unwrap();
    assert!(kept.contains("of the file"), "{kept}");
    // XDG_CONFIG_HOME sets the directory.
    let mut command = directory.command(&["run"]);
    command.env("XDG_CONFIG_HOME", directory.path("xdg"));
    drop(ServerProcess::start(command));
    assert!(directory.path("xdg/causeway/autosave.json").exists());
}

/// A stop through the API ends the server like a signal, and its response is sent.
#[test]
fn stopped_by_the_api() {
    let directory = Directory::with(&[("Caddyfile", &caddyfile("hi"))]);
    let mut server = directory.start(&["run", "--pidfile", "pid"]);
    let admin = server.admin_port();
    let answer = send(admin, "POST /stop", &[&format!("Host: localhost:{admin}")]);
    assert_eq!((answer.status, json!(answer.body)), (200, json!("")));
    assert_eq!(server.status().code(), Some(0));
    assert!(!directory.path("pid").exists());
}
