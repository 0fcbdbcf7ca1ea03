//! Measures the cost of the causal profiler's hooks. Prints one JSON object per line, like `inprocess`. Usage: `hooks
//! SECONDS`, the time for each case; or `hooks count none|off REQUESTS`, which runs the hooks of this number of
//! requests and exits, for a tool that counts instructions.
//!
//! Each case is measured without a profile (`off`) and while a window records (`recording`). The cases of a table
//! alternate in blocks of at least 0.1 ms. The time is the median over the blocks; the ratio is to the first case,
//! block by block.

use std::hint::black_box;
use std::sync::{Mutex as StdMutex, RwLock as StdRwLock, mpsc as std_mpsc};
use std::time::{Duration, Instant};

use causal::policy::Recorder;
use progress::sync::{Condvar, Mutex, RwLock, mpsc};
use progress::{ENTRIES_MAX, Point, Span, Stamp, Visit, stage};

#[path = "../stats.rs"]
#[allow(dead_code, reason = "the runner uses all of it, this program some")]
mod stats;

static RECORDER: Recorder = Recorder::new();

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    progress::install(&RECORDER).unwrap_or_else(|_| panic!("this is the only policy"));
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["count", which, requests] => count(which, requests.parse().expect("a number of requests")),
        [seconds] => tables(Duration::from_secs_f64(seconds.parse().expect("seconds"))),
        _ => panic!("usage: hooks SECONDS | hooks count none|off REQUESTS"),
    }
}

fn count(which: &str, requests: u64) {
    let mut request = RequestHooks::new();
    match which {
        "none" => (0..requests).for_each(|_| request.bare()),
        "off" => (0..requests).for_each(|_| request.hooked()),
        other => panic!("{other} is neither none nor off"),
    }
}

/// All hooks of one request in the server, without the work between them.
struct RequestHooks {
    connection: Stamp,
    handler: Span,
    request: Point,
    route: Point,
}

impl RequestHooks {
    /// Number of hooks in [`hooked`](Self::hooked); a span has two.
    const HOOKS: u32 = 20;

    fn new() -> Self {
        Self {
            connection: Stamp::default(),
            handler: Span::intern("respond"),
            request: Point::intern("request"),
            route: Point::intern("route /"),
        }
    }

    #[inline(never)]
    fn hooked(&mut self) {
        progress::after_block();
        work(stage::READ);
        black_box(progress::hold(self.connection, 0));
        progress::arrived(&mut self.connection, 0);
        work(stage::PARSE);
        let visit = Visit::begin();
        {
            let _routing = stage::ROUTE.enter();
            work(self.handler);
        }
        work(stage::ENCODE);
        progress::before_write(&mut self.connection);
        work(stage::WRITE);
        visit.end(self.request);
        visit.end(self.route);
        progress::before_block();
    }

    /// The equivalent of [`hooked`](Self::hooked) without hooks.
    #[inline(never)]
    fn bare(&mut self) {
        (0..6).for_each(|_| {
            black_box(());
        });
        black_box(&mut self.connection);
    }
}

/// Prevents the compiler from merging the two ends of a span.
#[inline(always)]
fn work(span: Span) {
    let _span = span.enter();
    black_box(());
}

/// A piece of work to measure.
struct HookCase<'a> {
    name: &'static str,
    way: HookMode,
    /// Largest number of log entries per turn.
    entries: u64,
    turns: Box<dyn FnMut(u64) + 'a>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum HookMode {
    Off,
    Recording,
}

impl<'a> HookCase<'a> {
    fn new(name: &'static str, way: HookMode, entries: u64, mut work: impl FnMut() + 'a) -> Self {
        Self { name, way, entries, turns: Box::new(move |turns| (0..turns).for_each(|_| work())) }
    }

    /// Returns the duration of `turns` turns.
    fn time(&mut self, turns: u64) -> Duration {
        if self.way == HookMode::Recording {
            RECORDER.open_recorded();
            progress::set_attention(progress::Attention::Everything);
        }
        // The window opens before the clock starts, so its cost is not measured.
        let began = Instant::now();
        (self.turns)(turns);
        let time = began.elapsed();
        progress::set_attention(progress::Attention::Nothing);
        RECORDER.close();
        time
    }
}

const BLOCK: Duration = Duration::from_micros(100);

/// Measures cases in alternation.
fn run(table: &str, input: &str, time: Duration, mut cases: Vec<HookCase<'_>>) {
    let blocks: Vec<u64> = cases
        .iter_mut()
        .map(|case| {
            // Once the log is full, a turn would be cheaper.
            let most = ENTRIES_MAX as u64 / 2 / case.entries.max(1);
            let mut turns = 16;
            while turns * 2 < most && case.time(turns) < BLOCK {
                turns *= 2;
            }
            turns
        })
        .collect();
    let mut each: Vec<Vec<f64>> = cases.iter().map(|_| Vec::new()).collect();
    let until = Instant::now() + time * cases.len() as u32;
    while Instant::now() < until {
        for (place, (case, &turns)) in cases.iter_mut().zip(&blocks).enumerate() {
            each[place].push(case.time(turns).as_nanos() as f64 / turns as f64);
        }
    }
    for (place, case) in cases.iter().enumerate() {
        // The cases alternate, so blocks with the same index are adjacent in time.
        let ratios: Vec<_> = each[place].iter().zip(&each[0]).map(|(one, first)| one / first).collect();
        let line = serde_json::json!({
            "table": table,
            "input": input,
            "name": case.name,
            "ns": stats::median(&each[place]),
            "bytes": 0.0,
            "allocations": 0.0,
            "ratio": stats::median(&ratios),
        });
        println!("{line}");
    }
}

