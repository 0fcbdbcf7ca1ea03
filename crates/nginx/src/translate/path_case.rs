//! The case of paths: whether the matchers of a server may ignore it, and the matchers of paths and prefixes.

use super::access::refuses;
use super::inherited;
use super::tables::REFUSING;
use crate::location::{Location, Locations, Pattern, pattern};
use crate::parse::Directive;
use crate::variables::variables;
use crate::write::{cel_text, quote};

/// The variables of nginx that contain the path.
const PATH_SOURCES: &[&str] = &["uri", "request_uri", "document_uri", "fastcgi_script_name", "request_filename"];

/// Whether the matchers of a server's paths may ignore case, as `path` does. nginx compares them with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PathCase {
    /// All locations have the same access rules, and all rules are about prefixes and exact paths: they concern a path
    /// in another case as well.
    Ignored,
    /// Locations have different access rules, or other rules compare the case, such as an expression that refuses a
    /// path within a prefix.
    Compared,
}

impl PathCase {
    /// How the paths of a server are compared.
    pub(super) fn of(http: &Directive, server: &Directive, locations: &Locations<'_>) -> Self {
        let mut prefixes: Vec<_> =
            locations.ordered.iter().map(Location::prefix).filter(|path| !path.is_empty()).collect();
        prefixes.sort_unstable();
        prefixes.dedup();
        let all = prefixes.len();
        let mut lower: Vec<_> = prefixes.iter().map(|path| path.to_ascii_lowercase()).collect();
        lower.sort_unstable();
        lower.dedup();
        let of_path = |text: &str| variables(text).iter().any(|name| PATH_SOURCES.contains(name));
        let maps = http.block().iter().filter(|d| d.name == "map" && of_path(d.argument(0)));
        let mut names: Vec<&str> = PATH_SOURCES.to_vec();
        names.extend(maps.map(|map| map.argument(1).trim_start_matches('$')));
        names.extend(set_to_paths(server));
        let is_compared = lower.len() < all || has_rules_of_case(server, &names) || has_unequal_access(locations);
        if is_compared { Self::Compared } else { Self::Ignored }
    }

    /// The path as a word of `path`, if that compares it as it should.
    pub(super) fn plain(self, path: &str) -> Option<&str> {
        let has_letters = path.contains(|c: char| c.is_ascii_alphabetic());
        (is_plain_path(path) && (self == Self::Ignored || !has_letters)).then_some(path)
    }

    /// The matcher for a path, or for a prefix with an empty `end`.
    pub(super) fn matcher(self, path: &str, end: &str) -> String {
        match self.plain(path) {
            Some(path) => format!("path {path}{}", if end.is_empty() { "*" } else { "" }),
            None if is_plain_path(path) => format!("path_regexp ^{}{end}", regex::escape(path)),
            None => format!("expression {}", quote(&path_test(path, end))),
        }
    }

    /// Adds [`Self::matcher`] to a set, whose conditions of `expression` are `tests`.
    pub(super) fn add(self, lines: &mut Vec<String>, tests: &mut Vec<String>, path: &str, end: &str) {
        if is_plain_path(path) { lines.push(self.matcher(path, end)) } else { tests.push(path_test(path, end)) }
    }

    /// The matchers for all paths but those with these prefixes.
    pub(super) fn others(self, prefixes: &[String]) -> Vec<String> {
        let (plain, others): (Vec<_>, Vec<_>) = prefixes.iter().partition(|prefix| self.plain(prefix).is_some());
        let mut lines = Vec::new();
        if !plain.is_empty() {
            let plain: Vec<_> = plain.iter().map(|prefix| format!("{prefix}*")).collect();
            lines.push(format!("not path {}", plain.join(" ")));
        }
        lines.extend(others.iter().map(|prefix| format!("not {}", self.matcher(prefix, ""))));
        lines
    }
}

/// Whether no character of a path has a meaning in a pattern of `path`, or ends a word.
pub(super) fn is_plain_path(path: &str) -> bool {
    path.starts_with('/') && path.chars().all(|c| !c.is_whitespace() && !"*?[]\\%{}\"`".contains(c))
}

/// The test of an expression for a path, or for a prefix with an empty `end`.
pub(super) fn path_test(path: &str, end: &str) -> String {
    format!("path_regexp({})", cel_text(&format!("^{}{end}", regex::escape(path))))
}

/// Whether some locations of a server have access rules that others lack: by another case a path must not come from one
/// to the other.
fn has_unequal_access(locations: &Locations<'_>) -> bool {
    const INHERITED: [&str; 7] =
        ["allow", "deny", "satisfy", "auth_basic", "auth_basic_user_file", "auth_request", "limit_req"];
    let mut rules = locations.ordered.iter().map(|location| {
        let of_name = |name: &&str| inherited(&location.blocks, name);
        let is_inherited = |name: &str| INHERITED.contains(&name) || REFUSING.contains(&name);
        let is_own = |rule: &&Directive| refuses(rule) && !is_inherited(&rule.name);
        let own: Vec<_> = location.location_blocks().iter().flat_map(|block| block.block()).filter(is_own).collect();
        (INHERITED.iter().chain(REFUSING).flat_map(of_name).collect::<Vec<_>>(), own)
    });
    let Some(first) = rules.next() else { return false };
    rules.any(|other| other != first)
}

/// The variables that lines `set` of a block, at any depth, give a value with the path.
fn set_to_paths(block: &Directive) -> Vec<&str> {
    let mut found = Vec::new();
    for directive in block.block() {
        if directive.name == "set" && variables(directive.argument(1)).iter().any(|name| PATH_SOURCES.contains(name)) {
            found.push(directive.argument(0).trim_start_matches('$'));
        }
        found.extend(set_to_paths(directive));
    }
    found
}

/// Whether a block has rules that compare the case of a path, which these variables contain.
fn has_rules_of_case(block: &Directive, names: &[&str]) -> bool {
    let has_letters = |word: &str| word.contains(|c: char| c.is_ascii_alphabetic());
    block.block().iter().any(|rule| {
        let compares = match &*rule.name {
            "location" => match pattern(rule) {
                Ok(Pattern::Regexp(expression)) => !expression.starts_with("(?i)") && has_letters(&expression),
                _ => false,
            },
            "rewrite" => has_letters(rule.argument(0)),
            "if" => rule.arguments.iter().any(|word| variables(word).iter().any(|name| names.contains(name))),
            _ => false,
        };
        compares || has_rules_of_case(rule, names)
    })
}
