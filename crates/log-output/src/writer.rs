//! The thread of an output: it gathers queued lines, writes them, and reports lost ones.

use std::cell::Cell;
use std::io::{self, Write};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::time::{Duration, Instant};

use crate::file::LogFile;
use crate::net::Collector;
use crate::output::{Message, OutputSpec, OutputState};

/// Bytes that the thread gathers before it writes.
const GATHERED_BYTES_MAX: usize = 64 * 1024;
/// Capacity that the gathered bytes may keep after an unusually long line.
const GATHERED_BYTES_KEPT: usize = 2 * GATHERED_BYTES_MAX;
/// How long the thread sleeps after a write, so that lines gather. A thread that waited for each line would be woken for each, which costs
/// the worker more than everything else about the line.
const PAUSE: Duration = Duration::from_millis(5);
/// How often lost lines are reported, and how long the thread waits for a line at most.
const REPORT_EVERY: Duration = Duration::from_secs(1);

thread_local! {
    /// The output whose thread this is; 0 for all other threads.
    static OUTPUT: Cell<u64> = const { Cell::new(0) };
}

/// Returns whether the current thread is the thread of an output.
pub(crate) fn is_any() -> bool {
    OUTPUT.get() != 0
}

/// Returns whether the current thread is the thread of this output.
pub(crate) fn is_of(number: u64) -> bool {
    OUTPUT.get() == number
}

/// The destination of an output.
pub(crate) enum Sink {
    Stream(Box<dyn Write + Send>),
    File(Box<LogFile>),
    Net(Collector),
}

/// Lines that are written together.
#[derive(Default)]
pub(crate) struct Batch {
    bytes: Vec<u8>,
    /// The end of each line in `bytes`.
    ends: Vec<usize>,
}

/// The progress of a write.
pub(crate) struct Progress {
    /// Lines that are written.
    pub(crate) lines: usize,
    /// The reason why the next line is not.
    pub(crate) fault: Option<io::Error>,
}

impl Batch {
    fn push(&mut self, line: &[u8]) {
        self.bytes.extend_from_slice(line);
        self.ends.push(self.bytes.len());
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.shrink_to(GATHERED_BYTES_KEPT);
        self.ends.clear();
    }

    /// The number of lines.
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns the bytes of the lines from `first` to before `end`.
    pub(crate) fn lines(&self, first: usize, end: usize) -> &[u8] {
        &self.bytes[self.start(first)..self.start(end)]
    }

    /// Returns how many lines from `first` on fit into `room` bytes together.
    pub(crate) fn fitting(&self, first: usize, room: u64) -> usize {
        let start = self.start(first);
        self.ends[first..].partition_point(|end| (end - start) as u64 <= room)
    }

    fn start(&self, line: usize) -> usize {
        if line == 0 { 0 } else { self.ends[line - 1] }
    }
}

impl Sink {
    /// Writes the lines from `first` on.
    fn write(&mut self, batch: &Batch, first: usize) -> Progress {
        match self {
            Self::Stream(stream) => {
                let written = stream.write_all(batch.lines(first, batch.len())).and_then(|()| stream.flush());
                match written {
                    Ok(()) => Progress { lines: batch.len() - first, fault: None },
                    Err(error) => Progress { lines: 0, fault: Some(error) },
                }
            }
            Self::File(file) => file.write(batch, first),
            Self::Net(collector) => collector.write(batch, first),
        }
    }

    /// Returns how long to wait before the lines that could not be written are tried again; `None`: they are lost.
    fn retry_after(&self) -> Option<Duration> {
        match self {
            // There is no notification when a full disk has room again.
            Self::Stream(_) | Self::File(_) => None,
            Self::Net(collector) => Some(collector.retry_after()),
        }
    }

    fn reopen(&mut self) {
        match self {
            Self::Stream(_) => {}
            Self::File(file) => file.reopen(),
            Self::Net(collector) => collector.connect_now(),
        }
    }

