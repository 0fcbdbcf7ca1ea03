//! A profiler that records like a real one: two words per hook, in each thread's log.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use progress::{Account, Entry, Lock, Point, Policy, Sharing, Span, Stamp};

pub(crate) struct Scribe {
    next: AtomicU64,
    /// The window to record; it changes when a thread's log is full.
    window: AtomicU32,
}

pub(crate) static SCRIBE: Scribe = Scribe { next: AtomicU64::new(1), window: AtomicU32::new(1) };

impl Scribe {
    /// Returns the number of hooks called so far.
    pub(crate) fn hook_calls(&self) -> u64 {
        self.next.load(Relaxed)
    }

    fn write(&self, account: &Account, what: u64) {
        let window = self.window.load(Relaxed);
        if !account.log().push(window, Entry(self.next.fetch_add(1, Relaxed), what)) {
            self.window.store(window + 2, Relaxed);
        }
    }

    fn stamp(&self, account: &Account, stamp: &mut Stamp) {
        *stamp = Stamp::new(1, self.hook_calls());
        self.write(account, 1);
    }
}

impl Policy for Scribe {
    fn thread_began(&self, _: &'static Account) {}
    fn thread_ended(&self, _: &'static Account) {}
    fn entered(&self, account: &'static Account, span: Span) -> u32 {
        self.write(account, span.id().into());
        span.id()
    }
    fn left(&self, account: &'static Account, before: &AtomicU32) {
        self.write(account, before.load(Relaxed).into());
    }
    fn at(&self, account: &'static Account, site: Span) {
        self.write(account, site.id().into());
    }
    fn before_send(&self, account: &'static Account, stamp: &mut Stamp) {
        self.stamp(account, stamp);
    }
    fn after_receive(&self, account: &'static Account, _: Stamp, _: Duration) {
        self.write(account, 2);
    }
    fn before_block(&self, account: &'static Account) {
        self.write(account, 3);
    }
    fn after_block(&self, account: &'static Account) {
        self.write(account, 4);
    }
    fn lock_acquired(&self, account: &'static Account, _: &Lock, _: Sharing, _: Duration) {
        self.write(account, 5);
    }
    fn before_unlock(&self, account: &'static Account, _: &Lock, _: Sharing, _: bool) {
        self.write(account, 6);
    }
    fn before_write(&self, account: &'static Account, connection: &mut Stamp) {
        self.stamp(account, connection);
    }
    fn hold(&self, _: &'static Account, _: Stamp, _: u64) -> Option<Duration> {
        None
    }
    fn arrived(&self, account: &'static Account, connection: &mut Stamp, _: u64) {
        self.stamp(account, connection);
    }
    fn called(&self, account: &'static Account, call: &mut Stamp, _: Span) {
        self.stamp(account, call);
    }
    fn answered(&self, account: &'static Account, _: Stamp, _: u64) {
        self.write(account, 7);
    }
    fn sleep_began(&self, account: &'static Account, timer: &mut Stamp) {
        self.stamp(account, timer);
    }
    fn sleep_ended(&self, account: &'static Account, _: Stamp, _: Duration) {
        self.write(account, 8);
    }
    fn hit(&self, account: &'static Account, point: Point) {
        self.write(account, point.id().into());
    }
    fn visit_began(&self, account: &'static Account, visit: &mut Stamp) {
        self.stamp(account, visit);
    }
    fn visit_ended(&self, account: &'static Account, _: Stamp, point: Point) {
        self.write(account, point.id().into());
    }
}
