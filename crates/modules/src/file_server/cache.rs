//! What a worker remembers of the files that it served: the small ones whole, the large ones open.
//!
//! One cache on each worker for file servers of the same options; it outlives a reload that keeps them. Beyond a bound,
//! entries go by the clock algorithm: a hand goes round, who was used since it last came by stays.

use std::borrow::Cow;
use std::collections::HashMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

use causeway_message::Chunk;
use causeway_pipeline::FileSlice;

use super::disk::{File, Seen};

/// Octets of content and bookkeeping that a cache holds.
const OCTETS_MAX: usize = 16 * 1024 * 1024;
/// Files that a cache holds open.
const OPEN_MAX: usize = 128;
/// What an entry costs beside its content and path, roughly.
const ENTRY_OCTETS: usize = 512;
/// How long a file is taken for unchanged.
const TRUSTED: Duration = Duration::from_secs(1);

/// A file, ready to be answered with.
pub(super) struct Entry {
    pub(super) content: Content,
    /// Octets of content.
    pub(super) len: u64,
    /// What the file system said of it.
    pub(super) seen: Seen,
    pub(super) content_type: Option<Cow<'static, str>>,
    pub(super) etag: Option<Box<str>>,
    /// Seconds since 1970, and as a field value.
    pub(super) modified: Option<(u64, Box<str>)>,
}

pub(super) enum Content {
    Small(Chunk),
    Large(FileSlice),
}

impl From<File> for Entry {
    /// On the worker: the chunk's count is its own.
    fn from(file: File) -> Self {
        let (content, len) = match file.content {
            super::disk::Content::Small(octets) => {
                let len = octets.len() as u64;
                (Content::Small(Chunk::from(octets)), len)
            }
            super::disk::Content::Large(file, len) => (Content::Large(FileSlice { file, at: 0, len }), len),
        };
        let (seen, content_type) = (file.seen, file.content_type);
        Self { content, len, seen, content_type, etag: file.etag, modified: file.modified }
    }
}

/// What the cache says of a path.
pub(super) enum Found {
    /// It was looked at within the last second.
    Fresh(Rc<Entry>),
    /// It is to be looked at again; whoever asks within the next second is told that it is fresh.
    Stale(Rc<Entry>),
    Nothing,
}

struct Slot {
    path: Rc<[u8]>,
    entry: Rc<Entry>,
    looked: Instant,
    used: bool,
}

#[derive(Default)]
pub(super) struct Cache {
    places: HashMap<Rc<[u8]>, usize>,
    slots: Vec<Slot>,
    hand: usize,
    octets: usize,
    open: usize,
    scratch: Vec<u8>,
}

impl Cache {
    pub(super) fn take_scratch(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.scratch)
    }

    pub(super) fn give_scratch(&mut self, scratch: Vec<u8>) {
        self.scratch = scratch;
    }

    pub(super) fn find(&mut self, path: &[u8], now: Instant) -> Found {
        let Some(&at) = self.places.get(path) else { return Found::Nothing };
        let slot = &mut self.slots[at];
        slot.used = true;
        let entry = Rc::clone(&slot.entry);
        if now.saturating_duration_since(slot.looked) < TRUSTED {
            return Found::Fresh(entry);
        }
        slot.looked = now;
        Found::Stale(entry)
    }

    /// It was looked at and has not changed.
    pub(super) fn touch(&mut self, path: &[u8], now: Instant) {
        if let Some(&at) = self.places.get(path) {
            self.slots[at].looked = now;
        }
    }

    /// Remembers a file; what does not fit in beside it goes.
    pub(super) fn put(&mut self, path: &[u8], entry: Rc<Entry>, now: Instant) {
        self.remove(path);
        let (octets, open) = cost(path, &entry);
        while !self.slots.is_empty() && (self.octets + octets > OCTETS_MAX || self.open + open > OPEN_MAX) {
            self.evict(self.open + open > OPEN_MAX);
        }
        let path: Rc<[u8]> = path.into();
        self.octets += octets;
        self.open += open;
        self.places.insert(Rc::clone(&path), self.slots.len());
        // Not used yet: a file that is asked for once goes before one that is asked for again.
        self.slots.push(Slot { path, entry, looked: now, used: false });
    }

    pub(super) fn remove(&mut self, path: &[u8]) {
        if let Some(&at) = self.places.get(path) {
            self.take_out(at);
        }
    }

    /// Takes out the first entry that was not used since the hand last came by; `large` asks for one that is open.
    fn evict(&mut self, large: bool) {
        loop {
            self.hand = if self.hand < self.slots.len() { self.hand } else { 0 };
            let slot = &mut self.slots[self.hand];
            let is_meant = !large || matches!(slot.entry.content, Content::Large(_));
            if is_meant && !std::mem::take(&mut slot.used) {
                // The last slot comes here, so the hand stays.
                return self.take_out(self.hand);
            }
            self.hand += 1;
        }
    }

    fn take_out(&mut self, at: usize) {
        let slot = self.slots.swap_remove(at);
        self.places.remove(&slot.path);
        if let Some(moved) = self.slots.get(at) {
            let place = self.places.get_mut(&moved.path).expect("every slot has its place");
            *place = at;
        }
        let (octets, open) = cost(&slot.path, &slot.entry);
        self.octets -= octets;
        self.open -= open;
    }
}

