//! Which certificate a handshake is answered with.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::SystemTime;

use arc_swap::ArcSwap;

use super::Certificate;

/// The certificates of one configuration, found by name. Handshakes read it without a lock; a renewal replaces it as a whole.
#[derive(Debug, Default)]
pub struct Store {
    index: ArcSwap<Index>,
}

/// Newest first, everywhere.
#[derive(Debug, Default)]
struct Index {
    all: Vec<Arc<Certificate>>,
    by_name: HashMap<String, Vec<Arc<Certificate>>>,
}

impl Store {
    /// Puts these in the place of all that are there.
    pub(crate) fn replace(&self, certificates: impl IntoIterator<Item = Arc<Certificate>>) {
        let mut all: Vec<_> = certificates.into_iter().collect();
        all.sort_by_key(|certificate| std::cmp::Reverse(certificate.not_before()));
        let mut by_name: HashMap<String, Vec<_>> = HashMap::new();
        for certificate in &all {
            for name in certificate.names() {
                by_name.entry(name.clone()).or_default().push(Arc::clone(certificate));
            }
        }
        self.index.store(Arc::new(Index { all, by_name }));
    }

    /// The certificate for a server name, in any case, or an address: the newest valid one that names it, or else one whose wildcards
    /// stand for its first labels. With tags it must have one of them, and then any that has will do where none has the name, as
    /// in Caddy. Without a name only tags find one.
    pub fn find(&self, server_name: Option<&str>, tags: &[String]) -> Option<Arc<Certificate>> {
        let index = self.index.load();
        let tagged = |certificate: &&Arc<Certificate>| {
            tags.is_empty() || certificate.tags().iter().any(|tag| tags.contains(tag))
        };
        let named = server_name.and_then(|name| index.named(&normal(name), tagged));
        let found = named.or_else(|| {
            let any = index.all.iter().filter(|_| !tags.is_empty()).filter(tagged);
            newest_valid(any)
        });
        found.cloned()
    }
}

impl Index {
    fn named(&self, name: &str, fits: impl Fn(&&Arc<Certificate>) -> bool) -> Option<&Arc<Certificate>> {
        let pick = |name: &str| newest_valid(self.by_name.get(name)?.iter().filter(&fits));
        if let Some(found) = pick(name) {
            return Some(found);
        }
        if name.parse::<IpAddr>().is_ok() {
            return None;
        }
        // `*.b.c`, then `*.*.c`, then `*.*.*`.
        let mut rest = name;
        let mut stars = String::new();
        while let Some((_, parent)) = rest.split_once('.') {
            stars.push_str("*.");
            if let Some(found) = pick(&format!("{stars}{parent}")) {
                return Some(found);
            }
            rest = parent;
        }
        stars.push('*');
        pick(&stars)
    }
}

/// The first that is valid now, or else the first at all: a client may know better than our clock.
fn newest_valid<'c>(mut candidates: impl Iterator<Item = &'c Arc<Certificate>>) -> Option<&'c Arc<Certificate>> {
    let first = candidates.next()?;
    let mut now = None;
    let mut is_valid = |certificate: &Certificate| certificate.is_valid(*now.get_or_insert_with(SystemTime::now));
    let mut candidates = candidates.peekable();
    // One candidate needs no clock.
    if candidates.peek().is_none() || is_valid(first) {
        return Some(first);
    }
    candidates.find(|certificate| is_valid(certificate)).or(Some(first))
}

/// Lower case, and addresses in their one spelling.
fn normal(name: &str) -> String {
    let name = name.trim().trim_end_matches('.').to_ascii_lowercase();
    let bare = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(&name);
    bare.parse::<IpAddr>().map_or(name.clone(), |ip| ip.to_string())
}

#[cfg(test)]
mod tests;
