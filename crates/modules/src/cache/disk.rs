//! Stored responses in a directory, so that they outlive the process and may exceed its memory.
//!
//! A response that is stored in memory is also queued for the directory's thread, which writes a file and renames it
//! into place. A lookup that finds nothing in memory looks into the directory's index; the files of the key are then
//! read on the pool for files. A file that is damaged, missing or of another key is a miss.

use std::collections::{HashMap, VecDeque};
use std::fs;
use std::hash::{BuildHasher as _, RandomState};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, LazyLock, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant, SystemTime};

use causeway_message::FieldMap;
use causeway_pipeline::LogLimit;
use sha2::{Digest as _, Sha256};

use super::file::{self, FileHead};
use super::store::{ReceivingMemory, VARIANTS_MAX};
use super::stored::StoredResponse;

/// Responses that wait to be written; further ones stay in memory only.
const WRITES_MAX: usize = 256;
/// The content of these, in bytes: it stays in memory although the store may have dropped it.
const WRITES_BYTES_MAX: usize = 64 << 20;
/// Files of one key that are read for a lookup, the latest ones.
const FILES_READ_MAX: usize = 16;
/// Bits that remember the keys that are removed while the directory is scanned.
const SCAN_MARKS: usize = 1 << 20;
/// Files that are put into the index, or removed from it, in one turn: workers wait for its lock meanwhile.
const BATCH: usize = 256;
/// The bytes that a file takes on the disk in addition to its own, for the bound.
const FILE_BYTES: u64 = 4096;

/// The digests in a file's name: of the key, and of the request fields that Vary names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FileId {
    key: u128,
    vary: u64,
}

impl FileId {
    /// Returns the name of the file.
    fn name(self) -> String {
        format!("{:032x}-{:016x}", self.key, self.vary)
    }

    fn parse(name: &str) -> Option<Self> {
        let (key, vary) = name.split_once('-').filter(|(key, vary)| key.len() == 32 && vary.len() == 16)?;
        Some(Self { key: u128::from_str_radix(key, 16).ok()?, vary: u64::from_str_radix(vary, 16).ok()? })
    }
}

/// The time of a lookup in files, and the memory for the content.
pub(super) struct ReadingFiles {
    pub(super) now: Instant,
    pub(super) wall: SystemTime,
    pub(super) receiving: ReceivingMemory,
}

/// The result of a lookup in files.
pub(super) enum FoundFile {
    /// The latest response that fits the request. Its memory is counted until it is stored.
    Match(Arc<StoredResponse>, ReceivingMemory),
    /// The key has responses to other requests only, or one for whose content there is no memory.
    Other,
    Nothing,
}

/// A use of a directory. The drop of the last one ends the directory's thread once that has done its work.
#[derive(Debug)]
pub(super) struct DiskHandle(Arc<Disk>);

impl std::ops::Deref for DiskHandle {
    type Target = Disk;

    fn deref(&self) -> &Disk {
        &self.0
    }
}

impl Drop for DiskHandle {
    fn drop(&mut self) {
        self.0.state().uses -= 1;
        self.0.changed.notify_one();
    }
}

/// A directory of responses.
#[derive(Debug)]
pub(super) struct Disk {
    directory: PathBuf,
    state: Mutex<DiskState>,
    /// There is work for the thread, or the directory is no longer used.
    changed: Condvar,
    /// The files of earlier processes are in the index, or all work is done.
    progressed: Condvar,
    log: LogLimit,
}

#[derive(Debug, Default)]
struct DiskState {
    index: Index,
    /// `Some` while the thread scans the directory.
    scan: Option<ScanMarks>,
    writes: VecDeque<Arc<PendingWrite>>,
    /// Files to remove. Each was in the index, but for one that was given up while it was written; so there are hardly
    /// more of them than files.
    removals: Vec<FileId>,
    /// The response whose file the thread is writing; `None` also after the write was given up.
    in_progress: Option<Arc<PendingWrite>>,
    bounds: DiskBounds,
    /// How many [`DiskHandle`]s there are.
    uses: usize,
    /// The thread has ended, because the directory was no longer used.
    has_ended: bool,
    /// The thread is doing work that it took from here.
    is_busy: bool,
}

