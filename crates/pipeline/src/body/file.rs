//! Files that are sent from disk, and the detection of changes to them.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::sync::Arc;

use rustix::fs::{AtFlags, StatxFlags, statx};

/// A range of an open file.
#[derive(Debug, Clone)]
pub struct FileSlice {
    /// The file. It is shared: readers use positioned reads only.
    pub file: Arc<OpenFile>,
    /// Start of the range, in bytes.
    pub at: u64,
    /// Length of the range, in bytes.
    pub len: u64,
}

/// An open file, and its version when it was opened.
#[derive(Debug)]
pub struct OpenFile {
    file: File,
    opened: FileVersion,
}

/// The metadata that distinguishes one version of a file's content from another. Times are nanoseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct FileVersion {
    /// Bytes of content.
    pub len: u64,
    /// Time of the last write to the content (mtime). A program can set it to any value.
    pub modified: i128,
    /// Time of the last change of any kind (ctime): content, times, name, or number of links.
    pub changed: i128,
}

impl FileVersion {
    /// Extracts the version from the file's metadata.
    pub fn of(metadata: &Metadata) -> Self {
        Self {
            len: metadata.len(),
            modified: nanoseconds(metadata.mtime(), metadata.mtime_nsec()),
            changed: nanoseconds(metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

fn nanoseconds(seconds: i64, nanoseconds: i64) -> i128 {
    i128::from(seconds) * 1_000_000_000 + i128::from(nanoseconds)
}

impl OpenFile {
    /// Wraps a file that was just opened, and reads its version.
    ///
    /// # Errors
    /// When the file's metadata cannot be read.
    pub fn new(file: File) -> io::Result<Self> {
        let opened = FileVersion::of(&file.metadata()?);
        Ok(Self { file, opened })
    }

    /// Reads the version again, for the same open file.
    ///
    /// # Errors
    /// When the file's metadata cannot be read.
    pub fn renewed(self) -> io::Result<Self> {
        Self::new(self.file)
    }

    /// Returns the file, for positioned reads.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Returns the file's version when it was opened.
    pub fn opened(&self) -> FileVersion {
        self.opened
    }

    /// Returns whether the file has changed in any way since it was opened; for example, another file may have taken
    /// its name. Costs one system call, which does not wait for a network file system.
    pub fn has_changed(&self) -> bool {
        self.now() != Some(self.opened)
    }

    /// Returns whether the content may have changed since the file was opened. If so, bytes that are read now may not
    /// match the length and the validators of the opened version.
    pub fn is_rewritten(&self) -> bool {
        let content = |version: FileVersion| (version.len, version.modified);
        self.now().map(content) != Some(content(self.opened))
    }

    fn now(&self) -> Option<FileVersion> {
        // `DONT_SYNC` answers from cached attributes, without a request to a network file system.
        let wanted = StatxFlags::SIZE | StatxFlags::MTIME | StatxFlags::CTIME;
        let Ok(now) = statx(&self.file, "", AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC, wanted) else {
            // Some sandboxes block statx(2).
            return self.file.metadata().ok().as_ref().map(FileVersion::of);
        };
        Some(FileVersion {
            len: now.stx_size,
            modified: nanoseconds(now.stx_mtime.tv_sec, now.stx_mtime.tv_nsec.into()),
            changed: nanoseconds(now.stx_ctime.tv_sec, now.stx_ctime.tv_nsec.into()),
        })
    }
}
