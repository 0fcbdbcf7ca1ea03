//! The entries that a thread writes for the profiler: two words each, in memory of its own, so that a write is two
//! stores.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Entries per half of a log: 4 MiB, of which only the used pages become resident.
pub const ENTRIES_MAX: usize = 1 << 18;

/// One entry: two words whose meaning the policy defines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry(pub u64, pub u64);

/// Two halves, for windows with even and odd numbers: the thread writes one half while the profiler reads the other.
/// One writer, one reader.
///
/// A half is tagged with its window's number, and the first entry of another window empties it. So a thread that is
/// suspended in the middle of a write for two windows corrupts no later window.
#[derive(Debug, Default)]
pub struct Log {
    halves: [Half; 2],
}

#[derive(Debug, Default)]
struct Half {
    /// The window's number in the upper 32 bits, the number of entries in the lower 32.
    used: AtomicU64,
    words: OnceLock<Box<[AtomicU64]>>,
}

impl Half {
    fn len(&self, window: u32, order: Ordering) -> usize {
        let used = self.used.load(order);
        if (used >> 32) as u32 == window { used as u32 as usize } else { 0 }
    }
}

impl Log {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    fn half(&self, window: u32) -> &Half {
        &self.halves[(window & 1) as usize]
    }

    /// Appends an entry to the window's half (the lowest bit of its number selects it). Returns whether there was room.
    #[inline]
    pub fn push(&self, window: u32, entry: Entry) -> bool {
        let half = self.half(window);
        let at = half.len(window, Ordering::Relaxed);
        let words = half.words.get_or_init(room);
        // The entry is stored before the length that covers it; a full half drops the entry.
        let Some(slot) = words.get(2 * at..2 * at + 2) else { return false };
        slot[0].store(entry.0, Ordering::Relaxed);
        slot[1].store(entry.1, Ordering::Relaxed);
        // Release: pairs with the Acquire in `read`; a reader that sees the length sees the entries.
        half.used.store(u64::from(window) << 32 | (at as u64 + 1), Ordering::Release);
        true
    }

    /// The window's entries so far; empty if its half belongs to another window.
    pub fn read(&self, window: u32) -> impl ExactSizeIterator<Item = Entry> {
        let half = self.half(window);
        let len = half.len(window, Ordering::Acquire);
        let words = half.words.get().map_or(&[][..], |words| &words[..2 * len]);
        words.as_chunks::<2>().0.iter().map(|[a, b]| Entry(a.load(Ordering::Relaxed), b.load(Ordering::Relaxed)))
    }

    /// Whether the window's half is full.
    pub fn is_full(&self, window: u32) -> bool {
        self.half(window).len(window, Ordering::Relaxed) >= ENTRIES_MAX
    }

    /// Returns the memory to the system; the entries are lost. A concurrent writer does no harm: a page that it writes
    /// becomes resident again, and the zeroed entries belong to a window that is no longer read.
    pub fn give_back(&self) {
        for half in &self.halves {
            if let Some(words) = half.words.get() {
                give_back(words);
            }
        }
    }
}

/// Zeroes the whole pages within the words, and releases their memory.
#[expect(unsafe_code, reason = "megabytes for each thread would stay resident between profiles")]
fn give_back(words: &[AtomicU64]) {
    // As large as the largest page of a supported system, and a multiple of smaller ones.
    const PAGE: usize = 64 * 1024;
    let all = words.as_ptr_range();
    let (begin, end) = (all.start.addr().next_multiple_of(PAGE), all.end.addr() / PAGE * PAGE);
    if begin < end {
        // SAFETY: the range is within the words, which are private anonymous memory of atomics: to Rust the call is a
        // store of zero to each. If the system refuses, they keep their values.
        unsafe { libc::madvise(all.start.cast_mut().with_addr(begin).cast(), end - begin, libc::MADV_DONTNEED) };
    }
}

/// Allocates memory that the system zeroes at first touch.
#[expect(unsafe_code, reason = "initialising four mebibytes one by one would make all of them resident")]
fn room() -> Box<[AtomicU64]> {
    let words = Box::<[AtomicU64]>::new_zeroed_slice(2 * ENTRIES_MAX);
    // SAFETY: all-zero bytes are a valid `AtomicU64`.
    unsafe { words.assume_init() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_two_halves_are_separate_and_bounded() {
        let log = Log::new();
        assert!(log.push(2, Entry(1, 2)));
        assert!(log.push(3, Entry(3, 4)));
        assert_eq!(log.read(2).collect::<Vec<_>>(), [Entry(1, 2)]);
        assert_eq!(log.read(3).collect::<Vec<_>>(), [Entry(3, 4)]);
        for at in 0..ENTRIES_MAX as u64 {
            assert!(log.push(4, Entry(at, 0)));
        }
        assert!(log.is_full(4) && !log.push(4, Entry(0, 0)));
        assert_eq!((log.read(4).len(), log.read(2).len()), (ENTRIES_MAX, 0));
        assert!(!log.is_full(6));
        log.give_back();
        assert!(log.push(6, Entry(5, 6)));
        assert_eq!(log.read(6).collect::<Vec<_>>(), [Entry(5, 6)]);
    }

    #[test]
    fn a_writer_two_windows_late_changes_nothing() {
        let log = Log::new();
        for at in 0..10 {
            assert!(log.push(2, Entry(at, 0)));
        }
        assert!(log.push(4, Entry(1, 1)));
        // The last entry of the old window.
        assert!(log.push(2, Entry(10, 0)));
        assert_eq!(log.read(4).len(), 0);
        assert!(log.push(4, Entry(2, 2)));
        assert_eq!(log.read(4).collect::<Vec<_>>(), [Entry(2, 2)]);
    }
}
