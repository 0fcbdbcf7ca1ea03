//! A policy that records its calls as words, by thread.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::time::Duration;

use progress::{
    Account, Attention, Lock, Point, Policy, Sharing, Span, Stamp, accounts, install, point_names, set_attention,
    span_names,
};

/// The window of every stamp.
const WINDOW: u32 = 1;

struct Recorder(Mutex<HookLog>);

#[derive(Default)]
struct HookLog {
    /// The calls, by the thread's name.
    lines: BTreeMap<String, Vec<String>>,
    stamps: u64,
    /// The names of the kinds of work; a kind's number is its index plus 1, and 0 is no kind.
    kinds: Vec<String>,
}

static RECORDER: Recorder = Recorder(Mutex::new(HookLog { lines: BTreeMap::new(), stamps: 0, kinds: Vec::new() }));
/// Serialises the tests.
static TURN: Mutex<()> = Mutex::new(());

fn hook_log() -> MutexGuard<'static, HookLog> {
    RECORDER.0.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs `work`, and returns the policy's calls by thread. The test's own thread is `main`; stamps are numbered from 1
/// in the order in which they are issued.
pub(crate) fn record(work: impl FnOnce()) -> BTreeMap<String, Vec<String>> {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| assert!(install(&RECORDER).is_ok()));
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    progress::register_thread();
    here().kind.store(0, std::sync::atomic::Ordering::Relaxed);
    *hook_log() = HookLog::default();
    // Also when an assertion fails: the next tests rely on it.
    struct Off;
    impl Drop for Off {
        fn drop(&mut self) {
            set_attention(Attention::Nothing);
        }
    }
    let off = Off;
    set_attention(Attention::Everything);
    work();
    drop(off);
    let own = std::thread::current().name().unwrap_or_default().to_owned();
    let mut lines = std::mem::take(&mut hook_log().lines);
    if let Some(main) = lines.remove(&own) {
        lines.insert("main".into(), main);
    }
    lines
}

/// Checks the calls of one thread.
#[track_caller]
pub(crate) fn check(lines: &BTreeMap<String, Vec<String>>, thread: &str, want: &[&str]) {
    assert_eq!(lines.get(thread).map_or(&[][..], |lines| lines), want, "{thread} in {lines:#?}");
}

/// Waits until that thread is blocked in a primitive of the crate, and asleep for the kernel too.
pub(crate) fn until_blocked(name: &str) {
    loop {
        let account = accounts().into_iter().find(|account| account.tid().is_some() && account.name() == name);
        if let Some(account) = account
            && account.is_blocked()
            && account.tid().is_some_and(is_asleep)
        {
            return;
        }
        std::thread::yield_now();
    }
}

fn is_asleep(tid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/self/task/{tid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('S'))
}

fn here() -> &'static Account {
    progress::current().expect("the thread is registered")
}

/// This thread's current kind of work.
pub(crate) fn kind() -> String {
    path(here())
}

impl HookLog {
    /// The number of a kind of work, at least 1.
    fn kind(&mut self, name: String) -> u32 {
        let at = self.kinds.iter().position(|known| *known == name).unwrap_or_else(|| {
            self.kinds.push(name);
            self.kinds.len() - 1
        });
        at as u32 + 1
    }

    fn stamp(&mut self) -> (u64, Stamp) {
        self.stamps += 1;
        (self.stamps, Stamp::new(WINDOW, self.stamps))
    }
}

/// The first word of a span's or site's name, without the source location.
fn word(span: Span) -> String {
    let name = span_names().swap_remove(span.id() as usize);
    name.split(' ').next().unwrap_or_default().to_owned()
}

fn record_line(line: String) {
    let thread = std::thread::current().name().unwrap_or_default().to_owned();
    hook_log().lines.entry(thread).or_default().push(line);
}

fn blocked(blocked: Duration) -> &'static str {
    if blocked.is_zero() { "" } else { ", blocked" }
}

fn shared(sharing: Sharing) -> &'static str {
    if sharing == Sharing::Shared { ", shared" } else { "" }
}

