//! Lines that are written together.

/// Bytes that an idle batch may keep.
const BYTES_KEPT: usize = 16 * 1024;

#[derive(Default)]
pub(crate) struct Batch {
    bytes: Vec<u8>,
    /// The end of each line in `bytes`.
    ends: Vec<usize>,
}

/// The progress of a write.
pub(crate) struct Progress {
    /// Lines that are written.
    pub(crate) lines: usize,
    /// The reason why the next line is not.
    pub(crate) fault: Option<std::io::Error>,
}

impl Batch {
    /// Returns whether a line of `len` bytes stays within `bytes_max`. An empty batch takes a line of any length.
    pub(crate) fn has_room(&self, len: usize, bytes_max: usize) -> bool {
        self.bytes.is_empty() || self.bytes.len() + len <= bytes_max
    }

    pub(crate) fn push(&mut self, line: &[u8]) {
        self.bytes.extend_from_slice(line);
        self.ends.push(self.bytes.len());
    }

    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    /// Returns most of the memory to the system if the batch is empty.
    pub(crate) fn release(&mut self) {
        if self.ends.is_empty() {
            self.bytes.shrink_to(BYTES_KEPT);
            self.ends.shrink_to(0);
        }
    }

    /// The number of lines.
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns the bytes of the lines from `first` to before `end`.
    pub(crate) fn lines(&self, first: usize, end: usize) -> &[u8] {
        &self.bytes[self.start(first)..self.start(end)]
    }

    /// Returns how many lines from `first` on fit into `room` bytes together.
    pub(crate) fn fitting(&self, first: usize, room: u64) -> usize {
        let start = self.start(first);
        self.ends[first..].partition_point(|end| (end - start) as u64 <= room)
    }

    fn start(&self, line: usize) -> usize {
        if line == 0 { 0 } else { self.ends[line - 1] }
    }
}
