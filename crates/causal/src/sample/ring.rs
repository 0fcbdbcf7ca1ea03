//! The ring buffer through which a thread's signal handler passes samples to the profiler: one writer, one reader, no
//! lock.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Words of a ring: 128 KiB, of which only used pages become resident. Holds about a second of samples with deep
/// stacks.
const WORDS: usize = 1 << 14;
/// Bound on the kept frames of a stack, from the innermost.
pub(super) const FRAMES_MAX: usize = 256;
/// Bound on the kept steps of a context; as many as a thread can have.
pub(super) const STEPS_MAX: usize = 32;
/// Words before the steps and frames: the time; then a word with `HAS_KIND`, the number of steps, and the number of
/// frames.
const HEADER: usize = 2;
const HIGH: u32 = 32;
const HAS_KIND: u64 = 1 << 63;

/// The head of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record {
    /// Whether the steps identify the kind of work. False while the thread is blocked in one of the program's
    /// primitives, and for a thread that never reported its work: it is in no window, so its time must not count as
    /// that of threads in one.
    pub(super) has_kind: bool,
    pub(super) at: u64,
}

/// One writer at a time (the thread's handler), one reader.
#[derive(Debug)]
pub(super) struct Ring {
    words: Box<[AtomicU64]>,
    /// Total words written, and read, both wrapping.
    written: AtomicUsize,
    read: AtomicUsize,
    lost: AtomicU64,
}

impl Ring {
    #[expect(unsafe_code, reason = "initialising the words one by one would make all of them resident")]
    pub(super) fn new() -> Self {
        let words = Box::<[AtomicU64]>::new_zeroed_slice(WORDS);
        // SAFETY: all-zero bytes are a valid `AtomicU64`.
        let words = unsafe { words.assume_init() };
        Self { words, written: AtomicUsize::new(0), read: AtomicUsize::new(0), lost: AtomicU64::new(0) }
    }

    fn word(&self, at: usize) -> &AtomicU64 {
        &self.words[at % WORDS]
    }

    /// Begins a sample. Returns `None`, and counts a loss, unless the deepest stack would fit. Safe in a signal
    /// handler.
    pub(super) fn begin(&self) -> Option<Writing<'_>> {
        let start = self.written.load(Ordering::Relaxed);
        // Acquire: pairs with the Release in `pop`; the words that the reader has finished with may be overwritten.
        let used = start.wrapping_sub(self.read.load(Ordering::Acquire));
        if used + HEADER + STEPS_MAX + FRAMES_MAX > WORDS {
            self.lost.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        Some(Writing { ring: self, start, steps: 0, frames: 0 })
    }

    /// Takes the oldest sample; replaces the contents of `steps` and `frames` by its own.
    pub(super) fn pop(&self, steps: &mut Vec<u64>, frames: &mut Vec<usize>) -> Option<Record> {
        let start = self.read.load(Ordering::Relaxed);
        if start == self.written.load(Ordering::Acquire) {
            return None;
        }
        let at = self.word(start).load(Ordering::Relaxed);
        let header = self.word(start.wrapping_add(1)).load(Ordering::Relaxed);
        let (first, depth) = (((header & !HAS_KIND) >> HIGH) as usize, header as u32 as usize);
        let mut words = (HEADER..).map(|at| self.word(start.wrapping_add(at)).load(Ordering::Relaxed));
        steps.clear();
        steps.extend(words.by_ref().take(first));
        frames.clear();
        frames.extend(words.take(depth).map(|frame| frame as usize));
        self.read.store(start.wrapping_add(HEADER + first + depth), Ordering::Release);
        Some(Record { has_kind: header & HAS_KIND != 0, at })
    }

    /// Samples lost because the ring was full.
    pub(super) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Resets the count of lost samples.
    pub(super) fn forget_lost(&self) {
        self.lost.store(0, Ordering::Relaxed);
    }
}

/// A sample being written; the reader sees it after [`Writing::end`].
pub(super) struct Writing<'a> {
    ring: &'a Ring,
    start: usize,
    steps: usize,
    frames: usize,
}

