//! Finds paths such as `Engine::reload` in the pages about the code that no longer name anything.

use std::collections::{BTreeMap, BTreeSet};

use super::TextPlace;

/// The pages that describe the code to its developers.
const PAGES: &[&str] = &["ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", "docs/GLOSSARY.md", "docs/internals/"];

/// The identifiers of every Rust file, and the paths that the pages name.
#[derive(Default)]
pub(super) struct PathTally {
    identifiers: Vec<BTreeSet<String>>,
    /// The places of a path's last two parts.
    named: BTreeMap<(String, String), Vec<TextPlace>>,
}

impl PathTally {
    /// Adds the identifiers of a Rust file, `code` without comments and strings. Those of its path are its modules.
    pub(super) fn rust(&mut self, path: &str, code: &str) {
        self.identifiers.push([path, code].into_iter().flat_map(words).map(str::to_owned).collect());
    }

    /// Adds the paths that a page has in backquotes.
    pub(super) fn markdown(&mut self, path: &str, text: &str) {
        if !PAGES.iter().any(|page| path == *page || page.ends_with('/') && path.starts_with(page)) {
            return;
        }
        for (at, line) in text.lines().enumerate() {
            for span in line.split('`').skip(1).step_by(2) {
                let place = TextPlace { at: format!("{path}:{}", at + 1), text: span.to_owned() };
                for pair in pairs(span) {
                    self.named.entry(pair).or_default().push(place.clone());
                }
            }
        }
    }

    /// Returns the places of the paths whose parts no Rust file contains together.
    pub(super) fn stale(self) -> Vec<TextPlace> {
        let is_known = |(owner, member): &(String, String)| {
            self.identifiers.iter().any(|file| file.contains(owner) && file.contains(member))
        };
        self.named.iter().filter(|(pair, _)| !is_known(pair)).flat_map(|(_, places)| places.clone()).collect()
    }
}

/// Returns the last two parts of every path in a span. `A::{b, c}` has two.
fn pairs(span: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let parts: Vec<&str> = span.split("::").collect();
    for (at, two) in parts.windows(2).enumerate() {
        let Some(owner) = words(two[0]).last() else { continue };
        if let Some(list) = two[1].strip_prefix('{') {
            let list = list.split('}').next().unwrap_or_default();
            found.extend(words(list).map(|member| (owner.to_owned(), member.to_owned())));
        } else if let Some(member) = words(two[1]).next()
            // An inner part of a path: the next pair has it as its owner.
            && (at + 2 == parts.len() || two[1].len() != member.len())
        {
            found.push((owner.to_owned(), member.to_owned()));
        }
    }
    found
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_name_nothing_are_found() {
        let mut tally = PathTally::default();
        tally.rust("crates/engine/src/sockets.rs", "impl Engine { fn start_with() {} fn drain() {} }");
        tally.rust("crates/certs/src/lib.rs", "struct Keeper; fn renew() {}");
        tally.markdown(
            "docs/internals/a.md",
            "`Engine::start_with` and `sockets::Engine::drain()`\n\n`Engine::renew`\n",
        );
        tally.markdown("docs/internals/a.md", "`Keeper::{renew, open}` calls Engine::nothing\n");
        tally.markdown("docs/guide.md", "`tower::ServiceExt`\n");
        let stale: Vec<_> = tally.stale().into_iter().map(|place| (place.at, place.text)).collect();
        let expected = [("docs/internals/a.md:3", "Engine::renew"), ("docs/internals/a.md:1", "Keeper::{renew, open}")];
        assert_eq!(stale, expected.map(|(at, text)| (at.to_owned(), text.to_owned())));
    }

    #[test]
    fn pairs_of_a_path() {
        let pair = |owner: &str, member: &str| (owner.to_owned(), member.to_owned());
        assert_eq!(pairs("a::b::C::d(e::f)"), [pair("C", "d"), pair("e", "f")]);
        assert_eq!(pairs("A::{b, c}"), [pair("A", "b"), pair("A", "c")]);
        assert!(pairs("a.b: c").is_empty());
    }
}
