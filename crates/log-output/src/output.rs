//! An open output: the queue of its thread, and the table of all outputs of the process.

use std::cell::Cell;
use std::collections::HashMap;
use std::io::{self, IsTerminal};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use crate::file::{FileSpec, LogFile};
use crate::net::{Collector, NetSpec};
use crate::queue::{ALL_DROP, Command, LineQueue};
use crate::writer::{self, Sink};

/// Bytes that a thread's buffer for a line may keep.
const LINE_BYTES_KEPT: usize = 8 * 1024;

thread_local! {
    /// The thread's buffer for a line.
    static LINE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// An output as a configuration describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OutputSpec {
    /// Standard error.
    Stderr,
    /// Standard output.
    Stdout,
    /// No output: lines are not even formatted.
    Discard,
    /// A file.
    File(FileSpec),
    /// A collector of logs, over a socket.
    Net(NetSpec),
}

/// The reaction to a full queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WhenFull {
    /// Drops the line. The number of dropped lines is reported once a second.
    #[default]
    Drop,
    /// Blocks the thread that writes the line until the queue has room, or a [`DropWhenFull`] lives.
    Wait,
}

/// While one lives, no thread waits for room in a full queue: all full queues drop lines and count them. For work in
/// which every thread takes part, such as a shutdown, so that an absent collector does not hold it up for ever.
pub struct DropWhenFull(());

impl DropWhenFull {
    /// Lets full queues drop lines, also those of threads that wait for room now.
    pub fn begin() -> Self {
        ALL_DROP.fetch_add(1, Ordering::Relaxed);
        for queue in each().iter().filter_map(|output| output.queue.as_ref()) {
            queue.stop_waits();
        }
        Self(())
    }
}

impl Drop for DropWhenFull {
    fn drop(&mut self) {
        ALL_DROP.fetch_sub(1, Ordering::Relaxed);
    }
}

/// An output. Dropping the last reference ends its thread after the queued lines are written.
pub struct Output {
    /// Identifies the output to its own thread.
    number: u64,
    /// `None` for an output that discards all lines.
    queue: Option<Arc<LineQueue>>,
    spec: Mutex<OutputSpec>,
    stream: StreamFacts,
}

#[derive(Clone, Copy, Default)]
struct StreamFacts {
    is_stream: bool,
    is_terminal: bool,
    is_journal: bool,
}

/// The open outputs by their keys.
static OUTPUTS: LazyLock<Mutex<HashMap<String, Weak<Output>>>> = LazyLock::new(Mutex::default);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits until every line that is queued in this process is written, at most for `limit`.
pub fn flush_all(limit: Duration) {
    flush(&each(), Command::Flush, limit);
}

/// As [`flush_all`], before the process ends: no line waits for a collector that cannot be reached, so that its absence
/// does not delay the end. Lines lost this way are reported.
pub fn end_all(limit: Duration) {
    flush(&each(), Command::LastFlush, limit);
}

/// Waits until the lines that are queued for standard output and standard error are written, at most for `limit`.
pub fn flush_streams(limit: Duration) {
    let mut outputs = each();
    outputs.retain(|output| output.is_stream());
    flush(&outputs, Command::Flush, limit);
}

fn flush(outputs: &[Arc<Output>], command: fn(SyncSender<()>) -> Command, limit: Duration) {
    let end = Instant::now() + limit;
    let flushes: Vec<_> = outputs
        .iter()
        .filter_map(|output| {
            let (done, written) = sync_channel(1);
            output.queue.as_ref()?.command(command(done));
            Some(written)
        })
        .collect();
    for written in flushes {
        // An error means that the limit has passed, or that the thread has ended.
        let _ = written.recv_timeout(end.saturating_duration_since(Instant::now()));
    }
}

/// Reopens every log file, for a tool that has moved or removed files, and lets lost connections be opened at once.
pub fn reopen_all() {
    for queue in each().iter().filter_map(|output| output.queue.as_ref()) {
        queue.command(Command::Reopen);
    }
}

/// The lines that an open output has lost since it was opened.
pub struct LostLines {
    /// The output as in reports: a file's path, an address, `stdout` or `stderr`.
    pub output: String,
    /// Lines that were dropped because the queue was full.
    pub dropped: u64,
    /// Lines that could not be written.
    pub failed: u64,
}

