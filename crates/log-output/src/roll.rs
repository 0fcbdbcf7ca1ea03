//! The rolling of log files: when a file is renamed, and how many renamed files are kept, in which form.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::{Duration, SystemTime};

use jiff::tz::TimeZone;
use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::file::{FILE_MODE, copy_attributes};
use crate::layout::{TimeLayout, Zone, instant};

/// The time in the name of a rolled file, as Caddy writes it.
const STAMP: &str = "2006-01-02T15-04-05.000";
/// Endings of compressed files.
const ENDINGS: [&str; 2] = [".gz", ".zst"];
/// Ending of a file that is being compressed.
const UNFINISHED: &str = ".part";
const MINUTE: Duration = Duration::from_secs(60);
/// Minutes in which each time of day comes: 2:30 of the day that has it before a change to summer time, in which it is
/// missing, comes 47 hours later, and any time comes after at most 25 hours on the other days.
const SEARCH_MINUTES: u32 = 49 * 60;

/// When a file is rolled, and which rolled files are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RollSpec {
    /// Rolled before it becomes larger than this.
    pub bytes_max: u64,
    /// Rolled this long after it was opened or rolled.
    pub interval: Option<Duration>,
    /// Rolled at these minutes of each hour.
    pub minutes: Vec<u8>,
    /// Rolled at these times of each day, as hour and minute.
    pub times: Vec<(u8, u8)>,
    /// Largest number of rolled files.
    pub keep: usize,
    /// Older rolled files are removed.
    pub keep_for: Duration,
    /// The form of rolled files.
    pub compression: Compression,
    /// The zone of [`times`](Self::times) and of the time in the names of rolled files.
    pub zone: Zone,
    /// The layout of the time in the names of rolled files; `None`: `2006-01-02T15-04-05.000`.
    pub stamp: Option<String>,
}

/// The form of rolled files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Compression {
    /// As they were written.
    None,
    /// With the ending `.gz`.
    #[default]
    Gzip,
    /// With the ending `.zst`.
    Zstd,
}

/// Why a file is rolled; a part of its new name.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Cause {
    Size,
    Time,
}

/// The layout of the time in the names of rolled files.
#[derive(Debug, Clone)]
struct StampLayout(TimeLayout);

impl StampLayout {
    fn of(spec: &RollSpec) -> Self {
        // The operator's layout may contain a `/`.
        let layout = spec.stamp.as_deref().unwrap_or(STAMP).replace('/', "-");
        Self(TimeLayout::new(&layout, spec.zone))
    }

    /// Returns whether a name's part between the stem and the extension is one that [`Roller::rename`] writes.
    fn is_rolled(&self, part: &str) -> bool {
        // Earlier versions wrote no cause.
        let uncaused = ["-size", "-time"].iter().find_map(|cause| part.strip_suffix(cause)).unwrap_or(part);
        let unnumbered =
            uncaused.rsplit_once('-').filter(|(_, number)| number.bytes().all(|byte| byte.is_ascii_digit()));
        self.0.is_written(uncaused) || unnumbered.is_some_and(|(stamp, _)| self.0.is_written(stamp))
    }
}

/// The schedule of a file, and the thread that compresses and removes rolled files.
pub(crate) struct Roller {
    spec: RollSpec,
    path: PathBuf,
    stamp: StampLayout,
    /// The next time at which the file is rolled.
    next: Option<SystemTime>,
    /// The time after which [`next`](Self::next) is the first one.
    next_after: SystemTime,
    /// Whether the rolled files that were there before were looked at.
    is_begun: bool,
    /// Wakes the thread. Its queue holds one request, which covers all files that were rolled before it.
    sweeper: Option<SyncSender<()>>,
}

impl Roller {
    pub(crate) fn new(spec: RollSpec, path: PathBuf) -> Self {
        let stamp = StampLayout::of(&spec);
        let now = SystemTime::now();
        let next = next(&spec, now);
        Self { spec, path, stamp, next, next_after: now, is_begun: false, sweeper: None }
    }