impl Writing<'_> {
    /// Adds a step; all steps must precede the first frame.
    pub(super) fn step(&mut self, step: u64) {
        if self.steps < STEPS_MAX {
            self.ring.word(self.start.wrapping_add(HEADER + self.steps)).store(step, Ordering::Relaxed);
            self.steps += 1;
        }
    }

    /// Adds a frame. Returns whether another one fits.
    pub(super) fn frame(&mut self, address: usize) -> bool {
        if self.frames < FRAMES_MAX {
            let at = self.start.wrapping_add(HEADER + self.steps + self.frames);
            self.ring.word(at).store(address as u64, Ordering::Relaxed);
            self.frames += 1;
        }
        self.frames < FRAMES_MAX
    }

    pub(super) fn end(self, Record { has_kind, at }: Record) {
        let Self { ring, start, steps, frames } = self;
        ring.word(start).store(at, Ordering::Relaxed);
        let header = if has_kind { HAS_KIND } else { 0 } | (steps as u64) << HIGH | frames as u64;
        ring.word(start.wrapping_add(1)).store(header, Ordering::Relaxed);
        // Release: pairs with the Acquire in `pop`; a reader that sees the length sees the words.
        ring.written.store(start.wrapping_add(HEADER + steps + frames), Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn push(ring: &Ring, at: u64, depth: usize) -> bool {
        let Some(mut writing) = ring.begin() else { return false };
        (0..at % 40).for_each(|step| writing.step(at << 8 | step));
        (0..depth).for_each(|frame| {
            writing.frame(at as usize * 1000 + frame);
        });
        writing.end(Record { has_kind: at.is_multiple_of(3), at });
        true
    }

    #[test]
    fn samples_are_read_in_order_across_wraps() {
        let (ring, mut steps, mut frames) = (Ring::new(), Vec::new(), Vec::new());
        for at in 1..2000_u64 {
            let depth = at as usize % (FRAMES_MAX + 10);
            assert!(push(&ring, at, depth));
            let want = Record { has_kind: at.is_multiple_of(3), at };
            assert_eq!(ring.pop(&mut steps, &mut frames), Some(want));
            let all: Vec<_> = (0..(at % 40).min(STEPS_MAX as u64)).map(|step| at << 8 | step).collect();
            assert_eq!(steps, all);
            let kept: Vec<_> = (0..depth.min(FRAMES_MAX)).map(|frame| at as usize * 1000 + frame).collect();
            assert_eq!(frames, kept);
            assert_eq!(ring.pop(&mut steps, &mut frames), None);
        }
        assert_eq!(ring.lost(), 0);
    }

    #[test]
    fn a_full_ring_drops_and_counts_new_samples() {
        let (ring, mut steps, mut frames) = (Ring::new(), Vec::new(), Vec::new());
        let fit = (0..1000).take_while(|&at| push(&ring, at, 97)).count() as u64;
        assert!(fit > 100 && ring.lost() == 1);
        assert!(!push(&ring, 0, 1));
        assert_eq!(ring.lost(), 2);
        for at in 0..fit {
            assert_eq!(ring.pop(&mut steps, &mut frames).map(|record| record.at), Some(at));
            assert_eq!(frames.len(), 97);
        }
        assert!(ring.pop(&mut steps, &mut frames).is_none() && push(&ring, 9, 1));
    }

    #[test]
    fn a_concurrent_reader_sees_complete_samples() {
        let ring = Ring::new();
        std::thread::scope(|scope| {
            scope.spawn(|| (1..20_000_u64).for_each(|at| while !push(&ring, at, at as usize % 50) {}));
            let (mut steps, mut frames, mut last) = (Vec::new(), Vec::new(), 0);
            while last < 19_999 {
                let Some(record) = ring.pop(&mut steps, &mut frames) else { continue };
                assert_eq!(record.at, last + 1);
                last = record.at;
                assert!(frames.iter().enumerate().all(|(at, &frame)| frame == last as usize * 1000 + at));
                assert_eq!(frames.len(), last as usize % 50);
            }
        });
    }
}
