//! An open output: the queue of its thread, and the table of all outputs of the process.

use std::collections::HashMap;
use std::io::{self, IsTerminal};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use crate::file::{FileSpec, LogFile};
use crate::net::{Collector, NetSpec};
use crate::pool::Pool;
use crate::writer::{self, Sink};

/// Lines that an output may queue.
const QUEUE_MAX: usize = 8192;
/// Bytes that a recycled buffer may keep.
const BUFFER_BYTES_KEPT: usize = 8 * 1024;
/// How often a full queue is tried again for a command.
const RETRY: Duration = Duration::from_millis(2);
/// How long a command waits for a full queue.
const COMMAND_LIMIT: Duration = Duration::from_secs(1);

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
    /// Blocks the thread that writes the line until the queue has room.
    Wait,
}

/// An output. Dropping the last reference ends its thread after the queued lines are written.
pub struct Output {
    /// `None` for an output that discards all lines.
    queue: Option<SyncSender<Message>>,
    state: Arc<OutputState>,
    stream: StreamFacts,
}

#[derive(Clone, Copy, Default)]
struct StreamFacts {
    is_stream: bool,
    is_terminal: bool,
    is_journal: bool,
}

/// The state that an output's thread shares with the threads that queue lines.
pub(crate) struct OutputState {
    /// Identifies the output to its own thread.
    number: u64,
    /// Empty buffers, for reuse.
    buffers: Pool<Vec<u8>>,
    /// Lines dropped since the last report.
    pub(crate) lost: AtomicU64,
    /// Whether the last [`Output`] was dropped.
    pub(crate) is_closed: AtomicBool,
    spec: Mutex<OutputSpec>,
}

pub(crate) enum Message {
    Line(Vec<u8>),
    /// Reports when everything queued before is written.
    Flush(SyncSender<()>),
    /// Opens the file anew, or connects again at once.
    Reopen,
    Configure(Box<OutputSpec>),
}

/// The open outputs by their keys.
static OUTPUTS: LazyLock<Mutex<HashMap<String, Weak<Output>>>> = LazyLock::new(Mutex::default);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits until every line that is queued in this process is written, at most for `limit`. To be called before the process ends.
pub fn flush_all(limit: Duration) {
    let end = Instant::now() + limit;
    let flushes: Vec<_> = each()
        .into_iter()
        .filter_map(|output| {
            let (done, written) = sync_channel(1);
            output.command(Message::Flush(done), end).then_some(written)
        })
        .collect();
    for written in flushes {
        // An error means that the limit has passed, or that the thread has ended.
        let _ = written.recv_timeout(end.saturating_duration_since(Instant::now()));
    }
}