    pub(crate) fn bytes_max(&self) -> u64 {
        self.spec.bytes_max
    }

    /// Compresses and removes rolled files of an earlier process or of other options: some may have expired, and a
    /// process that ended may have left some uncompressed. Does so once, at the first line rather than at the start,
    /// because a configuration that opens a file may still be rejected.
    pub(crate) fn begin(&mut self) {
        if std::mem::replace(&mut self.is_begun, true) {
            return;
        }
        let (path, spec) = (self.path.clone(), self.spec.clone());
        // The thread ends at once, as most logs are not rolled for a long time. If the system refuses it, the next roll
        // does its work.
        let _ = std::thread::Builder::new().name("log-roll".into()).spawn(move || sweep(&path, &spec));
    }

    /// Returns the time to roll if it has come, and sets the next one.
    pub(crate) fn take_due(&mut self, now: SystemTime) -> Option<SystemTime> {
        let due = self.next.filter(|next| now >= *next);
        // Earlier than before: the clock was set back, and the next time may be years away.
        if due.is_some() || now < self.next_after {
            self.schedule(now);
        }
        due
    }

    fn schedule(&mut self, now: SystemTime) {
        self.next = next(&self.spec, now);
        self.next_after = now;
    }

    /// Renames the file to `NAME-TIME-CAUSE.EXT`, and lets the thread compress it.
    pub(crate) fn rename(&mut self, cause: Cause) -> io::Result<()> {
        let (stem, extension) = parts(&self.path);
        let stamp = self.stamp.0.text(SystemTime::now());
        let cause = match cause {
            Cause::Size => "size",
            Cause::Time => "time",
        };
        let mut name = format!("{stem}-{stamp}-{cause}{extension}");
        let mut number = 1;
        loop {
            let rolled = self.path.with_file_name(&name);
            let is_taken = ENDINGS.iter().any(|ending| with_ending(&rolled, ending).exists());
            match if is_taken { Err(io::ErrorKind::AlreadyExists.into()) } else { rename_new(&self.path, &rolled) } {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    name = format!("{stem}-{stamp}-{number}-{cause}{extension}");
                    number += 1;
                }
                renamed => break renamed?,
            }
        }
        if self.spec.interval.is_some() {
            self.schedule(SystemTime::now());
        }
        if self.sweeper.is_none() {
            self.sweeper = Some(self.start_sweeper()?);
        }
        if let Some(sweeper) = &self.sweeper {
            // Full: the request in the queue covers this file too.
            let _ = sweeper.try_send(());
        }
        Ok(())
    }

    /// Starts the thread that compresses and removes files, so that the log is written in the meantime. It ends with
    /// the roller.
    fn start_sweeper(&self) -> io::Result<SyncSender<()>> {
        let (sweeper, requests) = sync_channel(1);
        let (path, spec) = (self.path.clone(), self.spec.clone());
        std::thread::Builder::new().name("log-roll".into()).spawn(move || {
            while requests.recv().is_ok() {
                sweep(&path, &spec);
            }
        })?;
        Ok(sweeper)
    }
}

/// Renames a file unless the new name is taken, by another process too.
fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    match rustix::fs::renameat_with(rustix::fs::CWD, from, rustix::fs::CWD, to, rustix::fs::RenameFlags::NOREPLACE) {
        // rename(2): a file system, or a kernel, without the flag.
        Err(Errno::INVAL | Errno::NOSYS) if to.exists() => Err(io::ErrorKind::AlreadyExists.into()),
        Err(Errno::INVAL | Errno::NOSYS) => fs::rename(from, to),
        renamed => Ok(renamed?),
    }
}

/// Returns the first time after `now` at which the file is rolled.
fn next(spec: &RollSpec, now: SystemTime) -> Option<SystemTime> {
    let interval = spec.interval.and_then(|interval| now.checked_add(interval));
    [interval, next_of_clock(spec, &spec.zone.time_zone(), now)].into_iter().flatten().min()
}