#[derive(Debug)]
struct PendingWrite {
    id: FileId,
    key: Box<[u8]>,
    stored: Arc<StoredResponse>,
    now: Instant,
    wall: SystemTime,
}

impl DiskState {
    /// Gives up the writes for which `removes` returns true, also the one that the thread is executing.
    fn give_up(&mut self, removes: impl Fn(&PendingWrite) -> bool) {
        self.writes.retain(|write| !removes(write));
        self.in_progress.take_if(|write| removes(write));
    }

    /// Returns whether a restart at this moment would lose no removal and no write.
    fn is_idle(&self) -> bool {
        let is_waiting = match &self.scan {
            Some(marks) => marks.is_empty(),
            None => !self.is_busy,
        };
        is_waiting && self.writes.is_empty() && self.removals.is_empty()
    }

    /// Removes a file, if there is one.
    fn drop_file(&mut self, id: FileId) {
        if self.index.remove(id) {
            self.removals.push(id);
        }
        if let Some(marks) = &mut self.scan {
            marks.add(id.key);
        }
    }
}

/// The keys of which files are removed while the directory is scanned, since the index does not have these files yet: a
/// bit for each, which its digest selects. Another key with the same bit loses its files too.
#[derive(Debug)]
struct ScanMarks(Box<[u64]>);

impl ScanMarks {
    fn new() -> Self {
        Self(vec![0; SCAN_MARKS / 64].into())
    }

    fn place(key: u128) -> (usize, u64) {
        let bit = (key % SCAN_MARKS as u128) as usize;
        (bit / 64, 1 << (bit % 64))
    }

    fn add(&mut self, key: u128) {
        let (at, bit) = Self::place(key);
        self.0[at] |= bit;
    }

    fn contain(&self, key: u128) -> bool {
        let (at, bit) = Self::place(key);
        self.0[at] & bit != 0
    }

    fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }
}

/// The files of the directory. The oldest are removed first, those that were read since last are spared once. A
/// queue of its own, since a `ClockRing` does not keep its slots in the order of their age.
#[derive(Debug, Default)]
struct Index {
    /// The files of each key, the oldest first; at most [`VARIANTS_MAX`].
    keys: HashMap<u128, Vec<IndexedFile>>,
    order: VecDeque<FileId>,
    bytes: u64,
    files: usize,
}

#[derive(Debug, Clone, Copy)]
struct IndexedFile {
    vary: u64,
    bytes: u64,
    is_used: bool,
}

impl Index {
    /// Adds a file, the latest of its key. Returns the key's oldest one if it has too many, which is then removed.
    fn insert(&mut self, id: FileId, bytes: u64) -> Option<FileId> {
        self.remove(id);
        let files = self.keys.entry(id.key).or_default();
        files.push(IndexedFile { vary: id.vary, bytes, is_used: false });
        let oldest = (files.len() > VARIANTS_MAX).then(|| FileId { vary: files[0].vary, ..id });
        self.order.push_back(id);
        self.bytes += bytes;
        self.files += 1;
        oldest.filter(|oldest| self.remove(*oldest))
    }

    /// Returns whether the file was in the index. Its place in the order stays until its turn.
    fn remove(&mut self, id: FileId) -> bool {
        let Some(files) = self.keys.get_mut(&id.key) else { return false };
        let Some(at) = files.iter().position(|file| file.vary == id.vary) else { return false };
        self.bytes -= files.remove(at).bytes;
        self.files -= 1;
        if files.is_empty() {
            self.keys.remove(&id.key);
        }
        // Otherwise a file that is written again and again would have many places.
        if self.order.len() > 2 * self.files + 64 {
            let keys = &self.keys;
            let mut seen = std::collections::HashSet::new();
            // From the end: a file's latest place is the valid one.
            let mut kept: Vec<FileId> = self
                .order
                .iter()
                .rev()
                .filter(|id| keys.get(&id.key).is_some_and(|files| files.iter().any(|file| file.vary == id.vary)))
                .filter(|id| seen.insert((id.key, id.vary)))
                .copied()
                .collect();
            kept.reverse();
            self.order = kept.into();
        }
        true
    }

