//! A log file: it is rolled when it is full or at given times, and reopened when it was moved or removed.

use std::fs::{self, DirBuilder, File, Metadata, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, fchown};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use crate::batch::{Batch, Progress};
use crate::roll::{Cause, RollSpec, Roller};

/// Caddy's defaults.
pub(crate) const FILE_MODE: u32 = 0o600;
const DIRECTORY_MODE: u32 = 0o700;
/// How long a file that could not be renamed grows beyond its limit before the next attempt.
const ROLL_AGAIN: Duration = Duration::from_secs(60);
/// By how much the creation time of a file may precede the clock at most: the kernel reads its own clock once a tick.
const CREATION_LAG: Duration = Duration::from_millis(100);
/// How often the failure to reopen a file is reported.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// A file as a configuration describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileSpec {
    /// The path; relative to the working directory.
    pub path: PathBuf,
    /// Permissions, which an existing file gets too. `None`: those of the file that was rolled; 0600 for the first one.
    pub mode: Option<u32>,
    /// Permissions of directories that are created.
    pub directory_mode: DirectoryMode,
    /// `None`: the file is never rolled.
    pub roll: Option<RollSpec>,
}

/// Permissions of the directories that are created for a file. The process's umask applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DirectoryMode {
    /// 0700.
    #[default]
    Private,
    /// These permissions.
    Fixed(u32),
    /// The permissions of the nearest directory that exists.
    Inherit,
    /// The permissions of the file; a user with read permission may also search the directory.
    FromFile,
}

/// An open log file.
pub(crate) struct LogFile {
    spec: FileSpec,
    file: File,
    bytes: u64,
    /// Device and inode of the open file.
    identity: (u64, u64),
    /// Pipes and devices have neither a size nor a successor.
    is_regular: bool,
    /// When the open file was created; if the file system does not know it, when it was opened.
    created_at: SystemTime,
    roller: Option<Roller>,
    /// No attempt to roll before this time.
    roll_not_before: Option<Instant>,
    /// No further report that the file cannot be opened before this time.
    quiet_until: Option<Instant>,
}

impl LogFile {
    pub(crate) fn open(spec: FileSpec) -> io::Result<Self> {
        let OpenedFile { file, bytes, identity, is_regular, created_at } = open(&spec)?;
        let roller = spec.roll.clone().map(|roll| Roller::new(roll, spec.path.clone()));
        Ok(Self {
            spec,
            file,
            bytes,
            identity,
            is_regular,
            created_at,
            roller,
            roll_not_before: None,
            quiet_until: None,
        })
    }

    /// Creates nothing, and fails only if no user could open the file: the server may run as another one.
    pub(crate) fn check(spec: &FileSpec) -> io::Result<()> {
        match fs::metadata(&spec.path) {
            Ok(metadata) if metadata.is_dir() => Err(rustix::io::Errno::ISDIR.into()),
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => Err(error),
            _ => Ok(()),
        }
    }

    pub(crate) fn configure(&mut self, spec: FileSpec) {
        let is_new_roll = spec.roll != self.spec.roll;
        self.spec = spec;
        if is_new_roll {
            let FileSpec { roll, path, .. } = &self.spec;
            self.roller = roll.clone().map(|roll| Roller::new(roll, path.clone()));
        }
        // Also applies new permissions.
        self.reopen();
    }

    /// Reopens the path. If that fails, lines go to the open file, and the result is false.
    pub(crate) fn reopen(&mut self) -> bool {
        match open(&self.spec) {
            Ok(OpenedFile { file, bytes, identity, is_regular, created_at }) => {
                if identity != self.identity {
                    // Not that of the same file: it may be the time of this call.
                    self.created_at = created_at;
                }
                (self.file, self.bytes, self.identity, self.is_regular) = (file, bytes, identity, is_regular);
                true
            }
            Err(error) => {
                if self.quiet_until.is_none_or(|until| Instant::now() >= until) {
                    self.quiet_until = Some(Instant::now() + REPORT_INTERVAL);
                    let path = self.spec.path.display();
                    tracing::error!(
                        "log file {path}: cannot reopen it: {error}; writing to the file that was moved or removed"
                    );
                }
                false
            }
        }
    }

