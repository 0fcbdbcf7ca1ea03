//! A thread that waits inside one of our primitives.

use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use crate::account::{self, Account};

/// While it lives the thread does no kind of work: the processor's time that waiting takes (spinning, the kernel's part)
/// would else count as that of what the thread did before.
pub(crate) struct Standstill {
    since: Instant,
    account: Option<&'static Account>,
}

impl Standstill {
    pub(crate) fn begin() -> Self {
        let account = account::current();
        if let Some(account) = account {
            account.stands.store(true, Relaxed);
        }
        Self { since: Instant::now(), account }
    }

    /// It is over; how long it was.
    pub(crate) fn end(self) -> Duration {
        self.since.elapsed()
    }
}

impl Drop for Standstill {
    fn drop(&mut self) {
        if let Some(account) = self.account {
            account.stands.store(false, Relaxed);
        }
    }
}
