//! Statistics of the caches of the process, and removal of responses.

use super::key;
use super::store::{Store, Usage};

/// Which stored responses are removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Purge {
    /// All of them.
    All,
    /// Those for this URI, such as `https://example.com/a?b`.
    Uri(String),
    /// Those whose URI starts with this text.
    Prefix(String),
    /// Those with this tag in `Surrogate-Key`, `Cache-Tag` or `Cache-Tags`.
    Tag(String),
}

/// Removes stored responses of all caches; returns how many they were. O(stored responses).
pub fn purge(which: &Purge) -> usize {
    let purge = |store: &Store| {
        store.purge(|text, stored| match which {
            Purge::All => true,
            Purge::Uri(uri) => key::uri(text) == uri.as_bytes(),
            Purge::Prefix(prefix) => key::uri(text).starts_with(prefix.as_bytes()),
            Purge::Tag(tag) => stored.has_tag(tag.as_bytes()),
        })
    };
    Store::all().iter().map(|store| purge(store)).sum()
}

/// Returns the statistics of the caches of the process. O(stored responses).
pub fn usage() -> Usage {
    let mut sum = Usage::default();
    Store::all().iter().for_each(|store| sum.add(&store.usage()));
    sum
}
