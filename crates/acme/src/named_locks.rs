//! Locks by name. The table has only those in use.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::OwnedMutexGuard;

/// A table of locks.
#[derive(Default)]
pub(crate) struct NamedLocks(Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>);

impl NamedLocks {
    /// Waits until nothing holds the lock `name`, and holds it until the result is dropped.
    pub(crate) async fn lock(&self, name: String) -> OwnedMutexGuard<()> {
        let lock = {
            // Ignores poisoning: every change is one insertion or removal.
            let mut locks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            locks.retain(|_, lock| Arc::strong_count(lock) > 1);
            Arc::clone(locks.entry(name).or_default())
        };
        lock.lock_owned().await
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::pin::pin;
    use std::task::Poll;

    use super::*;

    // The lock of a name has one holder at a time, other names do not wait, and those without a holder leave the table.
    #[tokio::test]
    async fn holders_of_a_name() {
        let locks = NamedLocks::default();
        let lock = |name: &str| locks.lock(name.to_owned());
        let held = lock("a").await;
        let _other = lock("b").await;
        let mut next = pin!(lock("a"));
        assert!(poll_fn(|context| Poll::Ready(next.as_mut().poll(context).is_pending())).await);
        drop(held);
        drop(next.await);
        drop(lock("c").await);
        let mut names: Vec<_> = locks.0.lock().unwrap().keys().cloned().collect();
        names.sort();
        assert_eq!(names, ["b", "c"]);
    }
}
