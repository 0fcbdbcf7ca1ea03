//! What a thread writes down for the profiler: plain entries in memory that is its own, so that writing is two stores.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// How many entries a half of a log takes; 4 MiB, of which only what is used becomes resident.
pub const ENTRIES_MAX: usize = 1 << 18;

/// One entry: two words whose meaning is the policy's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry(pub u64, pub u64);

/// Two halves: a thread writes the one while the profiler reads the other. One thread writes, one reads.
#[derive(Debug, Default)]
pub struct Log {
    halves: [Half; 2],
}

#[derive(Debug, Default)]
struct Half {
    len: AtomicUsize,
    words: OnceLock<Box<[AtomicU64]>>,
}

impl Log {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Adds an entry to a half (its lowest bit counts); whether there was room.
    #[inline]
    pub fn push(&self, half: u32, entry: Entry) -> bool {
        let half = &self.halves[(half & 1) as usize];
        let at = half.len.load(Ordering::Relaxed);
        let words = half.words.get_or_init(room);
        let Some(slot) = words.get(2 * at..2 * at + 2) else { return false };
        slot[0].store(entry.0, Ordering::Relaxed);
        slot[1].store(entry.1, Ordering::Relaxed);
        // Release: whoever sees the length sees the entries.
        half.len.store(at + 1, Ordering::Release);
        true
    }

    /// The entries of a half so far.
    pub fn read(&self, half: u32) -> impl ExactSizeIterator<Item = Entry> {
        let half = &self.halves[(half & 1) as usize];
        let len = half.len.load(Ordering::Acquire);
        let words = half.words.get().map_or(&[][..], |words| &words[..2 * len]);
        words.as_chunks::<2>().0.iter().map(|[a, b]| Entry(a.load(Ordering::Relaxed), b.load(Ordering::Relaxed)))
    }

    /// Whether a half takes no more.
    pub fn is_full(&self, half: u32) -> bool {
        self.halves[(half & 1) as usize].len.load(Ordering::Relaxed) >= ENTRIES_MAX
    }

    /// Forgets the entries of a half. The thread must not be writing it: it writes the other.
    pub fn clear(&self, half: u32) {
        self.halves[(half & 1) as usize].len.store(0, Ordering::Release);
    }
}

/// Memory that the system zeroes when it is first touched.
#[expect(unsafe_code, reason = "initialising four mebioctets one by one would make all of them resident")]
fn room() -> Box<[AtomicU64]> {
    let words = Box::<[AtomicU64]>::new_zeroed_slice(2 * ENTRIES_MAX);
    // SAFETY: an atomic word of zeroes is 0.
    unsafe { words.assume_init() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_are_apart_and_bounded() {
        let log = Log::new();
        assert!(log.push(2, Entry(1, 2)));
        assert!(log.push(3, Entry(3, 4)));
        assert_eq!(log.read(0).collect::<Vec<_>>(), [Entry(1, 2)]);
        assert_eq!(log.read(1).collect::<Vec<_>>(), [Entry(3, 4)]);
        log.clear(0);
        assert_eq!(log.read(0).len(), 0);
        for at in 0..ENTRIES_MAX as u64 {
            assert!(log.push(0, Entry(at, 0)));
        }
        assert!(log.is_full(0) && !log.push(0, Entry(0, 0)));
        assert_eq!(log.read(0).len(), ENTRIES_MAX);
    }
}
