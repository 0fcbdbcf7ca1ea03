//! A thread that is blocked in a primitive of this crate.

use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use crate::account::{self, Account};

/// While it lives the thread does no kind of work. Without it the processor time of the wait itself (spinning, the
/// kernel's part) would be attributed to the thread's previous work.
pub(crate) struct BlockedScope {
    since: Instant,
    account: Option<&'static Account>,
}

impl BlockedScope {
    pub(crate) fn begin() -> Self {
        let account = account::current();
        if let Some(account) = account {
            account.is_blocked.store(true, Relaxed);
        }
        Self { since: Instant::now(), account }
    }

    /// Ends the wait, and returns its duration.
    pub(crate) fn end(self) -> Duration {
        self.since.elapsed()
    }
}

impl Drop for BlockedScope {
    fn drop(&mut self) {
        if let Some(account) = self.account {
            account.is_blocked.store(false, Relaxed);
        }
    }
}
