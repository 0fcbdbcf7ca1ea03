//! A profiler that records one line for each hook, and requests a configurable delay of received bytes.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use progress::{
    Account, Attention, Lock, Point, Policy, Sharing, Span, Stamp, install, point_names, set_attention, span_names,
};

use super::PATIENCE;

/// One hook: its thread, its name, and the number of its object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct HookCall {
    account: u32,
    hook: &'static str,
    number: u64,
    /// A span or a point.
    name: HookSubject,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HookSubject {
    None,
    Span(u32),
    Point(u32),
}

/// The profiler's policy; a process has only one.
pub(crate) struct Recorder {
    lines: Mutex<Vec<HookCall>>,
    /// The kernel's timestamps, as passed to [`Policy::arrived`].
    times: Mutex<Vec<u64>>,
    /// The delay of all bytes in nanoseconds (`pause`), and the number of times it was returned (`held`).
    pub(crate) pause: AtomicU64,
    pub(crate) held: AtomicU64,
    /// Whether spans are recorded.
    spans: AtomicBool,
    next: AtomicU64,
}

pub(crate) static RECORDER: Recorder = Recorder {
    lines: Mutex::new(Vec::new()),
    times: Mutex::new(Vec::new()),
    pause: AtomicU64::new(0),
    held: AtomicU64::new(0),
    spans: AtomicBool::new(false),
    next: AtomicU64::new(1),
};

/// The window of all stamps.
const WINDOW: u32 = 1;

/// A lock that makes tests with recordings run one at a time, so that a recording has no hooks of another test's
/// server.
pub(crate) struct Alone(#[expect(dead_code, reason = "held until the end")] MutexGuard<'static, ()>);

pub(crate) fn alone() -> Alone {
    static ONE: Mutex<()> = Mutex::new(());
    Alone(lock(&ONE))
}

/// A running recording.
pub(crate) struct Recording<'a>(#[expect(dead_code, reason = "no second recording at a time")] &'a Alone);

impl<'a> Recording<'a> {
    pub(crate) fn new(alone: &'a Alone) -> Self {
        let _ = install(&RECORDER);
        lock(&RECORDER.lines).clear();
        lock(&RECORDER.times).clear();
        RECORDER.pause.store(0, Relaxed);
        RECORDER.held.store(0, Relaxed);
        RECORDER.spans.store(false, Relaxed);
        set_attention(Attention::Everything);
        Self(alone)
    }

    /// Starts a recording that includes spans.
    pub(crate) fn with_spans(alone: &'a Alone) -> Self {
        let recording = Self::new(alone);
        RECORDER.spans.store(true, Relaxed);
        recording
    }

    /// Delays all received bytes by `pause`.
    pub(crate) fn hold(&self, pause: Duration) {
        RECORDER.pause.store(u64::try_from(pause.as_nanos()).unwrap(), Relaxed);
    }

    /// Returns the number of holds.
    pub(crate) fn held(&self) -> u64 {
        RECORDER.held.load(Relaxed)
    }

    /// Returns the kernel's timestamps of the processed bytes.
    pub(crate) fn times(&self) -> Vec<u64> {
        lock(&RECORDER.times).clone()
    }

    /// Waits until `answers` requests have ended, then stops. Returns the lines, with objects numbered in the order of
    /// their appearance, and with the names of threads that are not workers.
    #[track_caller]
    pub(crate) fn after(self, answers: usize) -> Vec<String> {
        let request = HookSubject::Point(Point::intern("request").id());
        let is_answer = |line: &&HookCall| line.hook == "end" && line.name == request;
        let end = Instant::now() + PATIENCE;
        while lock(&RECORDER.lines).iter().filter(is_answer).count() < answers {
            assert!(Instant::now() < end, "{:#?}", lock(&RECORDER.lines));
            std::thread::sleep(Duration::from_millis(1));
        }
        // The hooks after the last response follow at once.
        std::thread::sleep(Duration::from_millis(20));
        self.stop()
    }

    /// Stops the recording and returns its lines.
    pub(crate) fn stop(self) -> Vec<String> {
        set_attention(Attention::Nothing);
        let lines = std::mem::take(&mut *lock(&RECORDER.lines));
        let threads: HashMap<u32, String> =
            progress::accounts().iter().map(|account| (account.number(), account.name())).collect();
        let (spans, points) = (span_names(), point_names());
        let mut known: HashMap<(char, u64), usize> = HashMap::new();
        let mut counts: HashMap<char, usize> = HashMap::new();
        let mut texts = Vec::new();
        for HookCall { account, hook, number, name } in lines {
            let mut text = String::new();
            let thread = &threads[&account];
            if !thread.starts_with("worker") {
                text += &format!("{thread}: ");
            }
            text += hook;
            if number > 0 {
                // Connections, messages, timers, calls and visits are numbered separately.
                let kind = match hook {
                    "arrived" | "written" => 'c',
                    "sent" | "took" => 'm',
                    "sleep" | "slept" => 't',
                    "called" | "answered" => 'u',
                    _ => 'v',
                };
                let place = known.entry((kind, number)).or_insert_with(|| {
                    let count = counts.entry(kind).or_default();
                    *count += 1;
                    *count
                });
                text += &format!(" {kind}{place}");
            }
            match name {
                HookSubject::None => {}
                HookSubject::Span(id) => text += &format!(" {}", spans[id as usize]),
                HookSubject::Point(id) => text += &format!(" {}", points[id as usize]),
            }
            texts.push(text);
        }
        texts
    }
}