    /// Reopens the path if another file, or none, has its name.
    fn follow(&mut self) {
        match self.metadata_at_path() {
            // Another program may have truncated the file, such as logrotate with `copytruncate`.
            Some(metadata) => self.bytes = self.bytes.min(metadata.len()),
            None => {
                self.reopen();
            }
        }
    }

    /// Returns `None` if the path no longer leads to the open file.
    fn metadata_at_path(&self) -> Option<Metadata> {
        fs::metadata(&self.spec.path).ok().filter(|metadata| (metadata.dev(), metadata.ino()) == self.identity)
    }

    /// Writes whole lines, from `first` on; rolls between two lines.
    pub(crate) fn write(&mut self, batch: &Batch, first: usize) -> Progress {
        self.follow();
        if let Some(roller) = self.roller.as_mut().filter(|_| self.is_regular) {
            roller.begin();
        }
        let mut line = first;
        while line < batch.len() {
            let mut end = batch.len();
            if let Some(roller) = self.roller.as_ref().filter(|_| self.is_regular && self.may_roll()) {
                end = line + batch.fitting(line, roller.bytes_max().saturating_sub(self.bytes));
                if end == line && self.bytes > 0 {
                    self.roll(Cause::Size);
                    continue;
                }
                // A line that is longer than a file gets a file of its own.
                end = end.max(line + 1);
            }
            if let Err((done, error)) = append(&mut self.file, batch.lines(line, end)) {
                let lines = batch.fitting(line, done as u64).min(end - line);
                let whole = batch.lines(line, line + lines).len();
                self.cut(whole as u64, done as u64);
                return Progress { lines: line + lines - first, fault: Some(error) };
            }
            self.bytes += batch.lines(line, end).len() as u64;
            line = end;
        }
        Progress { lines: line - first, fault: None }
    }

    /// Removes the part of a line that was written before the disk was full, so that each line of the file is whole.
    fn cut(&mut self, whole: u64, written: u64) {
        let length = self.file.metadata().map(|metadata| metadata.len());
        // Not if another process writes to the file too: its lines would be removed.
        if self.is_regular && whole < written && length.is_ok_and(|length| length == self.bytes + written) {
            // A failure leaves a line without its end.
            let _ = self.file.set_len(self.bytes + whole);
        }
        self.bytes += whole;
    }

    /// Rolls the file if its time has come.
    pub(crate) fn roll_if_due(&mut self) {
        let Some(due) = self.roller.as_mut().and_then(|roller| roller.take_due(SystemTime::now())) else { return };
        self.follow();
        // True if another process, as during an upgrade, has rolled the file since then. A file that was created while
        // the clock was ahead was not.
        let is_rolled = self.created_at + CREATION_LAG >= due && self.created_at <= SystemTime::now();
        // An empty file has no lines to keep.
        if self.is_regular && self.bytes > 0 && !is_rolled && self.may_roll() {
            self.roll(Cause::Time);
        }
    }

    fn may_roll(&self) -> bool {
        self.roll_not_before.is_none_or(|time| Instant::now() >= time)
    }

    fn roll(&mut self, cause: Cause) {
        self.roll_not_before = None;
        if self.metadata_at_path().is_none() {
            // Another process has rolled it since the last look.
            if !self.reopen() {
                self.roll_not_before = Some(Instant::now() + ROLL_AGAIN);
            }
            return;
        }
        let Some(roller) = &mut self.roller else { return };
        let rolled = self.file.metadata();
        match roller.rename(cause) {
            Ok(()) => {
                if self.reopen()
                    && let Ok(rolled) = rolled
                    && is_own(&self.file, &self.spec.path)
                {
                    copy_attributes(&self.file, &rolled, self.spec.mode);
                }
            }
            Err(error) => {
                self.roll_not_before = Some(Instant::now() + ROLL_AGAIN);
                tracing::error!("log file {}: cannot roll it: {error}", self.spec.path.display());
            }
        }
    }
}

impl FileSpec {
    fn file_mode(&self) -> u32 {
        self.mode.unwrap_or(FILE_MODE)
    }
}

/// The facts of [`LogFile`] about the file that is open.
struct OpenedFile {
    file: File,
    bytes: u64,
    identity: (u64, u64),
    is_regular: bool,
    created_at: SystemTime,
}