/// Returns the lost lines of each open output, in the order of their names.
pub fn lost_lines() -> Vec<LostLines> {
    let of = |output: &Output| {
        let (dropped, failed) = output.queue.as_ref()?.lost();
        Some(LostLines { output: lock(&output.spec).to_string(), dropped, failed })
    };
    let mut lost: Vec<_> = each().iter().filter_map(|output| of(output)).collect();
    lost.sort_by(|one, other| one.output.cmp(&other.output));
    lost
}

fn each() -> Vec<Arc<Output>> {
    lock(&OUTPUTS).values().filter_map(Weak::upgrade).collect()
}

impl OutputSpec {
    /// Returns the key of the output: specs with equal keys are one output.
    pub fn key(&self) -> String {
        match self {
            Self::Stderr => "stderr".into(),
            Self::Stdout => "stdout".into(),
            Self::Discard => "discard".into(),
            Self::File(file) => {
                let path = std::path::absolute(&file.path).unwrap_or_else(|_| file.path.clone());
                // Two spellings of a path, or a symbolic link, are one file.
                let directory = path.parent().and_then(|directory| directory.canonicalize().ok());
                let path = match (directory, path.file_name()) {
                    (Some(directory), Some(name)) => directory.join(name),
                    _ => path,
                };
                format!("file {}", path.display())
            }
            Self::Net(net) => format!("net {net}"),
        }
    }

    /// Returns whether two specs of one output (with equal [`key`](Self::key)s) have the same options. Each may spell
    /// the path in its own way.
    pub fn has_options_of(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::File(one), Self::File(two)) => *one == FileSpec { path: one.path.clone(), ..two.clone() },
            (one, two) => one == two,
        }
    }
}

impl std::fmt::Display for OutputSpec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Stderr => f.write_str("stderr"),
            Self::Stdout => f.write_str("stdout"),
            Self::Discard => f.write_str("discard"),
            Self::File(file) => write!(f, "{}", file.path.display()),
            Self::Net(net) => write!(f, "{net}"),
        }
    }
}

impl Output {
    /// Returns the output of this spec: the open one, or one that is opened now. An open one keeps its options until
    /// [`configure`](Self::configure).
    ///
    /// # Errors
    /// The file cannot be opened, the collector cannot be reached (without a soft start), or the system refuses a
    /// thread.
    pub fn open(spec: &OutputSpec) -> io::Result<Arc<Self>> {
        // Two threads must not open an output twice. The table itself is not locked meanwhile: a file on a server that
        // does not respond may block for ever, and the other outputs are still listed and flushed.
        static OPENING: Mutex<()> = Mutex::new(());
        let _opening = lock(&OPENING);
        let open = lock(&OUTPUTS).get(&spec.key()).and_then(Weak::upgrade);
        if let Some(open) = open {
            return Ok(open);
        }
        let sink = match spec {
            OutputSpec::Stderr => Sink::Stream(Box::new(io::stderr())),
            OutputSpec::Stdout => Sink::Stream(Box::new(io::stdout())),
            OutputSpec::Discard => Sink::Stream(Box::new(io::sink())),
            OutputSpec::File(file) => Sink::File(Box::new(LogFile::open(file.clone())?)),
            OutputSpec::Net(net) => Sink::Net(Collector::open(net.clone())?),
        };
        let output = Arc::new(Self::start(spec, sink)?);
        let mut outputs = lock(&OUTPUTS);
        outputs.retain(|_, output| output.strong_count() > 0);
        // The file exists now, so that its directory has a canonical name.
        outputs.insert(spec.key(), Arc::downgrade(&output));
        Ok(output)
    }

    /// Like [`open`](Self::open), but opens no file: the output of one loses all lines.
    ///
    /// # Errors
    /// The path cannot be a file's, or as [`open`](Self::open).
    pub fn check(spec: &OutputSpec) -> io::Result<Arc<Self>> {
        let OutputSpec::File(file) = spec else { return Self::open(spec) };
        LogFile::check(file)?;
        let mut output = Self::start(&OutputSpec::Discard, Sink::Stream(Box::new(io::sink())))?;
        output.spec = Mutex::new(spec.clone());
        Ok(Arc::new(output))
    }