/// Returns the first time after `now` whose minute or time of day the specification has.
fn next_of_clock(spec: &RollSpec, zone: &TimeZone, now: SystemTime) -> Option<SystemTime> {
    if spec.minutes.is_empty() && spec.times.is_empty() {
        return None;
    }
    let since = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
    let minute = SystemTime::UNIX_EPOCH + Duration::from_secs(since - since % 60);
    (1..=SEARCH_MINUTES).map(|count| minute + MINUTE * count).find(|time| {
        let local = zone.to_datetime(instant(*time));
        let (hour, minute) = (local.hour().unsigned_abs(), local.minute().unsigned_abs());
        spec.minutes.contains(&minute) || spec.times.contains(&(hour, minute))
    })
}

/// Splits the name of a file before its last `.`.
fn parts(path: &Path) -> (String, String) {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let extension = path.extension().map(|extension| format!(".{}", extension.to_string_lossy()));
    (stem, extension.unwrap_or_default())
}

/// Compresses rolled files, and removes those beyond the number and the age to keep.
fn sweep(path: &Path, spec: &RollSpec) {
    let mut rolled = rolled(path, &StampLayout::of(spec));
    // The newest first.
    rolled.sort_by(|one, two| two.cmp(one));
    let oldest = SystemTime::now().checked_sub(spec.keep_for);
    for (index, (modified, path)) in rolled.iter().enumerate() {
        if index >= spec.keep || oldest.is_some_and(|oldest| *modified < oldest) {
            // Another process may have removed it.
            let _ = fs::remove_file(path);
            // Of a process that was killed while it compressed the file.
            remove_abandoned(&with_ending(path, UNFINISHED));
        } else if spec.compression != Compression::None
            && !is_compressed(path)
            && let Err(error) = compress(path, *modified, spec.compression)
        {
            tracing::warn!("log file {}: cannot compress it: {error}", path.display());
        }
    }
}

/// Returns the rolled files of `path`, each with the time of its last line. Another log's file may begin with the same
/// stem.
fn rolled(path: &Path, stamp: &StampLayout) -> Vec<(SystemTime, PathBuf)> {
    let (stem, extension) = parts(path);
    let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let is_rolled = |name: &str| {
        let rest = name.strip_prefix(&stem).and_then(|rest| rest.strip_prefix('-'))?;
        let rest = ENDINGS.iter().find_map(|ending| rest.strip_suffix(ending)).unwrap_or(rest);
        stamp.is_rolled(rest.strip_suffix(&extension)?).then_some(())
    };
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    entries
        .filter_map(Result::ok)
        // A link could lead to a file of another directory, and opening a FIFO could block.
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file()))
        .filter(|entry| is_rolled(&entry.file_name().to_string_lossy()).is_some())
        .filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())))
        .collect()
}

fn is_compressed(path: &Path) -> bool {
    ENDINGS.iter().any(|ending| path.to_string_lossy().ends_with(ending))
}

fn with_ending(path: &Path, ending: &str) -> PathBuf {
    let mut path = path.as_os_str().to_owned();
    path.push(ending);
    path.into()
}