fn tables(time: Duration) {
    use HookMode::{Off, Recording};
    let mut requests = [RequestHooks::new(), RequestHooks::new(), RequestHooks::new()];
    let [bare, off, recording] = &mut requests;
    assert_eq!(RequestHooks::HOOKS, 20, "the table's name says it");
    run(
        "hooks",
        "the 20 of a request",
        time,
        vec![
            HookCase::new("none", Off, 0, || bare.bare()),
            HookCase::new("off", Off, 0, || off.hooked()),
            HookCase::new("recording", Recording, 24, || recording.hooked()),
        ],
    );
    let point = Point::intern("request");
    run(
        "hooks",
        "one",
        time,
        vec![
            HookCase::new("a hit, off", Off, 0, || black_box(point).hit()),
            HookCase::new("a hit, recording", Recording, 1, || black_box(point).hit()),
            HookCase::new("a span, off", Off, 0, || work(black_box(stage::READ))),
            HookCase::new("a span, recording", Recording, 2, || work(black_box(stage::READ))),
        ],
    );
    let (theirs, ours) = (StdMutex::new(0_u64), Mutex::new(0_u64));
    run(
        "locks",
        "taken and given up",
        time,
        vec![
            HookCase::new("std's mutex", Off, 0, || *black_box(&theirs).lock().expect("sound") += 1),
            HookCase::new("ours, off", Off, 0, || *black_box(&ours).lock().expect("sound") += 1),
            HookCase::new("ours, recording", Recording, 6, || *black_box(&ours).lock().expect("sound") += 1),
        ],
    );
    let (theirs, ours) = (StdRwLock::new(0_u64), RwLock::new(0_u64));
    run(
        "read-write locks",
        "read",
        time,
        vec![
            HookCase::new("std's", Off, 0, || read(&black_box(&theirs).read().expect("sound"))),
            HookCase::new("ours, off", Off, 0, || read(&black_box(&ours).read().expect("sound"))),
            HookCase::new("ours, recording", Recording, 6, || read(&black_box(&ours).read().expect("sound"))),
        ],
    );
    let (theirs, ours) = (std::sync::Condvar::new(), Condvar::new());
    run(
        "notifications",
        "that nobody waits for",
        time,
        vec![
            HookCase::new("std's", Off, 0, || black_box(&theirs).notify_one()),
            HookCase::new("ours, off", Off, 0, || black_box(&ours).notify_one()),
            HookCase::new("ours, recording", Recording, 1, || black_box(&ours).notify_one()),
        ],
    );
    let (theirs, ours) = (std_mpsc::channel(), mpsc::channel());
    run(
        "channels",
        "sent and received",
        time,
        vec![
            HookCase::new("std's", Off, 0, || pass_theirs(|value| theirs.0.send(value).is_ok(), &theirs.1)),
            HookCase::new("ours, off", Off, 0, || pass_ours(|value| ours.0.send(value).is_ok(), &ours.1)),
            HookCase::new("ours, recording", Recording, 4, || pass_ours(|value| ours.0.send(value).is_ok(), &ours.1)),
        ],
    );
    let (theirs, ours) = (std_mpsc::sync_channel(16), mpsc::sync_channel(16));
    run(
        "bounded channels",
        "sent and received",
        time,
        vec![
            HookCase::new("std's", Off, 0, || pass_theirs(|value| theirs.0.send(value).is_ok(), &theirs.1)),
            HookCase::new("ours, off", Off, 0, || pass_ours(|value| ours.0.send(value).is_ok(), &ours.1)),
            HookCase::new("ours, recording", Recording, 6, || pass_ours(|value| ours.0.send(value).is_ok(), &ours.1)),
        ],
    );
    run(
        "threads",
        "spawned and joined",
        time,
        vec![
            HookCase::new("std's", Off, 0, || std::thread::spawn(|| ()).join().expect("it does nothing")),
            HookCase::new("ours, off", Off, 0, || progress::thread::spawn(|| ()).join().expect("it does nothing")),
        ],
    );
}

#[inline(always)]
fn read(value: &u64) {
    black_box(*value);
}

fn pass_theirs(send: impl Fn(u64) -> bool, receiver: &std_mpsc::Receiver<u64>) {
    assert!(send(black_box(7)));
    assert_eq!(receiver.recv(), Ok(7));
}

fn pass_ours(send: impl Fn(u64) -> bool, receiver: &mpsc::Receiver<u64>) {
    assert!(send(black_box(7)));
    assert_eq!(receiver.recv(), Ok(7));
}