    /// Removes files until the bounds hold, at most [`BATCH`], and adds them to `removed`.
    fn shrink(&mut self, bounds: DiskBounds, removed: &mut Vec<FileId>) {
        let most = removed.len() + BATCH;
        while (self.bytes > bounds.bytes || self.files > bounds.files) && removed.len() < most {
            let Some(id) = self.order.pop_front() else { break };
            let files = self.keys.get_mut(&id.key);
            match files.and_then(|files| files.iter_mut().find(|file| file.vary == id.vary)) {
                Some(file) if file.is_used => {
                    file.is_used = false;
                    self.order.push_back(id);
                }
                Some(_) => {
                    self.remove(id);
                    removed.push(id);
                }
                None => {}
            }
        }
    }
}

/// The directories whose threads have not ended. A directory has one thread, whose index then has all files that this
/// process writes there: a file of another thread would escape removal.
static DISKS: LazyLock<Mutex<HashMap<PathBuf, Weak<Disk>>>> = LazyLock::new(Mutex::default);

/// Waits until the threads of all directories have removed and written the files that are queued, for a process that
/// ends: a removed response must not come back with the next process (RFC 9111 §4.4). Blocks until `until` at most.
pub(super) fn finish_all(until: Instant) {
    let disks: Vec<_> =
        DISKS.lock().unwrap_or_else(PoisonError::into_inner).values().filter_map(Weak::upgrade).collect();
    for disk in disks {
        disk.finish(until);
    }
}

/// The bounds of a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DiskBounds {
    pub(super) bytes: u64,
    pub(super) files: usize,
}

impl Default for DiskBounds {
    /// None: the plan that opens a directory may never be served, and must then remove no files.
    fn default() -> Self {
        Self { bytes: u64::MAX, files: usize::MAX }
    }
}

impl DiskHandle {
    /// Opens a directory, which is created if it does not exist, and starts its thread unless it has one. Without
    /// bounds, until [`Disk::set_bounds`].
    ///
    /// # Errors
    /// The directory cannot be created or written to.
    pub(super) fn open(directory: &Path) -> io::Result<Arc<Self>> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        let directory = fs::canonicalize(directory)?;
        // Before the first response: a directory that cannot be written to is the operator's mistake.
        let temporary = temporary(&directory);
        drop(create(&temporary)?);
        fs::remove_file(&temporary)?;
        let mut disks = DISKS.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(handle) = disks.get(&directory).and_then(Self::of) {
            return Ok(Arc::new(handle));
        }
        disks.retain(|_, disk| disk.strong_count() > 0);
        let disk = Arc::new(Disk::new(directory.clone()));
        let of_thread = Arc::clone(&disk);
        std::thread::Builder::new().name("cache files".to_owned()).spawn(move || run(&of_thread))?;
        disks.insert(directory, Arc::downgrade(&disk));
        Ok(Arc::new(Self(disk)))
    }

    /// Returns a further handle of a directory; `None` if its thread has ended.
    fn of(disk: &Weak<Disk>) -> Option<Self> {
        let disk = disk.upgrade()?;
        let mut state = disk.state();
        if state.has_ended {
            return None;
        }
        state.uses += 1;
        drop(state);
        Some(Self(disk))
    }

    /// Returns the directories in use.
    pub(super) fn all() -> Vec<Arc<Self>> {
        let disks = DISKS.lock().unwrap_or_else(PoisonError::into_inner);
        disks.values().filter_map(Self::of).map(Arc::new).collect()
    }
}

