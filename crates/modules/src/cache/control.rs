//! Statistics of the caches of the process, and removal of responses.

use std::sync::Arc;
use std::time::Instant;

use super::disk::{self, DiskHandle};
use super::key;
use super::store::{Store, Usage};
use super::stored::StoredResponse;

/// Which stored responses are removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Purge {
    /// All responses.
    All,
    /// The responses for this URI, such as `https://example.com/a?b`.
    Uri(String),
    /// The responses whose URI starts with this text.
    Prefix(String),
    /// The responses with this tag in `Surrogate-Key`, `Cache-Tag` or `Cache-Tags`.
    Tag(String),
}

/// The number of removed responses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Purged {
    /// From memory.
    pub responses: usize,
    /// From directories; most of them were also in memory.
    pub files: usize,
}

/// Removes stored responses of all caches. O(stored responses); reads all files, so it blocks.
pub fn purge(which: &Purge) -> Purged {
    purge_of(&Store::all(), &DiskHandle::all(), which)
}

/// Removes stored responses of these stores and directories.
pub(super) fn purge_of(stores: &[Arc<Store>], disks: &[Arc<DiskHandle>], which: &Purge) -> Purged {
    // As it stands too: the text of a template has no scheme and host.
    let lowered = match which {
        Purge::Uri(text) | Purge::Prefix(text) => key::with_lower_host(text),
        Purge::All | Purge::Tag(_) => String::new(),
    };
    let purges = |text: &[u8], stored: &StoredResponse| match which {
        Purge::All => true,
        Purge::Uri(uri) => [uri, &lowered].iter().any(|uri| key::uri(text) == uri.as_bytes()),
        Purge::Prefix(prefix) => [prefix, &lowered].iter().any(|prefix| key::uri(text).starts_with(prefix.as_bytes())),
        Purge::Tag(tag) => stored.has_tag(tag.as_bytes()),
    };
    let in_memory = || stores.iter().map(|store| store.purge(purges)).sum::<usize>();
    let responses = in_memory();
    let files = disks.iter().map(|disk| disk.purge(purges)).sum();
    // As in `Tiers::remove`: a file may have been read into memory meanwhile.
    Purged { responses: responses + in_memory(), files }
}

/// Waits until the files of removed responses are gone, before the process ends. Blocks until `until` at most.
pub fn finish(until: Instant) {
    disk::finish_all(until);
}

/// Returns the statistics of the caches of the process. O(stored responses).
pub fn usage() -> Usage {
    let mut sum = Store::ended_usage();
    Store::all().iter().for_each(|store| sum.add(&store.usage()));
    for (files, bytes) in DiskHandle::all().iter().map(|disk| disk.usage()) {
        sum.files += files;
        sum.file_bytes += bytes;
    }
    sum
}
