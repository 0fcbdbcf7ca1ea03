//! File system access. Everything here blocks and runs on the file thread pool.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::fs::{self, Metadata};
use std::io::{ErrorKind, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use causeway_message::{HTTP_DATE_SECONDS_END, StatusCode, path};
use causeway_pipeline::{Fault, FileVersion, LogLimit, OpenFile, Reason};

use super::locate::{FilePath, Resolved};
use super::{FileServerPlan, mime};
use crate::open_file::open_nonblocking;

/// Resolution of file times: file systems update them in steps of up to 10 ms (a kernel tick), some in longer ones.
const TIMESTAMP_GRANULARITY: Duration = Duration::from_millis(50);
/// How often a small file is read again because it was written to during the read.
const READS_MAX: usize = 3;
/// Largest file in bytes that is read whole and cached in memory.
const SMALL_MAX: u64 = 128 * 1024;
/// Most bytes that are read from a file that contains an entity tag.
const TAG_FILE_BYTES_MAX: u64 = 4096;

/// The result of a lookup.
pub(super) enum DiskLookup {
    File(Box<File>),
    /// The file matches `known`: the cached entry is still valid.
    Unchanged,
    /// A directory without an index.
    Directory,
    /// There is no file, or it is hidden.
    Missing,
    Failed(Fault),
}

/// A file that was read, and its compressed variants, each with the index of its coding.
pub(super) struct File {
    pub(super) main: DiskVariant,
    pub(super) sidecars: Vec<(usize, DiskVariant)>,
    pub(super) seen: FileStamps,
    pub(super) content_type: Option<Cow<'static, str>>,
    /// Last-Modified in seconds since 1970, and as a field value.
    pub(super) modified: Option<(u64, Box<str>)>,
}

pub(super) struct DiskVariant {
    pub(super) content: DiskContent,
    pub(super) etag: Option<Box<[u8]>>,
}

pub(super) enum DiskContent {
    Small(Vec<u8>),
    Large(Arc<OpenFile>),
}

/// Identifies the state of a file and its compressed variants. Equal values mean that a cached entry is still valid.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct FileStamps {
    /// The request named a directory and this file is its index.
    pub(super) is_index: bool,
    main: FileStamp,
    /// One for each configured coding; `None` if that variant does not exist.
    sidecars: Vec<Option<FileStamp>>,
    /// Entity tags from separate files (`etag_file_extensions`), the main file's first.
    tags: Vec<Option<Box<[u8]>>>,
}

impl FileStamps {
    /// Returns the identity of the content of the main file; `None` while a later write could leave the same times.
    pub(super) fn identity(&self) -> Option<FileIdentity> {
        (!self.main.is_racy).then_some(FileIdentity(self.main))
    }

    fn is_racy(&self) -> bool {
        std::iter::once(&self.main).chain(self.sidecars.iter().flatten()).any(|stamp| stamp.is_racy)
    }
}

/// A file with its version: equal values mean equal content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct FileIdentity(FileStamp);

/// Identity and version of one file, from its metadata.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
struct FileStamp {
    device: u64,
    inode: u64,
    version: FileVersion,
    /// The last write was so recent that a later write could leave the same timestamp (git calls it racily clean). Such
    /// a stamp proves no equality.
    is_racy: bool,
}

impl FileStamp {
    fn of(metadata: &Metadata) -> Self {
        let identity = Self { device: metadata.dev(), inode: metadata.ino(), ..Self::default() };
        identity.with_version(FileVersion::of(metadata), SystemTime::now())
    }

