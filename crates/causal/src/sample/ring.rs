//! Where a thread's signal handler leaves samples for the profiler: a ring of words that one writes and one reads.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Words of a ring: 128 KiB, of which only what is used becomes resident. A second of samples of deep stacks.
const WORDS: usize = 1 << 14;
/// Frames of a stack that are kept, the innermost ones.
pub(super) const FRAMES_MAX: usize = 256;
/// Words before the frames: when; kind and weight; how many frames.
const HEADER: usize = 3;

/// What comes with a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) kind: u32,
    pub(super) weight: u32,
    pub(super) at: u64,
}

/// One thread writes at a time (its handler), one reads.
#[derive(Debug)]
pub(super) struct Ring {
    words: Box<[AtomicU64]>,
    /// How many words were ever written, and read.
    written: AtomicUsize,
    read: AtomicUsize,
    lost: AtomicU64,
}

impl Ring {
    #[expect(unsafe_code, reason = "initialising the words one by one would make all of them resident")]
    pub(super) fn new() -> Self {
        let words = Box::<[AtomicU64]>::new_zeroed_slice(WORDS);
        // SAFETY: an atomic word of zeroes is 0.
        let words = unsafe { words.assume_init() };
        Self { words, written: AtomicUsize::new(0), read: AtomicUsize::new(0), lost: AtomicU64::new(0) }
    }

    fn word(&self, at: usize) -> &AtomicU64 {
        &self.words[at % WORDS]
    }

    /// Begins a sample: `None`, and counted, when there is no room for the deepest stack. Safe in a signal handler.
    pub(super) fn begin(&self) -> Option<Writing<'_>> {
        let start = self.written.load(Ordering::Relaxed);
        // Acquire: what the reader has read may be written over.
        let used = start.wrapping_sub(self.read.load(Ordering::Acquire));
        if used + HEADER + FRAMES_MAX > WORDS {
            self.lost.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        Some(Writing { ring: self, start, frames: 0 })
    }

    /// The oldest sample; its frames take the place of what is in `frames`.
    pub(super) fn pop(&self, frames: &mut Vec<usize>) -> Option<Record> {
        let start = self.read.load(Ordering::Relaxed);
        if start == self.written.load(Ordering::Acquire) {
            return None;
        }
        let at = self.word(start).load(Ordering::Relaxed);
        let what = self.word(start.wrapping_add(1)).load(Ordering::Relaxed);
        let depth = self.word(start.wrapping_add(2)).load(Ordering::Relaxed) as usize;
        let first = start.wrapping_add(HEADER);
        frames.clear();
        frames.extend((0..depth).map(|at| self.word(first.wrapping_add(at)).load(Ordering::Relaxed) as usize));
        self.read.store(first.wrapping_add(depth), Ordering::Release);
        Some(Record { kind: (what >> 32) as u32, weight: what as u32, at })
    }

    /// Samples for which there was no room.
    pub(super) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Counts from 0 again.
    pub(super) fn forget_lost(&self) {
        self.lost.store(0, Ordering::Relaxed);
    }
}

/// A sample that is being written; nobody sees it before [`Writing::end`].
pub(super) struct Writing<'a> {
    ring: &'a Ring,
    start: usize,
    frames: usize,
}

impl Writing<'_> {
    /// Adds a frame; whether there is room for another.
    pub(super) fn frame(&mut self, address: usize) -> bool {
        if self.frames < FRAMES_MAX {
            let at = self.start.wrapping_add(HEADER + self.frames);
            self.ring.word(at).store(address as u64, Ordering::Relaxed);
            self.frames += 1;
        }
        self.frames < FRAMES_MAX
    }

    pub(super) fn end(self, Record { kind, weight, at }: Record) {
        let Self { ring, start, frames } = self;
        ring.word(start).store(at, Ordering::Relaxed);
        ring.word(start.wrapping_add(1)).store(u64::from(kind) << 32 | u64::from(weight), Ordering::Relaxed);
        ring.word(start.wrapping_add(2)).store(frames as u64, Ordering::Relaxed);
        // Release: whoever sees the length sees the words.
        ring.written.store(start.wrapping_add(HEADER + frames), Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn push(ring: &Ring, at: u64, depth: usize) -> bool {
        let Some(mut writing) = ring.begin() else { return false };
        (0..depth).for_each(|frame| {
            writing.frame(at as usize * 1000 + frame);
        });
        writing.end(Record { kind: 7, weight: u32::MAX, at });
        true
    }

    #[test]
    fn what_is_written_is_read_in_order_round_and_round() {
        let (ring, mut frames) = (Ring::new(), Vec::new());
        for at in 1..2000_u64 {
            let depth = at as usize % (FRAMES_MAX + 10);
            assert!(push(&ring, at, depth));
            assert_eq!(ring.pop(&mut frames), Some(Record { kind: 7, weight: u32::MAX, at }));
            let kept: Vec<_> = (0..depth.min(FRAMES_MAX)).map(|frame| at as usize * 1000 + frame).collect();
            assert_eq!(frames, kept);
            assert_eq!(ring.pop(&mut frames), None);
        }
        assert_eq!(ring.lost(), 0);
    }

    #[test]
    fn a_full_ring_loses_what_is_new_and_counts_it() {
        let (ring, mut frames) = (Ring::new(), Vec::new());
        let fit = (0..1000).take_while(|&at| push(&ring, at, 97)).count() as u64;
        assert!(fit > 100 && ring.lost() == 1);
        assert!(!push(&ring, 0, 1));
        assert_eq!(ring.lost(), 2);
        for at in 0..fit {
            assert_eq!(ring.pop(&mut frames).map(|record| record.at), Some(at));
            assert_eq!(frames.len(), 97);
        }
        assert!(ring.pop(&mut frames).is_none() && push(&ring, 9, 1));
    }

    #[test]
    fn a_reader_beside_the_writer_sees_whole_samples() {
        let ring = Ring::new();
        std::thread::scope(|scope| {
            scope.spawn(|| (1..20_000_u64).for_each(|at| while !push(&ring, at, at as usize % 50) {}));
            let (mut frames, mut last) = (Vec::new(), 0);
            while last < 19_999 {
                let Some(record) = ring.pop(&mut frames) else { continue };
                assert_eq!(record.at, last + 1);
                last = record.at;
                assert!(frames.iter().enumerate().all(|(at, &frame)| frame == last as usize * 1000 + at));
                assert_eq!(frames.len(), last as usize % 50);
            }
        });
    }
}