    /// Returns an output that writes to `stream`. It is not shared.
    ///
    /// # Errors
    /// The system refuses a thread.
    pub fn to_stream(stream: Box<dyn io::Write + Send>) -> io::Result<Arc<Self>> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let output = Arc::new(Self::start(&OutputSpec::Stderr, Sink::Stream(stream))?);
        let key = format!("stream {}", NUMBER.fetch_add(1, Ordering::Relaxed));
        lock(&OUTPUTS).insert(key, Arc::downgrade(&output));
        Ok(output)
    }

    fn start(spec: &OutputSpec, sink: Sink) -> io::Result<Self> {
        static NUMBER: AtomicU64 = AtomicU64::new(1);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let stream = match spec {
            OutputSpec::Stderr => StreamFacts::of(&io::stderr()),
            OutputSpec::Stdout => StreamFacts::of(&io::stdout()),
            OutputSpec::Discard | OutputSpec::File(_) | OutputSpec::Net(_) => StreamFacts::default(),
        };
        let mut output = Self { number, queue: None, spec: Mutex::new(spec.clone()), stream };
        if *spec != OutputSpec::Discard {
            let queue = Arc::new(LineQueue::default());
            let (taken, place) = (Arc::clone(&queue), spec.to_string());
            std::thread::Builder::new().name("log".into()).spawn(move || writer::run(number, &taken, sink, &place))?;
            output.queue = Some(queue);
        }
        Ok(output)
    }

    /// Gives the output the options of `spec`, which must have the same key.
    pub fn configure(&self, spec: &OutputSpec) {
        let mut current = lock(&self.spec);
        // Another spelling of the path is the same file.
        if !current.has_options_of(spec) {
            current.clone_from(spec);
            if let Some(queue) = &self.queue {
                queue.command(Command::Configure(Box::new(spec.clone())));
            }
        }
    }

    /// Returns whether the output is standard output or standard error.
    pub fn is_stream(&self) -> bool {
        self.stream.is_stream
    }

    /// Returns whether the output is a terminal.
    pub fn is_terminal(&self) -> bool {
        self.stream.is_terminal
    }

    /// Returns whether systemd's journal reads the output, which takes a priority from the start of a line.
    pub fn is_journal(&self) -> bool {
        self.stream.is_journal
    }

    /// Queues a line, which `format` appends to the buffer given, and returns true. On the output's own thread the line
    /// is neither formatted nor queued, and the result is false: the thread would wait for itself.
    pub fn write(&self, when_full: WhenFull, format: impl FnOnce(&mut Vec<u8>)) -> bool {
        let Some(queue) = &self.queue else { return true };
        if writer::is_thread_of(self.number) {
            return false;
        }
        // Formatting outside of the queue's lock permits `format` to log. A thread that ends has no buffer any more.
        let mut line = LINE.try_with(Cell::take).unwrap_or_default();
        format(&mut line);
        if !line.is_empty() {
            // The thread of another output must not wait: two outputs that report on each other could block both.
            let when_full = if writer::is_output_thread() { WhenFull::Drop } else { when_full };
            queue.push(&line, when_full);
        }
        line.clear();
        line.shrink_to(LINE_BYTES_KEPT);
        let _ = LINE.try_with(|kept| kept.set(line));
        true
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        if let Some(queue) = &self.queue {
            queue.close();
        }
    }
}

impl StreamFacts {
    fn of(stream: &(impl IsTerminal + AsFd)) -> Self {
        Self { is_stream: true, is_terminal: stream.is_terminal(), is_journal: is_journal(stream) }
    }
}

/// Returns whether systemd has connected the stream to the journal, which reads a priority such as `<6>` at the start
/// of each line.
pub fn is_journal(stream: &impl AsFd) -> bool {
    // systemd sets the variable to the device and the inode of the journal's stream, so that a redirected stream is not
    // mistaken for it.
    std::env::var("JOURNAL_STREAM").is_ok_and(|journal| {
        rustix::fs::fstat(stream).is_ok_and(|stat| journal == format!("{}:{}", stat.st_dev, stat.st_ino))
    })
}
