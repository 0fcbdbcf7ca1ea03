//! Selects the certificate for a handshake.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasher as _, RandomState};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::SystemTime;

use arc_swap::ArcSwap;
use rustls::sign::CertifiedKey;

use super::{Certificate, CertificateSelection};

/// How many parts the index has. A renewal copies one part, not the names of the whole configuration.
const PARTS: usize = 64;

/// The certificates of one configuration, indexed by name. Handshakes read the index without a lock; a renewal replaces
/// the parts of the index that hold the certificate's names.
pub struct Store {
    parts: Box<[ArcSwap<IndexPart>]>,
    /// Conditions by which certificates have further tags.
    selections: Vec<CertificateSelection>,
    /// Certificates with tags, newest first.
    tagged: ArcSwap<Vec<Arc<Certificate>>>,
    hasher: RandomState,
}

/// Each list of certificates is sorted by `not_before`, newest first.
type IndexPart = HashMap<Arc<str>, Vec<Arc<Certificate>>>;

impl Store {
    /// Indexes the certificates. Those that one of `selections` admits have its tag too.
    pub(crate) fn new(
        certificates: impl IntoIterator<Item = Arc<Certificate>>,
        selections: Vec<CertificateSelection>,
    ) -> Self {
        let hasher = RandomState::new();
        let mut parts: Vec<IndexPart> = (0..PARTS).map(|_| HashMap::new()).collect();
        let mut tagged = Vec::new();
        for certificate in certificates {
            for name in certificate.names() {
                add(&mut parts[part_of(&hasher, name)], name, &certificate);
            }
            if has_tags(&certificate, &selections) {
                tagged.push(certificate);
            }
        }
        tagged.sort_by_key(|certificate| Reverse(certificate.not_before()));
        let parts = parts.into_iter().map(ArcSwap::from_pointee).collect();
        Self { parts, selections, tagged: ArcSwap::from_pointee(tagged), hasher }
    }

    /// Removes `old` and adds `new`, both without configured tags. A handshake meanwhile finds the one or the other,
    /// never neither.
    pub(crate) fn swap(&self, old: Option<&Arc<Certificate>>, new: Option<&Arc<Certificate>>) {
        let names = [new, old].into_iter().flatten().flat_map(|certificate| certificate.names());
        for name in names {
            let part = &self.parts[part_of(&self.hasher, name)];
            part.rcu(|part| {
                let mut part = IndexPart::clone(part);
                let list = part.remove(&**name).unwrap_or_default();
                let is_old = |certificate: &Arc<Certificate>| old.is_some_and(|old| Arc::ptr_eq(old, certificate));
                let is_new = |certificate: &Arc<Certificate>| new.is_some_and(|new| Arc::ptr_eq(new, certificate));
                let list: Vec<_> =
                    list.into_iter().filter(|certificate| !is_old(certificate) && !is_new(certificate)).collect();
                if !list.is_empty() {
                    part.insert(Arc::from(&**name), list);
                }
                if let Some(new) = new.filter(|new| new.names().contains(name)) {
                    add(&mut part, name, new);
                }
                part
            });
        }
        if [old, new].into_iter().flatten().any(|certificate| has_tags(certificate, &self.selections)) {
            self.tagged.rcu(|tagged| {
                let is_swapped =
                    |known: &Arc<Certificate>| [old, new].into_iter().flatten().any(|one| Arc::ptr_eq(one, known));
                let mut list: Vec<_> = tagged.iter().filter(|known| !is_swapped(known)).cloned().collect();
                if let Some(new) = new.filter(|new| has_tags(new, &self.selections)) {
                    insert(&mut list, new);
                }
                list
            });
        }
    }

    /// Returns each name that has a certificate, with the end of the newest certificate's validity. O(names).
    pub fn expiries(&self) -> Vec<(Arc<str>, SystemTime)> {
        let mut all = Vec::new();
        for part in &self.parts {
            let part = part.load();
            all.extend(part.iter().filter_map(|(name, list)| Some((Arc::clone(name), list.first()?.not_after()))));
        }
        all
    }

