//! What is asked of the file system; everything here blocks and runs on the blocking pool.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::fs::{self, Metadata, OpenOptions};
use std::io::{ErrorKind, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use causeway_message::{StatusCode, path};
use causeway_pipeline::{Fault, Reason};

use super::locate::{Place, Resolved};
use super::{Site, mime};

/// Up to this long a file is read whole and remembered.
const SMALL_MAX: u64 = 128 * 1024;
/// Octets of a file that holds an entity tag.
const TAG_FILE_OCTETS_MAX: u64 = 4096;

/// What was found at a place.
pub(super) enum Look {
    File(Box<File>),
    /// The file that was seen before.
    Same,
    /// A folder without an index.
    Folder,
    /// Nothing, or nothing that may be seen.
    Missing,
    Failed(Fault),
}

/// A file as it was read, with its compressed versions.
pub(super) struct File {
    pub(super) main: Version,
    pub(super) sides: Vec<(usize, Version)>,
    pub(super) seen: Seen,
    pub(super) content_type: Option<Cow<'static, str>>,
    pub(super) modified: Option<(u64, Box<str>)>,
}

pub(super) struct Version {
    pub(super) content: Content,
    pub(super) etag: Option<Box<[u8]>>,
}

pub(super) enum Content {
    Small(Vec<u8>),
    Large(Arc<fs::File>, u64),
}

/// By what a file with its compressed versions is known again.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Seen {
    /// It was found as the index of the folder that was asked for.
    pub(super) is_index: bool,
    main: Stamp,
    /// For each coding that is looked for.
    sides: Vec<Option<Stamp>>,
    /// What files beside them say to be their entity tags, the main file's first.
    tags: Vec<Option<Box<[u8]>>>,
}

/// What the file system says of one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Stamp {
    device: u64,
    inode: u64,
    len: u64,
    /// Nanoseconds since 1970.
    modified: i128,
}

impl Stamp {
    fn of(metadata: &Metadata) -> Self {
        let modified = i128::from(metadata.mtime()) * 1_000_000_000 + i128::from(metadata.mtime_nsec());
        Self { device: metadata.dev(), inode: metadata.ino(), len: metadata.len(), modified }
    }

