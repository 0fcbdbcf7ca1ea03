//! The index of a long route list: finds the routes that can match a host or a path, so that a request costs about
//! the same with thousands of sites as with a few.
//!
//! Every route is in one table: by the hosts of its matchers, else by their paths, else among the others. The
//! interpreter still evaluates the matchers of each route found: the index may return routes that do not match.

use rustc_hash::FxHashMap;

use super::{MatcherSet, Route};
use crate::context::Context;
use crate::handler::{PathReach, Reach};

/// With fewer routes in the tables of hosts and paths, a walk of the list is faster.
const ROUTES_MIN: usize = 8;
/// Bytes of an indexed host name; DNS allows 255 (RFC 1035 §2.3.4).
const HOST_BYTES_MAX: usize = 256;

/// Route numbers, ascending.
type Routes = Vec<u32>;

pub(crate) struct Index {
    hosts: Hosts,
    paths: Paths,
    others: Routes,
}

impl Index {
    /// Builds the index; `None` if a walk of the list is as fast.
    pub(crate) fn of(routes: &[Route]) -> Option<Self> {
        let mut index = Self { hosts: Hosts::new(), paths: Paths::default(), others: Vec::new() };
        for (number, route) in routes.iter().enumerate() {
            index.add(number as u32, route);
        }
        index.paths.link();
        (routes.len() - index.others.len() >= ROUTES_MIN).then_some(index)
    }

    fn add(&mut self, number: u32, route: &Route) {
        let sets = &route.matchers;
        let hosts: Option<Vec<_>> = sets.iter().map(hosts).collect();
        let paths: Option<Vec<_>> = sets.iter().map(paths).collect();
        match (hosts, paths) {
            _ if sets.is_empty() => self.others.push(number),
            // Every alternative set must restrict the hosts: a set without hosts matches any.
            (Some(hosts), _) if hosts.iter().flatten().all(|host| is_indexable(host)) => {
                hosts.into_iter().flatten().for_each(|host| self.hosts.add(host, number));
            }
            (_, Some(paths)) => paths.into_iter().flatten().for_each(|path| self.paths.add(path, number)),
            _ => self.others.push(number),
        }
    }

    /// Returns the first route from `from` on that may match; `u32::MAX` if there is none. O(labels + log paths).
    pub(crate) fn next(&self, from: u32, cx: &Context) -> u32 {
        // The tables hold plain paths. For other paths, and for long hosts, every route may match.
        if !self.paths.keys.is_empty() && !cx.path_is_plain() {
            return from;
        }
        let mut next = first(&self.others, from);
        if !self.hosts.is_empty() {
            let host = cx.host();
            if host.len() > HOST_BYTES_MAX {
                return from;
            }
            self.hosts.visit(host.as_bytes(), |routes| next = next.min(first(routes, from)));
        }
        self.paths.visit(cx.path(), &mut |routes| next = next.min(first(routes, from)));
        next
    }
}

/// Returns the first number that is not below `from`.
fn first(routes: &Routes, from: u32) -> u32 {
    routes.get(routes.partition_point(|&route| route < from)).copied().unwrap_or(u32::MAX)
}

fn hosts(set: &MatcherSet) -> Option<Vec<&str>> {
    set.iter().find_map(|matcher| match matcher.reach() {
        Reach::Hosts(hosts) => Some(hosts),
        _ => None,
    })
}

fn paths(set: &MatcherSet) -> Option<Vec<PathReach<'_>>> {
    set.iter().find_map(|matcher| match matcher.reach() {
        Reach::Paths(paths) => Some(paths),
        _ => None,
    })
}

fn is_indexable(host: &str) -> bool {
    host.is_ascii() && host.len() <= HOST_BYTES_MAX
}

fn push(routes: &mut Routes, route: u32) {
    // A route may contain one host or path twice.
    if routes.last() != Some(&route) {
        routes.push(route);
    }
}

/// Hosts by name, and hosts with wildcards as a tree of labels, from the last label to the first.
struct Hosts {
    names: FxHashMap<Box<[u8]>, Routes>,
    nodes: Vec<Node>,
}

#[derive(Default)]
struct Node {
    children: FxHashMap<Box<[u8]>, usize>,
    /// The child for the label `*`.
    any: Option<usize>,
    /// Routes whose pattern ends at this node.
    routes: Routes,
}

impl Hosts {
    fn new() -> Self {
        Self { names: FxHashMap::default(), nodes: vec![Node::default()] }
    }

    fn is_empty(&self) -> bool {
        self.names.is_empty() && self.nodes.len() == 1
    }

    fn add(&mut self, host: &str, route: u32) {
        let host = host.to_ascii_lowercase();
        if !host.split('.').any(|label| label == "*") {
            // Exact names need one hash lookup; only patterns go into the tree.
            return push(self.names.entry(host.into_bytes().into()).or_default(), route);
        }
        let mut at = 0;
        for label in host.rsplit('.') {
            let fresh = self.nodes.len();
            let node = &mut self.nodes[at];
            at = match label {
                "*" => *node.any.get_or_insert(fresh),
                label => *node.children.entry(label.as_bytes().into()).or_insert(fresh),
            };
            if at == fresh {
                self.nodes.push(Node::default());
            }
        }
        push(&mut self.nodes[at].routes, route);
    }

    /// Calls `show` with the routes of every pattern that matches the host. Does nothing if the host exceeds
    /// [`HOST_BYTES_MAX`].
    fn visit(&self, host: &[u8], mut show: impl FnMut(&Routes)) {
        let mut lower = [0; HOST_BYTES_MAX];
        let Some(lower) = lower.get_mut(..host.len()) else { return };
        lower.copy_from_slice(host);
        lower.make_ascii_lowercase();
        if let Some(routes) = self.names.get(lower) {
            show(routes);
        }
        if self.nodes.len() > 1 {
            self.descend(0, lower, &mut show);
        }
    }