    /// Returns the stamp of this version of the file.
    fn with_version(self, version: FileVersion, now: SystemTime) -> Self {
        let now = now.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_nanos().cast_signed());
        let is_racy = (0..TIMESTAMP_GRANULARITY.as_nanos().cast_signed()).contains(&(now - version.modified));
        Self { version, is_racy, ..self }
    }

    /// Caddy's entity tag: modification time in nanoseconds and length in bytes, both in base 36. `None` for a time of
    /// 0 or 1 seconds, which reproducible builds set and which therefore identifies no version.
    fn etag(&self) -> Option<Box<[u8]>> {
        if matches!(self.version.modified.div_euclid(1_000_000_000), 0 | 1) {
            return None;
        }
        let mut tag = b"\"".to_vec();
        if self.version.modified < 0 {
            tag.push(b'-');
        }
        push_base36(self.version.modified.unsigned_abs(), &mut tag);
        tag.push(b'-');
        push_base36(u128::from(self.version.len), &mut tag);
        tag.push(b'"');
        Some(tag.into())
    }

    fn last_modified(&self) -> Option<(u64, Box<str>)> {
        let seconds = u64::try_from(self.version.modified.div_euclid(1_000_000_000)).ok()?;
        if matches!(seconds, 0 | 1) || seconds >= HTTP_DATE_SECONDS_END {
            return None;
        }
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        Some((seconds, httpdate::fmt_http_date(time).into()))
    }
}

