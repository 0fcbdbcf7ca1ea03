//! The thread of an output: it takes the queued lines, writes them, and reports lost ones.

use std::cell::Cell;
use std::io::{self, Write};
use std::sync::mpsc::SyncSender;
use std::time::{Duration, Instant};

use crate::batch::{Batch, Progress};
use crate::file::LogFile;
use crate::net::{Collector, is_line_too_long};
use crate::output::OutputSpec;
use crate::queue::{Command, LineQueue};

/// How long the thread sleeps after it has written, so that lines gather. A thread that waited for each line would be
/// woken for each, which costs the worker more than everything else about the line.
const PAUSE: Duration = Duration::from_millis(5);
/// How often lost lines are reported, and how long the thread waits for a line at most.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);

thread_local! {
    /// The output whose thread this is; 0 for all other threads.
    static OUTPUT: Cell<u64> = const { Cell::new(0) };
}

/// Returns whether the current thread is the thread of an output.
pub(crate) fn is_output_thread() -> bool {
    OUTPUT.get() != 0
}

/// Returns whether the current thread is the thread of this output.
pub(crate) fn is_thread_of(number: u64) -> bool {
    OUTPUT.get() == number
}

/// The destination of an output.
pub(crate) enum Sink {
    Stream(Box<dyn Write + Send>),
    File(Box<LogFile>),
    Net(Collector),
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

    /// Ends the attempts to write the lines that could not be written.
    fn give_up(&mut self) {
        if let Self::Net(collector) = self {
            collector.give_up();
        }
    }

    fn reopen(&mut self) {
        match self {
            Self::Stream(_) => {}
            Self::File(file) => {
                file.reopen();
            }
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

/// The state of the thread.
struct Writer<'q> {
    queue: &'q LineQueue,
    sink: Sink,
    /// The output's name in reports.
    name: &'q str,
    batch: Batch,
    /// Requests that wait for the end of the next round.
    flushes: Vec<SyncSender<()>>,
    faults: Faults,
    report_at: Instant,
    /// Whether lines wait for the collector.
    waits: bool,
    /// Whether the process is about to end, so that no line may wait in this round.
    is_ending: bool,
}

/// The lost lines that the last report included, and why a line could not be written since then.
#[derive(Default)]
struct Faults {
    dropped: u64,
    failed: u64,
    reason: Option<io::Error>,
}

/// Runs until the queue is closed and empty.
pub(crate) fn run(number: u64, queue: &LineQueue, sink: Sink, name: &str) {
    OUTPUT.set(number);
    queue.attach();
    let mut writer = Writer {
        queue,
        sink,
        name,
        batch: Batch::default(),
        flushes: Vec::new(),
        faults: Faults::default(),
        report_at: Instant::now() + REPORT_INTERVAL,
        waits: false,
        is_ending: false,
    };
    loop {
        // After the close no line is queued, so that this round takes all.
        let is_last = queue.is_closed();
        let has_written = writer.round();
        if is_last {
            writer.report();
            return;
        }
        if has_written {
            queue.pause(PAUSE);
        } else {
            let begin = Instant::now();
            queue.wait(REPORT_INTERVAL);
            if begin.elapsed() >= REPORT_INTERVAL {
                queue.release();
                writer.batch.release();
            }
        }
    }
}

impl Writer<'_> {
    /// Carries out the commands and writes all lines that are queued. Returns whether there were any.
    fn round(&mut self) -> bool {
        self.carry_out_commands();
        let flushes = std::mem::take(&mut self.flushes);
        let has_written = self.queue.take(&mut self.batch);
        self.write_batch();
        if self.is_ending {
            self.report();
        }
        // A request that came within this round is for the next one, with the lines that were queued before it.
        self.is_ending &= !self.flushes.is_empty();
        for done in flushes {
            // The caller may have given up.
            let _ = done.send(());
        }
        if let Sink::File(file) = &mut self.sink {
            file.roll_if_due();
        }
        self.report_if_due();
        has_written
    }

    /// Writes the batch and empties it. While a collector is absent, its lines stay here and further ones in the queue.
    fn write_batch(&mut self) {
        let mut written = 0;
        while written < self.batch.len() {
            let progress = self.sink.write(&self.batch, written);
            written += progress.lines;
            let Some(error) = progress.fault else {
                if std::mem::take(&mut self.waits) {
                    tracing::info!("log output {}: writing works again", self.name);
                }
                continue;
            };
            if is_line_too_long(&error) {
                self.queue.count_failed(1);
                self.faults.reason = Some(error);
                written += 1;
                continue;
            }
            match self.sink.retry_after() {
                Some(wait) if !self.queue.is_closed() && !self.is_ending => {
                    if !std::mem::replace(&mut self.waits, true) {
                        tracing::warn!("log output {}: cannot write; lines are kept in memory: {error}", self.name);
                    }
                    self.report_if_due();
                    self.queue.pause(wait.min(REPORT_INTERVAL));
                    self.carry_out_commands();
                }
                _ => {
                    self.queue.count_failed((self.batch.len() - written) as u64);
                    self.faults.reason = Some(error);
                    self.sink.give_up();
                    written = self.batch.len();
                }
            }
        }
        self.batch.clear();
    }

    fn carry_out_commands(&mut self) {
        for command in self.queue.take_commands() {
            match command {
                Command::Flush(done) => self.flushes.push(done),
                Command::LastFlush(done) => {
                    // One more attempt; lines that it does not write are lost.
                    if let Sink::Net(collector) = &mut self.sink {
                        collector.connect_briefly();
                    }
                    self.is_ending = true;
                    self.flushes.push(done);
                }
                Command::Reopen => self.sink.reopen(),
                Command::Configure(spec) => self.sink.configure(*spec),
            }
        }
    }

    fn report_if_due(&mut self) {
        if Instant::now() >= self.report_at {
            self.report_at = Instant::now() + REPORT_INTERVAL;
            self.report();
        }
    }

    /// Reports lines that were lost since the last report, and why.
    fn report(&mut self) {
        let name = self.name;
        let (all_dropped, all_failed) = self.queue.lost();
        let reported =
            std::mem::replace(&mut self.faults, Faults { dropped: all_dropped, failed: all_failed, reason: None });
        let (dropped, failed) = (all_dropped - reported.dropped, all_failed - reported.failed);
        if dropped > 0 {
            tracing::warn!("log output {name}: dropped {}, because the queue was full", lines(dropped));
        }
        if failed > 0 {
            let reason = reported.reason.map(|error| format!(": {error}")).unwrap_or_default();
            tracing::error!("log output {name}: could not write {}{reason}", lines(failed));
        }
    }
}

fn lines(count: u64) -> String {
    if count == 1 { "1 line".to_owned() } else { format!("{count} lines") }
}
