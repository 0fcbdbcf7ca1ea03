//! A Go program: a server that prints its address, or a client that makes given calls.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use causeway_testkit::ports::free_port;
use serde_json::Value;

const TIMEOUT: Duration = Duration::from_secs(20);

/// Returns a program that `./test interop` builds. Without it, prints that the test is skipped.
#[track_caller]
pub(super) fn tool(name: &str) -> Option<PathBuf> {
    let required = std::env::var_os("INTEROP_TOOLS").map(PathBuf::from);
    let built = || Path::new(env!("CARGO_TARGET_TMPDIR")).join("../tools");
    let path = required.clone().unwrap_or_else(built).join(name);
    if path.is_file() {
        return Some(path);
    }
    assert!(required.is_none(), "there is no {}", path.display());
    eprintln!("skipped: ./test interop builds {name}");
    None
}

/// A server in Go; killed when dropped.
pub(super) struct GoServer {
    child: Child,
    pub(super) address: SocketAddr,
}

impl GoServer {
    /// Starts a program that prints `listening on ADDRESS` in its first line.
    #[track_caller]
    pub(super) fn start(program: &Path, arguments: &[&str]) -> Self {
        let mut child = Command::new(program).args(arguments).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("listening on ").and_then(|address| address.parse().ok());
        let Some(address) = address else { panic!("{} {arguments:?} says {line:?}", program.display()) };
        Self { child, address }
    }

    /// Starts a program that takes its port as an argument.
    #[track_caller]
    pub(super) fn start_on(program: &Path, arguments: impl FnOnce(u16) -> Vec<String>) -> Self {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
        let child = Command::new(program).args(arguments(address.port())).spawn().unwrap();
        let peer = Self { child, address };
        let begun = Instant::now();
        while TcpStream::connect(address).is_err() {
            assert!(begun.elapsed() < TIMEOUT, "{} does not listen on {address}", program.display());
            std::thread::sleep(Duration::from_millis(10));
        }
        peer
    }
}

impl Drop for GoServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a program, with a timeout, and returns its output.
pub(super) fn output(program: &Path, arguments: &[&str]) -> Output {
    Command::new("timeout").arg("60").arg(program).args(arguments).output().expect("timeout, of coreutils")
}

/// Makes calls with a httpgrpc client and returns their outcomes.
#[track_caller]
pub(super) fn make(client: &Path, options: &[&str], address: SocketAddr, calls: &[Value]) -> Vec<Value> {
    let mut command = Command::new("timeout");
    command.arg("60").arg(client).arg("call").args(options).arg(address.to_string());
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("timeout, of coreutils");
    let mut input = child.stdin.take().unwrap();
    for call in calls {
        writeln!(input, "{call}").unwrap();
    }
    drop(input);
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{} ended with {}: {text}", client.display(), output.status);
    let outcomes: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(outcomes.len(), calls.len(), "{text}");
    outcomes
}