/// Replaces a file by its compressed form, which keeps the time of the last line. Does nothing if another thread or
/// process does it.
fn compress(path: &Path, modified: SystemTime, compression: Compression) -> io::Result<()> {
    let ending = if compression == Compression::Zstd { ENDINGS[1] } else { ENDINGS[0] };
    let unfinished = with_ending(path, UNFINISHED);
    let Some(target) = lock_unfinished(&unfinished)? else { return Ok(()) };
    // Renamed only when it is whole and on the disk: a crash leaves the original.
    let renamed = write_compressed(path, &target, modified, compression)
        .and_then(|()| fs::rename(&unfinished, with_ending(path, ending)));
    if renamed.is_err() {
        // Before the close, which releases the lock: after it the file may be another process's.
        let _ = fs::remove_file(&unfinished);
    }
    drop(target);
    // Another process may have compressed it and removed it.
    match renamed.and_then(|()| fs::remove_file(path)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

/// Writes the compressed form of a file to `target`.
fn write_compressed(path: &Path, target: &File, modified: SystemTime, compression: Compression) -> io::Result<()> {
    let mut source = open_itself(OpenOptions::new().read(true), path)?;
    copy_attributes(target, &source.metadata()?, None);
    match compression {
        Compression::Zstd => {
            let mut encoder = zstd::Encoder::new(target, 0)?;
            io::copy(&mut source, &mut encoder)?;
            encoder.finish()?;
        }
        Compression::None | Compression::Gzip => {
            let mut encoder = flate2::write::GzEncoder::new(target, flate2::Compression::default());
            io::copy(&mut source, &mut encoder)?;
            encoder.finish()?;
        }
    }
    target.set_modified(modified)?;
    target.sync_all()
}

/// Opens a regular file, but follows no link, and does not wait for the other end of a FIFO.
fn open_itself(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = options.custom_flags(flags.bits().cast_signed()).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(Errno::LOOP.into()) }
}

/// Creates the file for a compressed form, and locks it until it is closed. `None`: another thread or process has the
/// lock, or had it until now.
fn lock_unfinished(path: &Path) -> io::Result<Option<File>> {
    // The file is always a new one: a file that another user has placed there would let that user read the log.
    let create = || OpenOptions::new().write(true).create_new(true).mode(FILE_MODE).open(path);
    let created = match create() {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            remove_abandoned(path);
            create()
        }
        created => created,
    };
    match created {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(None),
        created => lock(created?, path),
    }
}

/// Removes a file that a process has left unfinished, unless another one compresses it; and a link, or a file of
/// another type.
fn remove_abandoned(path: &Path) {
    // After a failure to remove it, the next sweep tries it again.
    match open_itself(OpenOptions::new().write(true), path) {
        Ok(file) => {
            // Held until the file is removed: a process that opens it meanwhile finds it locked, or finds that it no
            // longer has the name.
            if let Ok(Some(_lock)) = lock(file, path) {
                let _ = fs::remove_file(path);
            }
        }
        // open(2): a link; a socket, or a FIFO that nothing reads. Another error, such as EACCES, may be that of a file
        // in use.
        Err(error) if matches!(Errno::from_io_error(&error), Some(Errno::LOOP | Errno::NXIO)) => {
            let _ = fs::remove_file(path);
        }
        Err(_) => {}
    }
}