    /// Caddy's tag: nanoseconds and octets in base 36. None for a time that says nothing (0 and 1 second, which builds that
    /// want to be reproducible set).
    fn etag(&self) -> Option<Box<[u8]>> {
        if matches!(self.modified.div_euclid(1_000_000_000), 0 | 1) {
            return None;
        }
        let mut tag = b"\"".to_vec();
        if self.modified < 0 {
            tag.push(b'-');
        }
        push_base36(self.modified.unsigned_abs(), &mut tag);
        tag.push(b'-');
        push_base36(u128::from(self.len), &mut tag);
        tag.push(b'"');
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

fn push_base36(mut number: u128, out: &mut Vec<u8>) {
    let start = out.len();
    loop {
        out.push(b"0123456789abcdefghijklmnopqrstuvwxyz"[(number % 36) as usize]);
        number /= 36;
        if number == 0 {
            break;
        }
    }
    out[start..].reverse();
}

/// Finds and reads what is at a place. The rules are those of Caddy's file server: a folder's index, if it has one that is not
/// hidden; nothing hidden; links are followed.
pub(super) fn look(site: &Site, place: &Place, known: Option<&Seen>) -> Look {
    let (path, names) = (place.path(), place.names(site));
    let metadata = match fs::metadata(of_octets(path)) {
        Ok(metadata) => metadata,
        Err(error) => return not_seen(&error),
    };
    if !metadata.is_dir() {
        return if names.hides(path) { Look::Missing } else { file(site, &names, path, &metadata, false, known) };
    }
    for name in &names.index {
        let mut index = path.to_vec();
        path::clean(name, &mut index);
        if names.hides(&index) {
            continue;
        }
        match fs::metadata(of_octets(&index)) {
            Ok(metadata) if !metadata.is_dir() => return file(site, &names, &index, &metadata, true, known),
            _ => {}
        }
    }
    if names.hides(path) { Look::Missing } else { Look::Folder }
}

fn file(site: &Site, names: &Resolved, path: &[u8], metadata: &Metadata, is_index: bool, known: Option<&Seen>) -> Look {
    // A pipe would be waited for, a device may have no end.
    if !metadata.is_file() {
        return Look::Missing;
    }
    let mut seen = match see(site, names, path, metadata, is_index) {
        Ok(seen) => seen,
        Err(look) => return look,
    };
    if known == Some(&seen) {
        return Look::Same;
    }
    let main = match open(path, &mut seen.main) {
        Ok(Some(content)) => content,
        Ok(None) => return Look::Missing,
        Err(look) => return look,
    };
    let tag = |number: usize, stamp: &Stamp, tags: &mut Vec<Option<Box<[u8]>>>| {
        tags.get(number).cloned().flatten().or_else(|| stamp.etag())
    };
    let main = Version { content: main, etag: tag(0, &seen.main, &mut seen.tags) };
    let mut sides = Vec::new();
    for (number, coding) in site.codings.iter().enumerate() {
        let Some(stamp) = &mut seen.sides[number] else { continue };
        // Caddy: one that cannot be opened is as none, unless the server has no descriptors left.
        match open(&beside(path, coding.suffix), stamp) {
            Ok(Some(content)) => {
                let etag = tag(number + 1, stamp, &mut seen.tags);
                sides.push((number, Version { content, etag }));
            }
            Err(Look::Failed(fault)) if fault.status == StatusCode::SERVICE_UNAVAILABLE => return Look::Failed(fault),
            _ => {}
        }
    }
    let modified = seen.main.last_modified();
    Look::File(Box::new(File { main, sides, seen, content_type: mime::of(path), modified }))
}

/// Looks at all files that belong to one, and reads the small ones that say its entity tags.
fn see(site: &Site, names: &Resolved, path: &[u8], metadata: &Metadata, is_index: bool) -> Result<Seen, Look> {
    let mut sides = Vec::new();
    let mut tags = Vec::new();
    if !site.tag_extensions.is_empty() {
        tags.push(tag_file(site, path)?);
    }
    for coding in site.codings.iter() {
        let side = beside(path, coding.suffix);
        let metadata = if names.hides(&side) { None } else { fs::metadata(of_octets(&side)).ok() };
        let stamp = metadata.filter(Metadata::is_file).map(|metadata| Stamp::of(&metadata));
        if !site.tag_extensions.is_empty() {
            tags.push(if stamp.is_some() { tag_file(site, &side)? } else { None });
        }
        sides.push(stamp);
    }
    Ok(Seen { is_index, main: Stamp::of(metadata), sides, tags })
}

/// The first file beside this one that holds its entity tag; line ends are no part of it, an empty one is none.
fn tag_file(site: &Site, path: &[u8]) -> Result<Option<Box<[u8]>>, Look> {
    for extension in &site.tag_extensions {
        let mut tag = Vec::new();
        let file =
            OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(of_octets(&beside(path, extension)));
        match file.and_then(|file| file.take(TAG_FILE_OCTETS_MAX).read_to_end(&mut tag)) {
            Ok(_) => {
                tag.retain(|octet| !matches!(octet, b'\n' | b'\r'));
                return Ok((!tag.is_empty()).then(|| tag.into()));
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => {
                let reason = Reason::Io(error.kind());
                return Err(Look::Failed(Fault { status: StatusCode::INTERNAL_SERVER_ERROR, reason }));
            }
        }
    }
    Ok(None)
}

fn beside(path: &[u8], suffix: &str) -> Vec<u8> {
    [path, suffix.as_bytes()].concat()
}

/// Opens a file and reads it if it is small. The stamp becomes that of what was opened.
fn open(path: &[u8], stamp: &mut Stamp) -> Result<Option<Content>, Look> {
    // Without O_NONBLOCK a pipe that was put there since would hold this thread.
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(of_octets(path));
    let mut file = file.map_err(|error| not_opened(&error))?;
    let metadata = file.metadata().map_err(|error| not_opened(&error))?;
    if !metadata.is_file() {
        return Ok(None);
    }
    *stamp = Stamp::of(&metadata);
    if stamp.len > SMALL_MAX {
        return Ok(Some(Content::Large(Arc::new(file), stamp.len)));
    }
    let mut octets = Vec::with_capacity(stamp.len as usize + 1);
    // One octet more than there should be: whatever grows meanwhile is cut off here and looked at again in a second.
    let read = (&mut file).take(stamp.len + 1).read_to_end(&mut octets);
    read.map_err(|error| Look::Failed(Fault::io(&error)))?;
    octets.truncate(stamp.len as usize);
    Ok(Some(Content::Small(octets)))
}

/// Caddy: what may not be looked at is 403, what is no path 400 (a name that is too long, links that go round).
pub(super) fn not_seen(error: &std::io::Error) -> Look {
    failed(error, StatusCode::BAD_REQUEST)
}

/// Caddy: what is there, may be read and cannot be opened shows that the server is short of something.
fn not_opened(error: &std::io::Error) -> Look {
    failed(error, StatusCode::SERVICE_UNAVAILABLE)
}

fn failed(error: &std::io::Error, otherwise: StatusCode) -> Look {
    let status = match error.kind() {
        ErrorKind::NotFound | ErrorKind::NotADirectory => return Look::Missing,
        ErrorKind::PermissionDenied => StatusCode::FORBIDDEN,
        _ => otherwise,
    };
    Look::Failed(Fault { status, reason: Reason::Io(error.kind()) })
}

pub(crate) fn of_octets(path: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    // Caddy, fileserver, mapDirOpenError and openFile.
    #[test]
    fn failures() {
        let status = |look| match look {
            Look::Failed(fault) => fault.status.as_u16(),
            Look::Missing => 404,
            _ => 0,
        };
        for (errno, seen, opened) in [
            (libc::EACCES, 403, 403),
            (libc::EPERM, 403, 403),
            (libc::ENOENT, 404, 404),
            (libc::ENOTDIR, 404, 404),
            (libc::ENAMETOOLONG, 400, 503),
            (libc::ELOOP, 400, 503),
            (libc::EMFILE, 400, 503),
        ] {
            let error = std::io::Error::from_raw_os_error(errno);
            assert_eq!((status(not_seen(&error)), status(not_opened(&error))), (seen, opened), "{error}");
        }
    }

    // Caddy, fileserver: the tag is base 36 of the time in nanoseconds, a dash, and of the length.
    #[test]
    fn tags() {
        let seen = |seconds: i128, nanos: i128, len| Stamp {
            modified: seconds * 1_000_000_000 + nanos,
            len,
            ..Stamp::default()
        };
        assert_eq!(seen(1_700_000_000, 0, 35).etag().as_deref(), Some(&b"\"cwyvpelgpse8-z\""[..]));
        assert_eq!(seen(1_700_000_000, 0, 36).etag().as_deref(), Some(&b"\"cwyvpelgpse8-10\""[..]));
        assert_eq!((seen(0, 5, 1).etag(), seen(1, 0, 1).etag(), seen(0, 0, 1).last_modified()), (None, None, None));
        assert!(
            seen(-5, 0, 1).etag().is_some_and(|tag| tag.starts_with(b"\"-"))
                && seen(-5, 0, 1).last_modified().is_none()
        );
        assert_eq!(seen(784_111_777, 9, 1).last_modified().unwrap().1.as_ref(), "Sun, 06 Nov 1994 08:49:37 GMT");
    }
}
