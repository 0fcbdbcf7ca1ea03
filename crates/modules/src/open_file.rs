//! Opens files by paths that may lead to something else than a regular file.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// Opens a file for reading. Does not wait for the writer of a pipe: a path may become one between a check and the
/// opening, so that the caller checks the metadata of the open file.
pub(crate) fn open_nonblocking(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)
}
