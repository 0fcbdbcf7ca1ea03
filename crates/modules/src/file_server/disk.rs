//! What is asked of the file system; everything here blocks and runs on the blocking pool.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::fs::{self, Metadata, OpenOptions};
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use causeway_pipeline::Fault;

use super::{Site, mime};

/// Up to this long a file is read whole and kept in the cache.
const SMALL_MAX: u64 = 64 * 1024;

/// What was found at a path.
pub(super) enum Look {
    File(File),
    /// The file that was seen before.
    Same,
    /// A folder without an index.
    Folder,
    /// Nothing, or nothing that may be seen.
    Missing,
    Failed(Fault),
}

/// A file as it was read.
pub(super) struct File {
    pub(super) content: Content,
    pub(super) seen: Seen,
    pub(super) content_type: Option<Cow<'static, str>>,
    pub(super) etag: Option<Box<str>>,
    pub(super) modified: Option<(u64, Box<str>)>,
}

pub(super) enum Content {
    Small(Vec<u8>),
    Large(Arc<fs::File>, u64),
}

/// By what a file is known again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Seen {
    device: u64,
    inode: u64,
    len: u64,
    /// Nanoseconds since 1970.
    modified: i128,
    /// It was found as the index of the folder that was asked for.
    pub(super) is_index: bool,
}

impl Seen {
    fn of(metadata: &Metadata, is_index: bool) -> Self {
        let modified = i128::from(metadata.mtime()) * 1_000_000_000 + i128::from(metadata.mtime_nsec());
        Self { device: metadata.dev(), inode: metadata.ino(), len: metadata.len(), modified, is_index }
    }

    /// Caddy's tag: nanoseconds and octets in base 36. None for a time that says nothing (0 and 1 second, which builds that
    /// want to be reproducible set).
    fn etag(&self) -> Option<Box<str>> {
        if matches!(self.modified.div_euclid(1_000_000_000), 0 | 1) {
            return None;
        }
        let mut tag = String::from("\"");
        if self.modified < 0 {
            tag.push('-');
        }
        push_base36(self.modified.unsigned_abs(), &mut tag);
        push_base36(u128::from(self.len), &mut tag);
        tag.push('"');
        Some(tag.into())
    }

    fn last_modified(&self) -> Option<(u64, Box<str>)> {
        let seconds = u64::try_from(self.modified.div_euclid(1_000_000_000)).ok()?;
        // What a date in HTTP can say ends with the year 9999.
        if matches!(seconds, 0 | 1) || seconds >= 253_402_300_800 {
            return None;
        }
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        Some((seconds, httpdate::fmt_http_date(time).into()))
    }
}

fn push_base36(mut number: u128, out: &mut String) {
    let mut digits = Vec::new();
    loop {
        digits.push(b"0123456789abcdefghijklmnopqrstuvwxyz"[(number % 36) as usize]);
        number /= 36;
        if number == 0 {
            break;
        }
    }
    out.extend(digits.iter().rev().map(|&digit| char::from(digit)));
}

/// Finds and reads what is at `path`. The rules are those of Caddy's file server: a folder's index, if it has one that is not
/// hidden; nothing hidden; links are followed.
pub(super) fn look(site: &Site, path: &[u8], known: Option<Seen>) -> Look {
    let metadata = match fs::metadata(of_octets(path)) {
        Ok(metadata) => metadata,
        Err(error) => return failed(&error),
    };
    if !metadata.is_dir() {
        return if site.hidden.holds(path) { Look::Missing } else { file(path, &metadata, false, known) };
    }
    for name in &site.index_names {
        let index = [path, b"/", name.as_bytes()].concat();
        if site.hidden.holds(&index) {
            continue;
        }
        match fs::metadata(of_octets(&index)) {
            Ok(metadata) if !metadata.is_dir() => return file(&index, &metadata, true, known),
            _ => {}
        }
    }
    if site.hidden.holds(path) { Look::Missing } else { Look::Folder }
}

fn file(path: &[u8], metadata: &Metadata, is_index: bool, known: Option<Seen>) -> Look {
    // A pipe would be waited for, a device may have no end.
    if !metadata.is_file() {
        return Look::Missing;
    }
    if known == Some(Seen::of(metadata, is_index)) {
        return Look::Same;
    }
    match open(path, is_index) {
        Ok(Some(file)) => Look::File(file),
        Ok(None) => Look::Missing,
        Err(error) => failed(&error),
    }
}

fn open(path: &[u8], is_index: bool) -> std::io::Result<Option<File>> {
    // Without O_NONBLOCK a pipe that was put there since would hold this thread.
    let mut file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(of_octets(path))?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Ok(None);
    }
    let seen = Seen::of(&metadata, is_index);
    let content = if seen.len <= SMALL_MAX {
        let mut octets = Vec::with_capacity(seen.len as usize + 1);
        // One octet more than there should be: whatever grows meanwhile is cut off here and looked at again in a second.
        (&mut file).take(seen.len + 1).read_to_end(&mut octets)?;
        octets.truncate(seen.len as usize);
        Content::Small(octets)
    } else {
        Content::Large(Arc::new(file), seen.len)
    };
    let content_type = mime::of(path);
    Ok(Some(File { content, seen, content_type, etag: seen.etag(), modified: seen.last_modified() }))
}

fn failed(error: &std::io::Error) -> Look {
    let fault = Fault::io(error);
    if fault.status == causeway_message::StatusCode::NOT_FOUND { Look::Missing } else { Look::Failed(fault) }
}

pub(super) fn of_octets(path: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    // Caddy, fileserver: what may not be read is 403, what is not there 404.
    #[test]
    fn failures() {
        use std::io::{Error, ErrorKind};
        let status = |kind| match failed(&Error::from(kind)) {
            Look::Failed(fault) => fault.status.as_u16(),
            Look::Missing => 404,
            _ => 0,
        };
        assert_eq!(status(ErrorKind::PermissionDenied), 403);
        assert_eq!((status(ErrorKind::NotFound), status(ErrorKind::NotADirectory)), (404, 404));
        assert_eq!((status(ErrorKind::InvalidFilename), status(ErrorKind::Other)), (404, 500));
    }

    // Caddy, fileserver: the tag is base 36 of the time in nanoseconds, then of the length.
    #[test]
    fn tags() {
        let seen = |seconds: i128, nanos: i128, len| Seen {
            modified: seconds * 1_000_000_000 + nanos,
            len,
            ..Seen::default()
        };
        assert_eq!(seen(1_700_000_000, 0, 35).etag().as_deref(), Some("\"cwyvpelgpse8z\""));
        assert_eq!(seen(1_700_000_000, 0, 36).etag().as_deref(), Some("\"cwyvpelgpse810\""));
        assert_eq!((seen(0, 5, 1).etag(), seen(1, 0, 1).etag(), seen(0, 0, 1).last_modified()), (None, None, None));
        assert!(
            seen(-5, 0, 1).etag().is_some_and(|tag| tag.starts_with("\"-")) && seen(-5, 0, 1).last_modified().is_none()
        );
        assert_eq!(seen(784_111_777, 9, 1).last_modified().unwrap().1.as_ref(), "Sun, 06 Nov 1994 08:49:37 GMT");
    }
}
