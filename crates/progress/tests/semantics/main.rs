//! `sync` and `thread` behave as std documents, while no profile runs, while one runs, and while profiles begin and end
//! concurrently.

mod channels;
mod locks;
mod threads;

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::sync::{Mutex, Once, PoisonError};
use std::time::Duration;

use progress::{Account, Attention, ContextStep, Lock, Point, Policy, Sharing, Span, Stamp, install, set_attention};

/// Runs a test at each level of attention, then with a second thread that switches the level concurrently.
fn always(test: impl Fn()) {
    static INSTALLED: Once = Once::new();
    static TURN: Mutex<()> = Mutex::new(());
    INSTALLED.call_once(|| assert!(install(&Quiet).is_ok()));
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    for attention in [Attention::Nothing, Attention::Spans, Attention::Everything] {
        set_attention(attention);
        test();
    }
    /// Stops that thread, also if the test panics.
    struct StopGuard<'a>(&'a AtomicBool);
    impl Drop for StopGuard<'_> {
        fn drop(&mut self) {
            self.0.store(true, Relaxed);
        }
    }
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for attention in [Attention::Nothing, Attention::Spans, Attention::Everything]
                .into_iter()
                .cycle()
                .take_while(|_| !stop.load(Relaxed))
            {
                set_attention(attention);
                std::thread::yield_now();
            }
        });
        let _stop = StopGuard(&stop);
        test();
    });
    set_attention(Attention::Nothing);
}

/// A policy that only checks that a thread has no open span at its end.
struct Quiet;

impl Policy for Quiet {
    fn thread_began(&self, _: &'static Account) {}
    fn thread_ended(&self, account: &'static Account) {
        progress::steps(|step| {
            assert!(matches!(step, ContextStep::Site(_)), "{} is still inside of it", account.name());
        });
    }
    fn entered(&self, _: &'static Account, _: Span) -> u32 {
        0
    }
    fn left(&self, _: &'static Account, _: &AtomicU32) {}
    fn at(&self, _: &'static Account, _: Span) {}
    fn before_send(&self, _: &'static Account, _: &mut Stamp) {}
    fn after_receive(&self, _: &'static Account, _: Stamp, _: Duration) {}
    fn before_block(&self, _: &'static Account) {}
    fn after_block(&self, _: &'static Account) {}
    fn lock_acquired(&self, _: &'static Account, _: &Lock, _: Sharing, _: Duration) {}
    fn before_unlock(&self, _: &'static Account, _: &Lock, _: Sharing, _: bool) {}
    fn before_write(&self, _: &'static Account, _: &mut Stamp) {}
    fn hold(&self, _: &'static Account, _: Stamp, _: u64) -> Option<Duration> {
        None
    }
    fn arrived(&self, _: &'static Account, _: &mut Stamp, _: u64) {}
    fn called(&self, _: &'static Account, _: &mut Stamp, _: Span) {}
    fn answered(&self, _: &'static Account, _: Stamp, _: u64) {}
    fn sleep_began(&self, _: &'static Account, _: &mut Stamp) {}
    fn sleep_ended(&self, _: &'static Account, _: Stamp, _: Duration) {}
    fn hit(&self, _: &'static Account, _: Point) {}
    fn visit_began(&self, _: &'static Account, _: &mut Stamp) {}
    fn visit_ended(&self, _: &'static Account, _: Stamp, _: Point) {}
}