    /// Recurses at most once per label of the longest pattern.
    fn descend(&self, at: usize, host: &[u8], show: &mut impl FnMut(&Routes)) {
        let node = &self.nodes[at];
        let (rest, label) = match memchr::memrchr(b'.', host) {
            Some(dot) => (Some(&host[..dot]), &host[dot + 1..]),
            None => (None, host),
        };
        // Both branches: `a.test` matches the patterns `a.*` and `*.test`.
        for child in node.children.get(label).copied().into_iter().chain(node.any) {
            match rest {
                Some(rest) => self.descend(child, rest, show),
                None => show(&self.nodes[child].routes),
            }
        }
    }
}

/// Paths and path prefixes, in lower case and sorted.
#[derive(Default)]
struct Paths {
    keys: Vec<Key>,
}

struct Key {
    text: Box<[u8]>,
    exact: Routes,
    prefix: Routes,
    /// The longest other key that is a prefix of this one.
    parent: Option<usize>,
}

impl Paths {
    /// Adds a key; [`link`](Self::link) sorts all keys afterwards.
    fn add(&mut self, reach: PathReach<'_>, route: u32) {
        let (text, exact) = match reach {
            PathReach::Exact(text) => (text, true),
            PathReach::Prefix(text) => (text, false),
        };
        let text = text.to_ascii_lowercase().into_bytes().into();
        let (exact, prefix) = if exact { (vec![route], Vec::new()) } else { (Vec::new(), vec![route]) };
        self.keys.push(Key { text, exact, prefix, parent: None });
    }

    /// Sorts the keys, merges equal ones, and computes the parent of each.
    fn link(&mut self) {
        // A stable sort: the routes of equal keys stay in ascending order.
        self.keys.sort_by(|one, other| one.text.cmp(&other.text));
        self.keys.dedup_by(|later, kept| {
            let same = later.text == kept.text;
            if same {
                later.exact.iter().for_each(|&route| push(&mut kept.exact, route));
                later.prefix.iter().for_each(|&route| push(&mut kept.prefix, route));
            }
            same
        });
        for at in 1..self.keys.len() {
            // The parent is the preceding key, or one of its ancestors: keys between a prefix and its extension share
            // the prefix.
            let mut candidate = Some(at - 1);
            while let Some(key) = candidate.filter(|&key| !self.keys[at].text.starts_with(&self.keys[key].text)) {
                candidate = self.keys[key].parent;
            }
            self.keys[at].parent = candidate;
        }
    }

    /// Calls `show` with the routes of every key that equals the path or is a prefix of it.
    fn visit(&self, path: &[u8], show: &mut impl FnMut(&Routes)) {
        let lower = || path.iter().map(u8::to_ascii_lowercase);
        let upper = self.keys.partition_point(|key| key.text.iter().copied().cmp(lower()).is_le());
        // Every key that is a prefix of the path is the greatest key not above it, or an ancestor of that key.
        let mut candidate = upper.checked_sub(1);
        while let Some(key) = candidate.map(|at| &self.keys[at]) {
            if path.get(..key.text.len()).is_some_and(|start| start.eq_ignore_ascii_case(&key.text)) {
                show(&key.prefix);
                if path.len() == key.text.len() {
                    show(&key.exact);
                }
            }
            candidate = key.parent;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_hosts(hosts: &[&str], host: &str) -> Routes {
        let mut tree = Hosts::new();
        for (route, host) in hosts.iter().enumerate() {
            tree.add(host, route as u32);
        }
        let mut found = Vec::new();
        tree.visit(host.as_bytes(), |routes| found.extend(routes));
        found.sort_unstable();
        found
    }

    #[test]
    fn hosts_and_wildcards() {
        let hosts = ["a.test", "*.test", "b.A.test", "*.a.test", "test", "*", "*.*.test", "a.test"];
        for (host, want) in [
            ("a.test", &[0, 1, 7][..]),
            ("A.TEST", &[0, 1, 7]),
            ("b.test", &[1]),
            ("b.a.test", &[2, 3, 6]),
            ("c.a.test", &[3, 6]),
            ("c.b.test", &[6]),
            ("test", &[4, 5]),
            ("other", &[5]),
            ("", &[5]),
            (".test", &[1]),
            ("x.y.z.test", &[]),
        ] {
            assert_eq!(of_hosts(&hosts, host), want, "{host}");
        }
        let long = "x".repeat(HOST_BYTES_MAX);
        assert_eq!(of_hosts(&["*", "a", &long], &long), [0, 2]);
    }

    #[test]
    fn exact_paths_and_path_prefixes() {
        use PathReach::{Exact, Prefix};
        let mut table = Paths::default();
        let keys = [Exact("/a"), Prefix("/"), Prefix("/A/"), Exact("/a/b"), Prefix("/a/b"), Prefix("/ab"), Exact("/a")];
        for (route, key) in keys.into_iter().enumerate() {
            table.add(key, route as u32);
        }
        table.link();
        for (path, want) in [
            ("/a", &[0, 1, 6][..]),
            ("/", &[1]),
            ("/a/", &[1, 2]),
            ("/a/B", &[1, 2, 3, 4]),
            ("/a/bc", &[1, 2, 4]),
            ("/a/c", &[1, 2]),
            ("/ABC", &[1, 5]),
            ("/z", &[1]),
            ("*", &[]),
            ("", &[]),
        ] {
            let mut found = Routes::new();
            table.visit(path.as_bytes(), &mut |routes| found.extend(routes));
            found.sort_unstable();
            assert_eq!(found, want, "{path}");
        }
    }
}