/// Octets and open files that an entry counts for.
fn cost(path: &[u8], entry: &Entry) -> (usize, usize) {
    match &entry.content {
        Content::Small(chunk) => (ENTRY_OCTETS + path.len() + chunk.len(), 0),
        Content::Large(_) => (ENTRY_OCTETS + path.len(), 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small(len: usize) -> Rc<Entry> {
        let content = Content::Small(Chunk::from(vec![0; len]));
        let seen = Seen::default();
        Rc::new(Entry { content, len: len as u64, seen, content_type: None, etag: None, modified: None })
    }

    fn is_there(cache: &mut Cache, path: &str, now: Instant) -> bool {
        !matches!(cache.find(path.as_bytes(), now), Found::Nothing)
    }

    #[test]
    fn it_stays_within_its_bound_and_keeps_what_is_used() {
        let (mut cache, now) = (Cache::default(), Instant::now());
        cache.put(b"/kept", small(1000), now);
        for round in 0..2000 {
            assert!(is_there(&mut cache, "/kept", now), "round {round}");
            let path = format!("/{round}");
            cache.put(path.as_bytes(), small(60_000), now);
            assert!(cache.octets <= OCTETS_MAX && cache.places.len() == cache.slots.len());
        }
        assert!(cache.slots.len() > 250);
        let sum: usize = cache.slots.iter().map(|slot| cost(&slot.path, &slot.entry).0).sum();
        assert_eq!(cache.octets, sum);
        for (path, &at) in &cache.places {
            assert_eq!(cache.slots[at].path, *path);
        }
    }

    #[test]
    fn open_files_have_a_bound_of_their_own() {
        let (mut cache, now) = (Cache::default(), Instant::now());
        let file = std::sync::Arc::new(std::fs::File::open("/dev/null").expect("it is everywhere"));
        cache.put(b"/small", small(10), now);
        for round in 0..500 {
            let slice = FileSlice { file: std::sync::Arc::clone(&file), at: 0, len: 1 << 20 };
            let entry = Entry { content: Content::Large(slice), ..Rc::into_inner(small(0)).expect("one holder") };
            cache.put(format!("/{round}").as_bytes(), Rc::new(entry), now);
            assert!(cache.open <= OPEN_MAX);
        }
        assert_eq!(cache.open, OPEN_MAX);
        assert!(is_there(&mut cache, "/small", now));
        assert_eq!(std::sync::Arc::strong_count(&file), OPEN_MAX + 1);
    }

    #[test]
    fn one_looks_again_while_others_are_told_that_it_is_fresh() {
        let (mut cache, now) = (Cache::default(), Instant::now());
        cache.put(b"/a", small(1), now);
        assert!(matches!(cache.find(b"/a", now + Duration::from_millis(999)), Found::Fresh(_)));
        let later = now + TRUSTED;
        assert!(matches!(cache.find(b"/a", later), Found::Stale(_)));
        assert!(matches!(cache.find(b"/a", later), Found::Fresh(_)));
        cache.remove(b"/a");
        assert!(matches!(cache.find(b"/a", later), Found::Nothing));
        assert_eq!(cache.octets, 0);
    }
}