fn open(spec: &FileSpec) -> io::Result<OpenedFile> {
    if let Some(directory) = spec.path.parent().filter(|directory| !directory.as_os_str().is_empty()) {
        let mode = directory_mode(spec, directory);
        DirBuilder::new().recursive(true).mode(mode).create(directory)?;
    }
    let file = OpenOptions::new().append(true).create(true).mode(spec.file_mode()).open(&spec.path)?;
    let metadata = file.metadata()?;
    if let Some(mode) = spec.mode.filter(|_| metadata.is_file())
        && metadata.permissions().mode() & 0o777 != mode & 0o777
    {
        file.set_permissions(Permissions::from_mode(mode))?;
    }
    Ok(OpenedFile {
        file,
        bytes: metadata.len(),
        identity: (metadata.dev(), metadata.ino()),
        is_regular: metadata.is_file(),
        created_at: metadata.created().unwrap_or_else(|_| SystemTime::now()),
    })
}

fn directory_mode(spec: &FileSpec, directory: &Path) -> u32 {
    // A user with read permission may also search.
    let searchable = |mode: u32| mode | (mode & 0o444) >> 2;
    match spec.directory_mode {
        DirectoryMode::Private => DIRECTORY_MODE,
        DirectoryMode::Fixed(mode) => mode,
        DirectoryMode::FromFile => searchable(spec.file_mode() & 0o777) | 0o200,
        DirectoryMode::Inherit => {
            let nearest = directory.ancestors().find_map(|directory| {
                let directory = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
                fs::metadata(directory).ok()
            });
            nearest.map_or(DIRECTORY_MODE, |metadata| searchable(metadata.permissions().mode() & 0o777))
        }
    }
}

/// Returns whether a file that was opened by its path is this user's own regular file, and not reached by a link. A
/// user with write permission for the directory could otherwise place a link there, and have the attributes of any file
/// changed.
fn is_own(file: &File, path: &Path) -> bool {
    let (Ok(opened), Ok(named)) = (file.metadata(), fs::symlink_metadata(path)) else { return false };
    opened.is_file()
        && opened.nlink() == 1
        && opened.uid() == rustix::process::geteuid().as_raw()
        && (opened.dev(), opened.ino()) == (named.dev(), named.ino())
}

/// Gives a file the group and the owner of another one, and these permissions or those of the other one, so that a
/// program that reads the log may read this file too. Only root may change the owner; each attribute that cannot be
/// changed stays.
pub(crate) fn copy_attributes(file: &File, from: &Metadata, mode: Option<u32>) {
    // The owner comes last: a process may have the right to change it, but not that to change another user's file.
    // A filter of system calls may refuse even a change to the present group.
    let is_of_group = file.metadata().is_ok_and(|own| own.gid() == from.gid());
    let has_group = is_of_group || fchown(file, None, Some(from.gid())).is_ok();
    // Without the group, its permissions would be another group's.
    let mode = mode.unwrap_or(if has_group { from.mode() } else { from.mode() & !0o070 });
    let _ = file.set_permissions(Permissions::from_mode(mode & 0o777));
    let _ = fchown(file, Some(from.uid()), None);
}