    /// Finds the certificate for a server name (in any case) or an IP address. Returns the newest valid one with that
    /// name, or else the newest valid one whose wildcard labels match the name's first labels. Of several valid ones
    /// the newest that `is_usable` accepts is preferred; it is not called for a single one.
    ///
    /// If `tags` is not empty, the certificate must have one of them; if no such certificate has the name, any
    /// certificate with one of the tags is returned, as in Caddy. Without a server name, only tags find a certificate.
    ///
    /// Lock-free, but allocates for the normalised name and for each wildcard tried.
    pub fn find(
        &self,
        server_name: Option<&str>,
        tags: &[String],
        is_usable: &dyn Fn(&CertifiedKey) -> bool,
    ) -> Option<Arc<Certificate>> {
        let fits = |certificate: &&Arc<Certificate>| tags.is_empty() || self.has_one_of(certificate, tags);
        let named = server_name.and_then(|name| self.named(&normal(name), fits, is_usable));
        if named.is_some() || tags.is_empty() {
            return named;
        }
        newest_usable(self.tagged.load().iter().filter(fits), is_usable).cloned()
    }

    fn has_one_of(&self, certificate: &Certificate, tags: &[String]) -> bool {
        let wanted = |selection: &&CertificateSelection| tags.contains(&selection.tag);
        certificate.tags().iter().any(|tag| tags.contains(tag))
            || self.selections.iter().filter(wanted).any(|selection| selection.admits(certificate))
    }

    fn named(
        &self,
        name: &str,
        fits: impl Fn(&&Arc<Certificate>) -> bool,
        is_usable: &dyn Fn(&CertifiedKey) -> bool,
    ) -> Option<Arc<Certificate>> {
        let pick = |name: &str| {
            let part = self.parts[part_of(&self.hasher, name)].load();
            newest_usable(part.get(name)?.iter().filter(&fits), is_usable).cloned()
        };
        if let Some(found) = pick(name) {
            return Some(found);
        }
        if name.parse::<IpAddr>().is_ok() {
            return None;
        }
        // Tries `*.b.c`, then `*.*.c`, then `*.*.*`.
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

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: usize = self.parts.iter().map(|part| part.load().len()).sum();
        f.debug_struct("Store").field("names", &names).finish_non_exhaustive()
    }
}

/// Whether the certificate has configured tags, or that of one of `selections`.
fn has_tags(certificate: &Certificate, selections: &[CertificateSelection]) -> bool {
    !certificate.tags().is_empty() || selections.iter().any(|selection| selection.admits(certificate))
}

fn part_of(hasher: &RandomState, name: &str) -> usize {
    // The remainder is below 64.
    (hasher.hash_one(name) % PARTS as u64) as usize
}

/// Adds a certificate to the list of `name`.
fn add(part: &mut IndexPart, name: &str, certificate: &Arc<Certificate>) {
    let list = match part.get_mut(name) {
        Some(list) => list,
        None => part.entry(Arc::from(name)).or_default(),
    };
    insert(list, certificate);
}

/// Adds a certificate before the older ones. Of equally old certificates the one that was added first stays first.
fn insert(list: &mut Vec<Arc<Certificate>>, certificate: &Arc<Certificate>) {
    let at = list.partition_point(|other| other.not_before() >= certificate.not_before());
    list.insert(at, Arc::clone(certificate));
}

/// The first candidate that is valid now and that `is_usable` accepts, or else the first that is valid, or else the
/// first of all: this machine's clock may be wrong.
fn newest_usable<'c>(
    mut candidates: impl Iterator<Item = &'c Arc<Certificate>>,
    is_usable: &dyn Fn(&CertifiedKey) -> bool,
) -> Option<&'c Arc<Certificate>> {
    let first = candidates.next()?;
    let mut candidates = candidates.peekable();
    // A single candidate is returned without a read of the clock.
    if candidates.peek().is_none() {
        return Some(first);
    }
    let now = SystemTime::now();
    let mut valid = None;
    for candidate in std::iter::once(first).chain(candidates).filter(|candidate| candidate.is_valid(now)) {
        if is_usable(&candidate.signed()) {
            return Some(candidate);
        }
        valid = valid.or(Some(candidate));
    }
    valid.or(Some(first))
}

/// Lower case, without spaces around it or a final dot; IP addresses without brackets and in canonical form.
fn normal(name: &str) -> String {
    let name = name.trim().trim_end_matches('.').to_ascii_lowercase();
    let bare = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(&name);
    bare.parse::<IpAddr>().map_or(name.clone(), |ip| ip.to_string())
}

#[cfg(test)]
mod tests;