/// A stamp's number; 0 for an unstamped message.
fn number(stamp: Stamp) -> u64 {
    stamp.value(WINDOW).unwrap_or(0)
}

fn path(account: &Account) -> String {
    let kind = account.kind.load(std::sync::atomic::Ordering::Relaxed) as usize;
    if kind == 0 { String::new() } else { hook_log().kinds[kind - 1].clone() }
}

fn set(account: &Account, path: String) -> u32 {
    let kind = hook_log().kind(path);
    account.kind.swap(kind, std::sync::atomic::Ordering::Relaxed)
}

impl Policy for Recorder {
    fn thread_began(&self, account: &'static Account) {
        set(account, String::new());
    }

    fn thread_ended(&self, _account: &'static Account) {}

    fn entered(&self, account: &'static Account, span: Span) -> u32 {
        record_line(format!("in {}", word(span)));
        let inner = format!("{}/{}", path(account), word(span));
        set(account, inner)
    }

    fn left(&self, account: &'static Account, before: &std::sync::atomic::AtomicU32) {
        account.kind.store(before.load(std::sync::atomic::Ordering::Relaxed), std::sync::atomic::Ordering::Relaxed);
        record_line("out".into());
    }

    fn at(&self, account: &'static Account, site: Span) {
        record_line(format!("at {}", word(site)));
        let path = path(account);
        // A site replaces the previous one in the same span.
        let above = path.rfind('@').filter(|&at| path.rfind('/') < Some(at)).map_or(&*path, |at| &path[..at]);
        set(account, format!("{above}@{}", word(site)));
    }

    fn before_send(&self, _account: &'static Account, stamp: &mut Stamp) {
        let (number, fresh) = hook_log().stamp();
        *stamp = fresh;
        record_line(format!("sent {number}"));
    }

    fn after_receive(&self, _account: &'static Account, stamp: Stamp, time: Duration) {
        record_line(format!("took {}{}", number(stamp), blocked(time)));
    }

    fn before_block(&self, _account: &'static Account) {
        record_line("blocks".into());
    }

    fn after_block(&self, _account: &'static Account) {
        record_line("is back".into());
    }

    fn lock_acquired(&self, _account: &'static Account, _lock: &Lock, sharing: Sharing, time: Duration) {
        record_line(format!("locked{}{}", shared(sharing), blocked(time)));
    }

    fn before_unlock(&self, _account: &'static Account, _lock: &Lock, sharing: Sharing, contended: bool) {
        record_line(format!("unlocks{}{}", shared(sharing), if contended { ", contended" } else { "" }));
    }

    fn before_write(&self, _account: &'static Account, _connection: &mut Stamp) {
        record_line("written".into());
    }

    fn hold(&self, _account: &'static Account, _connection: Stamp, _arrived: u64) -> Option<Duration> {
        None
    }

    fn arrived(&self, _account: &'static Account, _connection: &mut Stamp, _arrived: u64) {
        record_line("arrived".into());
    }

    fn called(&self, _account: &'static Account, _call: &mut Stamp, callee: Span) {
        record_line(format!("called {}", word(callee)));
    }

    fn answered(&self, _account: &'static Account, _call: Stamp, _arrived: u64) {
        record_line("answered".into());
    }

    fn sleep_began(&self, _account: &'static Account, timer: &mut Stamp) {
        let (number, fresh) = hook_log().stamp();
        *timer = fresh;
        record_line(format!("timer {number}"));
    }

    fn sleep_ended(&self, _account: &'static Account, timer: Stamp, time: Duration) {
        record_line(format!("over {}{}", number(timer), blocked(time)));
    }

    fn hit(&self, _account: &'static Account, point: Point) {
        record_line(format!("hit {}", point_names()[point.id() as usize]));
    }

    fn visit_began(&self, _account: &'static Account, visit: &mut Stamp) {
        let (number, fresh) = hook_log().stamp();
        *visit = fresh;
        record_line(format!("began {number}"));
    }

    fn visit_ended(&self, _account: &'static Account, visit: Stamp, point: Point) {
        record_line(format!("ended {} of {}", number(visit), point_names()[point.id() as usize]));
    }
}