/// Opens every log file anew, for a tool that has moved or removed files, and lets lost connections be opened at once.
pub fn reopen_all() {
    let end = Instant::now() + COMMAND_LIMIT;
    for output in each() {
        output.command(Message::Reopen, end);
    }
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
                let folder = path.parent().and_then(|folder| folder.canonicalize().ok());
                let path = match (folder, path.file_name()) {
                    (Some(folder), Some(name)) => folder.join(name),
                    _ => path,
                };
                format!("file {}", path.display())
            }
            Self::Net(net) => format!("net {net}"),
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
    /// The file cannot be opened, the collector cannot be reached (without a soft start), or the system refuses a thread.
    pub fn open(spec: &OutputSpec) -> io::Result<Arc<Self>> {
        // The lock is held while the output is opened, so that two threads cannot open it twice.
        let mut outputs = lock(&OUTPUTS);
        let key = spec.key();
        if let Some(open) = outputs.get(&key).and_then(Weak::upgrade) {
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
        outputs.retain(|_, output| output.strong_count() > 0);
        // The file exists now, so that its folder has a canonical name.
        outputs.insert(spec.key(), Arc::downgrade(&output));
        Ok(output)
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
        let state = Arc::new(OutputState {
            number: NUMBER.fetch_add(1, Ordering::Relaxed),
            buffers: Pool::new(QUEUE_MAX),
            lost: AtomicU64::new(0),
            is_closed: AtomicBool::new(false),
            spec: Mutex::new(spec.clone()),
        });
        let stream = match spec {
            OutputSpec::Stderr => StreamFacts::of(&io::stderr()),
            OutputSpec::Stdout => StreamFacts::of(&io::stdout()),
            OutputSpec::Discard | OutputSpec::File(_) | OutputSpec::Net(_) => StreamFacts::default(),
        };
        if *spec == OutputSpec::Discard {
            return Ok(Self { queue: None, state, stream });
        }
        let (queue, messages) = sync_channel(QUEUE_MAX);
        let (shared, place) = (Arc::clone(&state), spec.to_string());
        std::thread::Builder::new().name("log".into()).spawn(move || writer::run(&messages, &shared, sink, &place))?;
        Ok(Self { queue: Some(queue), state, stream })
    }

    /// Gives the output the options of `spec`, which must have the same key.
    pub fn configure(&self, spec: &OutputSpec) {
        let mut current = lock(&self.state.spec);
        if *current != *spec {
            current.clone_from(spec);
            self.command(Message::Configure(Box::new(spec.clone())), Instant::now() + COMMAND_LIMIT);
        }
    }

    /// Returns whether the output is standard output or standard error.
    pub fn is_stream(&self) -> bool {
        self.stream.is_stream
    }

    /// Returns whether people read the output.
    pub fn is_terminal(&self) -> bool {
        self.stream.is_terminal
    }

    /// Returns whether systemd's journal reads the output, which takes a priority from the start of a line.
    pub fn is_journal(&self) -> bool {
        self.stream.is_journal
    }

    /// Returns whether all lines are discarded.
    pub fn is_discarded(&self) -> bool {
        self.queue.is_none()
    }

    /// Queues a line, which `format` appends to the buffer given, and returns true. On the output's own thread the line is neither
    /// formatted nor queued, and the result is false: the thread would wait for itself.
    pub fn write(&self, when_full: WhenFull, format: impl FnOnce(&mut Vec<u8>)) -> bool {
        let Some(queue) = &self.queue else { return true };
        if writer::is_of(self.state.number) {
            return false;
        }
        let mut line = self.state.buffers.pop().unwrap_or_default();
        format(&mut line);
        if line.is_empty() {
            self.state.put(line);
            return true;
        }
        // The thread of another output must not wait: two outputs that report on each other could block both.
        let is_sent = match when_full {
            WhenFull::Wait if !writer::is_any() => queue.send(Message::Line(line)).is_ok(),
            _ => queue.try_send(Message::Line(line)).is_ok(),
        };
        if !is_sent {
            self.state.lost.fetch_add(1, Ordering::Relaxed);
        }
        true
    }

    /// Queues a command; gives up at `end` if the queue is still full. Returns whether it was queued.
    fn command(&self, mut message: Message, end: Instant) -> bool {
        let Some(queue) = &self.queue else { return false };
        loop {
            match queue.try_send(message) {
                Ok(()) => return true,
                Err(TrySendError::Full(returned)) if Instant::now() < end => message = returned,
                Err(_) => return false,
            }
            std::thread::sleep(RETRY);
        }
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        self.state.is_closed.store(true, Ordering::Relaxed);
    }
}

impl OutputState {
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Keeps an empty buffer for the next line, without the memory of an unusually long one.
    pub(crate) fn put(&self, mut line: Vec<u8>) {
        line.clear();
        line.shrink_to(BUFFER_BYTES_KEPT);
        self.buffers.push(line);
    }
}

impl StreamFacts {
    fn of(stream: &(impl IsTerminal + AsFd)) -> Self {
        // systemd sets the variable to the device and the inode of the journal's stream, so that a redirected stream is not mistaken for it.
        let is_journal = std::env::var("JOURNAL_STREAM").is_ok_and(|journal| {
            rustix::fs::fstat(stream).is_ok_and(|stat| journal == format!("{}:{}", stat.st_dev, stat.st_ino))
        });
        Self { is_stream: true, is_terminal: stream.is_terminal(), is_journal }
    }
}
