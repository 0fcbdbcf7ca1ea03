//! A Redis server for tests.

use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(20);

/// A Redis server without persistence; killed when dropped.
pub(crate) struct RedisProcess {
    child: Child,
    port: u16,
}

impl RedisProcess {
    /// `None` without the program, which CI must have.
    pub(crate) fn start() -> Option<Self> {
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
        let mut command = Command::new("redis-server");
        command.args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--save", "", "--appendonly", "no"]);
        command.current_dir(env!("CARGO_TARGET_TMPDIR")).stdout(Stdio::null()).stderr(Stdio::null());
        let child = match command.spawn() {
            Ok(child) => child,
            Err(error) => {
                assert!(std::env::var_os("CI").is_none_or(|value| value != "true"), "redis-server: {error}");
                eprintln!("skipped: redis-server: {error}");
                return None;
            }
        };
        let server = Self { child, port };
        let begun = Instant::now();
        while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
            assert!(begun.elapsed() < PATIENCE, "redis-server does not listen on {port}");
            std::thread::sleep(Duration::from_millis(10));
        }
        Some(server)
    }

    /// The global option for this server.
    pub(crate) fn caddyfile(&self) -> String {
        format!("storage redis {{\n\t\taddress 127.0.0.1:{}\n\t}}", self.port)
    }

    /// The keys that match a pattern, sorted.
    pub(crate) fn keys(&self, pattern: &str) -> Vec<String> {
        use std::io::{BufRead as _, BufReader, Write as _};
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).unwrap();
        write!(stream, "KEYS {pattern}\r\n").unwrap();
        let mut lines = BufReader::new(stream).lines().map(Result::unwrap);
        let count: usize = lines.next().unwrap().strip_prefix('*').unwrap().parse().unwrap();
        // Each key follows its length.
        let mut keys: Vec<_> = lines.take(2 * count).skip(1).step_by(2).collect();
        keys.sort();
        keys
    }
}

impl Drop for RedisProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
