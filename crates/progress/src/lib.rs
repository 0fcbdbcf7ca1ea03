//! Progress points, spans and synchronisation hooks: what a program tells the causal profiler about itself.
//!
//! Everything here is inert until a [`Policy`] is installed: a hook is then one load and one branch. The server places
//! its hooks once and for good; the profiler is a policy that arrives later, in a crate of its own.
//!
//! - [`Policy`] is what a profiler implements; [`install`] puts it in place, once in a process.
//! - [`Span`] names a stretch of work (a stage, a handler); [`Span::enter`] guards it.
//! - [`Stamp`] is what a message carries from its sender to its receiver.
//! - The free functions are the hooks of a worker's loop.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

static POLICY: OnceLock<&'static dyn Policy> = OnceLock::new();
static SPANS: AtomicU32 = AtomicU32::new(stage::COUNT);

/// The sender's virtual delay, in nanoseconds, carried by whatever one context hands to another: a connection, a
/// timer, a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamp(pub u64);

/// A stretch of work that the profiler can measure and speed up virtually. Copy, 4 octets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Span(u32);

impl Span {
    /// A new span; for what is known at load time (a handler of a route), never per request.
    pub fn allot() -> Self {
        // Relaxed: only uniqueness matters.
        Self(SPANS.fetch_add(1, Ordering::Relaxed))
    }

    /// The number that a policy knows the span by.
    pub fn id(self) -> u32 {
        self.0
    }

    /// Opens the span until the guard is dropped.
    #[inline]
    #[must_use = "the span ends when the guard is dropped"]
    pub fn enter(self) -> Entered {
        if let Some(policy) = POLICY.get() {
            policy.span_began(self);
        }
        Entered(self)
    }
}

/// Guard of an open [`Span`].
#[derive(Debug)]
pub struct Entered(Span);

impl Drop for Entered {
    #[inline]
    fn drop(&mut self) {
        if let Some(policy) = POLICY.get() {
            policy.span_ended(self.0);
        }
    }
}

/// The spans of a server's stages, in the order in which a request passes them.
pub mod stage {
    use super::Span;

    /// Taking a connection from the kernel.
    pub const ACCEPT: Span = Span(0);
    /// Taking octets from the kernel.
    pub const READ: Span = Span(1);
    /// The protocol machine: octets to events.
    pub const PARSE: Span = Span(2);
    /// Matching routes and running handlers; handlers have spans of their own inside.
    pub const ROUTE: Span = Span(3);
    /// The protocol machine: response to octets.
    pub const ENCODE: Span = Span(4);
    /// Handing octets to the kernel.
    pub const WRITE: Span = Span(5);

    pub(super) const COUNT: u32 = 6;
}

/// What a profiler does at each hook. Every method is called on the thread that it speaks of and must not block
/// longer than the delay that it means to add.
pub trait Policy: Sync {
    /// This thread is a worker from now on.
    fn worker_began(&self, _name: &str) {}
    /// The worker is about to wait for the kernel.
    fn idle_began(&self) {}
    /// The worker is back from waiting.
    fn idle_ended(&self) {}
    /// A connection was accepted; its stamp starts here.
    fn accepted(&self, _connection: &mut Stamp) {}
    /// Octets arrived on a connection.
    fn arrived(&self, _connection: &mut Stamp) {}
    /// Octets are about to leave on a connection.
    fn before_write(&self, _connection: &mut Stamp) {}
    /// A timer was set; the stamp travels with it.
    fn timer_set(&self, _timer: &mut Stamp) {}
    /// A timer fired.
    fn timer_fired(&self, _timer: Stamp) {}
    /// Work was handed to a pool; the stamp travels with it.
    fn job_sent(&self, _job: &mut Stamp) {}
    /// The pool's thread took the work, or the worker its result.
    fn job_received(&self, _job: Stamp) {}
    /// One unit of progress: a request was answered.
    fn answered(&self) {}
    /// A span began on this thread.
    fn span_began(&self, _span: Span) {}
    /// A span ended on this thread.
    fn span_ended(&self, _span: Span) {}
}

/// Puts the policy in place for the life of the process.
///
/// # Errors
/// The policy itself, when one is in place already.
pub fn install(policy: &'static dyn Policy) -> Result<(), &'static dyn Policy> {
    POLICY.set(policy)
}

macro_rules! hooks {
    ($($(#[$doc:meta])* $name:ident($($arg:ident: $kind:ty),*);)*) => {$(
        $(#[$doc])*
        #[inline]
        pub fn $name($($arg: $kind),*) {
            if let Some(policy) = POLICY.get() {
                policy.$name($($arg),*);
            }
        }
    )*};
}

hooks! {
    /// See [`Policy::worker_began`].
    worker_began(name: &str);
    /// See [`Policy::idle_began`].
    idle_began();
    /// See [`Policy::idle_ended`].
    idle_ended();
    /// See [`Policy::accepted`].
    accepted(connection: &mut Stamp);
    /// See [`Policy::arrived`].
    arrived(connection: &mut Stamp);
    /// See [`Policy::before_write`].
    before_write(connection: &mut Stamp);
    /// See [`Policy::timer_set`].
    timer_set(timer: &mut Stamp);
    /// See [`Policy::timer_fired`].
    timer_fired(timer: Stamp);
    /// See [`Policy::job_sent`].
    job_sent(job: &mut Stamp);
    /// See [`Policy::job_received`].
    job_received(job: Stamp);
    /// See [`Policy::answered`].
    answered();
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    struct Recorder(Mutex<Vec<String>>);
    static RECORDER: Recorder = Recorder(Mutex::new(Vec::new()));

    impl Policy for Recorder {
        fn accepted(&self, connection: &mut Stamp) {
            connection.0 = 7;
        }
        fn span_began(&self, span: Span) {
            self.0.lock().unwrap().push(format!("+{}", span.id()));
        }
        fn span_ended(&self, span: Span) {
            self.0.lock().unwrap().push(format!("-{}", span.id()));
        }
    }

    #[test]
    fn inert_until_a_policy_is_installed_and_installed_once() {
        let mut stamp = Stamp::default();
        accepted(&mut stamp);
        drop(stage::READ.enter());
        assert_eq!((stamp, RECORDER.0.lock().unwrap().len()), (Stamp(0), 0));

        assert!(install(&RECORDER).is_ok());
        assert!(install(&RECORDER).is_err());
        accepted(&mut stamp);
        let handler = Span::allot();
        assert!(handler.id() >= stage::COUNT);
        {
            let _outer = stage::ROUTE.enter();
            let _inner = handler.enter();
        }
        assert_eq!(stamp, Stamp(7));
        let id = handler.id();
        assert_eq!(*RECORDER.0.lock().unwrap(), ["+3".into(), format!("+{id}"), format!("-{id}"), "-3".into()]);
    }
}