/// Writes all bytes; an error has the number of bytes that were written before.
fn append(file: &mut File, bytes: &[u8]) -> Result<(), (usize, io::Error)> {
    let mut done = 0;
    while done < bytes.len() {
        match file.write(&bytes[done..]) {
            Ok(0) => return Err((done, io::ErrorKind::WriteZero.into())),
            Ok(count) => done += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err((done, error)),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Zone;
    use crate::roll::Compression;

    /// Describes a file that each check finds due, in an empty directory.
    fn due_file(name: &str) -> (PathBuf, FileSpec) {
        let directory = std::env::temp_dir().join(format!("causeway-log-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&directory);
        let roll = RollSpec {
            bytes_max: 1 << 20,
            interval: Some(Duration::ZERO),
            minutes: Vec::new(),
            times: Vec::new(),
            keep: 10,
            keep_for: Duration::from_secs(3600),
            compression: Compression::None,
            zone: Zone::Utc,
            stamp: None,
        };
        let path = directory.join("a.log");
        (directory, FileSpec { path, mode: None, directory_mode: DirectoryMode::Private, roll: Some(roll) })
    }

    fn write(file: &mut LogFile, line: &[u8]) {
        let mut batch = Batch::default();
        batch.push(line);
        assert!(file.write(&batch, 0).fault.is_none());
    }

    // The overlap of an upgrade: the file is rolled once, and the lines that were written since stay in the new file.
    #[test]
    fn two_processes_roll_a_file_once() {
        let (directory, spec) = due_file("twice");
        let path = spec.path.clone();
        for has_idle_successor in [false, true] {
            let mut processes = [LogFile::open(spec.clone()).unwrap(), LogFile::open(spec.clone()).unwrap()];
            let [former, new] = &mut processes;
            write(former, b"before\n");
            write(new, b"before\n");
            // As if it had been written to for a while.
            (former.created_at, new.created_at) = (SystemTime::UNIX_EPOCH, SystemTime::UNIX_EPOCH);
            former.roll_if_due();
            assert_eq!(fs::read(&path).unwrap(), b"");
            write(former, b"after\n");
            if !has_idle_successor {
                write(new, b"after\n");
            }
            let is_expected = fs::read(&path).unwrap();
            new.roll_if_due();
            assert_eq!(fs::read(&path).unwrap(), is_expected, "idle: {has_idle_successor}");
            assert_eq!(fs::read_dir(&directory).unwrap().count(), 2, "idle: {has_idle_successor}");
            fs::remove_dir_all(&directory).unwrap();
        }
    }

    // As above, when the other process rolls the file after this one has found it due.
    #[test]
    fn a_file_that_is_no_longer_at_the_path_is_not_rolled() {
        for cause in [Cause::Size, Cause::Time] {
            let (directory, spec) = due_file("moment");
            let mut file = LogFile::open(spec.clone()).unwrap();
            write(&mut file, b"before\n");
            fs::rename(&spec.path, directory.join("rolled")).unwrap();
            fs::write(&spec.path, b"of another process\n").unwrap();
            file.roll(cause);
            write(&mut file, b"after\n");
            assert_eq!(fs::read_to_string(&spec.path).unwrap(), "of another process\nafter\n", "{cause:?}");
            assert_eq!(fs::read_dir(&directory).unwrap().count(), 2, "{cause:?}");
            fs::remove_dir_all(&directory).unwrap();
        }
    }

    // A full disk leaves no part of a line, also after another program has truncated the file.
    #[test]
    fn a_truncated_file_has_whole_lines() {
        let (directory, spec) = due_file("truncated");
        let mut file = LogFile::open(FileSpec { roll: None, ..spec }).unwrap();
        write(&mut file, b"before\n");
        File::create(&file.spec.path).unwrap();
        write(&mut file, b"after\n");
        append(&mut file.file, b"par").unwrap();
        file.cut(0, 3);
        write(&mut file, b"with room\n");
        assert_eq!(fs::read_to_string(&file.spec.path).unwrap(), "after\nwith room\n");
        fs::remove_dir_all(&directory).unwrap();
    }

    // A clock that was ahead when the file was created does not end the rolling.
    #[test]
    fn a_file_from_the_future_is_rolled() {
        let (directory, spec) = due_file("future");
        let mut file = LogFile::open(spec.clone()).unwrap();
        write(&mut file, b"before\n");
        file.created_at = SystemTime::now() + Duration::from_secs(24 * 3600);
        file.roll_if_due();
        assert_eq!(fs::read(&spec.path).unwrap(), b"");
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 2);
        fs::remove_dir_all(&directory).unwrap();
    }

    // Some file systems do not know when a file was created: the time of the first opening stays that of the same file.
    #[test]
    fn a_file_that_is_opened_again_keeps_its_age() {
        let (directory, spec) = due_file("age");
        let mut file = LogFile::open(spec.clone()).unwrap();
        file.created_at = SystemTime::UNIX_EPOCH;
        file.reopen();
        assert_eq!(file.created_at, SystemTime::UNIX_EPOCH);
        fs::rename(&spec.path, directory.join("moved")).unwrap();
        file.reopen();
        assert_ne!(file.created_at, SystemTime::UNIX_EPOCH);
        fs::remove_dir_all(&directory).unwrap();
    }
}