    fn configure(&mut self, spec: OutputSpec) {
        match (self, spec) {
            (Self::File(file), OutputSpec::File(spec)) => file.configure(spec),
            (Self::Net(collector), OutputSpec::Net(spec)) => collector.configure(spec),
            _ => {}
        }
    }
}

/// Numbers and reasons since the last report.
#[derive(Default)]
struct Faults {
    failed: u64,
    reason: Option<io::Error>,
}

/// Runs until the output is dropped and its queue is empty.
pub(crate) fn run(messages: &Receiver<Message>, state: &OutputState, mut sink: Sink, place: &str) {
    OUTPUT.set(state.number());
    let (mut batch, mut written) = (Batch::default(), 0);
    let mut flushes: Vec<SyncSender<()>> = Vec::new();
    let mut faults = Faults::default();
    let mut report_at = Instant::now() + REPORT_EVERY;
    // Whether lines wait for the collector.
    let mut waits = false;
    loop {
        // Lines that wait for the collector stay here, and further ones in the queue.
        if written == batch.len() {
            batch.clear();
            written = 0;
            match messages.recv_timeout(REPORT_EVERY) {
                Ok(first) => gather(first, messages, state, &mut batch, &mut flushes, &mut sink),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    faults.report(state, place);
                    return;
                }
            }
        }
        let has_lines = written < batch.len();
        if has_lines {
            let progress = sink.write(&batch, written);
            written += progress.lines;
            if progress.fault.is_none() && std::mem::take(&mut waits) {
                tracing::info!("log output {place}: writing again");
            }
            if let Some(error) = progress.fault {
                let rest = batch.len() - written;
                match sink.retry_after() {
                    Some(wait) if !state.is_closed.load(Ordering::Relaxed) => {
                        if !std::mem::replace(&mut waits, true) {
                            tracing::warn!("log output {place}: lines wait: {error}");
                        }
                        std::thread::sleep(wait.min(REPORT_EVERY));
                    }
                    _ => {
                        faults.failed += rest as u64;
                        faults.reason = Some(error);
                        written = batch.len();
                    }
                }
            }
        }
        if let Sink::File(file) = &mut sink {
            file.keep_schedule();
        }
        if Instant::now() >= report_at {
            report_at = Instant::now() + REPORT_EVERY;
            faults.report(state, place);
        }
        if written == batch.len() {
            for done in flushes.drain(..) {
                let _ = done.send(());
            }
        }
        if has_lines && !state.is_closed.load(Ordering::Relaxed) {
            std::thread::sleep(PAUSE);
        }
    }
}

/// Takes lines from the queue until they are enough for one write, and carries commands out.
fn gather(
    first: Message,
    messages: &Receiver<Message>,
    state: &OutputState,
    batch: &mut Batch,
    flushes: &mut Vec<SyncSender<()>>,
    sink: &mut Sink,
) {
    let mut next = Some(first);
    while let Some(message) = next {
        match message {
            Message::Line(line) => {
                batch.push(&line);
                state.put(line);
            }
            Message::Flush(done) => flushes.push(done),
            Message::Reopen => sink.reopen(),
            Message::Configure(spec) => sink.configure(*spec),
        }
        next = if batch.bytes.len() < GATHERED_BYTES_MAX { messages.try_recv().ok() } else { None };
    }
}

impl Faults {
    /// Reports lines that were lost since the last report, and why.
    fn report(&mut self, state: &OutputState, place: &str) {
        let lost = state.lost.swap(0, Ordering::Relaxed);
        let reason = self.reason.take().map(|error| format!(": {error}")).unwrap_or_default();
        let failed = std::mem::take(&mut self.failed);
        if lost > 0 {
            tracing::warn!("log output {place}: dropped {lost} lines, because the queue was full");
        }
        if failed > 0 {
            tracing::error!("log output {place}: could not write {failed} lines{reason}");
        }
    }
}