fn push_base36(mut number: u128, out: &mut Vec<u8>) {
    // Digits come out in reverse order.
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

/// Looks up and reads the file at a location by the rules of Caddy's file server: for a directory its first index that
/// is not hidden; no hidden files; symbolic links are followed.
pub(super) fn read_file(plan: &FileServerPlan, file_path: &FilePath, known: Option<&FileStamps>) -> DiskLookup {
    let (path, names) = (file_path.path(), file_path.names(plan));
    let metadata = match fs::metadata(of_bytes(path)) {
        Ok(metadata) => metadata,
        Err(error) => return stat_failed(path, &error),
    };
    if !metadata.is_dir() {
        return if names.hides(path) { DiskLookup::Missing } else { file(plan, &names, path, &metadata, false, known) };
    }
    for name in &names.index {
        let mut index = path.to_vec();
        // `clean` resolves dot segments in the index name, so that it cannot lead out of the directory.
        path::clean(name, &mut index);
        if names.hides(&index) {
            continue;
        }
        match fs::metadata(of_bytes(&index)) {
            Ok(metadata) if !metadata.is_dir() => return file(plan, &names, &index, &metadata, true, known),
            // Without the permission to look inside, it is unknown whether the directory has an index.
            Err(error) if error.kind() == ErrorKind::PermissionDenied => return stat_failed(&index, &error),
            _ => {}
        }
    }
    if names.hides(path) { DiskLookup::Missing } else { DiskLookup::Directory }
}

fn file(
    plan: &FileServerPlan,
    names: &Resolved,
    path: &[u8],
    metadata: &Metadata,
    is_index: bool,
    known: Option<&FileStamps>,
) -> DiskLookup {
    // Opening a pipe can block, and reading a device may never end.
    if !metadata.is_file() {
        return DiskLookup::Missing;
    }
    let mut seen = match stat_files(plan, names, path, metadata, is_index) {
        Ok(seen) => seen,
        Err(look) => return look,
    };
    // A recent stamp may hide a second write: read the file again.
    if known.is_some_and(|known| *known == seen && !known.is_racy()) {
        return DiskLookup::Unchanged;
    }
    let main = match open(path, &mut seen.main) {
        Ok(Some(content)) => content,
        Ok(None) => return DiskLookup::Missing,
        Err(look) => return look,
    };
    let tag = |number: usize, stamp: &FileStamp, tags: &[Option<Box<[u8]>>]| {
        tags.get(number).cloned().flatten().or_else(|| stamp.etag())
    };
    let main = DiskVariant { content: main, etag: tag(0, &seen.main, &seen.tags) };
    let mut sidecars = Vec::new();
    for (number, coding) in plan.codings.iter().enumerate() {
        let Some(stamp) = &mut seen.sidecars[number] else { continue };
        // As in Caddy, a variant that cannot be opened is skipped, unless the server is out of file descriptors.
        match open(&beside(path, coding.suffix), stamp) {
            Ok(Some(content)) => {
                let etag = tag(number + 1, stamp, &seen.tags);
                sidecars.push((number, DiskVariant { content, etag }));
            }
            Err(DiskLookup::Failed(fault)) if fault.status == StatusCode::SERVICE_UNAVAILABLE => {
                return DiskLookup::Failed(fault);
            }
            _ => {}
        }
    }
    let modified = seen.main.last_modified();
    DiskLookup::File(Box::new(File { main, sidecars, seen, content_type: mime::of(path), modified }))
}

/// Reads the metadata of a file and of its variants, and the files with their entity tags.
fn stat_files(
    plan: &FileServerPlan,
    names: &Resolved,
    path: &[u8],
    metadata: &Metadata,
    is_index: bool,
) -> Result<FileStamps, DiskLookup> {
    let mut sidecars = Vec::new();
    let mut tags = Vec::new();
    if !plan.tag_extensions.is_empty() {
        tags.push(tag_file(plan, path)?);
    }
    for coding in plan.codings.iter() {
        let sidecar = beside(path, coding.suffix);
        let metadata = if names.hides(&sidecar) { None } else { fs::metadata(of_bytes(&sidecar)).ok() };
        let stamp = metadata.filter(Metadata::is_file).map(|metadata| FileStamp::of(&metadata));
        if !plan.tag_extensions.is_empty() {
            tags.push(if stamp.is_some() { tag_file(plan, &sidecar)? } else { None });
        }
        sidecars.push(stamp);
    }
    Ok(FileStamps { is_index, main: FileStamp::of(metadata), sidecars, tags })
}

/// Reads the entity tag from the first existing tag file. Line ends are removed; an empty file means no tag.
fn tag_file(plan: &FileServerPlan, path: &[u8]) -> Result<Option<Box<[u8]>>, DiskLookup> {
    for extension in &plan.tag_extensions {
        let mut tag = Vec::new();
        let file = open_nonblocking(of_bytes(&beside(path, extension)));
        match file.and_then(|file| file.take(TAG_FILE_BYTES_MAX).read_to_end(&mut tag)) {
            Ok(_) => {
                tag.retain(|byte| !matches!(byte, b'\n' | b'\r'));
                return Ok((!tag.is_empty()).then(|| tag.into()));
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => {
                let path = beside(path, extension);
                return Err(failed(&path, &error, StatusCode::INTERNAL_SERVER_ERROR));
            }
        }
    }
    Ok(None)
}

fn beside(path: &[u8], suffix: &str) -> Vec<u8> {
    [path, suffix.as_bytes()].concat()
}

/// Opens a file and reads it if it is small. `stamp` is updated from the open descriptor. `None` if it is not a regular
/// file.
fn open(path: &[u8], stamp: &mut FileStamp) -> Result<Option<DiskContent>, DiskLookup> {
    // The path may have become a pipe since the check.
    let file = open_nonblocking(of_bytes(path));
    let file = file.map_err(|error| open_failed(path, &error))?;
    let metadata = file.metadata().map_err(|error| open_failed(path, &error))?;
    if !metadata.is_file() {
        return Ok(None);
    }
    *stamp = FileStamp::of(&metadata);
    let mut file = OpenFile::new(file).map_err(|error| open_failed(path, &error))?;
    // Each try reads the file and then checks that it was not written to during the read.
    for _ in 0..READS_MAX {
        *stamp = stamp.with_version(file.opened(), SystemTime::now());
        let len = stamp.version.len;
        if len > SMALL_MAX {
            break;
        }
        let mut bytes = vec![0; len as usize];
        let read = file.file().read_exact_at(&mut bytes, 0);
        // Check the version before the read's result: a truncation during the read also makes the read fail.
        if !file.is_rewritten() {
            read.map_err(|error| read_failed(path, &error))?;
            return Ok(Some(DiskContent::Small(bytes)));
        }
        file = file.renewed().map_err(|error| open_failed(path, &error))?;
    }
    *stamp = stamp.with_version(file.opened(), SystemTime::now());
    // A file that changes all the time is sent from the descriptor; the response is cut short if the file changes
    // during it.
    Ok(Some(DiskContent::Large(Arc::new(file))))
}

/// As in Caddy: 403 without permission; 400 for a path that cannot be resolved (a name too long, a loop of links).
pub(super) fn stat_failed(path: &[u8], error: &std::io::Error) -> DiskLookup {
    match error.kind() {
        ErrorKind::NotFound | ErrorKind::NotADirectory => DiskLookup::Missing,
        ErrorKind::PermissionDenied => failed(path, error, StatusCode::FORBIDDEN),
        _ => failed(path, error, StatusCode::BAD_REQUEST),
    }
}

/// As in Caddy: a file or directory that exists, is readable and still cannot be opened means that the server lacks a
/// resource: 503.
pub(super) fn open_failed(path: &[u8], error: &std::io::Error) -> DiskLookup {
    match error.kind() {
        ErrorKind::NotFound | ErrorKind::NotADirectory => DiskLookup::Missing,
        ErrorKind::PermissionDenied => failed(path, error, StatusCode::FORBIDDEN),
        _ => failed(path, error, StatusCode::SERVICE_UNAVAILABLE),
    }
}

/// Reading an open file failed: 500.
fn read_failed(path: &[u8], error: &std::io::Error) -> DiskLookup {
    failed(path, error, StatusCode::INTERNAL_SERVER_ERROR)
}

/// Logs a failure that the operator can fix, and returns it. A path that cannot exist (400) is the client's mistake.
fn failed(path: &[u8], error: &std::io::Error, status: StatusCode) -> DiskLookup {
    static FORBIDDEN: LogLimit = LogLimit::new();
    static OTHERS: LogLimit = LogLimit::new();
    let limit = if status == StatusCode::FORBIDDEN { &FORBIDDEN } else { &OTHERS };
    if status != StatusCode::BAD_REQUEST
        && let Some(suppressed) = limit.admit()
    {
        let path = of_bytes(path);
        tracing::warn!(?path, %error, status = status.as_u16(), suppressed, "cannot serve a file");
    }
    DiskLookup::Failed(Fault { status, reason: Reason::Io(error.kind()) })
}

pub(crate) fn of_bytes(path: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    // Caddy, fileserver, mapDirOpenError and openFile.
    #[test]
    fn failures() {
        let status = |look| match look {
            DiskLookup::Failed(fault) => fault.status.as_u16(),
            DiskLookup::Missing => 404,
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
            let path = b"/srv/x";
            assert_eq!(
                (status(stat_failed(path, &error)), status(open_failed(path, &error))),
                (seen, opened),
                "{error}"
            );
        }
    }

    // A file that was rewritten while it was read: a further write may leave the same times as that one, so that the
    // content that is read next proves nothing for later requests.
    #[test]
    fn a_version_of_just_now_is_racy() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        let version = |before: Duration| FileVersion {
            modified: 1_700_000_000_000_000_000 - before.as_nanos().cast_signed(),
            ..FileVersion::default()
        };
        let old = FileStamp::default().with_version(version(Duration::from_secs(60)), now);
        assert!(!old.is_racy);
        assert!(old.with_version(version(Duration::from_millis(1)), now).is_racy);
        assert!(!old.with_version(version(TIMESTAMP_GRANULARITY), now).is_racy);
    }

    // Caddy, fileserver: the tag is the time in nanoseconds in base 36, a dash, and the length in base 36.
    #[test]
    fn tags() {
        let seen = |seconds: i128, nanos: i128, len| FileStamp {
            version: FileVersion { modified: seconds * 1_000_000_000 + nanos, len, ..FileVersion::default() },
            ..FileStamp::default()
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
