//! `run`: the configuration that it selects, and the sources of it.

use std::io::Write as _;
use std::process::Stdio;

use crate::client::{get, send};
use crate::process::{Directory, ServerProcess};

/// On a port that the system chooses.
const CADDYFILE: &str = ":0 {\n\trespond \"from {$FROM:a Caddyfile}\"\n}\n";
const JSON: &str = r#"{"apps": {"http": {"servers": {"s": {"listen": ["127.0.0.1:0"],
    "routes": [{"handle": [{"handler": "static_response", "body": "from JSON"}]}]}}}}}"#;

/// Starts a server, requests `/`, and compares the body.
#[track_caller]
fn check(directory: &Directory, arguments: &[&str], want: &str) {
    let server = directory.start(arguments);
    let answer = get(server.port(), "/");
    assert_eq!((answer.status, &*answer.body), (200, want), "{arguments:?}");
}

#[test]
fn without_a_configuration_the_welcome_site() {
    let directory = Directory::new();
    let server = directory.start(&["run", "--listen", "127.0.0.1:0"]);
    assert!(server.first_line.starts_with("Causeway serves the welcome site on http://127.0.0.1:"));
    let page = get(server.port(), "/");
    assert_eq!(page.status, 200);
    assert_eq!(page.field("Content-Type").as_deref(), Some("text/html; charset=utf-8"));
    // The page is served exactly as written, braces included.
    assert_eq!(page.body, include_str!("../../src/welcome/index.html"));
    let missing = get(server.port(), "/nope");
    assert_eq!((missing.status, &*missing.body), (404, "Not found\n"));
}

#[test]
fn the_caddyfile_of_the_working_directory() {
    check(&Directory::with(&[("Caddyfile", CADDYFILE)]), &["run"], "from a Caddyfile");
}

// RFC 9110 §9.3.7: `OPTIONS *` is about the server; as Go's server, this one responds before all routes, and without a
// record.
#[test]
fn options_of_the_server() {
    let site = "{\n\tadmin off\n}\n:0 {\n\tbind 127.0.0.1\n\tlog {\n\t\toutput file access.log\n\t}\n\trespond \"a route\"\n}\n";
    let directory = Directory::with(&[("Caddyfile", site)]);
    let server = directory.start(&["run"]);
    let answer = send(server.port(), "OPTIONS *", &["Host: localhost"]);
    assert_eq!((answer.status, &*answer.body, answer.field("Content-Length").as_deref()), (200, "", Some("0")));
    assert_eq!(send(server.port(), "OPTIONS /", &["Host: localhost"]).body, "a route");
    server.signal(rustix::process::Signal::TERM);
    assert!(server.status().success());
    assert_eq!(std::fs::read_to_string(directory.path("access.log")).unwrap().lines().count(), 1);
}

#[test]
fn a_named_configuration() {
    let directory = Directory::with(&[
        ("Caddyfile", ":0\nrespond wrong\n"),
        ("Caddyfile.test", CADDYFILE),
        ("site.caddyfile", CADDYFILE),
        ("site.conf", CADDYFILE),
        ("site.json", JSON),
        ("Caddyfile.json", JSON),
    ]);
    check(&directory, &["run", "--config", "Caddyfile.test"], "from a Caddyfile");
    check(&directory, &["run", "-c", "site.caddyfile"], "from a Caddyfile");
    check(&directory, &["run", "--config", "site.conf", "--adapter", "caddyfile"], "from a Caddyfile");
    check(&directory, &["run", "--config", "site.json"], "from JSON");
    check(&directory, &["run", "-c", "Caddyfile.json", "-a", "json"], "from JSON");
}

#[test]
fn from_standard_input() {
    let directory = Directory::new();
    for (arguments, text, want) in [
        (&["run", "--config", "-", "--adapter", "caddyfile"][..], CADDYFILE, "from a Caddyfile"),
        (&["run", "--config", "-"], JSON, "from JSON"),
    ] {
        // The pipe is filled before the server reads it: both texts fit into a pipe's buffer.
        let (reader, mut writer) = std::io::pipe().unwrap();
        writer.write_all(text.as_bytes()).unwrap();
        drop(writer);
        let mut command = directory.command(arguments);
        command.stdin(Stdio::from(reader));
        let server = ServerProcess::start(command);
        assert!(server.first_line.starts_with("Causeway serves standard input on "), "{}", server.first_line);
        assert_eq!(get(server.port(), "/").body, want);
    }
}

