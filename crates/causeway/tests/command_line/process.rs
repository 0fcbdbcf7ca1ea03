//! A temporary directory for every test, and processes of the built binary that do not outlive the test.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::fs::OFlags;
use rustix::process::{Pid, Signal, kill_process};

/// Timeout after which a test fails instead of hanging. No step needs a tenth of it.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Waits for a condition, with a timeout.
#[track_caller]
pub(crate) fn wait_until(what: &str, mut is_true: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_true() {
        assert!(begun.elapsed() < TIMEOUT, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A temporary directory, removed when dropped.
pub(crate) struct Directory(PathBuf);

impl Directory {
    pub(crate) fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!("{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// Creates a directory with these files.
    pub(crate) fn with(files: &[(&str, &str)]) -> Self {
        let directory = Self::new();
        for (name, text) in files {
            directory.write(name, text);
        }
        directory
    }

    pub(crate) fn write(&self, name: &str, text: impl AsRef<[u8]>) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Returns a `causeway` command with the directory as its home and working directory, and an empty standard input.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_causeway"));
        command.args(arguments).current_dir(&self.0).env("HOME", &self.0).env_remove("XDG_CONFIG_HOME");
        command.env_remove("XDG_DATA_HOME");
        // Each server gets an admin port of its own, since tests run in parallel.
        command.env("CADDY_ADMIN", "localhost:0").stdin(Stdio::null());
        command
    }

    /// Runs a command that exits by itself.
    #[track_caller]
    pub(crate) fn output(&self, arguments: &[&str]) -> Output {
        finish(self.command(arguments))
    }

    /// Runs a command that exits by itself, with `input` on its standard input.
    #[track_caller]
    pub(crate) fn output_of(&self, arguments: &[&str], input: &str) -> Output {
        let mut command = self.command(arguments);
        command.stdin(Stdio::piped());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        collect(child)
    }

    /// Starts a server and waits for the line with its addresses.
    #[track_caller]
    pub(crate) fn start(&self, arguments: &[&str]) -> ServerProcess {
        ServerProcess::start(self.command(arguments))
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[track_caller]
fn finish(mut command: Command) -> Output {
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    collect(command.spawn().unwrap())
}

/// Waits for the process to exit, with a timeout: a command that should fail may start a server instead.
#[track_caller]
fn collect(mut child: Child) -> Output {
    let begun = Instant::now();
    let (mut stdout, mut stderr) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
    // Read both while the process runs, so that it never blocks on a full pipe.
    let readers = [
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            stdout.read_to_end(&mut bytes).map(|_| bytes)
        }),
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            stderr.read_to_end(&mut bytes).map(|_| bytes)
        }),
    ];
    let status = wait(&mut child, begun);
    let [stdout, stderr] = readers.map(|reader| reader.join().unwrap().unwrap());
    match status {
        Some(status) => Output { status, stdout, stderr },
        None => panic!("it runs on; it printed: {}", String::from_utf8_lossy(&stderr)),
    }
}

/// Waits for the process to exit; `None` when it had to be killed.
fn wait(child: &mut Child, begun: Instant) -> Option<ExitStatus> {
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return Some(status);
        }
        if begun.elapsed() > TIMEOUT {
            child.kill().unwrap();
            child.wait().unwrap();
            return None;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A running server; killed when dropped.
pub(crate) struct ServerProcess {
    child: Child,
    lines: Receiver<String>,
    /// Reads standard error until `lines` is dropped.
    reader: Option<JoinHandle<BufReader<ChildStderr>>>,
    /// Standard error after [`stop_reading`](Self::stop_reading).
    unread: Option<BufReader<ChildStderr>>,
    /// The line that starts with "Causeway serves".
    pub(crate) first_line: String,
    /// The lines before the first one.
    pub(crate) startup_lines: Vec<String>,
    /// The ports in the first line, in order.
    pub(crate) ports: Vec<u16>,
}

impl ServerProcess {
    #[track_caller]
    pub(crate) fn start(command: Command) -> Self {
        let mut server = Self::spawn(command);
        (server.startup_lines, server.first_line) = server.lines_to("Causeway serves ");
        let urls = server.first_line.split("://").skip(1);
        let ports = urls.map(|url| {
            let address = url.split([' ', ',', ';']).next().unwrap();
            address.rsplit_once(':').and_then(|(_, port)| port.parse().ok()).unwrap_or(80)
        });
        server.ports = ports.collect();
        server
    }

    /// Starts a process without waiting for output.
    pub(crate) fn spawn(mut command: Command) -> Self {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (sender, lines) = channel();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let reader = std::thread::spawn(move || {
            // The send fails after the server is dropped.
            let _ = stderr.by_ref().lines().try_for_each(|line| sender.send(line.unwrap()));
            stderr
        });
        let (first_line, startup_lines, ports) = Default::default();
        Self { child, lines, reader: Some(reader), unread: None, first_line, startup_lines, ports }
    }

    /// Stops reading standard error and fills its pipe, so that a write blocks, as with a log collector that has
    /// stopped.
    pub(crate) fn stop_reading(&mut self) {
        // Another open file of the same pipe: the server's remains blocking.
        let mut pipe = std::fs::OpenOptions::new();
        pipe.write(true).custom_flags(OFlags::NONBLOCK.bits().try_into().unwrap());
        let mut pipe = pipe.open(format!("/proc/{}/fd/2", self.pid())).unwrap();
        self.lines = channel().1;
        // The reader ends at the next line.
        pipe.write_all(b"\n").unwrap();
        self.unread = self.reader.take().map(|reader| reader.join().unwrap());
        while pipe.write(&[b'\n'; 4096]).is_ok() {}
    }

    /// Returns the port of the first site.
    pub(crate) fn port(&self) -> u16 {
        self.ports[0]
    }

    /// Returns the port of the admin API. It consumes the line that names the port, so call it once.
    #[track_caller]
    pub(crate) fn admin_port(&mut self) -> u16 {
        let line = self.line_with("The admin API is on http://");
        line.rsplit_once(':').unwrap().1.parse().unwrap()
    }

    /// Returns the next line on standard error that contains `words`.
    #[track_caller]
    pub(crate) fn line_with(&mut self, words: &str) -> String {
        self.lines_to(words).1
    }

    /// As [`line_with`](Self::line_with), for a line that may come before the line of the start.
    #[track_caller]
    pub(crate) fn early_line_with(&mut self, words: &str) -> String {
        let early = self.startup_lines.iter().find(|line| line.contains(words)).cloned();
        early.unwrap_or_else(|| self.line_with(words))
    }

    /// Returns the next line that contains `words`, and those before it.
    #[track_caller]
    fn lines_to(&mut self, words: &str) -> (Vec<String>, String) {
        let mut passed = Vec::new();
        loop {
            match self.lines.recv_timeout(TIMEOUT) {
                Ok(line) if line.contains(words) => return (passed, line),
                Ok(line) => passed.push(line),
                Err(error) => panic!("no line with '{words}' ({error}); it printed {passed:?}"),
            }
        }
    }

    /// Returns the next line on standard error.
    #[track_caller]
    pub(crate) fn next_line(&mut self) -> String {
        self.line_with("")
    }

    /// Returns the lines on standard error so far that were not returned yet.
    pub(crate) fn unread_lines(&self) -> Vec<String> {
        self.lines.try_iter().collect()
    }

    /// Returns the first `count` lines of standard output, and closes it: the next call panics.
    pub(crate) fn take_stdout_lines(&mut self, count: usize) -> Vec<String> {
        let stdout = BufReader::new(self.child.stdout.take().unwrap());
        stdout.lines().take(count).map(Result::unwrap).collect()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Returns the exit status; fails when the process does not exit in time.
    #[track_caller]
    pub(crate) fn status(mut self) -> ExitStatus {
        let status = wait(&mut self.child, Instant::now());
        status.expect("it runs on")
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