fn lock(file: File, path: &Path) -> io::Result<Option<File>> {
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => return Ok(None),
        // A file system without locks.
        Ok(()) | Err(TryLockError::Error(_)) => {}
    }
    // The former holder may have renamed the file between the two calls.
    let (ours, named) = (file.metadata()?, fs::symlink_metadata(path).ok());
    Ok(named.is_some_and(|named| (named.dev(), named.ino()) == (ours.dev(), ours.ino())).then_some(file))
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    /// Creates an empty directory.
    fn new_directory(test: &str) -> PathBuf {
        let directory = std::env::temp_dir().join(format!("causeway-log-{test}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&directory);
        fs::create_dir_all(&directory).unwrap();
        directory
    }

    fn decompressed(path: &Path) -> String {
        let mut text = String::new();
        flate2::read::GzDecoder::new(File::open(path).unwrap()).read_to_string(&mut text).unwrap();
        text
    }

    fn spec(interval: Option<Duration>, minutes: &[u8], times: &[(u8, u8)]) -> RollSpec {
        RollSpec {
            bytes_max: 1,
            interval,
            minutes: minutes.to_vec(),
            times: times.to_vec(),
            keep: 1,
            keep_for: MINUTE,
            compression: Compression::None,
            zone: Zone::Utc,
            stamp: None,
        }
    }

    // Two logs may have names of which one begins with the other: the rolling of one must not remove the other's files.
    #[test]
    fn names_of_rolled_files() {
        let time = "2026-11-29T20-15-03.123";
        for (stamp, part, want) in [
            (None, &*format!("{time}-size"), true),
            (None, &format!("{time}-time"), true),
            (None, &format!("{time}-12-size"), true),
            (None, time, true),
            (None, &format!("{time}-3"), true),
            (None, "page-size", false),
            (None, "response-time", false),
            (None, &format!("errors-{time}-size"), false),
            (None, &format!("{time}-errors"), false),
            (None, "2026-11-29T20-15-03-size", false),
            (Some("20060102/150405"), "20261129-201503-size", true),
            (Some("20060102/150405"), "20261129-201503-1-size", true),
            (Some("20060102/150405"), &format!("{time}-size"), false),
        ] {
            let spec = RollSpec { stamp: stamp.map(str::to_owned), ..spec(None, &[], &[]) };
            assert_eq!(StampLayout::of(&spec).is_rolled(part), want, "{stamp:?} {part}");
        }
    }

    // A clock that is set back does not hold up the rolling for longer than a period from then on.
    #[test]
    fn a_clock_that_is_set_back() {
        let hour = 60 * MINUTE;
        for spec in [spec(Some(hour), &[], &[]), spec(None, &[0], &[]), spec(None, &[], &[(0, 0), (12, 0)])] {
            let mut roller = Roller::new(spec.clone(), PathBuf::from("a.log"));
            let back = SystemTime::now() - 1000 * 24 * hour;
            let next = next(&spec, back).expect("the file is rolled by time");
            assert_eq!(roller.take_due(back), None, "{spec:?}");
            assert_eq!(roller.take_due(next - Duration::from_secs(1)), None, "{spec:?}");
            assert_eq!(roller.take_due(next), Some(next), "{spec:?}");
            assert_eq!(roller.take_due(next), None, "{spec:?}");
        }
    }

    // Caddy's documentation of `output file`: `roll_interval`, `roll_minutes`, `roll_at`.
    #[test]
    fn times_to_roll() {
        // 2026-11-21 20:54:25
        let now = 1_795_294_465;
        for (spec, want) in [
            (spec(None, &[], &[]), None),
            (spec(Some(Duration::from_secs(90)), &[], &[]), Some(now + 90)),
            (spec(None, &[54, 55], &[]), Some(now + 35)),
            (spec(None, &[54], &[]), Some(now + 35 + 59 * 60)),
            (spec(None, &[], &[(20, 54)]), Some(now - 25 + 24 * 3600)),
            (spec(None, &[], &[(0, 0), (21, 0)]), Some(now + 35 + 5 * 60)),
            (spec(Some(MINUTE), &[], &[(21, 0)]), Some(now + 60)),
        ] {
            let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
            assert_eq!(next(&spec, at(now)), want.map(at), "{spec:?}");
        }
    }

    // A time of day that the change to summer time skips comes again on the next day.
    #[test]
    fn a_time_of_day_that_is_skipped() {
        let zone = TimeZone::posix("EST5EDT,M3.2.0,M11.1.0").unwrap();
        let spec = spec(None, &[], &[(2, 30)]);
        for (now, want) in [
            // 2026-03-08 has no 2:30.
            ("2026-03-07T02:29:00-05:00", "2026-03-07T02:30:00-05:00"),
            ("2026-03-07T02:30:00-05:00", "2026-03-09T02:30:00-04:00"),
            ("2026-10-31T02:30:00-04:00", "2026-11-01T02:30:00-05:00"),
        ] {
            let [now, want] = [now, want].map(|time| SystemTime::from(time.parse::<jiff::Timestamp>().unwrap()));
            assert_eq!(next_of_clock(&spec, &zone, now), Some(want));
        }
    }

    // Two processes that share a log, as during an upgrade, sweep the same files: one of them compresses a file. A file
    // that a killed process has left unfinished is written again.
    #[test]
    fn a_file_is_compressed_once() {
        let directory = new_directory("part");
        let (path, part) = (directory.join("a.log"), directory.join("a.log.part"));
        let text = "the lines of the log\n".repeat(1000);
        fs::write(&path, &text).unwrap();
        let sweep = || compress(&path, SystemTime::now(), Compression::Gzip);
        let unfinished = b"from another process".repeat(1000);
        let other = lock_unfinished(&part).unwrap().unwrap();
        fs::write(&part, &unfinished).unwrap();
        sweep().unwrap();
        assert_eq!(fs::read(&part).unwrap(), unfinished);
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
        drop(other);
        sweep().unwrap();
        assert_eq!(decompressed(&directory.join("a.log.gz")), text);
        // Another process has found the file before it was replaced.
        sweep().unwrap();
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 1);
        fs::remove_dir_all(&directory).unwrap();
    }

    // A compressed file beside the original may be one that another program left unfinished, so it does not count.
    #[test]
    fn an_original_is_compressed_over_an_older_file() {
        let directory = new_directory("done");
        let (path, done) = (directory.join("a.log"), directory.join("a.log.gz"));
        fs::write(&path, "the lines of the log").unwrap();
        fs::write(&done, "").unwrap();
        compress(&path, SystemTime::now(), Compression::Gzip).unwrap();
        assert_eq!(decompressed(&done), "the lines of the log");
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 1);
        // Another process has compressed and removed the original.
        compress(&path, SystemTime::now(), Compression::Gzip).unwrap();
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 1);
        fs::remove_dir_all(&directory).unwrap();
    }

    // An unfinished file is removed with its log file, but not while another process has the lock.
    #[test]
    fn an_abandoned_file_is_removed() {
        let directory = new_directory("abandoned");
        let part = directory.join("a.log.part");
        let other = lock_unfinished(&part).unwrap().unwrap();
        remove_abandoned(&part);
        assert!(part.exists());
        drop(other);
        remove_abandoned(&part);
        assert!(!part.exists());
        fs::remove_dir_all(&directory).unwrap();
    }

    // A user with write permission for the directory must not gain access to files elsewhere by a link, a FIFO or a
    // file of that user.
    #[test]
    fn links_are_not_followed() {
        let directory = new_directory("links");
        let (path, part, victim) = (directory.join("a.log"), directory.join("a.log.part"), directory.join("victim"));
        fs::write(&path, "the lines of the log").unwrap();
        fs::write(&victim, "another file").unwrap();
        for target in [&victim, &directory.join("absent")] {
            std::os::unix::fs::symlink(target, &part).unwrap();
            compress(&path, SystemTime::now(), Compression::Gzip).unwrap();
            assert_eq!(fs::read_to_string(&victim).unwrap(), "another file");
            assert!(!directory.join("absent").exists());
            assert_eq!(decompressed(&directory.join("a.log.gz")), "the lines of the log");
            fs::write(&path, "the lines of the log").unwrap();
        }
        rustix::fs::mknodat(rustix::fs::CWD, &part, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0).unwrap();
        compress(&path, SystemTime::now(), Compression::Gzip).unwrap();
        // A reader that has opened an earlier file does not get the content.
        fs::write(&path, "the lines of the log").unwrap();
        fs::write(&part, "").unwrap();
        let mut planted = File::open(&part).unwrap();
        compress(&path, SystemTime::now(), Compression::Gzip).unwrap();
        assert_eq!(planted.read(&mut [0; 1]).unwrap(), 0);
        std::os::unix::fs::symlink(&victim, &path).unwrap();
        assert!(compress(&path, SystemTime::now(), Compression::Gzip).is_err());
        fs::remove_dir_all(&directory).unwrap();
    }

    // Two processes may choose the same name at the same time.
    #[test]
    fn a_rolled_file_is_not_overwritten() {
        let directory = new_directory("taken");
        let (path, taken) = (directory.join("a.log"), directory.join("a-size.log"));
        fs::write(&path, "ours").unwrap();
        fs::write(&taken, "another's").unwrap();
        assert_eq!(rename_new(&path, &taken).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read_to_string(&taken).unwrap(), "another's");
        fs::remove_file(&taken).unwrap();
        rename_new(&path, &taken).unwrap();
        assert_eq!(fs::read_to_string(&taken).unwrap(), "ours");
        fs::remove_dir_all(&directory).unwrap();
    }
}