#[test]
fn process_variables_have_precedence_over_files() {
    let directory = Directory::with(&[
        ("Caddyfile", ":0\nrespond \"{$ONE} {$TWO} {$THREE}\"\n"),
        ("a.env", "ONE=a\nTWO=\"of a\" # first\n"),
        ("b.env", "export TWO=b\nTHREE=b\n"),
    ]);
    let mut command = directory.command(&["run", "--envfile", "a.env", "--envfile", "b.env"]);
    command.env("ONE", "process").env_remove("TWO").env_remove("THREE");
    let server = ServerProcess::start(command);
    assert_eq!(get(server.port(), "/").body, "process of a b");
}

// Caddy sets its directories after it has read the environment files.
#[test]
fn files_of_the_environment_set_the_directories() {
    let directory = Directory::with(&[
        ("Caddyfile", "http://:0\nrespond hi\n"),
        ("a.env", "XDG_DATA_HOME=of-data\nXDG_CONFIG_HOME=of-config\n"),
    ]);
    let (common, autosave) = (["--envfile", "a.env"], directory.path("of-config/causeway/autosave.json"));
    let server = directory.start(&[&["run"][..], &common].concat());
    assert_eq!(get(server.port(), "/").body, "hi");
    assert!(autosave.is_file());
    drop(server);
    let mut server = directory.start(&[&["run", "--environ", "--resume"][..], &common].concat());
    let lines = server.take_stdout_lines(2);
    assert_eq!(lines[1], "causeway.AppDataDir=of-data/causeway");
    let exported = directory.output(&[&["storage", "export", "--output", "a.tar"][..], &common].concat());
    let error = String::from_utf8(exported.stderr).unwrap();
    assert!(error.contains("of-data/causeway: found no values"), "{error}");
    assert!(!directory.path("a.tar").exists());
}

#[test]
fn environ_prints_the_environment_of_the_process() {
    let directory = Directory::with(&[("Caddyfile", CADDYFILE)]);
    let mut command = directory.command(&["run", "--environ"]);
    command.env_clear().env("CADDY_ADMIN", "localhost:0").env("FROM", "here");
    let mut server = ServerProcess::start(command);
    let want = [
        format!("causeway.Version=v{}", env!("CARGO_PKG_VERSION")),
        "causeway.AppDataDir=./causeway".to_owned(),
        format!("os.Getwd={}", directory.path("").canonicalize().unwrap().display()),
        String::new(),
        "CADDY_ADMIN=localhost:0".to_owned(),
        "FROM=here".to_owned(),
    ];
    assert_eq!(server.take_stdout_lines(want.len()), want);
    assert_eq!(get(server.port(), "/").body, "from here");
}

#[test]
fn workers() {
    let directory = Directory::with(&[("Caddyfile", CADDYFILE)]);
    for (count, words) in [("1", " with 1 worker"), ("3", " with 3 workers")] {
        let server = directory.start(&["run", "--workers", count]);
        assert!(server.first_line.ends_with(words), "{}", server.first_line);
        assert_eq!(get(server.port(), "/").status, 200);
    }
}

#[test]
fn debug_by_flag_or_by_global_option() {
    let quiet = Directory::with(&[("Caddyfile", CADDYFILE)]);
    let loud = Directory::with(&[("Caddyfile", "{\n\tdebug\n}\n:0\nrespond hi\n")]);
    for (directory, flags, first_is_debug) in [
        (&quiet, &["run", "-v"][..], true),
        (&quiet, &["run", "--debug"], true),
        (&loud, &["run"], true),
        (&quiet, &["run"], false),
    ] {
        let mut server = ServerProcess::spawn(directory.command(flags));
        let first = server.next_line();
        assert_eq!(
            first.contains(r#""level":"debug""#) && first.contains("starting"),
            first_is_debug,
            "{flags:?}: {first}"
        );
    }
}
