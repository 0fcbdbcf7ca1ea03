//! Networks that the server fetches from another server while requests read them.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use arc_swap::ArcSwap;
use ipnet::IpNet;

/// A list of networks that are fetched from URLs. Requests of all workers read the current list, without a lock.
#[derive(Debug)]
pub struct FetchedRanges {
    urls: Box<[String]>,
    current: ArcSwap<Vec<IpNet>>,
}

impl FetchedRanges {
    fn new(urls: &[String], first: Vec<IpNet>) -> Self {
        Self { urls: urls.into(), current: ArcSwap::from_pointee(first) }
    }

    /// Returns the URLs of the list's parts, in order.
    pub fn urls(&self) -> &[String] {
        &self.urls
    }

    /// Replaces the list, for the requests that read it from now on. Returns whether the new list is different.
    pub fn replace(&self, ranges: Vec<IpNet>) -> bool {
        let ranges = Arc::new(ranges);
        self.current.swap(Arc::clone(&ranges)) != ranges
    }

    pub(super) fn contains(&self, ip: IpAddr) -> bool {
        self.current.load().iter().any(|range| range.contains(&ip))
    }
}

/// The lists of a server's plans, by their URLs. A plan keeps its lists in it, so that they outlive a reload that keeps
/// the URLs.
#[derive(Default)]
pub(crate) struct FetchedTable(Mutex<Vec<Weak<FetchedRanges>>>);

impl FetchedTable {
    /// Returns the list of these URLs; a new one, equal to `first`, if no plan has it.
    pub(crate) fn get(&self, urls: &[String], first: impl FnOnce() -> Vec<IpNet>) -> Arc<FetchedRanges> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|ranges| ranges.strong_count() > 0);
        if let Some(ranges) = known.iter().filter_map(Weak::upgrade).find(|ranges| *ranges.urls == *urls) {
            return ranges;
        }
        let ranges = Arc::new(FetchedRanges::new(urls, first()));
        known.push(Arc::downgrade(&ranges));
        ranges
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn networks(text: &str) -> Vec<IpNet> {
        vec![text.parse().unwrap()]
    }

    #[test]
    fn the_next_plan_inherits_the_fetched_lists() {
        let table = FetchedTable::default();
        let urls = |url: &str| [url.to_owned()];
        let ranges = table.get(&urls("a"), || networks("192.0.2.0/24"));
        assert!(ranges.replace(networks("198.51.100.0/24")) && !ranges.replace(networks("198.51.100.0/24")));
        let next = table.get(&urls("a"), || unreachable!());
        assert!(Arc::ptr_eq(&ranges, &next) && next.contains([198, 51, 100, 1].into()));
        assert!(!Arc::ptr_eq(&ranges, &table.get(&urls("b"), Vec::new)));
        drop((ranges, next));
        let first = table.get(&urls("a"), || networks("192.0.2.0/24"));
        assert!(first.contains([192, 0, 2, 1].into()) && !first.contains([198, 51, 100, 1].into()));
    }
}