impl Disk {
    /// Creates it for a thread, which begins with a scan of the directory.
    fn new(directory: PathBuf) -> Self {
        let state = DiskState { scan: Some(ScanMarks::new()), is_busy: true, uses: 1, ..DiskState::default() };
        Self {
            directory,
            state: Mutex::new(state),
            changed: Condvar::new(),
            progressed: Condvar::new(),
            log: LogLimit::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, DiskState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the bounds. The directory's thread removes the files above them.
    pub(super) fn set_bounds(&self, bounds: DiskBounds) {
        self.state().bounds = bounds;
        self.changed.notify_one();
    }

    /// Queues a response for its file, and removes the files of those that it has replaced in memory: they must not
    /// come back (RFC 9111 §4). Beyond the queue's bound it stays in memory only.
    pub(super) fn write(
        &self,
        key: &[u8],
        stored: &Arc<StoredResponse>,
        replaced: &[Arc<StoredResponse>],
        now: Instant,
        wall: SystemTime,
    ) {
        let id = FileId { key: digest(key), vary: vary_digest(stored) };
        // Most often there is one, with the same file.
        let others = replaced.iter().filter(|old| old.vary.parts() != stored.vary.parts());
        let others: Vec<FileId> = others.map(|old| FileId { vary: vary_digest(old), ..id }).collect();
        let mut state = self.state();
        state.give_up(|write| write.id == id || others.contains(&write.id));
        others.into_iter().for_each(|other| state.drop_file(other));
        let bytes = stored.body.len() + state.writes.iter().map(|write| write.stored.body.len()).sum::<usize>();
        if state.writes.len() < WRITES_MAX && (bytes <= WRITES_BYTES_MAX || state.writes.is_empty()) {
            let (key, stored) = (key.into(), Arc::clone(stored));
            state.writes.push_back(Arc::new(PendingWrite { id, key, stored, now, wall }));
        } else {
            state.drop_file(id);
        }
        self.changed.notify_one();
    }

    /// Returns the files of a key, for [`find`](Self::find); `None` if there are no files.
    pub(super) fn files(&self, key: &[u8]) -> Option<Vec<FileId>> {
        let digest = digest(key);
        let mut state = self.state();
        let files = state.index.keys.get_mut(&digest)?;
        let id = |file: &mut IndexedFile| {
            file.is_used = true;
            FileId { key: digest, vary: file.vary }
        };
        let older = files.len().saturating_sub(FILES_READ_MAX);
        Some(files[older..].iter_mut().map(id).collect())
    }

    /// Reads the latest response to a request with these fields from files of its key. Of the others only the heads are
    /// read. A file that is damaged or missing is removed from the index. Blocks.
    pub(super) fn find(&self, files: &[FileId], key: &[u8], request: &FieldMap, reading: ReadingFiles) -> FoundFile {
        let ReadingFiles { now, wall, mut receiving } = reading;
        let mut found = FoundFile::Nothing;
        let mut matching = Vec::new();
        let mut scratch = Vec::new();
        for id in files {
            let Ok(opened) = self.open_file(*id, now, wall) else { continue };
            match opened {
                // Digests are in the names: another key has the same one with a probability of 2^-128.
                Some((_, head)) if head.key != key => {}
                Some((file, head)) if head.stored.vary.matches(request, &mut scratch) => {
                    matching.push((*id, file, head));
                }
                Some(_) => found = FoundFile::Other,
                None => self.drop_files([*id]),
            }
        }
        // RFC 9111 §4: the most recent one. Others are used only in place of damaged ones.
        matching.sort_by(|(.., one), (.., other)| other.stored.freshness.cmp_generated(&one.stored.freshness));
        for (id, file, head) in matching {
            if !receiving.grow(head.body_len()) {
                break;
            }
            match head.read_body(file) {
                Some(stored) => return FoundFile::Match(Arc::new(stored), receiving),
                None => self.drop_files([id]),
            }
        }
        found
    }

    /// Opens a file and reads its head; `None` if it is damaged or missing.
    ///
    /// # Errors
    /// If the system refuses to open it, such as without a free descriptor: the file may be good.
    fn open_file(&self, id: FileId, now: Instant, wall: SystemTime) -> io::Result<Option<(fs::File, FileHead)>> {
        let file = match fs::File::open(self.directory.join(id.name())) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let len = file.metadata()?.len();
        Ok(file::read_head(&file, len, now, wall).map(|head| (file, head)))
    }

    /// Removes the files of a key.
    pub(super) fn remove(&self, key: &[u8]) {
        let key = digest(key);
        let files = {
            let mut state = self.state();
            state.give_up(|write| write.id.key == key);
            if let Some(marks) = &mut state.scan {
                marks.add(key);
            }
            state.index.keys.get(&key).cloned().unwrap_or_default()
        };
        self.drop_files(files.into_iter().map(|file| FileId { key, vary: file.vary }));
    }

    fn drop_files(&self, ids: impl IntoIterator<Item = FileId>) {
        let mut state = self.state();
        ids.into_iter().for_each(|id| state.drop_file(id));
        self.changed.notify_one();
    }

    /// Removes the files for which `purges` returns true, and those that cannot be read; returns how many responses
    /// they had. Reads the heads of all files, and first waits for the scan: blocks for long.
    pub(super) fn purge(&self, purges: impl Fn(&[u8], &StoredResponse) -> bool) -> usize {
        let ids: Vec<FileId> = {
            let state = self.progressed.wait_while(self.state(), |state| state.scan.is_some());
            let mut state = state.unwrap_or_else(PoisonError::into_inner);
            state.give_up(|write| purges(&write.key, &write.stored));
            let of_key = |(key, files): (&u128, &Vec<IndexedFile>)| {
                let key = *key;
                files.iter().map(move |file| FileId { key, vary: file.vary }).collect::<Vec<_>>()
            };
            state.index.keys.iter().flat_map(of_key).collect()
        };
        let (now, wall) = (Instant::now(), SystemTime::now());
        let mut purged = 0;
        for id in ids {
            let opened = self.open_file(id, now, wall).ok().flatten();
            if opened.as_ref().is_none_or(|(_, head)| purges(&head.key, &head.stored)) {
                purged += usize::from(opened.is_some());
                self.state().index.remove(id);
                // Not by the thread, so that the file is gone when this returns. If the thread has replaced it
                // meanwhile, the new response is a miss.
                self.unlink(id);
            }
        }
        purged
    }

    /// Waits until the thread has done its work.
    fn finish(&self, until: Instant) {
        let left = until.saturating_duration_since(Instant::now());
        let finished = self.progressed.wait_timeout_while(self.state(), left, |state| !state.is_idle());
        let (state, waited) = finished.unwrap_or_else(PoisonError::into_inner);
        if waited.timed_out() {
            let (removals, writes) = (state.removals.len(), state.writes.len());
            tracing::warn!(directory = %self.directory.display(), removals, writes, "the cache's directory: ending with work undone");
        }
    }

    fn unlink(&self, id: FileId) {
        match fs::remove_file(self.directory.join(id.name())) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => self.report("removing a response", &error),
            _ => {}
        }
    }

    /// Returns the number of files and their bytes.
    pub(super) fn usage(&self) -> (usize, u64) {
        let state = self.state();
        (state.index.files, state.index.bytes)
    }

    #[cfg(test)]
    pub(super) fn is_of(&self, directory: &Path) -> bool {
        self.directory == directory
    }

    /// Waits until the thread has scanned the directory and done all work that is queued.
    #[cfg(test)]
    pub(super) fn wait_until_idle(&self) {
        let is_working = |state: &mut DiskState| state.scan.is_some() || !state.is_idle();
        drop(self.progressed.wait_while(self.state(), is_working));
    }

    /// Writes a file. One that is larger than the directory replaces its predecessor too, by none.
    fn write_file(&self, write: &PendingWrite) -> io::Result<()> {
        let PendingWrite { id, key, stored, now, wall } = write;
        let head = file::write(key, stored, *now, *wall);
        let bytes = (head.len() + stored.body.len()) as u64 + FILE_BYTES;
        if bytes > self.state().bounds.bytes {
            self.drop_files([*id]);
            return Ok(());
        }
        let temporary = temporary(&self.directory);
        let mut file = create(&temporary)?;
        let written = file.write_all(&head).and_then(|()| file.write_all(stored.body.as_slice()));
        drop(file);
        if written.is_err() || self.state().in_progress.is_none() {
            // At once: a part of a response would fill a disk that is full.
            let _ = fs::remove_file(&temporary);
            return written;
        }
        // Without the lock, which workers take.
        if let Err(error) = fs::rename(&temporary, self.directory.join(id.name())) {
            let _ = fs::remove_file(&temporary);
            return Err(error);
        }
        let mut state = self.state();
        // A removal either finds the file in the index, or has given up the write.
        if state.in_progress.take().is_none() {
            state.removals.push(*id);
            return Ok(());
        }
        // A removal of the file that this one has replaced is done.
        state.removals.retain(|removed| removed != id);
        let oldest = state.index.insert(*id, bytes);
        state.removals.extend(oldest);
        Ok(())
    }

    /// Puts the files of earlier processes into the index, except those that were removed meanwhile.
    fn scan(&self) {
        let found = self.list().unwrap_or_else(|error| {
            self.report("reading it", &error);
            Vec::new()
        });
        {
            // Growth would move all entries, under the lock.
            let Index { keys, order, .. } = &mut self.state().index;
            keys.reserve(found.len());
            order.reserve(found.len());
        }
        for files in found.chunks(BATCH) {
            let mut state = self.state();
            let DiskState { index, scan, removals, .. } = &mut *state;
            for (_, id, bytes) in files {
                let is_removed = scan.as_ref().is_some_and(|marks| marks.contain(id.key));
                removals.extend(if is_removed { Some(*id) } else { index.insert(*id, *bytes) });
            }
            drop(state);
            // Workers may wait for the lock.
            std::thread::yield_now();
        }
        self.state().scan = None;
        self.progressed.notify_all();
    }

    /// Returns the files of the directory with their bytes, the oldest first.
    fn list(&self) -> io::Result<Vec<(SystemTime, FileId, u64)>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.directory)? {
            let entry = match entry {
                Ok(entry) => entry,
                Err(error) => {
                    self.report("reading it", &error);
                    continue;
                }
            };
            let name = entry.file_name();
            // The file of another process may disappear meanwhile.
            let (Some(name), Ok(metadata)) = (name.to_str(), entry.metadata()) else { continue };
            let modified = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
            if let Some(id) = FileId::parse(name) {
                found.push((modified, id, metadata.len() + FILE_BYTES));
            } else if name.starts_with(WRITING)
                && modified.elapsed().is_ok_and(|time| time > WRITING_TIME_MAX)
                && let Err(error) = fs::remove_file(entry.path())
                && error.kind() != io::ErrorKind::NotFound
            {
                self.report("removing a file", &error);
            }
        }
        found.sort_unstable_by_key(|(modified, ..)| *modified);
        Ok(found)
    }

    /// Waits for work; `None` when all is done and the directory is no longer used.
    fn next_work(&self) -> Option<DiskWork> {
        let mut state = self.state();
        state.is_busy = false;
        loop {
            let DiskState { index, removals, bounds, .. } = &mut *state;
            index.shrink(*bounds, removals);
            if !state.removals.is_empty() {
                state.is_busy = true;
                return Some(DiskWork::Remove(std::mem::take(&mut state.removals)));
            }
            if let Some(write) = state.writes.pop_front() {
                state.in_progress = Some(Arc::clone(&write));
                state.is_busy = true;
                return Some(DiskWork::Write(write));
            }
            if state.uses == 0 {
                state.has_ended = true;
                self.progressed.notify_all();
                return None;
            }
            self.progressed.notify_all();
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn report(&self, action: &str, error: &io::Error) {
        if let Some(suppressed) = self.log.admit() {
            tracing::warn!(directory = %self.directory.display(), %error, suppressed, "the cache's directory: {action} failed");
        }
    }
}

/// Work of the thread.
enum DiskWork {
    Write(Arc<PendingWrite>),
    Remove(Vec<FileId>),
}

/// The thread of a directory.
fn run(disk: &Disk) {
    disk.scan();
    while let Some(work) = disk.next_work() {
        match work {
            DiskWork::Write(write) => {
                if let Err(error) = disk.write_file(&write) {
                    disk.report("writing a response", &error);
                    // The file that it would have replaced is outdated.
                    disk.drop_files([write.id]);
                }
                // Also after an error, so that the response is not held until the next write.
                disk.state().in_progress = None;
            }
            DiskWork::Remove(files) => files.into_iter().for_each(|id| disk.unlink(id)),
        }
    }
}

/// The start of the name of a file that is being written.
const WRITING: &str = "writing-";
/// A file that is being written and did not change for so long was left by a process that was killed.
const WRITING_TIME_MAX: Duration = Duration::from_secs(3600);

/// Returns a name for the file that is being written. Another process may use the directory too, in another container
/// with the same process id, so the name is random.
fn temporary(directory: &Path) -> PathBuf {
    directory.join(format!("{WRITING}{:016x}", RandomState::new().hash_one(std::process::id())))
}

/// Creates a file that only the server's user may read.
fn create(path: &Path) -> io::Result<fs::File> {
    fs::File::options().write(true).create_new(true).mode(0o600).open(path)
}

fn digest(key: &[u8]) -> u128 {
    let digest = Sha256::digest(key);
    u128::from_be_bytes(digest[..16].try_into().expect("a digest has 32 bytes"))
}

fn vary_digest(stored: &StoredResponse) -> u64 {
    let (names, values) = stored.vary.parts();
    let mut hasher = Sha256::new();
    for name in names {
        hasher.update(name.as_str().to_ascii_lowercase());
        hasher.update(b"\n");
    }
    hasher.update(b"\n");
    hasher.update(values);
    u64::from_be_bytes(hasher.finalize()[..8].try_into().expect("a digest has 32 bytes"))
}

#[cfg(test)]
mod tests {
    use super::super::store::tests::stored;
    use super::super::vary::Vary;
    use super::*;

    // docs/cache.md: a removal also reaches the files of an earlier process that the directory's thread has not found
    // yet.
    #[test]
    fn removals_during_the_scan() {
        let directory = std::env::temp_dir().join(format!("causeway-cache-scan-{}", std::process::id()));
        let _ = fs::remove_dir_all(&directory);
        fs::create_dir_all(&directory).unwrap();
        let (now, wall) = (Instant::now(), SystemTime::now());
        let response = stored(1, Vary::default(), now);
        let id = |key: &[u8]| FileId { key: digest(key), vary: vary_digest(&response) };
        for key in [&b"kept"[..], b"removed", b"purged"] {
            let head = file::write(key, &response, now, wall);
            fs::write(directory.join(id(key).name()), [&head[..], response.body.as_slice()].concat()).unwrap();
        }
        let disk = Arc::new(Disk::new(directory.clone()));
        disk.remove(b"removed");
        let purge = std::thread::spawn({
            let disk = Arc::clone(&disk);
            move || disk.purge(|key, _| key == b"purged")
        });
        disk.scan();
        assert_eq!(purge.join().unwrap(), 1);
        assert!(disk.files(b"kept").is_some() && disk.files(b"removed").is_none() && disk.files(b"purged").is_none());
        disk.state().uses = 0;
        while let Some(DiskWork::Remove(files)) = disk.next_work() {
            files.into_iter().for_each(|id| disk.unlink(id));
        }
        let left: Vec<_> = fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, [&*id(b"kept").name()]);
        fs::remove_dir_all(&directory).unwrap();
    }

    // RFC 9111 §4.4: a removed response does not come back with the next process, also if the directory is still
    // scanned when the process ends. docs/cache.md: the response to a purge means that the files are gone.
    #[test]
    fn removals_are_done_at_the_end() {
        let directory = std::env::temp_dir().join(format!("causeway-cache-end-{}", std::process::id()));
        let _ = fs::remove_dir_all(&directory);
        fs::create_dir_all(&directory).unwrap();
        let (now, wall) = (Instant::now(), SystemTime::now());
        let response = stored(1, Vary::default(), now);
        let path =
            |key: u32| directory.join(FileId { key: digest(&key.to_le_bytes()), vary: vary_digest(&response) }.name());
        for key in 0..200_u32 {
            let head = file::write(&key.to_le_bytes(), &response, now, wall);
            fs::write(path(key), [&head[..], response.body.as_slice()].concat()).unwrap();
        }
        let disk = DiskHandle::open(&directory).unwrap();
        (0..100_u32).for_each(|key| disk.remove(&key.to_le_bytes()));
        disk.finish(Instant::now() + Duration::from_secs(5));
        assert_eq!((0..200).filter(|key| path(*key).exists()).count(), 100);
        assert_eq!(disk.purge(|_, _| true), 100);
        assert!(!(0..200).any(|key| path(key).exists()));
        fs::remove_dir_all(&directory).unwrap();
    }

    // docs/cache.md: several processes may use one directory, each in a container where its process id is 1.
    #[test]
    fn names_of_files_that_are_written() {
        let directory = std::env::temp_dir();
        let (one, other) = (temporary(&directory), temporary(&directory));
        assert_ne!(one, other);
        drop(create(&one).unwrap());
        assert_eq!(create(&one).unwrap_err().kind(), io::ErrorKind::AlreadyExists, "another process writes it");
        fs::remove_file(one).unwrap();
    }

    // docs/cache.md: all files of an earlier process are found, and those above the bounds are removed, in several
    // turns.
    #[test]
    fn more_files_than_a_batch() {
        let directory = std::env::temp_dir().join(format!("causeway-cache-batch-{}", std::process::id()));
        let _ = fs::remove_dir_all(&directory);
        fs::create_dir_all(&directory).unwrap();
        let files = 2 * BATCH as u128 + 10;
        for key in 0..files {
            fs::write(directory.join(FileId { key, vary: 0 }.name()), b"x").unwrap();
        }
        let disk = DiskHandle::open(&directory).unwrap();
        disk.wait_until_idle();
        assert_eq!(disk.usage(), (files as usize, files as u64 * (1 + FILE_BYTES)));
        disk.set_bounds(DiskBounds { files: 10, ..DiskBounds::default() });
        let begun = Instant::now();
        while fs::read_dir(&directory).unwrap().count() > 10 {
            assert!(begun.elapsed() < Duration::from_secs(60));
        }
        assert_eq!(disk.usage().0, 10);
        fs::remove_dir_all(&directory).unwrap();
    }

    // docs/cache.md: the files of an earlier process are used. One that cannot be removed costs only its own place.
    #[test]
    fn a_file_that_cannot_be_removed() {
        let directory = std::env::temp_dir().join(format!("causeway-cache-stuck-{}", std::process::id()));
        let _ = fs::remove_dir_all(&directory);
        let stuck = directory.join(format!("{WRITING}1-1"));
        fs::create_dir_all(&stuck).unwrap();
        fs::File::open(&stuck).unwrap().set_modified(SystemTime::now() - 2 * WRITING_TIME_MAX).unwrap();
        let now = Instant::now();
        let response = stored(1, Vary::default(), now);
        let id = FileId { key: digest(b"kept"), vary: vary_digest(&response) };
        let head = file::write(b"kept", &response, now, SystemTime::now());
        fs::write(directory.join(id.name()), [&head[..], response.body.as_slice()].concat()).unwrap();
        let disk = Disk::new(directory.clone());
        disk.scan();
        assert!(disk.files(b"kept").is_some());
        fs::remove_dir_all(&directory).unwrap();
    }
}
