//! `start`, `stop` and `reload` for servers in the background, and the small commands.

use std::cell::Cell;
use std::fs::File;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::Stdio;
use std::time::{Duration, Instant};

use causeway_testkit::ports::free_port;

use crate::client::{get, send};
use crate::process::Directory;

const TIMEOUT: Duration = Duration::from_secs(20);

/// A directory with a Caddyfile that sets the ports of the site and of the API.
struct Background {
    directory: Directory,
    site: u16,
    admin: u16,
    runs: Cell<u32>,
}

impl Background {
    fn new() -> Self {
        let it = Self { directory: Directory::new(), site: free_port(), admin: free_port(), runs: Cell::new(0) };
        it.write("one");
        it
    }

    fn write(&self, body: &str) {
        let Self { site, admin, .. } = self;
        let options = format!("{{\n\tadmin 127.0.0.1:{admin}\n\tgrace_period 1s\n}}\n");
        self.directory
            .write("Caddyfile", format!("{options}http://:{site} {{\n\tbind 127.0.0.1\n\trespond {body}\n}}\n"));
    }

    /// Runs a command and returns its status, output and errors. They go to files, since a background process may keep
    /// its pipes open.
    fn run(&self, arguments: &[&str]) -> (Option<i32>, String, String) {
        let mut command = self.directory.command(arguments);
        command.stdin(Stdio::null());
        let run = self.runs.replace(self.runs.get() + 1);
        let [out, err] = ["out", "err"].map(|name| self.directory.path(&format!("{name}{run}")));
        command.stdout(File::create(&out).unwrap());
        command.stderr(File::create(&err).unwrap());
        let mut child = command.spawn().unwrap();
        let begun = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break status;
            }
            if begun.elapsed() > TIMEOUT {
                child.kill().unwrap();
                panic!("{arguments:?} runs on");
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        (status.code(), std::fs::read_to_string(out).unwrap(), std::fs::read_to_string(err).unwrap())
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        // Stop the server that a failed test left running.
        let _ = self.directory.output(&["stop", "--address", &format!("127.0.0.1:{}", self.admin)]);
    }
}

#[test]
fn start_reload_stop() {
    let it = Background::new();
    let (status, out, err) = it.run(&["start", "--pidfile", "pid"]);
    let pid = std::fs::read_to_string(it.directory.path("pid")).unwrap();
    let want = format!("Causeway runs in the background with process id {}; `causeway stop` ends it\n", pid.trim_end());
    assert_eq!((status, out), (Some(0), want), "{err}");
    assert_eq!(get(it.site, "/").body, "one");
    // A second `start` prints one error, and the first server continues.
    let (status, out, err) = it.run(&["start"]);
    let words = format!(
        "Error: Caddyfile: the admin API cannot listen on 127.0.0.1:{}: the port is in use already; choose \
         another with the global option `admin`, with `admin off`, or with CADDY_ADMIN\n",
        it.admin
    );
    assert_eq!((status, &*out, err), (Some(1), "", words));
    it.write("two");
    assert_eq!(it.run(&["reload"]), (Some(0), String::new(), String::new()));
    assert_eq!(get(it.site, "/").body, "two");
    // A mistake that only compilation finds is still reported with its line.
    let good = std::fs::read_to_string(it.directory.path("Caddyfile")).unwrap();
    it.directory.write("Caddyfile", good.replace("bind 127.0.0.1\n", "bind unixgram//run/x\n"));
    let expected = "expected unix/PATH: HTTP needs a Unix socket of streams\n";
    let want = format!("Error: Caddyfile:6:7: found 'unixgram//run/x', {expected}");
    assert_eq!(it.run(&["reload"]), (Some(1), String::new(), want));
    // Only the server can detect a port in use.
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = taken.local_addr().unwrap().port();
    it.directory.write("Caddyfile", good.replace(&format!(":{}", it.site), &format!(":{port}")));
    let (status, _, err) = it.run(&["reload"]);
    let want = format!(
        "Error: Caddyfile: the server on 127.0.0.1:{} refuses it: loading config: loading new config: listening on \
         127.0.0.1:{port}: the port is in use already (HTTP 400)\n",
        it.admin
    );
    assert_eq!((status, err), (Some(1), want));
    assert_eq!(get(it.site, "/").body, "two");
    assert_eq!(it.run(&["stop", "--config", "Caddyfile"]), (Some(0), String::new(), String::new()));
    // The site is closed by the time `stop` returns.
    assert!(TcpStream::connect((Ipv4Addr::LOCALHOST, it.site)).is_err());
}

// The server and the commands resolve placeholders in the address of the API with the same variables, and the host of
// the result is checked, as in Caddy.
#[test]
fn address_of_the_api_in_an_environment_file() {
    let it = Background::new();
    it.directory.write("env", format!("ADMIN=localhost:{}\n", it.admin));
    let written = std::fs::read_to_string(it.directory.path("Caddyfile")).unwrap();
    let written = written.replace(&format!("admin 127.0.0.1:{}", it.admin), "admin {env.ADMIN}");
    it.directory.write("Caddyfile", &written);
    let _server = it.directory.start(&["run", "--envfile", "env"]);
    assert_eq!(get(it.site, "/").body, "one");
    it.directory.write("Caddyfile", written.replace("respond one", "respond two"));
    assert_eq!(it.run(&["reload", "--envfile", "env"]), (Some(0), String::new(), String::new()));
    assert_eq!(get(it.site, "/").body, "two");
    assert_eq!(send(it.admin, "GET /config/", &["Host: evil.example"]).status, 403);
}

