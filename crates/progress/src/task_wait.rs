//! Waits of a task that no other hook reports.

use std::task::Poll;
use std::time::Duration;

use crate::hooks;
use crate::stamp::Stamp;

/// The present wait of a future or a stream that waits for events without hooks, such as timers and sockets of another
/// library, or threads that are not registered. The profiler keeps the length of such a wait: work before it that gets
/// faster lets it begin and end sooner.
///
/// That is right for a timer, a server or a thread whose work begins with the wait. If the wait is for other work of
/// the program that a target is a part of, report that event itself, with [`before_send`](crate::before_send) and
/// [`after_receive`](crate::after_receive).
///
/// ```
/// use std::future::{Future, poll_fn};
/// use std::pin::pin;
///
/// async fn reported<T>(future: impl Future<Output = T>) -> T {
///     let (mut future, mut wait) = (pin!(future), progress::TaskWait::default());
///     poll_fn(move |cx| wait.poll(|| future.as_mut().poll(cx))).await
/// }
/// # let _ = reported(std::future::ready(1));
/// ```
#[derive(Debug, Default)]
pub struct TaskWait {
    is_pending: bool,
    began: Stamp,
}

impl TaskWait {
    /// Polls with `poll`, and reports the time from [`Poll::Pending`] to the next poll as a wait.
    #[inline]
    pub fn poll<T>(&mut self, poll: impl FnOnce() -> Poll<T>) -> Poll<T> {
        if std::mem::take(&mut self.is_pending) {
            hooks::sleep_ended(std::mem::take(&mut self.began), Duration::ZERO);
        }
        let polled = poll();
        if polled.is_pending() {
            self.is_pending = true;
            hooks::sleep_began(&mut self.began);
        }
        polled
    }
}