impl Drop for Recording<'_> {
    fn drop(&mut self) {
        set_attention(Attention::Nothing);
    }
}

fn lock<T>(cell: &Mutex<T>) -> MutexGuard<'_, T> {
    cell.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Recorder {
    fn record_event(&self, account: &Account, hook: &'static str, number: u64, name: HookSubject) {
        lock(&self.lines).push(HookCall { account: account.number(), hook, number, name });
    }

    fn fresh(&self, stamp: &mut Stamp) -> u64 {
        let number = self.next.fetch_add(1, Relaxed);
        *stamp = Stamp::new(WINDOW, number);
        number
    }

    fn lasting(&self, stamp: &mut Stamp) -> u64 {
        stamp.value(WINDOW).unwrap_or_else(|| self.fresh(stamp))
    }
}

fn number(stamp: Stamp) -> u64 {
    stamp.value(WINDOW).unwrap_or_default()
}

impl Policy for Recorder {
    fn thread_began(&self, _: &'static Account) {}
    fn thread_ended(&self, _: &'static Account) {}

    fn entered(&self, account: &'static Account, span: Span) -> u32 {
        if self.spans.load(Relaxed) {
            self.record_event(account, "in", 0, HookSubject::Span(span.id()));
        }
        span.id()
    }

    fn left(&self, account: &'static Account, before: &AtomicU32) {
        if self.spans.load(Relaxed) {
            self.record_event(account, "out", 0, HookSubject::Span(before.load(Relaxed)));
        }
    }

    fn at(&self, _: &'static Account, _: Span) {}

    fn before_send(&self, account: &'static Account, stamp: &mut Stamp) {
        let number = self.fresh(stamp);
        self.record_event(account, "sent", number, HookSubject::None);
    }

    fn after_receive(&self, account: &'static Account, stamp: Stamp, _: Duration) {
        self.record_event(account, "took", number(stamp), HookSubject::None);
    }

    fn before_block(&self, _: &'static Account) {}
    fn after_block(&self, _: &'static Account) {}
    fn lock_acquired(&self, _: &'static Account, _: &Lock, _: Sharing, _: Duration) {}
    fn before_unlock(&self, _: &'static Account, _: &Lock, _: Sharing, _: bool) {}

    fn before_write(&self, account: &'static Account, connection: &mut Stamp) {
        let number = self.lasting(connection);
        self.record_event(account, "written", number, HookSubject::None);
    }

    fn hold(&self, _: &'static Account, _: Stamp, _: u64) -> Option<Duration> {
        let pause = self.pause.load(Relaxed);
        // Delays once, and not again when the hook is called after the delay.
        if pause == 0 || self.held.fetch_add(1, Relaxed) % 2 == 1 {
            return None;
        }
        Some(Duration::from_nanos(pause))
    }

    fn arrived(&self, account: &'static Account, connection: &mut Stamp, arrived: u64) {
        let number = self.lasting(connection);
        lock(&self.times).push(arrived);
        self.record_event(account, "arrived", number, HookSubject::None);
    }

    fn called(&self, account: &'static Account, call: &mut Stamp, callee: Span) {
        let number = self.fresh(call);
        self.record_event(account, "called", number, HookSubject::Span(callee.id()));
    }

    fn answered(&self, account: &'static Account, call: Stamp, _: u64) {
        self.record_event(account, "answered", number(call), HookSubject::None);
    }

    fn sleep_began(&self, account: &'static Account, timer: &mut Stamp) {
        let number = self.fresh(timer);
        self.record_event(account, "sleep", number, HookSubject::None);
    }

    fn sleep_ended(&self, account: &'static Account, timer: Stamp, _: Duration) {
        self.record_event(account, "slept", number(timer), HookSubject::None);
    }

    fn hit(&self, account: &'static Account, point: Point) {
        self.record_event(account, "hit", 0, HookSubject::Point(point.id()));
    }

    fn visit_began(&self, account: &'static Account, visit: &mut Stamp) {
        let number = self.fresh(visit);
        self.record_event(account, "visit", number, HookSubject::None);
    }

    fn visit_ended(&self, account: &'static Account, visit: Stamp, point: Point) {
        self.record_event(account, "end", number(visit), HookSubject::Point(point.id()));
    }
}