#[test]
fn configurations_that_start_refuses() {
    let it = Background::new();
    it.directory.write("Caddyfile", ":0\nrespnd hi\n");
    let (status, out, err) = it.run(&["start"]);
    assert_eq!((status, &*out), (Some(1), ""));
    let words =
        "Error: Caddyfile:2:1: unrecognized directive: respnd (did you mean \"respond\"?); expected a directive\n";
    assert_eq!(err, words);
    let (status, _, err) = it.run(&["start", "--config", "-"]);
    let words = "Error: --config -: found standard input, expected a file: a server in the background has no input\n";
    assert_eq!((status, &*err), (Some(1), words));
}

#[test]
fn no_running_server() {
    let it = Background::new();
    let no_server = format!(
        "no server listens on 127.0.0.1:{}; is it running with its admin API there? set another address with --address",
        it.admin
    );
    let address = format!("127.0.0.1:{}", it.admin);
    for (arguments, want) in [
        (&["stop", "--address", &address][..], no_server.clone()),
        (&["stop", "--config", "Caddyfile"], no_server.clone()),
        (&["reload"], no_server),
        (
            &["stop", "--address", "nonsense"],
            "--address: found 'nonsense', expected [tcp/]host:port or [tcp/]host:first-last".into(),
        ),
        (
            &["reload", "--config", "nope"],
            "nope: reading the configuration: No such file or directory (os error 2)".into(),
        ),
    ] {
        let (status, out, err) = it.run(arguments);
        assert_eq!((status, &*out, err), (Some(1), "", format!("Error: {want}\n")), "{arguments:?}");
    }
    let mut command = it.directory.command(&["run"]);
    command.env("CADDY_ADMIN", "nonsense").stderr(Stdio::piped());
    let output = command.output().unwrap();
    let want = "Error: CADDY_ADMIN: found 'nonsense', expected [tcp/]host:port or [tcp/]host:first-last\n";
    assert_eq!((output.status.code(), &*String::from_utf8_lossy(&output.stderr)), (Some(1), want));
}

/// `list-modules` prints the registry, and the modules of other kinds.
#[test]
fn list_modules() {
    let directory = Directory::new();
    let print = |arguments: &[&str]| String::from_utf8(directory.output(arguments).stdout).unwrap();
    let text = print(&["list-modules"]);
    let modules: Vec<_> = text.lines().take_while(|line| !line.is_empty()).collect();
    assert!(modules.is_sorted_by(|one, other| one < other), "{text}");
    for name in
        ["dns.providers.cloudflare", "tls.issuance.acme", "caddy.logging.encoders.filter.ip_mask", "http.encoders.br"]
    {
        assert!(modules.contains(&name), "{name}");
    }
    let internal = ["http.handlers.access_log", "http.handlers.acme_challenge", "http.handlers.error_log"];
    for name in causeway::registry().modules() {
        assert_ne!(modules.contains(&&*name), internal.contains(&&*name), "{name}");
    }
    let end =
        format!("\n\n  Standard modules: {}\n\n  Non-standard modules: 0\n\n  Unknown modules: 0\n", modules.len());
    assert_eq!(text, format!("{}{end}", modules.join("\n")));
    let first = format!("{} v{} causeway-server", modules[0], env!("CARGO_PKG_VERSION"));
    assert_eq!(print(&["list-modules", "--versions", "--packages"]).lines().next(), Some(&*first));
    let none = "\n  Non-standard modules: 0\n\n  Unknown modules: 0\n";
    assert_eq!(print(&["list-modules", "--skip-standard"]), none);
    let json: serde_json::Value = serde_json::from_str(&print(&["list-modules", "--json"])).unwrap();
    let names: Vec<_> = json.as_array().unwrap().iter().map(|module| module["module_name"].as_str().unwrap()).collect();
    assert_eq!(names, modules);
}

#[test]
fn environ() {
    let directory = Directory::with(&[("env", "OF_FILE=1\nBOTH=file\n")]);
    let mut command = directory.command(&["environ", "--envfile", "env"]);
    let output = command.env_clear().env("BOTH", "process").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.ends_with("\n\nBOTH=process\nOF_FILE=1\n"), "{text}");
}

/// `status` prints the status of the admin API, and fails without a server: for health checks.
#[test]
fn status() {
    let directory = Directory::with(&[("Caddyfile", ":0\nrespond hi\n")]);
    let mut server = directory.start(&["run"]);
    let address = format!("localhost:{}", server.admin_port());
    let output = directory.output(&["status", "--address", &address]);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((output.status.code(), &json["live_plans"], &json["panics"]), (Some(0), &1.into(), &0.into()));
    drop(server);
    let output = directory.output(&["status", "--address", &address]);
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.starts_with(&format!("Error: no server listens on {address}; ")), "{error}");
    assert_eq!(output.status.code(), Some(1));
}
