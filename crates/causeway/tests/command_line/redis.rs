//! A Redis server for tests.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use causeway_testkit::ports::free_port;
use rustix::process::{Pid, Signal, kill_process};

const TIMEOUT: Duration = Duration::from_secs(20);

/// A Redis server without persistence; killed when dropped.
pub(crate) struct RedisProcess {
    child: Child,
    pub(crate) port: u16,
    arguments: Vec<String>,
}

impl RedisProcess {
    /// `None` without the program, which CI must have.
    pub(crate) fn start() -> Option<Self> {
        Self::start_with(&[])
    }

    /// As [`Self::start`], with further arguments.
    pub(crate) fn start_with(arguments: &[&str]) -> Option<Self> {
        let (port, arguments) = (free_port(), arguments.iter().map(ToString::to_string).collect::<Vec<_>>());
        let child = spawn(port, &arguments)?;
        let server = Self { child, port, arguments };
        server.wait();
        Some(server)
    }

    fn wait(&self) {
        let begun = Instant::now();
        while TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).is_err() {
            assert!(begun.elapsed() < TIMEOUT, "redis-server does not listen on {}", self.port);
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Ends the process, which loses its data.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Starts it again with the same port and arguments.
    pub(crate) fn resume(&mut self) {
        self.child = spawn(self.port, &self.arguments).unwrap();
        self.wait();
    }

    /// The global option for this server.
    pub(crate) fn caddyfile(&self) -> String {
        format!("storage redis {{\n\t\taddress 127.0.0.1:{}\n\t}}", self.port)
    }

    /// The keys that match a pattern, sorted.
    pub(crate) fn keys(&self, pattern: &str) -> Vec<String> {
        let mut lines = self.run_command(&format!("KEYS {pattern}"));
        let count: usize = lines.next().unwrap().strip_prefix('*').unwrap().parse().unwrap();
        // Each key follows its length.
        let mut keys: Vec<_> = lines.take(2 * count).skip(1).step_by(2).collect();
        keys.sort();
        keys
    }

    /// Sends a command by a connection of its own. Returns the lines that are received, without an end.
    pub(crate) fn run_command(&self, command: &str) -> impl Iterator<Item = String> + use<> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).unwrap();
        write!(stream, "{command}\r\n").unwrap();
        BufReader::new(stream).lines().map(Result::unwrap)
    }
}

fn spawn(port: u16, arguments: &[String]) -> Option<Child> {
    let mut command = Command::new("redis-server");
    command.args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--save", "", "--appendonly", "no"]);
    command.args(arguments);
    command.current_dir(env!("CARGO_TARGET_TMPDIR")).stdout(Stdio::null()).stderr(Stdio::null());
    match command.spawn() {
        Ok(child) => Some(child),
        Err(error) => {
            assert!(std::env::var_os("CI").is_none_or(|value| value != "true"), "redis-server: {error}");
            eprintln!("skipped: redis-server: {error}");
            None
        }
    }
}

impl Drop for RedisProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
