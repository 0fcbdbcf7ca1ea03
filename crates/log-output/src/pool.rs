//! Objects that threads take and put back, without a lock.

use crossbeam_queue::ArrayQueue;

/// A pool of at most a fixed number of idle objects.
pub struct Pool<T>(ArrayQueue<T>);

impl<T> Pool<T> {
    /// Returns an empty pool that keeps at most `capacity` objects. Allocates the room for them.
    ///
    /// # Panics
    /// When `capacity` is 0.
    pub fn new(capacity: usize) -> Self {
        Self(ArrayQueue::new(capacity))
    }

    /// Takes an object; `None` if no one is idle.
    pub fn pop(&self) -> Option<T> {
        self.0.pop()
    }

    /// Puts an object back, or drops it if the pool is full.
    pub fn push(&self, object: T) {
        let _ = self.0.push(object);
    }
}
